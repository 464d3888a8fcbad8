//! `CLUSTER` on several nodes that spread the slots.

use futures_util::future::join_all;
use tempfile::TempDir;
use tokio::time::Instant;
use umbel_engine::NodeId;
use umbel_engine::meta::MetaCommand;
use umbel_node::Config;
use umbel_node::failure::CallFailure;
use umbel_node::testing::free_addresses;
use umbel_resp::slot::deal;

use super::resp_test::{Client, node_with};
use crate::test_node::{Node, config, deadline, start};

/// Three nodes of one cluster, in the order of their numbers. `change` gets the number of each.
pub(super) async fn three(change: impl Fn(u64, &mut Config)) -> (Vec<TempDir>, Vec<Node>) {
    let folders: Vec<TempDir> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let addresses = free_addresses(3);
    let starts = (1..).zip(folders.iter().zip(&addresses)).map(|(number, (folder, address))| {
        let mut config = Config {
            listen: address.clone(),
            initial_cluster: addresses.clone(),
            shards: 1,
            resp_listen: Some("127.0.0.1:0".to_owned()),
            resp_cluster: "spread".to_owned(),
            ..config(folder.path())
        };
        change(number, &mut config);
        start(config)
    });
    let nodes = join_all(starts).await;
    (folders, nodes)
}

/// A node as answers name it.
struct Named {
    id: String,
    host: String,
    port: u16,
}

fn named(node: &Node) -> Named {
    let (host, port) = node.resp_address().unwrap().rsplit_once(':').unwrap();
    let id = format!("{:08x}{:032x}", node.id().0, node.cluster());
    Named { id, host: host.to_owned(), port: port.parse().unwrap() }
}

/// The answer to `CLUSTER SLOTS` where these nodes have all slots.
fn slots_of(nodes: &[&Named]) -> String {
    let mut text = format!("*{}\r\n", nodes.len());
    for (Named { id, host, port }, (first, last)) in nodes.iter().zip(deal(nodes.len())) {
        text += &format!("*3\r\n:{first}\r\n:{last}\r\n*4\r\n${}\r\n{host}\r\n", host.len());
        text += &format!(":{port}\r\n$40\r\n{id}\r\n*0\r\n");
    }
    text
}

/// A node's answer to a query of the cluster.
async fn answer(node: &Node, query: &str) -> String {
    let mut client = Client::new(node).await;
    client.send(format!("CLUSTER {query}\r\nPING\r\n").as_bytes()).await;
    let mut answer = String::new();
    loop {
        let line = client.line().await;
        if line == "+PONG" {
            return answer;
        }
        answer += &line;
        answer += "\r\n";
    }
}

/// Asks a node until its answer is as it shall be.
async fn until(node: &Node, query: &str, is_right: impl Fn(&str) -> bool) {
    let deadline = deadline();
    loop {
        let answer = answer(node, query).await;
        if is_right(&answer) {
            return;
        }
        assert!(Instant::now() < deadline, "CLUSTER {query}: {answer}");
    }
}

async fn until_slots(node: &Node, of: &[&Named]) {
    let expected = slots_of(of);
    until(node, "SLOTS", |slots| slots == expected).await;
}

