//! Requests of clients about the jobs of the ledger.

use tokio::time::Instant;
use umbel_engine::meta::{JobOrder, JobRecord, JobSecret, MetaCommand, MetaError, MetaReply};
use umbel_engine::{JobId, NodeId};
use umbel_ports::Purpose;

use umbel_node::calls::JobStanding;
use umbel_node::failure::CallFailure;
use umbel_node::leader_calls::{LeaderCalls, unexpected};

use super::releases::Releases;
use crate::Result;

/// A job that a client submits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewJob {
    /// A random number: a submission that is repeated is entered once.
    pub nonce: u64,
    /// The specification, which workers decode.
    pub spec: Vec<u8>,
    /// In any order; empty for all live nodes.
    pub workers: Vec<NodeId>,
    /// Drawn at random if it is not given.
    pub seed: Option<u64>,
}

/// What clients ask about the jobs of the ledger.
#[derive(Clone, Copy)]
pub struct Jobs<'a> {
    pub(super) calls: &'a LeaderCalls,
}

impl Jobs<'_> {
    /// Enters a job into the ledger.
    pub async fn submit(self, new: NewJob, deadline: Instant) -> Result<JobId> {
        let local = self.calls.local()?;
        let workshops = local.jobs().workshops().ok_or_else(|| CallFailure::Invalid {
            what:
                "this node takes no part in jobs: start it with --job-roots, the folders that jobs \
                   may read and write"
                    .to_owned(),
        })?;
        let since = workshops.check(&new.spec, new.seed.is_some());
        let since = since.map_err(|what| CallFailure::Invalid { what })?;
        self.calls.meta_refresh(deadline).await?;
        Releases { calls: self.calls }.check_version(since, deadline).await?;
        let NewJob { nonce, spec, mut workers, seed } = new;
        if workers.is_empty() {
            workers = self.calls.read_meta(|state| {
                let live = state.nodes().filter(|(_, record)| record.is_live());
                live.map(|(node, _)| node).collect()
            })?;
        }
        workers.sort_unstable();
        workers.dedup();
        let seed = seed.unwrap_or_else(|| local.seed().number(Purpose::Job));
        let submitted_ms = local.seed().wall_ms();
        let mut secret = [0; JobSecret::BYTES];
        local.seed().fill(Purpose::JobSecret, &mut secret);
        let secret = JobSecret::new(secret);
        let order = JobOrder { nonce, seed, secret, workers, spec, submitted_ms };
        match self.calls.meta_propose(MetaCommand::SubmitJob(order), deadline).await? {
            MetaReply::Job(job) => Ok(job),
            other => Err(unexpected(&other)),
        }
    }

    /// The jobs of the ledger, in ascending order of their numbers.
    pub async fn list(self, deadline: Instant) -> Result<Vec<(JobId, JobRecord)>> {
        self.calls.meta_refresh(deadline).await?;
        self.calls
            .read_meta(|state| state.jobs().map(|(job, record)| (job, record.clone())).collect())
    }

    /// A job, and its progress if its coordinator answers.
    pub async fn describe(
        self,
        job: JobId,
        deadline: Instant,
    ) -> Result<(JobRecord, Option<JobStanding>)> {
        self.calls.meta_refresh(deadline).await?;
        let record = self.calls.read_meta(|state| state.job(job).cloned())?;
        let record = record.ok_or(MetaError::UnknownJob { job })?;
        let progress = match record.coordinator() {
            Some(node) if record.state.is_active() => self.progress(job, node, deadline).await,
            _ => None,
        };
        Ok((record, progress))
    }

    /// The progress of an active job, as one of its nodes reports it; None if that does not answer.
    pub async fn progress(
        self,
        job: JobId,
        node: NodeId,
        deadline: Instant,
    ) -> Option<JobStanding> {
        let timeout = deadline.saturating_duration_since(Instant::now());
        self.calls.local().ok()?.job_standing(job, node, timeout).await
    }

    /// Requests that a job ends.
    pub async fn cancel(self, job: JobId, deadline: Instant) -> Result<()> {
        self.calls.meta_propose(MetaCommand::CancelJob { job }, deadline).await.map(drop)
    }

    /// Resumes a failed job.
    pub async fn resume(self, job: JobId, deadline: Instant) -> Result<()> {
        self.calls.meta_propose(MetaCommand::ResumeJob { job }, deadline).await.map(drop)
    }
}
