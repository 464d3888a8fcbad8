//! Tests of the whole server on a node that belongs to no cluster yet.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::service::Routes;
use tonic::{Code, Status};
use umbel_engine::{GroupId, NodeId};
use umbel_proto::v1;
use umbel_proto::v1::filters_client::FiltersClient;

use super::{Budget, Gateway, serve};
use crate::coordinator::Coordinator;
use crate::peer::{
    CallHandler, CallKind, LocalIdentity, PeerService, Refusal, RefusalReason, channel,
};
use crate::ports::{Net, PortFuture, RealNet, RealSeed};

pub(super) struct Nobody;

impl CallHandler for Nobody {
    fn identity(&self) -> Option<LocalIdentity> {
        None
    }

    fn handle(
        self: Arc<Self>,
        _from: NodeId,
        _kind: CallKind,
        _group: GroupId,
        _body: Bytes,
    ) -> PortFuture<'static, Result<Bytes, Refusal>> {
        Box::pin(async { Err(Refusal::new(RefusalReason::Unavailable, "nobody is here")) })
    }

    fn adopt(&self, _request: v1::AdoptRequest) -> PortFuture<'_, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }

    fn who_are_you(&self) -> v1::WhoAreYouResponse {
        v1::WhoAreYouResponse { protocol: 7, ..Default::default() }
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

#[tokio::test]
async fn all_services_share_a_port() {
    let net: Arc<dyn Net> = Arc::new(RealNet);
    let listener = net.listen("127.0.0.1:0").await.unwrap();
    let address = listener.local_address();
    let gateway = Gateway {
        coordinator: Arc::new(Coordinator::new(Arc::new(OnceLock::new()), Arc::new(RealSeed))),
        routes: Routes::new(PeerService::new(Arc::new(Nobody)).into_server()),
        render_metrics: Some(Arc::new(|| "umbel_epoch 1\n".to_owned())),
        timeout_max: Duration::from_secs(10),
        budget: Budget::new(0),
        needs_member: false,
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

    let mut filters = FiltersClient::new(channel::channel(&net, &address).unwrap());
    let status = filters.list(v1::ListRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let detail = v1::ErrorDetail::decode(status.details()).unwrap();
    assert_eq!((detail.code(), detail.applied()), (v1::ErrorCode::NotFormed, v1::Applied::No));
    // The gate answers before the request is examined: the node does not know the grants yet.
    let status = filters.drop(v1::DropRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let mut peer = channel::peer_client(&net, &address).unwrap();
    let who = peer.who_are_you(v1::WhoAreYouRequest {}).await.unwrap().into_inner();
    assert_eq!(who.protocol, 7);

    drop((filters, peer));
    stop.send(()).unwrap();
    server.await.unwrap().unwrap();
}
