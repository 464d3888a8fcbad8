//! From set bits to items: how many items a filter, a union or an intersection holds.
//!
//! After n items with k probes, each of m bits is still 0 with e^−ρ, ρ = k·n/m. Solved for n, the
//! number X of set bits estimates the number of items (Swamidass & Baldi 2007,
//! doi:10.1021/ci600526a; with one probe it is the linear counting of Whang, Vander-Zanden & Taylor
//! 1990, doi:10.1145/78922.78925):
//!
//! ```text
//! n* = −(m/k) · ln(1 − X/m)
//! Var(X)  = m · e^−ρ · (1 − (1 + ρ)·e^−ρ)                     of k·n independent probes
//! Var(n*) = Var(X) · (dn*/dX)² = m/k² · (e^ρ − 1 − ρ)          because dn*/dX = e^ρ/k
//! ```
//!
//! The variance of the occupancy is that of Whang et al., the delta method makes it one of n*;
//! Papapetrou, Siberski & Nejdl 2010, doi:10.1007/s10619-010-7067-2, treat the quality of such
//! estimates for Bloom filters and their intersections. With h(ρ) = e^ρ − 1 − ρ the same method
//! gives the covariance of two filters' estimates, m/k² · h(ρ of the items that both hold). A
//! filter A and its union U with another share the items of A, so for the intersection A + B − U
//!
//! ```text
//! Var = m/k² · (h(ρ_U) − h(ρ_A) − h(ρ_B) + 2·h(ρ_A∩B))
//! ```
//!
//! In Umbel's blocked filter (`lanes`) the expected number of set bits is the same: a bit is one of
//! an item's with k/512 if the item is in its block, so it is 0 with (1 − k/(512·B))^n. Items crowd
//! in some blocks, which spreads X more, and probes of an item never meet, which spreads it less.
//! On balance the standard error is larger than the formula's: by 2 % with 6 probes, 5 % with 10,
//! 18 % with 16, as simulations of blocks at their usual fill show.

use super::SizingError;
use super::classic::{check_shape, set_share};

/// An estimated number of items.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The estimate. Not rounded; that of an intersection may be below 0.
    pub item_count: f64,
    /// Standard deviation of the estimate: two of three times the truth is not further away, and
    /// 19 of 20 times not further than two of them.
    pub standard_error: f64,
}

/// Share of `bit_count` bits (m) that is set when `one_count` (X) are: X/m.
///
/// # Errors
/// If m is 0 or X is above m.
///
/// ```
/// assert_eq!(umbel_filter::sizing::fill(512, 128), Ok(0.25));
/// ```
pub fn fill(bit_count: u64, one_count: u64) -> Result<f64, SizingError> {
    if bit_count == 0 {
        return Err(SizingError::NoBits);
    }
    if one_count > bit_count {
        return Err(SizingError::OnesBeyondBits { one_count, bit_count });
    }
    Ok(one_count as f64 / bit_count as f64)
}

/// Expected share of `bit_count` bits (m) that is set by `item_count` items (n) with `probe_count`
/// independent probes (k) each: 1 − (1 − 1/m)^(k·n) (Bloom 1970, doi:10.1145/362686.362692). A
/// classic filter with the best k is half full; so, nearly, is a blocked one.
///
/// # Errors
/// If m or k is 0.
///
/// ```
/// use umbel_filter::sizing::expected_fill;
///
/// // Two probes in four bits: 1 − (3/4)² = 7/16.
/// assert!((expected_fill(4, 2, 1)? - 7.0 / 16.0).abs() < 1e-15);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn expected_fill(
    bit_count: u64,
    probe_count: u32,
    item_count: u64,
) -> Result<f64, SizingError> {
    check_shape(bit_count, probe_count)?;
    set_share(bit_count, f64::from(probe_count) * item_count as f64)
}

/// False-positive rate of a filter as it stands, whatever came in: all of `probe_count` independent
/// probes (k) meet one of the `one_count` ones (X) among `bit_count` bits (m): (X/m)^k. For the
/// blocked kind, whose blocks differ, it is too low.
///
/// # Errors
/// If m or k is 0, or X is above m.
///
/// ```
/// use umbel_filter::sizing::false_positive_rate_at_fill;
///
/// // Half full, seven probes: 1/128.
/// assert_eq!(false_positive_rate_at_fill(1_000, 7, 500), Ok(0.007_812_5));
/// ```
pub fn false_positive_rate_at_fill(
    bit_count: u64,
    probe_count: u32,
    one_count: u64,
) -> Result<f64, SizingError> {
    check_shape(bit_count, probe_count)?;
    Ok(fill(bit_count, one_count)?.powf(probe_count.into()))
}

