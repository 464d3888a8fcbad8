//! Bits in bytes, least significant bit first: the bit order of sketches only.
//!
//! A stream is one little-endian integer; what is written first has the lowest bits.
//! bitcoin-core/minisketch serialises syndromes in this order.

use thiserror::Error;

/// Collects numbers of up to 64 bits.
///
/// ```
/// use umbel_sketch::{LsbReader, LsbWriter};
///
/// let mut writer = LsbWriter::new();
/// writer.write_bits(0b101, 3);
/// writer.write_bits(0b1_1000_0011, 9);
/// let bytes = writer.finish();
/// assert_eq!(bytes, [0b0001_1101, 0b1100]);
///
/// let mut reader = LsbReader::new(&bytes);
/// assert_eq!(reader.read_bits(3)?, 0b101);
/// assert_eq!(reader.read_bits(9)?, 0b1_1000_0011);
/// reader.finish()?;
/// # Ok::<(), umbel_sketch::LsbError>(())
/// ```
#[derive(Clone, Default, Debug)]
pub struct LsbWriter {
    bytes: Vec<u8>,
    /// The bits that do not fill a word yet.
    pending: u64,
    /// Their number, below 64.
    pending_count: u32,
}

impl LsbWriter {
    /// No bits yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), pending: 0, pending_count: 0 }
    }

    /// Number of bits so far.
    #[must_use]
    pub fn bit_len(&self) -> u64 {
        8 * self.bytes.len() as u64 + u64::from(self.pending_count)
    }

    /// Appends the lowest `count` bits of a number, 0 to 64.
    ///
    /// # Panics
    /// If the count exceeds 64.
    #[inline]
    pub fn write_bits(&mut self, value: u64, count: u32) {
        assert!(count <= 64, "{count} bits of a number of 64");
        if count == 0 {
            return;
        }
        let value = value & u64::MAX >> (64 - count);
        self.pending |= value << self.pending_count;
        let sum = self.pending_count + count;
        if sum < 64 {
            self.pending_count = sum;
            return;
        }
        self.bytes.extend_from_slice(&self.pending.to_le_bytes());
        // The part that did not fit; nothing, if no bits were pending.
        self.pending = value.checked_shr(64 - self.pending_count).unwrap_or(0);
        self.pending_count = sum - 64;
    }

    /// The bytes; the last is padded with zeros.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        let byte_count = self.pending_count.div_ceil(8) as usize;
        self.bytes.extend_from_slice(&self.pending.to_le_bytes()[..byte_count]);
        self.bytes
    }
}

/// Reads what an [`LsbWriter`] wrote; see there for an example.
#[derive(Clone, Debug)]
pub struct LsbReader<'a> {
    bytes: &'a [u8],
    /// Number of bits that were read.
    position: u64,
}

impl<'a> LsbReader<'a> {
    /// From the first bit of the bytes on.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// Number of bits that follow.
    #[must_use]
    pub const fn bits_left(&self) -> u64 {
        8 * self.bytes.len() as u64 - self.position
    }

    /// The next `count` bits, 0 to 64.
    ///
    /// # Errors
    /// If fewer are left.
    ///
    /// # Panics
    /// If the count exceeds 64.
    #[inline]
    pub fn read_bits(&mut self, count: u32) -> Result<u64, LsbError> {
        assert!(count <= 64, "{count} bits of a number of 64");
        if u64::from(count) > self.bits_left() {
            return Err(LsbError::OutOfBits { needed: count, left: self.bits_left() });
        }
        if count == 0 {
            return Ok(0);
        }
        let rest = &self.bytes[(self.position / 8) as usize..];
        let mut window = [0; 16];
        let length = rest.len().min(9);
        window[..length].copy_from_slice(&rest[..length]);
        let window = u128::from_le_bytes(window) >> (self.position % 8);
        self.position += u64::from(count);
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is asked for")]
        let low = window as u64;
        Ok(low & u64::MAX >> (64 - count))
    }

    /// Checks that only the padding of the last byte follows, and that it is zero.
    ///
    /// # Errors
    /// If more bits follow, or the padding is not zero.
    pub fn finish(mut self) -> Result<(), LsbError> {
        let left = self.bits_left();
        if left >= 8 {
            return Err(LsbError::TrailingBits { left });
        }
        match self.read_bits(u32::try_from(left).unwrap_or(0))? {
            0 => Ok(()),
            bits => Err(LsbError::Padding { bits }),
        }
    }
}

/// Why bits are not what a writer wrote. Reject the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum LsbError {
    /// The bytes end inside a number.
    #[error("bits end too early: {needed} needed, {left} left")]
    OutOfBits {
        /// Number of bits that were asked for.
        needed: u32,
        /// Number of bits that were left.
        left: u64,
    },
    /// More follows than the rest of a byte.
    #[error("{left} bits left, expected fewer than 8")]
    TrailingBits {
        /// Number of bits that were left.
        left: u64,
    },
    /// The rest of the last byte is not zero.
    #[error("padding bits are {bits:#b}, expected 0")]
    Padding {
        /// The padding as a number.
        bits: u64,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back(numbers in prop::collection::vec((any::<u64>(), 0..=64u32), 0..50)) {
            let mut writer = LsbWriter::new();
            let mut bits = Vec::new();
            for &(value, count) in &numbers {
                writer.write_bits(value, count);
                bits.extend((0..count).map(|bit| value >> bit & 1));
            }
            prop_assert_eq!(writer.bit_len(), bits.len() as u64);
            let bytes = writer.finish();
            // The twin: bit i of the stream is bit i mod 8 of byte ⌊i / 8⌋.
            prop_assert_eq!(bytes.len(), bits.len().div_ceil(8));
            for (index, &bit) in bits.iter().enumerate() {
                prop_assert_eq!(u64::from(bytes[index / 8] >> (index % 8) & 1), bit);
            }
            let mut reader = LsbReader::new(&bytes);
            for &(value, count) in &numbers {
                let mask = u64::MAX.checked_shr(64 - count).unwrap_or(0);
                prop_assert_eq!(reader.read_bits(count), Ok(value & mask));
            }
            prop_assert_eq!(reader.finish(), Ok(()));
        }
    }

    #[test]
    fn ends_and_padding_are_checked() {
        let mut reader = LsbReader::new(&[0xff, 0x81]);
        assert_eq!(reader.clone().finish(), Err(LsbError::TrailingBits { left: 16 }));
        assert_eq!(reader.read_bits(17), Err(LsbError::OutOfBits { needed: 17, left: 16 }));
        assert_eq!(reader.read_bits(9), Ok(0x1ff));
        assert_eq!(reader.finish(), Err(LsbError::Padding { bits: 0x40 }));
    }
}
