//! Counts what two slices have in common, piece by piece, so that the state can be used between pieces.

use serde::{Deserialize, Serialize};
use umbel_filter::{AnyFilter, Describe, Kind, Shape};

use super::part_error::PartError;
use super::slice::Slice;
use super::state::ShardState;
use crate::ids::{FilterId, Generation};
use crate::shard::PartResult;

/// Numbers of set positions of two filters of the same shape, and of their union.
///
/// ```
/// use umbel_engine::shard::OverlapCount;
///
/// let mut sum = OverlapCount { ours: 1, theirs: 2, either: 3, positions: 64, next_word: 1 };
/// sum.add(&sum.clone());
/// assert_eq!((sum.either, sum.positions), (6, 128));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct OverlapCount {
    /// Positions set in our filter.
    pub ours: u64,
    /// Positions set in their filter.
    pub theirs: u64,
    /// Positions set in at least one of them.
    pub either: u64,
    /// Total positions of each filter.
    pub positions: u64,
    /// The word at which counting continues.
    pub next_word: usize,
}

impl OverlapCount {
    /// Adds counts of other slices.
    pub const fn add(&mut self, other: &Self) {
        self.ours = self.ours.saturating_add(other.ours);
        self.theirs = self.theirs.saturating_add(other.theirs);
        self.either = self.either.saturating_add(other.either);
        self.positions = self.positions.saturating_add(other.positions);
    }

    /// Counts the next `word_count` words of two filters of the same shape, and returns whether that was
    /// the end. A list of positions is counted at once.
    ///
    /// # Errors
    /// If the filters differ in size or kind, or their kind does not merge; the message says what was
    /// expected.
    pub fn count_on(
        &mut self,
        ours: &AnyFilter,
        theirs: &AnyFilter,
        word_count: usize,
    ) -> Result<bool, String> {
        let (one, other) = match (ours, theirs) {
            (AnyFilter::SingleShot(ours), AnyFilter::SingleShot(theirs)) => {
                self.positions = ours.single_shot_shape().width();
                (self.ours, self.theirs) = (ours.len(), theirs.len());
                self.either = union_len(ours.positions(), theirs.positions());
                return Ok(true);
            }
            (AnyFilter::Blocked(ours), AnyFilter::Blocked(theirs)) => {
                (ours.words(), theirs.words())
            }
            (AnyFilter::Classic(ours), AnyFilter::Classic(theirs)) => {
                (ours.words(), theirs.words())
            }
            (AnyFilter::Partitioned(ours), AnyFilter::Partitioned(theirs)) => {
                (ours.words(), theirs.words())
            }
            _ => {
                let (ours, theirs) = (ours.kind(), theirs.kind());
                return Err(format!("a {ours} and a {theirs} filter have no positions in common"));
            }
        };
        if one.len() != other.len() {
            return Err(format!("{} words beside {}, expected as many", one.len(), other.len()));
        }
        let rest = one.iter().zip(other).skip(self.next_word).take(word_count.max(1));
        for (&one, &other) in rest {
            self.ours += u64::from(one.count_ones());
            self.theirs += u64::from(other.count_ones());
            self.either += u64::from((one | other).count_ones());
        }
        self.next_word = self.next_word.saturating_add(word_count.max(1)).min(one.len());
        if let Shape::Blocks(shape) = ours.shape() {
            // Bits left over when a block is cut into equal parts are never set.
            let is_cut = shape.kind() == Kind::Partitioned;
            let over = if is_cut { shape.block_bits() % shape.probe_count() } else { 0 };
            self.positions = shape.position_count() - u64::from(over) * shape.map().len();
        }
        Ok(self.next_word == one.len())
    }
}

