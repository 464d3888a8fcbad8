//! Invalid requests: bodies, names, paths and headers of many wrong kinds.

use bytes::Bytes;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use umbel_client::proto::{
    ContainsRequest, CreateRequest, InfoRequest, InsertRequest, Items, ListRequest, MergeRequest,
    PackedItems,
};

use crate::calls::{Answer, Caller, framed, lying};
use crate::frames::connect;
use crate::honest::FILTER;
use crate::servers::PATIENCE;
use crate::siege::{Bounds, Siege};

/// Methods of each service, including those with streams.
const METHODS: [&str; 25] = [
    "Filters/Create",
    "Filters/Info",
    "Filters/Insert",
    "Filters/InsertStream",
    "Filters/Contains",
    "Filters/ContainsStream",
    "Filters/Remove",
    "Filters/Merge",
    "Filters/Export",
    "Filters/Import",
    "Filters/OpenSession",
    "Admin/Join",
    "Admin/Restore",
    "Admin/MoveShard",
    "Admin/SplitShard",
    "Admin/MergeShard",
    "Admin/SetAutoSplit",
    "Admin/Upgrade",
    "Access/Put",
    "Jobs/SubmitJob",
    "Peer/Link",
    "Peer/Exchange",
    "Peer/Adopt",
    "JobControl/Control",
    "JobExchange/Frames",
];

const BOUNDS: Bounds = Bounds { memory_mib: 96, descriptors: 16 };

/// Bodies that contain no message of any type.
fn bodies() -> Vec<(&'static str, Bytes)> {
    vec![
        ("no protobuf", framed(&[0xff; 64])),
        (
            "a field of 2^60 bytes",
            framed(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, 1]),
        ),
        ("fields that hold each other", framed(&nested(20_000))),
        ("a length of 4 GiB", lying(0, u32::MAX, b"x")),
        ("a length above the limit", lying(0, 200 << 20, b"x")),
        ("a length above what comes", lying(0, 100, b"x")),
        ("half a head", Bytes::from_static(&[0, 0])),
        ("packed, which was not agreed", lying(1, 4, &[0x1f, 0x8b, 8, 0])),
        ("a flag that there is not", lying(77, 4, b"abcd")),
    ]
}

/// Nested groups, which the decoder meets as unknown fields.
fn nested(depth: usize) -> Vec<u8> {
    [0xfb, 0x07].repeat(depth)
}

