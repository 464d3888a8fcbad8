//! Shapes: what must be equal for two filters to merge, and the errors of shapes that are none.

use std::fmt;

use thiserror::Error;

use crate::block_map::{BLOCK_COUNT_MAX, BlockMap};
use crate::kind::Kind;
use crate::lanes::BLOCK_PROBE_COUNT_MAX;
pub(crate) use crate::lanes::LINE_BITS;
use crate::quotient_layout::Layout;
use crate::range::HashRange;
use crate::redis_bloom_shape::RedisBloomShape;
use crate::scalable_shape::ScalableShape;
use crate::single_shot_shape::{POSITION_COUNT_MAX, SingleShotShape};
use crate::sizing::{
    CUCKOO_FINGERPRINT_BITS_MAX, CUCKOO_PAGE_SLOTS_MAX, FINGERPRINT_BITS_MAX, QUOTIENT_COUNT_BITS,
    QUOTIENT_COUNT_BITS_MAX, QUOTIENT_PAGE_SLOTS_MAX, QUOTIENT_PAGE_SLOTS_MIN,
    QUOTIENT_REMAINDER_BITS_MAX, SLICE_BITS, SizingError, WINDOW_BLOCK_SLOTS_MAX,
};
use crate::stable_pace::StablePace;

/// Largest block of the kinds that spread their probes, 2^19 bits or 64 KiB: their rate is within
/// half a percent of the unblocked one, and a hash range can still be cut at a border every 64 KiB.
pub const BLOCK_BITS_MAX: u32 = 1 << 19;

/// Positions of a block of an aging filter: a cache line of the newer generation, and behind it one of
/// the older.
pub const AGING_BLOCK_BITS: u32 = 2 * LINE_BITS;

/// Most probes of an item in the kinds that spread them: enough for the best filter of rate 2^-64,
/// and one byte in a frame.
pub const PROBE_COUNT_MAX: u32 = 64;

/// Largest filter in memory, 2^42 bytes (4 TiB), so that a size of any origin fails before it is
/// asked of the allocator, and sums of sizes stay far from 2^64.
pub const FILTER_BYTES_MAX: u64 = 1 << 42;

/// Shape of the kinds that are an array of blocks: [`Kind::Blocked`], [`Kind::Classic`],
/// [`Kind::Partitioned`], [`Kind::Counting`], [`Kind::Aging`], [`Kind::Stable`]; and [`Kind::Window`] and
/// [`Kind::Cuckoo`], where a position is a slot and the number of probes is that of bits of a fingerprint; and
/// [`Kind::Quotient`], where it is a quotient and that of bits of a remainder.
///
/// ```
/// use umbel_filter::{BlockShape, HashRange, Kind};
///
/// let shape = BlockShape::new(Kind::Blocked, HashRange::WHOLE, 1_000, 512, 6)?;
/// assert_eq!(shape.position_count(), 512_000);
/// assert_eq!(shape.memory_bytes(), 64_000);
/// # Ok::<(), umbel_filter::ShapeError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockShape {
    kind: Kind,
    map: BlockMap,
    block_bits: u32,
    /// A byte, so that two shapes fit into an error.
    probe_count: u8,
    /// Of quotient filters, else 0.
    count_bits: u8,
    pace: u64,
}

