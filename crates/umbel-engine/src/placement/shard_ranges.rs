//! The hash range of each shard, when shards are split one after the other.
//!
//! Linear hashing (Litwin 1980, VLDB): a cluster is founded with N equal ranges, and a split cuts the next
//! shard in turn in two. The shard keeps the lower half, and a new shard, with the next number, gets the
//! upper half. When all shards have been split once, the next round begins, with twice as many shards:
//!
//! ```text
//! 2 shards   │ 0                       │ 1                       │
//! 3 shards   │ 0          │ 2          │ 1                       │    0 was cut
//! 4 shards   │ 0          │ 2          │ 1          │ 3          │    1 was cut: the round is over
//! 5 shards   │ 0   │ 4    │ 2          │ 1          │ 3          │    0 was cut again
//! ```
//!
//! So two numbers, the initial and the current number of shards, determine all ranges, and no range is more
//! than twice as wide as another. Hashes are uniform, so a shard's load is proportional to its width.
//!
//! A merge undoes the last split: the picture read upwards.

use thiserror::Error;
use umbel_filter::{CELL_COUNT_MAX, CellCount, HashRange};

use crate::ids::ShardId;

/// The ranges of all shards.
///
/// ```
/// use umbel_engine::{ShardId, placement::ShardRanges};
/// use umbel_filter::CellCount;
///
/// let two = ShardRanges::equal(CellCount::new(2)?);
/// assert_eq!(two.shard_of(0x4000_0000_0000_0000), ShardId(0));
/// // The third shard has the upper half of shard 0.
/// let three = two.split().expect("there may be a third shard");
/// assert_eq!(three.shard_of(0x4000_0000_0000_0000), ShardId(2));
/// assert_eq!(three.parent(ShardId(2)), Some(ShardId(0)));
/// let order: Vec<u32> = three.in_order().map(|(shard, _)| shard.0).collect();
/// assert_eq!(order, [0, 2, 1]);
/// # Ok::<(), umbel_filter::CellCountOutOfRange>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardRanges {
    /// Initial number of shards.
    founded: u32,
    /// Current number of shards, at least `founded`.
    count: u32,
    /// Merges that came before. It determines no range, but tells ranges from equal ones before a merge.
    merge_count: u32,
}

/// The numbers describe no valid ranges. Refuse the message that contains them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "{count} shards of {founded} at first, expected at least 1 at first, none less, and at most {}",
    CELL_COUNT_MAX / 2
)]
pub struct ShardRangesError {
    /// Initial number of shards.
    pub founded: u32,
    /// Current number of shards.
    pub count: u32,
}

impl ShardRanges {
    /// The ranges of `count` shards of a cluster that was founded with `founded`, and never merged any.
    ///
    /// # Errors
    /// If `founded` is 0, or `count` is below `founded` or above half of [`CELL_COUNT_MAX`].
    pub const fn new(founded: u32, count: u32) -> Result<Self, ShardRangesError> {
        // In a round, the space is cut into up to twice as many cells as there are shards.
        if founded == 0 || count < founded || count > CELL_COUNT_MAX / 2 {
            return Err(ShardRangesError { founded, count });
        }
        Ok(Self { founded, count, merge_count: 0 })
    }

    /// The ranges of shards that were never split.
    #[must_use]
    pub const fn equal(cells: CellCount) -> Self {
        Self { founded: cells.get(), count: cells.get(), merge_count: 0 }
    }

    /// The same ranges in a cluster that has done this many merges. They are equal only to ranges with
    /// the same number of merges, so that whoever compares ranges before and after a call notices a merge
    /// that was followed by a split.
    ///
    /// ```
    /// use umbel_engine::placement::ShardRanges;
    ///
    /// let two = ShardRanges::new(1, 2)?;
    /// let later = two.with_merge_count(1);
    /// assert!(two != later && two.is_cut_like(later));
    /// # Ok::<(), umbel_engine::placement::ShardRangesError>(())
    /// ```
    #[must_use]
    pub const fn with_merge_count(self, merge_count: u32) -> Self {
        Self { merge_count, ..self }
    }

