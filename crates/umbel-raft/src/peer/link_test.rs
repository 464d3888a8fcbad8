//! Links between served nodes: over in-memory pipes with paused time, and over sockets of the machine.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;
use umbel_engine::{GroupId, NodeId};
use umbel_ports::testing::{MemoryNet, free_port};
use umbel_ports::{Net, RealNet};

use super::limits::{
    LINK_BODY_BYTES_MAX, LINK_CALLS_IN_FLIGHT_MAX, LINK_CALLS_PENDING_MAX, LINK_QUEUE_CALLS_MAX,
};
use super::test_node::{GATED, NEVER, PANIC, REFUSE, SECOND, TestNode, links, send_request, serve};
use super::{CallError, CallKind, Links, RefusalReason};

/// An in-memory network with links of node 1, and node 2.
async fn pair() -> (Arc<MemoryNet>, Arc<Links>, TestNode) {
    let net = Arc::new(MemoryNet::default());
    let there = serve(&*net, "two:1", Some(2)).await;
    let dyn_net: Arc<dyn Net> = Arc::clone(&net) as _;
    (net, Arc::new(links(&dyn_net, 1)), there)
}

fn spawn_request(
    tasks: &mut JoinSet<Result<Bytes, CallError>>,
    links: &Arc<Links>,
    there: &TestNode,
    kind: CallKind,
    body: impl Into<Bytes>,
    timeout: Duration,
) {
    let (links, address, body) = (Arc::clone(links), there.address.clone(), body.into());
    tasks.spawn(async move {
        links.call(NodeId(2), &address, kind, GroupId::META, body, timeout).await
    });
}

#[tokio::test]
async fn sockets_carry_many_calls_both_ways() {
    let net: Arc<dyn Net> = Arc::new(RealNet);
    let one = serve(&*net, "127.0.0.1:0", Some(1)).await;
    let two = serve(&*net, "127.0.0.1:0", Some(2)).await;
    let (from_one, from_two) = (Arc::new(links(&net, 1)), Arc::new(links(&net, 2)));
    let mut tasks = JoinSet::new();
    for number in 0..500 {
        let (forth, address) = (Arc::clone(&from_one), two.address.clone());
        let (back, back_address) = (Arc::clone(&from_two), one.address.clone());
        let (kind, group) = (CallKind::Append, GroupId::META);
        tasks.spawn(async move {
            let body = Bytes::from(number.to_string());
            let got = forth.call(NodeId(2), &address, kind, group, body, 60 * SECOND).await;
            assert_eq!(got.unwrap(), format!("1 1 {number}"));
            let body = Bytes::from(number.to_string());
            let got = back.call(NodeId(1), &back_address, kind, group, body, 60 * SECOND).await;
            assert_eq!(got.unwrap(), format!("2 1 {number}"));
        });
    }
    tasks.join_all().await;
}

/// Time is paused: a busy machine may take longer for a body than a link waits for a sign of life.
#[tokio::test(start_paused = true)]
async fn the_largest_body_passes_and_a_larger_one_does_not() {
    let (_net, links, there) = pair().await;
    // The response is 4 bytes longer than the body, and limited to the same size.
    let (kind, group) = (CallKind::Append, GroupId::META);
    let body = Bytes::from(vec![b'x'; LINK_BODY_BYTES_MAX - 4]);
    let minute = 60 * SECOND;
    let got = links.call(NodeId(2), "two:1", kind, group, body, minute).await.unwrap();
    assert_eq!(got.len(), LINK_BODY_BYTES_MAX);

    let body = Bytes::from(vec![b'x'; LINK_BODY_BYTES_MAX]);
    let error = links.call(NodeId(2), "two:1", kind, group, body, minute).await.unwrap_err();
    assert!(
        matches!(&error, CallError::Refused { reason: RefusalReason::Unspecified, message, .. }
            if message.contains("was carried out, but its answer has 68157444 bytes")),
        "{error}"
    );
    let body = Bytes::from(vec![b'x'; LINK_BODY_BYTES_MAX + 1]);
    let error = links.call(NodeId(2), "two:1", kind, group, body, minute).await.unwrap_err();
    assert!(matches!(error, CallError::Refused { reason: RefusalReason::BadBody, .. }));
    there.crash();
}

