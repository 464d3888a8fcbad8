//! The replay table as a snapshot carries it.
//!
//! ```text
//! former    0: 0..99   1: 0..49 (own)   2: 25..49     ranges of splits; the own one, and other cuts
//! records   12: 0 │ 13: 1 │ 14: 2                     sequence number, and number of its cut
//! ```
//!
//! The ranges of splits are listed whether a record is cut for them or not, and the own range only if others
//! stand behind it; otherwise the number of ranges stands for it. So the table of a shard that was never
//! merged looks as releases from before merges write it, also in its digest.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use umbel_filter::HashRange;

use super::forgotten::{Forgotten, ForgottenHead};
use super::{Record, ReplayLimits, ReplayTable, is_live};
use crate::ids::{OwnerId, RequestId, SessionId};
use crate::shard::bitmap::Bitmap;
use crate::shard::digest::Digest;

/// Most ranges of splits: each split halves the shard's range, and there are at most 1,024 shards. All other
/// listed ranges are cuts of records, whose number the limit of bytes bounds.
const SPLITS_MAX: usize = 32;

/// The replay table as a snapshot carries it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(in crate::shard) struct ReplayHead {
    forgotten: ForgottenHead,
    /// First and last hash of each range that was split until the shard's range was left, widest first. If
    /// records are cut for other ranges: then of the shard's range, and of those in ascending order.
    former: Vec<(u64, u64)>,
    /// Least recently used first.
    sessions: Vec<SessionHead>,
    /// By owner, oldest request first. Records of one request stand together, in the order of their cuts.
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
    /// Which of the listed ranges the part was cut for; their number stands for the shard's range.
    former: u32,
    answer: Bitmap,
}

