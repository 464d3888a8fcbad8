//! The port to a worker's own data: its input, scratch space and outputs.
//!
//! In production it uses files and threads, in simulations a model that crashes and fills up. Calls
//! that take long are futures. The others may block for the time of a small file access; they are made
//! from the job's own runtime, never from a node's.

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
use umbel_ports::PortFuture;

/// Why a worker cannot continue. The text names the file, record or path, and says what was expected.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{cause}")]
pub struct WorkshopError {
    /// The text, for people.
    pub cause: String,
    /// Whether the job can be resumed once the cause is removed: true for a full disk, false for
    /// forbidden bad input.
    pub resumable: bool,
}

/// A worker's own data, for one job and one worker. A worker that is restarted opens the same scratch
/// space and finds what was durable.
///
/// Order of calls: `forecast`; `read` until it has succeeded once; then any number of attempts, each
/// with `entries` and `decide` for cells in any order and `seal` in between, and if outputs report
/// groups, with `gather` and then `claims` and `learn`; then `write`, `commit`, and `add` if the job
/// adds the surviving records to a filter.
pub trait Workshop: Send + Sync + 'static {
    /// The journal records written so far, oldest first.
    ///
    /// # Errors
    /// If the journal is damaged before its end; a torn end is cut off.
    fn marks(&self) -> Result<Vec<Vec<u8>>, WorkshopError>;

    /// Appends a journal record. On return, the record and all earlier ones are durable.
    ///
    /// # Errors
    /// If it cannot be made durable.
    fn mark(&self, mark: &[u8]) -> Result<(), WorkshopError>;

    /// Like [`Workshop::mark`], for a record after which only the journal is needed: a process that is
    /// restarted finds it even if an earlier process has removed part of the scratch space.
    ///
    /// # Errors
    /// As [`Workshop::mark`].
    fn mark_end(&self, mark: &[u8]) -> Result<(), WorkshopError> {
        self.mark(mark)
    }

    /// Estimates the worker's input.
    ///
    /// # Errors
    /// If an input cannot be found or opened.
    fn forecast(&self) -> Result<Forecast, WorkshopError>;

    /// Reads all input to scratch space; chunks that an earlier call had finished are not read again.
    /// Durable on return.
    ///
    /// # Errors
    /// The first bad record that is not permitted, a full disk, an input that has changed.
    fn read(&self, order: ReadOrder) -> PortFuture<'_, Result<Counts, WorkshopError>>;

    /// The worker's entries in every owner's sample, one list per owner.
    ///
    /// # Errors
    /// If scratch space cannot be read.
    fn sample(&self) -> Result<Vec<Vec<Entry>>, WorkshopError>;

    /// The worker's entries in a cell, including repetitions, in any order.
    ///
    /// # Errors
    /// If scratch space cannot be read.
    fn entries(&self, cell: u32) -> Result<Vec<Entry>, WorkshopError>;

    /// Like `entries`, with the rank of each entry if the job keeps the best: one rank per entry in the
    /// same order if the shape says so ([`JobShape::ranks_entries`]), otherwise none.
    ///
    /// # Errors
    /// If scratch space cannot be read.
    ///
    /// [`JobShape::ranks_entries`]: umbel_dedup_engine::JobShape::ranks_entries
    fn ranked_entries(&self, cell: u32) -> Result<(Vec<Entry>, Vec<Rank>), WorkshopError> {
        Ok((self.entries(cell)?, Vec::new()))
    }

    /// Hashes that earlier jobs have kept in a range of the hash space, in any order; none if the
    /// forecast has no references.
    ///
    /// # Errors
    /// If an index cannot be read or is damaged.
    fn references(&self, range: HashRange) -> Result<Vec<ItemHash>, WorkshopError> {
        let _ = range;
        Ok(Vec::new())
    }

    /// Records that a cell is decided: these items are dropped. Not durable before the next [`seal`];
    /// if a cell is decided again, it has the same drops.
    ///
    /// # Errors
    /// If scratch space cannot be written.
    ///
    /// [`seal`]: Workshop::seal
    fn decide(&self, cell: u32, drops: Drops) -> Result<(), WorkshopError>;

    /// Makes all decisions so far durable, together with the counters.
    ///
    /// # Errors
    /// If they cannot be made durable: the previous seal then still holds.
    fn seal(&self, report: &ExchangeReport) -> Result<(), WorkshopError>;

    /// The sealed cells, and the counters of the last seal. The call discards unsealed decisions and
    /// all suspects.
    ///
    /// # Errors
    /// If scratch space cannot be read.
    fn sealed(&self) -> Result<(CellSet, ExchangeReport), WorkshopError>;

    /// Level `bytes`: records suspects of a cell, whose items must be compared, until
    /// [`Workshop::sealed`] is called for the next attempt. There can be as many as records, so they
    /// are not collected in memory first.
    ///
    /// # Errors
    /// If scratch space cannot be read.
    fn suspect(&self, cell: u32, suspects: &[Suspect]) -> Result<(), WorkshopError>;

    /// Level `bytes`: reads the items of all suspects again, for [`Workshop::items`].
    ///
    /// # Errors
    /// As for `read`.
    fn fetch(&self) -> PortFuture<'_, Result<(), WorkshopError>>;

    /// The fetched items of a cell.
    ///
    /// # Errors
    /// If scratch space cannot be read.
    fn items(&self, cell: u32) -> Result<Vec<Item>, WorkshopError>;

    /// Called when all cells are decided at all workers: sorts this worker's dropped records by their
    /// kept record, for [`Workshop::claims`], and discards all groups that were not sealed. Returns the
    /// number of record ids in each of its own chunks.
    ///
    /// # Errors
    /// If scratch space cannot be read or written.
    fn gather(&self, order: GroupCountOrder) -> PortFuture<'_, Result<Vec<u64>, WorkshopError>>;

    /// For each kept record in a range of record ids, in ascending order, how many of this worker's
    /// records were dropped for it. A record that was dropped for a reference is in no claim.
    ///
    /// # Errors
    /// If scratch space cannot be read.
    fn claims(&self, range: RecordRange) -> Result<Vec<Claim>, WorkshopError>;

    /// If records have parts: the part that each of these record ids stands for, in the same order. All
    /// ids must be this worker's.
    ///
    /// # Errors
    /// If an id is not one of those.
    fn parts(&self, places: &[RecordId]) -> Result<Vec<RecordPart>, WorkshopError> {
        let cause = format!("{} records of a job without parts have none", places.len());
        Err(WorkshopError { cause, resumable: false })
    }

    /// Stores the sizes of groups: all of this worker's own, or those of another worker for which it
    /// has dropped records. Groups of one worker arrive in ascending order. Not durable before
    /// [`Workshop::seal_groups`], after which no more groups are stored.
    ///
    /// # Errors
    /// If scratch space cannot be written.
    fn learn(&self, owner: WorkerId, groups: Vec<Group>) -> Result<(), WorkshopError>;

    /// Makes all groups durable, and returns how much of this worker's files was repeated; the order to
    /// write contains this from all workers ([`WriteOrder::weights`]). Empty if no output reports
    /// files.
    ///
    /// # Errors
    /// If they cannot be made durable.
    fn seal_groups(&self) -> Result<Vec<u8>, WorkshopError>;

    /// Writes all outputs under temporary names. Durable on return; outputs that an earlier call had
    /// finished are not written again. If the job drops what a cluster's filter contains, the filter is
    /// asked first, once: its answers are durable before the first output is started.
    ///
    /// # Errors
    /// If an output cannot be written, a filter does not respond, or the input has changed since it was
    /// read.
    fn write(&self, order: WriteOrder) -> PortFuture<'_, Result<Written, WorkshopError>>;

    /// Renames the outputs to their final names. May be called again after a crash in between.
    ///
    /// # Errors
    /// If a name cannot be used.
    fn commit(&self) -> PortFuture<'_, Result<(), WorkshopError>>;

    /// Adds the surviving records to a cluster's filter, when the outputs of all workers have their
    /// final names. May be called again after a crash in between; nothing is added again once this has
    /// returned.
    ///
    /// # Errors
    /// If the filter does not respond, or the input has changed since it was read.
    fn add(&self) -> PortFuture<'_, Result<(), WorkshopError>> {
        Box::pin(async { Ok(()) })
    }

    /// At the coordinator, once all workers have completed the job: writes the summary, durable on
    /// return.
    ///
    /// # Errors
    /// If it cannot be written.
    fn conclude(&self, result: &JobResult) -> PortFuture<'_, Result<(), WorkshopError>>;

    /// The summary of the job, in the format of the program that runs it; empty before `conclude`.
    fn summary(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Called when the job has ended: removes scratch space, unless the job may be resumed. The future
    /// of an earlier call may have been dropped before its end: whatever it left running must have
    /// stopped when this returns.
    fn end(&self, keep_scratch: bool);
}

