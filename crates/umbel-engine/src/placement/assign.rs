//! Assigns shards to nodes.
//!
//! Every pair of a shard and a node has a score, a hash of both; a shard prefers nodes in order of
//! their scores (rendezvous hashing). Preferences alone would give some nodes twice the replicas of
//! others, so a node is full at ⌈S·R/N⌉ replicas, and a shard takes the best nodes that are not full.

use std::collections::BTreeSet;

use super::zone::Zones;
use crate::ids::{NodeId, ShardId};

#[cfg(test)]
mod assign_test;

/// The nodes of every shard, sorted: min(`replica_count`, number of nodes) different nodes for each
/// of `shard_count` shards, and no node gets more than ⌈S·R/N⌉ replicas. A pure function of its
/// arguments; the order of `nodes` does not matter. Without nodes, every shard gets an empty list.
///
/// The result is in no log: every node recomputes it from the entry that forms the cluster. A release
/// that changed this function could not read older logs.
///
/// ```
/// use std::collections::BTreeSet;
/// use umbel_engine::NodeId;
/// use umbel_engine::placement::assign;
///
/// let nodes: BTreeSet<_> = (1..=5).map(NodeId).collect();
/// let shards = assign(10, 3, &nodes);
/// assert_eq!(shards.len(), 10);
/// // 10 shards with 3 replicas each are 30 replicas, 6 for each of 5 nodes.
/// for node in nodes {
///     assert_eq!(shards.iter().filter(|replicas| replicas.contains(&node)).count(), 6);
/// }
/// ```
#[must_use]
pub fn assign(shard_count: u32, replica_count: u32, nodes: &BTreeSet<NodeId>) -> Vec<Vec<NodeId>> {
    let shard_count = shard_count as usize;
    let replica_count = (replica_count as usize).min(nodes.len());
    let cap = (shard_count * replica_count).div_ceil(nodes.len().max(1));
    let mut rooms: Vec<_> = nodes.iter().map(|&node| Room { node, left: cap }).collect();
    (0_u32..)
        .zip((1..=shard_count).rev())
        .map(|(shard, shards_left)| take(&mut rooms, ShardId(shard), shards_left, replica_count))
        .collect()
}

/// How many more replicas a node can take.
struct Room {
    node: NodeId,
    left: usize,
}

/// Takes the nodes of one shard; `shards_left` shards, including this one, are still to be placed.
///
/// A shard uses a node at most once. So the remaining shards can be placed if and only if the sum of
/// min(room, shards left) over all nodes is at least what they need. If a node with room for all
/// remaining shards is passed over, some of its room is lost; the surplus of the sum says how many
/// such nodes may be passed over.
fn take(
    rooms: &mut [Room],
    shard: ShardId,
    shards_left: usize,
    replica_count: usize,
) -> Vec<NodeId> {
    rooms.sort_by_cached_key(|room| std::cmp::Reverse(score(shard, room.node)));
    let usable: usize = rooms.iter().map(|room| room.left.min(shards_left)).sum();
    let slack = usable.saturating_sub(shards_left * replica_count);
    let spacious = rooms.iter().filter(|room| room.left >= shards_left).count();
    let mut must_take = spacious.saturating_sub(slack);
    let mut may_take = replica_count.saturating_sub(must_take);
    let mut replicas = Vec::with_capacity(replica_count);
    for room in rooms.iter_mut().filter(|room| room.left > 0) {
        let quota =
            if room.left >= shards_left && must_take > 0 { &mut must_take } else { &mut may_take };
        if *quota > 0 {
            *quota -= 1;
            room.left -= 1;
            replicas.push(room.node);
        }
    }
    replicas.sort_unstable();
    replicas
}

/// Chooses the node for one more replica of a shard. Among the nodes in `available` that are not in
/// `taken`, it is the one whose zone has the fewest nodes of `taken`, then the one with the least
/// load, then the one with the best score. None if all are taken.
///
/// `taken` are the nodes that the shard keeps in any case. `load` says how much a node has, in any unit, planned
/// replicas included.
///
/// ```
/// use umbel_engine::placement::{ShardMap, ShardRecord, Zone, Zones, choose_replacement};
/// use umbel_engine::{NodeId, ShardId};
///
/// let (a, b, c, d) = (NodeId(1), NodeId(2), NodeId(3), NodeId(4));
/// let founders = [vec![a, b], vec![a, b], vec![b, c]];
/// let map = ShardMap::new(founders.map(ShardRecord::founded).to_vec());
/// // Node 2 leaves shard 0: node 1 has it, and node 3 is the other.
/// let mut zones = Zones::default();
/// let counts = map.replica_counts();
/// let load = |node: NodeId| counts.get(&node).map_or(0, |&count| count as u64);
/// let choose = |available: &[NodeId], zones: &Zones| {
///     choose_replacement(load, &available.iter().copied().collect(), zones, ShardId(0), &[a])
/// };
/// assert_eq!(choose(&[a, c], &zones), Some(c));
/// assert_eq!(choose(&[a], &zones), None);
/// // Nodes 1 and 4 fail together, so node 4 is taken where there is no other one.
/// [a, d].map(|node| zones.set(node, Zone::new("rack1").ok()));
/// assert_eq!((choose(&[a, c, d], &zones), choose(&[a, d], &zones)), (Some(c), Some(d)));
/// ```
#[must_use]
pub fn choose_replacement(
    load: impl Fn(NodeId) -> u64,
    available: &BTreeSet<NodeId>,
    zones: &Zones,
    shard: ShardId,
    taken: &[NodeId],
) -> Option<NodeId> {
    available.iter().copied().filter(|node| !taken.contains(node)).min_by_key(|&node| {
        (zones.shared(node, taken), load(node), std::cmp::Reverse(score(shard, node)))
    })
}

/// How much a shard prefers a node. Equal hashes are ordered by the node's number.
fn score(shard: ShardId, node: NodeId) -> (u64, NodeId) {
    (mix(mix(u64::from(shard.0) + 1) ^ node.0), node)
}

/// `SplitMix64`: a bijection that spreads every bit over all others.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
