//! Slices of cuckoo filters: a part that does not fit is refused entirely, and removals make room.

use umbel_filter::{CellCount, HashRange, ItemHash, Kind};

use super::shard_test::{self, FIRST, SHARD, insert, list, range, remove};
use super::*;
use crate::ids::{FilterId, Generation};
use crate::limits::SLICE_BYTES_MAX;

const FILTER: FilterId = FilterId(3);

/// A slice of one page of 512 slots over the shard's whole range.
fn state() -> ShardState {
    let (kind, block_bits, probe_count) = (Kind::Cuckoo.id(), 512, 20);
    let shape = SliceShape::Blocks { kind, block_count: 1, block_bits, probe_count };
    let spec = SliceSpec { filter: FILTER, shape, ..shard_test::spec(Kind::Cuckoo, 0) };
    let mut state = ShardState::new(SHARD, range());
    assert_eq!(state.apply(&ShardCommand::CreateSlice(spec)), ShardReply::Done(Ok(())));
    state
}

fn count_present(state: &ShardState, items: &[u64]) -> u64 {
    state.contains(FILTER, FIRST, &list(items)).unwrap().count_ones().into()
}

/// No item of a refused part is present; fewer items are accepted, and as many as were removed.
#[test]
fn what_does_not_fit_is_refused_as_a_whole() {
    let mut state = state();
    let first: Vec<u64> = (0..400).collect();
    assert_eq!(insert(&mut state, FILTER, None, list(&first)).unwrap().count_ones(), 400);
    let summary = state.summary(FILTER).unwrap();
    let more: Vec<u64> = (1_000..1_200).collect();
    let refused = insert(&mut state, FILTER, None, list(&more)).unwrap_err();
    assert!(matches!(refused, PartError::Full { filter: FILTER, .. }), "{refused}");
    assert!(refused.to_string().contains("holds 400 items and has no room for these"), "{refused}");
    assert!(refused.to_string().contains("remove some, or create it for more"), "{refused}");
    assert_eq!((count_present(&state, &first), count_present(&state, &more)), (400, 0));
    assert_eq!(state.summary(FILTER).unwrap(), summary);

    assert_eq!(insert(&mut state, FILTER, None, list(&more[..50])).unwrap().count_ones(), 50);
    let removed = remove(&mut state, FILTER, None, list(&first[..150])).unwrap();
    assert_eq!(removed.count_ones(), 150);
    assert_eq!(insert(&mut state, FILTER, None, list(&more[50..])).unwrap().count_ones(), 150);
    assert_eq!((count_present(&state, &first), count_present(&state, &more)), (250, 200));
}

/// Compared with a multiset, item by item: with 20 bits, no two of these items share a fingerprint and
/// buckets.
#[test]
fn copies_are_insertions_less_removals() {
    let mut state = state();
    let mut twin = [0_u64; 40];
    for step in 0..200_u64 {
        let item = step * step % 13;
        let times = &mut twin[usize::try_from(item).unwrap()];
        if step % 7 < 5 {
            // Items that share both buckets have eight slots together: an item that finds none is not
            // inserted.
            if insert(&mut state, FILTER, None, list(&[item])).is_ok() {
                *times = (*times + 1).min(7);
            }
        } else {
            let removed = remove(&mut state, FILTER, None, list(&[item])).unwrap();
            assert_eq!(u64::from(removed.count_ones()), (*times).min(1));
            // Seven stay seven: how many more there were is unknown.
            *times = if *times == 7 { 7 } else { times.saturating_sub(1) };
        }
        let all: Vec<u64> = (0..40).collect();
        assert_eq!(state.copies(FILTER, FIRST, &list(&all)).unwrap(), twin);
    }
    assert!(twin.contains(&7) && twin.contains(&0));
    assert_eq!(state.copies(FILTER, FIRST, &list(&[])), Ok(Vec::new()));
}

/// Copies are reported only of kinds that tell them, at the current generation, and for items of the shard.
#[test]
fn copies_of_what_is_not_there_are_refused() {
    let mut state = state();
    let (other, gone) = (FilterId(4), FilterId(5));
    let spec = SliceSpec { filter: other, ..shard_test::spec(Kind::Counting, 0) };
    assert_eq!(state.apply(&ShardCommand::CreateSlice(spec)), ShardReply::Done(Ok(())));
    let refused = state.copies(other, FIRST, &list(&[1])).unwrap_err();
    assert!(matches!(refused, PartError::WrongKind { .. }), "{refused}");
    assert!(refused.to_string().contains("counting filters do not tell"), "{refused}");
    let refused = state.copies(gone, FIRST, &list(&[1])).unwrap_err();
    assert!(matches!(refused, PartError::UnknownSlice { .. }), "{refused}");
    let refused = state.copies(FILTER, Generation(9), &list(&[1])).unwrap_err();
    assert!(matches!(refused, PartError::StaleGeneration { .. }), "{refused}");
    let foreign = HashList::from_hashes(&[ItemHash::new(range().last().wrapping_add(1), 0)]);
    let refused = state.copies(FILTER, FIRST, &foreign).unwrap_err();
    assert!(matches!(refused, PartError::ForeignHash { .. }), "{refused}");
}

/// A planned filter takes 11 to 13 bits per item at 1 %, over any number of shards, and cannot be planned
/// by size.
#[test]
fn slices_are_planned_by_items_and_rate() {
    for (shards, bits_max) in [(1, 11.2), (3, 12.5), (4, 12.5), (16, 13.0)] {
        let cells = CellCount::new(shards).unwrap();
        let shape = SliceShape::plan(Kind::Cuckoo, 1_000_000, 0.01, cells).unwrap();
        let bytes: u64 = (0..shards)
            .map(|cell| shape.memory_bytes(HashRange::cell(cell, cells)).unwrap())
            .inspect(|&bytes| assert!(bytes < SLICE_BYTES_MAX))
            .sum();
        let bits = bytes as f64 * 8.0 / 1e6;
        assert!((10.7..bits_max).contains(&bits), "{bits} bits over {shards} shards");
    }
    let one = CellCount::new(1).unwrap();
    let refused = SliceShape::plan_bytes(Kind::Cuckoo, 1 << 20, 10, one);
    assert_eq!(refused, Err(PlanError::NoFixedSize { kind: Kind::Cuckoo }));
}
