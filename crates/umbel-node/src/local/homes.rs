//! Which node should lead each shard, as this node's failure detector is told at every beat.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use umbel_engine::meta::{ClusterVersion, MetaState};
use umbel_engine::{Epoch, GroupId, NodeId, placement};
use umbel_ports::locked;

/// Below it, nodes may run a build that knows homes by the numbers of groups alone. Beside those, nodes that
/// computed others would hand leadership back and forth.
const SINCE: ClusterVersion = ClusterVersion(4);

/// The homes by the shard map, computed once for each epoch.
#[derive(Default)]
pub(super) struct Homes(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// None until they have been computed.
    epoch: Option<Epoch>,
    homes: Arc<BTreeMap<GroupId, NodeId>>,
}

impl Homes {
    /// The home of each shard's group; none if the cluster's version is too low.
    pub(super) fn of(&self, state: &MetaState) -> Arc<BTreeMap<GroupId, NodeId>> {
        if state.version() >= SINCE { self.by_map(state) } else { Arc::default() }
    }

    /// Whether a node is the one that forms the group of a new shard: its home, so that leaders need not move
    /// afterwards. It is the home at any version: a new cluster is raised to the newest one while its shards are
    /// formed, and a group may be formed by several nodes.
    pub(super) fn is_at(&self, state: &MetaState, group: GroupId, node: NodeId) -> bool {
        self.by_map(state).get(&group) == Some(&node)
    }

    fn by_map(&self, state: &MetaState) -> Arc<BTreeMap<GroupId, NodeId>> {
        let epoch = Some(state.epoch());
        // No holder of the lock leaves it inconsistent: it is written as a whole.
        let mut known = locked(&self.0);
        if known.epoch != epoch {
            *known = Known { epoch, homes: Arc::new(placement::homes(state.shard_map())) };
        }
        Arc::clone(&known.homes)
    }
}

#[cfg(test)]
mod tests {
    use umbel_engine::meta::MetaCommand;

    use super::*;

    #[test]
    fn homes_follow_the_shard_map_once_all_nodes_know_them() {
        let mut state = MetaState::new().at_version(ClusterVersion(3));
        let nodes = (1..=5).map(|node| (NodeId(node), format!("n{node}:1"))).collect();
        let form = MetaCommand::Form { cluster: 9, nodes, shard_count: 20, replica_count: 3 };
        state.apply(1, &form);
        let homes = Homes::default();
        assert!(homes.of(&state).is_empty(), "the other nodes may be of an earlier build");
        let mut state = state.at_version(ClusterVersion(4));
        let first = homes.of(&state);
        let count = |node| first.values().filter(|&&home| home == NodeId(node)).count();
        assert_eq!([1, 2, 3, 4, 5].map(count), [4; 5]);
        assert!(Arc::ptr_eq(&first, &homes.of(&state)), "the map is the same");
        let add = MetaCommand::AddNode { address: "n6:1".to_owned(), nonce: 1 };
        state.apply(2, &add);
        assert!(!Arc::ptr_eq(&first, &homes.of(&state)), "the map has another epoch");
    }

    #[test]
    fn each_group_is_formed_by_the_node_that_stays_its_leader() {
        let mut state = MetaState::new();
        let nodes = (1..=5).map(|node| (NodeId(node), format!("n{node}:1"))).collect();
        let form = MetaCommand::Form { cluster: 9, nodes, shard_count: 64, replica_count: 3 };
        state.apply(1, &form);
        // The version is raised while shards are formed.
        let founding = Homes::default();
        let raised = state.clone().at_version(ClusterVersion(4));
        let homes = Homes::default().of(&raised);
        for record in &state.shard_map().shards {
            let group = record.group();
            let formers =
                record.founders.iter().filter(|&&node| founding.is_at(&state, group, node));
            assert_eq!(formers.collect::<Vec<_>>(), [&homes[&group]]);
        }
    }
}
