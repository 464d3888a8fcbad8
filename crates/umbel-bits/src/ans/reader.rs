//! Reading a list in the ANS gap code, block by block.

use crate::ans::table::{DecodeTable, ESCAPE_MARK, STATE_BITS};
use crate::ans::{ANS_START_BITS, AnsGapCode, LANE_COUNT};
use crate::bit_reader::BitReader;
use crate::error::CodeError;
use crate::rice::RiceCode;

/// Gaps that are decoded at a time: a multiple of the number of lanes.
const BLOCK_LEN: usize = 64;

/// The state of each lane, 0 to 1023.
type States = [u32; LANE_COUNT];

/// Reads a list of positions or indexes without keeping it, in about 5 kilobytes whatever its
/// length.
///
/// Each item is a value or, once and as the last, an error. The end of the bytes is checked before
/// the last values are handed out, at most 64; values before them may come out of bytes that turn
/// out to be no list later. To act on nothing but a whole list, run through a clone first.
///
/// ```
/// use umbel_bits::{AnsGapCode, AnsReader};
///
/// let code = AnsGapCode::for_mean_gap(3.0);
/// let mut bytes = Vec::new();
/// code.encode_positions([3, 4, 4, 9].into_iter(), &mut bytes);
///
/// let reader = AnsReader::positions(&bytes, code, 4, 10)?;
/// assert!(reader.clone().all(|position| position.is_ok()));
/// let positions: Result<Vec<u64>, _> = reader.collect();
/// assert_eq!(positions?, [3, 4, 4, 9]);
/// # Ok::<(), umbel_bits::CodeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct AnsReader<'a> {
    code: AnsGapCode,
    rest_code: RiceCode,
    table: DecodeTable,
    bytes: &'a [u8],
    /// Number of the bit in the bytes where the low bits begin of the next gap that is not decoded.
    low_at: u64,
    /// At what the states read next.
    bits: BitReader<'a>,
    states: States,
    /// Gaps that are not yet decoded.
    left: u64,
    /// Where the next gap begins.
    from: u64,
    /// What the next value exceeds this one by at least, 0 or 1.
    step: u64,
    end: u64,
    /// Values that are decoded; those in front of `taken` are handed out.
    block: [u64; BLOCK_LEN],
    taken: usize,
    filled: usize,
}

impl<'a> AnsReader<'a> {
    /// A reader of `count` positions, each below `width`, out of all of these bytes.
    ///
    /// # Errors
    /// If the bytes do not pay for so many, or their beginning is wrong already.
    pub fn positions(
        bytes: &'a [u8],
        code: AnsGapCode,
        count: u64,
        width: u64,
    ) -> Result<Self, CodeError> {
        Self::new(bytes, code, count, width, 0)
    }

    /// A reader of `count` strictly increasing indexes, each below `covered`, out of all of these
    /// bytes.
    ///
    /// # Errors
    /// If the bytes do not pay for so many, or their beginning is wrong already.
    pub fn indexes(
        bytes: &'a [u8],
        code: AnsGapCode,
        count: u64,
        covered: u64,
    ) -> Result<Self, CodeError> {
        Self::new(bytes, code, count, covered, 1)
    }

    fn new(
        bytes: &'a [u8],
        code: AnsGapCode,
        count: u64,
        end: u64,
        step: u64,
    ) -> Result<Self, CodeError> {
        let (bits_min, left) = (code.bits_min(count), 8 * bytes.len() as u64);
        if bits_min > left {
            return Err(CodeError::TooManyCodes { count, bits_min, left });
        }
        let mut bits = BitReader::at(bytes, count * u64::from(code.low_bits()));
        let mut states = [0; LANE_COUNT];
        for state in &mut states {
            *state = narrow(bits.read_bits(STATE_BITS)?);
        }
        let mut reader = Self {
            code,
            rest_code: code.rest_code(),
            table: DecodeTable::new(code.ratio()),
            bytes,
            low_at: 0,
            bits,
            states,
            left: count,
            from: 0,
            step,
            end,
            block: [0; BLOCK_LEN],
            taken: 0,
            filled: 0,
        };
        reader.fill()?;
        Ok(reader)
    }

    /// Appends all values that are left. On error `out` is as it was.
    pub(super) fn append_to(mut self, out: &mut Vec<u64>) -> Result<(), CodeError> {
        let len_before = out.len();
        out.reserve(self.value_count());
        loop {
            out.extend_from_slice(self.block.get(self.taken..self.filled).unwrap_or_default());
            if self.left == 0 {
                return Ok(());
            }
            if let Err(error) = self.fill() {
                out.truncate(len_before);
                return Err(error);
            }
        }
    }

    /// Number of values that are not yet handed out.
    fn value_count(&self) -> usize {
        // The bytes are in memory, and each value has a bit at least in them.
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        left.saturating_add(self.filled - self.taken)
    }

