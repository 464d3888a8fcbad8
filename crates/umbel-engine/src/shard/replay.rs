//! The replay table: the answers that a shard gave, so that a retried request changes nothing.
//!
//! ```text
//! session 7 of A   expired below 12   │ 12: digest, answer │ 15 │ 13 │ …
//! session 9 of B   expired below 1    │ 1 │
//! forgotten through session 6 of A, session 8 of B, session 2 of all others
//! ```
//!
//! A stamped part (insert, removal or sum) is checked against these rules in this order:
//!
//! 1. The session is unknown, and not above the owner's forgotten sessions: *session expired*.
//! 2. The sequence number is below the session's `expired_below` or the stamp's `acknowledged_below`:
//!    *request expired*.
//! 3. There is a record with the same items: its answer is returned, nothing is applied.
//! 4. There is a record with other items, made before the shard was split, and the part is not cut for the
//!    range that the shard had then: *cut before*, with that range.
//! 5. There is a record with other items, and the part is cut for the same range: *request reused*.
//! 6. The part is not cut for the range that the shard has: *other cut*.
//! 7. Otherwise the part is applied and its answer recorded.
//!
//! *Law: at most once.* Every request reaches rule 7 at most once, whatever is forgotten in between:
//! dropping a record raises `expired_below` above its sequence number, and dropping a session raises the
//! owner's forgotten sessions to it.
//!
//! *Splits.* Both halves keep all records. A retry after the split is cut by the new ranges, and a recorded
//! answer does not say which of its items are in which half. So rule 4 returns the range for which the
//! recorded part was cut, and the coordinator asks again with that part. A part already cut for the new
//! range, sent by a node that learned of the split before the shard did, is not applied: its record would
//! cover the shard's whole old range.
//!
//! *No record.* A request whose items were all present is answered without the log. A retry is answered
//! *present* again, because bits only rise within a generation. Refused parts leave no record either,
//! because nothing of them was applied. The exception is a filter that is full: a retry finds the items
//! that were inserted present, and is refused again.
//!
//! *Bounds.* Above its limit of bytes, the table drops the oldest record of one owner: of the owner of the
//! new record if it holds more than an equal share, otherwise of the owner that holds the most. Above a
//! session's limit of requests, the table drops that session's record with the lowest sequence number.
//! Dropping a record also drops all lower ones of its session. Above the limit of sessions, the owner with
//! the most sessions, counting the new one, loses the one that recorded nothing for the longest time. So no
//! owner can evict the answers or sessions of an owner that has fewer. All of this depends on the log
//! alone, so all replicas forget alike.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use umbel_filter::HashRange;
use umbel_step::planted::{self, Planted};

use self::forgotten::{Forgotten, ForgottenHead};
use super::bitmap::Bitmap;
use super::command::{PartError, RequestStamp};
use super::digest::Digest;
use crate::ids::{FilterId, OwnerId, RequestId, SessionId, ShardId};
use crate::limits::{
    REPLAY_BYTES_MAX, REPLAY_OWNERS_MAX, REPLAY_REQUESTS_PER_SESSION_MAX, REPLAY_SESSIONS_MAX,
};

mod forgotten;

/// Bytes that a record counts for besides its bits: the record, its queue entry, the allocation of its
/// bits, and spare capacity of growing lists.
const RECORD_BYTES: usize = 110;

/// Spare record capacity that a session may keep.
const RECORDS_SPARE: usize = 8;

/// Requests without a record that an owner's queue may hold regardless of its size.
const QUEUE_SPARE: usize = 64;

/// Most former ranges of a shard: each split halves its range, and there are at most 1,024 shards.
const FORMER_RANGES_MAX: usize = 32;

/// The limits of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ReplayLimits {
    pub(super) bytes_max: usize,
    pub(super) sessions_max: usize,
    pub(super) owners_max: usize,
    pub(super) requests_per_session_max: usize,
}

impl ReplayLimits {
    /// The limits of every shard.
    pub(super) const SHARD: Self = Self {
        bytes_max: REPLAY_BYTES_MAX,
        sessions_max: REPLAY_SESSIONS_MAX,
        owners_max: REPLAY_OWNERS_MAX,
        requests_per_session_max: REPLAY_REQUESTS_PER_SESSION_MAX,
    };
}

