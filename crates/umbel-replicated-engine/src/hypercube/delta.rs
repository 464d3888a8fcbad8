//! The questions and deltas that copies of a replicated filter exchange.

use thiserror::Error;
use umbel_codec::FrameMergeError;
use umbel_filter::AheadOfClock;

use super::coverage::Coverage;
use super::version_vector::VersionVector;
use crate::limits::VERSION_NODES_MAX;
use umbel_engine::{FilterId, Generation, NodeId};

/// A copy's request for everything that it lacks.
///
/// ```
/// use umbel_replicated_engine::hypercube::DeltaQuestion;
/// use umbel_engine::{FilterId, Generation, NodeId};
///
/// let question = DeltaQuestion {
///     filter: FilterId(12),
///     generation: Generation(1),
///     number: 5,
///     log: 99,
///     version: [(NodeId(1), 40)].into_iter().collect(),
///     received: Some((77, 104)),
/// };
/// assert_eq!(question.version.of(NodeId(1)), 40);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeltaQuestion {
    /// The filter.
    pub filter: FilterId,
    /// The generation of the copy that asks.
    pub generation: Generation,
    /// Number of the question, assigned by the copy that asks; the answer repeats it.
    pub number: u64,
    /// The log of the copy that asks: changes read from it are not sent back.
    pub log: u64,
    /// The version of the copy that asks.
    pub version: VersionVector,
    /// The receiver's log that was read last, and the sequence number below which all of it has been
    /// received.
    pub received: Option<(u64, u64)>,
}

/// What a delta contains.
///
/// ```
/// use umbel_replicated_engine::hypercube::DeltaContent;
///
/// assert_ne!(DeltaContent::Changes, DeltaContent::Whole);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeltaContent {
    /// Frames that list the changes which the copy that asks may lack.
    Changes,
    /// Frames of the whole filter: the log no longer reaches back to what the copy lacks, or listing the
    /// changes would take more bytes.
    Whole,
}

/// A copy's answer without its frames, which follow one by one: what they contain, and the coverage that
/// merging them gives.
///
/// ```
/// use umbel_replicated_engine::hypercube::{Coverage, Delta, DeltaContent, VersionVector};
/// use umbel_engine::{FilterId, Generation, NodeId};
///
/// let delta = Delta {
///     filter: FilterId(12),
///     generation: Generation(1),
///     question: 5,
///     content: DeltaContent::Changes,
///     through: (77, 108),
///     coverage: Coverage {
///         complete: [(NodeId(1), 44)].into_iter().collect(),
///         partial: VersionVector::new(),
///     },
///     newest_slice: None,
/// };
/// // Then it has what node 1 inserted first, 44 changes.
/// assert_eq!(delta.coverage.complete.of(NodeId(1)), 44);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delta {
    /// The filter.
    pub filter: FilterId,
    /// Its generation. A delta of another generation is never merged.
    pub generation: Generation,
    /// Number of the question that it answers.
    pub question: u64,
    /// What it contains.
    pub content: DeltaContent,
    /// The sender's log, and the sequence number below which the receiver has all of it after merging.
    pub through: (u64, u64),
    /// What the sender has beyond the version in the question. For a whole filter, both parts; for changes,
    /// only the complete part.
    pub coverage: Coverage,
    /// For a windowed filter: the newest time slice, which determines the slices that the blocks belong to.
    pub newest_slice: Option<u64>,
}

/// Why a question or a delta was refused. Nothing was changed, and the question may be repeated.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum DeltaError {
    /// One of the two nodes has an outdated catalogue: the one with the lower generation must refresh it.
    #[error("{from} is at {theirs} of {filter}, expected {ours}")]
    StaleGeneration {
        /// The sender.
        from: NodeId,
        /// The filter.
        filter: FilterId,
        /// The sender's generation.
        theirs: Generation,
        /// This copy's generation.
        ours: Generation,
    },
    /// A message about another filter was given to this copy: a bug of the caller.
    #[error("{from} speaks of {theirs} to a copy of {ours}")]
    ForeignFilter {
        /// The sender.
        from: NodeId,
        /// The sender's filter.
        theirs: FilterId,
        /// This copy's filter.
        ours: FilterId,
    },
    /// The answer is to a question that this copy did not ask, or has replaced since. Drop it.
    #[error("{from} answers question {theirs} about {filter}, expected the answer to {ours:?}")]
    ForeignAnswer {
        /// The sender.
        from: NodeId,
        /// The filter.
        filter: FilterId,
        /// The number in the answer.
        theirs: u64,
        /// The question that waits for an answer, if any.
        ours: Option<u64>,
    },
    /// The sender's sequence number in one of its logs has decreased: it runs from an older copy of its
    /// disk, or has a bug.
    #[error("{from} is at {theirs} of its log of {filter}, after it was at {ours}")]
    SequenceWentBack {
        /// The sender.
        from: NodeId,
        /// The filter.
        filter: FilterId,
        /// The received sequence number.
        theirs: u64,
        /// The earlier, higher one.
        ours: u64,
    },
    /// The sender has inserts of this node that this node does not have: this node has lost data, or runs
    /// from an older copy of its disk. Replace this node.
    #[error("{from} knows of {theirs} inserts of {node} into {filter}, which made {ours}")]
    CoverageAhead {
        /// The sender.
        from: NodeId,
        /// The filter.
        filter: FilterId,
        /// This node.
        node: NodeId,
        /// The number of this node's inserts that the sender has.
        theirs: u64,
        /// The number of this node's inserts.
        ours: u64,
    },
    /// The version has more nodes than a cluster can have: the sender has a bug.
    #[error("{from} counts the inserts of {theirs} nodes, expected at most {VERSION_NODES_MAX}")]
    TooManyNodes {
        /// The sender.
        from: NodeId,
        /// Number of nodes in the sender's version.
        theirs: usize,
    },
    /// A frame is damaged, or has another shape or key.
    #[error("a frame of {from}: {source}")]
    Frame {
        /// The sender.
        from: NodeId,
        /// What is wrong with the frame.
        source: FrameMergeError,
    },
    /// The delta lists more changes than allowed: a copy with so many to send must send the whole filter.
    /// The sender has a bug.
    #[error("the changes of {from} take more than {list_bytes_max} bytes")]
    TooLong {
        /// The sender.
        from: NodeId,
        /// Bytes that the lists of one delta may take.
        list_bytes_max: u64,
    },
    /// The sender's window is several time slices ahead of this node's. Synchronise the clocks; the delta
    /// can be merged once they are close. If the sender was started with a clock ahead that was set back since, clear
    /// the filter.
    #[error("{from} sent changes of {filter} of {source}")]
    AheadOfClock {
        /// The sender.
        from: NodeId,
        /// The filter.
        filter: FilterId,
        /// By how much it is ahead.
        source: AheadOfClock,
    },
    /// A newest slice must be sent with deltas of windowed filters, and only with those. The sender has a
    /// bug.
    #[error(
        "{from} names newest slice {theirs:?} of {filter}, whose slices here end with {ours:?}"
    )]
    Slices {
        /// The sender.
        from: NodeId,
        /// The filter.
        filter: FilterId,
        /// The received newest slice.
        theirs: Option<u64>,
        /// This copy's newest slice.
        ours: Option<u64>,
    },
    /// A frame contains bits where changes are expected.
    #[error("{from} sent a frame that lists no changes")]
    Unlisted {
        /// The sender.
        from: NodeId,
    },
}
