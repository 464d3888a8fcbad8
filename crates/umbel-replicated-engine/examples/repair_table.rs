//! What repairing one of two copies of a bit array costs, measured with whole sessions.
//!
//! `repair_table [--mib N] [--seed S]` makes an array of N MiB (1,024 by default) with half of its bits
//! set, and a copy with flipped bits: none to a million over the whole array, and in clusters. For a
//! session that makes the initiator's copy equal to the responder's, it prints the bytes to and from the
//! initiator, next to the lower bound log2 C(n, k) / 8, the design's estimate, and the size of the
//! differing blocks. Then it prints the cost of a session that makes both copies their OR, where half of
//! the flips are on either side. Seconds are those of all steps of both sides, on one core, without
//! computing residue tables.

use std::collections::VecDeque;
use std::env;
use std::time::Instant;

use umbel_replicated_engine::repair::{
    Policy, RepairInput, RepairLimits, RepairOptions, RepairOutcome, RepairOutput, RepairSession,
    ResidueTable,
};
use umbel_step::Outbox;

/// Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195.
fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Bits of a block.
const BLOCK_BITS: u64 = 32_768;

/// The design's estimates for 1 GiB.
const DESIGN: [(usize, &str); 5] = [
    (10, "0.6 kB"),
    (1_000, "26 kB"),
    (100_000, "1.45 MB"),
    (1_000_000, "3.5 MB"),
    (10_000_000, "24 MB"),
];

struct Side<'a> {
    session: RepairSession,
    words: &'a mut Vec<u64>,
    inputs: VecDeque<RepairInput>,
    sent: VecDeque<Vec<u8>>,
    outcome: Option<RepairOutcome>,
    step_seconds: f64,
}

impl Side<'_> {
    #[expect(clippy::disallowed_methods, reason = "it measures")]
    fn work(&mut self) -> bool {
        let mut did = false;
        let mut out = Outbox::new();
        while let Some(input) = self.inputs.pop_front() {
            did = true;
            let started = Instant::now();
            self.session.step(input, &*self.words, &mut out);
            self.step_seconds += started.elapsed().as_secs_f64();
            for output in out.take() {
                match output {
                    RepairOutput::Send(bytes) => self.sent.push_back(bytes),
                    RepairOutput::Differs(difference) => {
                        let begin = u64::from(difference.block) * BLOCK_BITS;
                        for bit in difference.flips {
                            flip(self.words, begin + u64::from(bit));
                        }
                    }
                    RepairOutput::Finish(result) => {
                        self.outcome = Some(*result.expect("an honest session"));
                    }
                }
            }
        }
        did
    }
}

fn flip(words: &mut [u64], bit: u64) {
    words[usize::try_from(bit / 64).expect("a word")] ^= 1 << (bit % 64);
}

fn run(
    policy: Policy,
    tables: [ResidueTable; 2],
    ours: &mut Vec<u64>,
    theirs: &mut Vec<u64>,
) -> (RepairOutcome, f64) {
    let options = |table: &ResidueTable, nonce| RepairOptions {
        shape_id: 1,
        domain: [0; 16],
        nonce: mix(nonce),
        limits: RepairLimits::of(table),
    };
    let [a, b] = tables;
    let (ours_options, theirs_options) = (options(&a, 1), options(&b, 2));
    let side = |session, words| Side {
        session,
        words,
        inputs: VecDeque::from([RepairInput::Start]),
        sent: VecDeque::new(),
        outcome: None,
        step_seconds: 0.0,
    };
    let mut ours = side(RepairSession::initiator(ours_options, policy, a), ours);
    let mut theirs = side(RepairSession::responder(theirs_options, true, b), theirs);
    loop {
        let did = ours.work() | theirs.work();
        theirs.inputs.extend(ours.sent.drain(..).map(RepairInput::Received));
        ours.inputs.extend(theirs.sent.drain(..).map(RepairInput::Received));
        if let (Some(outcome), Some(_)) = (&ours.outcome, &theirs.outcome) {
            return (outcome.clone(), ours.step_seconds + theirs.step_seconds);
        }
        assert!(did, "both wait");
    }
}

/// log2 C(n, k) / 8, by Stirling's formula.
fn lower_bound_bytes(n: f64, k: f64) -> f64 {
    if k < 1.0 {
        return 0.0;
    }
    let ln_factorial = |x: f64| x * x.ln() - x + 0.5 * (std::f64::consts::TAU * x).ln();
    (ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k)) / std::f64::consts::LN_2 / 8.0
}

