//! From a filter to frames, one at a time: cut by hash range, each coded on its own.
//!
//! ```text
//! blocks      │ 0 … b−1 │ b … 2b−1 │ 2b … 3b−1 │ …        b blocks of words fill a payload
//! frames      ├─ gaps ──┼── raw ───┼── holes ──┼ …        and bound every other encoding
//! ```
//!
//! Lists are cut by `lists`. Every frame begins where the one before ends, so the hash ranges tile
//! the filter's.

use umbel_bits::RiceCode;
use umbel_filter::{
    Aging, AnyFilter, BlockShape, Blocked, Classic, Counting, Cuckoo, Kind, Partitioned, Quotient,
    RedisBloom, Scalable, SingleShot, SparseBlocked, Stable, StoredSingleShot, Window,
};

use super::content::{Content, cheapest};
use super::encoding::Encoding;
use super::gap_code::GapCode;
use super::header::{Body, Header, check_payload_bytes};
use super::level::{
    FrameLevel, LEVEL_BYTES, PACING_BYTES, SLICES_BYTES, pacing_to_bytes, slices_to_bytes,
};
use super::link::LinkCursor;
use super::lists::{PositionCursor, ProbeCursor};
use super::{CHECKED_HEADER_BYTES, FRAME_HEADER_BYTES, FrameKey};
use crate::checksum::crc32c;
use crate::error::{FrameError, PayloadError};
use crate::limits::FRAME_PAYLOAD_BYTES_MAX;

/// A filter that frames can be made of; every kind converts into it.
///
/// ```
/// use umbel_codec::FilterRef;
/// use umbel_filter::{Blocked, HashRange};
///
/// let filter = Blocked::new(HashRange::WHOLE, 16, 6)?;
/// let _ = FilterRef::from(&filter);
/// # Ok::<(), umbel_filter::CreateError>(())
/// ```
pub struct FilterRef<'a>(Source<'a>);

/// A filter and how far it was written.
enum Source<'a> {
    Array(ArrayCursor<'a>),
    Levels(LevelCursor<'a>),
    Links(LinkCursor<'a>),
    Positions(PositionCursor<'a>),
    Probes(ProbeCursor<'a>),
    Window(ArrayCursor<'a>, (u64, u64)),
    /// Of a cuckoo or a quotient filter.
    Table(ArrayCursor<'a>),
    Paced(ArrayCursor<'a>, [u64; 2]),
}

impl<'a> FilterRef<'a> {
    const fn array(shape: BlockShape, words: &'a [u64]) -> Self {
        Self(Source::Array(ArrayCursor { shape, words, next: 0 }))
    }
}

impl<'a> From<&'a Blocked> for FilterRef<'a> {
    fn from(filter: &'a Blocked) -> Self {
        Self::array(filter.block_shape(), filter.words())
    }
}

impl<'a> From<&'a Classic> for FilterRef<'a> {
    fn from(filter: &'a Classic) -> Self {
        Self::array(filter.block_shape(), filter.words())
    }
}

impl<'a> From<&'a Partitioned> for FilterRef<'a> {
    fn from(filter: &'a Partitioned) -> Self {
        Self::array(filter.block_shape(), filter.words())
    }
}

impl<'a> From<&'a Counting> for FilterRef<'a> {
    fn from(filter: &'a Counting) -> Self {
        Self::array(filter.block_shape(), filter.words())
    }
}

impl<'a> From<&'a SingleShot> for FilterRef<'a> {
    fn from(filter: &'a SingleShot) -> Self {
        let positions = filter.positions().iter().copied();
        Self(Source::Positions(PositionCursor::new(filter.shape(), filter.len(), positions)))
    }
}

impl<'a> From<&'a StoredSingleShot> for FilterRef<'a> {
    fn from(filter: &'a StoredSingleShot) -> Self {
        let (shape, positions) = (filter.single_shot_shape(), filter.positions());
        Self(Source::Positions(PositionCursor::new(shape, filter.len(), positions)))
    }
}

impl<'a> From<&'a SparseBlocked> for FilterRef<'a> {
    fn from(filter: &'a SparseBlocked) -> Self {
        Self(Source::Probes(ProbeCursor::new(filter)))
    }
}

impl<'a> From<&'a Scalable> for FilterRef<'a> {
    fn from(filter: &'a Scalable) -> Self {
        Self(Source::Levels(LevelCursor { filter, level: 0, next: 0 }))
    }
}

impl<'a> From<&'a RedisBloom> for FilterRef<'a> {
    fn from(filter: &'a RedisBloom) -> Self {
        Self(Source::Links(LinkCursor::new(filter)))
    }
}

