//! The shape of a filter's slices, as plain numbers.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use umbel_codec::FrameView;
use umbel_filter::{
    AnyFilter, BlockShape, CreateError, HashRange, Kind, RedisBloom, RedisBloomLinkShape,
    RedisBloomShape, Scalable, ScalableShape, Shape, ShapeError, SingleShotShape, SliceRing,
    StoredSingleShot,
};

use super::window_rules::{WindowRules, WindowTime};
use crate::limits::SLICE_BYTES_MAX;

/// The parameters from which every replica builds the same slice over its shard's hash range.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum SliceShape {
    /// Blocked, classic, partitioned, counting, cuckoo or quotient.
    Blocks {
        /// [`Kind::id`](umbel_filter::Kind::id).
        kind: u8,
        /// Blocks over the whole hash space.
        block_count: u64,
        /// Positions per block; for a cuckoo filter slots, for a quotient filter quotients.
        block_bits: u32,
        /// Probes per item; for a cuckoo filter bits of a fingerprint, for a quotient filter bits of a
        /// remainder.
        probe_count: u32,
    },
    /// Single-shot.
    SingleShot {
        /// Positions over the whole hash space.
        position_count: u64,
    },
    /// Scalable.
    Scalable {
        /// Items of the first level over the whole hash space; a shard gets its
        /// [share](HashRange::share_of) of them.
        item_count: u64,
        /// Upper bound of the false-positive rate.
        false_positive_rate: f64,
    },
    /// A windowed filter.
    Window {
        /// Blocks over the whole hash space.
        block_count: u64,
        /// Slots per block.
        block_slots: u32,
        /// Bits per fingerprint.
        fingerprint_bits: u32,
        /// When and how it forgets.
        rules: WindowRules,
    },
    /// A filter that forgets as it takes inserts: aging or stable.
    Paced {
        /// [`Kind::id`](umbel_filter::Kind::id).
        kind: u8,
        /// Blocks over the whole hash space.
        block_count: u64,
        /// Positions per block.
        block_bits: u32,
        /// Probes per item.
        probe_count: u32,
        /// [`BlockShape::pace`]; for an aging filter, a number over the whole hash space.
        pace: u64,
    },
    /// A replicated windowed filter: a ring of time slices in one blocked filter.
    Ring {
        /// Blocks per time slice.
        block_count: u64,
        /// Probes per item.
        probe_count: u32,
        /// When and how it forgets.
        rules: WindowRules,
        /// The newest time slice among the bits that are exported with this shape; 0 in the catalogue.
        newest: u64,
    },
    /// A RedisBloom chain, entirely in one shard.
    RedisBloom {
        /// A position in the hash space: the chain lives in the shard whose range contains it.
        place: u64,
        /// Capacity of the first link.
        first_capacity: u64,
        /// False-positive rate of the first link.
        first_rate: f64,
        /// Factor by which capacity grows from link to link.
        expansion: u32,
        /// Whether the chain never adds a second link.
        is_fixed: bool,
    },
}

/// Why the numbers describe no slice, or one that is too large for this process. Nothing was allocated.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum SliceShapeError {
    /// This release does not know the kind: name another one, or update the release.
    #[error("no release up to this one knows a filter of kind {kind}")]
    UnknownKind {
        /// The number of the kind.
        kind: u8,
    },
    /// The numbers describe no filter, or there is no memory for it; [`CreateError`] says which.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The window's parameters are invalid.
    #[error("{what}")]
    Window {
        /// What was expected and what was received.
        what: String,
    },
    /// The slice cannot grow that often, because no remainder bits would be left. Create a filter for more
    /// items.
    #[error("a slice that grew {times} times, and no remainder is left of that")]
    NoGrowth {
        /// The requested number of growths.
        times: u32,
    },
    /// Plan a smaller filter or more shards.
    #[error("slice of {slice_bytes} bytes, expected at most {SLICE_BYTES_MAX}")]
    TooLarge {
        /// The requested size.
        slice_bytes: u64,
    },
}

