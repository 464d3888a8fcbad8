//! Leaders that confirm their leadership without asking other nodes.

use std::time::Duration;

use umbel_filter::Kind;

use super::Coordinated;
use super::node_test::{create, deadline, start_alone, start_cluster};

#[tokio::test(flavor = "multi_thread")]
async fn the_only_voter_decides_alone() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    // After this, every shard has applied an entry of its leader's term.
    create(&node.coordinator(), "seen", Kind::Blocked).await;
    let groups = node.local().groups();
    assert_eq!(groups.len(), 5);
    let all_decide_alone = async {
        while !groups.iter().all(|group| group.decides_alone()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout_at(deadline(), all_decide_alone).await.unwrap();
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn none_of_three_voters_decides_alone() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let nodes = start_cluster(&folders).await;
    create(&nodes[0].coordinator(), "seen", Kind::Blocked).await;
    let groups: Vec<_> = nodes.iter().flat_map(|node| node.local().groups()).collect();
    assert!(groups.iter().any(|group| group.is_leader()));
    assert!(!groups.iter().any(|group| group.decides_alone()));
    for node in nodes {
        node.shutdown().await;
    }
}
