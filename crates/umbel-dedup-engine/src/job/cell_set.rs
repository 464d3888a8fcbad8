//! A set of cells of a job, for example the decided ones.

use crate::limits::DEDUP_CELLS_MAX;
use serde::{Deserialize, Serialize};

/// A set of cells of one job, one bit per cell: at most 128 KiB.
///
/// ```
/// use umbel_dedup_engine::job::CellSet;
/// let (mut mine, mut theirs) = (CellSet::new(70), CellSet::new(70));
/// [3, 69].into_iter().for_each(|cell| mine.insert(cell));
/// [4, 69].into_iter().for_each(|cell| theirs.insert(cell));
/// mine.keep_common(&theirs);
/// assert_eq!((mine.count(), mine.contains(69), mine.contains(3)), (1, true, false));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CellSet {
    cells: u32,
    words: Vec<u64>,
}

impl CellSet {
    /// The empty set of a job with this many cells, at most [`DEDUP_CELLS_MAX`].
    #[must_use]
    pub fn new(cells: u32) -> Self {
        let cells = cells.min(DEDUP_CELLS_MAX);
        Self { cells, words: vec![0; cells.div_ceil(64) as usize] }
    }

    /// Whether the set is one of a job with this many cells, and has no bit beyond them. Check a received set with this
    /// before using it.
    #[must_use]
    pub fn is_of(&self, cells: u32) -> bool {
        let stray = |last: &u64| !cells.is_multiple_of(64) && last >> (cells % 64) != 0;
        self.cells == cells
            && self.words.len() == cells.div_ceil(64) as usize
            && !self.words.last().is_some_and(stray)
    }

    /// Adds a cell; ignores one that the job does not have.
    pub fn insert(&mut self, cell: u32) {
        if cell < self.cells
            && let Some(word) = self.words.get_mut(cell as usize / 64)
        {
            *word |= 1 << (cell % 64);
        }
    }

    /// Whether a cell is in the set.
    #[must_use]
    pub fn contains(&self, cell: u32) -> bool {
        self.words.get(cell as usize / 64).is_some_and(|word| word >> (cell % 64) & 1 == 1)
    }

    /// How many cells are in the set.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether all cells of the job are in the set.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.count() == self.cells
    }

    /// Removes the cells that are not in the other set.
    pub fn keep_common(&mut self, other: &Self) {
        let others = other.words.iter().chain(std::iter::repeat(&0));
        self.words.iter_mut().zip(others).for_each(|(word, other)| *word &= other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_full_when_every_cell_was_added() {
        for cells in [1, 63, 64, 65, 130] {
            let mut set = CellSet::new(cells);
            (0..cells + 9).for_each(|cell| {
                assert_eq!(set.is_full(), cell >= cells);
                set.insert(cell);
            });
            assert!(set.is_of(cells) && !set.is_of(cells + 1) && !set.contains(cells));
        }
    }

    #[test]
    fn foreign_sets_are_recognised_by_size_and_stray_bits() {
        let stray = CellSet { cells: 3, words: vec![8] };
        let short = CellSet { cells: 300, words: vec![] };
        assert!(!stray.is_of(3) && !short.is_of(300) && !short.contains(7));
        let mut set = CellSet::new(300);
        set.insert(299);
        set.keep_common(&short);
        assert_eq!(set.count(), 0);
    }
}
