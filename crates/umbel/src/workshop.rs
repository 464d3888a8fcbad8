//! Adapts a worker's data on files to the `Workshop` interface of the job driver, on a node or in a
//! process of its own.

use crate::commands::dedup::page_of;
use std::sync::Arc;
use umbel_dedup::{DedupError, FileWorkshop, chain_text};
use umbel_dedup_engine::job::{
    CellSet, Counts, Forecast, GroupCountOrder, JobResult, ReadOrder, WriteOrder, Written,
};
use umbel_dedup_engine::{
    Claim, Drops, Entry, ExchangeReport, Group, Item, Rank, RecordId, RecordPart, RecordRange,
    Suspect, WorkerId,
};
use umbel_filter::{HashRange, ItemHash};
use umbel_jobs::{Workshop, WorkshopError};
use umbel_ports::PortFuture;

type Outcome<T> = Result<T, WorkshopError>;

/// A [`FileWorkshop`] that runs its slow operations on threads of their own.
pub(crate) struct AsWorkshop(pub(crate) Arc<FileWorkshop>);

fn explain(error: &DedupError) -> WorkshopError {
    WorkshopError { cause: chain_text(error), resumable: !error.is_final() }
}

fn explained<T>(outcome: Result<T, DedupError>) -> Outcome<T> {
    outcome.map_err(|error| explain(&error))
}

impl AsWorkshop {
    /// Runs slow work on a thread of its own, for which [`Workshop::end`] waits.
    fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce(&FileWorkshop) -> Result<T, DedupError> + Send + 'static,
    ) -> PortFuture<'_, Outcome<T>> {
        let workshop = Arc::clone(&self.0);
        Box::pin(async move {
            match tokio::task::spawn_blocking(move || work(&workshop)).await {
                Ok(outcome) => explained(outcome),
                Err(stopped) => {
                    let cause = format!("a bug of umbel: {stopped}");
                    Err(WorkshopError { cause, resumable: true })
                }
            }
        })
    }
}

impl Workshop for AsWorkshop {
    fn marks(&self) -> Outcome<Vec<Vec<u8>>> {
        Ok(self.0.job_records())
    }

    fn mark(&self, mark: &[u8]) -> Outcome<()> {
        explained(self.0.append_job_record(mark))
    }

    fn mark_end(&self, mark: &[u8]) -> Outcome<()> {
        explained(self.0.append_end_record(mark))
    }

    fn forecast(&self) -> Outcome<Forecast> {
        Ok(self.0.forecast())
    }

    fn read(&self, order: ReadOrder) -> PortFuture<'_, Outcome<Counts>> {
        self.apart(move |workshop| workshop.read(order))
    }

    fn sample(&self) -> Outcome<Vec<Vec<Entry>>> {
        explained(self.0.sample())
    }

    fn entries(&self, cell: u32) -> Outcome<Vec<Entry>> {
        self.ranked_entries(cell).map(|(entries, _)| entries)
    }

    fn ranked_entries(&self, cell: u32) -> Outcome<(Vec<Entry>, Vec<Rank>)> {
        explained(self.0.ranked_entries(cell))
    }

    fn references(&self, range: HashRange) -> Outcome<Vec<ItemHash>> {
        explained(self.0.references(range))
    }

    fn decide(&self, cell: u32, drops: Drops) -> Outcome<()> {
        explained(self.0.record_drops(cell, &drops))
    }

    fn seal(&self, report: &ExchangeReport) -> Outcome<()> {
        explained(self.0.seal(report))
    }

    fn sealed(&self) -> Outcome<(CellSet, ExchangeReport)> {
        explained(self.0.sealed())
    }

    fn suspect(&self, _: u32, suspects: &[Suspect]) -> Outcome<()> {
        explained(self.0.suspect(suspects))
    }

    fn fetch(&self) -> PortFuture<'_, Outcome<()>> {
        match self.0.take_suspects() {
            Some(suspects) => self.apart(move |workshop| workshop.fetch(&suspects)),
            None => Box::pin(async { Ok(()) }),
        }
    }

    fn items(&self, cell: u32) -> Outcome<Vec<Item>> {
        explained(self.0.items(cell))
    }

    fn gather(&self, _: GroupCountOrder) -> PortFuture<'_, Outcome<Vec<u64>>> {
        // Before the thread starts, so that a thread left over from an earlier attempt cannot clear what
        // this attempt learns.
        let begun = self.0.forget_groups();
        self.apart(move |workshop| begun.and_then(|()| workshop.gather()))
    }

    fn claims(&self, range: RecordRange) -> Outcome<Vec<Claim>> {
        explained(self.0.claims(range))
    }

    fn parts(&self, places: &[RecordId]) -> Outcome<Vec<RecordPart>> {
        explained(self.0.parts(places))
    }

    fn learn(&self, owner: WorkerId, groups: Vec<Group>) -> Outcome<()> {
        explained(self.0.learn(owner, &groups))
    }

    fn seal_groups(&self) -> Outcome<Vec<u8>> {
        explained(self.0.seal_groups())
    }

    fn write(&self, order: WriteOrder) -> PortFuture<'_, Outcome<Written>> {
        self.0.forget_claims();
        self.apart(move |workshop| workshop.write(&order))
    }

    fn commit(&self) -> PortFuture<'_, Outcome<()>> {
        self.apart(FileWorkshop::commit)
    }

    fn add(&self) -> PortFuture<'_, Outcome<()>> {
        self.apart(FileWorkshop::add)
    }

    fn conclude(&self, result: &JobResult) -> PortFuture<'_, Outcome<()>> {
        let result = result.clone();
        self.apart(move |workshop| workshop.conclude(&result, page_of))
    }

    fn summary(&self) -> Vec<u8> {
        self.0.summary()
    }

    fn end(&self, keep_scratch: bool) {
        self.0.end(keep_scratch);
    }
}
