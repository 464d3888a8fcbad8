//! Counts against a map of counts, the rate against the formula, and how full a table gets.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::ItemHasher;
use crate::capability::{Contains, Insert};
use crate::sizing::SizingError;

fn hash(number: u64) -> ItemHash {
    ItemHasher::Xxh3 { seed: 7 }.hash(&number.to_le_bytes())
}

#[test]
fn a_full_table_has_the_rate_of_the_formula() {
    let mut filter = DLeft::new(HashRange::WHOLE, 1, DLEFT_PAGE_CELLS_MAX, 12).unwrap();
    let capacity = 55_705; // 0.85 of 65,536
    for number in 0..capacity {
        filter.insert(hash(number)).unwrap();
    }
    assert!((0..capacity).all(|number| filter.contains(hash(number))));
    let rate = filter.false_positive_rate();
    assert!((rate - 0.00664).abs() < 0.00003, "{rate}");
    let asked = 400_000;
    let found = (1_000_000..1_000_000 + asked).filter(|number| filter.contains(hash(*number)));
    let (found, asked) = (found.count() as f64, asked as f64);
    let sigma = (asked * rate * (1.0 - rate)).sqrt();
    assert!((found - asked * rate).abs() < 5.0 * sigma, "{found}, not {}", asked * rate);
}

#[test]
fn no_table_is_full_below_its_design() {
    for page in 0..10 {
        let mut filter = DLeft::new(HashRange::WHOLE, 1, 1 << 14, 16).unwrap();
        let full = (0..1 << 14).find_map(|number| filter.insert(hash(page << 32 | number)).err());
        let Some(InsertError::Full { item_count }) = full else { panic!("{full:?}") };
        let load = item_count as f64 / f64::from(1 << 14);
        assert!((0.89..0.96).contains(&load), "{load}");
        let before = filter.clone();
        let refused = (0..).find(|n| filter.insert(hash(1 << 60 | n)).is_err()).unwrap();
        assert!(!filter.contains(hash(1 << 60 | refused)));
        assert!(before.item_count() <= filter.item_count());
    }
}

#[test]
fn plans_keep_rates_and_bits() {
    let filter = DLeft::for_rate(HashRange::WHOLE, 1_000_000, 0.01).unwrap();
    assert_eq!((filter.remainder_bits, filter.map.block_count()), (12, 18));
    let bits = filter.memory_bytes() as f64 * 8.0 / 1_000_000.0;
    assert!((16.4..16.6).contains(&bits), "{bits}");
    let unreachable = SizingError::DLeftRate { rate: 1e-30 };
    assert_eq!(dleft_size(1_000, 1e-30), Err(unreachable));
    for page_cells in [16, 1 << 17] {
        assert!(DLeft::new(HashRange::WHOLE, 1, page_cells, 8).is_err());
    }
    assert!(DLeft::new(HashRange::WHOLE, 1, 96, 8).is_err());
    assert!(DLeft::new(HashRange::WHOLE, 1, 64, 0).is_err());
    assert!(DLeft::new(HashRange::WHOLE, 1, 64, 33).is_err());
    assert!(DLeft::new(HashRange::WHOLE, u64::MAX, 64, 8).is_err());
    assert!(DLeft::new(HashRange::WHOLE, 1 << 40, 1 << 16, 8).is_err());
}

#[test]
fn a_range_has_the_pages_of_its_items() {
    let range = HashRange::new(1 << 63, 1 << 64).unwrap();
    let mut filter = DLeft::new(range, 4, 1024, 10).unwrap();
    assert_eq!(filter.cell_count(), 2048);
    assert!(filter.insert(ItemHash::new(1, 1)).is_err());
    assert!(!filter.contains(ItemHash::new(1, 1)));
    assert_eq!(filter.insert(ItemHash::new(u64::MAX, 1)).unwrap(), Insertion::New);
    assert!(filter.contains(ItemHash::new(u64::MAX, 1)));
    assert!(filter.remove(ItemHash::new(1, 1)).is_err());
}

proptest! {
    /// The slow twin: how often each item is there; with remainders of 32 bits none shares a cell.
    #[test]
    fn counts_are_those_of_a_map(steps in vec((0u64..30, any::<bool>()), 0..200)) {
        let mut filter = DLeft::new(HashRange::WHOLE, 2, 64, 32).unwrap();
        let mut twin: BTreeMap<u64, u64> = BTreeMap::new();
        for (number, is_insert) in steps {
            let count = twin.entry(number).or_default();
            if is_insert {
                let outcome = filter.insert(hash(number)).unwrap();
                prop_assert_eq!(outcome == Insertion::New, *count == 0);
                *count = (*count + 1).min(COUNT_MAX);
            } else {
                let outcome = filter.remove(hash(number)).unwrap();
                prop_assert_eq!(outcome == Removal::Removed, *count > 0);
                if *count < COUNT_MAX {
                    *count = count.saturating_sub(1);
                }
            }
            for n in 0..30 {
                let count = twin.get(&n).copied().unwrap_or_default();
                prop_assert_eq!(filter.contains(hash(n)), count > 0);
            }
        }
        let there = twin.values().filter(|count| **count > 0).count() as u64;
        prop_assert_eq!(filter.item_count(), there);
        if there == 0 {
            prop_assert!(filter.words().iter().all(|word| *word == 0));
        }
    }
}
