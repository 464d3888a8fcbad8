//! Why a copy did not carry out a request.

use serde::{Deserialize, Serialize};
use umbel_engine::{Epoch, FilterId, Generation};

/// Why a copy did not carry out a request. Nothing was done, unless the variant says otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum CopyFailure {
    /// The node does not know of the filter yet, or knows that it was dropped. Read the catalogue
    /// again, and retry.
    #[error("this node has no copy of {filter}")]
    UnknownCopy {
        /// The filter.
        filter: FilterId,
    },
    /// One of the two nodes has an old catalogue. Read it again, and retry.
    #[error("{filter} is at {ours} here, the request is for {theirs}")]
    StaleGeneration {
        /// The filter.
        filter: FilterId,
        /// The generation in the request.
        theirs: Generation,
        /// The copy's generation.
        ours: Generation,
    },
    /// One of the two nodes has an old list of nodes. Read it again, and retry.
    #[error("this node counts the nodes of {ours}, the request those of {theirs}")]
    StaleEpoch {
        /// The caller's.
        theirs: Epoch,
        /// This node's.
        ours: Epoch,
    },
    /// The disk is nearly full; lookups still work.
    #[error("the disk has {free_bytes} bytes left")]
    DiskFull {
        /// The free bytes.
        free_bytes: u64,
    },
    /// Send more slowly.
    #[error("too many inserts wait for the node's log")]
    Overloaded,
    /// The body is not a valid batch of hashes.
    #[error("{0}")]
    BadHashes(String),
    /// The copy stopped; the inserts may or may not have been done.
    #[error("{0}")]
    Stopped(String),
    /// The filter to be merged into the copy has another shape.
    #[error("{0}")]
    Unmergeable(String),
    /// What was merged into the copy is not on disk, so it is not sent to other nodes yet. Repeating
    /// the request does no harm.
    #[error("{0}")]
    NotSaved(String),
    /// The copy has no room for the items. Nothing was inserted; create the filter partitioned, or another one.
    #[error("{filter} is full: {what}")]
    Full {
        /// The filter.
        filter: FilterId,
        /// The reason.
        what: String,
    },
}