impl<'a> From<&'a Window> for FilterRef<'a> {
    fn from(filter: &'a Window) -> Self {
        let cursor = ArrayCursor { shape: filter.block_shape(), words: filter.words(), next: 0 };
        Self(Source::Window(cursor, (filter.oldest(), filter.newest())))
    }
}

impl<'a> From<&'a Cuckoo> for FilterRef<'a> {
    fn from(filter: &'a Cuckoo) -> Self {
        Self(Source::Table(ArrayCursor {
            shape: filter.block_shape(),
            words: filter.words(),
            next: 0,
        }))
    }
}

impl<'a> From<&'a Quotient> for FilterRef<'a> {
    fn from(filter: &'a Quotient) -> Self {
        Self(Source::Table(ArrayCursor {
            shape: filter.block_shape(),
            words: filter.words(),
            next: 0,
        }))
    }
}

impl<'a> From<&'a Aging> for FilterRef<'a> {
    fn from(filter: &'a Aging) -> Self {
        let cursor = ArrayCursor { shape: filter.block_shape(), words: filter.words(), next: 0 };
        Self(Source::Paced(cursor, filter.counts()))
    }
}

impl<'a> From<&'a Stable> for FilterRef<'a> {
    fn from(filter: &'a Stable) -> Self {
        let cursor = ArrayCursor { shape: filter.block_shape(), words: filter.words(), next: 0 };
        Self(Source::Paced(cursor, filter.counts()))
    }
}

impl<'a> From<&'a AnyFilter> for FilterRef<'a> {
    fn from(filter: &'a AnyFilter) -> Self {
        match filter {
            AnyFilter::SingleShot(filter) => filter.into(),
            AnyFilter::Blocked(filter) => filter.into(),
            AnyFilter::Classic(filter) => filter.into(),
            AnyFilter::Partitioned(filter) => filter.into(),
            AnyFilter::Counting(filter) => filter.into(),
            AnyFilter::Scalable(filter) => filter.into(),
            AnyFilter::Window(filter) => filter.into(),
            AnyFilter::Aging(filter) => filter.into(),
            AnyFilter::Stable(filter) => filter.into(),
            AnyFilter::Cuckoo(filter) => filter.into(),
            AnyFilter::Quotient(filter) => filter.into(),
            AnyFilter::RedisBloom(filter) => filter.into(),
        }
    }
}

/// The frames of a filter, in order of hash range (and of level before that), each with at most
/// `payload_bytes_max` bytes behind its header, or [`FRAME_PAYLOAD_BYTES_MAX`] if that is less.
/// Only the frame at hand is in memory; of single-shot filters its list of positions, too; and of an
/// ANS list, while it is written, two bytes a code.
///
/// ```
/// use umbel_codec::{FRAME_HEADER_BYTES, FrameError, FrameKey, frames};
/// use umbel_filter::{HashFunction, HashRange, Insert, ItemHash, SingleShot, SingleShotShape};
///
/// let mut filter = SingleShot::new(SingleShotShape::new(HashRange::WHOLE, 16)?);
/// filter.insert(ItemHash::new(0x3000_0000_0000_0000, 0))?;
/// let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 };
/// let frames: Vec<Vec<u8>> = frames(&filter, key, 1 << 20).collect::<Result<_, FrameError>>()?;
/// // One byte for the code of position 3.
/// assert_eq!(frames.len(), 1);
/// assert_eq!(frames[0].len(), FRAME_HEADER_BYTES + 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn frames<'a>(
    filter: impl Into<FilterRef<'a>>,
    key: FrameKey,
    payload_bytes_max: usize,
) -> Frames<'a> {
    let payload_bytes_max = payload_bytes_max.min(FRAME_PAYLOAD_BYTES_MAX) as u64;
    let FilterRef(source) = filter.into();
    // What stands for a filter elsewhere has no frames.
    let is_done = matches!(&source, Source::Links(cursor) if cursor.is_empty());
    Frames { source, budget: Budget { key, payload_bytes_max, is_raw: false }, is_done }
}

/// The frames of a filter, one at a time; see [`frames`]. Ends after the first error.
#[must_use = "frames are made as they are asked for"]
pub struct Frames<'a> {
    source: Source<'a>,
    budget: Budget,
    is_done: bool,
}

