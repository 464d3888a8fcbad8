//! A slice at one moment, from which frames are made while the slice moves on.

use umbel_codec::Frames;

use super::command::PartError;
use super::slice::Slice;
use super::state::ShardState;
use crate::ids::{FilterId, Generation};

/// One slice at one moment.
pub struct SliceCopy(Slice);

impl SliceCopy {
    pub(super) const fn of(slice: Slice) -> Self {
        Self(slice)
    }

    /// The frames in order of hash range, with payloads of so many bytes at most.
    ///
    /// # Errors
    /// If the slice's key has a hash function that this release does not know.
    pub fn frames(&self, payload_bytes_max: usize) -> Result<Frames<'_>, PartError> {
        self.0.frames(payload_bytes_max)
    }
}

impl ShardState {
    /// Index of the last entry of the log that may have changed a slice. Two equal answers say that nothing changed it
    /// in between; a replica that was loaded meanwhile may name a higher index though nothing did.
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

    /// Whether there is a slice of this filter at this generation.
    ///
    /// # Errors
    /// If there is none, or it is at another generation.
    pub fn check_slice(&self, filter: FilterId, generation: Generation) -> Result<(), PartError> {
        self.slice(filter, generation).map(|_| ())
    }

    /// A slice as it is. It is shared, and copied when it is changed before that is let go of.
    ///
    /// # Errors
    /// If there is none, or it is at another generation.
    pub fn copy_slice(
        &self,
        filter: FilterId,
        generation: Generation,
    ) -> Result<SliceCopy, PartError> {
        Ok(SliceCopy(self.slice(filter, generation)?.clone()))
    }
}
