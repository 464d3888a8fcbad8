//! From a filter to frames, one at a time: cut by hash range, each coded on its own.
//!
//! ```text
//! blocks      │ 0 … b−1 │ b … 2b−1 │ 2b … 3b−1 │ …        b blocks of words fill a payload
//! frames      ├─ gaps ──┼── raw ───┼── holes ──┼ …        and bound every other encoding
//! ```
//!
//! Lists are cut by `lists`. Every frame begins where the one before ends, so the hash ranges tile
//! the filter's.

use umbel_filter::{
    Aging, AnyFilter, BlockShape, Blocked, Classic, Counting, Cuckoo, Partitioned, Quotient,
    RedisBloom, Scalable, SingleShot, SparseBlocked, Stable, StoredSingleShot, Window, each_filter,
};

use super::FrameKey;
use super::level::{FrameLevel, pacing_to_bytes, slices_to_bytes};
use super::link::link_prefix;
use super::lists::{PositionCursor, ProbeCursor};
use super::pieces::{ArrayCursor, Form, PieceArray};
use super::seal::{Budget, Next};
use crate::error::FrameError;
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
pub struct FilterRef<'a>(pub(super) Source<'a>);

/// A filter and how far it was written.
pub(super) enum Source<'a> {
    /// Arrays of words.
    Arrays(ArrayCursor, Vec<&'a [u64]>),
    Positions(PositionCursor<'a>),
    Probes(ProbeCursor<'a>),
}

impl<'a> FilterRef<'a> {
    fn array(shape: BlockShape, words: &'a [u64]) -> Self {
        Self::arrays([(PieceArray { shape, prefix: Vec::new(), form: Form::Blocks }, words)])
    }

    fn table(shape: BlockShape, words: &'a [u64]) -> Self {
        Self::arrays([(PieceArray { shape, prefix: Vec::new(), form: Form::Table }, words)])
    }

    /// A filter that forgets by what comes and has counted so much.
    fn paced(shape: BlockShape, words: &'a [u64], counts: [u64; 2]) -> Self {
        let prefix = pacing_to_bytes(shape.pace(), counts).to_vec();
        Self::arrays([(PieceArray { shape, prefix, form: Form::Blocks }, words)])
    }

    fn arrays(arrays: impl IntoIterator<Item = (PieceArray, &'a [u64])>) -> Self {
        let (arrays, words) = arrays.into_iter().unzip();
        Self(Source::Arrays(ArrayCursor::new(arrays), words))
    }
}

/// Converts filters of these types, each by the same expression.
macro_rules! from_filters {
    ($($kind:ty),* => |$filter:ident| $made:expr) => {$(
        impl<'a> From<&'a $kind> for FilterRef<'a> {
            fn from($filter: &'a $kind) -> Self {
                $made
            }
        }
    )*};
}

from_filters!(
    Blocked, Classic, Partitioned, Counting => |filter| Self::array(filter.block_shape(), filter.words())
);
from_filters!(Cuckoo, Quotient => |filter| Self::table(filter.block_shape(), filter.words()));
from_filters!(
    Aging, Stable => |filter| Self::paced(filter.block_shape(), filter.words(), filter.counts())
);

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
        Self::arrays(filter.levels().iter().enumerate().map(|(number, level)| {
            let (shape, words) = (level.filter().block_shape(), level.filter().words());
            let prefix = FrameLevel::of(filter, number).to_bytes().to_vec();
            (PieceArray { shape, prefix, form: Form::Level }, words)
        }))
    }
}

impl<'a> From<&'a RedisBloom> for FilterRef<'a> {
    fn from(filter: &'a RedisBloom) -> Self {
        Self::arrays(filter.links().iter().enumerate().map(|(number, link)| {
            let (shape, prefix) = (link.shape().lines(), link_prefix(filter, number));
            (PieceArray { shape, prefix: prefix.to_vec(), form: Form::Link }, link.words())
        }))
    }
}

impl<'a> From<&'a Window> for FilterRef<'a> {
    fn from(filter: &'a Window) -> Self {
        let (shape, slices) = (filter.block_shape(), (filter.oldest(), filter.newest()));
        let prefix = slices_to_bytes(slices).to_vec();
        Self::arrays([(PieceArray { shape, prefix, form: Form::Window(slices) }, filter.words())])
    }
}

impl<'a> From<&'a AnyFilter> for FilterRef<'a> {
    fn from(filter: &'a AnyFilter) -> Self {
        each_filter!(filter, filter => filter.into())
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
    let is_done = matches!(&source, Source::Arrays(cursor, _) if cursor.is_done());
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

impl Iterator for Frames<'_> {
    type Item = Result<Vec<u8>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let next = match &mut self.source {
            Source::Arrays(cursor, arrays) => next_of(cursor, arrays, self.budget),
            Source::Positions(cursor) => cursor.next(self.budget),
            Source::Probes(cursor) => cursor.next(self.budget),
        };
        self.is_done = next.as_ref().map_or(true, |&(_, is_last)| is_last);
        Some(next.map(|(frame, _)| frame))
    }
}

/// The frame of the next piece of a filter's arrays.
fn next_of(cursor: &mut ArrayCursor, arrays: &[&[u64]], budget: Budget) -> Next {
    let piece = cursor.next(budget)?;
    let words = arrays.get(piece.array()).and_then(|words| words.get(piece.words()));
    let words = words.expect("a filter has the words of its shape");
    Ok((piece.frame(words)?, cursor.is_done()))
}
