//! Every limit of a job's network side, named, with its reason.

use std::time::Duration;

use umbel_dedup_engine::Passage;
use umbel_dedup_engine::limits::FRAME_PAYLOAD_BYTES_MAX;

use crate::raft::encoding::ENCODED_BYTES_MAX;

/// Largest word or order: what a decoder takes in. The largest ones hold what workers need to name
/// each other's records.
pub(super) const BODY_BYTES_MAX: usize = ENCODED_BYTES_MAX;

/// Largest message of a control stream: a body and what is around it.
pub(super) const CONTROL_MESSAGE_BYTES_MAX: usize = BODY_BYTES_MAX + (64 << 10);

/// A message of frames takes what waits up to here, and a larger frame is cut: no receiver sets
/// aside more than this before it has come.
pub(super) const FRAMES_MESSAGE_BYTES: usize = 256 << 10;

/// Largest message of frames that is taken in: frames and what is around each.
pub(super) const FRAMES_MESSAGE_BYTES_MAX: usize = 4 * FRAMES_MESSAGE_BYTES;

/// What a frame costs in a message beside its bytes.
pub(super) const FRAME_HEAD_BYTES: usize = 8;

/// Largest frame: its payload and its header, and on the grid who made it and who gets it.
pub(super) const FRAME_BYTES_MAX: usize = FRAME_PAYLOAD_BYTES_MAX + 64 + Passage::HEAD_BYTES_MAX;

/// Bytes of others' frames that wait for a neighbour, if not one frame's alone: some messages, which fill
/// a stream's window. Whoever brings more waits.
pub(super) const PASSED_ON_BYTES_MAX: usize = 4 * FRAMES_MESSAGE_BYTES;

/// Frames that wait for a task; senders wait behind them.
pub(super) const LANE_FRAMES_WAITING_MAX: usize = 16;

/// Lanes of a worker: each holds two segments of every owner in memory, so more of them would make
/// the cells of a job smaller for little gain.
pub(super) const CELL_TASKS_MAX: u32 = 4;

/// Whoever has nothing to say on a control stream says that.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// A control stream on which nothing was received for this long is dead.
pub(super) const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(15);

/// A worker to which no stream of frames can be opened for this long is in trouble.
pub(super) const FRAMES_PATIENCE: Duration = Duration::from_secs(15);

/// First waiting time between tries to connect; it doubles with each further one.
pub(super) const BACKOFF_MIN: Duration = Duration::from_millis(50);

/// Longest waiting time between tries.
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// A worker that is refused for so long because its number is taken, or because somebody with another
/// secret is where the coordinator should be, gives up: longer than a dead control stream takes to be
/// noticed, and longer than [`LINGER`].
pub(super) const DOUBLE_PATIENCE: Duration = Duration::from_secs(20);

/// How long the coordinator of an ended job waits for workers that do not know of the end.
pub(super) const LINGER: Duration = Duration::from_secs(10);

/// How long a worker that cannot go on tries to say so.
pub(super) const FAREWELL: Duration = Duration::from_secs(5);

/// Settled cells are made durable when there are so many, or after [`SEAL_INTERVAL`]: what a crash
/// may make a job exchange again.
pub(super) const SEAL_CELLS: u32 = 64;

/// See [`SEAL_CELLS`].
pub(super) const SEAL_INTERVAL: Duration = Duration::from_secs(1);

/// Words that wait for the coordinator; their senders wait behind them.
pub(super) const WORDS_WAITING_MAX: usize = 16;

/// Orders that wait for a worker: a worker that does not take so many is lost.
pub(super) const ORDERS_WAITING_MAX: usize = 64;
