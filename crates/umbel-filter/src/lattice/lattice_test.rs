//! Laws, golden cells, and rates. The slow twin of a merge joins cell by cell; that of a value is what was raised.

#![allow(clippy::cast_possible_truncation, reason = "numbers are small")]

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{Blocked, Insert, ItemHasher, sizing};

const JOINS: [Join; 2] = [Join::Max, Join::Or];

fn hash(number: u64) -> ItemHash {
    ItemHasher::Xxh3 { seed: 7 }.hash(&number.to_le_bytes())
}

fn of(join: Join, raised: &[(u64, u8)]) -> Lattice {
    let mut lattice = Lattice::new(join, HashRange::WHOLE, 2, 5).unwrap();
    for (number, value) in raised {
        lattice.raise(hash(*number), *value).unwrap();
    }
    lattice
}

fn joined(join: Join, a: u8, b: u8) -> u8 {
    if join == Join::Max { a.max(b) } else { a | b }
}

fn union(a: &Lattice, b: &Lattice) -> Lattice {
    let mut union = a.clone();
    union.merge(b).unwrap();
    union
}

/// Minimal increase: a twice on the cells 3 and 5, b once on 5 and 9.
#[test]
fn layers_of_two_items_that_share_a_cell() {
    let mut block = [0; 32];
    for cells in [[3, 5], [3, 5], [5, 9]] {
        let count = meet(Join::Max, &block, cells.into_iter()) + 1;
        raise(Join::Max, &mut block, cells.into_iter(), count);
    }
    assert_eq!(meet(Join::Max, &block, [3, 5].into_iter()), 2);
    assert_eq!(meet(Join::Max, &block, [5, 9].into_iter()), 1);
    assert_eq!(block[0], 1 << 36 | 2 << 20 | 2 << 12);
}

#[test]
fn what_is_set_is_what_a_blocked_filter_sets() {
    let mut lattice = Lattice::new(Join::Max, HashRange::WHOLE, 3, 6).unwrap();
    let mut blocked = Blocked::new(HashRange::WHOLE, 3, 6).unwrap();
    for number in 0..100 {
        lattice.raise(hash(number), (number % 15) as u8 + 1).unwrap();
        blocked.insert(hash(number)).unwrap();
    }
    let is_set = |cell: u64| lattice.words()[cell as usize / 16] >> (4 * (cell % 16)) & 15 != 0;
    for cell in 0..3 * 512 {
        assert_eq!(is_set(cell), blocked.words()[cell as usize / 64] >> (cell % 64) & 1 == 1);
    }
    let ones = blocked.words().iter().map(|word| u64::from(word.count_ones())).sum();
    let rate = lattice.block_shape().describe(ones).false_positive_rate;
    assert_eq!(lattice.false_positive_rate(1), rate);
    assert!(lattice.false_positive_rate(15) < rate);
    assert_eq!(
        (lattice.false_positive_rate(0), of(Join::Or, &[]).false_positive_rate(1)),
        (1.0, 0.0)
    );
}

/// Spatial: 10,000 items of set 1, and so on to set 4.
#[test]
fn other_items_are_in_a_set_at_the_rate() {
    let mut lattice = Lattice::for_rate(Join::Max, HashRange::WHOLE, 40_000, 0.05).unwrap();
    for number in 0..40_000 {
        lattice.raise(hash(number), (number / 10_000) as u8 + 1).unwrap();
    }
    let shape = lattice.block_shape();
    let asked = 400_000u64;
    let mut found = [0u64; 5];
    (1_000_000..1_000_000 + asked).for_each(|n| found[usize::from(lattice.value(hash(n)))] += 1);
    let rate = |items| {
        let blocks = shape.map().block_count();
        sizing::blocked_false_positive_rate(blocks, shape.probe_count(), items).unwrap()
    };
    for set in 1..=4u64 {
        let expected =
            rate(10_000 * (5 - set)) - if set < 4 { rate(10_000 * (4 - set)) } else { 0.0 };
        let (found, asked) = (found[set as usize] as f64, asked as f64);
        let sigma = (asked * expected * (1.0 - expected)).sqrt();
        // A filter of 40,000 items has its own share of ones, too: 1 % of the rate.
        let slack = 5.0 * sigma + 0.05 * asked * expected;
        assert!(
            (found - asked * expected).abs() < slack,
            "set {set}: {found}, not {}",
            asked * expected
        );
    }
}

