//! Which node should lead each shard: its home.
//!
//! By number alone, each shard takes the next of its own nodes in turn. That is even as long as all shards
//! are on the same nodes. Otherwise some nodes would lead twice as much as others: the node with the lowest
//! number is the first one of every shard that it has, and so on. So homes are then moved from nodes with
//! many of them to nodes with few, directly or through others, until no move helps: such an assignment is as
//! even as the replicas permit (an optimal semi-matching: Harvey, Ladner, Lovász and Tamir, 2006).

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::shard_map::{ShardMap, ShardRecord};
use crate::ids::{GroupId, NodeId};

/// The home of every shard's group: one of its replicas, such that nodes have as equal numbers of homes as
/// replicas permit. A pure function of the replicas: nodes with the same map agree without a message. A
/// target that has not been reached does not count, because its nodes may not vote yet.
///
/// ```
/// use std::collections::BTreeSet;
/// use umbel_engine::NodeId;
/// use umbel_engine::placement::{ShardMap, ShardRecord, assign, homes};
///
/// let nodes: BTreeSet<_> = (1..=5).map(NodeId).collect();
/// let replicas = assign(20, 3, &nodes);
/// let map = ShardMap::new(replicas.into_iter().map(ShardRecord::founded).collect());
/// let homes = homes(&map);
/// for node in nodes {
///     assert_eq!(homes.values().filter(|&&home| home == node).count(), 4);
/// }
/// ```
#[must_use]
pub fn homes(map: &ShardMap) -> BTreeMap<GroupId, NodeId> {
    let mut homed = Homed::usual(&map.shards);
    while homed.even_out() {}
    let mut homes = BTreeMap::new();
    for (node, shards) in homed.by_node {
        homes.extend(shards.into_iter().map(|shard| (map.shards[shard].group(), node)));
    }
    homes
}

/// The position of a group's home among its voters, sorted, where only its number is known; None if there
/// are no voters.
pub(crate) fn usual_turn(group: GroupId, voter_count: usize) -> Option<usize> {
    (group.number() as usize).checked_rem(voter_count)
}

/// The shards that are at home on each node.
struct Homed<'a> {
    shards: &'a [ShardRecord],
    /// Positions in `shards`; empty for a node that has replicas but no homes.
    by_node: BTreeMap<NodeId, BTreeSet<usize>>,
}

/// A shard's home moves.
#[derive(Clone, Copy)]
struct Step {
    shard: usize,
    from: NodeId,
    to: NodeId,
}

impl<'a> Homed<'a> {
    /// Homes by number.
    fn usual(shards: &'a [ShardRecord]) -> Self {
        let mut by_node: BTreeMap<NodeId, BTreeSet<usize>> = BTreeMap::new();
        for (shard, record) in shards.iter().enumerate() {
            for &node in &record.replicas {
                by_node.entry(node).or_default();
            }
            if let Some(turn) = usual_turn(record.group(), record.replicas.len()) {
                by_node.entry(record.replicas[turn]).or_default().insert(shard);
            }
        }
        Self { shards, by_node }
    }

    fn count(&self, node: NodeId) -> usize {
        self.by_node.get(&node).map_or(0, BTreeSet::len)
    }

    /// Takes one home from a node with as many as possible, and gives one to a node that has at least two
    /// fewer. False if there are no such two nodes.
    ///
    /// This ends, because the sum of the squared numbers falls each time.
    fn even_out(&mut self) -> bool {
        let fewest = self.by_node.values().map(BTreeSet::len).min().unwrap_or(0);
        let mut sources: Vec<NodeId> =
            self.by_node.keys().copied().filter(|&node| self.count(node) >= fewest + 2).collect();
        // Stable: among equals, the lowest number is first.
        sources.sort_by_key(|&node| Reverse(self.count(node)));
        let Some(steps) = sources.into_iter().find_map(|source| self.steps_from(source)) else {
            return false;
        };
        for Step { shard, from, to } in steps {
            self.by_node.entry(from).or_default().remove(&shard);
            self.by_node.entry(to).or_default().insert(shard);
        }
        true
    }

    /// The fewest steps that take a home from `source` and give one to a node that has at least two fewer.
    /// Nodes in between give one for the one that they get.
    fn steps_from(&self, source: NodeId) -> Option<Vec<Step>> {
        let most = self.count(source).checked_sub(2)?;
        let mut last_steps: BTreeMap<NodeId, Step> = BTreeMap::new();
        let mut frontier = vec![source];
        while !frontier.is_empty() {
            let mut next = Vec::new();
            let steps = frontier.iter().flat_map(|&from| self.steps_of(from));
            for step in steps.filter(|step| step.to != source) {
                // The first one is the one of the lowest shard.
                if let Entry::Vacant(entry) = last_steps.entry(step.to) {
                    entry.insert(step);
                    next.push(step.to);
                }
            }
            let targets = next.iter().copied().filter(|&node| self.count(node) <= most);
            if let Some(target) = targets.min_by_key(|&node| (self.count(node), node)) {
                return Some(way_to(target, &last_steps));
            }
            frontier = next;
        }
        None
    }

    /// All steps of the homes of a node, by shard.
    fn steps_of(&self, from: NodeId) -> impl Iterator<Item = Step> {
        let shards = self.by_node.get(&from).into_iter().flatten();
        shards.flat_map(move |&shard| {
            self.shards[shard].replicas.iter().map(move |&to| Step { shard, from, to })
        })
    }
}

