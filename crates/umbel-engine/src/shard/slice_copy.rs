//! A slice at one point in time, from which frames are made while the slice itself changes.

use umbel_codec::Frames;

use super::part_error::PartError;
use super::slice::Slice;
use super::state::ShardState;
use crate::ids::{FilterId, Generation};

/// A slice at one point in time.
pub struct SliceCopy(Slice);

impl SliceCopy {
    pub(super) const fn of(slice: Slice) -> Self {
        Self(slice)
    }

    /// The frames in order of hash range, with payloads of at most this many bytes.
    ///
    /// # Errors
    /// If this release does not know the hash function of the slice's key.
    pub fn frames(&self, payload_bytes_max: usize) -> Result<SliceFrames<'_>, PartError> {
        Ok(SliceFrames(match &self.0 {
            Content::Shared(slice) => Source::Shared(slice.frames(payload_bytes_max)?),
            Content::Read(reader) => {
                Source::Read(reader, reader.pieces.clone().cut_at(payload_bytes_max))
            }
        }))
    }

    }
}

impl ShardState {
    /// Index of the last log entry that may have changed a slice. If two calls return the same index,
    /// nothing changed the slice in between; the reverse does not hold, because a replica that installed a
    /// snapshot in between may return a higher index.
    ///
    /// # Errors
    /// If there is no such slice, or it is at another generation.
    pub fn written_index(
        &self,
        filter: FilterId,
        generation: Generation,
    ) -> Result<u64, PartError> {
        Ok(self.slice(filter, generation)?.written_index)
    }

    /// Checks that there is a slice of this filter at this generation.
    ///
    /// # Errors
    /// If there is no such slice, or it is at another generation.
    pub fn check_slice(&self, filter: FilterId, generation: Generation) -> Result<(), PartError> {
        self.slice(filter, generation).map(|_| ())
    }

    /// A copy of a slice. Memory is shared until the slice changes; if the copy still exists then, the
    /// slice is copied.
    ///
    /// # Errors
    /// If there is no such slice, or it is at another generation.
    pub fn copy_slice(
        &self,
        filter: FilterId,
        generation: Generation,
    ) -> Result<SliceCopy, PartError> {
        Ok(SliceCopy(self.slice(filter, generation)?.clone()))
    }
}
