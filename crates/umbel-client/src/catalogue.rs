//! Results of changes to whole filters.
//!
//! A partitioned filter is changed everywhere or not at all. The copies of a replicated filter are
//! changed by each node as soon as it learns of the change, so these results list the nodes that did not
//! confirm it in time.

use umbel_proto::v1::FilterSummary;

/// A filter that was created.
#[derive(Clone, PartialEq, Debug)]
pub struct Created {
    /// The filter's entry in the catalogue.
    pub filter: FilterSummary,
    /// For a replicated filter: nodes that did not confirm in time that they have a copy. Until they
    /// learn of the filter, they refuse requests for it.
    pub unconfirmed_nodes: Vec<u64>,
}

/// A filter that was cleared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cleared {
    /// Its new generation.
    pub generation: u64,
    /// For a replicated filter: nodes that did not confirm in time that their copy is empty. Until they
    /// learn of the change, they answer from the old generation.
    pub unconfirmed_nodes: Vec<u64>,
}

/// A filter that was renamed.
#[derive(Clone, PartialEq, Debug)]
pub struct Renamed {
    /// The filter's entry in the catalogue, under its new name.
    pub filter: FilterSummary,
    /// For a replicated filter, or one that takes the name of a replicated filter: nodes that did not confirm in time
    /// that they know the new name. Until they learn of it, they answer as before.
    pub unconfirmed_nodes: Vec<u64>,
}

/// A filter that was dropped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dropped {
    /// For a replicated filter: nodes that did not confirm in time that their copy is gone. They drop it
    /// as soon as they learn of the change.
    pub unconfirmed_nodes: Vec<u64>,
}

/// The result of an exchange between the copies of a replicated filter.
///
/// ```
/// use umbel_client::Flushed;
///
/// let flushed = Flushed { nodes: vec![1, 2], missing_nodes: vec![3] };
/// assert!(!flushed.is_complete());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flushed {
    /// Nodes that hold everything that any of these nodes acknowledged before the call.
    pub nodes: Vec<u64>,
    /// Nodes that did not answer. What they acknowledged may be on no other node, and they may lack what
    /// the others hold.
    pub missing_nodes: Vec<u64>,
}

impl Flushed {
    /// Whether all nodes hold everything.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.missing_nodes.is_empty()
    }
}
