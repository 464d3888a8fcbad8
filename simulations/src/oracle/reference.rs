//! The committed log of every group, applied to separate states from the first entry on and never from
//! a snapshot: the state that every replica must have.
//!
//! The first node that applies an entry defines it. All others must apply the same entry at its index,
//! give the same reply, and reach the same state.

use std::collections::{BTreeMap, BTreeSet};

use umbel_engine::meta::{FilterState, MetaCommand, MetaReply, MetaState};
use umbel_engine::placement::ShardRanges;
use umbel_engine::shard::{ShardCommand, ShardReply, ShardState};
use umbel_engine::{FilterId, GroupId, ShardId};
use umbel_filter::ItemHasher;
use umbel_node::ports::observer::{EntryId, Payload};
use umbel_ports::encoding::encode;

use super::answered::AnsweredParts;
use super::applied::Before;
use super::last_items::{self, LastItems};
use super::misses::{self, Misses};
use super::slice_models::SliceModels;
use super::windows::{self, WindowItems};
use crate::violation::Violation;

mod incarnation;
mod recut;

pub(crate) use self::incarnation::Incarnation;

/// Name of the invariant.
pub(crate) const NAME: &str = "replicas_agree";

/// Invariant: the shards' ranges tile the hash space, and are those of the shard map.
const RANGES: &str = "ranges_tile";

/// A state of up to this size is digested at every entry, one of twice the size at every second: this
/// bounds the work per entry.
const DIGESTED_BYTES: u64 = 4 << 10;

/// Most entries between two digests.
const DIGEST_EVERY_MAX: u64 = 64;

/// The states that the committed logs produce from empty ones.
#[derive(Default)]
pub(crate) struct Reference {
    meta: MetaState,
    /// The ranges of the shards when there were most of them.
    finest: Option<ShardRanges>,
    /// By group: a shard that is split off again, after a merge, is another group.
    shards: BTreeMap<GroupId, ShardState>,
    /// Groups that others have absorbed.
    absorbed: BTreeSet<GroupId>,
    logs: BTreeMap<GroupId, Log>,
    incarnations: BTreeMap<FilterId, Incarnation>,
    /// Parts of requests that a shard has applied.
    answered: BTreeMap<GroupId, AnsweredParts>,
    windows: BTreeMap<GroupId, SliceModels<WindowItems>>,
    last_items: BTreeMap<GroupId, SliceModels<LastItems>>,
    misses: BTreeMap<GroupId, SliceModels<Misses>>,
    compared: Compared,
    /// Replicas whose memory was corrupted, by host and group: their states are not compared.
    excused: BTreeSet<(String, GroupId)>,
}

/// How often replicas were compared with the reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Compared {
    /// Entries and their replies.
    pub(crate) entries: u64,
    /// States after an entry, by digest.
    pub(crate) states: u64,
    /// States out of a snapshot, by digest.
    pub(crate) snapshots: u64,
}

/// A group's log as far as any node applied it.
#[derive(Default)]
struct Log {
    /// Index of the first entry.
    first: u64,
    entries: Vec<Applied>,
}

struct Applied {
    id: EntryId,
    /// Stands for the command.
    content: u64,
    reply: Reply,
    /// Digest of the state after it, if it was computed.
    digest: Option<u64>,
}

#[derive(PartialEq, Debug)]
enum Reply {
    None,
    Meta(MetaReply),
    Shard(ShardReply),
}

impl Log {
    fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    fn get(&self, index: u64) -> Option<&Applied> {
        self.entries.get(usize::try_from(index.checked_sub(self.first)?).ok()?)
    }
}

impl Reference {
    /// Nothing applied yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A node applied an entry. `digest` computes a digest of its state after it; it is not called for
    /// the meta group, for which only replies are compared.
    ///
    /// # Errors
    /// If another entry was applied at that index, or with another reply, or led to another state; or
    /// if earlier entries were never applied anywhere.
    pub(crate) fn applied(
        &mut self,
        at_us: u64,
        node: &str,
        group: GroupId,
        entry: EntryId,
        payload: &Payload<'_>,
        digest: &dyn Fn() -> u64,
    ) -> Result<(), Violation> {
        let seen = Observation { at_us, node, group, entry };
        let log = self.logs.entry(group).or_default();
        // Logs begin at 0 or 1, depending on the first node.
        if log.entries.is_empty() && entry.index <= 1 {
            log.first = entry.index;
        }
        let next = log.next();
        if entry.index == next {
            self.define(&seen, payload)?;
        } else if entry.index > next {
            let what = format!("the last entry that was applied anywhere is before {next}");
            return Err(seen.violation(NAME, &what));
        }
        self.compare(&seen, payload, digest)
    }

