//! Tests of filters of `CF.*` over the Redis protocol that transcripts cannot express.

use std::sync::Arc;

use futures_util::future::join_all;
use umbel_coordinator::Coordinator;
use umbel_engine::meta::{ClusterVersion, FilterName};
use umbel_filter::Kind;
use umbel_node::item_batch::ItemBatch;
use umbel_ports::{Purpose, Rare, RealSeed, Seed};

use super::resp_test::{Client, node, node_by, node_up_to};
use crate::test_node::{create, deadline};

/// Items without room are distinguished from those with room, and removed items make room again.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_filter_says_so_item_by_item() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    // One page of 512 slots in each of two shards.
    client.call("CF.RESERVE k 4 EXPANSION 0", "+OK\r\n").await;
    let (mut added, mut refused) = (Vec::new(), Vec::new());
    for chunk in 0..5 {
        let items: Vec<String> = (0..300).map(|number| format!("{chunk}-{number}")).collect();
        client.send(format!("CF.INSERT k ITEMS {}\r\n", items.join(" ")).as_bytes()).await;
        assert_eq!(client.line().await, "*300");
        for item in items {
            match &*client.line().await {
                ":1" => added.push(item),
                ":-1" => refused.push(item),
                other => panic!("{item}: {other}"),
            }
        }
    }
    assert!((900..=1024).contains(&added.len()), "{} were added", added.len());
    let full = refused.first().expect("more came than there are slots");
    client.call(&format!("CF.ADD k {full}"), "-Filter is full\r\n").await;
    for item in &added {
        client.call(&format!("CF.EXISTS k {item}"), ":1\r\n").await;
    }
    for item in &added[..added.len() / 2] {
        client.call(&format!("CF.DEL k {item}"), ":1\r\n").await;
    }
    client.call(&format!("CF.ADD k {full}"), ":1\r\n").await;
    node.shutdown().await;
}

/// A filter takes many times the items that it was created for, and each of them can be removed.
#[tokio::test(flavor = "multi_thread")]
async fn a_filter_grows_and_gives_back_what_it_took() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    // One page in each of two shards, planned for 60 items.
    client.call("CF.RESERVE k 4", "+OK\r\n").await;
    client.call("MEMORY USAGE k", ":896\r\n").await;
    let items: Vec<String> = (0..2_000).map(|item| item.to_string()).collect();
    for some in items.chunks(500) {
        let inserted = format!("*{}\r\n{}", some.len(), ":1\r\n".repeat(some.len()));
        client.call(&format!("CF.INSERT k ITEMS {}", some.join(" ")), &inserted).await;
    }
    client.send(b"MEMORY USAGE k\r\n").await;
    let bytes: u64 = client.line().await[1..].parse().unwrap();
    assert!(bytes > 4 * 896, "{bytes}");
    let all_are = |answer: &str| format!("*{}\r\n{}", items.len(), answer.repeat(items.len()));
    let asked = format!("CF.MEXISTS k {}", items.join(" "));
    client.call(&asked, &all_are(":1\r\n")).await;
    let removals: String = items.iter().map(|item| format!("CF.DEL k {item}\r\n")).collect();
    client.send(removals.as_bytes()).await;
    client.expect(&":1\r\n".repeat(items.len()), "the removals").await;
    client.call(&asked, &all_are(":0\r\n")).await;
    // It keeps its size.
    client.call("MEMORY USAGE k", &format!(":{bytes}\r\n")).await;
    node.shutdown().await;
}

/// A filter whose remainders have no bit left to give cannot double, and then is full item by item, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_cannot_double_is_full() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    // Remainders of two bits: once doubled, each of two shards has 192 slots for 256 positions.
    client.call("UMBEL.CREATE k KIND quotient CAPACITY 50 ERROR 0.3", "+OK\r\n").await;
    let items: Vec<String> = (0..2_000).map(|item| item.to_string()).collect();
    client.send(format!("CF.INSERT k ITEMS {}\r\n", items.join(" ")).as_bytes()).await;
    assert_eq!(client.line().await, "*2000");
    let (mut added, mut refused) = (Vec::new(), Vec::new());
    for item in &items {
        match &*client.line().await {
            ":1" => added.push(item),
            ":-1" => refused.push(item),
            other => panic!("{item}: {other}"),
        }
    }
    assert!(added.len() > 200, "{} were added", added.len());
    let full = refused.first().expect("more positions came than there are slots");
    client.call(&format!("CF.ADD k {full}"), "-Filter is full\r\n").await;
    client.call(&format!("CF.EXISTS k {full}"), ":0\r\n").await;
    for item in &added {
        client.call(&format!("CF.EXISTS k {item}"), ":1\r\n").await;
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_protocol_three_are_booleans_where_redisblooms_are() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    client.send(b"HELLO 3\r\n").await;
    while client.line().await != "$7" {}
    while client.line().await != "*0" {}
    client.call("CF.ADD k a", "#t\r\n").await;
    client.call("CF.ADDNX k a", "#f\r\n").await;
    client.call("CF.INSERT k ITEMS a b", "*2\r\n#t\r\n#t\r\n").await;
    client.call("CF.INSERTNX k ITEMS a c", "*2\r\n:0\r\n:1\r\n").await;
    client.call("CF.COUNT k a", ":2\r\n").await;
    client.call("CF.DEL k c", "#t\r\n").await;
    client.call("CF.MEXISTS k b c", "*2\r\n#t\r\n#f\r\n").await;
    node.shutdown().await;
}

