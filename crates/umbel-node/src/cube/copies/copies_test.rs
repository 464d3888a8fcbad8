//! What happens to a copy on disk when it is cleared or dropped.

use std::sync::Arc;

use umbel_engine::meta::{Distribution, MetaCommand};
use umbel_engine::{FilterId, Generation, GroupId};
use umbel_filter::{Insert, ItemHash};
use umbel_ports::RealSeed;

use super::Copies;
use crate::cube::CopyFailure;
use crate::node::Node;
use crate::testing::{create_filter, deadline, start_alone};

async fn node_and_filter(folder: &tempfile::TempDir) -> (Node, FilterId) {
    let node = start_alone(folder.path()).await;
    let id = create_filter(&node, Distribution::Replicated, (10_000, 1e-6)).await;
    (node, id)
}

/// Saves what is due, apart from long logs.
async fn save_due(copies: &Copies) {
    copies.save_due(u64::MAX, false).await;
}

#[tokio::test]
async fn a_copy_that_is_dropped_while_it_is_saved_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (node, id) = node_and_filter(&folder).await;
    let local = Arc::clone(node.local());
    let copies = local.copies();
    let copy = copies.get(id).unwrap();
    let unknown = CopyFailure::UnknownCopy { filter: id };
    let mut other = copy.settings.shape.create_copy().unwrap();
    other.insert(ItemHash::new(1, 2)).unwrap();
    let turn = copy.saving.lock().await;
    let absorbing = copies.absorb(id, copy.generation(), &other, None);
    let (absorbed, ()) = tokio::join!(absorbing, async {
        let calls = node.leader_calls(Arc::new(RealSeed));
        calls.meta_propose(MetaCommand::DropFilter { filter: id }, deadline()).await.unwrap();
        let mut followed = copies.followed();
        while local.storage().groups().contains(&copy.group) {
            followed.changed().await.unwrap();
        }
        drop(turn);
    });
    assert_eq!(absorbed, Err(unknown.clone()));
    assert_eq!(copies.save(id).await, Err(unknown));
    assert!(!local.storage().groups().contains(&copy.group));
    let stored = local.storage().snapshots(copy.group).latest().await.unwrap();
    assert!(stored.is_none());
    drop((copy, local));
    node.shutdown().await;
}

/// Nobody waits for the save: the disk may be full.
#[tokio::test]
async fn a_copy_that_was_cleared_is_saved_by_and_by() {
    let folder = tempfile::tempdir().unwrap();
    let (node, id) = node_and_filter(&folder).await;
    let local = Arc::clone(node.local());
    let copy = local.copies().get(id).unwrap();
    let turn = copy.saving.lock().await;
    assert!(copy.clear(Generation(5), 9).unwrap());
    assert!(copy.is_cleared_unsaved());
    drop(turn);
    save_due(local.copies()).await;
    assert!(!copy.is_cleared_unsaved());
    drop((copy, local));
    node.shutdown().await;
}

/// Others may have taken inserts of the new generation before this node joined.
#[tokio::test]
async fn a_late_copy_that_is_cleared_remains_late() {
    let folder = tempfile::tempdir().unwrap();
    let (node, id) = node_and_filter(&folder).await;
    let local = Arc::clone(node.local());
    let copy = local.copies().get(id).unwrap();
    // No task of the node comes between.
    for is_in_sync in [true, false] {
        copy.write().is_in_sync = is_in_sync;
        let next = Generation(copy.generation().0 + 1);
        assert!(copy.clear(next, 9).unwrap());
        assert_eq!(copy.is_in_sync(), is_in_sync);
    }
    drop((copy, local));
    node.shutdown().await;
}

/// It would count as one that lacks nothing, although all that was saved is gone.
#[tokio::test]
async fn a_copy_without_the_snapshot_that_its_log_relies_on_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let (node, id) = node_and_filter(&folder).await;
    let local = Arc::clone(node.local());
    let copy = local.copies().get(id).unwrap();
    // Higher than the catalogue's last entry, so the node takes it for one that is still to be created.
    let other = FilterId(1_000_000);
    let group = GroupId::of_copy(other).unwrap();
    let log = local.storage().log(group);
    log.found(copy.node).await.unwrap();
    log.purge_own(copy.node, 3).await.unwrap();
    let error = local.copies().open(other, copy.settings.clone()).await.err().unwrap();
    let folder = format!("snapshots/{}", group.number());
    assert!(error.contains(&folder) && error.contains("before 4 is missing"), "{error}");
    assert!(local.copies().get(other).is_none());
    drop((copy, local));
    node.shutdown().await;
}