    /// Applies an entry to the reference's own state.
    fn define(&mut self, seen: &Observation<'_>, payload: &Payload<'_>) -> Result<(), Violation> {
        let (reply, broken) = match (payload, seen.group.shard()) {
            (Payload::Blank | Payload::Members { .. }, _) => (Reply::None, Ok(())),
            (Payload::Meta(command, _), None) => {
                (Reply::Meta(self.apply_meta(seen, command)), Ok(()))
            }
            (Payload::Shard(command, _), Some(_)) => {
                let (reply, broken) = self.apply_shard(seen, command)?;
                (Reply::Shard(reply), broken)
            }
            (Payload::Meta(..) | Payload::Shard(..), _) => {
                return Err(seen.violation(NAME, "it is a command of another kind of group"));
            }
        };
        let state = self.shards.get(&seen.group);
        let is_digested = |state: &&ShardState| {
            let every = state.memory_bytes().div_ceil(DIGESTED_BYTES).clamp(1, DIGEST_EVERY_MAX);
            seen.entry.index.is_multiple_of(every)
        };
        let digest = state.filter(is_digested).map(ShardState::digest);
        let applied = Applied { id: seen.entry, content: content(payload), reply, digest };
        self.logs.entry(seen.group).or_default().entries.push(applied);
        broken
    }

    fn apply_meta(&mut self, seen: &Observation<'_>, command: &MetaCommand) -> MetaReply {
        let (named, is_expiry) = match *command.bare() {
            MetaCommand::DropFilter { filter } | MetaCommand::TakeFilter { filter, .. } => {
                (Some(filter), false)
            }
            MetaCommand::DropExpired { filter, .. } => (Some(filter), true),
            _ => (None, false),
        };
        let there = named.filter(|&filter| self.is_there(filter));
        let reply = self.meta.apply(seen.entry.index, command);
        // A drop is refused while shards are merged, and has no effect if the time that has come is not the filter's.
        if let Some(filter) = there.filter(|&filter| !self.is_there(filter)) {
            self.erased(filter, seen.at_us);
            if let Some(incarnation) = self.incarnations.get_mut(&filter) {
                incarnation.has_expired = is_expiry;
            }
        }
        let count = |ranges: Option<ShardRanges>| ranges.map_or(0, ShardRanges::count);
        let ranges = self.meta.shard_map().ranges();
        if count(ranges) > count(self.finest) {
            self.finest = ranges;
        }
        let creates =
            matches!(command, MetaCommand::CreateFilter { .. } | MetaCommand::BeginImport { .. });
        if let (true, MetaReply::Filter(filter)) = (creates, &reply)
            && let Some(record) = self.meta.filter(*filter)
        {
            let version = self.meta.version();
            let new = || Incarnation::new(record.clone(), version, seen.at_us);
            self.incarnations.entry(*filter).or_insert_with(new);
        }
        for (filter, record) in self.meta.filters() {
            if let Some(incarnation) = self.incarnations.get_mut(&filter) {
                incarnation.expires_after(seen.entry.index, record.expires_ms);
            }
        }
        if let (MetaCommand::FilterDropped { filter }, MetaReply::Done) = (command, &reply)
            && let Some(incarnation) = self.incarnations.get_mut(filter)
        {
            incarnation.gone_at_us = incarnation.gone_at_us.min(seen.at_us);
        }
        reply
    }

    /// The outer error means that the entry cannot be applied, the inner one that it must not have
    /// been.
    fn apply_shard(
        &mut self,
        seen: &Observation<'_>,
        command: &ShardCommand,
    ) -> Result<(ShardReply, Result<(), Violation>), Violation> {
        let group = seen.group;
        if !self.shards.contains_key(&group) {
            let ranges = self.meta.shard_map().ranges();
            let first_range =
                group.shard().and_then(|shard| Some((shard, ranges?.first_range(shard)?)));
            let Some((shard, first_range)) = first_range else {
                let what = format!("the cluster has {} shards", self.meta.shard_count());
                return Err(seen.violation(NAME, &what));
            };
            self.shards.insert(group, ShardState::new(shard, first_range));
        }
        if let ShardCommand::Absorb { from, fence_index } = *command {
            return self.absorb(seen, from, fence_index);
        }
        let state = self.shards.get_mut(&group).expect("it was inserted above");
        let range = state.range();
        let before = Before::look(state, command);
        let upper = state.upper_half(command).ok().flatten();
        let reply = state.apply_at(seen.entry.index, command);
        let answered = self.answered.entry(group).or_default();
        let windows = self.windows.entry(group).or_default();
        let forgotten = windows.follow(range, command, &reply, answered);
        let last_items = self.last_items.entry(group).or_default();
        let missed = last_items.follow(range, command, &reply, answered);
        let misses = self.misses.entry(group).or_default();
        let too_many = misses.follow(range, command, &reply, answered);
        let broken = before
            .broken_by(command, &reply, answered)
            .or_else(|| forgotten.map(|what| (windows::NAME, what)))
            .or_else(|| missed.map(|what| (last_items::NAME, what)))
            .or_else(|| too_many.map(|what| (misses::NAME, what)))
            .map_or(Ok(()), |(invariant, what)| Err(seen.violation(invariant, &what)));
        match (command, &reply) {
            // The meta group decides first; a shard keeps answering from its slice until it learns of
            // the drop.
            (ShardCommand::DropSlice(filter), _) if before.slice(*filter).is_some() => {
                self.erased(*filter, seen.at_us);
            }
            (ShardCommand::ClearSlice { filter, .. }, _) => {
                let after = state.summary(*filter).map(|slice| slice.generation);
                if before.slice(*filter).map(|slice| slice.generation) != after {
                    self.erased(*filter, seen.at_us);
                }
            }
            (ShardCommand::MergeSlices { target, sources, .. }, ShardReply::Merged(Ok(_))) => {
                if let Some(into) = self.incarnations.get_mut(target) {
                    into.merged.extend(sources.iter().map(|&(source, _)| source));
                }
            }
            _ => {}
        }
        let torn = upper.zip(command.splits_off());
        let torn = torn.and_then(|(upper, (into, _))| self.split((group, into), upper));
        let broken = match torn {
            Some(what) => Err(seen.violation(RANGES, &what)),
            None => broken,
        };
        Ok((reply, broken))
    }

