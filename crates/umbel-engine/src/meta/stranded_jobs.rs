//! Jobs that cannot end by themselves, because a node with one of their workers was removed.
//!
//! Only workers report how a job ended, first of all the coordinator, and the removed node may have been the
//! coordinator or the only worker. Such a job would stay active and count towards the most that may run.

use super::command::MetaCommand;
use super::job::{JobEnd, JobRecord, JobState};
use super::state::MetaState;
use crate::ids::JobId;

impl MetaState {
    /// The commands that end all active jobs with a worker on a node that was removed. Such a node never
    /// returns, so they cannot be resumed.
    ///
    /// ```
    /// use umbel_engine::meta::MetaState;
    ///
    /// assert!(MetaState::new().stranded_jobs().is_empty());
    /// ```
    #[must_use]
    pub fn stranded_jobs(&self) -> Vec<MetaCommand> {
        self.jobs().filter_map(|(job, record)| self.end_of_stranded(job, record)).collect()
    }

    fn end_of_stranded(&self, job: JobId, record: &JobRecord) -> Option<MetaCommand> {
        let gone = record.order.workers.iter().find(|&&node| self.is_no_member(node))?;
        let end = match record.state {
            JobState::Running => {
                let cause = format!("{gone} was removed from the cluster");
                JobEnd::Failed { cause, resumable: false }
            }
            // As when a worker fails meanwhile: it was to end without a result anyway.
            JobState::Cancelling => JobEnd::Cancelled,
            JobState::Done { .. } | JobState::Failed { .. } | JobState::Cancelled => return None,
        };
        Some(MetaCommand::EndJob { job, run: record.run, end })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::form;
    use super::*;
    use crate::ids::NodeId;
    use crate::meta::{JobOrder, JobSecret, MetaReply};

    /// A cluster of nodes 1 to 3 with one shard, of which any node may be removed.
    fn formed() -> MetaState {
        let mut state = MetaState::new();
        assert_eq!(state.apply(2, &form(3, 1, 3)), MetaReply::Done);
        state
    }

    fn submit(state: &mut MetaState, index: u64, workers: &[u64]) -> JobId {
        let workers = workers.iter().copied().map(NodeId).collect();
        let secret = JobSecret::new([7; JobSecret::BYTES]);
        let (nonce, spec) = (index, b"{}".to_vec());
        let order = JobOrder { nonce, seed: 1, secret, workers, spec, submitted_ms: 5 };
        assert_eq!(
            state.apply(index, &MetaCommand::SubmitJob(order)),
            MetaReply::Job(JobId(index))
        );
        JobId(index)
    }

    #[test]
    fn jobs_of_a_node_that_was_removed_end() {
        let mut state = formed();
        let running = submit(&mut state, 10, &[1, 3]);
        let cancelling = submit(&mut state, 11, &[3]);
        let others = submit(&mut state, 12, &[1, 2]);
        let ended = submit(&mut state, 13, &[3]);
        state.apply(14, &MetaCommand::CancelJob { job: cancelling });
        let failed = JobEnd::Failed { cause: "disk full".to_owned(), resumable: true };
        state.apply(15, &MetaCommand::EndJob { job: ended, run: 1, end: failed });
        // A node that drains keeps its workers.
        state.apply(16, &MetaCommand::Drain { node: NodeId(3), drain: true });
        assert_eq!(state.stranded_jobs(), []);

        let removed = state.apply(17, &MetaCommand::RemoveNode { node: NodeId(3) });
        assert_eq!(removed, MetaReply::Done);
        let (cause, resumable) = ("node 3 was removed from the cluster".to_owned(), false);
        let end = JobEnd::Failed { cause: cause.clone(), resumable };
        let wanted = [
            MetaCommand::EndJob { job: running, run: 1, end: end.clone() },
            MetaCommand::EndJob { job: cancelling, run: 1, end: JobEnd::Cancelled },
        ];
        assert_eq!(state.stranded_jobs(), wanted);
        for (index, command) in (18..).zip(&wanted) {
            assert_eq!(state.apply(index, command), MetaReply::Done);
        }
        assert_eq!(state.stranded_jobs(), []);
        let state_of = |state: &MetaState, job| state.job(job).unwrap().state.clone();
        assert_eq!(state_of(&state, running), JobState::Failed { cause, resumable });
        assert_eq!(state_of(&state, cancelling), JobState::Cancelled);
        assert_eq!(state_of(&state, others), JobState::Running);

        // A job that is resumed after the removal ends in its new run.
        state.apply(20, &MetaCommand::ResumeJob { job: ended });
        assert_eq!(state.stranded_jobs(), [MetaCommand::EndJob { job: ended, run: 2, end }]);
    }
}
