//! How much of each node's inserts a replica has.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use umbel_engine::NodeId;

/// How many changes of each node's own inserts a replica has, counted from the first without gaps.
///
/// A version vector (Parker et al. 1983, doi:10.1109/TSE.1983.236733): merging takes the larger count for
/// each node. Of two vectors, one may dominate the other, they may be equal, or neither dominates.
///
/// ```
/// use umbel_engine::NodeId;
/// use umbel_replicated_engine::hypercube::VersionVector;
///
/// let one: VersionVector = [(NodeId(1), 40), (NodeId(2), 17)].into_iter().collect();
/// let other: VersionVector = [(NodeId(1), 30)].into_iter().collect();
/// assert!(one.dominates(&other) && !other.dominates(&one));
/// assert_eq!(one.newer_than(&other), one);
/// assert_eq!((one.of(NodeId(2)), one.of(NodeId(3))), (17, 0));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(from = "BTreeMap<NodeId, u64>", into = "BTreeMap<NodeId, u64>")]
pub struct VersionVector {
    /// Only counts above 0.
    counts: BTreeMap<NodeId, u64>,
}

impl VersionVector {
    /// The version of an empty replica.
    #[must_use]
    pub const fn new() -> Self {
        Self { counts: BTreeMap::new() }
    }

    /// The count of a node.
    #[must_use]
    pub fn of(&self, node: NodeId) -> u64 {
        self.counts.get(&node).copied().unwrap_or(0)
    }

    /// The nodes with counts above 0, in ascending order, with their counts.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (NodeId, u64)> + '_ {
        self.counts.iter().map(|(&node, &count)| (node, count))
    }

    /// Whether a replica at this version has everything that a replica at the other version has.
    #[must_use]
    pub fn dominates(&self, other: &Self) -> bool {
        other.iter().all(|(node, count)| self.of(node) >= count)
    }

    /// The counts that exceed the other version's.
    #[must_use]
    pub fn newer_than(&self, other: &Self) -> Self {
        self.iter().filter(|&(node, count)| count > other.of(node)).collect()
    }

    /// Takes the larger count for each node.
    pub fn merge(&mut self, other: &Self) {
        for (node, count) in other.iter() {
            let ours = self.counts.entry(node).or_default();
            *ours = count.max(*ours);
        }
    }

    /// Adds to the count of a node.
    pub(super) fn add(&mut self, node: NodeId, count: u64) {
        if count > 0 {
            *self.counts.entry(node).or_default() += count;
        }
    }
}

/// Counts of 0 are dropped; of several counts for the same node, the largest is taken.
impl FromIterator<(NodeId, u64)> for VersionVector {
    fn from_iter<I: IntoIterator<Item = (NodeId, u64)>>(counts: I) -> Self {
        let mut version = Self::new();
        for (node, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            let ours = version.counts.entry(node).or_default();
            *ours = count.max(*ours);
        }
        version
    }
}

/// For values received or read from disk; counts of 0 are dropped here, too.
impl From<BTreeMap<NodeId, u64>> for VersionVector {
    fn from(mut counts: BTreeMap<NodeId, u64>) -> Self {
        counts.retain(|_, count| *count > 0);
        Self { counts }
    }
}

impl From<VersionVector> for BTreeMap<NodeId, u64> {
    fn from(version: VersionVector) -> Self {
        version.counts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn version() -> impl Strategy<Value = VersionVector> {
        prop::collection::vec((0_u64..5, 0_u64..4), 0..6).prop_map(|counts| {
            counts.into_iter().map(|(node, count)| (NodeId(node), count)).collect()
        })
    }

    fn merged(one: &VersionVector, other: &VersionVector) -> VersionVector {
        let mut merged = one.clone();
        merged.merge(other);
        merged
    }

    proptest! {
        /// Merging is a join: commutative, associative and idempotent, with dominance as its order.
        #[test]
        fn merging_is_the_join_of_dominance(a in version(), b in version(), c in version()) {
            prop_assert_eq!(merged(&a, &b), merged(&b, &a));
            prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
            prop_assert_eq!(&merged(&a, &a), &a);
            prop_assert_eq!(a.dominates(&b), merged(&a, &b) == a);
            prop_assert_eq!(a.newer_than(&b) == VersionVector::new(), b.dominates(&a));
            // Merging only the newer counts gives everything.
            prop_assert_eq!(merged(&b, &a.newer_than(&b)), merged(&a, &b));
        }
    }
}
