//! The stored bytes of a file, read by offset.
//!
//! Positional reads keep no cursor in the file, so that several readers, also in several threads,
//! can share one open file.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::error::ReadError;
use crate::limits::STORED_BYTES;

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

/// A shared file and a private position in it.
#[derive(Debug)]
pub(crate) struct StoredFile {
    file: Arc<File>,
    offset: u64,
}

impl StoredFile {
    pub(crate) fn new(file: Arc<File>, offset: u64) -> Self {
        Self { file, offset }
    }

    /// Offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the next bytes; 0 mean the end of the file.
    pub(crate) fn read(&mut self, target: &mut [u8]) -> Result<usize, ReadError> {
        let count = read_at(&self.file, target, self.offset)?;
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
