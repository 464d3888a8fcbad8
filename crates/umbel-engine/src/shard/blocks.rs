//! A slice as numbered blocks, which can be compared, read and written one by one.
//!
//! | kind | block |
//! |---|---|
//! | words (all but single-shot) | 512 words, 4 KiB; scalable: level by level; RedisBloom: link by link |
//! | single-shot | the set positions in a 4,096th of the array, ascending |
//!
//! The blocks depend only on the slice's contents, so equal replicas have equal blocks. A slice also has
//! counters: the number of items answered new and, for some kinds, counts per level.

use std::collections::BTreeMap;
use std::iter::Peekable;

use umbel_filter::{AnyFilter, RedisBloomLink, StoredSingleShot};

use super::changed_positions::arrays;
use super::digest::Digest;
use super::positions::Positions;
use super::slice::Slice;

/// Words of a block: 4 KiB, so that repairing a flipped bit is cheap, and digests of 8 bytes each take
/// 1/512 of the slice.
pub(super) const BLOCK_WORDS: usize = 512;

/// Blocks of a single-shot slice. In a slice of the largest size each holds 80 KiB of positions.
const POSITION_BLOCKS: u64 = 4096;

impl Slice {
    /// The words of one array, for repair.
    fn array_mut(&mut self, array: usize) -> Option<&mut [u64]> {
        match self.filter.change() {
            // These keep counts of what their words hold, so `write_blocks` changes them through their
            // `rewrite`.
            AnyFilter::SingleShot(_)
            | AnyFilter::Window(_)
            | AnyFilter::Cuckoo(_)
            | AnyFilter::Quotient(_) => None,
            AnyFilter::Scalable(filter) => filter.level_words_mut(array),
            AnyFilter::RedisBloom(filter) => filter.link_words_mut(array),
            _ if array > 0 => None,
            AnyFilter::Blocked(filter) => Some(filter.words_mut()),
            AnyFilter::Classic(filter) => Some(filter.words_mut()),
            AnyFilter::Partitioned(filter) => Some(filter.words_mut()),
            AnyFilter::Counting(filter) => Some(filter.words_mut()),
            AnyFilter::Aging(filter) => Some(filter.parts_mut().0),
            AnyFilter::Stable(filter) => Some(filter.parts_mut().0),
        }
    }

