//! The classic filter, its bounds and its exact rate; the single-shot and the partitioned filter.
//!
//! * classic filter: p = (1 − (1 − 1/m)^(k·n))^k, least at k = m/n · ln 2, and
//!   m = −n · ln p / (ln 2)² reaches p there (Bloom 1970, doi:10.1145/362686.362692; Broder &
//!   Mitzenmacher 2004, doi:10.1080/15427951.2004.10129096). The formula takes the k probes for
//!   independent and is low by a share that vanishes with m (Bose et al. 2008,
//!   doi:10.1016/j.ipl.2008.05.018).
//! * single-shot filter: k = 1, so p = 1 − (1 − 1/m)^n exactly (Sanders, Schlag & Müller 2013,
//!   doi:10.1109/BigData.2013.6691549).
//! * partitioned filter: one probe in each of k parts of w bits; parts are independent, so
//!   p = (1 − (1 − 1/w)^n)^k exactly.

use std::f64::consts::LN_2;

use super::{SizingError, check_items, check_rate};

/// Most steps that [`classic_false_positive_rate_exact`] takes: 2^28 of them take a
/// third of a second. Enough for 16,384 bits and as many probes of all items together; for
/// larger filters Bloom's formula is low by about a thousandth of the rate, or less.
pub const CLASSIC_EXACT_STEP_COUNT_MAX: u64 = 1 << 28;

/// False-positive rate of a classic filter of `bit_count` bits (m) with `hash_count` probes (k)
/// per item, after `item_count` items (n): (1 − (1 − 1/m)^(k·n))^k, 0 without items (Bloom 1970,
/// doi:10.1145/362686.362692).
///
/// A filter whose halves are laid over each other by OR has this rate with m/2 bits.
///
/// # Errors
/// If m or k is 0.
///
/// ```
/// use umbel_filter::sizing::classic_false_positive_rate;
///
/// // One item with one probe in two bits: half of all others meet it.
/// assert_eq!(classic_false_positive_rate(2, 1, 1), Ok(0.5));
/// // The well-known table value: ten bits and seven probes an item, 0.82 %.
/// let rate = classic_false_positive_rate(10_000_000, 7, 1_000_000)?;
/// assert!((rate - 0.0082).abs() < 0.0001);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn classic_false_positive_rate(
    bit_count: u64,
    hash_count: u32,
    item_count: u64,
) -> Result<f64, SizingError> {
    if hash_count == 0 {
        return Err(SizingError::NoProbes);
    }
    let probe_count = f64::from(hash_count) * item_count as f64;
    Ok(set_share(bit_count, probe_count)?.powf(hash_count.into()))
}

/// Number k of probes per item with the least classic false-positive rate, for `bit_count` bits
/// (m) and `item_count` items (n): the better neighbour of m/n · ln 2, at least 1.
///
/// # Errors
/// If m or n is 0.
///
/// ```
/// use umbel_filter::sizing::classic_optimal_hash_count;
///
/// // 10 bits an item: 10 · 0.693 = 6.93.
/// assert_eq!(classic_optimal_hash_count(10_000, 1_000), Ok(7));
/// assert_eq!(classic_optimal_hash_count(1, 1_000), Ok(1));
/// ```
pub fn classic_optimal_hash_count(bit_count: u64, item_count: u64) -> Result<u32, SizingError> {
    if bit_count == 0 {
        return Err(SizingError::NoBits);
    }
    check_items(item_count)?;
    let ideal = bit_count as f64 / item_count as f64 * LN_2;
    #[expect(clippy::cast_possible_truncation, reason = "saturates: more than 2^32 help nobody")]
    let below = (ideal.floor() as u32).max(1);
    let above = below.saturating_add(1);
    let better = classic_false_positive_rate(bit_count, above, item_count)?
        < classic_false_positive_rate(bit_count, below, item_count)?;
    Ok(if better { above } else { below })
}

