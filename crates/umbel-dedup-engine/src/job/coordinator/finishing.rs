//! What comes behind the exchange: the groups are counted, the outputs written, and what stays is added to a filter.

use super::super::super::entry::WorkerId;
use super::super::super::report::ExchangeReport;
use super::super::messages::{Order, TallyOrder, WriteOrder};
use super::super::outcome::{JobFailure, JobResult};
use super::{CoordinatorMark, JobCoordinator, JobOutput, JobRules, Phase, Row};
use umbel_step::Outbox;
use umbel_step::planted::{self, Planted};

impl JobCoordinator {
    /// Whether groups are to be counted, and some worker does not know its own.
    pub(super) fn must_tally(&self) -> bool {
        self.rules.report_kept && self.rows.iter().any(|row| row.tallied.is_none())
    }

    /// All cells are settled: every record knows for which one it was dropped.
    pub(super) fn tally(&mut self, out: &mut Outbox<JobOutput>) {
        self.enter(Phase::Tallying, "tallying", out);
        let JobRules { report_sizes: tells_sizes, names_parts, .. } = self.rules;
        let order = TallyOrder { chunk_bases: self.chunk_bases(), tells_sizes, names_parts };
        self.tell_all(&Order::Tally { attempt: self.attempt, order }, out);
    }

    /// All that outputs say is known.
    pub(super) fn begin_writing(&mut self, out: &mut Outbox<JobOutput>) {
        self.enter(Phase::Writing, "writing", out);
        for worker in self.workers() {
            self.order_again(worker, out);
        }
    }

    /// Why the job had failed for good before this coordinator was made.
    #[must_use]
    pub fn known_failure(&self) -> Option<JobFailure> {
        let (cause, _) = self.ending.as_ref()?;
        let mut told_apart = [JobFailure::NothingToDo, JobFailure::Cancelled].into_iter();
        let known = told_apart.find(|failure| failure.to_string() == *cause);
        Some(known.unwrap_or_else(|| JobFailure::Known { cause: cause.clone() }))
    }

    pub(super) fn write_order(&self) -> Order {
        let catalogue = |row: &Row| row.counts.as_ref().map(|counts| counts.catalogue.clone());
        let chunk_bases = self.chunk_bases();
        let catalogues = self.rows.iter().map(|row| catalogue(row).unwrap_or_default()).collect();
        Order::Write(WriteOrder { chunk_bases, catalogues, weights: self.weights() })
    }

    fn weights(&self) -> Vec<Vec<u8>> {
        let told = |row: &Row| row.tallied.as_ref().map(|tallied| tallied.weights.clone());
        let row = |at: usize| if planted::on(Planted::WeightsAlike) { 0 } else { at };
        let rows = (0..self.rows.len()).map(|at| &self.rows[row(at)]);
        rows.map(|row| told(row).unwrap_or_default()).collect()
    }

    pub(super) fn have_written(&self) -> bool {
        if planted::on(Planted::CommitEarly) {
            return self.rows.iter().any(|row| row.written.is_some());
        }
        self.rows.iter().all(|row| row.written.is_some())
    }

    /// All outputs stand under their names: whoever looks for what the filter holds finds it there.
    pub(super) fn begin_adding(&mut self, out: &mut Outbox<JobOutput>) {
        self.enter(Phase::Adding, "adding", out);
        for worker in self.workers() {
            self.order_again(worker, out);
        }
    }

    pub(super) fn have_added(&self) -> bool {
        if planted::on(Planted::FinishBeforeAdded) {
            return self.rows.iter().any(|row| row.added);
        }
        self.rows.iter().all(|row| row.added)
    }

    /// All workers have done all of it.
    pub(super) fn finish(&mut self, out: &mut Outbox<JobOutput>) -> Result<(), JobFailure> {
        let result = Box::new(self.result()?);
        self.phase = Phase::Ended;
        // Workers wait until they hear of the end, so it must be known for good before.
        out.push(JobOutput::Finished(result));
        out.push(JobOutput::Mark(CoordinatorMark::Finished));
        self.tell_all(&Order::Finish, out);
        Ok(())
    }

    fn result(&self) -> Result<JobResult, JobFailure> {
        let (worker, what) = (WorkerId(0), "all committed before there was a plan");
        let plan = self.plan.ok_or(JobFailure::Nonsense { worker, what })?;
        let mut report = ExchangeReport::default();
        let of_tally = |row: &Row| row.tallied.as_ref().map(|tallied| tallied.report);
        let sent = self.rows.iter().flat_map(|row| [row.exchanged, of_tally(row)]);
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
