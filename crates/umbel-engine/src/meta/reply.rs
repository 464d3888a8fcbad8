//! What the meta group answers to a command, and why it refuses one.

use serde::{Deserialize, Serialize};

use super::version::ClusterVersion;
use crate::ids::{FilterId, JobId, NodeId, SessionId};

/// The reply of applying a [`MetaCommand`](super::MetaCommand).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum MetaReply {
    /// The command was carried out, now or before.
    Done,
    /// The number of the added node.
    Node(NodeId),
    /// The number of the created filter.
    Filter(FilterId),
    /// The number of the opened session.
    Session(SessionId),
    /// The number of the submitted job.
    Job(JobId),
    /// The command was refused; nothing was changed.
    Refused(MetaError),
}

/// Why the meta group refused a command. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum MetaError {
    /// There is no such filter.
    #[error("there is no {filter}")]
    UnknownFilter {
        /// The filter that was named.
        filter: FilterId,
    },
    /// Another filter has this name: choose another name, or drop that filter.
    #[error("a filter named {name:?} exists already")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The filter is being created, cleared or imported, for example: retry later.
    #[error("filter {name:?} is {state}")]
    Busy {
        /// Its name.
        name: String,
        /// What is being done with it.
        state: String,
    },
    /// There is no such node.
    #[error("there is no {node}")]
    UnknownNode {
        /// The node that was named.
        node: NodeId,
    },
    /// Another live node has this address: remove that node first.
    #[error("{node} listens on {address} already; if its data is gone, remove it first")]
    AddressTaken {
        /// The address.
        address: String,
        /// The node that has it.
        node: NodeId,
    },
    /// Too few nodes would remain for the shards' replicas.
    #[error("{what}")]
    TooFewNodes {
        /// How many would remain, and how many are needed.
        what: String,
    },
    /// The shard map does not allow the move.
    #[error("{what}")]
    BadMove {
        /// The reason.
        what: String,
    },
    /// The shards cannot be split like this.
    #[error("{what}")]
    BadSplit {
        /// The reason.
        what: String,
    },
    /// A shard is being split or merged, its replicas are being moved, the voters of the meta group are being
    /// changed, or a filter is not live and so no shard can be merged: retry later.
    #[error("{what}")]
    ShardBusy {
        /// Which shard, and what is being done with it.
        what: String,
    },
    /// The ledger has no such job. Ended jobs are forgotten in time.
    #[error("there is no {job}")]
    UnknownJob {
        /// The job that was named.
        job: JobId,
    },
    /// The job's state does not allow this any more.
    #[error("{job} is {state}")]
    JobState {
        /// The job.
        job: JobId,
        /// Its state.
        state: String,
    },
    /// A limit would be exceeded.
    #[error("{what}")]
    Quota {
        /// Which limit, how much is used, and how much was requested.
        what: String,
    },
    /// The cluster is not formed yet, and the command needs one.
    #[error("the cluster is not formed yet")]
    NotFormed,
    /// The settings do not describe a filter, or the rights are invalid.
    #[error("{what}")]
    BadSettings {
        /// What was expected and what was received.
        what: String,
    },
    /// The join token is not valid. Create another one.
    #[error("{what}")]
    BadJoinToken {
        /// The reason.
        what: String,
    },
    /// The principal cannot be added or removed. Choose another one, or add an administrator first.
    #[error("{what}")]
    BadPrincipal {
        /// The reason.
        what: String,
    },
    /// Raise the cluster's version first.
    #[error(
        "this needs a cluster of {needed}, and it is at {is}: have all nodes run a release that can, then raise it \
         (umbel cluster upgrade)"
    )]
    VersionTooLow {
        /// The version that introduced the command.
        needed: ClusterVersion,
        /// The cluster's version.
        is: ClusterVersion,
    },
    /// The cluster's version cannot be raised like this.
    #[error("{what}")]
    BadVersion {
        /// The reason.
        what: String,
    },
    /// The shards cannot be merged like this. Choose another number of shards; retrying does not help.
    #[error("{what}")]
    BadMerge {
        /// The reason.
        what: String,
    },
    /// The filter has another time of expiry than the one that was seen: look again.
    #[error("the time of expiry of {filter} was changed meanwhile: try again")]
    ExpiryChanged {
        /// The filter that was named.
        filter: FilterId,
    },
}
