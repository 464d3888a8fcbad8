//! The events that a node reports to an observer. Production has none; simulations check the
//! promises of Raft and of the storage on these events.

use std::collections::BTreeSet;

use umbel_engine::meta::{MetaCommand, MetaReply};
use umbel_engine::shard::{ShardCommand, ShardReply};
use umbel_engine::{GroupId, NodeId};

/// Watches a node. Called in the middle of the node's work: it must be quick and must not call the
/// node.
pub trait Observer: Send + Sync + 'static {
    /// Something happened.
    fn observe(&self, event: &Event<'_>);
}

/// The name of an entry of a group's log: two entries of one group with equal names are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntryId {
    /// Term of the leader that appended it.
    pub term: u64,
    /// The leader.
    pub leader: NodeId,
    /// Place in the log.
    pub index: u64,
}

/// A vote as it is kept on disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VoteId {
    /// The term.
    pub term: u64,
    /// For whom.
    pub node: NodeId,
    /// Whether the node is known to be elected.
    pub is_committed: bool,
}

/// What happens in a node.
pub enum Event<'a> {
    /// A group starts on this node with what its log holds; with nothing, if it is new here.
    LogOpened {
        /// Whose.
        group: GroupId,
        /// As whom the node takes part in it.
        node: NodeId,
        /// Last entry that was purged.
        purged: Option<EntryId>,
        /// Last entry, or the last that was purged if there is none.
        last: Option<EntryId>,
        /// The last entry of each leader among those that are not purged, by rising index: they
        /// name all the others.
        ends: &'a [EntryId],
        /// The vote.
        vote: Option<VoteId>,
    },
    /// An entry was handed to the log; it is not durable yet.
    Appended {
        /// Whose.
        group: GroupId,
        /// Its name.
        entry: EntryId,
        /// A checksum of what it holds.
        checksum: u32,
        /// The voters, one set or two, if it is a change of members.
        voters: Option<&'a [BTreeSet<NodeId>]>,
    },
    /// Everything up to an entry was reported durable to Raft, which counts it from now on.
    Durable {
        /// Whose.
        group: GroupId,
        /// The last entry of it.
        through: EntryId,
    },
    /// Entries behind this index are taken back: a start may find them gone from now on.
    Truncated {
        /// Whose.
        group: GroupId,
        /// The last index that stays.
        after: Option<u64>,
    },
    /// Entries up to this one are let go of.
    Purged {
        /// Whose.
        group: GroupId,
        /// The last of them.
        through: EntryId,
    },
    /// A vote was reported durable to Raft.
    VoteSaved {
        /// Whose.
        group: GroupId,
        /// The vote.
        vote: VoteId,
    },
    /// An entry was applied.
    Applied {
        /// Whose.
        group: GroupId,
        /// Its name.
        entry: EntryId,
        /// What it held and what it answered.
        payload: Payload<'a>,
        /// Makes a digest of the state after it; for shards the whole state, request ids included.
        digest: &'a dyn Fn() -> u64,
    },
    /// The meta group's log has an entry that the node's release does not know: the node stops.
    EntryUnknown {
        /// Its name.
        entry: EntryId,
    },
    /// A snapshot was written.
    SnapshotBuilt {
        /// Whose.
        group: GroupId,
        /// The last entry in it.
        through: Option<EntryId>,
    },
    /// The state was replaced by a snapshot's, from a leader or, at the start, from the disk.
    SnapshotLoaded {
        /// Whose.
        group: GroupId,
        /// The last entry in it.
        through: Option<EntryId>,
        /// Makes a digest of the state.
        digest: &'a dyn Fn() -> u64,
    },
    /// A group's log and snapshots are being removed, for its replica is elsewhere now.
    Forgotten {
        /// Whose.
        group: GroupId,
    },
    /// Damage was found in a file: what the operator reads.
    DamageFound {
        /// What was found.
        what: &'a str,
    },
}

/// What an entry held, and what it answered.
pub enum Payload<'a> {
    /// Nothing: a new leader's first entry.
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

/// A group on a node, as its Raft sees it now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupReport {
    /// Which group.
    pub group: GroupId,
    /// The term.
    pub term: u64,
    /// Whether the node believes to lead it.
    pub is_leader: bool,
    /// Whom the node believes to lead it.
    pub leader: Option<NodeId>,
    /// Voters of the newest configuration that it knows, one set or two.
    pub voters: Vec<BTreeSet<NodeId>>,
    /// Learners of it.
    pub learners: BTreeSet<NodeId>,
    /// Index of the last entry of its log.
    pub last: Option<u64>,
    /// Last entry that it applied.
    pub applied: Option<EntryId>,
    /// Last entry of its newest snapshot.
    pub snapshot: Option<EntryId>,
    /// Last entry that it let go of.
    pub purged: Option<EntryId>,
    /// Why the group stopped on this node, if it did.
    pub failure: Option<String>,
}