/// The operation of a request, to tell apart two requests with the same id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Insert,
    Remove,
    /// Its answer is a number, stored as 64 bits.
    Sum,
}

/// What the table needs to know of a stamped part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) stamp: RequestStamp,
    /// Digest of operation, filter and hashes. It leaves out the generation, so that a retry with an older
    /// one still gets its answer.
    fingerprint: u64,
    item_count: u32,
}

impl Asked {
    pub(super) const fn new(
        stamp: RequestStamp,
        operation: Operation,
        filter: FilterId,
        item_count: u32,
    ) -> Self {
        let mut digest = Digest::new();
        digest.push(operation as u64);
        digest.push(filter.0);
        digest.push(stamp.digest);
        Self { stamp, fingerprint: digest.finish(), item_count }
    }
}

/// The answers that a shard has recorded.
#[derive(Clone, Debug)]
pub(super) struct ReplayTable {
    limits: ReplayLimits,
    sessions: BTreeMap<SessionId, Session>,
    /// Only owners that have a session.
    owners: BTreeMap<OwnerId, Owner>,
    bytes: usize,
    /// Number of records made so far; orders each owner's sessions.
    clock: u64,
    forgotten: Forgotten,
    /// The ranges that the shard had before splits, oldest first.
    former: Vec<HashRange>,
}

/// One owner's share of the table.
#[derive(Clone, Debug, Default)]
struct Owner {
    /// The owner's sessions by the time of their last request.
    sessions: BTreeMap<u64, SessionId>,
    /// The owner's requests in log order. Those without a record have been dropped since.
    queue: VecDeque<RequestId>,
    record_count: usize,
    bytes: usize,
}

impl Owner {
    /// Subtracts these records from the counts, and returns their bytes.
    fn forget<'r>(&mut self, records: impl ExactSizeIterator<Item = &'r Record>) -> usize {
        self.record_count -= records.len();
        let bytes = records.map(Record::bytes).sum();
        self.bytes -= bytes;
        bytes
    }
}

#[derive(Clone, Debug)]
struct Session {
    owner: OwnerId,
    expired_below: u64,
    requested_at: u64,
    /// In ascending order of sequence numbers.
    records: VecDeque<Record>,
}

#[derive(Clone, Debug)]
struct Record {
    sequence: u64,
    fingerprint: u64,
    /// Number of former ranges of the shard when the record was made.
    former_count: u32,
    answer: Bitmap,
}

impl Record {
    fn bytes(&self) -> usize {
        RECORD_BYTES + self.answer.as_bytes().len()
    }
}

impl Session {
    fn find(&self, sequence: u64) -> Result<usize, usize> {
        // Clients count up, so most new records go to the end.
        match self.records.back() {
            Some(last) if last.sequence < sequence => Err(self.records.len()),
            _ => self.records.binary_search_by_key(&sequence, |record| record.sequence),
        }
    }
}

impl ReplayTable {
    pub(super) const fn new(limits: ReplayLimits) -> Self {
        Self {
            limits,
            sessions: BTreeMap::new(),
            owners: BTreeMap::new(),
            bytes: 0,
            clock: 0,
            forgotten: Forgotten::new(),
            former: Vec::new(),
        }
    }

    /// Records that the shard's range was split: existing records were cut for `former` or a range before
    /// it.
    pub(super) fn split(&mut self, former: HashRange) {
        self.former.push(former);
    }

    fn former_count(&self) -> u32 {
        u32::try_from(self.former.len()).unwrap_or(u32::MAX)
    }

