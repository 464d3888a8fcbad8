//! Rice codes without an escape: what other formats call Golomb-Rice, and Bitcoin's compact block
//! filters use with P = 19 low bits (BIP 158,
//! <https://github.com/bitcoin/bips/blob/master/bip-0158.mediawiki>).
//!
//! The code of v is ⌊v / 2^B⌋ ones, a zero, and the B low bits of v, up to a quotient of
//! [`PLAIN_QUOTIENT_MAX`].
//! Up to a quotient of 31 that is the code of [`RiceCode`](crate::RiceCode); from there on it grows
//! by a bit for every 2^B, where the other one is escaped at 96 bits. Umbel's own formats therefore
//! use the other one; this is for reading and writing those of others.
//!
//! ```text
//! B = 2    v = 5: 10 01    v = 11: 110 11    v = 131: 1×32, 0 11
//! ```

use crate::bit_reader::BitReader;
use crate::bit_writer::BitWriter;
use crate::error::CodeError;
use crate::limits::{LOW_BITS_MAX, PLAIN_QUOTIENT_MAX};

/// A Rice code with B low bits, 0 to [`LOW_BITS_MAX`], and unary quotients up to
/// [`PLAIN_QUOTIENT_MAX`].
///
/// ```
/// use umbel_bits::{BitReader, BitWriter, PlainRiceCode};
///
/// let code = PlainRiceCode::new(2)?;
/// let mut writer = BitWriter::new();
/// code.write(&mut writer, 131)?;
/// // 32 ones, a zero, and the low bits 11.
/// assert_eq!(writer.bit_len(), 35);
/// let bytes = writer.finish();
/// assert_eq!(bytes, [0xff, 0xff, 0xff, 0xff, 0b0110_0000]);
/// assert_eq!(code.read(&mut BitReader::new(&bytes))?, 131);
/// # Ok::<(), umbel_bits::CodeError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PlainRiceCode {
    low_bits: u32,
}

impl PlainRiceCode {
    /// The code with this many low bits.
    ///
    /// # Errors
    /// If they are more than [`LOW_BITS_MAX`].
    pub const fn new(low_bits: u32) -> Result<Self, CodeError> {
        if low_bits > LOW_BITS_MAX {
            return Err(CodeError::LowBits { low_bits });
        }
        Ok(Self { low_bits })
    }

    /// The number of low bits, B.
    #[must_use]
    pub const fn low_bits(self) -> u32 {
        self.low_bits
    }

    /// Writes the code of `value`, which takes [`length_bits`](Self::length_bits).
    ///
    /// # Errors
    /// If its quotient exceeds [`PLAIN_QUOTIENT_MAX`]: take more low bits. Nothing was written.
    pub fn write(self, writer: &mut BitWriter, value: u64) -> Result<(), CodeError> {
        writer.write_unary(self.quotient(value)?);
        writer.write_bits(value & ((1 << self.low_bits) - 1), self.low_bits);
        Ok(())
    }

    /// Reads one code.
    ///
    /// # Errors
    /// If the bits end, or the quotient exceeds [`PLAIN_QUOTIENT_MAX`] or 64 bits with the low ones.
    pub fn read(self, reader: &mut BitReader<'_>) -> Result<u64, CodeError> {
        let quotient = reader.read_unary(PLAIN_QUOTIENT_MAX + 1)?;
        if quotient > PLAIN_QUOTIENT_MAX {
            return Err(CodeError::Quotient { quotient: quotient.into() });
        }
        let high = u64::from(quotient);
        if high.leading_zeros() < self.low_bits {
            return Err(CodeError::Overflow { quotient });
        }
        Ok(high << self.low_bits | reader.read_bits(self.low_bits)?)
    }

    /// Length of the code of `value` in bits: quotient, zero and low bits.
    ///
    /// # Errors
    /// If its quotient exceeds [`PLAIN_QUOTIENT_MAX`].
    pub fn length_bits(self, value: u64) -> Result<u64, CodeError> {
        Ok(u64::from(self.quotient(value)?) + 1 + u64::from(self.low_bits))
    }

