//! What a snapshot costs the writers of a shard: how long taking it lasts, how long the first insert into
//! each slice takes while the snapshot is held, and how much memory both take.
//!
//!     cargo run --release -p umbel-engine --example snapshot_pause 16 32
//!
//! The arguments are the number of filters and the MiB of each one's slice.

use std::time::Instant;

use umbel_engine::shard::{
    HashList, InsertPart, KeyName, PreparedInsert, ShardCommand, ShardState, SliceGrowth,
    SliceShape, SliceSpec,
};
use umbel_engine::{FilterId, Generation, ShardId};
use umbel_filter::{HashFunction, HashRange, ItemHasher, Kind};

const GENERATION: Generation = Generation(1);

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let (filter_count, mib) = (numbers.next().unwrap_or(16_u64), numbers.next().unwrap_or(32_u64));
    let mut state = ShardState::new(ShardId(0), HashRange::WHOLE);
    for filter in 1..=filter_count {
        let shape = SliceShape::Blocks {
            kind: Kind::Blocked.id(),
            block_count: mib << 14,
            block_bits: 512,
            probe_count: 6,
        };
        let key = KeyName { function: HashFunction::Xxh3Seeded.id(), key_id: 7 };
        let spec = SliceSpec { filter: FilterId(filter), generation: GENERATION, shape, key };
        state.apply(&ShardCommand::CreateSlice(spec));
        // So that every page is resident.
        insert(&mut state, filter, 0..mib << 12);
    }
    let before = resident_mib();
    let (mut snapshot, took_ms) = timed(|| state.snapshot());
    let held = resident_mib();
    println!("{filter_count} slices of {mib} MiB: resident {before} MiB");
    println!("snapshot           {took_ms:8.2} ms, resident {held} MiB");
    let mut slowest_ms = 0.0_f64;
    for filter in 1..=filter_count {
        let ((), took_ms) = timed(|| insert(&mut state, filter, 1 << 40..(1 << 40) + 10));
        slowest_ms = slowest_ms.max(took_ms);
    }
    let written = resident_mib();
    println!(
        "slowest insert     {slowest_ms:8.2} ms, resident {written} MiB when all were written"
    );
    while let Some(slice) = snapshot.take_slice() {
        drop(slice);
    }
    println!("let go of                       resident {} MiB", resident_mib());
}

fn insert(state: &mut ShardState, filter: u64, items: std::ops::Range<u64>) {
    let hasher = ItemHasher::Xxh3 { seed: 7 };
    let hashes: Vec<_> = items.map(|item| hasher.hash(&item.to_le_bytes())).collect();
    for hashes in hashes.chunks(1 << 14) {
        let hashes = HashList::from_hashes(hashes);
        let (filter, growth) = (FilterId(filter), SliceGrowth::ANY);
        let prepared = state.prepare_insert(filter, GENERATION, None, hashes, growth);
        let part: InsertPart = match prepared.expect("the slice is there") {
            PreparedInsert::Propose(part) => part,
            other => panic!("{other:?}"),
        };
        state.apply(&ShardCommand::Insert(vec![part]));
    }
}

#[expect(clippy::disallowed_methods, reason = "a measurement of time")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let began = Instant::now();
    let done = work();
    (done, began.elapsed().as_secs_f64() * 1e3)
}

/// The resident memory of this process on Linux; 0 elsewhere.
fn resident_mib() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    (pages * 4096) >> 20
}
