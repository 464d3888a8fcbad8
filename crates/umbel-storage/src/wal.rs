//! One write-ahead log for all Raft groups of a node, so that one sync makes the writes of many groups
//! durable.
//!
//! Callers change the state in memory and pass records to a single writer, all in one order. The writer
//! takes the records that gathered during its last write, writes them with one call, syncs, and only
//! then acknowledges them. After the first failed sync, nothing is acknowledged any more. While the
//! disk is full, writes wait.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use openraft::storage::IOFlushed;
use rustix::io::Errno;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use umbel_engine::GroupId;
use umbel_ports::locked;
use umbel_step::planted::{self, Planted};

mod chain;
mod disk_wait;
mod format;
mod left;
mod members;
mod read;
mod recover;
mod segment_reader;
mod state;
mod writer;

#[cfg(test)]
mod left_test;
#[cfg(test)]
mod pieces_test;
#[cfg(test)]
mod waiting_test;
#[cfg(test)]
mod wal_test;

use disk_wait::DiskWait;
use format::{Record, WAL_VERSION};
pub(crate) use members::Voters;
pub(super) use recover::open;
pub use recover::{OpenError, Recovered};
use state::State;

use super::wrapping::{self, Wrapping};
use crate::observer::{EntryId, Event, NodeObserver};
use crate::types::{LogEntry, LogId, Types, Vote};

/// Folder of the log's segments.
pub(super) const WAL_FOLDER: &str = "wal";

/// A new segment begins when the newest would grow beyond this. Larger segments are removed later;
/// smaller ones repeat the groups' votes more often.
pub(super) const SEGMENT_BYTES_MAX: u32 = 64 << 20;

/// The most that [`WalOptions::segment_bytes_max`] may ask for.
const SEGMENT_BYTES_LIMIT: u32 = 128 << 20;

/// Bytes of the longest possible segment file: the limit, the largest record, and hints. A longer file
/// is not read.
const SEGMENT_FILE_BYTES_MAX: u32 = 256 << 20;

/// Memory for the newest entries of all groups: reads for followers that keep up, and for the state
/// machines, never wait for the disk.
const CACHE_BYTES_MAX: usize = 8 << 20;

/// Bytes of the log that are read at once: many records, and few enough that the allocator uses their memory again for
/// the next ones. The memory of a whole segment would come from the system each time, which takes several times as long
/// as reading it.
const READ_BYTES_MAX: u32 = 4 << 20;

/// Bytes that are written and synced at once: many records, and few enough that a disk which is only slow returns long
/// before it counts as one that hangs. A longer record is written alone.
const WRITE_BYTES_MAX: usize = 8 << 20;

/// Calls that may wait for the writer. With more of them, one sync does not become more efficient.
const QUEUE_CALLS_MAX: usize = 4096;

/// KiB of entries that may wait for the writer. Bounds memory while the disk is full or slow: room for
/// the largest entry, and for what gathers during one sync.
const QUEUE_KIB_MAX: u32 = 128 << 10;

/// Pause before a write to a full disk is retried.
pub(super) const FULL_RETRY: Duration = Duration::from_millis(250);

/// How long hints about commits wait for other records to be written with.
const HINT_DELAY: Duration = Duration::from_millis(200);

/// The expected owner of the log in the data folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogOwner {
    /// There is no identity file. An empty folder gets a log with this nonce. A log without any group
    /// is adopted ([`Recovered::nonce`]): an earlier start stopped before it saved the identity.
    New {
        /// A random number.
        nonce: u64,
    },
    /// The owner that the identity file names.
    Known {
        /// [`Identity::nonce`](super::identity::Identity::nonce).
        nonce: u64,
        /// Whether the node has joined a cluster: then a missing log is a lost one.
        joined: bool,
    },
}

