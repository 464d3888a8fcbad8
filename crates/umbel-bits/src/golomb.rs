//! Golomb codes: the best prefix codes for geometric values, with any modulus M ≥ 1.
//!
//! The code of v is ⌊v / M⌋ ones, a zero, and the remainder r = v mod M in truncated binary: with
//! b = ⌈log2 M⌉ and c = 2^b − M, r < c takes b − 1 bits, any other r + c in b bits. Quotients from
//! 32 on are escaped as in Rice codes, which are the case M = 2^B (Golomb 1966,
//! doi:10.1109/TIT.1966.1053907). With M = 5, b = 3, c = 3:
//!
//! ```text
//! v = 0: 0 00    v = 2: 0 10    v = 3: 0 110    v = 4: 0 111    v = 7: 10 10
//! ```
//!
//! *Optimal modulus* for P(v) = p · (1−p)^v: M = ⌈−log(2−p) / log(1−p)⌉ (Gallager & Van Voorhis
//! 1975, doi:10.1109/TIT.1975.1055357). For p = 1/8, M = ⌈4.71⌉ = 5.

use std::num::NonZeroU64;

use crate::bit_reader::BitReader;
use crate::bit_writer::BitWriter;
use crate::error::{CodeError, ProbabilityOutOfRange};
use crate::rice::{ESCAPED_BITS, QUOTIENT_ESCAPE, read_escaped, write_escaped};

/// A Golomb code with modulus M.
///
/// ```
/// use std::num::NonZeroU64;
/// use umbel_bits::{BitReader, BitWriter, GolombCode};
///
/// let code = GolombCode::new(NonZeroU64::new(5).expect("5 is not 0"));
/// let mut writer = BitWriter::new();
/// code.write(&mut writer, 7);
/// assert_eq!(writer.bit_len(), code.length_bits(7));
/// let bytes = writer.finish();
/// assert_eq!(bytes, [0b1010_0000]);
/// assert_eq!(code.read(&mut BitReader::new(&bytes))?, 7);
/// # Ok::<(), umbel_bits::CodeError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GolombCode {
    modulus: NonZeroU64,
    /// b = ⌈log2 M⌉, 0 to 64: bits of a long remainder.
    remainder_bits: u32,
    /// c = 2^b − M: number of short remainders, which take a bit less.
    short_count: u64,
}

impl GolombCode {
    /// The code with this modulus.
    #[must_use]
    pub const fn new(modulus: NonZeroU64) -> Self {
        let remainder_bits = 64 - (modulus.get() - 1).leading_zeros();
        // 2^64 − M is the negative of M in 64 bits.
        let short_count = match 1u64.checked_shl(remainder_bits) {
            Some(power) => power - modulus.get(),
            None => modulus.get().wrapping_neg(),
        };
        Self { modulus, remainder_bits, short_count }
    }

    /// The best code for values with P(v) = p · (1−p)^v, p in (0, 1]; the mean is 1/p − 1.
    ///
    /// # Errors
    /// If `probability` lies outside (0, 1].
    ///
    /// ```
    /// use umbel_bits::GolombCode;
    ///
    /// assert_eq!(GolombCode::optimal(1.0 / 8.0)?.modulus().get(), 5);
    /// assert_eq!(GolombCode::optimal(1.0)?.modulus().get(), 1);
    /// # Ok::<(), umbel_bits::ProbabilityOutOfRange>(())
    /// ```
    pub fn optimal(probability: f64) -> Result<Self, ProbabilityOutOfRange> {
        // Written so that NaN fails too.
        if !(probability > 0.0 && probability <= 1.0) {
            return Err(ProbabilityOutOfRange { probability });
        }
        let modulus = -(1.0 - probability).ln_1p() / (-probability).ln_1p();
        // No u64 has a larger modulus.
        #[expect(clippy::cast_possible_truncation, reason = "a cast from float saturates")]
        let modulus = modulus.ceil() as u64;
        Ok(Self::new(NonZeroU64::new(modulus).unwrap_or(NonZeroU64::MIN)))
    }

    /// The modulus, M.
    #[inline]
    #[must_use]
    pub const fn modulus(self) -> NonZeroU64 {
        self.modulus
    }

