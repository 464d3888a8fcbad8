//! Receives the progress of a job.

use umbel_dedup_engine::WorkerId;
use umbel_dedup_engine::job::JobEvent;

/// A worker's progress in the exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobProgress {
    /// The attempt, from 1.
    pub attempt: u32,
    /// Cells that are decided at this worker.
    pub decided: u32,
    /// All cells of the job.
    pub cells: u32,
}

/// Receives the progress of a job, for display. Its methods must return quickly.
pub trait JobObserver: Send + Sync + 'static {
    /// An event of the coordinator; only in the process of worker 0.
    fn event(&self, _event: &JobEvent) {}

    /// The workers that are absent, whenever that changes; only in the process of worker 0.
    fn away(&self, _workers: &[WorkerId]) {}

    /// A process was refused that claims to be a worker of the job. Its own messages say why, too.
    fn refused(&self, _cause: &str) {}

    /// Why this worker has no connection to the coordinator, once it has tried to have one; `None` when it has one
    /// again. Not at worker 0.
    fn coordinator_away(&self, _cause: Option<&str>) {}

    /// This worker's progress in the exchange.
    fn progress(&self, _progress: JobProgress) {}
}

/// Ignores all progress.
impl JobObserver for () {}
