//! The log's state in memory: as its users see it, and as the segments hold it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::mem;
use std::sync::Arc;

use umbel_engine::GroupId;
use umbel_ports::File;
use umbel_step::planted::{self, Planted};

use super::chain::Chain;
use super::format::Record;
use super::left::{Left, LeftGroups};
use super::members::MemberEntries;
use crate::types::{LogEntry, LogId, Vote};

/// Position of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Location {
    pub(super) segment: u32,
    pub(super) offset: u32,
    pub(super) byte_count: u32,
}

impl Location {
    /// Offset after the record.
    pub(super) const fn end(self) -> u32 {
        self.offset.saturating_add(self.byte_count)
    }
}

/// A group's state according to its records in the segments: what a start would find.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Written {
    pub(super) vote: Option<Vote>,
    pub(super) committed: Option<LogId>,
    pub(super) chain: Chain,
    /// Locations of the chain's entries, in the same order.
    locations: VecDeque<Location>,
    byte_count: u64,
}

impl Written {
    fn location(&self, index: u64) -> Option<Location> {
        let place = usize::try_from(index.checked_sub(self.chain.first())?).ok()?;
        self.locations.get(place).copied()
    }

    fn entry_count(&self) -> usize {
        usize::try_from(self.chain.next() - self.chain.first()).expect("one location an entry")
    }

    fn push(&mut self, id: LogId, location: Location) {
        let (first, next) = (self.chain.first(), self.chain.next());
        let kept = if (first..=next).contains(&id.index) { id.index - first } else { 0 };
        self.drop_last(usize::try_from(kept).expect("at most as many as there are locations"));
        self.chain.push(id);
        self.locations.push_back(location);
        self.byte_count += u64::from(location.byte_count);
    }

    fn drop_last(&mut self, kept: usize) {
        while self.locations.len() > kept {
            let gone = self.locations.pop_back().map_or(0, |location| location.byte_count);
            self.byte_count -= u64::from(gone);
        }
    }

    fn drop_first(&mut self, kept: usize) {
        while self.locations.len() > kept {
            let gone = self.locations.pop_front().map_or(0, |location| location.byte_count);
            self.byte_count -= u64::from(gone);
        }
    }

    /// The records that repeat the group's small state at the head of a segment.
    fn small_state(&self, group: GroupId) -> impl Iterator<Item = Record> {
        let vote = self.vote.map(|vote| Record::vote(group, vote));
        let purge = self.chain.purged().map(|through| Record::Purge(group, through));
        // Written for every group, so that the log knows a group until it is forgotten.
        let committed = Record::Committed(group, self.committed);
        vote.into_iter().chain(purge).chain([committed])
    }
}

/// All groups according to the segments.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct WrittenGroups {
    groups: BTreeMap<GroupId, Written>,
    left: LeftGroups,
}

impl WrittenGroups {
    pub(super) fn apply(&mut self, record: &Record, location: Location) {
        match record {
            Record::Vote(group, vote, _) => self.group(*group).vote = Some(*vote),
            Record::Entry(group, id, _) => {
                self.group(*group).push(*id, location);
                self.left.reached(*group, Some(*id));
            }
            Record::Committed(group, id) => self.group(*group).committed = *id,
            Record::Truncate(group, after) => {
                let group = self.group(*group);
                group.chain.truncate(*after);
                group.drop_last(group.entry_count());
            }
            Record::Purge(group, through) => {
                let written = self.group(*group);
                written.chain.purge(*through);
                written.drop_first(written.entry_count());
                self.left.reached(*group, Some(*through));
            }
            Record::Forget(group) => {
                self.groups.remove(group);
                self.left.remove(*group);
            }
            Record::Left(group, left) => {
                self.groups.remove(group);
                self.left.insert(*group, *left);
            }
            Record::Promised(group, left) => self.left.insert(*group, *left),
            Record::Mark => {}
        }
    }

