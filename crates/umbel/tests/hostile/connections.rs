//! Connections that send nothing, or stop in the middle of a request.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::calls::{Caller, lying, push};
use crate::frames::{
    CONNECT_PATIENCE, END_HEADERS, PREFACE, call_head, closes_within, frame, kind, settings,
    try_connect,
};
use crate::siege::{Bounds, Siege, scaled};

/// Most memory of a connection that has sent next to nothing: buffers of hyper and of its system calls.
const CONNECTION_KIB: u64 = 128;

/// Requests that hostile clients leave unfinished.
fn beginnings() -> Vec<(&'static str, Vec<u8>)> {
    let spoken = |more: &[u8]| [PREFACE, &settings(), more].concat();
    let path = "/umbel.v1.Filters/List";
    vec![
        ("nothing", Vec::new()),
        ("half a preface", PREFACE[..9].to_vec()),
        ("a preface without settings", PREFACE.to_vec()),
        ("settings and nothing more", spoken(&[])),
        ("half a frame", spoken(&[0, 0, 8, kind::PING])),
        ("half of the headers", spoken(&frame(kind::HEADERS, 0, 1, &call_head(path)))),
        (
            "headers without a body",
            spoken(&frame(kind::HEADERS, END_HEADERS, 1, &call_head(path))),
        ),
        ("half a line of HTTP/1", b"GET /metr".to_vec()),
        ("half of the headers of HTTP/1", b"GET /metrics HTTP/1.1\r\nhost: node\r\nx: ".to_vec()),
        (
            "half a body of HTTP/1",
            b"POST /metrics HTTP/1.1\r\nhost: node\r\ncontent-length: 999999999\r\n\r\nx".to_vec(),
        ),
        (
            "half a chunk of HTTP/1",
            b"POST /metrics HTTP/1.1\r\nhost: node\r\ntransfer-encoding: chunked\r\n\r\nfffffff\r\nx"
                .to_vec(),
        ),
        ("half a TLS handshake", vec![22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]),
    ]
}

/// Opens this many connections, sends these bytes on each, and keeps them open.
async fn begun(address: &str, bytes: &[u8], count: usize) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for _ in 0..count {
        // Once a node has enough connections, further ones wait in the system's queue until that is full.
        let connecting = tokio::time::timeout(CONNECT_PATIENCE, try_connect(address)).await;
        let Ok(Ok(mut stream)) = connecting else { break };
        // The node may have closed it at once.
        let _ = stream.write_all(bytes).await;
        held.push(stream);
    }
    held
}

