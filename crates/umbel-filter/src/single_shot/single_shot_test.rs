//! Laws of the single-shot filter, and its twin: a set of positions by 128-bit division.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::capability::{Contains, Insert};
use crate::range::HashRange;

/// The slow twin: positions in a tree, computed by division.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Twin {
    shape: SingleShotShape,
    positions: BTreeSet<u128>,
}

impl Twin {
    fn insert(&mut self, hash: ItemHash) -> Insertion {
        if self.positions.insert(self.position(hash)) { Insertion::New } else { Insertion::Present }
    }

    fn position(&self, hash: ItemHash) -> u128 {
        let offset = u128::from(hash.hi()) - u128::from(self.shape.range().start());
        offset * u128::from(self.shape.position_count()) / (1 << 64)
    }

    fn positions(&self) -> Vec<u64> {
        self.positions.iter().map(|&position| u64::try_from(position).unwrap()).collect()
    }
}

/// A quarter of the space with few enough positions that items collide.
fn shape() -> SingleShotShape {
    let range = HashRange::new(1 << 62, 1 << 63).unwrap();
    SingleShotShape::new(range, 300).unwrap()
}

fn hashes() -> impl Strategy<Value = Vec<ItemHash>> {
    let inside = (1u64 << 62..1 << 63, any::<u64>()).prop_map(|(hi, lo)| ItemHash::new(hi, lo));
    vec(inside, 0..60)
}

fn filter_of(hashes: &[ItemHash]) -> SingleShot {
    let mut filter = SingleShot::new(shape());
    for &hash in hashes {
        filter.insert(hash).unwrap();
    }
    filter
}

fn filters() -> impl Strategy<Value = SingleShot> {
    hashes().prop_map(|hashes| filter_of(&hashes))
}

fn merged(a: &SingleShot, b: &SingleShot) -> SingleShot {
    let mut result = a.clone();
    result.merge(b).unwrap();
    result
}

proptest! {
    #[test]
    fn agrees_with_the_twin(hashes in hashes(), asked in hashes()) {
        let mut filter = SingleShot::new(shape());
        let mut twin = Twin { shape: shape(), positions: BTreeSet::new() };
        for &hash in &hashes {
            prop_assert_eq!(filter.insert(hash).unwrap(), twin.insert(hash));
        }
        for &hash in hashes.iter().chain(&asked) {
            let expected = twin.positions.contains(&twin.position(hash));
            prop_assert_eq!(filter.contains(hash), expected);
        }
        prop_assert_eq!(filter.positions().to_vec(), twin.positions());
        prop_assert_eq!(filter.len(), twin.positions.len() as u64);
        prop_assert_eq!(filter.is_empty(), hashes.is_empty());
    }

    #[test]
    fn what_was_inserted_is_contained(hashes in hashes()) {
        let filter = filter_of(&hashes);
        prop_assert!(hashes.iter().all(|&hash| filter.contains(hash)));
    }

    #[test]
    fn sorted_hashes_give_the_same_filter(mut hashes in hashes()) {
        hashes.sort();
        prop_assert_eq!(SingleShot::from_sorted_hashes(shape(), &hashes), Ok(filter_of(&hashes)));
    }

    #[test]
    fn positions_give_the_same_filter(filter in filters()) {
        let again = SingleShot::from_positions(shape(), filter.positions().to_vec());
        prop_assert_eq!(again, Ok(filter));
    }

    #[test]
    fn merge_is_idempotent(a in filters()) {
        let mut twice = a.clone();
        prop_assert_eq!(twice.merge(&a), Ok(0));
        prop_assert_eq!(twice, a);
    }

    #[test]
    fn merge_is_commutative(a in filters(), b in filters()) {
        prop_assert_eq!(merged(&a, &b), merged(&b, &a));
    }

    #[test]
    fn merge_is_associative(a in filters(), b in filters(), c in filters()) {
        prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
    }

    #[test]
    fn merge_is_monotone(a in filters(), b in filters(), asked in hashes()) {
        let both = merged(&a, &b);
        for &hash in &asked {
            prop_assert_eq!(both.contains(hash), a.contains(hash) || b.contains(hash));
        }
        prop_assert!(both.fill() >= a.fill().max(b.fill()));
    }

    #[test]
    fn merge_equals_inserting_both_and_counts_the_new(a in hashes(), b in hashes()) {
        let mut filter = filter_of(&a);
        let len_before = filter.len();
        let newly_set = filter.merge(&filter_of(&b)).unwrap();
        prop_assert_eq!(newly_set, filter.len() - len_before);
        prop_assert_eq!(filter, filter_of(&[a, b].concat()));
    }
}

#[test]
fn items_of_other_ranges_are_refused_and_absent() {
    let mut filter = filter_of(&[ItemHash::new(1 << 62, 0)]);
    let before = filter.clone();
    for hi in [0, (1 << 62) - 1, 1 << 63, u64::MAX] {
        let hash = ItemHash::new(hi, 0);
        assert!(!filter.contains(hash));
        let error = OutOfRange { hi, range: shape().range() };
        assert_eq!(filter.insert(hash), Err(error.into()));
        assert_eq!(SingleShot::from_sorted_hashes(shape(), &[hash]), Err(error.into()));
    }
    assert_eq!(filter, before);
}

#[test]
fn unsorted_hashes_are_refused() {
    let [low, high] = [0, 1].map(|lo| ItemHash::new(1 << 62, lo));
    let refused = Err(SortedHashesError::NotSorted { index: 2 });
    assert_eq!(SingleShot::from_sorted_hashes(shape(), &[low, high, low]), refused);
}

#[test]
fn positions_are_checked() {
    let width = shape().width();
    assert_eq!(width, 75); // a quarter of 300
    let position = width;
    let beyond = Err(PositionsError::BeyondWidth { position, width });
    assert_eq!(SingleShot::from_positions(shape(), vec![3, position]), beyond);
    for position in [2, 3] {
        let refused = Err(PositionsError::NotIncreasing { previous: 3, position });
        assert_eq!(SingleShot::from_positions(shape(), vec![1, 3, position]), refused);
    }
    assert!(SingleShot::from_positions(shape(), vec![0, width - 1]).is_ok());
}

#[test]
fn filters_of_other_shapes_do_not_merge() {
    let other_count = SingleShotShape::new(shape().range(), 301).unwrap();
    let other_range = SingleShotShape::new(HashRange::WHOLE, 300).unwrap();
    for theirs in [other_count, other_range] {
        let mut filter = filter_of(&[ItemHash::new(1 << 62, 0)]);
        let before = filter.clone();
        let refused = Err(ShapeMismatch { ours: shape().into(), theirs: theirs.into() });
        assert_eq!(filter.merge(&SingleShot::new(theirs)), refused);
        assert_eq!(filter, before);
    }
}

#[test]
fn errors_name_their_numbers() {
    let error = OutOfRange { hi: 5, range: HashRange::new(10, 20).unwrap() };
    assert_eq!(error.to_string(), "hash 5 lies outside the filter's hash range 10 to 19");
    let theirs = SingleShotShape::new(HashRange::new(10, 20).unwrap(), 7).unwrap();
    let ours = SingleShotShape::new(HashRange::new(0, 20).unwrap(), 8).unwrap();
    assert_eq!(
        ShapeMismatch { ours: ours.into(), theirs: theirs.into() }.to_string(),
        "shape mismatch: ours is single-shot, 8 positions over hashes 0 to 19; \
         theirs single-shot, 7 positions over hashes 10 to 19"
    );
}