impl BlockShape {
    /// Checks the numbers: `block_count` blocks over the whole hash space, each of `block_bits`
    /// positions (512 for blocked, counting and stable, [`AGING_BLOCK_BITS`] for aging, else a multiple of 512 up
    /// to [`BLOCK_BITS_MAX`]), k = `probe_count` from 1 to [`BLOCK_PROBE_COUNT_MAX`] or [`PROBE_COUNT_MAX`], of a window 1 to
    /// [`FINGERPRINT_BITS_MAX`], of a cuckoo filter 1 to [`CUCKOO_FINGERPRINT_BITS_MAX`] and a power of two of
    /// positions; of a quotient filter a power of two of quotients from [`QUOTIENT_PAGE_SLOTS_MIN`] to
    /// [`QUOTIENT_PAGE_SLOTS_MAX`], and 1 to [`QUOTIENT_REMAINDER_BITS_MAX`].
    ///
    /// # Errors
    /// If the kind is no array of blocks, a number is out of its range, or the filter would be
    /// larger than [`FILTER_BYTES_MAX`].
    pub fn new(
        kind: Kind,
        range: HashRange,
        block_count: u64,
        block_bits: u32,
        probe_count: u32,
    ) -> Result<Self, ShapeError> {
        let (step, block_bits_max, probe_count_max) = match kind {
            Kind::Blocked | Kind::Counting | Kind::Stable => {
                (LINE_BITS, LINE_BITS, BLOCK_PROBE_COUNT_MAX)
            }
            Kind::Aging => (AGING_BLOCK_BITS, AGING_BLOCK_BITS, BLOCK_PROBE_COUNT_MAX),
            Kind::Classic | Kind::Partitioned => (LINE_BITS, BLOCK_BITS_MAX, PROBE_COUNT_MAX),
            Kind::Window => (LINE_BITS, WINDOW_BLOCK_SLOTS_MAX, FINGERPRINT_BITS_MAX),
            Kind::Cuckoo => (LINE_BITS, CUCKOO_PAGE_SLOTS_MAX, CUCKOO_FINGERPRINT_BITS_MAX),
            Kind::Quotient => {
                (QUOTIENT_PAGE_SLOTS_MIN, QUOTIENT_PAGE_SLOTS_MAX, QUOTIENT_REMAINDER_BITS_MAX)
            }
            Kind::SingleShot | Kind::Scalable | Kind::RedisBloom => {
                return Err(ShapeError::Kind { kind });
            }
        };
        if block_bits == 0 || !block_bits.is_multiple_of(step) || block_bits > block_bits_max {
            return Err(ShapeError::BlockBits { block_bits, step, block_bits_max });
        }
        if matches!(kind, Kind::Cuckoo | Kind::Quotient) && !block_bits.is_power_of_two() {
            return Err(ShapeError::PageSlots { page_slots: block_bits });
        }
        let stored = u8::try_from(probe_count);
        let Some(probe_count) =
            stored.ok().filter(|_| (1..=probe_count_max).contains(&probe_count))
        else {
            return Err(ShapeError::ProbeCount { probe_count, probe_count_max });
        };
        let map = BlockMap::new(range, block_count)?;
        let mut shape = Self { kind, map, block_bits, probe_count, count_bits: 0, pace: 0 };
        if kind == Kind::Quotient {
            shape = shape.with_count_bits(QUOTIENT_COUNT_BITS)?;
            let positions = (u128::from(block_count) * u128::from(block_bits)) << probe_count;
            if positions > POSITION_COUNT_MAX.into() {
                let position_count = u64::try_from(positions).unwrap_or(u64::MAX);
                return Err(ShapeError::PositionCount { position_count });
            }
        }
        let bytes = u128::from(map.len()) * u128::from(shape.block_lines()) * 64;
        if bytes > FILTER_BYTES_MAX.into() {
            return Err(ShapeError::TooLarge { bytes });
        }
        Ok(shape)
    }

