//! The content of a zstd file: frames in a row, skippable ones among them (RFC 8878).
//!
//! The decoder gets exactly the input that it requests, one block at a time, and no input while it
//! still holds back content. A call that fails returns no content at all, so a damaged block loses only
//! its own content: the blocks before it are delivered. This way also avoids a copy inside the decoder.

use zstd::zstd_safe::{DCtx, ErrorCode, InBuffer, OutBuffer, get_error_name};

use crate::Compression;
use crate::decode::{Decode, Progress, read_steps};
use crate::error::ReadError;
use crate::stored::{StoredBuffer, StoredFile};

/// Bytes that identify the kind of the next frame: the magic number and the first byte of the header.
const FRAME_START_BYTES: usize = 5;

/// Largest window that the decoder accepts by default, `ZSTD_WINDOWLOG_LIMIT_DEFAULT`: 128 MiB, as
/// `zstd(1)` does.
const WINDOW_BYTES_MAX: u64 = 1 << 27;

/// `ZSTD_error_frameParameter_windowTooLarge` of `zstd_errors.h`, a stable number there.
const WINDOW_TOO_LARGE: usize = 16;

/// Decodes a zstd file from its start.
pub(crate) struct ZstdSource {
    stored: StoredBuffer,
    decoder: DCtx<'static>,
    /// Bytes that the decoder requests next; 0 between two frames.
    wanted: usize,
    /// The last call filled its target, so the decoder may hold back more content.
    holds_content: bool,
    content_offset: u64,
}

impl ZstdSource {
    pub(crate) fn new(stored: StoredFile) -> Result<Self, ReadError> {
        let Some(decoder) = DCtx::try_create() else { return Err(stored.out_of_memory()) };
        // An empty file is not a zstd file: the start of a frame is required.
        let wanted = FRAME_START_BYTES;
        let stored = StoredBuffer::new(stored);
        Ok(Self { stored, decoder, wanted, holds_content: false, content_offset: 0 })
    }

    /// One call of the decoder; `None` at the end of the content.
    fn decode(&mut self, target: &mut [u8]) -> Result<Option<usize>, ReadError> {
        let input = if self.holds_content { &[] } else { self.stored.bytes()? };
        if input.is_empty() && !self.holds_content {
            return match self.wanted {
                0 => Ok(None),
                _ => Err(self.progress().truncated()),
            };
        }
        let offered = if self.wanted == 0 { FRAME_START_BYTES } else { self.wanted };
        let mut input = InBuffer::around(&input[..offered.min(input.len())]);
        let mut output = OutBuffer::around(&mut *target);
        let result = self.decoder.decompress_stream(&mut output, &mut input);
        let (consumed, produced) = (input.pos(), output.pos());
        self.stored.consume(consumed);
        self.content_offset += produced as u64;
        self.wanted = result.map_err(|code| self.error(code))?;
        // 0 means that the frame is complete and all of its content was written.
        self.holds_content = produced == target.len() && self.wanted != 0;
        Ok(Some(produced))
    }

    fn error(&self, code: ErrorCode) -> ReadError {
        // zstd returns errors as negated numbers in a size_t.
        if code.wrapping_neg() == WINDOW_TOO_LARGE {
            return self.progress().window_too_large(WINDOW_BYTES_MAX);
        }
        self.progress().corrupt(get_error_name(code))
    }
}

impl Decode for ZstdSource {
    fn read(&mut self, target: &mut [u8]) -> (usize, Option<ReadError>) {
        read_steps(|| self.decode(target))
    }

    fn progress(&self) -> Progress {
        let (content_offset, stored_offset) = (self.content_offset, self.stored.offset());
        Progress { compression: Compression::Zstd, content_offset, stored_offset }
    }
}
