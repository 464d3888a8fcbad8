//! All limits of a node that are not settings, with their reasons.

use std::time::Duration;

pub use umbel_raft::peer::LINK_MESSAGE_BYTES_MAX;

/// Largest item: 16 MiB. An item is hashed on the node that receives it, so its length costs only
/// bandwidth.
pub const ITEM_BYTES_MAX: usize = 16 << 20;

/// Largest message of a client: one item of the largest size, or 65,536 items of 256 bytes, with some
/// overhead.
pub const CLIENT_MESSAGE_BYTES_MAX: usize = ITEM_BYTES_MAX + (1 << 20);

/// Concurrent calls of one client connection; further ones wait in its flow-control window.
pub const CLIENT_CALLS_PER_CONNECTION_MAX: usize = 64;

/// Time limit of a call whose client gives none.
pub const CALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// Longest time limit of a call.
pub const CALL_TIMEOUT_MAX: Duration = Duration::from_secs(300);

/// Time limit of one attempt at one replica before another one is tried.
pub const TRY_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause before the first retry; it doubles up to `RETRY_WAIT_MAX`.
pub const RETRY_WAIT_MIN: Duration = Duration::from_millis(10);

/// Longest pause between retries: a tenth of an election, including its detection delay.
pub const RETRY_WAIT_MAX: Duration = Duration::from_millis(50);

/// Entries with inserts of a shard's leader that are in flight at once, of each way in which they insert; what
/// arrives meanwhile is combined into the next one. Two: while one is being synced, the next is being sent; and an
/// entry costs every replica far more than its items do.
pub const PROPOSALS_IN_FLIGHT_MAX: usize = 2;

/// Most inserts in one entry of the log: 65,536 hashes are 1 MiB.
pub const PROPOSAL_ITEMS_MAX: usize = 1 << 16;

/// Requests that may wait to be proposed by a shard's leader, of each way in which they insert.
pub const PROPOSAL_QUEUE_MAX: usize = 4096;

/// Bytes of export frames in one response between nodes: 4 MiB.
pub const EXPORT_ANSWER_BYTES: usize = 4 << 20;

/// Most payload bytes of an export frame: small enough to become one log entry when it is imported.
pub const EXPORT_FRAME_PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// Exports that a node serves at once: for each, one slice of a filter keeps what changes meanwhile, or is copied in
/// memory.
pub const EXPORTS_MAX: usize = 4;

/// Snapshots of filters that a node serves at once: for each, the filter's slices in all shards that the node leads
/// keep what changes meanwhile, or are copied in memory.
pub const FILTER_SNAPSHOTS_MAX: usize = 1;

/// How long a snapshot of a filter may hold back a shard's writes: long enough to ask every shard twice, and
/// shorter than clients wait for an insert.
pub const FILTER_SNAPSHOT_HOLD_MAX: Duration = Duration::from_secs(4);

/// Attempts at a snapshot of a filter: each failed one may have held back writes for that long.
pub const FILTER_SNAPSHOT_TRIES_MAX: usize = 4;

/// Replicated filters that a node assembles from imports at once: each is a whole filter in memory, up
/// to 1 GiB, besides the copy that it is merged into.
pub const WHOLE_IMPORTS_MAX: usize = 2;

/// An export that is not used for this long is dropped.
pub const EXPORT_IDLE_MAX: Duration = Duration::from_secs(60);

/// Random items that are looked up whenever a slice or copy is described: that takes about as long as
/// counting a few megabytes, and measures a rate of 1 % to within a tenth of itself.
pub(crate) const RATE_PROBES: u32 = 10_000;

/// How many of them are looked up without a pause: a tenth of a millisecond if each misses all caches.
pub(crate) const RATE_PROBES_AT_ONCE: u32 = 1_000;

/// Words of a filter whose ones are counted without a pause: 256 KiB, some tens of microseconds, which
/// delay neither a heartbeat nor an insert noticeably.
pub const COUNTED_WORDS_MAX: usize = 32 << 10;
