//! The phases after the exchange: count groups, write outputs, add kept items to a filter, finish.

use super::super::super::entry::WorkerId;
use super::super::super::report::ExchangeReport;
use super::super::messages::{GroupCountOrder, Order, WorkerMessage, WriteOrder};
use super::super::outcome::{JobFailure, JobResult};
use super::{CoordinatorJournalRecord, JobCoordinator, JobInput, JobOutput, JobRules, Phase, Row};
use umbel_step::Outbox;
use umbel_step::planted::{self, Planted};

impl JobCoordinator {
    /// Whether groups must be counted and some worker has not finished counting.
    pub(super) fn must_count_groups(&self) -> bool {
        self.rules.report_kept && self.rows.iter().any(|row| row.group_count.is_none())
    }

    /// Orders to count groups. All cells are decided, so each worker knows for which record each of its drops
    /// was dropped.
    pub(super) fn count_groups(&mut self, out: &mut Outbox<JobOutput>) {
        self.enter(Phase::CountingGroups, "tallying", out);
        let JobRules { report_sizes: sends_sizes, names_parts, .. } = self.rules;
        let order = GroupCountOrder { chunk_bases: self.chunk_bases(), sends_sizes, names_parts };
        self.send_all(&Order::CountGroups { attempt: self.attempt, order }, out);
    }

    /// Enters a phase, and sends all workers the order of that phase.
    pub(super) fn begin(&mut self, phase: Phase, name: &'static str, out: &mut Outbox<JobOutput>) {
        self.enter(phase, name, out);
        for worker in self.workers() {
            self.resend_order(worker, out);
        }
    }

    /// The failure that the journal records, if the job had failed before this coordinator was created.
    #[must_use]
    pub fn known_failure(&self) -> Option<JobFailure> {
        let (cause, _) = self.ending.as_ref()?;
        let mut recognized = [JobFailure::NothingToDo, JobFailure::Cancelled].into_iter();
        let known = recognized.find(|failure| failure.to_string() == *cause);
        Some(known.unwrap_or_else(|| JobFailure::Known { cause: cause.clone() }))
    }

    pub(super) fn write_order(&self) -> Order {
        let catalogue = |row: &Row| row.counts.as_ref().map(|counts| counts.catalogue.clone());
        let chunk_bases = self.chunk_bases();
        let catalogues = self.rows.iter().map(|row| catalogue(row).unwrap_or_default()).collect();
        Order::Write(WriteOrder { chunk_bases, catalogues, weights: self.weights() })
    }

    fn weights(&self) -> Vec<Vec<u8>> {
        let weights =
            |row: &Row| row.group_count.as_ref().map(|group_count| group_count.weights.clone());
        let row = |at: usize| if planted::on(Planted::WeightsAlike) { 0 } else { at };
        let rows = (0..self.rows.len()).map(|at| &self.rows[row(at)]);
        rows.map(|row| weights(row).unwrap_or_default()).collect()
    }

    pub(super) fn have_written(&self) -> bool {
        if planted::on(Planted::CommitEarly) {
            return self.rows.iter().any(|row| row.written.is_some());
        }
        self.rows.iter().all(|row| row.written.is_some())
    }

    pub(super) fn have_added(&self) -> bool {
        if planted::on(Planted::FinishBeforeAdded) {
            return self.rows.iter().any(|row| row.added);
        }
        self.rows.iter().all(|row| row.added)
    }

    /// All workers have done all phases: ends the job.
    pub(super) fn finish(&mut self, out: &mut Outbox<JobOutput>) -> Result<(), JobFailure> {
        let result = Box::new(self.result()?);
        self.phase = Phase::Ended;
        // Workers remove their scratch data when they receive Finish, so the end must be durable here first.
        out.push(JobOutput::Finished(result));
        out.push(JobOutput::Journal(CoordinatorJournalRecord::Finished));
        self.send_all(&Order::Finish, out);
        Ok(())
    }

    /// Ends the job without a result.
    pub(super) fn fail(&mut self, failure: JobFailure, out: &mut Outbox<JobOutput>) {
        // From the commit on, outputs may have their names: no worker may remove what it needs to complete its own.
        let is_decided = self.phase >= Phase::Committing;
        let failure = if is_decided { failure.into_resumable() } else { failure };
        self.phase = Phase::Ended;
        let (cause, resumable) = (failure.to_string(), is_decided || failure.is_resumable());
        if !resumable {
            // Workers remove their scratch data when they receive this, so it must be durable here first.
            out.push(JobOutput::Journal(CoordinatorJournalRecord::Failed { cause: cause.clone() }));
        }
        self.send_all(&Order::Abort { cause: cause.clone(), resumable }, out);
        self.ending = Some((cause, resumable));
        out.push(JobOutput::Failed(failure));
    }

    /// Sends a worker that joins after the end how the job has ended.
    pub(super) fn step_after_end(&self, input: &JobInput, out: &mut Outbox<JobOutput>) {
        if let JobInput::Message(worker, WorkerMessage::Join { .. }) = input {
            let order = match &self.ending {
                None => Order::Finish,
                Some((cause, resumable)) => {
                    Order::Abort { cause: cause.clone(), resumable: *resumable }
                }
            };
            out.push(JobOutput::Send(*worker, order));
        }
    }

    fn result(&self) -> Result<JobResult, JobFailure> {
        let (worker, what) = (WorkerId(0), "all committed before there was a plan");
        let plan = self.plan.ok_or(JobFailure::Nonsense { worker, what })?;
        let mut report = ExchangeReport::default();
        let of_group_count =
            |row: &Row| row.group_count.as_ref().map(|group_count| group_count.report);
        let sent = self.rows.iter().flat_map(|row| [row.exchanged, of_group_count(row)]);
        sent.flatten().for_each(|part| report += part);
        let counts = self.rows.iter().map(|row| row.counts.clone().unwrap_or_default()).collect();
        let written = self.rows.iter().map(|row| row.written.clone().unwrap_or_default()).collect();
        let (weights, attempts) = (self.weights(), self.attempts);
        Ok(JobResult { plan, report, counts, weights, written, attempts })
    }

    fn chunk_bases(&self) -> Vec<u32> {
        self.shape.as_ref().map_or(Vec::new(), |(_, bases)| bases.clone())
    }
}
