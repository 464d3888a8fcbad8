//! The port to a worker's own data: its input, its scratch, its outputs.
//!
//! Production has files and threads behind it, simulations a model that crashes and fills up. Calls
//! that take long are futures; the others may block for the time of a small file access and are made
//! from the job's own runtime, never from that of a node.

use std::sync::Arc;

use thiserror::Error;
use tokio::runtime::Handle;
use umbel_dedup_engine::job::{
    CellSet, Counts, Forecast, GroupCountOrder, JobResult, JobRules, ReadOrder, WriteOrder, Written,
};
use umbel_dedup_engine::{
    Claim, Drops, Entry, ExchangeReport, Group, Item, Rank, RecordId, RecordPart, RecordRange,
    Route, Suspect, WorkerId,
};
use umbel_engine::{JobId, NodeId};
use umbel_filter::{HashRange, ItemHash};

use crate::ports::PortFuture;

/// Why a worker cannot go on. The text names file, record or path, and says what was expected.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{cause}")]
pub struct WorkshopError {
    /// For people.
    pub cause: String,
    /// Whether the job can be taken up again once the cause is mended: a full disk can, bad input
    /// that was not allowed cannot.
    pub resumable: bool,
}

/// A worker's own data. One job, one worker; a worker that is started again opens the same scratch
/// and finds what was durable.
///
/// Order of calls: `forecast`; `read` until it has succeeded once; then any number of attempts, each
/// of `entries` and `decide` for cells in any order, with `seal` in between, and where outputs report
/// groups `gather` and then `claims` and `learn`; then `write`, `commit`, and where the job adds what
/// stays to a filter `add`.
pub trait Workshop: Send + Sync + 'static {
    /// What was marked before, oldest first.
    ///
    /// # Errors
    /// If the journal is damaged before its end: a torn end is cut.
    fn marks(&self) -> Result<Vec<Vec<u8>>, WorkshopError>;

    /// Adds a mark. Durable on return, and behind everything that returned before.
    ///
    /// # Errors
    /// If it cannot be made durable.
    fn mark(&self, mark: &[u8]) -> Result<(), WorkshopError>;

    /// As [`Workshop::mark`], of a mark behind which nothing is needed but marks: a process that is started again finds
    /// it even if an earlier one has removed a part of the scratch.
    ///
    /// # Errors
    /// As [`Workshop::mark`].
    fn mark_end(&self, mark: &[u8]) -> Result<(), WorkshopError> {
        self.mark(mark)
    }

    /// What the worker expects of its input.
    ///
    /// # Errors
    /// If an input cannot be found or opened.
    fn forecast(&self) -> Result<Forecast, WorkshopError>;

    /// Reads all input to scratch; what an earlier call had finished (chunk by chunk) is not read
    /// again. Durable on return.
    ///
    /// # Errors
    /// The first bad record that is not allowed, a full disk, an input that has changed.
    fn read(&self, order: ReadOrder) -> PortFuture<'_, Result<Counts, WorkshopError>>;

    /// The worker's entries in the sample of every owner, one list an owner.
    ///
    /// # Errors
    /// If scratch cannot be read.
    fn sample(&self) -> Result<Vec<Vec<Entry>>, WorkshopError>;

    /// The worker's entries in a cell, repeats included, in any order.
    ///
    /// # Errors
    /// If scratch cannot be read.
    fn entries(&self, cell: u32) -> Result<Vec<Entry>, WorkshopError>;

    /// The same, and how each entry ranks where the job keeps the best: one rank an entry, in the
    /// order of the entries, if the shape says so ([`JobShape::ranks_entries`]), and none else.
    ///
    /// # Errors
    /// If scratch cannot be read.
    ///
    /// [`JobShape::ranks_entries`]: umbel_dedup_engine::JobShape::ranks_entries
    fn ranked_entries(&self, cell: u32) -> Result<(Vec<Entry>, Vec<Rank>), WorkshopError> {
        Ok((self.entries(cell)?, Vec::new()))
    }

    /// What earlier jobs have kept in a range of the hash space, in any order; nothing where the
    /// forecast speaks of no references.
    ///
    /// # Errors
    /// If an index cannot be read or is damaged.
    fn references(&self, range: HashRange) -> Result<Vec<ItemHash>, WorkshopError> {
        let _ = range;
        Ok(Vec::new())
    }

    /// The cell is decided: these items are dropped. Not durable before the next [`seal`]; a cell
    /// that is decided again brings the same drops.
    ///
    /// # Errors
    /// If scratch cannot be written.
    ///
    /// [`seal`]: Workshop::seal
    fn decide(&self, cell: u32, drops: Drops) -> Result<(), WorkshopError>;

    /// Makes everything decided so far durable, and the figures with it.
    ///
    /// # Errors
    /// If it cannot be made durable: what is sealed is then what was before.
    fn seal(&self, report: &ExchangeReport) -> Result<(), WorkshopError>;

    /// The cells that are sealed, and the figures of the last seal. Calling it forgets what
    /// was decided and not sealed, and all suspects.
    ///
    /// # Errors
    /// If scratch cannot be read.
    fn sealed(&self) -> Result<(CellSet, ExchangeReport), WorkshopError>;

    /// Level `bytes`: notes records of a cell whose items are to be compared, until [`Workshop::sealed`] is called for the
    /// next attempt. A job may have as many as records, so they are not listed anywhere before.
    ///
    /// # Errors
    /// If scratch cannot be read.
    fn suspect(&self, cell: u32, suspects: &[Suspect]) -> Result<(), WorkshopError>;

    /// Level `bytes`: reads the items of all suspects again, to be had by [`Workshop::items`].
    ///
    /// # Errors
    /// As for `read`.
    fn fetch(&self) -> PortFuture<'_, Result<(), WorkshopError>>;

    /// The items of a cell that were fetched.
    ///
    /// # Errors
    /// If scratch cannot be read.
    fn items(&self, cell: u32) -> Result<Vec<Item>, WorkshopError>;

    /// All cells are decided everywhere: sorts what this worker has dropped by what was kept, to be
    /// had by [`Workshop::claims`], and forgets all groups that were not sealed. Returns how many
    /// places each of its own chunks has.
    ///
    /// # Errors
    /// If scratch cannot be read or written.
    fn gather(&self, order: GroupCountOrder) -> PortFuture<'_, Result<Vec<u64>, WorkshopError>>;

    /// How many of this worker's records were dropped for each in a range, by places of the job, in
    /// rising order; a record that is kept nowhere, for a reference holds it, is claimed by nobody.
    ///
    /// # Errors
    /// If scratch cannot be read.
    fn claims(&self, range: RecordRange) -> Result<Vec<Claim>, WorkshopError>;

    /// Where records have parts: which one each of these places is, all of them this worker's, in
    /// their order.
    ///
    /// # Errors
    /// If one is no such place.
    fn parts(&self, places: &[RecordId]) -> Result<Vec<RecordPart>, WorkshopError> {
        let cause = format!("{} records of a job without parts have none", places.len());
        Err(WorkshopError { cause, resumable: false })
    }

    /// These groups are so large: all of this worker's own, or those of another one that it has
    /// dropped records for. Those of one worker come in rising order, and not durable before
    /// [`Workshop::seal_groups`], behind which nothing is to be learned any more.
    ///
    /// # Errors
    /// If scratch cannot be written.
    fn learn(&self, owner: WorkerId, groups: Vec<Group>) -> Result<(), WorkshopError>;

    /// Makes all groups durable, and says how much of this worker's files was repeated: what stands in the order to write,
    /// of all workers ([`WriteOrder::weights`]). Empty where no output reports files.
    ///
    /// # Errors
    /// If they cannot be made durable.
    fn seal_groups(&self) -> Result<Vec<u8>, WorkshopError>;

    /// Writes all outputs aside. Durable on return; outputs that an earlier call had finished are
    /// not written again. Where the job drops what a filter of a cluster holds, that is asked before,
    /// once: its answers are durable before the first output is begun.
    ///
    /// # Errors
    /// If an output cannot be written, a filter does not answer, or the input has changed since it was
    /// read.
    fn write(&self, order: WriteOrder) -> PortFuture<'_, Result<Written, WorkshopError>>;

    /// Puts the outputs under their names. May be called again after a crash in between.
    ///
    /// # Errors
    /// If a name cannot be taken.
    fn commit(&self) -> PortFuture<'_, Result<(), WorkshopError>>;

    /// Adds what stays to the filter of a cluster: the outputs of all workers stand under their names.
    /// May be called again after a crash in between; what was added is not added again once this has
    /// returned.
    ///
    /// # Errors
    /// If the filter does not answer, or the input is not as it was read.
    fn add(&self) -> PortFuture<'_, Result<(), WorkshopError>> {
        Box::pin(async { Ok(()) })
    }

    /// At the coordinator, once all workers have done all of it: the summary, durable on return.
    ///
    /// # Errors
    /// If it cannot be written.
    fn conclude(&self, result: &JobResult) -> PortFuture<'_, Result<(), WorkshopError>>;

    /// What the job came to, in the form of the program that runs it; empty before `conclude`.
    fn summary(&self) -> Vec<u8> {
        Vec::new()
    }

    /// The job has ended: removes scratch, unless the job may be taken up again. A future of a call
    /// above may have been dropped before it was done: what it left running must have stopped when
    /// this returns.
    fn end(&self, keep_scratch: bool);
}

