//! Every limit of the exchange, named, with its reason. Each is checked before anything is allocated for it.

/// Most workers of one duplicate-detection job. Every cell has a stream from each worker, so headers alone are
/// workers² of some twelve bytes a pass.
pub const DEDUP_WORKERS_MAX: u32 = 1024;

/// Most attempts at the exchange of one job that anybody may tell of. Each takes a broken connection, so no job comes
/// so far, and the numbers behind it are free for all that follow.
pub const JOB_ATTEMPT_MAX: u32 = 1 << 24;

/// Most workers that talk to each other directly. Above it every one would hold hundreds of connections with their
/// buffers, and send messages too short to pay for a packet: the exchange goes over a grid of two hops instead, which
/// costs nearly twice the bytes.
pub const DIRECT_WORKERS_MAX: u32 = 256;

/// Most cells (hash ranges that are exchanged one at a time) of a job: 1,024 workers with 64 cells each, and sixteen
/// times that for jobs whose cells must be small.
pub const DEDUP_CELLS_MAX: u32 = 1 << 20;

/// Bits of a [`Place`](crate::Place) that number the chunk: 16 million chunks are a petabyte at 64 MiB each.
pub const PLACE_CHUNK_BITS: u32 = 24;

/// Bits of a [`Place`](crate::Place) that number the item in its chunk.
pub const PLACE_ITEM_BITS: u32 = 40;

/// Most refinement bits: beyond 24 they cost more than settling a survivor ever saves (r* ≈ log2(128·ln 2) = 6.5).
pub const REFINE_BITS_MAX: u32 = 24;

/// A frame is cut when its payload has grown to this: large enough that the header is nothing, small enough that
/// 1,024 peers with two frames each stay below 2 GiB.
pub const FRAME_PAYLOAD_BYTES_CUT: usize = 1 << 20;

/// Largest payload accepted from a peer. Only a frame of items can pass the cut: it holds at least one whole item,
/// and the largest record that umbel reads is 1 GiB.
pub const FRAME_PAYLOAD_BYTES_MAX: usize = (1 << 30) + FRAME_PAYLOAD_BYTES_CUT;

/// Most entries of one worker in one cell. A cell is meant to be worked on in cache; this leaves room for inputs
/// whose size was guessed a thousand times too small, and keeps every index in 32 bits.
pub const CELL_ENTRIES_MAX: usize = 1 << 28;

/// Frames a worker keeps for later when they arrive before its own orders, a peer. A sender has at most this many
/// frames unacknowledged.
pub const EARLY_FRAMES_PER_PEER_MAX: usize = 4;

/// Cells that peers may open at an owner that has not come to them itself. Workers that keep to the order of cells are
/// at most two segments ahead in each of four lanes, and one that has fewer lanes sees all eight in one.
pub const DEDUP_CELLS_AHEAD_MAX: usize = 64;

/// Most places of a range of a tally: few enough that their counts (8 bytes each) are nothing beside the least memory of
/// a worker, many enough that the frames about a range are nothing beside what it took to read its records.
pub const TALLY_RANGE_PLACES_MAX: u64 = 1 << 18;

/// Fewest places of a range of a tally, however many workers are asked about it: with fewer, empty answers of 1,024
/// workers would cost more than a byte a record.
pub const TALLY_RANGE_PLACES_MIN: u64 = 1 << 15;

/// Claims on one range of a tally, of all workers together, if every record of it stands with each of them. They are held
/// coded, in a byte or two each. No worker is asked for more at once, however large the job.
pub const TALLY_RANGE_CLAIMS_MAX: u64 = 1 << 24;
