//! Samples compared with the set of all hashes, and estimates with the truth.

use std::collections::BTreeSet;
use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;
use umbel_filter::ItemHasher;

use super::*;

const K: usize = SAMPLE_HASHES_MAX;

/// Hashes of the items with these numbers.
fn hashes(seed: u64, items: Range<u64>) -> impl Iterator<Item = u64> {
    let hasher = ItemHasher::Xxh3 { seed };
    items.map(move |item| hasher.hash(&item.to_le_bytes()).lo())
}

fn sample_of(seed: u64, items: Range<u64>) -> DistinctSample {
    hashes(seed, items).collect()
}

/// Hashes of a few ranges of items: samples overlap, and some are full.
fn runs() -> impl Strategy<Value = Vec<u64>> {
    vec((0_u64..3_000, 0_u64..1_200), 0..4).prop_map(|runs| {
        runs.into_iter().flat_map(|(first, count)| hashes(1, first..first + count)).collect()
    })
}

/// The slow twin: the k smallest of the set of all hashes.
fn least(hashes: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let all: BTreeSet<u64> = hashes.into_iter().collect();
    all.into_iter().take(K).collect()
}

fn sample(hashes: &[u64]) -> DistinctSample {
    hashes.iter().copied().collect()
}

fn merged(one: &DistinctSample, other: &DistinctSample) -> DistinctSample {
    let mut merged = one.clone();
    merged.merge(other);
    merged
}

fn within(what: &str, count: DistinctCount, truth: f64, standard_errors: f64) {
    let DistinctCount { count, standard_error } = count;
    let off = (count - truth).abs();
    assert!(off <= standard_errors * standard_error, "{what}: {count:.0} ± {standard_error:.0}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_sample_is_the_least_of_the_set(hashes in runs()) {
        let mut sample = DistinctSample::new();
        for &hash in &hashes {
            let before = sample.clone();
            prop_assert_eq!(sample.insert(hash), sample != before);
        }
        prop_assert_eq!(sample.hashes(), least(hashes.iter().copied()));
        // Order and repetition make no difference.
        let again: DistinctSample = hashes.iter().rev().chain(&hashes).copied().collect();
        prop_assert_eq!(&again, &sample);
        prop_assert_eq!(DistinctSample::from_bytes(&sample.to_bytes()), Ok(sample));
    }

    #[test]
    fn merging_is_a_join(a in runs(), b in runs(), c in runs()) {
        let union = least(a.iter().chain(&b).copied());
        let (a, b, c) = (sample(&a), sample(&b), sample(&c));
        let ab = merged(&a, &b);
        prop_assert_eq!(ab.hashes(), union);
        prop_assert_eq!(&ab, &merged(&b, &a));
        prop_assert_eq!(merged(&ab, &c), merged(&a, &merged(&b, &c)));
        prop_assert_eq!(&merged(&a, &a), &a);
        prop_assert_eq!(&merged(&ab, &a), &ab);
        prop_assert_eq!(&DistinctSample::union_of([&a, &b, &c]), &merged(&ab, &c));
        prop_assert_eq!(&merged(&a, &DistinctSample::new()), &a);
    }

    #[test]
    fn an_overlap_is_the_share_in_both(a in runs(), b in runs()) {
        let union = least(a.iter().chain(&b).copied());
        let (in_a, in_b): (BTreeSet<u64>, BTreeSet<u64>) =
            (a.iter().copied().collect(), b.iter().copied().collect());
        let common = union.iter().filter(|hash| in_a.contains(hash) && in_b.contains(hash)).count();
        let (a, b) = (sample(&a), sample(&b));
        let overlap = a.overlap(&b);
        prop_assert_eq!(overlap, b.overlap(&a));
        let all = merged(&a, &b).count();
        prop_assert_eq!(overlap.is_exact(), union.len() < K);
        let scale = if union.len() < K { 1.0 } else { all.count / K as f64 };
        let expected = common as f64 * scale;
        prop_assert!((overlap.count - expected).abs() <= 1e-9 * all.count);
        prop_assert!(overlap.count <= all.count);
    }

    #[test]
    fn any_bytes_are_refused_or_a_sample(bytes in vec(any::<u8>(), 0..64)) {
        if let Ok(sample) = DistinctSample::from_bytes(&bytes) {
            prop_assert_eq!(sample.to_bytes(), bytes);
            let count = sample.count();
            prop_assert!(count.is_exact() && count.count == sample.len() as f64);
        }
    }
}

