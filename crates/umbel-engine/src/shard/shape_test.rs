//! Plans: sizes, borders between shards, and numbers that describe no shape.

use proptest::prelude::*;
use umbel_filter::{
    AnyFilter, BlockShape, CellCount, Contains, Describe, HashRange, Insert, Insertion, ItemHash,
    ItemHasher, Kind, Shape, StablePace, sizing,
};

use super::shard_test::{RULES, plan};
use super::slice_shape::positions_bytes;
use super::{PlanError, SliceShape, SliceShapeError, WindowRules};
use crate::limits::SLICE_BYTES_MAX;

const BLOCK_KINDS: [Kind; 4] = [Kind::Blocked, Kind::Classic, Kind::Partitioned, Kind::Counting];

fn cells(count: u32) -> CellCount {
    CellCount::new(count).unwrap()
}

fn hash(number: u64) -> ItemHash {
    ItemHasher::Xxh3 { seed: 3 }.hash(&number.to_le_bytes())
}

fn all_bytes(shape: SliceShape, shards: CellCount) -> u64 {
    (0..shards.get()).map(|at| shape.memory_bytes(HashRange::cell(at, shards)).unwrap()).sum()
}

/// Memory relative to one filter for exactly a million items: the spread of a shard's share, whole
/// blocks, and a block at borders that cannot coincide.
#[test]
fn a_million_items_take_little_more_than_one_filter() {
    for kind in BLOCK_KINDS {
        let one = BlockShape::for_rate(kind, HashRange::WHOLE, 1_000_000, 0.01).unwrap();
        for (shards, percent_max) in [(1, 0.6), (3, 4.5), (4, 2.0), (16, 3.2), (48, 7.5), (64, 6.0)]
        {
            let shape = SliceShape::plan(kind, 1_000_000, 0.01, cells(shards)).unwrap();
            let bytes = all_bytes(shape, cells(shards));
            let percent = 100.0 * (bytes as f64 / one.memory_bytes() as f64 - 1.0);
            println!("{kind} over {shards} shards: {percent:.2} % more");
            assert!(percent <= percent_max, "{kind} over {shards} shards: {percent} % more");
        }
    }
}

#[test]
fn planned_slices_keep_the_rate() {
    for kind in BLOCK_KINDS {
        for (capacity, rate, count) in [(1, 0.01, 4), (100, 0.001, 7), (100_000, 0.01, 16)] {
            let shape = SliceShape::plan(kind, capacity, rate, cells(count)).unwrap();
            let Shape::Blocks(whole) = shape.shape(HashRange::WHOLE).unwrap() else { panic!() };
            assert!(whole.false_positive_rate(capacity) <= rate, "{kind} {capacity}");
        }
    }
    let shape = SliceShape::plan(Kind::SingleShot, 1_000, 0.01, cells(4)).unwrap();
    let SliceShape::SingleShot { position_count } = shape else { panic!() };
    // 250 + 6·√250 = 345 items per shard.
    let expected = sizing::single_shot_false_positive_rate(position_count, 4 * 345).unwrap();
    assert!(expected <= 0.01 && position_count < 4 * 345 * 101);
    let shape = SliceShape::plan(Kind::Scalable, 1_000, 0.01, cells(4)).unwrap();
    assert_eq!(shape, SliceShape::Scalable { item_count: 4 * 345, false_positive_rate: 0.01 });
    for shard in 0..4 {
        let slice = shape.create(HashRange::cell(shard, cells(4))).unwrap();
        assert_eq!(slice.room(), Some(345));
    }
    let shape = SliceShape::plan(Kind::Aging, 1_000, 0.01, cells(4)).unwrap();
    assert!(matches!(shape, SliceShape::Paced { pace, .. } if pace == 4 * 345), "{shape:?}");
    let paces = [1, 4].map(|count| SliceShape::plan(Kind::Stable, 345, 0.01, cells(count)));
    let [alone, shared] = paces.map(|shape| match shape.unwrap() {
        SliceShape::Paced { pace, .. } => StablePace::of_number(pace).unwrap(),
        other => panic!("{other:?}"),
    });
    // More, for what a shard may get beyond its share, but not four times as many.
    assert!(alone.lowered_cells.abs_diff(shared.lowered_cells) < alone.lowered_cells / 2);
}

#[test]
fn no_block_is_shared_where_the_shards_are_a_power_of_two() {
    for kind in BLOCK_KINDS {
        for count in [1, 2, 4, 64, 1024] {
            let shards = cells(count);
            let shape = SliceShape::plan(kind, 100_000, 0.01, shards).unwrap();
            let mut next = 0;
            for shard in 0..count {
                let Shape::Blocks(slice) = shape.shape(HashRange::cell(shard, shards)).unwrap()
                else {
                    panic!()
                };
                assert_eq!(slice.map().first_block(), next);
                next += slice.map().len();
            }
            let Shape::Blocks(whole) = shape.shape(HashRange::WHOLE).unwrap() else { panic!() };
            assert_eq!(next, whole.map().len());
        }
    }
}

