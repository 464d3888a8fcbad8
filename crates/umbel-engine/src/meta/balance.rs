//! Replicas spread over the nodes, whoever has come or gone.

use std::collections::BTreeSet;

use super::command::MetaCommand;
use super::state::MetaState;
use crate::ids::NodeId;
use crate::placement::ShardRecord;

/// Replicas that a node has more than another one when one is moved. Ranges of the hash space are equal, so replicas of
/// a cluster weigh the same. Nodes that differ by one, as they do where replicas cannot be dealt evenly, differ by three
/// after an operator's own move, which must not be taken back.
const IMBALANCE_MIN: usize = 4;

/// The next move that makes replicas more even, if any does: from the node that has the most to the one that has the
/// fewest of those that are alive. None while any other change of replicas is planned or due, so that one moves
/// at a time.
///
/// ```
/// use std::collections::BTreeSet;
/// use umbel_engine::NodeId;
/// use umbel_engine::meta::{MetaCommand, MetaState, next_move};
///
/// let mut state = MetaState::new();
/// let nodes = vec![(NodeId(1), "a:7070".to_owned())];
/// state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 4, replica_count: 1 });
/// for shard in (0..4).map(umbel_engine::ShardId) {
///     state.apply(2, &MetaCommand::ShardFormed { shard });
/// }
/// let alive = BTreeSet::from([NodeId(1), NodeId(2)]);
/// assert_eq!(next_move(&state, &alive), None);
/// state.apply(6, &MetaCommand::AddNode { address: "b:7070".to_owned(), nonce: 5 });
/// let Some(MetaCommand::MoveReplica { from, to, .. }) = next_move(&state, &alive) else {
///     panic!("node 1 has 4 replicas, the new one none")
/// };
/// assert_eq!((from, to), (NodeId(1), NodeId(2)));
/// // Nothing is moved to a node that is not there.
/// assert_eq!(next_move(&state, &BTreeSet::from([NodeId(1)])), None);
/// ```
#[must_use]
pub fn next_move(state: &MetaState, alive: &BTreeSet<NodeId>) -> Option<MetaCommand> {
    let (map, available) = (state.shard_map(), state.available_nodes());
    let wanted_count = state.replicas_wanted();
    let is_settled = |record: &ShardRecord| {
        record.is_formed
            && record.target.is_none()
            && record.replicas.len() == wanted_count
            && record.replicas.iter().all(|node| available.contains(node))
    };
    if !map.shards.iter().all(is_settled) {
        return None;
    }
    let counts = map.replica_counts();
    let count = |node: &NodeId| counts.get(node).copied().unwrap_or(0);
    // Of several the one with the lowest number.
    let to = *available.intersection(alive).min_by_key(|&node| count(node))?;
    let from = *available.iter().rev().max_by_key(|&node| count(node))?;
    if count(&from) < count(&to) + IMBALANCE_MIN {
        return None;
    }
    let is_movable =
        |record: &&ShardRecord| record.replicas.contains(&from) && !record.replicas.contains(&to);
    let shard = map.shards.iter().find(is_movable)?.shard;
    Some(MetaCommand::MoveReplica { shard, from, to })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ShardId;

    /// A formed cluster of nodes 1 to n.
    fn formed(node_count: u64, shard_count: u32, replica_count: u32) -> MetaState {
        let nodes = (1..=node_count).map(|node| (NodeId(node), format!("n{node}:1"))).collect();
        let mut state = MetaState::new();
        state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count, replica_count });
        for shard in (0..shard_count).map(ShardId) {
            state.apply(2, &MetaCommand::ShardFormed { shard });
        }
        state
    }

    /// Moves until nothing is to be moved; how often.
    fn settle(state: &mut MetaState) -> usize {
        let all = state.available_nodes();
        for move_count in 0.. {
            let Some(command) = next_move(state, &all) else { return move_count };
            let MetaCommand::MoveReplica { shard, .. } = &command else { unreachable!() };
            let shard = *shard;
            state.apply(100, &command);
            assert_eq!(next_move(state, &all), None, "one at a time");
            let replicas = state.shard_map().get(shard).unwrap().wanted().to_vec();
            state.apply(101, &MetaCommand::ReplicasChanged { shard, replicas });
        }
        unreachable!()
    }

    fn spread(state: &MetaState) -> Vec<usize> {
        let counts = state.shard_map().replica_counts();
        let count = |node| counts.get(&node).copied().unwrap_or(0);
        state.available_nodes().into_iter().map(count).collect()
    }

    #[test]
    fn nodes_that_join_fill_up_one_move_after_the_other() {
        let mut state = formed(3, 64, 3);
        assert_eq!(spread(&state), [64, 64, 64]);
        for (index, node) in [(200, "d:1"), (300, "e:1")] {
            state.apply(index, &MetaCommand::AddNode { address: node.to_owned(), nonce: index });
        }
        // 192 replicas are 38.4 for each of five nodes.
        let move_count = settle(&mut state);
        let spread = spread(&state);
        let (least, most) = (spread.iter().min().unwrap(), spread.iter().max().unwrap());
        assert!(most - least < IMBALANCE_MIN, "{spread:?}");
        assert!((70..=80).contains(&move_count), "{move_count}");
    }

    #[test]
    fn a_move_by_hand_is_not_taken_back() {
        let mut state = formed(4, 16, 3);
        assert_eq!(spread(&state), [12; 4]);
        let shard = state.shard_map().shards.iter().find(|s| s.replicas == [1, 2, 3].map(NodeId));
        let (shard, from, to) = (shard.unwrap().shard, NodeId(1), NodeId(4));
        state.apply(50, &MetaCommand::MoveReplica { shard, from, to });
        let replicas = state.shard_map().get(shard).unwrap().wanted().to_vec();
        state.apply(51, &MetaCommand::ReplicasChanged { shard, replicas });
        assert_eq!(spread(&state), [11, 12, 12, 13]);
        assert_eq!(next_move(&state, &state.available_nodes()), None);
    }

    #[test]
    fn nodes_that_are_drained_get_nothing_and_are_nobodys_business() {
        let mut state = formed(3, 16, 2);
        state.apply(50, &MetaCommand::AddNode { address: "d:1".to_owned(), nonce: 1 });
        state.apply(60, &MetaCommand::Drain { node: NodeId(4), drain: true });
        assert_eq!(next_move(&state, &state.available_nodes()), None);
        // What has to be replaced goes first.
        state.apply(70, &MetaCommand::Drain { node: NodeId(4), drain: false });
        state.apply(80, &MetaCommand::Drain { node: NodeId(3), drain: true });
        assert_eq!(next_move(&state, &state.available_nodes()), None);
    }
}
