//! Sizes and rates: how large a filter must be, how often it errs, how short its code can be.
//!
//! Letters as in the literature: m bits (or positions), k probes per item, n items, p the
//! false-positive rate.
//!
//! * classic filter: p = (1 − (1 − 1/m)^(k·n))^k, least at k = m/n · ln 2, and
//!   m = −n · ln p / (ln 2)² reaches p there (Bloom 1970, doi:10.1145/362686.362692; Broder &
//!   Mitzenmacher 2004, doi:10.1080/15427951.2004.10129096). The formula takes the k probes for
//!   independent and is low by a share that vanishes with m (Bose et al. 2008,
//!   doi:10.1016/j.ipl.2008.05.018).
//! * single-shot filter: k = 1, so p = 1 − (1 − 1/m)^n exactly (Sanders, Schlag & Müller 2013,
//!   doi:10.1109/BigData.2013.6691549).

use std::f64::consts::LN_2;

use thiserror::Error;

/// A size or rate that no filter can have. Fix the caller's configuration.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum SizingError {
    /// A filter needs at least one bit (or position).
    #[error("0 bits, expected at least 1")]
    NoBits,
    /// An item needs at least one probe.
    #[error("0 probes per item, expected at least 1")]
    NoProbes,
    /// The best size for nothing is not defined: plan for at least one item.
    #[error("0 items, expected at least 1")]
    NoItems,
    /// A rate of 0 needs infinite memory, a rate of 1 none: name one in between.
    #[error("false-positive rate {rate}, expected one above 0 and below 1")]
    Rate {
        /// The rate that was asked for.
        rate: f64,
    },
}

/// False-positive rate of a classic filter of `bit_count` bits (m) with `hash_count` probes (k)
/// per item, after `item_count` items (n): (1 − (1 − 1/m)^(k·n))^k, 0 without items.
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
    if item_count == 0 {
        return Err(SizingError::NoItems);
    }
    let ideal = bit_count as f64 / item_count as f64 * LN_2;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and a cast from float saturates: more than 2^32 probes help nobody"
    )]
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
    if item_count == 0 {
        return Err(SizingError::NoItems);
    }
    // Written so that NaN fails too.
    if !(false_positive_rate > 0.0 && false_positive_rate < 1.0) {
        return Err(SizingError::Rate { rate: false_positive_rate });
    }
    let bits = -(item_count as f64) * false_positive_rate.ln() / (LN_2 * LN_2);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and a cast from float saturates at the documented bound"
    )]
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

/// Expected share of m bits that are set after so many independent probes: 1 − (1 − 1/m)^probes.
fn set_share(bit_count: u64, probe_count: f64) -> Result<f64, SizingError> {
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
