//! Releases that run a cluster of another version, and raising that version.

use std::path::Path;
use std::sync::Arc;

use umbel_engine::meta::{
    ClusterVersion, FilterName, MetaCommand, MetaError, MetaState, VersionRange,
};
use umbel_engine::shard::PartError;
use umbel_filter::Kind;

use super::golden_folder_test::{copy, golden};
use super::node_test::{PeersOnly, config, create, deadline, items, start};
use super::*;
use crate::NewJob;
use umbel_node::failure::CallFailure;
use umbel_node::testing::DescribedSince;

/// The versions of a later release that no longer supports those of this one.
const LATER: VersionRange =
    VersionRange { oldest: ClusterVersion::NEWEST.next(), newest: ClusterVersion::NEWEST.next() };

async fn try_start(data: &Path, versions: VersionRange) -> Result<Node, StartError> {
    let config = Config { dev: true, shards: 2, replicas: 1, ..config(data) };
    let ports = Ports { versions, ..Ports::real(data).unwrap() };
    Node::start(config, ports, Box::new(PeersOnly)).await
}

async fn start_alone(data: &Path, versions: VersionRange) -> Node {
    try_start(data, versions).await.unwrap()
}

/// Why a node does not start, or stops by itself.
async fn stopped(data: &Path, versions: VersionRange) -> String {
    let node = match try_start(data, versions).await {
        Ok(node) => node,
        Err(error) => return error.to_string(),
    };
    let why = node.stopped().await.unwrap_err().to_string();
    node.shutdown().await;
    why
}

fn version(coordinator: &Coordinator) -> ClusterVersion {
    coordinator.read_meta(MetaState::version).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_the_first_version_is_upgraded() {
    let folder = tempfile::tempdir().unwrap();
    copy(&golden(ClusterVersion::FIRST), folder.path());
    let node = start_alone(folder.path(), VersionRange::OWN).await;
    let coordinator = node.coordinator();
    assert_eq!(version(&coordinator), ClusterVersion::FIRST);
    // Commands of the next version are refused.
    let split = MetaCommand::SetAutoSplit { is_on: true };
    let refused = coordinator.meta_propose(split.clone(), deadline()).await;
    let (needed, is) = (ClusterVersion(2), ClusterVersion::FIRST);
    assert_eq!(refused, Err(CallFailure::Meta(MetaError::VersionTooLow { needed, is })));
    // Reading the releases changes nothing.
    let releases = coordinator.releases().list(deadline()).await.unwrap();
    assert_eq!(releases.len(), 1);
    assert_eq!(version(&coordinator), ClusterVersion::FIRST);
    assert_eq!(coordinator.releases().upgrade(deadline()).await.unwrap(), releases);
    assert_eq!(version(&coordinator), ClusterVersion::NEWEST);
    coordinator.meta_propose(split, deadline()).await.unwrap();
    // The second time there is nothing to do.
    coordinator.releases().upgrade(deadline()).await.unwrap();
    drop(coordinator);
    assert!(node.snapshot_groups().await);
    node.shutdown().await;

    // The snapshot contains the version.
    let node = start_alone(folder.path(), VersionRange::OWN).await;
    let coordinator = node.coordinator();
    assert_eq!(version(&coordinator), ClusterVersion::NEWEST);
    assert_eq!(coordinator.read_meta(MetaState::auto_split).unwrap(), Some(true));
    drop(coordinator);
    node.shutdown().await;
}

/// A call that came with a later version is not sent before that: a node of an earlier build could
/// not decode it.
#[tokio::test(flavor = "multi_thread")]
async fn copies_are_not_asked_for_before_the_second_version() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path(), VersionRange::FIRST).await;
    let coordinator = node.coordinator();
    create(&coordinator, "seen", Kind::Cuckoo).await;
    for _ in 0..2 {
        coordinator.insert("seen", &items(7..8), None, None, deadline()).await.unwrap();
    }
    let (needed, is) = (ClusterVersion(2), ClusterVersion::FIRST);
    let refused = Err(CallFailure::Meta(MetaError::VersionTooLow { needed, is }));
    assert_eq!(coordinator.copies_of_item("seen", &items(7..8), deadline()).await, refused);
    drop(coordinator);
    node.shutdown().await;

    let node = start_alone(folder.path(), VersionRange::OWN).await;
    let coordinator = node.coordinator();
    assert_eq!(coordinator.copies_of_item("seen", &items(7..8), deadline()).await, refused);
    coordinator.releases().upgrade(deadline()).await.unwrap();
    assert_eq!(coordinator.copies_of_item("seen", &items(7..8), deadline()).await, Ok(2));
    assert_eq!(coordinator.copies_of_item("seen", &items(8..9), deadline()).await, Ok(0));
    // Other uses of the call are refused instead of counted.
    let several = coordinator.copies_of_item("seen", &items(0..50), deadline()).await;
    assert!(matches!(several, Err(CallFailure::Invalid { .. })), "{several:?}");
    create(&coordinator, "other", Kind::Blocked).await;
    let other = coordinator.copies_of_item("other", &items(7..8), deadline()).await;
    assert!(matches!(other, Err(CallFailure::Part(PartError::WrongKind { .. }))), "{other:?}");
    // After it was cleared, the filter has another generation.
    coordinator.clear(&FilterName::new("seen").unwrap(), None, deadline()).await.unwrap();
    assert_eq!(coordinator.copies_of_item("seen", &items(7..8), deadline()).await, Ok(0));
    drop(coordinator);
    node.shutdown().await;
}

