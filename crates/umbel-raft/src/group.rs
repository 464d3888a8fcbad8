//! One Raft group on this node: proposals, confirmed reads, members.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use openraft::RaftMetrics;
use openraft::errors::{ClientWriteError, Fatal, RaftError};
use openraft::raft::ClientWriteResult;
use openraft::type_config::alias::WatchReceiverOf;
use openraft_rt::WatchReceiver;
use tokio::sync::{mpsc, oneshot};
use umbel_engine::meta::GroupView;
use umbel_engine::shard::ShardOwner;
use umbel_engine::{GroupId, NodeId};
use umbel_ports::{Purpose, Rare, Seed};
use umbel_step::planted::{self, Planted};
use umbel_storage::observer::Event;
use umbel_storage::types::{
    CommandReply, LogCommand, LogId, NodeAddress, OnComplete, Runtime, StorageFault, Types,
};
use umbel_storage::{FinalStateId, LogStore, Storage};

use crate::beats::Beats;
use crate::network::{Network, SnapshotReceiver};
use crate::state_machine::{GroupReplica, StateMachine};

mod calls;
mod elections;
mod members;
mod reads;
mod report;

use reads::{ConfirmedReads, Reader};

pub use report::GroupReport;

/// Pauses of a leader between tries to send entries to a node that does not answer, from the first to the longest. A node that
/// has just started waits for one of them, and does not serve its shards before. A try costs nothing while the link is down.
const REPLICATION_PAUSES: &str = "50ms ...200ms";

/// Milliseconds without a response from a majority after which openraft lets a leader accept no
/// proposals. Long, because the failure detector knows better, and in a quiet group the only responses
/// are those to heartbeats, twice a minute.
const LEASE_MS: u64 = 600_000;

/// Entries that a snapshot covers but that stay in the log, so that a follower that lags a little needs
/// no snapshot.
const ENTRIES_BEHIND_SNAPSHOT: u64 = 64;

/// The same if a simulation asks for frequent snapshots.
const ENTRIES_BEHIND_PROVOKED_SNAPSHOT: u64 = 4;

/// Entries applied since the last snapshot after which the next one is due, if a simulation asks for
/// frequent ones.
const ENTRIES_OF_PROVOKED_SNAPSHOT: u64 = 64;

/// How long to wait for a requested snapshot before requesting it again.
const SNAPSHOT_PAUSE: Duration = Duration::from_millis(100);

/// Why a proposal has no result.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProposeError {
    /// Nothing was appended. The caller should send the proposal to the leader, if one is given.
    #[error("not the leader")]
    NotLeader(Option<NodeId>),
    /// The leader changed after the entry was appended: the entry may or may not have been applied.
    #[error("the leader changed; the outcome is unknown")]
    Unknown(Option<NodeId>),
    /// The group stopped on this node; whether the entry was applied elsewhere is unknown.
    #[error("{0}")]
    Stopped(String),
}

/// A Raft group's replica that runs on this node.
pub struct Group {
    id: GroupId,
    raft: openraft::Raft<Types, StateMachine>,
    replica: Arc<GroupReplica>,
    log: LogStore,
    storage: Storage,
    barrier: mpsc::Sender<Reader>,
    seed: Arc<dyn Seed>,
    incoming: SnapshotReceiver,
    network: Network,
    beats: Arc<Beats>,
    /// What this replica had applied when it was first seen that it had decided about a final state.
    decided_at: Mutex<BTreeMap<FinalStateId, u64>>,
    /// True from the request for a leadership transfer until this node is no longer the leader.
    is_handing_over: AtomicBool,
}

