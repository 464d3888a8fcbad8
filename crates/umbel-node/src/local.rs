//! This node as a member of the cluster: its groups, links and storage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::sync::watch;
use umbel_engine::liveness::Timing;
use umbel_engine::meta::{MetaState, NodeRecord, VersionRange};
use umbel_engine::placement::ShardRecord;
use umbel_engine::{Epoch, GroupId, NodeId, ShardId};
use umbel_filter::HashRange;
use umbel_jobs::JobHost;
use umbel_ports::{Net, Seed};
use umbel_raft::peer::{CallError, CallKind, Links, LocalIdentity};
use umbel_raft::{Beats, Group, GroupHost, RunningGroups, Witness};
use umbel_storage::Storage;

use crate::config::Config;
use crate::cube::Copies;
use crate::exports::Exports;
use crate::ledger_jobs::LedgerJobs;
use crate::metrics;
use crate::ports::Ports;
use crate::shard_leader::ShardLeader;
use crate::space::Space;
use crate::wall_clock::WallClock;

mod founding;
mod homes;
mod job_standing;
mod led_slices;
mod measure;
mod reach;
mod readiness;
pub(crate) mod release;
mod report;
mod serve;

use homes::Homes;
use readiness::Readiness;

/// Pause between checks whether the other founders of a shard run their replicas.
const FOUNDING_PAUSE: Duration = Duration::from_millis(20);

/// This node as a member of a cluster.
pub struct Local {
    cluster: u128,
    node: NodeId,
    config: Config,
    seed: Arc<dyn Seed>,
    clock: Arc<WallClock>,
    storage: Storage,
    host: Arc<GroupHost>,
    readiness: Readiness,
    homes: Homes,
    meta: Arc<Group>,
    shards: RwLock<BTreeMap<ShardId, Arc<ShardLeader>>>,
    space: Arc<Space>,
    exports: Arc<Exports>,
    copies: Arc<Copies>,
    jobs: LedgerJobs,
    net: Arc<dyn Net>,
    versions: VersionRange,
    /// Why the node must stop, once it must.
    failure: watch::Sender<Option<String>>,
    is_stopping: AtomicBool,
    /// The leader of each group at the last check.
    leaders_seen: Mutex<BTreeMap<GroupId, NodeId>>,
    /// Held while this node, as the meta group's leader, removes another one.
    removal: tokio::sync::Mutex<()>,
}

impl Local {
    /// Starts the meta group; shards on the disk are started later, according to the catalogue.
    ///
    /// First asks other nodes what they know of this one: those that the disk names as members of the
    /// meta group, and the founders. Only then does any replica take part.
    pub(crate) async fn start(
        identity: LocalIdentity,
        config: Config,
        ports: &Ports,
        (storage, witness): (Storage, Arc<Witness>),
        failure: watch::Sender<Option<String>>,
        jobs: Arc<JobHost>,
        founders: BTreeMap<NodeId, String>,
    ) -> Result<Arc<Self>, String> {
        let LocalIdentity { cluster, node } = identity;
        let clock = Arc::new(WallClock::new(Arc::clone(&ports.seed)));
        // Shards and copies decide by the time that is believed.
        let seed: Arc<dyn Seed> = Arc::clone(&clock) as _;
        let timing = Timing { beat_ms: config.heartbeat_ms, suspect_ms: config.suspect_ms };
        let outside = (Arc::clone(&ports.net), Arc::clone(&seed));
        let memory = (storage.clone(), witness);
        let host = GroupHost::start(identity, timing, outside, memory, founders).await?;
        let meta = host.start_meta(ports.versions).await?;
        let space = Space::new(config.disk_reserve_bytes);
        tokio::spawn(Arc::clone(&space).watch(Arc::clone(&ports.disk), storage.clone()));
        let recalled = Arc::clone(host.recollection());
        let copies =
            Copies::new(node, &config, storage.clone(), seed, Arc::clone(&space), recalled);
        Ok(Arc::new(Self {
            cluster,
            node,
            config,
            seed: Arc::clone(&ports.seed),
            clock,
            storage,
            host: Arc::new(host),
            readiness: Readiness::default(),
            homes: Homes::default(),
            meta,
            shards: RwLock::default(),
            space,
            exports: Exports::new(),
            copies: Arc::new(copies),
            jobs: LedgerJobs::new(jobs, ports),
            net: Arc::clone(&ports.net),
            versions: ports.versions,
            failure,
            is_stopping: AtomicBool::new(false),
            leaders_seen: Mutex::default(),
            removal: tokio::sync::Mutex::default(),
        }))
    }

