//! The replay table: the answers that a shard gave, so that a retried request changes nothing.
//!
//! ```text
//! session 7 of A   expired below 12   │ 12 cut for 0..99: digest, answer │ 13 for 0..49 │ 13 for 50..99 │ …
//! session 9 of B   expired below 1    │ 1 │
//! forgotten through session 6 of A, session 8 of B, session 2 of all others
//! ```
//!
//! A stamped part (insert, removal or sum) is cut for a range of hashes, its *cut*, and has all of the
//! request's items in it. There is one record per request and cut: a request may have several records in a
//! shard, and their cuts do not overlap. A part is checked against these rules in this order:
//!
//! 1. The session is unknown, and not above the owner's forgotten sessions: *session expired*.
//! 2. The sequence number is below the session's `expired_below` or the stamp's `acknowledged_below`:
//!    *request expired*.
//! 3. A record's cut overlaps this one; let it be the lowest such. With the same items its answer is
//!    returned, and nothing is applied: all of the request's items in either cut are in both. (A sum names no
//!    items, so its cut must be the same.) With other items and the same cut: *request reused*.
//! 4. Otherwise, with such a record: *cut before*, with its cut.
//! 5. The cut is the shard's range, or a part of it and the request has other records here: the part is
//!    applied and its answer recorded.
//! 6. Otherwise: *other cut*.
//!
//! *Law: at most once.* No item of a request reaches rule 5 twice, whatever is forgotten in between: a
//! record covers all hashes of its cut, it goes with them wherever shards are split or merged, dropping it
//! raises `expired_below` above its sequence number, and dropping a session raises the owner's forgotten
//! sessions to it.
//!
//! *Splits and merges.* A half keeps the records that overlap its range, and a merged shard has those of
//! both. A retry is then cut by other ranges than the recorded parts, and a recorded answer does not say
//! which of its items are where. So rule 4 returns the recorded cut. The coordinator asks for that part, and
//! then for what is left of its own ([`Pieces`](crate::routing::Pieces)).
//!
//! *Parts of the range.* By the law, every part of the range that overlaps no record could be applied. But
//! only what is left of a part after rule 4 is: then the request has a record here. A part of a range that
//! nobody has answered for comes from a node that learned of a split before the shard did, or of a merge
//! after it; it is refused, and comes again, cut for the range. So a request has no more records than it had
//! parts. A record that is narrower than the range appears only with the first merge, so before it, releases
//! that know of no merges decide alike. A sum has no items, and adds what is in the whole range: no part of
//! it can be left.
//!
//! *No record.* A request whose items were all present is answered without the log. A retry is answered
//! *present* again, because bits only rise within a generation. Refused parts leave no record either,
//! because nothing of them was applied. The exception is a filter that is full: a retry finds the items
//! that were inserted present, and is refused again.
//!
//! *Bounds.* Above its limit of bytes, the table drops the oldest request of one owner: of the owner of the
//! new record if it holds more than an equal share, otherwise of the owner that holds the most. Above a
//! session's limit of requests, the table drops that session's request with the lowest sequence number.
//! Dropping a request drops all its records, and those of all lower ones of its session. Above the limit of
//! sessions, the owner with the most sessions, counting the new one, loses the one that recorded nothing for
//! the longest time. So no owner can evict the answers or sessions of an owner that has fewer. All of this
//! depends on the log alone, so all replicas forget alike.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use umbel_filter::HashRange;
use umbel_step::planted::{self, Planted};

use self::forgotten::Forgotten;
pub(super) use self::head::ReplayHead;
use super::bitmap::Bitmap;
use super::command::RequestStamp;
use super::digest::Digest;
use super::part_error::PartError;
use crate::ids::{FilterId, OwnerId, RequestId, SessionId, ShardId};
use crate::limits::{
    REPLAY_BYTES_MAX, REPLAY_OWNERS_MAX, REPLAY_REQUESTS_PER_SESSION_MAX, REPLAY_SESSIONS_MAX,
};
use crate::shard::PartResult;

mod forgotten;
mod head;
mod merge;

/// Bytes that a record counts for besides its bits: the record, its queue entry, the allocation of its
/// bits, and spare capacity of growing lists. It decides what is dropped, so all releases must agree on it.
const RECORD_BYTES: usize = 110;

/// Spare record capacity that a session may keep.
const RECORDS_SPARE: usize = 8;

/// Requests without a record that an owner's queue may hold regardless of its size.
const QUEUE_SPARE: usize = 64;

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
pub(super) struct StampedPart {
    pub(super) stamp: RequestStamp,
    /// Digest of operation, filter and hashes. It leaves out the generation, so that a retry with an older
    /// one still gets its answer.
    fingerprint: u64,
    item_count: u32,
    operation: Operation,
}

impl StampedPart {
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
        Self { stamp, fingerprint: digest.finish(), item_count, operation }
    }

    /// Whether a record whose cut overlaps that of the part is about all of its items.
    fn is_answered_by(&self, record: &Record, cut: HashRange) -> bool {
        (record.cut == cut || self.operation != Operation::Sum)
            && record.fingerprint == self.fingerprint
            && record.answer.len() == self.item_count
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
    /// The ranges that were cut in two until the shard's range was left, widest first. Any that do not
    /// cover more than it are from before a merge.
    former: Vec<HashRange>,
}

