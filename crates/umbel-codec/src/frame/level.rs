//! The fields before the codes of a level of a scalable filter, before the words of a window, and before
//! the codes of a filter that forgets by its inserts; see [`crate::layout`].

use umbel_filter::{BlockShape, HashRange, Scalable, ScalableShape, Shape, ShapeMismatch};

use super::FrameView;
use crate::error::{FrameError, FrameMergeError, PayloadError};
use crate::limits::FRAME_LEVEL_COUNT_MAX;

/// Bytes before the codes.
pub(super) const LEVEL_BYTES: usize = 32;

/// Bytes before a window's words.
pub(super) const SLICES_BYTES: usize = 16;

/// Bytes before the codes of a filter that forgets by its inserts.
pub(super) const PACING_BYTES: usize = 24;

/// The pace at which a filter forgets, and what it has counted.
pub(super) fn pacing_to_bytes(pace: u64, counts: [u64; 2]) -> [u8; PACING_BYTES] {
    let mut bytes = [0; PACING_BYTES];
    let fields = [pace, counts[0], counts[1]].into_iter().flat_map(u64::to_le_bytes);
    bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
    bytes
}

/// The same read.
pub(super) fn pacing_from_bytes(bytes: [u8; PACING_BYTES]) -> (u64, [u64; 2]) {
    let mut words = bytes.as_chunks::<8>().0.iter().map(|&bytes| u64::from_le_bytes(bytes));
    let mut next = || words.next().unwrap_or_default();
    (next(), [next(), next()])
}

/// The oldest and the newest slice of a window, which precede its words.
pub(super) fn slices_to_bytes((oldest, newest): (u64, u64)) -> [u8; SLICES_BYTES] {
    (u128::from(oldest) | u128::from(newest) << 64).to_le_bytes()
}

/// The same read.
#[expect(clippy::cast_possible_truncation, reason = "the halves are wanted")]
pub(super) const fn slices_from_bytes(bytes: [u8; SLICES_BYTES]) -> (u64, u64) {
    let both = u128::from_le_bytes(bytes);
    (both as u64, (both >> 64) as u64)
}

/// Which level of which scalable filter a frame belongs to.
///
/// ```
/// use umbel_codec::{FrameKey, FrameView, frames};
/// use umbel_filter::{HashFunction, HashRange, Scalable};
///
/// let filter = Scalable::new(HashRange::WHOLE, 1_000, 0.01)?;
/// let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 };
/// let frame = frames(&filter, key, 1 << 20).next().expect("one frame at least")?;
/// let (view, _) = FrameView::parse(&frame)?;
/// let level = view.level().expect("a frame of a scalable filter");
/// assert_eq!((level.level, level.level_count, level.first_capacity), (0, 1, 1_000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FrameLevel {
    /// Number of the level, from 0 on.
    pub level: u32,
    /// Number of levels that the filter has.
    pub level_count: u32,
    /// Bound of the rate of all levels together, 0 to 1.
    pub false_positive_rate: f64,
    /// Number of items that level 0 is made for over the whole hash space.
    pub first_capacity: u64,
    /// Number of new items that the level took, in the hash range of the filter.
    pub item_count: u64,
}

impl FrameLevel {
    pub(super) fn of(filter: &Scalable, index: usize) -> Self {
        let number = |index: usize| u32::try_from(index).expect("sizes limit the levels to a few");
        let shape = filter.scalable_shape();
        Self {
            level: number(index),
            level_count: number(filter.levels().len()),
            false_positive_rate: shape.false_positive_rate(),
            first_capacity: shape.first_capacity(),
            item_count: filter.levels().get(index).map_or(0, umbel_filter::FilterLevel::item_count),
        }
    }

    pub(super) fn to_bytes(self) -> [u8; LEVEL_BYTES] {
        let mut bytes = [0; LEVEL_BYTES];
        let fields = self
            .level
            .to_le_bytes()
            .into_iter()
            .chain(self.level_count.to_le_bytes())
            .chain(self.false_positive_rate.to_bits().to_le_bytes())
            .chain(self.first_capacity.to_le_bytes())
            .chain(self.item_count.to_le_bytes());
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        bytes
    }

    /// Reads and checks the fields, and returns the filter's shape as far as the range goes.
    pub(super) fn parse(
        bytes: [u8; LEVEL_BYTES],
        range: HashRange,
    ) -> Result<(Self, ScalableShape), PayloadError> {
        let words = bytes.as_chunks::<8>().0;
        let mut words = words.iter().map(|&bytes| u64::from_le_bytes(bytes));
        let mut next = || words.next().unwrap_or_default();
        let numbers = next();
        #[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
        let (level, level_count) = (numbers as u32, (numbers >> 32) as u32);
        let (rate, first_capacity, item_count) = (f64::from_bits(next()), next(), next());
        if level >= level_count || level_count > FRAME_LEVEL_COUNT_MAX {
            return Err(PayloadError::Level { level, level_count });
        }
        let shape = ScalableShape::new(range, first_capacity, rate);
        let shape = shape.map_err(PayloadError::Scalable)?;
        let false_positive_rate = rate;
        Ok((Self { level, level_count, false_positive_rate, first_capacity, item_count }, shape))
    }
}

impl FrameView<'_> {
    /// The frame's level, if it is one of a filter of this shape.
    pub(super) fn level_of(&self, shape: ScalableShape) -> Result<FrameLevel, FrameMergeError> {
        match (self.level(), self.shape()) {
            (Some(level), Shape::Scalable(theirs))
                if theirs.first_capacity() == shape.first_capacity()
                    && theirs.false_positive_rate().to_bits()
                        == shape.false_positive_rate().to_bits() =>
            {
                Ok(level)
            }
            (_, theirs) => Err(ShapeMismatch { ours: shape.into(), theirs }.into()),
        }
    }

    /// Loads a part of a level into a scalable filter, whose levels come in their order.
    pub(super) fn load_level(
        &self,
        filter: &mut Scalable,
        part: BlockShape,
    ) -> Result<u64, FrameMergeError> {
        let shape = filter.scalable_shape();
        let level = self.level_of(shape)?;
        // All that can be wrong is looked at before a level opens.
        let (_, level_shape) = shape.level(level.level).map_err(FrameError::from)?;
        if level_shape.offset_of(part).is_none() {
            return Err(ShapeMismatch { ours: level_shape.into(), theirs: part.into() }.into());
        }
        self.check_codes().map_err(FrameError::from)?;
        let blocks = filter
            .level_to_load(level.level, level.item_count)
            .map_err(|error| FrameMergeError::Levels(Box::new(error)))?;
        self.merge_level_into(blocks)
    }
}
