//! The events that a node reports to an observer. Production has none; simulations check the
//! promises of Raft and of the storage on these events.

use std::collections::BTreeSet;

use umbel_engine::meta::{MetaCommand, MetaReply};
use umbel_engine::shard::{ShardCommand, ShardReply};
use umbel_engine::{GroupId, NodeId};

/// Observes a node. It is called in the middle of the node's work: it must be quick and must not call
/// the node.
pub trait NodeObserver: Send + Sync + 'static {
    /// Called for each event.
    fn observe(&self, event: &Event<'_>);
}

/// The id of an entry of a group's log: two entries of one group with equal ids are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntryId {
    /// Term of the leader that appended it.
    pub term: u64,
    /// That leader.
    pub leader: NodeId,
    /// Index in the log.
    pub index: u64,
}

/// A vote as stored on disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VoteId {
    /// The term.
    pub term: u64,
    /// The node that was voted for.
    pub node: NodeId,
    /// Whether the node is known to be elected.
    pub is_committed: bool,
}

/// An event in a node.
pub enum Event<'a> {
    /// A group starts on this node with the contents of its log, which is empty if the group is new
    /// here.
    LogOpened {
        /// The group.
        group: GroupId,
        /// The node's number in the group.
        node: NodeId,
        /// The last purged entry.
        purged: Option<EntryId>,
        /// The last entry; if there is none, the last purged one.
        last: Option<EntryId>,
        /// The last entry of each leader among those that are not purged, by ascending index; they
        /// determine the ids of all others.
        ends: &'a [EntryId],
        /// The vote.
        vote: Option<VoteId>,
    },
    /// An entry was passed to the log; it is not durable yet.
    Appended {
        /// The group.
        group: GroupId,
        /// The entry's id.
        entry: EntryId,
        /// A checksum of its content.
        checksum: u32,
        /// The voters if it is a membership change: one set, or two in a joint configuration.
        voters: Option<&'a [BTreeSet<NodeId>]>,
    },
    /// Everything up to an entry was reported durable to Raft, which relies on it from now on.
    Durable {
        /// The group.
        group: GroupId,
        /// The last durable entry.
        through: EntryId,
    },
    /// Entries after this index are truncated: a start may find them gone from now on.
    Truncated {
        /// The group.
        group: GroupId,
        /// The last index that stays.
        after: Option<u64>,
    },
    /// Entries up to this one are purged.
    Purged {
        /// The group.
        group: GroupId,
        /// The last purged entry.
        through: EntryId,
    },
    /// A vote was reported durable to Raft.
    VoteSaved {
        /// The group.
        group: GroupId,
        /// The vote.
        vote: VoteId,
    },
    /// An entry was applied.
    Applied {
        /// The group.
        group: GroupId,
        /// The entry's id.
        entry: EntryId,
        /// Its content and the result.
        payload: Payload<'a>,
        /// Computes a digest of the state after it; for shards of the whole state, including request
        /// ids.
        digest: &'a dyn Fn() -> u64,
    },
    /// The meta group's log has an entry that this release does not support: the node stops.
    EntryUnknown {
        /// The entry's id.
        entry: EntryId,
    },
    /// A snapshot was written.
    SnapshotBuilt {
        /// The group.
        group: GroupId,
        /// The last entry that it covers.
        through: Option<EntryId>,
    },
    /// The state was replaced by a snapshot, from a leader or, at the start, from the disk.
    SnapshotLoaded {
        /// The group.
        group: GroupId,
        /// The last entry that it covers.
        through: Option<EntryId>,
        /// Computes a digest of the state.
        digest: &'a dyn Fn() -> u64,
    },
    /// A group's log and snapshots are being removed, because its replica has moved elsewhere.
    Forgotten {
        /// The group.
        group: GroupId,
    },
    /// Damage was found in a file.
    DamageFound {
        /// The message for the operator.
        what: &'a str,
    },
}

/// The content of an entry, and the result of applying it.
pub enum Payload<'a> {
    /// No content: a new leader's first entry.
    Blank,
    /// The group's members: one set of voters, or two in a joint configuration.
    Members {
        /// Voters.
        voters: Vec<BTreeSet<NodeId>>,
        /// Learners.
        learners: BTreeSet<NodeId>,
    },
    /// A command of the meta group.
    Meta(&'a MetaCommand, &'a MetaReply),
    /// A command of a shard.
    Shard(&'a ShardCommand, &'a ShardReply),
}
