//! Every vector version that this processor has, against the scalar loops.

use proptest::collection::vec;
use proptest::prelude::*;

use super::x86::{avx2, avx512};
use super::{Line, scalar};
use crate::block_map::BlockMap;
use crate::capability::Insertion;
use crate::hash::ItemHash;
use crate::lanes::LaneSets;
use crate::range::HashRange;

/// The loops of one version; to be called on a processor that has it.
struct Version {
    name: &'static str,
    contains_batch: unsafe fn(&[Line], BlockMap, &LaneSets, &[ItemHash], &mut [bool]),
    insert_batch: unsafe fn(&mut [Line], BlockMap, &LaneSets, &[ItemHash], &mut [Insertion]),
    contains_one: unsafe fn(&Line, &LaneSets, u32) -> bool,
    insert_one: unsafe fn(&mut Line, &LaneSets, u32) -> Insertion,
    count_ones: unsafe fn(&[u64]) -> u64,
    or: unsafe fn(&mut [u64], &[u64]) -> u64,
    and: unsafe fn(&mut [u64], &[u64]) -> u64,
}

macro_rules! version {
    ($level:ident) => {
        Version {
            name: stringify!($level),
            contains_batch: $level::contains_batch,
            insert_batch: $level::insert_batch,
            contains_one: $level::contains_one,
            insert_one: $level::insert_one,
            count_ones: $level::count_ones,
            or: $level::or,
            and: $level::and,
        }
    };
}

/// What this processor can run. A test on a machine without AVX-512 leaves it out.
fn versions() -> Vec<Version> {
    let mut versions = Vec::new();
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
        versions.push(version!(avx2));
    }
    if is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vpopcntdq")
        && is_x86_feature_detected!("bmi2")
    {
        versions.push(version!(avx512));
    }
    versions
}

fn hashes() -> impl Strategy<Value = Vec<ItemHash>> {
    // Few blocks and few seeds, so that items meet.
    let hash = (any::<u64>(), 0..200u64, any::<bool>()).prop_map(|(hi, lo, far)| {
        ItemHash::new(hi, if far { hi.rotate_left(17) } else { lo << 32 })
    });
    vec(hash, 0..200)
}

#[test]
fn this_machine_tries_something() {
    for version in versions() {
        println!("tried: {}", version.name);
    }
}

proptest! {
    #[test]
    fn batches_equal_the_scalar_loop(
        block_count in 1..20u64, probe_count in 1..=16u32, items in hashes(), asked in hashes(),
    ) {
        let map = BlockMap::new(HashRange::WHOLE, block_count).unwrap();
        let sets = LaneSets::new(probe_count);
        let empty = vec![Line::default(); usize::try_from(block_count).unwrap()];

        let mut lines = empty.clone();
        let mut outcomes = vec![Insertion::New; items.len()];
        scalar::insert_batch(&mut lines, map, &sets, &items, &mut outcomes);
        let mut present = vec![false; asked.len()];
        scalar::contains_batch(&lines, map, &sets, &asked, &mut present);

        for version in versions() {
            let mut wide_lines = empty.clone();
            let mut wide_outcomes = vec![Insertion::New; items.len()];
            let mut wide_present = vec![true; asked.len()];
            // SAFETY: the processor has this version.
            unsafe {
                let (lines, outcomes) = (&mut wide_lines, &mut wide_outcomes);
                (version.insert_batch)(lines, map, &sets, &items, outcomes);
                (version.contains_batch)(lines, map, &sets, &asked, &mut wide_present);
            }
            prop_assert_eq!(&wide_lines, &lines, "{}", version.name);
            prop_assert_eq!(&wide_outcomes, &outcomes, "{}", version.name);
            prop_assert_eq!(&wide_present, &present, "{}", version.name);
        }
    }

    #[test]
    fn single_items_equal_the_scalar_loop(
        words: [u64; 8], dense: bool, probe_count in 1..=16u32, seed: u32,
    ) {
        let line = Line(words.map(|word| if dense { word | word.rotate_left(7) } else { word }));
        let sets = LaneSets::new(probe_count);
        let mut expected = line;
        let is_there = scalar::contains_one(&line, &sets, seed);
        let outcome = scalar::insert_one(&mut expected, &sets, seed);
        for version in versions() {
            let mut wide = line;
            // SAFETY: the processor has this version.
            unsafe {
                prop_assert_eq!((version.contains_one)(&line, &sets, seed), is_there);
                prop_assert_eq!((version.insert_one)(&mut wide, &sets, seed), outcome);
                prop_assert!((version.contains_one)(&wide, &sets, seed));
            }
            prop_assert_eq!(wide, expected, "{}", version.name);
        }
    }

    #[test]
    fn words_equal_the_scalar_loop(pairs in vec(any::<(u64, u64)>(), 0..70)) {
        let (ours, theirs): (Vec<u64>, Vec<u64>) = pairs.into_iter().unzip();
        let (mut ored, mut anded) = (ours.clone(), ours.clone());
        let new_count = scalar::or(&mut ored, &theirs);
        let cleared_count = scalar::and(&mut anded, &theirs);
        prop_assert_eq!(scalar::count_ones(&ours) + new_count, scalar::count_ones(&ored));
        prop_assert_eq!(scalar::count_ones(&ours) - cleared_count, scalar::count_ones(&anded));
        for version in versions() {
            let (mut wide_ored, mut wide_anded) = (ours.clone(), ours.clone());
            // SAFETY: the processor has this version.
            unsafe {
                prop_assert_eq!((version.or)(&mut wide_ored, &theirs), new_count);
                prop_assert_eq!((version.and)(&mut wide_anded, &theirs), cleared_count);
                prop_assert_eq!((version.count_ones)(&ours), scalar::count_ones(&ours));
            }
            prop_assert_eq!(&wide_ored, &ored, "{}", version.name);
            prop_assert_eq!(&wide_anded, &anded, "{}", version.name);
        }
    }
}
