//! One group's log, as openraft wants it.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds, RangeInclusive};
use std::sync::Arc;

use bytes::Bytes;
use openraft::alias::LeaderIdOf;
use openraft::storage::{IOFlushed, LeaderBoundedStreamResult, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use tokio_stream::Stream;
use umbel_engine::GroupId;

use super::log_stream::{EntryStream, LeaderStream};
use super::wal::Wal;
use crate::raft::encoding::encode;
use crate::raft::types::{Entry, LogId, Types, Vote};

/// Bytes of entries that a limited read returns: what goes over a link in one message, and what a
/// stream holds in memory.
pub(super) const READ_BYTES_MAX: u64 = 4 << 20;

/// The log of a group. Clones are readers of the same log.
#[derive(Clone)]
pub(crate) struct LogStore {
    pub(super) wal: Arc<Wal>,
    pub(super) group: GroupId,
}

impl LogStore {
    pub(super) fn new(wal: Arc<Wal>, group: GroupId) -> Self {
        Self { wal, group }
    }
}

/// The range as a first index and the index behind the last.
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
    ) -> impl Stream<Item = io::Result<Entry>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        EntryStream::new(self.clone(), bounds(&range))
    }

    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<Entry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (from, to) = bounds(&range);
        Ok(self.wal.read(self.group, from, to, u64::MAX).await?.1)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
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
        self.wal.save_vote(self.group, *vote).await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.wal.save_committed(self.group, committed).await
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.wal.committed(self.group))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let encoded = |entry: Entry| {
            let bytes = encode(&entry);
            (entry, bytes)
        };
        let entries: Vec<(Entry, Bytes)> = entries.into_iter().map(encoded).collect();
        self.wal.append(self.group, entries, callback).await
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> io::Result<()> {
        self.wal.truncate(self.group, last_log_id).await
    }

    async fn purge(&mut self, log_id: LogId) -> io::Result<()> {
        self.wal.purge(self.group, log_id).await
    }
}