impl SliceShape {
    /// The kind of the filter.
    ///
    /// # Errors
    /// If this release does not know it.
    ///
    /// ```
    /// use umbel_engine::shard::SliceShape;
    /// use umbel_filter::Kind;
    ///
    /// assert_eq!(SliceShape::SingleShot { position_count: 16 }.kind(), Ok(Kind::SingleShot));
    /// ```
    pub fn kind(&self) -> Result<Kind, SliceShapeError> {
        match *self {
            Self::Blocks { kind, .. } | Self::Paced { kind, .. } => {
                Kind::from_id(kind).ok_or(SliceShapeError::UnknownKind { kind })
            }
            Self::SingleShot { .. } => Ok(Kind::SingleShot),
            Self::Scalable { .. } => Ok(Kind::Scalable),
            Self::Window { .. } | Self::Ring { .. } => Ok(Kind::Window),
            Self::RedisBloom { .. } => Ok(Kind::RedisBloom),
        }
    }

    /// Whether this is a window whose slices end when the filter is rotated manually.
    #[must_use]
    pub const fn is_rotated_by_hand(&self) -> bool {
        matches!(self, Self::Window { rules, .. } if matches!(rules.time, WindowTime::Manual))
    }

    /// The shape of the slice over a hash range.
    ///
    /// # Errors
    /// If the numbers describe no filter.
    pub fn shape(&self, range: HashRange) -> Result<Shape, SliceShapeError> {
        Ok(match *self {
            Self::Blocks { block_count, block_bits, probe_count, .. } => {
                let kind = self.kind()?;
                if kind == Kind::Window || kind.has_pace() {
                    return Err(CreateError::from(ShapeError::Kind { kind }).into());
                }
                BlockShape::new(kind, range, block_count, block_bits, probe_count)
                    .map_err(CreateError::from)?
                    .into()
            }
            Self::Window { block_count, block_slots, fingerprint_bits, rules } => {
                rules.check().map_err(|what| SliceShapeError::Window { what })?;
                BlockShape::new(Kind::Window, range, block_count, block_slots, fingerprint_bits)
                    .map_err(CreateError::from)?
                    .into()
            }
            Self::Paced { block_count, block_bits, probe_count, pace, .. } => {
                let kind = self.kind()?;
                if !kind.has_pace() {
                    return Err(CreateError::from(ShapeError::Kind { kind }).into());
                }
                BlockShape::new(kind, range, block_count, block_bits, probe_count)
                    .and_then(|shape| shape.with_pace(pace))
                    .map_err(CreateError::from)?
                    .into()
            }
            Self::Ring { .. } if range != HashRange::WHOLE => {
                let what = "a ring of slices is whole, and has no parts by hash".to_owned();
                return Err(SliceShapeError::Window { what });
            }
            Self::Ring { .. } => match self.ring()? {
                Some(ring) => ring.block_shape().into(),
                None => {
                    return Err(CreateError::from(ShapeError::Kind { kind: Kind::Window }).into());
                }
            },
            Self::SingleShot { position_count } => {
                SingleShotShape::new(range, position_count).map_err(CreateError::from)?.into()
            }
            Self::Scalable { item_count, false_positive_rate } => {
                ScalableShape::new(range, item_count, false_positive_rate)
                    .map_err(CreateError::from)?
                    .into()
            }
            Self::RedisBloom { first_capacity, first_rate, expansion, is_fixed, .. } => {
                let shape = RedisBloomShape::new(first_capacity, first_rate, expansion)?;
                if is_fixed { shape.fixed() } else { shape }.into()
            }
        })
    }

