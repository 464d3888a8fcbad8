//! An input that tracks its offset and its checksum.

use std::io::{self, Read};

use crc_fast::{CrcAlgorithm, Digest};

use crate::error::{RdbCause, RdbError};
use crate::limits::BUFFER_BYTES;

/// The bytes of a file or payload, in order.
pub(crate) struct Input<R> {
    from: R,
    buffer: Vec<u8>,
    /// Bytes of the buffer that hold input.
    end: usize,
    /// Bytes of the buffer that were consumed, and those of them that the checksum covers.
    taken: usize,
    summed: usize,
    /// Number of bytes before the buffer.
    before: u64,
    digest: Digest,
}

impl<R: Read> Input<R> {
    pub(crate) fn new(from: R) -> Self {
        let digest = Digest::new(CrcAlgorithm::Crc64Redis);
        let buffer = vec![0; BUFFER_BYTES];
        Self { from, buffer, end: 0, taken: 0, summed: 0, before: 0, digest }
    }

    /// Offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.before + self.taken as u64
    }

    /// The checksum of all bytes consumed so far: the CRC-64 of Redis (polynomial 0xad93d23594c935a9,
    /// reflected).
    pub(crate) fn checksum(&mut self) -> u64 {
        self.sum_up();
        self.digest.finalize()
    }

    fn sum_up(&mut self) {
        self.digest.update(self.buffer.get(self.summed..self.taken).unwrap_or_default());
        self.summed = self.taken;
    }

    /// An error at the next byte.
    pub(crate) fn error(&self, cause: RdbCause) -> RdbError {
        cause.at(self.offset())
    }

    /// Consumes and returns the bytes at hand: at least one, at most `byte_count_max`.
    pub(crate) fn piece(&mut self, byte_count_max: u64) -> Result<&[u8], RdbError> {
        if self.taken == self.end {
            self.refill()?;
        }
        let rest = self.end - self.taken;
        let count = usize::try_from(byte_count_max).unwrap_or(rest).min(rest);
        let start = self.taken;
        self.taken += count;
        Ok(self.buffer.get(start..self.taken).unwrap_or_default())
    }

    fn refill(&mut self) -> Result<(), RdbError> {
        self.sum_up();
        self.before += self.taken as u64;
        (self.taken, self.summed) = (0, 0);
        let read = loop {
            match self.from.read(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => break outcome,
            }
        };
        // After an error, the buffer is empty.
        self.end = read.as_ref().map_or(0, |&count| count);
        match read {
            Ok(0) => Err(self.error(RdbCause::EndsEarly)),
            Ok(_) => Ok(()),
            Err(error) => Err(self.error(RdbCause::Io(error))),
        }
    }

    /// Fills the whole target.
    pub(crate) fn fill(&mut self, target: &mut [u8]) -> Result<(), RdbError> {
        let mut rest = target;
        while !rest.is_empty() {
            let piece = self.piece(rest.len() as u64)?;
            let (front, behind) = rest.split_at_mut(piece.len());
            front.copy_from_slice(piece);
            rest = behind;
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

    /// Skips this many bytes, which must exist.
    pub(crate) fn skip(&mut self, byte_count: u64) -> Result<(), RdbError> {
        let mut left = byte_count;
        while left > 0 {
            left -= self.piece(left)?.len() as u64;
        }
        Ok(())
    }

    /// A length; the marker of a special string is an error.
    pub(crate) fn length(&mut self) -> Result<u64, RdbError> {
        let offset = self.offset();
        match self.length_or_special()? {
            Length::Count(count) => Ok(count),
            Length::Special(kind) => Err(RdbCause::Length(kind | 0xc0).at(offset)),
        }
    }

    /// A length, or the kind of a special string. The first two bits determine the form:
    ///
    /// ```text
    /// 00cccccc                    a count of 6 bits
    /// 01cccccc cccccccc           of 14 bits
    /// 10000000, 4 bytes           of 32 bits, big-endian
    /// 10000001, 8 bytes           of 64 bits, big-endian
    /// 11kkkkkk                    a string of a special kind follows
    /// ```
    pub(crate) fn length_or_special(&mut self) -> Result<Length, RdbError> {
        let offset = self.offset();
        let first = self.byte()?;
        Ok(match (first >> 6, first) {
            (0, _) => Length::Count(u64::from(first)),
            (1, _) => Length::Count(u64::from(first & 0x3f) << 8 | u64::from(self.byte()?)),
            (2, 0x80) => Length::Count(u64::from(u32::from_be_bytes(self.array()?))),
            (2, 0x81) => Length::Count(u64::from_be_bytes(self.array()?)),
            (3, _) => Length::Special(first & 0x3f),
            _ => return Err(RdbCause::Length(first).at(offset)),
        })
    }
}

/// A string begins with either of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Length {
    Count(u64),
    Special(u8),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_four_forms() {
        for (bytes, expected) in [
            (&[0x3f][..], Length::Count(63)),
            (&[0x7f, 0xff], Length::Count(16_383)),
            (&[0x80, 0, 1, 0, 0], Length::Count(65_536)),
            (&[0x81, 0, 0, 0, 1, 0, 0, 0, 2], Length::Count((1 << 32) + 2)),
            (&[0xc3], Length::Special(3)),
        ] {
            let mut input = Input::new(bytes);
            assert_eq!(input.length_or_special().unwrap(), expected);
            assert_eq!(input.offset(), bytes.len() as u64);
        }
        let text = |bytes: &[u8]| Input::new(bytes).length().unwrap_err().to_string();
        assert_eq!(text(&[0x82, 0]), "byte 0: byte 130 begins no length");
        assert_eq!(text(&[0xc3]), "byte 0: byte 195 begins no length");
        assert_eq!(text(&[0x40]), "byte 1: it ends early");
    }

    /// The check value of the CRC catalogue and of src/crc64.c in Redis; it does not depend on how the
    /// input is split.
    #[test]
    fn the_checksum_is_that_of_redis() {
        let mut input = Input::new(&b"123456789"[..]);
        input.skip(4).unwrap();
        input.checksum();
        input.skip(5).unwrap();
        assert_eq!(input.checksum(), 0xe9c6_d914_c4b8_d9ca);
        let long = vec![7; 3 * BUFFER_BYTES + 5];
        let mut input = Input::new(&long[..]);
        input.skip(long.len() as u64).unwrap();
        assert_eq!(input.checksum(), crc_fast::checksum(CrcAlgorithm::Crc64Redis, &long));
        assert_eq!(input.offset(), long.len() as u64);
        assert!(matches!(input.byte().unwrap_err().cause, RdbCause::EndsEarly));
    }
}
