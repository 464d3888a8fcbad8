//! The items of a batch that have no answer yet, when shards are split or merged while it is in flight.

use std::collections::{BTreeMap, BTreeSet};

use umbel_filter::ItemHash;

use crate::ids::ShardId;
use crate::placement::ShardRanges;
use crate::shard::Bitmap;

/// The items of a batch without an answer, and the answers of the others.
///
/// *Law.* For every shard, the rest of a named request has all of the batch's items of its range, or none.
/// A part is recorded under its range, so it must not lack items that another shard answered for before a
/// merge; these are asked for again, and recorded answers stay what they were. Without a name no answer is
/// recorded: what was answered may have been applied, and is not asked for again.
///
/// ```
/// use umbel_engine::ShardId;
/// use umbel_engine::placement::ShardRanges;
/// use umbel_engine::routing::Rest;
/// use umbel_engine::shard::Bitmap;
/// use umbel_filter::ItemHash;
///
/// let hashes = [0xf, 0x1, 0xe].map(|top| ItemHash::new(top << 60, 0));
/// let two = ShardRanges::new(2, 2)?;
/// // Shard 1 has answered, and shard 0 was split meanwhile.
/// let answered = [(ShardId(1), Bitmap::from_ones(2, [1]))];
/// let rest = Rest::all(&hashes, true).recut(&hashes, (two, ShardRanges::new(2, 3)?), &answered);
/// assert_eq!(rest.hashes(), [hashes[1]]);
/// assert_eq!(rest.with(&Bitmap::ones(1)), Bitmap::from_ones(3, [1, 2]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rest {
    /// By position in the batch; None for items without an answer.
    answers: Vec<Option<bool>>,
    /// The items without an answer, in their order.
    hashes: Vec<ItemHash>,
    is_named: bool,
}

impl Rest {
    /// No item of a request is answered. `is_named` says whether shards record answers to it.
    #[must_use]
    pub fn all(batch: &[ItemHash], is_named: bool) -> Self {
        Self { answers: vec![None; batch.len()], hashes: batch.to_vec(), is_named }
    }

    /// The items without an answer, in the order of the batch.
    #[must_use]
    pub fn hashes(&self) -> &[ItemHash] {
        &self.hashes
    }

    /// Adds the answers of some shards for their items of the rest, which was cut by `before`. What is left
    /// will be cut by `now`.
    #[must_use]
    pub fn recut(
        self,
        batch: &[ItemHash],
        (before, now): (ShardRanges, ShardRanges),
        answered: &[(ShardId, Bitmap)],
    ) -> Self {
        let mut answered: BTreeMap<ShardId, _> =
            answered.iter().map(|(shard, bits)| (*shard, bits.iter())).collect();
        let Self { mut answers, is_named, .. } = self;
        for (answer, hash) in answers.iter_mut().zip(batch) {
            if answer.is_none() {
                let bits = answered.get_mut(&before.shard_of(hash.hi()));
                *answer = bits.and_then(Iterator::next);
            }
        }
        if is_named {
            let unanswered = answers.iter().zip(batch).filter(|(answer, _)| answer.is_none());
            let asked: BTreeSet<ShardId> =
                unanswered.map(|(_, hash)| now.shard_of(hash.hi())).collect();
            for (answer, hash) in answers.iter_mut().zip(batch) {
                if asked.contains(&now.shard_of(hash.hi())) {
                    *answer = None;
                }
            }
        }
        let unanswered = answers.iter().zip(batch).filter(|(answer, _)| answer.is_none());
        let hashes = unanswered.map(|(_, &hash)| hash).collect();
        Self { answers, hashes, is_named }
    }

    /// The answers for all items, with those for the rest.
    #[must_use]
    pub fn with(self, rest: &Bitmap) -> Bitmap {
        let mut rest = rest.iter();
        let answers = self.answers.into_iter();
        Bitmap::from_bools(
            answers
                .map(|answer| answer.or_else(|| rest.next()).unwrap_or(false))
                .collect::<Vec<_>>(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(count: u32) -> ShardRanges {
        ShardRanges::new(2, count).unwrap()
    }

    #[test]
    fn what_was_answered_before_a_split_is_not_asked_again() {
        // Items of shards 1, 0, 1 and 0; the last is in the half of shard 0 that becomes shard 2.
        let hashes = [0xf, 0x1, 0xe, 0x7].map(|top| ItemHash::new(top << 60, 0));
        let answered = [(ShardId(1), Bitmap::from_ones(2, [1]))];
        let rest = Rest::all(&hashes, true).recut(&hashes, (ranges(2), ranges(3)), &answered);
        assert_eq!(rest.hashes(), [hashes[1], hashes[3]]);
        assert_eq!(ranges(3).shard_of(hashes[3].hi()), ShardId(2));
        let answered = [(ShardId(2), Bitmap::ones(1))];
        let rest = rest.recut(&hashes, (ranges(3), ranges(4)), &answered);
        assert_eq!(rest.hashes(), [hashes[1]]);
        assert_eq!(rest.with(&Bitmap::zeros(1)), Bitmap::from_ones(4, [2, 3]));
    }

    #[test]
    fn after_a_merge_the_part_has_what_one_of_the_two_answered() {
        // Items of shards 1, 0 and 2. Shards 1 and 2 have answered when shard 2 is merged into shard 0.
        let hashes = [0xf, 0x1, 0x7].map(|top| ItemHash::new(top << 60, 0));
        let answered = [(ShardId(1), Bitmap::ones(1)), (ShardId(2), Bitmap::ones(1))];
        let rest = Rest::all(&hashes, true).recut(&hashes, (ranges(3), ranges(2)), &answered);
        assert_eq!(rest.hashes(), [hashes[1], hashes[2]]);
        assert_eq!(rest.with(&Bitmap::from_ones(2, [1])), Bitmap::from_ones(3, [0, 2]));
        // Without a name it would be applied twice.
        let rest = Rest::all(&hashes, false).recut(&hashes, (ranges(3), ranges(2)), &answered);
        assert_eq!(rest.hashes(), [hashes[1]]);
        assert_eq!(rest.with(&Bitmap::zeros(1)), Bitmap::from_ones(3, [0, 2]));
    }
}