    /// Whether there is such a filter that is not being dropped.
    fn is_there(&self, filter: FilterId) -> bool {
        self.meta.filter(filter).is_some_and(|record| record.state != FilterState::Dropping)
    }

    fn erased(&mut self, filter: FilterId, at_us: u64) {
        if let Some(incarnation) = self.incarnations.get_mut(&filter) {
            incarnation.erased_at_us.push(at_us);
        }
    }

    /// Compares what a node applied with what was first applied.
    fn compare(
        &mut self,
        seen: &Observation<'_>,
        payload: &Payload<'_>,
        digest: &dyn Fn() -> u64,
    ) -> Result<(), Violation> {
        let log = self.logs.get(&seen.group);
        let Some(applied) = log.and_then(|log| log.get(seen.entry.index)) else {
            return Err(seen.violation(NAME, "the log begins behind it"));
        };
        if applied.id != seen.entry {
            let what = format!("{:?} was applied at that index before", applied.id);
            return Err(seen.violation(NAME, &what));
        }
        if applied.content != content(payload) {
            return Err(seen.violation(NAME, "another command was applied under that name before"));
        }
        let is_equal = match (payload, &applied.reply) {
            (Payload::Meta(_, reply), Reply::Meta(expected)) => *reply == expected,
            (Payload::Shard(_, reply), Reply::Shard(expected)) => *reply == expected,
            (Payload::Blank | Payload::Members { .. }, Reply::None) => true,
            _ => false,
        };
        self.compared.entries += 1;
        // A replica that has lost bits may find room, or an item new, where the others do not.
        let is_excused = self.excused.contains(&(seen.node.to_owned(), seen.group));
        if !is_equal && !is_excused {
            let (expected, got) = (&applied.reply, reply_of(payload));
            return Err(seen.violation(NAME, &format!("it answered {got}, expected {expected:?}")));
        }
        if let Some(expected) = applied.digest
            && !is_excused
        {
            self.compared.states += 1;
            seen.check_digest(expected, digest())?;
        }
        Ok(())
    }

    /// From now on a host's replica of a group may differ from the log.
    pub(crate) fn excuse(&mut self, host: &str, group: GroupId) {
        self.excused.insert((host.to_owned(), group));
    }

    /// From now on every replica must match the log.
    pub(crate) fn excuse_nobody(&mut self) {
        self.excused.clear();
    }

    /// A node wrote a snapshot.
    ///
    /// # Errors
    /// If no node is known to have applied its last entry.
    pub(crate) fn built(
        &mut self,
        at_us: u64,
        node: &str,
        group: GroupId,
        through: Option<EntryId>,
    ) -> Result<(), Violation> {
        let Some(entry) = through else { return Ok(()) };
        let seen = Observation { at_us, node, group, entry };
        self.covered(&seen)?;
        // The snapshot will be loaded, so a digest is worth its cost, if it can still be computed.
        if let Some(log) = self.logs.get_mut(&group)
            && log.next() == entry.index + 1
            && let Some(applied) = log.entries.last_mut()
            && let Some(state) = self.shards.get(&group)
        {
            applied.digest.get_or_insert_with(|| state.digest());
        }
        Ok(())
    }

