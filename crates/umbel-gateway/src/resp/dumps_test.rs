//! Copies in pieces, from one name to another, and invalid pieces.

use tokio::io::AsyncReadExt as _;
use tokio::time::Instant;
use umbel_coordinator::transfers::{ExportParts, ExportWish};
use umbel_engine::meta::{FilterName, FilterState};

use super::dumps::IDLE_MAX;
use super::resp_test::{Client, node};
use crate::test_node::{Node, deadline};

pub(super) const NOT_LOADING: &str = "-ERR this node is not loading the filter: send all pieces to one node, from the first one on\r\n";

/// The iterator and the piece of an answer.
pub(super) async fn piece(client: &mut Client, request: &str) -> (i64, Vec<u8>) {
    client.send(format!("{request}\r\n").as_bytes()).await;
    assert_eq!(client.line().await, "*2", "{request}");
    let iterator = client.line().await[1..].parse().unwrap();
    let length = client.line().await;
    if length == "$-1" {
        return (iterator, Vec::new());
    }
    let mut piece = vec![0; length[1..].parse().unwrap()];
    client.stream.read_exact(&mut piece).await.unwrap();
    client.expect("\r\n", "the end of a piece").await;
    (iterator, piece)
}

pub(super) async fn dump(client: &mut Client, command: &str, key: &str) -> Vec<(i64, Vec<u8>)> {
    let mut pieces = vec![piece(client, &format!("{command} {key} 0")).await];
    while let Some(&(iterator, _)) = pieces.last().filter(|(iterator, _)| *iterator != 0) {
        let again = piece(client, &format!("{command} {key} {iterator}")).await;
        // A client that has not received the answer requests it again.
        if again.0 != 0 {
            assert_eq!(piece(client, &format!("{command} {key} {iterator}")).await, again);
        }
        pieces.push(again);
    }
    assert_eq!(pieces.pop(), Some((0, Vec::new())));
    pieces
}

pub(super) async fn load(client: &mut Client, command: &str, key: &str, piece: &(i64, Vec<u8>)) {
    client.send(&load_request(command, key, piece)).await;
}

/// The bytes of the request that loads a piece.
pub(super) fn load_request(
    command: &str,
    key: &str,
    (iterator, piece): &(i64, Vec<u8>),
) -> Vec<u8> {
    let iterator = iterator.to_string();
    let arguments = [command.as_bytes(), key.as_bytes(), iterator.as_bytes(), piece];
    let mut request = b"*4\r\n".to_vec();
    for argument in arguments {
        request.extend(format!("${}\r\n", argument.len()).bytes());
        request.extend(argument);
        request.extend(b"\r\n");
    }
    request
}

/// A copy of an existing filter of which nothing has been read.
pub(super) async fn exported(node: &Node, name: &str) -> ExportParts {
    let (name, deadline) = (FilterName::new(name).unwrap(), Instant::now() + IDLE_MAX);
    node.coordinator().export(&name, ExportWish::default(), deadline).await.unwrap()
}

pub(super) async fn add(client: &mut Client, key: &str, items: std::ops::Range<u32>) {
    let items: Vec<String> = items.map(|item| item.to_string()).collect();
    client.send(format!("BF.MADD {key} {}\r\n", items.join(" ")).as_bytes()).await;
    for _ in 0..=items.len() {
        client.line().await;
    }
}

/// Waits until the half-loaded filter is gone. Clients do not see it, so they cannot tell.
pub(super) async fn gone(node: &Node, key: &str) {
    until_state(node, key, |state| state.is_none()).await;
}

/// Waits until the catalogue shows a filter in such a state, or none.
async fn until_state(node: &Node, key: &str, is_wanted: impl Fn(Option<FilterState>) -> bool) {
    let (coordinator, end) = (node.coordinator(), deadline());
    loop {
        coordinator.meta_refresh(end).await.unwrap();
        let state =
            coordinator.read_meta(|state| Some(state.filter_by_name(key)?.1.state)).unwrap();
        if is_wanted(state) {
            return;
        }
        assert!(Instant::now() < end, "{key} is {state:?}");
        tokio::task::yield_now().await;
    }
}

