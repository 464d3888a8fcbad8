//! Reads strings piece by piece.
//!
//! ```text
//! length, bytes                                  as they are
//! 11000000, 1 byte    11000001, 2    11000010, 4 a number, little-endian, whose digits are the string
//! 11000011, packed length, length, bytes         packed with LZF
//! ```

use std::io::Read;

use crate::error::{RdbCause, RdbError};
use crate::input::{Input, Length};
use crate::limits::{BUFFER_BYTES, STRING_BYTES_MAX};
use crate::lzf::Lzf;

/// A string that is being read, in pieces of any size. Read it to its end, or skip the rest with
/// `skip_all`, before the next value.
pub struct StringReader<'i, R> {
    input: &'i mut Input<R>,
    form: Form,
    left: u64,
}

enum Form {
    Plain,
    /// The digits, and how many of them were read.
    Digits(Vec<u8>, usize),
    Packed(Box<Lzf>),
}

impl<'i, R: Read> StringReader<'i, R> {
    pub(crate) fn begin(input: &'i mut Input<R>) -> Result<Self, RdbError> {
        let offset = input.offset();
        let kind = match input.length_or_special()? {
            Length::Count(left) => return Ok(Self { input, form: Form::Plain, left }),
            Length::Special(kind) => kind,
        };
        let number = match kind {
            0 => i32::from(i8::from_le_bytes(input.array()?)),
            1 => i32::from(i16::from_le_bytes(input.array()?)),
            2 => i32::from_le_bytes(input.array()?),
            3 => {
                let packed_bytes = input.length()?;
                let left = input.length()?;
                return Ok(Self {
                    input,
                    form: Form::Packed(Box::new(Lzf::new(packed_bytes))),
                    left,
                });
            }
            _ => return Err(RdbCause::Length(kind | 0xc0).at(offset)),
        };
        let digits = number.to_string().into_bytes();
        let left = digits.len() as u64;
        Ok(Self { input, form: Form::Digits(digits, 0), left })
    }

    /// Bytes that are not read yet.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Fills the whole target with the next bytes.
    ///
    /// # Errors
    /// If the string or the input ends before, or is damaged.
    pub fn fill(&mut self, target: &mut [u8]) -> Result<(), RdbError> {
        let left = self.left.checked_sub(target.len() as u64);
        let left = left.ok_or_else(|| self.input.error(RdbCause::EndsEarly))?;
        match &mut self.form {
            Form::Plain => self.input.fill(target)?,
            Form::Packed(lzf) => lzf.fill(self.input, target)?,
            Form::Digits(digits, at) => {
                for (byte, digit) in target.iter_mut().zip(digits.iter().skip(*at)) {
                    *byte = *digit;
                }
                *at += target.len();
            }
        }
        self.left = left;
        Ok(())
    }

    /// Reads the remaining bytes, if they are few enough to be held in memory. Memory grows with the
    /// bytes that are there.
    ///
    /// # Errors
    /// As for [`fill`](Self::fill), and if the string is too long.
    pub fn read_all(mut self) -> Result<Vec<u8>, RdbError> {
        let mut bytes = Vec::new();
        self.append(self.left, &mut bytes)?;
        self.end()?;
        Ok(bytes)
    }

    /// Skips the remaining bytes.
    ///
    /// # Errors
    /// If the input ends before.
    pub fn skip_all(mut self) -> Result<(), RdbError> {
        match &mut self.form {
            Form::Plain => self.input.skip(self.left),
            Form::Digits(..) => Ok(()),
            // Compressed bytes are skipped without checking that they decompress.
            Form::Packed(lzf) => lzf.skip(self.input),
        }
    }