    /// A node replaced its state by a snapshot's. The states are compared if the reference has a digest
    /// for that entry; otherwise the entries that follow are.
    ///
    /// # Errors
    /// If no node is known to have applied the snapshot's last entry, or the state differs.
    pub(crate) fn loaded(
        &mut self,
        at_us: u64,
        node: &str,
        group: GroupId,
        through: Option<EntryId>,
        digest: &dyn Fn() -> u64,
    ) -> Result<(), Violation> {
        let Some(entry) = through else { return Ok(()) };
        let seen = Observation { at_us, node, group, entry };
        if let Some(expected) = self.covered(&seen)? {
            self.compared.snapshots += 1;
            seen.check_digest(expected, digest())?;
        }
        Ok(())
    }

    /// The digest after the last entry of a snapshot, if there is one.
    fn covered(&self, seen: &Observation<'_>) -> Result<Option<u64>, Violation> {
        let log = self.logs.get(&seen.group);
        match log.and_then(|log| log.get(seen.entry.index)) {
            Some(applied) if applied.id == seen.entry => Ok(applied.digest),
            Some(applied) => {
                let what = format!("its snapshot ends there, but {:?} was applied", applied.id);
                Err(seen.violation(NAME, &what))
            }
            None => Err(seen.violation(NAME, "its snapshot ends there, which nobody has applied")),
        }
    }

    /// The meta group's state after all applied entries.
    pub(crate) const fn meta(&self) -> &MetaState {
        &self.meta
    }

    /// The ranges of the shards when there were most of them: every other cut is one of whole ranges of these.
    pub(crate) const fn finest(&self) -> Option<ShardRanges> {
        self.finest
    }

    /// A shard's state after all applied entries; `None` if there are none.
    pub(crate) fn shard(&self, shard: ShardId) -> Option<&ShardState> {
        self.shards.get(&self.meta.shard(shard)?.group())
    }

    /// The states of all shards that have applied entries and were not absorbed by others.
    pub(crate) fn shards(&self) -> impl Iterator<Item = &ShardState> {
        let stands = |(group, _): &(&GroupId, &ShardState)| !self.absorbed.contains(group);
        self.shards.iter().filter(stands).map(|(_, state)| state)
    }

    /// Every filter that was ever created under this name, by rising number.
    pub(crate) fn incarnations(
        &self,
        name: &str,
    ) -> impl Iterator<Item = (FilterId, &Incarnation)> {
        let all = self.incarnations.iter().map(|(&id, incarnation)| (id, incarnation));
        all.filter(move |(_, incarnation)| incarnation.record.name.as_str() == name)
    }

    /// A filter that was created at any time.
    pub(crate) fn incarnation(&self, filter: FilterId) -> Option<&Incarnation> {
        self.incarnations.get(&filter)
    }

    /// The names of a group's entries, in order.
    #[cfg(test)]
    pub(crate) fn committed(&self, group: GroupId) -> impl Iterator<Item = EntryId> {
        self.logs.get(&group).into_iter().flat_map(|log| &log.entries).map(|applied| applied.id)
    }

    /// How many comparisons with the reference were made.
    pub(crate) const fn compared(&self) -> Compared {
        self.compared
    }
}

/// The context of an observation, for messages.
struct Observation<'a> {
    at_us: u64,
    node: &'a str,
    group: GroupId,
    entry: EntryId,
}

impl Observation<'_> {
    fn violation(&self, invariant: &'static str, what: &str) -> Violation {
        let Self { at_us, node, group, entry } = *self;
        let EntryId { term, leader, index } = entry;
        let what =
            format!("{node} at entry {index} of {group:#} (term {term}, leader {leader}): {what}");
        Violation { invariant, at_us, what }
    }

    fn check_digest(&self, expected: u64, got: u64) -> Result<(), Violation> {
        if got == expected {
            return Ok(());
        }
        let what = format!("its state has digest {got:#018x}, expected {expected:#018x}");
        Err(self.violation(NAME, &what))
    }
}

fn reply_of(payload: &Payload<'_>) -> String {
    match payload {
        Payload::Meta(_, reply) => format!("{reply:?}"),
        Payload::Shard(_, reply) => format!("{reply:?}"),
        Payload::Blank | Payload::Members { .. } => "nothing".to_owned(),
    }
}

/// A hash of an entry's contents, without its reply. Commands themselves are not kept, because their
/// hashes may be slices of larger buffers.
fn content(payload: &Payload<'_>) -> u64 {
    // Each replica of each entry is hashed: as text that was half of all work here.
    let bytes = match payload {
        Payload::Blank => encode(&0_u8),
        Payload::Members { voters, learners } => encode(&(1_u8, voters, learners)),
        Payload::Meta(command, _) => encode(&(2_u8, command)),
        Payload::Shard(command, _) => encode(&(3_u8, command)),
    };
    ItemHasher::Xxh3 { seed: 0 }.hash(&bytes).hi()
}
