//! What is known of a group from everything that its replicas reported.

use std::collections::{BTreeMap, BTreeSet};

use umbel_engine::NodeId;
use umbel_node::ports::observer::{EntryId, Event, GroupReport, Payload, VoteId};

use super::log_view::LogView;

/// A leader: leaders rise in this order. One term may have several, each of which ends the time of the
/// previous one.
pub(super) type LeaderId = (u64, NodeId);

/// The leader that appended an entry.
pub(super) fn leader_of(entry: EntryId) -> LeaderId {
    (entry.term, entry.leader)
}

/// Sets of voters, one or two; a decision needs a majority of each.
pub(super) type Voters = Vec<BTreeSet<NodeId>>;

/// Whether the nodes for which `is_so` holds are a majority of every set.
pub(super) fn is_quorum(voters: &[BTreeSet<NodeId>], is_so: impl Fn(NodeId) -> bool) -> bool {
    let is_majority =
        |set: &BTreeSet<NodeId>| 2 * set.iter().filter(|&&voter| is_so(voter)).count() > set.len();
    !voters.is_empty() && voters.iter().all(is_majority)
}

/// What an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EntryFacts {
    /// Of its content.
    pub(super) checksum: u32,
    /// The entry before it, if it is known.
    pub(super) before: Option<EntryId>,
}

/// An entry that was applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AppliedFacts {
    pub(super) entry: EntryId,
    /// The highest leader when it was first applied; that leader or an earlier one committed it.
    pub(super) under: Option<LeaderId>,
}

/// A replica as its node reported it.
#[derive(Default)]
pub(super) struct Replica {
    pub(super) log: LogView,
    /// The last vote that was saved.
    pub(super) vote: Option<VoteId>,
    /// End of the newest durable snapshot, of this start or one before.
    pub(super) snapshot: Option<EntryId>,
    /// Last entry that was applied, or is in the snapshot that was loaded, since the start.
    pub(super) applied: Option<EntryId>,
    /// Whether anything was applied or loaded since the start.
    pub(super) has_state: bool,
    /// Highest term that was reported since the start.
    pub(super) term_reported: u64,
    /// Highest index that was reported as applied since the start.
    pub(super) applied_reported: Option<u64>,
    /// Its disk was lost after it had promised something.
    pub(super) is_lost: bool,
    /// What was durable when its disk was lost or lost some of it: the log, and the end of the snapshot.
    lost: Vec<(LogView, Option<EntryId>)>,
}

impl Replica {
    /// Whether a power loss now leaves an entry in its log or in its snapshot.
    pub(super) fn has_durably(&self, entry: EntryId) -> bool {
        has_durably(&self.log, self.snapshot, entry)
    }

    /// Whether it may have confirmed an entry: it has it, or had it when its disk was lost. Leaders
    /// count what a voter confirmed even if its disk is lost since.
    pub(super) fn may_have_confirmed(&self, entry: EntryId) -> bool {
        let had = |(log, snapshot): &(LogView, _)| has_durably(log, *snapshot, entry);
        self.has_durably(entry) || self.lost.iter().any(had)
    }

    /// Whether an entry that was applied somewhere is in its log or in its snapshot.
    pub(super) fn has(&self, entry: EntryId) -> bool {
        let is_covered = |end: Option<EntryId>| end.is_some_and(|end| end.index >= entry.index);
        is_covered(self.snapshot)
            || is_covered(self.log.purged())
            || self.log.id(entry.index) == Some(entry)
    }

    /// Forgets everything that was promised.
    pub(super) fn lose(&mut self) {
        let has_promised = self.vote.is_some() || self.log.durable_to() > 0;
        let is_lost = self.is_lost || has_promised;
        let lost = self.take_lost();
        *self = Self { is_lost, lost, ..Self::default() };
    }

    /// Forgets what its disk may lack now; it is to receive it from others.
    fn damage(&mut self) {
        let (is_lost, lost) = (self.is_lost, self.take_lost());
        *self = Self { is_lost, lost, ..Self::default() };
    }

    fn take_lost(&mut self) -> Vec<(LogView, Option<EntryId>)> {
        let mut lost = std::mem::take(&mut self.lost);
        // A loss may be told twice.
        if self.log.durable_to() > 0 || self.snapshot.is_some() {
            lost.push((std::mem::take(&mut self.log), self.snapshot));
        }
        lost
    }
}

fn has_durably(log: &LogView, snapshot: Option<EntryId>, entry: EntryId) -> bool {
    let is_covered = |end: Option<EntryId>| end.is_some_and(|end| end.index >= entry.index);
    is_covered(snapshot)
        || is_covered(log.purged())
        || (log.durable_to() > entry.index && log.id(entry.index) == Some(entry))
}

/// What is known of a group.
#[derive(Default)]
pub(super) struct GroupFacts {
    /// All entries that were ever appended.
    pub(super) entries: BTreeMap<EntryId, EntryFacts>,
    /// By index, without gaps.
    pub(super) applied: BTreeMap<u64, AppliedFacts>,
    /// Voters by the entry that says so, applied or not.
    pub(super) voters: BTreeMap<EntryId, Voters>,
    /// The nodes that ever had a durable vote for each leader.
    pub(super) votes: BTreeMap<LeaderId, BTreeSet<NodeId>>,
    /// The highest leader that knew of its election.
    pub(super) leader_max: Option<LeaderId>,
    pub(super) replicas: BTreeMap<NodeId, Replica>,
}

