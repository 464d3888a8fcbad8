//! Dumps, and the requests that load them, cut at any byte: nothing of them is visible.

use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use umbel_node::config::Config;

use super::dumps_test::{add, dump, gone, load, load_request};
use super::resp_test::Client;
use crate::test_node::Node;
use crate::test_node::{config, start};

/// A node with one shard, so that dumps are short. It does not sync, since each turn creates and drops a
/// filter.
async fn node() -> (TempDir, Node) {
    let folder = tempfile::tempdir().unwrap();
    let resp_listen = Some("127.0.0.1:0".to_owned());
    let config = Config {
        dev: true,
        shards: 1,
        replicas: 1,
        fsync: false,
        resp_listen,
        ..config(folder.path())
    };
    let node = start(config).await;
    (folder, node)
}

/// The dump of a filter `k` that has the items below `items`. The filter stays: its hash key must be there
/// for the copy.
async fn dump_of(
    node: &Node,
    family: &str,
    create: &str,
    items: std::ops::Range<u32>,
) -> Vec<(i64, Vec<u8>)> {
    let mut client = Client::new(node).await;
    client.call(create, "+OK\r\n").await;
    add(&mut client, "k", items).await;
    dump(&mut client, &format!("{family}.SCANDUMP"), "k").await
}

/// The first bytes of a dump. Iterators of RedisBloom's pieces after the header tell where a piece ends.
fn cut(pieces: &[(i64, Vec<u8>)], byte_count: usize) -> Vec<(i64, Vec<u8>)> {
    let (mut cut, mut left) = (Vec::new(), byte_count);
    for (index, (iterator, piece)) in pieces.iter().enumerate() {
        let taken = piece.len().min(left);
        if taken == 0 {
            break;
        }
        let missing = i64::try_from(piece.len() - taken).unwrap();
        let iterator = if index == 0 { *iterator } else { *iterator - missing };
        cut.push((iterator, piece[..taken].to_vec()));
        left -= taken;
    }
    cut
}

/// Closes a connection, waits until the node has closed it too, and asserts that no more was answered.
async fn close(mut client: Client) {
    client.stream.shutdown().await.unwrap();
    assert_eq!(client.rest().await, "");
}

/// Asserts that there is no key but `k`.
async fn assert_unseen(client: &mut Client, what: &str) {
    client.send(b"EXISTS copy\r\nTYPE copy\r\nKEYS *\r\nSCAN 0\r\nDBSIZE\r\n").await;
    let list = "*1\r\n$1\r\nk\r\n";
    let expected = format!(":0\r\n+none\r\n{list}*2\r\n$1\r\n0\r\n{list}:1\r\n");
    client.expect(&expected, what).await;
}

/// Loads a dump up to each of its bytes in turn, every time over a connection of its own. A first piece with
/// fewer than `bytes_min` bytes is refused. The node takes the first piece of a turn only after what the turn
/// before has left is gone.
async fn only_the_last_byte_shows(
    node: &Node,
    family: &str,
    pieces: &[(i64, Vec<u8>)],
    bytes_min: usize,
) {
    let command = format!("{family}.LOADCHUNK");
    let mut other = Client::new(node).await;
    let byte_count: usize = pieces.iter().map(|(_, piece)| piece.len()).sum();
    for end in 1..=byte_count {
        let what = format!("{end} of {byte_count} bytes");
        let answer = if end < bytes_min { "-ERR received bad data\r\n" } else { "+OK\r\n" };
        let mut client = Client::new(node).await;
        for piece in &cut(pieces, end) {
            load(&mut client, &command, "copy", piece).await;
            client.expect(answer, &what).await;
        }
        close(client).await;
        if end < byte_count {
            assert_unseen(&mut other, &what).await;
        }
    }
    other.call(&format!("{family}.EXISTS copy 0"), ":1\r\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bloom_filter_is_visible_with_its_last_byte() {
    let (_folder, node) = node().await;
    let pieces = dump_of(&node, "BF", "BF.RESERVE k 0.01 1", 0..1).await;
    assert_eq!(pieces.len(), 1);
    only_the_last_byte_shows(&node, "BF", &pieces, 0).await;
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cuckoo_filter_is_visible_with_its_last_byte() {
    let (_folder, node) = node().await;
    let pieces = dump_of(&node, "CF", "CF.RESERVE k 4 EXPANSION 0", 0..1).await;
    assert_eq!(pieces.len(), 1);
    only_the_last_byte_shows(&node, "CF", &pieces, 0).await;
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_of_redis_bloom_is_visible_with_its_last_byte() {
    let (_folder, node) = node().await;
    let create = "UMBEL.CREATE k KIND redisbloom CAPACITY 10 ERROR 0.01";
    let pieces = dump_of(&node, "BF", create, 0..60).await;
    // The header, which must be whole, and three links.
    assert_eq!(pieces.len(), 4);
    only_the_last_byte_shows(&node, "BF", &pieces, pieces[0].1.len()).await;
    node.shutdown().await;
}

/// The connection ends within the command: arguments are missing, or shorter than announced.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_cut_loads_nothing() {
    let (_folder, node) = node().await;
    let mut other = Client::new(&node).await;
    for (family, create) in [("BF", "BF.RESERVE k 0.01 1"), ("CF", "CF.RESERVE k 4")] {
        let pieces = dump_of(&node, family, create, 0..1).await;
        assert_eq!(pieces.len(), 1);
        let request = load_request(&format!("{family}.LOADCHUNK"), "copy", &pieces[0]);
        for end in 0..request.len() {
            let mut client = Client::new(&node).await;
            client.send(&request[..end]).await;
            close(client).await;
            assert_unseen(&mut other, &format!("{end} of {} bytes", request.len())).await;
        }
        other.send(&request).await;
        other.expect("+OK\r\n", "the whole request").await;
        other.call("DEL copy k", ":2\r\n").await;
        gone(&node, "copy").await;
        gone(&node, "k").await;
    }
    node.shutdown().await;
}
