//! Which replicas are moving and why, and which ones would move next.
//!
//! The controller's decisions depend only on the catalogue, so they can be computed in advance: a copy of
//! the catalogue is taken through its decisions, each of which is assumed to complete at once.

use std::collections::{BTreeMap, BTreeSet};

use super::MetaCommand;
use super::balance::{IMBALANCE_MIN, next_move_by};
use super::controller::{GroupView, Task, shard_tasks};
use super::state::MetaState;
use super::weights::{Load, Weights};
use crate::ids::{NodeId, ShardId};
use crate::placement::ShardRecord;

/// Most moves of a forecast: four for each of 1,024 shards.
const FORECAST_MOVES_MAX: usize = 4096;

/// Why a shard's replicas move.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MoveCause {
    /// A node with a replica is draining or was removed.
    NodeLeaves,
    /// The shard has fewer replicas than it should.
    TooFew,
    /// Replicas share a zone.
    Zones,
    /// The source has much more than the destination.
    Balance,
    /// None of these: an operator moved it manually. While it moves, a manual move from a node that has more
    /// looks like [`Balance`](Self::Balance).
    Ordered,
}

/// A change of the nodes that have a shard's replicas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardMove {
    /// The shard.
    pub shard: ShardId,
    /// Nodes that lose their replica, sorted.
    pub from: Vec<NodeId>,
    /// Nodes that get a replica, sorted: the shard's filters are sent once to each of them.
    pub to: Vec<NodeId>,
    /// Why.
    pub cause: MoveCause,
    /// Whether the move is under way; otherwise it would come later.
    pub is_begun: bool,
    /// For [`Balance`](MoveCause::Balance): bytes of all replicas of the source and of the destination before
    /// the move, as the catalogue plans them; otherwise 0.
    pub node_bytes: (u64, u64),
}

/// The moves that are under way, by shard.
///
/// ```
/// use umbel_engine::meta::{MetaCommand, MetaState, MoveCause, moves_under_way};
/// use umbel_engine::{NodeId, ShardId};
///
/// let mut state = MetaState::new();
/// let nodes = (1..=2).map(|node| (NodeId(node), format!("n{node}:1"))).collect();
/// state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 1, replica_count: 1 });
/// state.apply(2, &MetaCommand::ShardFormed { shard: ShardId(0) });
/// assert_eq!(moves_under_way(&state), []);
/// let by_hand = MetaCommand::MoveReplica { shard: ShardId(0), from: NodeId(1), to: NodeId(2) };
/// state.apply(3, &by_hand);
/// let moves = moves_under_way(&state);
/// assert_eq!((&*moves[0].to, moves[0].cause), (&[NodeId(2)][..], MoveCause::Ordered));
/// ```
#[must_use]
pub fn moves_under_way(state: &MetaState) -> Vec<ShardMove> {
    let weights = Weights::of(state);
    let loads = weights.loads(state.shard_map());
    let moved = |record: &ShardRecord| {
        let target = record.target.as_ref()?;
        let mut before = loads.clone();
        weights.shift(&mut before, record.shard, (target, &record.replicas));
        Some(shard_move(state, record, target, &weights, &before, true))
    };
    state.shard_map().shards.iter().filter_map(moved).collect()
}

