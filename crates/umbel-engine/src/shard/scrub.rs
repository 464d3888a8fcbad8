//! What a replica does so that a shard's replicas can be compared and repaired.
//!
//! Replicas that have applied the same entries are equal; a difference means rotten memory or a bug.
//! [`Scrubber`](super::scrubber::Scrubber) drives the comparison: one log entry makes every replica
//! digest the same piece of a slice at the same entry ([`ScrubPart`]), and another one writes the
//! majority's contents into blocks ([`RepairPart`]).
//!
//! *Law.* A repair changes nothing on a replica whose state follows from the log, whatever was applied
//! since its blocks were read: if nothing was applied to the slice, the contents are the replica's own;
//! otherwise the contents are only ORed in, and bits only rise. Counters and counting slices, which can
//! also fall, are then left for a later repair.

use umbel_filter::Kind;

use super::digest::Digest;
use super::part_error::PartError;
use super::scrub_parts::{
    BlockContents, RepairPart, SCRUB_PIECE_BLOCKS, SCRUB_READ_WORDS, ScrubPart, ScrubbedPiece,
};
use super::state::{NO_INDEX, ShardState};
use crate::ids::{FilterId, Generation};
use crate::shard::PartResult;

impl ShardState {
    /// Digests a piece. Changes nothing in the replicated state.
    pub(super) fn scrub(&mut self, part: &ScrubPart) -> PartResult<()> {
        let ScrubPart { filter, generation, seed, first_block } = *part;
        let mut answers = Digest::new();
        self.replay.push_digest(self.range, &mut answers);
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

    /// Repairs blocks, as the log entry with this index.
    pub(super) fn repair(&mut self, index: u64, part: &RepairPart) -> PartResult<()> {
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

    /// The most recently digested piece, if it has this name.
    #[must_use]
    pub fn scrubbed(&self, seed: u64) -> Option<&ScrubbedPiece> {
        self.scrubbed.as_ref().filter(|piece| piece.seed == seed)
    }

    /// The current contents of blocks; `applied_index` is the index of the last applied entry.
    ///
    /// # Errors
    /// If there is no such slice, it is at another generation, the block numbers are not ascending, or
    /// there are several blocks with more than twice [`SCRUB_READ_WORDS`] words.
    pub fn read_blocks(
        &self,
        applied_index: u64,
        filter: FilterId,
        generation: Generation,
        blocks: &[u32],
    ) -> PartResult<BlockContents> {
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

    /// Marks the state as loaded from a snapshot up to `index`: it is unknown when its slices were last
    /// written.
    pub fn loaded_at(&mut self, index: u64) {
        self.slices.values_mut().for_each(|slice| slice.written_index = index);
    }

    /// For tests and simulations of repair: flips every `every`-th bit of a slice, or clears every
    /// `every`-th set bit, as if memory had rotted. Returns how many bits; 0 if there is no such slice.
    /// Positions of a single-shot slice are only lost.
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
