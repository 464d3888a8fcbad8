//! Streams of long ranges of a log, with a few megabytes in memory at a time.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use openraft::alias::LeaderIdOf;
use openraft::errors::LeaderChanged;
use openraft::storage::{LeaderBoundedStreamError, LeaderBoundedStreamResult};
use tokio_stream::Stream;

use super::log_store::{LogStore, READ_BYTES_MAX};
use crate::types::{LogEntry, Types, Vote};

type Read = Pin<Box<dyn Future<Output = io::Result<(Option<Vote>, Vec<LogEntry>)>> + Send>>;

/// Reads a range in pieces.
struct Pieces {
    log: LogStore,
    from: u64,
    to: u64,
    reading: Option<Read>,
}

impl Pieces {
    /// The next piece, with the group's vote at that moment; empty at the end.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Option<Vote>, Vec<LogEntry>)>> {
        let Self { log, from, to, reading } = self;
        let read = reading.get_or_insert_with(|| {
            let (wal, group, from, to) = (log.wal.clone(), log.group, *from, *to);
            Box::pin(async move { wal.read(group, from, to, READ_BYTES_MAX).await })
        });
        let result = ready!(read.as_mut().poll(cx));
        *reading = None;
        match &result {
            Ok((_, entries)) => *from = entries.last().map_or(*to, |e| e.log_id.index + 1),
            Err(_) => *from = *to,
        }
        Poll::Ready(result)
    }
}

/// The entries of a range.
pub(super) struct EntryStream {
    pieces: Pieces,
    ready: VecDeque<LogEntry>,
}

impl EntryStream {
    pub(super) fn new(log: LogStore, (from, to): (u64, u64)) -> Self {
        Self { pieces: Pieces { log, from, to, reading: None }, ready: VecDeque::new() }
    }
}

impl Stream for EntryStream {
    type Item = io::Result<LogEntry>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ready.is_empty() && self.pieces.from < self.pieces.to {
            match ready!(self.pieces.poll(cx)) {
                Ok((_, entries)) => self.ready = entries.into(),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        Poll::Ready(self.ready.pop_front().map(Ok))
    }
}

/// The entries of a range, as long as one leader's vote stands.
pub(super) struct LeaderStream {
    entries: EntryStream,
    leader: LeaderIdOf<Types>,
    has_ended: bool,
}

impl LeaderStream {
    pub(super) fn new(log: LogStore, leader: LeaderIdOf<Types>, range: (u64, u64)) -> Self {
        Self { entries: EntryStream::new(log, range), leader, has_ended: false }
    }

    fn end(
        &mut self,
        error: LeaderBoundedStreamError<Types>,
    ) -> Poll<Option<LeaderBoundedStreamResult<Types>>> {
        self.has_ended = true;
        Poll::Ready(Some(Err(error)))
    }

    fn is_leader(&self, vote: Option<&Vote>) -> bool {
        vote.is_some_and(|vote| vote.leader_id == self.leader && vote.committed)
    }
}

impl Stream for LeaderStream {
    type Item = LeaderBoundedStreamResult<Types>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let log = &self.entries.pieces.log;
        let vote = log.wal.vote(log.group);
        if !self.is_leader(vote.as_ref()) {
            let changed = LeaderChanged::new(self.leader, vote);
            return self.end(LeaderBoundedStreamError::LeaderChanged(changed));
        }
        match ready!(Pin::new(&mut self.entries).poll_next(cx)) {
            // The vote may have changed during the read from disk.
            Some(Ok(entry)) => {
                let log = &self.entries.pieces.log;
                let vote = log.wal.vote(log.group);
                if self.is_leader(vote.as_ref()) {
                    return Poll::Ready(Some(Ok(entry)));
                }
                let changed = LeaderChanged::new(self.leader, vote);
                self.end(LeaderBoundedStreamError::LeaderChanged(changed))
            }
            Some(Err(error)) => self.end(LeaderBoundedStreamError::IoError(error)),
            None => Poll::Ready(None),
        }
    }
}