impl Group {
    /// Starts the group from its state on disk.
    pub(crate) async fn start(
        id: GroupId,
        node: NodeId,
        replica: GroupReplica,
        storage: &Storage,
        network: Network,
        seed: Arc<dyn Seed>,
        beats: Arc<Beats>,
    ) -> Result<Arc<Self>, String> {
        let entries_kept = if seed.provokes(Rare::SnapshotsOften) {
            ENTRIES_BEHIND_PROVOKED_SNAPSHOT
        } else {
            ENTRIES_BEHIND_SNAPSHOT
        };
        let log = storage.log(id);
        let config = raft_config(id, &beats, entries_kept);
        let config = Arc::new(config.validate().map_err(|error| error.to_string())?);
        let replica = Arc::new(replica);
        let observer = storage.observer().cloned();
        log.observe_opened(node);
        let opened = StateMachine::open(Arc::clone(&replica), storage.clone()).await;
        let opened = match opened {
            Ok(_) if replica.first_unapplied() < log.first_index() => {
                Err(storage.snapshots(id).missing(log.first_index()))
            }
            opened => opened,
        };
        let machine = opened.map_err(|error| {
            let what = format!("{id}: {error}");
            if let Some(observer) = observer
                && error.kind() == io::ErrorKind::InvalidData
            {
                observer.observe(&Event::DamageFound { what: &what });
            }
            what
        })?;
        let raft = Runtime::scope(
            seed.number(Purpose::Election),
            openraft::Raft::new(node, config, network.clone(), log.clone(), machine),
        )
        .await
        .map_err(|error| format!("{id}: {}", reason_of(&error)))?;
        network.follow_members(raft.metrics());
        let reads = ConfirmedReads::new(id, &raft, &log, &replica, &network);
        let barrier = reads.start(beats.election());
        let incoming = SnapshotReceiver::new(storage.snapshots(id));
        Ok(Arc::new(Self {
            id,
            raft,
            replica,
            log,
            storage: storage.clone(),
            barrier,
            seed,
            incoming,
            network,
            beats,
            decided_at: Mutex::default(),
            is_handing_over: AtomicBool::new(false),
        }))
    }

    /// The group's id.
    pub fn id(&self) -> GroupId {
        self.id
    }

    /// The state of this node's replica, for readers.
    pub fn replica(&self) -> &GroupReplica {
        &self.replica
    }

    /// The same for copies of slices, which are read from it while it changes.
    pub fn shard_owner(&self) -> Arc<dyn ShardOwner> {
        Arc::clone(&self.replica) as _
    }

    /// The leader, as far as this node knows.
    pub fn leader(&self) -> Option<NodeId> {
        leader_of(&self.raft.metrics().borrow_watched())
    }

    /// Whether this node believes that it is the leader.
    pub fn is_leader(&self) -> bool {
        self.raft.is_leader()
    }

