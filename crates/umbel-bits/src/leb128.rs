//! LEB128: a number in bytes of seven bits, low ones first; all but the last have the top bit set.
//!
//! ```text
//! 5: 0000_0101    300: 1010_1100 0000_0010    300, padded: 1010_1100 1000_0010 0000_0000
//! ```
//!
//! In the shortest form the last byte is not zero, except that of 0, so that a number has one form. Formats
//! that do not ask for it use [`Leb128::padded`].

use thiserror::Error;

/// Bytes of the longest number of 64 bits.
pub const LEB128_BYTES_MAX: u32 = 10;

/// Bits of a number in a byte.
const BYTE_BITS: u32 = 7;

/// Why bytes are no number. Refuse the message: reading it again gives the same error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Leb128Error {
    /// The number has more than 64 bits.
    #[error("bits {got:#b} of a LEB128 number lead beyond 64")]
    Overflow {
        /// The bits of the byte that leads beyond.
        got: u64,
    },
    /// The last byte is zero, although it is not the only one.
    #[error("LEB128 number is padded, expected its shortest form")]
    Padded,
    /// More bytes follow than the number may have.
    #[error("LEB128 number has more than {bytes_max} bytes")]
    TooLong {
        /// The most bytes that it may have.
        bytes_max: u32,
        /// The number in those bytes.
        got: u64,
    },
}

/// Appends a number in its shortest form, of 1 to 10 bytes.
///
/// ```
/// let mut bytes = Vec::new();
/// umbel_bits::put_leb128(&mut bytes, 300);
/// assert_eq!(bytes, [0xac, 0x02]);
/// ```
pub fn put_leb128(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= BYTE_BITS;
    }
    bytes.push(number.to_le_bytes()[0]);
}

/// A LEB128 number of which some bytes have been read.
///
/// ```
/// use umbel_bits::{LEB128_BYTES_MAX, Leb128, Leb128Error};
///
/// let mut bytes = &[0xac, 0x02, 0xff][..];
/// assert_eq!(Leb128::shortest(LEB128_BYTES_MAX).take(&mut bytes)?, Some(300));
/// assert_eq!(bytes, [0xff]);
/// // The next number has not arrived whole.
/// assert_eq!(Leb128::shortest(LEB128_BYTES_MAX).take(&mut bytes)?, None);
///
/// let padded = [0xac, 0x82, 0x00];
/// assert_eq!(Leb128::padded(5).take(&mut &padded[..])?, Some(300));
/// assert_eq!(Leb128::shortest(5).take(&mut &padded[..]), Err(Leb128Error::Padded));
/// # Ok::<(), Leb128Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leb128 {
    value: u64,
    byte_count: u32,
    bytes_max: u32,
    is_shortest: bool,
}

impl Leb128 {
    /// A number in its shortest form, of at most so many bytes and [`LEB128_BYTES_MAX`].
    #[must_use]
    pub const fn shortest(bytes_max: u32) -> Self {
        Self { is_shortest: true, ..Self::padded(bytes_max) }
    }

    /// A number of at most so many bytes and [`LEB128_BYTES_MAX`], the last of which may be zero.
    #[must_use]
    pub const fn padded(bytes_max: u32) -> Self {
        let bytes_max = if bytes_max < LEB128_BYTES_MAX { bytes_max } else { LEB128_BYTES_MAX };
        Self { value: 0, byte_count: 0, bytes_max, is_shortest: false }
    }

