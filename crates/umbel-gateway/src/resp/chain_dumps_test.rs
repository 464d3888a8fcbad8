//! Tests of RedisBloom's kind of filter over the protocol: its figures, and its dumps in both directions.

use futures_util::future::join_all;
use tempfile::TempDir;
use umbel_filter::{Insert, ItemHasher, RedisBloom, RedisBloomHeader, RedisBloomShape};
use umbel_node::config::Config;

use super::dumps::COPIES_MAX;
use super::dumps_test::{NOT_LOADING, add, dump, gone, load, piece};
use super::resp_test::{Client, node};
use crate::test_node::Node;
use crate::test_node::{config, start};

/// A node whose plain commands create filters of RedisBloom's kind.
async fn node_of_chains() -> (TempDir, Node) {
    let folder = tempfile::tempdir().unwrap();
    let (resp_listen, resp_default_kind) = (Some("127.0.0.1:0".to_owned()), "redisbloom".into());
    let config = Config {
        dev: true,
        shards: 5,
        replicas: 1,
        resp_listen,
        resp_default_kind,
        ..config(folder.path())
    };
    let node = start(config).await;
    (folder, node)
}

/// The filter of RedisBloom after `BF.RESERVE` with this shape and `BF.ADD` of the numbers below `count`.
pub(super) fn theirs(shape: RedisBloomShape, count: u32) -> RedisBloom {
    let mut filter = RedisBloom::with_shape(shape).unwrap();
    for number in 0..count {
        filter.insert(ItemHasher::RedisBloom.hash(number.to_string().as_bytes())).unwrap();
    }
    filter
}