/// Checks what a client sees of a key where it sees these keys.
async fn sees(client: &mut Client, key: &str, keys: &[&str]) {
    let (is_there, count) = (keys.contains(&key), keys.len());
    let of_type = if is_there { "+MBbloomCF\r\n" } else { "+none\r\n" };
    let list: String = keys.iter().map(|key| format!("${}\r\n{key}\r\n", key.len())).collect();
    let list = format!("*{count}\r\n{list}");
    client.call(&format!("EXISTS {key}"), &format!(":{}\r\n", u8::from(is_there))).await;
    client.call(&format!("TYPE {key}"), of_type).await;
    client.call("KEYS *", &list).await;
    client.call("SCAN 0", &format!("*2\r\n$1\r\n0\r\n{list}")).await;
    client.call("DBSIZE", &format!(":{count}\r\n")).await;
    client.send(b"INFO keyspace\r\n").await;
    let length: usize = client.line().await[1..].parse().unwrap();
    let mut text = vec![0; length + 2];
    client.stream.read_exact(&mut text).await.unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains(&format!("keys={count},")), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_exists_once_its_last_piece_has_arrived() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    client.call("CF.RESERVE large 400000 EXPANSION 0", "+OK\r\n").await;
    let pieces = dump(&mut client, "CF.SCANDUMP", "large").await;
    let (last, first) = pieces.split_last().unwrap();
    assert!(!first.is_empty());
    for piece in first {
        load(&mut client, "CF.LOADCHUNK", "copy", piece).await;
        client.expect("+OK\r\n", "a piece").await;
        until_state(&node, "copy", |state| state == Some(FilterState::Importing)).await;
        sees(&mut client, "copy", &["large"]).await;
    }
    load(&mut client, "CF.LOADCHUNK", "copy", last).await;
    client.expect("+OK\r\n", "the last piece").await;
    sees(&mut client, "copy", &["large", "copy"]).await;
    node.shutdown().await;
}

/// Although no command shows it: its name is taken.
#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_is_being_loaded_is_deleted() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    client.call("CF.RESERVE large 400000 EXPANSION 0", "+OK\r\n").await;
    let pieces = dump(&mut client, "CF.SCANDUMP", "large").await;
    let (last, first) = pieces.split_last().unwrap();
    for piece in first {
        load(&mut client, "CF.LOADCHUNK", "copy", piece).await;
        client.expect("+OK\r\n", "a piece").await;
    }
    let mut other = Client::new(&node).await;
    other.call("EXISTS copy", ":0\r\n").await;
    other.call("DEL copy", ":1\r\n").await;
    other.call("DEL copy", ":0\r\n").await;
    load(&mut client, "CF.LOADCHUNK", "copy", last).await;
    let ended = client.line().await;
    assert!(ended.starts_with('-'), "{ended}");
    sees(&mut client, "copy", &["large"]).await;
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_is_copied_in_pieces() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    // Filters that have grown, and one with several pieces.
    client.call("BF.RESERVE grown 0.01 100", "+OK\r\n").await;
    add(&mut client, "grown", 0..1_000).await;
    client.call("UMBEL.CREATE counted KIND counting CAPACITY 2000 ERROR 0.01", "+OK\r\n").await;
    add(&mut client, "counted", 0..1_000).await;
    client.call("CF.RESERVE large 400000 EXPANSION 0", "+OK\r\n").await;
    add(&mut client, "large", 0..1_000).await;
    client.call("CF.RESERVE doubled 100", "+OK\r\n").await;
    add(&mut client, "doubled", 0..1_000).await;
    for (family, key, several) in [
        ("BF", "grown", false),
        ("BF", "counted", false),
        ("CF", "large", true),
        ("CF", "doubled", false),
    ] {
        let pieces = dump(&mut client, &format!("{family}.SCANDUMP"), key).await;
        assert_eq!(pieces.len() > 1, several, "{key}: {}", pieces.len());
        let (copy, command) = (format!("{key}2"), format!("{family}.LOADCHUNK"));
        for piece in &pieces {
            load(&mut client, &command, &copy, piece).await;
            client.expect("+OK\r\n", &command).await;
        }
        for item in 0..1_000 {
            client.call(&format!("BF.EXISTS {copy} {item}"), ":1\r\n").await;
        }
        // A client that has not received the answer sends the last piece again.
        if let [_, .., last] = &pieces[..] {
            load(&mut client, &command, &copy, last).await;
            client.expect("+OK\r\n", &command).await;
        }
        // The filter exists, and is not overwritten.
        load(&mut client, &command, &copy, &pieces[0]).await;
        let taken = if family == "CF" { "item exists" } else { "received bad data" };
        client.expect(&format!("-ERR {taken}\r\n"), &command).await;
    }
    node.shutdown().await;
}

