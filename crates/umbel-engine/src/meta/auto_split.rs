//! Automatic splits: how many shards a cluster should have.
//!
//! Hashes are uniform, so shards of equal width hold and serve the same amount, and there are no hot
//! shards. More shards help in only two ways: they spread work over more cores, and a shard's data moves
//! faster. Each of them costs: a batch becomes an entry of the log in every shard, and an entry costs every
//! replica far more than its items do. So the number follows from cores and bytes:
//!
//! ```text
//! wanted = max(⌈2 · cores of all nodes / replicas⌉, ⌈bytes of all partitioned filters / 512 MiB⌉,
//!              ⌈bytes of the largest one / 128 MiB⌉)
//! ```
//!
//! With `replicas` of each shard, that is two replicas for every core.
//!
//! It is rounded up to a whole round of splits, `founded · 2^k`, after which all shards have equal width.
//! It never decreases, so that it cannot oscillate: shards are merged only by command. Status tells how
//! many would do, without regard to how many there are.

use std::collections::BTreeSet;
use std::time::Duration;

use umbel_filter::Kind;

use super::command::MetaCommand;
use super::filter_record::FilterRecord;
use super::reply::{MetaError, MetaReply};
use super::settings::Distribution;
use super::state::MetaState;
use crate::ids::NodeId;
use crate::limits::{SHARD_COUNT_MAX, SLICE_BYTES_MAX};
use crate::meta::Result;

/// Replicas per core. One task at a time applies the log of a replica, and at any moment replicas differ in
/// load: with two per core, no core idles while another one has work for two.
const REPLICAS_PER_CORE: u64 = 2;

/// Most bytes of a shard before it is split. A replica is moved as one snapshot: 512 MiB take five seconds
/// at one gigabit per second, during which the shard's log must be kept.
const SHARD_BYTES_MAX: u64 = 512 << 20;

/// Most bytes of one filter in a shard before it is split: half of the limit of a slice, so that a growing
/// filter does not reach the limit while shards are being split.
const SLICE_BYTES_WANTED: u64 = SLICE_BYTES_MAX / 2;

/// The pause between two splits, in units of the time that the first one took.
const PAUSES_PER_SPLIT: u32 = 3;

/// Longest pause between two splits: one that takes longer than a few seconds waits for something else than its bytes.
const SPLIT_PAUSE_MAX: Duration = Duration::from_secs(10);

/// Most cores that a node may report, so that a wrong number does not split everything.
pub const CORE_COUNT_MAX: u32 = 4096;

/// The fewest shards with which every core of a cluster has two replicas, if each shard has so many.
///
/// ```
/// use umbel_engine::meta::shards_for_cores;
///
/// // Three nodes of eight cores, and three replicas of each shard.
/// assert_eq!(shards_for_cores(24, 3), 16);
/// assert_eq!((shards_for_cores(2, 1), shards_for_cores(1, 3)), (4, 1));
/// ```
#[must_use]
pub fn shards_for_cores(core_count: u64, replica_count: usize) -> u64 {
    REPLICAS_PER_CORE.saturating_mul(core_count).div_ceil(replica_count.max(1) as u64)
}

impl MetaState {
    /// Whether shards are split automatically; None until a node has set it.
    #[must_use]
    pub const fn auto_split(&self) -> Option<bool> {
        self.auto_split
    }

    /// The number of cores that a node last reported.
    #[must_use]
    pub fn core_count(&self, node: NodeId) -> Option<u32> {
        self.core_counts.get(&node).copied()
    }

    /// The number of shards that the cluster should have: a whole round of splits, and at least the current
    /// number.
    ///
    /// ```
    /// use umbel_engine::NodeId;
    /// use umbel_engine::meta::{MetaCommand, MetaState};
    ///
    /// let node = NodeId(1);
    /// let mut state = MetaState::new();
    /// let nodes = vec![(node, "a:7070".to_owned())];
    /// state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 6, replica_count: 1 });
    /// assert_eq!(state.shards_wanted(), 6);
    /// state.apply(2, &MetaCommand::NoteCoreCount { node, core_count: 8 });
    /// // Two for each core are 16, which are reached by the second round: 6, 12, 24.
    /// assert_eq!(state.shards_wanted(), 24);
    /// ```
    #[must_use]
    pub fn shards_wanted(&self) -> u32 {
        self.whole_rounds(self.load_shards().max(self.shard_count().into())).max(self.shard_count())
    }

