//! A node whose disk is below its reserve.

use umbel_engine::meta::{Distribution, FilterName};
use umbel_filter::Kind;

use super::node_test::{config, create, deadline, start, start_alone, start_cluster};
use super::*;
use crate::catalogue::{FilterRequest, Hashing};
use crate::sizes::FilterSize;
use umbel_node::failure::CallFailure;

/// In the shard of one kind, and in all shards.
#[tokio::test(flavor = "multi_thread")]
async fn a_filter_is_refused_before_anything_of_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let disk_reserve_bytes = i64::MAX.unsigned_abs();
    let alone = Config { dev: true, shards: 4, replicas: 1, ..config(folder.path()) };
    let node = start(Config { disk_reserve_bytes, ..alone }).await;
    let coordinator = node.coordinator();
    for kind in [Kind::Blocked, Kind::RedisBloom] {
        let new = FilterRequest::Planned {
            kind,
            distribution: Distribution::Partitioned,
            capacity: 1_000,
            size: FilterSize::Rate(0.01),
            hashing: Hashing::Keyed,
        };
        let create = async |name: &str| {
            let name = FilterName::new(name).unwrap();
            coordinator.create(&name, &new, None, deadline()).await
        };
        // The node looks at its disk soon after its start.
        let mut number = 0;
        let (refused, refusal) = loop {
            let name = format!("{kind}-{number}");
            match create(&name).await {
                Err(refusal @ CallFailure::DiskFull { .. }) => break (name, refusal),
                _ => number += 1,
            }
        };
        assert!(matches!(refusal, CallFailure::DiskFull { is_partial: false, .. }), "{refusal}");
        let listed = coordinator.list(&refused, "", 1, |_| true).unwrap();
        assert_eq!(listed.filters.len(), 0, "{refused}");
    }
    drop(coordinator);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_folder_is_removed_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let end = deadline();
    let why_not = async || node.local().readiness().await.why_not;
    while why_not().await.is_some() {
        assert!(Instant::now() < end, "the node does not become ready");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    std::fs::remove_dir_all(folder.path()).unwrap();
    // The node looks at its disk once a second.
    while why_not().await.as_deref() != Some("the data folder is gone") {
        assert!(Instant::now() < end, "nobody is told");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_told_where_no_majority_tells_of_the_name() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let mut nodes = start_cluster(&folders).await;
    let alone = nodes.pop().unwrap();
    let coordinator = alone.coordinator();
    create(&coordinator, "there", Kind::Blocked).await;
    let full = CallFailure::DiskFull { free_bytes: 1, is_partial: false };
    let told = async |name: &str, deadline| {
        let name = FilterName::new(name).unwrap();
        coordinator.refuse_unless_there(&name, full.clone(), deadline).await
    };
    assert_eq!(told("there", deadline()).await, Ok(()), "such as this very request's");
    assert_eq!(told("new", deadline()).await, Err(full.clone()));
    for node in nodes {
        node.shutdown().await;
    }
    let soon = Instant::now() + Duration::from_millis(200);
    assert_eq!(told("new", soon).await, Err(full.clone()));
    drop(coordinator);
    alone.shutdown().await;
}
