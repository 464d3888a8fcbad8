//! Rice codes: Golomb codes with a modulus M = 2^B, the project's code for gaps.
//!
//! The code of v is ⌊v / 2^B⌋ ones, a zero, and the B low bits of v. A quotient of 32 or more is
//! written as 32 ones and v in 64 bits, so that no code exceeds 96 bits; a value has exactly one
//! code. With B = 2:
//!
//! ```text
//! v = 0: 0 00    v = 3: 0 11    v = 5: 10 01    v = 11: 110 11    v ≥ 128: 1×32, v in 64 bits
//! ```
//!
//! *Parameter*: for geometric v with mean g, q = g/(g+1), the expected length without escapes is
//! B + 1/(1 − q^(2^B)). One more low bit pays as long as x = q^(2^B) exceeds 1 − x², the inverse of
//! the golden ratio, (√5 − 1)/2 ≈ 0.6180; the least B with x ≤ 0.6180 is therefore best (Rice &
//! Plaunt 1971, doi:10.1109/TCOM.1971.1090789; the rule: Kiely 2004, IPN Progress Report 42-159).

use crate::bit_reader::BitReader;
use crate::bit_writer::BitWriter;
use crate::error::CodeError;
use crate::limits::LOW_BITS_MAX;

/// Quotients from here on are escaped. A geometric value under its best parameter gets here with
/// probability below 0.6180^32 < 2^-22, so the 64 bits that follow cost nothing on average.
pub const QUOTIENT_ESCAPE: u32 = 32;

/// Bits of an escaped value.
pub(crate) const ESCAPED_BITS: u32 = QUOTIENT_ESCAPE + 64;

/// Logarithm of the golden ratio, (1 + √5)/2: the rule's 0.6180 is its inverse.
const LN_GOLDEN_RATIO: f64 = 0.481_211_825_059_603_4;

/// A Rice code with B low bits, 0 to [`LOW_BITS_MAX`].
///
/// ```
/// use umbel_bits::{BitReader, BitWriter, RiceCode};
///
/// let code = RiceCode::new(2)?;
/// let mut writer = BitWriter::new();
/// code.write(&mut writer, 5);
/// assert_eq!(writer.bit_len(), code.length_bits(5));
/// let bytes = writer.finish();
/// assert_eq!(bytes, [0b1001_0000]);
/// assert_eq!(code.read(&mut BitReader::new(&bytes))?, 5);
/// # Ok::<(), umbel_bits::CodeError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RiceCode {
    low_bits: u32,
}

impl RiceCode {
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

    /// The best code for geometric values of mean g, 0 or more: the least B with
    /// q^(2^B) ≤ 0.6180, q = g/(g+1). B = 0 for what is no mean (negative or NaN), and
    /// [`LOW_BITS_MAX`] for a mean of 2^64 and beyond.
    ///
    /// ```
    /// use umbel_bits::RiceCode;
    ///
    /// // q = 6/7: q^2 = 0.73, q^4 = 0.54, hence B = 2.
    /// assert_eq!(RiceCode::for_mean_gap(6.0).low_bits(), 2);
    /// assert_eq!(RiceCode::for_mean_gap(0.0).low_bits(), 0);
    /// ```
    #[must_use]
    pub fn for_mean_gap(mean_gap: f64) -> Self {
        if mean_gap.is_nan() || mean_gap <= 0.0 {
            return Self { low_bits: 0 };
        }
        // −ln q = ln(1 + 1/g); ln_1p keeps its digits where q itself rounds to 1.
        let mut exponent = mean_gap.recip().ln_1p();
        let mut low_bits = 0;
        while exponent < LN_GOLDEN_RATIO && low_bits < LOW_BITS_MAX {
            exponent *= 2.0;
            low_bits += 1;
        }
        Self { low_bits }
    }

    /// The number of low bits, B.
    #[inline]
    #[must_use]
    pub const fn low_bits(self) -> u32 {
        self.low_bits
    }

