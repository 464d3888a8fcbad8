//! Who is told how a job goes.

use umbel_dedup_engine::WorkerId;
use umbel_dedup_engine::job::JobEvent;

/// How far a worker is with the exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobProgress {
    /// The attempt, from 1.
    pub attempt: u32,
    /// Cells that are settled at this worker.
    pub settled: u32,
    /// Cells of the job.
    pub cells: u32,
}

/// Is told how a job goes, for people. Calls must be short.
pub trait JobObserver: Send + Sync + 'static {
    /// What the coordinator has to tell; only in the process of worker 0.
    fn event(&self, _event: &JobEvent) {}

    /// Which workers the coordinator misses, whenever that changes; only in the process of worker 0.
    fn away(&self, _workers: &[WorkerId]) {}

    /// How far this worker is with the exchange.
    fn progress(&self, _progress: JobProgress) {}
}

/// Nobody wants to know.
impl JobObserver for () {}
