//! Parts of requests that were answered before shards were split or merged.

use umbel_engine::ShardId;
use umbel_engine::routing::{PieceError, Pieces};
use umbel_engine::shard::{Bitmap, HashList, PartError};
use umbel_filter::{HashRange, ItemHash};

use tokio::time::Instant;

use super::{Operation, item_count};
use crate::{Coordinator, LiveFilter};
use umbel_node::calls::ShardAnswer;
use umbel_node::failure::CallFailure;
use umbel_node::leader_calls::unexpected;

impl Coordinator {
    /// Asks a shard for its part piece by piece, after it refused the part because it has answered for the
    /// hashes of `named` before.
    pub(super) async fn ask_in_pieces(
        &self,
        filter: &LiveFilter,
        (shard, named): (ShardId, (u64, u64)),
        (whole, operation): (&[ItemHash], Operation),
        deadline: Instant,
    ) -> Result<ShardAnswer, CallFailure> {
        // A filter that lies in one shard has all its items at its place.
        let place = filter.record.settings.shape.place();
        let position = |hash: &ItemHash| place.unwrap_or(hash.hi());
        let mut pieces = pieces_of(filter.cut_of(shard))?;
        cut_before(&mut pieces, named)?;
        while let Some(piece) = pieces.next_piece() {
            let is_there = |hash: &ItemHash| piece.contains(position(hash));
            let items: Vec<ItemHash> = whole.iter().copied().filter(is_there).collect();
            if items.is_empty() {
                pieces.answered(Bitmap::zeros(0));
                continue;
            }
            let hashes = HashList::from_hashes(&items);
            let part = || (hashes.clone(), piece.bounds());
            let request = |growth| operation.request(filter, part(), growth);
            match self.part_call(filter, shard, request, deadline).await {
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
        let joined = pieces.join(whole.iter().map(position));
        joined.map(ShardAnswer::Bits).ok_or_else(|| {
            let what = format!("answers of {shard} to the pieces of a part do not fit");
            CallFailure::Storage { what }
        })
    }
}

/// The pieces of a part that is cut for the hashes from the first to the last.
pub(crate) fn pieces_of<A>(cut: (u64, u64)) -> Result<Pieces<A>, CallFailure> {
    let cut = HashRange::from_bounds(cut);
    cut.map(Pieces::of).map_err(|error| CallFailure::Storage { what: error.to_string() })
}

/// Takes the refusal of a piece by a shard that has answered for the hashes from the first to the last.
pub(crate) fn cut_before<A>(pieces: &mut Pieces<A>, named: (u64, u64)) -> Result<(), CallFailure> {
    let named = HashRange::from_bounds(named);
    let named = named.map_err(|error| CallFailure::Storage { what: error.to_string() })?;
    let taken: Result<(), PieceError> = pieces.cut_before(named);
    taken.map_err(|error| CallFailure::Storage { what: error.to_string() })
}
