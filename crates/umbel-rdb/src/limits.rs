//! Every limit of the format, with its reason.

/// The oldest supported version of a file: the first that Redis wrote.
pub const VERSION_MIN: u32 = 1;

/// The newest supported version of a file or payload, written by Redis 7.4 and 8.0. A newer one may have
/// types of values that are unknown here, whose length cannot be determined.
pub const VERSION_MAX: u32 = 12;

/// Longest string that is held in memory, such as a key's name or an item: 16 MiB, the longest item of a
/// filter. Values that are not requested are skipped, whatever their length.
pub const STRING_BYTES_MAX: usize = 16 << 20;

/// Bytes per read.
pub(crate) const BUFFER_BYTES: usize = 64 << 10;
