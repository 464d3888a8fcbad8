//! Which nodes have replicas of which shard.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use umbel_filter::HashRange;

use super::shard_ranges::ShardRanges;
use crate::ids::{Epoch, GroupId, NodeId, ShardId};

/// All shards of a cluster with their nodes. Their hash ranges follow from [`ShardRanges`], so they tile
/// the hash space and are not stored.
///
/// ```
/// use umbel_engine::placement::{ShardMap, ShardRecord};
/// use umbel_engine::{NodeId, ShardId};
///
/// let map = ShardMap::new(vec![
///     ShardRecord::founded(vec![NodeId(1), NodeId(2)]),
///     ShardRecord::founded(vec![NodeId(2), NodeId(3)]),
/// ]);
/// assert_eq!(map.shard_of(1 << 63), Some(ShardId(1)));
/// assert_eq!(map.range(ShardId(1)).map(|range| range.start()), Some(1 << 63));
/// assert_eq!(map.members(ShardId(0)), [NodeId(1), NodeId(2)]);
/// assert_eq!(map.replica_counts().get(&NodeId(2)), Some(&2));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ShardMap {
    /// Rises with every change of replicas, targets or nodes; 0 before the cluster is formed.
    pub epoch: Epoch,
    /// By shard number; empty before the cluster is formed.
    pub shards: Vec<ShardRecord>,
    /// Number of shards with which the cluster was founded; 0 before that.
    pub founded: u32,
    /// Number of merges that the cluster has done. Not encoded, because snapshots from before merges have
    /// no room for it ([`MetaSince3`](crate::meta::MetaSince3)).
    #[serde(skip)]
    pub merge_count: u32,
    /// The epoch at which the merge of the last shard into its parent, the shard that it was split from,
    /// began; None if no merge is under way. Not encoded, like `merge_count`.
    #[serde(skip)]
    pub merging_since: Option<Epoch>,
    /// The last merge, if it was given up. Not encoded, like `merge_count`.
    #[serde(skip)]
    pub given_up: Option<GivenUpMerge>,
}

/// A merge that was given up, because slices of the two shards could not become one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GivenUpMerge {
    /// The shard that was to be merged, and stays.
    pub shard: ShardId,
    /// The epoch at which the merge began.
    pub since: Epoch,
    /// The reason.
    pub what: String,
}

/// The nodes of one shard.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShardRecord {
    /// The shard.
    pub shard: ShardId,
    /// The nodes that form the group: each of them starts it with all of them as voters, until it is
    /// formed.
    pub founders: Vec<NodeId>,
    /// Whether the group has had a leader; if so, it need not be formed any more.
    pub is_formed: bool,
    /// The group's voters as last confirmed, sorted.
    pub replicas: Vec<NodeId>,
    /// The voters to which the group is being changed, sorted; None if no change is under way.
    pub target: Option<Vec<NodeId>>,
    /// Nodes of earlier targets that were replaced before they were reached, sorted. The group may have
    /// made them voters, so they keep running it until it reaches its target.
    pub abandoned: Vec<NodeId>,
    /// Number of merges that the cluster had done when the shard was made. Not encoded, like
    /// [`ShardMap::merge_count`].
    #[serde(skip)]
    pub era: u32,
}

impl ShardRecord {
    /// A shard whose group is not formed yet. Sorts the nodes; [`ShardMap::new`] sets the number.
    #[must_use]
    pub fn founded(mut founders: Vec<NodeId>) -> Self {
        founders.sort_unstable();
        Self {
            shard: ShardId(0),
            replicas: founders.clone(),
            founders,
            is_formed: false,
            target: None,
            abandoned: Vec::new(),
            era: 0,
        }
    }

    /// The shard's Raft group.
    ///
    /// ```
    /// use umbel_engine::placement::ShardRecord;
    /// use umbel_engine::{GroupId, NodeId, ShardId};
    ///
    /// let record = ShardRecord { era: 2, ..ShardRecord::founded(vec![NodeId(1)]) };
    /// assert_eq!(record.group(), GroupId::of_shard_in(ShardId(0), 2));
    /// ```
    #[must_use]
    pub const fn group(&self) -> GroupId {
        GroupId::of_shard_in(self.shard, self.era)
    }

