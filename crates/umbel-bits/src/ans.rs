//! ANS gap code: gap lists within 0.005 bit a gap of their entropy, which no prefix code reaches.
//!
//! A gap v is a quotient ⌊v / 2^B⌋ and B low bits. Of geometric gaps with quotients of mean 4 or
//! more, the low bits are so nearly uniform that they travel as they are, for 0.004 bit at most.
//! The quotients are geometric again, P(q) ∝ r^q, and cost fractions of bits: an asymmetric numeral
//! system in its tabled form, tANS, codes them with r rounded to 256ths, the *ratio* (Duda 2013,
//! arXiv:1311.2540). Gap i belongs to automaton i mod 4, so that four table look-ups run at a time
//! (Giesen 2014, arXiv:1402.3392). A list fills a whole number of bytes, most significant bit
//! first:
//!
//! ```text
//! │ low bits, B of each gap │ 4 states of 10 bits │ what the states read, gap by gap │ 0 to 7 zeros │
//! ```
//!
//! A decoder in state s (0 to 1023) looks up a quotient, a width b (1 to 10) and a base; its next
//! state is the base plus the next b bits. The table is that of [`table`]'s integer arithmetic. A
//! quotient of K or more, which happens about once in a hundred gaps, is written as the *escape*;
//! b bits later follows the Rice code of the quotient less K, which is geometric with the same r.
//!
//! *One code for each list*: the encoder is the decoder run backwards, from the last gap to the
//! first and from state 0. What is accepted has ended in state 0 four times and has padding of
//! zeros, so encoding it runs through the same states to the same bytes. Damage behind the low bits
//! mostly leads to other end states and is refused; damage to the low bits is not noticed here.
//!
//! *Length*: b ≥ 1 because no quotient has a probability above 1/2, so that a list of n gaps has at
//! least 40 + n · (B + 1) bits and never pays for more memory than 64 times its own.

use crate::bit_writer::BitWriter;
use crate::error::CodeError;
use crate::limits::{ANS_RATIO_MAX, ANS_RATIO_MIN, LOW_BITS_MAX};
use crate::rice::RiceCode;

mod reader;
mod table;

#[cfg(test)]
mod ans_test;

pub use reader::AnsReader;

use table::{EncodeTable, STATE_BITS, frequencies};

/// Automata that take turns.
const LANE_COUNT: usize = 4;

/// Bits that a list costs beside its gaps: the states that decoding starts from.
pub const ANS_START_BITS: u64 = LANE_COUNT as u64 * STATE_BITS as u64;

/// ln(9/8) = −ln r for quotients of mean 8, where one low bit more begins to pay.
const LN_9_8: f64 = 0.117_783_035_656_383_46;

/// A code of gap lists with B low bits, 0 to [`LOW_BITS_MAX`], and quotients whose frequencies fall
/// from each to the next by ratio/256.
///
/// ```
/// use umbel_bits::AnsGapCode;
///
/// // Quotients of mean 3: r = 3/4 = 192/256.
/// let code = AnsGapCode::for_mean_gap(3.0);
/// assert_eq!((code.low_bits(), code.ratio()), (0, 192));
/// let mut bytes = Vec::new();
/// code.encode_positions([3, 4, 4, 9].into_iter(), &mut bytes);
///
/// let mut positions = Vec::new();
/// code.decode_positions(&bytes, 4, 10, &mut positions)?;
/// assert_eq!(positions, [3, 4, 4, 9]);
/// # Ok::<(), umbel_bits::CodeError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AnsGapCode {
    low_bits: u32,
    ratio: u8,
}

impl AnsGapCode {
    /// The code with this many low bits and this ratio.
    ///
    /// # Errors
    /// If there are more than [`LOW_BITS_MAX`] low bits, or the ratio lies outside
    /// [`ANS_RATIO_MIN`] to [`ANS_RATIO_MAX`].
    pub const fn new(low_bits: u32, ratio: u8) -> Result<Self, CodeError> {
        if low_bits > LOW_BITS_MAX {
            return Err(CodeError::LowBits { low_bits });
        }
        if ratio < ANS_RATIO_MIN || ratio > ANS_RATIO_MAX {
            return Err(CodeError::AnsRatio { ratio });
        }
        Ok(Self { low_bits, ratio })
    }

