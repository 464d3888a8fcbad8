//! Limits of the interface to clients, with their reasons.

use std::time::Duration;

use umbel_node::limits::LINK_MESSAGE_BYTES_MAX;

/// Longest text of the audit log about what a call ordered: grants of a principal may be long, and others pay for the log's
/// space.
pub(super) const ORDER_CHARS_MAX: usize = 500;

/// Most values of a list in such a text; more would be cut in any case.
pub(super) const ORDER_LIST_MAX: usize = 64;

/// Longest name in such a text: as long as a principal's may be.
pub(super) const ORDER_WORD_CHARS_MAX: usize = 128;

/// Calls that one connection may have open; HTTP/2 announces the limit, and the client opens no more.
pub(super) const STREAMS_PER_CONNECTION_MAX: u32 = 200;

/// A connection on which nothing arrived for this long is pinged: proxies drop idle connections after a
/// minute or more.
pub(super) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);

/// A connection whose ping is not answered within this time is closed.
pub(super) const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long running calls may continue after the node begins to stop.
pub(super) const STOP_GRACE_MAX: Duration = Duration::from_secs(10);

/// How long a node that has just started and reaches no majority waits before it tries again, so that it asks seldom in
/// a cluster that forms or has lost its majority for long.
pub(super) const CATCH_UP_INTERVAL: Duration = Duration::from_millis(500);

/// How often the health service checks whether the node is ready.
pub(super) const HEALTH_INTERVAL: Duration = Duration::from_millis(500);

/// Upper bound of the time that a response needs to reach the client: a call gives up this much earlier
/// than its client does, so that the client receives the reason, also from a node that is short of processor time.
pub(super) const ANSWER_MARGIN_MAX: Duration = Duration::from_millis(250);

/// Timeout of a call over all shards (create, clear, merge) whose client sets none; also of reading one
/// piece of a dump over the Redis protocol, which may have to skip over a whole filter.
pub(super) const LONG_CALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);

/// How long a status request waits for one node or shard.
pub(super) const STATUS_TIMEOUT: Duration = Duration::from_secs(1);

/// Requests of one status table in flight at once.
pub(super) const STATUS_CALLS_MAX: usize = 64;

/// Filters on one page of a list.
pub(super) const LIST_FILTERS_MAX: usize = 1000;

/// How long a request, or one message of a stream, may take to arrive; it may take longer only at
/// [`ARRIVAL_BYTES_PER_SECOND_MIN`] or more. A request that is sent at once takes less than a second,
/// while the received part of a slow one holds memory.
pub(super) const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Minimum arrival rate of a long request, in bytes a second: at this rate the largest takes under five
/// minutes, and slower lines are rare.
pub(super) const ARRIVAL_BYTES_PER_SECOND_MIN: u64 = 64 << 10;

/// Bytes of requests in progress that nodes make without a link, which whoever reaches a node without TLS can make, too:
/// a hundred times the list of 256 founders with their addresses. Most have no content.
pub(super) const NODE_REQUESTS_BYTES_MAX: u64 = 8 << 20;

/// One in this many bytes of memory may be held by messages of links, which whoever reaches a node without TLS can
/// begin on hundreds of links: as much as by the requests of clients.
pub(super) const LINK_MEMORY_SHARE: u64 = 8;

/// Least bytes of that share: the largest messages of both other nodes of a cluster of three.
pub(super) const LINK_BYTES_MIN: u64 = 2 * LINK_MESSAGE_BYTES_MAX as u64;

/// A response stream from which the client has read nothing for this long ends: it holds a copy of a
/// filter, and there are few of those.
pub(super) const UNREAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Minimum rate, in bytes a second, at which a client of the Redis protocol must read a long answer,
/// beyond what it reads within [`UNREAD_TIMEOUT`]: the unread part holds memory. At this rate the largest
/// answer takes 20 minutes, and slower lines are rare.
pub(super) const READING_BYTES_PER_SECOND_MIN: u64 = 64 << 10;

/// Requests of one stream of inserts or questions that are read and whose answers have not gone out; at this
/// number reading stops. Where an insert waits 5 ms for disks and other nodes, so many at once are 50,000
/// single items a second, and their answers, at most 8 KiB each, take 2 MiB.
pub(super) const ITEM_STREAM_REQUESTS_MAX: usize = 256;

/// What a request of such a stream holds of the budget beside its own bytes: the state of its work, then its
/// answer, which has a bit for each of 65,536 items.
pub(super) const ITEM_STREAM_REQUEST_BYTES: u64 = 8 << 10;