    /// The number of shards that would do for the cores and filters that there are: a whole round of
    /// splits, however many there are now. None if a node that may have replicas has not reported its
    /// cores.
    ///
    /// ```
    /// use umbel_engine::{NodeId, ShardId};
    /// use umbel_engine::meta::{MetaCommand, MetaState};
    ///
    /// let node = NodeId(1);
    /// let mut state = MetaState::new();
    /// let nodes = vec![(node, "a:7070".to_owned())];
    /// state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 1, replica_count: 1 });
    /// assert_eq!(state.shards_needed(), None);
    /// state.apply(2, &MetaCommand::NoteCoreCount { node, core_count: 1 });
    /// for shard in 0..4 {
    ///     state.apply(3, &MetaCommand::ShardFormed { shard: ShardId(shard) });
    ///     state.apply(3, &MetaCommand::SplitShard { shard_count: shard + 2 });
    /// }
    /// assert_eq!((state.shard_count(), state.shards_needed()), (5, Some(2)));
    /// ```
    #[must_use]
    pub fn shards_needed(&self) -> Option<u32> {
        let available = self.available_nodes();
        let are_known = available.iter().all(|node| self.core_counts.contains_key(node));
        are_known.then(|| self.whole_rounds(self.load_shards()))
    }

    /// Shards for the cores and filters, as far as they are known, before whole rounds are made of it.
    fn load_shards(&self) -> u64 {
        let available = self.available_nodes();
        let cores = available.iter().filter_map(|node| self.core_counts.get(node));
        let for_cores =
            shards_for_cores(cores.map(|&cores| u64::from(cores)).sum(), self.replicas_wanted());
        let sizes = || self.filters.values().map(bytes_cut);
        let for_all = sizes().fold(0, u64::saturating_add).div_ceil(SHARD_BYTES_MAX);
        let for_largest = sizes().max().unwrap_or(0).div_ceil(SLICE_BYTES_WANTED);
        for_cores.max(for_all).max(for_largest)
    }

    /// The first whole round of splits with so many shards, or the last round that there can be; 0 until
    /// the cluster is formed.
    fn whole_rounds(&self, wanted: u64) -> u32 {
        let round = |rounds| self.shard_map.founded.checked_shl(rounds).filter(|&of| of != 0);
        let rounds = (0..u32::BITS).map_while(round).take_while(|&of| of <= SHARD_COUNT_MAX);
        let mut most = 0;
        for of_round in rounds {
            most = of_round;
            if u64::from(of_round) >= wanted {
                break;
            }
        }
        most
    }

    pub(super) fn set_auto_split(&mut self, is_on: bool) -> MetaReply {
        self.auto_split = Some(is_on);
        MetaReply::Done
    }

    pub(super) fn note_core_count(&mut self, node: NodeId, core_count: u32) -> Result<MetaReply> {
        if !self.is_live(node) {
            return Err(MetaError::UnknownNode { node });
        }
        if core_count == 0 || core_count > CORE_COUNT_MAX {
            let what = format!("{core_count} cores of {node}, expected 1 to {CORE_COUNT_MAX}");
            return Err(MetaError::BadSettings { what });
        }
        self.core_counts.insert(node, core_count);
        Ok(MetaReply::Done)
    }
}

/// Bytes of a filter that a split divides.
fn bytes_cut(record: &FilterRecord) -> u64 {
    let settings = &record.settings;
    let is_cut = settings.distribution == Distribution::Partitioned
        && Kind::from_id(settings.kind).is_some_and(|kind| !kind.is_whole());
    if is_cut { settings.memory_bytes.saturating_add(record.growth_bytes_of_all()) } else { 0 }
}

