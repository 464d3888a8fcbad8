//! Tests of orders to whole nodes, as the console's pages and other programs send them.

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};
use umbel_engine::meta::{
    ClusterVerb, FilterName, FilterVerb, Grant, MetaCommand, Principal, PrincipalName, Proof,
    Rights,
};
use umbel_filter::Kind;
use umbel_node::Config;

use super::ORDER_BYTES_MAX;
use crate::test_node::Node;
use crate::test_node::{config, create, deadline, items, start};

/// Longest wait for a response, which only ends a hang.
const PATIENCE: Duration = Duration::from_secs(180);

/// A single node whose console has this mode.
async fn alone(mode: &str) -> (TempDir, Node) {
    let folder = tempfile::tempdir().unwrap();
    let settings = Config { console: mode.to_owned(), ..config(folder.path()) };
    let node = start(Config { dev: true, shards: 4, replicas: 1, ..settings }).await;
    (folder, node)
}

/// Adds a principal whose token is `NAME.NAME`.
async fn add(node: &Node, name: &str, cluster: &[ClusterVerb], filters: &[FilterVerb]) {
    let digest = *blake3::hash(name.as_bytes()).as_bytes();
    let verbs = filters.iter().copied().collect();
    let grants = match filters {
        [] => Vec::new(),
        _ => vec![Grant { pattern: "crawl.*".to_owned(), verbs }],
    };
    let rights = Rights { cluster: cluster.iter().copied().collect(), grants };
    let principal =
        Principal { proof: Proof::Token { digest }, rights, created_ms: 0, expires_ms: None };
    let name = PrincipalName::new(name).unwrap();
    let command = MetaCommand::PutPrincipal { name, principal, replace: true };
    node.coordinator().meta_propose(command, deadline()).await.unwrap();
}

