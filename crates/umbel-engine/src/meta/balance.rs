//! Balancing: spreads replicas evenly over zones and nodes as nodes come and go.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use umbel_step::planted::{self, Planted};

use super::command::MetaCommand;
use super::node_record::NodeRecord;
use super::reply::MetaError;
use super::state::MetaState;
use super::weights::{Load, Weights};
use crate::ids::{NodeId, ShardId};
use crate::meta::Result;
use crate::placement::{ShardRecord, Zones};

/// A replica moves only from a node that has at least so many times its weight more than the destination. Where
/// replicas of one weight cannot be dealt evenly, nodes differ by one; an operator's manual move can make that
/// three, and must not be undone.
pub(super) const IMBALANCE_MIN: u64 = 4;

/// And only if the difference is at least one part in so many of the mean of all nodes: weights change while
/// filters grow, come and go, and replicas must not follow every change.
const GAP_MEAN_PARTS: u64 = 10;

/// The next move that spreads a shard's replicas over more zones, or otherwise evens out what the nodes have, by
/// bytes, or by number while there is little in the replicas: from the node with the most to the node with the
/// least among those alive, without bringing more replicas of a shard into one zone. None while any other change
/// of replicas is planned or due, so that only one replica moves at a time; and while shards are merged.
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
    has_no_pending_change(state).then(|| best_move(state, alive, &Weights::of(state)))?
}

/// The next move, when the weights are known.
pub(super) fn next_move_by(
    state: &MetaState,
    alive: &BTreeSet<NodeId>,
    weights: &Weights,
) -> Option<MetaCommand> {
    has_no_pending_change(state).then(|| best_move(state, alive, weights))?
}

/// Whether no change of replicas is planned or due, and no merge is under way.
fn has_no_pending_change(state: &MetaState) -> bool {
    let (map, available) = (state.shard_map(), state.available_nodes());
    let wanted_count = state.replicas_wanted();
    let is_stable = |record: &ShardRecord| {
        record.is_formed
            && record.target.is_none()
            && record.replicas.len() == wanted_count
            && record.replicas.iter().all(|node| available.contains(node))
    };
    map.merging().is_none() && map.shards.iter().all(is_stable)
}

/// The next move while no change of replicas is planned or due.
fn best_move(
    state: &MetaState,
    alive: &BTreeSet<NodeId>,
    weights: &Weights,
) -> Option<MetaCommand> {
    let map = state.shard_map();
    let loads = weights.loads(map);
    let loaded =
        |node| WeighedNode { weight: loads.get(&node).map_or(0, |load| load.weight), node };
    let available = state.available_nodes();
    let mut goals: Vec<WeighedNode> =
        available.intersection(alive).map(|&node| loaded(node)).collect();
    goals.sort_unstable();
    let gap_min = mean(loads.values(), available.len()) / GAP_MEAN_PARTS;
    let no_zones = Zones::default();
    let zones = if planted::on(Planted::ZonesIgnored) { &no_zones } else { state.zones() };
    let moves = map.shards.iter().flat_map(|record| {
        let (goals, loaded) = (&goals, &loaded);
        let weight = weights.weight(record.shard);
        let gap_min = gap_min.max(weight.saturating_mul(IMBALANCE_MIN));
        record
            .replicas
            .iter()
            .filter_map(move |&from| best_goal(record, weight, gap_min, loaded(from), goals, zones))
    });
    // Among equal moves, the one with the lowest node numbers.
    let best =
        moves.min_by_key(|found| (Reverse(found.gain), found.from, found.to, found.shard))?;
    let Move { shard, from, to, .. } = best;
    Some(MetaCommand::MoveReplica { shard, from, to })
}

/// The mean weight of nodes, whether or not they are alive: their replicas count as well.
fn mean<'a>(loads: impl Iterator<Item = &'a Load>, node_count: usize) -> u64 {
    let sum = loads.map(|load| load.weight).fold(0, u64::saturating_add);
    sum / u64::try_from(node_count).unwrap_or(u64::MAX).max(1)
}