/// One owner's share of the table.
#[derive(Clone, Debug, Default)]
struct Owner {
    /// The owner's sessions by the time of their last request.
    sessions: BTreeMap<u64, SessionId>,
    /// The owner's requests in the order of their first records. Those without a record have been dropped
    /// since.
    queue: VecDeque<RequestId>,
    request_count: usize,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Session {
    owner: OwnerId,
    expired_below: u64,
    requested_at: u64,
    request_count: usize,
    /// In ascending order of sequence numbers and cuts; the cuts of one request do not overlap.
    records: VecDeque<Record>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Record {
    sequence: u64,
    fingerprint: u64,
    /// The range for which the part was cut.
    cut: HashRange,
    answer: Bitmap,
}

impl Record {
    fn bytes(&self) -> usize {
        RECORD_BYTES + self.answer.as_bytes().len()
    }
}

/// What records count for in the limits.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Weight {
    requests: usize,
    bytes: usize,
}

impl Weight {
    /// The weight of all records of some requests, in the order of a session.
    fn of<'r>(records: impl Iterator<Item = &'r Record>) -> Self {
        let (mut weight, mut last) = (Self { requests: 0, bytes: 0 }, None);
        for record in records {
            weight.requests += usize::from(last.replace(record.sequence) != Some(record.sequence));
            weight.bytes += record.bytes();
        }
        weight
    }
}

impl Session {
    /// Index of the first record with at least this sequence number.
    fn first_from(&self, sequence: u64) -> usize {
        // Clients count up, so most new records go to the end.
        match self.records.back() {
            Some(last) if last.sequence >= sequence => {
                self.records.partition_point(|record| record.sequence < sequence)
            }
            _ => self.records.len(),
        }
    }

    /// The records of a request, in ascending order of their cuts.
    fn records_of(&self, sequence: u64) -> impl Iterator<Item = &Record> {
        let records = self.records.range(self.first_from(sequence)..);
        records.take_while(move |record| record.sequence == sequence)
    }

