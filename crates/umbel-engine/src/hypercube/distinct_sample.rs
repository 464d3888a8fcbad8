//! How many different items a node has inserted, from the least of their hashes.
//!
//! Hashes of different items lie evenly in [0, 2^64), and equal items have equal hashes. So the least
//! k of them, a bottom-k sample, are a fair draw of k different items however often each came, and
//! how far up they reach tells how dense all lie:
//!
//! ```text
//! 0    h1   h2      h3  …    hk                                         2^64
//! ├────┼────┼───────┼────────┼───────────────────────────────────────────┤
//!                            U = (hk + 1) / 2^64        count ≈ (k − 1) / U
//! ```
//!
//! *Count* (Bar-Yossef, Jayram, Kumar, Sivakumar & Trevisan 2002, doi:10.1007/3-540-45726-7_1, for the
//! sample; Beyer, Haas, Reinwald, Sismanis & Gemulla 2007, doi:10.1145/1247480.1247504, for the
//! estimator and its error): (k − 1)/U is unbiased, its relative standard error is at most 1/√(k − 2).
//! A sample with fewer than k hashes has them all, and its count is exact.
//!
//! *Union.* The least k of two samples are the sample of what either has inserted.
//!
//! *Overlap.* A share J of the union's sample is in both samples; J of the union's items are in both.
//! The standard error is the union's count times √(J/(k − 2)).

use thiserror::Error;

use crate::limits::SAMPLE_HASHES_MAX;

#[cfg(test)]
mod sample_test;

/// Bytes of a hash.
const HASH_BYTES: usize = 8;

/// Number of hashes that there are.
const SPACE: f64 = (1_u128 << 64) as f64;

/// The least [`SAMPLE_HASHES_MAX`] of the hashes that were inserted.
///
/// *Laws.* Merging is idempotent, commutative and associative: it gives the sample of all that went
/// into either. The order and the repeats of inserts leave no trace.
///
/// ```
/// use umbel_engine::hypercube::DistinctSample;
///
/// // 1,024 hashes, the greatest is 2^54 − 1: they fill 2^-10 of the space.
/// let full: DistinctSample = (1..=1024_u64).map(|place| (place << 44) - 1).collect();
/// assert_eq!(full.count().count, 1023.0 * 1024.0);
/// // One that reaches further up adds nothing; a repeat neither.
/// let mut same = full.clone();
/// assert!(!same.insert(1 << 54) && !same.insert(full.hashes()[0]));
/// assert_eq!(same, full);
/// // Fewer are counted.
/// let few: DistinctSample = [9, 3, 9].into_iter().collect();
/// assert_eq!((few.hashes(), few.count().count), ([3, 9].as_slice(), 2.0));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DistinctSample {
    /// Strictly rising, at most [`SAMPLE_HASHES_MAX`].
    hashes: Vec<u64>,
}

/// A number of different items, and how far it may be off.
///
/// ```
/// use umbel_engine::hypercube::DistinctCount;
///
/// let about = DistinctCount { count: 2_000.0, standard_error: 60.0 };
/// assert_eq!((about.relative_error(), about.is_exact()), (0.03, false));
/// assert!(DistinctCount { count: 7.0, standard_error: 0.0 }.is_exact());
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DistinctCount {
    /// The number.
    pub count: f64,
    /// Its standard error, 0 if it was counted: two of three estimates are off by less, 19 of 20 by
    /// less than twice as much.
    pub standard_error: f64,
}

impl DistinctCount {
    /// Whether it was counted, not estimated.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.standard_error == 0.0
    }

    /// The standard error as a share of the count, 0 if it was counted.
    #[must_use]
    pub const fn relative_error(&self) -> f64 {
        if self.is_exact() { 0.0 } else { self.standard_error / self.count }
    }
}

/// The bytes are no sample. Refuse the message or the file that they came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SampleBytesError {
    /// They are no whole hashes.
    #[error("{byte_count} bytes of a sample, expected a multiple of {HASH_BYTES}")]
    Ragged {
        /// Bytes that came.
        byte_count: usize,
    },
    /// No sample has so many.
    #[error("{hash_count} hashes in a sample, expected at most {SAMPLE_HASHES_MAX}")]
    TooMany {
        /// Hashes that came.
        hash_count: usize,
    },
    /// They do not rise.
    #[error("hash {after:#018x} behind {before:#018x} in a sample, expected a greater one")]
    NotRising {
        /// A hash.
        before: u64,
        /// That behind it.
        after: u64,
    },
}

