//! The loops in plain Rust: the definition, and the version of every other processor.

use super::{BitLoop, LINE_WORDS, Line, Select, index};
use crate::block_map::BlockMap;
use crate::capability::Insertion;
use crate::hash::ItemHash;
use crate::lanes::{self, LaneSets};

/// A one in each byte.
const BYTE_ONES: u64 = 0x0101_0101_0101_0101;

/// The highest bit of each byte.
const BYTE_HIGHS: u64 = BYTE_ONES << 7;

/// The bits of an item in its block.
#[inline(always)]
pub(crate) fn mask(sets: &LaneSets, seed: u32) -> Line {
    let mut words = [0; LINE_WORDS];
    for position in lanes::positions(sets, seed) {
        words[position as usize / 64] |= 1 << (position % 64);
    }
    Line(words)
}

/// Whether the item's bits in its block are all set.
#[inline(always)]
pub(crate) fn contains_one(line: &Line, sets: &LaneSets, seed: u32) -> bool {
    let mask = mask(sets, seed);
    line.0.iter().zip(mask.0).all(|(word, mask)| word & mask == mask)
}

/// Sets the item's bits in its block.
#[inline(always)]
pub(crate) fn insert_one(line: &mut Line, sets: &LaneSets, seed: u32) -> Insertion {
    let mut outcome = Insertion::Present;
    for (word, mask) in line.0.iter_mut().zip(mask(sets, seed).0) {
        if *word & mask != mask {
            outcome = Insertion::New;
        }
        *word |= mask;
    }
    outcome
}

/// One answer a hash; all hashes lie in the map's range, and both slices are equally long.
#[cfg_attr(not(test), allow(dead_code, reason = "some processors have a wide version of it"))]
pub(crate) fn contains_batch(
    lines: &[Line],
    map: BlockMap,
    sets: &LaneSets,
    hashes: &[ItemHash],
    present: &mut [bool],
) {
    for (hash, present) in hashes.iter().zip(present) {
        *present = contains_one(&lines[line_of(map, *hash)], sets, probe_seed(*hash));
    }
}

/// One outcome a hash; all hashes lie in the map's range, and both slices are equally long.
#[cfg_attr(not(test), allow(dead_code, reason = "some processors have a wide version of it"))]
pub(crate) fn insert_batch(
    lines: &mut [Line],
    map: BlockMap,
    sets: &LaneSets,
    hashes: &[ItemHash],
    outcomes: &mut [Insertion],
) {
    for (hash, outcome) in hashes.iter().zip(outcomes) {
        *outcome = insert_one(&mut lines[line_of(map, *hash)], sets, probe_seed(*hash));
    }
}

/// The 32 bits that decide an item's probes inside its block.
#[inline(always)]
pub(crate) const fn probe_seed(hash: ItemHash) -> u32 {
    (hash.lo() >> 32) as u32
}

/// Index of the line that is an item's block.
#[inline(always)]
pub(crate) const fn line_of(map: BlockMap, hash: ItemHash) -> usize {
    index(map.block(hash.hi()))
}

/// Number of ones.
#[inline(always)]
pub(crate) fn count_ones(words: &[u64]) -> u64 {
    words.iter().map(|word| u64::from(word.count_ones())).sum()
}

/// ORs the second slice into the first, as far as both go, and returns how many bits it newly set.
#[inline(always)]
pub(crate) fn or(ours: &mut [u64], theirs: &[u64]) -> u64 {
    let mut new_count = 0;
    for (ours, theirs) in ours.iter_mut().zip(theirs) {
        new_count += u64::from((theirs & !*ours).count_ones());
        *ours |= theirs;
    }
    new_count
}

/// ANDs the second slice into the first, as far as both go, and returns how many bits it cleared.
#[inline(always)]
pub(crate) fn and(ours: &mut [u64], theirs: &[u64]) -> u64 {
    let mut cleared_count = 0;
    for (ours, theirs) in ours.iter_mut().zip(theirs) {
        cleared_count += u64::from((*ours & !theirs).count_ones());
        *ours &= theirs;
    }
    cleared_count
}

/// Selects by counting the ones of all bytes side by side.
#[derive(Clone, Copy)]
pub(crate) struct Broadword;

impl Select for Broadword {
    #[inline(always)]
    fn select(self, word: u64, rank: u32) -> u32 {
        select(word, rank)
    }
}

/// Runs a loop without any instructions of its own.
#[cfg_attr(not(test), allow(dead_code, reason = "some processors have a wide version of it"))]
pub(crate) fn with_bits<L: BitLoop>(bit_loop: L) -> L::Output {
    bit_loop.run(Broadword)
}

/// The number of the bit that is the `rank`-th one of a word, from 0 on; 64 where there are not so many.
///
/// The ones of each byte are counted side by side and summed up, which tells the byte; in the byte they are
/// taken away one by one. Vigna 2008, doi:10.1007/978-3-540-68552-4_12.
#[inline(always)]
const fn select(word: u64, rank: u32) -> u32 {
    let pairs = word - ((word >> 1) & 0x5555_5555_5555_5555);
    let fours = (pairs & 0x3333_3333_3333_3333) + ((pairs >> 2) & 0x3333_3333_3333_3333);
    let sums = ((fours + (fours >> 4)) & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul(BYTE_ONES);
    if rank as u64 >= sums >> 56 {
        return 64;
    }
    // In each byte, whether its sum is at most the rank: sums and ranks are below 128.
    let up_to = ((rank as u64 * BYTE_ONES) | BYTE_HIGHS).wrapping_sub(sums) & BYTE_HIGHS;
    let byte = up_to.count_ones() * 8;
    let before = ((sums << 8) >> byte) & 0xff;
    let mut ones = (word >> byte) & 0xff;
    let mut left = rank as u64 - before;
    while left > 0 {
        ones &= ones - 1;
        left -= 1;
    }
    byte + ones.trailing_zeros()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The slow twin: the ones of a word, in a list.
        #[test]
        fn selected_is_the_one_of_the_rank(word: u64, other: u64, third: u64) {
            for word in [word, word & other & third, word | other | third, 0, u64::MAX] {
                let ones: Vec<u32> = (0..64).filter(|bit| word >> bit & 1 == 1).collect();
                for rank in 0..64 {
                    let expected = ones.get(rank as usize).copied().unwrap_or(64);
                    prop_assert_eq!(select(word, rank), expected);
                }
            }
        }
    }
}
