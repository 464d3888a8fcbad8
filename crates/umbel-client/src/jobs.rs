//! Jobs of a cluster.

use umbel_proto::v1::{
    CancelJobRequest, DescribeJobRequest, DescribeJobResponse, Job, ListJobsRequest,
    ResumeJobRequest, SubmitJobRequest,
};

use crate::caller::{CallPolicy, ask};
use crate::client::Client;
use crate::error::Result;

impl Client {
    /// Submits a job and returns its number; its workers start when they learn of it. The caller draws
    /// the nonce of the request once, so that a retry submits no second job.
    ///
    /// # Errors
    /// [`ClientError`](crate::ClientError); calling again with the same nonce does no harm.
    pub async fn submit_job(&self, request: SubmitJobRequest) -> Result<u64> {
        Ok(ask!(self, CallPolicy::order("a job"), jobs.submit_job, request)?.job)
    }

    /// All jobs of the ledger, in ascending order of their numbers.
    ///
    /// # Errors
    /// [`ClientError`](crate::ClientError); nothing is changed.
    pub async fn jobs(&self) -> Result<Vec<Job>> {
        Ok(ask!(self, CallPolicy::freely("jobs"), jobs.list_jobs, ListJobsRequest {})?.jobs)
    }

    /// A job, and its progress if its coordinator answers.
    ///
    /// # Errors
    /// [`ClientError`](crate::ClientError); nothing is changed.
    pub async fn job(&self, job: u64) -> Result<DescribeJobResponse> {
        let target = format!("job {job}");
        Ok(ask!(self, CallPolicy::freely(&target), jobs.describe_job, DescribeJobRequest { job })?)
    }

    /// Requests a job to end. Returns when the request is recorded; a job that has decided to commit
    /// continues.
    ///
    /// # Errors
    /// [`ClientError`](crate::ClientError); calling again does no harm.
    pub async fn cancel_job(&self, job: u64) -> Result<()> {
        let target = format!("end of job {job}");
        ask!(self, CallPolicy::order(&target), jobs.cancel_job, CancelJobRequest { job })?;
        Ok(())
    }

    /// Resumes a failed job, from what its workers have on their disks.
    ///
    /// # Errors
    /// [`ClientError`](crate::ClientError); calling again does no harm.
    pub async fn resume_job(&self, job: u64) -> Result<()> {
        let target = format!("resumption of job {job}");
        ask!(self, CallPolicy::order(&target), jobs.resume_job, ResumeJobRequest { job })?;
        Ok(())
    }
}
