//! What replicas of a shard do to be compared with each other, and to be mended.
//!
//! Replicas that applied the same entries are equal; where they are not, memory has rotted or there
//! is a bug. [`Scrubber`](super::scrubber::Scrubber) has them compared: an entry of the log makes each
//! of them digest the same piece of a slice at the same entry ([`ScrubPart`]), and another one gives
//! blocks the contents that the majority has ([`RepairPart`]).
//!
//! *Law.* A repair changes nothing on a replica that holds what the log says, whatever was applied
//! since its contents were read: if nothing was, the contents are its own; if something was, they are
//! only added, and bits only rise. Counters and counting slices, which fall too, then wait.

use serde::{Deserialize, Serialize};
use umbel_filter::Kind;

use super::command::PartError;
use super::digest::Digest;
use super::state::ShardState;
use crate::ids::{FilterId, Generation};

/// Blocks of a piece: 16 MiB of words, which all replicas digest in some milliseconds while the shard
/// waits.
pub const SCRUB_PIECE_BLOCKS: u32 = 4096;

/// Words of the blocks that are read and mended together, as long as it is more than one block:
/// 512 KiB, half an entry of inserts.
pub const SCRUB_READ_WORDS: u64 = 1 << 16;

/// Index of an entry whose place in the log is not known.
pub(super) const NO_INDEX: u64 = u64::MAX;

/// A piece of a slice that every replica is to digest when it applies this.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScrubPart {
    /// Whose slice.
    pub filter: FilterId,
    /// Its generation.
    pub generation: Generation,
    /// Key of the digests, drawn for this piece and its name.
    pub seed: u64,
    /// First block of the piece, of [`SCRUB_PIECE_BLOCKS`] or as many as there are.
    pub first_block: u32,
}

/// What blocks of a slice hold, by a majority.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RepairPart {
    /// Whose slice.
    pub filter: FilterId,
    /// Its generation.
    pub generation: Generation,
    /// Index of an entry behind which the contents were read: where nothing was written to the slice
    /// since, they are all that the blocks hold.
    pub read_at: u64,
    /// Rising, each with its content.
    pub blocks: Vec<(u32, Vec<u64>)>,
    /// Items called new and, of a scalable slice, the items of each level; empty to leave them.
    pub counters: Vec<u64>,
}

/// The digests that a replica made when it applied a [`ScrubPart`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScrubbedPiece {
    /// Key and name of the piece.
    pub seed: u64,
    /// Blocks of the whole slice.
    pub block_count: u32,
    /// Words of a block on average, rounded up.
    pub block_words: u64,
    /// One digest a block of the piece.
    pub digests: Vec<u64>,
    /// Items called new and, of a scalable slice, the items of each level.
    pub counters: Vec<u64>,
    /// Digest of the answers that are kept for requests that come again.
    pub answers: u64,
}

/// Blocks of a replica at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BlockContents {
    /// Index of the last entry that was applied.
    pub applied_index: u64,
    /// Index of the last entry that may have changed the slice.
    pub written_index: u64,
    /// Whether bits of the slice only rise.
    pub is_monotone: bool,
    /// Whether the contents are words, and not positions.
    pub is_words: bool,
    /// As they were asked for; nothing for a block that there is not.
    pub contents: Vec<Vec<u64>>,
    /// Items called new and, of a scalable slice, the items of each level.
    pub counters: Vec<u64>,
}

impl ScrubbedPiece {
    /// A number that stands for all that can be mended: pieces that differ share one by chance with
    /// 2^-64.
    #[must_use]
    pub fn root(&self) -> u64 {
        let mut root = Digest::new();
        root.push(self.block_count.into());
        root.push_words(&self.digests);
        root.push_words(&self.counters);
        root.finish()
    }
}

impl ShardState {
    /// Digests a piece. Changes nothing that is replicated.
    pub(super) fn scrub(&mut self, part: &ScrubPart) -> Result<(), PartError> {
        let ScrubPart { filter, generation, seed, first_block } = *part;
        let mut answers = Digest::new();
        self.replay.push_digest(&mut answers);
        let slice = self.slice(filter, generation)?;
        self.scrubbed = Some(ScrubbedPiece {
            seed,
            block_count: slice.block_count(),
            block_words: slice.block_words(),
            digests: slice.block_digests(seed, first_block, SCRUB_PIECE_BLOCKS),
            counters: slice.counters(),
            answers: answers.finish(),
        });
        Ok(())
    }

