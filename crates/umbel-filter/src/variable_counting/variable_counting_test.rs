//! Golden refusals, the rate against the formula, and the laws.

#![allow(clippy::cast_possible_truncation, reason = "numbers are small")]

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::ItemHasher;
use crate::capability::{Contains, Insert};
use crate::sizing::{self, variable_counting_false_positive_rate};

fn hash(number: u64) -> ItemHash {
    ItemHasher::Xxh3 { seed: 7 }.hash(&number.to_le_bytes())
}

/// L = 4: of the 64 sums of two increments and the increment of another item ten are refused.
#[test]
fn sums_refuse_what_they_cannot_have() {
    let increments = || 4..8;
    let sums = increments().flat_map(|a| increments().map(move |b| a + b));
    let refused = sums.flat_map(|sum| increments().filter(move |v| !admits(sum, *v, 4))).count();
    assert_eq!(refused, 10);
    assert_eq!([4, 5, 6, 7].map(|v| admits(5, v, 4)), [false, true, false, false]);
    assert_eq!([4, 5, 6, 7].map(|v| admits(9, v, 4)), [true, true, false, false]);
    // (L² − 1)/(6 L²) of two, and of three none.
    assert_eq!(10 * 6 * 16, 64 * 15);
    assert!((12..22).all(|sum| increments().all(|v| admits(sum, v, 4))));
}

#[test]
fn best_sizes_are_those_of_the_paper() {
    // 28.9 and 43.3 bits an item without blocks, four and six probes, L = 8.
    for (bits, probe_count, rate) in [(28.9, 4, 0.01), (43.3, 6, 0.001)] {
        let cells = (bits / 8.0 * 1e6) as u64;
        let rates = (1..=16)
            .map(|k| variable_counting_false_positive_rate(cells, k, 8, 1_000_000).unwrap())
            .collect::<Vec<f64>>();
        let least = rates.iter().copied().fold(1.0, f64::min);
        assert_eq!(rates.iter().position(|r| *r == least), Some(probe_count - 1));
        assert!((least / rate - 1.0).abs() < 0.02, "{least}");
    }
}

#[test]
fn others_are_present_at_the_rate() {
    let item_count = 40_000;
    let mut filter = VariableCounting::for_rate(HashRange::WHOLE, item_count, 0.01, 8).unwrap();
    for number in 0..item_count {
        filter.insert(hash(number)).unwrap();
    }
    assert!((0..item_count).all(|number| filter.contains(hash(number))));
    let shape = filter.block_shape();
    let blocks = shape.map().block_count();
    let rate =
        sizing::variable_counting_blocked_rate(blocks, shape.probe_count(), 8, item_count).unwrap();
    assert!(rate <= 0.01 && rate > 0.0098, "{rate}");
    let asked = 400_000;
    let found = (1_000_000..1_000_000 + asked).filter(|number| filter.contains(hash(*number)));
    let (found, asked) = (found.count() as f64, asked as f64);
    let sigma = (asked * rate).sqrt();
    // The pattern of lanes, and the share of this filter, make a few percent.
    let slack = 5.0 * sigma + 0.05 * asked * rate;
    assert!((found - asked * rate).abs() < slack, "{found}, not {}", asked * rate);
}

#[test]
fn wrong_use_is_refused() {
    let for_rate = |rate, base| VariableCounting::for_rate(HashRange::WHOLE, 1_000, rate, base);
    for base in [0, 1, 33, 255] {
        let refused = CreateError::Sizing(SizingError::VariableBase { base });
        assert_eq!(VariableCounting::new(HashRange::WHOLE, 1, 4, base), Err(refused));
        assert_eq!(for_rate(0.01, base), Err(refused));
        assert!(sizing::variable_counting_blocked_rate(1, 4, base, 0).is_err());
        assert!(variable_counting_false_positive_rate(512, 4, base, 0).is_err());
    }
    let unreachable = CreateError::Sizing(SizingError::VariableCountingRate { rate: 1e-300 });
    assert_eq!(for_rate(1e-300, 8), Err(unreachable));
    assert!(VariableCounting::new(HashRange::WHOLE, 0, 4, 8).is_err());
    assert!(VariableCounting::for_rate(HashRange::WHOLE, 0, 0.1, 8).is_err());
    let mut filter = VariableCounting::new(HashRange::WHOLE, 1, 4, 8).unwrap();
    let other = VariableCounting::new(HashRange::WHOLE, 1, 4, 4).unwrap();
    assert!(filter.merge(&other).is_err());
    // One item fills its cells alone, and stays.
    (0..40).for_each(|_| {
        filter.insert(hash(1)).unwrap();
    });
    (0..40).for_each(|_| assert_eq!(filter.remove(hash(1)).unwrap(), Removal::Removed));
    assert!(filter.contains(hash(1)));
}

proptest! {
    /// What is inserted and not removed is present, and removing all leaves nothing.
    #[test]
    fn removing_undoes_inserting(items in vec(0u64..1000, 0..30), stays in vec(0u64..1000, 0..30)) {
        let empty = VariableCounting::new(HashRange::WHOLE, 8, 4, 8).unwrap();
        let filled = |items: &[u64]| {
            let mut filter = empty.clone();
            items.iter().for_each(|item| { filter.insert(hash(*item)).unwrap(); });
            filter
        };
        let mut filter = filled(&stays);
        let before = filter.clone();
        items.iter().for_each(|item| { filter.insert(hash(*item)).unwrap(); });
        let mut merged = before.clone();
        merged.merge(&filled(&items)).unwrap();
        prop_assert!(merged == filter);
        prop_assert!(items.iter().chain(&stays).all(|item| filter.contains(hash(*item))));
        for item in &items {
            prop_assert_eq!(filter.remove(hash(*item)).unwrap(), Removal::Removed);
            prop_assert!(stays.iter().all(|item| filter.contains(hash(*item))));
        }
        let sticks = filter.words().iter().any(|word| word.to_le_bytes().contains(&255));
        prop_assert!(sticks || filter == before);
    }
}
