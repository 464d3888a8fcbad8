//! Every limit of the format with its reason.

/// The oldest version of a file that is read: the first one that Redis wrote.
pub const VERSION_MIN: u32 = 1;

/// The newest version of a file or payload that is read: Redis 7.4 and 8.0 write it. A newer one may have types of
/// values whose length nobody knows who does not know the type.
pub const VERSION_MAX: u32 = 12;

/// Bytes of the name of a key, of an item, or of any string that is held in memory: 16 MiB, as long as an item may be.
/// Values that nobody asks for are passed over, however long they are.
pub const STRING_BYTES_MAX: usize = 16 << 20;

/// Bytes that are read at once.
pub(crate) const BUFFER_BYTES: usize = 64 << 10;
