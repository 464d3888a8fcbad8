//! What can be wrong with bytes that were received: every variant names what was expected and what
//! was found.

use thiserror::Error;
use umbel_bits::CodeError;
use umbel_filter::sizing::SizingError;
use umbel_filter::{
    BlockProbe, CreateError, HashRangeError, Kind, LevelsError, ShapeError, ShapeMismatch,
    TablePartError,
};

use crate::frame::{FRAME_MAGIC, FRAME_VERSION, FrameKey};
use crate::limits::{FRAME_LEVEL_COUNT_MAX, FRAME_PAYLOAD_BYTES_MAX};

/// Why bytes are not a frame that can be read, or why a filter does not fit into frames. Nothing
/// was changed.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The frame has more bytes. Read them and decode again; at the end of input, refuse the frame.
    #[error("frame ends too early: {needed} bytes needed, {available} available")]
    Truncated {
        /// Number of bytes of the frame, as far as is known.
        needed: usize,
        /// Number of bytes that were given.
        available: usize,
    },
    /// This release cannot read the header.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The payload is larger than any frame's. Refuse the frame.
    #[error("payload of {payload_bytes} bytes, expected at most {FRAME_PAYLOAD_BYTES_MAX}")]
    PayloadTooLarge {
        /// Size of the payload in bytes, announced or computed.
        payload_bytes: u64,
    },
    /// The frame announces more positions than its hash range has, or than a single-shot frame may
    /// hold ([`FRAME_POSITION_COUNT_MAX`](crate::FRAME_POSITION_COUNT_MAX)). Refuse it.
    #[error("{count} positions, expected at most {count_max}")]
    TooManyPositions {
        /// Number of positions that were announced.
        count: u64,
        /// Number that was possible.
        count_max: u64,
    },
    /// The frame was damaged in transit. Request it again.
    #[error("checksum {actual:#010x}, expected {expected:#010x}")]
    Checksum {
        /// The checksum that the frame names.
        expected: u32,
        /// The checksum of the received bytes.
        actual: u32,
    },
    /// The frame arrived as it was sent, but its payload is not valid.
    #[error("payload of the frame is not valid")]
    Payload(#[from] PayloadError),
    /// The filter of the frame takes more memory than the receiver allows. Merge the frame into a
    /// filter of the receiver's own, or refuse it.
    #[error("filter of {filter_bytes} bytes, expected at most {filter_bytes_max}")]
    FilterTooLarge {
        /// Size of the frame's filter in memory.
        filter_bytes: u64,
        /// What the receiver allows.
        filter_bytes_max: u64,
    },
    /// There is no memory for the filter of the frame. Free some, and decode again.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// Encoding: a part that cannot be divided does not fit into a frame. Allow larger frames; a
    /// block with more insertions than fit is shorter as part of a
    /// [`Blocked`](umbel_filter::Blocked) filter.
    #[error("a block takes {block_bytes} bytes of payload, expected at most {payload_bytes_max}")]
    BlockTooLarge {
        /// Size of the block in bytes of payload.
        block_bytes: u64,
        /// Most bytes of payload that the caller allows.
        payload_bytes_max: u64,
    },
}

