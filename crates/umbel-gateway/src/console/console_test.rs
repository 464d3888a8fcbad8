//! Tests of the console on whole nodes, over HTTP.

use futures_util::StreamExt;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Duration, Instant, timeout};
use umbel_engine::meta::{FilterVerb, Grant, MetaCommand, Principal, PrincipalName, Proof, Rights};
use umbel_filter::Kind;
use umbel_node::Config;

use super::places::STREAMS_OF_PRINCIPAL_MAX;
use super::*;
use crate::test_node::Node;
use crate::test_node::{config, create, deadline, items, start, start_alone};

/// Longest wait for anything, which only ends a hang.
const PATIENCE: Duration = Duration::from_secs(180);

/// A request that was sent, and the part of its response that has arrived.
struct Asked {
    stream: TcpStream,
    text: String,
}

impl Asked {
    /// Sends a GET for a path; the host is the node's address unless a header names another.
    async fn of(address: &str, path: &str, headers: &[&str]) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let is_named = headers.iter().any(|header| header.starts_with("host:"));
        let host = if is_named { String::new() } else { format!("host: {address}\r\n") };
        let others: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let head = format!("GET {path} HTTP/1.1\r\n{host}{others}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        Self { stream, text: String::new() }
    }

    /// Waits until the response contains a text, and returns all that has arrived until then.
    async fn until(&mut self, text: &str) -> &str {
        let read = async {
            while !self.text.contains(text) {
                let mut bytes = [0; 4096];
                let count = self.stream.read(&mut bytes).await.unwrap();
                assert!(count > 0, "ended without {text:?}:\n{}", self.text);
                self.text.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        };
        timeout(PATIENCE, read).await.unwrap_or_else(|_| panic!("{text:?} does not come"));
        &self.text
    }

    /// Reads the response to its end and returns all of it.
    async fn ended(mut self) -> String {
        let mut rest = Vec::new();
        let read = timeout(PATIENCE, self.stream.read_to_end(&mut rest));
        // A connection that was cut has ended, too.
        let _ = read.await.expect("the answer ends");
        self.text + &String::from_utf8_lossy(&rest)
    }
}

/// Sends a GET; returns the status and the whole response.
async fn got(node: &Node, path: &str, headers: &[&str]) -> (u16, String) {
    let closing: Vec<&str> = headers.iter().copied().chain(["connection: close"]).collect();
    let text = Asked::of(node.address(), path, &closing).await.ended().await;
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no answer: {text}")), text)
}

const CLUSTER: &str = "/console/events/cluster";

const FILTERS: &str = "/console/events/filters";

async fn alone() -> (TempDir, Node) {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    (folder, node)
}

/// Adds a principal that may read filters whose names begin with its own, and whose token is `NAME.NAME`.
async fn add(node: &Node, name: &str, cluster: &[ClusterVerb]) {
    let digest = *blake3::hash(name.as_bytes()).as_bytes();
    let grant = Grant { pattern: format!("{name}.*"), verbs: [FilterVerb::Read].into() };
    let rights = Rights { cluster: cluster.iter().copied().collect(), grants: vec![grant] };
    let principal =
        Principal { proof: Proof::Token { digest }, rights, created_ms: 0, expires_ms: None };
    let name = PrincipalName::new(name).unwrap();
    let command = MetaCommand::PutPrincipal { name, principal, replace: true };
    node.coordinator().meta_propose(command, deadline()).await.unwrap();
}

fn bearer(name: &str) -> String {
    format!("authorization: Bearer {name}.{name}")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shell_is_served_under_a_strict_policy() {
    let (_folder, node) = alone().await;
    for asset in &assets::ALL {
        let (status, text) = got(&node, asset.path, &[]).await;
        assert_eq!(status, 200, "{}", asset.path);
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self';",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
        ] {
            assert!(text.contains(header), "{}: {header}", asset.path);
        }
    }
    assert_eq!(got(&node, "/console/", &[]).await.0, 308);
    assert_eq!(got(&node, "/console/none.js", &[]).await.0, 404);
    node.shutdown().await;
}

/// A browser sends these for any page, with the certificate of whoever looks at it.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_pages_send_are_refused() {
    const DROP: &str = "/umbel.v1.Filters/Drop";
    const GRPC: &str = "content-type: application/grpc";
    let (_folder, node) = alone().await;
    let status = async |headers: &[&str]| got(&node, DROP, headers).await.0;
    assert_eq!(status(&["content-type: text/plain"]).await, 415);
    assert_eq!(status(&[]).await, 415);
    assert_eq!(status(&[GRPC, "origin: https://other.example"]).await, 403);
    assert_eq!(status(&[GRPC, "sec-fetch-site: cross-site"]).await, 403);
    // By DNS rebinding the page is of the same origin.
    assert_eq!(status(&[GRPC, "host: other.example", "origin: http://other.example"]).await, 403);
    assert!(![403, 415].contains(&status(&[GRPC]).await), "it is looked at");
    // A probe of a browser, or from behind a proxy of pages.
    assert_eq!(got(&node, "/livez", &["origin: https://other.example"]).await.0, 200);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_comes_live_and_one_that_is_not_there_is_refused() {
    let (_folder, node) = alone().await;
    let mut asked = Asked::of(node.address(), CLUSTER, &[]).await;
    let text = asked.until("\"node\":1,\"unheard_since_ms\":null,\"version\"").await;
    assert!(text.contains("\"shards\":["), "{text}");
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("content-type: text/event-stream"));
    assert!(text.contains(": live\n\n") && text.contains("event: snapshot\ndata: {\"cluster\":{"));
    create(&node.coordinator(), "seen", Kind::Blocked).await;
    asked.until("\"filter_count\":1").await;
    for (path, status) in [
        ("/console/events/nothing", 400),
        ("/console/events/cluster?after=%zz", 400),
        ("/console/events/cluster?limit=1", 400),
        ("/console/events/", 404),
    ] {
        assert_eq!(got(&node, path, &[]).await.0, status, "{path}");
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_hosts_and_pages_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let settings =
        Config { console_hosts: vec!["umbel.example".to_owned()], ..config(folder.path()) };
    let node = start(Config { dev: true, shards: 1, replicas: 1, ..settings }).await;
    let origin = format!("origin: http://{}", node.address());
    for path in ["/console", "/console/main.js"] {
        for (headers, status) in [
            (&["host: umbel.example"][..], 200),
            (&["host: localhost:1"], 200),
            (&["host: evil.example"], 403),
            (&["host: localhost", "host: evil.example"], 403),
            (&[&origin], 200),
            (&["origin: http://evil.example"], 403),
            // Other sites may link to the page.
            (&["sec-fetch-site: cross-site"], 200),
        ] {
            assert_eq!(got(&node, path, headers).await.0, status, "{path} {headers:?}");
        }
    }
    for foreign in ["host: evil.example", "origin: null", "sec-fetch-site: cross-site"] {
        let (status, text) = got(&node, CLUSTER, &[foreign]).await;
        assert!(status == 403 && !text.contains("snapshot"), "{foreign}: {text}");
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_principals_data_is_for_who_may_ask_for_it() {
    let (_folder, node) = alone().await;
    let mut early = Asked::of(node.address(), CLUSTER, &[]).await;
    early.until("event: snapshot").await;
    add(&node, "root", &[ClusterVerb::Admin, ClusterVerb::Metrics]).await;
    add(&node, "crawler", &[]).await;
    for (path, status) in [("/console", 200), ("/console/main.js", 200), (CLUSTER, 401)] {
        let (got, text) = got(&node, path, &[]).await;
        assert!(got == status && !text.contains(node.address()), "{path}: {text}");
    }
    let (status, text) = got(&node, CLUSTER, &[&bearer("crawler")]).await;
    assert!(status == 403 && text.contains("verb metrics"), "{text}");
    assert_eq!(got(&node, CLUSTER, &["authorization: Bearer root.x"]).await.0, 401);
    assert_eq!(got(&node, "/console/events/x", &[&bearer("crawler")]).await.0, 400);
    assert_eq!(got(&node, "/console/events/x", &[]).await.0, 401);
    let mut asked = Asked::of(node.address(), CLUSTER, &[&bearer("root")]).await;
    asked.until("event: snapshot").await;
    // A caller without proof no longer sees anything, nor does one that lost the verb.
    create(&node.coordinator(), "seen", Kind::Blocked).await;
    let ended = early.until("event: end").await;
    assert!(!ended.contains("\"filter_count\":1"), "{ended}");
    asked.until("\"filter_count\":1").await;
    add(&node, "root", &[ClusterVerb::Admin]).await;
    create(&node.coordinator(), "again", Kind::Blocked).await;
    let ended = asked.until("event: end").await;
    assert!(!ended.contains("\"filter_count\":2"), "{ended}");
    node.shutdown().await;
}

/// The responses to a caller without proof at every path of the console and at `/livez`, without the date.
async fn answers_to_nobody(node: &Node) -> Vec<String> {
    let views = View::ALL.map(|view| format!("/console/events/{}", view.name()));
    let others = ["/livez", "/console/", "/console/none.js", "/console/events/none"];
    let assets = assets::ALL.iter().map(|asset| asset.path);
    let mut answers = Vec::new();
    for path in assets.chain(others).chain(views.iter().map(String::as_str)) {
        let (_, text) = got(node, path, &[]).await;
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("date:")).collect();
        answers.push(format!("{path}\n{}", lines.join("\n")));
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn anonymous_answers_are_equal_on_every_cluster() {
    let (_full_folder, full) = alone().await;
    create(&full.coordinator(), "mail.secret", Kind::Blocked).await;
    let (_empty_folder, empty) = alone().await;
    for node in [&full, &empty] {
        add(node, "root", &[ClusterVerb::Admin, ClusterVerb::Metrics]).await;
    }
    let answers = answers_to_nobody(&full).await;
    assert_eq!(answers, answers_to_nobody(&empty).await);
    let views = answers.iter().filter(|answer| answer.starts_with("/console/events/"));
    assert!(
        views.clone().count() == 6 && views.clone().all(|answer| answer.contains("HTTP/1.1 401"))
    );
    full.shutdown().await;
    empty.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_are_shown_to_who_may_see_them_under_whatever_name() {
    let (_folder, node) = alone().await;
    let hostile = "crawler.</script><img src=x onerror=alert(1)>\"}";
    for name in [hostile, "mail.secret"] {
        create(&node.coordinator(), name, Kind::Blocked).await;
    }
    node.coordinator().insert(hostile, &items(0..100), None, None, deadline()).await.unwrap();
    add(&node, "root", &[ClusterVerb::Admin]).await;
    add(&node, "crawler", &[]).await;
    let mut asked = Asked::of(node.address(), FILTERS, &[&bearer("crawler")]).await;
    asked.until("\"new_count\":100").await;
    let text = asked.until("\"rate_planned\"").await;
    assert!(
        text.contains(
            "\"name\":\"crawler.\\u003c/script>\\u003cimg src=x onerror=alert(1)>\\\"}\""
        )
    );
    assert!(!text.contains("mail.secret"), "{text}");
    // An opened filter shows its slices; one that the caller may not read shows nothing.
    let path =
        format!("{FILTERS}?open=crawler.%3C/script%3E%3Cimg+src=x+onerror=alert(1)%3E%22%7D");
    let mut opened = Asked::of(node.address(), &path, &[&bearer("crawler")]).await;
    opened.until("\"slices\":[{\"leader\":1,").await;
    opened.until("\"shard\":0}").await;
    let path = format!("{FILTERS}?open=mail.secret");
    let mut foreign = Asked::of(node.address(), &path, &[&bearer("crawler")]).await;
    assert!(foreign.until("\"version\"").await.contains("\"opened\":null,"));
    let mut none = Asked::of(node.address(), FILTERS, &[&bearer("root")]).await;
    let text = none.until("\"version\"").await;
    assert!(text.contains("\"filters\":{") && text.contains("\"rows\":[]}"), "{text}");
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn comparisons_are_shown_once_they_end() {
    let (_folder, node) = alone().await;
    create(&node.coordinator(), "seen", Kind::Blocked).await;
    let mut asked = Asked::of(node.address(), "/console/events/repair", &[]).await;
    let text = asked.until("\"mended_count\":0,\"pending_count\":4").await;
    assert!(text.contains("\"bad_count\":0,\"count\":4,"), "{text}");
    let compared = node.coordinator().scrub(Some("seen"), deadline()).await.unwrap();
    assert_eq!(compared.count().await, 4);
    asked.until("\"pending_count\":0").await;
    let mut again = Asked::of(node.address(), "/console/events/repair", &[]).await;
    let answer = again.until("\"version\"").await;
    assert_eq!(answer.matches("\"ending\":\"equal\",\"lost_count\":0").count(), 4, "{answer}");
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_so_many_and_a_stop_waits_for_none() {
    let (_folder, node) = alone().await;
    add(&node, "root", &[ClusterVerb::Admin, ClusterVerb::Metrics]).await;
    let root = bearer("root");
    let mut open = Vec::new();
    for _ in 0..STREAMS_OF_PRINCIPAL_MAX {
        let mut asked = Asked::of(node.address(), CLUSTER, &[&root]).await;
        asked.until(": live").await;
        open.push(asked);
    }
    let (status, text) = got(&node, CLUSTER, &[&root]).await;
    assert!(status == 503 && text.contains("256 open pages"), "{text}");
    // Closing a page frees its place.
    drop(open.pop());
    let deadline = Instant::now() + PATIENCE;
    let mut last = loop {
        let mut asked = Asked::of(node.address(), CLUSTER, &[&root]).await;
        if asked.until("\r\n").await.starts_with("HTTP/1.1 200") {
            break asked;
        }
        assert!(Instant::now() < deadline, "no room again");
    };
    last.until("event: snapshot").await;
    let began = Instant::now();
    node.shutdown().await;
    let took = began.elapsed();
    assert!(took < crate::limits::STOP_GRACE_MAX, "the stop waited {took:?}");
    assert!(last.ended().await.contains("the node stops"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_may_have_no_console() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Config { console: "off".to_owned(), ..config(folder.path()) };
    let node = start(Config { dev: true, shards: 1, replicas: 1, ..settings }).await;
    for path in ["/console", CLUSTER] {
        let (status, text) = got(&node, path, &[]).await;
        // As for every path that does not exist.
        assert!(status == 404 && !text.contains("<html"), "{text}");
    }
    node.shutdown().await;
}

/// Every new view must be added here.
#[test]
fn every_view_needs_what_the_calls_need_that_return_the_same() {
    let needs = View::ALL.map(|view| (view.name(), view.need()));
    let metrics = Need::Cluster(ClusterVerb::Metrics);
    let expected = [
        ("cluster", metrics),
        ("filters", Need::Somebody),
        ("jobs", Need::Cluster(ClusterVerb::Jobs)),
        ("cube", metrics),
        ("repair", metrics),
    ];
    assert_eq!(needs, expected);
    for (name, needed) in expected {
        assert_eq!(need(&format!("/console/events/{name}")), Some(needed));
    }
    let manage = Need::Filter(FilterVerb::Manage);
    for (path, needed) in [
        ("/console/actions/drop", manage),
        ("/console/actions/drain", Need::Cluster(ClusterVerb::Admin)),
        ("/console/actions/none", Need::Somebody),
        ("/console/events/none", Need::Somebody),
    ] {
        assert_eq!(need(path), Some(needed), "{path}");
    }
    assert_eq!(need("/console/main.js"), Some(Need::Nothing));
    let strange =
        ["/console/none.js", "/consoles", "/x/console", "/console/events", "/console/actions"];
    for path in strange {
        assert_eq!(need(path), None, "{path}");
    }
}

#[test]
fn the_loss_of_the_majority_dates_from_the_last_contact() {
    let mut contact = MajorityContact::default();
    assert_eq!(contact.note(false, 5).lost_since_ms, Some(5));
    assert_eq!(contact.note(false, 6).lost_since_ms, Some(5));
    assert_eq!(contact.note(true, 7).lost_since_ms, None);
    assert_eq!(contact.note(false, 9).lost_since_ms, Some(7));
}
