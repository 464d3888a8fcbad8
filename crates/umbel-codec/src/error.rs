//! What can be wrong with bytes that came from elsewhere: expected and actual, in every variant.

use thiserror::Error;
use umbel_bits::CodeError;
use umbel_filter::{HashRangeError, ShapeError};

use crate::frame::FrameKey;
use crate::limits::FRAME_PAYLOAD_BYTES_MAX;

/// Why bytes are no frame of ours, or a filter does not fit into one. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FrameError {
    /// The frame goes on. Read more and decode again; at the end of input, refuse it.
    #[error("frame ends too early: {needed} bytes needed, {available} available")]
    Truncated {
        /// Number of bytes of the frame, as far as is known.
        needed: usize,
        /// Number of bytes that were given.
        available: usize,
    },
    /// Something else begins here. Refuse it: there is no way to find the next frame.
    #[error("not a filter frame: begins with {actual:02x?}, expected {expected:02x?}")]
    Magic {
        /// The magic bytes.
        expected: [u8; 4],
        /// The bytes that came; zeros stand for those that have not come yet.
        actual: [u8; 4],
    },
    /// Another release wrote it. Upgrade the older side.
    #[error("frame version {actual}, expected {expected}")]
    Version {
        /// The version that this release writes and reads.
        expected: u8,
        /// The version that came.
        actual: u8,
    },
    /// The frame holds a kind of filter that this release does not know. Upgrade, or ask the sender
    /// for a single-shot filter.
    #[error("filter kind {actual}, expected {expected} (single-shot)")]
    Kind {
        /// The kind that this release knows.
        expected: u8,
        /// The kind that came.
        actual: u8,
    },
    /// The payload is written in a way that this release does not know. Upgrade.
    #[error("payload encoding {actual}, expected {expected} (gaps)")]
    Encoding {
        /// The encoding that this release knows.
        expected: u8,
        /// The encoding that came.
        actual: u8,
    },
    /// The filter's hash function is unknown here. Upgrade.
    #[error("hash function {actual}, expected 1 (xxh3-128) or 2 (siphash-1-3-128)")]
    HashFunction {
        /// The number that came.
        actual: u8,
    },
    /// The header's hash range is none. Refuse the frame: its sender has a bug.
    #[error("hash range of the frame is not valid")]
    Range(#[source] HashRangeError),
    /// The header's shape is none. Refuse the frame: its sender has a bug.
    #[error("shape of the frame is not valid")]
    Shape(#[source] ShapeError),
    /// The payload is larger than any frame's. Decoding: refuse it. Encoding: cut the filter by
    /// hash range and send several frames.
    #[error("payload of {payload_bytes} bytes, expected at most {FRAME_PAYLOAD_BYTES_MAX}")]
    PayloadTooLarge {
        /// Size of the payload in bytes, announced or computed.
        payload_bytes: u64,
    },
    /// The filter has more set positions than a frame may hold
    /// ([`FRAME_POSITION_COUNT_MAX`](crate::FRAME_POSITION_COUNT_MAX)), or than its hash range has.
    /// Decoding: refuse it. Encoding: cut the filter by hash range and send several frames.
    #[error("{count} positions, expected at most {count_max}")]
    TooManyPositions {
        /// Number of positions that were announced or are set.
        count: u64,
        /// Number that was possible.
        count_max: u64,
    },
    /// The frame was damaged on its way. Ask for it again.
    #[error("checksum {actual:#010x}, expected {expected:#010x}")]
    Checksum {
        /// The checksum that the frame names.
        expected: u32,
        /// The checksum of the bytes that came.
        actual: u32,
    },
    /// The frame arrived as it was sent, but its codes are wrong. Refuse it: its sender has a bug.
    #[error("codes of the frame are not valid")]
    Code(#[source] CodeError),
}

/// The frame's filter holds hashes of another function, seed or key, so its positions mean other
/// items. Ask the sender for a filter under the expected key; nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "frame is hashed by {} under key {:#x}, expected {} under key {:#x}",
    actual.function, actual.key_id, expected.function, expected.key_id
)]
pub struct KeyMismatch {
    /// Hash function and key that the receiver uses.
    pub expected: FrameKey,
    /// Hash function and key of the frame.
    pub actual: FrameKey,
}
