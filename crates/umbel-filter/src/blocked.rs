//! Blocked Bloom filter: all probes of an item in one cache line.
//!
//! The block of an item is chosen by `hi` ([`BlockMap`]), its k positions inside the 512 bits by
//! the upper half of `lo` (`lanes` draws the pattern). So an operation costs one access to memory,
//! whatever k is, and a hash range is a slice of the array (Putze, Sanders & Singler 2007,
//! doi:10.1007/978-3-540-72845-0_9).
//!
//! Blocks fill unevenly, which costs a few percent of memory against a filter without blocks; the
//! rate is known exactly all the same ([`blocked_false_positive_rate`](crate::sizing::blocked_false_positive_rate)).

use crate::bits::{BitArray, Line, index, scalar, wide};
use crate::block_array;
use crate::block_map::BlockMap;
use crate::capability::{
    Contains, Describe, Description, Insert, InsertError, Insertion, Merge, check_all_in_range,
    check_in_range,
};
use crate::hash::ItemHash;
use crate::kind::Kind;
use crate::lanes::{self, LaneSets};
use crate::range::HashRange;
use crate::shape::{BlockShape, CreateError, LINE_BITS, Shape, ShapeMismatch, check_equal};

#[cfg(test)]
mod blocked_test;

/// A blocked filter over a hash range.
///
/// ```
/// use umbel_filter::{Blocked, Contains, HashRange, Insert, Insertion, ItemHasher};
///
/// let hasher = ItemHasher::Xxh3 { seed: 7 };
/// let mut seen = Blocked::for_rate(HashRange::WHOLE, 1_000, 0.01)?;
/// assert_eq!(seen.insert(hasher.hash(b"alice"))?, Insertion::New);
/// assert_eq!(seen.insert(hasher.hash(b"alice"))?, Insertion::Present);
/// assert!(!seen.contains(hasher.hash(b"bob")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blocked {
    shape: BlockShape,
    sets: LaneSets,
    bits: BitArray,
}

impl Blocked {
    /// An empty filter of `block_count` blocks of 512 bits over the whole hash space, of which it
    /// holds those of `range`, with k = `probe_count` probes, 1 to
    /// [`BLOCK_PROBE_COUNT_MAX`](crate::BLOCK_PROBE_COUNT_MAX).
    ///
    /// # Errors
    /// If the numbers are no shape, or there is no memory.
    pub fn new(range: HashRange, block_count: u64, probe_count: u32) -> Result<Self, CreateError> {
        Self::with_shape(BlockShape::new(
            Kind::Blocked,
            range,
            block_count,
            LINE_BITS,
            probe_count,
        )?)
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
        Self::with_shape(BlockShape::for_rate(
            Kind::Blocked,
            range,
            item_count,
            false_positive_rate,
        )?)
    }

    /// An empty filter of this shape.
    ///
    /// # Errors
    /// If the shape is another kind's, or there is no memory.
    pub fn with_shape(shape: BlockShape) -> Result<Self, CreateError> {
        shape.check_kind(Kind::Blocked)?;
        let bits = BitArray::new(shape.memory_bytes() / 64)?;
        Ok(Self { shape, sets: LaneSets::new(shape.probe_count()), bits })
    }