    fn quotient(self, value: u64) -> Result<u32, CodeError> {
        let quotient = value >> self.low_bits;
        u32::try_from(quotient)
            .ok()
            .filter(|&quotient| quotient <= PLAIN_QUOTIENT_MAX)
            .ok_or(CodeError::Quotient { quotient })
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::rice::{QUOTIENT_ESCAPE, RiceCode};

    /// M of BIP 158: values of a filter of N items lie below N · M.
    const BIP_158_M: u64 = 784_931;

    /// Blocks of BIP 158's `testnet-19.json` with their basic filters: the number of items as one
    /// byte, and their codes.
    const BIP_158_FILTERS: [(u32, &str); 6] = [
        (0, "019dfca8"),
        (2, "0174a170"),
        (49_291, "0afbc2920af1b027f31f87b592276eb4c32094bb4d3697021b4c6380"),
        (180_480, "0db414c859a07e8205876354a210a75042d0463404913d61a8e068e58a3ae2aa080026"),
        (926_485, "09027acea61b6cc3fb33f5d52f7d088a6b2f75d234e89ca800"),
        (1_263_442, "0385acb4f0fe889ef0"),
    ];

    fn from_hex(digits: &str) -> Vec<u8> {
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (0..digits.len()).step_by(2).map(byte).collect()
    }

    #[test]
    fn filters_of_bitcoin_blocks_are_read_and_written() {
        let code = PlainRiceCode::new(19).unwrap();
        for (height, filter) in BIP_158_FILTERS {
            let filter = from_hex(filter);
            let (&count, codes) = filter.split_first().unwrap();
            let mut reader = BitReader::new(codes);
            let gaps: Vec<u64> = (0..count).map(|_| code.read(&mut reader).unwrap()).collect();
            assert_eq!(reader.finish(), Ok(()), "block {height}");
            assert!(gaps.iter().sum::<u64>() < u64::from(count) * BIP_158_M, "block {height}");
            let mut writer = BitWriter::new();
            gaps.iter().for_each(|&gap| code.write(&mut writer, gap).unwrap());
            assert_eq!(writer.finish(), codes, "block {height}");
        }
    }

    /// 0x9dfca8 is 10 0111011111110010101 000: quotient 1, low bits 245,653, padding.
    #[test]
    fn the_filter_of_the_first_block_has_one_value() {
        let code = PlainRiceCode::new(19).unwrap();
        let value = code.read(&mut BitReader::new(&from_hex("9dfca8")));
        assert_eq!(value, Ok((1 << 19) + 245_653));
    }

    #[test]
    fn quotients_beyond_the_limit_are_refused() {
        let code = PlainRiceCode::new(0).unwrap();
        let beyond = u64::from(PLAIN_QUOTIENT_MAX) + 1;
        let refused = CodeError::Quotient { quotient: beyond };
        let mut writer = BitWriter::new();
        assert_eq!(code.write(&mut writer, beyond), Err(refused));
        assert_eq!(writer.bit_len(), 0);
        assert_eq!(code.length_bits(beyond - 1), Ok(beyond));
        let ones = vec![0xff; 1 << 22];
        assert_eq!(code.read(&mut BitReader::new(&ones)), Err(refused));
    }

    #[test]
    fn a_code_beyond_64_bits_is_refused() {
        let mut writer = BitWriter::new();
        writer.write_unary(2);
        writer.write_bits(0, 63);
        let read = PlainRiceCode::new(63).unwrap().read(&mut BitReader::new(&writer.finish()));
        assert_eq!(read, Err(CodeError::Overflow { quotient: 2 }));
    }

    proptest! {
        #[test]
        fn reading_inverts_writing(low_bits in 8..=LOW_BITS_MAX, values in vec(any::<u32>(), 0..9)) {
            let code = PlainRiceCode::new(low_bits).unwrap();
            let mut writer = BitWriter::new();
            let mut bits = 0;
            for value in values.iter().map(|&value| u64::from(value >> 8)) {
                code.write(&mut writer, value).unwrap();
                bits += code.length_bits(value).unwrap();
            }
            prop_assert_eq!(writer.bit_len(), bits);
            let bytes = writer.finish();
            let mut reader = BitReader::new(&bytes);
            for &value in &values {
                prop_assert_eq!(code.read(&mut reader), Ok(u64::from(value >> 8)));
            }
            prop_assert_eq!(reader.finish(), Ok(()));
        }

        /// The twin: below the escape both codes are one.
        #[test]
        fn short_codes_are_rice_codes(low_bits in 0..=58u32, part: u64) {
            let value = part % (u64::from(QUOTIENT_ESCAPE) << low_bits);
            let (mut plain, mut escaped) = (BitWriter::new(), BitWriter::new());
            PlainRiceCode::new(low_bits).unwrap().write(&mut plain, value).unwrap();
            RiceCode::new(low_bits).unwrap().write(&mut escaped, value);
            prop_assert_eq!(plain.finish(), escaped.finish());
        }

        /// Any bytes: values up to an error, and those values write the same bits again.
        #[test]
        fn writing_inverts_reading(
            low_bits in 0..=LOW_BITS_MAX,
            bytes in vec(prop_oneof![any::<u8>(), Just(0xff)], 0..60),
        ) {
            let code = PlainRiceCode::new(low_bits).unwrap();
            let mut reader = BitReader::new(&bytes);
            let mut writer = BitWriter::new();
            while let Ok(value) = code.read(&mut reader) {
                code.write(&mut writer, value).unwrap();
            }
            let bit_len = writer.bit_len();
            let again = writer.finish();
            let (mut ours, mut theirs) = (BitReader::new(&again), BitReader::new(&bytes));
            for _ in 0..bit_len {
                prop_assert_eq!(ours.read_bits(1), theirs.read_bits(1));
            }
        }
    }
}