    /// Writes the code of `value`, any u64.
    #[inline]
    pub fn write(self, writer: &mut BitWriter, value: u64) {
        match u32::try_from(value >> self.low_bits) {
            Ok(quotient) if quotient < QUOTIENT_ESCAPE => {
                let width = quotient + 1 + self.low_bits;
                if width < 64 {
                    // Ones, a zero, the low bits; the writer takes as many ones as it is told.
                    let prefix = (u64::MAX << 1) << self.low_bits;
                    let low = value & ((1 << self.low_bits) - 1);
                    writer.write_bits(prefix | low, width);
                } else {
                    writer.write_unary(quotient);
                    writer.write_bits(value, self.low_bits);
                }
            }
            _ => write_escaped(writer, value),
        }
    }

    /// Reads one code.
    ///
    /// # Errors
    /// If the bits end, or are not the one code of a u64.
    #[inline]
    pub fn read(self, reader: &mut BitReader<'_>) -> Result<u64, CodeError> {
        match reader.read_prefixed(QUOTIENT_ESCAPE, self.low_bits) {
            // The whole code is at most 63 bits, so the quotient has room above the low bits.
            Some((quotient, low)) => Ok(u64::from(quotient) << self.low_bits | low),
            None => self.read_long(reader),
        }
    }

    /// Reads a code that the window does not hold at once, or that is escaped.
    #[cold]
    fn read_long(self, reader: &mut BitReader<'_>) -> Result<u64, CodeError> {
        let quotient = reader.read_unary(QUOTIENT_ESCAPE)?;
        if quotient == QUOTIENT_ESCAPE {
            return read_escaped(reader, |value| value >> self.low_bits);
        }
        let high = u64::from(quotient);
        if high.leading_zeros() < self.low_bits {
            return Err(CodeError::Overflow { quotient });
        }
        Ok(high << self.low_bits | reader.read_bits(self.low_bits)?)
    }

    /// Length of the code of `value` in bits, at most 96.
    #[inline]
    #[must_use]
    pub const fn length_bits(self, value: u64) -> u64 {
        let quotient = value >> self.low_bits;
        if quotient < QUOTIENT_ESCAPE as u64 {
            quotient + 1 + self.low_bits as u64
        } else {
            ESCAPED_BITS as u64
        }
    }

    /// Expected length in bits of the code of a geometric value with mean g, 0 or more:
    /// B + 1/(1 − q^(2^B)), q = g/(g+1). Leaves escapes out, so it is too long where B is far
    /// below the best one.
    ///
    /// ```
    /// use umbel_bits::RiceCode;
    ///
    /// // Mean 1 is a run of coin tosses: q = 1/2, and unary code is 1/(1 − 1/2) = 2 bits long.
    /// let expected_bits = RiceCode::for_mean_gap(1.0).expected_bits(1.0);
    /// assert!((expected_bits - 2.0).abs() < 1e-12);
    /// ```
    #[must_use]
    pub fn expected_bits(self, mean_gap: f64) -> f64 {
        if mean_gap.is_nan() || mean_gap <= 0.0 {
            return f64::from(self.low_bits) + 1.0;
        }
        let modulus = (1u64 << self.low_bits) as f64;
        let exponent = modulus * mean_gap.recip().ln_1p();
        f64::from(self.low_bits) - (-exponent).exp_m1().recip()
    }

    /// Number of bits that `count` codes take at least: count · (B + 1), at most `u64::MAX`.
    #[inline]
    #[must_use]
    pub const fn bits_min(self, count: u64) -> u64 {
        count.saturating_mul(self.low_bits as u64 + 1)
    }
}

/// Writes the escape and the value.
#[cold]
pub(crate) fn write_escaped(writer: &mut BitWriter, value: u64) {
    writer.write_bits(u64::MAX, QUOTIENT_ESCAPE);
    writer.write_bits(value, 64);
}

