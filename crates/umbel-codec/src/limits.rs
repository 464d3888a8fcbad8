//! Limits of a frame, each with its reason; checked before anything is allocated.

/// Largest payload of a frame, 64 MiB: 2^26 set positions at a mean distance of about a hundred
/// (8 bits each), in one message that a receiver can still hold whole. A larger filter is cut by
/// hash range into several frames.
pub const FRAME_PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// Largest number of positions in a single-shot frame, 2^26. The code of a position may be a single
/// bit, so that 64 MiB could unfold to 4 GiB of positions; with this limit they unfold to 512 MiB. A
/// filter so dense is cut by hash range into several frames.
pub const FRAME_POSITION_COUNT_MAX: u64 = 1 << 26;

/// Largest filter that a frame alone may unfold to, 512 MiB: as much as the most positions of a
/// single-shot frame. A frame of 61 bytes can announce an array of blocks of any size; what is
/// larger must be merged into a filter that the receiver made.
pub const FRAME_FILTER_BYTES_MAX: u64 = 512 << 20;

/// Most levels of a scalable filter in frames, 64: each is made for twice the items of the one
/// before it, and 2^64 items are more than any.
pub const FRAME_LEVEL_COUNT_MAX: u32 = 64;
