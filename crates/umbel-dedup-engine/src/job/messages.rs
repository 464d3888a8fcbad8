//! The messages between the coordinator and the workers of a job.

use super::super::entry::WorkerId;
use super::super::plan::{JobShape, Plan, ReferenceShape, SampleOrder};
use super::super::report::ExchangeReport;
use super::cell_set::CellSet;
use serde::{Deserialize, Serialize};

/// A worker's estimate of its input, from sizes of files and samples of their contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Forecast {
    /// Bytes as stored.
    pub stored_bytes: u64,
    /// Bytes after decompression.
    pub content_bytes: u64,
    /// Records.
    pub records: u64,
    /// Chunks of the input; exact.
    pub chunks: u32,
    /// Memory that the worker may use, in bytes.
    pub memory_bytes: u64,
    /// The references, if the job has any: the same at all workers.
    pub references: Option<KnownReferences>,
}

/// The references of a job. Every worker has all of them; as an owner it reads those of its own cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KnownReferences {
    /// Number of hashes, and bits of each.
    pub shape: ReferenceShape,
    /// Digest of their content.
    pub digest: [u8; 16],
}

/// What a worker has read.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Items that entered the job.
    pub items: u64,
    /// Records, bad ones included.
    pub records: u64,
    /// The largest number of record ids that one chunk has.
    pub chunk_items_max: u64,
    /// Bad records that were skipped.
    pub bad: u64,
    /// What other workers need to name this one's records in their reports, encoded by the driver; empty unless the job
    /// reports kept records.
    pub catalogue: Vec<u8>,
}

/// The order to read.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReadOrder {
    /// The shape of the job.
    pub shape: JobShape,
    /// Number in the job of the worker's first chunk. Chunks are numbered over all workers, in the order of workers.
    pub chunk_base: u32,
}

/// The order to write.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WriteOrder {
    /// Number in the job of each worker's first chunk.
    pub chunk_bases: Vec<u32>,
    /// Each worker's [`Counts::catalogue`].
    pub catalogues: Vec<Vec<u8>>,
    /// Each worker's [`GroupCountResult::weights`].
    pub weights: Vec<Vec<u8>>,
}

/// The order to count groups.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupCountOrder {
    /// Number in the job of each worker's first chunk.
    pub chunk_bases: Vec<u32>,
    /// Whether owners answer claims with the sizes of the groups.
    pub sends_sizes: bool,
    /// Whether records have parts: then owners answer claims with sizes, records and parts.
    pub names_parts: bool,
}

/// The result of counting groups at one worker.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GroupCountResult {
    /// Counters of what it has sent.
    pub report: ExchangeReport,
    /// How much of each of its files was repeated, encoded by the driver; empty unless the job reports files. All workers
    /// need it for their reports.
    pub weights: Vec<u8>,
}

/// What a worker has written.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Written {
    /// Items that were kept.
    pub kept: u64,
    /// Items that were dropped as duplicates.
    pub dropped: u64,
    /// What the summary needs, encoded by the driver.
    pub detail: Vec<u8>,
}

/// What is durable at a worker.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Stage {
    /// The order to read, once reading has begun.
    pub order: Option<ReadOrder>,
    /// What was read, once reading has ended.
    pub counts: Option<Counts>,
    /// The result of counting groups, once that has ended.
    pub group_count: Option<GroupCountResult>,
    /// What was written, once writing has ended.
    pub written: Option<Written>,
    /// Whether the outputs have their names.
    pub committed: bool,
    /// Whether kept items were added to the cluster's filter.
    pub added: bool,
}

/// A message of the coordinator to a worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Read the input.
    Read(ReadOrder),
    /// End every earlier attempt at the exchange, and report the decided cells.
    Stop {
        /// The attempt that begins.
        attempt: u32,
    },
    /// Send the sample.
    Sample {
        /// The attempt.
        attempt: u32,
        /// The order.
        order: SampleOrder,
    },
    /// Exchange all cells that are not decided at all workers.
    Exchange {
        /// The attempt.
        attempt: u32,
        /// The plan.
        plan: Plan,
        /// The cells that are decided at all workers.
        decided: CellSet,
    },
    /// All cells are decided: count the groups.
    CountGroups {
        /// The attempt.
        attempt: u32,
        /// The order.
        order: GroupCountOrder,
    },
    /// Write the outputs under temporary names.
    Write(WriteOrder),
    /// Rename the outputs to their names.
    Commit,
    /// All outputs have their names: add kept items to the cluster's filter.
    Add,
    /// The job is done.
    Finish,
    /// The job has ended without a result.
    Abort {
        /// The cause, for people.
        cause: String,
        /// Whether the job can be resumed: keep what is durable.
        resumable: bool,
    },
}

/// A message of a worker to the coordinator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum WorkerMessage {
    /// The worker has connected.
    Join {
        /// Its estimate of its input.
        forecast: Forecast,
        /// What is durable.
        stage: Box<Stage>,
        /// The highest attempt that it knows; 0 for none.
        attempt: u32,
    },
    /// All input was read; its entries are durable.
    ReadDone(Counts),
    /// The worker has stopped exchanging.
    Stopped {
        /// The attempt of the order to stop.
        attempt: u32,
        /// The cells that are decided at this worker, durably.
        decided: CellSet,
    },
    /// What the worker, as an owner, has counted in the sample.
    Sampled {
        /// The attempt.
        attempt: u32,
        /// Entries of all workers in its part.
        entries: u64,
        /// How many of them collided.
        candidates: u64,
    },
    /// A peer cannot be reached, or has disconnected: the attempt cannot be completed.
    Trouble {
        /// The attempt.
        attempt: u32,
        /// The peer.
        peer: WorkerId,
        /// The cause, for people.
        cause: String,
    },
    /// All cells are decided at this worker, durably, and as an owner it has sent all verdicts.
    Exchanged {
        /// The attempt.
        attempt: u32,
        /// What it has sent and found in all attempts, as far as that is durable.
        report: Box<ExchangeReport>,
    },
    /// The worker has its own groups and those of its dropped records, durably.
    GroupsCounted {
        /// The attempt.
        attempt: u32,
        /// The result.
        group_count: Box<GroupCountResult>,
    },
    /// The outputs are durable, under temporary names.
    Written(Written),
    /// The outputs have their names.
    Committed,
    /// Kept items were added to the cluster's filter.
    Added,
    /// The worker cannot continue.
    Failed {
        /// The cause, for people: names file, record or path.
        cause: String,
        /// Whether the job can be resumed once the cause is fixed.
        resumable: bool,
    },
    /// The worker has received the end of the job, and has made it durable.
    Ended,
}