    /// The first of the request's records whose cut overlaps this one, or the index at which a record of
    /// this cut belongs.
    fn overlapping(&self, sequence: u64, cut: HashRange) -> Result<&Record, usize> {
        // The cuts of one request do not overlap, so they ascend by their last hashes, too.
        let is_below =
            |record: &Record| (record.sequence, record.cut.last()) < (sequence, cut.start());
        let at = match self.records.back() {
            Some(last) if !is_below(last) => self.records.partition_point(is_below),
            _ => return Err(self.records.len()),
        };
        let found = self.records.get(at);
        found.filter(|found| found.sequence == sequence && found.cut.overlaps(cut)).ok_or(at)
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

    /// The recorded answer, or None if the part must be applied. `range` is the shard's range.
    pub(super) fn look_up(
        &self,
        stamped: &StampedPart,
        (shard, range): (ShardId, HashRange),
    ) -> PartResult<Option<Bitmap>> {
        let RequestStamp { id, acknowledged_below, owner, cut, .. } = stamped.stamp;
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
        let (start, last) = cut;
        let other_cut = || PartError::OtherCut { shard, start, last };
        let cut = HashRange::from_bounds(cut).map_err(|_| other_cut())?;
        let session = session.filter(|session| session.records_of(id.sequence).next().is_some());
        match session.map(|session| session.overlapping(id.sequence, cut)) {
            Some(Ok(record)) if stamped.is_answered_by(record, cut) => {
                Ok(Some(record.answer.clone()))
            }
            Some(Ok(record)) if record.cut == cut => Err(PartError::RequestReused { id }),
            Some(Ok(_)) if planted::on(Planted::OtherCutTaken) => Ok(None),
            Some(Ok(record)) => {
                let (start, last) = record.cut.bounds();
                Err(PartError::CutBefore { id, start, last })
            }
            Some(Err(_)) if range.covers(cut) && stamped.operation != Operation::Sum => Ok(None),
            _ if cut == range => Ok(None),
            _ => Err(other_cut()),
        }
    }

    /// Records the answer of a part for which `look_up` found none.
    pub(super) fn record(&mut self, stamped: &StampedPart, answer: Bitmap) {
        let RequestStamp { id, acknowledged_below, owner, cut, .. } = stamped.stamp;
        let Ok(cut) = HashRange::from_bounds(cut) else { return };
        if !self.sessions.contains_key(&id.session)
            && self.sessions.len() >= self.limits.sessions_max
        {
            self.forget_one_for(Some(owner));
        }
        let (sequence, fingerprint) = (id.sequence, stamped.fingerprint);
        self.note_request(id.session, owner);
        self.insert(id.session, Record { sequence, fingerprint, cut, answer });
        self.expire(id.session, acknowledged_below);
        self.limit_requests(id.session);
        while self.bytes > self.limits.bytes_max {
            let Some(loser) = self.largest(owner) else { break };
            if !self.drop_oldest(loser) {
                break;
            }
        }
    }

    /// Drops the lowest requests of a session that has more than it may.
    fn limit_requests(&mut self, id: SessionId) {
        while let Some(session) = self.sessions.get(&id)
            && session.request_count > self.limits.requests_per_session_max
            && let Some(lowest) = session.records.front()
        {
            let sequence = lowest.sequence;
            self.expire(id, sequence.saturating_add(1));
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

    /// Drops an owner's oldest request that has a record; false if there is none.
    fn drop_oldest(&mut self, owner: OwnerId) -> bool {
        let Some(of_owner) = self.owners.get_mut(&owner) else { return false };
        let mut queued = std::iter::from_fn(|| of_owner.queue.pop_front());
        let oldest = queued.find(|&id| is_live(&self.sessions, id));
        if let Some(oldest) = oldest {
            self.expire(oldest.session, oldest.sequence.saturating_add(1));
        }
        oldest.is_some()
    }

    /// Notes that a session, which may be new, sent a request now.
    fn note_request(&mut self, id: SessionId, owner: OwnerId) {
        let now = self.clock;
        self.clock += 1;
        let session = self.sessions.entry(id).or_insert_with(|| Session {
            owner,
            expired_below: 0,
            requested_at: now,
            request_count: 0,
            records: VecDeque::new(),
        });
        let of_owner = &mut self.owners.entry(session.owner).or_default().sessions;
        of_owner.remove(&session.requested_at);
        session.requested_at = now;
        of_owner.insert(now, id);
    }

    /// Adds a record, unless one of its request overlaps it.
    fn insert(&mut self, id: SessionId, record: Record) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if let Err(at) = session.overlapping(record.sequence, record.cut) {
            let owner = self.owners.entry(session.owner).or_default();
            if session.records_of(record.sequence).next().is_none() {
                session.request_count += 1;
                owner.request_count += 1;
                owner.queue.push_back(RequestId { session: id, sequence: record.sequence });
            }
            owner.bytes += record.bytes();
            self.bytes += record.bytes();
            session.records.insert(at, record);
        }
    }

    /// Drops a session's records below a sequence number.
    fn expire(&mut self, id: SessionId, below: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.expired_below = session.expired_below.max(below);
        let count = session.first_from(below);
        let gone = Weight::of(session.records.range(..count));
        session.records.drain(..count);
        session.request_count -= gone.requests;
        // Otherwise sessions and owners that were busy once would hold memory that no limit counts.
        if session.records.capacity() > 4 * session.records.len() + RECORDS_SPARE {
            session.records.shrink_to(2 * session.records.len());
        }
        let owner = session.owner;
        self.discount(owner, gone);
        self.compact(owner);
    }

    /// Subtracts dropped records of an owner from the counts.
    fn discount(&mut self, owner: OwnerId, gone: Weight) {
        self.bytes -= gone.bytes;
        if let Some(of_owner) = self.owners.get_mut(&owner) {
            of_owner.request_count -= gone.requests;
            of_owner.bytes -= gone.bytes;
        }
    }

    /// The owner that loses a session, to a new one of `newcomer` if there is one: the newcomer itself if
    /// it then has the most.
    fn most_crowded(&self, newcomer: Option<OwnerId>) -> Option<OwnerId> {
        let quietest = |of: &Owner| of.sessions.first_key_value().map(|(&at, _)| at);
        let (&most, of_most) =
            self.owners.iter().max_by_key(|(_, of)| (of.sessions.len(), Reverse(quietest(of))))?;
        let is_most = |owner: &OwnerId| {
            let own_count = self.owners.get(owner).map_or(0, |of| of.sessions.len());
            own_count > 0 && own_count + 1 >= of_most.sessions.len()
        };
        Some(newcomer.filter(is_most).unwrap_or(most))
    }

    /// Forgets one session, to make room for a new one of `newcomer` if there is one.
    fn forget_one_for(&mut self, newcomer: Option<OwnerId>) {
        let Some(loser) = self.most_crowded(newcomer) else { return };
        let Some(of_loser) = self.owners.get_mut(&loser) else { return };
        let Some((_, id)) = of_loser.sessions.pop_first() else { return };
        let Some(session) = self.sessions.remove(&id) else { return };
        let is_last = of_loser.sessions.is_empty();
        self.discount(loser, Weight::of(session.records.iter()));
        if is_last {
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
        if of_owner.queue.len() > 2 * of_owner.request_count + QUEUE_SPARE {
            let sessions = &self.sessions;
            of_owner.queue.retain(|&id| is_live(sessions, id));
            of_owner.queue.shrink_to(2 * of_owner.request_count);
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
}

/// Whether a request has a record. A dropped request never comes back, because its sequence number or its
/// session has expired.
fn is_live(sessions: &BTreeMap<SessionId, Session>, id: RequestId) -> bool {
    sessions
        .get(&id.session)
        .is_some_and(|session| session.records_of(id.sequence).next().is_some())
}