    /// Whether every shard has the same range in both, whatever was merged before: for ranges of two
    /// clusters, or of one that does not tell its merges.
    #[must_use]
    pub const fn is_cut_like(self, other: Self) -> bool {
        self.founded == other.founded && self.count == other.count
    }

    /// Number of shards.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.count
    }

    /// Number of shards that the cluster was founded with.
    #[must_use]
    pub const fn founded(self) -> u32 {
        self.founded
    }

    /// Number of merges that came before; 0 for ranges from the wire, which does not tell it.
    #[must_use]
    pub const fn merge_count(self) -> u32 {
        self.merge_count
    }

    /// The ranges after the next shard in turn is split; None if there are already as many shards as
    /// possible.
    #[must_use]
    pub fn split(self) -> Option<Self> {
        let after = Self::new(self.founded, self.count.checked_add(1)?).ok()?;
        Some(after.with_merge_count(self.merge_count))
    }

    /// The ranges after the last shard is merged into the one that it was split from; None if no shard
    /// was split off.
    ///
    /// ```
    /// use umbel_engine::{ShardId, placement::ShardRanges};
    ///
    /// let two = ShardRanges::new(2, 2)?;
    /// let merged = two.split().and_then(ShardRanges::merge).expect("shard 2 was split off");
    /// // The ranges are as before, but they are told apart.
    /// assert!(merged.is_cut_like(two) && merged != two && merged.merge_count() == 1);
    /// assert_eq!(two.merge(), None);
    /// # Ok::<(), umbel_engine::placement::ShardRangesError>(())
    /// ```
    #[must_use]
    pub fn merge(self) -> Option<Self> {
        let after = Self::new(self.founded, self.count.checked_sub(1)?).ok()?;
        Some(after.with_merge_count(self.merge_count.saturating_add(1)))
    }

    /// How often every shard has been split.
    #[inline]
    const fn rounds(self) -> u32 {
        (self.count / self.founded).ilog2()
    }

    /// The equal cells that have the width of the widest range: new filters are planned for these.
    ///
    /// ```
    /// use umbel_engine::placement::ShardRanges;
    ///
    /// // Of five shards four have an eighth or a quarter; a quarter is the widest.
    /// assert_eq!(ShardRanges::new(2, 5)?.widest().get(), 4);
    /// # Ok::<(), umbel_engine::placement::ShardRangesError>(())
    /// ```
    #[must_use]
    pub fn widest(self) -> CellCount {
        self.cells(self.rounds())
    }

    /// The cells after this many rounds.
    #[inline]
    fn cells(self, rounds: u32) -> CellCount {
        CellCount::new(self.founded << rounds)
            .expect("at most twice as many as there may be shards")
    }

    /// All shards, by number.
    pub fn shards(self) -> impl ExactSizeIterator<Item = ShardId> {
        (0..self.count).map(ShardId)
    }

    /// The shard that contains a position of the hash space.
    #[inline]
    #[must_use]
    pub fn shard_of(self, hi: u64) -> ShardId {
        if self.count == self.founded {
            return ShardId(self.cells(0).cell_of(hi));
        }
        let depth = self.rounds() + 1;
        let cell = self.cells(depth).cell_of(hi);
        // The splits on the way to the cell, the first one in the lowest bit: each upper half has a number
        // of its own.
        let cuts = cell.reverse_bits() >> (u32::BITS - depth);
        let shard = (cell >> depth) + self.founded * cuts;
        // A shard that is not split yet in this round still has both halves.
        let is_cut = shard < self.count;
        ShardId(if is_cut { shard } else { shard - (self.founded << (depth - 1)) })
    }

    /// A shard's range, or None if there is no such shard.
    #[must_use]
    pub fn range(self, shard: ShardId) -> Option<HashRange> {
        if shard.0 >= self.count {
            return None;
        }
        let rounds = self.rounds();
        let whole = self.founded << rounds;
        let is_cut = shard.0 >= whole || shard.0 + whole < self.count;
        Some(self.range_after(shard, rounds + u32::from(is_cut)))
    }

    /// The range that a shard began with, or None if there is no such shard. Its current range starts at
    /// the same hash.
    #[must_use]
    pub fn first_range(self, shard: ShardId) -> Option<HashRange> {
        (shard.0 < self.count).then(|| self.range_after(shard, self.birth(shard)))
    }

    /// The shard from which a shard was split off; None for an initial shard.
    ///
    /// ```
    /// use umbel_engine::{ShardId, placement::ShardRanges};
    ///
    /// let five = ShardRanges::new(2, 5)?;
    /// assert_eq!([0, 1, 2, 3, 4].map(|shard| five.parent(ShardId(shard)).map(|parent| parent.0)), [
    ///     None, None, Some(0), Some(1), Some(0),
    /// ]);
    /// # Ok::<(), umbel_engine::placement::ShardRangesError>(())
    /// ```
    #[must_use]
    pub const fn parent(self, shard: ShardId) -> Option<ShardId> {
        if shard.0 < self.founded || shard.0 >= self.count {
            return None;
        }
        Some(ShardId(shard.0 - (self.founded << (shard.0 / self.founded).ilog2())))
    }

    /// All shards with their ranges, in the order of the ranges.
    pub fn in_order(self) -> impl Iterator<Item = (ShardId, HashRange)> {
        let mut next = Some(0);
        std::iter::from_fn(move || {
            let shard = self.shard_of(next?);
            let range = self.range(shard)?;
            next = range.last().checked_add(1);
            Some((shard, range))
        })
    }

    /// Whether each of these ranges lies within one of `coarser`, so that a filter cut by `coarser` can be
    /// re-cut by these.
    ///
    /// ```
    /// use umbel_engine::placement::ShardRanges;
    ///
    /// let five = ShardRanges::new(2, 5)?;
    /// assert!(five.refine(ShardRanges::new(2, 4)?) && !five.refine(ShardRanges::new(2, 6)?));
    /// // Whatever they were at first.
    /// assert!(five.refine(ShardRanges::new(1, 4)?) && !five.refine(ShardRanges::new(3, 3)?));
    /// # Ok::<(), umbel_engine::placement::ShardRangesError>(())
    /// ```
    #[must_use]
    pub fn refine(self, coarser: Self) -> bool {
        self.in_order().all(|(_, range)| {
            let theirs = coarser.range(coarser.shard_of(range.start()));
            theirs.is_some_and(|theirs| theirs.covers(range))
        })
    }

    /// The number of rounds after which a shard has the range that it began with.
    const fn birth(self, shard: ShardId) -> u32 {
        if shard.0 < self.founded { 0 } else { (shard.0 / self.founded).ilog2() + 1 }
    }

    /// The range of a shard after it was cut in this many rounds.
    fn range_after(self, shard: ShardId, rounds: u32) -> HashRange {
        // The bits of the number say in which rounds the shard went to the upper half.
        let cuts =
            (shard.0 / self.founded).reverse_bits().checked_shr(u32::BITS - rounds).unwrap_or(0);
        let cell = ((shard.0 % self.founded) << rounds) + cuts;
        HashRange::cell(cell, self.cells(rounds))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The ranges by splitting one shard after the other.
    fn by_cutting(founded: u32, count: u32) -> Vec<HashRange> {
        let cells = CellCount::new(founded).unwrap();
        let mut ranges: Vec<HashRange> =
            (0..founded).map(|cell| HashRange::cell(cell, cells)).collect();
        let (mut turn, mut round) = (0, founded as usize);
        while ranges.len() < count as usize {
            let whole = ranges[turn];
            let cells = CellCount::new(2 * u32::try_from(round).unwrap()).unwrap();
            let lower = (0..cells.get())
                .map(|cell| HashRange::cell(cell, cells))
                .find(|half| half.start() == whole.start())
                .unwrap();
            ranges[turn] = lower;
            ranges.push(HashRange::new(lower.last() + 1, whole.end()).unwrap());
            turn += 1;
            if turn == round {
                (turn, round) = (0, 2 * round);
            }
        }
        ranges
    }

    #[test]
    fn ranges_are_those_of_cutting_one_after_the_other() {
        for founded in 1..=6 {
            for count in founded..=40 {
                let ranges = ShardRanges::new(founded, count).unwrap();
                let expected = by_cutting(founded, count);
                let got: Vec<_> = ranges.shards().filter_map(|shard| ranges.range(shard)).collect();
                assert_eq!(got, expected, "{founded} to {count}");
                assert_eq!(ranges.range(ShardId(count)), None);
            }
        }
    }

    #[test]
    fn a_new_shard_begins_with_what_its_parent_loses() {
        for founded in 1..=5 {
            let mut ranges = ShardRanges::new(founded, founded).unwrap();
            for _ in 0..40 {
                let after = ranges.split().unwrap();
                let new = ShardId(ranges.count());
                let parent = after.parent(new).unwrap();
                let (whole, kept) = (ranges.range(parent).unwrap(), after.range(parent).unwrap());
                let born = after.first_range(new).unwrap();
                assert_eq!(after.range(new), Some(born));
                assert_eq!((kept.start(), born.end()), (whole.start(), whole.end()));
                assert_eq!(u128::from(born.start()), kept.end());
                // All other ranges stay the same, and so do the ranges that shards began with.
                for shard in ranges.shards().filter(|&shard| shard != parent) {
                    assert_eq!(ranges.range(shard), after.range(shard));
                }
                for shard in ranges.shards() {
                    assert_eq!(ranges.first_range(shard), after.first_range(shard));
                }
                ranges = after;
            }
        }
    }

    #[test]
    fn a_merge_undoes_the_last_split() {
        for founded in 1..=5 {
            let mut ranges = ShardRanges::new(founded, founded).unwrap();
            assert_eq!(ranges.merge(), None);
            for _ in 0..40 {
                let after = ranges.split().unwrap();
                let merged = after.merge().unwrap();
                let all = |ranges: ShardRanges| ranges.in_order().collect::<Vec<_>>();
                assert_eq!(all(merged), all(ranges));
                assert!(merged.is_cut_like(ranges) && merged != ranges);
                // The next split says how many merges came before.
                assert_eq!(merged.split(), Some(after.with_merge_count(1)));
                // A filter that is cut by the finer ranges is not cut finely enough by the coarser ones.
                assert!(after.refine(merged) && !merged.refine(after));
                ranges = after;
            }
        }
    }

    #[test]
    fn numbers_of_no_shards_are_refused() {
        for (founded, count) in [(0, 0), (0, 1), (3, 2), (1, CELL_COUNT_MAX / 2 + 1)] {
            assert_eq!(ShardRanges::new(founded, count), Err(ShardRangesError { founded, count }));
        }
    }

    proptest! {
        #[test]
        fn ranges_tile_the_hash_space(founded in 1_u32..=64, splits in 0_u32..=960, hi: u64) {
            let ranges = ShardRanges::new(founded, founded + splits).unwrap();
            let mut end = 0;
            for (shard, range) in ranges.in_order() {
                prop_assert_eq!(u128::from(range.start()), end);
                end = range.end();
                prop_assert_eq!(range.contains(hi), ranges.shard_of(hi) == shard);
            }
            prop_assert_eq!(end, 1 << 64);
            prop_assert_eq!(ranges.in_order().count(), ranges.count() as usize);
        }
    }
}
