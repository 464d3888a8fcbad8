//! A slice at one point in time, from which frames are made while the slice itself changes.
//!
//! Of kinds whose inserts change a few positions that are known from the item, nothing is copied: the slice keeps
//! positions that change before they are read, as they were (`undo_log`). All other kinds are shared, and copied by the
//! first change.

use std::fmt;
use std::sync::{Arc, Weak};

use thiserror::Error;
use umbel_codec::{FrameError, FramePiece, FramePieces, Frames};
use umbel_filter::AnyFilter;

use super::changed_positions::changed_kind;
use super::slice::{Slice, frame_key};
use super::state::ShardState;
use super::undo_log::UndoLog;
use crate::ids::{FilterId, Generation};
use crate::shard::PartResult;

/// Who holds the state of a shard and changes it.
pub trait ShardOwner: Send + Sync {
    /// Calls `read` once with the state as it is now, which must not change meanwhile.
    fn read_state(&self, read: &mut dyn FnMut(&ShardState));
}

/// A slice at one point in time.
#[derive(Debug)]
pub struct SliceCopy(Content);

#[derive(Debug)]
enum Content {
    Shared(Box<Slice>),
    Read(SliceReader),
}

/// A slice that is read where it is.
struct SliceReader {
    filter: FilterId,
    /// Gone if the owner stopped: then the log has what is needed.
    owner: Weak<dyn ShardOwner>,
    log: Arc<UndoLog>,
    /// The pieces that it had.
    pieces: FramePieces,
}

impl fmt::Debug for SliceReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SliceReader").field("filter", &self.filter).finish_non_exhaustive()
    }
}

/// Why a slice was not read on. Begin anew with another copy.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum SliceReadError {
    /// A frame was not made.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The frames were requested a second time, or the shard's owner gave its state away without a word.
    #[error("the slice of {filter} was read already, or is gone; begin to read it anew")]
    Gone {
        /// The slice's filter.
        filter: FilterId,
    },
}

impl SliceCopy {
    pub(super) fn of(slice: Slice) -> Self {
        Self(Content::Shared(Box::new(slice)))
    }

    /// A slice of a state that the owner has.
    pub(super) fn read_by(owner: &Arc<dyn ShardOwner>, slice: &Slice) -> Self {
        let pieces = || FramePieces::of(&*slice.filter, frame_key(slice.spec.key).ok()?);
        // Pieces are made only of kinds that are read so.
        match changed_kind(slice.kind()).and_then(|kind| Some((kind, pieces()?))) {
            Some((kind, pieces)) => Self(Content::Read(SliceReader {
                filter: slice.spec.filter,
                owner: Arc::downgrade(owner),
                log: slice.filter.begin_log(kind),
                pieces,
            })),
            None => Self::of(slice.clone()),
        }
    }

    /// The frames in order of hash range, with payloads of at most this many bytes. Those of a slice that is read
    /// where it is ([`ShardState::read_slice`]) can be read once.
    ///
    /// # Errors
    /// If this release does not know the hash function of the slice's key.
    pub fn frames(&self, payload_bytes_max: usize) -> PartResult<SliceFrames<'_>> {
        Ok(SliceFrames(match &self.0 {
            Content::Shared(slice) => Source::Shared(slice.frames(payload_bytes_max)?),
            Content::Read(reader) => {
                Source::Read(reader, reader.pieces.clone().cut_at(payload_bytes_max))
            }
        }))
    }

    /// The log of a slice that is read where it is.
    #[cfg(test)]
    pub(super) const fn log(&self) -> Option<&Arc<UndoLog>> {
        match &self.0 {
            Content::Shared(_) => None,
            Content::Read(reader) => Some(&reader.log),
        }
    }
}

impl SliceReader {
    fn frame(&self, piece: &FramePiece) -> Result<Vec<u8>, SliceReadError> {
        let read = |filter: Option<&AnyFilter>| self.log.read(piece.array(), piece.words(), filter);
        let mut words = None;
        match self.owner.upgrade().filter(|_| !self.log.has_ended()) {
            Some(owner) => owner.read_state(&mut |state| {
                let slice = state.slices.get(&self.filter);
                let slice = slice.filter(|slice| slice.filter.keeps(&self.log));
                words = read(slice.map(|slice| &*slice.filter));
            }),
            None => words = read(None),
        }
        let words = words.ok_or(SliceReadError::Gone { filter: self.filter })?;
        // Whoever waits for the state does not wait for the codes.
        Ok(piece.frame(&words)?)
    }
}

/// The frames of a slice as it was, one at a time. Ends after the first error.
#[must_use = "frames are made as they are asked for"]
pub struct SliceFrames<'a>(Source<'a>);

enum Source<'a> {
    Shared(Frames<'a>),
    Read(&'a SliceReader, FramePieces),
    Failed,
}

impl SliceFrames<'_> {
    /// The same, with arrays written as words whatever is shorter, as [`Frames::raw`].
    pub fn raw(self) -> Self {
        Self(match self.0 {
            Source::Shared(frames) => Source::Shared(frames.raw()),
            Source::Read(reader, pieces) => Source::Read(reader, pieces.raw()),
            Source::Failed => Source::Failed,
        })
    }
}

impl Iterator for SliceFrames<'_> {
    type Item = Result<Vec<u8>, SliceReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = match &mut self.0 {
            Source::Shared(frames) => frames.next()?.map_err(SliceReadError::from),
            Source::Read(reader, pieces) => match pieces.next() {
                Some(Ok(piece)) => reader.frame(&piece),
                Some(Err(error)) => Err(error.into()),
                None => {
                    reader.log.finish();
                    return None;
                }
            },
            Source::Failed => return None,
        };
        if next.is_err() {
            self.0 = Source::Failed;
        }
        Some(next)
    }
}

impl ShardState {
    /// Index of the last log entry that may have changed a slice. If two calls return the same index,
    /// nothing changed the slice in between; the reverse does not hold, because a replica that installed a
    /// snapshot in between may return a higher index.
    ///
    /// # Errors
    /// If there is no such slice, or it is at another generation.
    pub fn written_index(&self, filter: FilterId, generation: Generation) -> PartResult<u64> {
        Ok(self.slice(filter, generation)?.written_index)
    }

    /// Checks that there is a slice of this filter at this generation.
    ///
    /// # Errors
    /// If there is no such slice, or it is at another generation.
    pub fn check_slice(&self, filter: FilterId, generation: Generation) -> PartResult<()> {
        self.slice(filter, generation).map(|_| ())
    }

    /// A slice as it is now, for frames that are read soon, and once, while the owner changes this state. The copy does
    /// not keep the owner: once that has stopped, the copy itself has what was not read yet.
    ///
    /// Inserts and removals keep the positions that they change, as they were, as far as these were not read yet, in up
    /// to [`UNDO_LOG_BYTES_MAX`](crate::limits::UNDO_LOG_BYTES_MAX) and a third of the slice; above that, what was not read
    /// yet is copied. When anything else changes the slice, it is copied whole. Slices of single-shot, windowed, aging,
    /// stable, cuckoo and quotient filters are shared, and copied by the first change.
    ///
    /// # Errors
    /// If there is no such slice, or it is at another generation.
    pub fn read_slice(
        &self,
        filter: FilterId,
        generation: Generation,
        owner: &Arc<dyn ShardOwner>,
    ) -> PartResult<SliceCopy> {
        Ok(SliceCopy::read_by(owner, self.slice(filter, generation)?))
    }
}
