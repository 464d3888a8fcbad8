//! The types with which Umbel configures openraft. All groups of a node, the meta group and the shards,
//! share one configuration, so that one log, one link and one set of adapters serve them all.

use std::fmt;

use openraft::raft::responder::Responder;
use openraft::type_config::alias;
use openraft::vote::RaftLeaderId;
use openraft::vote::leader_id_adv::LeaderId;
use openraft::{OptionalSend, RaftTypeConfig};
use serde::{Deserialize, Serialize};
use umbel_engine::meta::{MetaCommand, MetaReply};
use umbel_engine::shard::{HashList, ShardCommand, ShardReply};
use umbel_engine::{Generation, NodeId};

use crate::observer::{EntryId, VoteId};

mod fault;

pub use fault::{Advice, StorageFault};

/// The tokio runtime, with election timeouts drawn from a seed that is set when a group starts.
pub type Runtime =
    openraft_rt::deterministic_rng::DeterministicRng<openraft_rt_tokio::TokioRuntime>;

/// Umbel's Raft configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Types;

/// By hand, as openraft's macro has no place for a responder.
impl RaftTypeConfig for Types {
    type D = LogCommand;
    type R = CommandReply;
    type NodeId = NodeId;
    type Node = NodeAddress;
    type Term = u64;
    type LeaderId = LeaderId<u64, NodeId>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = openraft::EntryPayload<LogCommand, NodeId, NodeAddress>;
    type Entry = openraft::Entry<<Self::LeaderId as RaftLeaderId>::Committed, Self::Payload>;
    type AsyncRuntime = Runtime;
    type Responder<T>
        = OnComplete<T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type ErrorSource = StorageFault;
}

/// What is done with the outcome of a proposal, in the task that applies entries: it must not take long. It is
/// dropped instead if the group stops.
pub struct OnComplete<T>(Box<dyn FnOnce(T) + Send>);

impl<T> OnComplete<T> {
    /// Calls this function with the outcome.
    pub fn new(call: impl FnOnce(T) + Send + 'static) -> Self {
        Self(Box::new(call))
    }
}

impl<T: OptionalSend + 'static> Responder<Types, T> for OnComplete<T> {
    fn on_complete(self, outcome: T) {
        (self.0)(outcome);
    }
}

/// The command in a log entry.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum LogCommand {
    /// For the meta group.
    Meta(MetaCommand),
    /// For a shard.
    Shard(ShardCommand),
    /// In a log of this node only, not of a Raft group: the node's own inserts into its copy of a
    /// replicated filter.
    Copy(CopyEntry),
    /// The same for a copy of a windowed filter.
    CopySlice {
        /// Number of the time slice in which the items were inserted, by the node's clock.
        slice: u64,
        /// The items.
        entry: CopyEntry,
    },
}

/// Items that a node inserts into its copy of a replicated filter, in insertion order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CopyEntry {
    /// The copy's generation; entries of an older one are skipped.
    pub generation: Generation,
    /// The items.
    pub hashes: HashList,
}

impl fmt::Display for LogCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Meta(_) => "meta command",
            Self::Shard(_) => "shard command",
            Self::Copy(_) | Self::CopySlice { .. } => "inserts",
        })
    }
}

/// The result of applying an entry.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum CommandReply {
    /// Of a blank entry or a membership change.
    None,
    /// Of the meta group.
    Meta(MetaReply),
    /// Of a shard.
    Shard(ShardReply),
}

/// A node's address, as `host:port`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NodeAddress(pub String);

/// A vote of a replica in an election of its group.
pub type Vote = alias::VoteOf<Types>;

/// The id of an entry of a log: its index, and the leader that appended it.
pub type LogId = alias::LogIdOf<Types>;

/// An entry of a log.
pub type LogEntry = alias::EntryOf<Types>;

/// The content of an entry: a command, members, or nothing.
pub type EntryPayload = alias::EntryPayloadOf<Types>;

/// What a snapshot covers: its last entry, and the members at that point.
pub type SnapshotMeta = alias::SnapshotMetaOf<Types>;

/// The members of a group, with the id of the entry that set them.
pub type StoredMembership = alias::StoredMembershipOf<Types>;

/// An entry's id for the node's observer.
pub fn entry_id(id: LogId) -> EntryId {
    EntryId { term: id.leader_id.term, leader: id.leader_id.node_id, index: id.index }
}

/// A vote for the node's observer.
pub(crate) fn vote_id(vote: Vote) -> VoteId {
    let Vote { leader_id, committed } = vote;
    VoteId { term: leader_id.term, node: leader_id.node_id, is_committed: committed }
}

/// What a snapshot covers of a log that only this node writes: all entries up to an index; none if it is 0.
pub fn own_snapshot_meta(node: NodeId, index: u64) -> SnapshotMeta {
    SnapshotMeta {
        last_log_id: (index > 0).then(|| own_log_id(node, index)),
        last_membership: StoredMembership::default(),
    }
}

/// The log id of an entry in a log that only this node writes.
pub(crate) fn own_log_id(node: NodeId, index: u64) -> LogId {
    LogId { leader_id: LeaderId { term: 1, node_id: node }, index }
}

#[cfg(test)]
mod recorded_meta_test;
#[cfg(test)]
mod recorded_shard_test;
