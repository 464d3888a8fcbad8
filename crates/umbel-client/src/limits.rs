//! Every limit of the client, named, with its reason.

use std::time::Duration;

/// Most items of one request: the cluster refuses more.
pub const REQUEST_ITEMS_MAX: usize = 1 << 16;

/// A request is cut before its items' bytes pass this: large enough that the request costs nothing
/// an item, small enough that a few of them in flight fit a connection's window. Only a single item
/// that is longer makes a longer request.
pub const REQUEST_DATA_BYTES_CUT: usize = 8 << 20;

/// Longest item. One of this length still makes a message that servers accept.
pub const ITEM_BYTES_MAX: usize = 16 << 20;

/// Most items of one batch, so that their numbers fit 32 bits.
pub const BATCH_ITEMS_MAX: usize = u32::MAX as usize;

/// Largest message that is accepted from a node: a frame of an export is far below it.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Sequence numbers between the oldest request in flight and the newest of a session. Nodes
/// remember 4,096 requests of a session; beyond half of that the client opens another session, so
/// that a request that waits for long keeps its first answer.
pub(crate) const SESSION_WINDOW_MAX: u64 = 2048;

/// Most nodes that are learned from a shard map: a cluster has at most 256.
pub(crate) const LEARNED_NODES_MAX: usize = 1024;

/// Most shards of a map that is accepted: a cluster has at most 1,024.
pub(crate) const SHARD_COUNT_MAX: usize = 1 << 16;

/// How much longer than the node the client waits for an answer: the node's own word on the
/// deadline says more than silence.
pub(crate) const ANSWER_GRACE: Duration = Duration::from_millis(250);

/// Longest wait for a node's shard map: a request may wait for it.
pub(crate) const MAP_TIMEOUT: Duration = Duration::from_millis(700);

/// Shortest time from one try to fetch a shard map to the next.
pub(crate) const MAP_PAUSE: Duration = Duration::from_millis(100);

/// Longest wait for word that a replicated filter still is one: its calls wait for it.
pub(crate) const CATALOGUE_PATIENCE: Duration = Duration::from_millis(700);

/// Sessions that are opened for one request before it is given up.
pub(crate) const SESSIONS_PER_REQUEST_MAX: u32 = 3;

/// Batches of single items of one handle, and of one kind of call, on their way at once: while one is
/// being answered the next is on its way, and all that comes meanwhile is the third.
pub(crate) const SINGLES_BATCHES_MAX: usize = 2;

/// Nodes that are asked for the shard map before the old one is kept.
pub(crate) const MAP_ATTEMPTS_MAX: u32 = 3;

/// First time that a failed node is left alone; it doubles with each further failure.
pub(crate) const AVOID_FIRST: Duration = Duration::from_millis(200);

/// Longest time that a failed node is left alone.
pub(crate) const AVOID_MAX: Duration = Duration::from_secs(10);

/// HTTP/2 window of one call, so that a whole request travels without waiting.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 16 << 20;

/// HTTP/2 window of one connection.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 32 << 20;

/// A connection on which a call waits and nothing comes for so long is probed. Nodes elect another leader in half a second:
/// whoever waits for the old one much longer notices the failure by that alone.
pub(crate) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_millis(150);

/// How long a probe may stay without an answer; then the call is sent to another node, if it may be sent twice. The
/// node's network answers probes, not what works on the call.
pub(crate) const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_millis(300);

/// The same of a connection that copies and changes of the catalogue travel on: a probe and its answer wait behind all that
/// lies in buffers on the way, which takes ten seconds for 16 MiB at 13 Mbit a second. A copy that breaks off begins anew, and
/// what became of a change is not known then.
pub(crate) const PATIENT_KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// How long a probe of such a connection may stay without an answer.
pub(crate) const PATIENT_KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Names of one page of a list: the most that nodes give.
pub(crate) const LIST_PAGE_NAMES: u32 = 1000;

/// Longest text of a node's measurements: some thousand series have a tenth of it.
pub(crate) const MEASUREMENTS_BYTES_MAX: usize = 8 << 20;
