//! The job ledger: which jobs run on which nodes, and how they ended.
//!
//! ```text
//! SubmitJob -> Running -> Done
//!                 │  └──> Failed -> ResumeJob -> Running
//!                 └─ CancelJob -> Cancelling -> Cancelled (or Done, if it had decided to commit)
//! ```
//!
//! The ledger says what should run, and nodes follow it like the catalogue. A job's progress is known only
//! to its workers and their disks. The workers report how a job ended; if the node of one was removed, the
//! controller ends it ([`MetaState::stranded_jobs`]).

use super::job::{JobEnd, JobOrder, JobRecord, JobState};
use super::node_record::NodeRecord;
use super::reply::{MetaError, MetaReply};
use super::state::MetaState;
use crate::ids::JobId;
use crate::limits::{
    JOB_CAUSE_BYTES_MAX, JOB_SPEC_BYTES_MAX, JOB_SUMMARY_BYTES_MAX, JOBS_KEPT_MAX, JOBS_RUNNING_MAX,
};
use crate::meta::Result;

impl MetaState {
    /// All jobs in the ledger by number, including ended ones.
    pub fn jobs(&self) -> impl DoubleEndedIterator<Item = (JobId, &JobRecord)> {
        self.jobs.iter().map(|(&job, record)| (job, record))
    }

    /// A job, or None if the ledger does not have it, or not any more.
    #[must_use]
    pub fn job(&self, job: JobId) -> Option<&JobRecord> {
        self.jobs.get(&job)
    }

    pub(super) fn submit_job(&mut self, log_index: u64, order: &JobOrder) -> Result<MetaReply> {
        let same = self.jobs.iter().find(|(_, record)| record.order.nonce == order.nonce);
        if let Some((&job, _)) = same {
            return Ok(MetaReply::Job(job));
        }
        if order.workers.is_empty() || !order.workers.is_sorted_by(|a, b| a < b) {
            let what = "workers of a job are different nodes, sorted, at least one".to_owned();
            return Err(MetaError::BadSettings { what });
        }
        if let Some(&node) =
            order.workers.iter().find(|&&node| !self.node(node).is_some_and(NodeRecord::is_live))
        {
            return Err(MetaError::UnknownNode { node });
        }
        if order.spec.len() > JOB_SPEC_BYTES_MAX {
            let got = order.spec.len();
            let what = format!("a job of {got} bytes, at most {JOB_SPEC_BYTES_MAX} are allowed");
            return Err(MetaError::Quota { what });
        }
        let active = self.jobs.values().filter(|record| record.state.is_active()).count();
        if active >= JOBS_RUNNING_MAX {
            let what = format!("{active} jobs are running, at most {JOBS_RUNNING_MAX} may");
            return Err(MetaError::Quota { what });
        }
        let job = JobId(log_index);
        let record = JobRecord { order: order.clone(), run: 1, state: JobState::Running };
        self.jobs.insert(job, record);
        self.forget_jobs();
        Ok(MetaReply::Job(job))
    }

    /// Drops the oldest ended jobs above the limit; ended jobs are kept only for people to look at.
    fn forget_jobs(&mut self) {
        while self.jobs.len() > JOBS_KEPT_MAX {
            let ended = self.jobs.iter().find(|(_, record)| !record.state.is_active());
            let Some((&oldest, _)) = ended else { return };
            self.jobs.remove(&oldest);
        }
    }

    fn job_mut(&mut self, job: JobId) -> Result<&mut JobRecord> {
        self.jobs.get_mut(&job).ok_or(MetaError::UnknownJob { job })
    }

    /// Records the end of a run. Ignored if the run is not the current one, or the job has ended.
    pub(super) fn end_job(&mut self, job: JobId, run: u32, end: &JobEnd) -> Result<MetaReply> {
        let record = self.job_mut(job)?;
        if record.run == run && record.state.is_active() {
            record.state = match end.clone() {
                JobEnd::Done { mut summary } => {
                    if summary.len() > JOB_SUMMARY_BYTES_MAX {
                        summary.clear();
                    }
                    JobState::Done { summary }
                }
                JobEnd::Failed { mut cause, resumable } => {
                    cause.truncate(cause.floor_char_boundary(JOB_CAUSE_BYTES_MAX));
                    JobState::Failed { cause, resumable }
                }
                JobEnd::Cancelled => JobState::Cancelled,
            };
        }
        Ok(MetaReply::Done)
    }

    pub(super) fn cancel_job(&mut self, job: JobId) -> Result<MetaReply> {
        let record = self.job_mut(job)?;
        match record.state {
            JobState::Running => record.state = JobState::Cancelling,
            // Its scratch files are waiting for a resumption that will not come now.
            JobState::Failed { .. } => record.state = JobState::Cancelled,
            JobState::Cancelling | JobState::Cancelled => {}
            JobState::Done { .. } => return Err(record.wrong(job)),
        }
        Ok(MetaReply::Done)
    }