/// The header, and the arrays in pieces of `piece_bytes` bytes.
pub(super) fn pieces_of(filter: &RedisBloom, piece_bytes: usize) -> Vec<(i64, Vec<u8>)> {
    let mut pieces = vec![(1, RedisBloomHeader::of(filter).to_bytes())];
    let mut iterator = 1;
    for link in filter.links() {
        let bytes: Vec<u8> = link.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        let bytes = &bytes[..usize::try_from(link.shape().byte_count()).unwrap()];
        for piece in bytes.chunks(piece_bytes) {
            iterator += i64::try_from(piece.len()).unwrap();
            pieces.push((iterator, piece.to_vec()));
        }
    }
    pieces
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_commands_make_chains_with_the_numbers_of_redis_bloom() {
    let (_folder, node) = node_of_chains().await;
    let mut client = Client::new(&node).await;
    client.call("BF.RESERVE grown 0.01 10", "+OK\r\n").await;
    add(&mut client, "grown", 0..100).await;
    client.call("BF.CARD grown", ":99\r\n").await;
    // Capacities 10, 20, 40 and 80; 32 bytes, 64 a link, and arrays of 16, 32, 72 and 160.
    client
        .call(
            "BF.INFO grown",
            "*10\r\n+Capacity\r\n:150\r\n+Size\r\n:568\r\n+Number of filters\r\n:4\r\n\
             +Number of items inserted\r\n:99\r\n+Expansion rate\r\n:2\r\n",
        )
        .await;
    client.send(b"BF.DEBUG grown\r\n").await;
    assert_eq!(client.line().await, "*5");
    let mut lines = Vec::new();
    for _ in 0..5 {
        assert!(client.line().await.starts_with('$'));
        lines.push(client.line().await);
    }
    assert_eq!(lines[0], "size:99");
    let last = "bytes:160 bits:1280 hashes:11 hashwidth:64 capacity:80 size:29 ratio:0.000625";
    assert_eq!(lines[4], last);
    let filter = theirs(RedisBloomShape::for_rate(10, 0.01).unwrap(), 100);
    assert_eq!(dump(&mut client, "BF.SCANDUMP", "grown").await, pieces_of(&filter, 1 << 20));

    client.call("BF.ADD plain foo", ":1\r\n").await;
    client.call("BF.ADD plain foo", ":0\r\n").await;
    client.call("BF.INFO plain SIZE", "*1\r\n:240\r\n").await;
    client.call("MEMORY USAGE plain", ":288\r\n").await;
    client.call("BF.INFO plain CAPACITY", "*1\r\n:100\r\n").await;
    client.call("TYPE plain", "+MBbloom--\r\n").await;

    client.call("BF.RESERVE slow 0.01 4 EXPANSION 1", "+OK\r\n").await;
    add(&mut client, "slow", 0..100).await;
    client.call("BF.INFO slow FILTERS", "*1\r\n:23\r\n").await;
    client.call("BF.RESERVE fixed 0.01 3 NONSCALING", "+OK\r\n").await;
    add(&mut client, "fixed", 0..3).await;
    client.call("BF.ADD fixed 3", "-ERR non scaling filter is full\r\n").await;
    client.call("BF.ADD fixed 2", ":0\r\n").await;
    // In one write, each command still has its own answer.
    let full = "-ERR non scaling filter is full\r\n";
    client.send(b"BF.ADD fixed 3\r\nBF.ADD fixed 2\r\nBF.ADD fixed 4\r\n").await;
    client.expect(&format!("{full}:0\r\n{full}"), "a pipeline").await;
    client.call("BF.RESERVE fixed2 0.01 3 NONSCALING", "+OK\r\n").await;
    client
        .send(
            "BF.ADD fixed2 a\r\nBF.ADD fixed2 b\r\nBF.ADD fixed2 a\r\nSADD fixed2 c d\r\n"
                .as_bytes(),
        )
        .await;
    client.expect(&format!(":1\r\n:1\r\n:0\r\n{full}"), "a pipeline that fills it").await;
    client.call("BF.INFO fixed EXPANSION", "*1\r\n$-1\r\n").await;
    client.call("BF.INFO fixed SIZE", "*1\r\n:104\r\n").await;
    node.shutdown().await;
}

/// As RedisBloom, a list has the answers of the items before the first one without room.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_chain_had_room_for_is_answered_before_the_error() {
    let (_folder, node) = node_of_chains().await;
    let mut client = Client::new(&node).await;
    let full = "-ERR non scaling filter is full\r\n";
    client.call("BF.RESERVE fixed3 0.000001 3 NONSCALING", "+OK\r\n").await;
    let answers = format!("*5\r\n:1\r\n:1\r\n:0\r\n:1\r\n{full}");
    client.call("BF.MADD fixed3 a b a c d e", &answers).await;
    client.call("BF.MADD fixed3 c a d b", &format!("*3\r\n:0\r\n:0\r\n{full}")).await;
    client.call("BF.MADD fixed3 a b c", "*3\r\n:0\r\n:0\r\n:0\r\n").await;
    client.call("BF.MADD fixed3 e a", &format!("*1\r\n{full}")).await;
    client.call("BF.CARD fixed3", ":3\r\n").await;
    let made = "BF.INSERT fixed4 CAPACITY 2 ERROR 0.000001 NONSCALING ITEMS x y z";
    client.call(made, &format!("*3\r\n:1\r\n:1\r\n{full}")).await;
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dumps_of_redis_bloom_are_loaded_and_go_back() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    let small = theirs(RedisBloomShape::for_rate(10, 0.01).unwrap(), 100);
    // 1.25 MB in one piece, as RedisBloom sends it.
    let large = theirs(RedisBloomShape::new(500_000, 1e-4, 2).unwrap().fixed(), 1_000);
    let empty = theirs(RedisBloomShape::for_rate(100, 0.001).unwrap(), 0);
    for (key, filter, count) in
        [("small", &small, 100), ("large", &large, 1_000), ("empty", &empty, 0)]
    {
        for (part, piece_bytes) in [1 << 24, 24, 100_000].into_iter().enumerate() {
            if filter.memory_bytes() > 10_000 && piece_bytes == 24 {
                continue;
            }
            let key = format!("{key}{part}");
            for piece in &pieces_of(filter, piece_bytes) {
                load(&mut client, "BF.LOADCHUNK", &key, piece).await;
                client.expect("+OK\r\n", &key).await;
            }
            client.call(&format!("BF.CARD {key}"), &format!(":{}\r\n", filter.item_count())).await;
            for item in (0..count).step_by(7) {
                client.call(&format!("BF.EXISTS {key} {item}"), ":1\r\n").await;
            }
            let back = dump(&mut client, "BF.SCANDUMP", &key).await;
            assert!(back == pieces_of(filter, 384 << 10), "{key}");
            // The filter exists, and is not overwritten.
            load(&mut client, "BF.LOADCHUNK", &key, &back[0]).await;
            client.expect("-ERR received bad data\r\n", &key).await;
        }
    }
    // The filter grows as it would have grown there.
    add(&mut client, "small0", 100..300).await;
    let grown = theirs(RedisBloomShape::for_rate(10, 0.01).unwrap(), 300);
    assert!(dump(&mut client, "BF.SCANDUMP", "small0").await == pieces_of(&grown, 1 << 24));
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_goes_on_at_any_connection_and_anywhere() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    client.call("UMBEL.CREATE k KIND redisbloom CAPACITY 10 ERROR 0.01", "+OK\r\n").await;
    add(&mut client, "k", 0..100).await;
    let pieces = dump(&mut client, "BF.SCANDUMP", "k").await;
    assert_eq!(pieces.iter().map(|piece| piece.0).collect::<Vec<_>>(), [1, 17, 49, 121, 281]);
    let mut other = Client::new(&node).await;
    for at in 1..5 {
        let request = format!("BF.SCANDUMP k {}", pieces[at - 1].0);
        assert_eq!(piece(&mut other, &request).await, pieces[at]);
    }
    // From the middle of a link, and at invalid positions.
    let middle = piece(&mut other, "BF.SCANDUMP k 25").await;
    assert_eq!(middle, (49, pieces[2].1[8..].to_vec()));
    for iterator in ["281", "282", "99999999", "-1", "-9223372036854775808"] {
        other.call(&format!("BF.SCANDUMP k {iterator}"), "*2\r\n:0\r\n$0\r\n\r\n").await;
    }
    node.shutdown().await;
}

