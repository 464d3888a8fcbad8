//! The frame in which a filter is sent or stored: its header has everything that a decoder needs.
//! Its bytes: [`crate::layout`]. Which encoding is shortest: `encoding`.

use umbel_filter::{HashFunction, ItemHasher};

mod assembler;
mod changes;
mod content;
mod encoding;
mod gap_code;
mod header;
mod level;
mod link;
mod lists;
mod pieces;
mod receiver;
mod seal;
mod stretch;
mod tables;
mod view;
mod writer;

pub use assembler::{AssembleError, FilterAssembler};
pub use changes::FrameChanges;
pub use encoding::{Encoding, cheapest_encoding, counters_bits, gaps_bits, probes_bits};
pub(crate) use header::Fields;
pub use level::FrameLevel;
pub use link::{REDIS_BLOOM_KEY, RedisBloomPart, redis_bloom_frame};
pub use pieces::{FramePiece, FramePieces};
pub use receiver::FilterMut;
pub use view::FrameView;
pub use writer::{FilterRef, Frames, frames};

#[cfg(test)]
mod frame_test;
#[cfg(test)]
mod paced_test;

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
/// use umbel_filter::{HashFunction, ItemHasher};
///
/// let key = FrameKey::xxh3(7);
/// assert_eq!(key, FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 });
/// assert_eq!(key.hasher(), Some(ItemHasher::Xxh3 { seed: 7 }));
/// // Only who holds the key can hash.
/// assert_eq!(FrameKey { function: HashFunction::SipHash13Keyed, key_id: 7 }.hasher(), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FrameKey {
    /// The hash function.
    pub function: HashFunction,
    /// XXH3: the seed itself. SipHash: a number that names the key among its holders. Frames are
    /// not encrypted, so it must never be the key or derived from it.
    pub key_id: u64,
}

impl FrameKey {
    /// Of items that were hashed by XXH3 with this seed.
    #[must_use]
    pub const fn xxh3(seed: u64) -> Self {
        Self { function: HashFunction::Xxh3Seeded, key_id: seed }
    }

    /// What hashes items as those of the filter were; None if that takes a secret key.
    #[must_use]
    pub const fn hasher(&self) -> Option<ItemHasher> {
        match self.function {
            HashFunction::Xxh3Seeded => Some(ItemHasher::Xxh3 { seed: self.key_id }),
            HashFunction::RedisBloomPair => Some(ItemHasher::RedisBloom),
            HashFunction::SipHash13Keyed => None,
        }
    }
}