    /// The best code for geometric gaps of mean g: the least B with quotients of mean 8 or less,
    /// and the ratio nearest to r = q^(2^B), q = g/(g+1). Meant for g ≥ 1: the ratio of 1/2 is the
    /// least there is, and serves what is no mean (negative or NaN) too.
    ///
    /// ```
    /// use umbel_bits::AnsGapCode;
    ///
    /// // q = 20/21: q^2 = 0.907 has mean 9.8; q^4 = 0.8227 has mean 4.6 and is 210.6/256.
    /// let code = AnsGapCode::for_mean_gap(20.0);
    /// assert_eq!((code.low_bits(), code.ratio()), (2, 211));
    /// ```
    #[must_use]
    pub fn for_mean_gap(mean_gap: f64) -> Self {
        if mean_gap.is_nan() || mean_gap <= 0.0 {
            return Self { low_bits: 0, ratio: ANS_RATIO_MIN };
        }
        // −ln q = ln(1 + 1/g); ln_1p keeps its digits where q itself rounds to 1.
        let mut exponent = mean_gap.recip().ln_1p();
        let mut low_bits = 0;
        while exponent < LN_9_8 && low_bits < LOW_BITS_MAX {
            exponent *= 2.0;
            low_bits += 1;
        }
        let ratio = ((-exponent).exp() * 256.0).round();
        #[expect(clippy::cast_possible_truncation, reason = "clamped")]
        let ratio = ratio.clamp(ANS_RATIO_MIN.into(), ANS_RATIO_MAX.into()) as u8;
        Self { low_bits, ratio }
    }

    /// The number of low bits, B.
    #[inline]
    #[must_use]
    pub const fn low_bits(self) -> u32 {
        self.low_bits
    }

    /// The ratio of a quotient's frequency to that of the one before it, in 256ths.
    #[inline]
    #[must_use]
    pub const fn ratio(self) -> u8 {
        self.ratio
    }

    /// Expected length in bits of a geometric gap of mean g, 0 or more, in a long list; a list
    /// costs [`ANS_START_BITS`] and up to 7 bits of padding besides. It is B, and the cross entropy
    /// of the quotients and the table's frequencies, and escapes times the length of what follows
    /// them. The automaton needs up to 0.001 bit more.
    ///
    /// ```
    /// use umbel_bits::{AnsGapCode, gap_entropy_bits};
    ///
    /// let expected_bits = AnsGapCode::for_mean_gap(1000.0).expected_bits(1000.0);
    /// let excess = expected_bits - gap_entropy_bits(1000.0);
    /// assert!(excess > 0.0 && excess < 0.005);
    /// ```
    #[must_use]
    pub fn expected_bits(self, mean_gap: f64) -> f64 {
        let modulus = (1u64 << self.low_bits) as f64;
        let q_modulus =
            if mean_gap > 0.0 { (-modulus * mean_gap.recip().ln_1p()).exp() } else { 0.0 };
        let mean_quotient = q_modulus / (1.0 - q_modulus);
        let frequencies = frequencies(self.ratio);
        let escape = frequencies.len() - 1;
        let mut at_least = 1.0;
        let mut bits = 0.0;
        for (quotient, &frequency) in frequencies.iter().enumerate() {
            let next = if quotient == escape { 0.0 } else { at_least * q_modulus };
            bits += (at_least - next) * (f64::from(STATE_BITS) - f64::from(frequency).log2());
            if quotient == escape {
                bits += at_least * self.rest_code().expected_bits(mean_quotient);
            }
            at_least = next;
        }
        f64::from(self.low_bits) + bits
    }

    /// Number of bits that a list of `count` gaps takes at least, at most `u64::MAX`.
    #[inline]
    #[must_use]
    pub const fn bits_min(self, count: u64) -> u64 {
        count.saturating_mul(self.low_bits as u64 + 1).saturating_add(ANS_START_BITS)
    }

    /// Appends the list of positions, which do not decrease, to `out`.
    ///
    /// # Panics
    /// If a position is below the one before it: the caller has not sorted them.
    pub fn encode_positions(self, positions: impl Iterator<Item = u64>, out: &mut Vec<u8>) {
        self.encode(positions, 0, out);
    }

