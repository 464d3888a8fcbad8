//! Bytes to bits, most significant bit first: the inverse of `bit_writer`.
//!
//! The next bits stand in a 64-bit window from the top down. A refill ORs in the next eight bytes
//! below them and steps over as many whole bytes as had room, so that it needs no loop and, but for
//! the last seven bytes, leaves at least 56 bits in the window:
//!
//! ```text
//! window   │ valid bits │ bits that the next refill ORs in once more │
//!          63                                                        0
//! ```
//!
//! Bits below the valid ones are either zero or already the right ones, so ORing them in again
//! changes nothing.

use crate::error::CodeError;

/// Bits that the window holds after a refill unless the bytes end.
const REFILLED_BITS: u32 = 56;

/// Reads bits from a slice of bytes. After an error it stands somewhere in the refused code.
///
/// ```
/// use umbel_bits::BitReader;
///
/// let mut reader = BitReader::new(&[0b1011_1000]);
/// assert_eq!(reader.read_bits(3)?, 0b101);
/// assert_eq!(reader.read_unary(32)?, 2); // two ones and a zero
/// assert_eq!(reader.bits_left(), 2);
/// reader.finish()?;
/// # Ok::<(), umbel_bits::CodeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct BitReader<'a> {
    /// Bytes that are not yet in the window.
    rest: &'a [u8],
    /// The next bits, from the top down.
    window: u64,
    /// Number of bits in the window that count, at most 63.
    valid: u32,
}

