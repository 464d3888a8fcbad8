//! Which inserts the bits of a replica stand for.

use serde::{Deserialize, Serialize};

use super::version_vector::VersionVector;

/// The bits that a replica has, expressed in counts of the changes of each node's own inserts.
///
/// ```text
/// changes of node 1   1 2 3 … 40 │ 41 … 44 │ 45 …
///                     all bits    any bits   none
///                     complete ▲  partial ▲
/// ```
///
/// Bits beyond `complete` come from a whole filter that was received only in part, from a replica that has
/// such bits, or from a comparison bit by bit. They are tracked separately: a version that covered them
/// would keep partners from sending the remaining bits of the same changes.
///
/// ```
/// use umbel_engine::NodeId;
/// use umbel_replicated_engine::hypercube::{Coverage, VersionVector};
///
/// let coverage = |complete: u64, partial: u64| Coverage {
///     complete: [(NodeId(1), complete)].into_iter().collect(),
///     partial: [(NodeId(1), partial)].into_iter().collect(),
/// };
/// assert!(coverage(40, 0).explains(&coverage(40, 0)));
/// assert!(!coverage(40, 0).explains(&coverage(41, 0)));
/// // Nobody explains further bits who has fewer changes than they may be of.
/// assert!(!coverage(40, 0).explains(&coverage(40, 41)));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Coverage {
    /// For each node, the number of changes of which all bits are present.
    pub complete: VersionVector,
    /// Upper bounds of the changes from which further bits may come; empty if there are none.
    pub partial: VersionVector,
}

impl Coverage {
    /// Whether a replica of this coverage has every bit of a replica of the other coverage, unless it has
    /// lost bits.
    #[must_use]
    pub fn explains(&self, other: &Self) -> bool {
        self.complete.dominates(&other.complete) && self.complete.dominates(&other.partial)
    }

    /// Whether there may be bits that `complete` does not cover.
    #[must_use]
    pub fn has_partial(&self) -> bool {
        self.partial != VersionVector::new()
    }
}
