//! The blocked filter against a set of positions, its golden words, ranges, parts and folds.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::bits::index;
use crate::capability::OutOfRange;
use crate::hash::ItemHasher;
use crate::lanes;
use crate::shape::ShapeError;

/// The slow twin: a set of positions over the whole hash space, by division.
#[derive(Default)]
struct Twin {
    ones: BTreeSet<(u128, u32)>,
}

impl Twin {
    fn positions(shape: BlockShape, hash: ItemHash) -> Vec<(u128, u32)> {
        let block = u128::from(hash.hi()) * u128::from(shape.map().block_count()) / (1 << 64);
        let sets = LaneSets::new(shape.probe_count());
        lanes::positions(&sets, (hash.lo() >> 32) as u32).map(|bit| (block, bit)).collect()
    }

    fn insert(&mut self, shape: BlockShape, hash: ItemHash) -> Insertion {
        let positions = Self::positions(shape, hash);
        let before = self.ones.len();
        self.ones.extend(positions);
        if self.ones.len() > before { Insertion::New } else { Insertion::Present }
    }

    fn contains(&self, shape: BlockShape, hash: ItemHash) -> bool {
        Self::positions(shape, hash).iter().all(|position| self.ones.contains(position))
    }
}

/// Hashes of few blocks and few seeds, so that items meet.
fn hashes() -> impl Strategy<Value = Vec<ItemHash>> {
    vec((any::<u64>(), 0..300u64).prop_map(|(hi, lo)| ItemHash::new(hi, lo << 32)), 0..150)
}

fn filter_of(range: HashRange, block_count: u64, hashes: &[ItemHash]) -> Blocked {
    let mut filter = Blocked::new(range, block_count, 5).unwrap();
    for &hash in hashes.iter().filter(|hash| range.contains(hash.hi())) {
        filter.insert(hash).unwrap();
    }
    filter
}

/// A stored filter must mean the same in every release and on every platform.
#[test]
fn golden_words() {
    let mut filter = Blocked::new(HashRange::WHOLE, 2, 6).unwrap();
    filter.insert(ItemHash::new(0, 0x1234_5678_0000_0000)).unwrap();
    filter.insert(ItemHash::new(u64::MAX, 0x9abc_def0_ffff_ffff)).unwrap();
    let ones: Vec<u64> = crate::words::iter_ones(filter.words()).collect();
    assert_eq!(ones, [89, 188, 264, 347, 383, 476, 516, 571, 577, 662, 791, 1003]);
}

#[test]
fn items_of_other_ranges_are_refused() {
    let range = HashRange::new(1 << 62, 1 << 63).unwrap();
    let inside = ItemHash::new(1 << 62, 0);
    let mut filter = filter_of(range, 64, &[]);
    assert_eq!(filter.words().len(), 16 * 8);
    let outside = ItemHash::new(1 << 63, 0);
    let error = OutOfRange { hi: 1 << 63, range };
    assert_eq!(filter.insert(outside), Err(error.into()));
    let mut outcomes = vec![Insertion::New];
    assert_eq!(filter.insert_batch(&[inside, outside], &mut outcomes), Err(error.into()));
    assert!(outcomes.is_empty());
    assert_eq!(filter, filter_of(range, 64, &[]));
    filter.insert(inside).unwrap();
    let mut present = vec![];
    filter.contains_batch(&[outside, inside], &mut present);
    assert_eq!(present, [false, true]);
}

#[test]
fn shapes_are_checked() {
    let new = |block_count, probe_count| {
        Blocked::new(HashRange::WHOLE, block_count, probe_count).map(|_| ())
    };
    assert_eq!(new(0, 6), Err(ShapeError::BlockCount { block_count: 0 }.into()));
    for probe_count in [0, 17] {
        let refused = ShapeError::ProbeCount { probe_count, probe_count_max: 16 };
        assert_eq!(new(1, probe_count), Err(refused.into()));
    }
    let bytes = (1 << 40) * 64;
    assert_eq!(new(1 << 40, 6), Err(ShapeError::TooLarge { bytes }.into()));
    let classic = BlockShape::new(Kind::Classic, HashRange::WHOLE, 1, 512, 6).unwrap();
    let refused = ShapeError::Kind { kind: Kind::Classic };
    assert_eq!(Blocked::with_shape(classic), Err(refused.into()));
}

