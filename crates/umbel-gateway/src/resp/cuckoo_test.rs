//! Tests of cuckoo filters over the Redis protocol that transcripts cannot express.

use super::resp_test::{Client, node};

/// Items without room are distinguished from those with room, and removed items make room again.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_filter_says_so_item_by_item() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    // One page of 512 slots in each of two shards.
    client.call("CF.RESERVE k 4", "+OK\r\n").await;
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