impl MetaState {
    /// Refuses a move by hand that [`next_move`] would undo, because it brings more replicas of the shard
    /// into one zone. Whatever else is wrong with a move is left to [`apply`](Self::apply), which knows
    /// nothing of this rule: nodes of two releases have to apply an entry alike. A node that is drained
    /// keeps no replica, so that its zone does not count.
    ///
    /// # Errors
    /// If it would be undone; the error names a node in the zone that has a replica.
    pub fn check_zone_of_move(&self, shard: ShardId, from: NodeId, to: NodeId) -> Result<()> {
        let Some(record) = self.shard(shard) else { return Ok(()) };
        let may_have = |node| self.node(node).is_some_and(NodeRecord::is_available);
        let is_move = record.replicas.contains(&from) && !record.replicas.contains(&to);
        if !is_move || !may_have(from) || !may_have(to) {
            return Ok(());
        }
        let staying: Vec<NodeId> =
            record.replicas.iter().copied().filter(|&node| node != from).collect();
        if self.zones.shared(to, &staying) <= self.zones.shared(from, &staying) {
            return Ok(());
        }
        let Some(zone) = self.zones.get(to) else { return Ok(()) };
        let Some(near) = staying.iter().find(|&&node| self.zones.get(node) == Some(zone)) else {
            return Ok(());
        };
        let what = format!(
            "{to} is in zone {zone}, where {near} has a replica of {shard} already, so the cluster would move one of \
             them out again: move the replica of {near} there, or choose a node of a zone that has none"
        );
        Err(MetaError::BadMove { what })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct WeighedNode {
    /// Of all its replicas.
    weight: u64,
    node: NodeId,
}

/// The purpose of a move; the less important one first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Gain {
    /// How much more the source node has than the destination; then the weight of the replica: the heavier
    /// it is, the fewer moves follow.
    Even(u64, u64),
    /// By how many fewer of the shard's other replicas share a zone with the moved one.
    Apart(usize),
}

struct Move {
    gain: Gain,
    shard: ShardId,
    from: NodeId,
    to: NodeId,
}

/// The best destination for a replica of this weight, if moving it is worthwhile: `gap_min` is the least difference
/// between two nodes for which it moves. `goals` are sorted by weight, the lightest first.
fn best_goal(
    record: &ShardRecord,
    weight: u64,
    gap_min: u64,
    from: WeighedNode,
    goals: &[WeighedNode],
    zones: &Zones,
) -> Option<Move> {
    let staying: Vec<NodeId> =
        record.replicas.iter().copied().filter(|&node| node != from.node).collect();
    let shared = zones.shared(from.node, &staying);
    let goals = goals.iter().filter(|goal| !record.replicas.contains(&goal.node));
    let goals = goals.map(|&goal| (zones.shared(goal.node, &staying), goal));
    // The first goal that shares no zone also has the least among those: without zones, the search stops
    // there.
    let apart = goals.clone().find(|(shared_there, _)| *shared_there == 0);
    let best = apart.or_else(|| goals.min());
    let (shared_there, to) = best.filter(|(shared_there, _)| *shared_there <= shared)?;
    let gain = match shared - shared_there {
        0 => Gain::Even(from.weight.saturating_sub(to.weight), weight),
        fewer => Gain::Apart(fewer),
    };
    let is_worth_it = !matches!(gain, Gain::Even(more, _) if more < gap_min);
    is_worth_it.then_some(Move { gain, shard: record.shard, from: from.node, to: to.node })
}

#[cfg(test)]
mod weights_test;

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ids::FilterId;
    use crate::meta::MetaReply;
    use crate::meta::testing::create;
    use crate::placement::Zone;