    /// Takes the next byte. Returns the number if it was the last one.
    ///
    /// # Errors
    /// If the number overflows, is longer than it may be, or not in the expected form.
    #[inline]
    pub fn push(&mut self, byte: u8) -> Result<Option<u64>, Leb128Error> {
        let (bytes_max, shift) = (self.bytes_max, self.byte_count * BYTE_BITS);
        if self.byte_count == bytes_max {
            return Err(Leb128Error::TooLong { bytes_max, got: self.value });
        }
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return Err(Leb128Error::Overflow { got: bits });
        }
        if self.is_shortest && byte == 0 && shift > 0 {
            return Err(Leb128Error::Padded);
        }
        self.value |= bits << shift;
        self.byte_count += 1;
        if byte & 0x80 == 0 {
            return Ok(Some(self.value));
        }
        if self.byte_count == bytes_max {
            return Err(Leb128Error::TooLong { bytes_max, got: self.value });
        }
        Ok(None)
    }

    /// Takes the bytes of the number from the front. None if all were taken and it goes on.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    #[inline]
    pub fn take(mut self, bytes: &mut &[u8]) -> Result<Option<u64>, Leb128Error> {
        while let Some((&byte, rest)) = bytes.split_first() {
            *bytes = rest;
            if let Some(value) = self.push(byte)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn shortest_form(value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_leb128(&mut bytes, value);
        bytes
    }

    fn take(number: Leb128, mut bytes: &[u8]) -> Result<Option<u64>, Leb128Error> {
        number.take(&mut bytes)
    }

    #[test]
    fn the_largest_number_has_ten_bytes() {
        let mut bytes = shortest_form(u64::MAX);
        assert_eq!(bytes.len(), LEB128_BYTES_MAX as usize);
        assert_eq!(take(Leb128::shortest(u32::MAX), &bytes), Ok(Some(u64::MAX)));
        bytes[9] = 2;
        for number in [Leb128::shortest(10), Leb128::padded(10)] {
            assert_eq!(take(number, &bytes), Err(Leb128Error::Overflow { got: 2 }));
        }
    }

    #[test]
    fn padding_is_refused_where_the_shortest_form_is_asked_for() {
        for (bytes, value) in
            [(&[0x80, 0][..], 0), (&[0x81, 0][..], 1), (&[0xff, 0x80, 0][..], 127)]
        {
            assert_eq!(take(Leb128::padded(10), bytes), Ok(Some(value)));
            assert_eq!(take(Leb128::shortest(10), bytes), Err(Leb128Error::Padded));
        }
        assert_eq!(take(Leb128::shortest(10), &[0]), Ok(Some(0)));
    }

    #[test]
    fn numbers_that_are_too_long_are_refused_with_their_last_byte() {
        for bytes_max in 1..=LEB128_BYTES_MAX {
            let bytes = vec![0x80_u8; bytes_max as usize];
            let refused = Err(Leb128Error::TooLong { bytes_max, got: 0 });
            assert_eq!(take(Leb128::shortest(bytes_max), &bytes), refused);
            assert_eq!(take(Leb128::padded(bytes_max), &bytes), refused);
            assert_eq!(take(Leb128::padded(bytes_max), &bytes[1..]), Ok(None));
        }
        assert!(take(Leb128::padded(0), &[1]).is_err());
    }

    proptest! {
        #[test]
        fn reading_inverts_writing(value: u64, shift in 0..64u32, rest in vec(any::<u8>(), 0..3)) {
            let value = value >> shift;
            let bytes = [shortest_form(value), rest.clone()].concat();
            for number in [Leb128::shortest(LEB128_BYTES_MAX), Leb128::padded(LEB128_BYTES_MAX)] {
                let mut left = &bytes[..];
                prop_assert_eq!(number.take(&mut left), Ok(Some(value)));
                prop_assert_eq!(left, &rest[..]);
            }
        }

        /// Any bytes: what is read in the shortest form has those bytes, and nothing panics, even if more
        /// bytes follow the last one.
        #[test]
        fn numbers_have_one_shortest_form(
            bytes in vec(prop_oneof![any::<u8>(), Just(0x80), Just(0)], 0..14),
            bytes_max in 0..12_u32,
        ) {
            let mut number = Leb128::padded(bytes_max);
            for &byte in &bytes {
                let _ = number.push(byte);
            }
            let mut left = &bytes[..];
            if let Ok(Some(value)) = Leb128::shortest(bytes_max).take(&mut left) {
                let taken = &bytes[..bytes.len() - left.len()];
                prop_assert_eq!(shortest_form(value), taken);
                prop_assert_eq!(take(Leb128::padded(bytes_max), &bytes), Ok(Some(value)));
            }
        }
    }
}
