//! Every limit of the protocol, with its reason. The decoder and the parsers enforce them before anything
//! is stored for a client.

/// Most bytes of an argument: 512 KiB. Items are hashed and names are short; Redis allows 512 MiB.
pub const BULK_BYTES_MAX: usize = 512 << 10;

/// Most bytes of a piece of a copy, the last argument of `BF.LOADCHUNK`, and of a payload of `RESTORE`:
/// 16 MiB, the most that RedisBloom sends, and a margin for pieces of other software.
pub const PIECE_BYTES_MAX: usize = (16 << 20) + (64 << 10);

/// Most arguments of a request: 1,048,576. A batch of the service has at most 65,536 items, and larger
/// requests are split; Redis allows 2^31 − 1.
pub const ARGUMENTS_MAX: usize = 1 << 20;

/// Most bytes of all arguments of a request: 64 MiB. The buffer grows by doubling, so a client can make a
/// node hold twice as much.
pub const REQUEST_BYTES_MAX: usize = 64 << 20;

/// Most bytes of a line: an inline request, or the length of an array or an argument. As in Redis.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// Most arguments of a request before the client has authenticated: HELLO with all its options has 7. As
/// in Redis.
pub const STRANGER_ARGUMENTS_MAX: usize = 10;

/// Most bytes of an argument before the client has authenticated. As in Redis.
pub const STRANGER_BULK_BYTES_MAX: usize = 16 << 10;

/// Most names, patterns or sections in one query about commands, settings or the server: clients ask for
/// one or for all, and a name of seven bytes can cause a reply of some kibibytes.
pub const QUERY_NAMES_MAX: usize = 128;

/// Most keys of a command on keys: each one is looked up, and other requests wait meanwhile.
pub const KEYS_MAX: usize = 16_384;

/// Most bytes of a pattern: a name has at most 1,024, and a pattern may need several bytes for each.
pub const PATTERN_BYTES_MAX: usize = 4 << 10;

/// Most bytes of the names that a client gives for its connection, its library or the library's version;
/// they are stored as long as the connection is open.
pub const CLIENT_TEXT_BYTES_MAX: usize = 1 << 10;

/// Bytes that an argument counts for in addition to its own: its end's position.
pub(crate) const ARGUMENT_OVERHEAD_BYTES: usize = 4;
