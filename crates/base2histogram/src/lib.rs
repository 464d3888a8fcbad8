//! Stands in for the crate `base2histogram` under openraft, by `[patch.crates-io]` of the workspace.
//!
//! openraft notes the sizes of its batches in histograms, some per group, and shows them with its feature
//! `runtime-stats`, which Umbel does not enable. The crate from the registry makes the tables of all its sixteen bucket
//! widths when the first histogram is made: 27 MB of heap in each process that has a Raft group, as much as all else that
//! a node without filters keeps. The histograms here have a bucket for each power of two, and need no tables.
//!
//! It has what openraft calls without that feature. With it openraft does not compile against this crate: coarser figures
//! cannot be shown unnoticed.

use std::fmt;
use std::marker::PhantomData;

/// Buckets: 0, and the numbers whose highest bit is each of 64.
const BUCKET_COUNT: usize = 65;

/// Counts values by their highest bit.
///
/// ```
/// let mut batches = base2histogram::Histogram::<()>::new();
/// (1..=100).for_each(|size| batches.record(size));
/// let stats = batches.percentile_stats();
/// // The 50th value is 50, in the bucket of 32 to 63.
/// assert_eq!((stats.samples, stats.p50, stats.p99), (100, 32, 64));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram<T = ()> {
    counts: [u64; BUCKET_COUNT],
    /// openraft names the type with what a period of the histogram carries.
    period: PhantomData<T>,
}

impl<T> Histogram<T> {
    /// A histogram without values.
    #[must_use]
    pub const fn new() -> Self {
        Self { counts: [0; BUCKET_COUNT], period: PhantomData }
    }

    /// Counts a value.
    pub const fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Counts a value so many times.
    pub const fn record_n(&mut self, value: u64, count: u64) {
        let bucket = (u64::BITS - value.leading_zeros()) as usize;
        self.counts[bucket] = self.counts[bucket].saturating_add(count);
    }

    /// Where the values lie, each figure rounded down to a power of two.
    #[must_use]
    pub fn percentile_stats(&self) -> PercentileStats {
        let samples = self.counts.iter().sum();
        let at = |permille| self.at(samples, permille);
        PercentileStats {
            samples,
            p0_1: at(1),
            p1: at(10),
            p5: at(50),
            p10: at(100),
            p50: at(500),
            p90: at(900),
            p99: at(990),
            p99_9: at(999),
        }
    }

    /// The least value of the bucket in which so many thousandths of the values end; 0 without values.
    fn at(&self, samples: u64, permille: u64) -> u64 {
        let rank = (u128::from(samples) * u128::from(permille)).div_ceil(1000);
        let mut below = 0;
        let bucket = self.counts.iter().position(|&count| {
            below += u128::from(count);
            below >= rank
        });
        match bucket {
            None | Some(0) => 0,
            Some(bits) => 1 << (bits - 1),
        }
    }
}

impl<T> Default for Histogram<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Number of values of a histogram, and where they lie: so many percent of them are no larger than the bucket of each
/// figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each is named after its percentage")]
pub struct PercentileStats {
    pub samples: u64,
    pub p0_1: u64,
    pub p1: u64,
    pub p5: u64,
    pub p10: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
}

impl fmt::Display for PercentileStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { samples, p50, p90, p99, p99_9, .. } = self;
        write!(f, "[samples: {samples}, P50: {p50}, P90: {p90}, P99: {p99}, P99.9: {p99_9}]")
    }
}

/// A chart that openraft declares, and draws with `runtime-stats` alone.
#[derive(Default, Debug)]
pub struct AsciiChart;

impl AsciiChart {
    /// A chart without histograms.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }

    /// The same chart: nothing draws it.
    #[must_use]
    pub fn add(self, _name: &str, _histogram: Histogram) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_values_rounded_down() {
        let values = [0, 0, 1, 3, 4, 7, 8, 900, 1 << 40, u64::MAX];
        let mut histogram = Histogram::<()>::new();
        values.iter().for_each(|&value| histogram.record(value));
        let stats = histogram.percentile_stats();
        let floor = |value: u64| value.checked_ilog2().map_or(0, |bits| 1 << bits);
        let expected = [values[0], values[0], values[4], values[8], values[9]].map(floor);
        assert_eq!([stats.p0_1, stats.p10, stats.p50, stats.p90, stats.p99], expected);
        assert_eq!(Histogram::<()>::new().percentile_stats().p50, 0);
    }
}
