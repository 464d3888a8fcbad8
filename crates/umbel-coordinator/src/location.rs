//! Where an item is kept, for people who look for the cause of a slow or missing answer.

use std::time::Duration;

use tokio::time::Instant;
use umbel_engine::meta::FilterName;
use umbel_engine::{NodeId, ShardId};

use super::items::{hashed, parts_of};
use super::{Coordinator, Result};
use umbel_node::failure::CallFailure;
use umbel_node::item_batch::ItemBatch;

/// How long the leader is waited for. Shorter than a command may take, because the question is asked most when
/// a shard has no leader, and everything else of the answer is known without one.
const LEADER_TIMEOUT: Duration = Duration::from_secs(1);

/// The shard that keeps an item.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    /// The shard.
    pub shard: ShardId,
    /// The first and the last value of the shard's range of the hash space.
    pub range: (u64, u64),
    /// The nodes of its replicas as last confirmed, with their addresses, in ascending order; an address is
    /// empty if the node was removed.
    pub replicas: Vec<(NodeId, String)>,
    /// Its leader; None if none answered within a second.
    pub leader: Option<NodeId>,
    /// Index of the last entry of its log that the leader has applied; None as above.
    pub applied_index: Option<u64>,
}

impl Coordinator {
    /// Finds the shard that keeps an item of a partitioned filter, whether the item was inserted or not. `item` is
    /// a batch of one; of a longer one the first item counts.
    pub async fn locate(
        &self,
        filter: &FilterName,
        item: &ItemBatch,
        deadline: Instant,
    ) -> Result<Location> {
        let live = self.live_filter(filter.as_str(), deadline).await?;
        if live.record.is_replicated() {
            let name = filter.as_str();
            let what = format!("filter {name:?} is replicated: every node keeps all of its items");
            return Err(CallFailure::Invalid { what });
        }
        let hashes = hashed(&live, item)?;
        let first = parts_of(&live, hashes.get(..1).unwrap_or_default());
        let Some(&(shard, _)) = first.parts().first() else {
            return Err(CallFailure::Invalid { what: "there is no item".to_owned() });
        };
        let until = deadline.min(Instant::now() + LEADER_TIMEOUT);
        let status = self.reports().leader_status(shard, until).await;
        let replicas = self.read_meta(|state| {
            let replicas = state.shard(shard).map(|record| record.replicas.as_slice());
            let of_node = |&node: &NodeId| {
                let address = state.node(node).and_then(|record| record.address());
                (node, address.unwrap_or_default().to_owned())
            };
            replicas.unwrap_or_default().iter().map(of_node).collect()
        })?;
        Ok(Location {
            shard,
            range: live.cut_of(shard),
            replicas,
            leader: status.as_ref().and_then(|status| status.view.leader),
            applied_index: status.map(|status| status.applied_index),
        })
    }
}