/// Memory that an item of a request takes, besides the bytes of a long one: its place in a list, of 4 to 32 bytes, and
/// its hash, of 16 bytes, in the list of all hashes, in the part of its shard, and in the call to that shard's leader.
/// On the wire an empty item has a byte or two.
pub(super) const ITEM_MEMORY_BYTES: usize = 64;

/// What an open stream holds of the budget while it is idle: two tasks, their channels, and the buffers of
/// both directions. An idle stream may stay open, as an idle connection may.
pub(super) const ITEM_STREAM_BYTES: u64 = 32 << 10;

/// Total timeout of an export, an import or a reflection whose client sets none.
pub(super) const STREAM_TIMEOUT_DEFAULT: Duration = Duration::from_secs(15 * 60);

/// Upper limit of that timeout, whatever the client sets: a day is enough for the largest filter on a
/// slow line.
pub(super) const STREAM_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// Longest error message, in bytes. It comes twice: as a header, where each byte may take three, and in the details,
/// where three bytes take four. Libraries of clients accept 8 KiB of headers, all together.
pub(super) const ERROR_MESSAGE_BYTES_MAX: usize = 1700;

/// Longest message about a principal, in bytes: 64 grants on names of 1,024 bytes, and their verbs.
pub(super) const ACCESS_MESSAGE_BYTES_MAX: usize = 128 << 10;

/// Longest life of a join token, in milliseconds: a week. Anybody who obtains the token in this time can
/// join as a node.
pub(super) const JOIN_TOKEN_LIFETIME_MS_MAX: u64 = 7 * 24 * 3600 * 1000;

/// Longest message about a certificate, in bytes: a request has some 300, an answer has a file of authorities.
pub(super) const ENROLMENT_MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Enrolments in progress at once: their callers have proved nothing yet.
pub(super) const ENROLMENTS_MAX: usize = 8;

/// How long the node waits for one other node to which it forwards an enrolment.
pub(super) const PASSED_ON_TIMEOUT: Duration = Duration::from_secs(5);

/// Life of a certificate that the cluster issues, in days; its node requests the next one after two thirds.
pub(super) const ISSUED_DAYS: u32 = 90;

/// Connections of the Redis protocol that a node accepts at once; the same as Redis's default.
pub(super) const RESP_CONNECTIONS_MAX: usize = 10_000;

/// Wrong passwords on one connection of the Redis protocol, after which it is closed: more than a person mistypes, and
/// who guesses has to connect anew.
pub(super) const RESP_WRONG_PASSWORDS_MAX: u32 = 16;

/// Commands of one connection that are read ahead of their answers; at this number reading stops.
pub(super) const RESP_COMMANDS_IN_FLIGHT_MAX: usize = 1024;

/// Bytes of one read from such a connection: a pipeline of some hundred short commands. The buffer is on
/// the stack, so that an idle connection has none.
pub(super) const RESP_READ_BYTES: usize = 32 << 10;

/// Bytes of requests that such a connection may hold without counting towards the budget of all clients:
/// as much as one read brings. They are answered before the next read.
pub(super) const RESP_FREE_BYTES: usize = RESP_READ_BYTES;

/// Bytes of requests that such a connection may send while it takes no answers, which count towards the budget of all
/// clients: many libraries send a whole pipeline before they read the first answer. As many as the arguments of one
/// request may have, which a client may also make a node hold. The buffer grows by doubling.
pub(super) const RESP_AHEAD_BYTES_MAX: usize = 64 << 20;

/// Bytes that such a connection may send after what it sent was refused; they are dropped. As many as one request may
/// have, as many libraries send all of a request before they read an answer.
pub(super) const RESP_DROPPED_BYTES_MAX: usize = 64 << 20;

/// Bytes of answers that are buffered before they are written.
pub(super) const RESP_WRITE_BYTES: usize = 64 << 10;

/// Commands that a transaction may queue: as many as fit its bytes if they are short.
pub(super) const RESP_TRANSACTION_COMMANDS_MAX: usize = 65_536;

/// Bytes of memory that the commands of a transaction may take: as many as the arguments of one request.
pub(super) const RESP_TRANSACTION_BYTES_MAX: usize = 64 << 20;

/// Names that one `SCAN` examines at most, whatever the client requests.
pub(super) const RESP_SCAN_COUNT_MAX: u64 = 10_000;

/// How long a command waits for a filter that is being created, cleared or dropped.
pub(super) const RESP_BUSY_WAIT_MAX: Duration = Duration::from_secs(2);

/// Payloads that a node produces, reads or sends at once: each holds up to 16 MiB two or three times. The
/// connection of a client that does not read its payload is closed.
pub(super) const RESP_PAYLOADS_MAX: usize = 16;
