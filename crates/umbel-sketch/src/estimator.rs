//! Estimates the size of a difference from 64 counters per side: tug of war.
//!
//! Counter j is Σ ±1 over the items, + if bit j of the item's hash is set. Items of both sides
//! cancel in the difference of the counters, and the others make a random walk of d steps, whose
//! expected square is d: d̂ = (1/64)·Σ (I_j − R_j)², with relative standard deviation √(2/64) = 17.7 %
//! (Alon, Matias & Szegedy 1999, doi:10.1006/jcss.1997.1545).
//!
//! *Bytes*: all counters have the parity of the number of items n, so (counter − n mod 2) / 2 is
//! written, in zigzag (0, −1, 1, −2, ..), all at the width w of the longest:
//!
//! ```text
//! │ u8 w │ 64 · w bits, least significant first │      1 + 8·w bytes; 97 for a million items
//! ```

use thiserror::Error;

use crate::lsb::{LsbError, LsbReader, LsbWriter};

/// Number of counters: one per bit of a hash.
pub const COUNTER_COUNT: usize = 64;

/// Bit planes of the pending counts: 63 items need six binary digits.
const PLANE_COUNT: usize = 6;

/// Smallest clamped estimate: below, the standard deviation has no meaning.
const CLAMPED_MIN: f64 = 16.0;

/// Counters over the hashes of a set's items.
///
/// ```
/// use umbel_sketch::Estimator;
///
/// let (mut ours, mut theirs) = (Estimator::new(), Estimator::new());
/// ours.add(0b0101);
/// theirs.add(0b0110);
/// // Two of 64 counters differ, by 2 each: (4 + 4) / 64.
/// assert_eq!(ours.estimate(&theirs), 0.125);
/// assert_eq!(ours.counters()[..4], [1, -1, 1, -1]);
/// assert_eq!(ours.to_bytes().len(), 1 + 8);
/// assert_eq!(Estimator::from_bytes(&ours.to_bytes(), 1), Ok(ours));
/// ```
#[derive(Clone, Debug)]
pub struct Estimator {
    /// Number of items with bit j, without those in the planes. Signed, because items may be
    /// removed.
    one_counts: [i64; COUNTER_COUNT],
    item_count: i64,
    /// Digit i of the number of pending items with bit j is bit j of plane i.
    planes: [u64; PLANE_COUNT],
    /// Items in the planes, at most 63.
    pending_count: u32,
}

