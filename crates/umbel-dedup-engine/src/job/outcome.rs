//! How a job ends.

use super::super::entry::WorkerId;
use super::super::error::ExchangeError;
use super::super::plan::Plan;
use super::super::report::ExchangeReport;
use super::messages::{Counts, Written};
use thiserror::Error;

/// What a finished job came to.
#[derive(Clone, PartialEq, Debug)]
pub struct JobResult {
    /// Plan of the exchange.
    pub plan: Plan,
    /// What all workers sent and found.
    pub report: ExchangeReport,
    /// What each worker read.
    pub counts: Vec<Counts>,
    /// How much of each worker's files was repeated: [`Tallied::weights`](super::Tallied::weights).
    pub weights: Vec<Vec<u8>>,
    /// What each worker wrote.
    pub written: Vec<Written>,
    /// Attempts at the exchange; 1 if nothing broke.
    pub attempts: u32,
}

/// Why a job has no result. Nothing stands under its name.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum JobFailure {
    /// A worker cannot go on. Mend what it names; if the job is resumable, take it up again.
    #[error("worker {}: {cause}", worker.0)]
    Worker {
        /// Who.
        worker: WorkerId,
        /// Names file, record or path.
        cause: String,
        /// Whether the job can be taken up again.
        resumable: bool,
    },
    /// A worker stayed away. Start it again and take the job up, or start another job without its input.
    #[error("worker {} is away; missing from it: {missing}", worker.0)]
    Away {
        /// Who.
        worker: WorkerId,
        /// What the job still needs of it.
        missing: &'static str,
    },
    /// More bad records than may be left out. Mend them, or allow more.
    #[error("{bad} bad records, at most {max} may be left out ({by_worker})")]
    TooManyBad {
        /// Bad records of all workers.
        bad: u64,
        /// Allowed.
        max: u64,
        /// Each worker's number, for people.
        by_worker: String,
    },
    /// No worker has a record. Check the patterns.
    #[error("nothing to do: no worker has a record")]
    NothingToDo,
    /// The exchange was begun again and again. Mend the connection that is named and take the job up.
    #[error(
        "{attempts} attempts at the exchange in a row settled nothing; the last one ended because {cause}"
    )]
    Fruitless {
        /// Attempts without a settled cell.
        attempts: u32,
        /// What ended the last one.
        cause: String,
    },
    /// What workers said cannot be. All must run the same release on the same job.
    #[error("worker {}: {what}", worker.0)]
    Nonsense {
        /// Who.
        worker: WorkerId,
        /// What it said.
        what: &'static str,
    },
    /// Workers would drop what they do not all know. Give all the same files; order does not matter.
    #[error(
        "worker {}: its references are not those of worker 0: give all workers the same index files", worker.0
    )]
    References {
        /// Who.
        worker: WorkerId,
    },
    /// A limit of the exchange. Ask for less.
    #[error(transparent)]
    Dedup(#[from] ExchangeError),
    /// The user ended it.
    #[error("cancelled")]
    Cancelled,
    /// It had failed before the coordinator was started again.
    #[error("{cause}")]
    Known {
        /// What was said then.
        cause: String,
    },
}

impl JobFailure {
    /// Whether the job can be taken up again from what is durable.
    #[must_use]
    pub const fn is_resumable(&self) -> bool {
        match self {
            Self::Worker { resumable, .. } => *resumable,
            Self::Away { .. } | Self::Fruitless { .. } => true,
            _ => false,
        }
    }
}
