//! The shape of a filter's slices as plain numbers.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use umbel_codec::FrameView;
use umbel_filter::{
    Aging, AnyFilter, BlockShape, Blocked, Classic, Counting, CreateError, Cuckoo, HashRange, Kind,
    Partitioned, Quotient, RedisBloom, RedisBloomLinkShape, RedisBloomShape, Scalable,
    ScalableShape, Shape, ShapeError, SingleShotShape, SliceRing, Stable, StoredSingleShot, Window,
};

use super::windowed::{WindowRules, WindowTime};
use crate::limits::SLICE_BYTES_MAX;

/// What every replica builds alike, over the shard's hash range.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum SliceShape {
    /// Blocked, classic, partitioned, counting, cuckoo or quotient.
    Blocks {
        /// [`Kind::id`](umbel_filter::Kind::id).
        kind: u8,
        /// Blocks over the whole hash space.
        block_count: u64,
        /// Positions of a block; of a cuckoo filter slots, of a quotient filter quotients.
        block_bits: u32,
        /// Probes an item; of a cuckoo filter bits of a fingerprint, of a quotient filter those of a remainder.
        probe_count: u32,
    },
    /// Single-shot.
    SingleShot {
        /// Positions over the whole hash space.
        position_count: u64,
    },
    /// Scalable.
    Scalable {
        /// Items of the first level over the whole hash space, of which a shard has its
        /// [share](HashRange::share_of).
        item_count: u64,
        /// Bound of the false-positive rate.
        false_positive_rate: f64,
    },
    /// A window.
    Window {
        /// Blocks over the whole hash space.
        block_count: u64,
        /// Slots of a block.
        block_slots: u32,
        /// Bits of a fingerprint.
        fingerprint_bits: u32,
        /// How it forgets.
        rules: WindowRules,
    },
    /// A filter that forgets by what comes: aging or stable.
    Paced {
        /// [`Kind::id`](umbel_filter::Kind::id).
        kind: u8,
        /// Blocks over the whole hash space.
        block_count: u64,
        /// Positions of a block.
        block_bits: u32,
        /// Probes an item.
        probe_count: u32,
        /// [`BlockShape::pace`]: of an aging filter a number over the whole hash space.
        pace: u64,
    },
    /// A window of a replicated filter: a ring of slices of time in one blocked filter.
    Ring {
        /// Blocks of a slice of time.
        block_count: u64,
        /// Probes an item.
        probe_count: u32,
        /// How it forgets.
        rules: WindowRules,
        /// The newest slice of the bits that are exported with this shape; 0 in the catalogue.
        newest: u64,
    },
    /// RedisBloom's chain, whole in one shard.
    RedisBloom {
        /// A place in the hash space: the chain lives in the shard whose range has it.
        place: u64,
        /// Items of the first link.
        first_capacity: u64,
        /// Rate of the first link.
        first_rate: f64,
        /// By how much capacities rise.
        expansion: u32,
        /// Whether the first link is the only one.
        is_fixed: bool,
    },
}

/// The numbers are no slice, or none that this process can hold. Nothing was allocated.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum SliceShapeError {
    /// Name a kind that this release knows, or update it.
    #[error("no release up to this one knows a filter of kind {kind}")]
    UnknownKind {
        /// The number that was named.
        kind: u8,
    },
    /// No filter has such numbers, or there is no memory for it: [`CreateError`] says which.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// Name a window that there is.
    #[error("{what}")]
    Window {
        /// What was expected and what came.
        what: String,
    },
    /// Create a filter for more items.
    #[error("a slice that grew {times} times, and no remainder is left of that")]
    NoGrowth {
        /// The number that was asked for.
        times: u32,
    },
    /// Plan a smaller filter, or more shards.
    #[error("slice of {slice_bytes} bytes, expected at most {SLICE_BYTES_MAX}")]
    TooLarge {
        /// The size that was asked for.
        slice_bytes: u64,
    },
}

impl SliceShape {
    /// The kind.
    ///
    /// # Errors
    /// If no release knows it.
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

    /// Whether it is a window whose slices end when somebody rotates the filter.
    #[must_use]
    pub const fn is_rotated_by_hand(&self) -> bool {
        matches!(self, Self::Window { rules, .. } if matches!(rules.time, WindowTime::Manual))
    }

    /// The shape of the slice for a hash range.
    ///
    /// # Errors
    /// If no filter has such numbers.
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

    /// Where in the hash space a filter lives that is whole in one shard; None of one that is cut.
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

    /// The same, living at this place if it is whole in one shard.
    #[must_use]
    pub fn placed(mut self, at: u64) -> Self {
        if let Self::RedisBloom { place, .. } = &mut self {
            *place = at;
        }
        self
    }

