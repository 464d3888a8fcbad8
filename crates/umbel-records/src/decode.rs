//! What the decoders of all compressions have in common.

use std::fmt;

use crate::Compression;
use crate::error::ReadError;

/// Decodes the content of a file from its start.
pub(crate) trait Decode: Send {
    /// Decodes into `target`, which must not be empty. Returns the number of bytes written, 0 at the
    /// end of the content, and the error that follows them.
    fn read(&mut self, target: &mut [u8]) -> (usize, Option<ReadError>);

    /// How far the file is decoded.
    fn progress(&self) -> Progress;
}

/// Repeats steps until one writes bytes or fails, or the content ends, for which a step returns `None`.
pub(crate) fn read_steps(
    mut step: impl FnMut() -> Result<Option<usize>, ReadError>,
) -> (usize, Option<ReadError>) {
    loop {
        match step() {
            Ok(Some(0)) => {}
            Ok(Some(count)) => return (count, None),
            Ok(None) => return (0, None),
            Err(error) => return (0, Some(error)),
        }
    }
}

impl fmt::Debug for dyn Decode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.progress().fmt(f)
    }
}

/// How far a file is decoded.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) compression: Compression,
    /// Bytes of content so far.
    pub(crate) content_offset: u64,
    /// Offset in the file of the next byte to decode.
    pub(crate) stored_offset: u64,
}

impl Progress {
    /// The file ends within the content.
    pub(crate) fn truncated(self) -> ReadError {
        let Self { compression, content_offset, .. } = self;
        ReadError::Truncated { compression, content_offset }
    }

    /// The file is damaged here.
    pub(crate) fn corrupt(self, detail: &'static str) -> ReadError {
        let Self { compression, content_offset, stored_offset } = self;
        ReadError::Corrupt { compression, content_offset, stored_offset, detail }
    }

    /// The decoder would need more memory than this limit allows.
    pub(crate) fn window_too_large(self, limit_bytes: u64) -> ReadError {
        let Self { compression, content_offset, .. } = self;
        ReadError::WindowTooLarge { compression, content_offset, limit_bytes }
    }
}