    fn group(&mut self, group: GroupId) -> &mut Written {
        let vote = self.left.vote(group);
        self.groups.entry(group).or_insert_with(|| Written { vote, ..Written::default() })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (GroupId, &Written)> {
        self.groups.iter().map(|(group, written)| (*group, written))
    }

    /// The records with which a new segment begins.
    pub(super) fn head_records(&self) -> Vec<Record> {
        let left = self.left.iter().map(|(group, left)| Record::Promised(group, left));
        left.chain(self.iter().flat_map(|(group, written)| written.small_state(group))).collect()
    }

    /// The oldest segment with an entry that is still needed.
    pub(super) fn oldest_segment(&self) -> Option<u32> {
        self.iter().filter_map(|(_, written)| written.locations.front()).map(|l| l.segment).min()
    }
}

/// A group as its users see it, including what is not written yet.
#[derive(Default)]
pub(super) struct Front {
    pub(super) vote: Option<Vote>,
    pub(super) committed: Option<LogId>,
    pub(super) chain: Chain,
    /// The newest entries, up to the chain's last; includes all that are not written yet.
    cached: VecDeque<Cached>,
}

struct Cached {
    serial: u64,
    /// Bytes of the entry's record.
    byte_count: usize,
    entry: LogEntry,
}

impl Cached {
    /// Approximate memory of the entry; for small entries most of it is overhead.
    const fn memory_bytes(&self) -> usize {
        self.byte_count + size_of::<Self>() + size_of::<(GroupId, u64)>()
    }
}

/// An open segment.
#[derive(Clone)]
pub(super) struct Segment {
    pub(super) file: Arc<dyn File>,
    pub(super) byte_count: u32,
}

/// Why the log accepts nothing more.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) kind: io::ErrorKind,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn error(&self) -> io::Error {
        io::Error::new(self.kind, self.message.clone())
    }
}

/// Where the entries of a range are at one moment.
pub(super) struct Plan {
    pub(super) vote: Option<Vote>,
    /// Entries to read from segments; they precede the cached ones.
    pub(super) stored: Vec<(LogId, Location, Arc<dyn File>)>,
    pub(super) cached: Vec<LogEntry>,
}

/// State shared by the log's users and its writer.
pub(super) struct State {
    pub(super) fronts: BTreeMap<GroupId, Front>,
    pub(super) left: LeftGroups,
    pub(super) members: MemberEntries,
    pub(super) written: WrittenGroups,
    pub(super) segments: BTreeMap<u32, Segment>,
    pub(super) failure: Option<Failure>,
    cache_bytes_max: usize,
    cache_byte_count: usize,
    /// Cached entries in the order of their arrival, mixed with some that were dropped since.
    cache_order: VecDeque<(GroupId, u64)>,
    cached_count: usize,
    serial: u64,
    written_serial: u64,
}

impl State {
    pub(super) fn new(
        written: WrittenGroups,
        segments: BTreeMap<u32, Segment>,
        cache_bytes_max: usize,
    ) -> Self {
        let fronts = written
            .iter()
            .map(|(group, written)| {
                let Written { vote, committed, ref chain, .. } = *written;
                (group, Front { vote, committed, chain: chain.clone(), cached: VecDeque::new() })
            })
            .collect();
        Self {
            fronts,
            left: written.left.clone(),
            members: MemberEntries::default(),
            written,
            segments,
            failure: None,
            cache_bytes_max,
            cache_byte_count: 0,
            cache_order: VecDeque::new(),
            cached_count: 0,
            serial: 0,
            written_serial: 0,
        }
    }

    /// Serial number of the newest entry that was passed in, over all groups.
    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    pub(super) fn front(&mut self, group: GroupId) -> &mut Front {
        let vote = self.left.vote(group);
        self.fronts.entry(group).or_insert_with(|| Front { vote, ..Front::default() })
    }