/// Number of different items in a filter of `bit_count` bits (m) with `probe_count` probes (k) an
/// item, `one_count` of which (X) are set: −(m/k) · ln(1 − X/m) (Swamidass & Baldi 2007,
/// doi:10.1021/ci600526a). The standard error is √(m · (e^ρ − 1 − ρ)) / k with ρ = −ln(1 − X/m), by
/// the delta method from the variance of X (Whang, Vander-Zanden & Taylor 1990,
/// doi:10.1145/78922.78925; Papapetrou, Siberski & Nejdl 2010, doi:10.1007/s10619-010-7067-2).
///
/// It holds for the blocked kind too, whose expected number of ones is the same; its standard error
/// is a little larger, by 2 % with 6 probes, 5 % with 10, 18 % with 16.
///
/// # Errors
/// If m or k is 0, X is above m, or X is m.
///
/// ```
/// use umbel_filter::sizing::item_count_estimate;
///
/// // Half of 1,000 bits: 1,000 · ln 2 items of one probe, ± √(1,000 · (2 − 1 − ln 2)).
/// let estimate = item_count_estimate(1_000, 1, 500)?;
/// assert!((estimate.item_count - 693.147).abs() < 0.001);
/// assert!((estimate.standard_error - 17.517).abs() < 0.001);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn item_count_estimate(
    bit_count: u64,
    probe_count: u32,
    one_count: u64,
) -> Result<Estimate, SizingError> {
    let load = load(bit_count, probe_count, one_count)?;
    Ok(estimate(bit_count, probe_count, load, exp_excess(load)))
}

/// Number of different items in the union of two filters of one shape, from the `one_count_or`
/// set bits of their OR: the OR is the filter of the union, so this is [`item_count_estimate`].
///
/// # Errors
/// As [`item_count_estimate`].
///
/// ```
/// use umbel_filter::sizing::{item_count_estimate, union_estimate};
///
/// assert_eq!(union_estimate(1_000, 3, 500), item_count_estimate(1_000, 3, 500));
/// ```
pub fn union_estimate(
    bit_count: u64,
    probe_count: u32,
    one_count_or: u64,
) -> Result<Estimate, SizingError> {
    item_count_estimate(bit_count, probe_count, one_count_or)
}

/// Number of items that two filters of one shape both hold, from the set bits of each and of their
/// OR: the estimates of both minus that of the union (Swamidass & Baldi 2007,
/// doi:10.1021/ci600526a). With h(ρ) = e^ρ − 1 − ρ and ρ = k·n/m of each set the standard error is
/// √(m · (h(ρ_or) − h(ρ_a) − h(ρ_b) + 2·h(ρ_both))) / k: the delta method with the covariances of
/// all three, whose errors largely cancel. Of sets that share next to nothing the estimate may be
/// below 0 by some standard errors; it is not cut off, so that the mean of many is right.
///
/// # Errors
/// If m or k is 0, more bits are set than there are, all are set, or the OR has fewer ones
/// than one array or more than both together.
///
/// ```
/// use umbel_filter::sizing::{intersection_estimate, item_count_estimate};
///
/// // A filter and itself have all items in common.
/// let estimate = intersection_estimate(1_000, 1, 500, 500, 500);
/// assert_eq!(estimate, item_count_estimate(1_000, 1, 500));
/// // Filters whose zeros are 1/2, 1/2 and 1/4 of the bits: 2·ln 2 − ln 4 = 0 in common.
/// let estimate = intersection_estimate(1_000, 1, 500, 500, 750)?;
/// assert!(estimate.item_count.abs() < 1e-9);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn intersection_estimate(
    bit_count: u64,
    probe_count: u32,
    one_count_a: u64,
    one_count_b: u64,
    one_count_or: u64,
) -> Result<Estimate, SizingError> {
    let load_or = load(bit_count, probe_count, one_count_or)?;
    // The sum of both may exceed 2^64, the difference not.
    if one_count_or < one_count_a.max(one_count_b) || one_count_or - one_count_a > one_count_b {
        return Err(SizingError::OnesOfOr { one_count_a, one_count_b, one_count_or });
    }
    let load_a = load(bit_count, probe_count, one_count_a)?;
    let load_b = load(bit_count, probe_count, one_count_b)?;
    let shared = load_a + load_b - load_or;
    // Rounding, or an estimate below 0, may push the sum below 0.
    let spread = exp_excess(load_or) - exp_excess(load_a) - exp_excess(load_b)
        + 2.0 * exp_excess(shared.max(0.0));
    Ok(estimate(bit_count, probe_count, shared, spread.max(0.0)))
}

