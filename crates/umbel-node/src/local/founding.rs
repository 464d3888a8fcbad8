//! Forms the group of a new shard.

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use umbel_engine::{GroupId, NodeId, ShardId};
use umbel_raft::Group;
use umbel_storage::types::NodeAddress;

use super::{FOUNDING_PAUSE, Local};

impl Local {
    /// Forms a shard's group. The founder that is the shard's home does it as soon as the others run their
    /// replicas, so that it is elected at once and stays the leader. The others do it only if that one does
    /// not. All of them form the group identically, so it does no harm if several do. The upper half of a shard that
    /// is split is wanted by callers already, so a majority of its replicas is enough.
    pub(super) async fn found_shard(
        self: Arc<Self>,
        shard: ShardId,
        group: Arc<Group>,
        founders: Vec<NodeId>,
    ) {
        let parent = self.read_meta(|state| {
            let ranges = state.shard_map().ranges()?;
            ranges.parent(shard)
        });
        let is_first = match parent {
            // The leader of the other half has applied the split, and the other members are about to.
            Some(parent) => self.shard(parent).is_some_and(|half| half.group().is_leader()),
            None => self.is_home_of(group.id()),
        };
        let patience = self.host.beats().election();
        if is_first {
            let began = tokio::time::Instant::now();
            let needed = if parent.is_some() { founders.len() / 2 + 1 } else { founders.len() };
            while began.elapsed() < patience
                && !self.enough_run(group.id(), &founders, needed).await
            {
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
        let members = self.read_meta(|state| {
            let address = |&node| Some((node, NodeAddress(state.node_address(node)?.to_owned())));
            founders.iter().filter_map(address).collect()
        });
        if let Err(why) = group.form(members).await {
            tracing::warn!(%shard, why, "the group is not formed yet");
        }
    }

    fn is_home_of(&self, group: GroupId) -> bool {
        self.read_meta(|state| self.homes.is_at(state, group, self.node))
    }

    /// Whether so many of these nodes, this one among them, run their replica of a group.
    async fn enough_run(&self, group: GroupId, nodes: &[NodeId], needed: usize) -> bool {
        let others = nodes.iter().filter(|&&node| node != self.node);
        let mut asked: FuturesUnordered<_> =
            others.map(|&node| self.member.runs(node, group)).collect();
        let mut running = 1;
        // One that is down is not waited for if the others are enough.
        while running < needed
            && let Some(runs) = asked.next().await
        {
            running += usize::from(runs);
        }
        running >= needed
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use futures_util::future::join_all;
    use umbel_engine::placement;

    use crate::testing::{config, free_addresses, start};
    use crate::{Config, Node};

    /// By the numbers of shards, node 2 would form six of sixteen, and leaders would move afterwards.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_first_leader_of_each_shard_is_its_home() {
        let folders = [(); 5].map(|()| tempfile::tempdir().unwrap());
        let addresses = free_addresses(5);
        let starts = folders.iter().zip(&addresses).map(|(folder, address)| {
            start(Config {
                listen: address.clone(),
                initial_cluster: addresses.clone(),
                shards: 16,
                ..config(folder.path())
            })
        });
        let nodes = join_all(starts).await;
        let leaders = || {
            let mut leaders = BTreeMap::new();
            for node in &nodes {
                let shards = node.local().shards().into_iter();
                for shard in shards.filter(|shard| shard.group().is_leader()) {
                    let group = shard.group();
                    leaders.insert(group.id(), (group.term(), node.local().node()));
                }
            }
            leaders
        };
        let mut first = leaders();
        while first.len() < 16 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            first = leaders();
        }
        let homes = nodes[0].local().read_meta(|state| placement::homes(state.shard_map()));
        // A busy machine may have elected a second leader of a shard by now.
        let first_term = first.values().map(|&(term, _)| term).min().unwrap();
        for (group, (_, leader)) in first.iter().filter(|(_, (term, _))| *term == first_term) {
            assert_eq!(*leader, homes[group], "{group}");
        }
        drop(first);
        join_all(nodes.into_iter().map(Node::shutdown)).await;
    }
}