/// The steps to `target`, the last one first, when the last step to each node is known.
fn way_to(target: NodeId, last_steps: &BTreeMap<NodeId, Step>) -> Vec<Step> {
    let mut way = Vec::new();
    let mut at = target;
    while let Some(&step) = last_steps.get(&at) {
        way.push(step);
        at = step.from;
    }
    way
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::placement::assign;

    fn map_of(replicas: impl IntoIterator<Item = Vec<NodeId>>) -> ShardMap {
        ShardMap::new(replicas.into_iter().map(ShardRecord::founded).collect())
    }

    fn formed(node_count: u64, shard_count: u32, replica_count: u32) -> ShardMap {
        map_of(assign(shard_count, replica_count, &(1..=node_count).map(NodeId).collect()))
    }

    /// Numbers of homes of all nodes that have replicas, by node.
    fn counts(map: &ShardMap, homes: &BTreeMap<GroupId, NodeId>) -> Vec<usize> {
        let count = |node: &NodeId| homes.values().filter(|&home| home == node).count();
        map.replica_counts().keys().map(count).collect()
    }

    fn usual(map: &ShardMap) -> BTreeMap<GroupId, NodeId> {
        let home = |record: &ShardRecord| {
            let turn = usual_turn(record.group(), record.replicas.len())?;
            Some((record.group(), record.replicas[turn]))
        };
        map.shards.iter().filter_map(home).collect()
    }

    fn unevenness(counts: &[usize]) -> usize {
        counts.iter().map(|count| count * count).sum()
    }

    /// Slow twin: the least sum of squares of all choices of homes.
    fn least_unevenness(shards: &[ShardRecord], counts: &mut BTreeMap<NodeId, usize>) -> usize {
        let Some((first, rest)) = shards.split_first() else {
            return counts.values().map(|count| count * count).sum();
        };
        let mut least = usize::MAX;
        for &node in &first.replicas {
            *counts.entry(node).or_default() += 1;
            least = least.min(least_unevenness(rest, counts));
            *counts.entry(node).or_default() -= 1;
        }
        least
    }

    #[test]
    fn three_nodes_keep_the_homes_that_they_have_by_number() {
        for shard_count in [1, 2, 4, 16, 64, 100] {
            let map = formed(3, shard_count, 3);
            assert_eq!(homes(&map), usual(&map));
        }
    }

    #[test]
    fn more_nodes_than_replicas_have_equal_numbers_of_homes() {
        let map = formed(5, 64, 3);
        assert_eq!(counts(&map, &usual(&map)), [11, 19, 12, 10, 12]);
        for node_count in 4..=12 {
            let map = formed(node_count, 64, 3);
            let counts = counts(&map, &homes(&map));
            let (least, most) = (counts.iter().min(), counts.iter().max());
            assert!(most <= least.map(|least| least + 1).as_ref(), "{counts:?}");
        }
    }

    #[test]
    fn homes_move_through_a_node_where_none_can_move_directly() {
        let [a, b, c] = [1, 2, 3].map(NodeId);
        let map = map_of([vec![a, b], vec![a, c], vec![b], vec![b], vec![a], vec![c]]);
        let before = usual(&map);
        assert_eq!(before.values().copied().collect::<Vec<_>>(), [b, a, b, b, a, c]);
        // No shard is on both the node with three and the one with one.
        assert_eq!(counts(&map, &before), [2, 3, 1]);
        let after = homes(&map);
        assert_eq!(after.values().copied().collect::<Vec<_>>(), [a, c, b, b, a, c]);
        assert_eq!(counts(&map, &after), [2, 2, 2]);
    }

    #[test]
    fn a_map_without_shards_or_replicas_has_no_homes() {
        assert_eq!(homes(&ShardMap::default()), BTreeMap::new());
        assert_eq!(homes(&map_of([vec![]])), BTreeMap::new());
    }

    #[test]
    fn what_is_planned_moves_no_home() {
        let mut map = formed(4, 16, 3);
        let before = homes(&map);
        let target = [1, 2, 3, 4].map(NodeId);
        for record in &mut map.shards {
            assert!(record.plan(&target));
        }
        assert_eq!(homes(&map), before);
    }

    proptest! {
        #[test]
        fn homes_are_replicas_and_as_even_as_can_be(
            shards in prop::collection::vec(
                (prop::collection::btree_set(1_u64..7, 1..4), 0_u32..3),
                1..8,
            ),
        ) {
            let (replicas, eras): (Vec<_>, Vec<_>) = shards.into_iter().unzip();
            let nodes =
                |set: BTreeSet<u64>| -> Vec<NodeId> { set.into_iter().map(NodeId).collect() };
            let mut map = map_of(replicas.into_iter().map(nodes));
            for (record, era) in map.shards.iter_mut().zip(eras) {
                record.era = era;
            }
            let homes = homes(&map);
            prop_assert_eq!(homes.len(), map.shards.len());
            for record in &map.shards {
                prop_assert!(record.replicas.contains(&homes[&record.group()]));
            }
            let least = least_unevenness(&map.shards, &mut BTreeMap::new());
            prop_assert_eq!(unevenness(&counts(&map, &homes)), least);
            // The epoch, and what is not yet formed, say nothing about replicas.
            map.raise_epoch();
            map.shards.iter_mut().for_each(|record| record.is_formed = true);
            prop_assert_eq!(super::homes(&map), homes);
        }
    }
}
