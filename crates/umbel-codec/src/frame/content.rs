//! The content of a payload as codes: writes them, and reads them one by one.
//!
//! Readers keep no list. They pass each value on as it is decoded and end with an error at the
//! first code that is not valid, so callers that must not act on half a payload read it twice.

use umbel_bits::{BitReader, BitWriter, RiceCode};
use umbel_filter::words::{count_ones, iter_ones, iter_zeros};
use umbel_filter::{BlockProbe, Kind};

use super::encoding::{Encoding, RAW_SHARE, SEED_BITS, cheapest_encoding, counters_bits, mean_gap};
use super::gap_code::{GapCode, next_index};
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

/// The ones of an array, or its counters above 0; and the best way to code it by formula, with the
/// number of codes, unless that is the words.
pub(super) fn cheapest(kind: Kind, words: &[u64]) -> (u64, Option<(Encoding, GapCode, u64)>) {
    let raw_bits = WORD_BITS * words.len() as u64;
    if kind.has_counters() {
        let position_count = WORD_COUNTERS * words.len() as u64;
        let (ones, sum) = counters(words)
            .fold((0, 0), |(count, sum), (_, value)| (count + 1, sum + u64::from(value)));
        let pays = counters_bits(position_count, ones, sum) <= raw_bits as f64 * RAW_SHARE;
        let code = GapCode::Rice(RiceCode::for_mean_gap(mean_gap(position_count, ones)));
        return (ones, pays.then_some((Encoding::Gaps, code, ones)));
    }
    let ones = count_ones(words);
    let encoding = cheapest_encoding(raw_bits, ones);
    let count = match encoding.base() {
        Encoding::Raw => return (ones, None),
        Encoding::Holes => raw_bits - ones,
        _ => ones,
    };
    let (code, _) = GapCode::shortest(count, mean_gap(raw_bits, count));
    (ones, Some((encoding, code, count)))
}

impl<'a> Content<'a> {
    /// The words of an array of blocks.
    pub(super) const fn array(kind: Kind, words: &'a [u64]) -> Self {
        if kind.has_counters() { Self::Counters(words) } else { Self::Bits(words) }
    }

    /// Appends the codes.
    pub(super) fn write(self, encoding: Encoding, code: GapCode, out: &mut Vec<u8>) {
        match (self, encoding.base()) {
            (Self::Bits(words) | Self::Counters(words), Encoding::Raw) => {
                with_writer(out, |out| {
                    // The writer begins with the top byte, the words with the low one.
                    words.iter().for_each(|word| out.write_bits(word.swap_bytes(), 64));
                });
            }
            (Self::Bits(words), Encoding::Holes) => code.write(iter_zeros(words), out),
            (Self::Bits(words), _) => code.write(iter_ones(words), out),
            (Self::Positions { positions, first }, _) => {
                code.write(positions.iter().map(|position| position - first), out);
            }
            (Self::Counters(words), _) => with_writer(out, |out| {
                let (code, mut from) = (code.rice(), 0);
                for (position, value) in counters(words) {
                    code.write(out, position - from);
                    write_counter(out, value);
                    from = position + 1;
                }
            }),
            (Self::Probes { probes, first }, _) => with_writer(out, |out| {
                let (code, mut from) = (code.rice(), first);
                for &BlockProbe { block, seed } in probes {
                    code.write(out, block - from);
                    out.write_bits(seed.into(), SEED_BITS);
                    from = block;
                }
            }),
        }
    }
}

/// Appends bits, and zeros up to the end of the last byte.
fn with_writer(out: &mut Vec<u8>, write: impl FnOnce(&mut BitWriter)) {
    let mut writer = BitWriter::with_buffer(std::mem::take(out));
    write(&mut writer);
    *out = writer.finish();
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
    pub(super) code: GapCode,
    pub(super) count: u64,
    /// What all values lie below.
    pub(super) end: u64,
}

