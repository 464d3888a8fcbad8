//! The replicated state of the meta group.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use umbel_filter::HashRange;

use super::filter_name::FilterName;
use super::filter_record::FilterRecord;
use super::job::JobRecord;
use super::join_token::JoinToken;
use super::node_record::NodeRecord;
use super::principal::{Principal, PrincipalName};
use super::quota::Quota;
use super::session_key::SessionKey;
use super::settings::HashKey;
use super::version::ClusterVersion;
use crate::ids::{Epoch, FilterId, JobId, NodeId, ShardId};
use crate::placement::{ShardMap, ShardRanges, ShardRecord, Zones};

/// The complete state of the meta group, changed only by [`apply`](Self::apply). It is its own snapshot: a
/// state that was encoded with its version beside it, and decoded, behaves like the original. It contains
/// the secrets of hash keys; its `Debug` omits them.
///
/// ```
/// use umbel_engine::meta::{
///     Distribution, FilterName, FilterSettings, FilterState, HashKey, MetaCommand, MetaReply, MetaState,
/// };
/// use umbel_engine::shard::SliceShape;
/// use umbel_engine::{FilterId, NodeId};
///
/// let mut state = MetaState::new();
/// let nodes = vec![(NodeId(1), "a:7070".to_owned())];
/// state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 4, replica_count: 3 });
/// // One node, so one replica of the three that were asked for.
/// assert_eq!((state.shard_count(), state.replica_count(), state.replicas_wanted()), (4, 3, 1));
///
/// let settings = FilterSettings {
///     distribution: Distribution::Partitioned,
///     kind: umbel_filter::Kind::SingleShot.id(),
///     capacity: 1_000,
///     false_positive_rate: 0.01,
///     shape: SliceShape::SingleShot { position_count: 99_500 },
///     memory_bytes: 1_100,
///     key: HashKey::Xxh3 { seed: 0 },
/// };
/// let name = FilterName::new("crawl")?;
/// let create = MetaCommand::CreateFilter { name, settings, importing: false, owner: None };
/// let filter = FilterId(2);
/// assert_eq!(state.apply(2, &create), MetaReply::Filter(filter));
/// // The request came again.
/// assert_eq!(state.apply(3, &create), MetaReply::Filter(filter));
/// state.apply(4, &MetaCommand::FilterCreated { filter });
/// let (id, record) = state.filter_by_name("crawl").expect("it was created");
/// assert_eq!((id, record.state), (filter, FilterState::Live));
/// # Ok::<(), umbel_engine::meta::FilterNameError>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct MetaState {
    /// None until the cluster is formed.
    pub(super) cluster: Option<u128>,
    pub(super) replica_count: u32,
    pub(super) nodes: BTreeMap<NodeId, NodeRecord>,
    pub(super) shard_map: ShardMap,
    pub(super) filters: BTreeMap<FilterId, FilterRecord>,
    /// Excludes filters that are being dropped.
    pub(super) names: BTreeMap<FilterName, FilterId>,
    pub(super) jobs: BTreeMap<JobId, JobRecord>,
    pub(super) principals: BTreeMap<PrincipalName, Principal>,
    /// By the hash of their secrets.
    pub(super) join_tokens: BTreeMap<[u8; 32], JoinToken>,
    /// Quotas of principals; a principal without one has no limits.
    pub(super) quotas: BTreeMap<PrincipalName, Quota>,
    /// The cluster's quota, as it was set.
    pub(super) cluster_quota: Quota,
    /// How much memory members of the cluster may use, as far as they have reported it.
    pub(super) memory_limits: BTreeMap<NodeId, u64>,
    /// Number of cores of members of the cluster, as far as they have reported it.
    pub(super) core_counts: BTreeMap<NodeId, u32>,
    /// Whether shards are split automatically; None until a node has set it.
    pub(super) auto_split: Option<bool>,
    /// Zones of members of the cluster, as far as they have reported them.
    pub(super) zones: Zones,
    /// None until the first session is opened.
    pub(super) session_key: Option<SessionKey>,
    /// Stored beside the state in a snapshot: see [`at_version`](Self::at_version).
    #[serde(skip)]
    pub(super) version: ClusterVersion,
}