fn path_of(method: &str) -> String {
    format!("/umbel.v1.{method}")
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_hold_no_message_are_refused() {
    let siege = Siege::begin().await;
    let caller = Caller::open(&siege.address()).await;
    for method in METHODS {
        for (name, body) in bodies() {
            let answer = caller.send(&path_of(method), &[], body).await;
            assert!(!answer.is_success(), "{method} with {name}: {answer:?}");
            assert!(matches!(answer, Answer::Status { .. }), "{method} with {name}: {answer:?}");
        }
    }
    siege.holds("bodies", BOUNDS).await;
    drop(caller);
    siege.recovers("bodies").await;
}

/// Lists of items that no client of Umbel would send, with the errors that they get.
fn item_lists() -> Vec<(&'static str, Items)> {
    let packed = |data: usize, item_bytes: Vec<u32>| Items {
        packed: Some(PackedItems { data: vec![0; data].into(), item_bytes }),
        ..Items::default()
    };
    let listed = |item: usize, count: usize| Items {
        items: vec![Bytes::from(vec![0; item]); count],
        ..Items::default()
    };
    let both = Items { items: vec![Bytes::from_static(b"a")], ..packed(1, vec![1]) };
    vec![
        ("lengths beyond the data", packed(4, vec![1000])),
        ("lengths that add up beyond 32 bits", packed(6, vec![u32::MAX, 7])),
        ("lengths below the data", packed(100, vec![1])),
        ("hashes of 15 bytes", Items { hashes: vec![0; 15].into(), ..Items::default() }),
        ("hashes for a keyed filter", Items { hashes: vec![0; 16].into(), ..Items::default() }),
        ("an item above 16 MiB", listed((16 << 20) + 1, 1)),
        ("a million empty items", packed(0, vec![0; 1_000_000])),
        ("200,000 entries", listed(0, 200_000)),
        ("two lists at once", both),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_items_that_lie_are_refused() {
    let siege = Siege::begin().await;
    let caller = Caller::open(&siege.address()).await;
    for (name, items) in item_lists() {
        let filter = FILTER.to_owned();
        let insert = InsertRequest { filter, items: Some(items), ..InsertRequest::default() };
        let answer = caller.call("/umbel.v1.Filters/Insert", &insert).await;
        assert!(matches!(answer.grpc(), Some(3 | 8 | 11)), "{name}: {answer:?}");
        let InsertRequest { filter, items, .. } = insert;
        let contains = ContainsRequest { filter, items, ..ContainsRequest::default() };
        let answer = caller.call("/umbel.v1.Filters/Contains", &contains).await;
        assert!(matches!(answer.grpc(), Some(3 | 8 | 11)), "{name}: {answer:?}");
    }
    siege.holds("items", Bounds { memory_mib: 256, ..BOUNDS }).await;
    drop(caller);
    siege.recovers("items").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_numbers_that_are_none_are_refused() {
    let siege = Siege::begin().await;
    let caller = Caller::open(&siege.address()).await;
    let long = "a".repeat(1025);
    let names = ["", &long, "new\nline", "zero\0", "escape\u{1b}[2J", "\u{85}", &"ä".repeat(600)];
    for name in names {
        let create = CreateRequest {
            name: name.to_owned(),
            capacity: 10,
            false_positive_rate: 0.1,
            ..CreateRequest::default()
        };
        let answer = caller.call("/umbel.v1.Filters/Create", &create).await;
        assert_eq!(answer.grpc(), Some(3), "{name:?}: {answer:?}");
        let answer =
            caller.call("/umbel.v1.Filters/Info", &InfoRequest { name: name.into() }).await;
        assert!(matches!(answer.grpc(), Some(3 | 5)), "{name:?}: {answer:?}");
    }
    let numbers = [
        (0, 0.1, 0),
        (10, f64::NAN, 0),
        (10, f64::INFINITY, 0),
        (10, -0.1, 0),
        (10, 0.0, 0),
        (u64::MAX, 1e-300, 0),
        (u64::MAX, 0.1, 0),
        (10, 0.0, u64::MAX),
        (10, 0.1, 1 << 20),
    ];
    for (capacity, false_positive_rate, memory_bytes) in numbers {
        let name = "numbers".to_owned();
        let create = CreateRequest {
            name,
            capacity,
            false_positive_rate,
            memory_bytes,
            ..CreateRequest::default()
        };
        let answer = caller.call("/umbel.v1.Filters/Create", &create).await;
        assert!(matches!(answer.grpc(), Some(3 | 8)), "{create:?}: {answer:?}");
    }
    let sources = vec![FILTER.to_owned(); 100_000];
    let merge = MergeRequest { target: FILTER.to_owned(), sources, request: None };
    let answer = caller.call("/umbel.v1.Filters/Merge", &merge).await;
    assert!(!answer.is_success(), "{answer:?}");
    // Markup is a valid name; whoever displays it must escape it.
    let markup = "<script>alert(1)</script>\"'&{}";
    let create = CreateRequest {
        name: markup.to_owned(),
        capacity: 10,
        false_positive_rate: 0.1,
        ..CreateRequest::default()
    };
    assert!(caller.call("/umbel.v1.Filters/Create", &create).await.is_success());
    let page = crate::servers::page(&siege.address(), "/metrics").await.unwrap();
    let head = page.split("\r\n\r\n").next().unwrap_or_default();
    assert!(head.starts_with("HTTP/1.1 200 ") && !head.contains("<script>"), "{head}");
    // Browsers do not interpret this content type as markup.
    assert!(head.contains("content-type: text/plain"), "{head}");
    assert!(head.contains("x-content-type-options: nosniff"), "{head}");
    siege.holds("names", BOUNDS).await;
    drop(caller);
    siege.recovers("names").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_there_are_not_are_answered() {
    let siege = Siege::begin().await;
    let caller = Caller::open(&siege.address()).await;
    let list = framed(&ListRequest::default().encode_to_vec());
    let long = format!("/{}", "a".repeat(8000));
    let paths = [
        "/",
        "/umbel.v1.Filters/",
        "/umbel.v1.Filters/New",
        "/umbel.v1.Filters/List/x",
        "//umbel.v1.Filters/List",
        "/umbel.v1.Filters%2FList",
        "/umbel.v2.Filters/List",
        "/../etc/passwd",
        &long,
    ];
    for path in paths {
        let answer = caller.send(path, &[], list.clone()).await;
        assert!(!answer.is_success(), "{path}: {answer:?}");
        assert!(matches!(answer, Answer::Status { .. }), "{path}: {answer:?}");
    }
    let huge = "x".repeat(10_000);
    let headers: [&[(&str, &str)]; 9] = [
        &[("content-type", "application/json")],
        &[("content-type", "text/html")],
        &[("content-type", "application/grpc-web+proto")],
        &[("grpc-encoding", "gzip")],
        &[("grpc-encoding", "nothing-known")],
        &[("grpc-timeout", "99999999999999999999H")],
        &[("grpc-timeout", "-1n")],
        &[("x", &huge)],
        &[("content-length", "3")],
    ];
    for headers in headers {
        // Any answer is acceptable, since the node may ignore unknown headers.
        caller.send("/umbel.v1.Filters/List", headers, list.clone()).await;
    }
    let anew = Caller::open(&siege.address()).await;
    assert!(anew.send("/umbel.v1.Filters/List", &[], list).await.is_success());
    siege.holds("paths and headers", BOUNDS).await;
    drop((caller, anew));
    siege.recovers("paths and headers").await;
}

/// HTTP/1 requests, each with whether it succeeds.
fn requests() -> Vec<(&'static str, Vec<u8>, bool)> {
    let long = "a".repeat(70_000);
    let headers: String = (0..2000).map(|at| format!("x-{at}: y\r\n")).collect();
    let of = |text: &str| text.replace('\n', "\r\n").into_bytes();
    vec![
        ("a page", of("GET /metrics HTTP/1.1\nhost: localhost\nconnection: close\n\n"), true),
        (
            "a page by DNS rebinding",
            of("GET /metrics HTTP/1.1\nhost: n\nconnection: close\n\n"),
            false,
        ),
        ("HTTP/1.0", of("GET /metrics HTTP/1.0\n\n"), true),
        ("HTTP/0.9", of("GET /metrics\n\n"), false),
        ("HTTP/3", of("GET /metrics HTTP/3.0\nhost: n\n\n"), false),
        ("no host", of("GET /metrics HTTP/1.1\nconnection: close\n\n"), true),
        (
            "POST",
            of("POST /metrics HTTP/1.1\nhost: n\nconnection: close\ncontent-length: 0\n\n"),
            false,
        ),
        ("TRACE", of("TRACE /metrics HTTP/1.1\nhost: n\nconnection: close\n\n"), false),
        ("a method of 1,000 letters", of(&format!("{} / HTTP/1.1\n\n", "A".repeat(1000))), false),
        ("a path of 70,000 bytes", of(&format!("GET /{long} HTTP/1.1\nhost: n\n\n")), false),
        (
            "a header of 70,000 bytes twenty times",
            {
                of(&format!(
                    "GET /metrics HTTP/1.1\nhost: n\n{}\n",
                    format!("x: {long}\n").repeat(20)
                ))
            },
            false,
        ),
        ("2,000 headers", of(&format!("GET /metrics HTTP/1.1\nhost: n\n{headers}\n")), false),
        (
            "two lengths",
            of("POST /metrics HTTP/1.1\nhost: n\ncontent-length: 1\ncontent-length: 2\n\nx"),
            false,
        ),
        ("a negative length", of("POST /metrics HTTP/1.1\nhost: n\ncontent-length: -1\n\n"), false),
        (
            "a chunk of 2^64 bytes",
            of(
                "POST /metrics HTTP/1.1\nhost: n\ntransfer-encoding: chunked\n\nfffffffffffffffff\nx",
            ),
            false,
        ),
        (
            "another's page",
            of("GET http://169.254.169.254/latest HTTP/1.1\nhost: n\nconnection: close\n\n"),
            false,
        ),
        ("a proxy", of("CONNECT example.org:443 HTTP/1.1\nhost: n\nconnection: close\n\n"), false),
        (
            "an upgrade",
            of(
                "GET / HTTP/1.1\nhost: n\nconnection: upgrade\nupgrade: websocket\nsec-websocket-key: x\n\n",
            ),
            false,
        ),
        ("zeros", vec![0; 4096], false),
        ("another protocol", b"*1\r\n$4\r\nPING\r\n".to_vec(), false),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_http_1_are_answered_or_their_connections_closed() {
    let siege = Siege::begin().await;
    for (name, request, is_success) in requests() {
        let mut stream = connect(&siege.address()).await;
        // The node may close the connection before it has read everything.
        let _ = stream.write_all(&request).await;
        let mut answer = vec![0; 512];
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut answer)).await;
        let byte_count = read.unwrap_or_else(|_| panic!("{name}: no answer")).unwrap_or(0);
        let answer = String::from_utf8_lossy(&answer[..byte_count]);
        // gRPC uses status 200 for failures, too.
        let is_answered = answer.contains(" 200 ") && !answer.contains("grpc-status");
        assert_eq!(is_answered, is_success, "{name}: {answer}");
    }
    siege.holds("HTTP/1", BOUNDS).await;
    siege.recovers("HTTP/1").await;
}
