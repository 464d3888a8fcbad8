//! Tests of set commands on filters that transcripts cannot express.

use super::resp_test::{Client, node};

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_numbers_in_protocol_three_too() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    client.send(b"HELLO 3\r\n").await;
    while client.line().await != "$7" {}
    while client.line().await != "*0" {}
    client.call("SADD k a b", ":2\r\n").await;
    client.call("SADD k a", ":0\r\n").await;
    client.call("SISMEMBER k a", ":1\r\n").await;
    client.call("SMISMEMBER k b none", "*2\r\n:1\r\n:0\r\n").await;
    client.call("SCARD k", ":2\r\n").await;
    client.call("BF.MADD k a c", "*2\r\n#f\r\n#t\r\n").await;
    node.shutdown().await;
}

/// Adjacent commands go to the cluster together, and each is answered in its own form.
#[tokio::test(flavor = "multi_thread")]
async fn neighbours_of_both_families_are_answered_as_one_by_one() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    client.call("BF.RESERVE k 0.000001 1000", "+OK\r\n").await;
    let requests = "SADD k a b a\r\nBF.ADD k b\r\nBF.MADD k c a\r\nSADD k c d\r\n\
                    SISMEMBER k d\r\nBF.MEXISTS k a x\r\nSMISMEMBER k x d\r\nSISMEMBER k x\r\n";
    client.send(requests.as_bytes()).await;
    let answers =
        ":2\r\n:0\r\n*2\r\n:1\r\n:0\r\n:1\r\n:1\r\n*2\r\n:1\r\n:0\r\n*2\r\n:0\r\n:1\r\n:0\r\n";
    client.expect(answers, "the pipeline").await;
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_request_may_come_again() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    client.send(b"UMBEL.SESSION\r\n").await;
    let session = client.line().await[1..].to_owned();
    client.call("BF.RESERVE k 0.000001 1000", "+OK\r\n").await;
    let request = format!("UMBEL.REQUEST {session}:1 SADD k a b a");
    client.call(&request, ":2\r\n").await;
    client.call(&request, ":2\r\n").await;
    client.call("SADD k a b a", ":0\r\n").await;
    node.shutdown().await;
}

/// A full filter answers with an error instead of a number, even if some items were inserted before.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_filter_is_an_error() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    client.call("UMBEL.CREATE like KIND redisbloom CAPACITY 2 ERROR 0.01", "+OK\r\n").await;
    client.call("SADD like a b c", ":3\r\n").await;
    client.call("CF.RESERVE k 4 EXPANSION 0", "+OK\r\n").await;
    let items: String = (0..2_000).map(|item| format!(" {item}")).collect();
    client.call(&format!("SADD k{items}"), "-ERR non scaling filter is full\r\n").await;
    node.shutdown().await;
}
