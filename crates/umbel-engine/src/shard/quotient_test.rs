//! Slices of quotient filters: what is too much is refused as a whole, copies count, and what leaves makes room.

use umbel_filter::{CellCount, HashRange, Kind};

use super::shard_test::{self, FIRST, SHARD, insert, list, range, remove};
use super::*;
use crate::ids::FilterId;
use crate::limits::SLICE_BYTES_MAX;

const FILTER: FilterId = FilterId(3);

/// A slice of one page of 512 quotients and 128 spare slots over the shard's whole range.
fn state() -> ShardState {
    let (kind, block_bits, probe_count) = (Kind::Quotient.id(), 512, 20);
    let shape = SliceShape::Blocks { kind, block_count: 1, block_bits, probe_count };
    let spec = SliceSpec { filter: FILTER, shape, ..shard_test::spec(Kind::Quotient, 0) };
    let mut state = ShardState::new(SHARD, range());
    assert_eq!(state.apply(&ShardCommand::CreateSlice(spec)), ShardReply::Done(Ok(())));
    state
}

fn count_present(state: &ShardState, items: &[u64]) -> u64 {
    state.contains(FILTER, FIRST, &list(items)).unwrap().count_ones().into()
}

/// None of the items of a refused part is in; fewer of them are taken in, and as many as leave.
#[test]
fn what_does_not_fit_is_refused_as_a_whole() {
    let mut state = state();
    let first: Vec<u64> = (0..400).collect();
    assert_eq!(insert(&mut state, FILTER, None, list(&first)).unwrap().count_ones(), 400);
    // Once more: no slot is taken, and each is counted.
    assert_eq!(insert(&mut state, FILTER, None, list(&first)).unwrap().count_ones(), 0);
    let summary = state.summary(FILTER).unwrap();
    let more: Vec<u64> = (1_000..1_300).collect();
    let refused = insert(&mut state, FILTER, None, list(&more)).unwrap_err();
    assert!(matches!(refused, PartError::Full { filter: FILTER, .. }), "{refused}");
    assert!(refused.to_string().contains("remove some, or create it for more"), "{refused}");
    assert_eq!((count_present(&state, &first), count_present(&state, &more)), (400, 0));
    assert_eq!(state.summary(FILTER).unwrap(), summary);

    assert_eq!(insert(&mut state, FILTER, None, list(&more[..50])).unwrap().count_ones(), 50);
    for left in [400, 150] {
        let removed = remove(&mut state, FILTER, None, list(&first[150..])).unwrap();
        assert_eq!((removed.count_ones(), count_present(&state, &first)), (250, left));
    }
    assert_eq!(insert(&mut state, FILTER, None, list(&more[50..])).unwrap().count_ones(), 250);
    assert_eq!((count_present(&state, &first), count_present(&state, &more)), (150, 300));
}

/// What is planned for takes 11.7 to 13.7 bits an item at 1 %, over any number of shards, and has no other size.
#[test]
fn slices_are_planned_by_items_and_rate() {
    for (shards, bits_max) in [(1, 12.2), (3, 13.5), (4, 13.0), (16, 13.7)] {
        let cells = CellCount::new(shards).unwrap();
        let shape = SliceShape::plan(Kind::Quotient, 1_000_000, 0.01, cells).unwrap();
        let bytes: u64 = (0..shards)
            .map(|cell| shape.memory_bytes(HashRange::cell(cell, cells)).unwrap())
            .inspect(|&bytes| assert!(bytes < SLICE_BYTES_MAX))
            .sum();
        let bits = bytes as f64 * 8.0 / 1e6;
        assert!((11.7..bits_max).contains(&bits), "{bits} bits over {shards} shards");
    }
    let one = CellCount::new(1).unwrap();
    let refused = SliceShape::plan_bytes(Kind::Quotient, 1 << 20, 10, one);
    assert_eq!(refused, Err(PlanError::NoFixedSize { kind: Kind::Quotient }));
}
