//! Every limit of a node that is no setting, with its reason.

use std::time::Duration;

/// Largest item: 16 MiB. An item is hashed where it arrives, so its length costs only the wire.
pub const ITEM_BYTES_MAX: usize = 16 << 20;

/// Largest message of a client: one item of the largest size, or 65,536 of 256 bytes, with room for
/// what is around them.
pub const CLIENT_MESSAGE_BYTES_MAX: usize = ITEM_BYTES_MAX + (1 << 20);

/// Calls of one client connection that are carried out at once; further ones wait in its window.
pub const CLIENT_CALLS_PER_CONNECTION_MAX: usize = 64;

/// How long a call may take whose client names no time.
pub const CALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// How long a call may take at most.
pub const CALL_TIMEOUT_MAX: Duration = Duration::from_secs(300);

/// How long one try at one replica may take before another one is tried.
pub const TRY_TIMEOUT: Duration = Duration::from_secs(2);

/// Waiting time before the first repetition of a try; it doubles up to `RETRY_WAIT_MAX`.
pub const RETRY_WAIT_MIN: Duration = Duration::from_millis(10);

/// Longest waiting time between tries: a tenth of what an election takes, with what has to be noticed before it.
pub const RETRY_WAIT_MAX: Duration = Duration::from_millis(50);

/// Proposals of a shard's leader that are on their way at once; what arrives meanwhile travels
/// together in the next one. Two: while one is being synced the next is on its way, and an entry
/// costs every replica far more than its items do.
pub const PROPOSALS_IN_FLIGHT_MAX: usize = 2;

/// Inserts that travel in one entry of the log: 65,536 hashes are 1 MiB.
pub const PROPOSAL_ITEMS_MAX: usize = 1 << 16;

/// Requests that may wait for a shard's leader to propose them.
pub const PROPOSAL_QUEUE_MAX: usize = 4096;

/// Frames of an export that travel in one answer between nodes: 4 MiB.
pub const EXPORT_ANSWER_BYTES: usize = 4 << 20;

/// Payload of a frame of an export: small enough to be one entry of a log when it is imported.
pub const EXPORT_FRAME_PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// Exports that a node serves at once: each holds one filter's slice, which is copied if it is written meanwhile.
pub const EXPORTS_MAX: usize = 4;

/// Snapshots that a node serves at once: each holds the slices of a filter in all shards that the node leads, and those that
/// are written meanwhile are in memory twice.
pub const SNAPSHOTS_MAX: usize = 1;

/// How long a shard's writes wait for a snapshot at most: until every shard has been asked twice. Less than clients wait for
/// an insert.
pub const SNAPSHOT_HOLD_MAX: Duration = Duration::from_secs(4);

/// Tries of a snapshot: each that fails may have held writes back for so long.
pub(crate) const SNAPSHOT_TRIES_MAX: usize = 4;

/// Replicated filters that a node puts together from an import at once: each is a whole filter in
/// memory, up to 1 GiB, beside the copy that it goes into.
pub const WHOLE_IMPORTS_MAX: usize = 2;

/// An export that nobody asked for this long is let go.
pub const EXPORT_IDLE_MAX: Duration = Duration::from_secs(60);

/// Random items that a slice or copy is asked for whenever it is described: they take about as long as counting
/// a few megabytes, and measure a rate of 1 % to within a tenth of itself.
pub(crate) const RATE_PROBES: u32 = 10_000;

/// Those of them that are asked for in one go: a tenth of a millisecond where each is a miss of every cache.
pub(crate) const RATE_PROBES_AT_ONCE: u32 = 1_000;

/// Words of a filter whose ones are counted in one go: 256 KiB, some tens of microseconds, which neither a
/// heartbeat nor an insert notices.
pub(crate) const COUNTED_WORDS_MAX: usize = 32 << 10;
