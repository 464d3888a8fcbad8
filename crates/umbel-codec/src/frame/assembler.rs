//! Builds a filter from all of its frames, in order; there is no result from some of them.
//!
//! ```text
//! range of the filter    start ├──────────┼──────────┼───────────────┤ end
//! frames                        frame 0    frame 1    frame 2             each begins where the
//! scalable               level 0 ├───┼──────┤ level 1 ├────┼────┼────┤    one before ends
//! ```

use thiserror::Error;
use umbel_filter::{
    AnyFilter, Blocked, CreateError, HashRange, LevelsError, RedisBloom, Scalable, ScalableShape,
    Shape, SingleShotShape, StoredSingleShot,
};

use super::FrameKey;
use super::level::FrameLevel;
use super::stretch::Stretch;
use super::view::FrameView;
use crate::error::{FrameMergeError, KeyMismatch};

/// Why frames do not make a filter. A refused frame changed nothing: another one can be passed
/// instead.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// The filter cannot be created.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// Free memory, or assemble a smaller part of the filter.
    #[error("filter of {filter_bytes} bytes, expected at most {filter_bytes_max}")]
    TooLarge {
        /// Size of the filter in memory, with what the frame would add.
        filter_bytes: u64,
        /// What the receiver allows.
        filter_bytes_max: u64,
    },
    /// The frame does not fit the filter, or is not valid.
    #[error(transparent)]
    Merge(#[from] FrameMergeError),
    /// The frame leaves a gap, or overlaps the one before. Pass the frames in order, each once.
    #[error("frame begins at hash {actual}, expected {expected}")]
    Border {
        /// Where the next frame must begin.
        expected: u128,
        /// Where it begins.
        actual: u64,
    },
    /// The frame is of another level than the next. Pass the frames in order, each once.
    #[error("frame of level {actual} of {actual_count}, expected {expected} of {expected_count}")]
    Level {
        /// The level that comes next.
        expected: u32,
        /// Number of levels that the first frame named.
        expected_count: u32,
        /// The frame's level.
        actual: u32,
        /// Number of levels that the frame names.
        actual_count: u32,
    },
    /// The frames of a level differ in its number of items. Refuse the stream.
    #[error("level has {actual} items, its first frame says {expected}")]
    ItemCount {
        /// The number in the level's first frame.
        expected: u64,
        /// The number in this one.
        actual: u64,
    },
    /// Frames are missing. Ask for the rest, or refuse the stream.
    #[error("frames end at hash {covered_to}, expected {end}, with {level_count} levels to come")]
    Incomplete {
        /// One past the last hash that the frames cover.
        covered_to: u128,
        /// One past the last hash of the filter.
        end: u128,
        /// Number of levels that have not begun.
        level_count: u32,
    },
    /// The levels do not make a scalable filter. Refuse the stream.
    #[error(transparent)]
    Levels(Box<LevelsError>),
}

/// Takes the frames of one filter in order of hash range, of a scalable filter level by level, and
/// gives the filter if they cover it without gap or overlap.
///
/// ```
/// use umbel_codec::{AssembleError, FilterAssembler, FrameKey, FrameView, frames};
/// use umbel_filter::{AnyFilter, Blocked, Describe, HashFunction, HashRange, Insert, ItemHash};
///
/// let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 };
/// let mut filter = Blocked::new(HashRange::WHOLE, 16, 6)?;
/// filter.insert(ItemHash::new(1, 2))?;
///
/// // Payloads of two blocks.
/// let mut assembler = FilterAssembler::new(filter.shape(), key, 1 << 20)?;
/// for frame in frames(&filter, key, 128) {
///     assembler.push(&FrameView::parse(&frame?)?.0)?;
/// }
/// assert_eq!(assembler.finish()?, AnyFilter::from(filter.clone()));
///
/// let nothing = FilterAssembler::new(filter.shape(), key, 1 << 20)?;
/// assert!(matches!(nothing.finish(), Err(AssembleError::Incomplete { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FilterAssembler {
    shape: Shape,
    key: FrameKey,
    filter_bytes_max: u64,
    /// Where the next frame begins.
    next_start: u128,
    building: Building,
}

#[derive(Debug)]
enum Building {
    Array(AnyFilter),
    /// The frames' codes, which become a filter at the end: positions in order cost linear time.
    SingleShot {
        shape: SingleShotShape,
        stretches: Vec<Stretch>,
        /// Memory of all stretches, which no frame should have to add up.
        bytes: u64,
    },
    Scalable {
        shape: ScalableShape,
        level_count: Option<u32>,
        levels: Vec<(Blocked, u64)>,
    },
    RedisBloom {
        filter: RedisBloom,
        /// Number of links that have begun.
        begun: usize,
        link_count: Option<u32>,
    },
}

