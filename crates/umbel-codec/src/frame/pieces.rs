//! The pieces of a filter's arrays, each of which becomes a frame: what is known of them without the words.
//!
//! Whoever reads a filter that changes meanwhile takes the pieces from it at once, and the words of each piece
//! later, as they were then.

use std::ops::Range;

use umbel_filter::BlockShape;

use super::FrameKey;
use super::header::Body;
use super::seal::{Budget, seal_array, seal_words};
use super::tables::check_table;
use super::writer::{FilterRef, Source};
use crate::error::{FrameError, PayloadError};
use crate::limits::FRAME_PAYLOAD_BYTES_MAX;

/// What the frames of an array are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// Blocks, in the cheapest encoding.
    Blocks,
    /// The same of a level of a scalable filter.
    Level,
    /// The same of a link of RedisBloom's chain.
    Link,
    /// Pages of a cuckoo or a quotient filter: words, which no code makes shorter.
    Table,
    /// Blocks of a window that keeps these slices: words, which no code makes shorter.
    Window((u64, u64)),
}

/// An array of a filter, without its words.
#[derive(Clone, Debug)]
pub(super) struct PieceArray {
    pub(super) shape: BlockShape,
    /// What stands before the words or codes in each frame.
    pub(super) prefix: Vec<u8>,
    pub(super) form: Form,
}

/// The arrays of a filter, and the next block.
#[derive(Clone, Debug)]
pub(super) struct ArrayCursor {
    arrays: Vec<PieceArray>,
    array: usize,
    next: u64,
}

impl ArrayCursor {
    pub(super) const fn new(arrays: Vec<PieceArray>) -> Self {
        Self { arrays, array: 0, next: 0 }
    }

    pub(super) fn is_done(&self) -> bool {
        self.array == self.arrays.len()
    }

    /// The next piece, which must be there.
    pub(super) fn next(&mut self, budget: Budget) -> Result<FramePiece, FrameError> {
        let array = self.arrays.get(self.array).expect("the last frame of the last array ends it");
        let (shape, map, from) = (array.shape, array.shape.map(), self.next);
        let bytes_max = budget.payload_bytes_max.saturating_sub(array.prefix.len() as u64);
        let block_bytes = shape.memory_bytes() / map.len();
        let block_count = bytes_max / block_bytes;
        if block_count == 0 {
            return Err(FrameError::BlockTooLarge { block_bytes, payload_bytes_max: bytes_max });
        }
        let to = map.len().min(from + block_count);
        let slice = shape.with_range(map.range_of_blocks(from..to));
        let slice = slice.expect("a part of a shape is a shape");
        let word = |block: u64| usize::try_from(block * block_bytes / 8).unwrap_or(usize::MAX);
        let piece = FramePiece {
            array: self.array,
            words: word(from)..word(to),
            slice,
            prefix: array.prefix.clone(),
            form: array.form,
            budget,
        };
        (self.array, self.next) =
            if to == map.len() { (self.array + 1, 0) } else { (self.array, to) };
        Ok(piece)
    }
}

/// The pieces of a filter's arrays, in the order of [`frames`](super::frames), which are equal to the frames of
/// the pieces. Ends after the first error.
///
/// ```
/// use umbel_codec::{FrameKey, FramePieces, frames};
/// use umbel_filter::{Blocked, HashFunction, HashRange, Insert, ItemHash};
///
/// let mut filter = Blocked::new(HashRange::WHOLE, 16, 6)?;
/// let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 };
/// let pieces = FramePieces::of(&filter, key).expect("it is an array").cut_at(512);
/// let before = filter.clone();
/// filter.insert(ItemHash::new(1, 2))?;
/// // The words are those of the time at which the pieces were made.
/// for (piece, frame) in pieces.zip(frames(&before, key, 512)) {
///     let piece = piece?;
///     let words = &before.words()[piece.words()];
///     assert_eq!(piece.frame(words)?, frame?);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FramePieces {
    cursor: ArrayCursor,
    budget: Budget,
    has_failed: bool,
}

impl FramePieces {
    /// The pieces of a filter as it is now, for payloads of [`FRAME_PAYLOAD_BYTES_MAX`]. None of a filter that
    /// is a list of positions.
    pub fn of<'a>(filter: impl Into<FilterRef<'a>>, key: FrameKey) -> Option<Self> {
        let FilterRef(Source::Arrays(cursor, _)) = filter.into() else { return None };
        let payload_bytes_max = FRAME_PAYLOAD_BYTES_MAX as u64;
        let budget = Budget { key, payload_bytes_max, is_raw: false };
        Some(Self { cursor, budget, has_failed: false })
    }

    /// The same, with at most so many bytes behind the header of each frame, if that is less.
    #[must_use]
    pub fn cut_at(mut self, payload_bytes_max: usize) -> Self {
        let payload_bytes_max = payload_bytes_max as u64;
        self.budget.payload_bytes_max = self.budget.payload_bytes_max.min(payload_bytes_max);
        self
    }

    /// The same, for frames as of [`Frames::raw`](super::Frames::raw).
    #[must_use]
    pub const fn raw(mut self) -> Self {
        self.budget.is_raw = true;
        self
    }
}

impl Iterator for FramePieces {
    type Item = Result<FramePiece, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed || self.cursor.is_done() {
            return None;
        }
        let next = self.cursor.next(self.budget);
        self.has_failed = next.is_err();
        Some(next)
    }
}

/// A part of an array that becomes a frame.
#[derive(Clone, Debug)]
pub struct FramePiece {
    array: usize,
    words: Range<usize>,
    slice: BlockShape,
    prefix: Vec<u8>,
    form: Form,
    budget: Budget,
}

impl FramePiece {
    /// Number of the array, from 0 on: of a scalable filter its level, of RedisBloom's chain its link.
    #[must_use]
    pub const fn array(&self) -> usize {
        self.array
    }

    /// Which words of the array the piece has: whole cache lines, eight words each.
    #[must_use]
    pub fn words(&self) -> Range<usize> {
        self.words.clone()
    }

    /// The frame of the piece with these words.
    ///
    /// # Errors
    /// If the words are not of such a filter.
    pub fn frame(&self, words: &[u64]) -> Result<Vec<u8>, FrameError> {
        if words.len() != self.words.len() {
            let [expected, actual] = [self.words.len(), words.len()].map(|count| 8 * count as u64);
            return Err(PayloadError::Length { expected, actual }.into());
        }
        let Self { slice, budget, .. } = *self;
        let body = match self.form {
            Form::Blocks | Form::Table | Form::Window(_) => Body::Blocks(slice),
            Form::Level => Body::Level(slice),
            Form::Link => Body::Link(slice),
        };
        let slices = match self.form {
            Form::Blocks | Form::Level | Form::Link => {
                return seal_array(budget, body, &self.prefix, words);
            }
            Form::Window(slices) => Some(slices),
            Form::Table => None,
        };
        let count = check_table(slice, slices, words).map_err(PayloadError::from)?;
        seal_words(budget.key, body, &self.prefix, (words, count))
    }
}
