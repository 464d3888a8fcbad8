//! The content of an lz4 file: frames in a row, skippable ones among them (LZ4 frame format 1.6).
//!
//! Frames of the legacy format, which have no end mark, are not supported. A new decoder is created for
//! each frame: blocks have at most 4 MiB, so a decoder takes at most 12 MiB.

use std::io::{self, Read};

use lz4_flex::frame::{Error as FrameError, FrameDecoder};

use crate::Compression;
use crate::decode::{Decode, Progress, read_steps};
use crate::error::ReadError;
use crate::stored::{StoredBuffer, StoredFile};

/// The stored bytes as a reader for the decoder, which records whether their end was reached.
struct Input {
    stored: StoredBuffer,
    /// The decoder requested bytes beyond the end of the file.
    has_ended: bool,
    /// Why bytes could not be read.
    error: Option<ReadError>,
}

impl Read for Input {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        match self.stored.bytes() {
            Ok(bytes) => {
                let count = bytes.len().min(target.len());
                target[..count].copy_from_slice(&bytes[..count]);
                self.stored.consume(count);
                self.has_ended |= count == 0 && !target.is_empty();
                Ok(count)
            }
            Err(error) => {
                self.error = Some(error);
                Err(io::ErrorKind::Other.into())
            }
        }
    }
}

/// Decodes an lz4 file from its start.
pub(crate) struct Lz4Source {
    /// `None` only while one frame's decoder is replaced by the next one's.
    decoder: Option<FrameDecoder<Input>>,
    /// Whether a frame begins at the next byte, or the file ends there.
    is_between: bool,
    /// Whether a frame was seen: an empty file is not an lz4 file.
    has_begun: bool,
    content_offset: u64,
}

impl Lz4Source {
    pub(crate) fn new(stored: StoredFile) -> Self {
        let input = Input { stored: StoredBuffer::new(stored), has_ended: false, error: None };
        let decoder = Some(FrameDecoder::new(input));
        Self { decoder, is_between: true, has_begun: false, content_offset: 0 }
    }

    fn decoder(&mut self) -> &mut FrameDecoder<Input> {
        self.decoder.as_mut().expect("it is put back at once")
    }

    /// One call of the decoder; `None` at the end of the content.
    fn step(&mut self, target: &mut [u8]) -> Result<Option<usize>, ReadError> {
        if self.is_between {
            let is_over = self.decoder().get_mut().stored.bytes()?.is_empty();
            if is_over && self.has_begun {
                return Ok(None);
            }
            let input = self.decoder.take().expect("it is put back at once").into_inner();
            self.decoder = Some(FrameDecoder::new(input));
            (self.is_between, self.has_begun) = (false, true);
        }
        match self.decoder().read(target) {
            Ok(0) if self.decoder().get_ref().has_ended => Err(self.progress().truncated()),
            Ok(0) => {
                self.is_between = true;
                Ok(Some(0))
            }
            Ok(count) => {
                self.content_offset += count as u64;
                Ok(Some(count))
            }
            Err(error) => self.pass_over(error),
        }
    }

    /// Skips a frame without content; any other error ends the content.
    fn pass_over(&mut self, error: io::Error) -> Result<Option<usize>, ReadError> {
        if let Some(error) = self.decoder().get_mut().error.take() {
            return Err(error);
        }
        if let FrameError::SkippableFrame(length) = FrameError::from(error) {
            let mut left = u64::from(length);
            while left > 0 {
                let stored = &mut self.decoder().get_mut().stored;
                let count = stored.bytes()?.len();
                if count == 0 {
                    return Err(self.progress().truncated());
                }
                let count = usize::try_from(left).map_or(count, |left| left.min(count));
                stored.consume(count);
                left -= count as u64;
            }
            self.is_between = true;
            return Ok(Some(0));
        }
        if self.decoder().get_ref().has_ended {
            return Err(self.progress().truncated());
        }
        let detail = "wrong header, code or checksum, or a dictionary, which is not at hand";
        Err(self.progress().corrupt(detail))
    }
}

impl Decode for Lz4Source {
    fn read(&mut self, target: &mut [u8]) -> (usize, Option<ReadError>) {
        read_steps(|| self.step(target))
    }

    fn progress(&self) -> Progress {
        let stored_offset =
            self.decoder.as_ref().map_or(0, |decoder| decoder.get_ref().stored.offset());
        let (compression, content_offset) = (Compression::Lz4, self.content_offset);
        Progress { compression, content_offset, stored_offset }
    }
}