impl Estimator {
    /// An estimator of no items.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            one_counts: [0; COUNTER_COUNT],
            item_count: 0,
            planes: [0; PLANE_COUNT],
            pending_count: 0,
        }
    }

    /// Adds an item by 64 bits of its keyed hash that nothing else is derived from.
    #[inline]
    pub fn add(&mut self, hi: u64) {
        if self.pending_count == (1 << PLANE_COUNT) - 1 {
            self.flush_planes();
        }
        // 64 binary counters at once: a carry goes up the planes.
        let mut carry = hi;
        for plane in &mut self.planes {
            let next = *plane & carry;
            *plane ^= carry;
            carry = next;
        }
        self.pending_count += 1;
        self.item_count += 1;
    }

    /// Adds many items.
    pub fn add_all(&mut self, hashes: &[u64]) {
        hashes.iter().for_each(|&hi| self.add(hi));
    }

    /// Removes an item that was added.
    pub fn remove(&mut self, hi: u64) {
        for (bit, count) in self.one_counts.iter_mut().enumerate() {
            *count -= i64::from(hi >> bit & 1 == 1);
        }
        self.item_count -= 1;
    }

    /// Adds the items of another estimator. The result is that of both sets together, if they are
    /// disjoint.
    pub fn merge(&mut self, other: &Self) {
        self.one_counts = self.total_counts();
        self.planes = [0; PLANE_COUNT];
        self.pending_count = 0;
        for (ours, theirs) in self.one_counts.iter_mut().zip(other.total_counts()) {
            *ours = ours.saturating_add(theirs);
        }
        self.item_count = self.item_count.saturating_add(other.item_count);
    }

    /// Removes the items of another estimator, all of which must have been added.
    pub fn subtract(&mut self, other: &Self) {
        self.one_counts = self.total_counts();
        self.planes = [0; PLANE_COUNT];
        self.pending_count = 0;
        for (ours, theirs) in self.one_counts.iter_mut().zip(other.total_counts()) {
            *ours = ours.saturating_sub(theirs);
        }
        self.item_count = self.item_count.saturating_sub(other.item_count);
    }

    /// n, the number of items.
    #[must_use]
    pub const fn item_count(&self) -> i64 {
        self.item_count
    }

    /// The counters, −n to n, all of n's parity.
    #[must_use]
    pub fn counters(&self) -> [i64; COUNTER_COUNT] {
        self.total_counts().map(|ones| ones.saturating_mul(2).saturating_sub(self.item_count))
    }

    /// The estimated size of the symmetric difference, d̂, at least 0. It says little about a small
    /// one, see [`Self::clamped_estimate`].
    #[must_use]
    pub fn estimate(&self, other: &Self) -> f64 {
        let pairs = self.counters().into_iter().zip(other.counters());
        let sum: f64 = pairs.map(|(a, b)| (a as f64 - b as f64).powi(2)).sum();
        sum / COUNTER_COUNT as f64
    }

    /// The estimate, limited to what the numbers of items allow: at least their difference, and 16;
    /// at most their sum.
    #[must_use]
    pub fn clamped_estimate(&self, other: &Self) -> f64 {
        let (ours, theirs) = (self.item_count as f64, other.item_count as f64);
        self.estimate(other).max((ours - theirs).abs()).max(CLAMPED_MIN).min(ours + theirs)
    }

    /// Encodes the counters; the number of items is not included.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let parity = self.item_count & 1;
        let halves = self.counters().map(|counter| zigzag((counter - parity) / 2));
        let width = halves.iter().map(|half| 64 - half.leading_zeros()).max().unwrap_or(0);
        let mut writer = LsbWriter::new();
        writer.write_bits(width.into(), 8);
        halves.iter().for_each(|&half| writer.write_bits(half, width));
        writer.finish()
    }

    /// Decodes an estimator of `item_count` items.
    ///
    /// # Errors
    /// If the bytes are not what [`Self::to_bytes`] returns for this many items.
    pub fn from_bytes(bytes: &[u8], item_count: u64) -> Result<Self, EstimatorError> {
        let count = i64::try_from(item_count)
            .ok()
            .filter(|count| count.checked_mul(2).is_some())
            .ok_or(EstimatorError::ItemCount { item_count })?;
        let mut reader = LsbReader::new(bytes);
        let width = u32::try_from(reader.read_bits(8)?).unwrap_or(u32::MAX);
        if width > 64 {
            return Err(EstimatorError::Width { width });
        }
        let mut one_counts = [0; COUNTER_COUNT];
        let mut longest = 0;
        for ones in &mut one_counts {
            let half = reader.read_bits(width)?;
            longest = longest.max(64 - half.leading_zeros());
            // (counter + n) / 2 = half + (n + n mod 2) / 2
            *ones = unzigzag(half).saturating_add(count / 2 + count % 2);
            if !(0..=count).contains(ones) {
                return Err(EstimatorError::Counter { half: unzigzag(half), item_count });
            }
        }
        if longest != width {
            return Err(EstimatorError::Width { width });
        }
        reader.finish()?;
        Ok(Self { one_counts, item_count: count, ..Self::new() })
    }

    /// Counts of ones, with those in the planes.
    fn total_counts(&self) -> [i64; COUNTER_COUNT] {
        let mut counts = self.one_counts;
        for (bit, count) in counts.iter_mut().enumerate() {
            let digit = |(place, plane): (usize, &u64)| (plane >> bit & 1).cast_signed() << place;
            *count += self.planes.iter().enumerate().map(digit).sum::<i64>();
        }
        counts
    }

    /// Empties the planes into the counts.
    fn flush_planes(&mut self) {
        self.one_counts = self.total_counts();
        self.planes = [0; PLANE_COUNT];
        self.pending_count = 0;
    }
}