/// Settings of the log.
#[derive(Clone, Copy, Debug)]
pub struct WalOptions {
    /// The expected owner.
    pub owner: LogOwner,
    /// Bytes of a segment, at most 128 MiB; one record with the segment's head may exceed it.
    pub segment_bytes_max: u32,
    /// Bytes of the newest entries in memory, over all groups.
    pub cache_bytes_max: usize,
    /// Bytes of the log that are read at once; a longer record is read alone. At the start the newest segment is read
    /// whole.
    pub read_bytes_max: u32,
    /// Whether writes are synced before they are acknowledged. Without it, a power loss may lose
    /// acknowledged writes or keep the node from starting; a stop of the process does neither.
    pub sync: bool,
}

impl WalOptions {
    /// The settings for everything but tests.
    pub fn new(owner: LogOwner) -> Self {
        Self {
            owner,
            segment_bytes_max: SEGMENT_BYTES_MAX,
            cache_bytes_max: CACHE_BYTES_MAX,
            read_bytes_max: READ_BYTES_MAX,
            sync: true,
        }
    }
}

/// Health of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalHealth {
    /// Writes are acknowledged.
    Good,
    /// The disk is full: writes wait, and continue by themselves when there is room.
    Full,
    /// The log accepts no writes until the process restarts.
    Failed,
}

/// The recipient of a result, notified exactly once: with an error if this is dropped, because openraft
/// would wait for ever.
struct Done(Option<Listener>);

/// openraft's callback of an append, and what the observer gets with it.
pub(super) struct Flushed {
    callback: IOFlushed<Types>,
    observed: Option<(Arc<dyn NodeObserver>, GroupId, EntryId)>,
}

impl Flushed {
    /// Without an observer.
    pub(super) fn new(callback: IOFlushed<Types>) -> Self {
        Self { callback, observed: None }
    }

    /// Notifies the observer that everything up to `through` is durable, just before openraft.
    pub(super) fn observed(
        callback: IOFlushed<Types>,
        observer: Arc<dyn NodeObserver>,
        group: GroupId,
        through: EntryId,
    ) -> Self {
        Self { callback, observed: Some((observer, group, through)) }
    }

    fn complete(self, result: io::Result<()>) {
        if let Some((observer, group, through)) = self.observed
            && result.is_ok()
        {
            observer.observe(&Event::Durable { group, through });
        }
        self.callback.io_completed(result);
    }
}

enum Listener {
    Callback(Flushed),
    Reply(oneshot::Sender<io::Result<()>>),
}

impl Done {
    fn complete(mut self, result: io::Result<()>) {
        self.reply(result);
    }

    fn reply(&mut self, result: io::Result<()>) {
        match self.0.take() {
            Some(Listener::Callback(flushed)) => flushed.complete(result),
            Some(Listener::Reply(reply)) => {
                // The caller may have gone.
                let _ = reply.send(result);
            }
            // A hint has no recipient.
            None => {}
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        self.reply(Err(io::Error::other("the log did not take this")));
    }
}

/// Records that are acknowledged together.
struct Call {
    records: Vec<Record>,
    /// Serial number of the newest entry in memory when the call was made.
    serial: u64,
    done: Done,
    /// Frees room in the queue when dropped.
    _room: OwnedSemaphorePermit,
}

/// The interface of the log to its users.
pub(crate) struct Wal {
    nonce: u64,
    /// [`WalOptions::read_bytes_max`].
    read_bytes_max: u32,
    /// Wraps entries that contain secrets.
    wrapping: Option<Arc<Wrapping>>,
    state: Arc<Mutex<State>>,
    queue: mpsc::Sender<Call>,
    room: Arc<Semaphore>,
    closing: watch::Sender<bool>,
    /// Shared with the writer; kept here so that watchers can go on after the writer has ended.
    health: Arc<watch::Sender<WalHealth>>,
    disk_wait: DiskWait,
    writer: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Whether an operation failed because the disk is full, or a file could not be opened for lack of
/// descriptors, so that a retry may succeed.
pub(super) fn is_full(error: &io::Error) -> bool {
    is_short_of_descriptors(error)
        || matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether a file or folder could not be opened for lack of descriptors: nothing was done to it.
pub(super) fn is_short_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the log is closed")
}

impl Wal {
    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    pub(super) fn health(&self) -> watch::Receiver<WalHealth> {
        self.health.subscribe()
    }

    pub(super) fn disk_wait(&self) -> Duration {
        self.disk_wait.so_far()
    }

