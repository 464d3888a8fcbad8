//! A code over blocks of bits: a few parity words locate the bits in which two copies differ.
//!
//! A block is 4 KiB, 32,768 bits; bit p is bit p mod 64 of word ⌊p / 64⌋. It is a polynomial Σ x^p
//! over its set bits, and residue word g is its remainder by G_g, of degree 64:
//!
//! ```text
//! G_g = m_(8g+1) · m_(8g+3) · m_(8g+5) · m_(8g+7)       m_j: minimal polynomial of α^j, degree 16
//! ```
//!
//! with α = x in GF(2^16) modulo x^16 + x^5 + x^3 + x^2 + 1, of order 65,535. So a residue word is a
//! CRC with a plain generator, and holds four syndromes: evaluated at α^j it gives s_j = Σ α^(jp). The
//! words of two copies XOR to those of their difference. It is a binary BCH code: W words correct
//! 4W − 1 flips, with one syndrome to spare; they always reject 4W and 4W + 1 flips, and always
//! detect up to 8W.
//!
//! *Speed*. A residue is linear, so it is the sum of the block's words times x^(64i) mod G: 512
//! carry-less products at one per cycle, and one reduction.
//!
//! Hocquenghem 1959; Bose & Ray-Chaudhuri 1960, doi:10.1016/S0019-9958(60)90287-4.

use std::ops::Range;
use std::sync::OnceLock;

use thiserror::Error;

use crate::gf2::Field;
use crate::gf2::kernel::{Kernel, Task, run};
use crate::pinsketch::decode_at_most;

mod locators;
mod residue;

#[cfg(test)]
mod block_code_test;

use locators::Locators;
use residue::Generator;

/// Words of a block: 4 KiB.
pub const BLOCK_WORDS: usize = 512;

/// Bits of a block.
pub const BLOCK_BITS: u32 = 1 << 15;

/// Most residue words of a block: they correct 127 flips. Decoding time grows with the square of
/// the flips, and the minimal polynomials of all odd exponents below 257 are distinct and of degree
/// 16.
pub const RESIDUE_WORDS_MAX: usize = 32;

/// Number of flips that each residue word adds.
pub const FLIPS_PER_WORD: usize = 4;

/// No code has this many residue words. Fix the caller, or reject the message that asked for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{word_count} residue words, expected 1 to {RESIDUE_WORDS_MAX}")]
pub struct BlockCodeError {
    /// The requested number.
    pub word_count: usize,
}

/// The code with W residue words per block: 4 KiB of tables for each word.
///
/// ```
/// use umbel_sketch::{BLOCK_WORDS, BlockCode};
///
/// let code = BlockCode::new(2)?;
/// let mut ours = [0; BLOCK_WORDS];
/// ours[0] = 0b11; // bits 0 and 1
/// ours[511] = 1 << 63; // bit 32,767
/// let mut difference = code.residues(&ours);
/// assert_eq!(code.residues(&[0; BLOCK_WORDS]), [0, 0]);
/// assert_eq!(code.decode(&difference, 7), Some(vec![0, 1, 32_767]));
///
/// code.flip(&mut difference, 1);
/// assert_eq!(code.decode(&difference, 7), Some(vec![0, 32_767]));
/// assert_eq!(code.flips_max(), 7);
/// # Ok::<(), umbel_sketch::BlockCodeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct BlockCode {
    generators: Vec<Generator>,
}

impl BlockCode {
    /// The code with `word_count` residue words per block, 1 to 32. Its first words are those of
    /// the codes with fewer words.
    ///
    /// # Errors
    /// If `word_count` is outside that range.
    pub fn new(word_count: usize) -> Result<Self, BlockCodeError> {
        if !(1..=RESIDUE_WORDS_MAX).contains(&word_count) {
            return Err(BlockCodeError { word_count });
        }
        let generators = (0..word_count).map(|word| Generator::new(generator(word))).collect();
        Ok(Self { generators })
    }

    /// W, the number of residue words of a block.
    #[must_use]
    pub const fn word_count(&self) -> usize {
        self.generators.len()
    }

    /// 4W − 1, the number of flips that are corrected.
    #[must_use]
    pub const fn flips_max(&self) -> usize {
        FLIPS_PER_WORD * self.word_count() - 1
    }

    /// G_g without x^64, for g below [`Self::word_count`].
    ///
    /// # Panics
    /// If `word` is not below it.
    #[must_use]
    pub fn generator(&self, word: usize) -> u64 {
        self.generators[word].low()
    }

    /// The residue words of a block, one per generator.
    #[must_use]
    pub fn residues(&self, block: &[u64; BLOCK_WORDS]) -> Vec<u64> {
        let mut residues = vec![0; self.word_count()];
        self.residues_into(block, &mut residues);
        residues
    }