impl FilterAssembler {
    /// An assembler for a filter of this shape, which may take `filter_bytes_max` bytes of memory.
    ///
    /// # Errors
    /// If the filter is larger, or there is no memory for it.
    pub fn new(shape: Shape, key: FrameKey, filter_bytes_max: u64) -> Result<Self, AssembleError> {
        let building = match shape {
            Shape::Blocks(shape) => {
                check_bytes(shape.memory_bytes(), filter_bytes_max)?;
                Building::Array(AnyFilter::with_block_shape(shape)?)
            }
            Shape::SingleShot(shape) => {
                Building::SingleShot { shape, stretches: Vec::new(), bytes: 0 }
            }
            Shape::Scalable(shape) => {
                Building::Scalable { shape, level_count: None, levels: Vec::new() }
            }
            Shape::RedisBloom(shape) => {
                check_bytes(shape.link(0)?.memory_bytes(), filter_bytes_max)?;
                let filter = RedisBloom::with_shape(shape)?;
                Building::RedisBloom { filter, begun: 0, link_count: None }
            }
        };
        let next_start = shape.range().start().into();
        Ok(Self { shape, key, filter_bytes_max, next_start, building })
    }

    /// Takes the next frame.
    ///
    /// # Errors
    /// If the frame is not the next one, is of another filter, or is not valid; or if the filter
    /// grows too large. Nothing was changed.
    pub fn push(&mut self, frame: &FrameView<'_>) -> Result<(), AssembleError> {
        let (expected, actual) = (self.key, frame.key());
        if actual != expected {
            return Err(FrameMergeError::Key(KeyMismatch { expected, actual }).into());
        }
        match &mut self.building {
            Building::Array(filter) => {
                check_border(self.next_start, frame)?;
                frame.merge_into(filter, self.key)?;
            }
            Building::SingleShot { shape, stretches, bytes } => {
                check_border(self.next_start, frame)?;
                let stretch = frame.stretch_of(*shape)?;
                let bytes_after = *bytes + stretch.memory_bytes();
                check_bytes(bytes_after, self.filter_bytes_max)?;
                stretches.push(stretch);
                *bytes = bytes_after;
            }
            Building::Scalable { shape, level_count, levels } => {
                let level = frame.level_of(*shape)?;
                let begun = (levels.len(), *level_count);
                check_level((self.next_start, shape.range()), begun, frame, level)?;
                push_level(*shape, levels, frame, level, self.filter_bytes_max)?;
                *level_count = Some(level.level_count);
            }
            Building::RedisBloom { filter, begun, link_count } => {
                let link = frame.link_of(filter.redis_bloom_shape())?;
                let range = HashRange::WHOLE;
                check_level((self.next_start, range), (*begun, *link_count), frame, link)?;
                push_link(filter, *begun, frame, link, self.filter_bytes_max)?;
                *begun = usize::try_from(link.level).unwrap_or(usize::MAX) + 1;
                *link_count = Some(link.level_count);
            }
        }
        self.next_start = frame.range().end();
        Ok(())
    }

    /// The filter.
    ///
    /// # Errors
    /// If frames are missing, or levels do not belong together.
    pub fn finish(self) -> Result<AnyFilter, AssembleError> {
        let end = self.shape.range().end();
        let left = match &self.building {
            Building::Scalable { level_count, levels, .. } => {
                level_count.map_or(1, |count| count - u32::try_from(levels.len()).unwrap_or(count))
            }
            Building::RedisBloom { begun, link_count, .. } => {
                link_count.map_or(1, |count| count - u32::try_from(*begun).unwrap_or(count))
            }
            _ => 0,
        };
        if self.next_start != end || left > 0 {
            let covered_to = self.next_start;
            return Err(AssembleError::Incomplete { covered_to, end, level_count: left });
        }
        Ok(match self.building {
            Building::Array(filter) => filter,
            Building::SingleShot { shape, stretches, .. } => joined(shape, &stretches).into(),
            Building::Scalable { shape, levels, .. } => Scalable::from_levels(shape, levels)
                .map_err(|error| AssembleError::Levels(Box::new(error)))?
                .into(),
            Building::RedisBloom { filter, .. } => filter.into(),
        })
    }
}

