//! Golden positions, a slow twin, folding at its borders. Laws and rates: `tests/`.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::blocked::FoldError;
use crate::capability::{Contains, Insert, Insertion};
use crate::hash::ItemHash;
use crate::kind::Kind;
use crate::range::HashRange;
use crate::shape::{BlockShape, CreateError};
use crate::spread::positions;
use crate::words::iter_ones;

fn shape(block_count: u64, block_bits: u32, probe_count: u32) -> BlockShape {
    let whole = HashRange::WHOLE;
    BlockShape::new(Kind::Partitioned, whole, block_count, block_bits, probe_count).unwrap()
}

/// A stored filter must mean the same for ever.
#[test]
fn positions_never_change() {
    let golden = |shape, hi, lo| positions(shape, ItemHash::new(hi, lo)).collect::<Vec<u64>>();
    let block = shape(1, 1 << 19, 7);
    assert_eq!(golden(block, 0, 0), [46_289, 119_784, 157_657, 290_456, 311_796, 431_423, 464_484]);
    assert_eq!(
        golden(block, u64::MAX, 0x0123_4567_89ab_cdef),
        [4_031, 129_334, 162_703, 235_599, 340_959, 434_236, 472_874]
    );
    assert_eq!(golden(shape(10, 512, 3), 0x8000_0000_0000_0000, u64::MAX), [2_696, 2_883, 3_011]);
}

/// The positions of `spread`'s picture in slow arithmetic: divisions of 128 bits.
fn slow_positions(shape: BlockShape, hash: ItemHash) -> BTreeSet<u64> {
    let block = u128::from(hash.hi()) * u128::from(shape.map().block_count()) / (1 << 64);
    let start = block * u128::from(shape.block_bits());
    let width = u128::from(shape.block_bits() / shape.probe_count());
    let mut value = u128::from(hash.lo());
    (0..u128::from(shape.probe_count()))
        .map(|probe| {
            value = (value * 0xd134_2543_de82_ef95 + 0x9e37_79b9_7f4a_7c15) % (1 << 64);
            u64::try_from(start + probe * width + value * width / (1 << 64)).unwrap()
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
        let mut filter = Partitioned::with_shape(shape).unwrap();
        let mut twin = BTreeSet::new();
        for (hi, lo) in items {
            let hash = ItemHash::new(hi, lo);
            let positions = slow_positions(shape, hash);
            // One in every part, all different.
            prop_assert_eq!(positions.len(), probe_count as usize);
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
    let classic = BlockShape::new(Kind::Classic, HashRange::WHOLE, 1, 512, 6).unwrap();
    let refused = CreateError::Shape(crate::ShapeError::Kind { kind: Kind::Classic });
    assert_eq!(Partitioned::with_shape(classic), Err(refused));
}

/// Parts of 341 bits have no halves; parts of 256 and 128 have.
#[test]
fn only_even_filters_are_folded() {
    let fold = |blocks, bits, probes| {
        let filter = Partitioned::with_shape(shape(blocks, bits, probes)).unwrap();
        filter.fold().map(|half| half.block_shape())
    };
    assert_eq!(fold(4, 512, 3), Ok(shape(2, 512, 3)));
    assert_eq!(fold(1, 1_024, 4), Ok(shape(1, 512, 4)));
    assert_eq!(fold(3, 1_024, 4), Err(FoldError::OddBlockCount { block_count: 3 }));
    let odd = |block_bits, part_bits| Err(FoldError::OddBlock { block_bits, part_bits });
    assert_eq!(fold(1, 1_024, 3), odd(1_024, 341));
    assert_eq!(fold(1, 512, 4), odd(512, 128));
}

/// How often two parts are hit together in neighbouring places must be chance: the positions of an
/// item in two parts are independent. Pearson's statistic over 16 by 16 cells has mean 255.
#[test]
fn parts_are_independent() {
    let shape = shape(1, 1 << 19, 13);
    let hasher = crate::ItemHasher::Xxh3 { seed: 3 };
    let items: Vec<Vec<u64>> = (0..100_000u32)
        .map(|number| {
            let width = u64::from(shape.block_bits() / 13);
            let positions = positions(shape, hasher.hash(&number.to_le_bytes()));
            positions.map(|position| position % width * 16 / width).collect()
        })
        .collect();
    for (a, b) in (0..13).flat_map(|b| (0..b).map(move |a| (a, b))) {
        let mut counts = [0u32; 256];
        for cells in &items {
            counts[usize::try_from(cells[a] * 16 + cells[b]).unwrap()] += 1;
        }
        let mean = items.len() as f64 / 256.0;
        let distance: f64 =
            counts.iter().map(|&count| (f64::from(count) - mean).powi(2) / mean).sum();
        // Five standard deviations, √(2·255) each.
        assert!((distance - 255.0).abs() < 5.0 * 510f64.sqrt(), "{distance} for parts {a}, {b}");
    }
}
