//! Parts of requests that were answered before shards were split or merged.

use umbel_engine::ShardId;
use umbel_engine::placement::ShardRanges;
use umbel_engine::routing::{Pieces, Rest};
use umbel_engine::shard::{Bitmap, HashList, PartError};
use umbel_filter::{HashRange, ItemHash};

use tokio::time::Instant;

use super::{HashedBatch, item_count};
use crate::{Coordinator, LiveFilter, Result};
use umbel_node::calls::ShardAnswer;
use umbel_node::failure::CallFailure;
use umbel_node::leader_calls::unexpected;

/// What shards did for a request under earlier generations of its filter, by position in the batch: a one means
/// that the item was new, or was removed.
#[derive(Default)]
pub(super) struct DoneBefore(Option<Bitmap>);

impl DoneBefore {
    /// Adds the answers under a generation that is over: those of `rest`, and of the shards that answered
    /// for their items of the rest.
    pub(super) fn add(
        &mut self,
        rest: Option<Rest>,
        hashes: &[ItemHash],
        ranges: ShardRanges,
        answered: &[(ShardId, Bitmap)],
    ) {
        let rest = rest.unwrap_or_else(|| Rest::all(hashes, false));
        // Items without an answer are zeros.
        let done = rest.recut(hashes, (ranges, ranges), answered).with(&Bitmap::zeros(0));
        self.0 = Some(std::mem::take(self).with(done));
    }

    /// The answers of the last generation, together with these.
    pub(super) fn with(self, answers: Bitmap) -> Bitmap {
        match self.0 {
            Some(done) => Bitmap::from_bools(
                done.iter().zip(answers.iter()).map(|(before, now)| before || now),
            ),
            None => answers,
        }
    }
}

impl Coordinator {
    /// Asks a shard for its part piece by piece, after it refused the part because it has answered for the
    /// hashes of `named` before.
    pub(super) async fn send_in_pieces(
        &self,
        filter: &LiveFilter,
        shard: ShardId,
        named: (u64, u64),
        batch: HashedBatch<'_>,
        deadline: Instant,
    ) -> Result<ShardAnswer> {
        // A filter that lies in one shard has all its items at its place.
        let place = filter.record.settings.shape.place();
        let position = |hash: &ItemHash| place.unwrap_or(hash.hi());
        let mut pieces = pieces_of(filter.cut_of(shard))?;
        cut_before(&mut pieces, named)?;
        while let Some(piece) = pieces.next_piece() {
            let is_there = |hash: &ItemHash| piece.contains(position(hash));
            let items: Vec<ItemHash> = batch.hashes.iter().copied().filter(is_there).collect();
            if items.is_empty() {
                pieces.answered(Bitmap::zeros(0));
                continue;
            }
            let hashes = HashList::from_hashes(&items);
            let cut = piece.bounds();
            let request = |growth| batch.operation.request(filter, hashes.clone(), cut, growth);
            let growth = self.growth();
            match growth.part_call(filter, shard, Some(&hashes), request, deadline).await {
                Ok(ShardAnswer::Bits(bits)) if bits.len() == item_count(&hashes) => {
                    pieces.answered(bits);
                }
                Ok(other) => return Err(unexpected(&other)),
                Err(CallFailure::Part(PartError::CutBefore { start, last, .. })) => {
                    cut_before(&mut pieces, (start, last))?;
                }
                Err(error) => return Err(error),
            }
        }
        let joined = pieces.join(batch.hashes.iter().map(position));
        joined.map(ShardAnswer::Bits).ok_or_else(|| {
            let what = format!("answers of {shard} to the pieces of a part do not fit");
            CallFailure::Storage { what }
        })
    }
}

/// The pieces of a part that is cut for the hashes from the first to the last.
pub(crate) fn pieces_of<A>(cut: (u64, u64)) -> Result<Pieces<A>> {
    HashRange::from_bounds(cut).map(Pieces::of).map_err(CallFailure::storage)
}

/// Takes the refusal of a piece by a shard that has answered for the hashes from the first to the last.
pub(crate) fn cut_before<A>(pieces: &mut Pieces<A>, named: (u64, u64)) -> Result<()> {
    let named = HashRange::from_bounds(named).map_err(CallFailure::storage)?;
    pieces.cut_before(named).map_err(CallFailure::storage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_new_before_a_rotation_is_new_in_the_answer() {
        // Items of shards 1, 0, 1 and 0. Shard 1 has inserted both of its items, shard 0 was rotated before.
        let hashes = [0xf, 0x1, 0xe, 0x7].map(|top| ItemHash::new(top << 60, 0));
        let ranges = ShardRanges::new(2, 2).unwrap();
        let mut done = DoneBefore::default();
        done.add(None, &hashes, ranges, &[(ShardId(1), Bitmap::ones(2))]);
        // Another rotation comes before shard 1 is asked again.
        done.add(None, &hashes, ranges, &[(ShardId(0), Bitmap::from_ones(2, [0]))]);
        assert_eq!(done.with(Bitmap::zeros(4)), Bitmap::from_ones(4, [0, 1, 2]));
        assert_eq!(DoneBefore::default().with(Bitmap::ones(4)), Bitmap::ones(4));
    }

    #[test]
    fn what_was_new_before_a_split_and_a_rotation_is_new_in_the_answer() {
        let hashes = [0xf, 0x1, 0xe].map(|top| ItemHash::new(top << 60, 0));
        let [two, three] = [2, 3].map(|count| ShardRanges::new(2, count).unwrap());
        let answered = [(ShardId(1), Bitmap::from_ones(2, [1]))];
        let rest = Rest::all(&hashes, false).recut(&hashes, (two, three), &answered);
        let mut done = DoneBefore::default();
        done.add(Some(rest), &hashes, three, &[]);
        assert_eq!(done.with(Bitmap::zeros(3)), Bitmap::from_ones(3, [2]));
    }
}
