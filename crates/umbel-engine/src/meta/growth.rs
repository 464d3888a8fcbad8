//! Growth that a shard asks for, as what has to be proposed for it.
//!
//! A split of a shard halves the growth that its slices were allowed at once, in the entry that begins it. Two
//! kinds of slices are then not as the catalogue says: those of the shard until it is cut, which still have what
//! the catalogue counts for both halves; and those of filters that lie in one shard as a whole, which are never
//! cut, though half of their growth counts at the other shard. If they ask for more, what counts already must
//! not count again. What an entry does cannot change for that, because nodes of other releases apply it, too; so
//! the entries that are proposed count it.

use umbel_filter::Kind;

use super::filter_record::FilterRecord;
use super::reply::MetaError;
use super::state::MetaState;
use crate::ids::{FilterId, Generation, ShardId};
use crate::meta::Result;
use crate::shard::HashList;

impl MetaState {
    /// What has to be allowed, by shard, before the slice in a shard takes this many bytes beyond its plan; nothing
    /// if that is allowed already. `hashes` are those of the request for which the shard asks, if it is about
    /// hashes.
    ///
    /// # Errors
    /// As of [`check_growth`](Self::check_growth), for all shards together.
    pub fn missing_growth(
        &self,
        (filter, generation): (FilterId, Generation),
        shard: ShardId,
        growth_bytes: u64,
        hashes: Option<&HashList>,
    ) -> Result<Vec<(ShardId, u64)>> {
        // Whether the filter is there and may grow at all.
        self.check_growth((filter, generation), shard, 0)?;
        let record = self.filters.get(&filter).ok_or(MetaError::UnknownFilter { filter })?;
        let mut missing = self.growth_shares(record, shard, growth_bytes, hashes);
        missing.retain(|&(shard, bytes)| bytes > record.growth_bytes(shard));
        if missing.is_empty() {
            return Ok(missing);
        }
        for &(shard, bytes) in &missing {
            self.check_growth((filter, generation), shard, bytes)?;
        }
        // There may be room for each of them alone.
        let more = missing.iter().map(|&(shard, bytes)| bytes - record.growth_bytes(shard));
        self.check_growth_quota(record.owner.as_ref(), more.fold(0, u64::saturating_add))?;
        Ok(missing)
    }

    /// The growth that each shard needs, if a shard asks for this much.
    fn growth_shares(
        &self,
        record: &FilterRecord,
        shard: ShardId,
        growth_bytes: u64,
        hashes: Option<&HashList>,
    ) -> Vec<(ShardId, u64)> {
        if Kind::from_id(record.settings.kind).is_some_and(Kind::is_whole) {
            let elsewhere = record.growth_bytes_of_all() - record.growth_bytes(shard);
            return vec![(shard, growth_bytes.saturating_sub(elsewhere))];
        }
        match self.shard_map().splitting().filter(|_| self.shard_map().halved() == Some(shard)) {
            Some(into) if hashes.is_some_and(|hashes| self.has_any_of(into, hashes)) => {
                let half = growth_bytes.div_ceil(2);
                // What asked comes first: if another filter takes the room in between, it has what counts.
                vec![(shard, half), (into, half)]
            }
            // A part for the lower half alone may come from a shard that is cut: it counts in full.
            _ => vec![(shard, growth_bytes)],
        }
    }

    /// Whether a shard's range has one of the hashes. Another shard that did not refuse them was not cut yet.
    fn has_any_of(&self, shard: ShardId, hashes: &HashList) -> bool {
        let range = self.shard_map().range(shard);
        range.is_some_and(|range| hashes.iter().any(|hash| range.contains(hash.hi())))
    }
}
