//! A group's log, in the form that openraft requires.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds, RangeInclusive};
use std::sync::Arc;

use bytes::Bytes;
use openraft::alias::LeaderIdOf;
use openraft::entry::RaftPayload;
use openraft::storage::{IOFlushed, LeaderBoundedStreamResult, LogState, RaftLogStorage};
use openraft::{EntryPayload, OptionalSend, RaftLogReader};
use tokio::sync::oneshot;
use tokio_stream::Stream;
use umbel_engine::{GroupId, NodeId};
use umbel_ports::encoding::encode;

use super::log_stream::{EntryStream, LeaderStream};
use super::wal::{Flushed, Wal};
use crate::observer::{Event, NodeObserver};
use crate::types::{LogCommand, LogEntry, LogId, Types, Vote, entry_id, own_log_id, vote_id};

/// Bytes of entries that a limited read returns: the size of one message on a link, and of what a
/// stream holds in memory.
pub(super) const READ_BYTES_MAX: u64 = 4 << 20;

/// The log of a group. Clones read the same log.
#[derive(Clone)]
pub struct LogStore {
    pub(super) wal: Arc<Wal>,
    pub(super) group: GroupId,
    observer: Option<Arc<dyn NodeObserver>>,
}

impl LogStore {
    pub(super) fn new(
        wal: Arc<Wal>,
        group: GroupId,
        observer: Option<Arc<dyn NodeObserver>>,
    ) -> Self {
        Self { wal, group, observer }
    }

    fn observe(&self, event: &Event<'_>) {
        if let Some(observer) = &self.observer {
            observer.observe(event);
        }
    }

    /// Reports the current contents of the log to the node's observer.
    pub fn observe_opened(&self, node: NodeId) {
        let Some(observer) = &self.observer else { return };
        let state = self.wal.log_state(self.group);
        let (purged, last) = (state.last_purged_log_id, state.last_log_id);
        let from = purged.map_or(0, |purged| purged.index + 1);
        let ends = last
            .filter(|last| last.index >= from)
            .map_or_else(Vec::new, |last| self.wal.key_log_ids(self.group, from, last.index));
        observer.observe(&Event::LogOpened {
            group: self.group,
            node,
            purged: purged.map(entry_id),
            last: last.map(entry_id),
            ends: &ends.into_iter().map(entry_id).collect::<Vec<_>>(),
            vote: self.wal.vote(self.group).map(vote_id),
        });
    }