impl Frames<'_> {
    /// The same, with arrays written as words whatever is shorter: what changes in the filter then changes those
    /// bytes of a frame that hold it, and its head.
    ///
    /// ```
    /// use umbel_codec::{FRAME_HEADER_BYTES, FrameKey, frames};
    /// use umbel_filter::{Blocked, HashFunction, HashRange};
    ///
    /// let empty = Blocked::new(HashRange::WHOLE, 16, 6)?;
    /// let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 };
    /// let coded = frames(&empty, key, 1 << 20).next().expect("a frame")?;
    /// let raw = frames(&empty, key, 1 << 20).raw().next().expect("a frame")?;
    /// assert_eq!((coded.len(), raw.len()), (FRAME_HEADER_BYTES, FRAME_HEADER_BYTES + 16 * 64));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn raw(mut self) -> Self {
        self.budget.is_raw = true;
        self
    }
}

/// What is the same for all frames.
#[derive(Clone, Copy)]
pub(super) struct Budget {
    pub(super) key: FrameKey,
    pub(super) payload_bytes_max: u64,
    /// Whether arrays are written as words, whatever is shorter.
    pub(super) is_raw: bool,
}

/// A frame, and whether it is the last.
pub(super) type Next = Result<(Vec<u8>, bool), FrameError>;

impl Iterator for Frames<'_> {
    type Item = Result<Vec<u8>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let next = match &mut self.source {
            Source::Array(cursor) => cursor.next(self.budget),
            Source::Levels(cursor) => cursor.next(self.budget),
            Source::Links(cursor) => cursor.next(self.budget),
            Source::Positions(cursor) => cursor.next(self.budget),
            Source::Probes(cursor) => cursor.next(self.budget),
            Source::Table(cursor) => cursor.next_of_table(self.budget),
            Source::Window(cursor, slices) => cursor.next_of_window(self.budget, *slices),
            Source::Paced(cursor, counts) => cursor.next_paced(self.budget, *counts),
        };
        self.is_done = next.as_ref().map_or(true, |&(_, is_last)| is_last);
        Some(next.map(|(frame, _)| frame))
    }
}

/// An array of blocks and the next block.
pub(super) struct ArrayCursor<'a> {
    pub(super) shape: BlockShape,
    pub(super) words: &'a [u64],
    pub(super) next: u64,
}
impl<'a> ArrayCursor<'a> {
    fn next(&mut self, budget: Budget) -> Next {
        let (slice, words) = self.cut(budget.payload_bytes_max)?;
        Ok((seal_array(budget, Body::Blocks(slice), &[], words)?, self.is_done()))
    }

    /// The next pages of a cuckoo or a quotient filter: its words, which no code makes shorter.
    fn next_of_table(&mut self, budget: Budget) -> Next {
        let (slice, words) = self.cut(budget.payload_bytes_max)?;
        let count = match slice.kind() {
            Kind::Quotient => Quotient::check_part(slice, words).map_err(PayloadError::Quotient)?,
            _ => Cuckoo::check_part(slice, words).map_err(PayloadError::Cuckoo)?,
        };
        let header = Header::new(budget.key, Body::Blocks(slice), Encoding::Raw, no_code(), count);
        let content = Content::array(slice.kind(), words);
        let frame = seal(header, no_code(), &[], content, FRAME_PAYLOAD_BYTES_MAX as u64)?;
        Ok((frame, self.is_done()))
    }

    /// The next blocks of a window that keeps these slices: its words, which no code makes shorter.
    fn next_of_window(&mut self, budget: Budget, slices: (u64, u64)) -> Next {
        let bytes_max = budget.payload_bytes_max.saturating_sub(SLICES_BYTES as u64);
        let (slice, words) = self.cut(bytes_max)?;
        let count = Window::check_part(slice, slices, words).map_err(PayloadError::Window)?;
        let header = Header::new(budget.key, Body::Blocks(slice), Encoding::Raw, no_code(), count);
        let prefix = slices_to_bytes(slices);
        let content = Content::array(Kind::Window, words);
        let frame = seal(header, no_code(), &prefix, content, FRAME_PAYLOAD_BYTES_MAX as u64)?;
        Ok((frame, self.is_done()))
    }

    /// The next blocks of a filter that forgets by what comes and has counted so much.
    fn next_paced(&mut self, budget: Budget, counts: [u64; 2]) -> Next {
        let bytes_max = budget.payload_bytes_max.saturating_sub(PACING_BYTES as u64);
        let (slice, words) = self.cut(bytes_max)?;
        let prefix = pacing_to_bytes(slice.pace(), counts);
        Ok((seal_array(budget, Body::Blocks(slice), &prefix, words)?, self.is_done()))
    }

    pub(super) const fn is_done(&self) -> bool {
        self.next == self.shape.map().len()
    }