    /// The position in the hash space of a filter that lies entirely in one shard; None for a filter that
    /// is cut.
    ///
    /// ```
    /// use umbel_engine::shard::SliceShape;
    /// use umbel_filter::{CellCount, HashRange, RedisBloomShape};
    ///
    /// let shape = SliceShape::from(RedisBloomShape::for_rate(1_000, 0.01)?).placed(3 << 62);
    /// assert_eq!(shape.place(), Some(3 << 62));
    /// // 1,000 · 11.03 bits are 1,384 bytes, in whole lines, and nothing in the three other shards.
    /// let cells = CellCount::new(4)?;
    /// let bytes = |shard| shape.memory_bytes(HashRange::cell(shard, cells));
    /// assert_eq!((bytes(2)?, bytes(3)?), (0, 1_408));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn place(&self) -> Option<u64> {
        match *self {
            Self::RedisBloom { place, .. } => Some(place),
            _ => None,
        }
    }

    /// The same shape at this position, if the filter lies entirely in one shard.
    #[must_use]
    pub fn placed(mut self, at: u64) -> Self {
        if let Self::RedisBloom { place, .. } = &mut self {
            *place = at;
        }
        self
    }

    /// Whether a slice over this range holds anything: false if the filter lives in another shard.
    pub(super) fn lives_in(&self, range: HashRange) -> bool {
        self.place().is_none_or(|place| range.contains(place))
    }

    /// The shape of the slice over a hash range to which a frame belongs; for a quotient filter, its shape
    /// after growing.
    pub(super) fn shape_of_frame(
        &self,
        range: HashRange,
        frame: &FrameView<'_>,
    ) -> Result<Shape, SliceShapeError> {
        let planned = self.shape(range)?;
        let grown = match (planned, frame.shape()) {
            (Shape::Blocks(planned), Shape::Blocks(part)) => {
                planned.growths_to(part).and_then(|times| planned.growths().nth(times as usize))
            }
            _ => None,
        };
        Ok(grown.map_or(planned, Shape::from))
    }

    /// The layout of time slices in the blocks of a replicated windowed filter; None for other filters.
    ///
    /// ```
    /// use umbel_engine::shard::{LateItems, SliceShape, WindowRules, WindowTime};
    ///
    /// let rules = WindowRules {
    ///     slice_ms: 60_000, slice_count: 10, time: WindowTime::Ingest, late: LateItems::Reject,
    ///     refresh: true,
    /// };
    /// let shape = SliceShape::Ring { block_count: 100, probe_count: 6, rules, newest: 0 };
    /// // Ten slices, the one at hand, and the one that clocks may differ by.
    /// assert_eq!(shape.ring()?.unwrap().block_shape().map().block_count(), 1_200);
    /// # Ok::<(), umbel_engine::shard::SliceShapeError>(())
    /// ```
    ///
    /// # Errors
    /// If the numbers describe no ring.
    pub fn ring(&self) -> Result<Option<SliceRing>, SliceShapeError> {
        let Self::Ring { block_count, probe_count, rules, newest } = *self else { return Ok(None) };
        rules.check().map_err(|what| SliceShapeError::Window { what })?;
        let ring = SliceRing::new(block_count, probe_count, rules.slice_count);
        Ok(Some(ring.map_err(CreateError::from)?.at(newest, newest)))
    }

    /// How a windowed filter forgets; None for other filters.
    #[must_use]
    pub const fn window_rules(&self) -> Option<&WindowRules> {
        match self {
            Self::Window { rules, .. } | Self::Ring { rules, .. } => Some(rules),
            _ => None,
        }
    }

    /// Bytes of an empty slice. A slice of blocks keeps this size, unless it is a quotient filter's. A
    /// scalable slice starts with its first level, a RedisBloom slice with its first link in the shard
    /// where it lives, and a single-shot slice with practically nothing. These four kinds grow up to
    /// [`SLICE_BYTES_MAX`].
    ///
    /// # Errors
    /// If the numbers describe no filter.
    ///
    /// ```
    /// use umbel_engine::shard::SliceShape;
    /// use umbel_filter::{CellCount, HashRange, Kind};
    ///
    /// let (kind, probe_count) = (Kind::Blocked.id(), 6);
    /// let shape = SliceShape::Blocks { kind, block_count: 100, block_bits: 512, probe_count };
    /// let quarter = HashRange::cell(0, CellCount::new(4)?);
    /// assert_eq!(shape.memory_bytes(quarter)?, 25 * 64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn memory_bytes(&self, range: HashRange) -> Result<u64, SliceShapeError> {
        Ok(match self.shape(range)? {
            Shape::Blocks(shape) => shape.memory_bytes(),
            Shape::SingleShot(_) => 0,
            Shape::Scalable(shape) => level_bytes(shape, 0)?,
            Shape::RedisBloom(_) if !self.lives_in(range) => 0,
            Shape::RedisBloom(shape) => shape.link(0)?.memory_bytes(),
        })
    }

    /// Bytes that a slice takes beyond its empty size after growing `times` times: for a scalable filter,
    /// all levels from 1 to `times`; for RedisBloom, all links from 1 to `times`; for a quotient filter,
    /// 2^`times` times the quotients. 0 for other kinds.
    ///
    /// # Errors
    /// If the numbers describe no filter, or it cannot grow so often.
    ///
    /// ```
    /// use umbel_engine::shard::SliceShape;
    /// use umbel_filter::{HashRange, Kind};
    ///
    /// let bytes = |shape: SliceShape, times| shape.growth_bytes(HashRange::WHOLE, times);
    /// let scalable = SliceShape::Scalable { item_count: 1_000, false_positive_rate: 0.01 };
    /// assert_eq!(bytes(scalable, 0)?, 0);
    /// // Levels 1 and 2 are for twice and four times as many items, and err half as often each.
    /// assert!(bytes(scalable, 2)? > 3 * bytes(scalable, 1)?);
    ///
    /// let (kind, block_count) = (Kind::Quotient.id(), 1);
    /// let quotient = SliceShape::Blocks { kind, block_count, block_bits: 1 << 16, probe_count: 6 };
    /// // 65,792 slots of 8 bits and 2 more and 1,028 offsets, then two pages of 7 and 2 more, each in whole lines.
    /// assert_eq!((quotient.memory_bytes(HashRange::WHOLE)?, bytes(quotient, 1)?), (83_328, 2 * 75_072 - 83_328));
    /// assert!(bytes(quotient, 6).is_err(), "a remainder has a bit at least");
    /// # Ok::<(), umbel_engine::shard::SliceShapeError>(())
    /// ```
    pub fn growth_bytes(&self, range: HashRange, times: u32) -> Result<u64, SliceShapeError> {
        match self.shape(range)? {
            Shape::Scalable(shape) => (1..=times).try_fold(0_u64, |bytes, level| {
                Ok(bytes.saturating_add(level_bytes(shape, level)?))
            }),
            Shape::RedisBloom(shape) if self.lives_in(range) => {
                (1..=times).try_fold(0_u64, |bytes, link| {
                    let bytes_of = RedisBloomLinkShape::memory_bytes;
                    Ok(bytes.saturating_add(shape.link(link).map(bytes_of)?))
                })
            }
            Shape::Blocks(shape) if shape.kind() == Kind::Quotient => {
                let grown = shape.growths().nth(times as usize);
                let grown = grown.ok_or(SliceShapeError::NoGrowth { times })?;
                Ok(grown.memory_bytes() - shape.memory_bytes())
            }
            _ => Ok(0),
        }
    }

    /// How often the slice over this range to which a frame belongs, or its part, has grown. None for a
    /// frame of another filter.
    #[must_use]
    pub fn growths_of_frame(&self, range: HashRange, frame: &FrameView<'_>) -> Option<u32> {
        match (self.shape(range).ok()?, frame.shape()) {
            (Shape::Blocks(shape), Shape::Blocks(part)) => shape.growths_to(part),
            _ => Some(frame.level()?.level),
        }
    }

    /// An empty slice over a hash range.
    ///
    /// # Errors
    /// If the numbers describe no filter, the slice exceeds [`SLICE_BYTES_MAX`], or there is not enough
    /// memory.
    pub fn create(&self, range: HashRange) -> Result<AnyFilter, SliceShapeError> {
        let slice_bytes = self.memory_bytes(range)?;
        if slice_bytes > SLICE_BYTES_MAX {
            return Err(SliceShapeError::TooLarge { slice_bytes });
        }
        self.create_of_any_size(range)
    }

    /// An empty copy of a replicated filter. Its size is limited by the filter's settings.
    ///
    /// ```
    /// use umbel_engine::shard::SliceShape;
    /// use umbel_filter::{Describe, Shape};
    ///
    /// let copy = SliceShape::SingleShot { position_count: 16 }.create_copy()?;
    /// let Shape::SingleShot(shape) = copy.shape() else { panic!("another kind") };
    /// assert_eq!(shape.position_count(), 16);
    /// # Ok::<(), umbel_engine::shard::SliceShapeError>(())
    /// ```
    ///
    /// # Errors
    /// If the numbers describe no filter, or there is not enough memory.
    pub fn create_copy(&self) -> Result<AnyFilter, SliceShapeError> {
        self.create_of_any_size(HashRange::WHOLE)
    }

    fn create_of_any_size(&self, range: HashRange) -> Result<AnyFilter, SliceShapeError> {
        Ok(match self.shape(range)? {
            Shape::Blocks(shape) => AnyFilter::with_block_shape(shape)?,
            Shape::SingleShot(shape) => StoredSingleShot::new(shape).into(),
            Shape::Scalable(shape) => {
                Scalable::new(range, shape.first_capacity(), shape.false_positive_rate())?.into()
            }
            Shape::RedisBloom(shape) if self.lives_in(range) => {
                RedisBloom::with_shape(shape)?.into()
            }
            Shape::RedisBloom(shape) => RedisBloom::elsewhere(shape).into(),
        })
    }
}

