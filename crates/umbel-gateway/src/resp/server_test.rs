//! Commands about the server and its connections whose answers depend on the node or the moment, so that
//! transcripts cannot express them.

use tokio::io::AsyncReadExt as _;

use super::resp_test::{Client, node};

/// The text of an answer that is a bulk string.
async fn text(client: &mut Client, request: &str) -> String {
    client.send(format!("{request}\r\n").as_bytes()).await;
    let line = client.line().await;
    let length: usize = line.strip_prefix('$').expect("a bulk string").parse().unwrap();
    let mut text = vec![0; length];
    client.stream.read_exact(&mut text).await.unwrap();
    client.expect("\r\n", request).await;
    String::from_utf8(text).unwrap()
}

/// The number in an answer.
async fn number(client: &mut Client, request: &str) -> u64 {
    client.send(format!("{request}\r\n").as_bytes()).await;
    client.line().await[1..].parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_listed_by_type_and_id() {
    let (_folder, node) = node().await;
    let mut one = Client::new(&node).await;
    let first = number(&mut one, "CLIENT ID").await;
    let mut other = Client::new(&node).await;
    let second = number(&mut other, "CLIENT ID").await;
    one.ask("CLIENT SETNAME me", "+OK\r\n").await;
    one.ask("CLIENT SETINFO LIB-NAME lib", "+OK\r\n").await;
    let mut ids = async |request: &str| -> Vec<u64> {
        let lines = text(&mut one, request).await;
        let id =
            |line: &str| line["id=".len()..].split(' ').next().unwrap().parse::<u64>().unwrap();
        lines.lines().map(id).collect()
    };
    assert_eq!(ids("CLIENT LIST").await, [first, second]);
    assert_eq!(ids("CLIENT LIST TYPE normal").await, [first, second]);
    assert_eq!(ids("CLIENT LIST TYPE replica").await, [0_u64; 0]);
    assert_eq!(ids(&format!("CLIENT LIST ID {second} 99 -1 {first}")).await, [second, first]);
    let own = text(&mut one, "CLIENT INFO").await;
    let (before, since) = (format!("id={first} addr=127.0.0.1:"), " db=0 sub=0 ");
    assert!(own.starts_with(&before) && own.contains(" name=me ") && own.contains(since), "{own}");
    assert!(own.ends_with(" user=default resp=2 lib-name=lib lib-ver=\n"), "{own}");
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_are_reset() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    client.ask("BF.ADD k x", ":1\r\n").await;
    client.ask("BF.EXISTS k x", ":1\r\n").await;
    client.ask("BF.EXISTS none x", ":0\r\n").await;
    let counted = text(&mut client, "INFO stats").await;
    assert!(counted.contains("keyspace_hits:1\r\nkeyspace_misses:1\r\n"), "{counted}");
    client.ask("CONFIG RESETSTAT", "+OK\r\n").await;
    let counted = text(&mut client, "INFO stats").await;
    let expected = "total_commands_processed:1\r\nkeyspace_hits:0\r\nkeyspace_misses:0\r\n";
    assert!(counted.contains(expected), "{counted}");
    node.shutdown().await;
}