    /// Mends blocks, as an entry with this index.
    pub(super) fn repair(&mut self, index: u64, part: &RepairPart) -> Result<(), PartError> {
        let malformed = |what: String| PartError::Malformed { what };
        for (before, after) in part.blocks.iter().zip(part.blocks.iter().skip(1)) {
            if before.0 >= after.0 {
                let what = format!("block {} behind block {}", after.0, before.0);
                return Err(malformed(what));
            }
        }
        let slice = self.slice_mut(part.filter, part.generation)?;
        let is_exact = index != NO_INDEX && slice.written_index <= part.read_at;
        if is_exact {
            slice.write_blocks(&part.blocks, false);
            slice.set_counters(&part.counters);
        } else if slice.is_monotone() {
            slice.write_blocks(&part.blocks, true);
        }
        slice.written_index = index;
        Ok(())
    }

    /// The last piece that was digested, if it has this name.
    #[must_use]
    pub fn scrubbed(&self, seed: u64) -> Option<&ScrubbedPiece> {
        self.scrubbed.as_ref().filter(|piece| piece.seed == seed)
    }

    /// Blocks as they are, after the entry with this index was applied.
    ///
    /// # Errors
    /// If there is no such slice, it is at another generation, or the blocks do not rise or are more than
    /// [`SCRUB_READ_WORDS`] twice over.
    pub fn read_blocks(
        &self,
        applied_index: u64,
        filter: FilterId,
        generation: Generation,
        blocks: &[u32],
    ) -> Result<BlockContents, PartError> {
        if !blocks.is_sorted_by(|before, after| before < after) {
            return Err(PartError::Malformed { what: "blocks that do not rise".to_owned() });
        }
        let slice = self.slice(filter, generation)?;
        let words = slice.block_words().saturating_mul(blocks.len() as u64);
        if blocks.len() > 1 && words > 2 * SCRUB_READ_WORDS {
            let (got, most) = (blocks.len(), 2 * SCRUB_READ_WORDS / slice.block_words().max(1));
            let what = format!("{got} blocks are asked for, expected at most {most}");
            return Err(PartError::Malformed { what });
        }
        Ok(BlockContents {
            applied_index,
            written_index: slice.written_index,
            is_monotone: slice.is_monotone(),
            is_words: slice.kind() != Kind::SingleShot,
            contents: slice.read_blocks(blocks),
            counters: slice.counters(),
        })
    }

    /// Says that the state is one that was loaded, and has applied what its snapshot has: nobody
    /// knows when its slices were written last.
    pub fn loaded_at(&mut self, index: u64) {
        self.slices.values_mut().for_each(|slice| slice.written_index = index);
    }

    /// For tests and simulations of what mends replicas: flips every so many-th bit of a slice, or clears
    /// every so many-th of those that are set, as if memory had rotted, and says how many; 0 if there is
    /// no such slice. Positions of a single-shot slice are only lost.
    pub fn rot(&mut self, filter: FilterId, every: usize, only_clears: bool) -> u64 {
        let Some(slice) = self.slices.get_mut(&filter) else { return 0 };
        let every = every.max(1);
        let (mut blocks, mut rotten, mut bit) = (Vec::new(), 0, 0);
        let is_sparse = slice.kind() == Kind::SingleShot;
        slice.visit_blocks(
            |_| true,
            |block, content| {
                let mut content = content.to_vec();
                let before = content.len();
                if is_sparse {
                    content.retain(|_| {
                        bit += 1;
                        bit % every != 0
                    });
                    rotten += (before - content.len()) as u64;
                } else {
                    for at in 0..64 * before {
                        let is_set = content[at / 64] >> (at % 64) & 1 == 1;
                        bit += usize::from(is_set || !only_clears);
                        if (is_set || !only_clears) && bit % every == 0 {
                            content[at / 64] ^= 1 << (at % 64);
                            rotten += 1;
                        }
                    }
                }
                blocks.push((block, content));
            },
        );
        slice.write_blocks(&blocks, false);
        rotten
    }
}