pub(super) async fn shut_down(nodes: Vec<Node>) {
    join_all(nodes.into_iter().map(Node::shutdown)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_share_the_slots_and_each_serves_every_name() {
    let (_folders, nodes) = three(|_, _| ()).await;
    let named: Vec<Named> = nodes.iter().map(named).collect();
    let all: Vec<&Named> = named.iter().collect();
    for (node, Named { id, host, port }) in nodes.iter().zip(&named) {
        until_slots(node, &all).await;
        assert_eq!(answer(node, "MYID").await, format!("$40\r\n{id}\r\n"));
        let own = format!("{id} {host}:{port}@0 myself,master - 0 0 1 connected ");
        let is_right = |lines: &str| {
            lines.contains(&own) && lines.matches(" master - 0 0 1 connected ").count() == 2
        };
        until(node, "NODES", is_right).await;
    }
    let mut clients = join_all(nodes.iter().map(Client::new)).await;
    for name in 0..9 {
        let inserting = name % clients.len();
        clients[inserting].call(&format!("BF.ADD {name} x"), ":1\r\n").await;
        for client in &mut clients {
            client.call(&format!("BF.EXISTS {name} x"), ":1\r\n").await;
        }
    }
    shut_down(nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drained_nodes_and_those_without_the_port_have_no_slots() {
    let (_folders, mut nodes) = three(|number, config| match number {
        2 => config.resp_announce = Some("cache.example:7".to_owned()),
        3 => config.resp_listen = None,
        _ => {}
    })
    .await;
    let without_port = nodes.pop().unwrap();
    let first = named(&nodes[0]);
    let second = Named { host: "cache.example".to_owned(), port: 7, ..named(&nodes[1]) };
    for node in &nodes {
        until_slots(node, &[&first, &second]).await;
    }
    let drain = |drain| MetaCommand::Drain { node: NodeId(2), drain };
    nodes[0].coordinator().meta_propose(drain(true), deadline()).await.unwrap();
    for node in &nodes {
        until_slots(node, &[&first]).await;
        let line = format!("{} cache.example:7@0 ", second.id);
        assert!(answer(node, "NODES").await.contains(&line), "{line}");
    }
    nodes[0].coordinator().meta_propose(drain(false), deadline()).await.unwrap();
    for node in &nodes {
        until_slots(node, &[&first, &second]).await;
    }
    nodes.push(without_port);
    shut_down(nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn others_get_the_slots_of_silent_and_removed_nodes() {
    let (_folders, mut nodes) = three(|_, _| ()).await;
    let [first, second, third] = [0, 1, 2].map(|index: usize| named(&nodes[index]));
    for node in &nodes {
        until_slots(node, &[&first, &second, &third]).await;
    }
    nodes.pop().unwrap().shutdown().await;
    let line =
        |node: &Named, state: &str| format!("{} {}:{}@0 {state}\n", node.id, node.host, node.port);
    for node in &nodes {
        until_slots(node, &[&first, &second]).await;
        let failed = line(&third, "master,fail - 0 0 1 disconnected");
        until(node, "NODES", |lines| lines.contains(&failed)).await;
    }
    // The voters of the meta group may be changing still.
    let (remove, until_then) = (MetaCommand::RemoveNode { node: NodeId(3) }, deadline());
    loop {
        match nodes[0].coordinator().meta_propose(remove.clone(), deadline()).await {
            Ok(_) => break,
            Err(CallFailure::Meta(_)) if Instant::now() < until_then => {}
            Err(error) => panic!("{error}"),
        }
    }
    for node in &nodes {
        let is_gone = |lines: &str| !lines.contains(&third.id) && lines.contains(&second.id);
        until(node, "NODES", is_gone).await;
    }
    // One of two: it may be the one that is cut off, and its clients should try the other.
    nodes.pop().unwrap().shutdown().await;
    until(&nodes[0], "INFO", |info| info.contains("cluster_state:fail\r\n")).await;
    until_slots(&nodes[0], &[&first, &second]).await;
    let unsure = line(&second, "master,fail? - 0 0 1 disconnected 8192-16383");
    until(&nodes[0], "NODES", |lines| lines.contains(&unsure)).await;
    shut_down(nodes).await;
}

/// What clients send when they connect in cluster mode.
const GREETINGS: [(&str, &[&str]); 6] = [
    (
        "redis-py",
        &[
            "CLIENT SETINFO LIB-NAME redis-py",
            "CLIENT SETINFO LIB-VER 7.4.1",
            "READONLY",
            "INFO",
            "CLUSTER SLOTS",
            "COMMAND",
        ],
    ),
    (
        "go-redis",
        &[
            "HELLO 3",
            "CLIENT SETINFO LIB-NAME go-redis(,go1.24.0)",
            "CLIENT SETINFO LIB-VER 9.7.3",
            "READONLY",
            "CLUSTER SLOTS",
            "COMMAND",
            "PING",
        ],
    ),
    (
        "jedis",
        &[
            "HELLO 3",
            "CLIENT SETINFO lib-name jedis",
            "CLIENT SETINFO lib-ver 5.2.0",
            "CLUSTER SLOTS",
            "READONLY",
        ],
    ),
    (
        "lettuce",
        &[
            "HELLO 3",
            "CLIENT SETINFO lib-name Lettuce",
            "CLIENT SETINFO lib-ver 6.5.5.RELEASE/b53a2e0",
            "CLUSTER NODES",
            "INFO",
            "CLUSTER MYID",
            "READONLY",
            "READWRITE",
            "ASKING",
        ],
    ),
    ("ioredis", &["INFO", "CLUSTER INFO", "CLUSTER SLOTS", "READONLY"]),
    ("redis-cli", &["INFO", "CLUSTER NODES", "CLUSTER SHARDS", "CLUSTER LINKS", "COMMAND DOCS"]),
];

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_send_when_they_connect_is_answered() {
    for answers in ["single", "spread"] {
        let (_folder, node) = node_with(|config| config.resp_cluster = answers.into()).await;
        for (client_name, requests) in GREETINGS {
            let mut client = Client::new(&node).await;
            for request in requests {
                client.send(format!("{request}\r\nECHO end\r\n").as_bytes()).await;
                let first = client.line().await;
                assert!(!first.starts_with('-'), "{client_name}: {request}: {first}");
                while client.line().await != "end" {}
            }
        }
        node.shutdown().await;
    }
}
