//! Links of RedisBloom's chains: what stands before their codes, as [`crate::layout`] has it, and frames of them.
//!
//! A link is no array of blocks by hash, but is cut as if it were one of lines: the frame's hash range says which part
//! of the array it has, not whose items.

use umbel_filter::{
    BlockShape, HashFunction, Kind, REDIS_BLOOM_LINKS_MAX, RedisBloom, RedisBloomHeader,
    RedisBloomLink, RedisBloomShape, Shape, ShapeMismatch,
};

use super::header::Body;
use super::level::FrameLevel;
use super::receiver::Receiver;
use super::seal::{Budget, seal_array};
use super::view::Fixed;
use super::{FrameKey, FrameView};
use crate::error::{FrameError, FrameMergeError, PayloadError};
use crate::limits::FRAME_PAYLOAD_BYTES_MAX;

/// What items of RedisBloom's filters are hashed with: no seed, no key.
pub const REDIS_BLOOM_KEY: FrameKey =
    FrameKey { function: HashFunction::RedisBloomPair, key_id: 0 };

/// Words of a line.
const LINE_WORDS: usize = 8;

/// Largest part of a link that is unfolded, 64 MiB: as words it fills the largest payload.
const FRAME_PART_BYTES_MAX: u64 = FRAME_PAYLOAD_BYTES_MAX as u64;

/// Bytes before the codes.
pub(super) const LINK_BYTES: usize = 40;

/// Which link of which chain a frame belongs to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct FrameLink {
    /// Number of the link, from 0 on.
    pub(super) link: u32,
    /// What decides all links.
    pub(super) shape: RedisBloomShape,
    /// Number of links that the chain has.
    pub(super) link_count: u32,
    /// Number of new items that the whole chain took.
    pub(super) item_count: u64,
    /// Number of those that the link took, which follows from it.
    pub(super) items_of_link: u64,
}

impl FrameLink {
    /// In the words of scalable filters.
    pub(super) const fn level(self) -> FrameLevel {
        FrameLevel {
            level: self.link,
            level_count: self.link_count,
            false_positive_rate: self.shape.first_rate(),
            first_capacity: self.shape.first_capacity(),
            item_count: self.items_of_link,
        }
    }
}

/// The fixed part of a link's frame.
pub(super) fn link_to_bytes(link: FrameLink) -> [u8; LINK_BYTES] {
    let FrameLink { link, shape, link_count, item_count, items_of_link: _ } = link;
    let mut bytes = [0; LINK_BYTES];
    let fields = link
        .to_le_bytes()
        .into_iter()
        .chain(link_count.to_le_bytes())
        .chain(shape.first_rate().to_bits().to_le_bytes())
        .chain(shape.first_capacity().to_le_bytes())
        .chain(item_count.to_le_bytes())
        .chain(shape.expansion().to_le_bytes())
        .chain(u32::from(shape.is_fixed()).to_le_bytes());
    bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
    bytes
}

/// The same read and checked.
pub(super) fn link_from_bytes(bytes: [u8; LINK_BYTES]) -> Result<FrameLink, PayloadError> {
    let words = bytes.as_chunks::<8>().0;
    let mut words = words.iter().map(|&bytes| u64::from_le_bytes(bytes));
    let mut next = || words.next().unwrap_or_default();
    let halves = |word: u64| {
        #[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
        let low = word as u32;
        (low, u32::try_from(word >> 32).unwrap_or(u32::MAX))
    };
    let (link, link_count) = halves(next());
    let (rate, first_capacity, item_count) = (f64::from_bits(next()), next(), next());
    let (expansion, fixed) = halves(next());
    if link >= link_count || link_count > REDIS_BLOOM_LINKS_MAX {
        return Err(PayloadError::Level { level: link, level_count: link_count });
    }
    let shape = RedisBloomShape::new(first_capacity, rate, expansion);
    let shape = match (shape.map_err(PayloadError::RedisBloom)?, fixed) {
        (shape, 0) => shape,
        (shape, 1) => shape.fixed(),
        (_, actual) => return Err(PayloadError::Fixed { actual }),
    };
    if shape.link_count(item_count).map_err(PayloadError::RedisBloom)? != link_count {
        return Err(PayloadError::Links { link_count, item_count });
    }
    let items_of_link = shape.items_of_link(link, item_count).map_err(PayloadError::RedisBloom)?;
    let items_of_link = items_of_link.ok_or(PayloadError::Links { link_count, item_count })?;
    Ok(FrameLink { link, shape, link_count, item_count, items_of_link })
}

