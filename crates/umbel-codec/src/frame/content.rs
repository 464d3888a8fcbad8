//! What a payload says, and its codes: writing them, measuring them, and reading them one by one.
//!
//! Readers keep no list. They hand each value on as it comes and end with an error at the first
//! code that is not valid, so whoever must not act on half a payload reads it twice.

use umbel_bits::{BitReader, BitWriter, CodeError, RiceCode, encode_indexes, indexes_bits};
use umbel_filter::words::{count_ones, iter_ones, iter_zeros};
use umbel_filter::{BlockProbe, Kind};

use super::encoding::{Encoding, RAW_SHARE, SEED_BITS, cheapest_encoding, counters_bits, mean_gap};
use crate::error::PayloadError;

/// Bits of a word.
const WORD_BITS: u64 = 64;

/// Bytes of a word.
const WORD_BYTES: usize = 8;

/// Largest counter: its unary code needs no end.
const COUNTER_MAX: u32 = 15;

/// Bits of a counter in its word.
const COUNTER_BITS: u32 = 4;

/// Counters of a word.
const WORD_COUNTERS: u64 = WORD_BITS / COUNTER_BITS as u64;

/// What is to be written, in the frame's own numbers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content<'a> {
    /// Sorted positions, which count from `first`.
    Positions { positions: &'a [u64], first: u64 },
    /// Sorted insertions, whose blocks count from `first`.
    Probes { probes: &'a [BlockProbe], first: u64 },
    /// Bits.
    Bits(&'a [u64]),
    /// Counters of four bits.
    Counters(&'a [u64]),
}

/// The best way to write an array, by formula; but the words, if the ones are so far from random
/// that their codes would be longer. Returns the number of codes, too, or of ones.
pub(super) fn cheapest(kind: Kind, words: &[u64]) -> (Encoding, RiceCode, u64) {
    let raw_bits = WORD_BITS * words.len() as u64;
    let (encoding, position_count, ones) = if kind == Kind::Counting {
        let position_count = WORD_COUNTERS * words.len() as u64;
        let (ones, sum) = counters(words)
            .fold((0, 0), |(count, sum), (_, value)| (count + 1, sum + u64::from(value)));
        let bits = counters_bits(position_count, ones, sum);
        let pays = bits <= raw_bits as f64 * RAW_SHARE;
        (if pays { Encoding::Gaps } else { Encoding::Raw }, position_count, ones)
    } else {
        let ones = count_ones(words);
        (cheapest_encoding(raw_bits, ones), raw_bits, ones)
    };
    let count = if encoding == Encoding::Holes { position_count - ones } else { ones };
    let code = RiceCode::for_mean_gap(mean_gap(position_count, count));
    if encoding == Encoding::Raw || Content::array(kind, words).bits(encoding, code) >= raw_bits {
        let no_code = RiceCode::new(0).expect("0 low bits are a code");
        return (Encoding::Raw, no_code, ones);
    }
    (encoding, code, count)
}

impl<'a> Content<'a> {
    /// The words of an array of blocks.
    pub(super) const fn array(kind: Kind, words: &'a [u64]) -> Self {
        match kind {
            Kind::Counting => Self::Counters(words),
            _ => Self::Bits(words),
        }
    }

    /// Exact length in bits of what [`write`](Self::write) writes.
    pub(super) fn bits(self, encoding: Encoding, code: RiceCode) -> u64 {
        match (self, encoding) {
            (Self::Bits(words) | Self::Counters(words), Encoding::Raw) => {
                WORD_BITS * words.len() as u64
            }
            (Self::Bits(words), Encoding::Holes) => indexes_bits(code, iter_zeros(words)),
            (Self::Bits(words), _) => indexes_bits(code, iter_ones(words)),
            (Self::Counters(words), _) => {
                let mut from = 0;
                let bits = counters(words).map(|(position, value)| {
                    let gap = position - from;
                    from = position + 1;
                    code.length_bits(gap) + counter_bits(value)
                });
                bits.sum()
            }
            (Self::Positions { positions, first }, _) => {
                indexes_bits(code, positions.iter().map(|position| position - first))
            }
            (Self::Probes { probes, first }, _) => {
                let mut from = first;
                let bits = probes.iter().map(|probe| {
                    let gap = probe.block - from;
                    from = probe.block;
                    code.length_bits(gap) + u64::from(SEED_BITS)
                });
                bits.sum()
            }
        }
    }

    /// Writes the codes.
    pub(super) fn write(self, encoding: Encoding, code: RiceCode, out: &mut BitWriter) {
        match (self, encoding) {
            (Self::Bits(words) | Self::Counters(words), Encoding::Raw) => {
                // The writer begins with the top byte, the words with the low one.
                words.iter().for_each(|word| out.write_bits(word.swap_bytes(), 64));
            }
            (Self::Bits(words), Encoding::Holes) => encode_indexes(code, iter_zeros(words), out),
            (Self::Bits(words), _) => encode_indexes(code, iter_ones(words), out),
            (Self::Counters(words), _) => {
                let mut from = 0;
                for (position, value) in counters(words) {
                    code.write(out, position - from);
                    write_counter(out, value);
                    from = position + 1;
                }
            }
            (Self::Positions { positions, first }, _) => {
                encode_indexes(code, positions.iter().map(|position| position - first), out);
            }
            (Self::Probes { probes, first }, _) => {
                let mut from = first;
                for &BlockProbe { block, seed } in probes {
                    code.write(out, block - from);
                    out.write_bits(seed.into(), SEED_BITS);
                    from = block;
                }
            }
        }
    }
}

/// Position and value of every counter above 0.
pub(super) fn counters(words: &[u64]) -> impl Iterator<Item = (u64, u32)> + Clone + '_ {
    (0..).map(|word: u64| word * WORD_COUNTERS).zip(words).flat_map(
        |(first, &word): (u64, &u64)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let index = (rest != 0).then(|| rest.trailing_zeros() / COUNTER_BITS)?;
                let value = word >> (COUNTER_BITS * index) & u64::from(COUNTER_MAX);
                rest &= !(u64::from(COUNTER_MAX) << (COUNTER_BITS * index));
                #[expect(clippy::cast_possible_truncation, reason = "four bits")]
                let value = value as u32;
                Some((first + u64::from(index), value))
            })
        },
    )
}

