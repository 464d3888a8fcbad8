//! What a coordinator says of its own node.

use std::sync::Arc;

use umbel_engine::NodeId;
use umbel_ports::{Net, Seed};

use super::{Coordinator, Result};
use umbel_node::Readiness;
use umbel_node::failure::CallFailure;
use umbel_node::leader_calls::LeaderCalls;

/// The shards of which this node has a replica.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OwnShards {
    /// How many there are.
    pub held: usize,
    /// How many of them this node leads.
    pub led: usize,
    /// How many of them have no leader that this node knows, or are led by this node without a majority that
    /// responds.
    pub degraded: usize,
}

/// The time by which the node that makes these calls lets filters and imports expire.
pub(crate) fn believed_ms(calls: &LeaderCalls) -> u64 {
    calls.local().map_or_else(|_| calls.seed().wall_ms(), |local| local.believed_ms())
}

impl Coordinator {
    /// This node's number, 0 while it belongs to no cluster.
    pub fn node(&self) -> NodeId {
        self.calls.node()
    }

    /// The cluster's identity, 0 while the node belongs to none.
    pub fn cluster_id(&self) -> u128 {
        self.local().map_or(0, |local| local.cluster())
    }

    /// Entropy and wall-clock time.
    pub fn seed(&self) -> &dyn Seed {
        self.calls.seed()
    }

    /// The time by which this node lets filters and imports expire, in milliseconds since 1970, see
    /// [`umbel_node::Local::believed_ms`].
    pub fn believed_ms(&self) -> u64 {
        believed_ms(&self.calls)
    }

    /// The time from which filters and imports are kept for so long, in milliseconds since 1970, see
    /// [`umbel_node::Local::term_start_ms`].
    pub fn term_start_ms(&self) -> u64 {
        self.local().map_or_else(|_| self.seed().wall_ms(), |local| local.term_start_ms())
    }

    /// The node's network.
    ///
    /// # Errors
    /// If the node belongs to no cluster yet.
    pub fn net(&self) -> Result<&Arc<dyn Net>> {
        Ok(self.local()?.net())
    }

    /// Bytes of memory of the filters in this node's shards; 0 while it belongs to no cluster.
    pub fn memory_bytes(&self) -> u64 {
        let shards = self.local().map(|local| local.shards()).unwrap_or_default();
        shards.iter().map(|shard| shard.status().memory_bytes).sum()
    }

    /// The shards of this node at this moment; none while it belongs to no cluster.
    pub fn own_shards(&self) -> OwnShards {
        let shards = self.local().map(|local| local.shards()).unwrap_or_default();
        let mut own = OwnShards { held: shards.len(), ..OwnShards::default() };
        for shard in &shards {
            let group = shard.group();
            own.led += usize::from(group.is_leader());
            own.degraded += usize::from(group.leader().is_none() || group.lacks_quorum());
        }
        own
    }

    /// Whether this node should get traffic, and what it cannot serve.
    pub async fn readiness(&self) -> Readiness {
        let not_yet = |error: CallFailure| Readiness {
            why_not: Some(error.to_string()),
            ..Readiness::default()
        };
        // A founder that waits for others runs the meta group already, which has no leader for that reason.
        if let Err(error @ CallFailure::Forming { .. }) = self.read_meta(|_| ()) {
            return not_yet(error);
        }
        match self.local() {
            Ok(local) => local.readiness().await,
            Err(error) => not_yet(error),
        }
    }
}
