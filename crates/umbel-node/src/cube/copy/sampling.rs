//! Samples of the items inserted at each node, as they are sent with deltas.

use umbel_engine::Generation;
use umbel_replicated_engine::hypercube::{DistinctEstimates, NodeSample, TakeError, VersionVector};

use super::Copy;

/// Most bytes of samples in one answer: what all nodes of a large cluster gain in a sweep.
const SAMPLE_BYTES_MAX: usize = 256 << 10;

impl Copy {
    /// The number of each node's inserts that the samples cover; sent in a question.
    pub(in crate::cube) fn sample_counts(&self) -> VersionVector {
        self.samples().counts()
    }

    /// What the samples have gained compared with a partner's; sent in an answer.
    pub(in crate::cube) fn samples_since(&self, counts: &VersionVector) -> Vec<NodeSample> {
        self.samples().newer_than(counts, SAMPLE_BYTES_MAX)
    }

    /// Merges the samples of a delta of this generation.
    pub(in crate::cube) fn take_samples(
        &self,
        generation: Generation,
        samples: &[NodeSample],
    ) -> Result<(), TakeError> {
        // The lock keeps the copy from being cleared in between.
        let state = self.read();
        if state.generation() == generation {
            let mut table = self.samples();
            for sample in samples {
                table.take(sample)?;
            }
        }
        Ok(())
    }

    /// Estimates of how many distinct items were inserted at each node.
    pub fn estimates(&self) -> DistinctEstimates {
        self.samples().estimates()
    }
}
