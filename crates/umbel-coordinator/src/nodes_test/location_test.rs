//! Where items are kept, as a node tells it, beside where inserts put them.

use std::collections::BTreeSet;

use tokio::time::Instant;
use umbel_engine::ShardId;
use umbel_engine::meta::FilterName;
use umbel_filter::Kind;

use super::Coordinated;
use super::node_test::{create, create_replicated, deadline, items, start_cluster};
use crate::Coordinator;
use crate::location::Location;
use umbel_node::failure::CallFailure;
use umbel_node::item_batch::ItemBatch;

/// Where the item is kept, once its shard has a leader that answers: on a busy machine there may be an election.
async fn located(coordinator: &Coordinator, name: &FilterName, item: &ItemBatch) -> Location {
    let end = deadline();
    loop {
        let found = coordinator.locate(name, item, end).await.unwrap();
        if found.leader.is_some() {
            return found;
        }
        assert!(Instant::now() < end, "no leader: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_is_where_its_insert_puts_it() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let nodes = start_cluster(&folders).await;
    let (coordinator, other) = (nodes[0].coordinator(), nodes[1].coordinator());
    let name = FilterName::new("seen").unwrap();
    create(&coordinator, "seen", Kind::Blocked).await;
    let mut shards = BTreeSet::new();
    for item in 0..32 {
        let item = items(item..item + 1);
        let counts = async || {
            let info = coordinator.info(&name, deadline()).await.unwrap();
            info.slices.iter().map(|(shard, slice)| (*shard, slice.new_count)).collect::<Vec<_>>()
        };
        let before = counts().await;
        let found = located(&coordinator, &name, &item).await;
        assert_eq!(other.locate(&name, &item, deadline()).await.unwrap().shard, found.shard);
        let new = coordinator.insert("seen", &item, None, None, deadline()).await.unwrap().0;
        // A false positive puts nothing anywhere.
        if new.count_ones() == 1 {
            let behind = counts().await;
            let grown = before.iter().zip(&behind).filter(|(before, behind)| before != behind);
            let grown: Vec<ShardId> = grown.map(|(_, (shard, _))| *shard).collect();
            assert_eq!(grown, [found.shard]);
            shards.insert(found.shard);
        }
        let replicas: Vec<_> = found.replicas.iter().map(|(node, _)| *node).collect();
        assert_eq!(replicas.len(), 3);
        assert!(found.replicas.iter().any(|(_, address)| address == nodes[1].address()));
        assert!(found.leader.is_some_and(|leader| replicas.contains(&leader)), "{found:?}");
        assert!(found.applied_index.is_some() && found.range.0 < found.range.1);
    }
    assert_eq!(shards.len(), 4);
    drop((coordinator, other));
    for node in nodes {
        node.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_of_one_shard_and_of_every_node_have_no_other_places() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let nodes = start_cluster(&folders).await;
    let coordinator = nodes[0].coordinator();
    create(&coordinator, "chain", Kind::RedisBloom).await;
    let chain = FilterName::new("chain").unwrap();
    let mut shards = BTreeSet::new();
    for item in 0..16 {
        let found = coordinator.locate(&chain, &items(item..item + 1), deadline()).await.unwrap();
        shards.insert(found.shard);
    }
    assert_eq!(shards.len(), 1);
    let name = FilterName::new("near").unwrap();
    create_replicated(&coordinator, "near").await;
    let refused = coordinator.locate(&name, &items(0..1), deadline()).await.unwrap_err();
    assert!(matches!(&refused, CallFailure::Invalid { what } if what.contains("every node")));
    let none = FilterName::new("none").unwrap();
    let refused = coordinator.locate(&none, &items(0..1), deadline()).await.unwrap_err();
    assert!(matches!(refused, CallFailure::UnknownFilter { .. }));
    let refused = coordinator.locate(&chain, &items(0..0), deadline()).await.unwrap_err();
    assert!(matches!(refused, CallFailure::Invalid { .. }));
    drop(coordinator);
    for node in nodes {
        node.shutdown().await;
    }
}