    /// Whether this node hears a majority of the voters, itself included if it votes.
    pub fn hears_majority(&self) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        self.beats.has_majority(metrics.membership_config.membership().get_joint_config())
    }

    /// Whether this node leads although no majority of the voters is alive and answers it.
    pub fn lacks_quorum(&self) -> bool {
        if !self.is_leader() {
            return false;
        }
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let voters = metrics.membership_config.membership().get_joint_config();
        !self.beats.reaches_majority(voters)
    }

    /// This node's current term.
    pub fn term(&self) -> u64 {
        self.raft.metrics().borrow_watched().current_term
    }

    /// Why the group stopped, if it did.
    pub fn failure(&self) -> Option<String> {
        failure_of(self.raft.metrics())
    }

    /// The group's leader and members as this node knows them.
    pub fn view(&self) -> GroupView {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let members = metrics.committed_membership_config.membership();
        GroupView {
            leader: leader_of(&metrics),
            voters: members.voter_ids().collect(),
            learners: members.learner_ids().collect(),
            is_joint: members.get_joint_config().len() > 1,
        }
    }

    /// Whether a simulation asks for this rare choice now; always false in production.
    pub fn provokes(&self, rare: Rare) -> bool {
        self.seed.provokes(rare)
    }

    /// Whether the next snapshot is due where a simulation asks for frequent ones.
    pub fn is_provoked_snapshot_due(&self) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let behind = |id: Option<LogId>| id.map_or(0, |id| id.index + 1);
        behind(metrics.last_applied)
            >= behind(metrics.snapshot).saturating_add(ENTRIES_OF_PROVOKED_SNAPSHOT)
    }

    /// A random number for this group.
    pub fn number(&self, purpose: Purpose) -> u64 {
        self.seed.number(purpose)
    }

    /// Wall-clock time in milliseconds since 1970, as the node believes it: windows move by it.
    pub fn wall_ms(&self) -> u64 {
        self.seed.wall_ms()
    }

    /// Index of the last entry that this node knows to be committed.
    pub(crate) fn committed_index(&self) -> u64 {
        self.raft.metrics().borrow_watched().cluster_committed.map_or(0, |id| id.index)
    }

    /// Describes which entries this replica lacks although it had confirmed them, if any.
    pub fn lacking(&self) -> Option<String> {
        let floor = self.log.floor()?;
        let last = self.log.last_index();
        Some(format!(
            "this replica has entries up to {last}, but had confirmed {}: its disk lost some, or it came \
             back; it does not lead, and votes for none that lacks them, until it has them again",
            floor.index
        ))
    }

    /// Records that this replica has confirmed the entry `confirmed`, as another node reports, although
    /// its log lacks entries. Until it has them again, it is treated like a replica that returned to
    /// this node without its log.
    pub(crate) async fn lost(&self, confirmed: LogId) -> Result<(), String> {
        let noted = self.log.lost(confirmed).await;
        if let Some(floor) = self.log.floor() {
            tracing::error!(
                group = %self.id, index = floor.index, last = self.log.last_index(),
                "this replica lacks entries that it had confirmed: the disk lost synced data, or the \
                 folder is an older copy; they are sent again"
            );
        }
        noted.map_err(|error| error.to_string())
    }

    /// Index of the last entry that this node applied.
    pub fn applied_index(&self) -> u64 {
        *self.replica.applied_index().borrow()
    }

    /// Initializes the group with its first members, if that has not happened yet.
    ///
    /// # Errors
    /// If the group stopped or its log failed.
    pub async fn form(&self, members: BTreeMap<NodeId, NodeAddress>) -> Result<(), String> {
        let scoped =
            Runtime::scope(self.seed.number(Purpose::Election), self.raft.initialize(members));
        match scoped.await {
            // Stands for election at once: the other members normally run their replicas already. If
            // not, the failure detector makes this node stand when they respond.
            Ok(()) => self.raft.trigger().elect(false).await.map_err(|error| error.to_string()),
            Err(RaftError::APIError(openraft::errors::InitializeError::NotAllowed(_))) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Proposes a command; returns when it is committed and applied.
    ///
    /// # Errors
    /// See [`ProposeError`].
    pub async fn propose(&self, command: LogCommand) -> Result<CommandReply, ProposeError> {
        let (sender, receiver) = oneshot::channel();
        // A caller that dropped its receiver has given up.
        self.propose_then(command, |outcome| drop(sender.send(outcome))).await;
        let outcome = receiver.await.unwrap_or_else(|_| {
            let why = self.failure().unwrap_or_else(|| format!("{} stopped", self.id));
            Err(ProposeError::Stopped(why))
        });
        if matches!(outcome, Err(ProposeError::NotLeader(None))) {
            // Boxed: it is rare, and the future of every proposal would reserve room for it.
            Box::pin(self.remind_if_leader()).await;
        }
        outcome
    }

    /// Proposes a command, and has `then` called with its outcome, in the task that applies entries, or in the one that
    /// refuses the command: it must not take long. It is dropped if the group stops before. Returns once the group has the
    /// command.
    pub async fn propose_then(
        &self,
        command: LogCommand,
        then: impl FnOnce(Result<CommandReply, ProposeError>) + Send + 'static,
    ) {
        let then = OnComplete::new(|outcome: ClientWriteResult<Types>| {
            then(match outcome {
                Ok(response) => Ok(response.data),
                Err(ClientWriteError::ForwardToLeader(forward)) => {
                    Err(ProposeError::NotLeader(forward.leader_id))
                }
                Err(ClientWriteError::LogEntryDiscarded(forward)) => {
                    Err(ProposeError::Unknown(forward.leader_id))
                }
                Err(error) => Err(ProposeError::Stopped(error.to_string())),
            });
        });
        // A group that stopped drops `then`.
        let _ = self.raft.client_write_ff(command, Some(then)).await;
    }

    /// After a proposal that was refused without naming a leader. A leader that openraft reports without a leader has
    /// only had no responses for too long, as on a machine that was suspended. A heartbeat collects the followers'
    /// responses before the caller retries.
    pub async fn remind_if_leader(&self) {
        if self.is_leader() {
            self.remind().await;
        }
    }

    /// Waits until this node has been confirmed as leader after the call began, and has applied
    /// everything that was committed before: a read is then linearizable.
    ///
    /// # Errors
    /// See [`ProposeError`].
    pub async fn confirm(&self) -> Result<(), ProposeError> {
        let is_as_announced = self.applied_index() >= self.network.announced();
        if self.decides_alone() && is_as_announced && !self.replica.is_splitting() {
            return Ok(());
        }
        let (sender, receiver) = oneshot::channel();
        let stopped = || ProposeError::Stopped(format!("{} stopped", self.id));
        self.barrier.send(sender).await.map_err(|_| stopped())?;
        receiver.await.map_err(|_| stopped())?
    }

    /// Whether this node leads, is the only voter, and has applied an entry of its own term, and so all
    /// earlier entries. No other node can lead then, and whatever is acknowledged is applied here. A
    /// voter that joins appears in this log before it votes.
    pub fn decides_alone(&self) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let applied_term = metrics.last_applied.map(|id| id.leader_id.term);
        let voters = metrics.membership_config.membership().get_joint_config();
        metrics.state.is_leader()
            && applied_term == Some(metrics.current_term)
            && matches!(&voters[..], [only] if only.len() == 1 && only.contains(&metrics.id))
    }

    /// The addresses of all members that the group's log names.
    pub(crate) fn addresses(&self) -> BTreeMap<NodeId, String> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let members = metrics.membership_config.membership().nodes();
        members.map(|(&node, address)| (node, address.0.clone())).collect()
    }

    /// A member's address according to the group's log.
    pub fn address_of(&self, node: NodeId) -> Option<String> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        Some(metrics.membership_config.membership().get_node(&node)?.0.clone())
    }

    /// Whether a snapshot of this replica was found to be damaged on the disk since this was asked last: a
    /// new one takes its place, which is written from memory.
    pub fn needs_another_snapshot(&self) -> bool {
        self.network.takes_damage()
    }

    /// Starts to write a snapshot; the entries that it covers are purged some time later.
    pub async fn snapshot(&self) {
        // A stopped group has nothing to snapshot; its failure is reported elsewhere.
        let _ = self.raft.trigger().snapshot().await;
    }

    /// Writes a snapshot of everything applied so far and purges all entries that it covers. Returns
    /// true when that is done, false if it failed or took longer than `timeout`.
    pub async fn snapshot_and_purge(&self, timeout: Duration) -> bool {
        let Some(applied) = self.report().applied else { return true };
        self.snapshot_and_purge_to(applied.index, timeout).await
    }

    /// The same for everything up to an entry, which has been applied.
    pub(super) async fn snapshot_and_purge_to(&self, index: u64, timeout: Duration) -> bool {
        let done = async {
            let mut metrics = self.raft.metrics();
            let reaches = |id: Option<LogId>| id.is_some_and(|id| id.index >= index);
            loop {
                let (is_purged, is_covered) = {
                    let metrics = metrics.borrow_watched();
                    (reaches(metrics.purged), reaches(metrics.snapshot))
                };
                if is_purged {
                    return true;
                }
                if is_covered {
                    self.purge_to_snapshot().await;
                } else {
                    self.snapshot().await;
                }
                // The request itself changes the metrics, so only a new snapshot or purge counts. A
                // snapshot that was already being built may have replaced the requested one, so the
                // request is repeated.
                let (snapshot, purged) = {
                    let metrics = metrics.borrow_watched();
                    (metrics.snapshot, metrics.purged)
                };
                let moved = async {
                    loop {
                        let is_so = {
                            let now = metrics.borrow_watched();
                            now.snapshot == snapshot && now.purged == purged
                        };
                        if !is_so {
                            return true;
                        }
                        if metrics.changed().await.is_err() {
                            return false;
                        }
                    }
                };
                if matches!(tokio::time::timeout(SNAPSHOT_PAUSE, moved).await, Ok(false)) {
                    return false;
                }
            }
        };
        tokio::time::timeout(timeout, done).await.unwrap_or(false)
    }

    /// Purges every entry that the snapshot covers, including those that are kept for followers that
    /// lag a little.
    pub async fn purge_to_snapshot(&self) {
        let metrics = self.raft.metrics();
        let (snapshot, purged) = {
            let metrics = metrics.borrow_watched();
            (metrics.snapshot, metrics.purged)
        };
        if let Some(snapshot) = snapshot
            && purged.is_none_or(|purged| purged.index < snapshot.index)
        {
            // A stopped group has nothing to purge; its failure is reported elsewhere.
            let _ = self.raft.trigger().purge_log(snapshot.index).await;
        }
    }

    /// Stops the group on this node.
    pub async fn shut_down(&self) {
        // Shutdown fails only if the joined task panicked, and that panic was reported.
        let _ = self.raft.shutdown().await;
        self.replica.let_go_of_readers();
    }
}

