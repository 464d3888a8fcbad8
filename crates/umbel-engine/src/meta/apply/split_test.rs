//! Splitting shards one after the other.

use super::apply_test::Cluster;
use super::*;
use crate::ids::{Epoch, FilterId, Generation};
use crate::limits::SHARD_COUNT_MAX;
use crate::meta::testing::create;

fn split(shard_count: u32) -> MetaCommand {
    MetaCommand::SplitShard { shard_count }
}

fn formed(shard: u32) -> MetaCommand {
    MetaCommand::ShardFormed { shard: ShardId(shard) }
}

/// Three nodes, and two shards with two replicas each, all formed.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(3, 2, 2);
    cluster.done(&formed(0));
    cluster.done(&formed(1));
    cluster
}

#[test]
fn a_split_is_one_step_and_done_once() {
    let mut cluster = cluster();
    cluster.done(&split(2));
    assert_eq!(cluster.state.epoch(), Epoch(1));
    cluster.done(&split(3));
    let state = &cluster.state;
    assert_eq!((state.shard_count(), state.epoch()), (3, Epoch(2)));
    let [parent, new] = [0, 2].map(|shard| state.shard(ShardId(shard)).unwrap());
    assert_eq!(
        (&new.founders, &new.replicas, new.is_formed),
        (&parent.replicas, &parent.replicas, false)
    );
    cluster.done(&split(3));
    assert_eq!(cluster.state.epoch(), Epoch(2));
    cluster.done(&formed(2));
    assert_eq!(cluster.state.epoch(), Epoch(3));
    cluster.done(&split(4));
}

#[test]
fn what_cannot_be_split_is_refused() {
    let mut unformed = Cluster::new(1, 1, 1);
    assert!(matches!(unformed.error(&split(2)), MetaError::ShardBusy { .. }));
    let mut cluster = cluster();
    for shard_count in [1, 4, SHARD_COUNT_MAX] {
        let MetaError::BadSplit { what } = cluster.error(&split(shard_count)) else { panic!() };
        assert_eq!(what, format!("2 shards become 3 by the next split, not {shard_count}"));
    }
    for shard_count in [0, SHARD_COUNT_MAX + 1, u32::MAX] {
        assert!(matches!(cluster.error(&split(shard_count)), MetaError::Quota { .. }));
    }
    cluster.done(&split(3));
    // Only one split at a time.
    assert!(matches!(cluster.error(&split(4)), MetaError::ShardBusy { .. }));
}

#[test]
fn shards_are_not_split_while_they_are_moved_nor_moved_while_they_are_split() {
    let mut cluster = cluster();
    let replicas = cluster.state.shard(ShardId(0)).unwrap().replicas.clone();
    let to = (1..=3).map(NodeId).find(|node| !replicas.contains(node)).unwrap();
    let moved = |shard| MetaCommand::MoveReplica { shard: ShardId(shard), from: replicas[0], to };
    cluster.done(&moved(0));
    assert!(matches!(cluster.error(&split(3)), MetaError::ShardBusy { .. }));
    let mut target = vec![replicas[1], to];
    target.sort_unstable();
    cluster.done(&MetaCommand::ReplicasChanged { shard: ShardId(0), replicas: target.clone() });
    cluster.done(&split(3));
    for shard in [0, 2] {
        let plan = MetaCommand::PlanReplicas { shard: ShardId(shard), target: replicas.clone() };
        assert!(matches!(cluster.error(&plan), MetaError::ShardBusy { .. }));
    }
    cluster.done(&formed(2));
    cluster.done(&MetaCommand::PlanReplicas { shard: ShardId(2), target: replicas.clone() });
}

#[test]
fn both_halves_may_have_grown_by_half() {
    let mut cluster = cluster();
    let MetaReply::Filter(filter) = cluster.apply(&create("f", 1, false)) else { panic!() };
    cluster.done(&MetaCommand::FilterCreated { filter });
    let grow = |filter: FilterId, shard, growth_bytes| MetaCommand::GrowFilter {
        filter,
        generation: Generation(1),
        shard: ShardId(shard),
        growth_bytes,
    };
    let growths = |cluster: &Cluster| {
        let record = cluster.state.filter(filter).unwrap();
        [0, 1, 2].map(|shard| record.growth_bytes(ShardId(shard)))
    };
    cluster.done(&split(3));
    assert_eq!(growths(&cluster), [0, 0, 0]);
    // Kinds that do not grow are allowed nothing, so the numbers are set here directly.
    assert!(matches!(cluster.apply(&grow(filter, 0, 100)), MetaReply::Refused(_)));
    let mut record = cluster.state.filter(filter).unwrap().clone();
    record.growth.insert(ShardId(0), 101);
    record.split_growth(ShardId(0), ShardId(2));
    record.split_growth(ShardId(1), ShardId(3));
    assert_eq!([0, 1, 2, 3].map(|shard| record.growth_bytes(ShardId(shard))), [51, 0, 51, 0]);
}