/// The moves under way, followed by all moves that would come after them, in order, as long as no node
/// joins or leaves: at most 4,096. Only nodes that are alive get replicas.
///
/// ```
/// use std::collections::BTreeSet;
/// use umbel_engine::meta::{MetaCommand, MetaState, MoveCause, forecast_moves};
/// use umbel_engine::{NodeId, ShardId};
///
/// let mut state = MetaState::new();
/// let nodes = (1..=2).map(|node| (NodeId(node), format!("n{node}:1"))).collect();
/// state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 4, replica_count: 1 });
/// let alive = BTreeSet::from([NodeId(1), NodeId(2)]);
/// assert_eq!(forecast_moves(&state, &alive), []);
/// // Each node has two of the four shards.
/// state.apply(2, &MetaCommand::Drain { node: NodeId(2), drain: true });
/// let moves = forecast_moves(&state, &alive);
/// assert_eq!(moves.len(), 2);
/// assert!(moves.iter().all(|moved| moved.to == [NodeId(1)] && moved.cause == MoveCause::NodeLeaves));
/// ```
#[must_use]
pub fn forecast_moves(state: &MetaState, alive: &BTreeSet<NodeId>) -> Vec<ShardMove> {
    let mut state = state.clone();
    let mut moves = moves_under_way(&state);
    finish_merge(&mut state);
    let all = state.shard_map().shards.iter().map(|record| record.shard).collect::<Vec<_>>();
    finish_moves(&mut state, &all);
    // Moves change no weights.
    let weights = Weights::of(&state);
    while moves.len() < FORECAST_MOVES_MAX {
        let commands = decisions(&state, alive, &weights);
        let loads = weights.loads(state.shard_map());
        let count_before = moves.len();
        let mut moved = Vec::new();
        for command in commands {
            state.apply(0, &command);
            let (MetaCommand::PlanReplicas { shard, .. } | MetaCommand::MoveReplica { shard, .. }) =
                command
            else {
                continue;
            };
            let planned = state.shard_map().get(shard).and_then(|record| {
                let target = record.target.as_ref()?;
                Some(shard_move(&state, record, target, &weights, &loads, false))
            });
            moves.extend(planned);
            moved.push(shard);
        }
        finish_moves(&mut state, &moved);
        // A decision that changes nothing would be repeated for ever.
        if moves.len() == count_before {
            break;
        }
    }
    moves.truncate(FORECAST_MOVES_MAX);
    moves
}

/// The controller's next decisions about replicas, assuming that all earlier ones have completed.
fn decisions(state: &MetaState, alive: &BTreeSet<NodeId>, weights: &Weights) -> Vec<MetaCommand> {
    let view = |record: &ShardRecord| {
        let voters = record.replicas.clone();
        (
            record.group(),
            GroupView { leader: voters.first().copied(), voters, ..GroupView::default() },
        )
    };
    let views = state.shard_map().shards.iter().map(view).collect();
    let mut tasks = Vec::new();
    shard_tasks(state, &views, alive, &mut tasks);
    let proposed = |task| match task {
        Task::Propose(command) => Some(command),
        _ => None,
    };
    let commands: Vec<MetaCommand> = tasks.into_iter().filter_map(proposed).collect();
    if commands.is_empty() {
        next_move_by(state, alive, weights).into_iter().collect()
    } else {
        commands
    }
}

/// Completes the merge that is under way, until which its shards do not move.
fn finish_merge(state: &mut MetaState) {
    let merging = state.shard_map().merging().and_then(|shard| state.shard_map().get(shard));
    if let Some(&ShardRecord { shard, era, .. }) = merging {
        state.apply(0, &MetaCommand::ShardMerged { shard, era });
    }
}

/// Marks the groups of these shards as formed, and completes their moves.
fn finish_moves(state: &mut MetaState, shards: &[ShardId]) {
    for &shard in shards {
        state.apply(0, &MetaCommand::ShardFormed { shard });
        let target = state.shard_map().get(shard).and_then(|record| record.target.clone());
        if let Some(replicas) = target {
            state.apply(0, &MetaCommand::ReplicasChanged { shard, replicas });
        }
    }
}

/// A move with its cause. `loads` is what the nodes have before it.
fn shard_move(
    state: &MetaState,
    record: &ShardRecord,
    target: &[NodeId],
    weights: &Weights,
    loads: &BTreeMap<NodeId, Load>,
    is_begun: bool,
) -> ShardMove {
    let without = |nodes: &[NodeId], others: &[NodeId]| -> Vec<NodeId> {
        nodes.iter().copied().filter(|node| !others.contains(node)).collect()
    };
    let (from, to) = (without(&record.replicas, target), without(target, &record.replicas));
    let staying = without(&record.replicas, &from);
    let shared = |nodes: &[NodeId]| -> usize {
        nodes.iter().map(|&node| state.zones().shared(node, &staying)).sum()
    };
    let load = |node: &NodeId| loads.get(node).copied().unwrap_or_default();
    let most = from.iter().map(load).max().unwrap_or_default();
    let least = to.iter().map(load).min().unwrap_or_default();
    let weight = weights.weight(record.shard);
    let gap_min = if is_begun {
        // Filters may have come and gone since it began. It evens out as long as the nodes do not change places.
        weight.saturating_add(1)
    } else {
        weight.saturating_mul(IMBALANCE_MIN)
    };
    let available = state.available_nodes();
    let cause = if from.iter().any(|node| !available.contains(node)) {
        MoveCause::NodeLeaves
    } else if from.len() < to.len() {
        MoveCause::TooFew
    } else if shared(&to) < shared(&from) {
        MoveCause::Zones
    } else if most.weight.saturating_sub(least.weight) >= gap_min {
        MoveCause::Balance
    } else {
        MoveCause::Ordered
    };
    let node_bytes = match cause {
        MoveCause::Balance => (most.bytes, least.bytes),
        _ => (0, 0),
    };
    ShardMove { shard: record.shard, from, to, cause, is_begun, node_bytes }
}

