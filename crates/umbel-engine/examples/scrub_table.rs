//! What comparing and repairing the replicas of a shard costs, measured with three states and the leader's
//! scrubber.
//!
//! `scrub_table [--mib N]` makes three replicas of a blocked slice of N MiB (256 by default, the largest in
//! a shard) with half of the bits set, flips bits of one replica, and has the replicas compared. It prints
//! how fast a replica digests its slice, next to how fast the machine copies and reads memory. For each
//! number of flips, it prints the bytes between the leader and the two others: their answers, and the log
//! entries sent to each. Seconds are those of all replicas, one after the other, on one core.

use std::collections::BTreeMap;
use std::env;
use std::hint::black_box;
use std::time::Instant;

use umbel_engine::shard::{
    KeyName, RepairPart, ReplicaAnswer, ReplicaQuestion, ScrubInput, ScrubOutput, ScrubPart,
    Scrubber, ShardCommand, ShardReply, ShardState, SliceScrubbed, SliceShape, SliceSpec,
};
use umbel_engine::{FilterId, Generation, NodeId, ShardId};
use umbel_filter::{HashFunction, HashRange, Kind};
use umbel_step::Outbox;

const FILTER: FilterId = FilterId(1);
const FIRST: Generation = Generation(1);
const LEADER: NodeId = NodeId(1);

/// Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195.
fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

struct Group {
    replicas: BTreeMap<NodeId, ShardState>,
    index: u64,
    byte_count: u64,
}

impl Group {
    fn new(mib: u64) -> Self {
        let block_count = mib * (1 << 20) / 64;
        let kind = Kind::Blocked.id();
        let shape = SliceShape::Blocks { kind, block_count, block_bits: 512, probe_count: 6 };
        let key = KeyName { function: HashFunction::Xxh3Seeded.id(), key_id: 7 };
        let spec = SliceSpec { filter: FILTER, generation: FIRST, shape, key };
        let mut state = ShardState::new(ShardId(0), HashRange::WHOLE);
        state.apply_at(1, &ShardCommand::CreateSlice(spec));
        let mut group = Self { replicas: BTreeMap::new(), index: 1, byte_count: 0 };
        group.replicas.insert(LEADER, state);
        // Sets half of the bits by repairs, the only command that writes words.
        for first in (0..u32::try_from(mib * 256).expect("a slice is small")).step_by(128) {
            let words = |block: u32| (0..512).map(|at| mix(u64::from(block) << 9 | at)).collect();
            let blocks = (first..first + 128).map(|block| (block, words(block))).collect();
            let (filter, generation) = (FILTER, FIRST);
            let (read_at, counters) = (u64::MAX, Vec::new());
            let part = RepairPart { filter, generation, read_at, blocks, counters };
            group.apply(&ShardCommand::Repair(part));
        }
        for node in [NodeId(2), NodeId(3)] {
            group.replicas.insert(node, group.replicas[&LEADER].clone());
        }
        group.byte_count = 0;
        group
    }

    fn apply(&mut self, command: &ShardCommand) {
        self.index += 1;
        let words = match command {
            ShardCommand::Repair(part) => {
                part.blocks.iter().map(|(_, words)| 1 + words.len()).sum()
            }
            _ => 4,
        };
        self.byte_count += 2 * 8 * words as u64;
        for replica in self.replicas.values_mut() {
            let reply = replica.apply_at(self.index, command);
            assert_eq!(reply, ShardReply::Done(Ok(())));
        }
    }

    fn answer(&mut self, node: NodeId, question: &ReplicaQuestion) -> ReplicaAnswer {
        let state = &self.replicas[&node];
        let (answer, words) = match question {
            ReplicaQuestion::Root { seed } => {
                let piece = state.scrubbed(*seed).expect("it was digested");
                let (root, answers) = (piece.root(), piece.answers);
                let (block_count, block_words) = (piece.block_count, piece.block_words);
                (ReplicaAnswer::Root { root, answers, block_count, block_words }, 4)
            }
            ReplicaQuestion::Digests { seed } => {
                let piece = state.scrubbed(*seed).expect("it was digested").clone();
                let words = piece.digests.len();
                (ReplicaAnswer::Digests(piece), words)
            }
            ReplicaQuestion::Blocks { filter, generation, blocks } => {
                let read = state.read_blocks(self.index, *filter, *generation, blocks);
                let read = read.expect("the blocks were asked for by a scrubber");
                let words = read.contents.iter().map(Vec::len).sum();
                (ReplicaAnswer::Blocks(read), words)
            }
        };
        if node != LEADER {
            self.byte_count += 8 * words as u64;
        }
        answer
    }