    /// Whether a slice over this range has anything: not if the filter lives in another shard.
    pub(super) fn lives_in(&self, range: HashRange) -> bool {
        self.place().is_none_or(|place| range.contains(place))
    }

    /// The shape of the slice for a hash range of which this is a frame: of a quotient filter as it has grown.
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

    /// Which slices of time the blocks of a replicated filter are of, if they are of any.
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
    /// If no ring has such numbers.
    pub fn ring(&self) -> Result<Option<SliceRing>, SliceShapeError> {
        let Self::Ring { block_count, probe_count, rules, newest } = *self else { return Ok(None) };
        rules.check().map_err(|what| SliceShapeError::Window { what })?;
        let ring = SliceRing::new(block_count, probe_count, rules.slice_count);
        Ok(Some(ring.map_err(CreateError::from)?.at(newest, newest)))
    }

    /// How a window forgets.
    #[must_use]
    pub const fn window_rules(&self) -> Option<&WindowRules> {
        match self {
            Self::Window { rules, .. } | Self::Ring { rules, .. } => Some(rules),
            _ => None,
        }
    }

    /// Bytes that an empty slice takes. A slice of blocks stays at that, unless it is a quotient filter's; a scalable
    /// one begins with its first level, RedisBloom's with its first link in the shard where it lives, a single-shot one
    /// with nothing worth counting; these four grow up to [`SLICE_BYTES_MAX`].
    ///
    /// # Errors
    /// If no filter has such numbers.
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

    /// Bytes beyond those of an empty slice that one which grows takes when it has grown so often: a scalable one to this
    /// level, of all levels counted from 0 on, RedisBloom's to this link, a quotient filter's to 2^`times` times the quotients; 0 for a
    /// slice of another kind.
    ///
    /// # Errors
    /// If no filter has such numbers, or does not grow so often.
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

    /// How often a slice over this range has grown of which this is a frame, or its part; None of a frame of
    /// another filter.
    #[must_use]
    pub fn growths_of_frame(&self, range: HashRange, frame: &FrameView<'_>) -> Option<u32> {
        match (self.shape(range).ok()?, frame.shape()) {
            (Shape::Blocks(shape), Shape::Blocks(part)) => shape.growths_to(part),
            _ => Some(frame.level()?.level),
        }
    }

    /// The empty slice for a hash range.
    ///
    /// # Errors
    /// If no filter has such numbers, the slice is larger than [`SLICE_BYTES_MAX`], or there is no
    /// memory.
    pub fn create(&self, range: HashRange) -> Result<AnyFilter, SliceShapeError> {
        let slice_bytes = self.memory_bytes(range)?;
        if slice_bytes > SLICE_BYTES_MAX {
            return Err(SliceShapeError::TooLarge { slice_bytes });
        }
        self.create_of_any_size(range)
    }

    /// An empty copy of a replicated filter, whose settings bound its size.
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
    /// If no filter has such numbers, or there is no memory.
    pub fn create_copy(&self) -> Result<AnyFilter, SliceShapeError> {
        self.create_of_any_size(HashRange::WHOLE)
    }

    fn create_of_any_size(&self, range: HashRange) -> Result<AnyFilter, SliceShapeError> {
        Ok(match self.shape(range)? {
            Shape::Blocks(shape) => match shape.kind() {
                Kind::Blocked => Blocked::with_shape(shape)?.into(),
                Kind::Classic => Classic::with_shape(shape)?.into(),
                Kind::Partitioned => Partitioned::with_shape(shape)?.into(),
                Kind::Counting => Counting::with_shape(shape)?.into(),
                Kind::Window => Window::with_shape(shape)?.into(),
                Kind::Aging => Aging::with_shape(shape)?.into(),
                Kind::Stable => Stable::with_shape(shape)?.into(),
                Kind::Cuckoo => Cuckoo::with_shape(shape)?.into(),
                Kind::Quotient => Quotient::with_shape(shape)?.into(),
                kind => return Err(CreateError::from(ShapeError::Kind { kind }).into()),
            },
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

/// A chain that lives at the beginning of the hash space, until it is [placed](SliceShape::placed).
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

/// Bytes of a level of a scalable slice.
pub(super) fn level_bytes(shape: ScalableShape, level: u32) -> Result<u64, CreateError> {
    shape.level(level).map(|(_, blocks)| blocks.memory_bytes())
}

/// Bound of the bytes that so many positions of a single-shot slice take, about two bits a position
/// above what they do take. In whole numbers, so that all replicas agree.
pub(super) fn positions_bytes(width: u64, position_count: u64) -> u64 {
    let gap = width / position_count.max(1);
    let bits = u64::from(gap.max(1).ilog2()) + 4;
    position_count.saturating_mul(bits) / 8
}
