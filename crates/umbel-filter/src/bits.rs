//! Arrays of cache lines and the loops over them, which are written for speed.
//!
//! Every loop exists twice. `scalar` is plain Rust, the definition; `wide` picks the fastest
//! version for the processor at run time, and has the crate's `unsafe` code. Tests compare the two.

use crate::shape::CreateError;

pub(crate) mod scalar;
pub(crate) mod wide;

/// 64-bit words of a line.
pub(crate) const LINE_WORDS: usize = 8;

/// One cache line: 512 bits in 8 words. Bit i of a line is bit i mod 64 of word i / 64.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u64; LINE_WORDS]);

/// A loop that counts and selects ones of words, compiled for each set of instructions.
pub(crate) trait BitLoop {
    /// What comes of it.
    type Output;

    /// Runs it. To be inlined, with all that it calls and that shall be compiled so.
    fn run(self, select: impl Select) -> Self::Output;
}

/// Finds ones in words.
pub(crate) trait Select: Copy {
    /// The number of the bit that is the `rank`-th one of the word, `rank` from 0 to 63; 64 where there are not
    /// so many.
    fn select(self, word: u64, rank: u32) -> u32;
}

/// A fixed number of lines, all zeros at first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BitArray {
    lines: Vec<Line>,
}

impl BitArray {
    /// So many lines of zeros, on huge pages where the system has them: a filter is read at random,
    /// and most of what a random access costs beyond the memory itself is finding its page.
    pub(crate) fn new(line_count: u64) -> Result<Self, CreateError> {
        let bytes = line_count.saturating_mul(64);
        let lines = usize::try_from(line_count).ok().and_then(wide::zeroed_lines);
        lines.map(|lines| Self { lines }).ok_or(CreateError::OutOfMemory { bytes })
    }

    #[inline]
    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    #[inline]
    pub(crate) fn lines_mut(&mut self) -> &mut [Line] {
        &mut self.lines
    }

    /// All words, in order.
    #[inline]
    pub(crate) fn words(&self) -> &[u64] {
        wide::words(&self.lines)
    }

    #[inline]
    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        wide::words_mut(&mut self.lines)
    }

    #[inline]
    pub(crate) fn bit(&self, index: u64) -> bool {
        self.words()[self::index(index / 64)] >> (index % 64) & 1 == 1
    }

    /// Sets a bit and returns whether it was zero.
    #[inline]
    pub(crate) fn set(&mut self, index: u64) -> bool {
        let word = &mut self.words_mut()[self::index(index / 64)];
        let was_zero = *word >> (index % 64) & 1 == 0;
        *word |= 1 << (index % 64);
        was_zero
    }

    pub(crate) fn count_ones(&self) -> u64 {
        wide::count_ones(self.words())
    }

    /// ORs another array of equal length in and returns how many bits it newly set.
    pub(crate) fn or(&mut self, other: &Self) -> u64 {
        wide::or(self.words_mut(), other.words())
    }
}

/// The index of something that is in memory, or beyond any memory on a 32-bit machine: there the
/// slice's own check stops it.
#[inline(always)]
pub(crate) const fn index(index: u64) -> usize {
    if index > usize::MAX as u64 {
        return usize::MAX;
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked")]
    let index = index as usize;
    index
}

/// Indexes of the ones in the words, ascending; bit i is bit i mod 64 of word i / 64.
///
/// ```
/// use umbel_filter::words::iter_ones;
///
/// assert_eq!(iter_ones(&[0b101, 1 << 63]).collect::<Vec<u64>>(), [0, 2, 127]);
/// ```
pub fn iter_ones(words: &[u64]) -> impl Iterator<Item = u64> + Clone + '_ {
    ones_of(words.iter().copied())
}

/// Indexes of the zeros in the words, ascending.
///
/// ```
/// use umbel_filter::words::iter_zeros;
///
/// assert_eq!(iter_zeros(&[!0b101, !0]).collect::<Vec<u64>>(), [0, 2]);
/// ```
pub fn iter_zeros(words: &[u64]) -> impl Iterator<Item = u64> + Clone + '_ {
    ones_of(words.iter().map(|word| !word))
}

fn ones_of(words: impl Iterator<Item = u64> + Clone) -> impl Iterator<Item = u64> + Clone {
    (0..).step_by(64).zip(words).flat_map(|(first, mut word): (u64, u64)| {
        std::iter::from_fn(move || {
            let bit = (word != 0).then(|| word.trailing_zeros())?;
            word &= word - 1;
            Some(first + u64::from(bit))
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_no_allocator_gives_is_an_error() {
        for (line_count, bytes) in [(u64::MAX, u64::MAX), (1 << 57, 1 << 63)] {
            assert_eq!(BitArray::new(line_count), Err(CreateError::OutOfMemory { bytes }));
        }
    }

    #[test]
    fn large_arrays_begin_as_zeros() {
        let mut bits = BitArray::new(1 << 17).unwrap();
        assert_eq!(bits.count_ones(), 0);
        assert!(bits.set((1 << 26) - 1));
        assert_eq!(bits.clone().count_ones(), 1);
    }

    proptest! {
        /// The slow twin: a sorted set of indexes.
        #[test]
        fn bits_are_a_set(ours in vec(0..2048u64, 0..300), theirs in vec(0..2048u64, 0..300)) {
            let fill = |indexes: &[u64]| {
                let mut bits = BitArray::new(4).unwrap();
                let mut twin = std::collections::BTreeSet::new();
                for &index in indexes {
                    assert_eq!(bits.set(index), twin.insert(index));
                }
                (bits, twin)
            };
            let ((mut bits, mut twin), (other, other_twin)) = (fill(&ours), fill(&theirs));
            prop_assert!((0..2048).all(|index| bits.bit(index) == twin.contains(&index)));
            prop_assert_eq!(bits.or(&other), other_twin.difference(&twin).count() as u64);
            twin.extend(other_twin);
            prop_assert_eq!(bits.count_ones(), twin.len() as u64);
            prop_assert!(iter_ones(bits.words()).eq(twin.iter().copied()));
            let zeros = (0..2048).filter(|index| !twin.contains(index));
            prop_assert!(iter_zeros(bits.words()).eq(zeros));
        }
    }
}