    /// The newest vote of a group.
    pub(super) fn vote(&self, group: GroupId) -> Option<Vote> {
        self.fronts.get(&group).map_or_else(|| self.left.vote(group), |front| front.vote)
    }

    pub(super) fn push(&mut self, group: GroupId, entry: LogEntry, byte_count: usize) {
        let id = entry.log_id;
        let front = self.front(group);
        let next = front.chain.next();
        if !front.chain.is_empty() && id.index < next {
            self.truncate_from(group, id.index);
        }
        self.members.note(group, &entry);
        self.serial += 1;
        let serial = self.serial;
        let front = self.front(group);
        front.chain.push(id);
        let cached = Cached { serial, byte_count, entry };
        let memory_bytes = cached.memory_bytes();
        front.cached.push_back(cached);
        self.cache_byte_count += memory_bytes;
        self.cached_count += 1;
        self.cache_order.push_back((group, serial));
        self.left.reached(group, Some(id));
    }

    pub(super) fn truncate(&mut self, group: GroupId, after: Option<LogId>) {
        self.truncate_from(group, after.map_or(0, |id| id.index.saturating_add(1)));
        self.front(group).chain.truncate(after);
    }

    fn truncate_from(&mut self, group: GroupId, from: u64) {
        let front = self.front(group);
        let kept = front.cached.partition_point(|cached| cached.entry.log_id.index < from);
        let gone = front.cached.split_off(kept);
        gone.iter().for_each(|cached| self.uncache(cached));
    }

    pub(super) fn purge(&mut self, group: GroupId, through: LogId) {
        self.front(group).chain.purge(through);
        self.members.purge(group, through.index);
        self.left.reached(group, Some(through));
        let front = self.front(group);
        let first = front.chain.first();
        let gone = front.cached.partition_point(|cached| cached.entry.log_id.index < first);
        let kept = front.cached.split_off(gone);
        let gone = mem::replace(&mut front.cached, kept);
        gone.iter().for_each(|cached| self.uncache(cached));
    }

    /// If the log ends before a snapshot's last entry, or has another entry at that index, drops all
    /// entries. Returns the records that log this.
    pub(super) fn cover(&mut self, group: GroupId, through: LogId) -> Vec<Record> {
        let chain = &self.front(group).chain;
        let is_purged = chain.purged().is_some_and(|purged| purged.index >= through.index);
        if is_purged || chain.log_id(through.index) == Some(through) {
            return Vec::new();
        }
        let before = through.index.checked_sub(1).and_then(|index| chain.log_id(index));
        let after = before.or(chain.purged());
        self.truncate(group, after);
        self.purge(group, through);
        vec![Record::Truncate(group, after), Record::Purge(group, through)]
    }

    pub(super) fn forget(&mut self, group: GroupId) {
        if let Some(front) = self.fronts.remove(&group) {
            front.cached.iter().for_each(|cached| self.uncache(cached));
        }
        self.members.remove(group);
        self.left.remove(group);
    }

    /// Forgets a group except for its replica's promises; returns those, if there are any.
    pub(super) fn leave(&mut self, group: GroupId) -> Option<Left> {
        let last = self.last(group).max(self.left.floor(group));
        let left = Left { vote: self.vote(group), last };
        self.forget(group);
        let is_kept = left.vote.is_some() || left.last.is_some();
        if !is_kept || planted::on(Planted::LeftForgotten) {
            return None;
        }
        self.left.insert(group, left);
        Some(left)
    }

    /// Whether anything is known of a group, including the promises of a replica that left.
    pub(super) fn has_seen(&self, group: GroupId) -> bool {
        self.fronts.contains_key(&group) || self.left.has(group)
    }

    /// The entry that the log of a returned group must reach, if it does not yet.
    pub(super) fn floor(&self, group: GroupId) -> Option<LogId> {
        self.left.floor(group)
    }

