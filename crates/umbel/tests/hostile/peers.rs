//! Strangers that pretend to be nodes. Without TLS anyone who reaches the port can, as docs/security.md
//! explains; then they must cost a bounded amount and crash nothing.

use std::time::Duration;

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use prost::Message;
use umbel_client::proto::{
    Hello, LinkAnswers, LinkCall, LinkCalls, WhoAreYouRequest, WhoAreYouResponse,
};

use crate::calls::{Answer, Caller, framed, push};
use crate::servers::{Cluster, line_of, until};
use crate::siege::{Bounds, Siege, scaled};

const BOUNDS: Bounds = Bounds { memory_mib: 64, descriptors: 32 };

const LINK: &str = "/umbel.v1.Peer/Link";

/// Longest wait for an answer of a link, which only ends a hang.
const PATIENCE: Duration = Duration::from_secs(120);

/// The numbers of all kinds of calls between nodes, and two that do not exist.
const KINDS: std::ops::RangeInclusive<u32> = 0..=16;

const APPEND: u32 = 1;
const VOTE: u32 = 2;
const PRE_VOTE: u32 = 3;
const TRANSFER: u32 = 4;

/// Base64, the encoding of binary headers.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |part: &[u8]| {
        let bits = part.iter().fold(0_u32, |bits, &byte| bits << 8 | u32::from(byte));
        let bits = bits << (24 - 8 * part.len());
        let digit = |at: usize| char::from(DIGITS[(bits >> (18 - 6 * at)) as usize & 63]);
        (0..=part.len()).map(digit).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

async fn who_are_you(caller: &Caller) -> WhoAreYouResponse {
    caller.call("/umbel.v1.Peer/WhoAreYou", &WhoAreYouRequest {}).await.message()
}

/// A hello that is correct except for its sender.
fn hello(of: &WhoAreYouResponse, from: u64) -> Hello {
    Hello { protocol: of.protocol, cluster_id: of.cluster_id.clone(), from, to: of.node }
}

/// A link that the node has accepted.
struct Link {
    calls: SendStream<Bytes>,
    answers: RecvStream,
}

impl Link {
    /// Opens a link, or returns the node's error.
    async fn open(caller: &Caller, hello: &Hello) -> Result<Self, String> {
        let hello = base64(&hello.encode_to_vec());
        let begun = caller.begin(LINK, &[("umbel-hello-bin", &hello)]).await;
        let (response, calls) = begun.map_err(|error| error.to_string())?;
        let response = tokio::time::timeout(PATIENCE, response).await;
        let response = response.map_err(|_| "no answer")?.map_err(|error| error.to_string())?;
        match response.headers().get("grpc-status") {
            Some(status) => Err(format!("status {status:?}")),
            None => Ok(Self { calls, answers: response.into_body() }),
        }
    }

    async fn send(&mut self, calls: Vec<LinkCall>) -> Result<(), h2::Error> {
        push(&mut self.calls, framed(&LinkCalls { calls }.encode_to_vec()), false).await
    }

    /// Whether the node ends the link, without an answer and before [`PATIENCE`] is over.
    async fn ends(&mut self) -> bool {
        let part = tokio::time::timeout(PATIENCE, self.answers.data()).await;
        matches!(part, Ok(None | Some(Err(_))))
    }

    /// Waits for this many answers; returns how many came if the link ends before.
    async fn answers(&mut self, count: usize) -> usize {
        let (mut bytes, mut answered) = (Vec::new(), 0);
        while answered < count {
            let part = tokio::time::timeout(PATIENCE, self.answers.data()).await;
            let Ok(Some(Ok(part))) = part else { break };
            let _ = self.answers.flow_control().release_capacity(part.len());
            bytes.extend_from_slice(&part);
            while bytes.len() >= 5 {
                let length = u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize;
                if bytes.len() < 5 + length {
                    break;
                }
                answered += LinkAnswers::decode(&bytes[5..5 + length]).unwrap().answers.len();
                bytes.drain(..5 + length);
            }
        }
        answered
    }
}

