//! Every limit of the client, with its reason.

use std::time::Duration;

/// Most items of a request; the cluster refuses more.
pub const REQUEST_ITEMS_MAX: usize = 1 << 16;

/// A request is cut before its items exceed this many bytes: large enough to make the request's overhead
/// per item negligible, small enough for a few requests in flight to fit a connection's window. Only a
/// single longer item makes a longer request.
pub const REQUEST_DATA_BYTES_CUT: usize = 8 << 20;

/// Longest item. A message with one item of this length is still accepted by nodes.
pub const ITEM_BYTES_MAX: usize = 16 << 20;

/// Most items of a batch, so that an item's number fits 32 bits.
pub const BATCH_ITEMS_MAX: usize = u32::MAX as usize;

/// Largest message that the client accepts from a node. A frame of an export is far smaller.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Most sequence numbers between the oldest request in flight and the newest of a session. Nodes remember
/// 4,096 requests per session. Beyond half of that, the client opens another session, so that the answer
/// to a slow request is not forgotten.
pub(crate) const SESSION_WINDOW_MAX: u64 = 2048;

/// Most nodes that are taken from a shard map; a cluster has at most 256.
pub(crate) const LEARNED_NODES_MAX: usize = 1024;

/// Most shards of a shard map that is accepted; a cluster has at most 1,024.
pub(crate) const SHARD_COUNT_MAX: usize = 1 << 16;

/// How much longer the client waits for an answer than the node may take: a node's own report that the
/// deadline has passed says more than no answer.
pub(crate) const ANSWER_GRACE: Duration = Duration::from_millis(250);

/// Timeout to fetch a shard map from a node. It is short because requests may wait for the map.
pub(crate) const MAP_TIMEOUT: Duration = Duration::from_millis(700);

/// Shortest time between two attempts to fetch a shard map.
pub(crate) const MAP_PAUSE: Duration = Duration::from_millis(100);

/// Timeout to confirm that a replicated filter still is replicated. It is short because calls to the
/// filter wait for it.
pub(crate) const CATALOGUE_PATIENCE: Duration = Duration::from_millis(700);

/// Longest time of the options: sums with it are far from the end of any clock, and of the header that tells nodes a timeout.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Timeout of the call that opens a client's first session and learns about its first filter. It leaves time for a
/// distant node's connection, and is short because a replicated filter, which nodes of older builds do not answer here
/// without a majority, waits for it.
pub(crate) const FIRST_SESSION_PATIENCE: Duration = Duration::from_secs(3);

/// Most sessions that are opened for one request before it fails.
pub(crate) const SESSIONS_PER_REQUEST_MAX: u32 = 3;

/// Most batches of single items in flight, per handle and kind of call: while a node answers one, the
/// next is being sent, and items that arrive meanwhile form the third.
pub(crate) const SINGLES_BATCHES_MAX: usize = 2;

/// Most nodes that are asked for the shard map before the old map is used on.
pub(crate) const MAP_ATTEMPTS_MAX: u32 = 3;

/// How long a node is avoided after its first failure; the time doubles with each further one.
pub(crate) const AVOID_FIRST: Duration = Duration::from_millis(200);

/// Longest time that a failed node is avoided.
pub(crate) const AVOID_MAX: Duration = Duration::from_secs(10);

/// HTTP/2 window of a call, so that a whole request is sent without waiting for the receiver.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 16 << 20;

/// HTTP/2 window of a connection.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 32 << 20;

/// A connection is probed if a call waits on it and nothing has arrived for this time. Nodes elect
/// another leader within half a second; without the probe, a client that waits for the old leader would
/// notice the failure much later.
pub(crate) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_millis(150);

/// How long a probe may stay unanswered. Then the call fails, and is sent to another node if it may be
/// repeated. A node's network layer answers probes even while the call is being processed.
pub(crate) const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_millis(300);

/// The interval for connections that carry copies and changes of the catalogue. There, a probe and its
/// answer queue behind the data in buffers on the way: 16 MiB take ten seconds at 13 Mbit/s. A copy that
/// is cut off starts over, and the outcome of a change that is cut off is unknown.
pub(crate) const PATIENT_KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// How long a probe of such a connection may stay unanswered.
pub(crate) const PATIENT_KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Names per page of a list, the most that nodes return.
pub(crate) const LIST_PAGE_NAMES: u32 = 1000;

/// Longest text of a node's metrics; some thousand series take a tenth of it.
pub(crate) const MEASUREMENTS_BYTES_MAX: usize = 8 << 20;
