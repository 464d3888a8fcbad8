//! openraft's types as Umbel fills them in. All groups of a node, the meta group and the shards,
//! share one configuration, so that one log, one link and one set of adapters serve them all.

use std::fmt;

use openraft::type_config::alias;
use openraft::vote::leader_id_adv::LeaderId;
use serde::{Deserialize, Serialize};
use umbel_engine::meta::{MetaCommand, MetaReply};
use umbel_engine::shard::{HashList, ShardCommand, ShardReply};
use umbel_engine::{Generation, NodeId};

use crate::ports::observer::{EntryId, VoteId};

/// tokio, with election timeouts drawn from a seed that is set around a group when it starts.
pub(crate) type Runtime =
    openraft_rt::deterministic_rng::DeterministicRng<openraft_rt_tokio::TokioRuntime>;

openraft::declare_raft_types!(
    /// Umbel's Raft configuration.
    pub(crate) Types:
        D = Command,
        R = Reply,
        NodeId = NodeId,
        Node = NodeAddress,
        AsyncRuntime = Runtime,
);

/// What an entry of a log asks for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Of the meta group.
    Meta(MetaCommand),
    /// Of a shard.
    Shard(ShardCommand),
    /// Of no group: a node's own inserts into its copy of a replicated filter.
    Copy(CopyEntry),
    /// The same into a copy that forgets.
    CopySlice {
        /// Number of the slice of time that the items came in, by the node's clock.
        slice: u64,
        /// The items.
        entry: CopyEntry,
    },
}

/// Items that a node inserts into its copy of a replicated filter, in the order in which they count.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct CopyEntry {
    /// The copy's generation: what belongs to an older one is passed over.
    pub(crate) generation: Generation,
    /// The items.
    pub(crate) hashes: HashList,
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Meta(_) => "meta command",
            Self::Shard(_) => "shard command",
            Self::Copy(_) | Self::CopySlice { .. } => "inserts",
        })
    }
}

/// What applying an entry answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// To a blank entry or a change of members.
    None,
    /// Of the meta group.
    Meta(MetaReply),
    /// Of a shard.
    Shard(ShardReply),
}

/// Where a node listens, as `host:port`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct NodeAddress(pub(crate) String);

pub(crate) type Vote = alias::VoteOf<Types>;
pub(crate) type LogId = alias::LogIdOf<Types>;
pub(crate) type Entry = alias::EntryOf<Types>;
pub(crate) type SnapshotMeta = alias::SnapshotMetaOf<Types>;
pub(crate) type StoredMembership = alias::StoredMembershipOf<Types>;

/// The name of an entry for whoever watches the node.
pub(crate) fn entry_id(id: LogId) -> EntryId {
    EntryId { term: id.leader_id.term, leader: id.leader_id.node_id, index: id.index }
}

/// A vote for whoever watches the node.
pub(crate) fn vote_id(vote: Vote) -> VoteId {
    let Vote { leader_id, committed } = vote;
    VoteId { term: leader_id.term, node: leader_id.node_id, is_committed: committed }
}

/// The name of an entry of a log that this node alone writes.
pub(crate) fn own_log_id(node: NodeId, index: u64) -> LogId {
    LogId { leader_id: LeaderId { term: 1, node_id: node }, index }
}
