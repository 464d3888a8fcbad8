//! No shard is moved to a node that is draining: whoever drains a node waits until it has no replicas.

use umbel_engine::NodeId;
use umbel_engine::meta::{MetaState, NodeRecord};
use umbel_engine::placement::ShardRecord;

/// Name of the invariant.
pub(crate) const NAME: &str = "drained_gets_none";

/// The nodes that run each shard or are to run it, by number.
pub(crate) struct Members(Vec<Vec<NodeId>>);

impl Members {
    /// Those of a state of the meta group.
    pub(crate) fn of(state: &MetaState) -> Self {
        Self(state.shards().map(|(_, record)| record.members()).collect())
    }

    /// What is wrong with the state after one more entry, if anything is. A shard that was split off is on the nodes
    /// of the one that it was split from, also if they drain.
    pub(crate) fn broken_by(&self, after: &MetaState) -> Option<String> {
        let is_draining = |node: NodeId| {
            matches!(after.node(node), Some(NodeRecord::Live { is_draining: true, .. }))
        };
        let gets = |(had, record): (&Vec<NodeId>, &ShardRecord)| {
            let mut wanted = record.wanted().iter().copied();
            let node = wanted.find(|&node| !had.contains(&node) && is_draining(node))?;
            Some(format!("{} is moved to {node}, which is draining", record.shard))
        };
        self.0.iter().zip(after.shards().map(|(_, record)| record)).find_map(gets)
    }
}

#[cfg(test)]
mod tests {
    use umbel_engine::ShardId;
    use umbel_engine::meta::MetaCommand;

    use super::*;

    #[test]
    fn a_move_to_a_node_that_drains_is_found() {
        let nodes = (1..=3).map(|node| (NodeId(node), format!("n{node}:1"))).collect();
        let mut state = MetaState::new();
        state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 1, replica_count: 1 });
        let before = Members::of(&state);
        let from = state.shard(ShardId(0)).unwrap().replicas[0];
        let to = state.available_nodes().into_iter().find(|&node| node != from).unwrap();
        state.apply(2, &MetaCommand::MoveReplica { shard: ShardId(0), from, to });
        assert_eq!(before.broken_by(&state), None);
        // It drains after it was chosen.
        let chosen = Members::of(&state);
        state.apply(3, &MetaCommand::Drain { node: to, drain: true });
        assert_eq!(chosen.broken_by(&state), None);
        let what = format!("shard 0 is moved to {to}, which is draining");
        assert_eq!(before.broken_by(&state), Some(what));
    }
}
