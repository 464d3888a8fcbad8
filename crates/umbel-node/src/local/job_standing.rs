//! The progress of jobs, as the nodes report it that take part in them.

use std::time::Duration;

use umbel_engine::{GroupId, JobId, NodeId};
use umbel_ports::encoding::{decode, encode};
use umbel_raft::peer::CallKind;

use super::Local;
use crate::calls::JobStanding;

impl Local {
    /// The progress of an active job, as one of its nodes reports it; None if that does not answer.
    pub async fn job_standing(
        &self,
        job: JobId,
        node: NodeId,
        timeout: Duration,
    ) -> Option<JobStanding> {
        // Between a job's entry in the ledger and its start on a node there is nothing more to report.
        let starting = || JobStanding { phase: "starting".to_owned(), ..JobStanding::default() };
        if node == self.node() {
            return Some(self.jobs().standing(job).unwrap_or_else(starting));
        }
        let address = self.member.address_of(node)?;
        let called =
            self.links().call(node, &address, CallKind::Job, GroupId::META, encode(&job), timeout);
        let standing: Option<JobStanding> = decode(&called.await.ok()?).ok()?;
        Some(standing.unwrap_or_else(starting))
    }
}