impl ReplayTable {
    /// Adds the table of a shard with this range to a digest.
    pub(in crate::shard) fn push_digest(&self, range: HashRange, digest: &mut Digest) {
        let head = self.head(range);
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
            digest.push(record.former.into());
            digest.push(record.answer.len().into());
            digest.push_bytes(record.answer.as_bytes());
        }
    }

    /// The table of a shard with this range, in the form that a snapshot carries. It depends only on what
    /// every replica has alike.
    pub(in crate::shard) fn head(&self, range: HashRange) -> ReplayHead {
        let sessions = self.sessions_by_use().into_iter().filter_map(|id| {
            let session = self.sessions.get(&id)?;
            let (owner, expired_below) = (session.owner, session.expired_below);
            Some(SessionHead { session: id, owner, expired_below })
        });
        let mut former = splits_before(&self.former, range);
        let cuts = self.sessions.values().flat_map(|session| &session.records);
        let cuts: BTreeSet<HashRange> = cuts.map(|record| record.cut).collect();
        let of_no_split = cuts.into_iter().filter(|&cut| cut != range && !former.contains(&cut));
        let of_no_split: Vec<HashRange> = of_no_split.collect();
        if !of_no_split.is_empty() {
            former.push(range);
            former.extend(of_no_split);
        }
        let numbers: BTreeMap<HashRange, u32> = former.iter().copied().zip(0..).collect();
        let own = u32::try_from(former.len()).unwrap_or(u32::MAX);
        let records = self.owners.keys().flat_map(|&owner| self.requests_by_age(owner));
        let records = records.flat_map(|id| {
            let session = self.sessions.get(&id.session);
            let records = session.into_iter().flat_map(move |of| of.records_of(id.sequence));
            records.map(move |record| (id, record))
        });
        let records = records.map(|(id, record)| {
            let Record { fingerprint, cut, ref answer, .. } = *record;
            let former = numbers.get(&cut).copied().unwrap_or(own);
            RecordHead { id, fingerprint, former, answer: answer.clone() }
        });
        ReplayHead {
            forgotten: self.forgotten.head(),
            sessions: sessions.collect(),
            records: records.collect(),
            former: former.iter().map(|range| range.bounds()).collect(),
        }
    }

    /// All sessions, least recently used first.
    pub(super) fn sessions_by_use(&self) -> Vec<SessionId> {
        let mut sessions: Vec<_> = self.sessions.iter().collect();
        sessions.sort_unstable_by_key(|(_, session)| session.requested_at);
        sessions.into_iter().map(|(&id, _)| id).collect()
    }

    /// An owner's requests that have a record, oldest first.
    pub(super) fn requests_by_age(&self, owner: OwnerId) -> impl Iterator<Item = RequestId> {
        let queue = self.owners.get(&owner).into_iter().flat_map(|of| &of.queue);
        queue.copied().filter(|&id| is_live(&self.sessions, id))
    }

    /// Restores the table of a shard with this range from a snapshot, or returns what is wrong with it.
    pub(in crate::shard) fn from_head(
        limits: ReplayLimits,
        range: HashRange,
        head: &ReplayHead,
    ) -> Result<Self, String> {
        let ReplayHead { forgotten, former, sessions, records } = head;
        let mut table = Self::new(limits);
        table.forgotten = Forgotten::from_head(forgotten, limits.owners_max)?;
        let mut cuts = listed(former, records.len())?;
        let split_count = cuts.iter().position(|&cut| cut == range).unwrap_or(cuts.len());
        table.former = splits_before(&cuts[..split_count], range);
        if table.former.len() > SPLITS_MAX {
            let got = table.former.len();
            return Err(format!("{got} ranges before splits, expected at most {SPLITS_MAX}"));
        }
        cuts.push(range);
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
        let mut before = None;
        for record in records {
            table.restore(record, &cuts, before)?;
            before = Some(record.id);
        }
        Ok(table)
    }

    /// Restores a record, which stands behind one of the request `before`.
    fn restore(
        &mut self,
        record: &RecordHead,
        cuts: &[HashRange],
        before: Option<RequestId>,
    ) -> Result<(), String> {
        let RecordHead { id, fingerprint, former, ref answer } = *record;
        answer.check().map_err(|error| format!("answer to {id}: {error}"))?;
        let Some(session) = self.sessions.get(&id.session) else {
            return Err(format!("{id} belongs to no session of the table"));
        };
        if id.sequence < session.expired_below || id.sequence == u64::MAX {
            return Err(format!("{id}, expired below {}", session.expired_below));
        }
        let Some(&cut) = cuts.get(former as usize) else {
            return Err(format!("{id} is cut for range {former}, of {}", cuts.len()));
        };
        match session.records_of(id.sequence).last() {
            Some(_) if before != Some(id) => return Err(format!("{id} stands twice")),
            Some(below) if below.cut.last() >= cut.start() => {
                return Err(format!("{id} is cut for ranges that overlap or do not ascend"));
            }
            None if session.request_count >= self.limits.requests_per_session_max => {
                return Err(format!("more than {} requests", self.limits.requests_per_session_max));
            }
            _ => {}
        }
        let (sequence, answer) = (id.sequence, answer.detached());
        self.insert(id.session, Record { sequence, fingerprint, cut, answer });
        if self.bytes > self.limits.bytes_max {
            return Err(format!("more than {} bytes of answers", self.limits.bytes_max));
        }
        Ok(())
    }
}

/// The ranges that must have been split until `range` was left.
fn splits_before(former: &[HashRange], range: HashRange) -> Vec<HashRange> {
    let covers_more = |former: &HashRange| former.covers(range) && *former != range;
    former.iter().copied().filter(covers_more).collect()
}

/// Validates the list of ranges of a table with this many records, or returns what is wrong with it.
fn listed(bounds: &[(u64, u64)], record_count: usize) -> Result<Vec<HashRange>, String> {
    if bounds.len() > record_count + SPLITS_MAX + 1 {
        let got = bounds.len();
        return Err(format!("{got} ranges of {record_count} records, expected at most one each"));
    }
    let ranges = bounds.iter().map(|&bounds| HashRange::from_bounds(bounds));
    ranges.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

#[cfg(test)]
impl ReplayHead {
    /// The table as it is written, except that it lists another range that no record has.
    pub(in crate::shard) fn with_unused(mut self, range: HashRange) -> Self {
        let is_own = |record: &&mut RecordHead| record.former as usize == self.former.len();
        self.records.iter_mut().filter(is_own).for_each(|record| record.former += 1);
        self.former.push(range.bounds());
        self
    }

    /// The table with the cuts of all records changed.
    pub(in crate::shard) fn with_cuts(mut self, change: impl Fn(u32) -> u32) -> Self {
        self.records.iter_mut().for_each(|record| record.former = change(record.former));
        self
    }

    /// The number of listed ranges, and that of records.
    pub(in crate::shard) fn counts(&self) -> (usize, usize) {
        (self.former.len(), self.records.len())
    }
}
