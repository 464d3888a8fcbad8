//! Which inserts the bits of a replica are of.

use serde::{Deserialize, Serialize};

use super::version_vector::VersionVector;

/// What the bits of a replica are at one moment, said in changes of the nodes' own inserts.
///
/// ```text
/// changes of node 1   1 2 3 … 40 │ 41 … 44 │ 45 …
///                     all bits    any bits   none
///                     complete ▲  partial ▲
/// ```
///
/// A whole filter that came in part, or from a replica to which that happened, and a comparison bit by bit leave
/// bits beyond `complete`. They are kept apart from it, for a version that named them would keep others from sending
/// the rest.
///
/// ```
/// use umbel_engine::NodeId;
/// use umbel_engine::hypercube::{Coverage, VersionVector};
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
    /// Of how many changes of each node's own inserts all bits are there.
    pub complete: VersionVector,
    /// Within which counts all further bits lie; empty if there are none.
    pub partial: VersionVector,
}

impl Coverage {
    /// Whether a replica of this coverage has every bit of one of the other's, or has lost it.
    #[must_use]
    pub fn explains(&self, other: &Self) -> bool {
        self.complete.dominates(&other.complete) && self.complete.dominates(&other.partial)
    }

    /// Whether there may be bits that `complete` does not name.
    #[must_use]
    pub fn has_partial(&self) -> bool {
        self.partial != VersionVector::new()
    }
}