    /// Number of blocks.
    pub(super) fn block_count(&self) -> u32 {
        let count = match &*self.filter {
            AnyFilter::SingleShot(filter) => {
                filter.single_shot_shape().width().min(POSITION_BLOCKS)
            }
            _ => arrays(&self.filter)
                .iter()
                .map(|words| words.len().div_ceil(BLOCK_WORDS) as u64)
                .sum(),
        };
        // A slice has at most 256 MiB.
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Average number of words per block, rounded up.
    pub(super) fn block_words(&self) -> u64 {
        match &*self.filter {
            AnyFilter::SingleShot(filter) => {
                filter.len() / u64::from(self.block_count()).max(1) + 1
            }
            _ => BLOCK_WORDS as u64,
        }
    }

    /// Calls `visit` for each wanted block, in ascending order. Blocks that do not exist are skipped.
    pub(super) fn visit_blocks(
        &self,
        mut is_wanted: impl FnMut(u32) -> bool,
        mut visit: impl FnMut(u32, &[u64]),
    ) {
        if let AnyFilter::SingleShot(filter) = &*self.filter {
            let mut content = Vec::new();
            let mut positions = filter.positions().peekable();
            for block in 0..self.block_count() {
                let end = block_start(filter, block + 1);
                content.clear();
                let is_wanted = is_wanted(block);
                while let Some(position) = positions.next_if(|&position| position < end) {
                    if is_wanted {
                        content.push(position);
                    }
                }
                if is_wanted {
                    visit(block, &content);
                }
            }
            return;
        }
        let blocks = arrays(&self.filter).into_iter().flat_map(|words| words.chunks(BLOCK_WORDS));
        for (block, words) in (0..).zip(blocks) {
            if is_wanted(block) {
                visit(block, words);
            }
        }
    }

    /// Keyed digests of `count` blocks from `first` on; fewer at the end of the slice.
    pub(super) fn block_digests(&self, seed: u64, first: u32, count: u32) -> Vec<u64> {
        let mut digests = Vec::new();
        let wanted = first..first.saturating_add(count);
        self.visit_blocks(
            |block| wanted.contains(&block),
            |_, content| {
                digests.push(Digest::of_block(seed, content));
            },
        );
        digests
    }

    /// The contents of these blocks, which must be in ascending order. Empty for a block that does not
    /// exist.
    pub(super) fn read_blocks(&self, blocks: &[u32]) -> Vec<Vec<u64>> {
        let mut contents: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        let is_wanted = |block| blocks.binary_search(&block).is_ok();
        self.visit_blocks(is_wanted, |block, content| {
            contents.insert(block, content.to_vec());
        });
        blocks.iter().map(|block| contents.remove(block).unwrap_or_default()).collect()
    }

    /// Overwrites blocks with these contents, or ORs them in if `only_adds`. Contents that do not fit the
    /// slice's shape are ignored.
    pub(super) fn write_blocks(&mut self, contents: &[(u32, Vec<u64>)], only_adds: bool) {
        if let AnyFilter::SingleShot(filter) = &*self.filter {
            if let Some(filter) = with_blocks(filter, contents, only_adds) {
                self.filter = Positions::new(AnyFilter::SingleShot(filter));
            }
            return;
        }
        let write = |words: &mut [u64]| {
            for (block, content) in contents {
                let block = words.chunks_mut(BLOCK_WORDS).nth(*block as usize);
                write_block(block, content, only_adds);
            }
        };
        match self.filter.change() {
            AnyFilter::Window(filter) => filter.rewrite(write),
            AnyFilter::Cuckoo(filter) => filter.rewrite(write),
            AnyFilter::Quotient(filter) => filter.rewrite(write),
            _ => {
                for (block, content) in contents {
                    write_block(self.block_mut(*block), content, only_adds);
                }
            }
        }
    }

    fn block_mut(&mut self, block: u32) -> Option<&mut [u64]> {
        let mut at = block as usize;
        let counts =
            arrays(&self.filter).into_iter().map(|words| words.len().div_ceil(BLOCK_WORDS));
        let mut array = None;
        for (number, count) in counts.enumerate() {
            if at < count {
                array = Some(number);
                break;
            }
            at -= count;
        }
        self.array_mut(array?)?.chunks_mut(BLOCK_WORDS).nth(at)
    }

    /// The number of items answered new and of positions merged in, followed by: the counts of each level
    /// or link, of each generation of an aging filter, the insert count of a stable filter, or the oldest
    /// and newest slice of a window.
    pub(super) fn counters(&self) -> Vec<u64> {
        let mut counters = vec![self.new_count, self.merged_count];
        match &*self.filter {
            AnyFilter::Scalable(filter) => {
                counters.extend(filter.levels().iter().map(umbel_filter::FilterLevel::item_count));
            }
            AnyFilter::RedisBloom(filter) => {
                counters.extend(filter.links().iter().map(RedisBloomLink::item_count));
            }
            AnyFilter::Window(window) => counters.extend([window.oldest(), window.newest()]),
            AnyFilter::Aging(filter) => counters.extend(filter.counts()),
            AnyFilter::Stable(filter) => counters.extend(filter.counts()),
            _ => {}
        }
        counters
    }

    /// Sets the counters. Values that do not fit the slice's shape are ignored.
    pub(super) fn set_counters(&mut self, counters: &[u64]) {
        let Some((&[new_count, merged_count], levels)) = counters.split_first_chunk() else {
            return;
        };
        (self.new_count, self.merged_count) = (new_count, merged_count);
        match (self.filter.change(), levels) {
            (AnyFilter::Window(window), &[oldest, newest]) => window.advance(oldest, newest),
            (AnyFilter::Aging(filter), &[newer, older]) => {
                *filter.parts_mut().1 = [newer, older];
            }
            (AnyFilter::Stable(filter), &[inserts, 0]) => {
                *filter.parts_mut().1 = [inserts, 0];
            }
            (AnyFilter::RedisBloom(filter), levels) => {
                for (link, &item_count) in levels.iter().enumerate() {
                    filter.set_link_item_count(link, item_count);
                }
            }
            (AnyFilter::Scalable(filter), levels) => {
                for (level, &item_count) in levels.iter().enumerate() {
                    filter.set_level_item_count(level, item_count);
                }
            }
            _ => {}
        }
    }
}

/// Overwrites or ORs a block, if the content has the same number of words.
fn write_block(block: Option<&mut [u64]>, content: &[u64], only_adds: bool) {
    let Some(words) = block.filter(|words| words.len() == content.len()) else { return };
    for (word, &right) in words.iter_mut().zip(content) {
        *word = if only_adds { *word | right } else { right };
    }
}

/// First position of a block of a single-shot slice.
fn block_start(filter: &StoredSingleShot, block: u32) -> u64 {
    let width = filter.single_shot_shape().width();
    let count = width.clamp(1, POSITION_BLOCKS);
    let start = u128::from(width) * u128::from(block) / u128::from(count);
    u64::try_from(start).unwrap_or(width).min(width)
}

/// The filter with new contents of some blocks. None if a position lies outside its block, or the positions
/// or blocks are not in ascending order.
fn with_blocks(
    filter: &StoredSingleShot,
    contents: &[(u32, Vec<u64>)],
    only_adds: bool,
) -> Option<StoredSingleShot> {
    let range = |block: u32| block_start(filter, block)..block_start(filter, block + 1);
    let are_own = |(block, content): &(u32, Vec<u64>)| {
        u64::from(*block) < POSITION_BLOCKS
            && content.iter().all(|position| range(*block).contains(position))
    };
    if !contents.iter().all(are_own) {
        return None;
    }
    let ranges: Vec<_> = contents.iter().map(|&(block, _)| range(block)).collect();
    let is_replaced = |position: u64| {
        let at = ranges.partition_point(|range| range.end <= position);
        !only_adds && ranges.get(at).is_some_and(|range| range.contains(&position))
    };
    let kept = || filter.positions().filter(|&position| !is_replaced(position));
    let added = || contents.iter().flat_map(|(_, content)| content.iter().copied());
    let count = Union { one: kept().peekable(), other: added().peekable() }.count();
    let union = Union { one: kept().peekable(), other: added().peekable() };
    let sized = Sized { left: count, of: union };
    StoredSingleShot::from_positions(filter.single_shot_shape(), sized).ok()
}

/// Merges two ascending sequences into one, without duplicates.
struct Union<A: Iterator<Item = u64>, B: Iterator<Item = u64>> {
    one: Peekable<A>,
    other: Peekable<B>,
}

impl<A: Iterator<Item = u64>, B: Iterator<Item = u64>> Iterator for Union<A, B> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        match (self.one.peek().copied(), self.other.peek().copied()) {
            (Some(one), Some(other)) if one == other => {
                self.other.next();
                self.one.next()
            }
            (Some(one), Some(other)) if one > other => self.other.next(),
            (Some(_), _) => self.one.next(),
            (None, _) => self.other.next(),
        }
    }
}

/// An iterator with a length that was counted before.
struct Sized<I> {
    left: usize,
    of: I,
}

impl<I: Iterator> Iterator for Sized<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.left = self.left.saturating_sub(1);
        self.of.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<I: Iterator> ExactSizeIterator for Sized<I> {}