/// A job as its worker on this node is to do it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobSite {
    /// The job.
    pub job: JobId,
    /// This node, for messages.
    pub node: NodeId,
    /// Where the cluster reaches this node, and so where the node reaches its own cluster.
    pub address: String,
    /// Its place among the workers.
    pub worker: WorkerId,
    /// All workers' nodes, in their order.
    pub workers: Vec<NodeId>,
    /// Seed of the job's hash.
    pub seed: u64,
    /// What the job does.
    pub spec: Vec<u8>,
}

/// A worker's data, opened.
pub struct OpenJob {
    /// The data.
    pub workshop: Arc<dyn Workshop>,
    /// What the job decides by; the same at all workers, for it follows from the description.
    pub rules: JobRules,
    /// How frames go between workers; as [`Route::for_workers`] says if nothing stands here. The same at all workers.
    pub route: Option<Route>,
}

/// Opens the data of jobs on a node.
pub trait Workshops: Send + Sync + 'static {
    /// Whether a description makes sense, and this node may do what it says; the error is for
    /// people.
    ///
    /// # Errors
    /// What is wrong with it.
    fn check(&self, spec: &[u8]) -> Result<(), String>;

    /// Opens a job's input, scratch and outputs, and finds what was durable.
    ///
    /// # Errors
    /// If there is no input, an output stands already, or scratch cannot be used.
    fn open(&self, site: JobSite) -> PortFuture<'_, Result<OpenJob, WorkshopError>>;

    /// Jobs that have scratch on this node.
    fn stored(&self) -> Vec<JobId>;

    /// Removes a job's scratch and what it has written aside.
    fn discard(&self, job: JobId);

    /// Lanes of an exchange, at least 1, and the runtime that they run on: not the node's own, which
    /// must not wait for a task's work. None where there is but one, in simulations.
    fn cell_tasks(&self) -> (u32, Option<Handle>);
}
