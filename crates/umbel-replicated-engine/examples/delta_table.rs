//! What replicated filters cost on the wire, measured with real frames of real replicas.
//!
//! `delta_table changes` prints the bytes of a delta per newly inserted item, for single-shot and
//! blocked filters, next to the entropy of the positions, a 64-bit hash per item, and the whole filter.
//! `delta_table nodes` prints what a node sends in one sweep of P nodes, next to all-to-all and a ring.

use std::process::ExitCode;

use umbel_bits::binary_entropy_bits;
use umbel_codec::{FrameKey, frames};
use umbel_engine::{FilterId, Generation, NodeId};
use umbel_filter::{
    AnyFilter, Blocked, Describe, HashFunction, HashRange, ItemHash, SingleShotShape,
    StoredSingleShot,
};
use umbel_replicated_engine::hypercube::{
    Cube, CubeRank, Delta, DeltaQuestion, DeltaReply, ReadChanges, Replica, ReplicaOptions,
};

/// Number of items for which the filters of the first table are made.
const CAPACITY: u64 = 100_000_000;

/// False-positive rate of all filters.
const RATE: f64 = 0.01;

/// Positions per item of a single-shot filter at this rate.
const POSITIONS_PER_ITEM: u64 = 100;

/// Numbers of items in the first table's deltas.
const DELTAS: [u64; 6] = [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// Numbers of nodes in the second table.
const NODES: [u32; 12] = [2, 3, 4, 5, 8, 13, 16, 64, 100, 256, 512, 1024];

/// Bytes of a node's number and count.
const COUNT_BYTES: u64 = 16;

/// Number of newly inserted items per node in the second table.
const ITEMS_PER_NODE: u64 = 100;

/// Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195.
fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Hashes of distinct items.
fn hashes(items: std::ops::Range<u64>) -> Vec<ItemHash> {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let hash = |item: u64| {
        let first = mix((2 * item + 1).wrapping_mul(GOLDEN));
        ItemHash::new(first, mix((2 * item + 2).wrapping_mul(GOLDEN)))
    };
    items.map(hash).collect()
}

fn single_shot(capacity: u64) -> AnyFilter {
    let shape = SingleShotShape::new(HashRange::WHOLE, capacity * POSITIONS_PER_ITEM);
    let shape = shape.expect("a sensible size");
    StoredSingleShot::new(shape).into()
}

fn blocked(capacity: u64) -> AnyFilter {
    let filter = Blocked::for_rate(HashRange::WHOLE, capacity, RATE).expect("a sensible size");
    filter.into()
}

fn copy(node: NodeId, filter: AnyFilter) -> Replica {
    let options = ReplicaOptions {
        node,
        filter: FilterId(1),
        generation: Generation(1),
        log: node.0,
        key: FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 },
        log_bytes_max: 1 << 30,
        payload_bytes_max: 8 << 20,
    };
    Replica::new(options, filter).expect("a kind that can be replicated")
}

/// A replica's answer, with its frames.
fn answer(copy: &mut Replica, asking: NodeId, question: &DeltaQuestion) -> (Delta, Vec<Vec<u8>>) {
    let DeltaReply { delta, changes } = copy.reply(asking, question).expect("it fits");
    let ReplicaOptions { key, payload_bytes_max, .. } = *copy.options();
    let whole = |frame: Result<_, _>| frame.expect("a payload holds a block");
    let frames = match changes {
        Some(changes) => changes.into_frames(),
        None => frames(copy.filter(), key, payload_bytes_max).map(whole).collect(),
    };
    (delta, frames)
}

fn frame_bytes(frames: &[Vec<u8>]) -> u64 {
    frames.iter().map(|frame| frame.len() as u64).sum()
}

/// The information, in bits, of which `count` of all positions are set: log2 of the number of choices,
/// by Stirling's formula n·H(count / n), up to a few bits.
fn entropy_bits(position_count: u64, count: u64) -> f64 {
    let share = count as f64 / position_count as f64;
    position_count as f64 * binary_entropy_bits(share)
}

/// Bytes of node 1's answer to node 2, which has nothing, after `item_count` inserts; and the number of
/// new items.
fn delta_of(filter: &AnyFilter, item_count: u64) -> (u64, u64) {
    let (one, other) = (NodeId(1), NodeId(2));
    let mut sender = copy(one, filter.clone());
    let mut new_count = 0;
    for first in (0..item_count).step_by(1 << 16) {
        let batch = hashes(first..item_count.min(first + (1 << 16)));
        new_count += sender.insert(&batch, &mut Vec::new()).expect("the whole hash space");
    }
    sender.begin_sweep();
    let question = copy(other, filter.clone()).ask(one);
    (frame_bytes(&answer(&mut sender, other, &question).1), new_count)
}