/// The next automatic split, if one is due. None while any other change of replicas or a merge is under
/// way, or while a node is not alive: a split while replicas are missing makes them catch up with more.
///
/// ```
/// use std::collections::BTreeSet;
/// use umbel_engine::meta::{MetaCommand, MetaState, next_split};
/// use umbel_engine::{NodeId, ShardId};
///
/// let node = NodeId(1);
/// let mut state = MetaState::new();
/// let nodes = vec![(node, "a:7070".to_owned())];
/// state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 1, replica_count: 1 });
/// state.apply(2, &MetaCommand::ShardFormed { shard: ShardId(0) });
/// state.apply(3, &MetaCommand::NoteCoreCount { node, core_count: 1 });
/// let alive = BTreeSet::from([node]);
/// assert_eq!(next_split(&state, &alive), None);
/// state.apply(4, &MetaCommand::SetAutoSplit { is_on: true });
/// assert_eq!(next_split(&state, &alive), Some(MetaCommand::SplitShard { shard_count: 2 }));
/// assert_eq!(next_split(&state, &BTreeSet::new()), None);
/// ```
#[must_use]
pub fn next_split(state: &MetaState, alive: &BTreeSet<NodeId>) -> Option<MetaCommand> {
    let count = state.shard_count();
    let is_on = state.auto_split == Some(true) && state.shard_map().merging().is_none();
    if !is_on || state.shards_wanted() <= count {
        return None;
    }
    let is_still =
        state.shard_map().shards.iter().all(|record| record.is_formed && record.target.is_none());
    let are_there = state.available_nodes().is_subset(alive);
    (is_still && are_there).then_some(MetaCommand::SplitShard { shard_count: count + 1 })
}

