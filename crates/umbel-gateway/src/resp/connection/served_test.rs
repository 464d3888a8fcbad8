//! Connections that are served, with the node or the task behind them.

use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex};
use umbel_coordinator::Coordinator;
use umbel_node::Config;

use super::super::resp_test::node;
use super::*;

/// Of a node that belongs to no cluster.
fn shared() -> Arc<Shared> {
    shared_by(Arc::new(Coordinator::without_cluster()))
}

fn shared_by(coordinator: Arc<Coordinator>) -> Arc<Shared> {
    let config = Config { request_timeout_ms_max: 5_000, ..Config::default() };
    let (advertised, local) = ("127.0.0.1:7300", "127.0.0.1:6379");
    let budget = Budget::new(1 << 20);
    Arc::new(Shared::new(&config, advertised, local, coordinator, budget))
}

/// A client of a connection that is served.
fn served(shared: &Arc<Shared>) -> DuplexStream {
    let (client, node) = duplex(RESP_READ_BYTES);
    let taken = Incoming::unchecked(node, "client".to_owned());
    let (shared, (stopping, stop)) = (Arc::clone(shared), watch::channel(false));
    tokio::spawn(async move {
        serve(taken, shared, stop).await;
        drop(stopping);
    });
    client
}

/// A stream whose every use is a panic.
struct Broken;

impl AsyncRead for Broken {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        panic!("told to panic")
    }
}

impl AsyncWrite for Broken {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        panic!("told to panic")
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        panic!("told to panic")
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        panic!("told to panic")
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_task_panics_is_open_no_longer() {
    let shared = shared();
    let taken = Incoming::unchecked(Broken, "client".to_owned());
    let (_stopping, stop) = watch::channel(false);
    let ended = tokio::spawn(serve(taken, Arc::clone(&shared), stop)).await;
    assert!(ended.is_err_and(|error| error.is_panic()));
    assert_eq!((shared.clients.count(), shared.clients.total()), (0, 1));
}

/// Many libraries do so: answers wait until all requests have come.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_may_send_a_whole_pipeline_before_it_reads() {
    let (_folder, node) = node().await;
    let mut client = served(&shared_by(node.coordinator()));
    // Either is more than the connection holds in one direction.
    let (requests, expected) = ("PING\r\n".repeat(20_000), "+PONG\r\n".repeat(20_000));
    client.write_all(requests.as_bytes()).await.unwrap();
    client.shutdown().await.unwrap();
    let mut answers = String::new();
    client.read_to_string(&mut answers).await.unwrap();
    assert!(answers == expected, "{} bytes of {}", answers.len(), expected.len());
    node.shutdown().await;
}

/// It has closed the half on which it sends: whoever has gone looks the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_waits_keeps_no_place_for_a_client_that_has_gone() {
    let (_folder, node) = node().await;
    let shared = shared_by(node.coordinator());
    let copying = shared.copying.acquire().await.unwrap();
    let mut client = served(&shared);
    client.write_all(b"BF.ADD a x\r\nCOPY a b\r\nEXISTS b\r\n").await.unwrap();
    client.shutdown().await.unwrap();
    let mut answers = String::new();
    client.read_to_string(&mut answers).await.unwrap();
    let why =
        "TRYAGAIN this command waited for others, and the client closed its side of the connection";
    assert_eq!(answers, format!(":1\r\n-{why}\r\n:0\r\n"));
    drop(copying);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_a_connection_reads_ends_with_it() {
    let (_folder, node) = node().await;
    let shared = shared_by(node.coordinator());
    let (mut client, stream) = duplex(RESP_READ_BYTES);
    let (_stopping, stop) = watch::channel(false);
    let taken = Incoming::unchecked(stream, "client".to_owned());
    let serving = tokio::spawn(serve(taken, Arc::clone(&shared), stop));
    let create = b"UMBEL.CREATE k KIND redisbloom CAPACITY 10 ERROR 0.01\r\n";
    client.write_all(&[&create[..], b"BF.SCANDUMP k 0\r\n"].concat()).await.unwrap();
    let expected = "+OK\r\n*2\r\n:1\r\n$";
    let mut answers = vec![0; expected.len()];
    client.read_exact(&mut answers).await.unwrap();
    assert_eq!((str::from_utf8(&answers), shared.chain_dumps.count()), (Ok(expected), 1));
    drop(client);
    serving.await.unwrap();
    assert_eq!(shared.chain_dumps.count(), 0);
    node.shutdown().await;
}

/// `NOAUTH` would be final, although another node, or this one later, knows the client.
#[tokio::test(start_paused = true)]
async fn a_node_that_knows_no_principals_yet_asks_to_try_again() {
    let shared = shared();
    let many_arguments = format!("*20\r\n{}", "$1\r\na\r\n".repeat(20));
    for sent in ["HELLO 3\r\n", "BF.ADD k a\r\n", &many_arguments] {
        let mut client = served(&shared);
        client.write_all(sent.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("-LOADING this node does not belong"), "{sent}: {answer}");
    }
}

fn future_bytes<A, B, C, F>(_: impl Fn(A, B, C) -> F) -> usize {
    size_of::<F>()
}

/// Each connection has such a task, and every command moves most of its parts: what is seldom awaited has a box.
#[test]
fn the_task_of_a_connection_is_small() {
    let byte_count = future_bytes(serve);
    assert!(byte_count <= 6 << 10, "{byte_count}");
}