#[test]
fn the_ends_of_the_space_are_hashes_too() {
    let mut sample: DistinctSample = [u64::MAX, 0].into_iter().collect();
    assert_eq!(sample.hashes(), [0, u64::MAX]);
    sample.extend(1..K as u64 - 1);
    assert_eq!((sample.len(), sample.reach()), (K, u64::MAX));
    assert!(!sample.insert(u64::MAX) && sample.insert(K as u64));
    assert_eq!(sample.reach(), K as u64);
    // Only a bug or an attacker inserts these, but the count is still finite: all hashes are at
    // most 1,024.
    assert!(sample.count().count.is_finite());
}

#[test]
fn what_is_no_sample_is_refused_with_both_values() {
    let bytes =
        |hashes: &[u64]| -> Vec<u8> { hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect() };
    for (hashes, before, after) in [([3, 3, 4], 3, 3), ([3, 9, 4], 9, 4)] {
        let expected = Err(SampleBytesError::NotRising { before, after });
        assert_eq!(DistinctSample::from_bytes(&bytes(&hashes)), expected);
    }
    let most: Vec<u64> = (0..K as u64).collect();
    assert!(DistinctSample::from_bytes(&bytes(&most)).is_ok());
    let more: Vec<u64> = (0..=K as u64).collect();
    let error = DistinctSample::from_bytes(&bytes(&more)).unwrap_err();
    assert_eq!(error.to_string(), "1025 hashes in a sample, expected at most 1024");
    let error = DistinctSample::from_bytes(&bytes(&most)[..15]).unwrap_err();
    assert_eq!(error.to_string(), "15 bytes of a sample, expected a multiple of 8");
}

#[test]
fn below_k_items_are_counted_and_from_k_on_estimated() {
    let (below, at) = (sample_of(1, 0..K as u64 - 1), sample_of(1, 0..K as u64));
    assert_eq!(below.count(), DistinctCount { count: 1023.0, standard_error: 0.0 });
    assert!(!at.count().is_exact());
    within("k items", at.count(), K as f64, 4.0);
}

#[test]
fn a_hundred_thousand_items_and_their_overlaps_are_estimated() {
    const ITEMS: u64 = 100_000;
    let one = sample_of(1, 0..ITEMS);
    let relative_error = one.count().relative_error();
    assert!((relative_error - 1.0 / 1022_f64.sqrt()).abs() < 1e-12, "{relative_error}");
    within("one", one.count(), ITEMS as f64, 4.0);
    for common in [0, 1_000, 10_000, 50_000, ITEMS] {
        let first = ITEMS - common;
        let other = sample_of(1, first..first + ITEMS);
        let union = DistinctSample::union_of([&one, &other]);
        within("union", union.count(), (2 * ITEMS - common) as f64, 4.0);
        within(&format!("overlap of {common}"), one.overlap(&other), common as f64, 4.0);
    }
}

/// Over many seeds, the mean is the truth and the spread is the standard error.
#[test]
fn estimates_are_unbiased_and_as_far_off_as_they_say() {
    const SEEDS: u64 = 200;
    const ITEMS: u64 = 6_000;
    const COMMON: u64 = 1_500;
    let mut errors = [Vec::new(), Vec::new()];
    for seed in 0..SEEDS {
        let one = sample_of(seed, 0..ITEMS);
        let other = sample_of(seed, ITEMS - COMMON..2 * ITEMS - COMMON);
        errors[0].push(one.count().count / ITEMS as f64 - 1.0);
        errors[1].push(one.overlap(&other).count / COMMON as f64 - 1.0);
    }
    // A sixth of one's items is in its sample, which reduces the error of its count by a twelfth.
    let share = COMMON as f64 / (2 * ITEMS - COMMON) as f64;
    let expected = [1.0 / 1022_f64.sqrt(), 1.0 / (share * 1022.0).sqrt()];
    for (errors, expected) in errors.iter().zip(expected) {
        let len = errors.len() as f64;
        let mean = errors.iter().sum::<f64>() / len;
        let spread = (errors.iter().map(|error| error * error).sum::<f64>() / len).sqrt();
        assert!(mean.abs() < 3.0 * expected / len.sqrt(), "mean {mean}, expected {expected}");
        assert!((0.8..1.15).contains(&(spread / expected)), "{spread}, expected {expected}");
    }
}
