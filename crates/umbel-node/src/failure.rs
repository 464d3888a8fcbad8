//! Why a client's call failed, by what the client should do.

use std::time::Duration;

use umbel_engine::meta::MetaError;
use umbel_engine::shard::PartError;

/// Why a call of a client failed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub(crate) enum CallFailure {
    /// Nothing was changed. Create the filter, or mend the name.
    #[error("there is no filter named {name:?}")]
    UnknownFilter {
        /// The name.
        name: String,
    },
    /// Nothing was changed. Wait until it is live.
    #[error("filter {name:?} is {state}")]
    FilterBusy {
        /// The name.
        name: String,
        /// What is being done with it.
        state: String,
    },
    /// Nothing was changed. Look at it anew.
    #[error("filter {name:?} has been emptied or made anew since you saw it")]
    Changed {
        /// The name.
        name: String,
    },
    /// Nothing was changed. Mend the request.
    #[error("{what}")]
    Invalid {
        /// Which field, what was expected, what came.
        what: String,
    },
    /// A shard refused its part of the request.
    #[error(transparent)]
    Part(#[from] PartError),
    /// The meta group refused the command. Nothing was changed.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// Nothing was changed. Send again, and look at the nodes if it lasts.
    #[error("{what} did not answer within {} ms: has it lost its majority?", within.as_millis())]
    NoQuorum {
        /// Which group.
        what: String,
        /// How long it was tried.
        within: Duration,
    },
    /// Nothing was changed. Slow down and send again.
    #[error("{what}")]
    Overloaded {
        /// Which queue.
        what: String,
    },
    /// Nothing was changed. Send it faster, or less of it; the connection may be too slow.
    #[error("{what}")]
    TooSlow {
        /// What took too long, and how long it may take.
        what: String,
    },
    /// Nothing was changed. Send again after that time, or have an administrator raise the rate.
    #[error(
        "principal {principal} has a quota of {limit} {what} a second over all nodes, and has used up this \
         node's share: try again after {} ms, send larger batches or to more nodes, or have an administrator \
         raise it (umbel access quota {principal} --{what}-per-second N)", retry_after.as_millis()
    )]
    RateExceeded {
        /// Who asks.
        principal: String,
        /// So many a second.
        limit: u64,
        /// Of what: calls, items, bytes.
        what: &'static str,
        /// When it owes nothing any more.
        retry_after: Duration,
    },
    /// Free disk space on the shard's leader; queries go on. Nothing was changed there.
    #[error("the disk of a shard's leader is nearly full: {free_bytes} bytes are left")]
    DiskFull {
        /// What is left.
        free_bytes: u64,
        /// Whether items of other shards were inserted; sending them again does no harm under the
        /// same request id.
        is_partial: bool,
    },
    /// It may have been applied, or be applied later. Send again under the same request id, or ask
    /// `contains`.
    #[error("{what}; the outcome is unknown")]
    OutcomeUnknown {
        /// What happened.
        what: String,
    },
    /// Nothing was changed. Wait until the cluster is formed.
    #[error("this node does not belong to a formed cluster yet")]
    NotFormed,
    /// Nothing was changed. Have the right granted, or ask for something else.
    #[error("{what}")]
    Denied {
        /// Who may not do what.
        what: String,
    },
    /// A node's storage failed. Replace the node.
    #[error("{what}")]
    Storage {
        /// What failed.
        what: String,
    },
}