/// Number of bits with which `item_count` items (n) reach the classic `false_positive_rate` (p) at
/// the best k: ⌈−n · ln p / (ln 2)²⌉, at most `u64::MAX`.
///
/// # Errors
/// If n is 0 or p does not lie in (0, 1).
///
/// ```
/// use umbel_filter::sizing::classic_bit_count;
///
/// // 1 % costs 9.585 bits an item.
/// assert_eq!(classic_bit_count(1_000, 0.01), Ok(9_586));
/// ```
pub fn classic_bit_count(item_count: u64, false_positive_rate: f64) -> Result<u64, SizingError> {
    check_items(item_count)?;
    check_rate(false_positive_rate)?;
    let bits = -(item_count as f64) * false_positive_rate.ln() / (LN_2 * LN_2);
    #[expect(clippy::cast_possible_truncation, reason = "saturates at the documented bound")]
    let bit_count = bits.ceil() as u64;
    Ok(bit_count)
}

/// False-positive rate of a single-shot filter with `position_count` positions (m) after
/// `item_count` items (n): 1 − (1 − 1/m)^n, 0 without items.
///
/// # Errors
/// If m is 0.
///
/// ```
/// use umbel_filter::sizing::single_shot_false_positive_rate;
///
/// // Two items on four positions: 1 − (3/4)² = 7/16.
/// let rate = single_shot_false_positive_rate(4, 2)?;
/// assert!((rate - 7.0 / 16.0).abs() < 1e-15);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn single_shot_false_positive_rate(
    position_count: u64,
    item_count: u64,
) -> Result<f64, SizingError> {
    set_share(position_count, item_count as f64)
}

/// The rate with the usual limit of large m: (1 − e^(−k·n/m))^k, for `bit_count` bits (m) with
/// `hash_count` probes (k) per item, after `item_count` items (n). A trifle below
/// [`classic_false_positive_rate`], by a share of about k²·n / (2·m²) where the filter is half
/// full.
///
/// # Errors
/// If m or k is 0.
///
/// ```
/// use umbel_filter::sizing::classic_false_positive_rate_approximate;
///
/// // One probe, as many items as bits: 1 − 1/e.
/// let rate = classic_false_positive_rate_approximate(1_000, 1, 1_000)?;
/// assert!((rate - 0.632_120_558_828_557_7).abs() < 1e-15);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn classic_false_positive_rate_approximate(
    bit_count: u64,
    hash_count: u32,
    item_count: u64,
) -> Result<f64, SizingError> {
    check_shape(bit_count, hash_count)?;
    let k = f64::from(hash_count);
    Ok((-(-k * item_count as f64 / bit_count as f64).exp_m1()).powf(k))
}

/// A rate that is never below the exact one: (1 − e^(−k·(n + 1/2)/(m − 1)))^k, for `bit_count`
/// bits (m) with `hash_count` probes (k) per item, after `item_count` items (n). Take away a bit,
/// add half an item, and the usual formula is safe for small filters too (Goel & Gupta 2010, *Small
/// subset queries and Bloom filters using ternary associative memories*, SIGMETRICS 2010,
/// doi:10.1145/1811039.1811056). With one bit it is 1. Without items it is above 0.
///
/// # Errors
/// If m or k is 0.
///
/// ```
/// use umbel_filter::sizing::classic_false_positive_rate_bound;
///
/// // Two bits, one probe, one item: the exact rate is 1/2, the bound 1 − e^(−3/2) = 0.777.
/// let rate = classic_false_positive_rate_bound(2, 1, 1)?;
/// assert!((rate - 0.776_869_839_851_570_2).abs() < 1e-15);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn classic_false_positive_rate_bound(
    bit_count: u64,
    hash_count: u32,
    item_count: u64,
) -> Result<f64, SizingError> {
    check_shape(bit_count, hash_count)?;
    let k = f64::from(hash_count);
    // One bit divides by 0, which makes the exponential 0 and the bound 1: right.
    let exponent = -k * (item_count as f64 + 0.5) / (bit_count - 1) as f64;
    Ok((-exponent.exp_m1()).powf(k))
}