/// What is not of a cuckoo filter is refused in RedisBloom's words, and creates no filter.
#[tokio::test(flavor = "multi_thread")]
async fn cuckoo_filters_are_loaded_from_their_own_pieces_alone() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    client.call("CF.RESERVE large 400000 EXPANSION 0", "+OK\r\n").await;
    client.call("BF.RESERVE plain 0.01 10", "+OK\r\n").await;
    client.call("UMBEL.CREATE chain KIND redisbloom CAPACITY 10 ERROR 0.01", "+OK\r\n").await;
    client.call("BF.ADD chain x", ":1\r\n").await;
    let pieces = dump(&mut client, "CF.SCANDUMP", "large").await;
    let plain = dump(&mut client, "BF.SCANDUMP", "plain").await;
    let chain = dump(&mut client, "BF.SCANDUMP", "chain").await;
    let (one, two) = (&pieces[0], &pieces[1]);
    let (header, chunk) = ("-Invalid header\r\n", "-Couldn't load chunk!\r\n");
    for piece in [&plain[0], &chain[0], &(1, Vec::new()), &(one.0, b"UMBLEXP2".to_vec())] {
        load(&mut client, "CF.LOADCHUNK", "copy", piece).await;
        client.expect(header, "the first piece of another filter").await;
        gone(&node, "copy").await;
    }
    load(&mut client, "CF.LOADCHUNK", "copy", two).await;
    client.expect(NOT_LOADING, "a piece without the first one").await;
    load(&mut client, "CF.LOADCHUNK", "copy", &(-7, one.1.clone())).await;
    client.expect(chunk, "a piece of no number").await;
    load(&mut client, "CF.LOADCHUNK", "copy", one).await;
    client.expect("+OK\r\n", "the first piece").await;
    load(&mut client, "CF.LOADCHUNK", "copy", &(two.0 + 1, two.1.clone())).await;
    client.expect(chunk, "not the next piece").await;
    gone(&node, "copy").await;
    load(&mut client, "CF.LOADCHUNK", "plain", one).await;
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
    client.expect(wrong, "a name that another kind has").await;
    // Nor does a piece of the other family end a copy.
    load(&mut client, "BF.LOADCHUNK", "copy", &chain[0]).await;
    client.expect("+OK\r\n", "a header of RedisBloom's").await;
    load(&mut client, "CF.LOADCHUNK", "copy", two).await;
    client.expect(wrong, "a piece of a cuckoo filter").await;
    load(&mut client, "BF.LOADCHUNK", "copy", &chain[1]).await;
    client.expect("+OK\r\n", "the last piece").await;
    client.call("BF.EXISTS copy x", ":1\r\n").await;
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_that_are_none_leave_nothing() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    client.call("CF.RESERVE large 400000 EXPANSION 0", "+OK\r\n").await;
    client.call("BF.RESERVE plain 0.01 10", "+OK\r\n").await;
    let pieces = dump(&mut client, "BF.SCANDUMP", "large").await;
    let (one, two) = (pieces[0].clone(), pieces[1].clone());
    let bad = "-ERR received bad data\r\n";
    for (piece, answer) in [
        (two.clone(), NOT_LOADING),
        ((one.0, b"UMBLEXP2".to_vec()), bad),
        ((0, one.1.clone()), bad),
        ((-7, one.1.clone()), bad),
    ] {
        load(&mut client, "BF.LOADCHUNK", "copy", &piece).await;
        client.expect(answer, "a piece that is none").await;
    }
    // A piece out of order is refused, and so is a frame with a flipped bit, which its checksum reveals.
    load(&mut client, "BF.LOADCHUNK", "copy", &one).await;
    client.expect("+OK\r\n", "the first piece").await;
    load(&mut client, "BF.LOADCHUNK", "copy", &(two.0 + 1, two.1.clone())).await;
    client.expect(bad, "not the next piece").await;
    gone(&node, "copy").await;
    let mut wrong = one.clone();
    wrong.1[1_000] ^= 1;
    load(&mut client, "BF.LOADCHUNK", "copy", &wrong).await;
    let mut last = client.line().await;
    for piece in &pieces[1..] {
        if last != "+OK" {
            break;
        }
        load(&mut client, "BF.LOADCHUNK", "copy", piece).await;
        last = client.line().await;
    }
    assert!(last.starts_with("-ERR"), "{last}");
    gone(&node, "copy").await;

    client.call("BF.SCANDUMP missing 0", "-ERR not found\r\n").await;
    // A name that no filter can have is that of a missing one.
    client.call("BF.SCANDUMP \"a\\nb\" 0", "-ERR not found\r\n").await;
    client.call("CF.SCANDUMP \"\" 0", "-ERR not found\r\n").await;
    client
        .call(
            "CF.SCANDUMP plain 0",
            "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
        )
        .await;
    let begin = "-ERR this node holds no such copy any more: begin again with iterator 0\r\n";
    client.call("BF.SCANDUMP large 99999999999", begin).await;
    client.call("BF.SCANDUMP large -1", "*2\r\n:0\r\n$0\r\n\r\n").await;
    node.shutdown().await;
}