    /// Turns true when the log begins to close; the sender is dropped with the log.
    pub(super) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    /// Changes the state and queues the records, both or neither, in one order over all groups.
    async fn call(
        &self,
        byte_count: usize,
        done: Done,
        change: impl FnOnce(&mut State) -> io::Result<Vec<Record>>,
    ) -> io::Result<()> {
        let kib = u32::try_from(byte_count.div_ceil(1024)).unwrap_or(u32::MAX).min(QUEUE_KIB_MAX);
        let room = Arc::clone(&self.room).acquire_many_owned(kib).await.map_err(|_| closed())?;
        let slot = self.queue.reserve().await.map_err(|_| self.error())?;
        let mut state = self.state();
        if let Some(failure) = &state.failure {
            return Err(failure.error());
        }
        let records = change(&mut state)?;
        let serial = state.serial();
        slot.send(Call { records, serial, done, _room: room });
        Ok(())
    }

    /// The reason why the queue accepts nothing.
    fn error(&self) -> io::Error {
        self.state().failure.as_ref().map_or_else(closed, state::Failure::error)
    }

    /// Like [`call`](Self::call), and waits until the records are durable.
    async fn durable(&self, change: impl FnOnce(&mut State) -> Vec<Record>) -> io::Result<()> {
        let (reply, answer) = oneshot::channel();
        self.call(0, Done(Some(Listener::Reply(reply))), |state| Ok(change(state))).await?;
        answer.await.map_err(|_| self.error())?
    }

    /// Appends entries with their encodings; notifies openraft when they are durable.
    pub(super) async fn append(
        &self,
        group: GroupId,
        entries: Vec<(LogEntry, Bytes)>,
        flushed: Flushed,
    ) -> io::Result<()> {
        self.append_and_reply(group, entries, Done(Some(Listener::Callback(flushed)))).await
    }

    /// Appends an entry to a log that is not a Raft group's. The receiver gets the outcome, also if the
    /// log closes before.
    pub(super) async fn append_own(
        &self,
        group: GroupId,
        entry: (LogEntry, Bytes),
    ) -> io::Result<oneshot::Receiver<io::Result<()>>> {
        let (reply, outcome) = oneshot::channel();
        self.append_and_reply(group, vec![entry], Done(Some(Listener::Reply(reply)))).await?;
        Ok(outcome)
    }

    async fn append_and_reply(
        &self,
        group: GroupId,
        entries: Vec<(LogEntry, Bytes)>,
        done: Done,
    ) -> io::Result<()> {
        let out = |(entry, bytes): (LogEntry, Bytes)| {
            let place = (group, entry.log_id);
            (entry, wrapping::entry_out(self.wrapping.as_deref(), place, bytes))
        };
        let entries: Vec<(LogEntry, Bytes)> = entries.into_iter().map(out).collect();
        let byte_count = entries.iter().map(|(_, bytes)| bytes.len()).sum();
        if let Some((entry, bytes)) = entries.iter().find(|(_, b)| b.len() > ENTRY_BYTES_MAX) {
            let (id, got) = (entry.log_id, bytes.len());
            return Err(invalid(format!("entry {id} has {got} bytes, at most {ENTRY_BYTES_MAX}")));
        }
        self.call(byte_count, done, |state| {
            let chain = &state.front(group).chain;
            let purged = chain.purged().map(|purged| purged.index);
            // This also holds after purged entries: a start would take a gap there for lost entries.
            let mut next = (!chain.is_empty() || purged.is_some()).then_some(chain.next());
            for (entry, _) in &entries {
                let id = entry.log_id;
                if let Some(next) = next.filter(|next| id.index > *next) {
                    return Err(invalid(format!("entry {id} leaves a gap from index {next}")));
                }
                if purged.is_some_and(|purged| id.index <= purged) {
                    return Err(invalid(format!("entry {id} was purged already")));
                }
                next = Some(id.index.saturating_add(1));
            }
            let push = |(entry, bytes): (LogEntry, Bytes)| {
                let record = Record::Entry(group, entry.log_id, bytes);
                state.push(group, entry, record.byte_count());
                record
            };
            Ok(entries.into_iter().map(push).collect())
        })
        .await
    }

