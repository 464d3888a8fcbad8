//! A shard with filled slices, and what is measured of it, for the examples that measure pauses.

use std::ops::Range;
use std::time::Instant;

use umbel_engine::shard::{
    HashList, KeyName, PreparedInsert, ShardCommand, ShardState, SliceGrowth, SliceShape, SliceSpec,
};
use umbel_engine::{FilterId, Generation, ShardId};
use umbel_filter::{HashFunction, HashRange, ItemHasher, Kind};

const GENERATION: Generation = Generation(1);

/// A shard of the whole hash range, with slices all of whose pages are resident.
pub(crate) fn filled(filter_count: u64, mib: u64) -> ShardState {
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
        insert(&mut state, filter, 0..mib << 12);
    }
    state
}

/// Inserts these numbers into the slice of a filter.
pub(crate) fn insert(state: &mut ShardState, filter: u64, items: Range<u64>) {
    for first in items.clone().step_by(1 << 14) {
        let command = insert_command(state, filter, first..items.end.min(first + (1 << 14)));
        state.apply(&command);
    }
}

/// The command that inserts these numbers, some of which are new.
pub(crate) fn insert_command(state: &ShardState, filter: u64, items: Range<u64>) -> ShardCommand {
    let hasher = ItemHasher::Xxh3 { seed: 7 };
    let hashes: Vec<_> = items.map(|item| hasher.hash(&item.to_le_bytes())).collect();
    let hashes = HashList::from_hashes(&hashes);
    let prepared =
        state.prepare_insert(FilterId(filter), GENERATION, None, hashes, SliceGrowth::ANY);
    match prepared.expect("the slice is there") {
        PreparedInsert::Propose(part) => ShardCommand::Insert(vec![part]),
        other => panic!("{other:?}"),
    }
}

/// What the work returns, and how many milliseconds it took.
#[expect(clippy::disallowed_methods, reason = "a measurement of time")]
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let began = Instant::now();
    let done = work();
    (done, began.elapsed().as_secs_f64() * 1e3)
}

/// A line of `/proc/self/status` on Linux, in MiB; 0 elsewhere.
pub(crate) fn memory_mib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) >> 10
}