#[tokio::test(start_paused = true)]
async fn answers_come_in_any_order_over_one_connection() {
    let (net, links, there) = pair().await;
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        spawn_request(&mut tasks, &links, &there, CallKind::Shard, GATED, 10 * SECOND);
    }
    there.handler.has_begun(10).await;
    assert_eq!(send_request(&links, &there, b"quick", SECOND).await.unwrap(), "1 8 quick");
    assert!(tasks.try_join_next().is_none());
    there.handler.gate.add_permits(10);
    for got in tasks.join_all().await {
        assert_eq!(got.unwrap(), "1 8 gated");
    }
    assert_eq!(net.connect_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_never_answers_times_out_and_others_go_on() {
    let (net, links, there) = pair().await;
    let never = send_request(&links, &there, NEVER, SECOND);
    let others = async {
        for _ in 0..20 {
            send_request(&links, &there, b"x", SECOND).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let (never, ()) = tokio::join!(never, others);
    assert_eq!(never, Err(CallError::Timeout { node: NodeId(2), timeout_ms: 1000 }));
    // The other side gave up as well.
    assert_eq!(there.handler.running.load(Ordering::SeqCst), 0);
    assert_eq!(net.connect_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn silence_takes_the_link_down() {
    // A listener that accepts and never responds.
    let net = Arc::new(MemoryNet::default());
    let mut listener = net.listen("two:1").await.unwrap();
    let dyn_net: Arc<dyn Net> = Arc::clone(&net) as _;
    let links = links(&dyn_net, 1);
    let call = || {
        let (kind, group) = (CallKind::Append, GroupId::META);
        links.call(NodeId(2), "two:1", kind, group, Bytes::new(), SECOND / 2)
    };
    for _ in 0..3 {
        let error = call().await.unwrap_err();
        assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    }
    let error = call().await.unwrap_err();
    assert!(error.to_string().ends_with("silent for 1500 ms"), "{error}");
    assert_eq!(net.connect_count(), 1);
    // The connection itself was dropped.
    let mut stream = listener.accept().await.unwrap().stream;
    let mut sent = Vec::new();
    stream.read_to_end(&mut sent).await.unwrap();
    tokio::time::sleep(SECOND / 10).await;
    let error = call().await.unwrap_err();
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    assert_eq!(net.connect_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_broken_link_fails_its_calls_and_is_made_again() {
    let (net, links, there) = pair().await;
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        spawn_request(&mut tasks, &links, &there, CallKind::Shard, NEVER, 100 * SECOND);
    }
    there.handler.has_begun(3).await;
    send_request(&links, &there, b"x", SECOND).await.unwrap();
    let before = tokio::time::Instant::now();
    there.crash();
    for got in tasks.join_all().await {
        let error = got.unwrap_err();
        assert!(matches!(error, CallError::Unreachable { was_sent: true, .. }), "{error}");
    }
    assert!(before.elapsed() < SECOND);

    let there = serve(&*net, "two:1", Some(2)).await;
    send_request(&links, &there, b"x", SECOND).await.unwrap();
}

#[tokio::test]
async fn a_broken_socket_is_made_again() {
    let net: Arc<dyn Net> = Arc::new(RealNet);
    let address = format!("127.0.0.1:{}", free_port());
    let there = serve(&*net, &address, Some(2)).await;
    let links = Arc::new(links(&net, 1));
    let mut tasks = JoinSet::new();
    spawn_request(&mut tasks, &links, &there, CallKind::Shard, NEVER, 100 * SECOND);
    there.handler.has_begun(1).await;
    send_request(&links, &there, b"x", 60 * SECOND).await.unwrap();
    there.closer.close();
    there.stop.send_replace(true);
    let error = tasks.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, CallError::Unreachable { was_sent: true, .. }), "{error}");
    // The server ends although a link was open.
    there.server.await.unwrap();
    let there = serve(&*net, &address, Some(2)).await;
    send_request(&links, &there, b"x", 60 * SECOND).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_is_down_fails_at_once_and_is_tried_again_later() {
    let net = Arc::new(MemoryNet::default());
    let dyn_net: Arc<dyn Net> = Arc::clone(&net) as _;
    let links = links(&dyn_net, 1);
    let call = || {
        let (kind, group) = (CallKind::Vote, GroupId::META);
        links.call(NodeId(2), "two:1", kind, group, Bytes::new(), SECOND)
    };
    for _ in 0..5 {
        let error = call().await.unwrap_err();
        assert!(error.is_certainly_undone(), "{error}");
        assert!(error.to_string().contains("refused"), "{error}");
    }
    assert_eq!(net.connect_count(), 1, "within 25 ms nobody tries again");
    // Pauses double up to 0.5 s: within a minute there are between 120 and 250 attempts.
    for _ in 0..6000 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        call().await.unwrap_err();
    }
    let tries = net.connect_count();
    assert!((120..=250).contains(&tries), "{tries}");
    let _there = serve(&*net, "two:1", Some(2)).await;
    tokio::time::sleep(SECOND / 2).await;
    call().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_gave_a_sign_of_life_is_tried_again_at_once() {
    let net = Arc::new(MemoryNet::default());
    let dyn_net: Arc<dyn Net> = Arc::clone(&net) as _;
    let links = links(&dyn_net, 1);
    let call = || {
        let (kind, group) = (CallKind::Vote, GroupId::META);
        links.call(NodeId(2), "two:1", kind, group, Bytes::new(), SECOND)
    };
    call().await.unwrap_err();
    let _there = serve(&*net, "two:1", Some(2)).await;
    call().await.unwrap_err();
    links.retry(NodeId(3));
    call().await.unwrap_err();
    assert_eq!(net.connect_count(), 1, "the node that it is about was silent");
    links.retry(NodeId(2));
    call().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn bulk_beyond_the_allowance_is_refused_and_raft_goes_on() {
    let (_net, links, there) = pair().await;
    let mut tasks = JoinSet::new();
    for _ in 0..LINK_CALLS_IN_FLIGHT_MAX {
        spawn_request(&mut tasks, &links, &there, CallKind::Shard, GATED, 100 * SECOND);
    }
    there.handler.has_begun(LINK_CALLS_IN_FLIGHT_MAX).await;
    let error = send_request(&links, &there, b"one more", SECOND).await.unwrap_err();
    assert!(
        matches!(error, CallError::Refused { reason: RefusalReason::Overloaded, .. }),
        "{error}"
    );
    let (kind, group) = (CallKind::Append, GroupId::META);
    let beat = Bytes::from_static(b"beat");
    let got = links.call(NodeId(2), "two:1", kind, group, beat, SECOND).await;
    assert_eq!(got.unwrap(), "1 1 beat");
    // Answered calls make room for others.
    there.handler.gate.add_permits(LINK_CALLS_IN_FLIGHT_MAX);
    for got in tasks.join_all().await {
        got.unwrap();
    }
    send_request(&links, &there, b"one more", SECOND).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_at_once() {
    // The connection is not accepted, so nothing is sent.
    let net = Arc::new(MemoryNet::default());
    let _listener = net.listen("two:1").await.unwrap();
    let dyn_net: Arc<dyn Net> = Arc::clone(&net) as _;
    let links = Arc::new(links(&dyn_net, 1));
    let mut tasks = JoinSet::new();
    for _ in 0..=LINK_QUEUE_CALLS_MAX {
        let links = Arc::clone(&links);
        let (kind, group) = (CallKind::Shard, GroupId::META);
        tasks.spawn(async move {
            links.call(NodeId(2), "two:1", kind, group, Bytes::new(), SECOND).await
        });
    }
    let first = tasks.join_next().await.unwrap().unwrap();
    let waiting = LINK_QUEUE_CALLS_MAX + 1;
    assert_eq!(first, Err(CallError::Overloaded { node: NodeId(2), waiting }));
    const { assert!(LINK_CALLS_PENDING_MAX > LINK_QUEUE_CALLS_MAX) };
    for got in tasks.join_all().await {
        assert!(matches!(got, Err(CallError::Timeout { .. })));
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_and_panics_are_answers() {
    let (_net, links, there) = pair().await;
    let error = send_request(&links, &there, REFUSE, SECOND).await.unwrap_err();
    assert_eq!(error.to_string(), "node 2 refused: no replica of shard 0");
    assert!(error.is_certainly_undone());
    let error = send_request(&links, &there, PANIC, SECOND).await.unwrap_err();
    assert!(error.to_string().contains("ended without an answer"), "{error}");
    assert!(!error.is_certainly_undone());
}

#[tokio::test(start_paused = true)]
async fn links_that_nobody_uses_are_closed() {
    let (net, links, there) = pair().await;
    let three = serve(&*net, "three:1", Some(2)).await;
    send_request(&links, &there, b"x", SECOND).await.unwrap();
    tokio::time::sleep(61 * SECOND).await;
    assert_eq!(net.connect_count(), 1, "pings keep it");
    send_request(&links, &there, b"x", SECOND).await.unwrap();
    assert_eq!(net.connect_count(), 1);
    tokio::time::sleep(61 * SECOND).await;
    send_request(&links, &three, b"x", SECOND).await.unwrap();
    send_request(&links, &there, b"x", SECOND).await.unwrap();
    assert_eq!(net.connect_count(), 3, "the first one was swept");
    links.close();
    send_request(&links, &there, b"x", SECOND).await.unwrap();
    assert_eq!(net.connect_count(), 4);
}
