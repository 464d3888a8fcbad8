//! Every limit between nodes, named, with its reason.

use std::time::Duration;

/// Largest body of a call or an answer: the largest record of a log (64 MiB) and what is around it.
pub(crate) const LINK_BODY_BYTES_MAX: usize = 65 << 20;

/// Largest message of a link: one body of the largest size with its head, or a batch.
pub(crate) const LINK_MESSAGE_BYTES_MAX: usize = LINK_BODY_BYTES_MAX + (64 << 10);

/// A message takes what waits up to here: enough that heads cost nothing, little enough that an
/// urgent call behind it waits for milliseconds on a link of 1 Gbit/s.
pub(crate) const LINK_BATCH_BYTES: usize = 256 << 10;

/// What a call or an answer costs beside its body, at most.
pub(crate) const LINK_HEAD_BYTES: usize = 48;

/// Most calls of a queue (Raft, others) that wait to be sent on a link.
pub(crate) const LINK_QUEUE_CALLS_MAX: usize = 4096;

/// Most bytes of a queue that wait to be sent on a link: at least one body of the largest size.
pub(crate) const LINK_QUEUE_BYTES_MAX: usize = 128 << 20;

/// Most calls of a link that were sent and wait for their answers, or wait to be sent.
pub(crate) const LINK_CALLS_PENDING_MAX: usize = 16 << 10;

/// Most calls of one link, Raft's aside, that a node works on at once.
pub(crate) const LINK_CALLS_IN_FLIGHT_MAX: usize = 1024;

/// Most Raft calls of one link that a node works on at once: a heartbeat and an append of each of
/// 1,024 shards and the meta group.
pub(crate) const LINK_RAFT_CALLS_IN_FLIGHT_MAX: usize = 4096;

/// Most KiB of bodies that a node works on at once, for Raft's calls of a link and for the others.
pub(crate) const LINK_IN_FLIGHT_KIB_MAX: usize = 128 << 10;

/// A link is not read while so many answers wait to be sent on it.
pub(crate) const LINK_ANSWERS_WAITING_MAX: usize = 8192;

/// Most links of one node that another one serves: a node makes one, and an old one may not be gone yet
/// when its successor comes. When there is one more, the oldest ends.
pub(crate) const LINKS_PER_NODE_MAX: usize = 3;

/// Most nodes that a node serves links of whose numbers it does not know (yet): as many as a cluster
/// has, for a node that starts knows none. When there is one more, the oldest link of such a number
/// ends; those of known numbers stay.
pub(crate) const UNKNOWN_NODES_MAX: usize = umbel_engine::limits::NODE_COUNT_MAX;

/// The longest timeout that a caller is granted; a call that asks for more gets this.
pub(crate) const CALL_TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// A connection that is not there after this will not come: a handshake takes one round trip.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A link whose peer has not accepted it after this is given up.
pub(crate) const LINK_OPEN_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection that is quiet for this long is pinged.
pub(crate) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// A connection whose ping is not answered in this time is dead.
pub(crate) const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(2);

/// A call that times out takes the link down if nothing was answered on it for this long while
/// something was asked.
pub(crate) const LINK_SILENT: Duration = Duration::from_millis(1500);

/// Links that were not used for this long are closed when another one is made.
pub(crate) const LINK_IDLE: Duration = Duration::from_secs(60);

/// First waiting time after a failure; it doubles with each further one.
pub(crate) const LINK_BACKOFF_MIN: Duration = Duration::from_millis(50);

/// Longest waiting time between two tries: a node whose network is back is unreachable for so long, and two
/// connections a second cost nothing.
pub(crate) const LINK_BACKOFF_MAX: Duration = Duration::from_millis(500);

/// HTTP/2 window of a stream: 1 Gbit/s over 16 ms, or 10 Gbit/s over 1.6 ms.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 2 << 20;

/// HTTP/2 window of a connection.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// Waiting time after a connection that could not be taken, so that a lack of file descriptors is
/// no busy loop.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a connection began to send (the preface of HTTP/2, a frame, a request's headers) must have
/// ended after this: each fits into a few packets, which take seconds on the worst of lines.
pub(crate) const OWED_TIMEOUT: Duration = Duration::from_secs(10);