impl MetaState {
    /// The state before the first entry: not formed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the cluster is formed.
    #[must_use]
    pub const fn is_formed(&self) -> bool {
        self.cluster.is_some()
    }

    /// The cluster's random number, which never changes; None until it is formed.
    #[must_use]
    pub const fn cluster(&self) -> Option<u128> {
        self.cluster
    }

    /// Number of shards; 0 until the cluster is formed.
    #[must_use]
    pub fn shard_count(&self) -> u32 {
        self.shard_map.ranges().map_or(0, ShardRanges::count)
    }

    /// Number of shards there would be if all were as wide as the widest one; 0 until the cluster is
    /// formed.
    pub(super) fn widest_shard_count(&self) -> u32 {
        self.shard_map.ranges().map_or(0, |ranges| ranges.widest().get())
    }

    /// Requested number of replicas per shard.
    #[must_use]
    pub const fn replica_count(&self) -> u32 {
        self.replica_count
    }

    /// Number of replicas that every shard should have: the requested number, or the number of available
    /// nodes if that is smaller.
    #[must_use]
    pub fn replicas_wanted(&self) -> usize {
        self.available_nodes().len().min(self.replica_count as usize)
    }

    /// Version of the shard map and of the list of nodes.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.shard_map.epoch
    }

    /// The shards and their nodes.
    #[must_use]
    pub const fn shard_map(&self) -> &ShardMap {
        &self.shard_map
    }

    /// Every shard with its range of the hash space and its nodes, by number.
    pub fn shards(&self) -> impl Iterator<Item = (HashRange, &ShardRecord)> {
        let ranges = self.shard_map.shards.iter();
        ranges.filter_map(|record| Some((self.shard_map.range(record.shard)?, record)))
    }

    /// A shard's record, or None if there is no such shard.
    #[must_use]
    pub fn shard(&self, shard: ShardId) -> Option<&ShardRecord> {
        self.shard_map.get(shard)
    }

    /// Every node that was ever added, by number.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &NodeRecord)> {
        self.nodes.iter().map(|(&node, record)| (node, record))
    }

    /// A node's record; None if no node ever had this number.
    #[must_use]
    pub fn node(&self, node: NodeId) -> Option<&NodeRecord> {
        self.nodes.get(&node)
    }

    /// The address that a member of the cluster listens on.
    #[must_use]
    pub fn node_address(&self, node: NodeId) -> Option<&str> {
        self.node(node)?.address()
    }

    /// Whether the node is a member of the cluster.
    #[must_use]
    pub fn is_live(&self, node: NodeId) -> bool {
        self.node(node).is_some_and(NodeRecord::is_live)
    }

    /// The members of the cluster, whether or not they are reachable.
    #[must_use]
    pub fn live_nodes(&self) -> BTreeSet<NodeId> {
        self.nodes().filter(|(_, record)| record.is_live()).map(|(node, _)| node).collect()
    }

    /// The members that may have replicas: those that are not draining.
    #[must_use]
    pub fn available_nodes(&self) -> BTreeSet<NodeId> {
        self.nodes().filter(|(_, record)| record.is_available()).map(|(node, _)| node).collect()
    }

    /// The zones of members, as far as they have reported them.
    #[must_use]
    pub const fn zones(&self) -> &Zones {
        &self.zones
    }

    /// All filters by number, including those being dropped.
    pub fn filters(&self) -> impl Iterator<Item = (FilterId, &FilterRecord)> {
        self.filters.iter().map(|(&id, record)| (id, record))
    }

    /// A filter in any state; None if there is none.
    #[must_use]
    pub fn filter(&self, filter: FilterId) -> Option<&FilterRecord> {
        self.filters.get(&filter)
    }

    /// The filter that has this name, in any state except `Dropping`.
    #[must_use]
    pub fn filter_by_name(&self, name: &str) -> Option<(FilterId, &FilterRecord)> {
        let id = *self.names.get(name)?;
        Some((id, self.filters.get(&id)?))
    }

    /// The SipHash key with this id, if a filter has it: a key exists as long as its filters.
    #[must_use]
    pub fn key(&self, key_id: u64) -> Option<HashKey> {
        let has_name =
            |key: &HashKey| matches!(key, HashKey::SipHash { key_id: id, .. } if *id == key_id);
        self.filters.values().map(|filter| filter.settings.key).find(has_name)
    }

    /// The nodes that should vote in the meta group, sorted: an odd number, at most [`META_VOTERS_MAX`], of
    /// the available nodes that are `alive` or `current` voters. A voter that is not alive comes back with
    /// its log; another node that is not alive would begin to vote without having caught up. They are chosen
    /// one by one, preferring nodes that share their zone with the fewest voters chosen so far, then current
    /// voters, then nodes that are alive, then low numbers. If there are too few of them, current voters that
    /// are draining stay; without those, too, there may be fewer voters, and an even number. All other
    /// members of the cluster are learners.
    ///
    /// ```
    /// use std::collections::BTreeSet;
    /// use umbel_engine::NodeId;
    /// use umbel_engine::meta::{MetaCommand, MetaState};
    ///
    /// let mut state = MetaState::new();
    /// let nodes = (1..=4).map(|i| (NodeId(i), format!("node{i}:7070"))).collect();
    /// state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 1, replica_count: 1 });
    /// let mut alive: BTreeSet<_> = (1..=4).map(NodeId).collect();
    /// assert_eq!(state.meta_voters_wanted(&[NodeId(4)], &alive), [1, 2, 4].map(NodeId));
    /// alive.remove(&NodeId(1));
    /// assert_eq!(state.meta_voters_wanted(&[NodeId(4)], &alive), [2, 3, 4].map(NodeId));
    /// state.apply(2, &MetaCommand::Drain { node: NodeId(4), drain: true });
    /// // Node 4 votes until another one can.
    /// assert_eq!(state.meta_voters_wanted(&[NodeId(4)], &alive), [2, 3, 4].map(NodeId));
    /// alive.insert(NodeId(1));
    /// assert_eq!(state.meta_voters_wanted(&[NodeId(4)], &alive), [1, 2, 3].map(NodeId));
    /// ```
    #[must_use]
    pub fn meta_voters_wanted(&self, current: &[NodeId], alive: &BTreeSet<NodeId>) -> Vec<NodeId> {
        let available = self.available_nodes();
        let mut candidates = self.live_nodes();
        candidates.retain(|node| {
            current.contains(node) || available.contains(node) && alive.contains(node)
        });
        let most = available.len().min(META_VOTERS_MAX);
        // An even number tolerates no more failures than one voter less.
        let count = most - usize::from(most > 0 && most.is_multiple_of(2));
        let mut voters = Vec::with_capacity(count);
        while voters.len() < count {
            let left = candidates.iter().copied().filter(|node| !voters.contains(node));
            let next = left.min_by_key(|node| {
                let shared = self.zones.shared(*node, &voters);
                let (is_leaving, is_new) = (!available.contains(node), !current.contains(node));
                (is_leaving, shared, is_new, !alive.contains(node), *node)
            });
            let Some(next) = next else { break };
            voters.push(next);
        }
        // Where candidates ran out, the last one may be of no use. But the number does not fall for that: an
        // entry would be on fewer nodes when it counts as committed.
        if voters.len().is_multiple_of(2) && voters.len() > current.len() {
            voters.pop();
        }
        voters.sort_unstable();
        voters
    }
}

/// Most voters of the meta group: two may fail, and an entry waits for only two others.
pub const META_VOTERS_MAX: usize = 5;

/// Longest address of a node: a host name has at most 253 bytes, a port at most 5.
pub const NODE_ADDRESS_BYTES_MAX: usize = 253 + 1 + 5;