    /// Appends the list of indexes, which strictly increase and are below `u64::MAX`, to `out`.
    ///
    /// # Panics
    /// If an index is not above the one before it, or is `u64::MAX`.
    ///
    /// ```
    /// use umbel_bits::{AnsGapCode, CodeError};
    ///
    /// let code = AnsGapCode::for_mean_gap(1.0);
    /// let (mut bytes, mut indexes) = (vec![], vec![]);
    /// code.encode_indexes([0, 1, 4].into_iter(), &mut bytes);
    /// code.decode_indexes(&bytes, 3, 5, &mut indexes)?;
    /// assert_eq!(indexes, [0, 1, 4]);
    ///
    /// let error = code.decode_indexes(&bytes, 3, 4, &mut indexes);
    /// assert_eq!(error, Err(CodeError::BeyondEnd { from: 2, gap: 2, end: 4 }));
    /// # Ok::<(), CodeError>(())
    /// ```
    pub fn encode_indexes(self, indexes: impl Iterator<Item = u64>, out: &mut Vec<u8>) {
        self.encode(indexes, 1, out);
    }

    /// Reads `count` positions, each below `width`, out of all of these bytes, and appends them to
    /// `positions`, which on error is as it was.
    ///
    /// Reserves 8 bytes for each position, which has at least B + 1 bits in the bytes.
    ///
    /// # Errors
    /// If the bytes are not what [`encode_positions`](Self::encode_positions) writes for so many
    /// positions, or one would be `width` or more.
    pub fn decode_positions(
        self,
        bytes: &[u8],
        count: u64,
        width: u64,
        positions: &mut Vec<u64>,
    ) -> Result<(), CodeError> {
        AnsReader::positions(bytes, self, count, width)?.append_to(positions)
    }

    /// Reads `count` strictly increasing indexes, each below `covered`, out of all of these bytes,
    /// and appends them to `indexes`, which on error is as it was.
    ///
    /// # Errors
    /// If the bytes are not what [`encode_indexes`](Self::encode_indexes) writes for so many
    /// indexes, or one would be `covered` or more.
    pub fn decode_indexes(
        self,
        bytes: &[u8],
        count: u64,
        covered: u64,
        indexes: &mut Vec<u64>,
    ) -> Result<(), CodeError> {
        AnsReader::indexes(bytes, self, count, covered)?.append_to(indexes)
    }

    /// The code of what quotients of K and more exceed K by: ⌊log2⌋ of their mean low bits.
    fn rest_code(self) -> RiceCode {
        let mean = u32::from(self.ratio) / (256 - u32::from(self.ratio));
        RiceCode::new(mean.ilog2()).expect("at most log2(15) bits")
    }

    fn write_low_bits(self, writer: &mut BitWriter, gaps: &[u64]) {
        match self.low_bits {
            0 => {}
            1..=8 => write_low_bits_by::<8>(writer, gaps, self.low_bits),
            9..=16 => write_low_bits_by::<4>(writer, gaps, self.low_bits),
            17..=21 => write_low_bits_by::<3>(writer, gaps, self.low_bits),
            22..=32 => write_low_bits_by::<2>(writer, gaps, self.low_bits),
            _ => write_low_bits_by::<1>(writer, gaps, self.low_bits),
        }
    }

