//! What still works while nodes are unreachable, and what is said of what does not.

use std::net::TcpListener;

use umbel_engine::NodeId;
use umbel_engine::meta::{FilterName, MetaCommand};
use umbel_filter::Kind;

use super::node_test::{
    config, create, create_replicated, deadline, free_addresses, start, start_alone, start_cluster,
};
use super::*;
use crate::testing::items;
use umbel_node::calls::MetaRequest;
use umbel_node::failure::CallFailure;

/// The groups wait a minute for such a node, so requests that waited behind them would miss their
/// deadlines.
#[tokio::test(flavor = "multi_thread")]
async fn filters_come_and_go_while_a_voter_to_be_is_not_reached() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(Config { dev: true, shards: 4, replicas: 3, ..config(folder.path()) }).await;
    let address = free_addresses(1).remove(0);
    let command = MetaCommand::AddNode { address, nonce: 7 };
    node.local().serve_meta(MetaRequest::Propose(command)).await;
    // The membership change is in progress once the new node is a learner.
    let begun = async {
        while node.local().meta().view().learners.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout_at(deadline(), begun).await.unwrap();

    let coordinator = node.coordinator();
    create(&coordinator, "seen", Kind::Blocked).await;
    let name = FilterName::new("seen").unwrap();
    coordinator.clear(&name, None, deadline()).await.unwrap();
    coordinator.drop_filter(&name, None, deadline()).await.unwrap();
    let learners = node.local().meta().view().learners;
    assert_eq!(learners.len(), 1, "the change of members was not under way any more");
    drop(coordinator);
    node.shutdown().await;
}

/// A read leaves nothing behind that could have been done or not.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_reaches_no_majority_says_so() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let mut nodes = start_cluster(&folders).await;
    create(&nodes[0].coordinator(), "seen", Kind::Blocked).await;
    let alone = nodes.pop().unwrap();
    let coordinator = alone.coordinator();
    // It knows the filter from here on.
    coordinator.live_filter("seen", deadline()).await.unwrap();
    for node in nodes {
        node.shutdown().await;
    }
    let soon = || Instant::now() + Duration::from_secs(1);
    let found = coordinator.contains("seen", &items(0..100), None, soon()).await.err();
    let listed = coordinator.jobs().list(soon()).await.err();
    let other = coordinator.contains("other", &items(0..1), None, soon()).await.err();
    for failure in [found, listed, other] {
        assert!(matches!(failure, Some(CallFailure::NoQuorum { .. })), "{failure:?}");
    }
    drop(coordinator);
    alone.shutdown().await;
}

/// Nobody will answer these calls, and the server that carried them would wait for each.
#[tokio::test(flavor = "multi_thread")]
async fn no_call_waits_for_a_leader_while_a_lone_node_stops() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    create(&coordinator, "seen", Kind::Blocked).await;
    node.shutdown().await;
    let new = coordinator.insert("seen", &items(0..100), None, None, deadline()).await.err();
    let found = coordinator.contains("seen", &items(0..100), None, deadline()).await.err();
    let listed = coordinator.jobs().list(deadline()).await.err();
    for failure in [new, found, listed] {
        assert!(matches!(failure, Some(CallFailure::Overloaded { .. })), "{failure:?}");
    }
}

/// Asks until the nodes that have not confirmed a change are this one alone. The nodes that run may not have heard each
/// other yet.
async fn only_silent(coordinator: &Coordinator, node: NodeId) {
    let end = deadline();
    let mut unconfirmed = Vec::new();
    while unconfirmed != [node] {
        tokio::task::yield_now().await;
        unconfirmed = coordinator.copies().unconfirmed(end).await.unwrap();
        assert!(Instant::now() < end, "the deadline ends the wait, and not the silence");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_down_is_not_waited_for() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let mut nodes = start_cluster(&folders).await;
    let coordinator = nodes[0].coordinator();
    create_replicated(&coordinator, "near").await;
    let gone = nodes.pop().unwrap();
    let id = gone.id();
    gone.shutdown().await;
    only_silent(&coordinator, id).await;
    let name = FilterName::new("near").unwrap();
    coordinator.clear(&name, None, deadline()).await.unwrap();
    only_silent(&coordinator, id).await;
    drop(coordinator);
    for node in nodes {
        node.shutdown().await;
    }
}

/// Nothing tells that it is down: connections to it are taken, and nothing is answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_never_heard_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let command = MetaCommand::AddNode { address, nonce: 7 };
    node.local().serve_meta(MetaRequest::Propose(command)).await;
    let added = node.local().read_meta(|state| state.live_nodes().pop_last()).unwrap();
    assert_ne!(added, node.id());
    let coordinator = node.coordinator();
    create_replicated(&coordinator, "near").await;
    only_silent(&coordinator, added).await;
    drop((coordinator, listener));
    node.shutdown().await;
}
