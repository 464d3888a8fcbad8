//! What nodes ask each other about their replicas, and the answers.

use serde::{Deserialize, Serialize};
use umbel_engine::{FilterId, Generation, GroupId, NodeId};
use umbel_storage::types::{LogId, Vote};

/// Requests between nodes about their replicas.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum RecallRequest {
    /// From a node that starts: asks what is known of it.
    Standings,
    /// From the leader of the call's group: the callee's replica has confirmed this entry, but lacks
    /// entries.
    Lost { confirmed: LogId },
    /// Asks for the commit indexes of the groups that the callee leads.
    Committed,
}

/// The responses.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum RecallAnswer {
    /// What is known of the caller.
    Standings(Standings),
    /// The information is on the disk.
    Noted,
    /// Index of the last committed entry of each group that this node leads.
    Committed(Vec<(GroupId, u64)>),
}

/// What a node knows of another one.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Standings {
    pub(crate) groups: Vec<Standing>,
    /// How many of the other node's inserts into replicated filters this node has.
    pub(crate) copies: Vec<(FilterId, Generation, u64)>,
    /// Nodes that may know more.
    pub(crate) nodes: Vec<(NodeId, String)>,
}

/// What a node knows of another node's replica of a group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Standing {
    pub(crate) group: GroupId,
    /// This node's own vote in the group: the other node may have voted the same.
    pub(crate) vote: Option<Vote>,
    /// The last entry that the other node has confirmed to this node, or that is committed.
    pub(crate) last: Option<LogId>,
}
