//! Bits that another replica has and this one lacks, found by comparing the two bit by bit.
//!
//! Replicas of equal versions have equal bits, unless memory rotted or a merge went wrong; nothing that
//! goes by versions ever finds that. So replicas are compared as arrays now and then
//! ([`repair`](crate::repair)), and what one lacks is set. What that means depends on their coverage:
//!
//! ```text
//! ours explains theirs      A bit that only they have was lost here. The version has named it all the
//!                           while, and neither the version nor the log changes: partners are sent what
//!                           they would have been sent. Comparing finds who else has lost it.
//! it does not               The bit may be of an insert that is under way here. Until that arrives,
//!                           every change is logged, as beside a whole filter that came in part.
//! ```
//!
//! To log lost bits as a change of this node's own, as those of an absorbed filter are, would not
//! reach all: a replica that has all of the bits does not log such a change, and passes on its number alone.

use umbel_filter::{AnyFilter, MergeError};

use super::{Replica, ReplicaOptions};
use crate::hypercube::coverage::Coverage;
use crate::hypercube::delta::DeltaError;
use crate::ids::NodeId;
use crate::limits::VERSION_NODES_MAX;

/// Bits of another replica cannot be taken. Nothing was changed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ComparedError {
    /// The filters have different shapes. Compare replicas of one generation.
    #[error(transparent)]
    Merge(#[from] MergeError),
    /// More nodes than there can have been may have made these bits. A bug of the peer, or an attack.
    #[error("its bits may be of {theirs} nodes, expected at most {VERSION_NODES_MAX}")]
    TooManyNodes {
        /// How many.
        theirs: usize,
    },
}

impl Replica {
    /// What this replica's bits are now, with those of pending inserts.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        let mut coverage = self.coverage.clone();
        coverage.complete.add(self.options.node, self.pending_count);
        coverage
    }

    /// Whether there may be bits here that the version does not name. An item whose bits these are is present,
    /// and its insert may never come to anybody else.
    #[must_use]
    pub fn has_partial_bits(&self) -> bool {
        self.coverage.has_partial()
    }

    /// Checks the coverage that a partner claims of its replica of this generation.
    ///
    /// # Errors
    /// If it claims more of this node's inserts than were sent to anybody, or those of too many nodes.
    pub fn check_coverage(&self, from: NodeId, claim: &Coverage) -> Result<(), DeltaError> {
        let ReplicaOptions { filter, generation, node, .. } = self.options;
        self.check(from, filter, generation, &claim.complete)?;
        let node_count = claim.partial.iter().len();
        if node_count > VERSION_NODES_MAX {
            return Err(DeltaError::TooManyNodes { from, theirs: node_count });
        }
        // What was compared before may have been a pending insert.
        let (theirs, ours) = (claim.partial.of(node), self.inserted());
        if theirs > ours {
            return Err(DeltaError::KnowsTooMuch { from, filter, node, theirs, ours });
        }
        Ok(())
    }

    /// ORs in bits of a replica that had this coverage then, and of a ring this newest slice of time, and returns how
    /// many positions were newly set. Where this replica's coverage does not explain theirs, the changes that the bits are of still arrive, and are
    /// logged then.
    ///
    /// # Errors
    /// If the shapes differ, or the coverage is one that no replica has.
    pub fn merge_compared(
        &mut self,
        bits: &AnyFilter,
        theirs: &Coverage,
        newest_slice: Option<u64>,
    ) -> Result<u64, ComparedError> {
        let mut partial = self.coverage.partial.clone();
        partial.merge(&theirs.complete);
        partial.merge(&theirs.partial);
        let node_count = partial.iter().len();
        if node_count > VERSION_NODES_MAX {
            return Err(ComparedError::TooManyNodes { theirs: node_count });
        }
        let new_bit_count = self.merge_filter(bits, newest_slice)?;
        if new_bit_count > 0 && !self.coverage.complete.dominates(&partial) {
            self.coverage.partial = partial;
            // A whole filter that comes next may bring nothing else.
            self.has_unlogged_bits = true;
        }
        Ok(new_bit_count)
    }
}
