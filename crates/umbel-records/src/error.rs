//! Why a file could not be read to its end.
//!
//! Every error ends the reading of its file or span, because record boundaries behind the damage are
//! unknown. The whole records before it were delivered first.

use std::io;

use crate::Compression;

/// Why reading stopped. All whole records before that position were delivered; nothing behind it will
/// be.
///
/// ```
/// use std::sync::Arc;
/// use umbel_records::{Compression, ReadError, ReadLimits, RecordReader};
///
/// let file = tempfile::tempfile()?; // empty: not even a gzip header
/// let limits = ReadLimits::default();
/// let mut reader = RecordReader::open(Arc::new(file), Compression::Gzip, None, limits)?;
/// let error = reader.next_block().unwrap_err();
/// assert!(matches!(error, ReadError::Truncated { content_offset: 0, .. }));
/// assert_eq!(error.cause(), "truncated");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The operating system could not read the file. Check the medium and that it is a regular file
    /// (a pipe or terminal cannot be read twice); retrying with a new reader is safe.
    #[error("cannot read at byte {offset} of the file")]
    Io {
        /// Offset in the stored file in bytes.
        offset: u64,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The compressed file ends too early: an interrupted copy or a writer that still runs. Fetch
    /// the file again, or skip the damage and report the rest of the file as lost.
    #[error(
        "{compression} file is cut off in the middle of a stream, after {content_offset} bytes of \
         content"
    )]
    Truncated {
        /// The file's compression.
        compression: Compression,
        /// Content bytes decoded before the file ended.
        content_offset: u64,
    },
    /// The compressed file is damaged: a checksum or the compressed data is wrong, or foreign bytes
    /// follow it. Fetch the file again, or skip the damage and report the rest of the file as lost. A
    /// checksum covers a whole gzip member or zstd frame and is verified only at its end, so records
    /// delivered from the same member or frame may be wrong as well.
    #[error(
        "{compression} file is damaged near byte {stored_offset}, after {content_offset} bytes of \
         content: {detail}"
    )]
    Corrupt {
        /// The file's compression.
        compression: Compression,
        /// Content bytes decoded before the damage.
        content_offset: u64,
        /// Stored bytes decoded before the damage was noticed.
        stored_offset: u64,
        /// The decoder's message.
        detail: &'static str,
    },
    /// The file was written with a larger window than the decoder accepts (`zstd --long` above 27, `xz`
    /// with a dictionary above 128 MiB). It is intact: write it again with a smaller one.
    #[error(
        "{compression} file needs more than {} MiB to unpack, after {content_offset} bytes of \
         content; write it with a window of 128 MiB or less (zstd --long=27, xz -9)",
        limit_bytes >> 20
    )]
    WindowTooLarge {
        /// The file's compression.
        compression: Compression,
        /// Content bytes decoded before the frame with that window.
        content_offset: u64,
        /// The largest accepted window, in bytes.
        limit_bytes: u64,
    },
    /// A record is longer than [`ReadLimits::record_bytes_max`](crate::ReadLimits). Raise the limit
    /// if memory allows, or check whether the file is made of lines at all.
    #[error(
        "record at byte {content_offset} of the content is longer than the limit of {limit} bytes"
    )]
    RecordTooLong {
        /// Offset of the record's first byte in the content of the file.
        content_offset: u64,
        /// Longest record accepted in bytes, terminator included.
        limit: usize,
    },
    /// A table ends within a quoted field. Look for a quote that was never closed: everything from the
    /// start of that record on is lost.
    #[error(
        "the file ends within a quoted field of the record at byte {content_offset} of the content"
    )]
    UnclosedQuote {
        /// Offset of the record's first byte in the content of the file.
        content_offset: u64,
    },
    /// A Parquet file cannot be read further. The rest of the row group is lost.
    #[error(transparent)]
    Parquet(#[from] crate::ParquetError),
    /// A span of a compressed file was requested, but such a file can only be read from its start. A
    /// bug of the caller: read the whole file. Nothing was read.
    #[error("a {compression} file cannot be read in spans; read it whole")]
    SpanOfCompressed {
        /// The file's compression.
        compression: Compression,
    },
}

impl ReadError {
    /// A stable snake_case name of the cause, for summaries that count by cause: `io`, `truncated`,
    /// `corrupt`, `window_too_large`, `record_too_long`, `unclosed_quote` `span_of_compressed`, or
    /// that of the [`ParquetError`](crate::ParquetError).
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Io { .. } => "io",
            Self::Truncated { .. } => "truncated",
            Self::Corrupt { .. } => "corrupt",
            Self::WindowTooLarge { .. } => "window_too_large",
            Self::RecordTooLong { .. } => "record_too_long",
            Self::UnclosedQuote { .. } => "unclosed_quote",
            Self::Parquet(error) => error.cause(),
            Self::SpanOfCompressed { .. } => "span_of_compressed",
        }
    }
}