    /// The blocks' bits, 8 words a block, from the range's first block on. Bit i of a block is bit
    /// i mod 64 of its word i / 64.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        self.bits.words()
    }

    /// The same, to be changed: a bit that is set is never wrong, a bit that is cleared makes
    /// items absent.
    pub fn words_mut(&mut self) -> &mut [u64] {
        self.bits.words_mut()
    }

    /// The filter's shape.
    #[must_use]
    pub const fn block_shape(&self) -> BlockShape {
        self.shape
    }

    /// The k positions that an item of the range sets, ascending: bit i is bit i mod 64 of word i / 64 of
    /// [`words`](Self::words).
    ///
    /// ```
    /// use umbel_filter::{Blocked, HashRange, Insert, ItemHash};
    ///
    /// let mut filter = Blocked::new(HashRange::WHOLE, 10, 3)?;
    /// filter.insert(ItemHash::new(1 << 63, 2))?;
    /// let positions = filter.positions(ItemHash::new(1 << 63, 2));
    /// assert_eq!(positions.map(|at| filter.words()[at as usize / 64] >> (at % 64) & 1).sum::<u64>(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn positions(&self, hash: ItemHash) -> impl Iterator<Item = u64> + use<> {
        block_array::positions(self.map(), &self.sets, hash)
    }

    /// ORs a filter over a part of our hash range in and returns how many bits it newly set.
    ///
    /// # Errors
    /// If the shapes differ in more than the range, or the part leaves our range.
    pub fn merge_part(&mut self, part: &Self) -> Result<u64, ShapeMismatch> {
        block_array::merge_part((self.shape, &mut self.bits), (part.shape, &part.bits))
    }

    /// The filter of half as many blocks that contains the same items: neighbouring blocks, ORed.
    /// Its rate is that of a filter that was made so small from the start.
    ///
    /// # Errors
    /// If the number of blocks over the whole hash space is odd, or there is no memory.
    pub fn fold(&self) -> Result<Self, FoldError> {
        let (shape, bits) = block_array::fold(self.shape, &self.bits)?;
        Ok(Self { shape, sets: self.sets, bits })
    }

    /// The blocks.
    pub(crate) fn lines(&self) -> &[Line] {
        self.bits.lines()
    }

    /// Sets the bits of one probe seed in a block, which must exist, and returns how many it newly
    /// set.
    #[inline]
    pub(crate) fn insert_probe(&mut self, block: u64, seed: u32) -> u32 {
        let first = block * u64::from(LINE_BITS);
        let positions = lanes::positions(&self.sets, seed);
        positions.map(|position| u32::from(self.bits.set(first + u64::from(position)))).sum()
    }

    /// Whether the bits of one probe seed are all set in a block, which must exist.
    #[inline]
    pub(crate) fn contains_probe(&self, block: u64, seed: u32) -> bool {
        wide::contains(&self.bits.lines()[index(block)], &self.sets, seed)
    }

    /// The blocks' map.
    #[inline]
    const fn map(&self) -> BlockMap {
        self.shape.map()
    }
}

/// Why a filter was not folded. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FoldError {
    /// Only an even number of blocks can be halved: plan for a power of two if you want to fold.
    #[error("{block_count} blocks, expected an even number to fold")]
    OddBlockCount {
        /// Number of blocks over the whole hash space.
        block_count: u64,
    },
    /// A single block can be halved while it is a multiple of 1,024 bits, in parts of even size.
    #[error(
        "one block of {block_bits} bits in parts of {part_bits}, \
         expected a multiple of 1024 in even parts to fold"
    )]
    OddBlock {
        /// Bits of the block.
        block_bits: u32,
        /// Bits that a probe chooses from: all of a classic block, one part of a partitioned one.
        part_bits: u32,
    },
    /// The half cannot be created.
    #[error(transparent)]
    Create(#[from] CreateError),
}

impl Contains for Blocked {
    #[inline]
    fn contains(&self, hash: ItemHash) -> bool {
        self.map().range().contains(hash.hi())
            && wide::contains(
                &self.bits.lines()[scalar::line_of(self.map(), hash)],
                &self.sets,
                scalar::probe_seed(hash),
            )
    }

    fn contains_batch(&self, hashes: &[ItemHash], present: &mut Vec<bool>) {
        present.clear();
        if check_all_in_range(self.map().range(), hashes).is_ok() {
            present.resize(hashes.len(), false);
            wide::contains_batch(self.bits.lines(), self.map(), &self.sets, hashes, present);
        } else {
            present.extend(hashes.iter().map(|&hash| self.contains(hash)));
        }
    }
}

impl Insert for Blocked {
    #[inline]
    fn insert(&mut self, hash: ItemHash) -> Result<Insertion, InsertError> {
        let map = self.map();
        check_in_range(map.range(), hash)?;
        let line = &mut self.bits.lines_mut()[scalar::line_of(map, hash)];
        Ok(wide::insert(line, &self.sets, scalar::probe_seed(hash)))
    }

    fn insert_batch(
        &mut self,
        hashes: &[ItemHash],
        outcomes: &mut Vec<Insertion>,
    ) -> Result<(), InsertError> {
        outcomes.clear();
        check_all_in_range(self.map().range(), hashes)?;
        outcomes.resize(hashes.len(), Insertion::Present);
        let map = self.map();
        wide::insert_batch(self.bits.lines_mut(), map, &self.sets, hashes, outcomes);
        Ok(())
    }
}

impl Merge for Blocked {
    const IS_IDEMPOTENT: bool = true;

    fn merge(&mut self, other: &Self) -> Result<u64, ShapeMismatch> {
        check_equal(self.shape, other.shape)?;
        Ok(self.bits.or(&other.bits))
    }
}

impl Describe for Blocked {
    fn shape(&self) -> Shape {
        self.shape.into()
    }

    fn describe(&self) -> Description {
        self.shape.describe(self.bits.count_ones())
    }
}
