//! Sets of one size, and where their rows stand.

use std::collections::BTreeMap;

use umbel_filter::BlockShape;

use super::shape::{ColumnSize, SlicedSet};

/// The sets of one size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SizeGroup {
    pub(super) shape: BlockShape,
    pub(super) size: ColumnSize,
    pub(super) sets: Vec<usize>,
    /// Where its rows begin in the matrix, in bytes.
    pub(super) start: u64,
    /// Bits of a row.
    pub(super) row_bits: u64,
    /// Where its sets begin in the words of an answer.
    pub(super) first_word: usize,
}

impl SizeGroup {
    /// Numbers of its sets, ascending: that of its columns.
    #[must_use]
    pub fn sets(&self) -> &[usize] {
        &self.sets
    }

    /// Size of its columns.
    #[must_use]
    pub const fn size(&self) -> ColumnSize {
        self.size
    }

    /// Bits of a row: one a set, rounded up to 1, 2, 4 or a multiple of 8.
    #[must_use]
    pub const fn row_bits(&self) -> u64 {
        self.row_bits
    }

    /// Bytes of all its rows.
    pub(super) const fn bytes(&self) -> u64 {
        self.size.bits() / 8 * self.row_bits
    }

    /// Words of an answer.
    pub(super) const fn words(&self) -> usize {
        self.sets.len().div_ceil(64)
    }
}

/// The groups of some sets by rising size.
pub(super) fn groups_of(sets: &[SlicedSet], probe_count: u32) -> Vec<SizeGroup> {
    let mut by_size: BTreeMap<ColumnSize, Vec<usize>> = BTreeMap::new();
    for (number, set) in sets.iter().enumerate() {
        by_size.entry(set.size).or_default().push(number);
    }
    let (mut start, mut first_word) = (0, 0);
    let group = |(size, sets): (ColumnSize, Vec<usize>)| {
        let (row_bits, shape) = (row_bits(sets.len()), size.shape(probe_count));
        let group = SizeGroup { shape, size, sets, start, row_bits, first_word };
        // 62 sizes of at most 2^40 rows of at most 2^20 sets: below 2^63 bytes.
        start += group.bytes();
        first_word += group.words();
        group
    };
    by_size.into_iter().map(group).collect()
}

/// A row of fewer than eight bits is in one byte.
const fn row_bits(set_count: usize) -> u64 {
    match set_count {
        0..=4 => set_count.next_power_of_two() as u64,
        _ => set_count.next_multiple_of(8) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_waste_few_bits() {
        let bits = [1, 2, 3, 4, 5, 8, 9, 1000].map(row_bits);
        assert_eq!(bits, [1, 2, 4, 4, 8, 8, 16, 1000]);
    }
}