    /// The recorded answer, or None if the part must be applied. `range` is the shard's range.
    pub(super) fn look_up(
        &self,
        asked: &Asked,
        (shard, range): (ShardId, HashRange),
    ) -> Result<Option<Bitmap>, PartError> {
        let RequestStamp { id, acknowledged_below, owner, cut, .. } = asked.stamp;
        if id.sequence == u64::MAX {
            // `expired_below` could not be raised above it.
            let what = format!("{id}, expected a sequence number below 2^64 - 1");
            return Err(PartError::Malformed { what });
        }
        let session = self.sessions.get(&id.session);
        if session.is_none() && self.forgotten.has(owner, id.session) {
            return Err(PartError::SessionExpired { id });
        }
        let expired_below = session.map_or(0, |session| session.expired_below);
        if id.sequence < expired_below.max(acknowledged_below) {
            return Err(PartError::RequestExpired { id });
        }
        let record = session.and_then(|session| {
            session.find(id.sequence).ok().and_then(|at| session.records.get(at))
        });
        let (start, last) = cut;
        let other_cut = || PartError::OtherCut { shard, start, last };
        let Some(record) = record else {
            let is_taken = cut == range.bounds() || planted::on(Planted::OtherCutTaken);
            return if is_taken { Ok(None) } else { Err(other_cut()) };
        };
        if record.fingerprint == asked.fingerprint && record.answer.len() == asked.item_count {
            return Ok(Some(record.answer.clone()));
        }
        let former = self.former.get(record.former_count as usize);
        let recorded = former.unwrap_or(&range).bounds();
        match former {
            _ if cut == recorded => Err(PartError::RequestReused { id }),
            Some(_) => Err(PartError::CutBefore { id, start: recorded.0, last: recorded.1 }),
            None => Err(other_cut()),
        }
    }

    /// Records the answer of a part for which `look_up` found none.
    pub(super) fn record(&mut self, asked: &Asked, answer: Bitmap) {
        let RequestStamp { id, acknowledged_below, owner, .. } = asked.stamp;
        if !self.sessions.contains_key(&id.session)
            && self.sessions.len() >= self.limits.sessions_max
        {
            self.forget_one_for(owner);
        }
        let (sequence, former_count) = (id.sequence, self.former_count());
        let record = Record { sequence, fingerprint: asked.fingerprint, former_count, answer };
        self.note_request(id.session, owner);
        self.insert(id.session, record);
        self.expire(id.session, acknowledged_below);
        let session = self.sessions.get(&id.session);
        if let Some(session) = session
            && session.records.len() > self.limits.requests_per_session_max
            && let Some(lowest) = session.records.front()
        {
            let sequence = lowest.sequence;
            self.expire(id.session, sequence.saturating_add(1));
        }
        while self.bytes > self.limits.bytes_max {
            let Some(oldest) = self.largest(owner).and_then(|loser| self.oldest(loser)) else {
                break;
            };
            self.expire(oldest.session, oldest.sequence.saturating_add(1));
        }
    }

    /// The owner whose record is dropped after a new one of `owner`.
    fn largest(&self, owner: OwnerId) -> Option<OwnerId> {
        let share = self.limits.bytes_max / self.owners.len().max(1);
        if self.owners.get(&owner).is_some_and(|own| own.bytes > share) {
            return Some(owner);
        }
        let by_bytes = self.owners.iter().max_by_key(|&(&id, of)| (of.bytes, Reverse(id)));
        by_bytes.map(|(&id, _)| id)
    }

    /// Removes an owner's oldest request that has a record from its queue, and returns it.
    fn oldest(&mut self, owner: OwnerId) -> Option<RequestId> {
        let queue = &mut self.owners.get_mut(&owner)?.queue;
        std::iter::from_fn(|| queue.pop_front()).find(|&id| is_live(&self.sessions, id))
    }

    /// Notes that a session, which may be new, sent a request now.
    fn note_request(&mut self, id: SessionId, owner: OwnerId) {
        let now = self.clock;
        self.clock += 1;
        let session = self.sessions.entry(id).or_insert_with(|| Session {
            owner,
            expired_below: 0,
            requested_at: now,
            records: VecDeque::new(),
        });
        let of_owner = &mut self.owners.entry(session.owner).or_default().sessions;
        of_owner.remove(&session.requested_at);
        session.requested_at = now;
        of_owner.insert(now, id);
    }

