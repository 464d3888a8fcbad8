//! Who receives the progress of a job.

use umbel_dedup_engine::WorkerId;
use umbel_dedup_engine::job::JobEvent;

/// How far a worker is with the exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobProgress {
    /// The attempt, from 1.
    pub attempt: u32,
    /// Cells that are decided at this worker.
    pub decided: u32,
    /// Cells of the job.
    pub cells: u32,
}

/// Receives the progress of a job, for people. Calls must be short.
pub trait JobObserver: Send + Sync + 'static {
    /// What the coordinator reports; only in the process of worker 0.
    fn event(&self, _event: &JobEvent) {}

    /// Which workers the coordinator misses, whenever that changes; only in the process of worker 0.
    fn away(&self, _workers: &[WorkerId]) {}

    /// How far this worker is with the exchange.
    fn progress(&self, _progress: JobProgress) {}
}

/// Nobody wants to know.
impl JobObserver for () {}