/// What a node's worker of a job needs to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobSite {
    /// The job.
    pub job: JobId,
    /// This node, for messages.
    pub node: NodeId,
    /// The address at which the cluster reaches this node, and at which the node reaches its own
    /// cluster.
    pub address: String,
    /// This node's number among the workers.
    pub worker: WorkerId,
    /// All workers' nodes, in the order of the workers.
    pub workers: Vec<NodeId>,
    /// Seed of the job's hash.
    pub seed: u64,
    /// The description of the job.
    pub spec: Vec<u8>,
}

/// A worker's opened data.
pub struct OpenJob {
    /// The data.
    pub workshop: Arc<dyn Workshop>,
    /// The rules of the job's decisions; the same at all workers, because they follow from the
    /// description.
    pub rules: JobRules,
    /// How frames travel between workers; if None, as [`Route::for_workers`] says. The same at all
    /// workers.
    pub route: Option<Route>,
}

/// Opens the data of jobs on a node.
pub trait Workshops: Send + Sync + 'static {
    /// Checks that a description is valid, and that this node may do what it says.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    fn check(&self, spec: &[u8]) -> Result<(), String>;

    /// Opens a job's input, scratch space and outputs, and finds what was durable.
    ///
    /// # Errors
    /// If the input does not exist, an output exists already, or scratch space cannot be used.
    fn open(&self, site: JobSite) -> PortFuture<'_, Result<OpenJob, WorkshopError>>;

    /// Jobs that have scratch space on this node.
    fn stored(&self) -> Vec<JobId>;

    /// Removes a job's scratch space and its unfinished outputs.
    fn discard(&self, job: JobId);

    /// Number of cell tasks of an exchange, at least 1, and their runtime: not the node's own, which
    /// must not wait for the tasks. None in simulations, which have a single runtime.
    fn cell_tasks(&self) -> (u32, Option<Handle>);
}
