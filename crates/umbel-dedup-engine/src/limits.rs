//! The limits of exchange and job, with their reasons. Each is checked before memory is allocated for what it limits.

/// Most workers of a job. Every cell has a stream from each worker, so headers alone are workers² times about twelve
/// bytes per pass.
pub const DEDUP_WORKERS_MAX: u32 = 1024;

/// The largest attempt number that a joining worker may report. Every attempt takes a broken connection, so
/// no job reaches it, and the numbers above it remain for the attempts that follow.
pub const JOB_ATTEMPT_MAX: u32 = 1 << 24;

/// Most workers with direct connections. With more, each would have hundreds of connections with their buffers, and send
/// messages too short for a packet; then the exchange goes over a grid with two hops, at nearly twice the bytes.
pub const DIRECT_WORKERS_MAX: u32 = 256;

/// Most cells (hash ranges that are exchanged one at a time) of a job: sixteen times 1,024 workers with 64 cells each, for
/// jobs whose cells must be small.
pub const DEDUP_CELLS_MAX: u32 = 1 << 20;

/// Bits of a [`RecordId`](crate::RecordId) that number the chunk: 16 million chunks are a petabyte at 64 MiB each.
pub const RECORD_ID_CHUNK_BITS: u32 = 24;

/// Bits of a [`RecordId`](crate::RecordId) that number the item in its chunk.
pub const RECORD_ID_ITEM_BITS: u32 = 40;

/// Most refinement bits. More than 24 cost more than a survivor's residue can save (r* ≈ log2(128·ln 2) = 6.5).
pub const REFINE_BITS_MAX: u32 = 24;

/// A frame is complete when its payload has grown to this: large enough that the header does not matter, small enough
/// that two frames from each of 1,024 peers take about 2 GiB.
pub const FRAME_PAYLOAD_BYTES_CUT: usize = 1 << 20;

/// Largest payload accepted from a peer: a frame of items has at least one whole item, and the largest record that Umbel
/// reads is 1 GiB.
pub const FRAME_PAYLOAD_BYTES_MAX: usize = (1 << 30) + FRAME_PAYLOAD_BYTES_CUT;

/// Most entries of one worker in one cell. Cells are planned to fit into the cache; this allows inputs whose size was
/// estimated a thousand times too small, and every index fits into 32 bits.
pub const CELL_ENTRIES_MAX: usize = 1 << 28;

/// Most frames per peer that a worker stores if they arrive before its sample order or plan. A sender has at
/// most this many frames unacknowledged.
pub const EARLY_FRAMES_PER_PEER_MAX: usize = 4;

/// Most cells at an owner for which peers have sent frames and which the owner itself has not begun. Workers
/// that keep to the order of cells are at most two segments ahead in each of four tasks, so a worker with one
/// task sees at most eight.
pub const DEDUP_CELLS_AHEAD_MAX: usize = 64;

/// Most records of a range while groups are counted: few enough that their counters (8 bytes each) are small compared
/// with the least memory of a worker, and enough that a range's frames cost little compared with reading its records.
pub const GROUP_COUNT_RANGE_RECORDS_MAX: u64 = 1 << 18;

/// Fewest records of a range while groups are counted, for any number of workers: with fewer, the empty answers of 1,024
/// workers would cost more than a byte per record.
pub const GROUP_COUNT_RANGE_RECORDS_MIN: u64 = 1 << 15;

/// Most claims on one range while groups are counted, of all workers together: as many as if every worker had dropped
/// others for every record of it. They are stored encoded, in one or two bytes each.
pub const GROUP_COUNT_RANGE_CLAIMS_MAX: u64 = 1 << 24;
