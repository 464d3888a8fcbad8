//! A test of the lines of the audit log about commands.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::sync::watch;
use umbel_coordinator::Coordinator;
use umbel_node::Config;
use umbel_ports::{Incoming, PeerIdentity};

use super::Shared;
use super::connection::serve;
use crate::audit_recorder::AuditRecorder;
use crate::budget::Budget;

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