/// Whether no two of the shards have a block in common, up to so many of them.
fn is_cut_at_blocks(shape: SliceShape, shard_count: u32) -> bool {
    let block_count = |range| match shape.shape(range).unwrap() {
        Shape::Blocks(slice) => slice.map().len(),
        other => panic!("{other:?}"),
    };
    let shards = cells(shard_count);
    let sum: u64 = (0..shard_count).map(|at| block_count(HashRange::cell(at, shards))).sum();
    sum == block_count(HashRange::WHOLE)
}

#[test]
fn splits_divide_no_block_where_that_costs_little() {
    let kinds = [(Kind::Cuckoo, 10_700), (Kind::Cuckoo, 40_000_000), (Kind::Counting, 2_000_000)];
    for ((kind, capacity), halvings) in kinds.into_iter().zip([2, 4, 4]) {
        let shape = SliceShape::plan(kind, capacity, 0.01, cells(4)).unwrap();
        for shard_count in (0..=halvings).map(|halvings| 4 << halvings) {
            assert!(is_cut_at_blocks(shape, shard_count), "{kind} of {capacity}: {shard_count}");
        }
        assert!(!is_cut_at_blocks(shape, 1024), "{kind} of {capacity}");
    }
    // 10 million and 6 deviations for each shard, of which the pages are at most a 32nd more than they must be.
    let least = sizing::cuckoo_size(10_018_974, 0.01, 1 << 16).unwrap();
    let least_slots = least.page_count * u64::from(least.page_slots);
    let shape = SliceShape::plan(Kind::Cuckoo, 40_000_000, 0.01, cells(4)).unwrap();
    let SliceShape::Blocks { block_count, block_bits, .. } = shape else { panic!("{shape:?}") };
    let slots = block_count / 4 * u64::from(block_bits);
    assert!((least_slots + 1..=least_slots + least_slots / 32).contains(&slots), "{slots}");
}

/// A table that is almost full is the same again after it was cut in four and put together: no page was in two
/// parts.
#[test]
fn a_table_that_was_split_and_merged_is_as_before() {
    let shape = SliceShape::plan(Kind::Cuckoo, 10_700, 0.01, cells(4)).unwrap();
    let mut whole = shape.create(HashRange::WHOLE).unwrap();
    let items: Vec<ItemHash> = (0..10_700).map(hash).collect();
    whole.insert_batch(&items, &mut Vec::new()).unwrap();
    for shard in 0..4 {
        let slice = whole.part(HashRange::cell(shard, cells(4))).unwrap();
        let part = |at| slice.part(HashRange::cell(4 * shard + at, cells(16))).unwrap();
        let [lower, upper] = [0, 2].map(|at| part(at).join(&part(at + 1)).unwrap());
        assert_eq!(lower.join(&upper).unwrap(), slice, "{shard}");
    }
}

/// Borders of three shards cannot coincide with blocks: both shards store the block at a border,
/// and each finds its own items in it, apart from those that only the other one has.
#[test]
fn both_shards_of_a_border_block_work() {
    let shards = cells(3);
    for kind in BLOCK_KINDS {
        let shape = SliceShape::plan(kind, 3_000, 0.01, shards).unwrap();
        let mut slices: Vec<AnyFilter> =
            (0..3).map(|at| shape.create(HashRange::cell(at, shards)).unwrap()).collect();
        let Shape::Blocks(first) = slices[0].shape() else { panic!() };
        let Shape::Blocks(second) = slices[1].shape() else { panic!() };
        let last_of_first = first.map().first_block() + first.map().len() - 1;
        assert_eq!(last_of_first, second.map().first_block(), "{kind}");
        let border = HashRange::cell(1, shards).start();
        let near = (0..50).flat_map(|at| [border - 1 - at, border + at]);
        let near = near.enumerate().map(|(at, hi)| ItemHash::new(hi, hash(at as u64).lo()));
        let items: Vec<ItemHash> = near.chain((0..1_000).map(hash)).collect();
        let mut new_count = 0;
        for &item in &items {
            let slice = &mut slices[shards.cell_of(item.hi()) as usize];
            new_count += usize::from(slice.insert(item).unwrap() == Insertion::New);
        }
        assert!(new_count > 1_000, "{kind}: {new_count}");
        for &item in &items {
            let owner = shards.cell_of(item.hi()) as usize;
            for (at, slice) in slices.iter().enumerate() {
                assert_eq!(slice.contains(item), at == owner, "{kind}");
            }
        }
    }
}

