//! Samples of what was inserted where, as they travel with deltas.

use umbel_engine::Generation;
use umbel_engine::hypercube::{DistinctEstimates, NodeSample, TakeError, VersionVector};

use super::Copy;

/// Bytes of samples in one answer: what all nodes of a large cluster gain in a sweep.
const SAMPLE_BYTES_MAX: usize = 256 << 10;

impl Copy {
    /// How many inserts of each node the samples have seen: part of a question.
    pub(in crate::cube) fn sample_counts(&self) -> VersionVector {
        self.samples().counts()
    }

    /// What samples have gained since a partner's: part of an answer.
    pub(in crate::cube) fn samples_since(&self, counts: &VersionVector) -> Vec<NodeSample> {
        self.samples().newer_than(counts, SAMPLE_BYTES_MAX)
    }

    /// Takes samples of a delta of this generation.
    pub(in crate::cube) fn take_samples(
        &self,
        generation: Generation,
        samples: &[NodeSample],
    ) -> Result<(), TakeError> {
        // Not emptied in between.
        let state = self.read();
        if state.generation() == generation {
            let mut table = self.samples();
            for sample in samples {
                table.take(sample)?;
            }
        }
        Ok(())
    }

    /// What this node knows of how many items were inserted where.
    pub(crate) fn estimates(&self) -> DistinctEstimates {
        self.samples().estimates()
    }
}