/// Reads what follows the escape. A value whose quotient has a regular code is refused: with two
/// codes for one value, reading and writing again could give other bytes.
#[cold]
pub(crate) fn read_escaped(
    reader: &mut BitReader<'_>,
    quotient: impl Fn(u64) -> u64,
) -> Result<u64, CodeError> {
    let value = reader.read_bits(64)?;
    if quotient(value) < u64::from(QUOTIENT_ESCAPE) {
        return Err(CodeError::NeedlessEscape { value });
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use crate::entropy::gap_entropy_bits;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn codes() -> impl Strategy<Value = RiceCode> {
        (0..=LOW_BITS_MAX).prop_map(|low_bits| RiceCode::new(low_bits).unwrap())
    }

    /// Values of all magnitudes, so that short codes and escapes both come up at every B.
    fn values() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0..64u32).prop_map(|(value, shift)| value >> shift)
    }

    /// The slow twin: the definition as a string of digits.
    fn digits(low_bits: u32, value: u64) -> String {
        let quotient = value >> low_bits;
        if quotient >= 32 {
            return "1".repeat(32) + &format!("{value:064b}");
        }
        let all = format!("{value:064b}");
        "1".repeat(usize::try_from(quotient).unwrap()) + "0" + &all[64 - low_bits as usize..]
    }

    fn packed(digits: &str) -> Vec<u8> {
        let byte = |chunk: &[u8]| {
            u8::from_str_radix(&format!("{:0<8}", str::from_utf8(chunk).unwrap()), 2).unwrap()
        };
        digits.as_bytes().chunks(8).map(byte).collect()
    }

    #[test]
    fn the_examples_of_the_module() {
        for (value, code) in [(0, "000"), (3, "011"), (5, "1001"), (11, "11011")] {
            assert_eq!(digits(2, value), code);
        }
    }

    #[test]
    fn codes_have_at_most_63_low_bits() {
        assert_eq!(RiceCode::new(64), Err(CodeError::LowBits { low_bits: 64 }));
        assert_eq!(RiceCode::new(63).map(RiceCode::low_bits), Ok(63));
    }

    #[test]
    fn an_escape_that_was_not_needed_is_refused() {
        for (low_bits, value) in [(0, 31), (2, 127), (58, (32 << 58) - 1), (63, u64::MAX)] {
            let code = RiceCode::new(low_bits).unwrap();
            let mut writer = BitWriter::new();
            write_escaped(&mut writer, value);
            let bytes = writer.finish();
            let error = CodeError::NeedlessEscape { value };
            assert_eq!(code.read(&mut BitReader::new(&bytes)), Err(error));
        }
    }

    #[test]
    fn a_code_beyond_64_bits_is_refused() {
        // Quotient 2 with 63 low bits is 2^64.
        for (quotient, low_bits) in [(2, 63), (16, 60), (31, 63), (4, 62)] {
            let mut writer = BitWriter::new();
            writer.write_unary(quotient);
            writer.write_bits(0, low_bits);
            let bytes = writer.finish();
            let read = RiceCode::new(low_bits).unwrap().read(&mut BitReader::new(&bytes));
            assert_eq!(read, Err(CodeError::Overflow { quotient }));
        }
    }

    #[test]
    fn the_ends_of_the_mean_gap() {
        let low_bits = |mean_gap| RiceCode::for_mean_gap(mean_gap).low_bits();
        for none in [0.0, -1.0, f64::NAN, 1e-300, f64::MIN_POSITIVE / 2.0] {
            assert_eq!(low_bits(none), 0);
            assert_eq!(RiceCode::for_mean_gap(none).expected_bits(none), 1.0);
        }
        // 0.4812 · 2^64 lies between 2^62 and 2^63.
        assert_eq!(low_bits(2f64.powi(64)), 63);
        assert_eq!(low_bits(f64::INFINITY), 63);
        // The golden ratio itself: q = 0.6180 needs no low bit, a little more needs one.
        let edge = 0.618_033_988_7 / (1.0 - 0.618_033_988_7);
        assert_eq!((low_bits(edge), low_bits(edge + 1e-6)), (0, 1));
        let bits = RiceCode::for_mean_gap(2f64.powi(64)).expected_bits(2f64.powi(64));
        assert!((65.44..65.57).contains(&bits), "{bits}");
    }

    /// Table of dedup.md, part 4: f · p and the forward bits per entry.
    #[test]
    fn the_design_table() {
        for (gap, low_bits, bits) in
            [(6.0, 2, 4.17), (24.0, 4, 6.09), (48.0, 5, 7.07), (384.0, 8, 10.06)]
        {
            let code = RiceCode::for_mean_gap(gap);
            assert_eq!(code.low_bits(), low_bits);
            assert!((code.expected_bits(gap) - bits).abs() < 0.005);
        }
    }

    /// At most 0.12 bit above the entropy at any mean from 3 on, 0.04 at 1.5 · 2^B, B ≥ 2.
    #[test]
    fn codes_come_close_to_the_entropy() {
        let excess_bits = |mean_gap| {
            RiceCode::for_mean_gap(mean_gap).expected_bits(mean_gap) - gap_entropy_bits(mean_gap)
        };
        for low_bits in 2..60 {
            let excess_bits = excess_bits(1.5 * 2f64.powi(low_bits));
            assert!((0.0..0.04).contains(&excess_bits), "{excess_bits} at B = {low_bits}");
        }
        for step in 0..2_000 {
            let mean_gap = 3.0 * 2f64.powf(f64::from(step) / 40.0);
            let excess_bits = excess_bits(mean_gap);
            assert!((0.0..0.12).contains(&excess_bits), "{excess_bits} at {mean_gap}");
        }
    }

    /// Expected bits equal what geometric values really take, here weighted by their probability.
    #[test]
    fn expected_bits_are_the_mean_length() {
        for mean_gap in [0.3, 1.0, 6.0, 50.0] {
            let code = RiceCode::for_mean_gap(mean_gap);
            let q: f64 = mean_gap / (mean_gap + 1.0);
            let part = |v: u32| (1.0 - q) * q.powf(v.into()) * code.length_bits(v.into()) as f64;
            let sum: f64 = (0..20_000).map(part).sum();
            // Escapes, with probability below 2^-22, lengthen a code by at most 64 bits.
            assert!((sum - code.expected_bits(mean_gap)).abs() < 2e-5, "mean {mean_gap}: {sum}");
        }
    }

    proptest! {
        #[test]
        fn codes_are_the_definition(low_bits in 0..=LOW_BITS_MAX, values in vec(values(), 0..40)) {
            let code = RiceCode::new(low_bits).unwrap();
            let mut writer = BitWriter::new();
            let mut expected = String::new();
            for &value in &values {
                code.write(&mut writer, value);
                expected += &digits(low_bits, value);
                prop_assert_eq!(writer.bit_len(), expected.len() as u64);
            }
            prop_assert_eq!(writer.finish(), packed(&expected));
        }

        #[test]
        fn reading_inverts_writing(code in codes(), values in vec(values(), 0..100)) {
            let mut writer = BitWriter::new();
            values.iter().for_each(|&value| code.write(&mut writer, value));
            let predicted: u64 = values.iter().map(|&value| code.length_bits(value)).sum();
            prop_assert_eq!(writer.bit_len(), predicted);
            prop_assert!(code.bits_min(values.len() as u64) <= predicted);
            let bytes = writer.finish();
            let mut reader = BitReader::new(&bytes);
            for &value in &values {
                prop_assert_eq!(code.read(&mut reader), Ok(value));
            }
            prop_assert_eq!(reader.finish(), Ok(()));
        }

        /// Any bytes: values up to an error, and those values write the same bits again.
        #[test]
        fn writing_inverts_reading(
            code in codes(), bytes in vec(prop_oneof![any::<u8>(), Just(0xff)], 0..60),
        ) {
            let mut reader = BitReader::new(&bytes);
            let mut writer = BitWriter::new();
            while let Ok(value) = code.read(&mut reader) {
                code.write(&mut writer, value);
            }
            let bit_len = writer.bit_len();
            let again = writer.finish();
            let (mut ours, mut theirs) = (BitReader::new(&again), BitReader::new(&bytes));
            for _ in 0..bit_len {
                prop_assert_eq!(ours.read_bits(1), theirs.read_bits(1));
            }
        }

        #[test]
        fn a_truncated_code_is_an_error(code in codes(), value in values()) {
            let mut writer = BitWriter::new();
            code.write(&mut writer, value);
            let bytes = writer.finish();
            for length in 0..bytes.len() {
                let read = code.read(&mut BitReader::new(&bytes[..length]));
                prop_assert!(matches!(read, Err(CodeError::OutOfBits { .. })), "{read:?}");
            }
        }

        /// The slow twin of the golden-ratio rule: try every B.
        #[test]
        fn the_best_parameter_is_the_best(magnitude in -5.0..64.0) {
            let mean_gap = 2f64.powf(magnitude);
            let best = RiceCode::for_mean_gap(mean_gap).expected_bits(mean_gap);
            for low_bits in 0..=LOW_BITS_MAX {
                let bits = RiceCode::new(low_bits).unwrap().expected_bits(mean_gap);
                prop_assert!(best <= bits + 1e-9, "B = {low_bits}: {bits} < {best}");
            }
        }
    }
}
