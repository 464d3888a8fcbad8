//! Every limit of the engine, named, with its reason. Each is checked before anything is allocated for it.

/// Longest name of a filter. Long enough for a path or an address, short enough for a line of a list.
pub const FILTER_NAME_BYTES_MAX: usize = 1024;

/// Most shards of a cluster. Each costs its nodes a few tasks and a heartbeat; 1,024 keep 32 cores busy on 32 nodes.
pub const SHARD_COUNT_MAX: u32 = 1024;

/// Most replicas of a shard: four may fail.
pub const REPLICA_COUNT_MAX: u32 = 9;

/// Most items of one request: 64 Ki hashes are 1 MiB in a log, and their answers 8 KiB.
pub const REQUEST_ITEMS_MAX: usize = 1 << 16;

/// Largest slice of one filter in one shard: it must travel in a snapshot and be copied while others wait.
pub const SLICE_BYTES_MAX: u64 = 256 << 20;

/// Where a frame of a shard's snapshot is cut: large enough that its header is nothing, small enough to be made when it
/// is asked for.
pub const SNAPSHOT_FRAME_BYTES_CUT: usize = 1 << 20;

/// Largest filter over all shards.
pub const FILTER_BYTES_MAX: u64 = 64 << 30;

/// Largest replicated filter: a copy is copied in memory for a snapshot, and whole over the network for a node that joins.
pub const REPLICATED_BYTES_MAX: u64 = 1 << 30;

/// Most filters of a cluster: the catalogue is held by every node and travels whole in a snapshot.
pub const FILTER_COUNT_MAX: usize = 10_000;

/// Most nodes of a cluster: every one is a member of the meta group.
pub const NODE_COUNT_MAX: usize = 256;

/// Bytes that a shard spends at most to remember its answers. At n/8 bytes a request of n items these are the last
/// 250 million items, or 300,000 requests of one item each.
pub const REPLAY_BYTES_MAX: usize = 32 << 20;

/// Most sessions that a shard knows; then who has the most loses the one that was quiet for the longest.
pub const REPLAY_SESSIONS_MAX: usize = 1 << 16;

/// Most owners of sessions of whom a shard knows apart which sessions it has forgotten: two generations of all principals
/// of a cluster. Beyond them the sessions of others that are as old count as forgotten, too.
pub const REPLAY_OWNERS_MAX: usize = 1 << 13;

/// Most requests of one session that a shard remembers; a client with more on their way than this loses first answers.
pub const REPLAY_REQUESTS_PER_SESSION_MAX: usize = 4096;

/// Most nodes of a hypercube: twelve rounds. Above it a node's table of what all others know grows past what a message
/// should carry.
pub const CUBE_NODE_COUNT_MAX: u32 = 4096;

/// Bytes that the lists of all frames of one delta may take when they are read: half of the largest replicated filter,
/// so that who lacks more gets the filter instead.
pub const DELTA_LIST_BYTES_MAX: u64 = 512 << 20;

/// Most changes that a delta lists: of 16 bytes each they leave an eighth of `DELTA_LIST_BYTES_MAX` for what each frame
/// takes beside its list. Four times as many as the delta log holds unless it is configured.
pub const DELTA_CHANGES_MAX: usize = 28 << 20;

/// Most entries of a replica's delta log, whatever is configured: 2 GiB.
pub const DELTA_LOG_ENTRIES_MAX: usize = 1 << 28;

/// Most marks of a replica's delta log. Each holds what the copy knew, 16 bytes a node; a partner that missed more
/// sweeps than there are marks gets what its last answer left out, or the whole filter.
pub const DELTA_MARKS_MAX: usize = 32;

/// Most nodes of which a copy keeps counts: all of a cube, and as many that have left.
pub const VERSION_NODES_MAX: usize = 2 * CUBE_NODE_COUNT_MAX as usize;