    /// The same blocks, forgotten at this pace, which only kinds that forget by what comes have: of
    /// aging, the new items of a generation over the whole hash space, at least 1, of which a filter over a
    /// range takes its [share](HashRange::share_of); of stable, the number of a
    /// [`StablePace`](crate::StablePace), which is the same for every range: of half the cells that take half the
    /// inserts, each falls as fast.
    ///
    /// # Errors
    /// If the kind has no such pace.
    ///
    /// ```
    /// use umbel_filter::{AGING_BLOCK_BITS, BlockShape, HashRange, Kind};
    ///
    /// let shape = BlockShape::new(Kind::Aging, HashRange::WHOLE, 10, AGING_BLOCK_BITS, 7)?;
    /// assert_eq!(shape.with_pace(300)?.pace(), 300);
    /// assert!(shape.with_pace(0).is_err());
    /// // A generation of a third of the space has 100 items.
    /// let third = shape.with_pace(300)?.with_range(HashRange::new(0, (1 << 64) / 3)?)?;
    /// assert_eq!((third.pace(), third.range().share_of(third.pace())), (300, 100));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn with_pace(self, pace: u64) -> Result<Self, ShapeError> {
        let is_one = match self.kind {
            Kind::Aging => pace > 0,
            Kind::Stable => StablePace::of_number(pace).is_some(),
            _ => pace == 0,
        };
        if is_one {
            Ok(Self { pace, ..self })
        } else {
            Err(ShapeError::Pace { kind: self.kind, pace })
        }
    }

    /// How fast it forgets, as [`with_pace`](Self::with_pace) has it; 0 for the kinds that have none.
    #[must_use]
    pub const fn pace(self) -> u64 {
        self.pace
    }

    /// The same pages of a quotient filter, whose slots count with so many bits (v), 0 to
    /// [`QUOTIENT_COUNT_BITS_MAX`]: 1 to 2^v copies of an item. Without this there are [`QUOTIENT_COUNT_BITS`].
    ///
    /// # Errors
    /// If there are more, or any in another kind.
    ///
    /// ```
    /// use umbel_filter::{BlockShape, HashRange, Kind};
    ///
    /// let shape = BlockShape::new(Kind::Quotient, HashRange::WHOLE, 1, 1 << 16, 7)?;
    /// assert_eq!(shape.count_bits(), 2);
    /// // Two bits of each of 1,028 blocks of 64 slots.
    /// let set = shape.with_count_bits(0)?;
    /// assert_eq!(shape.memory_bytes() - set.memory_bytes(), 1_028 * 16);
    /// # Ok::<(), umbel_filter::ShapeError>(())
    /// ```
    pub const fn with_count_bits(self, count_bits: u32) -> Result<Self, ShapeError> {
        let is_one = match self.kind {
            Kind::Quotient => count_bits <= QUOTIENT_COUNT_BITS_MAX,
            _ => count_bits == 0,
        };
        if is_one {
            #[expect(clippy::cast_possible_truncation, reason = "checked")]
            let count_bits = count_bits as u8;
            Ok(Self { count_bits, ..self })
        } else {
            Err(ShapeError::CountBits { kind: self.kind, count_bits })
        }
    }

    /// Bits of a count of a quotient filter, v, as [`with_count_bits`](Self::with_count_bits) has it; else 0.
    #[must_use]
    pub const fn count_bits(self) -> u32 {
        self.count_bits as u32
    }

    /// The kind.
    #[must_use]
    pub const fn kind(self) -> Kind {
        self.kind
    }

    /// Where an item lives.
    #[inline]
    #[must_use]
    pub const fn map(self) -> BlockMap {
        self.map
    }

    /// The hash range whose items the filter holds.
    #[inline]
    #[must_use]
    pub const fn range(self) -> HashRange {
        self.map.range()
    }

    /// Positions of a block.
    #[inline]
    #[must_use]
    pub const fn block_bits(self) -> u32 {
        self.block_bits
    }

    /// Probes an item, k.
    #[inline]
    #[must_use]
    pub const fn probe_count(self) -> u32 {
        self.probe_count as u32
    }

    /// Number of positions in the range's blocks, m.
    #[must_use]
    pub const fn position_count(self) -> u64 {
        self.map.len() * self.block_bits as u64
    }

    /// Number of places for items in the range's blocks: of a quotient filter its spare slots too, of all other
    /// kinds the positions.
    ///
    /// ```
    /// use umbel_filter::{BlockShape, HashRange, Kind};
    ///
    /// let shape = BlockShape::new(Kind::Quotient, HashRange::WHOLE, 3, 1 << 16, 7)?;
    /// assert_eq!(shape.slot_count(), 3 * (65_536 + 256));
    /// # Ok::<(), umbel_filter::ShapeError>(())
    /// ```
    #[must_use]
    pub const fn slot_count(self) -> u64 {
        match self.kind {
            Kind::Quotient => self.map.len() * Layout::new(self).slot_count() as u64,
            _ => self.position_count(),
        }
    }

    /// How many blocks a part of these blocks lies from their first one; None if it leaves the range, or
    /// its kind, blocks, probes or pace are others.
    ///
    /// ```
    /// use umbel_filter::{BlockShape, HashRange, Kind};
    /// let whole = BlockShape::new(Kind::Blocked, HashRange::WHOLE, 100, 512, 7)?;
    /// let upper = HashRange::new(1 << 63, 1 << 64)?;
    /// assert_eq!(whole.offset_of(whole.with_range(upper)?), Some(50));
    /// let other = BlockShape::new(Kind::Blocked, upper, 100, 512, 8)?;
    /// assert_eq!(whole.offset_of(other), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn offset_of(self, part: Self) -> Option<u64> {
        let is_alike = self.kind == part.kind
            && self.block_bits == part.block_bits
            && self.probe_count == part.probe_count
            && self.count_bits == part.count_bits
            && self.pace == part.pace;
        self.map.offset_of(part.map).filter(|_| is_alike)
    }

    /// The same, for who cannot do without.
    pub(crate) fn part_offset(self, part: Self) -> Result<u64, ShapeMismatch> {
        let mismatch = ShapeMismatch { ours: self.into(), theirs: part.into() };
        self.offset_of(part).ok_or(mismatch)
    }

    /// Bytes that the range's blocks take in memory.
    #[must_use]
    pub const fn memory_bytes(self) -> u64 {
        self.map.len() * self.block_lines() * 64
    }

    /// The same blocks for a part of the range.
    ///
    /// # Errors
    /// None for a part of the range; a larger range may be too large.
    pub fn with_range(self, range: HashRange) -> Result<Self, ShapeError> {
        let Self { kind, map, block_bits, probe_count, count_bits, pace } = self;
        let shape = Self::new(kind, range, map.block_count(), block_bits, probe_count.into())?;
        Ok(Self { count_bits, pace, ..shape })
    }

    /// Refuses the shape of another kind than this.
    pub(crate) fn check_kind(self, kind: Kind) -> Result<(), ShapeError> {
        if self.kind == kind { Ok(()) } else { Err(ShapeError::Kind { kind: self.kind }) }
    }

    /// Cache lines of a block: a counter takes four bits, a slot its fingerprint, and of a window its slice.
    #[inline]
    pub(crate) const fn block_lines(self) -> u64 {
        let lines = (self.block_bits / LINE_BITS) as u64;
        match self.kind {
            Kind::Counting | Kind::Stable => 4 * lines,
            Kind::Window => (self.probe_count() + SLICE_BITS) as u64 * lines,
            Kind::Cuckoo => self.probe_count() as u64 * lines,
            Kind::Quotient => Layout::page_lines(self),
            _ => lines,
        }
    }
}

