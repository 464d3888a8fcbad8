//! This node as a member of the cluster: its groups, copies and storage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use umbel_engine::liveness::Timing;
use umbel_engine::meta::{MetaState, NodeRecord, VersionRange};
use umbel_engine::{GroupId, NodeId, ShardId};
use umbel_jobs::JobHost;
use umbel_ports::{Net, Seed, locked};
use umbel_raft::peer::{Links, LocalIdentity};
use umbel_raft::{Beats, Group, GroupHost, GroupMemory, HostError, RunningGroups};
use umbel_storage::Storage;

use crate::config::Config;
use crate::cube::Copies;
use crate::exports::Exports;
use crate::ledger_jobs::LedgerJobs;
use crate::member::Member;
use crate::metrics;
use crate::node_failure::NodeFailure;
use crate::ports::Ports;
use crate::shard_leader::{InsertsInProgress, ShardLeader};
use crate::space::Space;
use crate::wall_clock::WallClock;

mod clocks;
mod expiries;
mod founding;
mod homes;
mod job_standing;
mod led_slices;
mod measure;
mod readiness;
pub(crate) mod release;
mod replicas;
mod report;
mod serve;

use clocks::Clocks;
use expiries::Expiries;
use homes::Homes;
use readiness::Checks;

pub use readiness::Readiness;

/// Pause between checks whether the other founders of a shard run their replicas. Callers wait meanwhile if the shard is
/// the upper half of another one.
const FOUNDING_PAUSE: Duration = Duration::from_millis(10);

