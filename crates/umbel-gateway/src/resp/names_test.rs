//! Tests of renaming and copying filters.

use futures_util::future::join_all;

use super::resp_test::{Client, node, node_at};
use crate::test_node::Clock;

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_gets_another_name() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    client.call("RENAME a b", "-ERR no such key\r\n").await;
    client.call("RENAMENX a b", "-ERR no such key\r\n").await;
    client.call("BF.ADD a x", ":1\r\n").await;
    client.call("RENAME a a", "+OK\r\n").await;
    client.call("RENAMENX a a", ":0\r\n").await;
    client.call("RENAME a b", "+OK\r\n").await;
    client.call("EXISTS a", ":0\r\n").await;
    client.call("BF.EXISTS a x", ":0\r\n").await;
    client.call("BF.EXISTS b x", ":1\r\n").await;
    client.call("BF.ADD b y", ":1\r\n").await;
    // A filter that already has the new name blocks the command, or is replaced.
    client.call("BF.ADD a z", ":1\r\n").await;
    client.call("RENAMENX b a", ":0\r\n").await;
    client.call("RENAME b a", "+OK\r\n").await;
    client.call("BF.MEXISTS a x y z", "*3\r\n:1\r\n:1\r\n:0\r\n").await;
    client.call("DBSIZE", ":1\r\n").await;
    client.call("RENAMENX a b", ":1\r\n").await;
    // Names in another database are different names.
    client.call("SELECT 1", "+OK\r\n").await;
    client.call("RENAME b c", "-ERR no such key\r\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_is_copied() {
    let (_folder, node) = node_at(&Clock::stopped()).await;
    let mut client = Client::new(&node).await;
    client.call("COPY a b", ":0\r\n").await;
    client.call("BF.MADD a x y", "*2\r\n:1\r\n:1\r\n").await;
    client.call("COPY a a", "-ERR source and destination objects are the same\r\n").await;
    client.call("COPY a b", ":1\r\n").await;
    client.call("COPY a b", ":0\r\n").await;
    client.call("BF.ADD b z", ":1\r\n").await;
    client.call("BF.MEXISTS a x y z", "*3\r\n:1\r\n:1\r\n:0\r\n").await;
    client.call("BF.MEXISTS b x y z", "*3\r\n:1\r\n:1\r\n:1\r\n").await;
    // The copy replaces an existing filter, and takes over the expiry.
    client.call("EXPIRE a 1000", ":1\r\n").await;
    client.call("COPY a b REPLACE", ":1\r\n").await;
    client.call("BF.MEXISTS b x y z", "*3\r\n:1\r\n:1\r\n:0\r\n").await;
    client.call("TTL b", ":1000\r\n").await;
    client.call("DBSIZE", ":2\r\n").await;
    client.call("COPY missing b REPLACE", ":0\r\n").await;
    client.call("BF.EXISTS b x", ":1\r\n").await;
    client.call("COPY a a DB 2", ":1\r\n").await;
    client.call("COPY a c DB 16", "-ERR DB index is out of range\r\n").await;
    client.call("COPY a c DB", "-ERR syntax error\r\n").await;
    client.call("COPY a c SOON", "-ERR syntax error\r\n").await;
    client.call("SELECT 2", "+OK\r\n").await;
    client.call("BF.EXISTS a y", ":1\r\n").await;
}

/// Nodes serve one snapshot of a filter at a time, and refuse what is more.
#[tokio::test(flavor = "multi_thread")]
async fn copies_of_one_node_wait_for_each_other() {
    let (_folder, node) = node().await;
    Client::new(&node).await.call("BF.MADD a x y", "*2\r\n:1\r\n:1\r\n").await;
    let copies = (0..6).map(|number| {
        let node = &node;
        async move { Client::new(node).await.call(&format!("COPY a copy-{number}"), ":1\r\n").await }
    });
    join_all(copies).await;
    Client::new(&node).await.call("BF.MEXISTS copy-5 x y z", "*3\r\n:1\r\n:1\r\n:0\r\n").await;
    node.shutdown().await;
}