    /// Makes the group known in the log before its first entry: files of a group that the log does not
    /// know are leftovers.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn found(&self, node: NodeId) -> io::Result<()> {
        self.wal.save_vote(self.group, Vote::new(1, node)).await
    }

    /// Index of the last entry, purged or not; 0 if there was none.
    pub fn last_index(&self) -> u64 {
        self.wal.log_state(self.group).last_log_id.map_or(0, |last| last.index)
    }

    /// Adopts what other nodes know about this node's replica of the group, before the replica starts:
    /// raises the vote to theirs, and records the entry that the replica confirmed, if its log lacks
    /// it.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn recall(&self, vote: Option<Vote>, confirmed: Option<LogId>) -> io::Result<()> {
        if let Some(vote) = vote.filter(|&vote| self.wal.vote(self.group) < Some(vote)) {
            self.wal.save_vote(self.group, vote).await?;
        }
        match confirmed {
            Some(confirmed) => self.wal.lost(self.group, confirmed).await,
            None => Ok(()),
        }
    }

    /// Records that the replica has confirmed an entry, if the log does not reach it.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn lost(&self, confirmed: LogId) -> io::Result<()> {
        self.wal.lost(self.group, confirmed).await
    }

    /// Index of the first entry that is not purged.
    pub fn first_index(&self) -> u64 {
        self.wal.log_state(self.group).last_purged_log_id.map_or(0, |purged| purged.index + 1)
    }

    /// The id of the last entry.
    pub fn last_id(&self) -> Option<LogId> {
        self.wal.log_state(self.group).last_log_id
    }

    /// The replica's vote: at least the highest one that it has told another node of. None before the
    /// first one.
    pub fn vote(&self) -> Option<Vote> {
        self.wal.vote(self.group)
    }

    /// The entry that this log must reach before the replica takes part in elections: set if the
    /// replica returned to this node or lost entries. None if it may take part.
    pub fn floor(&self) -> Option<LogId> {
        self.wal.floor(self.group)
    }

    /// Appends an entry to a log that only this node writes. The receiver gets the outcome.
    ///
    /// # Errors
    /// If the log has failed or is closed.
    pub async fn append_own(
        &self,
        node: NodeId,
        index: u64,
        command: LogCommand,
    ) -> io::Result<oneshot::Receiver<io::Result<()>>> {
        let payload = EntryPayload::Normal(command);
        let entry = LogEntry { log_id: own_log_id(node, index), payload };
        let bytes = encode(&entry);
        self.wal.append_own(self.group, (entry, bytes)).await
    }

    /// The next entries from an index on, a limited number at a time; empty after the last one.
    ///
    /// # Errors
    /// If the disk fails or the log is damaged.
    pub async fn read_from(&self, from: u64) -> io::Result<Vec<LogEntry>> {
        Ok(self.wal.read(self.group, from, u64::MAX, READ_BYTES_MAX).await?.1)
    }

    /// The next entries of a log that only this node writes: their indexes and commands, as
    /// [`read_from`](Self::read_from).
    ///
    /// # Errors
    /// If the disk fails or the log is damaged; `InvalidData` also for an entry without a command, which
    /// [`append_own`](Self::append_own) does not write.
    pub async fn read_own(&self, from: u64) -> io::Result<Vec<(u64, LogCommand)>> {
        let command = |entry: LogEntry| match entry.payload {
            EntryPayload::Normal(command) => Ok((entry.log_id.index, command)),
            EntryPayload::Blank | EntryPayload::Membership(_) => {
                let text = format!("entry {} of the log holds no inserts", entry.log_id.index);
                Err(io::Error::new(io::ErrorKind::InvalidData, text))
            }
        };
        self.read_from(from).await?.into_iter().map(command).collect()
    }

    /// Purges all entries up to an index, which a snapshot covers.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn purge_own(&self, node: NodeId, through: u64) -> io::Result<()> {
        self.wal.purge(self.group, own_log_id(node, through)).await
    }

    /// openraft's callback, which also reports the entries to the node's observer.
    fn flushed(&self, entries: &[(LogEntry, Bytes)], callback: IOFlushed<Types>) -> Flushed {
        let Some((observer, (last, _))) = self.observer.as_ref().zip(entries.last()) else {
            return Flushed::new(callback);
        };
        for (entry, bytes) in entries {
            let checksum = umbel_codec::crc32c(&[bytes]);
            let members = entry.payload.get_membership();
            let voters = members.as_ref().map(|members| &members.get_joint_config()[..]);
            let (group, entry) = (self.group, entry_id(entry.log_id));
            observer.observe(&Event::Appended { group, entry, checksum, voters });
        }
        Flushed::observed(callback, Arc::clone(observer), self.group, entry_id(last.log_id))
    }
}

/// The range as its first index and the index after its last.
pub(super) fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(index) => *index,
        Bound::Excluded(index) => index.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let to = match range.end_bound() {
        Bound::Included(index) => index.saturating_add(1),
        Bound::Excluded(index) => *index,
        Bound::Unbounded => u64::MAX,
    };
    (from, to)
}

impl RaftLogReader<Types> for LogStore {
    async fn leader_bounded_stream<RB>(
        &mut self,
        leader: LeaderIdOf<Types>,
        range: RB,
    ) -> impl Stream<Item = LeaderBoundedStreamResult<Types>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        LeaderStream::new(self.clone(), leader, bounds(&range))
    }

    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = io::Result<LogEntry>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        EntryStream::new(self.clone(), bounds(&range))
    }

    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<LogEntry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (from, to) = bounds(&range);
        Ok(self.wal.read(self.group, from, to, u64::MAX).await?.1)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<LogEntry>> {
        Ok(self.wal.read(self.group, start, end, READ_BYTES_MAX).await?.1)
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.wal.vote(self.group))
    }

    async fn get_key_log_ids(&mut self, range: RangeInclusive<LogId>) -> io::Result<Vec<LogId>> {
        let (from, through) = (range.start().index, range.end().index);
        Ok(self.wal.key_log_ids(self.group, from, through))
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        Ok(self.wal.log_state(self.group))
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.wal.save_vote(self.group, *vote).await?;
        self.observe(&Event::VoteSaved { group: self.group, vote: vote_id(*vote) });
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.wal.save_committed(self.group, committed).await
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.wal.committed(self.group))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = LogEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let encoded = |entry: LogEntry| {
            let bytes = encode(&entry);
            (entry, bytes)
        };
        let entries: Vec<(LogEntry, Bytes)> = entries.into_iter().map(encoded).collect();
        let flushed = self.flushed(&entries, callback);
        self.wal.append(self.group, entries, flushed).await
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> io::Result<()> {
        let after = last_log_id.map(|id| id.index);
        self.observe(&Event::Truncated { group: self.group, after });
        self.wal.truncate(self.group, last_log_id).await
    }

    async fn purge(&mut self, log_id: LogId) -> io::Result<()> {
        self.observe(&Event::Purged { group: self.group, through: entry_id(log_id) });
        self.wal.purge(self.group, log_id).await
    }
}