/// This node as a member of a cluster.
pub struct Local {
    member: Arc<Member>,
    node: NodeId,
    config: Config,
    clock: Arc<WallClock>,
    /// How far the clocks of other nodes are from the machine's.
    clocks: Clocks,
    expiries: Expiries,
    storage: Storage,
    host: Arc<GroupHost>,
    checks: Checks,
    homes: Homes,
    meta: Arc<Group>,
    /// The replicas of shards that this node runs.
    shards: watch::Sender<BTreeMap<ShardId, Arc<ShardLeader>>>,
    space: Arc<Space>,
    inserts: Arc<InsertsInProgress>,
    pub(crate) exports: Arc<Exports>,
    copies: Arc<Copies>,
    jobs: LedgerJobs,
    versions: VersionRange,
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
        memory: GroupMemory,
        failure: watch::Sender<Option<NodeFailure>>,
        jobs: Arc<JobHost>,
        founders: BTreeMap<NodeId, String>,
    ) -> Result<Arc<Self>, HostError> {
        let clock = Arc::new(WallClock::new(Arc::clone(&ports.seed)));
        // Shards and copies decide by the time that is believed.
        let seed: Arc<dyn Seed> = Arc::clone(&clock) as _;
        let timing = Timing { beat_ms: config.heartbeat_ms, suspect_ms: config.suspect_ms };
        let (net, storage) = (Arc::clone(&ports.net), memory.storage.clone());
        let move_rate = config.move_bytes_per_second_max;
        let host =
            GroupHost::start(identity, timing, net, Arc::clone(&seed), memory, founders, move_rate);
        let host = Arc::new(host.await?);
        let meta = host.start_meta(ports.versions).await?;
        let member = Member::new(identity, ports, Arc::clone(&host), Arc::clone(&meta), failure);
        let member = Arc::new(member);
        let space = Space::new(config.disk_reserve_bytes);
        tokio::spawn(Arc::clone(&space).watch(Arc::clone(&ports.disk), storage.clone()));
        let recalled = Arc::clone(host.recollection());
        let copies = Copies::new(
            Arc::clone(&member),
            &config,
            storage.clone(),
            seed,
            Arc::clone(&space),
            recalled,
        );
        Ok(Arc::new(Self {
            member,
            node: identity.node,
            config,
            clock,
            clocks: Clocks::default(),
            expiries: Expiries::default(),
            storage,
            host,
            checks: Checks::default(),
            homes: Homes::default(),
            meta,
            shards: watch::Sender::default(),
            space,
            inserts: Arc::default(),
            exports: Exports::new(),
            copies: Arc::new(copies),
            jobs: LedgerJobs::new(jobs, ports),
            versions: ports.versions,
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
        self.member.identity().cluster
    }

    /// This node's replica of the meta group.
    pub fn meta(&self) -> &Arc<Group> {
        &self.meta
    }

    /// Reads this node's copy of the catalogue and the shard map, formed or not.
    pub fn read_meta<T>(&self, read: impl FnOnce(&MetaState) -> T) -> T {
        self.member.read_meta(read)
    }

    /// This node's log and snapshots.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// This node's copies of replicated filters.
    pub fn copies(&self) -> &Arc<Copies> {
        &self.copies
    }

    /// This node's part in the jobs of the ledger.
    pub fn jobs(&self) -> &LedgerJobs {
        &self.jobs
    }

    /// This node without its shards and copies.
    pub(crate) fn member(&self) -> &Member {
        &self.member
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

    /// Whether another node is heard, by its beats.
    pub fn is_alive(&self, node: NodeId) -> bool {
        self.beats().is_alive(node)
    }

    /// Waits until another node is not heard any more; of one that was never heard, for as long as a node may be silent.
    pub fn until_silent(&self, node: NodeId) -> impl Future<Output = ()> {
        self.beats().until_silent(node)
    }

    /// This node's network.
    pub fn net(&self) -> &Arc<dyn Net> {
        self.member.net()
    }

    /// Cluster versions that this node supports.
    pub fn versions(&self) -> VersionRange {
        self.versions
    }

    /// This node's identity.
    pub fn identity(&self) -> LocalIdentity {
        self.member.identity()
    }

    /// The addresses of the cluster's nodes, as far as this node knows.
    pub fn addresses(&self) -> BTreeMap<NodeId, String> {
        self.read_meta(|state| {
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
        self.member.seed()
    }

    /// The time by which filters and imports expire and windows forget, in milliseconds since 1970: that of the
    /// machine, unless its clock has jumped ahead within the last hour.
    pub fn believed_ms(&self) -> u64 {
        self.clock.believed_ms()
    }

    /// The time from which a term counts until something expires, in milliseconds since 1970: `believed_ms`, unless the
    /// clock has jumped back within the last hour.
    pub fn term_start_ms(&self) -> u64 {
        self.clock.term_start_ms()
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
        self.shards.borrow().get(&shard).cloned()
    }

    /// All shard replicas of this node.
    pub fn shards(&self) -> Vec<Arc<ShardLeader>> {
        self.shards.borrow().values().cloned().collect()
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

    /// Returns once this node's replica of a group knows another leader than the node that was tried, or that one in
    /// a later term. Waits for a replica that does not run yet, for ever if it never will.
    pub(crate) async fn leader_learned(&self, group: GroupId, tried: NodeId) {
        let mut shards = self.shards.subscribe();
        let replica = loop {
            if let Some(replica) = self.group(group) {
                break replica;
            }
            // The sender is this node's.
            let _ = shards.changed().await;
        };
        replica.leader_other_than(tried).await;
    }

    /// Reports that the node cannot continue.
    pub(crate) fn fail(&self, why: impl Into<NodeFailure>) {
        self.member.fail(why.into());
    }

    /// Checks for groups that stopped by themselves, ends what nobody continues, and updates the metrics.
    pub(crate) fn look_after_groups(&self) {
        let shards = self.shards();
        let groups = shards.iter().map(|shard| shard.group()).chain([&self.meta]);
        let mut leaders = locked(&self.leaders_seen);
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

    /// Whether this node is stopping, and no other voter of this group can lead it: then no call of the group is answered
    /// any more.
    pub(crate) fn stops_alone(&self, group: GroupId) -> bool {
        let can_lead = |&node: &NodeId| node != self.node && !self.beats().is_suspected(node);
        self.is_stopping.load(Ordering::Relaxed)
            && self.group(group).is_some_and(|group| !group.view().voters.iter().any(can_lead))
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

    fn fail_as_removed(&self, why: String) {
        self.fail(NodeFailure::Removed(why));
    }
}
