//! All limits of a job's network side, with their reasons.

use std::time::Duration;

use umbel_dedup_engine::Passage;
use umbel_dedup_engine::limits::FRAME_PAYLOAD_BYTES_MAX;
use umbel_ports::encoding::ENCODED_BYTES_MAX;

/// Largest word or order: what a decoder accepts. The largest contain what workers need to name each
/// other's records.
pub(super) const BODY_BYTES_MAX: usize = ENCODED_BYTES_MAX;

/// Largest message of a control stream: a body with some overhead.
pub(super) const CONTROL_MESSAGE_BYTES_MAX: usize = BODY_BYTES_MAX + (64 << 10);

/// A message of frames takes waiting frames up to this size, and a larger frame is split: a receiver
/// never reserves more than this in advance.
pub(super) const FRAMES_MESSAGE_BYTES: usize = 256 << 10;

/// Largest message of frames that is accepted: frames with the overhead of each.
pub(super) const FRAMES_MESSAGE_BYTES_MAX: usize = 4 * FRAMES_MESSAGE_BYTES;

/// Bytes of a frame in a message besides its content.
pub(super) const FRAME_HEAD_BYTES: usize = 8;

/// Largest frame: its payload and header, and on the grid its sender and receiver.
pub(super) const FRAME_BYTES_MAX: usize = FRAME_PAYLOAD_BYTES_MAX + 64 + Passage::HEAD_BYTES_MAX;

/// Most bytes of relayed frames that wait for a neighbour, or a single larger frame: a few messages,
/// enough to fill a stream's window. A stream that brings more waits.
pub(super) const PASSED_ON_BYTES_MAX: usize = 4 * FRAMES_MESSAGE_BYTES;

/// Most frames that wait for a task of an attempt; their senders wait meanwhile.
pub(super) const TASK_FRAMES_WAITING_MAX: usize = 16;

/// Most cell tasks of a worker: each holds two segments of every owner in memory, so more of them would
/// make the cells of a job smaller for little gain.
pub(super) const CELL_TASKS_MAX: u32 = 4;

/// A heartbeat is sent on a control stream after this long without another message.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// A control stream on which nothing was received for this long is dead.
pub(super) const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(15);

/// If no stream of frames to a worker can be opened for this long, that worker is reported as in
/// trouble.
pub(super) const FRAMES_PATIENCE: Duration = Duration::from_secs(15);

/// First pause between attempts to connect; it doubles with each further one.
pub(super) const BACKOFF_MIN: Duration = Duration::from_millis(50);

/// Longest pause between attempts to connect.
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// A worker gives up after it was refused for this long because its number is taken, or because a
/// process with another secret is at the coordinator's address. Longer than it takes to detect a dead
/// control stream, and longer than [`LINGER`].
pub(super) const DOUBLE_PATIENCE: Duration = Duration::from_secs(20);

/// How long the coordinator of an ended job waits for workers that do not know of the end.
pub(super) const LINGER: Duration = Duration::from_secs(10);

/// How long a worker that cannot continue tries to report that.
pub(super) const FAREWELL: Duration = Duration::from_secs(5);

/// Decided cells are made durable when there are this many, or after [`SEAL_INTERVAL`]: bounds what
/// must be exchanged again after a crash.
pub(super) const SEAL_CELLS: u32 = 64;

/// See [`SEAL_CELLS`].
pub(super) const SEAL_INTERVAL: Duration = Duration::from_secs(1);

/// Most words that wait for the coordinator; their senders wait meanwhile.
pub(super) const WORDS_WAITING_MAX: usize = 16;

/// Most orders that wait for a worker; a worker that does not accept them is considered lost.
pub(super) const ORDERS_WAITING_MAX: usize = 64;
