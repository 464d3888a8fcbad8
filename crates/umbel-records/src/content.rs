//! The content of a file without regard to records.

use crate::digest::RunningDigest;
use crate::error::ReadError;
use crate::limits::{BLOCK_BYTES_DEFAULT, FIRST_READ_BYTES};
use crate::source::Source;
use crate::{ByteSpan, Compression, ContentDigest, Stored};

/// The first `bytes` bytes of a file's decompressed content, or all if there are fewer. A read error
/// ends it early.
pub fn content_head(stored: &Stored, compression: Compression, bytes: usize) -> Vec<u8> {
    let mut head = vec![0; bytes];
    let mut filled = 0;
    if let Ok(mut source) = Source::new(stored, compression, ByteSpan::ALL) {
        while filled < bytes {
            let (count, error) = source.read(&mut head[filled..]);
            filled += count;
            if count == 0 || error.is_some() {
                break;
            }
        }
    }
    head.truncate(filled);
    head
}

/// Reads the decompressed content of a file in blocks that may end anywhere.
///
/// ```
/// use std::io::Write;
/// use std::sync::Arc;
/// use umbel_records::{Compression, ContentReader};
///
/// let mut file = tempfile::tempfile()?;
/// file.write_all(b"no line end")?;
/// let mut reader = ContentReader::open(Arc::new(file), Compression::Plain)?;
/// assert_eq!(reader.next_block()?, Some(&b"no line end"[..]));
/// assert_eq!(reader.next_block()?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ContentReader {
    source: Source,
    buffer: Vec<u8>,
    digest: RunningDigest,
    /// The error that follows the block that was delivered last.
    error: Option<ReadError>,
}

impl ContentReader {
    /// A reader of a file. Nothing is read yet.
    ///
    /// # Errors
    /// [`ReadError::Io`] if a decoder cannot allocate memory.
    pub fn open(file: impl Into<Stored>, compression: Compression) -> Result<Self, ReadError> {
        let source = Source::new(&file.into(), compression, ByteSpan::ALL)?;
        Ok(Self { source, buffer: Vec::new(), digest: RunningDigest::new(), error: None })
    }

    /// The next block, never empty, or `None` at the end.
    ///
    /// # Errors
    /// The file is damaged; all content before the damage was delivered by earlier calls.
    pub fn next_block(&mut self) -> Result<Option<&[u8]>, ReadError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let grown = (2 * self.buffer.len()).clamp(FIRST_READ_BYTES, BLOCK_BYTES_DEFAULT);
        self.buffer.resize(grown, 0);
        let (count, error) = self.source.read(&mut self.buffer);
        match error {
            Some(error) if count == 0 => return Err(error),
            error => self.error = error,
        }
        let block = &self.buffer[..count];
        self.digest.update(block);
        Ok(Some(block).filter(|block| !block.is_empty()))
    }

    /// Length and CRC-32C of all content delivered so far.
    pub fn digest(&self) -> ContentDigest {
        self.digest.value()
    }

    /// Bytes of the stored file read so far.
    pub fn stored_bytes_read(&self) -> u64 {
        self.source.stored_offset()
    }
}
