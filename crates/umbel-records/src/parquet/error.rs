//! Why a Parquet file could not be read or copied.

use std::io;

/// Why reading or copying a Parquet file stopped. Rows delivered before it are valid; no further ones
/// will be delivered. The caller knows the name of the file.
///
/// ```
/// use std::sync::Arc;
/// use umbel_records::{ParquetError, ParquetFile};
///
/// let file = tempfile::tempfile()?; // empty: not even a footer
/// let error = ParquetFile::open(Arc::new(file)).unwrap_err();
/// assert!(matches!(error, ParquetError::Footer { .. }));
/// assert_eq!(error.cause(), "corrupt");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
pub enum ParquetError {
    /// The operating system could not read the file. Try again, or repair the disk.
    #[error("cannot read at byte {offset}")]
    Io {
        /// The offset of the failed read, in bytes from the start of the file.
        offset: u64,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The file ends before its footer is complete, or the footer is damaged. Restore the file from its
    /// source: nothing of it can be read.
    #[error("the Parquet footer is damaged: {detail}")]
    Footer {
        /// What was expected.
        detail: String,
    },
    /// A column chunk is damaged, or announces implausible sizes. Restore the file from its source.
    #[error("row group {row_group}, column `{column}` is damaged: {detail}")]
    Column {
        /// Number of the row group, counted from 1.
        row_group: usize,
        /// Path of the column.
        column: String,
        /// What was expected.
        detail: String,
    },
    /// The compression or encryption of a column is not supported. Write the file again, for instance
    /// with zstd.
    #[error("row group {row_group}, column `{column}` is packed as {codec}, which cannot be read")]
    Codec {
        /// Number of the row group, counted from 1.
        row_group: usize,
        /// Path of the column.
        column: String,
        /// Name of the compression.
        codec: String,
    },
    /// The copy could not be written. The output is incomplete.
    #[error("cannot write Parquet: {detail}")]
    Write {
        /// What failed.
        detail: String,
    },
}

impl ParquetError {
    /// A stable snake_case name of the cause, for summaries that count by cause: `io`, `corrupt`,
    /// `unsupported` or `write`.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Io { .. } => "io",
            Self::Footer { .. } | Self::Column { .. } => "corrupt",
            Self::Codec { .. } => "unsupported",
            Self::Write { .. } => "write",
        }
    }
}