    /// Records that a group has confirmed an entry, as other nodes report. Returns the records that log
    /// this; none if the group's log reaches the entry.
    pub(super) fn lost(&mut self, group: GroupId, last: LogId) -> Vec<Record> {
        if self.last(group) >= Some(last) || self.floor(group) >= Some(last) {
            return Vec::new();
        }
        let vote = self.vote(group);
        vec![Record::Promised(group, self.left.lost(group, vote, last))]
    }

    fn last(&self, group: GroupId) -> Option<LogId> {
        self.fronts.get(&group).and_then(|front| front.chain.last())
    }

    fn uncache(&mut self, cached: &Cached) {
        self.cache_byte_count -= cached.memory_bytes();
        self.cached_count -= 1;
    }

    /// Called when entries up to this serial are in segments: the cache may drop them.
    pub(super) fn wrote(&mut self, serial: u64) {
        self.written_serial = self.written_serial.max(serial);
        while self.cache_byte_count > self.cache_bytes_max {
            let Some(&(group, serial)) = self.cache_order.front() else { break };
            if serial > self.written_serial {
                break;
            }
            self.cache_order.pop_front();
            if let Some(front) = self.fronts.get_mut(&group)
                && front.cached.front().is_some_and(|oldest| oldest.serial == serial)
                && let Some(cached) = front.cached.pop_front()
            {
                self.uncache(&cached);
            }
        }
        // Dropped entries leave gaps in the order: rebuild it when it consists mostly of gaps.
        if self.cache_order.len() > 2 * self.cached_count + 1024 {
            let mut alive: Vec<_> = self
                .fronts
                .iter()
                .flat_map(|(group, front)| front.cached.iter().map(|c| (*group, c.serial)))
                .collect();
            alive.sort_unstable_by_key(|(_, serial)| *serial);
            self.cache_order = alive.into();
        }
    }

    /// Finds the existing entries from `from` and before `to`, up to about `bytes_max` bytes but at
    /// least one entry.
    pub(super) fn plan(&self, group: GroupId, from: u64, to: u64, bytes_max: u64) -> Plan {
        let mut plan = Plan { vote: None, stored: Vec::new(), cached: Vec::new() };
        let Some(front) = self.fronts.get(&group) else { return plan };
        plan.vote = front.vote;
        let (from, to) = (from.max(front.chain.first()), to.min(front.chain.next()));
        let cached_from = front.chain.next() - front.cached.len() as u64;
        let mut byte_count = 0;
        for index in from..to {
            let place =
                index.checked_sub(cached_from).and_then(|place| usize::try_from(place).ok());
            if let Some(cached) = place.and_then(|place| front.cached.get(place)) {
                byte_count += cached.byte_count as u64;
                if byte_count > bytes_max && index > from {
                    break;
                }
                plan.cached.push(cached.entry.clone());
            } else {
                let location = self.written.groups.get(&group).and_then(|w| w.location(index));
                let location = location.expect("what is not cached was written");
                byte_count += u64::from(location.byte_count);
                if byte_count > bytes_max && index > from {
                    break;
                }
                let id = front.chain.log_id(index).expect("the index is one of the chain");
                let segment = self.segments.get(&location.segment);
                let file = &segment.expect("segments with entries are kept").file;
                plan.stored.push((id, location, Arc::clone(file)));
            }
        }
        plan
    }

    /// Bytes of a group's entries in the segments.
    pub(super) fn log_byte_count(&self, group: GroupId) -> u64 {
        self.written.groups.get(&group).map_or(0, |written| written.byte_count)
    }

    /// Groups with entries in a segment.
    pub(super) fn groups_in_segment(&self, segment: u32) -> Vec<GroupId> {
        let in_segment = |written: &Written| {
            written.locations.front().is_some_and(|location| location.segment == segment)
        };
        self.written.iter().filter(|(_, w)| in_segment(w)).map(|(group, _)| group).collect()
    }
}

#[cfg(test)]
#[path = "cache_test.rs"]
mod cache_test;
