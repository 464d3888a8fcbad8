//! How many syndromes of every bucket are sent in each round.
//!
//! A bucket has X differences, X ~ Poisson(mu), and decodes at the first threshold above X. Round k
//! sends t_k − t_(k−1) more syndromes of each bucket that failed, so a bucket costs Σ (t_k −
//! t_(k−1))·P\[X ≥ t_(k−1)\] syndromes, t_(−1) = 0. The last threshold is the smallest that a
//! bucket exceeds with probability at most 10^-3; dynamic programming chooses the others.
//!
//! The weights of the distribution are computed relative to the largest and summed up, only with
//! the four basic operations, so that the choice is the same on every machine.

/// Most syndromes of a bucket: decoding takes their square.
pub const THRESHOLD_MAX: usize = 128;

/// Largest share of buckets that may fail in the last round.
const FAILED_SHARE_MAX: f64 = 1e-3;

/// Thresholds for `mean` differences per bucket in at most `rounds` rounds, ascending; at least
/// one, and none above 128. A mean that is not a positive number counts as 0.
///
/// ```
/// use umbel_sketch::thresholds::{syndrome_count, thresholds};
///
/// let chosen = thresholds(20.0, 3);
/// assert_eq!(chosen, [20, 26, 36]);
/// // Syndromes for each difference; a list of them would take 1.
/// assert_eq!((syndrome_count(20.0, &chosen) / 20.0 * 1000.0).round(), 1215.0);
/// ```
#[must_use]
pub fn thresholds(mean: f64, rounds: usize) -> Vec<usize> {
    let tails = tails(mean);
    let is_last = |&threshold: &usize| tails[threshold] <= FAILED_SHARE_MAX;
    let last = (1..THRESHOLD_MAX).find(is_last).unwrap_or(THRESHOLD_MAX);
    // least[t]: cost of the rounds after threshold t; next[k][t]: the threshold after t, if k more
    // may follow.
    let mut least: Vec<f64> = (0..last).map(|t| (last - t) as f64 * tails[t]).collect();
    let mut next = vec![vec![last; last]];
    for _ in 1..rounds.min(last) {
        let before = least.clone();
        let mut row = vec![last; last];
        for begin in 0..last {
            for (end, rest) in before.iter().enumerate().skip(begin + 1) {
                let cost = (end - begin) as f64 * tails[begin] + rest;
                if cost < least[begin] {
                    least[begin] = cost;
                    row[begin] = end;
                }
            }
        }
        next.push(row);
    }
    let mut chosen = Vec::new();
    let mut threshold = 0;
    for row in next.iter().rev() {
        if threshold < last {
            threshold = row[threshold];
            chosen.push(threshold);
        }
    }
    chosen
}

/// Expected number of syndromes that go out for a bucket, given thresholds up to 128.
#[must_use]
pub fn syndrome_count(mean: f64, thresholds: &[usize]) -> f64 {
    let tails = tails(mean);
    let mut sum = 0.0;
    let mut begin = 0;
    for &end in thresholds {
        let tail = tails.get(begin).copied().unwrap_or(0.0);
        sum += end.saturating_sub(begin) as f64 * tail;
        begin = end;
    }
    sum
}

/// P\[X ≥ t\] for t = 0..128, X ~ Poisson(mean).
fn tails(mean: f64) -> Vec<f64> {
    // With a larger mean, no bucket would decode anyway.
    let mean = mean.max(0.0).min(4.0 * THRESHOLD_MAX as f64);
    #[expect(clippy::cast_possible_truncation, reason = "0 to 512")]
    let mode = mean as usize;
    // Beyond four times the mean, and then some, weights are below the last digit.
    let end = 4 * mode + THRESHOLD_MAX + 1;
    let mut weights = vec![0.0; end];
    weights[mode] = 1.0;
    for count in mode + 1..end {
        weights[count] = weights[count - 1] * mean / count as f64;
    }
    for count in (0..mode).rev() {
        weights[count] = weights[count + 1] * (count + 1) as f64 / mean;
    }
    // Sum from the smallest up, so that small weights are not lost to rounding.
    let mut sum = 0.0;
    for weight in weights.iter_mut().rev() {
        sum += *weight;
        *weight = sum;
    }
    weights.iter().take(THRESHOLD_MAX + 1).map(|tail| tail / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_thresholds() {
        let table: [(f64, &[usize], f64); 12] = [
            (16.0, &[20, 31], 1.379),
            (16.0, &[17, 22, 31], 1.248),
            (16.0, &[15, 19, 23, 31], 1.189),
            (20.0, &[24, 36], 1.328),
            (20.0, &[20, 26, 36], 1.215),
            (20.0, &[19, 23, 28, 36], 1.165),
            (24.0, &[28, 41], 1.292),
            (24.0, &[24, 30, 41], 1.192),
            (24.0, &[22, 27, 32, 41], 1.147),
            (28.0, &[32, 47], 1.276),
            (28.0, &[28, 35, 47], 1.179),
            (28.0, &[26, 31, 37, 47], 1.136),
        ];
        for (mean, expected, overhead) in table {
            let chosen = thresholds(mean, expected.len());
            assert_eq!(chosen, expected, "{mean}");
            let found = syndrome_count(mean, &chosen) / mean;
            assert!((found - overhead).abs() < 0.001, "{mean}: {found}, expected {overhead}");
        }
    }

    /// Brute-force reference: all pairs of thresholds before the last.
    #[test]
    fn no_choice_costs_less() {
        for mean in [0.5, 3.0, 11.0, 30.0] {
            let chosen = thresholds(mean, 3);
            let last = *chosen.last().unwrap();
            let least = syndrome_count(mean, &chosen);
            for first in 1..last {
                for second in first + 1..last {
                    let cost = syndrome_count(mean, &[first, second, last]);
                    assert!(cost >= least - 1e-9, "{mean}: {first}, {second}, {last}");
                }
            }
        }
    }

    #[test]
    fn any_mean_has_thresholds() {
        for mean in [f64::NAN, -1.0, 0.0, 1e-300, 0.01, 127.0, 500.0, 1e300, f64::INFINITY] {
            for rounds in [0, 1, 2, 4, 1000] {
                let chosen = thresholds(mean, rounds);
                assert!(chosen.is_sorted_by(|a, b| a < b), "{mean}: {chosen:?}");
                assert!(!chosen.is_empty() && chosen.len() <= rounds.max(1));
                assert!(chosen.iter().all(|threshold| (1..=THRESHOLD_MAX).contains(threshold)));
                assert!(syndrome_count(mean, &chosen).is_finite());
            }
        }
        assert_eq!(thresholds(0.0, 4), [1]);
    }
}
