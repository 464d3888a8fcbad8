//! The state machine of a group: the engine's state behind a lock, and its snapshots.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;

use openraft::entry::RaftPayload;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_stream::{Stream, StreamExt};
use umbel_engine::meta::{ClusterVersion, MetaCommand, MetaState, VersionRange};
use umbel_engine::shard::{ShardCommand, ShardOwner, ShardSnapshot, ShardState, SnapshotLoader};
use umbel_engine::{FilterId, GroupId, ShardId};
use umbel_filter::HashRange;
use umbel_ports::encoding::{decode, encode};
use umbel_step::planted::{self, Planted};
use umbel_storage::observer::{Event, NodeObserver, Payload};
use umbel_storage::types::{
    Advice, CommandReply, LogCommand, LogEntry, LogId, SnapshotMeta, StoredMembership, Types,
    entry_id,
};
use umbel_storage::{SnapshotFile, SnapshotStore, Storage};

mod aside;
#[cfg(test)]
mod decided_test;
mod head;
mod merges;
mod nesting;
mod records;
#[cfg(test)]
mod turn_test;
mod written;

use head::{Head, meta_at};
use nesting::{Reading, check_not_nested};
use records::{Records, invalid};
use written::{write_copied, write_shard};

/// How long entries are applied before other tasks get their turn: far below the time after which a silent node is
/// suspected. A start applies 64 entries that are at hand, which may take half a second.
const TURN: Duration = Duration::from_millis(5);

/// A node's replica of a group, shared by the log that changes it and its readers.
pub struct GroupReplica {
    group: GroupId,
    /// The hash range with which the shard began; the current range may be the first part of it, after
    /// a split.
    first_range: HashRange,
    /// Cluster versions that this node supports.
    versions: VersionRange,
    inner: RwLock<Inner>,
    /// Taken by whoever changes the state, before it reads what the change begins with. Readers do without.
    turn: Mutex<()>,
    applied_index: watch::Sender<u64>,
    /// Whether a split is being applied: the upper half may run already, and this state still has its hashes.
    is_splitting: AtomicBool,
}

struct Inner {
    applied: Option<LogId>,
    membership: StoredMembership,
    state: GroupState,
}

impl Inner {
    /// The last entry that was applied, and the members as of it.
    fn position(&self) -> SnapshotMeta {
        SnapshotMeta { last_log_id: self.applied, last_membership: self.membership.clone() }
    }

    /// Puts another state in the place of this one, which is returned. Copies that are read from it have what they
    /// need of it before anybody sees the other one.
    fn replace_state(&mut self, state: GroupState) -> GroupState {
        if let GroupState::Shard(before) = &self.state {
            before.let_go_of_readers();
        }
        std::mem::replace(&mut self.state, state)
    }
}

impl ShardOwner for GroupReplica {
    fn read_state(&self, read: &mut dyn FnMut(&ShardState)) {
        self.read_shard(read);
    }
}

/// The replicated state: of the meta group or of a shard.
pub(crate) enum GroupState {
    Meta(Box<MetaState>),
    Shard(Box<ShardState>),
}

/// A copy of the state at one moment; the snapshot is written from it while the state changes.
enum Copied {
    Meta(Box<MetaState>),
    Shard(Box<ShardSnapshot>),
}

impl GroupReplica {
    pub(crate) fn meta(versions: VersionRange) -> Self {
        let state = GroupState::Meta(Box::default());
        Self { versions, ..Self::new(GroupId::META, HashRange::WHOLE, state) }
    }

    /// The replica of a shard's group that began with this hash range.
    pub(crate) fn shard(group: GroupId, first_range: HashRange) -> Self {
        let shard = group.shard().expect("the caller names a shard's group");
        let state = ShardState::new(shard, first_range);
        Self::new(group, first_range, GroupState::Shard(Box::new(state)))
    }

    fn new(group: GroupId, first_range: HashRange, state: GroupState) -> Self {
        let inner = Inner { applied: None, membership: StoredMembership::default(), state };
        let (inner, turn) = (RwLock::new(inner), Mutex::default());
        let (versions, applied_index) = (VersionRange::OWN, watch::Sender::new(0));
        let is_splitting = AtomicBool::new(false);
        Self { group, first_range, versions, inner, turn, applied_index, is_splitting }
    }

