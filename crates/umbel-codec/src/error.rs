//! What can be wrong with bytes that came from elsewhere: expected and actual, in every variant.

use thiserror::Error;
use umbel_bits::CodeError;
use umbel_filter::sizing::SizingError;
use umbel_filter::{
    BlockProbe, CreateError, CuckooPartError, HashRangeError, Kind, LevelsError, QuotientPartError,
    ShapeError, ShapeMismatch, WindowPartError,
};

use crate::frame::{FRAME_MAGIC, FRAME_VERSION, FrameKey};
use crate::limits::{FRAME_LEVEL_COUNT_MAX, FRAME_PAYLOAD_BYTES_MAX};

/// Why bytes are no frame of ours, or a filter does not fit into frames. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The frame goes on. Read more and decode again; at the end of input, refuse it.
    #[error("frame ends too early: {needed} bytes needed, {available} available")]
    Truncated {
        /// Number of bytes of the frame, as far as is known.
        needed: usize,
        /// Number of bytes that were given.
        available: usize,
    },
    /// The header is none that this release reads.
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
    /// The frame was damaged on its way. Ask for it again.
    #[error("checksum {actual:#010x}, expected {expected:#010x}")]
    Checksum {
        /// The checksum that the frame names.
        expected: u32,
        /// The checksum of the bytes that came.
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
    /// Encoding: what cannot be cut does not fit into a frame. Allow larger frames; a block with
    /// more insertions than fit is shorter as part of a [`Blocked`](umbel_filter::Blocked) filter.
    #[error("a block takes {block_bytes} bytes of payload, expected at most {payload_bytes_max}")]
    BlockTooLarge {
        /// Size of the block in bytes of payload.
        block_bytes: u64,
        /// Most bytes of payload that the caller allows.
        payload_bytes_max: u64,
    },
}

/// Why a header is none that this release reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Something else begins here. Refuse it: there is no way to find the next frame.
    #[error("not a filter frame: begins with {actual:02x?}, expected {FRAME_MAGIC:02x?}")]
    Magic {
        /// The bytes that came; zeros stand for those that have not come yet.
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
    /// The payload is written in a way that this release does not know for the kind. Upgrade.
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
    /// The hash range is none. Refuse the frame: its sender has a bug.
    #[error("hash range of the frame is not valid")]
    Range(#[source] HashRangeError),
    /// The shape is none. Refuse the frame: its sender has a bug.
    #[error("shape of the frame is not valid")]
    Shape(#[source] ShapeError),
    /// The code is none. Refuse the frame: its sender has a bug.
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
    /// The words have another number of ones (or counters above 0) than the header says.
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
    /// A part of a single-shot filter does not begin behind the filter's start.
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
    /// No chain of RedisBloom's has such numbers.
    #[error("shape of the redisbloom filter is not valid")]
    RedisBloom(#[source] CreateError),
    /// A chain of so many items has another number of links.
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
    /// A stable filter counts its inserts alone.
    #[error("counts {} and {}, expected 0 for the second", counts[0], counts[1])]
    Counts {
        /// The counts that came.
        counts: [u64; 2],
    },
    /// No window has such slices, or so many words.
    #[error("the words are no window: {0}")]
    Window(WindowPartError),
    /// The words are no cuckoo filter's: the encoder has a bug, or somebody forged it. Drop the frame.
    #[error(transparent)]
    Cuckoo(CuckooPartError),
    /// The words are no quotient filter's: the encoder has a bug, or somebody forged it. Drop the frame.
    #[error(transparent)]
    Quotient(QuotientPartError),
}

/// Why a frame was not merged into a filter. The filter is as it was.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum FrameMergeError {
    /// Ask the sender for a filter under our key.
    #[error(transparent)]
    Key(#[from] KeyMismatch),
    /// The frame is part of a filter of another shape. Ask the sender for one of ours.
    #[error(transparent)]
    Shape(Box<ShapeMismatch>),
    /// Refuse the frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Counters add, so a frame that came twice would count twice, and what forgets does not merge.
    /// Load such frames into an empty filter, each once; a counting filter merges then.
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