/// However many clients of a node add a new item at once, one of them inserts it, and once.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_item_is_added_once() {
    // Before the sixth version of the cluster they take turns.
    for newest in [ClusterVersion(5), ClusterVersion::NEWEST] {
        check_added_once(newest).await;
    }
}

async fn check_added_once(newest: ClusterVersion) {
    let (_folder, node) = node_up_to(newest).await;
    let mut client = Client::new(&node).await;
    client.call("CF.RESERVE grows 1000", "+OK\r\n").await;
    client.call("CF.RESERVE fixed 1000 EXPANSION 0", "+OK\r\n").await;
    for key in ["grows", "fixed"] {
        for item in 0..10 {
            let request = format!("CF.ADDNX {key} {item}\r\n");
            let answers = join_all((0..20).map(|_| async {
                let mut client = Client::new(&node).await;
                client.send(request.as_bytes()).await;
                client.line().await
            }));
            let answers = answers.await;
            let new_count = answers.iter().filter(|answer| *answer == ":1").count();
            assert_eq!(new_count, 1, "{answers:?}");
            client.call(&format!("CF.COUNT {key} {item}"), ":1\r\n").await;
            client.call(&format!("CF.DEL {key} {item}"), ":1\r\n").await;
            client.call(&format!("CF.EXISTS {key} {item}"), ":0\r\n").await;
        }
    }
    node.shutdown().await;
}

/// Lets a node work with a copy of the catalogue that is up to two seconds old.
struct Lagging;

impl Seed for Lagging {
    fn fill(&self, purpose: Purpose, bytes: &mut [u8]) {
        RealSeed.fill(purpose, bytes);
    }

    fn wall_ms(&self) -> u64 {
        RealSeed.wall_ms()
    }

    fn provokes(&self, rare: Rare) -> bool {
        rare == Rare::OldMap
    }
}

/// Through another node, a filter of another kind was replaced by one that tells copies: the node that is asked has not
/// heard of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_behind_finds_the_items_of_a_newer_filter() {
    let (_folder, node) = node_by(Arc::new(Lagging)).await;
    let mut client = Client::new(&node).await;
    let ahead = Coordinator::new(Arc::new(node.leader_calls(Arc::new(RealSeed))));
    let name = FilterName::new("k").unwrap();
    for (command, answer) in [
        ("CF.EXISTS k x", ":1\r\n"),
        ("CF.MEXISTS k x x", "*2\r\n:1\r\n:1\r\n"),
        ("CF.COUNT k x", ":1\r\n"),
        ("CF.ADD k y", ":1\r\n"),
        ("CF.COMPACT k", "+OK\r\n"),
        ("CF.DEL k x", ":1\r\n"),
    ] {
        create(&ahead, "k", Kind::Blocked).await;
        // From now on the node's copy of the catalogue is that of this moment.
        client.call("BF.EXISTS k x", ":0\r\n").await;
        ahead.drop_filter(&name, None, deadline()).await.unwrap();
        create(&ahead, "k", Kind::Cuckoo).await;
        let item = ItemBatch::packed("x".into(), vec![1]);
        ahead.insert("k", &item, None, None, deadline()).await.unwrap();
        client.call(command, answer).await;
        ahead.drop_filter(&name, None, deadline()).await.unwrap();
    }
    drop(ahead);
    node.shutdown().await;
}

/// Through another node, a filter that tells copies was dropped, and maybe replaced by one that does not: the node that
/// is asked has not heard of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_behind_answers_as_one_that_is_not() {
    let (_folder, node) = node_by(Arc::new(Lagging)).await;
    let mut client = Client::new(&node).await;
    let ahead = Coordinator::new(Arc::new(node.leader_calls(Arc::new(RealSeed))));
    let name = FilterName::new("k").unwrap();
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
    let no_filter = "-Cuckoo filter was not found\r\n";
    for (command, dropped, replaced) in [
        ("CF.ADD k x", ":1\r\n", wrong),
        ("CF.ADDNX k x", ":1\r\n", wrong),
        ("CF.INSERT k ITEMS x y", "*2\r\n:1\r\n:1\r\n", wrong),
        ("CF.INSERT k NOCREATE ITEMS x", "-ERR not found\r\n", wrong),
        ("CF.EXISTS k x", ":0\r\n", ":0\r\n"),
        ("CF.COUNT k x", ":0\r\n", ":0\r\n"),
        ("CF.DEL k x", "-Not found\r\n", "-Not found\r\n"),
        ("CF.COMPACT k", no_filter, no_filter),
        ("BF.ADD k x", ":1\r\n", ":0\r\n"),
        ("BF.EXISTS k x", ":0\r\n", ":1\r\n"),
    ] {
        for (is_replaced, answer) in [(false, dropped), (true, replaced)] {
            create(&ahead, "k", Kind::Cuckoo).await;
            // From now on the node's copy of the catalogue is that of this moment.
            client.call("CF.EXISTS k x", ":0\r\n").await;
            ahead.drop_filter(&name, None, deadline()).await.unwrap();
            if is_replaced {
                create(&ahead, "k", Kind::Blocked).await;
                let item = ItemBatch::packed("x".into(), vec![1]);
                ahead.insert("k", &item, None, None, deadline()).await.unwrap();
            }
            client.call(command, answer).await;
            // There is none if the command created none.
            let _ = ahead.drop_filter(&name, None, deadline()).await;
        }
    }
    drop(ahead);
    node.shutdown().await;
}