/// Distinct bits: all over the array, or in clusters of `width` bits each.
fn drawn(count: usize, bit_count: u64, cluster: Option<(usize, u64)>, seed: u64) -> Vec<u64> {
    let mut bits = Vec::with_capacity(count);
    let mut number = mix(seed);
    while bits.len() < count {
        let missing = count - bits.len();
        for at in 0..missing {
            number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let bit = match cluster {
                Some((clusters, width)) => {
                    let begin = mix(seed ^ (at % clusters) as u64) % (bit_count - width);
                    begin + mix(number) % width
                }
                None => mix(number) % bit_count,
            };
            bits.push(bit);
        }
        bits.sort_unstable();
        bits.dedup();
    }
    bits
}

fn row(name: &str, bits: &[u64], words: &mut Vec<u64>, table: &ResidueTable) {
    let bit_count = table.bit_count();
    let mut copy = words.clone();
    let mut copy_table = table.clone();
    for &bit in bits {
        flip(&mut copy, bit);
        copy_table.flip(bit);
    }
    let mut blocks: Vec<u64> = bits.iter().map(|bit| bit / BLOCK_BITS).collect();
    blocks.dedup();
    let union_of = |a: &[u64], b: &[u64]| a.iter().zip(b).map(|(a, b)| a | b).collect::<Vec<_>>();
    let expected = union_of(words, &copy);
    // The copy without those of its surplus bits that are set anyway: both ways cost something.
    let tables = || [copy_table.clone(), table.clone()];
    let original = words.clone();
    let lost = copy.clone();
    let (mirror, seconds) = run(Policy::Mirror, tables(), &mut copy, words);
    assert!(copy == *words && *words == original, "mirrored");
    assert_eq!(mirror.differing_bit_count, bits.len() as u64);
    copy = lost;
    let (union, union_seconds) = run(Policy::Union, tables(), &mut copy, words);
    assert!(copy == expected && *words == expected, "the OR");
    *words = original;

    let total = mirror.bytes.total() as f64;
    let bound = lower_bound_bytes(bit_count as f64, bits.len() as f64);
    let ratio = if bound > 0.0 { total / bound } else { 0.0 };
    let design = DESIGN.iter().find(|(flips, _)| *flips == bits.len() && name == "uniform");
    let design = design.map_or("-", |(_, bytes)| bytes);
    let parts = mirror.bytes;
    println!(
        "{:>9} {name:<12} {:>7} {:>9} {:>9} {:>9} {bound:>9.0} {ratio:>6.2} {design:>8} {:>11} | {:>5} {:>8} \
         {:>7} {:>8} {:>7} {:>8} | {:>4} {:>4} {:>5} {seconds:>7.2} | {:>9} {:>9} {union_seconds:>7.2}",
        bits.len(),
        blocks.len(),
        mirror.sent_bytes,
        mirror.received_bytes,
        parts.total(),
        blocks.len() as u64 * BLOCK_BITS / 8,
        parts.greeting,
        parts.find,
        parts.lists,
        parts.syndromes,
        parts.hashes,
        parts.raw,
        mirror.round_count,
        mirror.wrong_block_count,
        mirror.raw_block_count,
        union.bytes.total(),
        union.bytes.push,
    );
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn main() {
    let (mut mib, mut seed) = (1024u64, 1u64);
    let arguments: Vec<String> = env::args().skip(1).collect();
    for pair in arguments.chunks(2) {
        match pair {
            [name, value] if name == "--mib" => mib = value.parse().expect("a number"),
            [name, value] if name == "--seed" => seed = value.parse().expect("a number"),
            _ => panic!("repair_table [--mib N] [--seed S]"),
        }
    }
    let bit_count = mib << 23;
    let mut words: Vec<u64> = (0..bit_count / 64).map(|at| mix(at ^ seed << 40)).collect();
    let started = Instant::now();
    let table = ResidueTable::of_words(&words, bit_count).expect("within limits");
    println!("{mib} MiB, residue table in {:.2} s", started.elapsed().as_secs_f64());
    println!(
        "    flips where          dirty      sent  received     total     bound  ratio   design  raw blocks | greet     \
         find   lists syndrome  hashes      raw | ask wrong  raw       s | OR  total  of it push   s"
    );
    for count in [0, 1, 10, 1_000, 10_000, 100_000, 1_000_000, 10_000_000] {
        let share = usize::try_from(bit_count / 800).expect("small");
        if count <= share {
            row("uniform", &drawn(count, bit_count, None, seed), &mut words, &table);
        }
    }
    let page = BLOCK_BITS;
    for (name, count, clusters, width) in [
        ("4 KiB", 1_000, 10, page),
        ("4 KiB", 100_000, 100, page),
        ("64 KiB", 10_000, 10, 16 * page),
        ("64 KiB", 1_000_000, 1_000, 16 * page),
    ] {
        if clusters as u64 * width * 4 < bit_count {
            let bits = drawn(count, bit_count, Some((clusters, width)), seed);
            row(name, &bits, &mut words, &table);
        }
    }
}