/// The exact rate of `bit_count` bits (m) with `hash_count` independent uniform probes (k) per
/// item, which may meet, after `item_count` items (n): the mean of (X/m)^k over the number X of set
/// bits after k·n probes (Bose et al. 2008, doi:10.1016/j.ipl.2008.05.018; Christensen, Roginsky &
/// Jimeno 2010, doi:10.1016/j.ipl.2010.07.024).
///
/// The closed forms of the papers alternate in sign and lose all digits beyond some hundred bits.
/// Here the distribution of X grows probe by probe, with no difference anywhere:
/// P(x after the probe) = P(x) · x/m + P(x − 1) · (m − x + 1)/m. That takes k·n · min(m, k·n)
/// steps.
///
/// # Errors
/// If m or k is 0, or the steps are more than [`CLASSIC_EXACT_STEP_COUNT_MAX`].
///
/// ```
/// use umbel_filter::sizing::{classic_false_positive_rate, classic_false_positive_rate_exact};
///
/// // Two probes in two bits set one or both, evenly: 1/2 · 1/4 + 1/2 · 1 = 5/8.
/// assert_eq!(classic_false_positive_rate_exact(2, 2, 1), Ok(5.0 / 8.0));
/// // Bloom's formula takes the two bits for independent: (1 − 1/4)² = 9/16.
/// let bloom = classic_false_positive_rate(2, 2, 1)?;
/// assert!((bloom - 9.0 / 16.0).abs() < 1e-15);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn classic_false_positive_rate_exact(
    bit_count: u64,
    hash_count: u32,
    item_count: u64,
) -> Result<f64, SizingError> {
    check_shape(bit_count, hash_count)?;
    let probe_count = u128::from(hash_count) * u128::from(item_count);
    let one_count_max = probe_count.min(bit_count.into());
    // Of 96 and 64 bits, so the product may exceed u128.
    let step_count = probe_count.saturating_mul(one_count_max);
    if step_count > CLASSIC_EXACT_STEP_COUNT_MAX.into() {
        return Err(SizingError::TooManySteps { step_count });
    }
    let m = bit_count as f64;
    let mut shares = vec![1.0];
    for _ in 0..probe_count {
        if (shares.len() as u128) <= one_count_max {
            shares.push(0.0);
        }
        // Downwards, so that the share of x − 1 is still that before the probe.
        for ones in (1..shares.len()).rev() {
            let below = shares[ones - 1];
            shares[ones] = (shares[ones] * ones as f64 + below * (m - (ones - 1) as f64)) / m;
        }
        shares[0] = 0.0;
    }
    let k = f64::from(hash_count);
    Ok(shares.iter().enumerate().map(|(ones, share)| share * (ones as f64 / m).powf(k)).sum())
}

/// False-positive rate of a partitioned filter: `part_count` parts (k) of `part_bit_count` bits
/// (w), one probe of each item in every part, after `item_count` items (n):
/// (1 − (1 − 1/w)^n)^k. Exact for uniform probes, because parts share nothing.
///
/// # Errors
/// If w or k is 0.
///
/// ```
/// use umbel_filter::sizing::partitioned_false_positive_rate;
///
/// // Two items in two parts of two bits: each part has its bit set with 1 − 1/4.
/// let rate = partitioned_false_positive_rate(2, 2, 2)?;
/// assert!((rate - 9.0 / 16.0).abs() < 1e-15);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn partitioned_false_positive_rate(
    part_bit_count: u64,
    part_count: u32,
    item_count: u64,
) -> Result<f64, SizingError> {
    check_shape(part_bit_count, part_count)?;
    Ok(set_share(part_bit_count, item_count as f64)?.powf(part_count.into()))
}

/// Bits an item below which no filter of whatever kind has the `false_positive_rate` (p):
/// log2(1/p) (Carter et al. 1978, *Exact and approximate membership testers*, STOC 1978,
/// doi:10.1145/800133.804332). A classic filter takes 1/ln 2 = 1.44 times as many.
///
/// # Errors
/// If p does not lie in (0, 1).
///
/// ```
/// use umbel_filter::sizing::information_bits;
///
/// assert_eq!(information_bits(1.0 / 1024.0), Ok(10.0));
/// ```
pub fn information_bits(false_positive_rate: f64) -> Result<f64, SizingError> {
    check_rate(false_positive_rate)?;
    Ok(-false_positive_rate.log2())
}

/// Refuses filters without bits and items without probes.
pub(super) fn check_shape(bit_count: u64, probe_count: u32) -> Result<(), SizingError> {
    if bit_count == 0 {
        return Err(SizingError::NoBits);
    }
    if probe_count == 0 {
        return Err(SizingError::NoProbes);
    }
    Ok(())
}

