//! Changes of replicated filters on three nodes: once a node has answered, the others' copies are changed, too.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use umbel_ports::channel::channel_to;
use umbel_ports::{Net, RealNet};
use umbel_proto::v1;
use umbel_proto::v1::filters_client::FiltersClient;

use super::cluster_test::{shut_down, three};
use super::resp_test::Client;
use crate::test_node::{Node, deadline};

/// How often each change is made. A node that nobody waits for is behind in about one of three.
const ROUNDS: usize = 10;

/// A change that took this long may have been answered before all nodes had confirmed it: one that does not answer is
/// waited for three times. Then the test waits for it.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(1);

const CREATE: &str = "UMBEL.CREATE k KIND blocked CAPACITY 1000 ERROR 0.000001 REPLICATED";

/// Waits until all nodes confirm changes: a node that has just started may not be heard yet.
async fn until_confirmed(node: &Node) {
    let (coordinator, end) = (node.coordinator(), deadline());
    while !coordinator.copies().unconfirmed_soon(true, end).await.unwrap().is_empty() {
        assert!(Instant::now() < end, "a node stays away");
        tokio::task::yield_now().await;
    }
}

/// Asks the other nodes for the item right after a change at the first one, which removes it everywhere.
async fn change(first: &Node, clients: &mut [Client], request: &str, reply: &str) {
    for client in &mut *clients {
        client.send(b"BF.ADD k x\r\n").await;
        let added = client.line().await;
        assert!([":0", ":1"].contains(&&*added), "{added}");
    }
    let began = Instant::now();
    clients[0].call(request, reply).await;
    if began.elapsed() >= CONFIRMED_WITHIN {
        until_confirmed(first).await;
    }
    for client in &mut clients[1..] {
        client.call("BF.EXISTS k x", ":0\r\n").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_does_not_outlive_its_filter() {
    let (_folders, nodes) = three(|_, _| ()).await;
    until_confirmed(&nodes[0]).await;
    let mut clients = join_all(nodes.iter().map(Client::new)).await;
    for _ in 0..ROUNDS {
        let endings = [("UNLINK k", ":1\r\n"), ("PEXPIREAT k 1", ":1\r\n"), ("FLUSHDB", "+OK\r\n")];
        for (request, reply) in endings {
            clients[0].call(CREATE, "+OK\r\n").await;
            change(&nodes[0], &mut clients, request, reply).await;
        }
        clients[0].call(CREATE, "+OK\r\n").await;
        change(&nodes[0], &mut clients, "UMBEL.RESET k", ":2\r\n").await;
        // A filter without copies takes the name.
        clients[0].call("BF.RESERVE other 0.000001 1000", "+OK\r\n").await;
        change(&nodes[0], &mut clients, "RENAME other k", "+OK\r\n").await;
        clients[0].call("DEL k", ":1\r\n").await;
    }
    shut_down(nodes).await;
}

/// The filter that is renamed has no copies: those of the one whose name it takes still answer on a node that has not
/// heard of it.
#[tokio::test(flavor = "multi_thread")]
async fn who_replaces_copies_learns_which_nodes_have_not_confirmed_it() {
    let (_folders, mut nodes) = three(|_, _| ()).await;
    until_confirmed(&nodes[0]).await;
    let mut client = Client::new(&nodes[0]).await;
    client.call(CREATE, "+OK\r\n").await;
    client.call("BF.RESERVE other 0.000001 1000", "+OK\r\n").await;
    let gone = nodes.pop().unwrap();
    let id = gone.id().0;
    gone.shutdown().await;
    let net: Arc<dyn Net> = Arc::new(RealNet);
    let mut filters = FiltersClient::new(channel_to(&net, nodes[0].address(), None).unwrap());
    let (name, new_name) = ("other".to_owned(), "k".to_owned());
    let renamed = filters.rename(v1::RenameRequest { name, new_name, replace: true }).await;
    assert_eq!(renamed.unwrap().into_inner().unconfirmed_nodes, [id]);
    drop(filters);
    shut_down(nodes).await;
}