#[test]
fn other_shapes_do_not_merge() {
    let mut filter = filter_of(HashRange::WHOLE, 8, &[ItemHash::new(5, 5)]);
    let before = filter.clone();
    let half = HashRange::new(0, 1 << 63).unwrap();
    for theirs in [
        Blocked::new(HashRange::WHOLE, 9, 5).unwrap(),
        Blocked::new(HashRange::WHOLE, 8, 6).unwrap(),
        Blocked::new(half, 8, 5).unwrap(),
    ] {
        let (ours, shape) = (before.shape(), theirs.shape());
        assert_eq!(filter.merge(&theirs), Err(ShapeMismatch { ours, theirs: shape }));
        let is_part = theirs.block_shape().range() == half;
        assert_eq!(filter.merge_part(&theirs).is_ok(), is_part);
    }
    assert_eq!(filter, before);
}

#[test]
fn an_odd_number_of_blocks_does_not_fold() {
    let filter = filter_of(HashRange::WHOLE, 7, &[]);
    assert_eq!(filter.fold(), Err(FoldError::OddBlockCount { block_count: 7 }));
}

#[test]
fn a_description_counts() {
    let hasher = ItemHasher::Xxh3 { seed: 0 };
    let hashes: Vec<ItemHash> =
        (0..1_000u64).map(|item| hasher.hash(&item.to_le_bytes())).collect();
    let mut filter = Blocked::for_rate(HashRange::WHOLE, 1_000, 0.01).unwrap();
    filter.insert_batch(&hashes, &mut Vec::new()).unwrap();
    let description = filter.describe();
    assert_eq!(description.memory_bytes * 8, description.position_count);
    assert_eq!(description.one_count, crate::words::count_ones(filter.words()));
    let estimate = description.item_count.unwrap();
    assert!((estimate.item_count - 1_000.0).abs() < 5.0 * estimate.standard_error + 20.0);
    assert!((0.005..0.015).contains(&description.false_positive_rate));
    filter.words_mut().fill(u64::MAX);
    let full = filter.describe();
    assert_eq!((full.item_count, full.false_positive_rate), (None, 1.0));
}

proptest! {
    #[test]
    fn the_filter_is_its_twin(
        block_count in 1..9u64, probe_count in 1..=16u32, items in hashes(), asked in hashes(),
    ) {
        let mut filter = Blocked::new(HashRange::WHOLE, block_count, probe_count).unwrap();
        let shape = filter.block_shape();
        let mut twin = Twin::default();
        for &hash in &items {
            prop_assert_eq!(filter.insert(hash).unwrap(), twin.insert(shape, hash));
        }
        for &hash in asked.iter().chain(&items) {
            prop_assert_eq!(filter.contains(hash), twin.contains(shape, hash));
        }
        prop_assert!(items.iter().all(|&hash| filter.contains(hash)), "no false negative");
        prop_assert_eq!(filter.describe().one_count, twin.ones.len() as u64);
    }

    #[test]
    fn hash_ranges_are_slices(block_count in 2..40u64, cut: u64, items in hashes()) {
        let whole = filter_of(HashRange::WHOLE, block_count, &items);
        let map = whole.block_shape().map();
        let cut = 1 + cut % (block_count - 1);
        let mut merged = filter_of(HashRange::WHOLE, block_count, &[]);
        for blocks in [0..cut, cut..block_count] {
            let part = filter_of(map.range_of_blocks(blocks.clone()), block_count, &items);
            let words = index(blocks.start) * 8..index(blocks.end) * 8;
            prop_assert_eq!(part.words(), &whole.words()[words]);
            merged.merge_part(&part).unwrap();
        }
        prop_assert_eq!(merged, whole);
    }

    /// Parts that share a block hold it both, and merge to the whole.
    #[test]
    fn parts_cut_anywhere_merge(block_count in 1..9u64, cut in 1..=u64::MAX, items in hashes()) {
        let parts = [HashRange::new(0, cut.into()).unwrap(), HashRange::new(cut, 1 << 64).unwrap()];
        let mut merged = filter_of(HashRange::WHOLE, block_count, &[]);
        for range in parts {
            merged.merge_part(&filter_of(range, block_count, &items)).unwrap();
        }
        prop_assert_eq!(merged, filter_of(HashRange::WHOLE, block_count, &items));
    }

    #[test]
    fn folding_is_having_been_small(half in 1..9u64, start: u64, items in hashes()) {
        let range = HashRange::new(start, 1 << 64).unwrap();
        let folded = filter_of(range, 2 * half, &items).fold().unwrap();
        prop_assert_eq!(folded, filter_of(range, half, &items));
    }
}