/// The pause after a split that took so long, before the next one begins. Callers of a shard wait while it is cut; with
/// pauses of three times as long, most calls meet no split while many follow one another.
///
/// ```
/// use std::time::Duration;
/// use umbel_engine::meta::pause_after_split;
///
/// assert_eq!(pause_after_split(Duration::from_millis(300)), Duration::from_millis(900));
/// assert_eq!(pause_after_split(Duration::from_secs(60)), Duration::from_secs(10));
/// ```
#[must_use]
pub fn pause_after_split(took: Duration) -> Duration {
    took.saturating_mul(PAUSES_PER_SPLIT).min(SPLIT_PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::super::balance::tests::formed;
    use super::super::testing::create;
    use super::*;
    use crate::ids::{FilterId, ShardId};

    /// Splits until no split is due.
    fn run_splits(state: &mut MetaState) -> u32 {
        let alive = state.live_nodes();
        while let Some(command) = next_split(state, &alive) {
            let shard = ShardId(state.shard_count());
            assert_eq!(state.apply(5, &command), MetaReply::Done);
            // Only one split at a time.
            assert_eq!(next_split(state, &alive), None);
            state.apply(6, &MetaCommand::ShardFormed { shard });
        }
        state.shard_count()
    }

    fn record_of(state: &mut MetaState, filter: FilterId) -> &mut FilterRecord {
        state.filters.get_mut(&filter).expect("it was created")
    }

    fn note_cores(state: &mut MetaState, node: u64, core_count: u32) -> MetaReply {
        state.apply(4, &MetaCommand::NoteCoreCount { node: NodeId(node), core_count })
    }

    #[test]
    fn every_core_has_two_replicas_at_least_and_rounds_are_whole() {
        let mut state = formed(3, 4, 3);
        state.apply(3, &MetaCommand::SetAutoSplit { is_on: true });
        assert_eq!(run_splits(&mut state), 4);
        for node in 1..=3 {
            note_cores(&mut state, node, 5);
        }
        // Ten shards of three replicas are two for each of 15 cores.
        assert_eq!(run_splits(&mut state), 16);
        // A lower number of cores later changes nothing, nor do nodes that leave.
        note_cores(&mut state, 1, 1);
        assert_eq!(run_splits(&mut state), 16);
        state.apply(7, &MetaCommand::Drain { node: NodeId(1), drain: true });
        assert_eq!(state.shards_wanted(), 16);
    }

    #[test]
    fn what_is_needed_falls_with_cores_and_filters() {
        let mut state = formed(3, 4, 3);
        let MetaReply::Filter(filter) = state.apply(3, &create("f", 1, false)) else { panic!() };
        state.apply(4, &MetaCommand::SetAutoSplit { is_on: true });
        for node in [1, 2] {
            note_cores(&mut state, node, 12);
        }
        assert_eq!(state.shards_needed(), None, "node 3 has not reported its cores");
        note_cores(&mut state, 3, 12);
        assert_eq!((run_splits(&mut state), state.shards_needed()), (32, Some(32)));
        for (node, core_count) in [(1, 3), (2, 3), (3, 1)] {
            note_cores(&mut state, node, core_count);
        }
        assert_eq!((state.shards_wanted(), state.shards_needed()), (32, Some(8)));
        record_of(&mut state, filter).settings.memory_bytes = 9 * SLICE_BYTES_WANTED;
        assert_eq!(state.shards_needed(), Some(16));
        // Of what was founded nothing can be merged.
        state.filters.clear();
        for node in [1, 2].map(NodeId) {
            state.apply(9, &MetaCommand::Drain { node, drain: true });
        }
        assert_eq!(state.shards_needed(), Some(4));
    }

    #[test]
    fn shards_stay_below_their_most() {
        let mut state = formed(1, 3, 1);
        note_cores(&mut state, 1, CORE_COUNT_MAX);
        // 3 · 2^8; twice as many would exceed the limit.
        assert_eq!(state.shards_wanted(), 768);
        assert!(matches!(
            note_cores(&mut state, 1, CORE_COUNT_MAX + 1),
            MetaReply::Refused(MetaError::BadSettings { .. })
        ));
        assert!(matches!(
            note_cores(&mut state, 2, 1),
            MetaReply::Refused(MetaError::UnknownNode { .. })
        ));
    }

    #[test]
    fn large_filters_are_cut_into_more() {
        let mut state = formed(1, 2, 1);
        let MetaReply::Filter(filter) = state.apply(8, &create("f", 1, false)) else { panic!() };
        assert_eq!(state.shards_wanted(), 2);
        let record = record_of(&mut state, filter);
        // One filter has at most 128 MiB per shard.
        record.settings.memory_bytes = 3 * SLICE_BYTES_WANTED + 1;
        assert_eq!(state.shards_wanted(), 4);
        record_of(&mut state, filter).growth.insert(ShardId(0), SLICE_BYTES_WANTED);
        assert_eq!(state.shards_wanted(), 8);
        // All filters together have at most 512 MiB per shard: 34 of 128 MiB need 8.5 shards.
        for more in 0..30 {
            let reply = state.apply(20 + more, &create(&format!("more{more}"), 1, false));
            let MetaReply::Filter(more) = reply else { panic!("{reply:?}") };
            record_of(&mut state, more).settings.memory_bytes = SLICE_BYTES_WANTED;
        }
        assert_eq!(state.shards_wanted(), 16);
        // A filter that lies entirely in one shard is not divided.
        state.filters.values_mut().for_each(|record| record.settings.kind = Kind::RedisBloom.id());
        assert_eq!(state.shards_wanted(), 2);
    }

    #[test]
    fn nothing_is_split_while_shards_are_merged() {
        let mut state = formed(1, 1, 1).at_version(crate::meta::ClusterVersion(3));
        state.apply(4, &MetaCommand::SplitShard { shard_count: 2 });
        state.apply(5, &MetaCommand::ShardFormed { shard: ShardId(1) });
        state.apply(6, &MetaCommand::SetAutoSplit { is_on: true });
        note_cores(&mut state, 1, 2);
        let (alive, split) =
            (state.live_nodes(), |shard_count| Some(MetaCommand::SplitShard { shard_count }));
        assert_eq!(next_split(&state, &alive), split(3));
        state.apply(7, &MetaCommand::MergeShard { shard_count: 1 });
        assert_eq!(next_split(&state, &alive), None);
        // Whoever merges for good turns automatic splits off.
        state.apply(8, &MetaCommand::ShardMerged { shard: ShardId(1), era: 0 });
        assert_eq!(next_split(&state, &alive), split(2));
    }

    #[test]
    fn nothing_is_split_unasked() {
        let mut state = formed(1, 1, 1);
        note_cores(&mut state, 1, 4);
        let alive = state.live_nodes();
        assert_eq!((state.auto_split(), next_split(&state, &alive)), (None, None));
        state.apply(5, &MetaCommand::SetAutoSplit { is_on: false });
        assert_eq!(next_split(&state, &alive), None);
        state.apply(5, &MetaCommand::SetAutoSplit { is_on: true });
        assert_eq!(run_splits(&mut state), 8);
    }
}