    /// The voters that the group should have: the target, or the replicas if no change is under way.
    #[must_use]
    pub fn wanted(&self) -> &[NodeId] {
        self.target.as_deref().unwrap_or(&self.replicas)
    }

    /// The nodes that run the group, sorted: current voters, future voters, and nodes of abandoned targets.
    #[must_use]
    pub fn members(&self) -> Vec<NodeId> {
        let mut members = self.replicas.clone();
        members.extend_from_slice(self.target.as_deref().unwrap_or_default());
        members.extend_from_slice(&self.abandoned);
        members.sort_unstable();
        members.dedup();
        members
    }

    /// Starts a change to other voters. Returns whether anything changed.
    pub(crate) fn plan(&mut self, target: &[NodeId]) -> bool {
        if self.wanted() == target {
            return false;
        }
        if let Some(replaced) = self.target.replace(target.to_vec()) {
            self.abandoned.extend(replaced);
            self.abandoned.sort_unstable();
            self.abandoned.dedup();
        }
        true
    }

    /// Records that the target has been reached.
    pub(crate) fn arrive(&mut self) {
        if let Some(target) = self.target.take() {
            self.replicas = target;
            self.abandoned = Vec::new();
        }
    }
}

impl ShardMap {
    /// A map of these shards, numbered from 0 in their order, at epoch 1.
    #[must_use]
    pub fn new(mut shards: Vec<ShardRecord>) -> Self {
        for (number, record) in (0..).zip(&mut shards) {
            record.shard = ShardId(number);
        }
        let founded = u32::try_from(shards.len()).unwrap_or(u32::MAX);
        Self {
            epoch: Epoch(1),
            shards,
            founded,
            merge_count: 0,
            merging_since: None,
            given_up: None,
        }
    }

    /// The ranges into which the hash space is cut, or None before the cluster is formed.
    #[must_use]
    pub fn ranges(&self) -> Option<ShardRanges> {
        let count = u32::try_from(self.shards.len()).ok()?;
        let ranges = ShardRanges::new(self.founded, count).ok()?;
        Some(ranges.with_merge_count(self.merge_count))
    }

    /// A shard's range of the hash space, or None if there is no such shard.
    #[must_use]
    pub fn range(&self, shard: ShardId) -> Option<HashRange> {
        self.ranges()?.range(shard)
    }

    /// The shard that contains a position of the hash space, or None before the cluster is formed.
    #[must_use]
    pub fn shard_of(&self, hi: u64) -> Option<ShardId> {
        self.ranges().map(|ranges| ranges.shard_of(hi))
    }

    /// The shard that is being split off: the last one, until its group has had a leader.
    #[must_use]
    pub fn splitting(&self) -> Option<ShardId> {
        let last = self.shards.last().filter(|record| !record.is_formed)?;
        self.ranges()?.parent(last.shard).map(|_| last.shard)
    }

    /// The ranges before the split in progress, which the shards have until it is carried out; None if there is none.
    #[must_use]
    pub fn unsplit_ranges(&self) -> Option<ShardRanges> {
        let ranges = ShardRanges::new(self.founded, self.splitting()?.0).ok()?;
        Some(ranges.with_merge_count(self.merge_count))
    }

    /// The shard that is being split in two, if any.
    #[must_use]
    pub fn halved(&self) -> Option<ShardId> {
        self.ranges()?.parent(self.splitting()?)
    }

    /// The shard that is being merged into its parent and will be gone then: the last one, if any.
    #[must_use]
    pub fn merging(&self) -> Option<ShardId> {
        let last = self.shards.last().filter(|_| self.merging_since.is_some())?;
        self.ranges()?.parent(last.shard).map(|_| last.shard)
    }

