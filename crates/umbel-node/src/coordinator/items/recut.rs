//! Batches whose shards are split while they are in flight, or between two tries of one request.

use std::collections::BTreeMap;

use tokio::time::Instant;
use umbel_engine::ShardId;
use umbel_engine::placement::ShardRanges;
use umbel_engine::shard::{Bitmap, HashList};
use umbel_filter::ItemHash;

use super::{Operation, item_count};
use crate::calls::ShardAnswer;
use crate::coordinator::{Coordinator, LiveFilter, unexpected};
use crate::failure::CallFailure;

impl Coordinator {
    /// Asks a shard that answered a request before it was split for the part as it was cut then, and
    /// returns the answers for the part as it is cut now.
    pub(super) async fn ask_as_before(
        &self,
        filter: &LiveFilter,
        (shard, (start, last)): (ShardId, (u64, u64)),
        (whole, operation): (&[ItemHash], Operation),
        deadline: Instant,
    ) -> Result<ShardAnswer, CallFailure> {
        let is_there = |hash: &ItemHash| (start..=last).contains(&hash.hi());
        let before: Vec<ItemHash> = whole.iter().copied().filter(is_there).collect();
        let hashes = HashList::from_hashes(&before);
        let request = |growth| operation.request(filter, (hashes.clone(), (start, last)), growth);
        let answers = match self.part_call(filter, shard, request, deadline).await? {
            ShardAnswer::Bits(bits) if bits.len() == item_count(&hashes) => bits,
            other => return Err(unexpected(&other)),
        };
        let is_now = |hash: &ItemHash| filter.ranges.shard_of(hash.hi()) == shard;
        let now = before.iter().zip(answers.iter()).filter(|(hash, _)| is_now(hash));
        Ok(ShardAnswer::Bits(Bitmap::from_bools(now.map(|(_, answer)| answer).collect::<Vec<_>>())))
    }
}

/// The items of a batch that are not answered, after some shards have answered.
pub(super) struct Rest {
    /// By position in the batch; None for items without an answer.
    answers: Vec<Option<bool>>,
    /// The items without an answer, in their order.
    pub(super) hashes: Vec<ItemHash>,
}

impl Rest {
    /// No item is answered.
    pub(super) fn all(hashes: &[ItemHash]) -> Self {
        Self { answers: vec![None; hashes.len()], hashes: hashes.to_vec() }
    }

    /// Adds the answers of some shards, which were cut as in `ranges`.
    pub(super) fn without(self, ranges: ShardRanges, answered: &[(ShardId, Bitmap)]) -> Self {
        let mut answered: BTreeMap<ShardId, _> =
            answered.iter().map(|(shard, bits)| (*shard, bits.iter())).collect();
        let mut next = self.hashes.iter();
        let (mut answers, mut hashes) = (self.answers, Vec::new());
        for answer in answers.iter_mut().filter(|answer| answer.is_none()) {
            let Some(&hash) = next.next() else { break };
            match answered.get_mut(&ranges.shard_of(hash.hi())) {
                Some(bits) => *answer = bits.next(),
                None => hashes.push(hash),
            }
        }
        Self { answers, hashes }
    }

    /// The answers for all items, with those of the rest.
    pub(super) fn with(self, rest: &Bitmap) -> Bitmap {
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

    #[test]
    fn what_was_answered_before_a_split_is_not_asked_again() {
        let two = ShardRanges::new(2, 2).unwrap();
        // Items of shards 1, 0, 1 and 0; the last is in the half of shard 0 that becomes shard 2.
        let hashes = [0xf, 0x1, 0xe, 0x7].map(|top| ItemHash::new(top << 60, 0));
        let answered = [(ShardId(1), Bitmap::from_ones(2, [1]))];
        let rest = Rest::all(&hashes).without(two, &answered);
        assert_eq!(rest.hashes, [hashes[1], hashes[3]]);
        let three = two.split().unwrap();
        assert_eq!(three.shard_of(hashes[3].hi()), ShardId(2));
        let rest = rest.without(three, &[(ShardId(2), Bitmap::ones(1))]);
        assert_eq!(rest.hashes, [hashes[1]]);
        assert_eq!(rest.with(&Bitmap::zeros(1)), Bitmap::from_ones(4, [2, 3]));
    }
}
