//! How often an item is in a filter of a kind that can tell.

use tokio::time::Instant;
use umbel_engine::meta::ClusterVersion;
use umbel_engine::shard::{HashList, PartError};
use umbel_filter::Kind;

use super::hashed;
use crate::{Coordinator, Result};
use umbel_node::calls::{ShardAnswer, ShardRequest};
use umbel_node::failure::CallFailure;
use umbel_node::item_batch::ItemBatch;
use umbel_node::leader_calls::unexpected;

/// The cluster version since which the call between nodes exists.
const SINCE: ClusterVersion = ClusterVersion(2);

impl Coordinator {
    /// How often an item, the only one of the batch, may be in a filter of a kind that tells copies.
    /// Linearizable: the answer includes everything that was acknowledged before.
    pub async fn copies_of_item(
        &self,
        name: &str,
        item: &ItemBatch,
        deadline: Instant,
    ) -> Result<u64> {
        self.releases().check_version(SINCE, deadline).await?;
        loop {
            let filter = self.live_filter(name, deadline).await?;
            let (id, record) = (filter.id, &filter.record);
            let tells_copies = Kind::from_id(record.settings.kind).is_some_and(Kind::tells_copies);
            if !tells_copies || record.is_replicated() {
                let what = format!("{name:?} does not tell how often an item is in");
                return Err(PartError::WrongKind { what }.into());
            }
            // Hashed anew each time: a filter that took over the name has another key.
            let [hash] = hashed(&filter, item)?[..] else {
                let what = format!("{} items are to be counted, expected 1", item.len());
                return Err(CallFailure::Invalid { what });
            };
            let ranges = self.seen_split.first_ranges(filter.ranges, filter.unsplit);
            let shard = ranges.shard_of(hash.hi());
            let (generation, hashes) = (record.generation, HashList::from_hashes(&[hash]));
            let request = ShardRequest::Copies { filter: id, generation, hashes };
            match self.shard_call(shard, request, deadline).await {
                Ok(ShardAnswer::Copies(counts)) if counts.len() == 1 => return Ok(counts[0]),
                Ok(other) => return Err(unexpected(&other)),
                // The filter was cleared or replaced meanwhile, or the shard was split or merged.
                Err(CallFailure::Part(
                    PartError::UnknownSlice { .. }
                    | PartError::StaleGeneration { .. }
                    | PartError::ForeignHash { .. }
                    | PartError::Fenced { .. },
                )) if Instant::now() < deadline => {
                    self.seen_split.next_ranges(ranges, filter.ranges, filter.unsplit);
                }
                Err(error) => return Err(error),
            }
            self.meta_refresh(deadline).await?;
            self.shards().wait_for_shards(deadline).await?;
        }
    }
}