impl Default for Estimator {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for Estimator {
    fn eq(&self, other: &Self) -> bool {
        self.item_count == other.item_count && self.total_counts() == other.total_counts()
    }
}

impl Eq for Estimator {}

const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

const fn unzigzag(value: u64) -> i64 {
    (value >> 1 ^ (value & 1).wrapping_neg()).cast_signed()
}

/// Why bytes are not an estimator. Reject the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum EstimatorError {
    /// This many items cannot be counted.
    #[error("{item_count} items, expected fewer than 2^62")]
    ItemCount {
        /// The number that was claimed.
        item_count: u64,
    },
    /// The width is above 64, or not that of the longest counter.
    #[error("width of {width} bits is not that of the longest counter")]
    Width {
        /// The width.
        width: u32,
    },
    /// A counter exceeds the number of items.
    #[error("half a counter is {half}, impossible for {item_count} items")]
    Counter {
        /// What was read.
        half: i64,
        /// The number of items.
        item_count: u64,
    },
    /// The bytes are too few or too many.
    #[error(transparent)]
    Bits(#[from] LsbError),
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use proptest::prelude::*;
    use siphasher::sip128::{Hasher128, SipHasher24};

    use super::*;

    fn estimator(hashes: &[u64]) -> Estimator {
        let mut estimator = Estimator::new();
        estimator.add_all(hashes);
        estimator
    }

    /// `hi` of an id in the golden session.
    fn golden_hash(id: u64) -> u64 {
        let key = 0x3efd_7ebe_3720_45c6_f222_d445_6f86_b9bfu128.to_be_bytes();
        let mut hasher = SipHasher24::new_with_key(&key);
        hasher.write(&id.to_le_bytes());
        hasher.finish128().h2
    }

    #[test]
    fn golden_counters() {
        let hashes: Vec<u64> = (1..=5).map(golden_hash).collect();
        assert_eq!(estimator(&hashes).counters()[..8], [1, 1, 1, 3, 1, 5, 3, -3]);
    }

    #[test]
    fn estimates_are_within_their_deviation() {
        let hashes: Vec<u64> = (0..12_000).map(golden_hash).collect();
        for difference in [100, 1_000, 10_000] {
            let (ours, theirs) = (estimator(&hashes), estimator(&hashes[difference..]));
            let ratio = ours.estimate(&theirs) / difference as f64;
            assert!((ratio - 1.0).abs() < 4.0 * 0.177, "{difference}: {ratio}");
        }
    }

    #[test]
    fn estimates_are_clamped() {
        let (mut ours, empty) = (Estimator::new(), Estimator::new());
        (0..20).for_each(|_| ours.add(0));
        assert_eq!((ours.estimate(&empty), ours.clamped_estimate(&empty)), (400.0, 20.0));
        assert_eq!((ours.estimate(&ours), ours.clamped_estimate(&ours)), (0.0, 16.0));
        assert_eq!(empty.clamped_estimate(&empty), 0.0);
    }

    #[test]
    fn wrong_bytes_are_refused() {
        let refused = |bytes: &[u8], count| Estimator::from_bytes(bytes, count).unwrap_err();
        assert!(matches!(refused(&[], 1), EstimatorError::Bits(_)));
        assert_eq!(refused(&[65], 1), EstimatorError::Width { width: 65 });
        assert_eq!(refused(&[1, 0, 0, 0, 0, 0, 0, 0, 0], 1), EstimatorError::Width { width: 1 });
        assert!(matches!(refused(&[1, 1], 1), EstimatorError::Bits(_)));
        assert!(matches!(refused(&[0, 0], 0), EstimatorError::Bits(_)));
        let zigzag_one = [&[2][..], &[0b10; 16]].concat();
        assert_eq!(refused(&zigzag_one, 1), EstimatorError::Counter { half: 1, item_count: 1 });
        let item_count = 1 << 63;
        assert_eq!(refused(&[0], item_count), EstimatorError::ItemCount { item_count });
        assert_eq!(Estimator::from_bytes(&[0], 0), Ok(Estimator::new()));
    }

    proptest! {
        #[test]
        fn counters_are_sums(
            ours in prop::collection::vec(any::<u64>(), 0..200),
            theirs in prop::collection::vec(any::<u64>(), 0..200),
        ) {
            let whole = estimator(&[&ours[..], &theirs].concat());
            // The slow twin.
            for (bit, counter) in whole.counters().into_iter().enumerate() {
                let sign = |hash: &u64| if hash >> bit & 1 == 1 { 1 } else { -1 };
                prop_assert_eq!(counter, ours.iter().chain(&theirs).map(sign).sum::<i64>());
            }
            let mut merged = estimator(&ours);
            merged.merge(&estimator(&theirs));
            prop_assert_eq!(&merged, &whole);
            let bytes = whole.to_bytes();
            let count = whole.item_count().cast_unsigned();
            prop_assert_eq!(Estimator::from_bytes(&bytes, count), Ok(whole));
            let mut subtracted = merged.clone();
            subtracted.subtract(&estimator(&theirs));
            prop_assert_eq!(subtracted, estimator(&ours));
            theirs.iter().for_each(|&hash| merged.remove(hash));
            prop_assert_eq!(merged, estimator(&ours));
        }

        #[test]
        fn any_bytes_end(bytes: Vec<u8>, width in 0..6u8, count in 0..20u64) {
            let bytes = [&[width][..], &bytes].concat();
            if let Ok(estimator) = Estimator::from_bytes(&bytes, count) {
                prop_assert_eq!(estimator.to_bytes(), bytes);
            }
        }
    }
}
