//! Tests of the whole server: on a node that belongs to no cluster yet, and on one that nobody has called.

use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::codegen::BoxStream;
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Response, Status, Streaming};
use umbel_coordinator::Coordinator;
use umbel_filter::Kind;
use umbel_ports::channel::channel_to;
use umbel_ports::{Net, RealNet};
use umbel_proto::v1;
use umbel_proto::v1::admin_client::AdminClient;
use umbel_proto::v1::filters_client::FiltersClient;
use umbel_proto::v1::peer_client::PeerClient;
use umbel_proto::v1::peer_server::{Peer, PeerServer};

use super::test_node::{create, deadline, start_alone};
use super::{Budget, Gateway, is_loopback, serve};

/// Says that it speaks another version of the protocol between nodes, and does nothing else.
pub(super) struct Nobody;

fn absent() -> Status {
    Status::unavailable("nobody is here")
}

#[tonic::async_trait]
impl Peer for Nobody {
    type LinkStream = BoxStream<v1::LinkAnswers>;
    type ExchangeStream = BoxStream<v1::ExchangePart>;
    type ScrubStream = BoxStream<v1::ScrubPart>;

    async fn link(
        &self,
        _calls: Request<Streaming<v1::LinkCalls>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        Err(absent())
    }

    async fn exchange(
        &self,
        _questions: Request<Streaming<v1::ExchangeQuestion>>,
    ) -> Result<Response<Self::ExchangeStream>, Status> {
        Err(absent())
    }

    async fn scrub(
        &self,
        _parts: Request<Streaming<v1::ScrubPart>>,
    ) -> Result<Response<Self::ScrubStream>, Status> {
        Err(absent())
    }

    async fn adopt(
        &self,
        _request: Request<v1::AdoptRequest>,
    ) -> Result<Response<v1::AdoptResponse>, Status> {
        Err(absent())
    }

    async fn who_are_you(
        &self,
        _request: Request<v1::WhoAreYouRequest>,
    ) -> Result<Response<v1::WhoAreYouResponse>, Status> {
        Ok(Response::new(v1::WhoAreYouResponse { protocol: 7, ..Default::default() }))
    }
}

/// Sends a GET over HTTP/1.1 and returns the response.
async fn get(net: &Arc<dyn Net>, address: &str, path: &str) -> String {
    let mut stream = net.connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// A connection of a client that does not name itself.
fn former_channel(net: &Arc<dyn Net>, address: &str) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let (net, address) = (Arc::clone(net), address.to_owned());
    endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
        let (net, address) = (Arc::clone(&net), address.clone());
        async move { net.connect(&address).await.map(hyper_util::rt::TokioIo::new) }
    }))
}

#[tokio::test]
async fn all_services_share_a_port() {
    let net: Arc<dyn Net> = Arc::new(RealNet);
    let listener = net.listen("127.0.0.1:0").await.unwrap();
    let address = listener.local_address();
    let gateway = Gateway {
        coordinator: Arc::new(Coordinator::without_cluster()),
        routes: Routes::new(PeerServer::new(Nobody)),
        render_metrics: Some(Arc::new(|| "umbel_epoch 1\n".to_owned())),
        timeout_max: Duration::from_secs(10),
        budget: Budget::new(0),
        needs_member: false,
        local_hosts: None,
        console: None,
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(serve(listener, gateway, async {
        let _ = stopped.await;
    }));

    let live = get(&net, &address, "/livez").await;
    assert!(live.starts_with("HTTP/1.1 200") && live.ends_with("live\n"), "{live}");
    let ready = get(&net, &address, "/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    assert!(ready.ends_with("this node does not belong to a formed cluster yet\n"), "{ready}");
    let metrics = get(&net, &address, "/metrics").await;
    assert!(metrics.contains("text/plain") && metrics.ends_with("umbel_epoch 1\n"), "{metrics}");

    let mut filters = FiltersClient::new(channel_to(&net, &address, None).unwrap());
    let status = filters.list(v1::ListRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let detail: v1::ErrorDetail = umbel_proto::detail_of(&status).unwrap();
    assert_eq!((detail.code(), detail.applied()), (v1::ErrorCode::NotFormed, v1::Applied::No));
    // Clients of the former release read the message alone, and name nothing but their library.
    let former = FiltersClient::new(former_channel(&net, &address));
    let status = former.clone().list(v1::ListRequest::default()).await.unwrap_err();
    assert_eq!(v1::ErrorDetail::decode(status.details()), Ok(detail));
    // The gate answers before the request is examined: the node does not know the grants yet.
    let status = filters.drop(v1::DropRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let mut peer = PeerClient::new(channel_to(&net, &address, None).unwrap());
    let who = peer.who_are_you(v1::WhoAreYouRequest {}).await.unwrap().into_inner();
    assert_eq!(who.protocol, 7);

    drop((filters, former, peer));
    stop.send(()).unwrap();
    server.await.unwrap().unwrap();
}

#[test]
fn only_this_machine_reaches_a_loopback_address() {
    for local in ["127.0.0.1:7300", "127.0.1.1:1", "[::1]:7300", "[::ffff:127.0.0.1]:7300"] {
        assert!(is_loopback(local), "{local}");
    }
    for other in ["0.0.0.0:7300", "[::]:7300", "10.0.0.1:7300", "node:7300", ""] {
        assert!(!is_loopback(other), "{other}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_there_is_not_is_not_found() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    // Returns when the cluster is formed.
    create(&node.coordinator(), "seen", Kind::Blocked).await;
    let net: Arc<dyn Net> = Arc::new(RealNet);
    let mut admin = AdminClient::new(channel_to(&net, node.address(), None).unwrap());
    let wish = v1::MoveShardRequest { shard: u32::MAX, from: 1, to: 2 };
    let status = admin.move_shard(wish).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "{status}");
    let detail: v1::ErrorDetail = umbel_proto::detail_of(&status).unwrap();
    assert_eq!(detail.code(), v1::ErrorCode::UnknownNode);
    drop(admin);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_catches_up_before_anybody_calls() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    let caught_up = async {
        while !coordinator.callers().is_caught_up() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout_at(deadline(), caught_up).await.expect("the majority is this node");
    drop(coordinator);
    node.shutdown().await;
}