#[test]
fn plans_by_size_fill_it() {
    for kind in BLOCK_KINDS {
        for (bytes, count) in [(1 << 20, 4), (10_000_000, 3), (10_000_000, 7), (1 << 30, 64)] {
            let shards = cells(count);
            let shape = SliceShape::plan_bytes(kind, bytes, 6, shards).unwrap();
            let got = all_bytes(shape, shards);
            assert!(got <= bytes && got * 16 >= bytes * 15, "{kind} {count}: {got} of {bytes}");
        }
        assert!(all_bytes(SliceShape::plan_bytes(kind, 0, 6, cells(4)).unwrap(), cells(4)) > 0);
    }
    let refused = SliceShape::plan_bytes(Kind::Scalable, 1 << 20, 6, cells(4));
    assert_eq!(refused, Err(PlanError::NoFixedSize { kind: Kind::Scalable }));
}

#[test]
fn what_is_too_large_is_refused_before_it_is_allocated() {
    for kind in Kind::ALL {
        let refused = plan(kind, 1 << 34, 0.01, cells(1));
        let is_too_large = match kind {
            Kind::RedisBloom => matches!(refused, Err(PlanError::ChainTooLarge { .. })),
            _ => matches!(refused, Err(PlanError::SliceTooLarge { .. })),
        };
        assert!(is_too_large, "{kind}: {refused:?}");
        let refused = plan(kind, u64::MAX, 1e-4, cells(1024));
        assert!(refused.is_err(), "{kind}");
        for rate in [0.0, 1.0, f64::NAN, -1.0, f64::INFINITY] {
            assert!(plan(kind, 1_000, rate, cells(4)).is_err(), "{kind} {rate}");
        }
        assert!(plan(kind, 0, 0.01, cells(4)).is_err());
    }
    let refused = SliceShape::plan(Kind::Blocked, 1 << 37, 0.01, cells(1024));
    assert!(matches!(refused, Err(PlanError::FilterTooLarge { .. })), "{refused:?}");
    let refused = SliceShape::plan(Kind::Blocked, 1_000, 0.01, cells(1025));
    assert_eq!(refused, Err(PlanError::ShardCount { shard_count: 1025 }));

    let (kind, probe_count) = (Kind::Blocked.id(), 6);
    let huge = SliceShape::Blocks { kind, block_count: 1 << 34, block_bits: 512, probe_count };
    let refused = huge.create(HashRange::WHOLE);
    assert_eq!(refused, Err(SliceShapeError::TooLarge { slice_bytes: 1 << 40 }));
    let huge = SliceShape::Scalable { item_count: 1 << 40, false_positive_rate: 0.01 };
    assert!(matches!(huge.create(HashRange::WHOLE), Err(SliceShapeError::TooLarge { .. })));
}

/// The bound for a single-shot slice exceeds its actual size by a few bits per position.
#[test]
fn the_bound_of_positions_holds() {
    let shape = SliceShape::plan(Kind::SingleShot, 50_000, 0.01, cells(1)).unwrap();
    let AnyFilter::SingleShot(mut slice) = shape.create(HashRange::WHOLE).unwrap() else {
        panic!()
    };
    let items: Vec<ItemHash> = (0..50_000).map(hash).collect();
    slice.insert_batch(&items, &mut Vec::new()).unwrap();
    slice.seal();
    let bound = positions_bytes(slice.single_shot_shape().width(), slice.len());
    let bytes = slice.memory_bytes();
    assert!(bytes <= bound && bound <= bytes + bytes / 3, "{bytes} of {bound}");
    assert!(positions_bytes(u64::MAX, u64::MAX) > SLICE_BYTES_MAX);
    assert_eq!(positions_bytes(1, 0), 0);
}

proptest! {
    #[test]
    fn hostile_shapes_are_errors(
        kind: u8, block_count: u64, block_bits: u32, probe_count: u32, shift in 0..64u32, rate: f64,
    ) {
        let block_count = block_count >> shift;
        for shape in [
            SliceShape::Blocks { kind: kind % 12, block_count, block_bits, probe_count },
            SliceShape::Blocks { kind: kind % 12, block_count, block_bits: 512, probe_count: 3 },
            SliceShape::Window {
                block_count,
                block_slots: block_bits,
                fingerprint_bits: probe_count,
                rules: WindowRules { slice_count: probe_count / 7, ..RULES },
            },
            SliceShape::SingleShot { position_count: block_count },
            SliceShape::Scalable { item_count: block_count, false_positive_rate: rate },
            SliceShape::Scalable { item_count: block_count, false_positive_rate: 0.01 },
        ] {
            // Not created if it would be large: the machine is shared.
            if shape.memory_bytes(HashRange::WHOLE).is_ok_and(|bytes| bytes < 1 << 20) {
                let _ = shape.create(HashRange::WHOLE);
            }
        }
    }
}
