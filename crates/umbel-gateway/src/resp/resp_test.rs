//! Sessions of clients over sockets: from transcripts, and cases that transcripts cannot express.

use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use umbel_engine::meta::{ClusterVersion, VersionRange};
use umbel_node::config::Config;
use umbel_ports::{Net, RealNet, Seed, Stream};

use crate::test_node::{Clock, Node, config, start, start_by, start_of};

/// A node with two shards that serves the protocol.
pub(super) async fn node() -> (TempDir, Node) {
    node_with(|_| ()).await
}

/// The same with other settings.
pub(super) async fn node_with(change: impl FnOnce(&mut Config)) -> (TempDir, Node) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = resp_config(folder.path());
    change(&mut config);
    let node = start(config).await;
    (folder, node)
}

/// The same with this clock.
pub(super) async fn node_at(clock: &Arc<Clock>) -> (TempDir, Node) {
    node_by(Arc::clone(clock) as _).await
}

/// The same with this entropy and clock, and what is provoked.
pub(super) async fn node_by(seed: Arc<dyn Seed>) -> (TempDir, Node) {
    let folder = tempfile::tempdir().unwrap();
    let node = start_by(resp_config(folder.path()), seed).await;
    (folder, node)
}

/// The same of a release that runs clusters up to this version.
pub(super) async fn node_up_to(newest: ClusterVersion) -> (TempDir, Node) {
    let folder = tempfile::tempdir().unwrap();
    let versions = VersionRange { oldest: ClusterVersion::FIRST, newest };
    let node = start_of(resp_config(folder.path()), versions).await;
    (folder, node)
}

fn resp_config(data: &Path) -> Config {
    let resp_listen = Some("127.0.0.1:0".to_owned());
    Config { dev: true, shards: 2, replicas: 1, resp_listen, ..config(data) }
}

pub(super) struct Client {
    pub(super) stream: Box<dyn Stream>,
}

impl Client {
    pub(super) async fn new(node: &Node) -> Self {
        let address = node.resp_address().expect("it speaks the protocol");
        Self { stream: RealNet.connect(address).await.unwrap() }
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Reads as many bytes as the expected answer has, and compares them.
    pub(super) async fn expect(&mut self, expected: &str, what: &str) {
        let mut got = vec![0; expected.len()];
        let mut at = 0;
        while at < got.len() {
            let mismatch = !expected.as_bytes().starts_with(&got[..at]);
            let count = if mismatch { 0 } else { self.stream.read(&mut got[at..]).await.unwrap() };
            if count == 0 {
                let got = String::from_utf8_lossy(&got[..at]).into_owned();
                panic!("{what}: got {got:?}, expected {expected:?}");
            }
            at += count;
        }
        assert_eq!(String::from_utf8_lossy(&got), expected, "{what}");
    }

    pub(super) async fn call(&mut self, request: &str, expected: &str) {
        self.send(format!("{request}\r\n").as_bytes()).await;
        self.expect(expected, request).await;
    }

    /// Everything that arrives until the node closes the connection.
    pub(super) async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        // A reset ends the connection, too.
        let _ = self.stream.read_to_end(&mut rest).await;
        String::from_utf8_lossy(&rest).into_owned()
    }

    /// A line of an answer.
    pub(super) async fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.push(self.stream.read_u8().await.unwrap());
        }
        String::from_utf8(line[..line.len() - 2].to_vec()).unwrap()
    }

    async fn id(&mut self) -> String {
        self.send(b"CLIENT ID\r\n").await;
        self.line().await[1..].to_owned()
    }
}

const TRANSCRIPTS: [(&str, &str); 10] = [
    ("bloom", include_str!("../../testdata/resp/bloom.txt")),
    ("bloom3", include_str!("../../testdata/resp/bloom3.txt")),
    ("cuckoo", include_str!("../../testdata/resp/cuckoo.txt")),
    ("sets", include_str!("../../testdata/resp/sets.txt")),
    ("keys", include_str!("../../testdata/resp/keys.txt")),
    ("expiry", include_str!("../../testdata/resp/expiry.txt")),
    ("payloads", include_str!("../../testdata/resp/payloads.txt")),
    ("connection", include_str!("../../testdata/resp/connection.txt")),
    ("transactions", include_str!("../../testdata/resp/transactions.txt")),
    ("umbel", include_str!("../../testdata/resp/umbel.txt")),
];

/// The requests of a transcript with their answers, where `\r` and `\n` are in texts of several lines.
pub(super) fn steps(text: &str, id: &str) -> Vec<(String, String)> {
    let mut steps: Vec<(String, String)> = Vec::new();
    let mut is_begun = false;
    for line in text.lines() {
        if let Some(request) = line.strip_prefix("> ") {
            steps.push((request.to_owned(), String::new()));
            is_begun = true;
        } else if !line.starts_with("# ") && is_begun {
            let (_, answer) = steps.last_mut().unwrap();
            // A blank line belongs to an empty text, or separates steps.
            if !line.is_empty() || answer.ends_with("$0\r\n") {
                let line = line.replace("$ID", id).replace("\\r", "\r").replace("\\n", "\n");
                *answer += &line;
                *answer += "\r\n";
            }
        }
    }
    steps
}