    /// Writes the first residue words into a slice, as many as it is long.
    ///
    /// # Panics
    /// If it is longer than [`Self::word_count`].
    pub fn residues_into(&self, block: &[u64; BLOCK_WORDS], residues: &mut [u64]) {
        struct Residues<'a>(&'a [Generator], &'a [u64; BLOCK_WORDS], &'a mut [u64]);
        impl Task for Residues<'_> {
            type Output = ();
            #[inline(always)]
            fn run<K: Kernel>(self, kernel: K) {
                for (generator, residue) in self.0.iter().zip(self.2) {
                    *residue = generator.residue(kernel, self.1);
                }
            }
        }
        let generators = &self.generators[..residues.len()];
        run(Field::BLOCK, Residues(generators, block, residues));
    }

    /// Residues of consecutive blocks: for each block as many words as the code has.
    ///
    /// # Panics
    /// If the number of blocks does not match the number of residues.
    pub fn residues_of_blocks(&self, words: &[u64], residues: &mut [u64]) {
        let (blocks, rest) = words.as_chunks::<BLOCK_WORDS>();
        assert!(
            rest.is_empty() && residues.len() == blocks.len() * self.word_count(),
            "{} words and {} residues",
            words.len(),
            residues.len()
        );
        for (block, residues) in blocks.iter().zip(residues.chunks_exact_mut(self.word_count())) {
            self.residues_into(block, residues);
        }
    }

    /// Updates residue words after a bit of the block flipped.
    ///
    /// # Panics
    /// If there are more words than the code has, or the position is not below 32,768.
    pub fn flip(&self, residues: &mut [u64], position: u32) {
        struct Flip<'a>(&'a [Generator], &'a mut [u64], u32);
        impl Task for Flip<'_> {
            type Output = ();
            #[inline(always)]
            fn run<K: Kernel>(self, kernel: K) {
                for (generator, residue) in self.0.iter().zip(self.1) {
                    *residue ^= generator.power(kernel, self.2);
                }
            }
        }
        assert!(position < BLOCK_BITS, "bit {position} of a block of {BLOCK_BITS}");
        run(Field::BLOCK, Flip(&self.generators[..residues.len()], residues, position));
    }

    /// The flipped positions, ascending, from the XOR of both copies' residue words. `None` if
    /// there are more than 4w − 1 flips for w words, or if no set of flips has these words. The
    /// seed affects only the running time.
    ///
    /// # Panics
    /// If there are more words than the code has.
    #[must_use]
    pub fn decode(&self, difference: &[u64], seed: u64) -> Option<Vec<u32>> {
        assert!(difference.len() <= self.word_count(), "residues of another code");
        let count = FLIPS_PER_WORD * difference.len();
        let mut syndromes = Vec::with_capacity(count);
        block_syndromes(difference, 0..count, &mut syndromes);
        decode_block(&syndromes, count.saturating_sub(1), seed)
    }
}

/// Appends syndromes of a block by number: number i, from 0 on, is s_(2i+1) and comes from residue
/// word ⌊i / 4⌋. They hold the same information as the words, in pieces of 16 bits, and are linear,
/// too.
///
/// ```
/// use umbel_sketch::{BLOCK_WORDS, BlockCode, block_syndromes, decode_block};
///
/// let mut block = [0; BLOCK_WORDS];
/// block[0] = 0b100_0010; // bits 1 and 6
/// let residues = BlockCode::new(1)?.residues(&block);
/// let mut syndromes = Vec::new();
/// block_syndromes(&residues, 0..3, &mut syndromes);
/// // α and α^6; their third and their fifth powers.
/// assert_eq!(syndromes[0], 1 << 1 | 1 << 6);
/// assert_eq!(decode_block(&syndromes, 2, 7), Some(vec![1, 6]));
/// // As many flips as syndromes: right here, and a guess where there were more of them.
/// assert_eq!(decode_block(&syndromes[..2], 1, 7), None);
/// assert_eq!(decode_block(&syndromes[..2], 2, 7), Some(vec![1, 6]));
/// # Ok::<(), umbel_sketch::BlockCodeError>(())
/// ```
///
/// # Panics
/// If there are not enough words.
pub fn block_syndromes(residues: &[u64], numbers: Range<usize>, syndromes: &mut Vec<u16>) {
    let locators = Locators::known();
    for number in numbers {
        let word = residues[number / FLIPS_PER_WORD];
        #[expect(clippy::cast_possible_truncation, reason = "there are not so many words")]
        let exponent = 2 * number as u32 + 1;
        syndromes.push(locators.evaluate(word, exponent));
    }
}

/// The flipped positions, ascending, from the XOR of both copies' first t syndromes: at most
/// `flips_max` of them, and at most t. `None` if there are more, or if no set of flips has these
/// syndromes.
///
/// With `flips_max` up to t − 1, one syndrome is to spare, and all but one in 2^16 · (t − 1)!
/// blocks with more flips are detected. With t, one such block in 2^t · t! decodes to wrong
/// positions: verify the result. The seed affects only the running time.
#[must_use]
pub fn decode_block(syndromes: &[u16], flips_max: usize, seed: u64) -> Option<Vec<u32>> {
    let locators = Locators::known();
    let wide: Vec<u64> = syndromes.iter().map(|&syndrome| syndrome.into()).collect();
    let found = decode_at_most(Field::BLOCK, &wide, flips_max, seed)?;
    let mut positions = Vec::with_capacity(found.len());
    for locator in found {
        let position = locators.position(locator)?;
        if position >= BLOCK_BITS {
            return None;
        }
        positions.push(position);
    }
    positions.sort_unstable();
    Some(positions)
}

/// G_g without x^64.
fn generator(word: usize) -> u64 {
    static KNOWN: OnceLock<[u64; RESIDUE_WORDS_MAX]> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let mut generators = [0; RESIDUE_WORDS_MAX];
        for (generator, word) in generators.iter_mut().zip(0u32..) {
            *generator = locators::generator(word);
        }
        generators
    })[word]
}
