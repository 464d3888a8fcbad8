//! Forms the group of a new shard.

use std::sync::Arc;

use umbel_engine::{GroupId, NodeId, ShardId};
use umbel_raft::Group;
use umbel_storage::types::NodeAddress;

use super::{FOUNDING_PAUSE, Local};

impl Local {
    /// Forms a shard's group. One founder does it as soon as the others run their replicas, so that it
    /// is elected at once and leaders are spread over the nodes. The others do it only if that one does
    /// not. All of them form the group identically, so it does no harm if several do.
    pub(super) async fn found_shard(
        self: Arc<Self>,
        shard: ShardId,
        group: Arc<Group>,
        founders: Vec<NodeId>,
    ) {
        let others: Vec<NodeId> =
            founders.iter().copied().filter(|&founder| founder != self.node).collect();
        let parent = self.meta.replica().read_meta(|state| {
            let ranges = state.shard_map().ranges()?;
            ranges.parent(shard)
        });
        let is_first = match parent {
            // The leader of the other half has applied the split, and the other members are about to.
            Some(parent) => self.shard(parent).is_some_and(|half| half.group().is_leader()),
            None => founders.get(shard.0 as usize % founders.len()) == Some(&self.node),
        };
        let patience = self.host.beats().election();
        if is_first {
            let began = tokio::time::Instant::now();
            while began.elapsed() < patience && !self.all_run(group.id(), &others).await {
                tokio::time::sleep(FOUNDING_PAUSE).await;
            }
        } else {
            tokio::time::sleep(patience * 2).await;
            if group.leader().is_some() {
                return;
            }
        }
        if parent.is_some() {
            group.stand().await;
            return;
        }
        let members = self.meta.replica().read_meta(|state| {
            let address = |&node| Some((node, NodeAddress(state.node_address(node)?.to_owned())));
            founders.iter().filter_map(address).collect()
        });
        if let Err(why) = group.form(members).await {
            tracing::warn!(%shard, why, "the group is not formed yet");
        }
    }

    /// Whether all these nodes run their replica of a group.
    async fn all_run(&self, group: GroupId, nodes: &[NodeId]) -> bool {
        for &node in nodes {
            if !self.member.runs(node, group).await {
                return false;
            }
        }
        true
    }
}