    pub(super) fn resume_job(&mut self, job: JobId) -> Result<MetaReply> {
        let active = self.jobs.values().filter(|record| record.state.is_active()).count();
        let record = self.job_mut(job)?;
        match record.state {
            JobState::Running => {}
            JobState::Failed { resumable: true, .. } if active < JOBS_RUNNING_MAX => {
                record.run = record.run.saturating_add(1);
                record.state = JobState::Running;
            }
            JobState::Failed { resumable: true, .. } => {
                let what = format!("{active} jobs are running, at most {JOBS_RUNNING_MAX} may");
                return Err(MetaError::Quota { what });
            }
            _ => return Err(record.wrong(job)),
        }
        Ok(MetaReply::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::super::command::MetaCommand;
    use super::super::job::JobSecret;
    use super::super::testing::form;
    use super::*;
    use crate::ids::NodeId;

    fn order(nonce: u64, workers: &[u64]) -> MetaCommand {
        let workers = workers.iter().map(|&node| NodeId(node)).collect();
        let spec = b"{}".to_vec();
        let secret = JobSecret::new([7; JobSecret::BYTES]);
        MetaCommand::SubmitJob(JobOrder { nonce, seed: 1, secret, workers, spec, submitted_ms: 5 })
    }

    fn formed() -> MetaState {
        let mut state = MetaState::new();
        state.apply(2, &form(3, 1, 1));
        state
    }

    fn failed(resumable: bool) -> JobEnd {
        JobEnd::Failed { cause: "disk full".to_owned(), resumable }
    }

    #[test]
    fn a_job_is_submitted_once_and_ends_once() {
        let mut state = formed();
        let job = JobId(10);
        assert_eq!(state.apply(10, &order(7, &[1, 3])), MetaReply::Job(job));
        assert_eq!(state.apply(11, &order(7, &[1, 3])), MetaReply::Job(job));
        assert_eq!(state.job(job).unwrap().coordinator(), Some(NodeId(1)));
        let done = |run, summary: &[u8]| MetaCommand::EndJob {
            job,
            run,
            end: JobEnd::Done { summary: summary.to_vec() },
        };
        state.apply(12, &done(2, b"of no run"));
        assert_eq!(state.job(job).unwrap().state, JobState::Running);
        state.apply(13, &done(1, b"first"));
        state.apply(14, &done(1, b"second"));
        let expected = JobState::Done { summary: b"first".to_vec() };
        assert_eq!(state.job(job).unwrap().state, expected);
        let refused = state.apply(15, &MetaCommand::CancelJob { job });
        let error = MetaError::JobState { job, state: "done".to_owned() };
        assert_eq!(refused, MetaReply::Refused(error));
    }

    #[test]
    fn a_failed_job_is_taken_up_again_as_another_run() {
        let mut state = formed();
        let job = JobId(10);
        state.apply(10, &order(7, &[2]));
        state.apply(11, &MetaCommand::EndJob { job, run: 1, end: failed(true) });
        assert_eq!(state.apply(12, &MetaCommand::ResumeJob { job }), MetaReply::Done);
        let record = state.job(job).unwrap();
        assert_eq!((record.run, &record.state), (2, &JobState::Running));
        state.apply(13, &MetaCommand::EndJob { job, run: 1, end: failed(false) });
        assert!(state.job(job).unwrap().state.is_active());
        state.apply(14, &MetaCommand::EndJob { job, run: 2, end: failed(false) });
        let refused = state.apply(15, &MetaCommand::ResumeJob { job });
        assert!(matches!(refused, MetaReply::Refused(MetaError::JobState { .. })), "{refused:?}");
        state.apply(16, &MetaCommand::CancelJob { job });
        assert_eq!(state.job(job).unwrap().state, JobState::Cancelled);
    }

    #[test]
    fn cancelling_waits_for_the_coordinator_whose_word_counts() {
        let mut state = formed();
        let job = JobId(10);
        state.apply(10, &order(7, &[2]));
        state.apply(11, &MetaCommand::CancelJob { job });
        assert_eq!(state.job(job).unwrap().state, JobState::Cancelling);
        let end = JobEnd::Done { summary: Vec::new() };
        state.apply(12, &MetaCommand::EndJob { job, run: 1, end });
        assert!(matches!(state.job(job).unwrap().state, JobState::Done { .. }));
    }

    #[test]
    fn what_cannot_run_is_refused_and_the_ledger_is_bounded() {
        let mut state = formed();
        for workers in [&[][..], &[2, 1], &[1, 1], &[9]] {
            let reply = state.apply(10, &order(1, workers));
            assert!(matches!(reply, MetaReply::Refused(_)), "{workers:?}");
        }
        let mut index = 100;
        for nonce in 0..JOBS_KEPT_MAX as u64 + 9 {
            let MetaReply::Job(job) = state.apply(index, &order(nonce, &[1])) else { panic!() };
            if nonce >= JOBS_RUNNING_MAX as u64 - 1 {
                state.apply(index + 1, &MetaCommand::EndJob { job, run: 1, end: failed(true) });
            }
            index += 2;
        }
        assert_eq!(state.jobs().count(), JOBS_KEPT_MAX);
        // The running jobs are the oldest ones, and are kept.
        assert_eq!(state.jobs().next().unwrap().0, JobId(100));
        state.apply(index, &order(9999, &[1]));
        let reply = state.apply(index + 1, &order(10_000, &[1]));
        assert!(matches!(reply, MetaReply::Refused(MetaError::Quota { .. })), "{reply:?}");
    }
}