/// openraft's settings for a group. Its own clock does nothing: the failure detector says when to stand for election,
/// and a node writes the snapshots of its groups.
fn raft_config(id: GroupId, beats: &Beats, entries_kept: u64) -> openraft::Config {
    let suspicion_ms = u64::try_from(beats.suspicion().as_millis()).unwrap_or(u64::MAX);
    openraft::Config {
        cluster_name: id.to_string(),
        // Timeout of one append, then of one vote.
        heartbeat_interval: suspicion_ms.saturating_mul(3) / 2,
        election_timeout_min: suspicion_ms.saturating_mul(5),
        election_timeout_max: suspicion_ms.saturating_mul(5).saturating_add(LEASE_MS),
        enable_tick: false,
        enable_heartbeat: false,
        enable_elect: false,
        enable_pre_vote: Some(false),
        install_snapshot_timeout: 10_000,
        max_payload_entries: 64,
        snapshot_policy: openraft::SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: entries_kept,
        replication_lag_threshold: 4096,
        backoff: REPLICATION_PAUSES.to_owned(),
        // A restarted leader must be elected again. With openraft's default it continues to lead,
        // which caused stale reads and, once, two different payloads under one log id.
        enable_leader_restore: Some(planted::on(Planted::LeaderRestore)),
        // A replica whose disk lost entries that it had confirmed is sent them again. It is
        // notified of the loss first (`recall`), and so grants no vote to a candidate that lacks
        // them.
        allow_log_reversion: Some(true),
        ..Default::default()
    }
}