/// Complete copies, whose last piece may come again, take no room from others.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_got_no_answer_sends_the_last_piece_again() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    let pieces = pieces_of(&theirs(RedisBloomShape::for_rate(10, 0.01).unwrap(), 9), 1 << 20);
    let last = pieces.last().unwrap();
    for number in 0..=COPIES_MAX {
        let key = format!("k{number}");
        for piece in &pieces {
            load(&mut client, "BF.LOADCHUNK", &key, piece).await;
            client.expect("+OK\r\n", &key).await;
        }
        let mut other = Client::new(&node).await;
        load(&mut other, "BF.LOADCHUNK", &key, last).await;
        other.expect("+OK\r\n", &key).await;
    }
    load(&mut client, "BF.LOADCHUNK", "k0", last).await;
    client.expect("+OK\r\n", "the last piece of the first copy").await;
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_headers_and_pieces_leave_nothing() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    let bad = "-ERR received bad data\r\n";
    let pieces = pieces_of(&theirs(RedisBloomShape::for_rate(10, 0.01).unwrap(), 100), 1 << 20);
    for bit in (0..8 * 20).step_by(3) {
        let mut header = pieces[0].1.clone();
        header[bit / 8] ^= 1 << (bit % 8);
        load(&mut client, "BF.LOADCHUNK", "k", &(1, header)).await;
        client.expect(bad, "a header").await;
    }
    for data in [&b""[..], b"UM", &[0; 73], &[255; 73]] {
        load(&mut client, "BF.LOADCHUNK", "k", &(1, data.to_vec())).await;
        client.expect(bad, "a header").await;
    }
    load(&mut client, "BF.LOADCHUNK", "k", &pieces[1]).await;
    client.expect(NOT_LOADING, "a piece without a header").await;
    let large = "-ERR invalid chunk - Too big for current filter\r\n";
    let refused = [
        ((17, vec![0; 17]), bad),
        ((25, vec![0; 24]), large),
        ((281, vec![0; 160]), bad),
        ((441, vec![0; 160]), "-ERR invalid offset - no link found\r\n"),
    ];
    // All at once: a lookup in what is half loaded is answered only after a while.
    let keys = ["k0", "k1", "k2", "k3"];
    let ends = keys.into_iter().zip(&refused);
    join_all(ends.map(|(key, refused)| a_piece_ends_it(&node, key, &pieces[0], refused))).await;
    for piece in &pieces {
        load(&mut client, "BF.LOADCHUNK", keys[0], piece).await;
        client.expect("+OK\r\n", "a whole copy").await;
    }
    node.shutdown().await;
}

/// Begins to load a copy, and sends a piece that is refused with this answer: nothing is left of the copy.
async fn a_piece_ends_it(
    node: &Node,
    key: &str,
    header: &(i64, Vec<u8>),
    (piece, answer): &((i64, Vec<u8>), &str),
) {
    let mut client = Client::new(node).await;
    load(&mut client, "BF.LOADCHUNK", key, header).await;
    client.expect("+OK\r\n", "the header").await;
    client.send(format!("BF.EXISTS {key} 1\r\n").as_bytes()).await;
    let asked = client.line().await;
    assert!(asked.starts_with("-TRYAGAIN"), "{asked}");
    load(&mut client, "BF.LOADCHUNK", key, piece).await;
    client.expect(answer, "a piece").await;
    gone(node, key).await;
}