fn call(id: u64, kind: u32, group: u32, body: Vec<u8>) -> LinkCall {
    LinkCall { id, kind, group, timeout_ms: 2000, body: body.into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn hellos_that_lie_open_no_link() {
    let siege = Siege::begin().await;
    let caller = Caller::open(&siege.address()).await;
    let node = who_are_you(&caller).await;
    let good = hello(&node, 2);
    let lies = [
        ("a foreign cluster", Hello { cluster_id: vec![7; 16].into(), ..good.clone() }),
        ("a cluster of 3 bytes", Hello { cluster_id: vec![7; 3].into(), ..good.clone() }),
        ("a cluster of 4,000 bytes", Hello { cluster_id: vec![7; 4000].into(), ..good.clone() }),
        ("another node's number", Hello { to: 99, ..good.clone() }),
        ("number 0 as its own", Hello { to: 0, ..good.clone() }),
        ("another protocol", Hello { protocol: u32::MAX, ..good }),
    ];
    for (name, lie) in &lies {
        assert!(Link::open(&caller, lie).await.is_err(), "{name}");
    }
    for text in ["", "!!!!", "AAAA", &"A".repeat(8000)] {
        let answer = caller.send(LINK, &[("umbel-hello-bin", text)], Bytes::new()).await;
        assert!(!answer.is_success(), "{text:.20}: {answer:?}");
    }
    for path in ["/umbel.v1.Peer/Exchange", "/umbel.v1.Peer/Scrub", LINK] {
        let answer = caller.send(path, &[], framed(&[])).await;
        assert!(!answer.is_success(), "{path}: {answer:?}");
    }
    siege.holds("hellos", BOUNDS).await;
    drop(caller);
    siege.recovers("hellos").await;
}

/// Bodies of calls that cannot be decoded.
fn bodies() -> Vec<Vec<u8>> {
    vec![
        Vec::new(),
        vec![1],
        vec![2; 40],
        [&[1][..], &[0; 200]].concat(),
        [&[1][..], &[0xff; 200]].concat(),
        // A list that claims 2^60 entries.
        [&[1][..], &[0; 24], &[0, 0, 0, 0, 0, 0, 0, 16]].concat(),
        vec![1; 1 << 20],
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_nodes_that_say_nothing_are_answered() {
    let siege = Siege::begin().await;
    let caller = Caller::open(&siege.address()).await;
    let node = who_are_you(&caller).await;
    for from in [2, node.node, 0, u64::MAX] {
        // No body of a call may do harm, whether or not the node accepts the link.
        let Ok(mut link) = Link::open(&caller, &hello(&node, from)).await else { continue };
        let mut calls = Vec::new();
        for kind in KINDS {
            for group in [0, 1, 1024, u32::MAX] {
                for body in bodies() {
                    calls.push(call(calls.len() as u64, kind, group, body));
                }
            }
        }
        let (mut sent, mut answered) = (0, 0);
        for part in calls.chunks(28) {
            if link.send(part.to_vec()).await.is_err() {
                break;
            }
            sent += part.len();
            answered += link.answers(part.len()).await;
        }
        assert_eq!(answered, sent, "from {from}");
    }
    siege.holds("calls of nodes", Bounds { memory_mib: 256, ..BOUNDS }).await;
    drop(caller);
    siege.recovers("calls of nodes").await;
}

/// A call without content has two bytes, and 56 in memory: 32 million of them would take 2 GB.
#[tokio::test(flavor = "multi_thread")]
async fn messages_of_empty_calls_are_not_unpacked() {
    let siege = Siege::begin().await;
    let caller = Caller::open(&siege.address()).await;
    let node = who_are_you(&caller).await;
    let message = framed(&[0x0a_u8, 0].repeat(32 << 20));
    let mut opened = 0;
    for _ in 0..scaled(2) {
        let Ok(mut link) = Link::open(&caller, &hello(&node, 2)).await else { continue };
        opened += 1;
        // The node may end the link before it has all of the message.
        let _ = push(&mut link.calls, message.clone(), false).await;
        assert!(link.ends().await, "the link breaks");
    }
    assert!(opened > 0, "no link was opened");
    // The message itself, and as many calls as it may have.
    siege.holds("empty calls", Bounds { memory_mib: 256, ..BOUNDS }).await;
    drop(caller);
    siege.recovers("empty calls").await;
}

/// A vote (openraft, `VoteRequest`): term, node, whether it is committed, no last entry, no transfer.
fn vote(term: u64, node: u64) -> Vec<u8> {
    let mut body = vec![1];
    body.extend(term.to_le_bytes());
    body.extend(node.to_le_bytes());
    body.extend([0, 1]);
    // The last entry, an arbitrary one.
    body.extend(term.to_le_bytes());
    body.extend(node.to_le_bytes());
    body.extend(u64::MAX.to_le_bytes());
    body.push(1);
    body
}

/// An append without entries after one that does not exist.
fn append(term: u64, node: u64) -> Vec<u8> {
    let entry = [term.to_le_bytes(), node.to_le_bytes(), u64::MAX.to_le_bytes()].concat();
    let mut body = vec![1];
    body.extend(term.to_le_bytes());
    body.extend(node.to_le_bytes());
    body.push(1);
    // The previous entry, no entries, and the committed one.
    body.push(1);
    body.extend(&entry);
    body.extend(0_u64.to_le_bytes());
    body.push(1);
    body.extend(&entry);
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_votes_end_no_election() {
    let siege = Siege::begin().await;
    let caller = Caller::open(&siege.address()).await;
    let node = who_are_you(&caller).await;
    for from in [2, node.node, u64::MAX] {
        let Ok(mut link) = Link::open(&caller, &hello(&node, from)).await else { continue };
        for term in [u64::MAX, u64::MAX - 1, 1 << 40] {
            let bodies = [
                (VOTE, vote(term, from)),
                (PRE_VOTE, vote(term, from)),
                (APPEND, append(term, from)),
                (TRANSFER, append(term, from)),
            ];
            for group in 0..=4 {
                let calls = (1..).zip(&bodies);
                let calls = calls.map(|(id, (kind, body))| call(id, *kind, group, body.clone()));
                if link.send(calls.collect()).await.is_ok() {
                    link.answers(bodies.len()).await;
                }
            }
        }
    }
    siege.holds("forged votes", BOUNDS).await;
    drop(caller);
    // Also after a restart, when the node must win an election.
    siege.restarts().await.recovers("forged votes").await;
}

/// Links of strangers, in the name of a member and of others.
#[derive(Default)]
struct Strangers {
    callers: Vec<Caller>,
    links: Vec<Link>,
}

impl Strangers {
    /// Opens links over six connections until the node accepts no more.
    async fn take_links(&mut self, address: &str) {
        for _ in 0..6 {
            let caller = Caller::open(address).await;
            let node = who_are_you(&caller).await;
            for number in 0..200 {
                let from = if number % 2 == 0 { 2 } else { 1000 + number };
                match Link::open(&caller, &hello(&node, from)).await {
                    Ok(link) => self.links.push(link),
                    Err(_) => break,
                }
            }
            self.callers.push(caller);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_take_no_links_from_nodes() {
    let cluster = Cluster::form(3).await;
    let addresses: Vec<String> = cluster.nodes.iter().map(|node| node.address.clone()).collect();
    let mut siege = Siege::around_all(cluster).await;
    let mut strangers = Strangers::default();
    strangers.take_links(&addresses[0]).await;
    let count = strangers.links.len();
    println!("{count} links of strangers");
    siege.holds("links", Bounds { memory_mib: 128, ..BOUNDS }).await;
    // A restarted node needs links to the attacked one, where strangers take every free place.
    let node = &mut siege.cluster.nodes[2];
    node.kill();
    strangers.take_links(&addresses[0]).await;
    node.start();
    node.ready().await;
    let anew = node.client();
    until(&format!("node 3 is reached in spite of {count} links"), || async {
        let status = anew.status().await.ok()?;
        status.nodes.iter().all(|node| node.is_reachable).then_some(())
    })
    .await;
    drop(strangers);
    siege.recovers("links").await;
}

/// Whether a node accepts a link, and an exchange of copies, with this hello.
async fn admits(address: &str, from: u64) -> [bool; 2] {
    let caller = Caller::open(address).await;
    let hello = hello(&who_are_you(&caller).await, from);
    let link = Link::open(&caller, &hello).await;
    let text = base64(&hello.encode_to_vec());
    let headers = [("umbel-hello-bin", text.as_str())];
    let answer = caller.send("/umbel.v1.Peer/Exchange", &headers, framed(&[])).await;
    // The error of an accepted exchange is about its empty message.
    let Answer::Status { message, .. } = &answer else { panic!("{answer:?}") };
    // The message is percent-encoded; a single word avoids its spaces.
    [link.is_ok(), !message.contains("removed")]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_node_is_let_in_nowhere_by_its_hello() {
    let cluster = Cluster::form(3).await;
    let addresses: Vec<String> = cluster.nodes.iter().map(|node| node.address.clone()).collect();
    let mut siege = Siege::around_all(cluster).await;
    let attacked = &addresses[..2];
    siege.cluster.nodes[2].kill();
    for address in attacked {
        assert_eq!(admits(address, 3).await, [true, true], "without TLS whoever says so is node 3");
    }
    let client = siege.cluster.nodes[0].client();
    until("the removal", || async { client.remove_node(3).await.ok() }).await;
    for address in attacked {
        until(&format!("{address} has heard of it"), || async {
            (admits(address, 3).await == [false, false]).then_some(())
        })
        .await;
        // It stays refused, while a member is accepted in the same way.
        for _ in 0..scaled(50) {
            assert_eq!(admits(address, 3).await, [false, false]);
        }
    }
    assert_eq!(admits(&addresses[0], 2).await, [true, true]);
    siege.holds("a removed node", BOUNDS).await;
    // The removed node itself does not know of its removal: the others tell it, and it changes nothing
    // for them.
    siege.cluster.nodes[2].start();
    until("node 3 has heard of it", || async {
        siege.cluster.nodes[2].log().contains("was removed from the cluster").then_some(())
    })
    .await;
    let status = client.status().await.unwrap();
    assert_eq!(line_of(&status, 3).state, "removed");
    // The controller moves one shard after the other away from it.
    until("no shard has a replica on it", || async {
        let status = client.status().await.ok()?;
        status.shards.iter().all(|shard| !shard.replicas.contains(&3)).then_some(())
    })
    .await;
    siege.recovers("a removed node").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_of_strangers_about_copies_cost_little() {
    let siege = Siege::begin().await;
    let caller = Caller::open(&siege.address()).await;
    let node = who_are_you(&caller).await;
    let hello = base64(&hello(&node, 2).encode_to_vec());
    let headers = [("umbel-hello-bin", hello.as_str())];
    for _ in 0..scaled(20) {
        for path in ["/umbel.v1.Peer/Exchange", "/umbel.v1.Peer/Scrub", "/umbel.v1.Peer/Adopt"] {
            for body in [framed(&[]), framed(&[0xff; 64]), framed(&[0x0a; 3])] {
                let answer = caller.send(path, &headers, body).await;
                assert!(matches!(answer, Answer::Status { .. }), "{path}: {answer:?}");
            }
        }
    }
    siege.holds("questions about copies", BOUNDS).await;
    drop(caller);
    siege.recovers("questions about copies").await;
}