impl<'a> Codes<'a> {
    /// Every position of a list of gaps.
    pub(super) fn each_index(&self, visit: impl FnMut(u64)) -> Result<(), PayloadError> {
        Ok(self.code.each_index(self.bytes, self.count, self.end, visit)?)
    }

    /// Every position of a list of gaps that was checked.
    pub(super) fn indexes(self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        self.code.indexes(self.bytes, self.count, self.end)
    }

    /// Every counter above 0, by position.
    pub(super) fn each_counter(&self, mut visit: impl FnMut(u64, u32)) -> Result<(), PayloadError> {
        let (code, mut from) = (self.code.rice(), 0);
        let mut reader = BitReader::new(self.bytes);
        for _ in 0..self.count {
            let position = next_index(code, &mut reader, from, self.end)?;
            visit(position, reader.read_unary(COUNTER_MAX - 1)? + 1);
            from = position + 1;
        }
        Ok(reader.finish()?)
    }

    /// Every insertion.
    pub(super) fn each_probe(&self, mut visit: impl FnMut(BlockProbe)) -> Result<(), PayloadError> {
        let code = self.code.rice();
        let mut previous: Option<BlockProbe> = None;
        let mut reader = BitReader::new(self.bytes);
        for _ in 0..self.count {
            let from = previous.map_or(0, |probe| probe.block);
            let block = next_index(code, &mut reader, from, self.end)?;
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

    /// Checks the number of words.
    pub(super) const fn check_word_count(&self, word_count: u64) -> Result<(), PayloadError> {
        let (expected, actual) = (word_count * WORD_BYTES as u64, self.bytes.len() as u64);
        if expected != actual {
            return Err(PayloadError::Length { expected, actual });
        }
        Ok(())
    }

    /// Checks the number of words, and of ones (or counters above 0) in them.
    pub(super) fn check_words(
        &self,
        word_count: u64,
        ones: fn(u64) -> u32,
    ) -> Result<(), PayloadError> {
        self.check_word_count(word_count)?;
        let actual = self.each_word().map(|word| u64::from(ones(word))).sum();
        if actual != self.count {
            return Err(PayloadError::Count { expected: self.count, actual });
        }
        Ok(())
    }
}

/// Number of counters above 0 in a word.
pub(super) const fn counter_count(word: u64) -> u32 {
    let pairs = word | word >> 1;
    ((pairs | pairs >> 2) & 0x1111_1111_1111_1111).count_ones()
}

/// Sets bits `from..to` and returns how many were zero. Bits after the last word are ignored.
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

/// ORs a mask into the index-th word and returns how many bits were zero. An index after the last
/// word is ignored.
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

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Four words, some of them empty and some full.
    fn words() -> impl Strategy<Value = Vec<u64>> {
        vec(
            prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), (0..64u32).prop_map(|at| 1 << at)],
            4,
        )
    }

    proptest! {
        /// The slow twin of runs: bit by bit.
        #[test]
        fn runs_are_bits(words in words(), from in 0..260u64, to in 0..260u64) {
            let mut ours = words.clone();
            let mut twin = words;
            let mut new_count = 0;
            for bit in from..to.min(256) {
                let word = &mut twin[usize::try_from(bit / 64).unwrap()];
                new_count += u64::from(*word >> (bit % 64) & 1 == 0);
                *word |= 1 << (bit % 64);
            }
            prop_assert_eq!(set_run(&mut ours, from, to), new_count);
            prop_assert_eq!(ours, twin);
        }

        /// The slow twin of counters: nibble by nibble.
        #[test]
        fn counters_are_nibbles(words in words()) {
            let twin: Vec<(u64, u32)> = (0..64)
                .map(|at| (at as u64, u32::try_from(words[at / 16] >> (at % 16 * 4) & 15).unwrap()))
                .filter(|&(_, value)| value > 0)
                .collect();
            prop_assert_eq!(counters(&words).collect::<Vec<_>>(), twin);
        }
    }
}