impl fmt::Display for BlockShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, last) = (self.range().start(), self.range().last());
        write!(
            f,
            "{}, {} blocks of {} with {} probes over hashes {start} to {last}",
            self.kind,
            self.map.block_count(),
            self.block_bits,
            self.probe_count
        )?;
        if self.kind == Kind::Quotient {
            write!(f, " and counts of {} bits", self.count_bits)?;
        }
        if self.pace == 0 { Ok(()) } else { write!(f, " at a pace of {}", self.pace) }
    }
}

/// What must be equal for two filters to merge: kind, hash range, size and probes.
///
/// ```
/// use umbel_filter::{HashRange, Kind, Shape, SingleShotShape};
///
/// let shape = Shape::from(SingleShotShape::new(HashRange::WHOLE, 16)?);
/// assert_eq!(shape.kind(), Kind::SingleShot);
/// # Ok::<(), umbel_filter::ShapeError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Shape {
    /// An array of blocks.
    Blocks(BlockShape),
    /// Sorted positions.
    SingleShot(SingleShotShape),
    /// A chain of filters.
    Scalable(ScalableShape),
    /// RedisBloom's chain of filters.
    RedisBloom(RedisBloomShape),
}

impl Shape {
    /// The kind.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::Blocks(shape) => shape.kind(),
            Self::SingleShot(_) => Kind::SingleShot,
            Self::Scalable(_) => Kind::Scalable,
            Self::RedisBloom(_) => Kind::RedisBloom,
        }
    }

    /// The hash range whose items the filter holds.
    #[must_use]
    pub const fn range(self) -> HashRange {
        match self {
            Self::Blocks(shape) => shape.range(),
            Self::SingleShot(shape) => shape.range(),
            Self::Scalable(shape) => shape.range(),
            Self::RedisBloom(_) => HashRange::WHOLE,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocks(shape) => shape.fmt(f),
            Self::SingleShot(shape) => shape.fmt(f),
            Self::Scalable(shape) => shape.fmt(f),
            Self::RedisBloom(shape) => shape.fmt(f),
        }
    }
}

