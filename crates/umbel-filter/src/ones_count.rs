//! Counting the set positions of a filter piece by piece, between which the filter may change.
//!
//! A filter of 256 MiB takes tens of milliseconds to read. Who shares it with others, or its thread, counts
//! some thousand words at a time and lets go of it in between.

use crate::aging;
use crate::any::AnyFilter;
use crate::capability::{Describe, Description};
use crate::counting;
use crate::redis_bloom::RedisBloomLink;
use crate::words::count_ones;

/// How far a count has come.
///
/// ```
/// use umbel_filter::{AnyFilter, Blocked, Describe, HashRange, Insert, ItemHash, OnesCount};
///
/// let mut filter = AnyFilter::from(Blocked::new(HashRange::WHOLE, 100, 6)?);
/// filter.insert(ItemHash::new(1 << 60, 1 << 32))?;
/// let mut count = OnesCount::default();
/// let mut piece_count = 0;
/// let description = loop {
///     piece_count += 1;
///     if let Some(description) = count.count_on(&filter, 64) {
///         break description;
///     }
/// };
/// // 800 words.
/// assert_eq!((piece_count, description), (13, filter.describe()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct OnesCount {
    /// Ones of each array that was begun; all but the last are counted whole.
    one_counts: Vec<u64>,
    /// Next word of the last one.
    next_word: usize,
}

impl OnesCount {
    /// Counts up to about so many words more, at least sixteen, and describes the filter once all are
    /// counted.
    ///
    /// Bits that are set meanwhile may be counted or not, so the result lies between what it was when the
    /// count began and what it is when it ends. The filter must not be emptied or replaced in between.
    pub fn count_on(&mut self, filter: &AnyFilter, word_count: usize) -> Option<Description> {
        // Counters are counted four words at a time, the generations of an aging filter sixteen.
        let mut left = (word_count / 16).max(1) * 16;
        while let Some(words) = words_of(filter, self.one_counts.len().saturating_sub(1)) {
            if self.one_counts.is_empty() {
                self.one_counts.push(0);
            }
            let rest = words.get(self.next_word..).unwrap_or_default();
            let (piece, behind) = rest.split_at(rest.len().min(left));
            if let Some(ones) = self.one_counts.last_mut() {
                *ones += match filter {
                    AnyFilter::Counting(_) | AnyFilter::Stable(_) => {
                        counting::occupied_count(piece)
                    }
                    AnyFilter::Aging(_) => aging::occupied_count(piece),
                    _ => count_ones(piece),
                };
            }
            self.next_word += piece.len();
            left -= piece.len();
            if behind.is_empty() {
                if words_of(filter, self.one_counts.len()).is_none() {
                    break;
                }
                self.one_counts.push(0);
                self.next_word = 0;
            }
            if left == 0 {
                return None;
            }
        }
        Some(self.describe(filter))
    }

    fn describe(&self, filter: &AnyFilter) -> Description {
        let ones = self.one_counts.first().copied().unwrap_or_default();
        match filter {
            // They know the number of their positions, or items.
            AnyFilter::SingleShot(filter) => filter.describe(),
            AnyFilter::Window(filter) => filter.describe(),
            AnyFilter::Cuckoo(filter) => filter.describe(),
            AnyFilter::Quotient(filter) => filter.describe(),
            AnyFilter::Blocked(filter) => filter.block_shape().describe(ones),
            AnyFilter::Classic(filter) => filter.block_shape().describe(ones),
            AnyFilter::Partitioned(filter) => filter.block_shape().describe(ones),
            AnyFilter::Counting(filter) => filter.block_shape().describe(ones),
            AnyFilter::Scalable(filter) => filter.describe_counted(self.one_counts.iter().copied()),
            AnyFilter::RedisBloom(filter) => {
                filter.describe_counted(self.one_counts.iter().copied())
            }
            AnyFilter::Aging(filter) => filter.describe_counted(ones),
            AnyFilter::Stable(filter) => filter.block_shape().describe(ones),
        }
    }
}

/// The arrays whose ones are counted: a filter of levels or links has one for each, others one or none.
fn words_of(filter: &AnyFilter, index: usize) -> Option<&[u64]> {
    let only = |words| (index == 0).then_some(words);
    match filter {
        AnyFilter::SingleShot(_)
        | AnyFilter::Window(_)
        | AnyFilter::Cuckoo(_)
        | AnyFilter::Quotient(_) => None,
        AnyFilter::Blocked(filter) => only(filter.words()),
        AnyFilter::Classic(filter) => only(filter.words()),
        AnyFilter::Partitioned(filter) => only(filter.words()),
        AnyFilter::Counting(filter) => only(filter.words()),
        AnyFilter::Aging(filter) => only(filter.words()),
        AnyFilter::Stable(filter) => only(filter.words()),
        AnyFilter::Scalable(filter) => {
            filter.levels().get(index).map(|level| level.filter().words())
        }
        AnyFilter::RedisBloom(filter) => filter.links().get(index).map(RedisBloomLink::words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FilterPlan, HashRange, Insert, ItemHasher, Kind};

    fn counted(filter: &AnyFilter, word_count: usize) -> Description {
        let mut count = OnesCount::default();
        loop {
            if let Some(description) = count.count_on(filter, word_count) {
                return description;
            }
        }
    }

    /// In pieces of any size, and of scalable filters over many levels.
    #[test]
    fn pieces_sum_up_to_the_whole() {
        for kind in Kind::ALL {
            let (range, item_count) =
                (HashRange::WHOLE, if kind == Kind::Scalable { 10 } else { 900 });
            let plan = FilterPlan { kind, range, item_count, false_positive_rate: 0.01 };
            let mut filter = AnyFilter::create(&plan).unwrap();
            assert_eq!(counted(&filter, 8), filter.describe(), "{kind}");
            for number in 0_u32..900 {
                let hash = ItemHasher::Xxh3 { seed: 7 }.hash(&number.to_le_bytes());
                filter.insert(hash).unwrap();
            }
            for word_count in [0, 1, 4, 10, 64, 1000, 1 << 20] {
                assert_eq!(counted(&filter, word_count), filter.describe(), "{kind} {word_count}");
            }
        }
    }

    /// What is inserted between pieces is counted as far as the count has not passed it.
    #[test]
    fn what_comes_meanwhile_is_between_before_and_after() {
        for kind in [Kind::Blocked, Kind::Counting, Kind::Scalable, Kind::Aging] {
            let (range, false_positive_rate) = (HashRange::WHOLE, 0.01);
            let plan = FilterPlan { kind, range, item_count: 400, false_positive_rate };
            let mut filter = AnyFilter::create(&plan).unwrap();
            let mut count = OnesCount::default();
            let mut number = 0_u32;
            let described = loop {
                if let Some(description) = count.count_on(&filter, 8) {
                    break description;
                }
                for _ in 0..40 {
                    let hash = ItemHasher::Xxh3 { seed: 7 }.hash(&number.to_le_bytes());
                    filter.insert(hash).unwrap();
                    number += 1;
                }
            };
            let after = filter.describe();
            assert!(described.one_count <= after.one_count && described.one_count > 0, "{kind}");
            assert_eq!(described.position_count, after.position_count, "{kind}");
        }
    }
}
