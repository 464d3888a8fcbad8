//! Splits a batch into one part per shard, and joins the shards' answers.
//!
//! ```text
//! request    a   b   c   d   e         shard of each: 1 0 1 2 0
//! parts      shard 0: b e │ shard 1: a c │ shard 2: d        one buffer, each part a piece of it
//! answers    shard 0: 1 0 │ shard 1: 0 1 │ shard 2: 1
//! joined     0   1   1   1   0
//! ```
//!
//! Items keep their order within a part. Equal items belong to the same shard, so the second of
//! them is applied after the first.

use bytes::Bytes;
use thiserror::Error;
use umbel_filter::ItemHash;

use crate::ids::ShardId;
use crate::placement::ShardRanges;
use crate::shard::{Bitmap, HASH_BYTES, HashList, hash_to_bytes};

mod pieces;
mod rest;

#[cfg(test)]
mod routing_test;

pub use pieces::{PieceError, Pieces};
pub use rest::Rest;

/// A batch, split by shard.
///
/// ```
/// use umbel_engine::ShardId;
/// use umbel_engine::placement::ShardRanges;
/// use umbel_engine::routing::BatchParts;
/// use umbel_engine::shard::Bitmap;
/// use umbel_filter::{CellCount, ItemHash};
///
/// let hashes = [0xf, 0x1, 0xe].map(|top| ItemHash::new(top << 60, 0));
/// let parts = BatchParts::cut(&hashes, ShardRanges::equal(CellCount::new(2)?));
/// let sizes: Vec<_> = parts.parts().iter().map(|(shard, part)| (shard.0, part.len())).collect();
/// assert_eq!(sizes, [(0, 1), (1, 2)]);
///
/// // Only 0xe is new, the second item of shard 1.
/// let joined = parts.join(|shard| {
///     Some(if shard == ShardId(1) { Bitmap::from_ones(2, [1]) } else { Bitmap::zeros(1) })
/// })?;
/// assert_eq!(joined, Bitmap::from_ones(3, [2]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct BatchParts {
    item_count: u32,
    /// In ascending order of shards; none is empty.
    parts: Vec<(ShardId, HashList)>,
    /// For each item, the index of its part in `parts`. Empty if there is at most one part.
    part_of_item: Vec<u32>,
}

/// Why answers cannot be joined: they do not match the parts of the batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BatchJoinError {
    /// A part has no answer. Send its request again.
    #[error("no answer of {shard}")]
    Missing {
        /// The part's shard.
        shard: ShardId,
    },
    /// The number of answers differs from the number of the part's items. Refuse the answer: its
    /// sender has a bug.
    #[error("{got} answers of {shard}, expected {expected}")]
    Length {
        /// The shard that answered.
        shard: ShardId,
        /// Number of answers received.
        got: u32,
        /// Number of the part's items.
        expected: u32,
    },
}

impl BatchParts {
    /// Splits a batch. Reads it twice; the number of allocations does not depend on the number of
    /// items.
    ///
    /// # Panics
    /// If there are 2^32 or more items.
    #[must_use]
    pub fn cut(hashes: &[ItemHash], ranges: ShardRanges) -> Self {
        let item_count = u32::try_from(hashes.len()).expect("a batch has less than 2^32 items");
        if ranges.count() == 1 || hashes.len() <= 1 {
            let whole =
                |first: &ItemHash| (ranges.shard_of(first.hi()), HashList::from_hashes(hashes));
            let parts = hashes.first().map(whole).into_iter().collect();
            return Self { item_count, parts, part_of_item: Vec::new() };
        }
        // Number of items of each shard; later, for shards that have items, the index of their
        // part.
        let mut numbers = vec![0_u32; ranges.count() as usize];
        let mut part_of_item = Vec::with_capacity(hashes.len());
        for &hash in hashes {
            let shard = ranges.shard_of(hash.hi()).0;
            numbers[shard as usize] += 1;
            part_of_item.push(shard);
        }
        let mut ends = Vec::new();
        let mut end = 0;
        for (shard, number) in (0..).map(ShardId).zip(&mut numbers) {
            if *number > 0 {
                let start = end;
                end += *number as usize * HASH_BYTES;
                *number = u32::try_from(ends.len()).expect("not more parts than items");
                ends.push((shard, start, end));
            }
        }
        let mut bytes = vec![0_u8; end];
        let mut next: Vec<usize> = ends.iter().map(|&(_, start, _)| start).collect();
        for (&hash, part) in hashes.iter().zip(&mut part_of_item) {
            *part = numbers[*part as usize];
            let at = &mut next[*part as usize];
            bytes[*at..*at + HASH_BYTES].copy_from_slice(&hash_to_bytes(hash));
            *at += HASH_BYTES;
        }
        let bytes = Bytes::from(bytes);
        let piece = |(shard, start, end)| {
            let list = HashList::from_bytes(bytes.slice(start..end));
            (shard, list.expect("a part is made of whole hashes"))
        };
        let parts: Vec<_> = ends.into_iter().map(piece).collect();
        if parts.len() == 1 {
            part_of_item = Vec::new();
        }
        Self { item_count, parts, part_of_item }
    }

    /// A batch for a filter that lies entirely in one shard.
    ///
    /// # Panics
    /// If there are 2^32 or more items.
    #[must_use]
    pub fn whole(hashes: &[ItemHash], shard: ShardId) -> Self {
        let item_count = u32::try_from(hashes.len()).expect("a batch has less than 2^32 items");
        let whole = || (shard, HashList::from_hashes(hashes));
        let parts = (item_count > 0).then(whole).into_iter().collect();
        Self { item_count, parts, part_of_item: Vec::new() }
    }

    /// Number of items of the batch.
    #[must_use]
    pub const fn item_count(&self) -> u32 {
        self.item_count
    }

    /// The parts, in ascending order of shards; a shard without items has no part. Within a part
    /// the items are in the order of the batch.
    #[must_use]
    pub fn parts(&self) -> &[(ShardId, HashList)] {
        &self.parts
    }

    /// Joins the answers of the parts, which `answer_of` returns, into the order of the batch.
    ///
    /// # Errors
    /// If a part has no answer, or one of the wrong length.
    #[expect(clippy::missing_panics_doc, reason = "a part has no more items than the batch")]
    pub fn join(
        &self,
        mut answer_of: impl FnMut(ShardId) -> Option<Bitmap>,
    ) -> Result<Bitmap, BatchJoinError> {
        let mut answers = Vec::with_capacity(self.parts.len());
        for &(shard, ref part) in &self.parts {
            let answer = answer_of(shard).ok_or(BatchJoinError::Missing { shard })?;
            let expected = u32::try_from(part.len()).expect("not more items than the batch has");
            let got = answer.len();
            if got != expected || !answer.is_valid() {
                return Err(BatchJoinError::Length { shard, got, expected });
            }
            answers.push(answer);
        }
        if self.part_of_item.is_empty() {
            return Ok(answers.pop().unwrap_or_default());
        }
        let mut next = vec![0_usize; answers.len()];
        Ok(Bitmap::from_bools(self.part_of_item.iter().map(|&part| {
            let part = part as usize;
            let at = next[part];
            next[part] += 1;
            answers[part].get(at)
        })))
    }
}
