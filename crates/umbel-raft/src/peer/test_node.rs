//! A node that serves only the peer service, for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tonic::Status;
use umbel_engine::liveness::Timing;
use umbel_engine::{GroupId, NodeId, ShardId};
use umbel_ports::channel::{incoming, server};
use umbel_ports::testing::CountingSeed;
use umbel_ports::{Net, PortFuture};
use umbel_proto::v1::{AdoptRequest, WhoAreYouResponse};

use super::{
    CallError, CallHandler, CallKind, CallRefusal, LinkCloser, Links, LocalIdentity, PEER_PROTOCOL,
    PeerService, RefusalReason, cluster_bytes,
};

pub(crate) const CLUSTER: u128 = 0x5f << 120;
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A node's failure detector as its settings have it by default.
pub(crate) const TIMING: Timing = Timing { beat_ms: 100, suspect_ms: 400 };

/// First words of a body that tell [`EchoHandler`] what to do besides returning the body.
pub(crate) const GATED: &[u8] = b"gated";
pub(crate) const NEVER: &[u8] = b"never";
pub(crate) const PANIC: &[u8] = b"panic";
pub(crate) const REFUSE: &[u8] = b"refuse";

/// Responds with the caller, the kind and the body.
pub(crate) struct EchoHandler {
    identity: Option<LocalIdentity>,
    /// Bodies that begin with [`GATED`] wait for a permit.
    pub(crate) gate: Semaphore,
    /// Number of calls that have begun.
    pub(crate) begun: watch::Sender<usize>,
    /// Number of calls in progress.
    pub(crate) running: AtomicUsize,
}

impl EchoHandler {
    pub(crate) fn new(identity: Option<LocalIdentity>) -> Arc<Self> {
        let (gate, begun) = (Semaphore::new(0), watch::Sender::new(0));
        Arc::new(Self { identity, gate, begun, running: AtomicUsize::new(0) })
    }

    /// Waits until this many calls have begun.
    pub(crate) async fn has_begun(&self, count: usize) {
        self.begun.subscribe().wait_for(|begun| *begun >= count).await.unwrap();
    }
}

struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl CallHandler for EchoHandler {
    fn identity(&self) -> Option<LocalIdentity> {
        self.identity
    }

    fn handle(
        self: Arc<Self>,
        from: NodeId,
        kind: CallKind,
        group: GroupId,
        body: Bytes,
    ) -> PortFuture<'static, Result<Bytes, CallRefusal>> {
        Box::pin(async move {
            self.running.fetch_add(1, Ordering::SeqCst);
            let _running = Running(&self.running);
            self.begun.send_modify(|begun| *begun += 1);
            assert!(!body.starts_with(PANIC), "the handler was asked to panic");
            if body.starts_with(NEVER) {
                std::future::pending::<()>().await;
            }
            if body.starts_with(GATED) {
                self.gate.acquire().await.unwrap().forget();
            }
            if body.starts_with(REFUSE) {
                let text = format!("no replica of {group}");
                return Err(CallRefusal::new(RefusalReason::UnknownGroup, text));
            }
            Ok([format!("{} {} ", from.0, kind.number()).as_bytes(), &body].concat().into())
        })
    }

    fn adopt(&self, request: AdoptRequest) -> PortFuture<'_, Result<(), Status>> {
        Box::pin(async move {
            match self.identity {
                Some(us) => Err(Status::failed_precondition(format!("this is {}", us.node))),
                None if request.node == 0 => Err(Status::invalid_argument("node 0")),
                None => Ok(()),
            }
        })
    }

    fn who_are_you(&self) -> WhoAreYouResponse {
        WhoAreYouResponse {
            protocol: PEER_PROTOCOL,
            cluster_id: self.identity.map(|us| cluster_bytes(us.cluster)).unwrap_or_default(),
            node: self.identity.map_or(0, |us| us.node.0),
            is_formed: self.identity.is_some(),
            ..Default::default()
        }
    }
}

/// A served node.
pub(crate) struct TestNode<H = EchoHandler> {
    pub(crate) address: String,
    pub(crate) handler: Arc<H>,
    pub(crate) closer: LinkCloser,
    pub(crate) server: JoinHandle<()>,
    pub(crate) stop: watch::Sender<bool>,
}

pub(crate) fn identity(node: u64) -> LocalIdentity {
    LocalIdentity { cluster: CLUSTER, node: NodeId(node) }
}

/// Serves node `node` at the address.
pub(crate) async fn serve(net: &dyn Net, address: &str, node: Option<u64>) -> TestNode {
    serve_handler(net, address, EchoHandler::new(node.map(identity))).await
}

/// Serves a handler at the address.
pub(crate) async fn serve_handler<H: CallHandler>(
    net: &dyn Net,
    address: &str,
    handler: Arc<H>,
) -> TestNode<H> {
    let listener = net.listen(address).await.unwrap();
    let address = listener.local_address();
    let service = PeerService::new(Arc::clone(&handler) as Arc<dyn CallHandler>);
    let closer = service.closer();
    let stop = watch::Sender::new(false);
    let mut stopped = stop.subscribe();
    let server = tokio::spawn(async move {
        let signal = async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        let router = server().add_service(service.into_server());
        router.serve_with_incoming_shutdown(incoming(listener), signal).await.unwrap();
    });
    TestNode { address, handler, closer, server, stop }
}

impl<H> TestNode<H> {
    /// Cuts all links abruptly, as a crash does.
    pub(crate) fn crash(&self) {
        self.closer.close();
        self.server.abort();
    }
}

pub(crate) fn links(net: &Arc<dyn Net>, node: u64) -> Links {
    Links::new(Arc::clone(net), Arc::new(CountingSeed::default()), identity(node))
}

/// Calls node 2 there, about shard 0.
pub(crate) async fn send_request(
    links: &Links,
    there: &TestNode,
    body: &'static [u8],
    timeout: Duration,
) -> Result<Bytes, CallError> {
    let (kind, group) = (CallKind::Shard, GroupId::of_shard(ShardId(0)));
    links.call(NodeId(2), &there.address, kind, group, body.into(), timeout).await
}