/// Clients of the console's pages that read nothing of the answers.
#[tokio::test(flavor = "multi_thread")]
async fn pages_that_nobody_reads_cost_kilobytes_each() {
    let siege = Siege::begin().await;
    let address = siege.address();
    let ask = format!("GET /console/events/filters HTTP/1.1\r\nhost: {address}\r\n\r\n");
    let held = begun(&address, ask.as_bytes(), scaled(100)).await;
    let count = held.len() as u64;
    let memory_mib = (count * CONNECTION_KIB).div_ceil(1024) + 16;
    siege.holds("unread pages", Bounds { memory_mib, descriptors: count + 8 }).await;
    drop(held);
    siege.recovers("unread pages").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_beginnings_cost_kilobytes_each() {
    let siege = Siege::begin().await;
    let (mut held, each) = (Vec::new(), scaled(40));
    for (_, bytes) in beginnings() {
        held.extend(begun(&siege.address(), &bytes, each).await);
    }
    let count = held.len() as u64;
    let memory_mib = (count * CONNECTION_KIB).div_ceil(1024) + 16;
    siege.holds("unfinished beginnings", Bounds { memory_mib, descriptors: count + 8 }).await;
    siege.honest.comes_anew().await;
    drop(held);
    siege.recovers("unfinished beginnings").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the long form: waits for limits in time"]
async fn unfinished_beginnings_are_closed() {
    let siege = Siege::begin().await;
    for (name, bytes) in beginnings() {
        let mut held = begun(&siege.address(), &bytes, 1).await;
        let is_closed = closes_within(&mut held[0], Duration::from_secs(60)).await;
        assert!(is_closed, "{name}: open after a minute");
    }
    siege.recovers("unfinished beginnings").await;
}

/// Limits the file descriptors of a node.
const DESCRIPTORS: &str = "ulimit -n 192; exec \"$@\"";

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_keep_nobody_out() {
    let few = |node: &mut crate::servers::Server| {
        node.run_through(&["sh", "-c", DESCRIPTORS, "sh"]);
    };
    let siege = Siege::begin_with(few).await;
    let held = begun(&siege.address(), &[], scaled(300)).await;
    siege.holds("idle connections", Bounds { memory_mib: 32, descriptors: 150 }).await;
    siege.honest.comes_anew().await;
    drop(held);
    siege.recovers("idle connections").await;
}

/// What is sent of each incomplete body.
const HALF_MIB: u64 = 4;

/// Most bytes of requests that the node holds at the same time, 128 MiB, as its setting takes them.
const REQUEST_BYTES: &str = "134217728";

/// The same in MiB.
const REQUEST_MIB: u64 = 128;

/// Twice the limit, since buffers grow by doubling. As much again as the limit is the reserve: a request that is ended
/// for a later one gives back its share at once, but its buffers when its task gets a processor, and the allocator
/// keeps some of them. Per connection, what HTTP/2 buffers of waiting calls.
fn half_bounds(connections: u64) -> Bounds {
    Bounds { memory_mib: 3 * REQUEST_MIB + 4 * connections, descriptors: 64 }
}

/// The claimed length of each incomplete body: the longest that is allowed.
const SAID_BYTES: u32 = 17 << 20;

/// Most streams of a connection.
const STREAMS: usize = 64;

#[tokio::test(flavor = "multi_thread")]
async fn half_sent_bodies_are_bounded_over_all_connections() {
    let siege = Siege::begin_alone(|node| node.set("UMBEL_REQUEST_BYTES_MAX", REQUEST_BYTES)).await;
    let half = lying(0, SAID_BYTES, &vec![0; usize::try_from(HALF_MIB << 20).unwrap()]);
    let (mut callers, mut streams) = (Vec::new(), tokio::task::JoinSet::new());
    let connections = scaled(4);
    let bounds = half_bounds(connections as u64);
    let sent_mib = (connections * STREAMS) as u64 * HALF_MIB;
    assert!(sent_mib > 2 * bounds.memory_mib, "a node without the limit stays below the bound");
    for _ in 0..connections {
        let caller = Caller::open(&siege.address()).await;
        for _ in 0..STREAMS {
            let begun = caller.begin("/umbel.v1.Filters/Insert", &[]).await;
            let Ok((response, mut stream)) = begun else { break };
            let half = half.clone();
            streams.spawn(async move {
                let pushed = push(&mut stream, half, false).await;
                // The body stays incomplete until the stream is dropped.
                (pushed, response.await.is_ok(), stream)
            });
        }
        callers.push(caller);
    }
    // By then, the node has read all that it accepts.
    let (mut rounds, mut last) = (0, 0);
    while rounds < 10 {
        siege.honest.makes_calls(5).await;
        let resident = siege.resident_mib();
        rounds = if resident.abs_diff(last) <= 1 { rounds + 1 } else { 0 };
        last = resident;
    }
    siege.holds("half-sent bodies", bounds).await;
    streams.shutdown().await;
    drop(callers);
    siege.recovers("half-sent bodies").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_without_an_end_keep_their_own_connection_busy_alone() {
    let siege = Siege::begin().await;
    let caller = Caller::open(&siege.address()).await;
    let mut held = Vec::new();
    for _ in 0..STREAMS {
        let begun = caller.begin("/umbel.v1.Filters/Insert", &[]).await;
        let Ok((response, mut stream)) = begun else { break };
        push(&mut stream, Bytes::from_static(&[0, 0, 0]), false).await.unwrap();
        held.push((response, stream));
    }
    siege.holds("calls without an end", Bounds { memory_mib: 16, descriptors: 4 }).await;
    drop(held);
    drop(caller);
    siege.recovers("calls without an end").await;
}
