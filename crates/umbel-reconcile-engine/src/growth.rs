//! How many syndromes each bucket gets, and when it gets more: thresholds by dynamic programming.
//!
//! A bucket with X differences decodes once it has t > X syndromes. All buckets get t0, those that fail t1,
//! and so on; each extension costs a round trip. For X with known distribution the thresholds minimise the
//! mean number of syndromes per bucket, Σ (t_k − t_{k−1}) · P[X ≥ t_{k−1}]. X is Poisson with mean μ; if μ
//! is an estimate, X is a mixture of Poissons whose means are spread like the estimate's error.

/// Most syndromes of a bucket: decoding time grows about with their square.
pub(crate) const SYNDROMES_MAX: usize = 128;

/// Assumed cost, in syndromes, of a bucket that no planned threshold decodes: further syndromes, and a
/// round trip.
const FAILURE_SYNDROMES: f64 = 60.0;

/// Relative standard deviation of the estimator: sqrt(2/64).
pub(crate) const ESTIMATE_DEVIATION: f64 = 0.177;

/// Points and weights that approximate the normal distribution of an estimate's error.
const ERROR_POINTS: [(f64, f64); 9] = [
    (-2.0, 0.0276),
    (-1.5, 0.0663),
    (-1.0, 0.1238),
    (-0.5, 0.1802),
    (0.0, 0.2042),
    (0.5, 0.1802),
    (1.0, 0.1238),
    (1.5, 0.0663),
    (2.0, 0.0276),
];

/// The distribution of the differences in a bucket.
#[derive(Clone, Debug)]
pub(crate) struct Occupancy {
    /// P[X ≥ t], for t from 0 to `SYNDROMES_MAX`.
    at_least: Vec<f64>,
}

/// The next threshold, and what it and the following ones cost.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Growth {
    /// Number of syndromes that a bucket should have next.
    pub(crate) next: usize,
    /// Mean number of further syndromes per bucket, over all buckets.
    pub(crate) mean: f64,
}

impl Occupancy {
    /// The distribution for mean `mean`, known up to the relative standard deviation `deviation`.
    pub(crate) fn new(mean: f64, deviation: f64) -> Self {
        let mut at_least = vec![0.0; SYNDROMES_MAX + 1];
        let points: &[(f64, f64)] = if deviation > 0.0 { &ERROR_POINTS } else { &[(0.0, 1.0)] };
        for &(error, weight) in points {
            let mean = mean * (1.0 + error * deviation).max(0.1);
            let mut ln_probability = -mean;
            let mut left = 1.0;
            for (count, slot) in at_least.iter_mut().enumerate() {
                *slot += weight * f64::max(left, 0.0);
                left -= ln_probability.exp();
                ln_probability += mean.ln() - ((count + 1) as f64).ln();
            }
        }
        Self { at_least }
    }

    /// P[X ≥ t].
    pub(crate) fn at_least(&self, t: usize) -> f64 {
        self.at_least.get(t).copied().unwrap_or(0.0)
    }

    /// E[X | X ≥ t].
    fn mean_from(&self, t: usize) -> f64 {
        let tail: f64 = (t + 1..=SYNDROMES_MAX).map(|more| self.at_least(more)).sum();
        t as f64 + if self.at_least(t) > 1e-12 { tail / self.at_least(t) } else { 1.0 }
    }

    /// The best next threshold for buckets that did not decode with `from` syndromes, with at most `rounds`
    /// thresholds.
    pub(crate) fn grow(&self, from: usize, rounds: u32) -> Growth {
        // later[t]: mean further cost if all buckets with t differences or more have t syndromes now.
        let mut later: Vec<f64> =
            (0..=SYNDROMES_MAX).map(|t| self.at_least(t) * FAILURE_SYNDROMES).collect();
        for _ in 1..rounds {
            let best = |t: usize| {
                let failing = self.at_least(t);
                let costs = (t + 1..).zip(later.iter().skip(t + 1));
                let costs = costs.map(|(to, rest)| (to - t) as f64 * failing + rest);
                costs.fold(later.get(t).copied().unwrap_or(0.0), f64::min)
            };
            later = (0..=SYNDROMES_MAX).map(best).collect();
        }
        let failing = self.at_least(from).max(1e-12);
        let costs = (from + 1..).zip(later.iter().skip(from + 1));
        let costs =
            costs.map(|(to, rest)| Growth { next: to, mean: (to - from) as f64 * failing + rest });
        let worst = Growth { next: SYNDROMES_MAX, mean: f64::INFINITY };
        costs.fold(worst, |best, found| if found.mean < best.mean { found } else { best })
    }
}

/// The mean per bucket that best fits what was decoded: `decoded` differences in `bucket_count` − `failed`
/// buckets, and `failed` buckets with `t` or more. Expectation maximisation; each step counts a failed
/// bucket as its mean.
pub(crate) fn refit(decoded: u64, bucket_count: u64, failed: u64, t: usize) -> f64 {
    let total = bucket_count.max(1) as f64;
    let mut mean = (decoded as f64 + failed as f64 * (t as f64 + 2.0)) / total;
    for _ in 0..20 {
        let occupancy = Occupancy::new(mean.max(0.05), 0.0);
        mean = (decoded as f64 + failed as f64 * occupancy.mean_from(t)) / total;
    }
    mean.max(0.05)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thresholds(mean: f64, rounds: u32) -> (f64, Vec<usize>) {
        let occupancy = Occupancy::new(mean, 0.0);
        let mut from = 0;
        let mut found = Vec::new();
        for left in (1..=rounds).rev() {
            from = occupancy.grow(from, left).next;
            found.push(from);
        }
        (occupancy.grow(0, rounds).mean / mean, found)
    }

    /// The published table, which assumes another cost for buckets that stay undecoded.
    #[test]
    fn thresholds_are_near_the_published_ones() {
        for (mean, rounds, overhead, expected) in [
            (20.0, 4, 1.165, vec![19, 23, 28, 36]),
            (20.0, 3, 1.215, vec![20, 26, 36]),
            (28.0, 4, 1.136, vec![26, 31, 37, 47]),
            (16.0, 3, 1.248, vec![17, 22, 31]),
        ] {
            let (found_overhead, found) = thresholds(mean, rounds);
            assert!((found_overhead - overhead).abs() < 0.02, "{found_overhead} {found:?}");
            let near = found.iter().zip(&expected).all(|(a, b)| a.abs_diff(*b) <= 3);
            assert!(near, "{found:?} for {expected:?}");
        }
    }

    #[test]
    fn a_fit_finds_the_mean_of_what_failed_too() {
        // Poisson of mean 24: at 24 syndromes 0.527 of the buckets decode.
        let occupancy = Occupancy::new(24.0, 0.0);
        let failed = occupancy.at_least(24) * 10_000.0;
        let decoded = 240_000.0 - failed * occupancy.mean_from(24);
        let mean = refit(decoded as u64, 10_000, failed as u64, 24);
        assert!((mean - 24.0).abs() < 0.1, "{mean}");
    }
}
