//! Bits that another copy has and this one lacks, found by comparing the two bit by bit.
//!
//! Copies of equal knowledge have equal bits, unless memory rotted or a merge went wrong; nothing that
//! goes by knowledge ever finds that. So copies are compared as arrays now and then
//! ([`repair`](crate::repair)), and what one lacks is set. What that means, their claims tell:
//!
//! ```text
//! ours explains theirs      a bit that only they have was lost here. Knowledge has told of it all the
//!                           while, and neither it nor the log changes: whoever asks next is told what
//!                           it would have been told. Who else lost it is found by comparing, too.
//! it does not               it may be news that is under way: its insert comes still, and until then
//!                           all that comes is told on, as beside a whole filter that came in part
//! ```
//!
//! To tell lost bits again as a change of this node's own, as those of an absorbed filter are, would not
//! reach everybody: a copy that has them all takes such a change for known, and hands on its number alone.

use umbel_filter::{AnyFilter, MergeError};

use super::{Replica, ReplicaOptions};
use crate::hypercube::delta::DeltaError;
use crate::hypercube::knowledge::Knowledge;
use crate::ids::NodeId;
use crate::limits::KNOWLEDGE_NODES_MAX;

/// What a copy's bits are at one moment, said in inserts.
///
/// ```
/// use umbel_engine::NodeId;
/// use umbel_engine::hypercube::{CopyClaim, Knowledge};
///
/// let claim = |knows: u64, may_have: u64| CopyClaim {
///     knows: [(NodeId(1), knows)].into_iter().collect(),
///     may_have: [(NodeId(1), may_have)].into_iter().collect(),
/// };
/// assert!(claim(40, 0).explains(&claim(40, 0)));
/// assert!(!claim(40, 0).explains(&claim(41, 0)));
/// // Bits that no knowledge covers are explained by nobody who knows less than they may be.
/// assert!(!claim(40, 0).explains(&claim(40, 41)));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CopyClaim {
    /// Of how many changes of each node's own inserts all bits are there.
    pub knows: Knowledge,
    /// Within which counts all further bits lie.
    pub may_have: Knowledge,
}

impl CopyClaim {
    /// Whether a copy that claims this has every bit of one that claims the other, or has lost it.
    #[must_use]
    pub fn explains(&self, other: &Self) -> bool {
        self.knows.covers(&other.knows) && self.knows.covers(&other.may_have)
    }
}

/// Bits of another copy cannot be taken. Nothing was changed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ComparedError {
    /// The filters have different shapes. Compare copies of one generation.
    #[error(transparent)]
    Merge(#[from] MergeError),
    /// More nodes than there can have been may have made these bits. A bug of the peer, or an attack.
    #[error("its bits may be of {theirs} nodes, expected at most {KNOWLEDGE_NODES_MAX}")]
    TooManyNodes {
        /// How many.
        theirs: usize,
    },
}

impl Replica {
    /// What this copy's bits are now.
    #[must_use]
    pub fn claim(&self) -> CopyClaim {
        let mut knows = self.knows.clone();
        knows.add(self.options.node, self.fresh_count);
        CopyClaim { knows, may_have: self.may_have.clone() }
    }

    /// Whether there may be bits here that no knowledge covers. An item whose bits these are is present,
    /// and its insert may never come to anybody else.
    #[must_use]
    pub fn has_uncovered_bits(&self) -> bool {
        self.may_have != Knowledge::new()
    }

    /// Checks what a partner claims of its copy of this generation.
    ///
    /// # Errors
    /// If it claims to have more of this node's inserts than were told, or those of too many nodes.
    pub fn check_claim(&self, from: NodeId, claim: &CopyClaim) -> Result<(), DeltaError> {
        let ReplicaOptions { filter, generation, node, .. } = self.options;
        self.check(from, filter, generation, &claim.knows)?;
        let node_count = claim.may_have.iter().len();
        if node_count > KNOWLEDGE_NODES_MAX {
            return Err(DeltaError::TooManyNodes { from, theirs: node_count });
        }
        // What was compared before may have been an insert that no sweep has told of yet.
        let (theirs, ours) = (claim.may_have.of(node), self.inserted());
        if theirs > ours {
            return Err(DeltaError::KnowsTooMuch { from, filter, node, theirs, ours });
        }
        Ok(())
    }

    /// ORs bits in of a copy that claimed this then, and returns how many positions were newly set. Where
    /// this copy's claim does not explain theirs, the inserts that these are come still, and are told on
    /// then.
    ///
    /// # Errors
    /// If the shapes differ, or the claim is one that no copy makes.
    pub fn merge_compared(
        &mut self,
        bits: &AnyFilter,
        theirs: &CopyClaim,
    ) -> Result<u64, ComparedError> {
        let mut may_have = self.may_have.clone();
        may_have.raise(&theirs.knows);
        may_have.raise(&theirs.may_have);
        let node_count = may_have.iter().len();
        if node_count > KNOWLEDGE_NODES_MAX {
            return Err(ComparedError::TooManyNodes { theirs: node_count });
        }
        let new_bit_count = self.filter.merge(bits)?;
        if new_bit_count > 0 && !self.knows.covers(&may_have) {
            self.may_have = may_have;
            // A whole filter that comes next may bring nothing else.
            self.has_untold = true;
        }
        Ok(new_bit_count)
    }
}