/// A frame of a part of a link, as if it were made of a filter: of so many lines, eight words each, from one on. The
/// last line of a link has zeros behind the last position.
///
/// ```
/// use umbel_codec::{FrameView, REDIS_BLOOM_KEY, redis_bloom_frame};
/// use umbel_filter::{Contains, ItemHasher, RedisBloom, RedisBloomHeader, RedisBloomShape};
///
/// let header = RedisBloomHeader::new(RedisBloomShape::for_rate(10, 0.01)?, 1)?;
/// let frame = redis_bloom_frame(&header, 0, 0, &[u64::MAX, u64::MAX, 0, 0, 0, 0, 0, 0])?;
/// let mut filter = RedisBloom::with_shape(header.shape())?;
/// FrameView::parse(&frame)?.0.merge_into(&mut filter, REDIS_BLOOM_KEY)?;
/// assert!(filter.contains(ItemHasher::RedisBloom.hash(b"anything")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If there is no such link, or it has not these lines.
#[expect(clippy::missing_panics_doc, reason = "the lines were found in the link's shape")]
pub fn redis_bloom_frame(
    header: &RedisBloomHeader,
    link: usize,
    first_line: u64,
    words: &[u64],
) -> Result<Vec<u8>, FrameError> {
    let missing = || FrameError::from(PayloadError::Length { expected: 0, actual: 0 });
    let lines = header.links().get(link).ok_or_else(missing)?.lines();
    let end = first_line.saturating_add((words.len() / LINE_WORDS) as u64);
    if first_line >= end || end > lines.map().len() || !words.len().is_multiple_of(LINE_WORDS) {
        let (expected, actual) = (lines.memory_bytes(), size_of_val(words) as u64);
        return Err(PayloadError::Length { expected, actual }.into());
    }
    let slice = lines.with_range(lines.map().range_of_blocks(first_line..end));
    let slice = slice.expect("a part of a shape is a shape");
    let number = |index: usize| u32::try_from(index).expect("at most REDIS_BLOOM_LINKS_MAX");
    let prefix = link_to_bytes(FrameLink {
        link: number(link),
        shape: header.shape(),
        link_count: number(header.links().len()),
        item_count: header.item_count(),
        items_of_link: header.item_count_of(link),
    });
    let payload_bytes_max = FRAME_PAYLOAD_BYTES_MAX as u64;
    let budget = Budget { key: REDIS_BLOOM_KEY, payload_bytes_max, is_raw: false };
    seal_array(budget, Body::Link(slice), &prefix, words)
}

/// A part of a link: what [`redis_bloom_frame`] makes a frame of.
#[derive(Clone, PartialEq, Debug)]
pub struct RedisBloomPart {
    /// What decides all links.
    pub shape: RedisBloomShape,
    /// Number of new items that the whole chain took.
    pub item_count: u64,
    /// Number of the link, from 0 on.
    pub link: u32,
    /// Number of the first line.
    pub first_line: u64,
    /// Eight words a line.
    pub words: Vec<u64>,
}

/// What stands before the codes of a link that the chain has.
pub(super) fn link_prefix(filter: &RedisBloom, link: usize) -> [u8; LINK_BYTES] {
    let links = filter.links();
    let number = |index: usize| u32::try_from(index).expect("at most REDIS_BLOOM_LINKS_MAX");
    link_to_bytes(FrameLink {
        link: number(link),
        shape: filter.redis_bloom_shape(),
        link_count: number(links.len()),
        item_count: filter.item_count(),
        items_of_link: links.get(link).map_or(0, RedisBloomLink::item_count),
    })
}

impl FrameView<'_> {
    /// The part of a link that the frame has.
    ///
    /// # Errors
    /// If it is no frame of a link, its key is another one, or the payload is not valid.
    pub fn to_redis_bloom_part(&self) -> Result<RedisBloomPart, FrameMergeError> {
        let (Fixed::Link(link), Body::Link(part)) = (self.fixed, self.header.body) else {
            let (expected, actual) = (Kind::RedisBloom, self.kind());
            return Err(FrameError::from(PayloadError::Kind { expected, actual }).into());
        };
        self.check_key(REDIS_BLOOM_KEY)?;
        let lines = link.shape.link(link.link).map_err(FrameError::from)?.lines();
        let mismatch = ShapeMismatch { ours: lines.into(), theirs: part.into() };
        let first_line = lines.offset_of(part).ok_or(mismatch)?;
        let word_count = usize::try_from(part.memory_bytes() / 8).unwrap_or(usize::MAX);
        if part.memory_bytes() > FRAME_PART_BYTES_MAX {
            let (filter_bytes, filter_bytes_max) = (part.memory_bytes(), FRAME_PART_BYTES_MAX);
            return Err(FrameError::FilterTooLarge { filter_bytes, filter_bytes_max }.into());
        }
        let mut words = vec![0; word_count];
        self.merge_blocks(&mut Receiver::Array(part, &mut words), part)?;
        let FrameLink { link, shape, item_count, .. } = link;
        Ok(RedisBloomPart { shape, item_count, link, first_line, words })
    }

    /// The frame's link, if it is one of a chain of this shape.
    pub(super) fn link_of(&self, shape: RedisBloomShape) -> Result<FrameLevel, FrameMergeError> {
        match self.fixed {
            Fixed::Link(link) if link.shape == shape => Ok(link.level()),
            _ => Err(ShapeMismatch { ours: shape.into(), theirs: self.shape() }.into()),
        }
    }

    /// Loads a frame, under a key that was checked, into the chain of its shape.
    pub(super) fn load_link_of(&self, filter: &mut RedisBloom) -> Result<u64, FrameMergeError> {
        match self.header.body {
            Body::Link(part) => self.load_link(filter, part),
            _ => {
                Err(ShapeMismatch { ours: filter.redis_bloom_shape().into(), theirs: self.shape() }
                    .into())
            }
        }
    }

    /// Loads a part of a link into a chain, whose links come in their order.
    pub(super) fn load_link(
        &self,
        filter: &mut RedisBloom,
        part: BlockShape,
    ) -> Result<u64, FrameMergeError> {
        let chain = filter.redis_bloom_shape();
        let level = self.link_of(chain)?;
        // All that can be wrong is looked at before a link opens.
        let lines = chain.link(level.level).map_err(FrameError::from)?.lines();
        if lines.offset_of(part).is_none() {
            let (ours, theirs) = (Shape::from(lines), part.into());
            return Err(ShapeMismatch { ours, theirs }.into());
        }
        self.check_codes().map_err(FrameError::from)?;
        let merge = |words: &mut [u64]| self.merge_blocks(&mut Receiver::Array(lines, words), part);
        let loaded = filter.load_link(level.level, level.item_count, merge);
        loaded.map_err(|error| FrameMergeError::Levels(Box::new(error)))?
    }
}
