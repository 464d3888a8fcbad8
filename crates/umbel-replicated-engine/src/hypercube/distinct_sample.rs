//! Estimates how many distinct items a node has inserted, from the smallest hashes of its items.
//!
//! Hashes of distinct items are uniform in [0, 2^64), and equal items have equal hashes. So the k
//! smallest hashes, a bottom-k sample, are a uniform sample of k distinct items however often each was
//! inserted, and the largest of them shows how dense all hashes are:
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
//! A sample with fewer than k hashes contains all of them, and its count is exact.
//!
//! *Union.* The k smallest hashes of two samples are the sample of the union of their items.
//!
//! *Overlap.* If a share J of the union's sample is in both samples, an estimated share J of the
//! union's items is in both. The standard error is the union's count times √(J/(k − 2)).

use thiserror::Error;

use crate::limits::SAMPLE_HASHES_MAX;

#[cfg(test)]
mod sample_test;

/// Bytes of a hash.
const HASH_BYTES: usize = 8;

/// Number of possible hashes.
const SPACE: f64 = (1_u128 << 64) as f64;

/// The [`SAMPLE_HASHES_MAX`] smallest hashes of all that were inserted.
///
/// *Laws.* Merging is idempotent, commutative and associative: it gives the sample of everything
/// inserted into either. The order and the repetition of inserts make no difference.
///
/// ```
/// use umbel_replicated_engine::hypercube::DistinctSample;
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
    /// Strictly ascending, at most [`SAMPLE_HASHES_MAX`].
    hashes: Vec<u64>,
}

/// A number of distinct items, with its standard error.
///
/// ```
/// use umbel_replicated_engine::hypercube::DistinctCount;
///
/// let about = DistinctCount { count: 2_000.0, standard_error: 60.0 };
/// assert_eq!((about.relative_error(), about.is_exact()), (0.03, false));
/// assert!(DistinctCount { count: 7.0, standard_error: 0.0 }.is_exact());
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DistinctCount {
    /// The number.
    pub count: f64,
    /// Its standard error, 0 if the count is exact: two of three estimates are off by less, 19 of 20
    /// by less than twice as much.
    pub standard_error: f64,
}

impl DistinctCount {
    /// Whether the count is exact, not estimated.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.standard_error == 0.0
    }

    /// The standard error as a share of the count; 0 if the count is exact.
    #[must_use]
    pub const fn relative_error(&self) -> f64 {
        if self.is_exact() { 0.0 } else { self.standard_error / self.count }
    }
}

/// The bytes are not a sample. Refuse the message or file that contains them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SampleBytesError {
    /// The number of bytes is not a multiple of a hash's size.
    #[error("{byte_count} bytes of a sample, expected a multiple of {HASH_BYTES}")]
    Ragged {
        /// Number of bytes received.
        byte_count: usize,
    },
    /// There are more hashes than a sample may have.
    #[error("{hash_count} hashes in a sample, expected at most {SAMPLE_HASHES_MAX}")]
    TooMany {
        /// Number of hashes received.
        hash_count: usize,
    },
    /// The hashes are not strictly ascending.
    #[error("hash {after:#018x} behind {before:#018x} in a sample, expected a greater one")]
    NotRising {
        /// A hash.
        before: u64,
        /// The hash after it.
        after: u64,
    },
}

impl DistinctSample {
    /// The empty sample.
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

    /// The hashes, strictly ascending.
    #[must_use]
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// The largest hash that could still change the sample; for a full sample, its largest hash.
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

    /// Inserts the hash of an item, and returns whether that changed the sample.
    ///
    /// Of n distinct items in an order that no adversary chose, about k·(1 + ln(n/k)) change the
    /// sample, and each of those moves at most 8 KiB. All others cost one comparison.
    #[inline]
    pub fn insert(&mut self, hash: u64) -> bool {
        hash <= self.reach() && self.place(hash).is_some()
    }

    /// Inserts a hash, and returns its index. None if the sample has it already or it is beyond the
    /// sample's reach.
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

    /// Merges another sample into this one.
    ///
    /// ```
    /// use umbel_replicated_engine::hypercube::DistinctSample;
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

    /// The sample of everything inserted into any of these.
    #[must_use]
    pub fn union_of<'a>(samples: impl IntoIterator<Item = &'a Self>) -> Self {
        samples.into_iter().fold(Self::new(), |mut union, sample| {
            union.merge(sample);
            union
        })
    }

    /// The number of distinct items that were inserted: exact if below [`SAMPLE_HASHES_MAX`].
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

    /// The number of distinct items inserted into both: exact if the union has fewer than
    /// [`SAMPLE_HASHES_MAX`]. If no hash is common, the error is that of an estimate from one common
    /// hash.
    ///
    /// ```
    /// use umbel_replicated_engine::hypercube::DistinctSample;
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
        // A hash in both samples counts once in the union and twice in the sum of the samples.
        let common = (within(self) + within(other) - union.len()) as f64;
        if !union.is_full() {
            return DistinctCount { count: common, standard_error: 0.0 };
        }
        let (all, len) = (union.count().count, union.len() as f64);
        let standard_error = all * (common.max(1.0) / len / (len - 2.0)).sqrt();
        DistinctCount { count: all * common / len, standard_error }
    }

    /// The hashes as bytes, 8 per hash, little-endian.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect()
    }

    /// The sample in these bytes.
    ///
    /// ```
    /// use umbel_replicated_engine::hypercube::{DistinctSample, SampleBytesError};
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
    /// If they are not whole hashes, or the hashes are too many or not strictly ascending.
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

/// A sample of hashes in any order.
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
