//! What still works while a node that is to become a voter is unreachable.

use umbel_engine::meta::{FilterName, MetaCommand};
use umbel_filter::Kind;

use super::node_test::{config, create, deadline, free_addresses, start};
use super::*;
use umbel_node::calls::MetaRequest;

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