impl DistinctSample {
    /// The sample of nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { hashes: Vec::new() }
    }

    /// Number of hashes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether nothing was inserted.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// The hashes, strictly rising.
    #[must_use]
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// The greatest hash that can change the sample. Of a full one it is the greatest that it has.
    #[inline]
    #[must_use]
    pub(super) fn reach(&self) -> u64 {
        match self.hashes.last() {
            Some(&last) if self.is_full() => last,
            _ => u64::MAX,
        }
    }

    const fn is_full(&self) -> bool {
        self.hashes.len() >= SAMPLE_HASHES_MAX
    }

    /// Inserts the hash of an item, and says whether that has changed the sample.
    ///
    /// Of n different items in an order that nobody has chosen, about k·(1 + ln(n/k)) change it, and
    /// each moves at most 8 KiB; all others cost one comparison.
    #[inline]
    pub fn insert(&mut self, hash: u64) -> bool {
        hash <= self.reach() && self.place(hash).is_some()
    }

    /// Inserts a hash; None if the sample has it or it is beyond its reach, otherwise its place.
    pub(super) fn place(&mut self, hash: u64) -> Option<usize> {
        let place = self.hashes.binary_search(&hash).err()?;
        if self.is_full() {
            if place == self.hashes.len() {
                return None;
            }
            self.hashes.pop();
        }
        self.hashes.insert(place, hash);
        Some(place)
    }

    /// Takes in what another sample has.
    ///
    /// ```
    /// use umbel_engine::hypercube::DistinctSample;
    ///
    /// let mut sample: DistinctSample = [2, 7].into_iter().collect();
    /// sample.merge(&[5, 7].into_iter().collect());
    /// assert_eq!(sample.hashes(), [2, 5, 7]);
    /// ```
    pub fn merge(&mut self, other: &Self) {
        let (mut ours, mut theirs) = (self.hashes.as_slice(), other.hashes());
        let mut merged = Vec::with_capacity((ours.len() + theirs.len()).min(SAMPLE_HASHES_MAX));
        while merged.len() < SAMPLE_HASHES_MAX {
            let least = match (ours.first(), theirs.first()) {
                (Some(&one), Some(&other)) => one.min(other),
                (Some(&one), None) | (None, Some(&one)) => one,
                (None, None) => break,
            };
            merged.push(least);
            for rest in [&mut ours, &mut theirs] {
                if let Some((_, behind)) = rest.split_first().filter(|(first, _)| **first == least)
                {
                    *rest = behind;
                }
            }
        }
        self.hashes = merged;
    }

    /// The sample of what went into any of these.
    #[must_use]
    pub fn union_of<'a>(samples: impl IntoIterator<Item = &'a Self>) -> Self {
        samples.into_iter().fold(Self::new(), |mut union, sample| {
            union.merge(sample);
            union
        })
    }

    /// How many different items were inserted: all are counted while they are fewer than
    /// [`SAMPLE_HASHES_MAX`].
    #[must_use]
    pub fn count(&self) -> DistinctCount {
        let len = self.hashes.len() as f64;
        match self.hashes.last() {
            Some(&last) if self.is_full() => {
                let count = (len - 1.0) * (SPACE / (last as f64 + 1.0));
                DistinctCount { count, standard_error: count / (len - 2.0).sqrt() }
            }
            _ => DistinctCount { count: len, standard_error: 0.0 },
        }
    }

    /// How many different items were inserted into both; counted if both together are fewer than
    /// [`SAMPLE_HASHES_MAX`]. The error of an estimate of none is that of an estimate from one hash.
    ///
    /// ```
    /// use umbel_engine::hypercube::DistinctSample;
    ///
    /// let hashes = |places: std::ops::RangeInclusive<u64>| -> DistinctSample {
    ///     places.map(|place| (place << 44) - 1).collect()
    /// };
    /// // The union's sample are the first 1,024 places; 256 of them, a fourth, are in both.
    /// let overlap = hashes(1..=1024).overlap(&hashes(769..=1792));
    /// assert_eq!(overlap.count, 1023.0 * 1024.0 / 4.0);
    /// assert_eq!(hashes(1..=9).overlap(&hashes(8..=20)).count, 2.0);
    /// ```
    #[must_use]
    pub fn overlap(&self, other: &Self) -> DistinctCount {
        let union = Self::union_of([self, other]);
        let reach = union.reach();
        let within = |sample: &Self| sample.hashes.partition_point(|&hash| hash <= reach);
        // What is in both is one hash of the union and two of the samples.
        let common = (within(self) + within(other) - union.len()) as f64;
        if !union.is_full() {
            return DistinctCount { count: common, standard_error: 0.0 };
        }
        let (all, len) = (union.count().count, union.len() as f64);
        let standard_error = all * (common.max(1.0) / len / (len - 2.0)).sqrt();
        DistinctCount { count: all * common / len, standard_error }
    }

    /// The hashes as bytes, 8 each, little-endian.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect()
    }

    /// The sample that stands in these bytes.
    ///
    /// ```
    /// use umbel_engine::hypercube::{DistinctSample, SampleBytesError};
    ///
    /// let sample: DistinctSample = [3, 258].into_iter().collect();
    /// let bytes = [3, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0];
    /// assert_eq!(sample.to_bytes(), bytes);
    /// assert_eq!(DistinctSample::from_bytes(&bytes), Ok(sample));
    /// let ragged = Err(SampleBytesError::Ragged { byte_count: 9 });
    /// assert_eq!(DistinctSample::from_bytes(&bytes[..9]), ragged);
    /// ```
    ///
    /// # Errors
    /// If they are no whole hashes, too many, or do not rise.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SampleBytesError> {
        let (hashes, rest) = bytes.as_chunks::<HASH_BYTES>();
        if !rest.is_empty() {
            return Err(SampleBytesError::Ragged { byte_count: bytes.len() });
        }
        if hashes.len() > SAMPLE_HASHES_MAX {
            return Err(SampleBytesError::TooMany { hash_count: hashes.len() });
        }
        let hashes: Vec<u64> = hashes.iter().map(|hash| u64::from_le_bytes(*hash)).collect();
        let pairs = hashes.iter().zip(hashes.iter().skip(1));
        match pairs.into_iter().find(|(before, after)| before >= after) {
            Some((&before, &after)) => Err(SampleBytesError::NotRising { before, after }),
            None => Ok(Self { hashes }),
        }
    }
}

/// The sample of hashes in any order.
impl FromIterator<u64> for DistinctSample {
    fn from_iter<I: IntoIterator<Item = u64>>(hashes: I) -> Self {
        let mut sample = Self::new();
        sample.extend(hashes);
        sample
    }
}

impl Extend<u64> for DistinctSample {
    fn extend<I: IntoIterator<Item = u64>>(&mut self, hashes: I) {
        for hash in hashes {
            self.insert(hash);
        }
    }
}