    /// Writes the code of `value`, any u64.
    #[inline]
    pub fn write(self, writer: &mut BitWriter, value: u64) {
        match u32::try_from(value / self.modulus) {
            Ok(quotient) if quotient < QUOTIENT_ESCAPE => {
                writer.write_unary(quotient);
                let remainder = value % self.modulus;
                if remainder < self.short_count {
                    writer.write_bits(remainder, self.remainder_bits - 1);
                } else {
                    writer.write_bits(remainder + self.short_count, self.remainder_bits);
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
        let quotient = reader.read_unary(QUOTIENT_ESCAPE)?;
        if quotient == QUOTIENT_ESCAPE {
            return read_escaped(reader, |value| value / self.modulus);
        }
        let remainder = self.read_remainder(reader)?;
        u64::from(quotient)
            .checked_mul(self.modulus.get())
            .and_then(|product| product.checked_add(remainder))
            .ok_or(CodeError::Overflow { quotient })
    }

    #[inline]
    fn read_remainder(self, reader: &mut BitReader<'_>) -> Result<u64, CodeError> {
        let Some(short_bits) = self.remainder_bits.checked_sub(1) else {
            return Ok(0); // M = 1
        };
        let short = reader.read_bits(short_bits)?;
        if short < self.short_count {
            return Ok(short);
        }
        // At least 2c, since the short part is at least c; at most 2^b − 1 = M − 1 + c.
        Ok((short << 1 | reader.read_bits(1)?) - self.short_count)
    }

    /// Length of the code of `value` in bits.
    #[inline]
    #[must_use]
    pub fn length_bits(self, value: u64) -> u64 {
        let quotient = value / self.modulus;
        if quotient >= u64::from(QUOTIENT_ESCAPE) {
            return ESCAPED_BITS.into();
        }
        let is_short = value % self.modulus < self.short_count;
        quotient + 1 + u64::from(self.remainder_bits) - u64::from(is_short)
    }

    /// Expected length in bits of the code of a value with P(v) = p · (1−p)^v:
    /// b − 1 + (1 + q^c − q^M) / (1 − q^M), q = 1 − p. Leaves escapes out, so it is too long where
    /// M is far below the best one.
    ///
    /// # Errors
    /// If `probability` lies outside (0, 1].
    ///
    /// ```
    /// use umbel_bits::GolombCode;
    ///
    /// // M = 1 is unary code, 1/p bits on average.
    /// let unary = GolombCode::optimal(0.5)?;
    /// assert!((unary.expected_bits(0.5)? - 2.0).abs() < 1e-12);
    /// // M = 5 at p = 1/8: 2 + (1 + 0.6699 − 0.5129) / 0.4871; the entropy is 4.349.
    /// let code = GolombCode::optimal(0.125)?;
    /// assert!((code.expected_bits(0.125)? - 4.375).abs() < 0.001);
    /// # Ok::<(), umbel_bits::ProbabilityOutOfRange>(())
    /// ```
    pub fn expected_bits(self, probability: f64) -> Result<f64, ProbabilityOutOfRange> {
        if !(probability > 0.0 && probability <= 1.0) {
            return Err(ProbabilityOutOfRange { probability });
        }
        let ln_q = (-probability).ln_1p();
        // 1 − q^n, to the last digit also where q rounds to 1; q^0 is 1 even for q = 0.
        let complement = |n: u64| if n == 0 { 0.0 } else { -(n as f64 * ln_q).exp_m1() };
        let ends = complement(self.modulus.get());
        let long_share = (ends - complement(self.short_count)) / ends;
        Ok(f64::from(self.remainder_bits) - 1.0 + ends.recip() + long_share)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::rice::RiceCode;

    fn golomb(modulus: u64) -> GolombCode {
        GolombCode::new(NonZeroU64::new(modulus).unwrap())
    }

    fn any_magnitude() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0..64u32).prop_map(|(value, shift)| value >> shift)
    }

    fn codes() -> impl Strategy<Value = GolombCode> {
        let near_power = (1..64u32, 0..3u64).prop_map(|(bits, step)| (1u64 << bits) - 1 + step);
        prop_oneof![any_magnitude().prop_map(|m| m.max(1)), near_power, Just(u64::MAX)]
            .prop_map(golomb)
    }

    fn written(code: GolombCode, values: &[u64]) -> (Vec<u8>, u64) {
        let mut writer = BitWriter::new();
        values.iter().for_each(|&value| code.write(&mut writer, value));
        let bit_len = writer.bit_len();
        (writer.finish(), bit_len)
    }

    #[test]
    fn the_examples_of_the_module() {
        let code = golomb(5);
        let examples =
            [(0, 0b000, 3), (2, 0b010, 3), (3, 0b0110, 4), (4, 0b0111, 4), (7, 0b1010, 4)];
        for (value, bits, width) in examples {
            let (bytes, bit_len) = written(code, &[value]);
            assert_eq!((u32::from(bytes[0]) >> (8 - width), bit_len), (bits, width));
        }
    }

    #[test]
    fn what_is_no_probability_is_refused() {
        for probability in [0.0, -0.1, 1.1, f64::INFINITY] {
            let error = ProbabilityOutOfRange { probability };
            assert_eq!(GolombCode::optimal(probability), Err(error));
            assert_eq!(golomb(1).expected_bits(probability), Err(error));
        }
        assert!(GolombCode::optimal(f64::NAN).is_err());
    }

    #[test]
    fn the_ends_of_the_probability() {
        assert_eq!(GolombCode::optimal(1.0), Ok(golomb(1)));
        assert_eq!(golomb(1).expected_bits(1.0), Ok(1.0));
        assert_eq!(GolombCode::optimal(f64::MIN_POSITIVE), Ok(golomb(u64::MAX)));
        // ln 2 / p for small p.
        let modulus = GolombCode::optimal(2f64.powi(-60)).unwrap().modulus().get() as f64;
        assert!((modulus / 2f64.powi(60) - std::f64::consts::LN_2).abs() < 1e-9);
    }

    #[test]
    fn a_code_beyond_64_bits_is_refused() {
        let code = golomb(u64::MAX);
        assert_eq!(code.read(&mut BitReader::new(&written(code, &[u64::MAX]).0)), Ok(u64::MAX));
        let mut writer = BitWriter::new();
        writer.write_unary(2);
        writer.write_bits(0, 64);
        let read = code.read(&mut BitReader::new(&writer.finish()));
        assert_eq!(read, Err(CodeError::Overflow { quotient: 2 }));
    }

    #[test]
    fn an_escape_that_was_not_needed_is_refused() {
        for (modulus, value) in [(1, 31), (5, 159), (u64::MAX, u64::MAX)] {
            let mut writer = BitWriter::new();
            write_escaped(&mut writer, value);
            let read = golomb(modulus).read(&mut BitReader::new(&writer.finish()));
            assert_eq!(read, Err(CodeError::NeedlessEscape { value }));
        }
    }

    /// Geometric values by inversion of a low-discrepancy sequence: as even as the distribution.
    #[test]
    #[expect(clippy::cast_possible_truncation, reason = "a value far below 2^64")]
    fn expected_bits_are_the_measured_mean() {
        for probability in [0.5, 0.2, 0.125, 0.03, 0.001] {
            let code = GolombCode::optimal(probability).unwrap();
            let count = 100_000u64;
            let total: u64 = (0..count)
                .map(|index| {
                    let golden = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    let uniform = (golden as f64 + 0.5) / 2f64.powi(64);
                    (uniform.ln() / (-probability).ln_1p()).floor() as u64
                })
                .map(|value| code.length_bits(value))
                .sum();
            let measured = total as f64 / count as f64;
            let expected = code.expected_bits(probability).unwrap();
            assert!((measured / expected - 1.0).abs() < 0.01, "{measured} for {expected}");
        }
    }

    proptest! {
        #[test]
        fn reading_inverts_writing(code in codes(), values in vec(any_magnitude(), 0..60)) {
            let (bytes, bit_len) = written(code, &values);
            prop_assert_eq!(bit_len, values.iter().map(|&v| code.length_bits(v)).sum::<u64>());
            let mut reader = BitReader::new(&bytes);
            for &value in &values {
                prop_assert_eq!(code.read(&mut reader), Ok(value));
            }
            prop_assert_eq!(reader.finish(), Ok(()));
        }

        #[test]
        fn values_near_the_modulus_survive(code in codes(), factor in 0..40u64, step in 0..3u64) {
            let modulus = code.modulus().get();
            let value = modulus.saturating_mul(factor).saturating_add(step).saturating_sub(1);
            let (bytes, _) = written(code, &[value]);
            prop_assert_eq!(code.read(&mut BitReader::new(&bytes)), Ok(value));
        }

        #[test]
        fn a_power_of_two_is_a_rice_code(
            low_bits in 0..64u32, values in vec(any_magnitude(), 0..60),
        ) {
            let rice = RiceCode::new(low_bits).unwrap();
            let mut writer = BitWriter::new();
            values.iter().for_each(|&value| rice.write(&mut writer, value));
            prop_assert_eq!(written(golomb(1 << low_bits), &values).0, writer.finish());
        }

        /// Any bytes: values up to an error, and those values write the same bits again.
        #[test]
        fn writing_inverts_reading(
            code in codes(), bytes in vec(prop_oneof![any::<u8>(), Just(0xff)], 0..60),
        ) {
            let mut reader = BitReader::new(&bytes);
            let mut values = Vec::new();
            while let Ok(value) = code.read(&mut reader) {
                values.push(value);
            }
            let (again, bit_len) = written(code, &values);
            let (mut ours, mut theirs) = (BitReader::new(&again), BitReader::new(&bytes));
            for _ in 0..bit_len {
                prop_assert_eq!(ours.read_bits(1), theirs.read_bits(1));
            }
        }

        #[test]
        fn a_truncated_code_is_an_error(code in codes(), value in any_magnitude()) {
            let (bytes, _) = written(code, &[value]);
            for length in 0..bytes.len() {
                prop_assert!(code.read(&mut BitReader::new(&bytes[..length])).is_err());
            }
        }

        /// The slow twin of the optimum: try every modulus.
        #[test]
        fn the_optimum_is_the_best(probability in 0.004..=1.0f64) {
            let optimal = GolombCode::optimal(probability).unwrap();
            let best = optimal.expected_bits(probability).unwrap();
            for modulus in 1..400 {
                let bits = golomb(modulus).expected_bits(probability).unwrap();
                prop_assert!(best <= bits + 1e-9, "M = {modulus}: {bits} < {best}");
            }
        }
    }
}
