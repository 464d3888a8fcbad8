//! Clients that prove no identity, a wrong one, or one that is not valid any more.

use bytes::Bytes;
use prost::Message;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use umbel_client::proto::{
    ClusterVerb, FilterVerb, Grant, InfoRequest, Principal, PutPrincipalRequest, WhoAmIRequest,
};
use umbel_client::{Client, ClientOptions, TlsConnector, TlsFiles};
use umbel_tls::{Authority, Pem, Subject};

use crate::calls::{Answer, Caller, framed};
use crate::certificates::{Certificates, Life, self_signed};
use crate::frames::{CONNECT_PATIENCE, try_connect};
use crate::honest::{Connect, FILTER};
use crate::servers::{Cluster, Server, until};
use crate::siege::{Bounds, Siege, patient, scaled};

const BOUNDS: Bounds = Bounds { memory_mib: 48, descriptors: 16 };

/// gRPC statuses.
const PERMISSION_DENIED: Option<i32> = Some(7);
const UNAUTHENTICATED: Option<i32> = Some(16);

/// Calls that only nodes may make.
const NODE_CALLS: [&str; 7] = [
    "/umbel.v1.Peer/Link",
    "/umbel.v1.Peer/Exchange",
    "/umbel.v1.Peer/Scrub",
    "/umbel.v1.Peer/Adopt",
    "/umbel.v1.Peer/WhoAreYou",
    "/umbel.v1.JobControl/Control",
    "/umbel.v1.JobExchange/Frames",
];

/// A node with TLS, and an honest client, alice.
pub(crate) async fn secure() -> (Siege, Certificates) {
    let mut cluster = Cluster::none().await;
    let certificates = Certificates::new(cluster.folder.path());
    let pair = certificates.put("node", &certificates.node("127.0.0.1"));
    let mut node = cluster.another(&["--dev"]);
    certificates.give(&mut node, &pair);
    node.start();
    node.listening().await;
    let connect = alice(&certificates, &node);
    cluster.nodes.push(node);
    (Siege::around(cluster, connect).await, certificates)
}

fn alice(certificates: &Certificates, node: &Server) -> Connect {
    let pair = certificates.put("alice", &certificates.client("alice"));
    let files = TlsFiles { ca: certificates.ca(), pair: Some(pair) };
    let address = node.address.clone();
    Box::new(move || {
        let tls = TlsConnector::open(files.clone()).unwrap();
        Client::connect_through(address.as_str(), patient(), tls).unwrap()
    })
}

