//! Merging bits that another replica has and this one lacks, found by comparing them bit by bit.
//!
//! Replicas with equal versions have equal bits, unless memory rotted or a merge went wrong; the version
//! exchange never finds that. So replicas are compared as bit arrays occasionally
//! ([`repair`](crate::repair)), and missing bits are set. What a missing bit means depends on the coverage
//! of both:
//!
//! ```text
//! ours explains theirs      A bit that only they have was lost here. The version has named it all the
//!                           while, and neither the version nor the log changes: partners are sent what
//!                           they would have been sent. Comparing finds who else has lost it.
//! it does not               The bit may be of an insert that is under way here. Until that arrives,
//!                           every change is logged, as beside a whole filter that came in part.
//! ```
//!
//! Lost bits are not logged as a change of this node's own, as an absorbed filter is: such a change would
//! not reach every replica, because one that has all of the bits does not log it, and passes on only its
//! count.

use umbel_filter::{AnyFilter, MergeError};

use super::{Replica, ReplicaOptions};
use crate::hypercube::coverage::Coverage;
use crate::hypercube::delta::DeltaError;
use crate::limits::VERSION_NODES_MAX;
use umbel_engine::NodeId;

/// Why bits of another replica cannot be merged. Nothing was changed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ComparedError {
    /// The filters have different shapes. Compare replicas of the same generation.
    #[error(transparent)]
    Merge(#[from] MergeError),
    /// The coverage has more nodes than a cluster can have: a bug of the peer, or an attack.
    #[error("its bits may be of {theirs} nodes, expected at most {VERSION_NODES_MAX}")]
    TooManyNodes {
        /// Number of nodes.
        theirs: usize,
    },
}

impl Replica {
    /// The coverage of this replica's bits, including pending inserts.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        let mut coverage = self.coverage.clone();
        coverage.complete.add(self.options.node, self.pending_count);
        coverage
    }

    /// Whether there may be bits here that the version does not cover. An item with such bits is reported
    /// present, although its insert may never reach any other node.
    #[must_use]
    pub fn has_partial_bits(&self) -> bool {
        self.coverage.has_partial()
    }

    /// Checks the coverage that a partner reports for its replica of this generation.
    ///
    /// # Errors
    /// If it has more of this node's inserts than can have reached another node, or too many nodes.
    pub fn check_coverage(&self, from: NodeId, claim: &Coverage) -> Result<(), DeltaError> {
        let ReplicaOptions { filter, generation, node, .. } = self.options;
        self.check(from, filter, generation, &claim.complete)?;
        let node_count = claim.partial.iter().len();
        if node_count > VERSION_NODES_MAX {
            return Err(DeltaError::TooManyNodes { from, theirs: node_count });
        }
        // A previous comparison may have sent bits of a pending insert.
        let (theirs, ours) = (claim.partial.of(node), self.inserted());
        if theirs > ours {
            return Err(DeltaError::CoverageAhead { from, filter, node, theirs, ours });
        }
        Ok(())
    }

    /// ORs in bits of a replica that had this coverage and, for a windowed filter, this newest time slice.
    /// Returns the number of newly set positions. If this replica's coverage does not explain theirs, the
    /// changes behind the bits will still arrive, and are then logged.
    ///
    /// # Errors
    /// If the shapes differ, or the coverage has too many nodes.
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
            // A whole filter that arrives next may contain no other new bits.
            self.has_unlogged_bits = true;
        }
        Ok(new_bit_count)
    }
}
