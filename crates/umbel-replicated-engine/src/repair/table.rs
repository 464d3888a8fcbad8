//! The residue words of every block of an array, so that a repair need not read blocks that are equal.

use std::fmt;
use std::sync::OnceLock;

use umbel_sketch::{BLOCK_BITS, BLOCK_WORDS, BlockCode, RESIDUE_WORDS_MAX};

use super::error::TableError;
use crate::limits::REPAIR_BLOCKS_MAX;

/// Residue words kept per block: eight syndromes.
pub(crate) const TABLE_WORDS: usize = 2;

/// The code with the largest number of residue words: 128 KiB, created once per process.
pub(crate) fn block_code() -> &'static BlockCode {
    static KNOWN: OnceLock<BlockCode> = OnceLock::new();
    KNOWN.get_or_init(|| BlockCode::new(RESIDUE_WORDS_MAX).expect("within the limit"))
}

/// Access to one copy of an array of bits, block by block.
pub trait BitBlocks {
    /// Reads the words of a block; bits beyond the end of the array are 0.
    fn read(&self, block: u32, words: &mut [u64; BLOCK_WORDS]);
}

impl BitBlocks for &[u64] {
    fn read(&self, block: u32, words: &mut [u64; BLOCK_WORDS]) {
        let begin = (block as usize).saturating_mul(BLOCK_WORDS).min(self.len());
        let rest = self.get(begin..).unwrap_or_default();
        let count = rest.len().min(BLOCK_WORDS);
        words.fill(0);
        for (word, from) in words.iter_mut().zip(rest.iter().take(count)) {
            *word = *from;
        }
    }
}

impl BitBlocks for Vec<u64> {
    fn read(&self, block: u32, words: &mut [u64; BLOCK_WORDS]) {
        self.as_slice().read(block, words);
    }
}

/// Two residue words for every block of an array: 16 bytes per 4 KiB.
///
/// It is either maintained by [`flip`](Self::flip) at every change, or computed at 8 GB/s. If a maintained
/// table differs from a computed one, bits have rotted.
///
/// ```
/// use umbel_replicated_engine::repair::ResidueTable;
///
/// let mut words = vec![0u64; 1000];
/// let mut table = ResidueTable::of_words(&words, 64_000)?;
/// assert_eq!(table.block_count(), 2);
/// words[999] = 1 << 5;
/// table.flip(64 * 999 + 5);
/// assert_eq!(table, ResidueTable::of_words(&words, 64_000)?);
/// # Ok::<(), umbel_replicated_engine::repair::TableError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ResidueTable {
    bit_count: u64,
    block_count: u32,
    residues: Vec<u64>,
}

impl fmt::Debug for ResidueTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResidueTable").field("bit_count", &self.bit_count).finish_non_exhaustive()
    }
}

impl ResidueTable {
    /// The table of an array.
    ///
    /// # Errors
    /// If the array is empty or too large, the number of words does not match the number of bits, or a bit
    /// after the last one is set.
    pub fn of_words(words: &[u64], bit_count: u64) -> Result<Self, TableError> {
        let block_count = block_count(bit_count)?;
        if words.len() as u64 != bit_count.div_ceil(64) {
            let expected = usize::try_from(bit_count.div_ceil(64)).unwrap_or(usize::MAX);
            return Err(TableError::Words { got: words.len(), expected });
        }
        let last_bits = bit_count % 64;
        if last_bits > 0 && words.last().is_some_and(|last| last >> last_bits != 0) {
            return Err(TableError::Tail);
        }
        let mut residues = vec![0; TABLE_WORDS * block_count as usize];
        let mut words_of_block = [0; BLOCK_WORDS];
        for (residues, block) in residues.chunks_exact_mut(TABLE_WORDS).zip(0..) {
            words.read(block, &mut words_of_block);
            block_code().residues_into(&words_of_block, residues);
        }
        Ok(Self { bit_count, block_count, residues })
    }

    /// The table of an array of zeros.
    ///
    /// # Errors
    /// If the array is empty or too large.
    pub fn of_nothing(bit_count: u64) -> Result<Self, TableError> {
        let block_count = block_count(bit_count)?;
        Ok(Self { bit_count, block_count, residues: vec![0; TABLE_WORDS * block_count as usize] })
    }

    /// Updates the table after a bit was flipped.
    ///
    /// # Panics
    /// If the bit is beyond the array.
    pub fn flip(&mut self, bit: u64) {
        assert!(bit < self.bit_count, "bit {bit} of {}", self.bit_count);
        let (block, position) = bit_place(bit);
        block_code().flip(self.of_block_mut(block), position);
    }

    /// Number of bits of the array.
    #[must_use]
    pub const fn bit_count(&self) -> u64 {
        self.bit_count
    }

    /// Number of blocks of the array; the last one may be partial.
    #[must_use]
    pub const fn block_count(&self) -> u32 {
        self.block_count
    }

    /// Two words per block, in order.
    #[must_use]
    pub fn residues(&self) -> &[u64] {
        &self.residues
    }

    pub(crate) fn of_block(&self, block: u32) -> &[u64] {
        let begin = TABLE_WORDS * block as usize;
        &self.residues[begin..begin + TABLE_WORDS]
    }

    pub(crate) fn of_block_mut(&mut self, block: u32) -> &mut [u64] {
        let begin = TABLE_WORDS * block as usize;
        &mut self.residues[begin..begin + TABLE_WORDS]
    }

    /// Number of bits of a block that belong to the array.
    pub(crate) fn bits_of_block(&self, block: u32) -> u32 {
        let before = u64::from(block) * u64::from(BLOCK_BITS);
        let rest = self.bit_count.saturating_sub(before).min(BLOCK_BITS.into());
        u32::try_from(rest).expect("at most a block")
    }
}

/// The block of a bit, and its position there.
pub(crate) fn bit_place(bit: u64) -> (u32, u32) {
    let block = u32::try_from(bit / u64::from(BLOCK_BITS)).expect("a bit of the array");
    let position = u32::try_from(bit % u64::from(BLOCK_BITS)).expect("a bit of the block");
    (block, position)
}

fn block_count(bit_count: u64) -> Result<u32, TableError> {
    let max = u64::from(REPAIR_BLOCKS_MAX) * u64::from(BLOCK_BITS);
    match u32::try_from(bit_count.div_ceil(BLOCK_BITS.into())) {
        Ok(count @ 1..=REPAIR_BLOCKS_MAX) => Ok(count),
        _ => Err(TableError::BitCount { bit_count, max }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_no_array_are_refused_by_name() {
        let words = |words: &[u64], bits| ResidueTable::of_words(words, bits).unwrap_err();
        assert!(matches!(words(&[], 0), TableError::BitCount { bit_count: 0, .. }));
        assert!(matches!(words(&[], u64::MAX), TableError::BitCount { .. }));
        assert_eq!(words(&[0], 65), TableError::Words { got: 1, expected: 2 });
        assert_eq!(words(&[0, 2], 65), TableError::Tail);
        assert_eq!(ResidueTable::of_nothing(65).unwrap().bits_of_block(0), 65);
    }
}
