//! Random items that no client inserts, used to measure how often a filter reports them present.

use umbel_filter::{HashRange, ItemHash, ItemHasher};

use super::state::ShardState;
use crate::ids::{FilterId, Generation};
use crate::shard::PartResult;

/// The hashes of `count` random items of a range. The same seed gives the same hashes, another seed gives
/// different ones. Each equals the hash of a given item with probability 2^-64.
///
/// ```
/// use umbel_engine::shard::probe_hashes;
/// use umbel_filter::{CellCount, HashRange};
///
/// let half = HashRange::cell(1, CellCount::new(2)?);
/// let hashes = probe_hashes(7, half, 1_000);
/// assert!(hashes.len() == 1_000 && hashes.iter().all(|hash| half.contains(hash.hi())));
/// assert_ne!(probe_hashes(8, half, 1), hashes[..1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn probe_hashes(seed: u64, range: HashRange, count: u32) -> Vec<ItemHash> {
    let hasher = ItemHasher::Xxh3 { seed };
    let within = |number: u32| {
        let hash = hasher.hash(&number.to_le_bytes());
        // The offset is below the range's width, so the sum is within the range.
        let offset = (u128::from(hash.hi()) * range.width()) >> 64;
        let offset = u64::try_from(offset).unwrap_or_default();
        ItemHash::new(range.start().saturating_add(offset), hash.lo())
    };
    (0..count).map(within).collect()
}

impl ShardState {
    /// Queries a filter's slice for `count` random items, and returns how many of them it reports present.
    ///
    /// # Errors
    /// If there is no such slice, or it is at another generation.
    pub fn probe(
        &self,
        (filter, generation): (FilterId, Generation),
        seed: u64,
        count: u32,
    ) -> PartResult<u32> {
        let slice = self.slice(filter, generation)?;
        let range = if slice.kind().is_whole() { HashRange::WHOLE } else { self.range };
        let present = slice.contains(&probe_hashes(seed, range, count));
        let hit_count = present.iter().filter(|&&is_present| is_present).count();
        Ok(u32::try_from(hit_count).unwrap_or(count))
    }
}

#[cfg(test)]
mod tests {
    use umbel_filter::{HashFunction, Kind};

    use super::*;
    use crate::ids::ShardId;
    use crate::shard::{
        Bitmap, HashList, InsertPart, KeyName, PartError, ShardCommand, SliceShape, SliceSpec,
    };

    /// The measured rate matches the rate that follows from the ones, and measuring changes nothing.
    #[test]
    fn the_measured_rate_is_that_of_the_filter() {
        let filter = FilterId(1);
        let (kind, block_bits) = (Kind::Blocked.id(), 512);
        let shape = SliceShape::Blocks { kind, block_count: 200, block_bits, probe_count: 6 };
        let key = KeyName { function: HashFunction::Xxh3Seeded.id(), key_id: 7 };
        let mut state = ShardState::new(ShardId(0), HashRange::WHOLE);
        let spec = SliceSpec { filter, generation: Generation(1), shape, key };
        state.apply(&ShardCommand::CreateSlice(spec));
        let slice = (filter, Generation(1));
        assert_eq!(state.probe(slice, 1, 10_000), Ok(0));
        let hasher = ItemHasher::Xxh3 { seed: 99 };
        let items: Vec<_> = (0..15_000_u32).map(|n| hasher.hash(&n.to_le_bytes())).collect();
        let part = InsertPart {
            filter,
            generation: Generation(1),
            request: None,
            proposed: Bitmap::ones(15_000),
            hashes: HashList::from_hashes(&items),
            growth_bytes: 0,
        };
        state.apply(&ShardCommand::Insert(vec![part]));
        let before = state.digest();
        let rate = state.describe(filter).unwrap().description.false_positive_rate;
        let hits = state.probe(slice, 2, 10_000).unwrap();
        let expected = 10_000.0 * rate;
        let apart = (f64::from(hits) - expected).abs();
        assert!(rate > 0.02 && apart < 4.0 * expected.sqrt(), "{hits} for {expected}");
        assert_eq!(state.digest(), before);
        let stale = state.probe((filter, Generation(2)), 1, 1);
        assert!(matches!(stale, Err(PartError::StaleGeneration { .. })));
    }
}
