//! What coordinator and workers of a job say to each other.

use super::super::entry::WorkerId;
use super::super::plan::{JobShape, Plan, ReferenceShape, SampleOrder};
use super::super::report::ExchangeReport;
use super::cell_set::CellSet;
use serde::{Deserialize, Serialize};

/// What a worker expects of its input, from sizes and a look at the beginnings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Forecast {
    /// Stored bytes.
    pub stored_bytes: u64,
    /// Bytes once unpacked.
    pub content_bytes: u64,
    /// Records.
    pub records: u64,
    /// Chunks that the input is read in; exact.
    pub chunks: u32,
    /// Memory that the worker may use, in bytes.
    pub memory_bytes: u64,
    /// What earlier jobs have kept, if the job drops that: the same at all workers.
    pub references: Option<KnownReferences>,
}

/// The references of a job, as a worker holds them. Each holds all, for an owner asks those of its own hash ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KnownReferences {
    /// How many hashes, and how much of each.
    pub shape: ReferenceShape,
    /// Over their content.
    pub digest: [u8; 16],
}

/// What a worker has read.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Items that entered the job.
    pub items: u64,
    /// Records, bad ones included.
    pub records: u64,
    /// The most items that one chunk holds.
    pub chunk_items_max: u64,
    /// Bad records that were left out.
    pub bad: u64,
    /// What other workers need to name this one's records in their reports; the driver's own bytes, empty unless the
    /// job reports what was kept.
    pub catalogue: Vec<u8>,
}

/// Order to read.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReadOrder {
    /// Workers, cells, rules.
    pub shape: JobShape,
    /// Number in the job of the worker's first chunk: chunks are numbered through all workers, in their order.
    pub chunk_base: u32,
}

/// Order to write.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WriteOrder {
    /// Number in the job of each worker's first chunk.
    pub chunk_bases: Vec<u32>,
    /// Each worker's [`Counts::catalogue`].
    pub catalogues: Vec<Vec<u8>>,
    /// Each worker's [`Tallied::weights`].
    pub weights: Vec<Vec<u8>>,
}

/// Order to count the groups.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TallyOrder {
    /// Number in the job of each worker's first chunk.
    pub chunk_bases: Vec<u32>,
    /// Whether those who have dropped records hear how large the groups are.
    pub tells_sizes: bool,
    /// Whether records have parts, and they hear which one each kept place is.
    pub names_parts: bool,
}

/// What came of counting the groups at a worker.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Tallied {
    /// What it has sent for that.
    pub report: ExchangeReport,
    /// How much of its files was repeated, which all workers need to know before they tell of files; the driver's own
    /// bytes, empty unless the job does.
    pub weights: Vec<u8>,
}

/// What a worker has written.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Written {
    /// Items that stay.
    pub kept: u64,
    /// Items that were dropped as duplicates.
    pub dropped: u64,
    /// For the summary; the driver's own bytes.
    pub detail: Vec<u8>,
}

/// What of a job is durable at a worker.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Stage {
    /// The order that it reads by.
    pub order: Option<ReadOrder>,
    /// All was read.
    pub counts: Option<Counts>,
    /// The groups were counted.
    pub tallied: Option<Tallied>,
    /// All was written.
    pub written: Option<Written>,
    /// The outputs stand under their names.
    pub committed: bool,
    /// What stays was added to the filter of a cluster that the job adds to.
    pub added: bool,
}

/// From the coordinator to a worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Read the input.
    Read(ReadOrder),
    /// End every earlier attempt at the exchange, and tell what is settled.
    Stop {
        /// The attempt that begins.
        attempt: u32,
    },
    /// Send the sample.
    Sample {
        /// The attempt.
        attempt: u32,
        /// How.
        order: SampleOrder,
    },
    /// Exchange all cells but these.
    Exchange {
        /// The attempt.
        attempt: u32,
        /// How.
        plan: Plan,
        /// Settled at every worker.
        settled: CellSet,
    },
    /// All cells are settled: count the groups.
    Tally {
        /// The attempt.
        attempt: u32,
        /// How.
        order: TallyOrder,
    },
    /// Write the outputs aside.
    Write(WriteOrder),
    /// Put the outputs under their names.
    Commit,
    /// All outputs stand under their names: add what stays to the filter of a cluster.
    Add,
    /// All workers have done all of it: the job is done.
    Finish,
    /// The job has ended without a result.
    Abort {
        /// Why, for people.
        cause: String,
        /// Whether it may be taken up again: what is durable must stay.
        resumable: bool,
    },
}

/// From a worker to the coordinator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Word {
    /// The worker is there.
    Join {
        /// What it expects of its input.
        forecast: Forecast,
        /// What is durable.
        stage: Box<Stage>,
        /// The highest attempt that it has heard of; 0 for none.
        attempt: u32,
    },
    /// All was read, and that is durable.
    ReadDone(Counts),
    /// Nothing is exchanged any more.
    Stopped {
        /// By this order.
        attempt: u32,
        /// The worker's cells that are settled, durably.
        settled: CellSet,
    },
    /// What the worker saw of the sample as its owner.
    Sampled {
        /// The attempt.
        attempt: u32,
        /// Entries of all workers in its part.
        entries: u64,
        /// How many of them collided.
        candidates: u64,
    },
    /// A peer cannot be reached, or broke off: the attempt cannot end.
    Trouble {
        /// The attempt.
        attempt: u32,
        /// The peer.
        peer: WorkerId,
        /// What happened, for people.
        cause: String,
    },
    /// All of the worker's cells are settled, durably, and as an owner it owes no verdict.
    Exchanged {
        /// The attempt.
        attempt: u32,
        /// What it has sent and found in all attempts that it remembers.
        report: Box<ExchangeReport>,
    },
    /// The worker knows its groups, and those that it has dropped records for, durably.
    Tallied {
        /// The attempt.
        attempt: u32,
        /// What came of it.
        tallied: Box<Tallied>,
    },
    /// The outputs are durable, aside.
    Written(Written),
    /// They stand under their names.
    Committed,
    /// What stays was added to the filter of a cluster.
    Added,
    /// The worker cannot go on.
    Failed {
        /// Why, for people: names file, record or path.
        cause: String,
        /// Whether the job can be taken up again once the cause is mended.
        resumable: bool,
    },
    /// The worker has heard that the job has ended for good, and has made that durable.
    Ended,
}