/// Why this release cannot read a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The bytes do not begin like a frame. Refuse them: there is no way to find the next frame.
    #[error("not a filter frame: begins with {actual:02x?}, expected {FRAME_MAGIC:02x?}")]
    Magic {
        /// The received bytes; zeros stand for those that are missing.
        actual: [u8; 4],
    },
    /// Another release wrote it. Upgrade the older side.
    #[error("frame version {actual}, expected {FRAME_VERSION}")]
    Version {
        /// The version that came.
        actual: u8,
    },
    /// The frame holds a kind of filter that this release does not know. Upgrade.
    #[error("filter kind {actual}, expected 1 to 7")]
    Kind {
        /// The number that came.
        actual: u8,
    },
    /// The payload is in an encoding that this release does not know for the kind. Upgrade.
    #[error("payload encoding {actual}, expected one of a {kind} filter")]
    Encoding {
        /// The filter's kind.
        kind: Kind,
        /// The number that came.
        actual: u8,
    },
    /// The filter's hash function is unknown here. Upgrade.
    #[error("hash function {actual}, expected 1 (xxh3-128) or 2 (siphash-1-3-128)")]
    HashFunction {
        /// The number that came.
        actual: u8,
    },
    /// The hash range is not valid. Refuse the frame: its sender has a bug.
    #[error("hash range of the frame is not valid")]
    Range(#[source] HashRangeError),
    /// The shape is not valid. Refuse the frame: its sender has a bug.
    #[error("shape of the frame is not valid")]
    Shape(#[source] ShapeError),
    /// The code is not valid. Refuse the frame: its sender has a bug.
    #[error("code of the frame is not valid")]
    Code(#[source] CodeError),
    /// A field that the kind or the encoding does not use is set. Refuse the frame: its sender has
    /// a bug.
    #[error("unused field {field} is {actual}, expected 0")]
    Unused {
        /// The field's name.
        field: &'static str,
        /// What came in it.
        actual: u16,
    },
}

/// Why a payload is not what its header says, although the checksum is right. Refuse the frame: its
/// sender has a bug.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// The bits are no codes.
    #[error("codes are not valid")]
    Code(#[from] CodeError),
    /// The payload is shorter or longer than its fixed part, or than the words.
    #[error("{actual} bytes, expected {expected}")]
    Length {
        /// Number of bytes that the header implies.
        expected: u64,
        /// Number of bytes that came.
        actual: u64,
    },
    /// The words have another number of ones (or counters above 0) than the header states.
    #[error("{actual} positions are set, expected {expected}")]
    Count {
        /// The header's number.
        expected: u64,
        /// The payload's number.
        actual: u64,
    },
    /// The seeds of a block do not ascend.
    #[error("probe {probe:?} follows {previous:?}, expected a larger one")]
    ProbeOrder {
        /// The larger or equal probe before it.
        previous: BlockProbe,
        /// The probe that came.
        probe: BlockProbe,
    },
    /// A part of a single-shot filter does not begin after the filter's start.
    #[error("part begins at hash {start}, expected one above the filter's start {origin}")]
    Origin {
        /// Start of the filter's hash range.
        origin: u64,
        /// Start of the frame's hash range.
        start: u64,
    },
    /// A scalable filter has no such level.
    #[error(
        "level {level} of {level_count}, expected one below the count of at most {FRAME_LEVEL_COUNT_MAX}"
    )]
    Level {
        /// The level's number.
        level: u32,
        /// Number of levels of the filter.
        level_count: u32,
    },
    /// No scalable filter has such numbers.
    #[error("shape of the scalable filter is not valid")]
    Scalable(#[source] SizingError),
    /// A chain of RedisBloom cannot have these numbers.
    #[error("shape of the redisbloom filter is not valid")]
    RedisBloom(#[source] CreateError),
    /// A chain with this number of items has another number of links.
    #[error("{link_count} links of a chain with {item_count} items, which has another number")]
    Links {
        /// Number of links that came.
        link_count: u32,
        /// Number of items that came.
        item_count: u64,
    },
    /// The frame is of another kind. Fix the caller.
    #[error("a frame of a {actual} filter, expected one of a {expected} filter")]
    Kind {
        /// The kind that was expected.
        expected: Kind,
        /// The frame's kind.
        actual: Kind,
    },
    /// A chain is fixed or not.
    #[error("a chain is fixed or not, 1 or 0, got {actual}")]
    Fixed {
        /// The number that came.
        actual: u32,
    },
    /// The kind has no such pace.
    #[error("pace of the filter is not valid")]
    Pace(#[source] ShapeError),
    /// A stable filter has only a number of inserts.
    #[error("counts {} and {}, expected 0 for the second", counts[0], counts[1])]
    Counts {
        /// The counts that came.
        counts: [u64; 2],
    },
    /// The words are not those of a window, a cuckoo or a quotient filter: the encoder has a bug, or the frame is
    /// forged. Drop it.
    #[error(transparent)]
    Table(#[from] TablePartError),
}

/// Why a frame was not merged into a filter. The filter is as it was.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum FrameMergeError {
    /// Request a filter under our key from the sender.
    #[error(transparent)]
    Key(#[from] KeyMismatch),
    /// The frame is part of a filter of another shape. Request one of our shape from the sender.
    #[error(transparent)]
    Shape(Box<ShapeMismatch>),
    /// Refuse the frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Counters are added, so a frame that arrives twice would count twice, and filters that forget
    /// cannot be merged. Load such frames into an empty filter, each once; a counting filter can
    /// then be merged.
    #[error("{position_count} positions of the frame's blocks are set already, expected none")]
    NotEmpty {
        /// Number of counters above 0, or of items of a table, in our filter.
        position_count: u64,
    },
    /// Load the levels of a scalable filter in their order, into an empty one.
    #[error(transparent)]
    Levels(Box<LevelsError>),
}

impl From<ShapeMismatch> for FrameMergeError {
    fn from(mismatch: ShapeMismatch) -> Self {
        Self::Shape(Box::new(mismatch))
    }
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
