//! All limits of replicated filters, with their reasons. Each is checked before anything is allocated for it.

/// Most nodes of a hypercube: twelve rounds. With more nodes, the version vector in a message would become
/// too long.
pub const CUBE_NODE_COUNT_MAX: u32 = 4096;

/// Most bytes that the lists of all frames of one delta may take in memory: half of the largest replicated
/// filter. A node that lacks more gets the whole filter instead.
pub const DELTA_LIST_BYTES_MAX: u64 = 512 << 20;

/// Most changes that a delta lists. At 16 bytes each they leave an eighth of `DELTA_LIST_BYTES_MAX` for
/// what each frame takes besides its list. Four times as many as the delta log holds by default.
pub const DELTA_CHANGES_MAX: usize = 28 << 20;

/// Most entries of a replica's delta log, whatever is configured: 2 GiB.
pub const DELTA_LOG_ENTRIES_MAX: usize = 1 << 28;

/// Most marks of a replica's delta log. Each has a version vector, 16 bytes per node. A partner that missed
/// more sweeps than there are marks gets what the replica's last answer left out, or the whole filter.
pub const DELTA_MARKS_MAX: usize = 32;

/// Most nodes for which a copy keeps counts: all nodes of a cube, and as many that have left.
pub const VERSION_NODES_MAX: usize = 2 * CUBE_NODE_COUNT_MAX as usize;

/// Most hashes of a sample of distinct items, k. The relative error of a count is 1/√(k−2): 3.1 % at 1,024,
/// 6.3 % at 256; of an overlap that is a tenth of the union, 9.9 % and 19.8 %. A hash is sent over a link
/// only once, so over 10^9 items a sample costs k·(1 + ln(10^9/k)) hashes per link: 121 kB at 1,024 and 33
/// kB at 256, negligible next to 8 GB of changes. Memory is 16 bytes per hash: 16 KiB per node and filter,
/// 4 MiB per filter in the largest cluster.
pub const SAMPLE_HASHES_MAX: usize = 1024;

/// Most nodes for which the overlaps of all pairs are estimated: 496 pairs, a few microseconds each.
pub const OVERLAP_NODES_MAX: usize = 32;

/// Most blocks of 4 KiB of an array that is repaired: 64 GiB, with a residue table of 256 MiB.
pub const REPAIR_BLOCKS_MAX: u32 = 1 << 24;

/// Most blocks of an array of a single-shot filter's positions, most of which are empty: 3.4 * 10^10
/// positions, with a residue table of 16 MiB.
pub const REPAIR_SPARSE_BLOCKS_MAX: u32 = 1 << 20;

/// Most set positions of a single-shot filter that is repaired: 1 GiB as numbers, as much as the largest
/// replicated filter.
pub const REPAIR_POSITIONS_MAX: u64 = 1 << 27;

/// Most blocks of a window of a repair session: if all of them differ in most bits, the initiator holds 64
/// MiB.
pub const REPAIR_WINDOW_BLOCKS_MAX: usize = 1 << 14;

/// Most windows of a repair session that are open at once: sixteen cover an array of 1 GiB in which every
/// block differs. A responder holds 64 KiB for each.
pub const REPAIR_WINDOWS_MAX: usize = 16;

/// Most bytes that the initiator of a repair session holds for all windows together before only the oldest
/// may continue: as much as one window takes if all its blocks differ in most bits.
pub const REPAIR_HELD_BYTES_MAX: usize = 64 << 20;

/// Most bytes of answers that may be outstanding in a repair session, unless they answer a single question.
/// It bounds what a responder has to send; at a round trip of 50 ms it is 80 MB per second.
pub const REPAIR_UNANSWERED_BYTES_MAX: usize = 4 << 20;

/// Most bytes that one step of a repair session outputs: twice what an initiator may have requested. A
/// session whose peer requested more fails.
pub const REPAIR_STEP_BYTES_MAX: u64 = 8 << 20;

/// Most bytes of the answer to one question of a repair session.
pub const REPAIR_ANSWER_BYTES_MAX: usize = 1 << 20;

/// Where a repair frame is cut.
pub const REPAIR_FRAME_BODY_BYTES_CUT: usize = 1 << 16;

/// Most bits that one frame of a repair session sets: about 30 KiB as gaps, and 128 KiB as numbers.
pub const REPAIR_PUSH_BITS_MAX: usize = 1 << 14;

/// How often a responder reads each block for its initiator, on average. An honest initiator needs eight
/// reads, for syndromes in five rounds and hashes in two, if all blocks differ.
pub const REPAIR_READS_PER_BLOCK_MAX: u64 = 24;
