//! Short event sequences of a group, as its nodes would report them, for tests of the checks.

use std::collections::BTreeSet;

use umbel_engine::{GroupId, NodeId};
use umbel_node::ports::observer::{EntryId, Event, GroupReport, Payload, VoteId};

use super::RaftInvariants;

/// The group of all stories.
pub(super) const GROUP: GroupId = GroupId::META;

/// The id of a leader's entry; the entry of term 0 has no leader.
pub(super) fn id(term: u64, leader: u64, index: u64) -> EntryId {
    EntryId { term, leader: NodeId(leader), index }
}

/// A set of voters.
pub(super) fn set(nodes: &[u64]) -> BTreeSet<NodeId> {
    nodes.iter().copied().map(NodeId).collect()
}

/// The checks that observe the events, and the names of the invariants that were violated.
#[derive(Default)]
pub(super) struct Story {
    raft: RaftInvariants,
    incarnation: u32,
    broken: Vec<&'static str>,
}

impl Story {
    /// Nodes 1 to 3 form the group, and node 1 leads it in term 1 with a blank entry that all have
    /// applied.
    pub(super) fn formed() -> Self {
        let mut story = Self::default();
        for node in 1..=3 {
            story.opened(node, None, None, &[], None);
            story.members(node, id(0, 0, 0), &[set(&[1, 2, 3])]);
            story.durable(node, id(0, 0, 0));
        }
        story.elected(1, 1, &[1, 2]);
        story.replicated(id(1, 1, 1), &[1, 2, 3]);
        for node in 1..=3 {
            story.applied_members(node, id(0, 0, 0), &[set(&[1, 2, 3])]);
            story.applied(node, id(1, 1, 1));
        }
        story
    }

    /// Reports an event of a node; node 3 runs on `host 3`.
    pub(super) fn record(&mut self, node: u64, event: &Event<'_>) {
        let host = format!("host {node}");
        let found = self.raft.observe(0, &host, self.incarnation, event);
        self.broken.extend(found.iter().map(|violation| violation.invariant));
    }

    pub(super) fn opened(
        &mut self,
        node: u64,
        purged: Option<EntryId>,
        last: Option<EntryId>,
        ends: &[EntryId],
        vote: Option<VoteId>,
    ) {
        let (group, node_id) = (GROUP, NodeId(node));
        self.record(node, &Event::LogOpened { group, node: node_id, purged, last, ends, vote });
    }

    /// Begins a new incarnation of all hosts; their logs are not opened yet.
    pub(super) fn all_stopped(&mut self) {
        self.incarnation += 1;
    }

    pub(super) fn appended(&mut self, node: u64, entry: EntryId) {
        let checksum = u32::try_from(entry.index).unwrap();
        self.record(node, &Event::Appended { group: GROUP, entry, checksum, voters: None });
    }

    pub(super) fn members(&mut self, node: u64, entry: EntryId, voters: &[BTreeSet<NodeId>]) {
        let voters = Some(voters);
        self.record(node, &Event::Appended { group: GROUP, entry, checksum: 7, voters });
    }

    pub(super) fn durable(&mut self, node: u64, through: EntryId) {
        self.record(node, &Event::Durable { group: GROUP, through });
    }

    pub(super) fn truncated(&mut self, node: u64, after: u64) {
        self.record(node, &Event::Truncated { group: GROUP, after: Some(after) });
    }

    pub(super) fn purged(&mut self, node: u64, through: EntryId) {
        self.record(node, &Event::Purged { group: GROUP, through });
    }

    pub(super) fn built(&mut self, node: u64, through: EntryId) {
        self.record(node, &Event::SnapshotBuilt { group: GROUP, through: Some(through) });
    }

    pub(super) fn loaded(&mut self, node: u64, through: EntryId) {
        let through = Some(through);
        self.record(node, &Event::SnapshotLoaded { group: GROUP, through, digest: &|| 0 });
    }

    pub(super) fn forgotten(&mut self, node: u64) {
        self.record(node, &Event::Forgotten { group: GROUP });
    }

    /// A node saves a vote for another one, or for itself.
    pub(super) fn voted(&mut self, node: u64, term: u64, leader: u64, is_committed: bool) {
        let vote = VoteId { term, node: NodeId(leader), is_committed };
        self.record(node, &Event::VoteSaved { group: GROUP, vote });
    }

    /// These nodes vote for a leader, which then saves its vote as committed.
    pub(super) fn elected(&mut self, leader: u64, term: u64, voters: &[u64]) {
        voters.iter().for_each(|&voter| self.voted(voter, term, leader, false));
        self.voted(leader, term, leader, true);
    }

    /// An entry becomes durable on these nodes, the leader first.
    pub(super) fn replicated(&mut self, entry: EntryId, nodes: &[u64]) {
        for &node in nodes {
            self.appended(node, entry);
            self.durable(node, entry);
        }
    }

    pub(super) fn applied(&mut self, node: u64, entry: EntryId) {
        let payload = Payload::Blank;
        self.record(node, &Event::Applied { group: GROUP, entry, payload, digest: &|| 0 });
    }

    pub(super) fn applied_members(
        &mut self,
        node: u64,
        entry: EntryId,
        voters: &[BTreeSet<NodeId>],
    ) {
        let payload = Payload::Members { voters: voters.to_vec(), learners: BTreeSet::new() };
        self.record(node, &Event::Applied { group: GROUP, entry, payload, digest: &|| 0 });
    }

    pub(super) fn lost_disk(&mut self, node: u64) {
        self.raft.lost_disk(&format!("host {node}"));
    }

    pub(super) fn damaged_disk(&mut self, node: u64) {
        self.raft.damaged_disk(&format!("host {node}"));
    }

    pub(super) fn reported(&mut self, node: u64, report: GroupReport) {
        let found = self.raft.look(0, &format!("host {node}"), &[report]);
        self.broken.extend(found.iter().map(|violation| violation.invariant));
    }

    /// Asserts that no invariant was violated since the last check.
    pub(super) fn is_legal(&mut self) {
        assert_eq!(self.broken, [""; 0]);
    }

    /// Asserts that only this invariant was violated, and once, since the last check.
    pub(super) fn breaks(&mut self, invariant: &str) {
        assert_eq!(std::mem::take(&mut self.broken), [invariant]);
    }
}

/// A report of a group whose nodes have applied two entries.
pub(super) fn report() -> GroupReport {
    GroupReport {
        group: GROUP,
        term: 1,
        is_leader: false,
        is_handing_over: false,
        leader: Some(NodeId(1)),
        voters: vec![set(&[1, 2, 3])],
        learners: BTreeSet::new(),
        last: Some(1),
        applied: Some(id(1, 1, 1)),
        snapshot: None,
        purged: None,
        failure: None,
    }
}