    /// A formed cluster with nodes 1 to `node_count`.
    pub(in crate::meta) fn formed(
        node_count: u64,
        shard_count: u32,
        replica_count: u32,
    ) -> MetaState {
        let nodes = (1..=node_count).map(|node| (NodeId(node), format!("n{node}:1"))).collect();
        let mut state = MetaState::new();
        state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count, replica_count });
        for shard in (0..shard_count).map(ShardId) {
            state.apply(2, &MetaCommand::ShardFormed { shard });
        }
        state
    }

    /// Creates a filter, and allows it to grow by so many bytes in these shards.
    pub(in crate::meta) fn filled(
        state: &mut MetaState,
        shards: &[ShardId],
        bytes: u64,
    ) -> FilterId {
        let made = state.apply(40, &create("large", 1, false));
        let MetaReply::Filter(filter) = made else { panic!("{made:?}") };
        let record = state.filters.get_mut(&filter).unwrap();
        record.growth.extend(shards.iter().map(|&shard| (shard, bytes)));
        filter
    }

    /// Moves replicas until no move is due, and returns the number of moves.
    fn run_moves(state: &mut MetaState) -> usize {
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
        // 192 replicas are 38.4 per node on five nodes.
        let move_count = run_moves(&mut state);
        let spread = spread(&state);
        let (least, most) = (spread.iter().min().unwrap(), spread.iter().max().unwrap());
        assert!(most - least < 4, "{spread:?}");
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

    fn zoned(state: &mut MetaState, zones: &[(u64, &str)]) {
        for &(node, zone) in zones {
            let zone = (!zone.is_empty()).then(|| Zone::new(zone).unwrap());
            let noted = state.apply(90, &MetaCommand::NoteZone { node: NodeId(node), zone });
            assert_eq!(noted, MetaReply::Done);
        }
    }

    /// Number of shards that have two replicas in one zone.
    fn crowded(state: &MetaState) -> usize {
        let is_crowded = |record: &&ShardRecord| {
            record.replicas.iter().any(|&node| state.zones().shared(node, &record.replicas) > 0)
        };
        state.shard_map().shards.iter().filter(is_crowded).count()
    }

    #[test]
    fn replicas_of_a_shard_are_kept_in_different_zones() {
        let mut state = formed(6, 64, 3);
        assert_eq!(spread(&state), [32; 6]);
        zoned(&mut state, &[(1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, "c"), (6, "c")]);
        assert!(crowded(&state) > 32, "{}", crowded(&state));
        run_moves(&mut state);
        assert_eq!(crowded(&state), 0);
        // Every shard has a replica on one node of each pair.
        let spread = spread(&state);
        assert!(spread.iter().all(|count| (30..=34).contains(count)), "{spread:?}");
        assert_eq!(
            state.meta_voters_wanted(&[1, 2, 3, 4, 5].map(NodeId), &state.live_nodes()),
            [1, 2, 3, 4, 5].map(NodeId)
        );
    }

    #[test]
    fn zones_that_are_too_few_or_unequal_share_what_they_must() {
        // Three replicas in two zones: two of them share a zone, whatever is moved.
        let mut state = formed(4, 16, 3);
        zoned(&mut state, &[(1, "a"), (2, "a"), (3, "b"), (4, "b")]);
        run_moves(&mut state);
        assert_eq!((crowded(&state), spread(&state)), (16, vec![12; 4]));
        // The only node of a zone has a replica of every shard; the others share the rest.
        let mut state = formed(5, 30, 2);
        zoned(&mut state, &[(1, "a"), (2, "b"), (3, "b"), (4, "b"), (5, "b")]);
        run_moves(&mut state);
        assert_eq!((crowded(&state), spread(&state)[0]), (0, 30));
        assert!(spread(&state)[1..].iter().all(|count| (6..=9).contains(count)), "{state:?}");
        // A node that leaves its zone fails independently, so shards may use it beside the others.
        zoned(&mut state, &[(2, "")]);
        run_moves(&mut state);
        assert_eq!(crowded(&state), 0);
        assert_eq!(spread(&state).iter().sum::<usize>(), 60);
    }

    #[test]
    fn voters_of_the_meta_group_are_in_different_zones() {
        let mut state = formed(5, 1, 3);
        zoned(&mut state, &[(1, "a"), (2, "a"), (3, "a"), (4, "b"), (5, "c")]);
        state.apply(91, &MetaCommand::Drain { node: NodeId(1), drain: true });
        // Three of four nodes: one per zone, preferring current voters within a zone.
        let alive = state.live_nodes();
        let wanted = state.meta_voters_wanted(&[1, 2, 3].map(NodeId), &alive);
        assert_eq!(wanted, [2, 4, 5].map(NodeId));
        assert_eq!(state.meta_voters_wanted(&wanted, &alive), wanted);
    }

    /// A shard whose two replicas are in zones a and b, with the nodes that have them; beside them a node
    /// in a, and one in c.
    fn in_two_zones() -> (MetaState, [NodeId; 2], [NodeId; 2]) {
        let mut state = formed(4, 1, 2);
        let replicas = state.shard(ShardId(0)).unwrap().replicas.clone();
        let [one, other] = replicas[..] else { panic!("{replicas:?}") };
        let free = (1..=4).map(NodeId).filter(|node| !replicas.contains(node));
        let free: Vec<NodeId> = free.collect();
        let [near, apart] = free[..] else { panic!("{free:?}") };
        zoned(&mut state, &[(one.0, "a"), (other.0, "b"), (near.0, "a"), (apart.0, "c")]);
        (state, [one, other], [near, apart])
    }

    #[test]
    fn a_move_into_a_zone_that_is_taken_is_refused_as_it_would_be_undone() {
        let (mut state, [one, other], [near, _]) = in_two_zones();
        let shard = ShardId(0);
        let what = format!(
            "{near} is in zone a, where {one} has a replica of shard 0 already, so the cluster would move one of them \
             out again: move the replica of {one} there, or choose a node of a zone that has none"
        );
        let refused = state.check_zone_of_move(shard, other, near);
        assert_eq!(refused, Err(MetaError::BadMove { what }));
        let all = state.available_nodes();
        assert_eq!(next_move(&state, &all), None);
        state.apply(92, &MetaCommand::MoveReplica { shard, from: other, to: near });
        let replicas = state.shard_map().get(shard).unwrap().wanted().to_vec();
        state.apply(93, &MetaCommand::ReplicasChanged { shard, replicas });
        assert!(next_move(&state, &all).is_some(), "{state:?}");
    }

    #[test]
    fn a_move_that_shares_no_more_zones_is_not_refused() {
        let (mut state, [one, other], [near, apart]) = in_two_zones();
        let shard = ShardId(0);
        assert_eq!(state.check_zone_of_move(shard, one, near), Ok(()), "within a zone");
        assert_eq!(state.check_zone_of_move(shard, other, apart), Ok(()));
        // Such moves are refused when they are applied, with their own reasons.
        assert_eq!(state.check_zone_of_move(shard, near, one), Ok(()));
        assert_eq!(state.check_zone_of_move(ShardId(7), other, near), Ok(()));
        // The node is left in any case.
        state.apply(92, &MetaCommand::Drain { node: other, drain: true });
        assert_eq!(state.check_zone_of_move(shard, other, near), Ok(()));
    }

    #[test]
    fn nothing_is_balanced_while_shards_are_merged() {
        let mut state = formed(1, 4, 1).at_version(crate::meta::ClusterVersion(3));
        state.apply(4, &MetaCommand::SplitShard { shard_count: 5 });
        state.apply(5, &MetaCommand::ShardFormed { shard: ShardId(4) });
        state.apply(6, &MetaCommand::AddNode { address: "b:1".to_owned(), nonce: 1 });
        assert!(next_move(&state, &state.available_nodes()).is_some());
        state.apply(7, &MetaCommand::MergeShard { shard_count: 4 });
        assert_eq!(next_move(&state, &state.available_nodes()), None);
    }

    #[test]
    fn nodes_that_are_drained_get_nothing_and_are_nobodys_business() {
        let mut state = formed(3, 16, 2);
        state.apply(50, &MetaCommand::AddNode { address: "d:1".to_owned(), nonce: 1 });
        state.apply(60, &MetaCommand::Drain { node: NodeId(4), drain: true });
        assert_eq!(next_move(&state, &state.available_nodes()), None);
        // Replacing replicas comes before balancing.
        state.apply(70, &MetaCommand::Drain { node: NodeId(4), drain: false });
        state.apply(80, &MetaCommand::Drain { node: NodeId(3), drain: true });
        assert_eq!(next_move(&state, &state.available_nodes()), None);
    }
}