/// How a client sends the requests of a transcript.
#[derive(Clone, Copy)]
enum Manner {
    OneByOne,
    AllAtOnce,
    /// In pieces of seven bytes.
    InPieces,
}

#[tokio::test(flavor = "multi_thread")]
async fn transcripts_are_answered_byte_for_byte() {
    // They show how much time is left.
    let (_folder, node) = node_at(&Clock::stopped()).await;
    let mut database = 0;
    for (name, text) in TRANSCRIPTS {
        for manner in [Manner::OneByOne, Manner::AllAtOnce, Manner::InPieces] {
            // Each run has its own filters.
            let mut client = Client::new(&node).await;
            client.call(&format!("SELECT {database}"), "+OK\r\n").await;
            let id = client.id().await;
            let steps = steps(text, &id);
            assert!(steps.len() > 5, "{name}");
            match manner {
                Manner::OneByOne => {
                    for (request, answer) in &steps {
                        client.call(request, answer).await;
                    }
                }
                Manner::AllAtOnce | Manner::InPieces => {
                    let requests: String =
                        steps.iter().map(|(request, _)| format!("{request}\r\n")).collect();
                    let piece = if matches!(manner, Manner::InPieces) { 7 } else { requests.len() };
                    for piece in requests.as_bytes().chunks(piece) {
                        client.send(piece).await;
                    }
                    for (request, answer) in &steps {
                        client.expect(answer, request).await;
                    }
                }
            }
            // `RESET` has selected the first database again.
            client.call(&format!("SELECT {database}"), "+OK\r\n").await;
            client.call("QUIT", "+OK\r\n").await;
            assert_eq!(client.rest().await, "", "{name}");
            let mut cleaner = Client::new(&node).await;
            cleaner.call(&format!("SELECT {database}"), "+OK\r\n").await;
            for key in ["a", "b", "r", "made", "made2", "made3", "fixed", "fixed0"] {
                cleaner.send(format!("DEL {key}\r\n").as_bytes()).await;
                assert_eq!(cleaner.stream.read_u8().await.unwrap(), b':');
                cleaner.stream.read_exact(&mut [0; 3]).await.unwrap();
            }
            cleaner.call("DBSIZE", ":0\r\n").await;
            database = (database + 1) % 16;
        }
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn neighbours_are_answered_as_one_by_one() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    let mut requests = String::new();
    let mut expected = String::new();
    for item in 0..500 {
        // Each item twice, with a lookup after every few.
        requests += &format!("BF.ADD k {item}\r\nBF.ADD k {item}\r\n");
        expected += ":1\r\n:0\r\n";
        if item % 7 == 0 {
            requests += &format!("BF.EXISTS k {item}\r\nBF.MADD k {item} x{item} {item}\r\n");
            expected += ":1\r\n*3\r\n:0\r\n:1\r\n:0\r\n";
        }
        if item % 50 == 0 {
            requests += "BF.ADD k\r\nBF.ADD other x y\r\n";
            expected += "-ERR wrong number of arguments for 'bf.add' command\r\n";
            expected += "-ERR wrong number of arguments for 'bf.add' command\r\n";
        }
    }
    client.send(b"BF.RESERVE k 0.000001 100000\r\n").await;
    client.expect("+OK\r\n", "reserve").await;
    client.send(requests.as_bytes()).await;
    client.expect(&expected, "the pipeline").await;
    node.shutdown().await;
}

/// Commands that insert into filters which may be full go to the cluster one by one.
#[tokio::test(flavor = "multi_thread")]
async fn neighbours_of_a_table_are_answered_as_one_by_one() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    client.call("UMBEL.CREATE w CAPACITY 100000 ERROR 0.000001 WINDOW 86400000", "+OK\r\n").await;
    client.call("UMBEL.CREATE q KIND quotient CAPACITY 10000 ERROR 0.000001", "+OK\r\n").await;
    client.call("CF.RESERVE c 4 EXPANSION 0", "+OK\r\n").await;
    for key in ["w", "q"] {
        let (mut requests, mut expected) = (String::new(), String::new());
        for item in 0..200 {
            requests += &format!("BF.ADD {key} {item}\r\nBF.MADD {key} {item} x{item} x{item}\r\n");
            expected += ":1\r\n*3\r\n:0\r\n:1\r\n:0\r\n";
            requests += &format!("BF.EXISTS {key} x{item}\r\nSADD {key} x{item} y{item}\r\n");
            expected += ":1\r\n:1\r\n";
        }
        client.send(requests.as_bytes()).await;
        client.expect(&expected, key).await;
    }
    // Two pages of 512 slots: some of these have room, and they are the ones that are present then.
    let items = 0..2_000;
    let pipeline = |command: &str| -> String {
        items.clone().map(|item| format!("{command} c {item}\r\n")).collect()
    };
    client.send(pipeline("BF.ADD").as_bytes()).await;
    let mut added = Vec::new();
    for item in items.clone() {
        match &*client.line().await {
            ":1" | ":0" => added.push(item),
            other => assert_eq!(other, "-ERR non scaling filter is full"),
        }
    }
    assert!((900..=1024).contains(&added.len()), "{} were added", added.len());
    client.send(pipeline("BF.EXISTS").as_bytes()).await;
    for item in items {
        let answer = client.line().await;
        assert!(answer == ":1" || !added.contains(&item), "{item} was added");
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_request_may_come_again() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    client.send(b"UMBEL.SESSION\r\n").await;
    let session = client.line().await[1..].to_owned();
    client.call("BF.RESERVE k 0.000001 1000", "+OK\r\n").await;
    client.call("BF.ADD k old", ":1\r\n").await;
    let request = format!("UMBEL.REQUEST {session}:1 BF.MADD k old new new");
    let answer = "*3\r\n:0\r\n:1\r\n:0\r\n";
    client.call(&request, answer).await;
    client.call(&request, answer).await;
    // Without a request id it is another request.
    client.call("BF.MADD k old new new", "*3\r\n:0\r\n:0\r\n:0\r\n").await;
    // So many items that every shard has some: each shard knows the ids of the requests that it received.
    let items: String = (0..200).map(|item| format!(" {item}")).collect();
    let all_new = format!("*200\r\n{}", ":1\r\n".repeat(200));
    client.call(&format!("UMBEL.REQUEST {session}:2 BF.MADD k{items}"), &all_new).await;
    let reused = format!("UMBEL.REQUEST {session}:2 BF.ADD k other\r\n");
    client.send(reused.as_bytes()).await;
    client.expect("-REQUEST ", "another request of the name").await;
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_ends_the_connection() {
    let (_folder, node) = node().await;
    let long = format!("*1\r\n$5\r\nhello\r\nPING {}", "x".repeat(70_000));
    let nested = "*1\r\n".repeat(5);
    let cases = [
        ("PING\r\n*x\r\n", "+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n"),
        (&*nested, "-ERR Protocol error: expected '$', got '*'\r\n"),
        ("*1\r\n$x\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        ("PING \"\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
        ("POST / HTTP/1.1\r\nHost: x\r\n\r\n", ""),
        ("PING\r\nQUIT\r\nPING\r\n", "+PONG\r\n+OK\r\n"),
        // What comes behind them is no request.
        ("QUIT\r\n*x\r\n", "+OK\r\n"),
        ("POST / HTTP/1.1\r\n*x\r\n", ""),
    ];
    for (sent, expected) in cases {
        let mut client = Client::new(&node).await;
        client.send(sent.as_bytes()).await;
        assert_eq!(client.rest().await, expected, "{sent:?}");
    }
    let mut client = Client::new(&node).await;
    // The node may have closed the connection before all of it was sent.
    let _ = client.stream.write_all(long.as_bytes()).await;
    let message = client.rest().await;
    assert!(message.contains("Protocol error: too big inline request"), "{message}");
    // It is sent as a whole before the answer is read.
    let head = b"*3\r\n$6\r\nBF.ADD\r\n$1\r\nk\r\n$5242880\r\n";
    let mut client = Client::new(&node).await;
    client.send(&[&head[..], &vec![b'x'; 5 << 20], b"\r\n"].concat()).await;
    let expected = "-ERR Protocol error: invalid bulk length: 5242880, expected at most 524288\r\n";
    assert_eq!(client.rest().await, expected);
    // Other connections are served.
    Client::new(&node).await.call("PING", "+PONG\r\n").await;
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_batches_are_cut_and_joined() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    let count = 70_000;
    client.call("BF.RESERVE k 0.000001 200000", "+OK\r\n").await;
    let mut request = format!("*{}\r\n$7\r\nBF.MADD\r\n$1\r\nk\r\n", count + 2).into_bytes();
    for item in 0..count {
        let text = item.to_string();
        request.extend(format!("${}\r\n{text}\r\n", text.len()).bytes());
    }
    client.send(&request).await;
    client.expect(&format!("*{count}\r\n"), "the head").await;
    let mut answers = vec![0; count * 4];
    client.stream.read_exact(&mut answers).await.unwrap();
    let (answers, rest) = answers.as_chunks::<4>();
    let new = answers.iter().filter(|answer| *answer == b":1\r\n").count();
    assert!(rest.is_empty() && new > count - 10, "{new}");
    client.send(b"BF.CARD k\r\n").await;
    client.expect(&format!(":{new}\r\n"), "the count").await;
    node.shutdown().await;
}