fn changes() {
    println!(
        "| items | single-shot | its entropy | above it | blocked | 64-bit hashes | whole blocked filter |"
    );
    println!("|--:|--:|--:|--:|--:|--:|--:|");
    let (single_shot, blocked) = (single_shot(CAPACITY), blocked(CAPACITY));
    let AnyFilter::SingleShot(stored) = &single_shot else { unreachable!("it is one") };
    let position_count = stored.single_shot_shape().position_count();
    let blocked_bytes = blocked.describe().memory_bytes;
    for item_count in DELTAS {
        let (bytes, new_count) = delta_of(&single_shot, item_count);
        let entropy_bytes = entropy_bits(position_count, new_count) / 8.0;
        let (blocked_delta, _) = delta_of(&blocked, item_count);
        let each = |bytes: f64| bytes / item_count as f64;
        println!(
            "| {item_count} | {:.3} | {:.3} | {:+.1} % | {:.3} | 8.000 | {:.1} |",
            each(bytes as f64),
            each(entropy_bytes),
            (bytes as f64 / entropy_bytes - 1.0) * 100.0,
            each(blocked_delta as f64),
            each(blocked_bytes as f64),
        );
    }
}

/// One sweep in lock step. Returns the bytes of frames and of versions that all nodes sent.
fn sweep(copies: &mut [Replica]) -> (u64, u64) {
    let cube = Cube::new(copies.len()).expect("few nodes");
    copies.iter_mut().for_each(Replica::begin_sweep);
    let (mut sent_bytes, mut version_bytes) = (0, 0);
    for step in cube.steps() {
        let mut answers = Vec::new();
        for rank in (0..cube.node_count()).map(CubeRank) {
            let Some(pairing) = cube.pairing(rank, step).filter(|pairing| pairing.receives) else {
                continue;
            };
            let (to, from) = (rank.0 as usize, pairing.partner.0 as usize);
            let (asking, answering) = (NodeId(to as u64 + 1), NodeId(from as u64 + 1));
            let question = copies[to].ask(answering);
            let (delta, frames) = answer(&mut copies[from], asking, &question);
            let count = question.version.iter().len() + delta.coverage.complete.iter().len();
            version_bytes += COUNT_BYTES * count as u64;
            answers.push((to, answering, delta, frames));
        }
        for (to, from, delta, frames) in answers {
            sent_bytes += frame_bytes(&frames);
            // The logs reach back to the first insert, so no filter is sent whole.
            let (reader, mut changes) = (copies[to].reader(), ReadChanges::default());
            for frame in &frames {
                reader.read(from, frame, &mut changes).expect("it fits");
            }
            copies[to].merge_changes(from, &delta, changes).expect("it fits");
        }
    }
    (sent_bytes, version_bytes)
}

fn nodes() {
    println!(
        "| nodes | steps | bytes a node sends | versions | items it receives | all-to-all, ring | steps of the ring |"
    );
    println!("|--:|--:|--:|--:|--:|--:|--:|");
    for node_count in NODES {
        let capacity = u64::from(node_count) * ITEMS_PER_NODE * 10;
        let filter = single_shot(capacity);
        let mut copies: Vec<Replica> =
            (1..=u64::from(node_count)).map(|node| copy(NodeId(node), filter.clone())).collect();
        for (at, copy) in (0_u64..).zip(&mut copies) {
            let batch = hashes(at * ITEMS_PER_NODE..(at + 1) * ITEMS_PER_NODE);
            copy.insert(&batch, &mut Vec::new()).expect("the whole hash space");
        }
        let own_bytes = delta_of(&filter, ITEMS_PER_NODE).0;
        let (sent, versions) = sweep(&mut copies);
        let is_equal = copies.iter().all(|copy| copy.filter() == copies[0].filter());
        assert!(is_equal, "{node_count} copies differ");
        let cube = Cube::new(node_count as usize).expect("few nodes");
        let others = u64::from(node_count) - 1;
        println!(
            "| {node_count} | {} | {:.0} | {:.0} | {} | {} | {others} |",
            cube.steps().count(),
            sent as f64 / f64::from(node_count),
            versions as f64 / f64::from(node_count),
            others * ITEMS_PER_NODE,
            others * own_bytes,
        );
    }
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("changes") => changes(),
        Some("nodes") => nodes(),
        _ => {
            eprintln!("usage: delta_table changes|nodes");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