    /// Decodes the next block, and checks the end behind the last one.
    fn fill(&mut self) -> Result<(), CodeError> {
        let len = usize::try_from(self.left).map_or(BLOCK_LEN, |left| left.min(BLOCK_LEN));
        let mut block = [0; BLOCK_LEN];
        let values = block.get_mut(..len).unwrap_or_default();
        self.read_quotients(values)?;
        // All together they have the top bit of the largest.
        let (quotient, low_bits) =
            (values.iter().fold(0, |all, one| all | one), self.code.low_bits());
        if quotient > u64::MAX >> low_bits {
            return Err(CodeError::GapOverflow { quotient, low_bits });
        }
        self.sum_up(values)?;
        self.block = block;
        self.taken = 0;
        self.filled = len;
        self.left -= len as u64;
        if self.left > 0 {
            return Ok(());
        }
        match (0..).zip(self.states).find(|&(_, state)| state != 0) {
            Some((lane, state)) => Err(CodeError::AnsEndState { lane, state }),
            None => self.bits.clone().finish(),
        }
    }

    /// Gap i is decoded by state i mod the number of lanes.
    #[inline]
    fn read_quotients(&mut self, quotients: &mut [u64]) -> Result<(), CodeError> {
        // Copies that nothing else refers to stay in registers.
        let (mut bits, mut states) = (self.bits.clone(), self.states);
        let (rounds, last) = quotients.as_chunks_mut::<LANE_COUNT>();
        for round in rounds {
            let steps = states.map(|state| self.table.step(state));
            let marks = steps.iter().fold(0, |marks, step| marks | step.symbol);
            if marks & ESCAPE_MARK == 0 && bits.refill_far_from_end() {
                for ((quotient, state), step) in round.iter_mut().zip(&mut states).zip(steps) {
                    *quotient = step.symbol.into();
                    *state = u32::from(step.base) + narrow(bits.take(step.width.into()));
                }
            } else {
                (bits, states) = self.read_slowly(bits, states, round)?;
            }
        }
        (self.bits, self.states) = self.read_slowly(bits, states, last)?;
        Ok(())
    }

    /// Reads a round that has an escape in it, or is among the last bits.
    #[cold]
    fn read_slowly(
        &self,
        mut bits: BitReader<'a>,
        mut states: States,
        quotients: &mut [u64],
    ) -> Result<(BitReader<'a>, States), CodeError> {
        for (quotient, state) in quotients.iter_mut().zip(&mut states) {
            let step = self.table.step(*state);
            *quotient = u64::from(step.symbol & !ESCAPE_MARK);
            *state = u32::from(step.base) + narrow(bits.read_bits(step.width.into())?);
            if step.symbol & ESCAPE_MARK != 0 {
                let rest = self.rest_code.read(&mut bits)?;
                *quotient = quotient.checked_add(rest).ok_or(CodeError::GapOverflow {
                    quotient: rest,
                    low_bits: self.code.low_bits(),
                })?;
            }
        }
        Ok((bits, states))
    }

    /// From quotients to values.
    #[inline]
    fn sum_up(&mut self, values: &mut [u64]) -> Result<(), CodeError> {
        let (low_bits, step, end) = (self.code.low_bits(), self.step, self.end);
        let (mut low_at, mut from) = (self.low_at, self.from);
        for value in values {
            let gap = *value << low_bits | self.low_bits_at(low_at);
            // Never negative: from is at most one more than the value before it.
            if gap >= end - from {
                return Err(CodeError::BeyondEnd { from, gap, end });
            }
            *value = from + gap;
            from += gap + step;
            low_at += u64::from(low_bits);
        }
        (self.low_at, self.from) = (low_at, from);
        Ok(())
    }

    /// The low bits that begin at this bit of the bytes.
    #[inline]
    fn low_bits_at(&self, at: u64) -> u64 {
        let low_bits = self.code.low_bits();
        let word =
            usize::try_from(at / 8).ok().and_then(|byte| self.bytes.get(byte..)?.first_chunk());
        match word {
            Some(&word) if low_bits <= 56 => {
                (u64::from_be_bytes(word) << (at % 8) >> 1) >> (63 - low_bits)
            }
            _ => self.last_low_bits_at(at),
        }
    }

    #[cold]
    fn last_low_bits_at(&self, at: u64) -> u64 {
        // The bits are there: `new` has checked that.
        BitReader::at(self.bytes, at).read_bits(self.code.low_bits()).unwrap_or_default()
    }
}

impl Iterator for AnsReader<'_> {
    type Item = Result<u64, CodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.taken == self.filled {
            if self.left == 0 {
                return None;
            }
            if let Err(error) = self.fill() {
                (self.left, self.filled) = (0, self.taken);
                return Some(Err(error));
            }
        }
        let value = self.block.get(self.taken).copied()?;
        self.taken += 1;
        Some(Ok(value))
    }

    /// Values that are left if no error comes before them.
    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.value_count()))
    }
}

/// One refill is enough for a step of every lane.
const _: () = assert!(ANS_START_BITS <= 56);

/// At most [`STATE_BITS`] bits.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a reader returns no more than asked for")]
const fn narrow(bits: u64) -> u32 {
    bits as u32
}