    /// Adds a record, unless there is one with its sequence number.
    fn insert(&mut self, id: SessionId, record: Record) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if let Err(at) = session.find(record.sequence) {
            let owner = self.owners.entry(session.owner).or_default();
            owner.record_count += 1;
            owner.bytes += record.bytes();
            owner.queue.push_back(RequestId { session: id, sequence: record.sequence });
            self.bytes += record.bytes();
            session.records.insert(at, record);
        }
    }

    /// Drops a session's records below a sequence number.
    fn expire(&mut self, id: SessionId, below: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.expired_below = session.expired_below.max(below);
        let count = session.find(below).unwrap_or_else(|at| at);
        let owner = self.owners.entry(session.owner).or_default();
        self.bytes -= owner.forget(session.records.iter().take(count));
        session.records.drain(..count);
        // Otherwise sessions and owners that were busy once would hold memory that no limit counts.
        if session.records.capacity() > 4 * session.records.len() + RECORDS_SPARE {
            session.records.shrink_to(2 * session.records.len());
        }
        let owner = session.owner;
        self.compact(owner);
    }

    /// The owner that loses a session to a new one of `owner`: `owner` itself if it then has the most.
    fn most_crowded(&self, owner: OwnerId) -> Option<OwnerId> {
        let quietest = |of: &Owner| of.sessions.first_key_value().map(|(&at, _)| at);
        let (&most, of_most) =
            self.owners.iter().max_by_key(|(_, of)| (of.sessions.len(), Reverse(quietest(of))))?;
        let own_count = self.owners.get(&owner).map_or(0, |of| of.sessions.len());
        let is_own = own_count > 0 && own_count + 1 >= of_most.sessions.len();
        Some(if is_own { owner } else { most })
    }

    /// Forgets one session, to make room for a new one of `owner`.
    fn forget_one_for(&mut self, owner: OwnerId) {
        let Some(loser) = self.most_crowded(owner) else { return };
        let Some(of_loser) = self.owners.get_mut(&loser) else { return };
        let Some((_, id)) = of_loser.sessions.pop_first() else { return };
        let Some(session) = self.sessions.remove(&id) else { return };
        self.bytes -= of_loser.forget(session.records.iter());
        if of_loser.sessions.is_empty() {
            self.owners.remove(&loser);
        } else {
            self.compact(loser);
        }
        self.forgotten.add(loser, id, self.limits.owners_max);
    }

    /// Removes dropped requests from an owner's queue once they are half of it: amortised constant cost per
    /// record.
    fn compact(&mut self, owner: OwnerId) {
        let Some(of_owner) = self.owners.get_mut(&owner) else { return };
        if of_owner.queue.len() > 2 * of_owner.record_count + QUEUE_SPARE {
            let sessions = &self.sessions;
            of_owner.queue.retain(|&id| is_live(sessions, id));
            of_owner.queue.shrink_to(2 * of_owner.record_count);
        }
    }

    /// Bytes that all records count for.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Requests in all queues, with and without a record.
    #[cfg(test)]
    pub(super) fn queued_count(&self) -> usize {
        self.owners.values().map(|owner| owner.queue.len()).sum()
    }

    pub(super) fn push_digest(&self, digest: &mut Digest) {
        let head = self.head();
        head.forgotten.push_digest(digest);
        digest.push(head.former.len() as u64);
        for bound in head.former.iter().flat_map(|&(start, last)| [start, last]) {
            digest.push(bound);
        }
        digest.push(head.sessions.len() as u64);
        for session in &head.sessions {
            digest.push(session.session.0);
            digest.push(session.owner.0);
            digest.push(session.expired_below);
        }
        digest.push(head.records.len() as u64);
        for record in &head.records {
            digest.push(record.id.session.0);
            digest.push(record.id.sequence);
            digest.push(record.fingerprint);
            digest.push(record.former_count.into());
            digest.push(record.answer.len().into());
            digest.push_bytes(record.answer.as_bytes());
        }
    }

    /// The table in the form that a snapshot carries.
    pub(super) fn head(&self) -> ReplayHead {
        let mut sessions: Vec<_> = self.sessions.iter().collect();
        sessions.sort_unstable_by_key(|(_, session)| session.requested_at);
        let sessions = sessions.into_iter().map(|(&id, session)| {
            let Session { owner, expired_below, .. } = *session;
            SessionHead { session: id, owner, expired_below }
        });
        let queues = self.owners.values().flat_map(|owner| &owner.queue);
        let records = queues.filter_map(|&id| {
            let session = self.sessions.get(&id.session)?;
            let record = session.records.get(session.find(id.sequence).ok()?)?;
            let Record { fingerprint, former_count, ref answer, .. } = *record;
            Some(RecordHead { id, fingerprint, former_count, answer: answer.clone() })
        });
        ReplayHead {
            former: self.former.iter().map(|range| range.bounds()).collect(),
            forgotten: self.forgotten.head(),
            sessions: sessions.collect(),
            records: records.collect(),
        }
    }

    /// Restores the table from a snapshot, or returns what is wrong with it.
    pub(super) fn from_head(limits: ReplayLimits, head: &ReplayHead) -> Result<Self, String> {
        let ReplayHead { forgotten, former, sessions, records } = head;
        let mut table = Self::new(limits);
        table.former = former_ranges(former)?;
        table.forgotten = Forgotten::from_head(forgotten, limits.owners_max)?;
        if sessions.len() > limits.sessions_max {
            let (got, most) = (sessions.len(), limits.sessions_max);
            return Err(format!("{got} sessions, expected at most {most}"));
        }
        for &SessionHead { session, owner, expired_below } in sessions {
            if table.sessions.contains_key(&session) {
                return Err(format!("{session} stands twice"));
            }
            table.note_request(session, owner);
            table.expire(session, expired_below);
        }
        for RecordHead { id, fingerprint, former_count, answer } in records {
            answer.check().map_err(|error| format!("answer to {id}: {error}"))?;
            let Some(session) = table.sessions.get(&id.session) else {
                return Err(format!("{id} belongs to no session of the table"));
            };
            if id.sequence < session.expired_below || id.sequence == u64::MAX {
                return Err(format!("{id}, expired below {}", session.expired_below));
            }
            if session.records.len() >= limits.requests_per_session_max {
                return Err(format!("more than {} requests", limits.requests_per_session_max));
            }
            if is_live(&table.sessions, *id) {
                return Err(format!("{id} stands twice"));
            }
            let (fingerprint, former_count) = (*fingerprint, *former_count);
            if former_count > table.former_count() {
                return Err(format!("{id} after {former_count} splits, of {}", former.len()));
            }
            let (sequence, answer) = (id.sequence, answer.detached());
            table.insert(id.session, Record { sequence, fingerprint, former_count, answer });
            if table.bytes > limits.bytes_max {
                return Err(format!("more than {} bytes of answers", limits.bytes_max));
            }
        }
        Ok(table)
    }
}