/// Expected share of m bits that are set after so many independent probes: 1 − (1 − 1/m)^probes.
pub(super) fn set_share(bit_count: u64, probe_count: f64) -> Result<f64, SizingError> {
    if bit_count == 0 {
        return Err(SizingError::NoBits);
    }
    if probe_count == 0.0 {
        return Ok(0.0);
    }
    // ln_1p and exp_m1 keep every digit where 1 − 1/m itself would round to 1.
    Ok(-(probe_count * (-(bit_count as f64).recip()).ln_1p()).exp_m1())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::split_mix;
    use super::*;

    #[test]
    fn sizes_of_zero_and_rates_at_the_ends_are_refused() {
        assert_eq!(classic_false_positive_rate(0, 1, 1), Err(SizingError::NoBits));
        assert_eq!(classic_false_positive_rate(1, 0, 1), Err(SizingError::NoProbes));
        assert_eq!(classic_optimal_hash_count(0, 1), Err(SizingError::NoBits));
        assert_eq!(classic_optimal_hash_count(1, 0), Err(SizingError::NoItems));
        assert_eq!(classic_bit_count(0, 0.1), Err(SizingError::NoItems));
        assert_eq!(single_shot_false_positive_rate(0, 1), Err(SizingError::NoBits));
        for rate in [0.0, 1.0, -0.5, 1.5, f64::INFINITY] {
            assert_eq!(classic_bit_count(1, rate), Err(SizingError::Rate { rate }));
        }
        assert!(classic_bit_count(1, f64::NAN).is_err());
    }

    #[test]
    fn the_ends_of_the_rates() {
        assert_eq!(classic_false_positive_rate(100, 3, 0), Ok(0.0));
        assert_eq!(classic_false_positive_rate(1, 3, 1), Ok(1.0));
        assert_eq!(single_shot_false_positive_rate(1, 1), Ok(1.0));
        // So many positions that 1 − 1/m rounds to 1: the rate is still n/m.
        let rate = single_shot_false_positive_rate(1 << 60, 1 << 10).unwrap();
        assert!((rate * 2f64.powi(50) - 1.0).abs() < 1e-9);
    }

    /// Slow twin of the exact rate: all ways to throw the probes, of items and query, counted.
    fn exact_by_counting(bit_count: u32, hash_count: u32, item_count: u32) -> f64 {
        let throws = hash_count * item_count;
        let all = bit_count.pow(throws);
        let total: f64 = (0..all)
            .map(|mut way| {
                let mut bits = 0u32;
                for _ in 0..throws {
                    bits |= 1 << (way % bit_count);
                    way /= bit_count;
                }
                let share = f64::from(bits.count_ones()) / f64::from(bit_count);
                share.powi(hash_count.cast_signed())
            })
            .sum();
        total / f64::from(all)
    }

    #[test]
    fn the_exact_rate_is_that_of_all_throws() {
        for (m, k, n) in [(1, 3, 2), (2, 1, 5), (3, 2, 3), (5, 3, 2), (4, 2, 4), (7, 1, 6)] {
            let exact = classic_false_positive_rate_exact(m.into(), k, n.into()).unwrap();
            let counted = exact_by_counting(m, k, n);
            assert!((exact / counted - 1.0).abs() < 1e-10, "{m} {k} {n}: {exact}, {counted}");
        }
        assert_eq!(classic_false_positive_rate_exact(10, 2, 0), Ok(0.0));
    }

    #[test]
    fn the_exact_rate_has_a_limit() {
        let exact = classic_false_positive_rate_exact;
        assert!(exact(1 << 14, 1, 1 << 14).is_ok());
        let step_count = (1 << 28) + (1 << 14);
        assert_eq!(exact(1 << 14, 1, (1 << 14) + 1), Err(SizingError::TooManySteps { step_count }));
        assert!(exact(u64::MAX, u32::MAX, u64::MAX).is_err());
        // Few probes in many bits are few steps.
        assert!(exact(u64::MAX, 4, 100).unwrap() < 1e-60);
        let message = exact(1 << 14, 1, (1 << 14) + 1).unwrap_err().to_string();
        assert_eq!(message, "268451840 steps for the exact rate, expected at most 268435456");
    }

    /// Bloom below exact below Goel and Gupta, and all three the same in the end.
    #[test]
    fn the_bounds_hold_the_exact_rate() {
        for bit_count in [2, 3, 8, 61, 256, 1_000] {
            for hash_count in [1, 2, 3, 7, 12] {
                for item_count in [1, 2, 5, 20, 100] {
                    let arguments = (bit_count, hash_count, item_count);
                    let of = |rate: fn(u64, u32, u64) -> Result<f64, SizingError>| {
                        rate(bit_count, hash_count, item_count).unwrap()
                    };
                    let exact = of(classic_false_positive_rate_exact);
                    assert!(of(classic_false_positive_rate) <= exact * (1.0 + 1e-12));
                    assert!(of(classic_false_positive_rate_bound) >= exact, "{arguments:?}");
                }
            }
        }
        let exact = classic_false_positive_rate_exact(8_192, 7, 819).unwrap();
        for rate in [
            classic_false_positive_rate(8_192, 7, 819),
            classic_false_positive_rate_approximate(8_192, 7, 819),
            classic_false_positive_rate_bound(8_192, 7, 819),
        ] {
            assert!((rate.unwrap() / exact - 1.0).abs() < 0.005);
        }
        assert_eq!(classic_false_positive_rate_bound(1, 3, 0), Ok(1.0));
    }

    /// 2^18 filters of two parts with 8 bits, three items and one query each.
    #[test]
    fn the_partitioned_rate_is_that_of_a_simulation() {
        let run_count = 1 << 18;
        let mut state = 5u64;
        let mut hits = 0;
        for _ in 0..run_count {
            // 4 times 6 bits of one number: two probes for each of three items and the query.
            let bits = split_mix(&mut state);
            let probes = |item: u32| {
                (1u32 << (bits >> (6 * item) & 7), 1u32 << (bits >> (6 * item + 3) & 7))
            };
            let (low, high) = (0..3).map(probes).fold((0, 0), |(a, b), (x, y)| (a | x, b | y));
            let query = probes(3);
            hits += u32::from(low & query.0 != 0 && high & query.1 != 0);
        }
        let rate = partitioned_false_positive_rate(8, 2, 3).unwrap();
        let deviation = (rate * (1.0 - rate) / f64::from(run_count)).sqrt();
        assert!((f64::from(hits) / f64::from(run_count) - rate).abs() < 5.0 * deviation);
    }

    #[test]
    fn the_floor_and_the_shapes_are_checked() {
        assert_eq!(information_bits(0.5), Ok(1.0));
        assert!(information_bits(0.0).is_err() && information_bits(1.0).is_err());
        for rate in [
            classic_false_positive_rate,
            classic_false_positive_rate_approximate,
            classic_false_positive_rate_bound,
            classic_false_positive_rate_exact,
            partitioned_false_positive_rate,
        ] {
            assert_eq!(rate(0, 1, 1), Err(SizingError::NoBits));
            assert_eq!(rate(1, 0, 1), Err(SizingError::NoProbes));
        }
    }

    proptest! {
        /// The slow twin: try every k.
        #[test]
        fn the_best_hash_count_is_the_best(bit_count in 1..4_000u64, item_count in 1..200u64) {
            let rate = |k| classic_false_positive_rate(bit_count, k, item_count).unwrap();
            let best = classic_optimal_hash_count(bit_count, item_count).unwrap();
            // Below a hundred bits the exact power and its exponential limit part; the formula's
            // optimum may then be one of several k that differ by little.
            let least = (1..4_000).map(rate).fold(1.0, f64::min);
            prop_assert!(rate(best) <= least * 1.1 + 1e-12, "k = {best}");
        }

        #[test]
        fn the_bit_count_reaches_the_rate(
            item_count in 1_000..1_000_000u64, exponent in 0.5..12.0f64,
        ) {
            let rate = 10f64.powf(-exponent);
            let bit_count = classic_bit_count(item_count, rate).unwrap();
            let hash_count = classic_optimal_hash_count(bit_count, item_count).unwrap();
            let reached = classic_false_positive_rate(bit_count, hash_count, item_count).unwrap();
            // k must be whole, which costs most where it is small.
            prop_assert!(reached < rate * 1.1 && reached > rate * 0.9, "{reached} for {rate}");
        }

        #[test]
        fn single_shot_is_classic_with_one_probe(m in 1..u64::MAX, n: u64) {
            let single = single_shot_false_positive_rate(m, n).unwrap();
            prop_assert_eq!(single, classic_false_positive_rate(m, 1, n).unwrap());
            prop_assert!((0.0..=1.0).contains(&single));
        }
    }
}