    /// Appends the next `byte_count` bytes to `bytes`.
    pub(crate) fn append(&mut self, byte_count: u64, bytes: &mut Vec<u8>) -> Result<(), RdbError> {
        let too_long = byte_count > STRING_BYTES_MAX as u64;
        if too_long {
            return Err(self.input.error(RdbCause::TooLong(byte_count)));
        }
        let mut left = byte_count;
        while left > 0 {
            let start = bytes.len();
            let count = left.min(BUFFER_BYTES as u64);
            left -= count;
            bytes.resize(start + usize::try_from(count).unwrap_or(BUFFER_BYTES), 0);
            self.fill(bytes.get_mut(start..).unwrap_or_default())?;
        }
        Ok(())
    }

    /// Reads and discards `byte_count` bytes.
    pub(crate) fn pass(&mut self, byte_count: u64) -> Result<(), RdbError> {
        let mut scratch = [0; 1024];
        let mut left = byte_count;
        while left > 0 {
            let count = left.min(scratch.len() as u64);
            left -= count;
            let target = scratch.get_mut(..usize::try_from(count).unwrap_or(0));
            self.fill(target.unwrap_or_default())?;
        }
        Ok(())
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], RdbError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, RdbError> {
        self.array().map(|[byte]| byte)
    }

    /// An error at the current offset.
    pub(crate) fn error(&self, cause: RdbCause) -> RdbError {
        self.input.error(cause)
    }

    /// Checks that the string was read to its end.
    ///
    /// # Errors
    /// If bytes are left, or the compressed text continues.
    pub fn end(self) -> Result<(), RdbError> {
        match self.form {
            _ if self.left > 0 => {
                Err(self.input.error(RdbCause::Packed("it goes on behind its end")))
            }
            Form::Packed(lzf) if !lzf.is_done() => {
                Err(self.input.error(RdbCause::Packed("it goes on behind its text")))
            }
            _ => Ok(()),
        }
    }
}

/// Reads a whole string.
pub(crate) fn string<R: Read>(input: &mut Input<R>) -> Result<Vec<u8>, RdbError> {
    StringReader::begin(input)?.read_all()
}

/// Skips a string.
pub(crate) fn skip_string<R: Read>(input: &mut Input<R>) -> Result<(), RdbError> {
    StringReader::begin(input)?.skip_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<u8>, RdbError> {
        let mut input = Input::new(bytes);
        let text = string(&mut input)?;
        assert_eq!(input.offset(), bytes.len() as u64);
        let mut input = Input::new(bytes);
        skip_string(&mut input)?;
        assert_eq!(input.offset(), bytes.len() as u64);
        Ok(text)
    }

    #[test]
    fn strings_have_three_forms() {
        assert_eq!(read(b"\x03abc").unwrap(), b"abc");
        assert_eq!(read(b"\x00").unwrap(), b"");
        assert_eq!(read(b"\xc0\xff").unwrap(), b"-1");
        assert_eq!(read(b"\xc1\xe8\x03").unwrap(), b"1000");
        assert_eq!(read(b"\xc2\x00\x00\x00\x80").unwrap(), b"-2147483648");
        assert_eq!(
            read(b"\xc3\x04\x0a\x00a\xe0\x00\x00").unwrap_err().to_string(),
            "byte 7: packed text: it ends before its text"
        );
        assert_eq!(read(b"\xc3\x05\x0a\x00a\xe0\x00\x00").unwrap(), b"aaaaaaaaaa");
    }

    #[test]
    fn lengths_that_lie_hold_no_memory_and_end_in_an_error() {
        let message = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
        assert_eq!(
            message(b"\x81\xff\xff\xff\xff\xff\xff\xff\xffabc"),
            "byte 9: a string of 18446744073709551615 bytes, where 16777216 are the most"
        );
        assert_eq!(message(b"\x80\x00\xff\xff\xffabc"), "byte 8: it ends early");
        assert_eq!(message(b"\xc4"), "byte 0: byte 196 begins no length");
        // Compressed bytes are left after the stated length.
        assert_eq!(
            message(b"\xc3\x04\x01\x00a\x00b"),
            "byte 5: packed text: it goes on behind its text"
        );
    }
}