    /// This node's number.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The cluster's identity.
    pub fn cluster(&self) -> u128 {
        self.cluster
    }

    /// This node's replica of the meta group.
    pub fn meta(&self) -> &Arc<Group> {
        &self.meta
    }

    /// Reads this node's copy of the catalogue and the shard map, formed or not.
    pub fn read_meta<T>(&self, read: impl FnOnce(&MetaState) -> T) -> T {
        self.meta.replica().read_meta(read)
    }

    /// This node's log and snapshots.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// This node's copies of replicated filters.
    pub fn copies(&self) -> &Copies {
        &self.copies
    }

    /// This node's part in the jobs of the ledger.
    pub fn jobs(&self) -> &LedgerJobs {
        &self.jobs
    }

    /// What the groups of this node share.
    pub(crate) fn host(&self) -> &Arc<GroupHost> {
        &self.host
    }

    pub(crate) fn links(&self) -> &Arc<Links> {
        self.host.links()
    }

    /// This node's failure detector.
    pub(crate) fn beats(&self) -> &Beats {
        self.host.beats()
    }

    /// This node's network.
    pub fn net(&self) -> &Arc<dyn Net> {
        &self.net
    }

    /// Cluster versions that this node supports.
    pub fn versions(&self) -> VersionRange {
        self.versions
    }

    /// This node's identity.
    pub fn identity(&self) -> LocalIdentity {
        LocalIdentity { cluster: self.cluster, node: self.node }
    }

    /// Another node's address, as far as this node knows.
    pub(crate) fn address_of(&self, node: NodeId) -> Option<String> {
        self.meta.replica().read_meta(|state| state.node_address(node).map(ToOwned::to_owned))
    }

    /// The addresses of the cluster's nodes, as far as this node knows.
    pub fn addresses(&self) -> BTreeMap<NodeId, String> {
        self.meta.replica().read_meta(|state| {
            let address =
                |(node, record): (NodeId, &NodeRecord)| Some((node, record.address()?.to_owned()));
            state.nodes().filter_map(address).collect()
        })
    }

    /// How often to check whether copies have something to send.
    pub(crate) fn sweep_interval(&self) -> Duration {
        Duration::from_millis(self.config.sweep_interval_ms)
    }

    /// Interval in which every copy is compared with a partner's; None for never.
    pub(crate) fn scrub_interval(&self) -> Option<Duration> {
        let seconds = self.config.scrub_interval_s;
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }

    /// Entropy and wall-clock time, as the machine has them.
    pub fn seed(&self) -> &dyn Seed {
        &*self.seed
    }

    /// The time by which filters and imports expire and windows forget, in milliseconds since 1970: that of the
    /// machine, unless its clock has jumped ahead within the last hour.
    pub fn believed_ms(&self) -> u64 {
        self.clock.believed_ms()
    }

    /// What judges the machine's clock.
    #[cfg(test)]
    pub(crate) fn clock(&self) -> &WallClock {
        &self.clock
    }

    pub(crate) fn log_bytes_max(&self) -> u64 {
        self.config.log_bytes_max
    }

    /// This node's replica of a shard.
    pub fn shard(&self, shard: ShardId) -> Option<Arc<ShardLeader>> {
        self.read_shards().get(&shard).cloned()
    }

    /// All shard replicas of this node.
    pub fn shards(&self) -> Vec<Arc<ShardLeader>> {
        self.read_shards().values().cloned().collect()
    }

    /// All groups of this node, the meta group first.
    pub fn groups(&self) -> Vec<Arc<Group>> {
        let shards = self.shards();
        let groups = shards.iter().map(|shard| shard.group());
        [&self.meta].into_iter().chain(groups).cloned().collect()
    }

