//! Jobs of a cluster.

use umbel_proto::v1::{
    CancelJobRequest, DescribeJobRequest, DescribeJobResponse, Job, ListJobsRequest,
    ResumeJobRequest, SubmitJobRequest,
};

use crate::caller::{CallPolicy, First, Repeat};
use crate::client::Client;
use crate::error::ClientError;

impl Client {
    /// Submits a job and returns its number; its workers start when they learn of it. The caller draws
    /// the nonce of the request once, so that a retry submits no second job.
    ///
    /// # Errors
    /// [`ClientError`]; calling again with the same nonce does no harm.
    pub async fn submit_job(&self, request: SubmitJobRequest) -> Result<u64, ClientError> {
        let policy = CallPolicy { target: "a job", repeat: Repeat::Freely, first: First::InTurn };
        let answer = self
            .caller
            .simple(&policy, request, |node, request| async move {
                node.jobs().submit_job(request).await
            })
            .await?;
        Ok(answer.job)
    }

    /// All jobs of the ledger, in ascending order of their numbers.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is changed.
    pub async fn jobs(&self) -> Result<Vec<Job>, ClientError> {
        let policy = CallPolicy { target: "jobs", repeat: Repeat::Freely, first: First::InTurn };
        let answer = self
            .caller
            .simple(&policy, ListJobsRequest {}, |node, request| async move {
                node.jobs().list_jobs(request).await
            })
            .await?;
        Ok(answer.jobs)
    }

    /// A job, and its progress if its coordinator answers.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is changed.
    pub async fn job(&self, job: u64) -> Result<DescribeJobResponse, ClientError> {
        let target = format!("job {job}");
        let policy = CallPolicy { target: &target, repeat: Repeat::Freely, first: First::InTurn };
        self.caller
            .simple(&policy, DescribeJobRequest { job }, |node, request| async move {
                node.jobs().describe_job(request).await
            })
            .await
            .map_err(ClientError::from)
    }

    /// Requests a job to end. Returns when the request is recorded; a job that has decided to commit
    /// continues.
    ///
    /// # Errors
    /// [`ClientError`]; calling again does no harm.
    pub async fn cancel_job(&self, job: u64) -> Result<(), ClientError> {
        let target = format!("end of job {job}");
        let policy = CallPolicy { target: &target, repeat: Repeat::Freely, first: First::InTurn };
        self.caller
            .simple(&policy, CancelJobRequest { job }, |node, request| async move {
                node.jobs().cancel_job(request).await
            })
            .await?;
        Ok(())
    }

    /// Resumes a failed job, from what its workers have on their disks.
    ///
    /// # Errors
    /// [`ClientError`]; calling again does no harm.
    pub async fn resume_job(&self, job: u64) -> Result<(), ClientError> {
        let target = format!("resumption of job {job}");
        let policy = CallPolicy { target: &target, repeat: Repeat::Freely, first: First::InTurn };
        self.caller
            .simple(&policy, ResumeJobRequest { job }, |node, request| async move {
                node.jobs().resume_job(request).await
            })
            .await?;
        Ok(())
    }
}
