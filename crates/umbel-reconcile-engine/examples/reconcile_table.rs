//! What reconciling two sets costs on the wire, measured on whole sessions.
//!
//! `reconcile_table [n] [seed]` takes sets of n items per side (a million by default) of 64-bit and of
//! 256-bit random ids, and differences from none to everything. It prints the bytes of a two-way session by
//! purpose, their ratio to the lower bound, rounds and seconds, and for comparison other methods: a plain
//! list, rateless coded symbols alone, and a Merkle tree, whose bytes are computed generously, without
//! greetings, frames and checks; and for 256-bit ids negentropy 0.5
//! (<https://github.com/rust-nostr/negentropy>), which runs on the same sets.

mod session_pair;

use std::env;
use std::time::Instant;

use negentropy::{Id, Negentropy, NegentropyStorageVector};
use session_pair::{item, mix, run};
use umbel_reconcile_engine::{Direction, Item, Optimize, Options, SessionRole, SymbolKind};

/// The columns: bytes, their ratio to the lower bound, rounds, number of keys tried; bytes by phase;
/// seconds of the initiator's passes and of both sides' steps; bytes of other methods; messages and seconds
/// of negentropy.
const HEADER: &str = "       d      bytes   x LB round keys    hello  estim    filter    sketch      list  request     \
     items control pass s    I s    R s       list      riblt     merkle negentropy  msgs  seconds  plan";

/// Bits of k sorted w-bit values.
fn list_bits(count: f64, width: f64) -> f64 {
    if count < 1.0 { 0.0 } else { count * (width - count.log2() + std::f64::consts::LOG2_E) }
}

/// Bytes of other methods: a list of everything, coded symbols, a Merkle tree.
fn others(n: f64, a: f64, b: f64, width: f64) -> [f64; 3] {
    let payload = list_bits(a, width) + list_bits(b, width);
    let list = list_bits(n, width) + list_bits(a, width);
    let d = a + b;
    let overhead = match d {
        d if d < 1.5 => 1.0,
        d if d < 24.0 => 1.7,
        d if d < 300.0 => 1.45,
        d if d < 3000.0 => 1.38,
        _ => 1.35,
    };
    let is_id = width < 65.0;
    let (request, own) =
        if is_id { (0.0, list_bits(a, width)) } else { (list_bits(b, 28.0), payload) };
    let riblt = overhead * d * (64.0 + 32.0) + request + own;
    // Leaves of 2^k items: both children's 64-bit hashes of each differing node, then the 64-bit hashes of
    // the leaf's items.
    let merkle = (4..=20).map(|depth| {
        let distinct = |nodes: f64| nodes * -(-d / nodes).exp_m1();
        let levels: f64 = (0..depth).map(|level| distinct(f64::from(1 << level))).sum();
        let leaves = f64::from(1 << depth);
        distinct(leaves) * n / leaves * 64.0 + levels * 2.0 * 64.0 + own + request
    });
    [list / 8.0, riblt / 8.0, merkle.fold(f64::INFINITY, f64::min) / 8.0]
}

/// The cost of negentropy for the same sets: bytes, including the ids that the other side lacks, messages,
/// and seconds of both sides without sorting the sets.
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn run_negentropy(ours: &[Item], theirs: &[Item], a: u64, b: u64) -> (usize, u32, f64) {
    let sorted = |items: &[Item]| {
        let mut storage = NegentropyStorageVector::with_capacity(items.len());
        for item in items {
            let id = Id::from_slice(&item.to_bytes()).expect("32 bytes");
            storage.insert(0, id).expect("not sealed yet");
        }
        storage.seal().expect("once");
        storage
    };
    let (ours, theirs) = (sorted(ours), sorted(theirs));
    let started = Instant::now();
    let mut here = Negentropy::borrowed(&ours, 0).expect("no limit");
    let mut there = Negentropy::borrowed(&theirs, 0).expect("no limit");
    let (mut have, mut need) = (Vec::new(), Vec::new());
    let mut next = Some(here.initiate().expect("a sealed set"));
    let (mut byte_count, mut message_count) = (0, 0);
    while let Some(question) = next {
        let answer = there.reconcile(&question).expect("an honest peer");
        byte_count += question.len() + answer.len();
        message_count += 2;
        let found = here.reconcile_with_ids(&answer, &mut have, &mut need);
        next = found.expect("an honest peer");
    }
    assert_eq!((have.len() as u64, need.len() as u64), (a, b));
    (byte_count + 32 * have.len(), message_count, started.elapsed().as_secs_f64())
}

fn main() {
    let mut arguments = env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let n = arguments.next().unwrap_or(1_000_000);
    let seed = arguments.next().unwrap_or(1);
    for (kind, width, optimize) in [
        (SymbolKind::Id64, 64.0, Optimize::Bytes),
        (SymbolKind::Hashed, 256.0, Optimize::Bytes),
        (SymbolKind::Id64, 64.0, Optimize::Time),
    ] {
        println!("{width}-bit ids, {n} a side, {optimize:?}");
        println!("{HEADER}");
        let sizes = [0, 1, 2, 5, 10, 15, 20, 50, 100, 1000, 10_000, 100_000, n, 2 * n];
        for d in sizes {
            let (a, b) = (d.div_ceil(2), d / 2);
            if d > 2 * n {
                continue;
            }
            let salt = seed.wrapping_add(d << 32);
            let side = |from: u64, only: u64| -> Vec<Item> {
                let both = (0..n - a).map(|number| item(kind, salt, number));
                both.chain((from..from + only).map(|number| item(kind, salt, number))).collect()
            };
            let (our_items, their_items) = (side(1 << 40, a), side(2 << 40, b));
            let peer = (width > 65.0).then(|| run_negentropy(&our_items, &their_items, a, b));
            let mut initiator = Options::initiator(kind, Direction::TwoWay, mix(1));
            if let SessionRole::Initiator(aim) = &mut initiator.role {
                aim.optimize = optimize;
            }
            let responder = Options::responder(kind, mix(2));
            let (ours, theirs) = run((initiator, &our_items), (responder, &their_items));
            let outcome = ours.outcome.expect("done");
            assert_eq!((outcome.only_here_count, outcome.only_there_count), (a, b));
            assert_eq!((ours.applied.len() as u64, theirs.applied.len() as u64), (b, a));
            let bytes = outcome.bytes;
            let [list, riblt, merkle] = others(n as f64, a as f64, b as f64, width);
            println!(
                "{d:>8} {:>10} {:>6.3} {:>5} {:>4} {:>8} {:>6} {:>9} {:>9} {:>9} {:>8} {:>9} {:>7} {:>6.2} {:>6.2} \
                 {:>6.2} {list:>10.0} {riblt:>10.0} {merkle:>10.0} {}  {}",
                bytes.total(),
                bytes.total() as f64 / (outcome.lower_bound_bytes.max(1)) as f64,
                outcome.round_count,
                outcome.attempt_count,
                bytes.hello,
                bytes.estimator,
                bytes.filter,
                bytes.sketch,
                bytes.list,
                bytes.request,
                bytes.items,
                bytes.control,
                ours.pass_seconds,
                ours.step_seconds,
                theirs.step_seconds,
                peer.map_or_else(
                    || " ".repeat(25),
                    |(bytes, messages, seconds)| format!(
                        "{bytes:>10} {messages:>5} {seconds:>8.2}"
                    )
                ),
                outcome.plan,
            );
        }
    }
}