    /// Watches the index of the last applied entry.
    pub fn applied_index(&self) -> watch::Receiver<u64> {
        self.applied_index.subscribe()
    }

    /// Index of the first entry that is not applied.
    pub fn first_unapplied(&self) -> u64 {
        self.read().applied.map_or(0, |id| id.index + 1)
    }

    /// Reads a shard's state.
    ///
    /// # Panics
    /// If this is the meta group's replica.
    pub fn read_shard<T>(&self, read: impl FnOnce(&ShardState) -> T) -> T {
        self.read_shard_at(|_, state| read(state))
    }

    /// Reads a shard's state together with the index of the last entry applied to it.
    ///
    /// # Panics
    /// If this is the meta group's replica.
    pub fn read_shard_at<T>(&self, read: impl FnOnce(u64, &ShardState) -> T) -> T {
        let (inner, _reading) = (self.read(), Reading::begin(self));
        match &inner.state {
            GroupState::Shard(state) => read(inner.applied.map_or(0, |id| id.index), state),
            GroupState::Meta(_) => unreachable!("the caller asks a shard's replica"),
        }
    }

    /// For tests and simulations of repair: flips bits of a slice, or only clears some.
    pub fn rot(&self, filter: FilterId, every: usize, only_clears: bool) -> u64 {
        match &mut self.write(&self.turn()).state {
            GroupState::Shard(state) => state.rot(filter, every, only_clears),
            GroupState::Meta(_) => 0,
        }
    }

    /// Applies a command that is not in the log, as a planted bug does
    /// ([`ReplicaClock`](umbel_step::planted::Planted::ReplicaClock)).
    pub fn apply_unlogged(&self, command: &ShardCommand) {
        if let GroupState::Shard(state) = &mut self.write(&self.turn()).state {
            state.apply(command);
        }
    }

    /// Reads the meta group's state.
    ///
    /// # Panics
    /// If this is a shard's replica.
    pub fn read_meta<T>(&self, read: impl FnOnce(&MetaState) -> T) -> T {
        let (inner, _reading) = (self.read(), Reading::begin(self));
        match &inner.state {
            GroupState::Meta(state) => read(state),
            GroupState::Shard(_) => unreachable!("the caller asks the meta group's replica"),
        }
    }

