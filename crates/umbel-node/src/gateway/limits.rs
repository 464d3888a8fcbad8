//! Limits of the side of a node that clients see, with their reasons.

use std::time::Duration;

/// Calls that one connection may have open; HTTP/2 announces it to the client, which opens no more.
pub(super) const STREAMS_PER_CONNECTION_MAX: u32 = 200;

/// A connection on which nothing came for this long is pinged: proxies forget quiet ones after a
/// minute or more.
pub(super) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);

/// A connection whose ping is not answered in this time is closed.
pub(super) const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long calls that are running may go on when the node stops.
pub(super) const STOP_GRACE_MAX: Duration = Duration::from_secs(10);

/// How often the health service looks whether the node is ready.
pub(super) const HEALTH_INTERVAL: Duration = Duration::from_millis(500);

/// How long an answer takes back to the client at most: a call gives up so much before its client
/// does, so that the client receives the reason.
pub(super) const ANSWER_MARGIN_MAX: Duration = Duration::from_millis(50);

/// How long a call over all shards (create, clear, merge) may take whose client names no time; and a piece of a copy that
/// is read over the Redis protocol, for which a whole filter may have to be passed over.
pub(super) const LONG_CALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);

/// How long a status table waits for one node or shard.
pub(super) const STATUS_TIMEOUT: Duration = Duration::from_secs(1);

/// Questions of one status table that are on their way at once.
pub(super) const STATUS_CALLS_MAX: usize = 64;

/// Filters of one page of a list.
pub(super) const LIST_FILTERS_MAX: usize = 1000;

/// How long a request, or a message of many, may take to come, and longer only if it comes at
/// [`ARRIVAL_BYTES_PER_SECOND_MIN`] or more: those that are sent at once take less than a second, while
/// what has come of others holds memory.
pub(super) const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a long request that come in a second, at least: the largest takes under five minutes
/// then, and lines that are slower are rare.
pub(super) const ARRIVAL_BYTES_PER_SECOND_MIN: u64 = 64 << 10;

/// A stream of answers of which nothing was read for this long ends: it holds a copy of a filter, of which
/// there are few.
pub(super) const UNREAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of a long answer that a client of the Redis protocol takes in a second, at least, beyond what it takes in
/// [`UNREAD_TIMEOUT`]: what it has not taken holds memory. The largest answer takes 20 minutes then, and lines that are
/// slower are rare.
pub(super) const READING_BYTES_PER_SECOND_MIN: u64 = 64 << 10;

/// How long an export, an import or a reflection may take in all whose client names no time.
pub(super) const STREAM_TIMEOUT_DEFAULT: Duration = Duration::from_secs(15 * 60);

/// The same at most, whatever the client names: a day is enough for the largest filter on a slow line.
pub(super) const STREAM_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// Longest message of an error: in a header each byte may take three, and clients take 16 KiB of
/// headers.
pub(super) const ERROR_MESSAGE_BYTES_MAX: usize = 4096;

/// Longest message about a principal: 64 grants on names of 1,024 bytes, and their verbs.
pub(super) const ACCESS_MESSAGE_BYTES_MAX: usize = 128 << 10;

/// Longest life of a token for joining, in milliseconds: a week. Whoever reads it until then is a node.
pub(super) const JOIN_TOKEN_LIFETIME_MS_MAX: u64 = 7 * 24 * 3600 * 1000;

/// Longest message about a certificate: a request has some 300 bytes, an answer has a file of authorities.
pub(super) const ENROLMENT_MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Nodes that are enrolled at once: who calls has proved nothing yet.
pub(super) const ENROLMENTS_MAX: usize = 8;

/// How long one node is waited for to which an enrolment is passed on.
pub(super) const PASSED_ON_TIMEOUT: Duration = Duration::from_secs(5);

/// Life of a certificate that the cluster issues, in days; its node asks for the next one after two thirds.
pub(super) const ISSUED_DAYS: u32 = 90;

/// Connections of the Redis protocol that a node has at once, as Redis by default.
pub(super) const RESP_CONNECTIONS_MAX: usize = 10_000;

/// Commands of one connection that are read before their answers are written; then reading stops.
pub(super) const RESP_COMMANDS_IN_FLIGHT_MAX: usize = 1024;

/// Bytes that one read of such a connection takes: a pipeline of some hundred short commands. They lie
/// on the stack, so that a connection that says nothing has no buffer.
pub(super) const RESP_READ_BYTES: usize = 32 << 10;

/// Bytes of requests that such a connection may hold before they count among those of all clients: as
/// much as one read brings. They are answered before the next read.
pub(super) const RESP_FREE_BYTES: usize = RESP_READ_BYTES;

/// Bytes of answers that are kept before they are written.
pub(super) const RESP_WRITE_BYTES: usize = 64 << 10;

/// Commands that a transaction may queue: as many as fit its bytes if they are short.
pub(super) const RESP_TRANSACTION_COMMANDS_MAX: usize = 65_536;

/// Bytes of arguments that a transaction may queue: as many as one request may have.
pub(super) const RESP_TRANSACTION_BYTES_MAX: usize = 64 << 20;

/// Names that one `SCAN` looks at, whatever the client asks for.
pub(super) const RESP_SCAN_COUNT_MAX: u64 = 10_000;

/// How long a command waits for a filter that is being made, emptied or dropped.
pub(super) const RESP_BUSY_WAIT_MAX: Duration = Duration::from_secs(2);
