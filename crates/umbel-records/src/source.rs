//! The content of a file, with any compression.
//!
//! Not a boxed reader: reading a plain file is one positional read into the caller's buffer, and a
//! decoder can return content and the error that follows it in one call.

use crate::decode::Decode;
use crate::error::ReadError;
use crate::gzip::GzipSource;
use crate::limits::OVERHANG_BYTES;
use crate::lz4_frames::Lz4Source;
use crate::stored::{Stored, StoredFile};
use crate::streams;
use crate::zstd_frames::ZstdSource;
use crate::{ByteSpan, Compression};

/// The source of content.
#[derive(Debug)]
pub(crate) enum Source {
    /// Stored bytes as they are: large reads up to `span_end`, small ones behind it.
    Plain { stored: StoredFile, span_end: u64 },
    /// A compressed file, decoded.
    Decoded(Box<dyn Decode>),
}

impl Source {
    /// The content of stored bytes from `span.start` on. Compressed files are decoded from their start.
    pub(crate) fn new(
        stored: &Stored,
        compression: Compression,
        span: ByteSpan,
    ) -> Result<Self, ReadError> {
        let whole = || StoredFile::new(stored, ByteSpan::ALL);
        Ok(match compression {
            Compression::Plain => {
                // The last record that starts in the span mostly ends in the first small read behind
                // it.
                let end = span.end.saturating_add(OVERHANG_BYTES as u64);
                let stored = StoredFile::new(stored, ByteSpan { end, ..span });
                Self::Plain { stored, span_end: span.end }
            }
            Compression::Gzip => Self::Decoded(Box::new(GzipSource::new(whole()))),
            Compression::Zstd => Self::Decoded(Box::new(ZstdSource::new(whole())?)),
            Compression::Xz => Self::Decoded(streams::xz(whole())?),
            Compression::Bzip2 => Self::Decoded(streams::bzip2(whole())?),
            Compression::Lz4 => Self::Decoded(Box::new(Lz4Source::new(whole()))),
        })
    }

    /// Reads into `target`, which must not be empty. Returns the number of bytes written, 0 at the end
    /// of the content, and the error that follows them.
    pub(crate) fn read(&mut self, target: &mut [u8]) -> (usize, Option<ReadError>) {
        match self {
            Self::Plain { stored, span_end } => {
                let stride_bytes = match span_end.saturating_sub(stored.offset()) {
                    0 => OVERHANG_BYTES,
                    rest => usize::try_from(rest).unwrap_or(usize::MAX),
                };
                let count = target.len().min(stride_bytes);
                match stored.read(&mut target[..count]) {
                    Ok(count) => (count, None),
                    Err(error) => (0, Some(error)),
                }
            }
            Self::Decoded(decoder) => decoder.read(target),
        }
    }

    /// Offset in the stored file of the next byte to read or decode.
    pub(crate) fn stored_offset(&self) -> u64 {
        match self {
            Self::Plain { stored, .. } => stored.offset(),
            Self::Decoded(decoder) => decoder.progress().stored_offset,
        }
    }
}
