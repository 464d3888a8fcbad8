//! How full a slice is, for reports. That requires reading all of it, up to 256 MiB: in pieces, between
//! which the replica's lock and the thread are free for others, and with one count for all requests
//! that wait meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Mutex;
use umbel_engine::shard::{OverlapCount, PartError, ShardState, SliceDescription, SliceShape};
use umbel_engine::{FilterId, Generation};
use umbel_filter::{Kind, OnesCount, sizing};
use umbel_ports::Purpose;
use umbel_raft::Group;

use super::ShardLeader;
use crate::calls::{RateProbes, ShardFailure, SliceLoad};
use crate::limits::{COUNTED_WORDS_MAX, RATE_PROBES, RATE_PROBES_AT_ONCE};

/// Counts of a shard's slices, one at a time.
#[derive(Default)]
pub(super) struct Loads {
    counted: Mutex<Counted>,
    /// Number of counts that have begun.
    begun: std::sync::atomic::AtomicU64,
    /// Held by every request, so that the last one is recognized.
    asking: Arc<()>,
    /// Held by the request that counts what two filters have in common; others wait.
    overlapping: Mutex<()>,
}

/// The newest count of each filter, with its number, kept while a waiting request may use it.
type Counted = BTreeMap<(FilterId, Generation), (u64, Described)>;

/// Description and fill of a slice, and the random items that were looked up in it.
type Described = (SliceDescription, RateProbes);

impl Loads {
    /// Description and fill of a slice, as it was at some moment between the call and its return. Bits
    /// that are set during the count may or may not be counted.
    ///
    /// # Errors
    /// If there is no such slice, or it is at another generation.
    pub(super) async fn describe(
        &self,
        group: &Group,
        filter: FilterId,
        generation: Generation,
    ) -> Result<Described, PartError> {
        use std::sync::atomic::Ordering::Relaxed;

        let asking = Arc::clone(&self.asking);
        let begun_before = self.begun.load(Relaxed);
        let mut counted = self.counted.lock().await;
        let slice = (filter, generation);
        let newest = counted.get(&slice).filter(|(number, _)| *number > begun_before);
        let described = match newest {
            // This count began after the call, so it includes everything that the caller knows of.
            Some((_, described)) => {
                group.replica().read_shard(|state| state.check_slice(filter, generation))?;
                described.clone()
            }
            None => {
                let number = self.begun.fetch_add(1, Relaxed) + 1;
                let described = count(group, slice).await?;
                counted.insert(slice, (number, described.clone()));
                described
            }
        };
        drop(asking);
        if Arc::strong_count(&self.asking) == 1 {
            counted.clear();
        }
        Ok(described)
    }
}

impl ShardLeader {
    pub(super) async fn describe(
        &self,
        filter: FilterId,
        generation: Generation,
    ) -> Result<SliceLoad, ShardFailure> {
        self.confirm().await?;
        self.check_slice(filter, generation).map_err(|error| match self.space.shortage() {
            // A missing slice cannot be created before there is room.
            Some(free_bytes) => ShardFailure::DiskFull { free_bytes },
            None => error.into(),
        })?;
        Ok(self.load_here(filter, generation).await?)
    }

    /// How full a slice is in this replica. If this node does not lead, its replica may lack entries
    /// that were acknowledged.
    ///
    /// # Errors
    /// If there is no such slice here, or it is at another generation.
    pub(crate) async fn load_here(
        &self,
        filter: FilterId,
        generation: Generation,
    ) -> Result<SliceLoad, PartError> {
        let (slice, probes) = self.loads.describe(&self.group, filter, generation).await?;
        let description = slice.description;
        Ok(SliceLoad {
            leader: self.node,
            position_count: description.position_count,
            one_count: description.one_count,
            item_count: description.item_count.map(|estimate| estimate.item_count),
            false_positive_rate: description.false_positive_rate,
            new_count: slice.summary.new_count,
            memory_bytes: description.memory_bytes,
            room: slice.summary.room,
            probes,
            unexplained_one_count: unexplained_one_count(&slice),
            new_per_second: self.arrivals.per_second((filter, generation)),
        })
    }

