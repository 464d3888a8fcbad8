//! All limits of the engine, with their reasons. Each is checked before anything is allocated for it.

/// Longest name of a filter, in bytes: long enough for a path or an address, short enough for a line of a
/// list.
pub const FILTER_NAME_BYTES_MAX: usize = 1024;

/// Most shards of a cluster. Each costs its nodes a few tasks and a heartbeat; 1,024 keep 32 cores busy on
/// 32 nodes.
pub const SHARD_COUNT_MAX: u32 = 1024;

/// Most merges of shards of a cluster, and so the last era of a shard's group: the groups of the next era
/// would have the numbers of copies of replicated filters ([`GroupId`](crate::GroupId)). One merge a minute
/// leads there after two years.
pub const ERA_MAX: u32 = (1 << 20) - 1;

/// Most replicas of a shard: with nine, four may fail.
pub const REPLICA_COUNT_MAX: u32 = 9;

/// Most items of one request: 64 Ki hashes take 1 MiB in a log, and their answers 8 KiB.
pub const REQUEST_ITEMS_MAX: usize = 1 << 16;

/// Largest slice of one filter in one shard: it is sent in snapshots, and copied while requests wait.
pub const SLICE_BYTES_MAX: u64 = 256 << 20;

/// Where a frame of a shard's snapshot is cut: large enough that its header is negligible, small enough to
/// be built on demand.
pub const SNAPSHOT_FRAME_BYTES_CUT: usize = 1 << 20;

/// Largest filter over all shards.
pub const FILTER_BYTES_MAX: u64 = 64 << 30;

/// Largest replicated filter: a copy is copied in memory for a snapshot, and sent whole to a node that
/// joins.
pub const REPLICATED_BYTES_MAX: u64 = 1 << 30;

/// Most filters of a cluster: every node holds the catalogue, and each snapshot contains all of it.
pub const FILTER_COUNT_MAX: usize = 10_000;

/// Most nodes of a cluster: every node is a member of the meta group.
pub const NODE_COUNT_MAX: usize = 256;

/// Most bytes that a shard spends on recorded answers. At n/8 bytes for a request of n items, these are the
/// answers for the last 250 million items, or 300,000 requests of one item each.
pub const REPLAY_BYTES_MAX: usize = 32 << 20;

/// Most sessions that a shard keeps. Above it, the owner with the most sessions loses its least recently
/// used one.
pub const REPLAY_SESSIONS_MAX: usize = 1 << 16;

/// Most owners for which a shard tracks forgotten sessions separately: two generations of all principals of
/// a cluster. Above it, the forgotten sessions of the owner with the oldest ones count as forgotten for all
/// owners.
pub const REPLAY_OWNERS_MAX: usize = 1 << 13;

/// Most requests of one session that a shard records. A client with more requests in flight loses recorded
/// answers.
pub const REPLAY_REQUESTS_PER_SESSION_MAX: usize = 4096;

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

/// Longest specification of a job, in bytes: file patterns for every node of a cluster, and options.
pub const JOB_SPEC_BYTES_MAX: usize = 256 << 10;

/// Longest cause of a failed job that the ledger keeps, in bytes: a message with a path, a record and the
/// system's error.
pub const JOB_CAUSE_BYTES_MAX: usize = 4 << 10;

/// Longest summary that the ledger keeps, in bytes; longer ones are only in the job's own outputs.
pub const JOB_SUMMARY_BYTES_MAX: usize = 64 << 10;

/// Most jobs that run in a cluster at once: each takes memory and the disks of all of its nodes.
pub const JOBS_RUNNING_MAX: usize = 16;

/// Most jobs in the ledger, including ended ones: each snapshot of the meta group contains their
/// specifications and summaries.
pub const JOBS_KEPT_MAX: usize = 128;

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
