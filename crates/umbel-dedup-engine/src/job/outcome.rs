//! The result of a job, or the reason why it has none.

use super::super::entry::WorkerId;
use super::super::error::ExchangeError;
use super::super::plan::Plan;
use super::super::report::ExchangeReport;
use super::messages::{Counts, Written};
use thiserror::Error;

/// The result of a finished job.
#[derive(Clone, PartialEq, Debug)]
pub struct JobResult {
    /// The plan of the exchange.
    pub plan: Plan,
    /// What all workers sent and found.
    pub report: ExchangeReport,
    /// What each worker read.
    pub counts: Vec<Counts>,
    /// How much of each worker's files was repeated: [`GroupCountResult::weights`](super::GroupCountResult::weights).
    pub weights: Vec<Vec<u8>>,
    /// What each worker wrote.
    pub written: Vec<Written>,
    /// Attempts at the exchange; 1 if nothing broke.
    pub attempts: u32,
}

/// Why a job has no result. No output has its name, unless the job had begun to commit; then it can be resumed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum JobFailure {
    /// A worker cannot continue. Fix what it names; if the job is resumable, resume it.
    #[error("worker {}: {cause}", worker.0)]
    Worker {
        /// The worker.
        worker: WorkerId,
        /// Names file, record or path.
        cause: String,
        /// Whether the job can be resumed.
        resumable: bool,
    },
    /// A worker was disconnected for too long. Start it again and resume the job, or start another job without its input.
    #[error("worker {} is away; missing from it: {missing}", worker.0)]
    Away {
        /// The worker.
        worker: WorkerId,
        /// What the job needs from it.
        missing: &'static str,
    },
    /// A worker came without what it had read. Put its job folder back and resume the job, or begin a new one.
    #[error("worker {} came without its job folder: put it back, or begin a new job", worker.0)]
    NoFolder {
        /// The worker.
        worker: WorkerId,
    },
    /// More bad records than may be skipped. Fix them, or allow more.
    #[error("{bad} bad records, at most {max} may be left out ({by_worker})")]
    TooManyBad {
        /// Bad records of all workers.
        bad: u64,
        /// Allowed bad records.
        max: u64,
        /// Each worker's number of bad records, for people.
        by_worker: String,
    },
    /// No worker has a record. Check the patterns.
    #[error("nothing to do: no worker has a record")]
    NothingToDo,
    /// Too many attempts without progress. Fix the connection that is named and resume the job.
    #[error(
        "{attempts} attempts at the exchange in a row decided nothing; the last one ended because {cause}"
    )]
    Fruitless {
        /// Attempts without progress.
        attempts: u32,
        /// What ended the last one.
        cause: String,
    },
    /// A message of a worker contradicts the job. Run the same release on all workers, with the same job.
    #[error("worker {}: {what}", worker.0)]
    Nonsense {
        /// The worker.
        worker: WorkerId,
        /// The contradiction.
        what: &'static str,
    },
    /// Workers have different references. Give all the same index files, in any order.
    #[error(
        "worker {}: its references are not those of worker 0: give all workers the same index files", worker.0
    )]
    References {
        /// The worker.
        worker: WorkerId,
    },
    /// A limit of the exchange. Request less.
    #[error(transparent)]
    Dedup(#[from] ExchangeError),
    /// The user cancelled the job.
    #[error("cancelled")]
    Cancelled,
    /// The job had failed before the coordinator was restarted.
    #[error("{cause}")]
    Known {
        /// The cause as it was recorded.
        cause: String,
    },
}

impl JobFailure {
    /// The same failure, as one after which the job can be resumed.
    pub(super) fn into_resumable(self) -> Self {
        let resumable = true;
        match self {
            Self::Worker { worker, cause, .. } => Self::Worker { worker, cause, resumable },
            Self::Nonsense { worker, what } => {
                Self::Worker { worker, cause: what.to_owned(), resumable }
            }
            other => other,
        }
    }

    /// Whether the job can be resumed from what is durable.
    #[must_use]
    pub const fn is_resumable(&self) -> bool {
        match self {
            Self::Worker { resumable, .. } => *resumable,
            Self::Away { .. } | Self::NoFolder { .. } | Self::Fruitless { .. } => true,
            _ => false,
        }
    }
}