const fn counter_bits(value: u32) -> u64 {
    if value < COUNTER_MAX { value as u64 } else { COUNTER_MAX as u64 - 1 }
}

/// One less than the counter in ones, and a zero; the largest counter needs no zero.
fn write_counter(out: &mut BitWriter, value: u32) {
    if value < COUNTER_MAX {
        out.write_unary(value - 1);
    } else {
        out.write_bits(u64::MAX, COUNTER_MAX - 1);
    }
}

/// The codes of a payload, as its header describes them.
#[derive(Clone, Debug)]
pub(super) struct Codes<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) code: RiceCode,
    pub(super) count: u64,
    /// What all values lie below.
    pub(super) end: u64,
}

impl<'a> Codes<'a> {
    /// Every position of a list of gaps.
    pub(super) fn each_index(&self, mut visit: impl FnMut(u64)) -> Result<(), PayloadError> {
        let mut from = 0;
        let mut reader = BitReader::new(self.bytes);
        for _ in 0..self.count {
            let index = self.value(&mut reader, from)?;
            visit(index);
            from = index + 1;
        }
        Ok(reader.finish()?)
    }

    /// Every position of a list of gaps that was checked.
    pub(super) fn indexes(self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        let (mut from, mut reader) = (0, BitReader::new(self.bytes));
        let count = usize::try_from(self.count).expect("every code has a bit in memory");
        (0..count).map(move |_| {
            let index = self.value(&mut reader, from).expect("checked before");
            from = index + 1;
            index
        })
    }

    /// Every counter above 0, by position.
    pub(super) fn each_counter(&self, mut visit: impl FnMut(u64, u32)) -> Result<(), PayloadError> {
        let mut from = 0;
        let mut reader = BitReader::new(self.bytes);
        for _ in 0..self.count {
            let position = self.value(&mut reader, from)?;
            visit(position, reader.read_unary(COUNTER_MAX - 1)? + 1);
            from = position + 1;
        }
        Ok(reader.finish()?)
    }

