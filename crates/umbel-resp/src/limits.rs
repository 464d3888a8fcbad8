//! Every limit of the protocol with its reason. A client meets them before anything is kept for it.

/// Bytes of one argument: 512 KiB. An item is hashed and a name is short; Redis allows 512 MiB.
pub const BULK_BYTES_MAX: usize = 512 << 10;

/// Bytes of a piece of a copy, the last argument of `BF.LOADCHUNK`, and of a payload of `RESTORE`: 16 MiB, which RedisBloom sends at most, and some more
/// for a piece of another maker.
pub const PIECE_BYTES_MAX: usize = (16 << 20) + (64 << 10);

/// Arguments of one request: 1,048,576. One batch of the service has at most 65,536 items, larger ones
/// are cut; Redis allows 2^31 − 1.
pub const ARGUMENTS_MAX: usize = 1 << 20;

/// Bytes of all arguments of one request: 64 MiB. What holds them grows by doubling, so that one client can have a
/// node hold twice as much.
pub const REQUEST_BYTES_MAX: usize = 64 << 20;

/// Bytes of a line: an inline request, or the length of an array or an argument. As in Redis.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// Arguments of a request before the client has said who it is: HELLO with all its options has 7. As
/// in Redis.
pub const STRANGER_ARGUMENTS_MAX: usize = 10;

/// Bytes of an argument before the client has said who it is. As in Redis.
pub const STRANGER_BULK_BYTES_MAX: usize = 16 << 10;

/// Names, patterns or sections that one question about commands, settings or the server may have: clients ask for one
/// or for all, and what is answered for a name of seven bytes has some kibibytes.
pub const QUERY_NAMES_MAX: usize = 128;

/// Keys of one command about keys: each is looked up, while others wait.
pub const KEYS_MAX: usize = 16_384;

/// Bytes of a pattern: a name has at most 1,024, each of which a pattern may write with a few.
pub const PATTERN_BYTES_MAX: usize = 4 << 10;

/// Bytes of what a connection says that it, its library or its library's version is called: they are kept as long as it
/// is open.
pub const CLIENT_TEXT_BYTES_MAX: usize = 1 << 10;

/// Bytes that count for an argument beside its own: where it ends.
pub(crate) const ARGUMENT_OVERHEAD_BYTES: usize = 4;
