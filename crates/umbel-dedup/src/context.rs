//! The state of a running job that all phases use.

use super::best::Ranker;
use super::chunks::Chunk;
use super::inputs::Source;
use super::memory::resident_bytes;
use super::observer::Observer;
use super::references::References;
use super::scope::ScopedHasher;
use super::spec::JobSpec;
use crate::error::{Context, Result};
use umbel_dedup_engine::{Exactness, JobShape, WorkerId};
use umbel_filter::CellCount;

/// A running job.
pub(crate) struct Job<'a> {
    /// The specification.
    pub(crate) spec: &'a JobSpec,
    /// Input files in order.
    pub(crate) sources: &'a [Source],
    /// Their parts in order.
    pub(crate) chunks: &'a [Chunk],
    /// Receives progress, and may cancel the job.
    pub(crate) observer: &'a dyn Observer,
    /// The references: hashes that earlier jobs have kept.
    pub(crate) references: &'a References,
    /// Workers and cells.
    pub(crate) shape: JobShape,
    /// Number of the job, which every frame's checksum covers.
    pub(crate) id: u64,
    /// Number of threads.
    pub(crate) threads: usize,
}

impl Job<'_> {
    /// The cells of all owners.
    pub(crate) fn cells(&self) -> CellCount {
        self.shape.cells()
    }

    /// The hash function for items of a source.
    pub(crate) fn hasher_of(&self, source: &Source) -> ScopedHasher {
        self.spec.scope.hasher(self.spec.seed, source, self.spec.rank)
    }

    /// All workers.
    pub(crate) fn worker_ids(&self) -> impl Iterator<Item = WorkerId> + use<> {
        let workers = u16::try_from(self.shape.workers).expect("at most 1,024 workers");
        (0..workers).map(WorkerId)
    }

    /// Stored bytes of the input.
    pub(crate) fn input_bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.bytes).sum()
    }

    /// Bytes that the entries of the job may take in memory. At exactness `bytes` the items to compare may later take as much,
    /// which is counted in addition, because freed memory is not always returned to the system.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let beside_pairs = self.spec.memory_bytes.saturating_sub(self.spec.pairs_bytes());
        let bytes = resident_bytes(beside_pairs, self.threads);
        if self.shape.exactness == Exactness::Bytes { bytes / 2 } else { bytes }
    }

    /// The ranker for the records of a source, if the job keeps the best.
    pub(crate) fn ranker(&self, source: &Source) -> Result<Option<Ranker>> {
        let Some(best) = &self.spec.best else { return Ok(None) };
        Ranker::new(best, source).with_context(|| source.name.clone())
    }

    /// Whether a repeat may be dropped while it is read: not if its bytes must be compared, or if it matters whether it
    /// repeats the input or a reference.
    pub(crate) fn drops_early(&self) -> bool {
        self.shape.exactness != Exactness::Bytes && self.references.shape().is_none()
    }
}