impl<'a> BitReader<'a> {
    /// A reader of all bits of these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, window: 0, valid: 0 }
    }

    /// A reader of the bits from number `bit_offset` on, in constant time; of none if the bytes do
    /// not reach so far.
    ///
    /// ```
    /// use umbel_bits::BitReader;
    ///
    /// let mut reader = BitReader::at(&[0b0000_0000, 0b0001_0110], 11);
    /// assert_eq!(reader.bits_left(), 5);
    /// assert_eq!(reader.read_bits(5)?, 0b10110);
    /// # Ok::<(), umbel_bits::CodeError>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn at(bytes: &'a [u8], bit_offset: u64) -> Self {
        let byte_offset = usize::try_from(bit_offset / 8).unwrap_or(usize::MAX);
        let mut reader = Self::new(bytes.get(byte_offset..).unwrap_or_default());
        let skipped = (bit_offset % 8) as u32;
        if skipped > 0 && !reader.rest.is_empty() {
            reader.refill();
            reader.consume(skipped);
        }
        reader
    }

    /// Reads `width` bits, 0 to 64, as a number.
    ///
    /// # Errors
    /// If fewer bits are left.
    #[inline]
    pub fn read_bits(&mut self, width: u32) -> Result<u64, CodeError> {
        debug_assert!(width <= 64, "{width} bits of a u64");
        if width > REFILLED_BITS {
            return self.read_wide(width);
        }
        if self.valid < width {
            self.refill();
            if self.valid < width {
                return Err(self.out_of_bits(width.into()));
            }
        }
        // In two steps, because a width of 0 would shift by 64.
        let value = (self.window >> 1) >> (63 - width);
        self.window <<= width;
        self.valid -= width;
        Ok(value)
    }

    /// Reads ones up to the first zero, which it takes too, and returns their number. After
    /// `ones_max` ones it stops and returns `ones_max`, without a zero.
    ///
    /// # Errors
    /// If the bits end before that.
    #[inline]
    pub fn read_unary(&mut self, ones_max: u32) -> Result<u32, CodeError> {
        let mut ones_before = 0;
        loop {
            self.refill();
            let wanted = ones_max - ones_before;
            let ones = self.window.leading_ones();
            if ones >= wanted && wanted <= self.valid {
                self.consume(wanted);
                return Ok(ones_max);
            }
            if ones < self.valid {
                self.consume(ones + 1);
                return Ok(ones_before + ones);
            }
            // All of the window, whose bits below the valid ones say nothing.
            ones_before += self.valid;
            self.consume(self.valid);
            if self.rest.is_empty() {
                return Err(self.out_of_bits(1));
            }
        }
    }

    /// Number of bits that are not yet read.
    #[inline]
    #[must_use]
    pub const fn bits_left(&self) -> u64 {
        8 * self.rest.len() as u64 + self.valid as u64
    }

    /// Ends reading: only the rest of the last byte may be left, and it must be zero.
    ///
    /// # Errors
    /// If 8 or more bits are left, or one that is not zero.
    pub fn finish(mut self) -> Result<(), CodeError> {
        let left = self.bits_left();
        match u32::try_from(left) {
            Ok(width @ 0..8) => match self.read_bits(width)? {
                0 => Ok(()),
                bits => Err(CodeError::Padding { bits }),
            },
            _ => Err(CodeError::TrailingBits { left }),
        }
    }

    /// If the next bits are some ones, fewer than `ones_max`, a zero and `low_bits` more bits, and
    /// all of them are in the window, takes them and returns the number of ones and the low bits.
    /// Otherwise takes nothing. `ones_max` is at most 63 and `low_bits` too.
    #[inline]
    pub(crate) fn read_prefixed(&mut self, ones_max: u32, low_bits: u32) -> Option<(u32, u64)> {
        self.refill();
        let ones = self.window.leading_ones();
        let width = ones + 1 + low_bits;
        if ones >= ones_max || width > self.valid {
            return None;
        }
        let after_zero = self.window << (ones + 1);
        self.window = after_zero << low_bits;
        self.valid -= width;
        Some((ones, (after_zero >> 1) >> (63 - low_bits)))
    }

    /// Fills the window to at least 56 bits if eight bytes are left outside of it, and says so.
    /// Otherwise does nothing: the last bytes are for [`read_bits`](Self::read_bits).
    #[inline]
    pub(crate) fn refill_far_from_end(&mut self) -> bool {
        let Some(&next) = self.rest.first_chunk::<8>() else {
            return false;
        };
        self.window |= u64::from_be_bytes(next) >> self.valid;
        // The mask changes nothing; it shows that no bound needs to be checked.
        let taken = ((63 - self.valid) / 8) & 7;
        self.rest = self.rest.get(taken as usize..).unwrap_or_default();
        self.valid |= REFILLED_BITS;
        true
    }

    /// Takes `width` bits, 1 to 63, that the window is known to hold.
    #[inline]
    pub(crate) const fn take(&mut self, width: u32) -> u64 {
        debug_assert!(0 < width && width <= self.valid, "a refill said that the bits are there");
        let value = self.window.wrapping_shr(width.wrapping_neg());
        self.window = self.window.wrapping_shl(width);
        self.valid = self.valid.wrapping_sub(width);
        value
    }

    /// Fills the window as far as the bytes reach: to at least 56 valid bits, or to the end.
    #[inline]
    fn refill(&mut self) {
        let next = self.rest.first_chunk::<8>();
        let taken = self.rest.get(((63 - self.valid) / 8) as usize..);
        if let (Some(&next), Some(rest)) = (next, taken) {
            self.window |= u64::from_be_bytes(next) >> self.valid;
            self.rest = rest;
            self.valid |= REFILLED_BITS;
        } else {
            self.refill_at_end();
        }
    }

    /// Refills from the last seven bytes, one by one.
    #[cold]
    fn refill_at_end(&mut self) {
        while self.valid < REFILLED_BITS
            && let Some((&byte, rest)) = self.rest.split_first()
        {
            self.window |= u64::from(byte) << (REFILLED_BITS - self.valid);
            self.valid += 8;
            self.rest = rest;
        }
    }

    /// Takes up to 63 bits that are valid.
    #[inline]
    const fn consume(&mut self, width: u32) {
        self.window <<= width;
        self.valid -= width;
    }

    /// Reads more bits than a refill guarantees, in two halves.
    #[cold]
    fn read_wide(&mut self, width: u32) -> Result<u64, CodeError> {
        if self.bits_left() < width.into() {
            return Err(self.out_of_bits(width.into()));
        }
        let high = self.read_bits(width - 32)?;
        Ok(high << 32 | self.read_bits(32)?)
    }

    #[cold]
    const fn out_of_bits(&self, needed: u64) -> CodeError {
        CodeError::OutOfBits { needed, left: self.bits_left() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The slow twin: a list of bits and a place in it.
    struct Twin {
        bits: Vec<bool>,
        at: usize,
    }

    impl Twin {
        fn new(bytes: &[u8]) -> Self {
            let bits =
                bytes.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1 == 1));
            Self { bits: bits.collect(), at: 0 }
        }

        fn read_bits(&mut self, width: u32) -> Option<u64> {
            let bits = self.bits.get(self.at..self.at + width as usize)?;
            self.at += bits.len();
            Some(bits.iter().fold(0, |sum, &bit| sum << 1 | u64::from(bit)))
        }

        fn read_unary(&mut self, ones_max: u32) -> Option<u32> {
            for ones in 0..ones_max {
                if self.read_bits(1)? == 0 {
                    return Some(ones);
                }
            }
            Some(ones_max)
        }

        fn read_prefixed(&mut self, ones_max: u32, low_bits: u32) -> Option<(u32, u64)> {
            let ones = self.read_unary(ones_max).filter(|&ones| ones < ones_max)?;
            Some((ones, self.read_bits(low_bits)?))
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Read {
        Bits(u32),
        Unary(u32),
        Prefixed(u32, u32),
    }

    fn reads() -> impl Strategy<Value = Read> {
        prop_oneof![
            (0..=64u32).prop_map(Read::Bits),
            (0..=200u32).prop_map(Read::Unary),
            (0..=32u32, 0..=63u32).prop_map(|(ones, low)| Read::Prefixed(ones, low)),
        ]
    }

    /// Bytes with long runs of ones, which random ones have not.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![any::<u8>(), Just(0xff), Just(0)];
        prop_oneof![vec(byte, 0..80), vec(Just(0xff), 0..60)]
    }

    proptest! {
        #[test]
        fn agrees_with_a_list_of_bits(bytes in bytes(), reads in vec(reads(), 0..200)) {
            let mut reader = BitReader::new(&bytes);
            let mut twin = Twin::new(&bytes);
            for read in reads {
                prop_assert_eq!(reader.bits_left(), (twin.bits.len() - twin.at) as u64);
                match read {
                    Read::Bits(width) => {
                        let Some(value) = twin.read_bits(width) else {
                            let left = reader.bits_left();
                            let error = CodeError::OutOfBits { needed: width.into(), left };
                            prop_assert_eq!(reader.read_bits(width), Err(error));
                            break;
                        };
                        prop_assert_eq!(reader.read_bits(width), Ok(value));
                    }
                    Read::Unary(ones_max) => {
                        let Some(ones) = twin.read_unary(ones_max) else {
                            prop_assert!(reader.read_unary(ones_max).is_err());
                            break;
                        };
                        prop_assert_eq!(reader.read_unary(ones_max), Ok(ones));
                    }
                    Read::Prefixed(ones_max, low_bits) => {
                        let at = twin.at;
                        match reader.read_prefixed(ones_max, low_bits) {
                            None => twin.at = at,
                            found => prop_assert_eq!(found, twin.read_prefixed(ones_max, low_bits)),
                        }
                    }
                }
            }
        }

        /// Refilling far from the end changes nothing but the window, and fails only near it.
        #[test]
        fn taking_what_a_refill_promised_is_reading(
            bytes in bytes(), widths in vec(1..=56u32, 0..40),
        ) {
            let mut reader = BitReader::new(&bytes);
            let mut twin = reader.clone();
            for width in widths {
                let left = reader.bits_left();
                if !reader.refill_far_from_end() {
                    prop_assert!(left < 64 + 64);
                    break;
                }
                prop_assert_eq!(reader.bits_left(), left);
                prop_assert_eq!(Ok(reader.take(width)), twin.read_bits(width));
            }
            prop_assert_eq!(reader.bits_left(), twin.bits_left());
        }

        /// The slow twin: read from the start and skip.
        #[test]
        fn starting_at_a_bit_is_skipping_the_bits_before(
            bytes in bytes(), offset in 0..700u64, reads in vec(1..=64u32, 0..20),
        ) {
            let mut reader = BitReader::at(&bytes, offset);
            let mut twin = Twin::new(&bytes);
            twin.at = twin.bits.len().min(usize::try_from(offset).unwrap());
            for width in reads {
                prop_assert_eq!(reader.bits_left(), (twin.bits.len() - twin.at) as u64);
                let Some(value) = twin.read_bits(width) else { break };
                prop_assert_eq!(reader.read_bits(width), Ok(value));
            }
        }

        /// The fast path must be taken wherever the bits suffice for it.
        #[test]
        fn short_prefixed_codes_are_read_at_once(
            bytes in vec(any::<u8>(), 8..40), low in 0..=40u32,
        ) {
            let ones = Twin::new(&bytes).read_unary(64).unwrap();
            let found = BitReader::new(&bytes).read_prefixed(32, low);
            prop_assert_eq!(found.is_some(), ones < 32 && ones + 1 + low <= 56);
        }

        #[test]
        fn finish_wants_less_than_a_byte_of_zeros(bytes in bytes(), taken in 0..640u32) {
            let mut reader = BitReader::new(&bytes);
            let mut twin = Twin::new(&bytes);
            for _ in 0..taken.min(8 * u32::try_from(bytes.len()).unwrap()) {
                prop_assert_eq!(reader.read_bits(1).ok(), twin.read_bits(1));
            }
            let rest = &twin.bits[twin.at..];
            let expected = rest.len() < 8 && rest.iter().all(|bit| !bit);
            prop_assert_eq!(reader.finish().is_ok(), expected);
        }
    }

    #[test]
    fn finish_names_what_is_left() {
        let error = CodeError::TrailingBits { left: 8 };
        assert_eq!(BitReader::new(&[0]).finish(), Err(error));
        let mut reader = BitReader::new(&[0b0000_0101]);
        reader.read_bits(4).unwrap();
        assert_eq!(reader.finish(), Err(CodeError::Padding { bits: 0b101 }));
    }
}
