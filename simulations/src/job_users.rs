//! The users who submit the plan's jobs, poll them, cancel those that the plan cancels, and resume failed
//! ones that are resumable.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;
use umbel_client::proto::{Job, SubmitJobRequest};
use umbel_client::{Client, ClientError, Token};
use umbel_engine::JobId;

use crate::net::SimNet;
use crate::now::now_us;
use crate::operator::admin_client;
use crate::plan::JobPlan;
use crate::trace;

/// Pause between two polls of a job, and between two tries to submit it.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// All users, and what they know of their jobs.
pub(crate) struct Users {
    client: Client,
    jobs: RefCell<Vec<KnownJob>>,
}

/// What the user of one job knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownJob {
    /// Its id, once it has been accepted.
    pub(crate) job: Option<JobId>,
    /// The job as the cluster last reported it.
    pub(crate) row: Option<Job>,
    /// Why its submission was refused.
    pub(crate) refusal: Option<String>,
}

impl KnownJob {
    /// Whether the job has ended for good, or its submission was refused.
    pub(crate) fn is_over(&self) -> bool {
        let row = self.row.as_ref();
        let has_ended = row.is_some_and(|row| match row.state.as_str() {
            "done" | "cancelled" => true,
            "failed" => !row.resumable,
            _ => false,
        });
        has_ended || self.refusal.is_some()
    }
}

impl Users {
    pub(crate) fn new(
        net: SimNet,
        addresses: Vec<String>,
        token: Option<Token>,
        count: usize,
    ) -> Rc<Self> {
        let client = admin_client(net, addresses, token);
        Rc::new(Self { client, jobs: RefCell::new(vec![KnownJob::default(); count]) })
    }

    /// What is known of all jobs, in the plan's order.
    pub(crate) fn known(&self) -> Vec<KnownJob> {
        self.jobs.borrow().clone()
    }

    /// Submits each job at its time and follows all of them to their ends.
    pub(crate) async fn run(self: Rc<Self>, plans: Vec<JobPlan>) {
        let began = Instant::now();
        let mut running = tokio::task::JoinSet::new();
        for (index, plan) in plans.into_iter().enumerate() {
            running.spawn_local(Rc::clone(&self).look_after(index, plan, began));
        }
        while running.join_next().await.is_some() {}
    }

    async fn look_after(self: Rc<Self>, index: usize, plan: JobPlan, began: Instant) {
        tokio::time::sleep_until(began + Duration::from_millis(plan.at_ms)).await;
        let Some(job) = self.submit(index).await else { return };
        let mut is_cancelled = false;
        while !self.jobs.borrow()[index].is_over() {
            if let Ok(found) = self.client.job(job).await {
                trace::line(now_us(), "users", "job", format_args!("{found:?}"));
                self.jobs.borrow_mut()[index].row = found.job;
            }
            let row = self.jobs.borrow()[index].row.clone().unwrap_or_default();
            let is_due = plan
                .cancel_at_ms
                .is_some_and(|at_ms| began + Duration::from_millis(at_ms) <= Instant::now());
            // The next poll shows the effect of these requests.
            if is_due && !is_cancelled && row.state == "running" {
                is_cancelled = self.client.cancel_job(job).await.is_ok();
            } else if row.state == "failed" && row.resumable {
                let _ = self.client.resume_job(job).await;
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }

    async fn submit(&self, index: usize) -> Option<u64> {
        let request = SubmitJobRequest {
            nonce: index as u64 + 1,
            spec: index.to_string().into_bytes().into(),
            workers: Vec::new(),
            seed: None,
        };
        loop {
            match self.client.submit_job(request.clone()).await {
                Ok(job) => {
                    self.jobs.borrow_mut()[index].job = Some(JobId(job));
                    return Some(job);
                }
                Err(ClientError::Refused(failure)) => {
                    self.jobs.borrow_mut()[index].refusal = Some(failure.to_string());
                    return None;
                }
                Err(_) => tokio::time::sleep(LOOK_PAUSE).await,
            }
        }
    }
}
