//! Partitioned Bloom filter: one array a probe.
//!
//! The item's block of b ≤ 2^19 bits, chosen as in [`Classic`](crate::Classic), is cut into k parts
//! of w = ⌊b / k⌋ bits, and probe j sets one bit of part j; the last b − k·w bits stay zero. After i
//! items in the block a bit is one with probability 1 − (1 − 1/w)^i, and as parts share nothing, the
//! rate (1 − (1 − 1/w)^i)^k holds exactly, where the classic formula is a close approximation
//! (Almeida et al. 2007, doi:10.1016/j.ipl.2006.10.007; Kirsch & Mitzenmacher 2008,
//! doi:10.1002/rsa.20208).
//!
//! No two probes of an item meet, so every item sets exactly k positions; for the same reason the
//! parts fill a little faster than a classic block, and the rate is a little higher: by 0.005 %
//! of itself at 64 KiB, by 4 % at 64 bytes (k = 7, half full).

use crate::blocked::FoldError;
use crate::capability::{Contains, Describe, Description, Insert, InsertError, Insertion, Merge};
use crate::hash::ItemHash;
use crate::kind::Kind;
use crate::range::HashRange;
use crate::shape::{BlockShape, CreateError, Shape, ShapeMismatch};
use crate::spread::{self, Spread};

#[cfg(test)]
mod partitioned_test;

/// A partitioned filter over a hash range.
///
/// ```
/// use umbel_filter::{Partitioned, Contains, HashRange, Insert, Insertion, ItemHasher};
///
/// let hasher = ItemHasher::Xxh3 { seed: 7 };
/// let mut seen = Partitioned::for_rate(HashRange::WHOLE, 1_000, 0.01)?;
/// assert_eq!(seen.insert(hasher.hash(b"alice"))?, Insertion::New);
/// assert_eq!(seen.insert(hasher.hash(b"alice"))?, Insertion::Present);
/// assert!(!seen.contains(hasher.hash(b"bob")));
/// assert_eq!(seen.block_shape().probe_count(), 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partitioned {
    blocks: Spread,
}

impl Partitioned {
    /// An empty filter of `block_count` blocks over the whole hash space, of which it holds those
    /// of `range`. Each has `block_bits` bits, a multiple of 512 up to
    /// [`BLOCK_BITS_MAX`](crate::BLOCK_BITS_MAX); an item has k = `probe_count` probes, 1 to
    /// [`PROBE_COUNT_MAX`](crate::PROBE_COUNT_MAX).
    ///
    /// # Errors
    /// If the numbers are no shape, or there is no memory.
    pub fn new(
        range: HashRange,
        block_count: u64,
        block_bits: u32,
        probe_count: u32,
    ) -> Result<Self, CreateError> {
        let kind = Kind::Partitioned;
        Self::with_shape(BlockShape::new(kind, range, block_count, block_bits, probe_count)?)
    }

    /// The smallest empty filter that holds `item_count` items of the range at this
    /// `false_positive_rate`.
    ///
    /// # Errors
    /// If there are no items, no filter of this kind has such a rate, or there is no memory.
    pub fn for_rate(
        range: HashRange,
        item_count: u64,
        false_positive_rate: f64,
    ) -> Result<Self, CreateError> {
        let kind = Kind::Partitioned;
        Self::with_shape(BlockShape::for_rate(kind, range, item_count, false_positive_rate)?)
    }

    /// An empty filter of this shape.
    ///
    /// # Errors
    /// If the shape is another kind's, or there is no memory.
    pub fn with_shape(shape: BlockShape) -> Result<Self, CreateError> {
        Ok(Self { blocks: Spread::new(Kind::Partitioned, shape)? })
    }

    /// The blocks' bits, from the range's first block on, b / 64 words a block. Bit i of a block
    /// is bit i mod 64 of its word i / 64.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        self.blocks.bits().words()
    }

    /// The same, to be changed: a bit that is set is never wrong, a bit that is cleared makes
    /// items absent.
    pub fn words_mut(&mut self) -> &mut [u64] {
        self.blocks.bits_mut().words_mut()
    }

    /// The filter's shape.
    #[must_use]
    pub const fn block_shape(&self) -> BlockShape {
        self.blocks.shape()
    }

    /// The k positions that an item of the range sets in a filter of this shape, as
    /// [`Classic::positions`](crate::Classic::positions).
    ///
    /// ```
    /// use umbel_filter::{HashRange, Insert, ItemHash, Partitioned};
    ///
    /// let mut filter = Partitioned::new(HashRange::WHOLE, 1, 512, 3)?;
    /// filter.insert(ItemHash::new(1, 2))?;
    /// let positions = Partitioned::positions(filter.block_shape(), ItemHash::new(1, 2));
    /// assert_eq!(positions.map(|at| filter.words()[at as usize / 64] >> (at % 64) & 1).sum::<u64>(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn positions(shape: BlockShape, hash: ItemHash) -> impl Iterator<Item = u64> + use<> {
        spread::positions(shape, hash)
    }

    /// ORs a filter over a part of our hash range in and returns how many bits it newly set.
    ///
    /// # Errors
    /// If the shapes differ in more than the range, or the part leaves our range. Nothing was
    /// changed.
    pub fn merge_part(&mut self, part: &Self) -> Result<u64, ShapeMismatch> {
        self.blocks.merge_part(&part.blocks)
    }

    /// The filter of half the size that contains the same items: neighbouring blocks, ORed, or the
    /// neighbouring bits of a single block. Its rate is that of a filter that was made so small
    /// from the start.
    ///
    /// # Errors
    /// If the number of blocks over the whole hash space is odd and above 1, if a single block
    /// cannot be halved, or there is no memory.
    pub fn fold(&self) -> Result<Self, FoldError> {
        Ok(Self { blocks: self.blocks.fold()? })
    }
}

impl Contains for Partitioned {
    #[inline]
    fn contains(&self, hash: ItemHash) -> bool {
        self.blocks.contains(hash)
    }

    fn contains_batch(&self, hashes: &[ItemHash], present: &mut Vec<bool>) {
        self.blocks.contains_batch(hashes, present);
    }
}

impl Insert for Partitioned {
    #[inline]
    fn insert(&mut self, hash: ItemHash) -> Result<Insertion, InsertError> {
        Ok(self.blocks.insert(hash)?)
    }

    fn insert_batch(
        &mut self,
        hashes: &[ItemHash],
        outcomes: &mut Vec<Insertion>,
    ) -> Result<(), InsertError> {
        Ok(self.blocks.insert_batch(hashes, outcomes)?)
    }
}

impl Merge for Partitioned {
    const IS_IDEMPOTENT: bool = true;

    fn merge(&mut self, other: &Self) -> Result<u64, ShapeMismatch> {
        self.blocks.merge(&other.blocks)
    }
}

impl Describe for Partitioned {
    fn shape(&self) -> Shape {
        self.block_shape().into()
    }

    fn describe(&self) -> Description {
        self.block_shape().describe(self.blocks.bits().count_ones())
    }
}
