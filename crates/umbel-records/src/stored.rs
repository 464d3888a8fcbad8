//! Stored bytes that are read by offset: of a local file, or of a remote object.
//!
//! Positional reads use no cursor of the file, so several readers, also in several threads, can share
//! one open file. Bytes that are not local are read through a port: this crate does not use the
//! network; it only tells the port what it will read next.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::ByteSpan;
use crate::error::ReadError;
use crate::limits::STORED_BYTES;

/// Bytes that do not change while they are read, local or remote.
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
    /// An open local file; its cursor is neither used nor moved.
    File(Arc<File>),
    /// Any other bytes.
    Remote(Arc<dyn RemoteBytes>),
}

/// A port: bytes that are not in a local file. All readers get the same bytes, or an error.
pub trait RemoteBytes: std::fmt::Debug + Send + Sync {
    /// The number of bytes.
    fn bytes(&self) -> u64;

    /// A reader that will probably read the bytes of `span` (which may end beyond the last byte) from
    /// first to last, so that the implementation may fetch them ahead. It need not read anything yet,
    /// and reads outside `span` must work as well.
    fn open(&self, span: ByteSpan) -> Box<dyn RemoteReader>;
}

/// Reads [`RemoteBytes`] for one caller.
pub trait RemoteReader: std::fmt::Debug + Send {
    /// Reads some bytes at `offset` into `target`, which must not be empty; returns 0 at the end of all
    /// bytes. Mostly an offset is where the last read ended, or a few hundred bytes before.
    ///
    /// # Errors
    /// The bytes cannot be read, or differ from those that other readers saw.
    fn read_at(&mut self, target: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl Stored {
    /// The number of bytes.
    ///
    /// # Errors
    /// The I/O error of a file's metadata.
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

/// Reads once at `offset`; 0 at the end of the file. Repeats interrupted calls.
pub(crate) fn read_at(file: &File, target: &mut [u8], offset: u64) -> Result<usize, ReadError> {
    loop {
        match file.read_at(target, offset) {
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(source) => return Err(ReadError::Io { offset, source }),
        }
    }
}

/// Reads by offset, for one caller.
#[derive(Debug)]
pub(crate) enum StoredReader {
    File(Arc<File>),
    Remote(Box<dyn RemoteReader>),
}

impl StoredReader {
    /// A reader for a caller that mostly reads `span`, from first to last.
    pub(crate) fn new(stored: &Stored, span: ByteSpan) -> Self {
        match stored {
            Stored::File(file) => Self::File(Arc::clone(file)),
            Stored::Remote(remote) => Self::Remote(remote.open(span)),
        }
    }

    /// Reads once at `offset`; 0 at the end.
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
    /// Starts at `span.start`; bytes behind its end are rarely read.
    pub(crate) fn new(stored: &Stored, span: ByteSpan) -> Self {
        Self { reader: StoredReader::new(stored, span), offset: span.start }
    }

    /// Offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the next bytes; 0 at the end of the file.
    pub(crate) fn read(&mut self, target: &mut [u8]) -> Result<usize, ReadError> {
        let count = self.reader.read_at(target, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }

    /// The error for a decoder that could not allocate its state.
    pub(crate) fn out_of_memory(&self) -> ReadError {
        ReadError::Io { offset: self.offset, source: io::Error::from(ErrorKind::OutOfMemory) }
    }
}

/// A buffer over a [`StoredFile`], for decoders that consume only a part of the bytes that they are
/// given.
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

    /// The buffered bytes; reads more if there are none. Empty at the end of the file.
    pub(crate) fn bytes(&mut self) -> Result<&[u8], ReadError> {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            self.end = self.stored.read(&mut self.buffer)?;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// Drops the first `count` buffered bytes.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "only bytes at hand are consumed");
    }
}
