//! How much of everybody's inserts a copy has.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;

/// How many changes of each node's own inserts a copy has: all of the first so many.
///
/// A state-based grow-only counter (Shapiro, Preguiça, Baquero & Zawirski 2011,
/// doi:10.1007/978-3-642-24550-3_29): who merges takes the larger count of each node, and knowledge of
/// two copies is ordered, equal, or neither.
///
/// ```
/// use umbel_engine::NodeId;
/// use umbel_engine::hypercube::Knowledge;
///
/// let one: Knowledge = [(NodeId(1), 40), (NodeId(2), 17)].into_iter().collect();
/// let other: Knowledge = [(NodeId(1), 30)].into_iter().collect();
/// assert!(one.covers(&other) && !other.covers(&one));
/// assert_eq!(one.beyond(&other), one);
/// assert_eq!((one.of(NodeId(2)), one.of(NodeId(3))), (17, 0));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(from = "BTreeMap<NodeId, u64>", into = "BTreeMap<NodeId, u64>")]
pub struct Knowledge {
    /// Counts above 0.
    counts: BTreeMap<NodeId, u64>,
}

impl Knowledge {
    /// The knowledge of an empty copy.
    #[must_use]
    pub const fn new() -> Self {
        Self { counts: BTreeMap::new() }
    }

    /// The count of a node.
    #[must_use]
    pub fn of(&self, node: NodeId) -> u64 {
        self.counts.get(&node).copied().unwrap_or(0)
    }

    /// The nodes with a count above 0, and their counts, by rising node.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (NodeId, u64)> + '_ {
        self.counts.iter().map(|(&node, &count)| (node, count))
    }

    /// Whether whoever knows this has all of the other.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.iter().all(|(node, count)| self.of(node) >= count)
    }

    /// The counts that are above the other's.
    #[must_use]
    pub fn beyond(&self, other: &Self) -> Self {
        self.iter().filter(|&(node, count)| count > other.of(node)).collect()
    }

    /// Takes the larger count of each node.
    pub fn raise(&mut self, other: &Self) {
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

/// Counts of 0 say nothing, and of two of one node the larger one counts.
impl FromIterator<(NodeId, u64)> for Knowledge {
    fn from_iter<I: IntoIterator<Item = (NodeId, u64)>>(counts: I) -> Self {
        let mut knowledge = Self::new();
        for (node, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            let ours = knowledge.counts.entry(node).or_default();
            *ours = count.max(*ours);
        }
        knowledge
    }
}

/// What others sent or a disk kept: counts of 0 are left out, as everywhere.
impl From<BTreeMap<NodeId, u64>> for Knowledge {
    fn from(mut counts: BTreeMap<NodeId, u64>) -> Self {
        counts.retain(|_, count| *count > 0);
        Self { counts }
    }
}

impl From<Knowledge> for BTreeMap<NodeId, u64> {
    fn from(knowledge: Knowledge) -> Self {
        knowledge.counts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn knowledge() -> impl Strategy<Value = Knowledge> {
        prop::collection::vec((0_u64..5, 0_u64..4), 0..6).prop_map(|counts| {
            counts.into_iter().map(|(node, count)| (NodeId(node), count)).collect()
        })
    }

    fn raised(one: &Knowledge, other: &Knowledge) -> Knowledge {
        let mut raised = one.clone();
        raised.raise(other);
        raised
    }

    proptest! {
        /// Raising is a join: commutative, associative, idempotent; covering is its order.
        #[test]
        fn raising_is_the_join_of_covering(a in knowledge(), b in knowledge(), c in knowledge()) {
            prop_assert_eq!(raised(&a, &b), raised(&b, &a));
            prop_assert_eq!(raised(&raised(&a, &b), &c), raised(&a, &raised(&b, &c)));
            prop_assert_eq!(&raised(&a, &a), &a);
            prop_assert_eq!(a.covers(&b), raised(&a, &b) == a);
            prop_assert_eq!(a.beyond(&b) == Knowledge::new(), b.covers(&a));
            // Whoever is told what is beyond knows all.
            prop_assert_eq!(raised(&b, &a.beyond(&b)), raised(&a, &b));
        }
    }
}
