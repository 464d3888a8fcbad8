//! The frame in which a filter travels: everything a decoder needs is in its header.
//!
//! Integers are little-endian, code bits go from the most significant one down. Header, 60 bytes:
//!
//! ```text
//! 0      4   5    6   7    8      16    24   32  40    48 49 50    52     56     60
//! │ UMBL │ver│kind│enc│hash│key id│start│last│ m │count│B │k │lines│length│crc32c│ payload
//! │  4   │u8 │ u8 │u8 │ u8 │ u64  │ u64 │u64 │u64│ u64 │u8│u8│ u16 │ u32  │ u32  │
//!
//! ver     1                                    count   codes in the payload; raw: set positions
//! kind    1 single-shot, 2 blocked, 3 classic  B       low bits of the payload's code; raw: 0
//!         4 partitioned, 5 counting, 6 level   k       probes an item; single-shot: 0
//! enc     1 gaps, 2 probes, 3 holes, 4 raw,    lines   positions of a block / 512; single-shot: 0
//!         5 part, 6 ans gaps, 7 ans holes      length  bytes of payload
//!         8 ans part
//! hash    1 XXH3-128, 2 SipHash-1-3-128        crc32c  over bytes 0..56 and the payload
//! key id  seed of XXH3, name of a SipHash key
//! start   first hash of the frame's range      last    last hash of the range, inclusive
//! m       blocks over the whole hash space; single-shot: positions over the whole hash space
//! ```
//!
//! A frame covers a hash range: a whole filter, or the slice of its blocks that lie there
//! (`umbel_filter::BlockMap`). Positions count from the slice's first block. Payloads, padded with
//! zeros to the end of the byte; a gap is the Rice code of the number of positions in between
//! (`umbel_bits::encode_indexes`), but of blocks their difference:
//!
//! ```text
//! gaps      of a 1 … │ gap │ gap │ …                              count: ones
//!           counting │ gap │ c−1 ones, 0 │ gap │ …                count: counters c above 0; c = 15
//!                                                                 is 14 ones and no 0
//! probes    blocked  │ block gap │ seed, 32 bits │ block gap │ …  count: insertions, by block and seed
//! holes     of a 0 … │ gap │ gap │ …                              count: zeros
//! raw       the words, 8 bytes each, low byte first               count: ones, or counters above 0
//! part      │ start of the filter, u64 │ gap │ gap │ …            count: ones
//! ans …     as gaps, holes or part, but the gaps are │ ratio, u8 │ ANS list of all of them │
//! level     │ level, see frame/level.rs, 32 bytes │ gaps, holes, ans gaps, ans holes or raw
//! ```
//!
//! | kind | encodings |
//! |---|---|
//! | single-shot | gaps, part, ans gaps, ans part |
//! | blocked | gaps, probes, holes, raw, ans gaps, ans holes |
//! | classic, partitioned, level | gaps, holes, raw, ans gaps, ans holes |
//! | counting | gaps, raw |
//!
//! *ANS.* A list of positions, without anything in between, may be an `umbel_bits::AnsGapCode` of B
//! low bits: shorter than the Rice codes of long lists. Its ratio stands behind the fixed part of
//! the payload, and the list fills the rest.
//!
//! *Part.* A single-shot filter over a range from `origin` on has position ⌊(hi − origin)·m / 2^64⌋.
//! Counted anew from another start, floors would fall elsewhere unless m divides 2^64 · x. So a later
//! part carries the origin; it begins at ⌈x·2^64/m⌉ behind it, the first hash of position x, and its
//! gaps count from x. A first part, whose range begins at the origin, is a plain filter of gaps.
//!
//! A frame that decodes encodes to the same bytes. Which encoding is shortest: `encoding`.

use umbel_filter::HashFunction;

mod assembler;
mod changes;
mod content;
mod encoding;
mod gap_code;
mod header;
mod level;
mod lists;
mod receiver;
mod view;
mod writer;

pub use assembler::{AssembleError, FilterAssembler};
pub use changes::FrameChanges;
pub use encoding::{Encoding, cheapest_encoding, counters_bits, gaps_bits, probes_bits};
pub(crate) use header::Fields;
pub use level::FrameLevel;
pub use receiver::FilterMut;
pub use view::FrameView;
pub use writer::{FilterRef, Frames, frames};

#[cfg(test)]
mod frame_test;

/// What every filter frame begins with.
pub const FRAME_MAGIC: [u8; 4] = *b"UMBL";

/// Version of the frame that this release writes and reads.
pub const FRAME_VERSION: u8 = 1;

/// Bytes before the payload.
pub const FRAME_HEADER_BYTES: usize = 60;

/// Bytes of the header that the checksum covers: all but itself.
const CHECKED_HEADER_BYTES: usize = 56;

/// The hash function of a filter's items, and which seed or key it used.
///
/// ```
/// use umbel_codec::FrameKey;
/// use umbel_filter::HashFunction;
///
/// let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 };
/// assert_ne!(key, FrameKey { key_id: 8, ..key });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FrameKey {
    /// The hash function.
    pub function: HashFunction,
    /// XXH3: the seed itself. SipHash: a number that names the key among its holders. Frames are
    /// not encrypted, so it must never be the key or derived from it.
    pub key_id: u64,
}