    /// Both encoders: each value is at least `step` above the one before it.
    fn encode(self, mut values: impl Iterator<Item = u64>, step: u64, out: &mut Vec<u8>) {
        let frequencies = frequencies(self.ratio);
        #[expect(clippy::cast_possible_truncation, reason = "at most 60 symbols")]
        let escape = frequencies.len() as u16 - 1;
        // Growing by doubling would copy every byte once more.
        let count = values.size_hint().0;
        out.reserve(count.saturating_mul(self.low_bits as usize + EXPECTED_ANS_BITS) / 8);
        let mut writer = BitWriter::with_buffer(std::mem::take(out));
        let mut coded = Vec::with_capacity(count);
        let mut rests = Vec::new();
        let mut from = 0u64;
        // By blocks, because a vector's length is written back to memory for every push, and so that
        // low bits are written several at a time.
        let (mut block, mut gaps) = ([0; 64], [0; 64]);
        loop {
            let mut len = 0;
            for ((symbol, gap), value) in block.iter_mut().zip(&mut gaps).zip(values.by_ref()) {
                *gap = value.checked_sub(from).expect("values are sorted");
                from = value.checked_add(step).expect("indexes are below u64::MAX");
                let quotient = *gap >> self.low_bits;
                #[expect(clippy::cast_possible_truncation, reason = "below the escape, a u16")]
                let regular = quotient as u16;
                *symbol = regular;
                if quotient >= escape.into() {
                    rests.push(quotient - u64::from(escape));
                    *symbol = escape | ESCAPED;
                }
                len += 1;
            }
            coded.extend(block.iter().take(len));
            self.write_low_bits(&mut writer, gaps.get(..len).unwrap_or_default());
            if len < block.len() {
                break;
            }
        }
        let states = code_backwards(&EncodeTable::new(&frequencies), &mut coded);
        for state in states {
            writer.write_bits(state.into(), STATE_BITS);
        }
        write_forwards(&mut writer, &coded, self.rest_code(), &rests);
        *out = writer.finish();
    }
}

/// Writes the low bits of the gaps, N at a time: together they have 64 bits at most.
fn write_low_bits_by<const N: usize>(writer: &mut BitWriter, gaps: &[u64], low_bits: u32) {
    let mask = u64::MAX >> (64 - low_bits);
    let (groups, last) = gaps.as_chunks::<N>();
    for group in groups {
        let bits = group.iter().fold(0, |bits, gap| bits << low_bits | gap & mask);
        #[expect(clippy::cast_possible_truncation, reason = "at most 8")]
        writer.write_bits(bits, N as u32 * low_bits);
    }
    last.iter().for_each(|&gap| writer.write_bits(gap, low_bits));
}

/// Bits of a quotient that room is made for: about what it takes at the largest ratio.
const EXPECTED_ANS_BITS: usize = 5;

/// Set in what is kept of an escaped gap.
const ESCAPED: u16 = 1 << 11;

/// Where the number of bits begins in what is kept of a coded gap.
const WIDTH_SHIFT: u32 = 12;

/// The bits in what is kept of a coded gap.
const BITS: u16 = (1 << STATE_BITS) - 1;

/// Runs the automata over the symbols and leaves in the place of each the bits that it writes:
/// their number in the top 4 bits, the bits in the low 10, and [`ESCAPED`] where it was. Returns
/// the states that a decoder starts from, with higher bits.
fn code_backwards(table: &EncodeTable, coded: &mut [u16]) -> [u32; LANE_COUNT] {
    let [mut a, mut b, mut c, mut d] = [EncodeTable::INITIAL_STATE; LANE_COUNT];
    for coded in coded.iter_mut().rev() {
        let (width, bits, next) = table.step(a, *coded);
        #[expect(clippy::cast_possible_truncation, reason = "4 bits, and below them 10")]
        let kept = (width << WIDTH_SHIFT | bits) as u16;
        *coded = kept | *coded & ESCAPED;
        // Each in its turn: four locals stay in registers, where an array would not.
        (a, b, c, d) = (b, c, d, next);
    }
    [d, c, b, a]
}

/// Writes what [`code_backwards`] left, and behind each escape its rest.
fn write_forwards(writer: &mut BitWriter, coded: &[u16], rest_code: RiceCode, rests: &[u64]) {
    let mut rests = rests.iter();
    let mut write_slowly = |writer: &mut BitWriter, coded: &[u16]| {
        for &coded in coded {
            writer.write_bits((coded & BITS).into(), (coded >> WIDTH_SHIFT).into());
            if coded & ESCAPED != 0
                && let Some(&rest) = rests.next()
            {
                rest_code.write(writer, rest);
            }
        }
    };
    // Together they have 60 bits at most.
    let (rounds, last) = coded.as_chunks::<6>();
    for round in rounds {
        if round.iter().fold(0, |all, one| all | one) & ESCAPED == 0 {
            let (bits, width) = round.iter().fold((0, 0), |(bits, width), coded| {
                let more = coded >> WIDTH_SHIFT;
                (bits << more | u64::from(coded & BITS), width + u32::from(more))
            });
            writer.write_bits(bits, width);
        } else {
            write_slowly(writer, round);
        }
    }
    write_slowly(writer, last);
}