impl From<BlockShape> for Shape {
    fn from(shape: BlockShape) -> Self {
        Self::Blocks(shape)
    }
}

impl From<SingleShotShape> for Shape {
    fn from(shape: SingleShotShape) -> Self {
        Self::SingleShot(shape)
    }
}

impl From<ScalableShape> for Shape {
    fn from(shape: ScalableShape) -> Self {
        Self::Scalable(shape)
    }
}

impl From<RedisBloomShape> for Shape {
    fn from(shape: RedisBloomShape) -> Self {
        Self::RedisBloom(shape)
    }
}

/// The numbers are no shape. Fix the caller, or refuse the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// Name a position count within the limits.
    #[error("{position_count} positions, expected 1 to {POSITION_COUNT_MAX}")]
    PositionCount {
        /// The count that was asked for.
        position_count: u64,
    },
    /// Name a block count within the limits.
    #[error("{block_count} blocks, expected 1 to {BLOCK_COUNT_MAX}")]
    BlockCount {
        /// The count that was asked for.
        block_count: u64,
    },
    /// Name a block size within the kind's limits.
    #[error(
        "blocks of {block_bits} positions, expected a multiple of {step} up to {block_bits_max}"
    )]
    BlockBits {
        /// The size that was asked for.
        block_bits: u32,
        /// What the kind's sizes are multiples of.
        step: u32,
        /// The kind's largest.
        block_bits_max: u32,
    },
    /// Name a page size that is a power of two.
    #[error("pages of {page_slots} slots, expected a power of two")]
    PageSlots {
        /// The size that was asked for.
        page_slots: u32,
    },
    /// Name a number of probes within the kind's limits.
    #[error("{probe_count} probes per item, expected 1 to {probe_count_max}")]
    ProbeCount {
        /// The number that was asked for.
        probe_count: u32,
        /// The kind's largest.
        probe_count_max: u32,
    },
    /// Name a pace that the kind has.
    #[error("a {kind} filter at a pace of {pace}, which the kind has not")]
    Pace {
        /// The kind.
        kind: Kind,
        /// The pace that was asked for.
        pace: u64,
    },
    /// Name a count that the kind has.
    #[error(
        "counts of {count_bits} bits in a {kind} filter, expected at most {QUOTIENT_COUNT_BITS_MAX} in a quotient filter"
    )]
    CountBits {
        /// The kind.
        kind: Kind,
        /// The bits that were asked for.
        count_bits: u32,
    },
    /// The kind has a shape of its own.
    #[error("a {kind} filter is no array of blocks")]
    Kind {
        /// The kind that was asked for.
        kind: Kind,
    },
    /// The kind's layout cannot be cut: make one filter over the whole hash space.
    #[error("a {kind} filter over a part of the hash space, expected one over all of it")]
    Part {
        /// The kind that was asked for.
        kind: Kind,
    },
    /// Plan a smaller filter, or cut it by hash range.
    #[error("filter of {bytes} bytes, expected at most {FILTER_BYTES_MAX}")]
    TooLarge {
        /// The size that was asked for.
        bytes: u128,
    },
}

/// Why a filter was not created.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum CreateError {
    /// No filter has such a shape. Fix the numbers.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// No filter reaches such a rate, or is made for so many items. Fix the numbers.
    #[error(transparent)]
    Sizing(#[from] SizingError),
    /// The allocator refused. Free memory, or plan a smaller filter.
    #[error("no memory for a filter of {bytes} bytes")]
    OutOfMemory {
        /// The size that was asked for.
        bytes: u64,
    },
}

/// Two filters differ in shape, so their positions mean different items. Build one of them anew
/// with the other's shape; nothing was changed.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[error("shape mismatch: ours is {ours}; theirs {theirs}")]
pub struct ShapeMismatch {
    /// Shape of the filter that was to be changed.
    pub ours: Shape,
    /// Shape of the filter that was to be merged into it.
    pub theirs: Shape,
}

/// Refuses to merge shapes that differ.
pub(crate) fn check_equal<S: Copy + PartialEq + Into<Shape>>(
    ours: S,
    theirs: S,
) -> Result<(), ShapeMismatch> {
    if ours == theirs {
        return Ok(());
    }
    Err(ShapeMismatch { ours: ours.into(), theirs: theirs.into() })
}