/// Sends a whole request; returns the status of the response and its text.
async fn sent(node: &Node, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(node.address()).await.unwrap();
    let length = body.len();
    let request = format!("{head}connection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), text.to_owned())
}

/// Sends an order as the console's page does, for a principal, or without a proof if `who` is empty.
async fn ordered(node: &Node, action: &str, who: &str, body: &str) -> (u16, String) {
    let address = node.address();
    let shown = match who {
        "" => String::new(),
        who => format!("authorization: Bearer {who}.{who}\r\n"),
    };
    let head = format!(
        "POST /console/actions/{action} HTTP/1.1\r\nhost: {address}\r\norigin: http://{address}\r\n\
         sec-fetch-site: same-origin\r\ncontent-type: application/json\r\n{shown}"
    );
    sent(node, &head, body).await
}

fn creation(name: &str) -> String {
    format!(
        r#"{{"name":{name:?},"kind":"blocked","capacity":1000,"rate":0.01,"is_replicated":false}}"#
    )
}

/// Id and generation of a filter; None if no filter has the name.
fn filter(node: &Node, name: &str) -> Option<(u64, u64)> {
    let found = node.coordinator().read_meta(|state| {
        let (id, record) = state.filter_by_name(name)?;
        Some((id.0, record.generation.0))
    });
    found.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_does_what_its_role_may_and_no_more() {
    let (_folder, node) = alone("proven").await;
    add(&node, "admin", &[ClusterVerb::Admin, ClusterVerb::Jobs], &[]).await;
    add(&node, "owner", &[], &[FilterVerb::Manage, FilterVerb::Read]).await;
    add(&node, "inserter", &[], &[FilterVerb::Insert]).await;
    add(&node, "reader", &[], &[FilterVerb::Read]).await;
    create(&node.coordinator(), "crawl.seen", Kind::Blocked).await;
    let (number, generation) = filter(&node, "crawl.seen").unwrap();
    let clear = format!(
        r#"{{"name":"crawl.seen","filter":{number},"generation":{generation},"typed":"crawl.seen"}}"#
    );
    let drop = format!(r#"{{"name":"crawl.seen","filter":{number},"typed":"crawl.seen"}}"#);
    let drain = format!(r#"{{"node":1,"undo":false,"typed":{:?}}}"#, node.address());
    let remove = format!(r#"{{"node":9,"typed":{:?}}}"#, node.address());
    let [compare, job] = [r#"{"filter":"crawl.seen"}"#, r#"{"job":"7"}"#];
    let make = creation("crawl.new");
    let orders = [
        ("create", &*make),
        ("clear", &clear),
        ("drop", &drop),
        ("move", r#"{"shard":0,"from":1,"to":2}"#),
        ("drain", &drain),
        ("remove", &remove),
        ("compare", compare),
        ("cancel", job),
        ("resume", job),
    ];
    for (action, body) in orders {
        for who in ["", "reader", "inserter", "nobody"] {
            let (status, text) = ordered(&node, action, who, body).await;
            let expected = if ["", "nobody"].contains(&who) { 401 } else { 403 };
            assert_eq!(status, expected, "{who} {action}: {text}");
            // The same word for whoever decodes it.
            let encoded = format!("%{:x}{}", action.as_bytes()[0], &action[1..]);
            let (status, text) = ordered(&node, &encoded, who, body).await;
            let expected = if expected == 401 { 401 } else { 404 };
            assert_eq!(status, expected, "{who} {encoded}: {text}");
        }
    }
    assert_eq!(filter(&node, "crawl.seen"), Some((number, generation)));
    for (who, action, body, expected) in [
        ("owner", "create", &*make, 200),
        ("owner", "create", &creation("mail.new"), 403),
        ("owner", "clear", &clear, 200),
        ("owner", "drop", &drop, 200),
        ("owner", "compare", compare, 403),
        ("owner", "drain", &drain, 403),
        ("owner", "cancel", job, 403),
        ("admin", "create", &creation("crawl.other"), 403),
        // Refused because of the cluster's state, not because of the caller.
        ("admin", "move", r#"{"shard":0,"from":1,"to":2}"#, 409),
        ("admin", "drain", &drain, 409),
        ("admin", "remove", &remove, 404),
        ("admin", "compare", compare, 404),
        ("admin", "compare", r#"{"filter":"crawl.new"}"#, 200),
        ("admin", "cancel", job, 404),
        ("admin", "resume", job, 404),
    ] {
        let (status, text) = ordered(&node, action, who, body).await;
        // The gate's refusals (403) depend on the caller alone and carry no advice.
        assert!(status == 403 || text.ends_with(".\n"), "{who} {action}: {text}");
        assert_eq!(status, expected, "{who} {action}: {text}");
    }
    assert_eq!((filter(&node, "crawl.seen"), filter(&node, "mail.new")), (None, None));
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_done_already_is_not_done_again() {
    let (_folder, node) = alone("full").await;
    let asked = node.coordinator();
    create(&asked, "seen", Kind::Blocked).await;
    let (number, generation) = filter(&node, "seen").unwrap();
    let clear =
        format!(r#"{{"name":"seen","filter":{number},"generation":{generation},"typed":"seen"}}"#);
    let drop = format!(r#"{{"name":"seen","filter":{number},"typed":"seen"}}"#);
    for body in [clear.replace("\"typed\":\"seen\"", "\"typed\":\"see\""), "{}".into(), "x".into()]
    {
        assert_eq!(ordered(&node, "clear", "", &body).await.0, 400, "{body}");
    }
    let (status, text) = ordered(&node, "clear", "", &clear).await;
    assert_eq!((status, &*text), (200, "Filter seen is empty.\n"));
    let name = FilterName::new("seen").unwrap();
    asked.insert("seen", &items(0..9), None, None, deadline()).await.unwrap();
    let (status, text) = ordered(&node, "clear", "", &clear).await;
    assert!(status == 409 && text.contains("Nothing was changed"), "{status} {text}");
    let info = asked.info(&name, deadline()).await.unwrap();
    assert_eq!(info.sum(|slice| slice.new_count), 9);
    assert_eq!(ordered(&node, "drop", "", &drop).await.0, 200);
    assert_eq!(ordered(&node, "drop", "", &drop).await.0, 404);
    assert_eq!(ordered(&node, "create", "", &creation("seen")).await.0, 200);
    assert_eq!(ordered(&node, "create", "", &creation("seen")).await.0, 409);
    assert_eq!(ordered(&node, "drop", "", &drop).await.0, 409, "another one of its name");
    assert!(filter(&node, "seen").is_some());
    std::mem::drop(asked);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_other_sites_and_of_other_forms_are_refused() {
    let (_folder, node) = alone("full").await;
    let address = node.address();
    let body = creation("seen");
    let (host, origin) = (format!("host: {address}"), format!("origin: http://{address}"));
    let json = "content-type: application/json";
    let lines = |lines: &[&str]| lines.iter().map(|line| format!("{line}\r\n")).collect::<String>();
    for (headers, status) in [
        (lines(&[&host, json]), 403),
        (lines(&[&host, "origin: http://evil.example", json]), 403),
        (lines(&[&host, "origin: null", json]), 403),
        (lines(&["host: evil.example", "origin: http://evil.example", json]), 403),
        (lines(&[&host, &origin, json, "sec-fetch-site: cross-site"]), 403),
        (lines(&[&host, &origin, json, "sec-fetch-site: none"]), 403),
        (lines(&[&host, &origin]), 415),
        (lines(&[&host, &origin, "content-type: text/plain"]), 415),
        (lines(&[&host, &origin, "content-type: application/x-www-form-urlencoded"]), 415),
    ] {
        let head = format!("POST /console/actions/create HTTP/1.1\r\n{headers}");
        let (got, text) = sent(&node, &head, &body).await;
        assert!(got == status && filter(&node, "seen").is_none(), "{headers}: {got} {text}");
    }
    let head =
        format!("GET /console/actions/create HTTP/1.1\r\n{}", lines(&[&host, &origin, json]));
    assert_eq!(sent(&node, &head, "").await.0, 405);
    assert_eq!(ordered(&node, "restore", "", "{}").await.0, 404);
    let long = creation(&"x".repeat(ORDER_BYTES_MAX));
    assert_eq!(ordered(&node, "create", "", &long).await.0, 413);
    assert_eq!(ordered(&node, "create", "", &body).await.0, 200);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_console_changes_nothing_unless_its_mode_says_so() {
    for mode in ["read-only", "proven"] {
        let (_folder, node) = alone(mode).await;
        let (status, text) = ordered(&node, "create", "", &creation("crawl.a")).await;
        assert!(status == 403 && text.contains("changes nothing"), "{mode}: {text}");
        add(&node, "owner", &[ClusterVerb::Admin], &[FilterVerb::Manage]).await;
        let (status, text) = ordered(&node, "create", "owner", &creation("crawl.a")).await;
        assert_eq!(status == 200, mode == "proven", "{mode}: {text}");
        node.shutdown().await;
    }
}