/// The filter of stretches whose hash ranges tile its own. Two neighbours share a position if their
/// border lies inside it: then the second one's is left out.
fn joined(shape: SingleShotShape, stretches: &[Stretch]) -> StoredSingleShot {
    let mut previous = None;
    let shared: Vec<bool> = stretches
        .iter()
        .map(|stretch| match stretch.ends {
            Some((first, last)) => previous.replace(last) == Some(first),
            None => false,
        })
        .collect();
    let count: u64 = stretches.iter().map(Stretch::len).sum();
    let count = usize::try_from(count).expect("every position has a bit in memory");
    let count = count - shared.iter().filter(|&&shared| shared).count();
    let mut positions = stretches
        .iter()
        .zip(shared)
        .flat_map(|(stretch, shared)| stretch.positions().skip(usize::from(shared)));
    let positions = (0..count).map(|_| positions.next().expect("as many as were counted"));
    let filter = StoredSingleShot::from_positions(shape, positions);
    filter.expect("positions increase in a stretch, and from one to the next")
}

/// Checks that a frame is the next one of a filter with levels, given how many levels have begun and how
/// many there are.
fn check_level(
    (next_start, range): (u128, HashRange),
    (begun, level_count): (usize, Option<u32>),
    frame: &FrameView<'_>,
    level: FrameLevel,
) -> Result<(), AssembleError> {
    let (expected, start) = if next_start == range.end() || begun == 0 {
        (begun, range.start().into())
    } else {
        (begun - 1, next_start)
    };
    let expected = u32::try_from(expected).unwrap_or(u32::MAX);
    let expected_count = level_count.unwrap_or(level.level_count);
    let (actual, actual_count) = (level.level, level.level_count);
    if (actual, actual_count) != (expected, expected_count) {
        return Err(AssembleError::Level { expected, expected_count, actual, actual_count });
    }
    check_border(start, frame)
}

/// Merges a frame into its link, which it may begin.
fn push_link(
    filter: &mut RedisBloom,
    begun: usize,
    frame: &FrameView<'_>,
    link: FrameLevel,
    filter_bytes_max: u64,
) -> Result<(), AssembleError> {
    let index = usize::try_from(link.level).unwrap_or(usize::MAX);
    match filter.links().get(index) {
        Some(ours) if index < begun && ours.item_count() != link.item_count => {
            let (expected, actual) = (ours.item_count(), link.item_count);
            return Err(AssembleError::ItemCount { expected, actual });
        }
        Some(_) => {}
        None => {
            let next = filter.redis_bloom_shape().link(link.level)?;
            check_bytes(
                filter.memory_bytes().saturating_add(next.memory_bytes()),
                filter_bytes_max,
            )?;
        }
    }
    frame.load_link_of(filter)?;
    Ok(())
}

/// Merges a frame into its level, which it may begin.
fn push_level(
    shape: ScalableShape,
    levels: &mut Vec<(Blocked, u64)>,
    frame: &FrameView<'_>,
    level: FrameLevel,
    filter_bytes_max: u64,
) -> Result<(), AssembleError> {
    let index = usize::try_from(level.level).unwrap_or(usize::MAX);
    if let Some((filter, expected)) = levels.get_mut(index) {
        let (expected, actual) = (*expected, level.item_count);
        if actual != expected {
            return Err(AssembleError::ItemCount { expected, actual });
        }
        frame.merge_level_into(filter)?;
        return Ok(());
    }
    let (_, level_shape) = shape.level(level.level)?;
    let bytes: u64 = levels.iter().map(|(filter, _)| filter.block_shape().memory_bytes()).sum();
    check_bytes(bytes.saturating_add(level_shape.memory_bytes()), filter_bytes_max)?;
    let mut filter = Blocked::with_shape(level_shape)?;
    frame.merge_level_into(&mut filter)?;
    levels.push((filter, level.item_count));
    Ok(())
}

fn check_border(expected: u128, frame: &FrameView<'_>) -> Result<(), AssembleError> {
    let actual = frame.range().start();
    if expected != u128::from(actual) {
        return Err(AssembleError::Border { expected, actual });
    }
    Ok(())
}

const fn check_bytes(filter_bytes: u64, filter_bytes_max: u64) -> Result<(), AssembleError> {
    if filter_bytes > filter_bytes_max {
        return Err(AssembleError::TooLarge { filter_bytes, filter_bytes_max });
    }
    Ok(())
}
