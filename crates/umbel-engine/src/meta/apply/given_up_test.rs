//! Merges that are given up, and what snapshots say of merges.

use super::apply_test::Cluster;
use super::merge_test::{cluster, formed, merge, merged, split};
use super::*;
use crate::ids::Epoch;
use crate::limits::ERA_MAX;
use crate::meta::{MetaSince3, MetaSince3Error};
use crate::placement::GivenUpMerge;

#[test]
fn a_merge_that_is_given_up_leaves_the_shard_and_the_reason() {
    let mut cluster = cluster(4);
    cluster.done(&merge(3));
    let since = cluster.state.epoch();
    let given_up =
        |since| MetaCommand::MergeGivenUp { since, what: "filter 1 has no room".to_owned() };
    // Another merge than the one that is under way.
    cluster.done(&given_up(Epoch(since.0 - 1)));
    assert_eq!(cluster.state.shard_map().merging_since, Some(since));
    cluster.done(&given_up(since));
    let map = cluster.state.shard_map();
    assert_eq!((map.merging(), map.shards.len(), map.merge_count), (None, 4, 0));
    assert_eq!(map.epoch, Epoch(since.0 + 1));
    let what = "filter 1 has no room".to_owned();
    let reason = GivenUpMerge { shard: ShardId(3), since, what };
    assert_eq!(map.given_up, Some(reason));
    // A proposal that comes late changes nothing, and a snapshot keeps the reason.
    let before = cluster.state.clone();
    cluster.done(&given_up(since));
    assert_eq!(cluster.state, before);
    assert_eq!(before.clone().with_since_3(before.since_3()), Ok(before));
    // It can be tried again, as another merge.
    cluster.done(&merge(3));
    let map = cluster.state.shard_map();
    assert!(map.merging_since > Some(since) && map.given_up.is_none());
    cluster.done(&given_up(since));
    assert_eq!(cluster.state.shard_map().merging(), Some(ShardId(3)));
}

#[test]
fn the_two_parts_of_a_snapshot_belong_together() {
    let mut cluster = cluster(4);
    cluster.done(&merge(3));
    cluster.done(&merged(3, 0));
    cluster.done(&split(4));
    cluster.done(&formed(3));
    cluster.done(&merge(3));
    let state = &cluster.state;
    let eras = vec![0, 0, 0, 1];
    let merging_since = Some(state.epoch());
    let since_3 = MetaSince3 { merge_count: 1, merging_since, given_up: None, eras };
    assert_eq!(state.since_3(), since_3);
    // What an encoding drops.
    let mut bare = state.clone();
    (bare.shard_map.merge_count, bare.shard_map.merging_since) = (0, None);
    bare.shard_map.shards.iter_mut().for_each(|record| record.era = 0);
    assert_eq!(bare.clone().with_since_3(since_3.clone()).as_ref(), Ok(state));

    let error = |since_3| bare.clone().with_since_3(since_3).unwrap_err();
    let few = MetaSince3 { eras: vec![0; 3], ..since_3.clone() };
    assert_eq!(error(few), MetaSince3Error::OtherShards { expected: 4, got: 3 });
    for (merge_count, era) in [(0, 1), (ERA_MAX + 1, 1), (u32::MAX, 1)] {
        let late = MetaSince3 { merge_count, ..since_3.clone() };
        assert_eq!(error(late), MetaSince3Error::LateEra { era, merge_count });
    }
    let founded = Cluster::new(1, 2, 1).state;
    let no_merge = MetaSince3 { eras: vec![0; 2], ..since_3 };
    let of_founded = founded.clone().with_since_3(no_merge.clone());
    assert_eq!(of_founded, Err(MetaSince3Error::NoMerge { shard_count: 2 }));
    let empty = MetaSince3 { merging_since: Some(Epoch(1)), ..MetaSince3::default() };
    let of_none = MetaState::new().with_since_3(empty);
    assert_eq!(of_none, Err(MetaSince3Error::NoMerge { shard_count: 0 }));
    let still = MetaSince3 { merging_since: None, ..no_merge };
    assert!(founded.with_since_3(still).is_ok());
}