#[cfg(test)]
mod tests {
    use super::super::balance::next_move;
    use super::super::balance::tests::{filled, formed};
    use super::*;
    use crate::placement::Zone;

    fn alive(state: &MetaState) -> BTreeSet<NodeId> {
        state.live_nodes()
    }

    /// Carries out the controller's decisions one after the other, as a node does.
    fn carried_out(mut state: MetaState) -> (MetaState, Vec<ShardId>) {
        let mut moved = Vec::new();
        loop {
            let commands = decisions(&state, &alive(&state), &Weights::of(&state));
            let before = moved.len();
            for command in commands {
                let (MetaCommand::PlanReplicas { shard, .. }
                | MetaCommand::MoveReplica { shard, .. }) = command
                else {
                    continue;
                };
                state.apply(3, &command);
                moved.extend(
                    state
                        .shard_map()
                        .get(shard)
                        .is_some_and(|r| r.target.is_some())
                        .then_some(shard),
                );
            }
            finish_moves(&mut state, &moved[before..]);
            if moved.len() == before {
                return (state, moved);
            }
        }
    }

    #[test]
    fn a_node_that_joins_is_filled_and_one_that_leaves_is_emptied() {
        let mut state = formed(3, 16, 3);
        assert_eq!(forecast_moves(&state, &alive(&state)), []);
        state.apply(4, &MetaCommand::AddNode { address: "n4:1".to_owned(), nonce: 5 });
        let moves = forecast_moves(&state, &alive(&state));
        // Three nodes have 16 of 48 replicas each; at 13, 13, 12 and 10 no two differ by four.
        assert!(moves.iter().all(|moved| moved.to == [NodeId(4)] && !moved.is_begun));
        assert!(moves.iter().all(|moved| moved.cause == MoveCause::Balance));
        let (after, moved) = carried_out(state.clone());
        assert_eq!(moves.iter().map(|one| one.shard).collect::<Vec<_>>(), moved);
        let counts = after.shard_map().replica_counts();
        let (most, fewest) = (counts.values().max().unwrap(), counts.values().min().unwrap());
        assert!(most - fewest < 4, "{counts:?}");
        // Nothing moves to an unreachable node.
        let others = (1..=3).map(NodeId).collect();
        assert_eq!(forecast_moves(&state, &others), []);

        let mut state = after;
        let had = counts[&NodeId(2)];
        state.apply(5, &MetaCommand::Drain { node: NodeId(2), drain: true });
        let moves = forecast_moves(&state, &alive(&state));
        let leaving: Vec<_> = moves.iter().filter(|one| one.from == [NodeId(2)]).collect();
        assert_eq!(leaving.len(), had);
        assert!(leaving.iter().all(|moved| moved.cause == MoveCause::NodeLeaves));
        assert_eq!(state.shard_map().replica_counts()[&NodeId(2)], had, "it is a forecast");
    }

    #[test]
    fn a_move_that_is_begun_comes_first_and_once() {
        let mut state = formed(4, 8, 3);
        let record = state.shard_map().get(ShardId(0)).unwrap().clone();
        let free = (1..=4).map(NodeId).find(|node| !record.replicas.contains(node)).unwrap();
        let from = record.replicas[0];
        state.apply(3, &MetaCommand::MoveReplica { shard: ShardId(0), from, to: free });
        let moves = forecast_moves(&state, &alive(&state));
        let wanted = ShardMove {
            shard: ShardId(0),
            from: vec![from],
            to: vec![free],
            cause: MoveCause::Ordered,
            is_begun: true,
            node_bytes: (0, 0),
        };
        assert_eq!(moves, [wanted]);
        assert_eq!(moves_under_way(&state), moves);
    }