/// Whether a request has a record. A dropped record never comes back, because its sequence number or its
/// session has expired.
fn is_live(sessions: &BTreeMap<SessionId, Session>, id: RequestId) -> bool {
    sessions.get(&id.session).is_some_and(|session| session.find(id.sequence).is_ok())
}

/// Validates a shard's former ranges, or returns what is wrong with them.
fn former_ranges(bounds: &[(u64, u64)]) -> Result<Vec<HashRange>, String> {
    if bounds.len() > FORMER_RANGES_MAX {
        let got = bounds.len();
        return Err(format!("{got} ranges before splits, expected at most {FORMER_RANGES_MAX}"));
    }
    let ranges = bounds.iter().map(|&bounds| HashRange::from_bounds(bounds));
    ranges.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// The replay table as a snapshot carries it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct ReplayHead {
    forgotten: ForgottenHead,
    /// First and last hash of each former range.
    former: Vec<(u64, u64)>,
    /// Least recently used first.
    sessions: Vec<SessionHead>,
    /// By owner, oldest first.
    records: Vec<RecordHead>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct SessionHead {
    session: SessionId,
    owner: OwnerId,
    expired_below: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct RecordHead {
    id: RequestId,
    fingerprint: u64,
    former_count: u32,
    answer: Bitmap,
}