#[test]
fn wrong_use_is_refused_and_changes_nothing() {
    let upper = HashRange::new(1 << 63, 1 << 64).unwrap();
    let mut lattice = Lattice::new(Join::Or, upper, 4, 3).unwrap();
    let before = lattice.clone();
    let outside = ItemHash::new(5, 5);
    let refused = RaiseError::OutOfRange(OutOfRange { hi: 5, range: upper });
    assert_eq!(lattice.raise(outside, 1), Err(refused));
    assert_eq!(lattice.value(outside), 0);
    let inside = ItemHash::new(u64::MAX, 5);
    assert_eq!(lattice.raise(inside, 16), Err(RaiseError::Value { value: 16 }));
    let wrong = JoinError { expected: Join::Max, actual: Join::Or };
    assert_eq!(lattice.count(inside), Err(RaiseError::Join(wrong)));
    let max = Lattice::new(Join::Max, upper, 4, 3).unwrap();
    assert!(max.attenuated().is_err());
    let other_join = JoinError { expected: Join::Or, actual: Join::Max };
    assert_eq!(lattice.merge(&max), Err(LatticeMismatch::Join(other_join)));
    let other = Lattice::new(Join::Or, upper, 8, 3).unwrap();
    assert!(matches!(lattice.merge(&other), Err(LatticeMismatch::Shape(_))));
    assert!(lattice == before);
    assert!(Lattice::new(Join::Or, upper, 0, 3).is_err());
    assert!(Lattice::for_rate(Join::Or, upper, 0, 0.1).is_err());
}

proptest! {
    /// A merge is a join: the hypercube may carry it.
    #[test]
    fn merging_is_a_join(
        a in vec((0u64..60, 0u8..16), 0..40),
        b in vec((0u64..60, 0u8..16), 0..40),
        c in vec((0u64..60, 0u8..16), 0..40),
    ) {
        for join in JOINS {
            let [a, b, c] = [&a, &b, &c].map(|raised| of(join, raised));
            prop_assert!(union(&a, &b) == union(&b, &a));
            prop_assert!(union(&union(&a, &b), &c) == union(&a, &union(&b, &c)));
            prop_assert!(union(&a, &a) == a);
            prop_assert!(union(&a, &of(join, &[])) == a);
            let both = union(&a, &b);
            for number in 0..60 {
                let least = joined(join, a.value(hash(number)), b.value(hash(number)));
                prop_assert_eq!(joined(join, both.value(hash(number)), least), both.value(hash(number)));
            }
        }
    }

    /// Merging filters is raising all that was raised in either; a value is never below the truth, and never falls.
    #[test]
    fn a_value_is_at_least_what_was_raised(
        a in vec((0u64..60, 0u8..16), 0..40),
        b in vec((0u64..60, 0u8..16), 0..40),
    ) {
        for join in JOINS {
            let all = of(join, &[&a[..], &b[..]].concat());
            let merged = union(&of(join, &a), &of(join, &b));
            prop_assert!(merged == all);
            let mut truth: BTreeMap<u64, u8> = BTreeMap::new();
            let mut lattice = of(join, &[]);
            for (number, value) in a.iter().chain(&b) {
                let known = truth.entry(*number).or_default();
                *known = joined(join, *known, *value);
                let before = lattice.value(hash(7));
                lattice.raise(hash(*number), *value).unwrap();
                prop_assert_eq!(joined(join, before, lattice.value(hash(7))), lattice.value(hash(7)));
            }
            for (number, value) in truth {
                prop_assert_eq!(joined(join, value, all.value(hash(number))), all.value(hash(number)));
            }
        }
    }

    #[test]
    fn counts_are_at_least_the_truth_and_merge_to_the_larger(
        a in vec(0u64..20, 0..60),
        b in vec(0u64..20, 0..60),
    ) {
        let counted = |numbers: &[u64]| {
            let mut lattice = of(Join::Max, &[]);
            for number in numbers {
                let before = lattice.value(hash(*number));
                prop_assert_eq!(lattice.count(hash(*number)).unwrap(), (before + 1).min(15));
            }
            Ok(lattice)
        };
        let (ours, theirs) = (counted(&a)?, counted(&b)?);
        let both = union(&ours, &theirs);
        for number in 0..20 {
            let count = |all: &[u64]| all.iter().filter(|n| **n == number).count().min(15) as u8;
            prop_assert!(ours.value(hash(number)) >= count(&a));
            prop_assert!(both.value(hash(number)) >= count(&a).max(count(&b)));
        }
    }

    /// Attenuating moves through a merge, and four hops take everything away.
    #[test]
    fn attenuating_is_a_homomorphism(
        a in vec((0u64..60, 0u8..16), 0..40),
        b in vec((0u64..60, 0u8..16), 0..40),
    ) {
        let (a, b) = (of(Join::Or, &a), of(Join::Or, &b));
        let attenuated_of = |lattice: &Lattice| lattice.attenuated().unwrap();
        prop_assert!(attenuated_of(&union(&a, &b)) == union(&attenuated_of(&a), &attenuated_of(&b)));
        prop_assert!(attenuated_of(&attenuated_of(&attenuated_of(&attenuated_of(&a)))) == of(Join::Or, &[]));
        for number in 0..60 {
            prop_assert_eq!(attenuated_of(&a).value(hash(number)), a.value(hash(number)) << 1 & 15);
        }
    }

    /// The slow twin: cell by cell.
    #[test]
    fn words_are_joined_cell_by_cell(ours: u64, theirs: u64) {
        for join in JOINS {
            let cell = |at: u32| {
                let [a, b] = [ours, theirs].map(|word| (word >> (4 * at) & 15) as u8);
                u64::from(joined(join, a, b)) << (4 * at)
            };
            prop_assert_eq!(join_words(join, ours, theirs), (0..16).map(cell).sum::<u64>());
        }
    }
}