    /// The shards that have a replica on this node.
    fn shards_on(state: &MetaState, node: u64) -> Vec<ShardId> {
        state.shard_map().shards_of(NodeId(node)).collect()
    }

    #[test]
    fn a_move_that_balances_still_does_when_filters_have_gone_meanwhile() {
        let mut state = formed(2, 8, 1);
        let (shard, from, to) = (shards_on(&state, 2)[0], NodeId(2), NodeId(1));
        state.apply(3, &MetaCommand::MoveReplica { shard, from, to });
        finish_moves(&mut state, &[shard]);
        let on_first = shards_on(&state, 1);
        assert_eq!(on_first.len(), 5);
        let filter = filled(&mut state, &on_first[..1], 200 << 20);
        let begun = next_move(&state, &alive(&state)).unwrap();
        state.apply(50, &begun);
        assert_eq!(moves_under_way(&state)[0].cause, MoveCause::Balance);
        state.apply(51, &MetaCommand::DropFilter { filter });
        let moves = moves_under_way(&state);
        assert_eq!((moves.len(), moves[0].cause), (1, MoveCause::Balance));
    }

    /// After balancing, the node with the large shards has the fewest replicas. By their number it would get all
    /// of those of a node that leaves, and the balancer would move them off again.
    #[test]
    fn what_a_drained_node_had_goes_to_where_it_stays() {
        let mut state = formed(5, 64, 2);
        let large = shards_on(&state, 1);
        filled(&mut state, &large, 512 << 20);
        let (balanced, _) = carried_out(state);
        let counts = balanced.shard_map().replica_counts();
        assert!(counts[&NodeId(1)] < 20 && counts[&NodeId(2)] > 24, "{counts:?}");
        for node in [2, 3, 5].map(NodeId) {
            let mut state = balanced.clone();
            state.apply(60, &MetaCommand::Drain { node, drain: true });
            let moves = forecast_moves(&state, &alive(&state));
            let leaving = moves.iter().filter(|one| one.cause == MoveCause::NodeLeaves).count();
            assert_eq!(leaving, counts[&node]);
            assert!(moves.len() <= leaving + 1, "{} moves, {leaving} of {node}", moves.len());
        }
    }

    #[test]
    fn shards_that_are_merged_move_after_that() {
        let mut state = formed(2, 1, 1).at_version(crate::meta::ClusterVersion(3));
        let commands = [
            MetaCommand::SplitShard { shard_count: 2 },
            MetaCommand::ShardFormed { shard: ShardId(1) },
            MetaCommand::MergeShard { shard_count: 1 },
        ];
        for command in &commands {
            state.apply(3, command);
        }
        let node = state.shard_map().members(ShardId(0))[0];
        state.apply(4, &MetaCommand::Drain { node, drain: true });
        // One shard is left by then.
        let moves = forecast_moves(&state, &alive(&state));
        assert_eq!(moves.len(), 1);
        assert_eq!((moves[0].shard, moves[0].cause), (ShardId(0), MoveCause::NodeLeaves));
        assert!(state.shard_map().merging().is_some(), "it is a forecast");
    }

    #[test]
    fn zones_are_a_cause_and_so_are_too_few() {
        let mut state = formed(4, 2, 2);
        let together = state.shard_map().get(ShardId(0)).unwrap().replicas.clone();
        for node in (1..=4).map(NodeId) {
            let zone = Zone::new(if together.contains(&node) { "a" } else { "b" }).ok();
            state.apply(3, &MetaCommand::NoteZone { node, zone });
        }
        let moves = forecast_moves(&state, &alive(&state));
        assert!(moves.iter().all(|moved| moved.cause == MoveCause::Zones), "{moves:?}");
        assert!(!moves.is_empty(), "both replicas of shard 0 are in one zone");

        // Two replicas where three are wanted: a third node joins.
        let mut state = formed(2, 1, 3);
        assert_eq!(forecast_moves(&state, &alive(&state)), []);
        state.apply(3, &MetaCommand::AddNode { address: "n3:1".to_owned(), nonce: 5 });
        let moves = forecast_moves(&state, &alive(&state));
        assert_eq!(moves.len(), 1);
        assert_eq!((&*moves[0].to, moves[0].cause), (&[NodeId(3)][..], MoveCause::TooFew));
    }
}
