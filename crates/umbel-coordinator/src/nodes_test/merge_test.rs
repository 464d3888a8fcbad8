//! Shards that are split off and merged again.

use std::path::Path;

use umbel_engine::meta::{Distribution, MetaError, MetaState};
use umbel_engine::shard::ShardCommand;
use umbel_engine::{Epoch, OwnerId, RequestId, ShardId};
use umbel_filter::Kind;

use super::node_test::{config, deadline, items, start};
use super::recut_test::{ITEM_COUNT, fill, name, split};
use super::*;
use crate::ClientRequest;
use crate::catalogue::{FilterRequest, Hashing};
use crate::sizes::FilterSize;
use umbel_node::calls::ShardRequest;
use umbel_node::failure::CallFailure;

async fn start_alone(data: &Path) -> Node {
    start(Config { dev: true, shards: 1, replicas: 1, ..config(data) }).await
}

async fn insert(coordinator: &Coordinator, kind: Kind, numbers: std::ops::Range<u32>) {
    coordinator.insert(&kind.to_string(), &items(numbers), None, None, deadline()).await.unwrap();
}

async fn assert_full(coordinator: &Coordinator, kind: Kind, item_count: u32) {
    let all = items(0..item_count);
    let found = coordinator.contains(&kind.to_string(), &all, None, deadline()).await.unwrap().0;
    assert_eq!(found.count_ones(), item_count, "{kind}");
}

/// The counts of a filter's new items, over all shards.
async fn new_count(coordinator: &Coordinator, kind: Kind) -> u64 {
    let info = coordinator.info(&name(&kind.to_string()), deadline()).await.unwrap();
    info.slices.iter().map(|(_, load)| load.new_count).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_are_merged_with_all_that_they_have_and_split_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = start_alone(folder.path()).await;
    let mut coordinator = node.coordinator();
    fill(&coordinator, 4_000).await;
    split(&coordinator, 2).await;
    split(&coordinator, 3).await;
    let session = coordinator.sessions().open(String::new(), deadline()).await.unwrap();
    let request = |sequence| ClientRequest {
        id: RequestId { session, sequence },
        acknowledged_below: 0,
        owner: OwnerId::default(),
    };
    let second = items(ITEM_COUNT..2 * ITEM_COUNT);
    let mut answers = Vec::new();
    for (kind, sequence) in Kind::ALL.into_iter().zip(1..) {
        let (filter, request) = (kind.to_string(), Some(request(sequence)));
        let answer = coordinator.insert(&filter, &second, request, None, deadline()).await.unwrap();
        answers.push((kind, sequence, answer));
    }
    let mut counts = Vec::new();
    for kind in Kind::ALL {
        counts.push((kind, new_count(&coordinator, kind).await));
    }
    for shard_count in [2, 1] {
        let (stays, gone) = coordinator.shards().merge(shard_count, deadline()).await.unwrap();
        assert_eq!((stays, gone), (ShardId(0), ShardId(shard_count)));
    }
    assert_eq!(coordinator.read_meta(MetaState::shard_count).unwrap(), 1);
    for round in 0..2 {
        for &(kind, count) in &counts {
            assert_full(&coordinator, kind, 2 * ITEM_COUNT).await;
            assert_eq!(new_count(&coordinator, kind).await, count, "{kind}");
        }
        for (kind, sequence, first) in &answers {
            let again = coordinator
                .insert(&kind.to_string(), &second, Some(request(*sequence)), None, deadline())
                .await;
            assert_eq!(again.as_ref(), Ok(first), "{kind}");
        }
        if round == 0 {
            // From the disk.
            drop(coordinator);
            node.shutdown().await;
            node = start_alone(folder.path()).await;
            coordinator = node.coordinator();
        }
    }
    // The number is given to another group.
    split(&coordinator, 2).await;
    for kind in Kind::ALL {
        insert(&coordinator, kind, 2 * ITEM_COUNT..3 * ITEM_COUNT).await;
        assert_full(&coordinator, kind, 3 * ITEM_COUNT).await;
    }
    coordinator.shards().merge(1, deadline()).await.unwrap();
    for kind in Kind::ALL {
        assert_full(&coordinator, kind, 3 * ITEM_COUNT).await;
    }
    drop(coordinator);
    node.shutdown().await;
}

/// The shard was opened again and the merge given up, but the leader that did so was deposed before it told the
/// catalogue.
#[tokio::test(flavor = "multi_thread")]
async fn a_merge_whose_end_was_not_reported_is_given_up_by_the_next_call() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    split(&coordinator, 2).await;
    let next = Epoch(coordinator.read_meta(MetaState::epoch).unwrap().0 + 1);
    let reopen = ShardRequest::Command(ShardCommand::Reopen { since: next });
    coordinator.shard_call(ShardId(1), reopen, deadline()).await.unwrap();
    let refused = coordinator.shards().merge(1, deadline()).await.unwrap_err();
    let CallFailure::Meta(MetaError::BadMerge { what }) = &refused else { panic!("{refused}") };
    assert!(what.contains("given up"), "{what}");
    assert_eq!(coordinator.read_meta(MetaState::shard_count).unwrap(), 2);
    // Nothing stands in the way of the next one.
    coordinator.shards().merge(1, deadline()).await.unwrap();
    assert_eq!(coordinator.read_meta(MetaState::shard_count).unwrap(), 1);
    drop(coordinator);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_that_a_filter_does_not_allow_is_given_up_and_nothing_changes() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    let (distribution, hashing) = (Distribution::Partitioned, Hashing::Keyed);
    let (kind, size) = (Kind::Cuckoo, FilterSize::Rate(1e-4));
    let new = FilterRequest::Planned { kind, distribution, capacity: 1_800, size, hashing };
    coordinator.create(&name("cuckoo"), &new, None, deadline()).await.unwrap();
    // Its only page, which the border divides, is more than half full, and both shards have all of it.
    insert(&coordinator, kind, 0..1_700).await;
    split(&coordinator, 2).await;
    let refused = coordinator.shards().merge(1, deadline()).await.unwrap_err();
    let CallFailure::Meta(MetaError::BadMerge { what }) = &refused else { panic!("{refused}") };
    assert!(what.contains("cannot be merged"), "{what}");
    assert_eq!(coordinator.read_meta(MetaState::shard_count).unwrap(), 2);
    assert_full(&coordinator, kind, 1_700).await;
    // Without the filter they are merged.
    coordinator.drop_filter(&name("cuckoo"), None, deadline()).await.unwrap();
    coordinator.shards().merge(1, deadline()).await.unwrap();
    drop(coordinator);
    node.shutdown().await;
}