impl GroupFacts {
    /// Whether this entry was applied somewhere.
    pub(super) fn is_applied(&self, entry: EntryId) -> bool {
        self.applied.get(&entry.index).is_some_and(|applied| applied.entry == entry)
    }

    /// The voters that a replica uses before an index: the last ones in its log or its snapshot.
    pub(super) fn voters_before(&self, node: NodeId, index: u64) -> Option<&Voters> {
        let replica = self.replicas.get(&node)?;
        let is_known = |entry: EntryId| {
            replica.log.id(entry.index) == Some(entry)
                || (self.is_applied(entry) && replica.has(entry))
        };
        let known =
            self.voters.iter().filter(|(entry, _)| entry.index < index && is_known(**entry));
        known.max_by_key(|(entry, _)| entry.index).map(|(_, voters)| voters)
    }

    /// The group begins with a state that others split off, unless that is known.
    pub(super) fn begin(&mut self, members: Option<Voters>) {
        let entry = EntryId { term: 0, leader: NodeId(0), index: 0 };
        let begun = AppliedFacts { entry, under: None };
        self.applied.entry(entry.index).or_insert(begun);
        if let Some(members) = members {
            self.voters.entry(entry).or_insert(members);
        }
    }

    /// The promises of a replica end, because its disk was lost.
    pub(super) fn lose(&mut self, node: NodeId) {
        if let Some(replica) = self.replicas.get_mut(&node) {
            replica.lose();
        }
    }

    /// The disk of a replica lost something.
    pub(super) fn damage(&mut self, node: NodeId) {
        if let Some(replica) = self.replicas.get_mut(&node) {
            replica.damage();
        }
    }

    /// Takes over what a group reported.
    pub(super) fn take_report(&mut self, node: NodeId, report: &GroupReport) {
        if let Some(replica) = self.replicas.get_mut(&node) {
            replica.term_reported = report.term;
            replica.applied_reported = report.applied.map(|applied| applied.index);
        }
    }

    /// Takes over what a node reported.
    pub(super) fn take(&mut self, node: NodeId, event: &Event<'_>) {
        let leader_max = self.leader_max;
        let replica = self.replicas.entry(node).or_default();
        match *event {
            Event::LogOpened { purged, last, ends, vote, .. } => {
                let Replica { snapshot, is_lost, .. } = *replica;
                let (log, lost) =
                    (LogView::opened(purged, last, ends), std::mem::take(&mut replica.lost));
                *replica = Replica { log, vote, snapshot, is_lost, lost, ..Replica::default() };
                // The vote may be one that the node received before its start and then found on its
                // disk.
                if let Some(vote) = vote {
                    self.votes.entry((vote.term, vote.node)).or_default().insert(node);
                }
            }
            Event::Appended { entry, checksum, voters, .. } => {
                let before = entry.index.checked_sub(1).and_then(|index| replica.log.id(index));
                let facts = self.entries.entry(entry).or_insert(EntryFacts { checksum, before });
                facts.before = facts.before.or(before);
                if let Some(voters) = voters {
                    self.voters.entry(entry).or_insert_with(|| voters.to_vec());
                }
                replica.log.append(entry);
            }
            Event::Durable { through, .. } => replica.log.durable(through),
            Event::Truncated { after, .. } => replica.log.truncate(after),
            Event::Purged { through, .. } => replica.log.purge(through),
            Event::VoteSaved { vote, .. } => {
                replica.vote = Some(vote);
                let leader = (vote.term, vote.node);
                self.votes.entry(leader).or_default().insert(node);
                if vote.is_committed && vote.node == node {
                    self.leader_max = self.leader_max.max(Some(leader));
                }
            }
            Event::Applied { entry, ref payload, .. } => {
                (replica.applied, replica.has_state) = (Some(entry), true);
                let applied = AppliedFacts { entry, under: leader_max };
                self.applied.entry(entry.index).or_insert(applied);
                if let Payload::Members { voters, .. } = payload {
                    self.voters.entry(entry).or_insert_with(|| voters.clone());
                }
            }
            Event::SnapshotBuilt { through, .. } => {
                replica.snapshot = newer(replica.snapshot, through);
            }
            Event::SnapshotLoaded { through, .. } => {
                replica.snapshot = newer(replica.snapshot, through);
                (replica.applied, replica.has_state) = (through, true);
            }
            Event::Forgotten { .. } => {
                let is_lost = replica.is_lost;
                *replica = Replica { is_lost, ..Replica::default() };
            }
            Event::DamageFound { .. } | Event::EntryUnknown { .. } => {}
        }
    }
}

/// The one that ends later.
fn newer(one: Option<EntryId>, other: Option<EntryId>) -> Option<EntryId> {
    one.into_iter().chain(other).max_by_key(|entry| entry.index)
}