/// A chain at position 0 of the hash space, until it is [placed](SliceShape::placed).
impl From<RedisBloomShape> for SliceShape {
    fn from(shape: RedisBloomShape) -> Self {
        Self::RedisBloom {
            place: 0,
            first_capacity: shape.first_capacity(),
            first_rate: shape.first_rate(),
            expansion: shape.expansion(),
            is_fixed: shape.is_fixed(),
        }
    }
}

/// Bytes of one level of a scalable slice.
pub(super) fn level_bytes(shape: ScalableShape, level: u32) -> Result<u64, CreateError> {
    shape.level(level).map(|(_, blocks)| blocks.memory_bytes())
}

/// Upper bound of the bytes that a single-shot filter takes with `more` positions than it has. Equal on all
/// replicas, which allocated bytes need not be.
///
/// ```
/// use umbel_engine::shard::{SliceShape, single_shot_bytes};
/// use umbel_filter::AnyFilter;
///
/// let shape = SliceShape::SingleShot { position_count: 1 << 20 };
/// let AnyFilter::SingleShot(empty) = shape.create_copy()? else { unreachable!() };
/// // Every 1,024th position: 10 bits for the gap, and at most 4 more.
/// assert_eq!(single_shot_bytes(&empty, 1 << 10), (1 << 10) * (10 + 4) / 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn single_shot_bytes(filter: &StoredSingleShot, more: u64) -> u64 {
    positions_bytes(filter.single_shot_shape().width(), filter.len().saturating_add(more))
}

/// Upper bound of the bytes that this many positions of a single-shot slice take, about two bits per
/// position above the actual size. In integers, so that all replicas agree.
pub(super) fn positions_bytes(width: u64, position_count: u64) -> u64 {
    let gap = width / position_count.max(1);
    let bits = u64::from(gap.max(1).ilog2()) + 4;
    position_count.saturating_mul(bits) / 8
}