/// Nodes of earlier builds do not know the entry.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_absent_is_not_inserted_as_such_before_the_sixth_version() {
    let folder = tempfile::tempdir().unwrap();
    let before = VersionRange { oldest: ClusterVersion::FIRST, newest: ClusterVersion(5) };
    let node = start_alone(folder.path(), before).await;
    let coordinator = node.coordinator();
    // The filter comes first: to look for it may bring the version at which it was created, too.
    let missing = coordinator.insert_absent("seen", &items(7..8), deadline()).await;
    assert_eq!(missing, Err(CallFailure::UnknownFilter { name: "seen".to_owned() }));
    create(&coordinator, "seen", Kind::Quotient).await;
    assert_eq!(coordinator.insert_absent("seen", &items(7..8), deadline()).await, Ok(None));
    assert_eq!(coordinator.copies_of_item("seen", &items(7..8), deadline()).await, Ok(0));
    drop(coordinator);
    node.shutdown().await;

    let node = start_alone(folder.path(), VersionRange::OWN).await;
    let coordinator = node.coordinator();
    assert_eq!(coordinator.insert_absent("seen", &items(7..8), deadline()).await, Ok(None));
    coordinator.releases().upgrade(deadline()).await.unwrap();
    for new_count in [2, 0] {
        let new = coordinator.insert_absent("seen", &items(7..9), deadline()).await.unwrap();
        assert_eq!(new.map(|new| new.count_ones()), Some(new_count));
    }
    assert_eq!(coordinator.copies_of_item("seen", &items(7..8), deadline()).await, Ok(1));
    drop(coordinator);
    node.shutdown().await;
}