/// ρ = −ln(1 − X/m): probes a bit.
fn load(bit_count: u64, probe_count: u32, one_count: u64) -> Result<f64, SizingError> {
    check_shape(bit_count, probe_count)?;
    let fill = fill(bit_count, one_count)?;
    if one_count == bit_count {
        return Err(SizingError::Saturated { bit_count });
    }
    // Beyond 2^53 bits a filter may be full but for less than the rounding: then it has one zero.
    Ok(if fill < 1.0 { -(-fill).ln_1p() } else { (bit_count as f64).ln() })
}

/// The estimate for a load ρ with the variance m/k² · `spread`.
fn estimate(bit_count: u64, probe_count: u32, load: f64, spread: f64) -> Estimate {
    let (m, k) = (bit_count as f64, f64::from(probe_count));
    Estimate { item_count: m / k * load, standard_error: (m * spread).sqrt() / k }
}

/// h(ρ) = e^ρ − 1 − ρ, near ρ²/2 for small ρ.
fn exp_excess(load: f64) -> f64 {
    if load < 1e-3 {
        // Where the difference would lose digits, its series has them with four terms.
        load * load / 2.0 * (1.0 + load / 3.0 * (1.0 + load / 4.0 * (1.0 + load / 5.0)))
    } else {
        load.exp_m1() - load
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::split_mix;
    use super::*;
    use crate::lanes::{LANE_COUNT, LANE_SETS};

    const RUN_COUNT: u32 = 400;

    /// A filter for tests: bits, and how an item sets them.
    struct Filter {
        words: Vec<u32>,
        probe_count: u32,
        blocked: bool,
    }

    impl Filter {
        fn new(bit_count: u64, probe_count: u32, blocked: bool) -> Self {
            let words = vec![0; usize::try_from(bit_count / 32).unwrap()];
            Self { words, probe_count, blocked }
        }

        /// Probes from one number: free ones anywhere, or lanes of a block.
        fn insert(&mut self, item: u64) {
            let mut state = item;
            let mut below = |bound: usize| {
                let product = u128::from(split_mix(&mut state)) * bound as u128;
                usize::try_from(product >> 64).unwrap()
            };
            if !self.blocked {
                for _ in 0..self.probe_count {
                    let bit = below(self.words.len() * 32);
                    self.words[bit / 32] |= 1 << (bit % 32);
                }
                return;
            }
            let block = below(self.words.len() / LANE_COUNT) * LANE_COUNT;
            let r = below(LANE_COUNT);
            for lane in 0..LANE_COUNT {
                if LANE_SETS[self.probe_count as usize] >> (lane ^ r) & 1 == 1 {
                    self.words[block + lane] |= 1 << below(32);
                }
            }
        }

        fn one_count(&self) -> u64 {
            self.words.iter().map(|word| u64::from(word.count_ones())).sum()
        }

        fn or(&self, other: &Self) -> Self {
            let words = self.words.iter().zip(&other.words).map(|(a, b)| a | b).collect();
            Self { words, ..*self }
        }
    }

    /// Mean and standard deviation of numbers.
    fn moments(values: &[f64]) -> (f64, f64) {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        (mean, variance.sqrt())
    }

    /// Whether estimates lie around the truth as their standard errors say. The
    /// logarithm is not straight, which leaves a bias far below one standard error.
    fn assert_estimates(estimates: &[Estimate], truth: f64, tolerance: f64, what: &str) {
        for estimate in estimates {
            let difference = (estimate.item_count - truth).abs();
            assert!(difference < 5.0 * estimate.standard_error, "{what}: {estimate:?} for {truth}");
        }
        let counts: Vec<f64> = estimates.iter().map(|estimate| estimate.item_count).collect();
        let errors: Vec<f64> = estimates.iter().map(|estimate| estimate.standard_error).collect();
        let (mean, deviation) = moments(&counts);
        let (error, _) = moments(&errors);
        let ratio = deviation / error;
        assert!((ratio - 1.0).abs() < tolerance, "{what}: {deviation} measured, {error} said");
        assert!((mean - truth).abs() < 0.4 * error, "{what}: {mean} for {truth} ± {error}");
    }

    /// Estimates of one filter after so many items, over all runs.
    fn estimates(m: u64, k: u32, n: u64, blocked: bool) -> Vec<Estimate> {
        let mut state = 3 + n;
        (0..RUN_COUNT)
            .map(|_| {
                let mut filter = Filter::new(m, k, blocked);
                (0..n).for_each(|_| filter.insert(split_mix(&mut state)));
                item_count_estimate(m, k, filter.one_count()).unwrap()
            })
            .collect()
    }

    #[test]
    fn estimates_of_free_probes_are_as_good_as_they_say() {
        for (m, k, n) in [(8_192, 1, 6_000), (8_192, 7, 800), (8_192, 4, 100), (1_024, 7, 400)] {
            assert_estimates(&estimates(m, k, n, false), n as f64, 0.25, &format!("{m} {k} {n}"));
        }
    }

    #[test]
    fn estimates_of_blocks_are_as_good_as_they_say() {
        for (m, k, n) in [(16_384, 6, 1_650), (16_384, 10, 1_050), (16_384, 16, 420)] {
            assert_estimates(&estimates(m, k, n, true), n as f64, 0.25, &format!("{m} {k} {n}"));
        }
    }

    #[test]
    fn blocks_are_as_full_as_free_probes() {
        let (m, k, n) = (65_536, 6, 6_500);
        let mut state = 21;
        let fills: Vec<f64> = (0..50)
            .map(|_| {
                let mut filter = Filter::new(m, k, true);
                (0..n).for_each(|_| filter.insert(split_mix(&mut state)));
                fill(m, filter.one_count()).unwrap()
            })
            .collect();
        let (mean, deviation) = moments(&fills);
        let expected = expected_fill(m, k, n).unwrap();
        assert!((mean - expected).abs() < 5.0 * deviation / 50f64.sqrt(), "{mean} {expected}");
    }

    #[test]
    fn intersections_are_as_good_as_they_say() {
        for (blocked, only_a, only_b, both) in [
            (false, 400, 300, 200),
            (false, 700, 500, 0),
            (false, 10, 20, 600),
            (true, 300, 300, 300),
        ] {
            let (m, k) = (8_192, 5);
            let mut state = 77;
            let estimates: Vec<Estimate> = (0..RUN_COUNT)
                .map(|_| {
                    let mut a = Filter::new(m, k, blocked);
                    let mut b = Filter::new(m, k, blocked);
                    (0..only_a).for_each(|_| a.insert(split_mix(&mut state)));
                    (0..only_b).for_each(|_| b.insert(split_mix(&mut state)));
                    for _ in 0..both {
                        let item = split_mix(&mut state);
                        a.insert(item);
                        b.insert(item);
                    }
                    let or = a.or(&b).one_count();
                    intersection_estimate(m, k, a.one_count(), b.one_count(), or).unwrap()
                })
                .collect();
            assert_estimates(
                &estimates,
                f64::from(both),
                0.25,
                &format!("{only_a} {only_b} {both}"),
            );
        }
    }

    #[test]
    fn counts_that_no_filter_has_are_refused() {
        assert_eq!(item_count_estimate(0, 1, 0), Err(SizingError::NoBits));
        assert_eq!(item_count_estimate(1, 0, 0), Err(SizingError::NoProbes));
        assert_eq!(item_count_estimate(8, 1, 8), Err(SizingError::Saturated { bit_count: 8 }));
        let beyond = SizingError::OnesBeyondBits { one_count: 9, bit_count: 8 };
        assert_eq!(item_count_estimate(8, 1, 9), Err(beyond));
        assert_eq!(fill(8, 9), Err(beyond));
        assert_eq!(fill(0, 0), Err(SizingError::NoBits));
        assert_eq!(false_positive_rate_at_fill(8, 1, 9), Err(beyond));
        assert_eq!(expected_fill(8, 0, 9), Err(SizingError::NoProbes));
        for (one_count_a, one_count_b, one_count_or) in [(3, 2, 2), (2, 3, 2), (2, 3, 6)] {
            let error = SizingError::OnesOfOr { one_count_a, one_count_b, one_count_or };
            let estimate = intersection_estimate(8, 1, one_count_a, one_count_b, one_count_or);
            assert_eq!(estimate, Err(error));
        }
        assert_eq!(beyond.to_string(), "9 ones in 8 bits");
    }

    #[test]
    fn the_ends_of_the_estimates() {
        let none = Estimate { item_count: 0.0, standard_error: 0.0 };
        assert_eq!(item_count_estimate(8, 3, 0), Ok(none));
        assert_eq!(intersection_estimate(8, 3, 0, 0, 0), Ok(none));
        let most = item_count_estimate(u64::MAX, 1, u64::MAX - 1).unwrap();
        assert!(most.item_count.is_finite() && most.standard_error.is_finite());
        // Both sides of the branch for small loads.
        assert!(
            (exp_excess(0.999_999e-3) / (0.999_999e-3_f64.exp_m1() - 0.999_999e-3) - 1.0).abs()
                < 1e-9
        );
    }
}
