//! The loops in plain Rust: the definition, and the version of every other processor.

use super::{LINE_WORDS, Line, index};
use crate::block_map::BlockMap;
use crate::capability::Insertion;
use crate::hash::ItemHash;
use crate::lanes::{self, LaneSets};

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