    pub(crate) fn group(&self, group: GroupId) -> Option<Arc<Group>> {
        match group.shard() {
            None if group == GroupId::META => Some(Arc::clone(&self.meta)),
            None => None,
            Some(_) => Some(Arc::clone(self.leader_of(group)?.group())),
        }
    }

    /// This node's replica of a shard's group; None if it runs the shard's group of another era.
    pub(crate) fn leader_of(&self, group: GroupId) -> Option<Arc<ShardLeader>> {
        self.shard(group.shard()?).filter(|shard| shard.group().id() == group)
    }

    fn read_shards(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<ShardId, Arc<ShardLeader>>> {
        // No holder of the lock panics, and the map is consistent after every statement.
        self.shards.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls another node.
    pub(crate) async fn call(
        &self,
        node: NodeId,
        kind: CallKind,
        group: GroupId,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, CallError> {
        match self.address_of(node) {
            Some(address) if self.beats().is_suspected(node) => Err(CallError::Unreachable {
                node,
                address,
                cause: "the node is not heard any more".to_owned(),
                was_sent: false,
                is_refused: false,
            }),
            Some(address) => self.links().call(node, &address, kind, group, body, timeout).await,
            None => Err(CallError::Unreachable {
                node,
                address: "no address".to_owned(),
                cause: "the catalogue has no such node".to_owned(),
                was_sent: false,
                is_refused: false,
            }),
        }
    }

    /// Starts and stops replicas so that this node runs those that the shard map assigns to it; returns
    /// the map's epoch. `kept` are the groups that were on the disk before the map was brought up to
    /// date: later ones may belong to a shard that the map does not name yet.
    pub(crate) async fn follow_shard_map(self: &Arc<Self>, kept: &[GroupId]) -> Option<Epoch> {
        let (epoch, wanted, is_removed, version) = self.meta.replica().read_meta(|state| {
            let ranges = state.shard_map().ranges();
            let first_range = |shard| ranges.and_then(|ranges| ranges.first_range(shard));
            let wanted: BTreeMap<GroupId, (HashRange, ShardRecord)> = state
                .shards()
                .filter(|(_, record)| record.members().contains(&self.node))
                .filter(|(_, record)| self.may_start(state, record))
                .filter_map(|(_, record)| {
                    Some((record.group(), (first_range(record.shard)?, record.clone())))
                })
                .collect();
            let is_removed = matches!(state.node(self.node), Some(NodeRecord::Removed));
            (state.is_formed().then(|| state.epoch()), wanted, is_removed, state.version())
        });
        if is_removed {
            let node = self.node;
            self.fail(format!(
                "{node} was removed from the cluster; with an empty data folder it may join again"
            ));
            return None;
        }
        epoch?;
        let versions = self.versions;
        if version < versions.oldest {
            self.fail(format!(
                "the cluster is at {version}, and this release runs clusters of {versions}: start the release that \
                 this node had, raise the cluster's version with it (umbel cluster upgrade), then start this one"
            ));
            return None;
        }
        let running: BTreeSet<GroupId> =
            self.shards().iter().map(|shard| shard.group().id()).collect();
        // The running replicas, and those that an earlier process left on the disk.
        let kept = kept.iter().copied().filter(|group| group.shard().is_some());
        let held: BTreeSet<GroupId> = running.iter().copied().chain(kept).collect();
        for &group in held.iter().filter(|&group| !wanted.contains_key(group)) {
            self.stop_shard(group).await;
        }
        if wanted.keys().any(|group| !running.contains(group)) {
            // Nodes that were down when the meta group started may be up now.
            if let Err(why) = self.host.ask_again(self.addresses()).await {
                self.fail(why);
                return None;
            }
        }
        for (&group, (range, record)) in &wanted {
            if !running.contains(&group)
                && let Err(why) = self.start_shard(group, *range, record).await
            {
                self.fail(format!("{group} does not start: {why}"));
                return None;
            }
        }
        epoch
    }

    /// Whether a replica of this node may start. The replica of a shard that is being split off may
    /// start only from the part that was split off on this node, until other nodes have that and have
    /// elected a leader, which sends it.
    fn may_start(&self, state: &MetaState, record: &ShardRecord) -> bool {
        let is_split_off = state.shard_map().splitting() == Some(record.shard);
        !is_split_off || self.storage.has_seen(record.group())
    }

    async fn start_shard(
        self: &Arc<Self>,
        id: GroupId,
        range: HashRange,
        record: &ShardRecord,
    ) -> Result<(), String> {
        let shard = record.shard;
        let group = self.host.start_shard(id, range).await?;
        // Members that are added later are added by the group's leader.
        if !record.is_formed && record.founders.contains(&self.node) {
            let local = Arc::clone(self);
            tokio::spawn(local.found_shard(shard, Arc::clone(&group), record.founders.clone()));
        }
        let queue = usize::try_from(self.config.queue_items_max).unwrap_or(usize::MAX);
        let leader = ShardLeader::start(
            self.node,
            group,
            queue,
            Arc::clone(&self.space),
            Arc::clone(&self.exports),
            Arc::clone(self.links()),
        );
        self.shards.write().unwrap_or_else(PoisonError::into_inner).insert(shard, leader);
        tracing::info!(%shard, "replica started");
        Ok(())
    }

    /// Stops a replica that has moved elsewhere, or was absorbed by its neighbour, and forgets it, except
    /// for its promises.
    async fn stop_shard(&self, group: GroupId) {
        let stopped = {
            let mut shards = self.shards.write().unwrap_or_else(PoisonError::into_inner);
            let is_it = |leader: &Arc<ShardLeader>| leader.group().id() == group;
            let shard = group.shard().filter(|shard| shards.get(shard).is_some_and(is_it));
            shard.and_then(|shard| shards.remove(&shard))
        };
        if let Some(stopped) = stopped {
            stopped.group().shut_down().await;
        }
        if let Err(error) = self.storage.leave(group).await {
            self.fail(format!("{group} cannot be forgotten: {error}"));
        }
        tracing::info!(%group, "replica left this node");
    }

    /// Reports that the node cannot continue.
    pub(crate) fn fail(&self, why: String) {
        tracing::error!(why, "the node stops");
        self.failure.send_if_modified(|failure| {
            let is_first = failure.is_none();
            failure.get_or_insert(why);
            is_first
        });
    }

    /// Checks for groups that stopped by themselves, ends what nobody continues, and updates the metrics.
    pub(crate) fn look_after_groups(&self) {
        let shards = self.shards();
        let groups = shards.iter().map(|shard| shard.group()).chain([&self.meta]);
        let mut leaders = self.leaders_seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut change_count = 0;
        for group in groups {
            group.drop_idle_snapshots();
            if let Some(why) = group.failure() {
                self.fail(format!("{} stopped: {why}", group.id()));
            }
            if let Some(leader) = group.leader() {
                let before = leaders.insert(group.id(), leader);
                change_count += u64::from(before.is_some_and(|before| before != leader));
            }
        }
        drop(leaders);
        let members: BTreeSet<NodeId> = self.addresses().into_keys().collect();
        if !members.is_empty() {
            self.host.retain_members(&members);
        }
        metrics::leaders_changed(change_count);
        self.measure(&shards);
    }

    /// Hands leadership over, and stops all groups.
    pub(crate) async fn shut_down(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let shards = self.shards();
        let groups: Vec<&Arc<Group>> =
            shards.iter().map(|shard| shard.group()).chain([&self.meta]).collect();
        for group in &groups {
            group.hand_over().await;
        }
        let timeout = self.beats().suspicion();
        join_all(groups.iter().map(|group| group.handed_over(timeout))).await;
        for group in groups {
            group.shut_down().await;
        }
        self.copies.shut_down();
        self.storage.close().await;
    }
}

impl RunningGroups for Local {
    fn groups(&self) -> Vec<Arc<Group>> {
        self.groups()
    }

    fn group(&self, id: GroupId) -> Option<Arc<Group>> {
        self.group(id)
    }

    fn addresses(&self) -> BTreeMap<NodeId, String> {
        self.addresses()
    }

    fn homes(&self) -> Arc<BTreeMap<GroupId, NodeId>> {
        self.read_meta(|state| self.homes.of(state))
    }

    fn fail(&self, why: String) {
        self.fail(why);
    }
}