async fn who_am_i(caller: &Caller) -> Answer {
    caller.call("/umbel.v1.Access/WhoAmI", &WhoAmIRequest {}).await
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_prove_nothing_open_no_connection() {
    let (siege, certificates) = secure().await;
    let (strangers, _) = Authority::new("cluster", 1).unwrap();
    let subject = Subject::Client { name: "alice".to_owned() };
    let wrong: [(&str, Pem); 5] = [
        ("expired", certificates.client_of("alice", Life::Over)),
        ("not valid yet", certificates.client_of("alice", Life::ToCome)),
        ("self-signed", self_signed("alice")),
        ("of another authority", strangers.issue(&subject, 1).unwrap()),
        ("signed by a client", certificates.client_by_client("root")),
    ];
    for _ in 0..scaled(5) {
        for (name, pem) in &wrong {
            let stream = certificates.connect(&siege.address(), Some(pem)).await;
            // The client completes its handshake first, and learns only then that the node refuses it.
            if let Ok(caller) = Caller::try_over(stream).await {
                let answer = who_am_i(&caller).await;
                assert!(matches!(answer, Answer::Cut(_)), "{name}: {answer:?}");
            }
        }
    }
    // The same connection works with a valid certificate.
    let good = certificates.client_of("alice", Life::Now);
    let caller = Caller::over(certificates.connect(&siege.address(), Some(&good)).await).await;
    assert!(who_am_i(&caller).await.is_success());
    drop(caller);
    siege.holds("certificates", BOUNDS).await;
    siege.recovers("certificates").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nodes_say_to_each_other_is_for_nodes() {
    let (siege, certificates) = secure().await;
    let shown = [None, Some(certificates.client("mallory"))];
    for pem in &shown {
        let stream = certificates.connect(&siege.address(), pem.as_ref()).await;
        let caller = Caller::over(stream).await;
        for path in NODE_CALLS {
            for body in [framed(&[]), framed(&[0xff; 100]), Bytes::new()] {
                let headers = [("umbel-hello-bin", "CAESEAAAAAAAAAAAAAAAAAAAAAAYASAB")];
                let answer = caller.send(path, &headers, body).await;
                assert_eq!(answer.grpc(), PERMISSION_DENIED, "{path}: {answer:?}");
            }
        }
    }
    siege.holds("peers' calls", BOUNDS).await;
    siege.recovers("peers' calls").await;
}

/// Files without a usable certificate and key for a node, with a description of each.
fn damaged(certificates: &Certificates) -> Vec<(&'static str, Pem)> {
    let good = certificates.node("127.0.0.1");
    let other = certificates.node("127.0.0.1");
    let half = |text: &str| text[..text.len() / 2].to_owned();
    let subject = Subject::Node { hosts: vec!["127.0.0.1".to_owned()] };
    vec![
        ("an empty key", Pem { key: String::new(), ..good.clone() }),
        ("half a key", Pem { key: half(&good.key), ..good.clone() }),
        ("another's key", Pem { key: other.key, ..good.clone() }),
        ("a certificate as key", Pem { key: good.certificate.clone(), ..good.clone() }),
        ("a key of 5 MiB", Pem { key: "a".repeat(5 << 20), ..good.clone() }),
        ("half a certificate", Pem { certificate: half(&good.certificate), ..good.clone() }),
        (
            "a certificate that is none",
            Pem {
                certificate: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
                    .into(),
                ..good
            },
        ),
        ("an expired certificate", certificates.authority.issue_expired(&subject).unwrap()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_files_are_refused_at_the_start_and_passed_over_later() {
    let (siege, certificates) = secure().await;
    for (name, pem) in damaged(&certificates) {
        let pair = certificates.put("damaged", &pem);
        let mut node = siege.cluster.another(&["--dev"]);
        certificates.give(&mut node, &pair);
        let said = node.refused_with(2).await;
        let is_named = said.contains("damaged.key") || said.contains("damaged.pem");
        assert!(is_named && !said.contains("panicked"), "{name}: {said}");
        assert!(!node.data.join("wal").exists(), "{name}: the data folder was made");
    }
    for (name, pem) in damaged(&certificates) {
        let before = siege.node().log().matches("the old ones stay").count();
        certificates.put("node", &pem);
        until(&format!("{name} is found"), || async {
            (siege.node().log().matches("the old ones stay").count() > before).then_some(())
        })
        .await;
        siege.honest.comes_anew().await;
        if scaled(1) == 1 {
            // The node checks its files every two seconds, so one kind of damage suffices.
            break;
        }
    }
    certificates.put("node", &certificates.node("127.0.0.1"));
    until("good files are taken", || async {
        siege.node().log().contains("new certificates were read").then_some(())
    })
    .await;
    siege.holds("damaged files", BOUNDS).await;
    siege.recovers("damaged files").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_certificate_names_another_host_is_not_believed() {
    let mut cluster = Cluster::none().await;
    let certificates = Certificates::new(cluster.folder.path());
    let pair = certificates.put("node", &certificates.node("elsewhere.example"));
    let mut node = cluster.another(&["--dev"]);
    certificates.give(&mut node, &pair);
    node.start();
    node.listening().await;
    let pair = certificates.put("alice", &certificates.client("alice"));
    let tls = TlsConnector::open(TlsFiles { ca: certificates.ca(), pair: Some(pair) }).unwrap();
    let options = ClientOptions {
        attempt_count_max: 2,
        first_contact_timeout: std::time::Duration::from_millis(100),
        ..crate::servers::options()
    };
    let client = Client::connect_through(node.address.as_str(), options, tls).unwrap();
    let error = client.info("x").await.unwrap_err().to_string();
    assert!(error.contains("127.0.0.1"), "{error}");
    cluster.nodes.push(node);
    let log = cluster.nodes[0].log();
    assert!(!log.contains("panicked"), "{log}");
}

fn principal(name: &str, grants: &[FilterVerb], may: &[ClusterVerb]) -> PutPrincipalRequest {
    let verbs = grants.iter().map(|&verb| verb.into()).collect();
    let grant = Grant { pattern: "*".to_owned(), verbs };
    let grants = if grants.is_empty() { Vec::new() } else { vec![grant] };
    let principal = Principal {
        name: name.to_owned(),
        token_digest: blake3::hash(name.as_bytes()).as_bytes().to_vec().into(),
        grants,
        cluster_verbs: may.iter().map(|&verb| verb.into()).collect(),
        ..Principal::default()
    };
    PutPrincipalRequest { principal: Some(principal), ..PutPrincipalRequest::default() }
}

/// Makes alice the administrator. Reader may read, mallory may do everything with filters, and the others
/// nothing any more.
pub(crate) async fn guard(siege: &Siege) {
    let client = siege.honest.client();
    let all = [
        FilterVerb::Read,
        FilterVerb::Insert,
        FilterVerb::Remove,
        FilterVerb::Manage,
        FilterVerb::Export,
    ];
    let may = [ClusterVerb::Admin, ClusterVerb::Metrics];
    let mut alice = principal("alice", &all, &may);
    alice.principal.as_mut().unwrap().token_digest = Bytes::new();
    client.put_principal(alice).await.unwrap();
    client.put_principal(principal("reader", &[FilterVerb::Read], &[])).await.unwrap();
    client.put_principal(principal("mallory", &all, &[])).await.unwrap();
    client.put_principal(principal("gone", &all, &[])).await.unwrap();
    client.revoke_principal("gone").await.unwrap();
    let mut late = principal("late", &all, &[]);
    late.principal.as_mut().unwrap().expires_ms = 1;
    // This may be refused, since the principal has expired already.
    let _ = client.put_principal(late).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_are_none_tell_nothing_and_change_nothing() {
    let (siege, certificates) = secure().await;
    guard(&siege).await;
    let caller = Caller::over(certificates.connect(&siege.address(), None).await).await;
    let huge = format!("Bearer reader.{}", "x".repeat(12_000));
    let tokens = [
        "Bearer gone.gone",
        "Bearer late.late",
        "Bearer reader.wrong",
        "Bearer nobody.nobody",
        "Bearer reader",
        "Bearer ",
        "Bearer . ",
        "Basic cmVhZGVyOnJlYWRlcg==",
        "reader.reader",
        "Bearer reader.reader.reader",
        &huge,
    ];
    for _ in 0..scaled(2) {
        for token in tokens {
            let headers = [("authorization", token)];
            let mut said = Vec::new();
            for name in [FILTER, "missing"] {
                let info = framed(&InfoRequest { name: name.to_owned() }.encode_to_vec());
                let answer = caller.send("/umbel.v1.Filters/Info", &headers, info).await;
                assert_eq!(answer.grpc(), UNAUTHENTICATED, "{token:.40}: {answer:?}");
                said.push(answer);
            }
            assert_eq!(said[0], said[1], "{token:.40}: the answer tells whether it exists");
        }
    }
    // Without the verb, a principal gets the same error for all filters, existing or not.
    let reader = [("authorization", "Bearer reader.reader")];
    let before = siege.honest.client().list("").await.unwrap();
    for (path, body) in changes(FILTER).into_iter().zip(changes("missing")) {
        let (path, there, missing) = (path.0, path.1, body.1);
        let there = caller.send(path, &reader, there).await;
        assert_eq!(there.grpc(), PERMISSION_DENIED, "{path}: {there:?}");
        assert_eq!(there, caller.send(path, &reader, missing).await, "{path}");
    }
    assert_eq!(siege.honest.client().list("").await.unwrap(), before);
    drop(caller);
    siege.holds("tokens", BOUNDS).await;
    siege.recovers("tokens").await;
}

/// Calls that change a filter.
fn changes(name: &str) -> Vec<(&'static str, Bytes)> {
    // Field 1 of all these messages is the name.
    let body = framed(&InfoRequest { name: name.to_owned() }.encode_to_vec());
    let methods = [
        "/umbel.v1.Filters/Create",
        "/umbel.v1.Filters/Drop",
        "/umbel.v1.Filters/Clear",
        "/umbel.v1.Filters/Insert",
        "/umbel.v1.Filters/Remove",
        "/umbel.v1.Filters/Merge",
        "/umbel.v1.Filters/Flush",
        "/umbel.v1.Filters/Export",
    ];
    methods.into_iter().map(|method| (method, body.clone())).collect()
}

/// Connections with an incomplete handshake.
async fn half_handshakes(address: &str, count: usize) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for _ in 0..count {
        let connecting = tokio::time::timeout(CONNECT_PATIENCE, try_connect(address)).await;
        let Ok(Ok(mut stream)) = connecting else { break };
        // The header of a hello of 508 bytes, and its first bytes.
        let _ = stream.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]).await;
        held.push(stream);
    }
    held
}

#[tokio::test(flavor = "multi_thread")]
async fn handshakes_that_stop_cost_kilobytes_each() {
    let (siege, _) = secure().await;
    let held = half_handshakes(&siege.address(), 200).await;
    siege.honest.comes_anew().await;
    siege.holds("handshakes", Bounds { memory_mib: 32, descriptors: 208 }).await;
    drop(held);
    siege.recovers("handshakes").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the long form: waits for limits in time"]
async fn handshakes_that_stop_keep_nobody_out() {
    let (siege, _) = secure().await;
    // More than the node handles at once, and more than time out before an honest client gives up.
    let held = half_handshakes(&siege.address(), 1000).await;
    siege.honest.comes_anew().await;
    drop(held);
    siege.recovers("many handshakes").await;
}
