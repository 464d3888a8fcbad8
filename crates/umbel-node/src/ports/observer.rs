//! What an observer learns of a node: its events, and its groups as their Rafts see them.

use std::collections::BTreeSet;

use umbel_engine::{GroupId, NodeId};

pub use umbel_storage::observer::{EntryId, Event, Observer, Payload, VoteId};

/// A group on a node, as its Raft currently sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupReport {
    /// The group.
    pub group: GroupId,
    /// The term.
    pub term: u64,
    /// Whether the node believes that it is the leader.
    pub is_leader: bool,
    /// The node that this node believes to be the leader.
    pub leader: Option<NodeId>,
    /// Voters of the newest configuration that it knows: one set, or two.
    pub voters: Vec<BTreeSet<NodeId>>,
    /// Learners of that configuration.
    pub learners: BTreeSet<NodeId>,
    /// Index of the last entry of its log.
    pub last: Option<u64>,
    /// Last entry that it applied.
    pub applied: Option<EntryId>,
    /// Last entry of its newest snapshot.
    pub snapshot: Option<EntryId>,
    /// Last entry that it purged.
    pub purged: Option<EntryId>,
    /// Why the group stopped on this node, if it did.
    pub failure: Option<String>,
}
