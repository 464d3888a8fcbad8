//! Items of filters of kinds that tell how often an item is in them. A request that goes on under a newer catalogue
//! meets no filter of another kind that has taken over the name.

use tokio::time::Instant;
use umbel_engine::meta::ClusterVersion;
use umbel_engine::shard::{Bitmap, HashList, PartError};

use super::hashed;
use super::operation::{HashedBatch, Operation};
use super::sought::Sought;
use crate::{Coordinator, LiveFilter, Result};
use umbel_node::calls::{ShardAnswer, ShardRequest};
use umbel_node::failure::CallFailure;
use umbel_node::item_batch::ItemBatch;
use umbel_node::leader_calls::unexpected;

/// The cluster version since which the call between nodes exists.
const SINCE: ClusterVersion = ClusterVersion(2);

/// The cluster version since which shards insert what is absent.
const ABSENT_SINCE: ClusterVersion = ClusterVersion(6);

impl Coordinator {
    /// Inserts items into a filter that tells copies; a one means that the item was new.
    pub async fn insert_copies(
        &self,
        name: &str,
        items: &ItemBatch,
        deadline: Instant,
    ) -> Result<Bitmap> {
        let operation = Operation::Insert { request: None, at_ms: None };
        self.each_part_of_copies(name, items, operation, deadline).await
    }

    /// Inserts those items into a filter that tells copies that are absent when their turn comes; a one means that the
    /// item was. None if the cluster's version has no such inserts: nothing was done.
    pub async fn insert_absent(
        &self,
        name: &str,
        items: &ItemBatch,
        deadline: Instant,
    ) -> Result<Option<Bitmap>> {
        let sought = Sought::telling_copies(name);
        let mut filter = sought.find(self, deadline).await?;
        // Whoever does not know yet that the version was raised does without. Asked once the filter is found, which may
        // refresh the catalogue: of a filter that was created since, no node inserts what is absent in another way.
        if self.read_meta(|state| state.check_version(ABSENT_SINCE))?.is_err() {
            return Ok(None);
        }
        let operation = Operation::InsertAbsent;
        self.each_part_in(sought, &mut filter, items, operation, deadline).await.map(Some)
    }

    /// Removes one copy of each item from a filter that tells copies; a one means that there was one.
    pub async fn remove_copies(
        &self,
        name: &str,
        items: &ItemBatch,
        deadline: Instant,
    ) -> Result<Bitmap> {
        self.each_part_of_copies(name, items, Operation::Remove(None), deadline).await
    }

    /// Looks up items in a filter that tells copies; a one means that the item is present. Linearizable: removals count
    /// at once.
    pub async fn contains_copies(
        &self,
        name: &str,
        items: &ItemBatch,
        deadline: Instant,
    ) -> Result<Bitmap> {
        let operation = Operation::Contains { confirmed: true };
        self.each_part_of_copies(name, items, operation, deadline).await
    }

    async fn each_part_of_copies(
        &self,
        name: &str,
        items: &ItemBatch,
        operation: Operation,
        deadline: Instant,
    ) -> Result<Bitmap> {
        let sought = Sought::telling_copies(name);
        let mut filter = sought.find(self, deadline).await?;
        self.each_part_in(sought, &mut filter, items, operation, deadline).await
    }

    /// The same for the filter that was found.
    async fn each_part_in(
        &self,
        sought: Sought<'_>,
        filter: &mut LiveFilter,
        items: &ItemBatch,
        operation: Operation,
        deadline: Instant,
    ) -> Result<Bitmap> {
        let hashes = hashed(filter, items)?;
        let batch = HashedBatch { hashes: &hashes, operation };
        self.each_part_of(sought, filter, batch, Some(items), deadline).await
    }

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
            let filter = Sought::telling_copies(name).find(self, deadline).await?;
            // Hashed anew each time: a filter that took over the name has another key.
            let [hash] = hashed(&filter, item)?[..] else {
                let what = format!("{} items are to be counted, expected 1", item.len());
                return Err(CallFailure::Invalid { what });
            };
            let ranges = self.seen_split.first_ranges(filter.ranges, filter.unsplit);
            let shard = ranges.shard_of(hash.hi());
            let (id, generation) = (filter.id, filter.record.generation);
            let hashes = HashList::from_hashes(&[hash]);
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