    /// The shard into which another one is being merged, if any.
    #[must_use]
    pub fn absorbing(&self) -> Option<ShardId> {
        self.ranges()?.parent(self.merging()?)
    }

    /// Adds the next shard, which starts on the nodes of its parent. None if no further split is possible.
    pub(crate) fn split(&mut self) -> Option<ShardId> {
        let ranges = self.ranges()?.split()?;
        let shard = ShardId(ranges.count() - 1);
        let founders = self.get(ranges.parent(shard)?)?.replicas.clone();
        let era = self.merge_count;
        self.shards.push(ShardRecord { shard, era, ..ShardRecord::founded(founders) });
        self.raise_epoch();
        Some(shard)
    }

    /// Begins to merge the last shard into its parent, if it has one and that is not under way yet.
    /// Returns whether anything changed.
    pub(crate) fn begin_merge(&mut self) -> bool {
        if self.merging_since.is_some() || self.ranges().and_then(ShardRanges::merge).is_none() {
            return false;
        }
        self.raise_epoch();
        (self.merging_since, self.given_up) = (Some(self.epoch), None);
        true
    }

    /// Ends the merge that began at an epoch without merging anything. Returns whether it was under way.
    pub(crate) fn give_up_merge(&mut self, since: Epoch, what: String) -> bool {
        let Some(shard) = self.merging().filter(|_| self.merging_since == Some(since)) else {
            return false;
        };
        self.merging_since = None;
        self.given_up = Some(GivenUpMerge { shard, since, what });
        self.raise_epoch();
        true
    }

    /// Removes the shard that is being merged: its parent now has all of its range. Returns the shard and
    /// its parent, or None if no merge is under way.
    pub(crate) fn merged(&mut self) -> Option<(ShardId, ShardId)> {
        let (from, into) = (self.merging()?, self.absorbing()?);
        self.shards.pop();
        self.merging_since = None;
        self.merge_count = self.merge_count.saturating_add(1);
        self.raise_epoch();
        Some((from, into))
    }

    /// A shard's record, or None if there is no such shard.
    #[must_use]
    pub fn get(&self, shard: ShardId) -> Option<&ShardRecord> {
        self.shards.get(usize::try_from(shard.0).ok()?)
    }

    pub(crate) fn get_mut(&mut self, shard: ShardId) -> Option<&mut ShardRecord> {
        self.shards.get_mut(usize::try_from(shard.0).ok()?)
    }

    /// The nodes that run the shard's group, sorted; empty if there is no such shard.
    #[must_use]
    pub fn members(&self, shard: ShardId) -> Vec<NodeId> {
        self.get(shard).map(ShardRecord::members).unwrap_or_default()
    }

