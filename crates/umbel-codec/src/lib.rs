//! Filter frames: how a filter, or a change of it, is sent and stored.
//!
//! All readers are *total*: for any bytes, the result is a value or an error that names what was
//! expected and what was found. They never panic, and never allocate more memory than the received
//! bytes justify. Everything that is read and accepted encodes to the same bits again, so equal
//! values have equal bytes. The codes themselves are those of `umbel-bits`.
//!
//! | question | module |
//! |---|---|
//! | how does a filter travel? | `frame` |
//! | which bytes are that? | [`layout`] |
//! | how is a whole filter saved and loaded? | `saved` |
//! | how is it a field of what serde writes? | `saved_serde`, with the feature `serde` |
//! | how is damage found? | `checksum` |

// Input is hostile here: an index out of bounds must be an error, not a panic.
#![deny(clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::indexing_slicing))]

mod checksum;
mod error;
mod first_bytes;
mod frame;
pub mod layout;
mod limits;
mod saved;
#[cfg(feature = "serde")]
mod saved_serde;

pub use checksum::{Crc32c, crc32c};
pub use error::{FrameError, FrameMergeError, HeaderError, KeyMismatch, PayloadError};
pub use first_bytes::FirstBytes;
pub use frame::{
    AssembleError, Encoding, FRAME_HEADER_BYTES, FRAME_MAGIC, FRAME_VERSION, FilterAssembler,
    FilterMut, FilterRef, FrameChanges, FrameKey, FrameLevel, FramePiece, FramePieces, FrameView,
    Frames, REDIS_BLOOM_KEY, RedisBloomPart, cheapest_encoding, counters_bits, frames, gaps_bits,
    probes_bits, redis_bloom_frame,
};
pub use limits::{
    FRAME_FILTER_BYTES_MAX, FRAME_LEVEL_COUNT_MAX, FRAME_PAYLOAD_BYTES_MAX,
    FRAME_POSITION_COUNT_MAX,
};
pub use saved::{LoadError, SAVED_HEAD_BYTES, SAVED_MAGIC, SAVED_VERSION, SavedFilter};
