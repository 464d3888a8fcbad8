//! Probes anywhere in a block of up to 64 KiB: what [`Classic`](crate::Classic) and
//! [`Partitioned`](crate::Partitioned) share.
//!
//! `hi` chooses the item's block ([`BlockMap`](crate::BlockMap)), `lo` its k positions inside:
//!
//! ```text
//! v(0) = lo · A + C mod 2^64                position of probe j = start(j) + ⌊v(j) · width / 2^64⌋
//! v(j) = v(j − 1) · A + C mod 2^64
//!
//! classic      │ 0 1 2 … k − 1 anywhere                        │   width b,       start 0
//! partitioned  │   0   │   1   │   2   │  …  │  k − 1  │ zeros  │   width ⌊b / k⌋, start j · width
//! ```
//!
//! A is a multiplier whose consecutive values fill space evenly (Steele & Vigna 2022,
//! doi:10.1002/spe.3030), and multiply-shift takes the high bits, the good ones of such a sequence.
//!
//! *Why not double hashing?* It (Kirsch & Mitzenmacher 2008, doi:10.1002/rsa.20208) and its
//! enhanced form (Dillinger & Manolios 2004, doi:10.1007/978-3-540-30494-4_26) cost as much, but
//! know an item by two numbers below b only: of about k·b² pairs of items one has all positions in
//! common, which adds some n / (k·b²) to the rate of n items. That is nothing in 64 KiB at 0.01 %,
//! but much in a small block: for 26 items in 512 bits at k = 13 the enhanced form was measured to
//! err 7 % more often than independent probes, this sequence 2 % (both to within 1 %). Here all 64
//! bits of `lo` count in the positions.

use crate::bits::{self, BitArray, wide};
use crate::block_array::{self, probe_width};
use crate::blocked::FoldError;
use crate::capability::{
    Describe, Description, InsertError, Insertion, ItemByItem, Merge, item_by_item,
};
use crate::hash::ItemHash;
use crate::kind::Kind;
use crate::range::HashRange;
use crate::shape::{BlockShape, CreateError, LINE_BITS, Shape, ShapeMismatch, check_equal};

/// A: the 64-bit multiplier of Steele & Vigna. Never to change: it is part of every stored filter.
pub(crate) const MULTIPLIER: u64 = 0xd134_2543_de82_ef95;

/// C: odd, so that every `lo`, 0 too, goes through all 2^64 values. Never to change either.
pub(crate) const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

/// How many items ahead of the current one a batch prefetches. All k lines of each, so fewer items
/// than where an item has one line. Measured in main memory: 8 and 16 are equal, 32 is slower.
const PREFETCH_DISTANCE: usize = 16;

/// A filter over a hash range whose probes are spread over blocks: [`Partitioned`](crate::Partitioned) if each probe
/// of an item has a part of the block for itself, else [`Classic`](crate::Classic).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpreadFilter<const HAS_PARTS: bool> {
    shape: BlockShape,
    bits: BitArray,
}

