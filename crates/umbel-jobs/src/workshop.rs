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
    Claim, Drops, Entry, ExchangeReport, KeptGroup, Rank, RecordId, RecordPart, RecordRange, Route,
    Suspect, SuspectItem, WorkerId,
};
use umbel_engine::meta::ClusterVersion;
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
/// What a call needs from an earlier one is in the type of that one's result: entries and decisions are
/// those of a begun [`Attempt`], items those that were fetched, claims those that were gathered.
pub trait Workshop: Send + Sync + 'static {
    /// The journal records written so far, oldest first.
    ///
    /// # Errors
    /// If the journal is damaged before its end; a torn end is cut off.
    fn journal_records(&self) -> Result<Vec<Vec<u8>>, WorkshopError>;

    /// Appends a journal record. On return, the record and all earlier ones are durable.
    ///
    /// # Errors
    /// If it cannot be made durable.
    fn append_record(&self, record: &[u8]) -> Result<(), WorkshopError>;

    /// Like [`Workshop::append_record`], for a record after which only the journal is needed: a process
    /// that is restarted finds it even if an earlier process has removed part of the scratch space.
    ///
    /// # Errors
    /// As [`Workshop::append_record`].
    fn append_end_record(&self, record: &[u8]) -> Result<(), WorkshopError> {
        self.append_record(record)
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

    /// Begins an attempt at the exchange, and discards what earlier attempts have not sealed. Only one
    /// attempt is used at a time.
    ///
    /// # Errors
    /// If scratch space cannot be read.
    fn begin_attempt(&self) -> Result<BegunAttempt, WorkshopError>;

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
    fn add(&self) -> PortFuture<'_, Result<(), WorkshopError>>;

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

/// An attempt that has begun, and what earlier attempts have sealed.
pub struct BegunAttempt {
    /// The sealed cells.
    pub sealed: CellSet,
    /// The counters of the last seal.
    pub report: ExchangeReport,
    /// The worker's data during the attempt.
    pub attempt: Arc<dyn Attempt>,
}

/// A worker's data during one attempt at the exchange, after the input was read.
pub trait Attempt: Send + Sync {
    /// The worker's entries in every owner's sample, one list per owner.
    ///
    /// # Errors
    /// If scratch space cannot be read.
    fn sample(&self) -> Result<Vec<Vec<Entry>>, WorkshopError>;

    /// The worker's entries in a cell, including repetitions, in any order, with the rank of each entry
    /// if the job keeps the best: one rank per entry in the same order if the shape says so
    /// ([`JobShape::ranks_entries`]), otherwise none.
    ///
    /// # Errors
    /// If scratch space cannot be read.
    ///
    /// [`JobShape::ranks_entries`]: umbel_dedup_engine::JobShape::ranks_entries
    fn entries(&self, cell: u32) -> Result<(Vec<Entry>, Vec<Rank>), WorkshopError>;

    /// Hashes that earlier jobs have kept in a range of the hash space, in any order; none if the
    /// forecast has no references.
    ///
    /// # Errors
    /// If an index cannot be read or is damaged.
    fn references(&self, range: HashRange) -> Result<Vec<ItemHash>, WorkshopError>;

    /// Records that a cell is decided: these items are dropped. Not durable before the next
    /// [`Attempt::seal`]; if a cell is decided again, it has the same drops.
    ///
    /// # Errors
    /// If scratch space cannot be written.
    fn decide(&self, cell: u32, drops: Drops) -> Result<(), WorkshopError>;

    /// Makes all decisions so far durable, together with the counters.
    ///
    /// # Errors
    /// If they cannot be made durable: the previous seal then still holds.
    fn seal(&self, report: &ExchangeReport) -> Result<(), WorkshopError>;

    /// Exactness `bytes`: records suspects of a cell, whose items must be compared. There can be as many as
    /// records, so they are not collected in memory first.
    ///
    /// # Errors
    /// If scratch space cannot be read.
    fn suspect(&self, cell: u32, suspects: &[Suspect]) -> Result<(), WorkshopError>;

    /// Exactness `bytes`: reads the items of all suspects again.
    ///
    /// # Errors
    /// As for [`Workshop::read`].
    fn fetch(&self) -> PortFuture<'_, Result<CellItems, WorkshopError>>;

    /// Called when all cells are decided at all workers: sorts this worker's dropped records by their
    /// kept record, and discards all groups that were not sealed.
    ///
    /// # Errors
    /// If scratch space cannot be read or written.
    fn gather(
        &self,
        order: GroupCountOrder,
    ) -> PortFuture<'_, Result<Box<dyn GatheredGroups>, WorkshopError>>;
}

/// The fetched items of each cell.
pub type CellItems = Arc<dyn Fn(u32) -> Result<Vec<SuspectItem>, WorkshopError> + Send + Sync>;

/// A worker's dropped records, sorted by their kept record, and the sizes of groups as they arrive.
pub trait GatheredGroups: Send + Sync {
    /// The number of record ids in each of this worker's own chunks.
    fn record_counts(&self) -> Vec<u64>;

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
    fn parts(&self, record_ids: &[RecordId]) -> Result<Vec<RecordPart>, WorkshopError>;

    /// Stores the sizes of groups: all of this worker's own, or those of another worker for which it
    /// has dropped records. Groups of one worker arrive in ascending order. Not durable before
    /// [`GatheredGroups::seal`], after which no more groups are stored.
    ///
    /// # Errors
    /// If scratch space cannot be written.
    fn learn(&mut self, owner: WorkerId, groups: Vec<KeptGroup>) -> Result<(), WorkshopError>;

    /// Makes all groups durable, and returns how much of this worker's files was repeated; the order to
    /// write contains this from all workers ([`WriteOrder::weights`]). Empty if no output reports
    /// files.
    ///
    /// # Errors
    /// If they cannot be made durable.
    fn seal(&mut self) -> Result<Vec<u8>, WorkshopError>;
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
    /// Checks that a description is valid, that it says rightly whether the submission gives a seed, and that
    /// this node may do what it says. Returns the version of the cluster since which nodes can read such a
    /// description.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    fn check(&self, spec: &[u8], gives_seed: bool) -> Result<ClusterVersion, String>;

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
