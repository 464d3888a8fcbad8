//! Where in a filter's array an item lives: one block, chosen so that hash ranges are slices.
//!
//! A filter over the whole hash space is an array of B blocks. The block of an item is
//! ⌊hi · B / 2^64⌋ (multiply-shift, Lemire 2019, doi:10.1145/3230636): monotone in `hi`, so the
//! items of a hash range lie in neighbouring blocks, and a filter over a range *is* that slice of
//! the array, bit for bit.
//!
//! ```text
//! hash space   0 ├──── range 0 ────┼──── range 1 ────┤ 2^64
//! B = 6          │  0  │  1  │  2  │  3  │  4  │  5  │
//! ```
//!
//! Ranges are best cut at [`BlockMap::range_of_blocks`]: a block that two ranges share is stored by
//! both, each with its own items.

use std::ops::Range;

use crate::range::HashRange;
use crate::shape::ShapeError;

/// Most blocks over the whole hash space, 2^48: of 64 bytes, 16 PiB. Leaves every block 2^16
/// hashes, and products of block numbers and block sizes within 64 bits.
pub const BLOCK_COUNT_MAX: u64 = 1 << 48;

/// The map from a hash range to the slice of blocks that its items live in.
///
/// ```
/// use umbel_filter::{BlockMap, HashRange};
///
/// // 16 blocks over the space: the block is the top hexadecimal digit.
/// let map = BlockMap::new(HashRange::new(0x4000_0000_0000_0000, 0x8000_0000_0000_0000)?, 16)?;
/// assert_eq!((map.first_block(), map.len()), (4, 4));
/// assert_eq!(map.block(0x5abc_0000_0000_0000), 1);
/// assert_eq!(map.range_of_blocks(1..3).start(), 0x5000_0000_0000_0000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockMap {
    range: HashRange,
    block_count: u64,
    first_block: u64,
    len: u64,
}

impl BlockMap {
    /// The slice for `range` of an array of `block_count` blocks (B) over the whole hash space.
    ///
    /// # Errors
    /// If B is 0 or above [`BLOCK_COUNT_MAX`].
    pub const fn new(range: HashRange, block_count: u64) -> Result<Self, ShapeError> {
        if block_count == 0 || block_count > BLOCK_COUNT_MAX {
            return Err(ShapeError::BlockCount { block_count });
        }
        let first_block = block_of(range.start(), block_count);
        let len = block_of(range.last(), block_count) - first_block + 1;
        Ok(Self { range, block_count, first_block, len })
    }

    /// The hash range whose items the blocks hold.
    #[inline]
    #[must_use]
    pub const fn range(self) -> HashRange {
        self.range
    }

    /// Number of blocks over the whole hash space, B.
    #[inline]
    #[must_use]
    pub const fn block_count(self) -> u64 {
        self.block_count
    }

    /// Number of the range's first block, counted over the whole hash space.
    #[inline]
    #[must_use]
    pub const fn first_block(self) -> u64 {
        self.first_block
    }

    /// Number of blocks in the range, 1 to B.
    #[expect(clippy::len_without_is_empty, reason = "a range has at least one block")]
    #[inline]
    #[must_use]
    pub const fn len(self) -> u64 {
        self.len
    }

    /// Block of an item, counted from the range's first: below [`len`](Self::len) and monotone in
    /// `hi`, which must lie in the range. For any other `hi` the result means nothing.
    #[inline]
    #[must_use]
    pub const fn block(self, hi: u64) -> u64 {
        block_of(hi, self.block_count).wrapping_sub(self.first_block)
    }

    /// The part of the hash range whose items live in these blocks, counted from the range's first.
    ///
    /// # Panics
    /// If there are none, or more than the range has.
    #[must_use]
    pub fn range_of_blocks(self, blocks: Range<u64>) -> HashRange {
        assert!(
            blocks.start < blocks.end && blocks.end <= self.len,
            "blocks {} to {} of {}",
            blocks.start,
            blocks.end,
            self.len
        );
        let border = |block: u64| {
            (u128::from(self.first_block + block) << 64).div_ceil(self.block_count.into())
        };
        // The first and the last block may begin before and end after the range.
        let start = border(blocks.start).max(self.range.start().into());
        let end = border(blocks.end).min(self.range.end());
        let start = u64::try_from(start).expect("a block of the space begins inside it");
        HashRange::new(start, end).expect("every block of the range has hashes of the range")
    }

    /// The same blocks seen from a part of the range: how far its first block lies from ours, or
    /// None if the part leaves the range or counts blocks differently.
    #[must_use]
    pub fn offset_of(self, part: Self) -> Option<u64> {
        let is_part = self.block_count == part.block_count
            && self.range.start() <= part.range.start()
            && part.range.last() <= self.range.last();
        is_part.then(|| part.first_block - self.first_block)
    }
}

/// ⌊hi · blocks / 2^64⌋
#[inline]
const fn block_of(hi: u64, block_count: u64) -> u64 {
    ((hi as u128 * block_count as u128) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map(start: u64, end: u128, block_count: u64) -> BlockMap {
        BlockMap::new(HashRange::new(start, end).unwrap(), block_count).unwrap()
    }

    #[test]
    fn block_counts_are_checked() {
        for block_count in [0, BLOCK_COUNT_MAX + 1, u64::MAX] {
            let refused = Err(ShapeError::BlockCount { block_count });
            assert_eq!(BlockMap::new(HashRange::WHOLE, block_count), refused);
        }
        assert_eq!(map(0, 1 << 64, BLOCK_COUNT_MAX).len(), BLOCK_COUNT_MAX);
    }

    #[test]
    #[should_panic(expected = "blocks 0 to 4 of 3")]
    fn blocks_beyond_the_range_are_a_bug() {
        let _ = map(0, 1 << 64, 3).range_of_blocks(0..4);
    }

    #[test]
    fn parts_know_their_place() {
        let whole = map(0, 1 << 64, 100);
        let part = map(1 << 63, 1 << 64, 100);
        assert_eq!(whole.offset_of(part), Some(50));
        assert_eq!(part.offset_of(whole), None);
        assert_eq!(whole.offset_of(map(1 << 63, 1 << 64, 101)), None);
    }

    proptest! {
        #[test]
        fn blocks_of_a_range_tile_it(
            block_count in 1..200u64, start: u64, width in 1..=u64::MAX, cut: u64,
        ) {
            let map = map(start, (u128::from(start) + u128::from(width)).min(1 << 64), block_count);
            let cut = cut % map.len();
            let mut expected = u128::from(map.range().start());
            for blocks in [0..cut, cut..map.len()] {
                if blocks.is_empty() {
                    continue;
                }
                let part = map.range_of_blocks(blocks.clone());
                prop_assert_eq!(u128::from(part.start()), expected);
                prop_assert_eq!(map.block(part.start()), blocks.start);
                prop_assert_eq!(map.block(part.last()), blocks.end - 1);
                expected = part.end();
                let part = BlockMap::new(part, block_count).unwrap();
                prop_assert_eq!(map.offset_of(part), Some(blocks.start));
                prop_assert_eq!(part.len(), blocks.end - blocks.start);
            }
            prop_assert_eq!(expected, map.range().end());
        }

        /// The slow twin: a division.
        #[test]
        fn the_block_is_the_quotient(block_count in 1..=BLOCK_COUNT_MAX, hi: u64) {
            let map = map(0, 1 << 64, block_count);
            let slow = u128::from(hi) * u128::from(block_count) / (1 << 64);
            prop_assert_eq!(u128::from(map.block(hi)), slow);
        }
    }
}