    pub(super) async fn save_vote(&self, group: GroupId, vote: Vote) -> io::Result<()> {
        if planted::on(Planted::VoteNotSynced) {
            self.state().front(group).vote = Some(vote);
            return Ok(());
        }
        self.durable(|state| {
            state.front(group).vote = Some(vote);
            vec![Record::vote(group, vote)]
        })
        .await
    }

    pub(super) async fn save_committed(&self, group: GroupId, id: Option<LogId>) -> io::Result<()> {
        self.call(0, Done(None), |state| {
            let is_ahead = planted::on(Planted::CommitHintAhead);
            let id = if is_ahead { state.front(group).chain.last().max(id) } else { id };
            state.front(group).committed = id;
            Ok(vec![Record::Committed(group, id)])
        })
        .await
    }

    pub(super) async fn truncate(&self, group: GroupId, after: Option<LogId>) -> io::Result<()> {
        self.durable(|state| {
            state.truncate(group, after);
            vec![Record::Truncate(group, after)]
        })
        .await
    }

    pub(super) async fn purge(&self, group: GroupId, through: LogId) -> io::Result<()> {
        self.durable(|state| {
            state.purge(group, through);
            vec![Record::Purge(group, through)]
        })
        .await
    }

    /// Makes the log agree with a snapshot that ends at `through`, if it does not.
    pub(super) async fn cover(&self, group: GroupId, through: LogId) -> io::Result<()> {
        self.durable(|state| state.cover(group, through)).await
    }

    pub(super) async fn forget(&self, group: GroupId) -> io::Result<()> {
        self.durable(|state| {
            state.forget(group);
            vec![Record::Forget(group)]
        })
        .await
    }

    /// Forgets a group that may return to this node, except for the promises of its replica.
    pub(super) async fn leave(&self, group: GroupId) -> io::Result<()> {
        self.durable(|state| {
            let left = state.leave(group);
            vec![left.map_or(Record::Forget(group), |left| Record::Left(group, left))]
        })
        .await
    }

    /// Records that the group's replica has confirmed an entry, as other nodes report, if its log does
    /// not reach it.
    pub(super) async fn lost(&self, group: GroupId, last: LogId) -> io::Result<()> {
        self.durable(|state| state.lost(group, last)).await
    }

    /// The entry that the group's log must reach before its replica takes part in elections: set if the
    /// replica returned or lost entries. None if it may take part.
    pub(super) fn floor(&self, group: GroupId) -> Option<LogId> {
        self.state().floor(group)
    }

    /// Whether the log knows anything of a group, including the promises of a replica that left.
    pub(super) fn has_seen(&self, group: GroupId) -> bool {
        self.state().has_seen(group)
    }

    /// Groups that the log knows of.
    pub(super) fn groups(&self) -> Vec<GroupId> {
        self.state().fronts.keys().copied().collect()
    }

    pub(super) fn log_bytes(&self, group: GroupId) -> u64 {
        self.state().log_byte_count(group)
    }

    /// Bytes of all segments.
    pub(super) fn byte_count(&self) -> u64 {
        self.state().segments.values().map(|segment| u64::from(segment.byte_count)).sum()
    }

    /// Groups that keep the oldest segment from being removed; empty if it is the only one.
    pub(super) fn groups_holding_oldest_segment(&self) -> Vec<GroupId> {
        let state = self.state();
        match state.segments.first_key_value() {
            Some((oldest, _)) if state.segments.len() > 1 => state.groups_in_segment(*oldest),
            _ => Vec::new(),
        }
    }

    /// Writes everything that was queued, and stops. Later calls return errors.
    pub(super) async fn close(&self) {
        self.closing.send_replace(true);
        if let Some(writer) = self.writer.lock().await.take() {
            // A writer that panicked has stopped too.
            let _ = writer.await;
        }
    }
}

/// Most bytes of an encoded entry: the decoder's limit, without the version byte.
const ENTRY_BYTES_MAX: usize = umbel_ports::encoding::ENCODED_BYTES_MAX;
