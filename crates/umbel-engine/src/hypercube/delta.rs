//! What copies of a replicated filter request and send.

use thiserror::Error;
use umbel_codec::FrameMergeError;
use umbel_filter::AheadOfClock;

use super::coverage::Coverage;
use super::version_vector::VersionVector;
use crate::ids::{FilterId, Generation, NodeId};
use crate::limits::VERSION_NODES_MAX;

/// What one copy asks another: send what I lack.
///
/// ```
/// use umbel_engine::hypercube::Question;
/// use umbel_engine::{FilterId, Generation, NodeId};
///
/// let question = Question {
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
pub struct Question {
    /// The filter.
    pub filter: FilterId,
    /// The asking copy's generation.
    pub generation: Generation,
    /// Number of the question at the copy that asks; the answer repeats it.
    pub number: u64,
    /// The asking copy's log: what was read from it is not sent back.
    pub log: u64,
    /// What the asking copy has.
    pub version: VersionVector,
    /// Which log of the other's it has read last, and up to which sequence number.
    pub received: Option<(u64, u64)>,
}

/// How much of a copy a delta has.
///
/// ```
/// use umbel_engine::hypercube::DeltaContent;
///
/// assert_ne!(DeltaContent::Changes, DeltaContent::Whole);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeltaContent {
    /// Frames that list what the asking copy may lack.
    Changes,
    /// Frames of the whole filter: the log no longer tells what the asking copy lacks, or would
    /// take more bytes.
    Whole,
}

/// What a copy answers: frames, and what having merged them means.
///
/// ```
/// use umbel_engine::hypercube::{Coverage, Delta, DeltaContent, VersionVector};
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
///     frames: Vec::new(),
/// };
/// // Then it has what node 1 inserted first, 44 changes.
/// assert_eq!(delta.coverage.complete.of(NodeId(1)), 44);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delta {
    /// The filter.
    pub filter: FilterId,
    /// Its generation: bits of another one never come in.
    pub generation: Generation,
    /// Number of the question.
    pub question: u64,
    /// How much it has.
    pub content: DeltaContent,
    /// The sender's log, and its sequence number up to which the receiver has everything then.
    pub through: (u64, u64),
    /// What the sender has beyond what the question named: of a whole filter both parts, of changes the complete
    /// one.
    pub coverage: Coverage,
    /// Of a ring of slices of time, its newest slice: it says which slices the blocks are of.
    pub newest_slice: Option<u64>,
    /// Encoded frames of the codec; none if there is nothing to add.
    pub frames: Vec<Vec<u8>>,
}

/// What came of merging a delta.
///
/// ```
/// use umbel_engine::hypercube::Merged;
///
/// let merged = Merged { new_change_count: 2, new_bit_count: 12 };
/// assert!(merged.new_change_count <= merged.new_bit_count);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Merged {
    /// Number of listed changes that were new here; they are sent on to others.
    pub new_change_count: u64,
    /// Number of positions that were newly set.
    pub new_bit_count: u64,
}

/// Why a question or a delta was refused. Nothing was changed, and whoever asked may ask again.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum DeltaError {
    /// One of the two has an old catalogue. Whose generation is lower must refresh it.
    #[error("{from} is at {theirs} of {filter}, expected {ours}")]
    StaleGeneration {
        /// The sender.
        from: NodeId,
        /// The filter.
        filter: FilterId,
        /// Its generation.
        theirs: Generation,
        /// The copy's.
        ours: Generation,
    },
    /// Something of another filter was given to this copy: a bug of the caller.
    #[error("{from} speaks of {theirs} to a copy of {ours}")]
    ForeignFilter {
        /// The sender.
        from: NodeId,
        /// Its filter.
        theirs: FilterId,
        /// The copy's.
        ours: FilterId,
    },
    /// An answer to a question that this copy did not ask, or not last. Drop it.
    #[error("{from} answers question {theirs} about {filter}, expected the answer to {ours:?}")]
    ForeignAnswer {
        /// The sender.
        from: NodeId,
        /// The filter.
        filter: FilterId,
        /// The question's number.
        theirs: u64,
        /// The question that waits for an answer, if any does.
        ours: Option<u64>,
    },
    /// The sender counts one of its logs from anew: it is a copy of an older disk, or has a bug.
    #[error("{from} is at {theirs} of its log of {filter}, after it was at {ours}")]
    SequenceWentBack {
        /// The sender.
        from: NodeId,
        /// The filter.
        filter: FilterId,
        /// What came.
        theirs: u64,
        /// What was there before.
        ours: u64,
    },
    /// The sender has inserts of this node that this node does not have: it has lost its data, or
    /// runs from a copy of an older disk. Replace this node.
    #[error("{from} knows of {theirs} inserts of {node} into {filter}, which made {ours}")]
    KnowsTooMuch {
        /// The sender.
        from: NodeId,
        /// The filter.
        filter: FilterId,
        /// This node.
        node: NodeId,
        /// What the sender knows of.
        theirs: u64,
        /// What this node has inserted.
        ours: u64,
    },
    /// No cluster has so many nodes: the sender has a bug.
    #[error("{from} counts the inserts of {theirs} nodes, expected at most {VERSION_NODES_MAX}")]
    TooManyNodes {
        /// The sender.
        from: NodeId,
        /// Of how many nodes it has counts.
        theirs: usize,
    },
    /// A frame is damaged, of another shape, or of another key.
    #[error("a frame of {from}: {source}")]
    Frame {
        /// The sender.
        from: NodeId,
        /// What is wrong with it.
        source: FrameMergeError,
    },
    /// More changes than a delta lists: a copy with so many to send sends the whole filter. The sender
    /// has a bug.
    #[error("the changes of {from} take more than {list_bytes_max} bytes")]
    TooLong {
        /// The sender.
        from: NodeId,
        /// Bytes that the lists of one delta may take.
        list_bytes_max: u64,
    },
    /// The sender's clock is slices of time ahead of this node's, or this node's behind. Set the clocks; it is
    /// merged as soon as they are close.
    #[error("{from} sent changes of {filter} of {source}")]
    AheadOfClock {
        /// The sender.
        from: NodeId,
        /// The filter.
        filter: FilterId,
        /// By how much.
        source: AheadOfClock,
    },
    /// Only what is of a ring of slices is sent with its newest slice, and all of that is. The sender has a bug.
    #[error(
        "{from} names newest slice {theirs:?} of {filter}, whose slices here end with {ours:?}"
    )]
    Slices {
        /// The sender.
        from: NodeId,
        /// The filter.
        filter: FilterId,
        /// What came.
        theirs: Option<u64>,
        /// This copy's newest slice.
        ours: Option<u64>,
    },
    /// A frame of bits where changes are expected.
    #[error("{from} sent a frame that lists no changes")]
    Unlisted {
        /// The sender.
        from: NodeId,
    },
}