    /// Lets copies of slices have what they need, so that they need this replica no longer.
    pub(crate) fn let_go_of_readers(&self) {
        if let GroupState::Shard(state) = &self.read().state {
            state.let_go_of_readers();
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Inner> {
        check_not_nested(self);
        self.inner.read().expect("no holder of the lock panics")
    }

    /// The turn to change the state: nobody else begins a change before it is given back, and readers go on.
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().expect("no holder of the turn panics")
    }

    /// Keeps readers waiting, so whoever has the turn does before what takes long.
    fn write(&self, _turn: &MutexGuard<'_, ()>) -> std::sync::RwLockWriteGuard<'_, Inner> {
        self.inner.write().expect("no holder of the lock panics")
    }

    /// Applies one entry.
    fn apply(&self, entry: &LogEntry) -> CommandReply {
        let turn = self.turn();
        let copies = match &entry.payload {
            EntryPayload::Normal(LogCommand::Shard(command)) => self.copy_shared(&turn, command),
            _ => Vec::new(),
        };
        let mut inner = self.write(&turn);
        inner.applied = Some(entry.log_id);
        if let Some(membership) = entry.payload.get_membership() {
            inner.membership = StoredMembership::new(Some(entry.log_id), membership);
        }
        match (&mut inner.state, &entry.payload) {
            (GroupState::Meta(state), EntryPayload::Normal(LogCommand::Meta(command))) => {
                CommandReply::Meta(state.apply(entry.log_id.index, command))
            }
            (GroupState::Shard(state), EntryPayload::Normal(LogCommand::Shard(command))) => {
                let released = state.take_copies(copies);
                let reply = state.apply_at(entry.log_id.index, command);
                drop(inner);
                drop(released);
                CommandReply::Shard(reply)
            }
            _ => CommandReply::None,
        }
    }

    /// A digest of the whole state; reads all of it.
    fn digest(&self) -> u64 {
        match &self.read().state {
            GroupState::Meta(state) => {
                xxhash_rust::xxh3::xxh3_64(&encode(&(state.version(), state, state.since_3())))
            }
            GroupState::Shard(state) => state.digest(),
        }
    }

    /// A copy of the state, with the log position and members that belong to it. Slices are read from this
    /// replica while they change, where their kinds permit.
    fn copy(self: &Arc<Self>) -> (SnapshotMeta, Copied) {
        let owner: Arc<dyn ShardOwner> = Arc::clone(self) as _;
        let inner = self.read();
        let meta = inner.position();
        let copied = match &inner.state {
            GroupState::Meta(state) => Copied::Meta(state.clone()),
            GroupState::Shard(state) => Copied::Shard(Box::new(state.snapshot_by(&owner))),
        };
        (meta, copied)
    }

    /// Replaces the state by a snapshot's.
    async fn load(&self, file: &SnapshotFile) -> io::Result<()> {
        let mut records = Records::of(file);
        let head = records.next().await?.ok_or_else(|| invalid("an empty snapshot"))?;
        let state = match decode(&head).map_err(invalid)? {
            Head::Meta(state) => GroupState::Meta(state),
            Head::MetaAt(version, _) if version > self.versions.newest => {
                return Err(unknown_version(version, self.versions));
            }
            Head::MetaAt(version, state) => GroupState::Meta(Box::new(meta_at(version, &state)?)),
            head @ (Head::Shard(_) | Head::MarkedShard(..)) => {
                let shard = self.read_shard(ShardState::shard);
                let mut state = load_slices(head, records, shard, self.first_range).await?;
                state.loaded_at(file.last_index());
                GroupState::Shard(Box::new(state))
            }
        };
        let turn = self.turn();
        let mut inner = self.write(&turn);
        if std::mem::discriminant(&inner.state) != std::mem::discriminant(&state) {
            return Err(invalid(format!("a snapshot of another kind than {}'s", self.group)));
        }
        let meta = file.meta();
        inner.applied = meta.last_log_id;
        inner.membership = meta.last_membership.clone();
        let before = inner.replace_state(state);
        drop(inner);
        // Readers do not wait until the memory of all slices is given back.
        drop(before);
        self.applied_index.send_replace(meta.last_log_id.map_or(0, |id| id.index));
        Ok(())
    }
}

/// Reads a shard's state from a file.
async fn load_shard(
    file: &SnapshotFile,
    shard: ShardId,
    first_range: HashRange,
) -> io::Result<ShardState> {
    let mut records = Records::of(file);
    let head = records.next().await?.ok_or_else(|| invalid("an empty snapshot"))?;
    load_slices(decode(&head).map_err(invalid)?, records, shard, first_range).await
}

async fn load_slices(
    head: Head,
    mut records: Records<'_>,
    shard: ShardId,
    first_range: HashRange,
) -> io::Result<ShardState> {
    let head = match head {
        Head::Shard(head) => *head,
        Head::MarkedShard(head, marks) => head.with_marks(marks),
        Head::Meta(_) | Head::MetaAt(..) => {
            return Err(invalid(format!("a snapshot of another kind than {shard}'s")));
        }
    };
    let mut loader = SnapshotLoader::new(shard, first_range, head).map_err(invalid)?;
    while let Some(frame) = records.next().await? {
        loader.push(&frame).map_err(invalid)?;
        tokio::task::yield_now().await;
    }
    loader.finish().map_err(invalid)
}

fn unknown_version(needed: ClusterVersion, versions: VersionRange) -> io::Error {
    let text = format!(
        "the cluster is at {needed}, and this release runs clusters of {versions}: start a release that runs that"
    );
    Advice(text).into()
}

/// openraft's view of a [`GroupReplica`].
#[derive(Clone)]
pub(crate) struct StateMachine {
    replica: Arc<GroupReplica>,
    storage: Storage,
    snapshots: SnapshotStore,
    observer: Option<Arc<dyn NodeObserver>>,
}

impl StateMachine {
    /// Creates a state machine from the newest snapshot on disk, if there is one.
    pub(crate) async fn open(replica: Arc<GroupReplica>, storage: Storage) -> io::Result<Self> {
        let (snapshots, observer) = (storage.snapshots(replica.group), storage.observer().cloned());
        let machine = Self { replica, storage, snapshots, observer };
        if let Some(file) = machine.snapshots.latest().await? {
            machine.replica.load(&file).await?;
            machine.keep_ended_state().await?;
            machine.observe_loaded(file.meta());
        }
        Ok(machine)
    }

    /// Fails at an entry of a later cluster version than this node supports: the node does not know
    /// what it means.
    fn check_version(&self, entry: &LogEntry) -> io::Result<()> {
        let EntryPayload::Normal(LogCommand::Meta(command)) = &entry.payload else { return Ok(()) };
        // A raise of the version may have been refused, so the state's version counts.
        let needed = match command {
            MetaCommand::RaiseVersion { .. } => self.replica.read_meta(MetaState::version),
            command => command.since(),
        };
        if needed <= self.replica.versions.newest {
            return Ok(());
        }
        if let Some(observer) = &self.observer {
            observer.observe(&Event::EntryUnknown { entry: entry_id(entry.log_id) });
        }
        Err(unknown_version(needed, self.replica.versions))
    }

    fn observe_loaded(&self, meta: &SnapshotMeta) {
        let Some(observer) = &self.observer else { return };
        observer.observe(&Event::SnapshotLoaded {
            group: self.replica.group,
            through: meta.last_log_id.map(entry_id),
            digest: &|| self.replica.digest(),
        });
    }

    fn observe_applied(&self, entry: &LogEntry, reply: &CommandReply) {
        let Some(observer) = &self.observer else { return };
        let payload = match (&entry.payload, reply) {
            (EntryPayload::Membership(members), _) => Payload::Members {
                voters: members.get_joint_config().clone(),
                learners: members.learner_ids().collect(),
            },
            (EntryPayload::Normal(LogCommand::Meta(command)), CommandReply::Meta(reply)) => {
                Payload::Meta(command, reply)
            }
            (EntryPayload::Normal(LogCommand::Shard(command)), CommandReply::Shard(reply)) => {
                Payload::Shard(command, reply)
            }
            // A command for the other kind of group changes nothing either.
            (EntryPayload::Blank | EntryPayload::Normal(_), _) => Payload::Blank,
        };
        observer.observe(&Event::Applied {
            group: self.replica.group,
            entry: entry_id(entry.log_id),
            payload,
            digest: &|| self.replica.digest(),
        });
    }
}

impl RaftSnapshotBuilder<Types> for StateMachine {
    type SnapshotData = SnapshotFile;

    async fn build_snapshot(
        &mut self,
    ) -> io::Result<openraft::type_config::alias::SnapshotOf<Types, SnapshotFile>> {
        let copy = || self.replica.copy();
        let file =
            self.snapshots.build(copy, |to, copied| Box::pin(write_copied(to, copied))).await?;
        if let Some(observer) = &self.observer {
            let through = file.meta().last_log_id.map(entry_id);
            observer.observe(&Event::SnapshotBuilt { group: self.replica.group, through });
        }
        Ok(openraft::storage::Snapshot { meta: file.meta().clone(), snapshot: file })
    }
}

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotData = SnapshotFile;
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let inner = self.replica.read();
        Ok((inner.applied, inner.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        let mut turn_began = Instant::now();
        while let Some(next) = entries.next().await {
            if turn_began.elapsed() >= TURN {
                tokio::task::yield_now().await;
                turn_began = Instant::now();
            }
            let (mut entry, responder) = next?;
            if planted::on(Planted::IdsOnLeaderOnly)
                && responder.is_none()
                && let EntryPayload::Normal(LogCommand::Shard(command)) = &mut entry.payload
            {
                command.forget_request_ids();
            }
            let reply = self.prepare_and_apply(&entry).await?;
            self.check_version(&entry)?;
            self.observe_applied(&entry, &reply);
            self.replica.applied_index.send_replace(entry.log_id.index);
            if let Some(responder) = responder {
                responder.send(reply);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn install_snapshot(
        &mut self,
        _meta: &SnapshotMeta,
        file: SnapshotFile,
    ) -> io::Result<()> {
        self.replica.load(&file).await?;
        self.keep_ended_state().await?;
        // Only now does the snapshot become the newest: one that openraft refuses must not outlive its
        // transfer.
        self.snapshots.adopt(&file).await?;
        self.observe_loaded(file.meta());
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> io::Result<Option<openraft::type_config::alias::SnapshotOf<Types, SnapshotFile>>> {
        let file = self.snapshots.latest().await?;
        Ok(file
            .map(|file| openraft::storage::Snapshot { meta: file.meta().clone(), snapshot: file }))
    }
}
