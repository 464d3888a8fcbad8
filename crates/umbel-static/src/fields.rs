//! Fields of a head, one after the other.

// Input is hostile here: an index out of bounds must be an error, not a panic.
#![deny(clippy::indexing_slicing)]

use crate::error::FileError;

/// Reads numbers from the front of bytes.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    /// Bytes of the whole, for errors.
    whole: usize,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, whole: bytes.len() }
    }

    /// The next bytes.
    ///
    /// # Errors
    ///
    /// [`FileError::Truncated`].
    pub(crate) fn bytes<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], FileError> {
        let Some((bytes, rest)) = self.rest.split_first_chunk() else {
            let needed = (self.whole - self.rest.len() + COUNT) as u64;
            return Err(FileError::Truncated { needed, available: self.whole as u64 });
        };
        self.rest = rest;
        Ok(*bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FileError> {
        self.bytes().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FileError> {
        self.bytes().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FileError> {
        self.bytes().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FileError> {
        self.bytes().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Result<u128, FileError> {
        self.bytes().map(u128::from_le_bytes)
    }
}
