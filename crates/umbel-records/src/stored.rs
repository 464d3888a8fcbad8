//! Stored bytes, read by offset: of a local file, or of what lies elsewhere.
//!
//! Positional reads keep no cursor in the file, so that several readers, also in several threads,
//! can share one open file. What is not local is read through a port: this crate knows no network,
//! and says only what it will want next.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::ByteSpan;
use crate::error::ReadError;
use crate::limits::STORED_BYTES;

/// Bytes that do not change while they are read, wherever they lie.
///
/// ```
/// use std::sync::Arc;
/// use umbel_records::{Compression, ContentReader, Stored};
///
/// let stored = Stored::from(Arc::new(tempfile::tempfile()?));
/// assert_eq!(stored.bytes()?, 0);
/// assert_eq!(ContentReader::open(stored, Compression::Plain)?.next_block()?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub enum Stored {
    /// An open local file, whose cursor is neither used nor moved.
    File(Arc<File>),
    /// Anything else.
    Remote(Arc<dyn RemoteBytes>),
}

/// A port: bytes that are no local file. Every reader sees the same ones, or fails.
pub trait RemoteBytes: std::fmt::Debug + Send + Sync {
    /// How many there are.
    fn bytes(&self) -> u64;

    /// A reader that will probably be asked for the bytes of `span` (whose end may lie behind the
    /// last one) from first to last, so that it may bring them before that. Nothing need be read
    /// yet, and reads outside of it must work as well.
    fn open(&self, span: ByteSpan) -> Box<dyn RemoteReader>;
}

/// What reads [`RemoteBytes`] for one user.
pub trait RemoteReader: std::fmt::Debug + Send {
    /// Reads some bytes at `offset` into `target`, which is not empty; 0 mean the end of all bytes.
    /// Offsets mostly go on where the last read has ended, or a few hundred bytes in front of that.
    ///
    /// # Errors
    /// If the bytes cannot be had, or are not those that other readers saw.
    fn read_at(&mut self, target: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl Stored {
    /// How many bytes there are.
    ///
    /// # Errors
    /// What the system says of a file.
    pub fn bytes(&self) -> io::Result<u64> {
        match self {
            Self::File(file) => Ok(file.metadata()?.len()),
            Self::Remote(remote) => Ok(remote.bytes()),
        }
    }
}

impl From<Arc<File>> for Stored {
    fn from(file: Arc<File>) -> Self {
        Self::File(file)
    }
}

/// Reads once at `offset`; 0 bytes mean the end of the file. Interrupted calls are repeated.
pub(crate) fn read_at(file: &File, target: &mut [u8], offset: u64) -> Result<usize, ReadError> {
    loop {
        match file.read_at(target, offset) {
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(source) => return Err(ReadError::Io { offset, source }),
        }
    }
}

/// A reader of one user, by offset.
#[derive(Debug)]
pub(crate) enum StoredReader {
    File(Arc<File>),
    Remote(Box<dyn RemoteReader>),
}

impl StoredReader {
    /// A reader of what will mostly be `span`, from first to last.
    pub(crate) fn new(stored: &Stored, span: ByteSpan) -> Self {
        match stored {
            Stored::File(file) => Self::File(Arc::clone(file)),
            Stored::Remote(remote) => Self::Remote(remote.open(span)),
        }
    }

    /// Reads once at `offset`; 0 bytes mean the end.
    pub(crate) fn read_at(&mut self, target: &mut [u8], offset: u64) -> Result<usize, ReadError> {
        match self {
            Self::File(file) => read_at(file, target, offset),
            Self::Remote(reader) => {
                reader.read_at(target, offset).map_err(|source| ReadError::Io { offset, source })
            }
        }
    }
}

/// Stored bytes and a private position in them.
#[derive(Debug)]
pub(crate) struct StoredFile {
    reader: StoredReader,
    offset: u64,
}

impl StoredFile {
    /// Stands at the start of `span`; what is behind its end will hardly be read.
    pub(crate) fn new(stored: &Stored, span: ByteSpan) -> Self {
        Self { reader: StoredReader::new(stored, span), offset: span.start }
    }

    /// Offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the next bytes; 0 mean the end of the file.
    pub(crate) fn read(&mut self, target: &mut [u8]) -> Result<usize, ReadError> {
        let count = self.reader.read_at(target, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }

    /// The error of a decoder that could not be set up.
    pub(crate) fn out_of_memory(&self) -> ReadError {
        ReadError::Io { offset: self.offset, source: io::Error::from(ErrorKind::OutOfMemory) }
    }
}

/// A buffer in front of a [`StoredFile`], for decoders that consume a part of what they see.
#[derive(Debug)]
pub(crate) struct StoredBuffer {
    stored: StoredFile,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl StoredBuffer {
    pub(crate) fn new(stored: StoredFile) -> Self {
        Self { stored, buffer: vec![0; STORED_BYTES], start: 0, end: 0 }
    }

    /// Offset in the file of the next byte that was not consumed.
    pub(crate) fn offset(&self) -> u64 {
        self.stored.offset() - (self.end - self.start) as u64
    }

    /// The bytes at hand; read on if there are none. Empty means the end of the file.
    pub(crate) fn bytes(&mut self) -> Result<&[u8], ReadError> {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            self.end = self.stored.read(&mut self.buffer)?;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// Drops the first `count` bytes at hand.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "only bytes at hand are consumed");
    }
}
