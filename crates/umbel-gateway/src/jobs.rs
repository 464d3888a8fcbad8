//! The gRPC service `Jobs`.

use std::sync::Arc;

use tonic::Request;
use umbel_coordinator::{Coordinator, NewJob};
use umbel_engine::meta::{JobRecord, JobState};
use umbel_engine::{JobId, NodeId};
use umbel_node::calls::JobStanding;
use umbel_node::limits::CLIENT_MESSAGE_BYTES_MAX;
use umbel_proto::v1;
use umbel_proto::v1::jobs_server::{self, JobsServer};

use super::audit;
use super::deadlines::Deadlines;
use super::describe::numbers;
use super::service_methods::service_methods;
use crate::errors::Result;

/// Serves the requests about jobs.
pub(super) struct JobsService {
    coordinator: Arc<Coordinator>,
    deadlines: Deadlines,
}

impl JobsService {
    pub(super) fn new(coordinator: Arc<Coordinator>, deadlines: Deadlines) -> Self {
        Self { coordinator, deadlines }
    }

    /// The service for a server's router, with its message limits.
    pub(super) fn into_server(self) -> JobsServer<Self> {
        JobsServer::new(self)
            .max_decoding_message_size(CLIENT_MESSAGE_BYTES_MAX)
            .max_encoding_message_size(CLIENT_MESSAGE_BYTES_MAX)
    }
}

fn job_row(job: JobId, record: &JobRecord) -> v1::Job {
    let (cause, resumable) = match &record.state {
        JobState::Failed { cause, resumable } => (cause.clone(), *resumable),
        _ => (String::new(), false),
    };
    v1::Job {
        job: job.0,
        run: record.run,
        state: record.state.to_string(),
        cause,
        resumable,
        workers: numbers(&record.order.workers),
        submitted_ms: record.order.submitted_ms,
    }
}

fn progress_row(progress: JobStanding) -> v1::JobProgress {
    let JobStanding { phase, attempt, trouble, away, .. } = progress;
    v1::JobProgress { phase, attempt, trouble, away: numbers(&away) }
}

/// The methods of the service, which its trait boxes.
impl JobsService {
    async fn submit_job(
        &self,
        request: Request<v1::SubmitJobRequest>,
    ) -> Result<v1::SubmitJobResponse> {
        audit::note(&request, |asked| {
            format!("workers={} spec_bytes={}", audit::list(&asked.workers), asked.spec.len())
        });
        let deadline = self.deadlines.of_meta(&request);
        let v1::SubmitJobRequest { nonce, spec, workers, seed } = request.into_inner();
        let workers = workers.into_iter().map(NodeId).collect();
        let new = NewJob { nonce, spec: spec.into(), workers, seed };
        let job = self.coordinator.jobs().submit(new, deadline).await?;
        Ok(v1::SubmitJobResponse { job: job.0 })
    }

    async fn list_jobs(
        &self,
        request: Request<v1::ListJobsRequest>,
    ) -> Result<v1::ListJobsResponse> {
        let deadline = self.deadlines.of_meta(&request);
        let jobs = self.coordinator.jobs().list(deadline).await?;
        let jobs = jobs.iter().map(|(job, record)| job_row(*job, record)).collect();
        Ok(v1::ListJobsResponse { jobs })
    }

    async fn describe_job(
        &self,
        request: Request<v1::DescribeJobRequest>,
    ) -> Result<v1::DescribeJobResponse> {
        let deadline = self.deadlines.of_meta(&request);
        let job = JobId(request.into_inner().job);
        let (record, progress) = self.coordinator.jobs().describe(job, deadline).await?;
        let row = job_row(job, &record);
        let summary = match record.state {
            JobState::Done { summary } => summary,
            _ => Vec::new(),
        };
        Ok(v1::DescribeJobResponse {
            job: Some(row),
            spec: record.order.spec.into(),
            summary: summary.into(),
            progress: progress.map(progress_row),
        })
    }

    async fn cancel_job(
        &self,
        request: Request<v1::CancelJobRequest>,
    ) -> Result<v1::CancelJobResponse> {
        audit::note(&request, |asked| format!("job={}", asked.job));
        let deadline = self.deadlines.of_meta(&request);
        self.coordinator.jobs().cancel(JobId(request.into_inner().job), deadline).await?;
        Ok(v1::CancelJobResponse {})
    }

    async fn resume_job(
        &self,
        request: Request<v1::ResumeJobRequest>,
    ) -> Result<v1::ResumeJobResponse> {
        audit::note(&request, |asked| format!("job={}", asked.job));
        let deadline = self.deadlines.of_meta(&request);
        self.coordinator.jobs().resume(JobId(request.into_inner().job), deadline).await?;
        Ok(v1::ResumeJobResponse {})
    }
}

service_methods! { JobsService: jobs_server::Jobs => {
    submit_job(v1::SubmitJobRequest) -> v1::SubmitJobResponse;
    list_jobs(v1::ListJobsRequest) -> v1::ListJobsResponse;
    describe_job(v1::DescribeJobRequest) -> v1::DescribeJobResponse;
    cancel_job(v1::CancelJobRequest) -> v1::CancelJobResponse;
    resume_job(v1::ResumeJobRequest) -> v1::ResumeJobResponse;
} }