    fn scrub(&mut self) -> SliceScrubbed {
        let voters = self.replicas.keys().copied().collect();
        let mut scrubber = Scrubber::new(FILTER, FIRST, voters, self.index << 20);
        let mut out = Outbox::new();
        scrubber.step(ScrubInput::Start, &mut out);
        loop {
            let mut inputs = Vec::new();
            for order in out.take() {
                match order {
                    ScrubOutput::Propose(command) => {
                        self.apply(&command);
                        inputs.push(ScrubInput::Applied(Ok(())));
                    }
                    ScrubOutput::Ask { replica, question } => {
                        let answer = Ok(self.answer(replica, &question));
                        inputs.push(ScrubInput::Answered { replica, answer });
                    }
                    ScrubOutput::Hold => inputs.push(ScrubInput::Held),
                    ScrubOutput::Release => {}
                    ScrubOutput::Finish(report) => return report.expect("nothing fails here"),
                }
            }
            inputs.into_iter().for_each(|input| scrubber.step(input, &mut out));
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn seconds(work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_secs_f64()
}

fn main() {
    let mut mib = 256;
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().and_then(|value| value.parse().ok());
        match (argument.as_str(), value) {
            ("--mib", Some(value @ 1..=256)) => mib = value,
            _ => panic!("usage: scrub_table [--mib 1..256]"),
        }
    }
    let mut group = Group::new(mib);
    let word_count = usize::try_from(mib << 17).expect("a slice is small");
    let words: Vec<u64> = (0..word_count as u64).collect();
    let mut copy = vec![1_u64; word_count];
    let gib = mib as f64 / 1024.0;
    let copied = seconds(|| copy.copy_from_slice(black_box(&words)));
    let read = seconds(|| {
        black_box(words.iter().fold(0_u64, |sum, word| sum.wrapping_add(*word)));
    });
    black_box(&copy);
    let leader = group.replicas.get_mut(&LEADER).expect("it is there");
    let pieces = (0..u32::try_from(mib * 256).expect("a slice is small")).step_by(4096);
    let times: Vec<f64> = pieces
        .map(|first_block| {
            let part = ScrubPart { filter: FILTER, generation: FIRST, seed: 1, first_block };
            seconds(|| drop(leader.apply_at(3, &ShardCommand::Scrub(part))))
        })
        .collect();
    let digested: f64 = times.iter().sum();
    let longest = 1_000.0 * times.iter().copied().fold(0.0, f64::max);
    println!(
        "digests {:.1} GiB/s, the longest wait {longest:.1} ms; copying {:.1} GiB/s, reading {:.1} GiB/s",
        gib / digested,
        gib / copied,
        gib / read
    );
    println!("{:>9} {:>12} {:>14} {:>9} {:>9}", "flips", "bytes", "a flip", "lost", "seconds");
    let bit_count = mib << 23;
    for flips in [0, 1, 10, 1_000, 10_000] {
        group.byte_count = 0;
        let rotten = group.replicas.get_mut(&NodeId(2)).expect("it is there");
        let every = usize::try_from(bit_count / flips.max(1)).expect("a slice is small");
        let flipped = if flips > 0 { rotten.rot(FILTER, every, false) } else { 0 };
        let mut report = SliceScrubbed::default();
        let took = seconds(|| report = group.scrub());
        assert_eq!(report.left_blocks, 0, "all of it is mended");
        let lost: u64 = report.differing.values().map(|bits| bits.lost).sum();
        let each = group.byte_count.checked_div(flipped).unwrap_or(0);
        println!("{flipped:>9} {:>12} {each:>14} {lost:>9} {took:>9.2}", group.byte_count);
    }
}
