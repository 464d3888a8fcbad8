//! A job in the ledger: what was ordered, its state, and how it ended.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::reply::MetaError;
use crate::ids::{JobId, NodeId};

/// A secret of 32 random bytes, known to the job's workers and to no one outside the cluster's nodes. Its
/// `Debug` omits the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSecret([u8; Self::BYTES]);

impl JobSecret {
    /// Number of random bytes.
    pub const BYTES: usize = 32;

    /// A secret of these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for JobSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobSecret(..)")
    }
}

/// A request to run a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobOrder {
    /// Drawn once by the caller, so that a retried request does not submit the job twice.
    pub nonce: u64,
    /// Seed of the job's hash function, equal for all workers.
    pub seed: u64,
    /// The secret by which its workers authenticate to each other.
    pub secret: JobSecret,
    /// The nodes that work on it, sorted; the first one coordinates. The order of inputs follows the order
    /// of workers.
    pub workers: Vec<NodeId>,
    /// The job's specification, as an encoded message that only its program reads; at most
    /// [`JOB_SPEC_BYTES_MAX`](crate::limits::JOB_SPEC_BYTES_MAX).
    pub spec: Vec<u8>,
    /// When it was submitted, in milliseconds since 1970; informational only.
    pub submitted_ms: u64,
}

/// A job in the ledger.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobRecord {
    /// The request.
    pub order: JobOrder,
    /// Number of the current run, from 1. Reports of earlier runs are ignored.
    pub run: u32,
    /// Its state.
    pub state: JobState,
}

impl JobRecord {
    /// The node that coordinates it.
    #[must_use]
    pub fn coordinator(&self) -> Option<NodeId> {
        self.order.workers.first().copied()
    }

    /// The refusal of what the state does not allow.
    pub(super) fn wrong(&self, job: JobId) -> MetaError {
        let state = match &self.state {
            JobState::Failed { cause, .. } => format!("failed for good: {cause}"),
            state => state.to_string(),
        };
        MetaError::JobState { job, state }
    }
}

/// The state of a job.
///
/// ```
/// use umbel_engine::meta::JobState;
/// let failed = JobState::Failed { cause: "disk full".into(), resumable: true };
/// assert_eq!(failed.to_string(), "failed");
/// assert!(!failed.is_active() && JobState::Cancelling.is_active());
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum JobState {
    /// Its workers are running, or will once their nodes are reachable.
    Running,
    /// Cancellation was requested; the coordinator has not responded yet.
    Cancelling,
    /// It has succeeded: its outputs have their final names.
    Done {
        /// Result figures, in the format of the program that ran it.
        summary: Vec<u8>,
    },
    /// It has ended without a result.
    Failed {
        /// The cause, as a message for people.
        cause: String,
        /// Whether it can be resumed.
        resumable: bool,
    },
    /// It was cancelled.
    Cancelled,
}

impl JobState {
    /// Whether its workers have something to do.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        matches!(self, Self::Running | Self::Cancelling)
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Cancelling => "being cancelled",
            Self::Done { .. } => "done",
            Self::Failed { .. } => "failed",
            Self::Cancelled => "cancelled",
        })
    }
}

/// How a run of a job ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum JobEnd {
    /// All workers have committed.
    Done {
        /// Result figures; dropped if longer than
        /// [`JOB_SUMMARY_BYTES_MAX`](crate::limits::JOB_SUMMARY_BYTES_MAX).
        summary: Vec<u8>,
    },
    /// It ended without a result.
    Failed {
        /// The cause, for people; cut to [`JOB_CAUSE_BYTES_MAX`](crate::limits::JOB_CAUSE_BYTES_MAX).
        cause: String,
        /// Whether the job can be resumed.
        resumable: bool,
    },
    /// It was cancelled.
    Cancelled,
}
