//! Jobs of a cluster.

use umbel_proto::v1::{
    CancelJobRequest, DescribeJobRequest, DescribeJobResponse, Job, ListJobsRequest,
    ResumeJobRequest, SubmitJobRequest,
};

use crate::caller::{Ask, First, Repeat};
use crate::client::Client;
use crate::error::ClientError;

impl Client {
    /// Enters a job and returns its number; its workers begin when they hear of it. The nonce is
    /// drawn once by the caller, so that a request that is sent again submits nothing twice.
    ///
    /// # Errors
    /// [`ClientError`]; calling again with the same nonce does no harm.
    pub async fn submit_job(&self, request: SubmitJobRequest) -> Result<u64, ClientError> {
        let ask = Ask { target: "a job", repeat: Repeat::Freely, first: First::InTurn };
        let answer =
            self.caller
                .simple(&ask, request, |node, request| async move {
                    node.jobs().submit_job(request).await
                })
                .await?;
        Ok(answer.job)
    }

    /// All jobs of the ledger, by rising number.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is changed.
    pub async fn jobs(&self) -> Result<Vec<Job>, ClientError> {
        let ask = Ask { target: "jobs", repeat: Repeat::Freely, first: First::InTurn };
        let answer = self
            .caller
            .simple(&ask, ListJobsRequest {}, |node, request| async move {
                node.jobs().list_jobs(request).await
            })
            .await?;
        Ok(answer.jobs)
    }

    /// A job, and how far it is if its coordinator answers.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is changed.
    pub async fn job(&self, job: u64) -> Result<DescribeJobResponse, ClientError> {
        let target = format!("job {job}");
        let ask = Ask { target: &target, repeat: Repeat::Freely, first: First::InTurn };
        self.caller
            .simple(&ask, DescribeJobRequest { job }, |node, request| async move {
                node.jobs().describe_job(request).await
            })
            .await
    }

    /// Asks a job to end. Returns when that is recorded; one that has decided to commit goes on.
    ///
    /// # Errors
    /// [`ClientError`]; calling again does no harm.
    pub async fn cancel_job(&self, job: u64) -> Result<(), ClientError> {
        let target = format!("end of job {job}");
        let ask = Ask { target: &target, repeat: Repeat::Freely, first: First::InTurn };
        self.caller
            .simple(&ask, CancelJobRequest { job }, |node, request| async move {
                node.jobs().cancel_job(request).await
            })
            .await
            .map(drop)
    }

    /// Takes a failed job up again, from what its workers have on their disks.
    ///
    /// # Errors
    /// [`ClientError`]; calling again does no harm.
    pub async fn resume_job(&self, job: u64) -> Result<(), ClientError> {
        let target = format!("resumption of job {job}");
        let ask = Ask { target: &target, repeat: Repeat::Freely, first: First::InTurn };
        self.caller
            .simple(&ask, ResumeJobRequest { job }, |node, request| async move {
                node.jobs().resume_job(request).await
            })
            .await
            .map(drop)
    }
}