    /// The next blocks whose words fill so many bytes: their shape and their words.
    pub(super) fn cut(&mut self, bytes_max: u64) -> Result<(BlockShape, &'a [u64]), FrameError> {
        let (shape, map, from) = (self.shape, self.shape.map(), self.next);
        let block_bytes = shape.memory_bytes() / map.len();
        let block_count = bytes_max / block_bytes;
        if block_count == 0 {
            return Err(FrameError::BlockTooLarge { block_bytes, payload_bytes_max: bytes_max });
        }
        self.next = map.len().min(from + block_count);
        let slice = shape.with_range(map.range_of_blocks(from..self.next));
        let word = |block: u64| usize::try_from(block * block_bytes / 8).ok();
        let words = word(from).zip(word(self.next)).and_then(|(from, to)| self.words.get(from..to));
        let words = words.expect("a filter has the words of its shape");
        Ok((slice.expect("a part of a shape is a shape"), words))
    }
}

/// A scalable filter, the level at work and its next block.
struct LevelCursor<'a> {
    filter: &'a Scalable,
    level: usize,
    next: u64,
}

impl LevelCursor<'_> {
    fn next(&mut self, budget: Budget) -> Next {
        let levels = self.filter.levels();
        let level = levels.get(self.level).expect("the last frame of the last level ends it");
        let (shape, words) = (level.filter().block_shape(), level.filter().words());
        let mut blocks = ArrayCursor { shape, words, next: self.next };
        let bytes_max = budget.payload_bytes_max.saturating_sub(LEVEL_BYTES as u64);
        let (slice, words) = blocks.cut(bytes_max)?;
        let prefix = FrameLevel::of(self.filter, self.level).to_bytes();
        self.next = blocks.next;
        if blocks.is_done() {
            (self.next, self.level) = (0, self.level + 1);
        }
        let frame = seal_array(budget, Body::Level(slice), &prefix, words)?;
        Ok((frame, self.level == levels.len()))
    }
}

/// The frame of an array, written in the cheapest way: as words, if the ones are so far from random
/// that their codes turn out longer.
pub(super) fn seal_array(
    budget: Budget,
    body: Body,
    prefix: &[u8],
    words: &[u64],
) -> Result<Vec<u8>, FrameError> {
    let key = budget.key;
    let content = Content::array(body.kind(), words);
    let (ones, coded) = cheapest(body.kind(), words);
    if let Some((encoding, code, count)) = coded.filter(|_| !budget.is_raw) {
        let header = Header::new(key, body, encoding, code, count);
        let raw_bytes = (prefix.len() + size_of_val(words)) as u64;
        match seal(header, code, prefix, content, raw_bytes - 1) {
            Err(FrameError::PayloadTooLarge { .. }) => (),
            outcome => return outcome,
        }
    }
    let header = Header::new(key, body, Encoding::Raw, no_code(), ones);
    seal(header, no_code(), prefix, content, FRAME_PAYLOAD_BYTES_MAX as u64)
}

/// What stands in the header of a payload without codes.
fn no_code() -> GapCode {
    GapCode::Rice(RiceCode::new(0).expect("0 low bits are a code"))
}

/// The frame of a header whose length and checksum are not yet known, unless the payload has more
/// than so many bytes.
///
/// A code's length is known once it is written. What is written in vain is never long: a code that
/// was made for the mean of the gaps takes at most a few bits more for each, however they are
/// spread.
pub(super) fn seal(
    mut header: Header,
    code: GapCode,
    prefix: &[u8],
    content: Content<'_>,
    payload_bytes_max: u64,
) -> Result<Vec<u8>, FrameError> {
    let mut bytes = vec![0; FRAME_HEADER_BYTES];
    bytes.extend(prefix);
    content.write(header.encoding, code, &mut bytes);
    let payload_bytes = (bytes.len() - FRAME_HEADER_BYTES) as u64;
    header.payload_bytes = check_payload_bytes(payload_bytes)?;
    if payload_bytes > payload_bytes_max {
        return Err(FrameError::PayloadTooLarge { payload_bytes });
    }
    bytes.shrink_to_fit();
    if let Some((head, payload)) = bytes.split_first_chunk_mut::<FRAME_HEADER_BYTES>()
        && let Some((checked, checksum)) = head.split_first_chunk_mut::<CHECKED_HEADER_BYTES>()
    {
        *checked = header.to_checked_bytes();
        checksum.copy_from_slice(&crc32c(&[checked, payload]).to_le_bytes());
    }
    Ok(bytes)
}
