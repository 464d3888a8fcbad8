//! What a shard's log and its replicas say to each other about pieces of slices, so that the replicas can be
//! compared and repaired.

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use crate::ids::{FilterId, Generation};

/// Blocks of a piece: 16 MiB of words. All replicas digest it in a few milliseconds, during which the
/// shard waits.
pub const SCRUB_PIECE_BLOCKS: u32 = 4096;

/// Words of the blocks that are read and repaired together, unless a single block is larger: 512 KiB,
/// half an entry of inserts.
pub const SCRUB_READ_WORDS: u64 = 1 << 16;

/// Names a piece of a slice that every replica digests when it applies this.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScrubPart {
    /// The filter whose slice is digested.
    pub filter: FilterId,
    /// Its generation.
    pub generation: Generation,
    /// Key of the digests, drawn for this piece; also its name.
    pub seed: u64,
    /// First block of the piece, which has [`SCRUB_PIECE_BLOCKS`] blocks or ends with the slice.
    pub first_block: u32,
}

/// The contents that blocks of a slice should have, by majority.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RepairPart {
    /// The filter whose slice is repaired.
    pub filter: FilterId,
    /// Its generation.
    pub generation: Generation,
    /// Index of a log entry that every replica had applied when the contents were read: if nothing was
    /// written to the slice after it, the contents are complete.
    pub read_at: u64,
    /// Block numbers, ascending, each with its content.
    pub blocks: Vec<(u32, Vec<u64>)>,
    /// The slice's counters (items answered new, positions merged in, counts per level and the like);
    /// empty to leave them.
    pub counters: Vec<u64>,
}

/// The digests that a replica computed when it applied a [`ScrubPart`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScrubbedPiece {
    /// Key of the digests, and name of the piece.
    pub seed: u64,
    /// Number of blocks of the whole slice.
    pub block_count: u32,
    /// Average number of words per block, rounded up.
    pub block_words: u64,
    /// One digest for each block of the piece.
    pub digests: Vec<u64>,
    /// The slice's counters (items answered new, positions merged in, counts per level and the like).
    pub counters: Vec<u64>,
    /// Digest of the replay table.
    pub answers: u64,
}

/// Blocks of a replica at one point in time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BlockContents {
    /// Index of the last applied entry.
    pub applied_index: u64,
    /// Index of the last entry that may have changed the slice.
    pub written_index: u64,
    /// Whether bits of the slice only rise.
    pub is_monotone: bool,
    /// Whether the contents are words; otherwise they are positions.
    pub is_words: bool,
    /// The contents in the requested order; empty for a block that does not exist.
    pub contents: Vec<Vec<u64>>,
    /// The slice's counters (items answered new, positions merged in, counts per level and the like).
    pub counters: Vec<u64>,
}

impl ScrubbedPiece {
    /// A digest of everything that can be repaired. Pieces that differ collide with probability 2^-64.
    #[must_use]
    pub fn root(&self) -> u64 {
        let mut root = Digest::new();
        root.push(self.block_count.into());
        root.push_words(&self.digests);
        root.push_words(&self.counters);
        root.finish()
    }
}
