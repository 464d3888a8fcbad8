//! What becomes of a replay table when its shard is split in two, or takes in its neighbour.
//!
//! ```text
//! 0..49     12 for 0..99 │ 13 for 0..49             expired below 12
//! 50..99    12 for 0..99 │ 13 for 50..99 │ 14 …     expired below 13
//! 0..99     13 for 0..49 │ 13 for 50..99 │ 14 …     expired below 13
//! ```
//!
//! *Law.* If each of two tables that share no hash applies every item of a request at most once, so does
//! their union. A retry gets the answers that both recorded, or *expired*:
//!
//! * What one table has dropped, the other one may still have. It may not answer for its hashes alone: the
//!   rest of the part would look as if it had never been applied. So the higher `expired_below` holds, and a
//!   session that one table knows, and the other may have forgotten, is forgotten.
//! * After a split, both tables have the records of before. They are equal, and become one.
//! * Both halves of a split drop the records of the other half's hashes. They have nothing of those.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use umbel_filter::HashRange;

use super::{ReplayTable, Session, Weight, is_live};
use crate::ids::{OwnerId, RequestId, SessionId};

impl ReplayTable {
    /// Keeps what is about hashes of `range`, which is left of the shard's former range.
    pub(in crate::shard) fn split(&mut self, former: HashRange, range: HashRange) {
        self.former.retain(|&other| other.covers(former) && other != former);
        self.former.push(former);
        let mut gone = Vec::new();
        for session in self.sessions.values_mut() {
            let before = Weight::of(session.records.iter());
            session.records.retain(|record| record.cut.overlaps(range));
            let after = Weight::of(session.records.iter());
            if before != after {
                session.request_count = after.requests;
                session.records.shrink_to_fit();
                let requests = before.requests - after.requests;
                let bytes = before.bytes - after.bytes;
                gone.push((session.owner, Weight { requests, bytes }));
            }
        }
        for &(owner, weight) in &gone {
            self.discount(owner, weight);
        }
        let losers: BTreeSet<OwnerId> = gone.into_iter().map(|(owner, _)| owner).collect();
        for owner in losers {
            // A request that is gone may come again, cut for the range: it may not be queued twice.
            if let Some(of_owner) = self.owners.get_mut(&owner) {
                of_owner.queue.retain(|&id| is_live(&self.sessions, id));
                of_owner.queue.shrink_to_fit();
            }
        }
    }

    /// Takes in the table of a neighbour, whose hashes the shard gets. Depends only on what a snapshot of
    /// either table carries, so all replicas merge alike.
    pub(in crate::shard) fn merge(&mut self, other: &Self) {
        let mut merged = Self::new(self.limits);
        // The ranges that were split until the merged one was left are among them.
        merged.former.clone_from(&self.former);
        merged.forgotten = self.forgotten.merged(&other.forgotten, self.limits.owners_max);
        let tables = [&*self, other];
        for id in interleaved(tables.map(Self::sessions_by_use)) {
            let known = tables.map(|table| table.sessions.get(&id));
            let Some(owner) = known.iter().flatten().map(|session| session.owner).next() else {
                continue;
            };
            let is_lost = |(table, known): (&Self, Option<&Session>)| {
                known.is_none() && table.forgotten.has(owner, id)
            };
            if std::iter::zip(tables, known).any(is_lost) {
                continue;
            }
            merged.note_request(id, owner);
            let expired_below = known.iter().flatten().map(|session| session.expired_below).max();
            merged.expire(id, expired_below.unwrap_or(0));
        }
        let owners: BTreeSet<OwnerId> =
            tables.iter().flat_map(|table| table.owners.keys().copied()).collect();
        for owner in owners {
            let requests = tables.map(|table| table.requests_by_age(owner).collect());
            for id in interleaved::<RequestId>(requests) {
                merged.insert_all(id, tables);
            }
        }
        merged.limit();
        *self = merged;
    }

    /// Adds the records that tables have of a request, unless it has expired.
    fn insert_all(&mut self, id: RequestId, tables: [&Self; 2]) {
        let expired_below = self.sessions.get(&id.session).map(|session| session.expired_below);
        if expired_below.is_none_or(|below| id.sequence < below) {
            return;
        }
        let sessions = tables.into_iter().filter_map(|table| table.sessions.get(&id.session));
        for record in sessions.flat_map(|session| session.records_of(id.sequence)) {
            let own = self.sessions.get(&id.session);
            let own = own.map(|own| own.overlapping(id.sequence, record.cut));
            if let Some(Ok(other)) = own
                && other != record
            {
                // No two shards apply the same hashes of a request. Whatever was recorded here, an error
                // is a safe answer.
                return self.expire(id.session, id.sequence.saturating_add(1));
            }
            self.insert(id.session, record.clone());
        }
    }

    /// Drops what is above the limits, in the order in which new records would have it dropped.
    fn limit(&mut self) {
        while self.sessions.len() > self.limits.sessions_max {
            self.forget_one_for(None);
        }
        let sessions: Vec<SessionId> = self.sessions.keys().copied().collect();
        sessions.into_iter().for_each(|id| self.limit_requests(id));
        let by_bytes = self.owners.iter().map(|(&id, of)| (of.bytes, Reverse(id)));
        let mut by_bytes: BinaryHeap<(usize, Reverse<OwnerId>)> = by_bytes.collect();
        while self.bytes > self.limits.bytes_max
            && let Some((_, Reverse(largest))) = by_bytes.pop()
        {
            if self.drop_oldest(largest) {
                let left = self.owners.get(&largest).map_or(0, |of| of.bytes);
                by_bytes.push((left, Reverse(largest)));
            }
        }
    }
}

/// Two lists in the order of last use as one. What is as far from the end of its list was used at about the
/// same time, because hashes spread requests evenly; what is in both lists counts as used when it was last
/// used in either.
fn interleaved<T: Ord + Copy>(lists: [Vec<T>; 2]) -> Vec<T> {
    let mut ages = BTreeMap::new();
    for list in lists {
        for (age, item) in list.into_iter().rev().enumerate() {
            let least = ages.entry(item).or_insert(age);
            *least = age.min(*least);
        }
    }
    let mut items: Vec<(T, usize)> = ages.into_iter().collect();
    items.sort_unstable_by_key(|&(item, age)| (Reverse(age), item));
    items.into_iter().map(|(item, _)| item).collect()
}