/// Why the group stopped whose metrics these are, if it did.
fn failure_of(mut metrics: WatchReceiverOf<Types, RaftMetrics<Types>>) -> Option<String> {
    // Seen from here on: an unseen change would hide that the other end of the channel is closed.
    let running = metrics.borrow_and_update().running_state.clone();
    if let Err(error) = running {
        return Some(reason_of(&error));
    }
    // A core that panicked reports no error, but its end of the channel is closed.
    let is_gone = matches!(metrics.changed().now_or_never(), Some(Err(_)));
    is_gone.then(|| "its task ended without a word".to_owned())
}

/// What an error means for whoever runs the node.
fn reason_of(error: &Fatal<Types>) -> String {
    StorageFault::advice_in(error).map_or_else(|| error.to_string(), ToOwned::to_owned)
}

/// The leader that a replica knows of. A replica that restarted, or returned with its promises, may
/// hold a vote that it once won itself; that vote does not make it the leader.
fn leader_of(metrics: &RaftMetrics<Types>) -> Option<NodeId> {
    let leader = metrics.current_leader?;
    (leader != metrics.id || metrics.state.is_leader()).then_some(leader)
}

#[cfg(test)]
mod tests {
    use openraft::StorageError;
    use openraft::errors::ErrorSource as _;
    use openraft::type_config::TypeConfigExt;
    use openraft_rt::WatchSender;
    use umbel_storage::testing::id;
    use umbel_storage::types::Advice;

    use super::*;

    /// As after a panic. Each check has a receiver of its own, which has not seen the last change.
    #[tokio::test]
    async fn a_group_whose_task_has_gone_has_failed() {
        let (sender, metrics) = Types::watch_channel(RaftMetrics::new_initial(NodeId(1)));
        sender.send(RaftMetrics::new_initial(NodeId(1))).expect("a receiver is left");
        assert_eq!(failure_of(metrics.clone()), None);
        drop(sender);
        assert!(failure_of(metrics.clone()).is_some());
    }

    #[test]
    fn advice_is_the_whole_reason_and_other_causes_come_with_what_was_done() {
        let reason = |cause: io::Error| {
            let cause = StorageFault::from_error(&cause);
            let error = StorageError::apply(id(1, 7), cause);
            let (sender, metrics) = Types::watch_channel(RaftMetrics::new_initial(NodeId(1)));
            let mut failed = RaftMetrics::new_initial(NodeId(1));
            failed.running_state = Err(Fatal::StorageError(error));
            sender.send(failed).expect("a receiver is left");
            failure_of(metrics).expect("it has failed")
        };
        assert_eq!(reason(Advice("start a release".to_owned()).into()), "start a release");
        let broken = reason(io::Error::other("broken"));
        assert!(broken.starts_with("when ") && broken.ends_with(": broken"), "{broken}");
    }

    /// A replica that returned to a node which led the group before it left.
    #[test]
    fn a_vote_that_was_won_once_does_not_lead() {
        let mut metrics = RaftMetrics::<Types>::new_initial(NodeId(1));
        metrics.current_leader = Some(NodeId(1));
        assert_eq!(leader_of(&metrics), None);
        metrics.state = openraft::ServerState::Leader;
        assert_eq!(leader_of(&metrics), Some(NodeId(1)));
        metrics.state = openraft::ServerState::Follower;
        metrics.current_leader = Some(NodeId(2));
        assert_eq!(leader_of(&metrics), Some(NodeId(2)));
    }
}
