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

/// Largest slice of one filter in one shard: it is sent in snapshots, and copied where what changes it is not
/// kept position by position.
pub const SLICE_BYTES_MAX: u64 = 256 << 20;

/// Where a frame of a shard's snapshot is cut: large enough that its header is negligible, small enough to
/// be built on demand.
pub const SNAPSHOT_FRAME_BYTES_CUT: usize = 1 << 20;

/// Most bytes that are kept for a reader of a slice that changes, such as a snapshot: twelve million positions at two
/// bytes and a half, beside the places of their lists. At half fill, an item changes three or four bits. A slice of the
/// largest size is read in a second or two, and a million items a second change no more of what was not read yet.
/// Above it, the rest of the slice is copied.
pub const UNDO_LOG_BYTES_MAX: usize = 32 << 20;

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

/// How long a filter that is being imported outlives the node that loads it, in milliseconds. Long, because it is
/// measured with the clocks of two machines, which may be wrong by minutes.
pub const IMPORT_LEASE_MS: u64 = 60 * 60 * 1000;