impl<const HAS_PARTS: bool> SpreadFilter<HAS_PARTS> {
    const KIND: Kind = if HAS_PARTS { Kind::Partitioned } else { Kind::Classic };

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
        Self::with_shape(BlockShape::new(Self::KIND, range, block_count, block_bits, probe_count)?)
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
        Self::with_shape(BlockShape::for_rate(Self::KIND, range, item_count, false_positive_rate)?)
    }

    /// An empty filter of this shape.
    ///
    /// # Errors
    /// If the shape is another kind's, or there is no memory.
    pub fn with_shape(shape: BlockShape) -> Result<Self, CreateError> {
        shape.check_kind(Self::KIND)?;
        Ok(Self { shape, bits: BitArray::new(shape.memory_bytes() / 64)? })
    }

    /// The blocks' bits, from the range's first block on, b / 64 words a block. Bit i of a block
    /// is bit i mod 64 of its word i / 64.
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

    /// The k positions that an item of the range sets in a filter of this shape, for who keeps its bits elsewhere:
    /// bit i is bit i mod 64 of word i / 64 of [`words`](Self::words). One may come twice if probes have no parts.
    ///
    /// ```
    /// use umbel_filter::{Classic, HashRange, Insert, ItemHash, Partitioned};
    ///
    /// let item = ItemHash::new(1, 2);
    /// let mut filter = Classic::new(HashRange::WHOLE, 1, 512, 3)?;
    /// filter.insert(item)?;
    /// let positions = Classic::positions(filter.block_shape(), item);
    /// assert_eq!(positions.map(|at| filter.words()[at as usize / 64] >> (at % 64) & 1).sum::<u64>(), 3);
    ///
    /// let mut filter = Partitioned::new(HashRange::WHOLE, 1, 512, 3)?;
    /// filter.insert(item)?;
    /// let positions = Partitioned::positions(filter.block_shape(), item);
    /// assert_eq!(positions.map(|at| filter.words()[at as usize / 64] >> (at % 64) & 1).sum::<u64>(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn positions(
        shape: BlockShape,
        hash: ItemHash,
    ) -> impl Iterator<Item = u64> + use<HAS_PARTS> {
        positions(shape, hash)
    }

    /// ORs a filter over a part of our hash range in and returns how many bits it newly set.
    ///
    /// # Errors
    /// If the shapes differ in more than the range, or the part leaves our range. Nothing was
    /// changed.
    pub fn merge_part(&mut self, part: &Self) -> Result<u64, ShapeMismatch> {
        block_array::merge_part((self.shape, &mut self.bits), (part.shape, &part.bits))
    }

    /// The filter of half the size that contains the same items: neighbouring blocks, ORed, or the
    /// neighbouring bits of a single block. Its rate is that of a filter that was made so small
    /// from the start.
    ///
    /// # Errors
    /// If the number of blocks over the whole hash space is odd and above 1, if a single block
    /// cannot be halved, or there is no memory.
    pub fn fold(&self) -> Result<Self, FoldError> {
        let (shape, bits) = block_array::fold(self.shape, &self.bits)?;
        Ok(Self { shape, bits })
    }
}

impl<const HAS_PARTS: bool> ItemByItem for SpreadFilter<HAS_PARTS> {
    #[inline]
    fn range(&self) -> HashRange {
        self.shape.range()
    }

    #[inline]
    fn has(&self, hash: ItemHash) -> bool {
        positions(self.shape, hash).all(|position| self.bits.bit(position))
    }

    #[inline]
    fn put(&mut self, hash: ItemHash) -> Result<Insertion, InsertError> {
        let mut outcome = Insertion::Present;
        for position in positions(self.shape, hash) {
            if self.bits.set(position) {
                outcome = Insertion::New;
            }
        }
        Ok(outcome)
    }

    /// Asks for the lines of the item some places behind this one.
    #[inline]
    fn prefetch_ahead(&self, hashes: &[ItemHash], at: usize, _inserts: bool) {
        let Some(&hash) = hashes.get(at + PREFETCH_DISTANCE) else { return };
        if wide::is_far(self.bits.lines()) && self.shape.range().contains(hash.hi()) {
            for position in positions(self.shape, hash) {
                wide::prefetch_far(self.bits.lines(), bits::index(position / u64::from(LINE_BITS)));
            }
        }
    }
}

item_by_item!(SpreadFilter<HAS_PARTS>, const HAS_PARTS: bool);

impl<const HAS_PARTS: bool> Merge for SpreadFilter<HAS_PARTS> {
    const IS_IDEMPOTENT: bool = true;

    fn merge(&mut self, other: &Self) -> Result<u64, ShapeMismatch> {
        check_equal(self.shape, other.shape)?;
        Ok(self.bits.or(&other.bits))
    }
}

impl<const HAS_PARTS: bool> Describe for SpreadFilter<HAS_PARTS> {
    fn shape(&self) -> Shape {
        self.shape.into()
    }

    fn describe(&self) -> Description {
        self.shape.describe(self.bits.count_ones())
    }
}

/// The k positions of an item of the shape's range, counted from the range's first block.
#[inline]
pub(crate) fn positions(shape: BlockShape, hash: ItemHash) -> impl Iterator<Item = u64> + use<> {
    let width = u64::from(probe_width(shape));
    let step = if matches!(shape.kind(), Kind::Partitioned) { width } else { 0 };
    let mut start = shape.map().block(hash.hi()) * u64::from(shape.block_bits());
    let mut value = hash.lo();
    (0..shape.probe_count()).map(move |_| {
        value = value.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
        let position = start + ((u128::from(value) * u128::from(width)) >> 64) as u64;
        start += step;
        position
    })
}
