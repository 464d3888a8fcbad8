//! Why a copy did not do what it was asked.

use serde::{Deserialize, Serialize};
use umbel_engine::{Epoch, FilterId, Generation};

/// Why a copy did not do what it was asked. Nothing was done, unless the variant says so.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub(crate) enum CopyFailure {
    /// The node does not know of the filter yet, or knows that it was dropped. Look at the
    /// catalogue, and ask again.
    #[error("this node has no copy of {filter}")]
    UnknownCopy {
        /// The filter.
        filter: FilterId,
    },
    /// One of the two has an old catalogue. Look at it, and ask again.
    #[error("{filter} is at {ours} here, the request is for {theirs}")]
    StaleGeneration {
        /// The filter.
        filter: FilterId,
        /// What was asked about.
        theirs: Generation,
        /// What the copy is at.
        ours: Generation,
    },
    /// One of the two has an old list of nodes. Look at it, and ask again.
    #[error("this node counts the nodes of {ours}, the request those of {theirs}")]
    StaleEpoch {
        /// The caller's.
        theirs: Epoch,
        /// This node's.
        ours: Epoch,
    },
    /// The disk is nearly full; questions go on.
    #[error("the disk has {free_bytes} bytes left")]
    DiskFull {
        /// What is left.
        free_bytes: u64,
    },
    /// Slow down.
    #[error("too many inserts wait for the node's log")]
    Overloaded,
    /// The body is no batch of hashes.
    #[error("{0}")]
    BadHashes(String),
    /// The copy stopped; inserts may have been done.
    #[error("{0}")]
    Stopped(String),
    /// What was to be merged into the copy is of another shape.
    #[error("{0}")]
    Unmergeable(String),
    /// What was merged into the copy is not on disk, so it is not sent to other nodes yet. Doing it
    /// again does no harm.
    #[error("{0}")]
    NotSaved(String),
}