    /// The shards whose groups a node runs, in order.
    #[cfg(test)]
    pub(crate) fn shards_of(&self, node: NodeId) -> impl Iterator<Item = ShardId> + '_ {
        self.shards
            .iter()
            .filter(move |record| record.members().binary_search(&node).is_ok())
            .map(|record| record.shard)
    }

    /// The number of replicas of each node, counting future ones instead of current ones where a change is
    /// under way. Nodes without replicas are left out.
    #[must_use]
    pub fn replica_counts(&self) -> BTreeMap<NodeId, usize> {
        let mut counts = BTreeMap::new();
        for node in self.shards.iter().flat_map(ShardRecord::wanted) {
            *counts.entry(*node).or_default() += 1;
        }
        counts
    }

    pub(crate) fn raise_epoch(&mut self) {
        self.epoch.0 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(numbers: &[u64]) -> Vec<NodeId> {
        numbers.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn members_are_all_that_may_vote() {
        let mut record = ShardRecord::founded(nodes(&[3, 1, 2]));
        assert_eq!((record.wanted(), record.members()), (&*nodes(&[1, 2, 3]), nodes(&[1, 2, 3])));
        assert!(!record.plan(&nodes(&[1, 2, 3])));
        assert!(record.plan(&nodes(&[1, 2, 4])));
        assert!(!record.plan(&nodes(&[1, 2, 4])));
        assert_eq!(record.members(), nodes(&[1, 2, 3, 4]));
        // Node 4 may already be a voter when the plan changes, so it keeps running the group.
        assert!(record.plan(&nodes(&[1, 2, 5])));
        assert_eq!(record.members(), nodes(&[1, 2, 3, 4, 5]));
        record.arrive();
        assert_eq!((record.target.clone(), record.members()), (None, nodes(&[1, 2, 5])));
    }

    #[test]
    fn a_plan_can_be_taken_back() {
        let mut record = ShardRecord::founded(nodes(&[1]));
        assert!(record.plan(&nodes(&[2])));
        assert!(record.plan(&nodes(&[1])));
        assert_eq!((record.members(), record.wanted()), (nodes(&[1, 2]), &*nodes(&[1])));
        record.arrive();
        assert_eq!(record.members(), nodes(&[1]));
    }

    #[test]
    fn an_empty_map_has_nothing() {
        let map = ShardMap::default();
        assert_eq!((map.epoch, map.ranges(), map.shard_of(5)), (Epoch(0), None, None));
        assert_eq!((map.range(ShardId(0)), map.members(ShardId(0))), (None, vec![]));
    }

    #[test]
    fn a_shard_that_is_cut_off_begins_where_its_parent_is() {
        let mut map = ShardMap::new(vec![
            ShardRecord { is_formed: true, ..ShardRecord::founded(nodes(&[1, 2])) },
            ShardRecord { is_formed: true, ..ShardRecord::founded(nodes(&[3])) },
        ]);
        assert_eq!((map.splitting(), map.unsplit_ranges()), (None, None));
        let before = map.ranges();
        assert_eq!((map.split(), map.splitting()), (Some(ShardId(2)), Some(ShardId(2))));
        assert_eq!(map.unsplit_ranges(), before);
        assert_eq!((map.epoch, map.members(ShardId(2))), (Epoch(2), nodes(&[1, 2])));
        assert_eq!(map.shard_of(1 << 62), Some(ShardId(2)));
        map.get_mut(ShardId(2)).unwrap().is_formed = true;
        assert_eq!((map.splitting(), map.split()), (None, Some(ShardId(3))));
        assert_eq!(map.members(ShardId(3)), nodes(&[3]));
    }

    #[test]
    fn a_merge_undoes_a_split_and_the_next_split_makes_another_group() {
        let formed = |nodes| ShardRecord { is_formed: true, ..ShardRecord::founded(nodes) };
        let mut map = ShardMap::new(vec![formed(nodes(&[1, 2])), formed(nodes(&[3]))]);
        // No shard was split off.
        assert!(!map.begin_merge() && map.merged().is_none() && map.epoch == Epoch(1));
        let before = map.clone();
        map.split();
        map.get_mut(ShardId(2)).unwrap().is_formed = true;
        let first = map.get(ShardId(2)).unwrap().group();
        assert_eq!((map.merging(), map.absorbing(), map.merged()), (None, None, None));
        assert!(map.begin_merge() && !map.begin_merge());
        assert_eq!((map.merging(), map.absorbing()), (Some(ShardId(2)), Some(ShardId(0))));
        assert_eq!((map.splitting(), map.halved(), map.epoch), (None, None, Epoch(3)));
        assert_eq!(map.merged(), Some((ShardId(2), ShardId(0))));
        assert_eq!((&map.shards, map.epoch, map.merge_count), (&before.shards, Epoch(4), 1));
        assert_eq!((map.merging(), map.splitting(), map.merged()), (None, None, None));
        assert_ne!(map.ranges(), before.ranges());
        assert_eq!(map.split(), Some(ShardId(2)));
        let second = map.get(ShardId(2)).unwrap().group();
        assert_eq!((first.shard(), first.era()), (second.shard(), 0));
        assert_eq!(format!("{second}, {second:#}"), "shard 2, shard 2 (made after 1 merge)");
        // The others are the groups that they were.
        assert_eq!(map.shards[..2], before.shards);
    }
}