/// Most hashes of a sample of distinct items, k. The relative error of a count is 1/√(k−2): 3.1 % at 1,024, 6.3 % at
/// 256; of an overlap that is a tenth of the union, 9.9 % and 19.8 %. A hash travels only once, so over a life of 10^9
/// items a sample costs a link k·(1 + ln(10^9/k)) hashes: 121 kB at 1,024, 33 kB at 256, and both are nothing beside
/// the 8 GB of changes. Held are 16 bytes a hash: 16 KiB a node and filter, 4 MiB a filter in the largest cluster.
pub const SAMPLE_HASHES_MAX: usize = 1024;

/// Most nodes of which every pair's overlap is estimated at once: 496 pairs, a few microseconds each.
pub const OVERLAP_NODES_MAX: usize = 32;

/// Longest description of a job: file patterns for every node of a cluster, and options.
pub const JOB_SPEC_BYTES_MAX: usize = 256 << 10;

/// Longest cause of a failed job that the ledger keeps: a message with a path, a record and what the system said.
pub const JOB_CAUSE_BYTES_MAX: usize = 4 << 10;

/// Longest summary that the ledger keeps; what is longer stands in the job's own outputs.
pub const JOB_SUMMARY_BYTES_MAX: usize = 64 << 10;

/// Most jobs that run in a cluster at once: each takes memory and the disks of all its nodes.
pub const JOBS_RUNNING_MAX: usize = 16;

/// Most jobs that the ledger knows, ended ones too: with their descriptions and summaries they are part of each snapshot
/// of the meta group.
pub const JOBS_KEPT_MAX: usize = 128;

/// Most blocks of 4 KiB of an array that is repaired: 64 GiB, whose residue table is 256 MiB.
pub const REPAIR_BLOCKS_MAX: u32 = 1 << 24;

/// Most blocks of an array of a single-shot filter's positions, most of which are empty: 3.4 * 10^10 positions, whose
/// residue table is 16 MiB.
pub const REPAIR_SPARSE_BLOCKS_MAX: u32 = 1 << 20;

/// Most set positions of a single-shot filter that is repaired: 1 GiB of numbers, as much as the largest replicated
/// filter.
pub const REPAIR_POSITIONS_MAX: u64 = 1 << 27;

/// Most blocks of a window of a repair session: if all of them differ in most of their bits, the initiator holds 64 MiB.
pub const REPAIR_WINDOW_BLOCKS_MAX: usize = 1 << 14;

/// Most windows of a repair session that are open at once: sixteen repair an array of 1 GiB of which every block differs. A
/// responder holds 64 KiB of each.
pub const REPAIR_WINDOWS_MAX: usize = 16;

/// Most bytes that the initiator of a repair session holds of all windows together, before the oldest alone may go on: as
/// much as one window takes of which all blocks differ in most of their bits.
pub const REPAIR_HELD_BYTES_MAX: usize = 64 << 20;

/// Most bytes of answers of a repair session that are due at once, if not one question's alone: what a responder holds that
/// it is about to send. At a round trip of 50 ms it is 80 MB a second.
pub const REPAIR_UNANSWERED_BYTES_MAX: usize = 4 << 20;

/// Most bytes that a step of a repair session gives to be sent: twice what an initiator may have asked for. One that has
/// asked for more must wait no longer.
pub const REPAIR_STEP_BYTES_MAX: u64 = 8 << 20;

/// Most bytes of the answer to one question of a repair session.
pub const REPAIR_ANSWER_BYTES_MAX: usize = 1 << 20;

/// Where a repair frame is cut.
pub const REPAIR_FRAME_BODY_BYTES_CUT: usize = 1 << 16;

/// Bits that one frame of a repair session sets: some 30 KiB of gaps, and 128 KiB as numbers.
pub const REPAIR_PUSH_BITS_MAX: usize = 1 << 14;

/// Times that a responder reads each block for its initiator, in the mean: an honest one comes to eight, for syndromes in
/// five rounds and hashes in two, where all blocks differ.
pub const REPAIR_READS_PER_BLOCK_MAX: u64 = 24;