/// Nodes of earlier builds do not know the entries that have the filter's name.
#[tokio::test(flavor = "multi_thread")]
async fn filters_of_a_cluster_of_the_first_version_are_changed() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path(), VersionRange::FIRST).await;
    let coordinator = node.coordinator();
    create(&coordinator, "a", Kind::Blocked).await;
    let [a, b] = ["a", "b"].map(|name| FilterName::new(name).unwrap());
    coordinator.expire(&a, None, Some(u64::MAX), deadline()).await.unwrap();
    coordinator.clear(&a, None, deadline()).await.unwrap();
    coordinator.rename(&a, &b, false, deadline()).await.unwrap();
    coordinator.drop_filter(&b, None, deadline()).await.unwrap();
    assert_eq!(version(&coordinator), ClusterVersion::FIRST);
    drop(coordinator);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_older_nodes_cannot_read_waits_for_the_version() {
    let folder = tempfile::tempdir().unwrap();
    copy(&golden(ClusterVersion::FIRST), folder.path());
    let needed = ClusterVersion(2);
    let config = Config { dev: true, shards: 2, replicas: 1, ..config(folder.path()) };
    let workshops = Some(Arc::new(DescribedSince(needed)) as Arc<_>);
    let ports = Ports { workshops, ..Ports::real(folder.path()).unwrap() };
    let node = Node::start(config, ports, Box::new(PeersOnly)).await.unwrap();
    let coordinator = node.coordinator();
    let job = NewJob { nonce: 1, spec: Vec::new(), workers: Vec::new(), seed: None };
    let refused = coordinator.jobs().submit(job.clone(), deadline()).await;
    let is = ClusterVersion::FIRST;
    assert_eq!(refused, Err(CallFailure::Meta(MetaError::VersionTooLow { needed, is })));
    assert_eq!(coordinator.jobs().list(deadline()).await.unwrap(), []);
    umbel_node::testing::raise_to(&node, needed, &[node.id()]).await.unwrap();
    let submitted = coordinator.jobs().submit(job, deadline()).await.unwrap();
    assert_eq!(coordinator.jobs().list(deadline()).await.unwrap()[0].0, submitted);
    drop(coordinator);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_cannot_run_the_cluster_stops_and_says_which_can() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path(), VersionRange::OWN).await;
    // A new cluster begins at the newest version.
    assert_eq!(version(&node.coordinator()), ClusterVersion::NEWEST);
    node.shutdown().await;
    // In a separate folder, because a node that does not start may keep it locked a moment longer.
    let other = tempfile::tempdir().unwrap();
    copy(folder.path(), other.path());
    let why = stopped(other.path(), VersionRange::FIRST).await;
    // It stops at the first entry that it does not know: the version rose one by one.
    let expected = "the cluster is at version 2, and this release runs clusters of version 1: start a release that runs that";
    assert!(why.contains(expected), "{why}");
    // The words are ours alone: openraft's say which entry it applied.
    assert!(!why.contains("Apply"), "{why}");
    let why = stopped(folder.path(), LATER).await;
    let expected = "the cluster is at version 6, and this release runs clusters of version 7: start the release that this node had";
    assert!(why.contains(expected), "{why}");
    // The failed starts changed nothing.
    let node = start_alone(folder.path(), VersionRange::OWN).await;
    assert_eq!(version(&node.coordinator()), ClusterVersion::NEWEST);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_founder_does_not_raise_over_a_node_that_it_has_not_asked() {
    let folder = tempfile::tempdir().unwrap();
    copy(&golden(ClusterVersion::FIRST), folder.path());
    let node = start_alone(folder.path(), VersionRange::OWN).await;
    let coordinator = node.coordinator();
    assert_eq!(version(&coordinator), ClusterVersion::FIRST);
    umbel_node::testing::raise_to(&node, ClusterVersion::NEWEST, &[]).await.unwrap();
    assert_eq!(version(&coordinator), ClusterVersion::FIRST);
    umbel_node::testing::raise_to(&node, ClusterVersion::NEWEST, &[node.id()]).await.unwrap();
    assert_eq!(version(&coordinator), ClusterVersion::NEWEST);
    drop(coordinator);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_joins_must_run_the_clusters_version() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(Config { dev: true, shards: 2, ..config(folder.path()) }).await;
    let coordinator = node.coordinator();
    coordinator.releases().check_release(VersionRange::OWN, deadline()).await.unwrap();
    for versions in [VersionRange::FIRST, LATER] {
        let Err(CallFailure::Invalid { what }) =
            coordinator.releases().check_release(versions, deadline()).await
        else {
            panic!("{versions} was taken")
        };
        let expected = format!(
            "the node's release runs clusters of {versions}, and this one is at version 6: start a release that runs that"
        );
        assert_eq!(what, expected);
    }
    drop(coordinator);
    node.shutdown().await;
}
