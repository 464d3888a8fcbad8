//! Memory accounting of the log's cache.

use super::*;
use crate::testing::{entry, id};

const CACHE_BYTES: usize = 1 << 20;

#[test]
fn the_cache_counts_the_memory_of_small_entries_and_not_their_records_alone() {
    let mut state = State::new(WrittenGroups::default(), BTreeMap::new(), CACHE_BYTES);
    let group = GroupId::META;
    for index in 0..100_000 {
        state.push(group, entry(1, index), 10);
    }
    // No entry is dropped before it is written.
    assert_eq!(state.front(group).cached.len(), 100_000);
    state.wrote(state.serial());
    let cached = &state.front(group).cached;
    let memory_bytes = cached.len() * size_of::<Cached>();
    assert!((CACHE_BYTES / 2..=CACHE_BYTES).contains(&memory_bytes), "{memory_bytes}");
    // The newest entries stay.
    assert_eq!(cached.back().unwrap().entry.log_id, id(1, 99_999));

    state.purge(group, id(1, 99_999));
    assert_eq!((state.cache_byte_count, state.cached_count), (0, 0));
}
