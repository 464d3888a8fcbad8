//! What changes of whole filters say.
//!
//! A partitioned filter is changed everywhere or not at all. Of a replicated one each node changes
//! its own copy as soon as it hears of it, so these answers name the nodes that did not confirm it
//! in time.

use umbel_proto::v1::FilterSummary;

/// A filter that was created.
#[derive(Clone, PartialEq, Debug)]
pub struct Created {
    /// What was made.
    pub filter: FilterSummary,
    /// Of a replicated filter: nodes that did not say in time that they have their copy. Until they
    /// hear of it, they know no such filter.
    pub unconfirmed_nodes: Vec<u64>,
}

/// A filter that was emptied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cleared {
    /// Its new generation.
    pub generation: u64,
    /// Of a replicated filter: nodes that did not say in time that their copy is empty. Until they
    /// hear of it, they answer from the old generation.
    pub unconfirmed_nodes: Vec<u64>,
}

/// A filter that was dropped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dropped {
    /// Of a replicated filter: nodes that did not say in time that their copy is gone. They drop it
    /// as soon as they hear of it.
    pub unconfirmed_nodes: Vec<u64>,
}

/// Copies of a replicated filter that exchanged what they have.
///
/// ```
/// use umbel_client::Flushed;
///
/// let flushed = Flushed { nodes: vec![1, 2], missing_nodes: vec![3] };
/// assert!(!flushed.is_complete());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flushed {
    /// Nodes that hold everything that was acknowledged before the call on any of them.
    pub nodes: Vec<u64>,
    /// Nodes that did not answer. What they acknowledged may be on no other node, and they may lack
    /// what the others have.
    pub missing_nodes: Vec<u64>,
}

impl Flushed {
    /// Whether all nodes hold everything.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.missing_nodes.is_empty()
    }
}
