//! Tests of the lines of the audit log about commands.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::sync::watch;
use umbel_coordinator::Coordinator;
use umbel_engine::meta::{ClusterVerb, FilterVerb, Rights};
use umbel_filter::Kind;
use umbel_node::Config;
use umbel_ports::{Incoming, PeerIdentity};

use super::Shared;
use super::connection::serve;
use super::dumps_test::{dump, load};
use super::resp_test::{Client, node};
use crate::audit_recorder::AuditRecorder;
use crate::budget::Budget;
use crate::test_node::{SECRET, create, grant, put};

#[tokio::test]
async fn orders_of_administrators_have_an_address_and_an_outcome() {
    let recorder = AuditRecorder::default();
    let _recording = recorder.begin();
    let config = Config { request_timeout_ms_max: 5_000, ..Config::default() };
    let (advertised, local) = ("127.0.0.1:7300", "127.0.0.1:6379");
    let coordinator = Arc::new(Coordinator::without_cluster());
    let shared = Shared::new(&config, advertised, local, coordinator, Budget::new(1 << 20));
    let (mut client, node) = duplex(1 << 16);
    let unchecked = Incoming::unchecked(node, "10.0.0.7:1".to_owned());
    let taken = Incoming { identity: PeerIdentity::Node, ..unchecked };
    let (_stopping, stop) = watch::channel(false);
    let serving = tokio::spawn(serve(taken, Arc::new(shared), stop));
    client.write_all(b"PING\r\nCLIENT LIST\r\nFLUSHALL\r\n").await.unwrap();
    client.shutdown().await.unwrap();
    let mut answers = String::new();
    client.read_to_string(&mut answers).await.unwrap();
    serving.await.unwrap();
    let lines = recorder.lines();
    let [list, flush] = &lines[..] else { panic!("{lines:#?}") };
    let begin = r#"called who="node" from="10.0.0.7:1""#;
    assert_eq!(*list, format!(r#"{begin} call="client|list" outcome="granted""#));
    let failed = format!(r#"{begin} call="flushall" outcome="failed" reason="LOADING "#);
    assert!(flush.starts_with(&failed), "{flush}");
}

/// All tasks of the node run on the thread whose lines are recorded.
#[tokio::test]
async fn a_copy_in_pieces_that_is_refused_for_its_key_is_audited_once() {
    use FilterVerb::{Export, Manage, Read};
    let recorder = AuditRecorder::default();
    let _recording = recorder.begin();
    let (_folder, node) = node().await;
    create(&node.coordinator(), "mail.seen", Kind::Blocked).await;
    put(&node, "root", Rights { cluster: [ClusterVerb::Admin].into(), ..Rights::default() }).await;
    put(&node, "owner", grant("*", &[Read, Export])).await;
    put(&node, "mover", grant("own.*", &[Manage])).await;
    let mut owner = Client::new(&node).await;
    owner.call(&format!("AUTH owner {SECRET}"), "+OK\r\n").await;
    let pieces = dump(&mut owner, "BF.SCANDUMP", "mail.seen").await;
    let mut mover = Client::new(&node).await;
    mover.call(&format!("AUTH mover {SECRET}"), "+OK\r\n").await;
    load(&mut mover, "BF.LOADCHUNK", "own.seen", &pieces[0]).await;
    let answer = mover.line().await;
    assert!(answer.starts_with("-NOPERM ") && answer.contains("hash key"), "{answer}");
    let lines = recorder.lines();
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    let ordered = r#"call="bf.loadchunk" ordered="filter=own.seen" outcome="refused""#;
    assert!(line.starts_with(r#"denied who="principal mover" from="#), "{line}");
    assert!(line.contains(ordered) && line.contains("hash key"), "{line}");
    node.shutdown().await;
}
