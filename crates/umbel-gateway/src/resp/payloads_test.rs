//! Tests of payloads of `DUMP`, valid and damaged.

use tokio::io::AsyncReadExt as _;
use umbel_filter::{RedisBloom, RedisBloomHeader, RedisBloomShape};
use umbel_rdb::{ModuleId, PayloadWriter, checked_payload};

use super::dumps_test::{add, gone};
use super::resp_test::{Client, node};

/// The payload of a key.
async fn payload(client: &mut Client, key: &str) -> Vec<u8> {
    client.send(format!("DUMP {key}\r\n").as_bytes()).await;
    let length = client.line().await;
    let mut payload = vec![0; length[1..].parse().expect(&length)];
    client.stream.read_exact(&mut payload).await.unwrap();
    client.expect("\r\n", "the end of a payload").await;
    payload
}

async fn restore(client: &mut Client, key: &str, payload: &[u8], answer: &str) {
    let mut request = b"*4\r\n".to_vec();
    for argument in [b"RESTORE", key.as_bytes(), b"0", payload] {
        request.extend(format!("${}\r\n", argument.len()).bytes());
        request.extend(argument);
        request.extend(b"\r\n");
    }
    client.send(&request).await;
    client.expect(answer, key).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_is_the_filter() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    client.call("UMBEL.CREATE small KIND redisbloom CAPACITY 10 ERROR 0.01", "+OK\r\n").await;
    add(&mut client, "small", 0..100).await;
    // Several frames, and more bytes than other arguments may have.
    client.call("UMBEL.CREATE large KIND redisbloom CAPACITY 1500000 ERROR 0.01", "+OK\r\n").await;
    add(&mut client, "large", 0..100).await;
    for key in ["small", "large"] {
        let first = payload(&mut client, key).await;
        let copy = format!("{key}2");
        restore(&mut client, &copy, &first, "+OK\r\n").await;
        for item in 0..100 {
            client.call(&format!("BF.EXISTS {copy} {item}"), ":1\r\n").await;
        }
        assert!(payload(&mut client, &copy).await == first);
        // The copy grows as the original does.
        add(&mut client, key, 100..300).await;
        add(&mut client, &copy, 100..300).await;
        assert!(payload(&mut client, &copy).await == payload(&mut client, key).await);
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_and_payloads_that_are_too_large_are_refused() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    client.call("UMBEL.CREATE k KIND redisbloom CAPACITY 13000000 ERROR 0.01", "+OK\r\n").await;
    client.send(b"DUMP k\r\n").await;
    let text = client.line().await;
    assert!(
        text.starts_with("-ERR the filter has 1")
            && text.ends_with("BF.SCANDUMP copies it in pieces"),
        "{text}"
    );
    // A compressed value that unpacks to more is refused because of its head, before the array arrives.
    let shape = RedisBloomShape::for_rate(13_000_000, 0.01).unwrap();
    let header = RedisBloomHeader::of(&RedisBloom::with_shape(shape).unwrap());
    let link = header.stored_link(0).unwrap();
    let mut writer = PayloadWriter::new(ModuleId::new(b"MBbloom--", 4));
    [0, 1, 5, 2, link.capacity].into_iter().for_each(|number| writer.unsigned(number));
    writer.double(link.rate);
    writer.unsigned(link.probe_count.into());
    writer.double(link.bits_per_item);
    writer.unsigned(link.bit_count);
    writer.unsigned(0);
    writer.string(link.byte_count);
    let packed = writer.finish();
    let text =
        format!("-ERR the filter has {} bytes, and a payload 16777216 at most", link.byte_count);
    restore(&mut client, "big", &packed, &text).await;
    client.line().await;
    // Nor is there a half-loaded one, which clients would not see.
    gone(&node, "big").await;
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_payloads_leave_nothing() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    client.call("UMBEL.CREATE k KIND redisbloom CAPACITY 10 ERROR 0.01", "+OK\r\n").await;
    let payload = payload(&mut client, "k").await;
    checked_payload(&payload).unwrap();
    let wrong = "-ERR DUMP payload version or checksum are wrong\r\n";
    for bit in (0..payload.len() * 8).step_by(5) {
        let mut damaged = payload.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        restore(&mut client, "copy", &damaged, wrong).await;
    }
    for cut in 0..payload.len() {
        restore(&mut client, "copy", &payload[..cut], wrong).await;
    }
    client.call("KEYS *", "*1\r\n$1\r\nk\r\n").await;
    gone(&node, "copy").await;
    node.shutdown().await;
}

/// As in Redis, options are checked first, then whether the key exists, then its time, then the payload.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_exists_is_refused_before_a_wrong_time() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    client.call("UMBEL.CREATE k KIND redisbloom CAPACITY 10 ERROR 0.01", "+OK\r\n").await;
    for (words, answer) in [
        ("k -1 x NOPE", "-ERR syntax error\r\n"),
        ("k -1 x", "-BUSYKEY Target key name already exists.\r\n"),
        ("k nope x", "-BUSYKEY Target key name already exists.\r\n"),
        ("k -1 x REPLACE", "-ERR Invalid TTL value, must be >= 0\r\n"),
        ("none nope x", "-ERR value is not an integer or out of range\r\n"),
        ("none -1 x ABSTTL", "-ERR Invalid TTL value, must be >= 0\r\n"),
        ("none 0 x", "-ERR DUMP payload version or checksum are wrong\r\n"),
    ] {
        client.call(&format!("RESTORE {words}"), answer).await;
    }
    node.shutdown().await;
}

/// Payloads that clients do not read occupy the permits until they are read.
#[tokio::test(flavor = "multi_thread")]
async fn payloads_on_their_way_have_a_most() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    // Larger than what sockets buffer.
    client.call("UMBEL.CREATE k KIND redisbloom CAPACITY 5000000 ERROR 0.01", "+OK\r\n").await;
    let mut idle = Vec::new();
    for _ in 0..crate::limits::RESP_PAYLOADS_MAX {
        let mut client = Client::new(&node).await;
        client.send(b"DUMP k\r\n").await;
        idle.push(client);
    }
    // All at once: whoever reads nothing for half a minute is cut, and a slow machine takes that long for one after
    // the other.
    for client in &mut idle {
        // The payload has been produced, and its first bytes have arrived.
        let text = client.line().await;
        assert!(text.starts_with('$'), "{text}");
    }
    client.send(b"DUMP k\r\n").await;
    let text = client.line().await;
    assert!(text.starts_with("-TRYAGAIN 16 payloads"), "{text}");
    idle.clear();
    loop {
        client.send(b"DUMP none\r\n").await;
        if client.line().await == "$-1" {
            break;
        }
        tokio::task::yield_now().await;
    }
    node.shutdown().await;
}
