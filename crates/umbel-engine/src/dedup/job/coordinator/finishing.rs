//! What comes behind the exchange: the groups are counted, the outputs written.

use super::super::messages::{Order, TallyOrder, WriteOrder};
use super::{JobCoordinator, JobOutput, Phase, Row};
use crate::Outbox;

impl JobCoordinator {
    /// Whether groups are to be counted, and some worker does not know its own.
    pub(super) fn must_tally(&self) -> bool {
        self.rules.report_kept && self.rows.iter().any(|row| row.tallied.is_none())
    }

    /// All cells are settled: every record knows for which one it was dropped.
    pub(super) fn tally(&mut self, out: &mut Outbox<JobOutput>) {
        self.enter(Phase::Tallying, "tallying", out);
        let (chunk_bases, tells_sizes) = (self.chunk_bases(), self.rules.report_sizes);
        let order = TallyOrder { chunk_bases, tells_sizes };
        self.tell_all(&Order::Tally { attempt: self.attempt, order }, out);
    }

    /// All that outputs say is known.
    pub(super) fn begin_writing(&mut self, out: &mut Outbox<JobOutput>) {
        self.enter(Phase::Writing, "writing", out);
        for worker in self.workers() {
            self.order_again(worker, out);
        }
    }

    pub(super) fn write_order(&self) -> Order {
        let catalogue = |row: &Row| row.counts.as_ref().map(|counts| counts.catalogue.clone());
        let chunk_bases = self.chunk_bases();
        let catalogues = self.rows.iter().map(|row| catalogue(row).unwrap_or_default()).collect();
        Order::Write(WriteOrder { chunk_bases, catalogues })
    }

    fn chunk_bases(&self) -> Vec<u32> {
        self.shape.as_ref().map_or(Vec::new(), |(_, bases)| bases.clone())
    }
}
