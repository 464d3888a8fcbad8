//! Laws of splits and merges, whatever else is done with shards and slices.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::apply_test::check;
use super::*;
use crate::ids::FilterId;
use crate::meta::testing::{create, form};
use crate::meta::{ClusterVersion, FilterRecord, FilterState, MergeStep};

/// The invariants of splits and merges.
pub(super) fn check_shards(state: &MetaState) {
    let map = state.shard_map();
    let ranges = map.ranges().unwrap();
    let mut end = 0;
    for (_, range) in ranges.in_order() {
        assert_eq!(u128::from(range.start()), end);
        end = range.end();
    }
    assert_eq!((end, ranges.merge_count()), (1 << 64, map.merge_count));
    assert!(map.founded <= state.shard_count());
    assert!(map.shards.iter().all(|record| record.era <= map.merge_count));
    // The first shards were there before any merge.
    assert!(map.shards[..map.founded as usize].iter().all(|record| record.era == 0));
    assert!(
        map.merge_count == 0 && map.merging_since.is_none() || state.version() >= ClusterVersion(3)
    );
    assert_eq!(state.clone().with_since_3(state.since_3()).as_ref(), Ok(state));
    assert_eq!(map.merging_since.is_some(), map.merging().is_some());
    let (Some(from), Some(into)) = (map.merging(), map.absorbing()) else { return };
    let [from, into] = [from, into].map(|shard| map.get(shard).unwrap());
    assert!(from.is_formed && into.is_formed && map.splitting().is_none());
    assert_eq!((&from.target, &into.target), (&None, &None));
    assert_eq!(from.replicas, into.replicas);
    let is_live = |record: &FilterRecord| record.state == FilterState::Live;
    assert!(state.filters().all(|(_, record)| record.is_replicated() || is_live(record)));
}

/// A command that fits the state, or nearly.
fn command(state: &MetaState, kind: u8, dice: u64) -> MetaCommand {
    let map = state.shard_map();
    let (count, last) = (state.shard_count(), map.shards.last().unwrap());
    let shard = ShardId(dice as u32 % count);
    let filters: Vec<FilterId> = state.filters().map(|(filter, _)| filter).collect();
    let filter = *filters.get(dice as usize % 3).unwrap_or(&FilterId(0));
    match kind {
        0 | 1 => MetaCommand::ShardFormed { shard: last.shard },
        2 => MetaCommand::ShardFormed { shard },
        3 | 4 => MetaCommand::SplitShard { shard_count: count + 1 },
        5 | 6 => match state.merge_step(count.saturating_sub(1 + u32::from(kind == 6))) {
            Ok(MergeStep::Propose(command)) => command,
            _ => MetaCommand::MergeShard { shard_count: count.saturating_sub(1) },
        },
        7 => MetaCommand::ShardMerged { shard: last.shard, era: last.era },
        8 => MetaCommand::ShardMerged { shard: last.shard, era: dice as u32 % 3 },
        9 => {
            let without = NodeId(1 + dice % 3);
            let target = (1..=3).map(NodeId).filter(|&node| node != without).collect();
            MetaCommand::PlanReplicas { shard, target }
        }
        10 => {
            let moved = map.shards.iter().find(|record| record.target.is_some()).unwrap_or(last);
            let (shard, replicas) = (moved.shard, moved.wanted().to_vec());
            MetaCommand::ReplicasChanged { shard, replicas }
        }
        11 => create(&format!("filter {}", dice % 3), 1, dice & 8 != 0),
        12 => MetaCommand::FilterCreated { filter },
        13 => MetaCommand::ActivateImport { filter },
        14 => MetaCommand::DropFilter { filter },
        _ => MetaCommand::FilterDropped { filter },
    }
}

proptest! {
    #[test]
    fn shards_are_split_and_merged(
        shard_count in 1_u32..3,
        replica_count in 2_u32..4,
        steps in prop::collection::vec((0_u8..16, any::<u64>()), 0..200),
    ) {
        let mut state = MetaState::new().at_version(ClusterVersion(3));
        state.apply(1, &form(3, shard_count, replica_count));
        let mut eras = BTreeMap::new();
        for (log_index, (kind, dice)) in (2..).zip(steps) {
            let before = state.clone();
            let command = command(&state, kind, dice);
            let is_refused = matches!(state.apply(log_index, &command), MetaReply::Refused(_));
            prop_assert!(!is_refused || state == before);
            check(&state);
            let (map, was) = (state.shard_map(), before.shard_map());
            prop_assert!(map.merge_count >= was.merge_count && map.epoch >= was.epoch);
            // A group that is gone never returns.
            for record in map.shards.get(was.shards.len()..).unwrap_or_default() {
                let earlier = eras.insert(record.shard, record.era);
                prop_assert!(earlier.is_none_or(|era| era < record.era));
            }
            let is_same = map.ranges() == was.ranges();
            prop_assert_eq!(is_same, map.shards.len() == was.shards.len());
        }
    }
}
