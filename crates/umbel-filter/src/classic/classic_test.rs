//! Golden positions, a slow twin, folding at its borders. Laws and rates: `tests/`.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::blocked::FoldError;
use crate::capability::{Contains, Describe, Insert, Insertion};
use crate::hash::ItemHash;
use crate::kind::Kind;
use crate::range::HashRange;
use crate::shape::{BlockShape, CreateError};
use crate::spread::positions;
use crate::words::iter_ones;

fn shape(block_count: u64, block_bits: u32, probe_count: u32) -> BlockShape {
    let whole = HashRange::WHOLE;
    BlockShape::new(Kind::Classic, whole, block_count, block_bits, probe_count).unwrap()
}

/// A stored filter must mean the same for ever.
#[test]
fn positions_never_change() {
    let golden = |shape, hi, lo| positions(shape, ItemHash::new(hi, lo)).collect::<Vec<u64>>();
    let block = shape(1, 1 << 19, 7);
    assert_eq!(golden(block, 0, 0), [324_027, 314_209, 55_028, 460_336, 85_431, 398_532, 105_676]);
    assert_eq!(
        golden(block, u64::MAX, 0x0123_4567_89ab_cdef),
        [28_222, 381_057, 90_350, 76_339, 289_573, 418_228, 164_403]
    );
    assert_eq!(golden(shape(10, 512, 3), 0x8000_0000_0000_0000, u64::MAX), [2_970, 3_023, 2_894]);
}

/// The positions of `spread`'s picture in slow arithmetic: divisions of 128 bits.
fn slow_positions(shape: BlockShape, hash: ItemHash) -> BTreeSet<u64> {
    let block = u128::from(hash.hi()) * u128::from(shape.map().block_count()) / (1 << 64);
    let bits = u128::from(shape.block_bits());
    let mut value = u128::from(hash.lo());
    (0..shape.probe_count())
        .map(|_| {
            value = (value * 0xd134_2543_de82_ef95 + 0x9e37_79b9_7f4a_7c15) % (1 << 64);
            u64::try_from(block * bits + value * bits / (1 << 64)).unwrap()
        })
        .collect()
}

proptest! {
    #[test]
    fn a_filter_is_its_set_of_positions(
        blocks in 1..4u64, lines in 1..9u32, probe_count in 1..=64u32,
        items in prop::collection::vec((any::<u64>(), any::<u64>()), 0..30),
    ) {
        let shape = shape(blocks, 512 * lines, probe_count);
        let mut filter = Classic::with_shape(shape).unwrap();
        let mut twin = BTreeSet::new();
        for (hi, lo) in items {
            let hash = ItemHash::new(hi, lo);
            let positions = slow_positions(shape, hash);
            let outcome =
                if positions.is_subset(&twin) { Insertion::Present } else { Insertion::New };
            prop_assert_eq!(filter.contains(hash), outcome == Insertion::Present);
            twin.extend(positions);
            prop_assert_eq!(filter.insert(hash), Ok(outcome));
        }
        let ones: Vec<u64> = iter_ones(filter.words()).collect();
        prop_assert_eq!(ones, twin.into_iter().collect::<Vec<u64>>());
    }
}

#[test]
fn other_kinds_shapes_are_refused() {
    let blocked = BlockShape::new(Kind::Blocked, HashRange::WHOLE, 1, 512, 6).unwrap();
    let refused = CreateError::Shape(crate::ShapeError::Kind { kind: Kind::Blocked });
    assert_eq!(Classic::with_shape(blocked), Err(refused));
}

#[test]
fn only_even_filters_are_folded() {
    let fold = |blocks, bits| {
        Classic::with_shape(shape(blocks, bits, 3)).unwrap().fold().map(|half| half.block_shape())
    };
    assert_eq!(fold(4, 512), Ok(shape(2, 512, 3)));
    assert_eq!(fold(2, 1_536), Ok(shape(1, 1_536, 3)));
    assert_eq!(fold(1, 1_024), Ok(shape(1, 512, 3)));
    assert_eq!(fold(3, 1_024), Err(FoldError::OddBlockCount { block_count: 3 }));
    let odd = |block_bits| Err(FoldError::OddBlock { block_bits, part_bits: block_bits });
    assert_eq!(fold(1, 512), odd(512));
    assert_eq!(fold(1, 1_536), odd(1_536));
}

#[test]
fn a_description_counts_ones_and_items() {
    let mut filter = Classic::for_rate(HashRange::WHOLE, 1_000, 0.01).unwrap();
    let hasher = crate::ItemHasher::Xxh3 { seed: 1 };
    for number in 0..1_000u32 {
        filter.insert(hasher.hash(&number.to_le_bytes())).unwrap();
    }
    let description = filter.describe();
    assert_eq!(description.one_count, iter_ones(filter.words()).count() as u64);
    assert_eq!(description.memory_bytes * 8, description.position_count);
    let items = description.item_count.unwrap();
    assert!((items.item_count - 1_000.0).abs() < 5.0 * items.standard_error);
    assert!((description.false_positive_rate - 0.01).abs() < 0.002);
}