    /// Counts piece by piece what the slices of two filters have in common.
    pub(super) async fn overlap(
        &self,
        ours: (FilterId, Generation),
        theirs: (FilterId, Generation),
    ) -> Result<OverlapCount, ShardFailure> {
        let _one_at_a_time = self.loads.overlapping.lock().await;
        self.confirm().await?;
        let mut count = OverlapCount::default();
        loop {
            let piece =
                |state: &ShardState| state.overlap_on(ours, theirs, &mut count, COUNTED_WORDS_MAX);
            if self.group.replica().read_shard(piece)? {
                return Ok(count);
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Set positions beyond those that chance and merges explain. None for kinds that lose positions, or
/// whose item count does not determine how many they set.
fn unexplained_one_count(slice: &SliceDescription) -> Option<u64> {
    let SliceShape::Blocks { kind, probe_count, .. } = slice.summary.spec.shape else {
        return None;
    };
    if !Kind::from_id(kind)?.is_bit_array() {
        return None;
    }
    let (positions, ones) = (slice.description.position_count, slice.description.one_count);
    let chance = sizing::explained_one_count(positions, probe_count, slice.summary.new_count);
    Some(ones.saturating_sub(chance.ok()?.saturating_add(slice.summary.merged_count)))
}

async fn count(group: &Group, slice: (FilterId, Generation)) -> Result<Described, PartError> {
    let mut count = OnesCount::default();
    let described = loop {
        let piece = |state: &ShardState| state.describe_on(slice, &mut count, COUNTED_WORDS_MAX);
        if let Some(described) = group.replica().read_shard(piece)? {
            break described;
        }
        tokio::task::yield_now().await;
    };
    let seed = group.number(Purpose::RateProbes);
    let mut probes = RateProbes::default();
    for part in 0..u64::from(RATE_PROBES / RATE_PROBES_AT_ONCE) {
        let seed = seed.wrapping_add(part);
        let ask = |state: &ShardState| state.probe(slice, seed, RATE_PROBES_AT_ONCE);
        probes.hit_count += u64::from(group.replica().read_shard(ask)?);
        probes.probe_count += u64::from(RATE_PROBES_AT_ONCE);
        tokio::task::yield_now().await;
    }
    Ok((described, probes))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use umbel_engine::ShardId;
    use umbel_engine::meta::Distribution;
    use umbel_engine::shard::{
        Bitmap, HashList, InsertPart, KeyName, SetOperation, ShardCommand, SliceSpec,
        SnapshotLoader, probe_hashes,
    };
    use umbel_filter::{AnyFilter, Describe, HashFunction, HashRange, Insert, Insertion};

    use super::*;
    use crate::calls::{ShardAnswer, ShardRequest};
    use crate::testing::{create_filter, start_alone};

    /// A slice into which that many items were inserted one by one, chosen by `choose` from random
    /// ones.
    fn filled(item_count: u32, choose: impl Fn(&AnyFilter, &AnyFilter) -> bool) -> ShardState {
        let (filter, generation) = (FilterId(1), Generation(1));
        let kind = Kind::Blocked.id();
        let shape = SliceShape::Blocks { kind, block_count: 64, block_bits: 512, probe_count: 6 };
        let key = KeyName { function: HashFunction::Xxh3Seeded.id(), key_id: 7 };
        let mut state = ShardState::new(ShardId(0), HashRange::WHOLE);
        for filter in [filter, FilterId(2)] {
            let spec = SliceSpec { filter, generation, shape, key };
            state.apply(&ShardCommand::CreateSlice(spec));
        }
        let mut twin = shape.create(HashRange::WHOLE).unwrap();
        let mut chosen = Vec::new();
        for hash in probe_hashes(3, HashRange::WHOLE, 100_000) {
            let mut with = twin.clone();
            if with.insert(hash) == Ok(Insertion::New) && choose(&twin, &with) {
                twin = with;
                chosen.push(hash);
            }
            if chosen.len() == item_count as usize {
                break;
            }
        }
        assert_eq!(chosen.len(), item_count as usize);
        let part = InsertPart {
            filter,
            generation,
            request: None,
            proposed: Bitmap::ones(item_count),
            hashes: HashList::from_hashes(&chosen),
            growth_bytes: 0,
        };
        state.apply(&ShardCommand::Insert(vec![part]));
        state
    }

    fn ones(filter: &AnyFilter) -> u64 {
        filter.describe().one_count
    }

    fn unexplained(state: &ShardState, filter: u64) -> Option<u64> {
        unexplained_one_count(&state.describe(FilterId(filter)).unwrap())
    }

    #[test]
    fn chosen_items_are_distinguished_from_random_ones() {
        for item_count in [400, 1_600, 3_000] {
            assert_eq!(unexplained(&filled(item_count, |_, _| true), 1), Some(0), "{item_count}");
        }
        // Each item sets six free positions: what an attacker does who fills up a filter.
        let mut state = filled(1_600, |before, after| ones(after) == ones(before) + 6);
        let beyond = unexplained(&state, 1).unwrap();
        assert!(beyond > 1_000, "{beyond}");
        // Merged bits count as explained, wherever they come from, also after a snapshot.
        let (generation, sources) = (Generation(1), vec![(FilterId(1), Generation(1))]);
        let (target, operation) = (FilterId(2), SetOperation::Union);
        state.apply(&ShardCommand::MergeSlices { target, generation, sources, operation });
        assert_eq!(unexplained(&state, 2), Some(0));
        let snapshot = state.snapshot();
        let mut loader =
            SnapshotLoader::new(ShardId(0), HashRange::WHOLE, snapshot.head()).unwrap();
        snapshot.frames().for_each(|frame| loader.push(&frame.unwrap()).unwrap());
        let loaded = loader.finish().unwrap();
        assert_eq!((unexplained(&loaded, 1), unexplained(&loaded, 2)), (Some(beyond), Some(0)));
    }

    /// Other tasks run between the pieces of a count. At most two counts are made, however many
    /// requests arrive: one for the first request, and one for all that arrive while it runs.
    #[tokio::test]
    async fn a_flood_of_questions_costs_two_counts_and_stops_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let filter = create_filter(&node, Distribution::Partitioned, (20_000_000, 1e-4)).await;
        let leader = node.local().shard(ShardId(0)).unwrap();
        let state = leader.group.replica();
        let generation = state.read_shard(|state| state.slices().next().unwrap().1);
        let range = state.read_shard(ShardState::range);
        let hashes = HashList::from_hashes(&probe_hashes(3, range, 250));
        let (request, growth, at_ms) = (None, None, None);
        let insert = ShardRequest::Insert { filter, generation, request, hashes, growth, at_ms };
        assert!(matches!(leader.serve(insert).await, ShardAnswer::Bits(_)));
        let whole = state.read_shard(|state| state.describe(filter)).unwrap();

        let ticks = Arc::new(AtomicUsize::new(0));
        let others = Arc::clone(&ticks);
        let other = tokio::spawn(async move {
            loop {
                others.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let loads = Loads::default();
        let ask = || loads.describe(&leader.group, filter, generation);
        let answers = join_all((0..50).map(|_| ask())).await;
        other.abort();
        assert!(answers.into_iter().all(|answer| answer.unwrap().0 == whole));
        assert_eq!(loads.begun.load(Ordering::Relaxed), 2);
        assert!(loads.counted.lock().await.is_empty());
        let pieces =
            usize::try_from(whole.description.memory_bytes).unwrap() / (8 * COUNTED_WORDS_MAX);
        assert!(
            pieces > 50 && ticks.load(Ordering::Relaxed) >= pieces,
            "{pieces} pieces, {ticks:?}"
        );

        let stale = loads.describe(&leader.group, filter, Generation(generation.0 + 1)).await;
        assert!(matches!(stale, Err(PartError::StaleGeneration { .. })));
        drop(leader);
        node.shutdown().await;
    }
}
