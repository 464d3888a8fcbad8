//! All limits between nodes, with their reasons.

use std::time::Duration;

/// Largest body of a call or a response: the largest log record (64 MiB) with some overhead.
pub(crate) const LINK_BODY_BYTES_MAX: usize = 65 << 20;

/// Largest message on a link: one body of the largest size with its head, or a batch.
pub const LINK_MESSAGE_BYTES_MAX: usize = LINK_BODY_BYTES_MAX + (64 << 10);

/// A message takes waiting calls up to this size: large enough that heads cost nothing, small enough
/// that an urgent call behind it waits only milliseconds on a link of 1 Gbit/s.
pub(crate) const LINK_BATCH_BYTES: usize = 256 << 10;

/// Most bytes of a call or a response besides its body.
pub(crate) const LINK_HEAD_BYTES: usize = 48;

/// Most calls of one queue (Raft, others) that wait to be sent on a link.
pub(crate) const LINK_QUEUE_CALLS_MAX: usize = 4096;

/// Most bytes of one queue that wait to be sent on a link: at least one body of the largest size.
pub(crate) const LINK_QUEUE_BYTES_MAX: usize = 128 << 20;

/// Most calls of a link that wait to be sent or answered.
pub(crate) const LINK_CALLS_PENDING_MAX: usize = 16 << 10;

/// Most calls of one link, without Raft's, that a node processes at once.
pub(crate) const LINK_CALLS_IN_FLIGHT_MAX: usize = 1024;

/// Most Raft calls of one link that a node processes at once: a heartbeat and an append for each of
/// 1,024 shards and the meta group.
pub(crate) const LINK_RAFT_CALLS_IN_FLIGHT_MAX: usize = 4096;

/// Most KiB of bodies that a node processes at once, for the Raft calls of a link and for its other
/// calls.
pub(crate) const LINK_IN_FLIGHT_KIB_MAX: usize = 128 << 10;

/// A link is not read while this many answers wait to be sent on it.
pub(crate) const LINK_ANSWERS_WAITING_MAX: usize = 8192;

/// Most links of one peer that a node serves: a peer opens one, and its old one may still exist when
/// the new one arrives. If there is one more, the oldest ends.
pub(crate) const LINKS_PER_NODE_MAX: usize = 3;

/// Most peers with numbers unknown to this node whose links it serves: as many as a cluster has nodes,
/// because a node that starts knows none. If there is one more, the oldest link of an unknown number
/// ends; links of known numbers stay.
pub(crate) const UNKNOWN_NODES_MAX: usize = umbel_engine::limits::NODE_COUNT_MAX;

/// Longest timeout granted to a caller; a call that asks for more gets this.
pub(crate) const CALL_TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// Time limit for a peer to accept a link.
pub(crate) const LINK_OPEN_TIMEOUT: Duration = Duration::from_secs(2);

/// A call that times out takes the link down if calls have been waiting on it for this long without any
/// response.
pub(crate) const LINK_SILENT: Duration = Duration::from_millis(1500);

/// Links that were unused for this long are closed when another one is opened.
pub(crate) const LINK_IDLE: Duration = Duration::from_secs(60);

/// First pause after a failure; it doubles with each further failure.
pub(crate) const LINK_BACKOFF_MIN: Duration = Duration::from_millis(50);

/// Longest pause between two attempts: a node whose network has recovered stays unreachable for at most
/// this long, and two connections a second cost nothing.
pub(crate) const LINK_BACKOFF_MAX: Duration = Duration::from_millis(500);

/// Refusals in a row of a node that belongs to no cluster, from which on it counts as one whose data was replaced, and
/// not as one that is about to join: at the pauses between attempts these are 4 s at least, and joining takes less.
pub(crate) const JOINING_REFUSALS_MAX: u32 = 20;