    /// Every insertion.
    pub(super) fn each_probe(&self, mut visit: impl FnMut(BlockProbe)) -> Result<(), PayloadError> {
        let mut previous: Option<BlockProbe> = None;
        let mut reader = BitReader::new(self.bytes);
        for _ in 0..self.count {
            let block = self.value(&mut reader, previous.map_or(0, |probe| probe.block))?;
            #[expect(clippy::cast_possible_truncation, reason = "so many bits were read")]
            let seed = reader.read_bits(SEED_BITS)? as u32;
            let probe = BlockProbe { block, seed };
            match previous {
                Some(previous) if previous >= probe => {
                    return Err(PayloadError::ProbeOrder { previous, probe });
                }
                _ => visit(probe),
            }
            previous = Some(probe);
        }
        Ok(reader.finish()?)
    }

    /// Every word, by index.
    pub(super) fn each_word(&self) -> impl Iterator<Item = u64> + Clone {
        self.bytes.as_chunks::<WORD_BYTES>().0.iter().map(|&bytes| u64::from_le_bytes(bytes))
    }

    /// Checks that there are so many words, and so many ones (or counters above 0) in them.
    pub(super) fn check_words(
        &self,
        word_count: u64,
        ones: fn(u64) -> u32,
    ) -> Result<(), PayloadError> {
        let (expected, actual) = (word_count * WORD_BYTES as u64, self.bytes.len() as u64);
        if expected != actual {
            return Err(PayloadError::Length { expected, actual });
        }
        let actual = self.each_word().map(|word| u64::from(ones(word))).sum();
        if actual != self.count {
            return Err(PayloadError::Count { expected: self.count, actual });
        }
        Ok(())
    }

    #[inline]
    fn value(&self, reader: &mut BitReader<'_>, from: u64) -> Result<u64, CodeError> {
        let gap = self.code.read(reader)?;
        match from.checked_add(gap) {
            Some(value) if value < self.end => Ok(value),
            _ => Err(CodeError::BeyondEnd { from, gap, end: self.end }),
        }
    }
}

/// Number of counters above 0 in a word.
pub(super) const fn counter_count(word: u64) -> u32 {
    let pairs = word | word >> 1;
    ((pairs | pairs >> 2) & 0x1111_1111_1111_1111).count_ones()
}

/// Sets bits `from..to` and returns how many were zero. What lies beyond the words is left out.
pub(super) fn set_run(words: &mut [u64], from: u64, to: u64) -> u64 {
    let mut new_count = 0;
    let mut at = from;
    while at < to {
        let end = (at / WORD_BITS * WORD_BITS + WORD_BITS).min(to);
        let mask = (u64::MAX >> (WORD_BITS - (end - at))) << (at % WORD_BITS);
        new_count += or_word(words, at / WORD_BITS, mask);
        at = end;
    }
    new_count
}

/// ORs a mask into the index-th word and returns how many bits were zero. A word beyond the slice
/// is left out.
#[inline]
pub(super) fn or_word(words: &mut [u64], index: u64, mask: u64) -> u64 {
    let word = usize::try_from(index).ok().and_then(|index| words.get_mut(index));
    word.map_or(0, |word| {
        let new_count = u64::from((mask & !*word).count_ones());
        *word |= mask;
        new_count
    })
}

/// Place of a position in an array of bits: word and mask.
#[inline]
pub(super) const fn bit_at(position: u64) -> (u64, u64) {
    (position / WORD_BITS, 1 << (position % WORD_BITS))
}

/// Place of a counter with this value in an array of counters: word and bits.
#[inline]
pub(super) fn counter_at(position: u64, value: u32) -> (u64, u64) {
    let shift = u64::from(COUNTER_BITS) * (position % WORD_COUNTERS);
    (position / WORD_COUNTERS, u64::from(value) << shift)
}
