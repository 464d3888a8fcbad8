//! Entropies: the floor under every code's length (Shannon 1948,
//! doi:10.1002/j.1538-7305.1948.tb01338.x).

use std::f64::consts::LN_2;

/// Entropy of one gap, in bits, if gaps are geometric with mean g: (g+1) · log2(g+1) − g · log2 g,
/// about log2(e · g) for large g. No code of the gaps is shorter on average. 0 for g = 0, and for
/// anything that is no mean gap (negative or NaN); infinity stays infinite.
///
/// ```
/// use umbel_bits::gap_entropy_bits;
///
/// // Mean gap 1: every gap is a run of fair coin tosses, 2 · log2 2 − 0 = 2 bits.
/// assert!((gap_entropy_bits(1.0) - 2.0).abs() < 1e-12);
/// assert_eq!(gap_entropy_bits(0.0), 0.0);
/// ```
#[must_use]
pub fn gap_entropy_bits(mean_gap: f64) -> f64 {
    if mean_gap >= 1.0 && mean_gap.is_finite() {
        // The definition subtracts two huge numbers when g is large; this form does not.
        (mean_gap.ln_1p() + mean_gap * mean_gap.recip().ln_1p()) / LN_2
    } else if mean_gap == f64::INFINITY {
        mean_gap
    } else if mean_gap > 0.0 {
        ((mean_gap + 1.0) * mean_gap.ln_1p() - mean_gap * mean_gap.ln()) / LN_2
    } else {
        0.0
    }
}

/// Entropy of one yes or no, in bits, with probability p of yes: −p · log2 p − (1−p) · log2(1−p).
/// 0 for p = 0 and p = 1, and for anything that is no probability (outside [0, 1] or NaN).
///
/// ```
/// use umbel_bits::binary_entropy_bits;
///
/// assert_eq!(binary_entropy_bits(0.5), 1.0);
/// assert_eq!(binary_entropy_bits(1.0), 0.0);
/// // 1/4 · 2 + 3/4 · 0.415
/// assert!((binary_entropy_bits(0.25) - 0.8113).abs() < 1e-4);
/// ```
#[must_use]
pub fn binary_entropy_bits(p: f64) -> f64 {
    if p > 0.0 && p < 1.0 { -p * p.log2() - (1.0 - p) * (-p).ln_1p() / LN_2 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn entropies_of_what_is_none_are_zero() {
        for wrong in [-1.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(gap_entropy_bits(wrong), 0.0);
            assert_eq!(binary_entropy_bits(wrong), 0.0);
        }
        assert_eq!(binary_entropy_bits(1.5), 0.0);
    }

    #[test]
    fn a_huge_mean_gap_costs_its_logarithm() {
        // log2(e · 2^64) = 65.4427
        assert!((gap_entropy_bits(2f64.powi(64)) - 65.442_695).abs() < 1e-6);
    }

    proptest! {
        /// The slow twin: the sum over the geometric distribution itself.
        #[test]
        fn gap_entropy_is_that_of_the_distribution(mean_gap in 0.01..50.0f64) {
            let q: f64 = mean_gap / (mean_gap + 1.0);
            let surprise = |v: i32| {
                let share = (1.0 - q) * q.powi(v);
                if share > 0.0 { -share * share.log2() } else { 0.0 }
            };
            let sum: f64 = (0..5_000).map(surprise).sum();
            prop_assert!((gap_entropy_bits(mean_gap) - sum).abs() < 1e-6);
        }
    }
}