/// Number of distinct numbers in two ascending sequences.
fn union_len(one: impl Iterator<Item = u64>, other: impl Iterator<Item = u64>) -> u64 {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    let mut count = 0;
    loop {
        match (one.peek().copied(), other.peek().copied()) {
            (None, None) => return count,
            (Some(a), Some(b)) => {
                if a <= b {
                    one.next();
                }
                if b <= a {
                    other.next();
                }
            }
            (Some(_), None) => drop(one.next()),
            (None, Some(_)) => drop(other.next()),
        }
        count += 1;
    }
}

impl ShardState {
    /// Counts the next `word_count` words of what two filters' slices have in common, and returns whether
    /// that was the end. Items inserted between two calls may be counted or not.
    ///
    /// # Errors
    /// If there is no such slice, it is at another generation, or the slices differ in shape or key.
    pub fn overlap_on(
        &self,
        ours: (FilterId, Generation),
        theirs: (FilterId, Generation),
        count: &mut OverlapCount,
        word_count: usize,
    ) -> PartResult<bool> {
        let (ours, theirs): (&Slice, &Slice) =
            (self.slice(ours.0, ours.1)?, self.slice(theirs.0, theirs.1)?);
        ours.check_alike(theirs)?;
        let counted = count.count_on(&ours.filter, &theirs.filter, word_count);
        counted.map_err(|what| PartError::WrongKind { what })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::shard::shard_test::{FIRST, filter_of, insert, list, state};
    use proptest::prelude::*;

    fn counted(
        state: &ShardState,
        ours: FilterId,
        theirs: FilterId,
        words: usize,
    ) -> Result<OverlapCount, PartError> {
        let mut count = OverlapCount::default();
        while !state.overlap_on((ours, FIRST), (theirs, FIRST), &mut count, words)? {}
        Ok(count)
    }

    /// For pieces of any size: the ones of each filter, and those of the merged filter.
    #[test]
    fn the_union_is_what_merging_makes() {
        for kind in [Kind::Blocked, Kind::Classic, Kind::Partitioned, Kind::SingleShot] {
            let mut state = state();
            let [a, b, union] = [0, 1, 2].map(|number| filter_of(kind, number));
            for (filter, numbers) in [(a, 0..30), (b, 20..50), (union, 0..50)] {
                insert(&mut state, filter, None, list(&numbers.collect::<Vec<u64>>())).unwrap();
            }
            let ones = |filter| state.describe(filter).unwrap().description.one_count;
            for words in [0, 1, 3, 1 << 20] {
                let count = counted(&state, a, b, words).unwrap();
                let expected = (ones(a), ones(b), ones(union));
                assert_eq!((count.ours, count.theirs, count.either), expected, "{kind} {words}");
            }
            let same = counted(&state, a, a, 5).unwrap();
            assert_eq!((same.ours, same.either), (ones(a), ones(a)), "{kind}");
        }
    }

    #[test]
    fn filters_that_are_not_alike_have_nothing_in_common() {
        let state = state();
        let blocked = filter_of(Kind::Blocked, 0);
        let other = counted(&state, blocked, filter_of(Kind::Classic, 0), 1 << 20);
        assert!(matches!(other, Err(PartError::ShapeMismatch { .. })), "{other:?}");
        for kind in Kind::ALL.into_iter().filter(|kind| !kind.merges_by_or()) {
            let refused = counted(&state, filter_of(kind, 0), filter_of(kind, 1), 1 << 20);
            assert!(matches!(refused, Err(PartError::WrongKind { .. })), "{kind} {refused:?}");
        }
        let unknown = counted(&state, blocked, FilterId(999), 1);
        assert!(matches!(unknown, Err(PartError::UnknownSlice { .. })));
    }

    proptest! {
        #[test]
        fn unions_of_lists_are_counted(one: BTreeSet<u8>, other: BTreeSet<u8>) {
            let numbers = |set: &BTreeSet<u8>| set.iter().map(|&n| u64::from(n)).collect::<Vec<_>>();
            let count = union_len(numbers(&one).into_iter(), numbers(&other).into_iter());
            prop_assert_eq!(count, one.union(&other).count() as u64);
        }
    }
}
