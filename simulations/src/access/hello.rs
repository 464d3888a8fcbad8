//! Calls between nodes in which the caller claims the identity of another node.

use std::time::Duration;

use prost::Message;
use tokio_stream::StreamExt;
use tonic::Request;
use tonic::metadata::MetadataValue;
use umbel_client::proto::link_answer::Outcome;
use umbel_client::proto::link_refusal::Reason;
use umbel_client::proto::peer_client::PeerClient;
use umbel_client::proto::{Hello, LinkCall, LinkCalls, WhoAreYouRequest, WhoAreYouResponse};
use umbel_engine::NodeId;
use umbel_engine::meta::NodeRecord;
use umbel_ports::NodeIdentity;

use crate::certificate::Certificate;
use crate::channel::node_channel;
use crate::names::address_of;
use crate::net::SimNet;
use crate::now::now_us;
use crate::watch;

/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// Metadata key of the `Hello` by which a calling node identifies itself.
const HELLO: &str = "umbel-hello-bin";

/// Kind of a coordinator's call to the meta group. It is sent without a body, so it has no effect even if
/// it is admitted.
const META_CALL: u32 = 9;

/// The result of a call that a node serves only for other nodes.
pub(super) struct Knock {
    /// Name of the call.
    pub(super) call: &'static str,
    /// When it began and ended, in simulated microseconds.
    pub(super) us: (u64, u64),
    /// Whether it was served.
    pub(super) is_admitted: bool,
}

/// The live node that the cluster's log has registered under a machine's address.
pub(super) fn node_of(machine: u32) -> Option<NodeIdentity> {
    let address = address_of(machine);
    watch::with(|checks| {
        let meta = checks.reference.meta();
        let is_it = |(node, record): &(NodeId, &NodeRecord)| {
            record.is_live() && meta.node_address(*node) == Some(&address)
        };
        let (node, _) = meta.nodes().find(is_it)?;
        Some(NodeIdentity { cluster: meta.cluster()?, node: node.0 })
    })
}

/// Asks a machine's node who it is. Where connections carry certificates, the caller presents that of the
/// node.
pub(super) async fn asked(net: &SimNet, machine: u32) -> Option<WhoAreYouResponse> {
    let net = if net.is_proving() { as_node(net, node_of(machine)?) } else { net.clone() };
    let mut client = PeerClient::new(node_channel(&net, address_of(machine), None));
    let asking = client.who_are_you(WhoAreYouRequest {});
    Some(tokio::time::timeout(CALL_TIMEOUT, asking).await.ok()?.ok()?.into_inner())
}

/// Lifetime of a certificate that is presented for one call, in milliseconds.
const SHOWN_ONCE_LIFE_MS: u64 = 60_000;

/// A certificate of a node, for one call.
pub(super) fn member(node: NodeIdentity) -> Certificate {
    Certificate::member(node, SHOWN_ONCE_LIFE_MS)
}

/// The network of a caller that presents a node's certificate.
pub(super) fn as_node(net: &SimNet, node: NodeIdentity) -> SimNet {
    net.showing(Some(member(node)))
}

/// Calls a machine's node in the name of node `from`. Calls without a response are left out of the
/// result.
pub(super) async fn knock(
    net: &SimNet,
    machine: u32,
    to: &WhoAreYouResponse,
    from: NodeId,
) -> Vec<Knock> {
    let client = PeerClient::new(node_channel(net, address_of(machine), None));
    let mut knocks = Vec::new();
    let from_us = now_us();
    let mut exchanging = client.clone();
    let exchanged = exchanging.exchange(introduced(tokio_stream::empty(), to, from));
    // An empty exchange that is admitted fails because a step is expected. Any other refusal counts as
    // not admitted, although it may have another cause: the called node may be under replacement itself.
    if let Ok(exchanged) = tokio::time::timeout(CALL_TIMEOUT, exchanged).await {
        let is_admitted = match &exchanged {
            Ok(_) => true,
            Err(status) => status.message().contains("a step is expected"),
        };
        knocks.push(Knock { call: "exchange", us: (from_us, now_us()), is_admitted });
    }
    let from_us = now_us();
    let linked = tokio::time::timeout(CALL_TIMEOUT, linked(client, to, from));
    if let Ok(Some(is_admitted)) = linked.await {
        knocks.push(Knock { call: "link", us: (from_us, now_us()), is_admitted });
    }
    knocks
}

/// Whether a call over a link was served; None if there was no answer.
async fn linked(
    mut client: PeerClient<crate::channel::NodeChannel>,
    to: &WhoAreYouResponse,
    from: NodeId,
) -> Option<bool> {
    let call = LinkCall { id: 1, kind: META_CALL, timeout_ms: 500, ..LinkCall::default() };
    // The stream of calls stays open, because a node sends no more answers once its caller has closed it.
    let calls = tokio_stream::once(LinkCalls { calls: vec![call] }).chain(tokio_stream::pending());
    let mut answers = client.link(introduced(calls, to, from)).await.ok()?.into_inner();
    match answers.message().await.ok()??.answers.pop()?.outcome? {
        Outcome::Body(_) => Some(true),
        Outcome::Refusal(refusal) => {
            Some(!matches!(refusal.reason(), Reason::Unavailable | Reason::Overloaded))
        }
    }
}

fn introduced<T>(message: T, to: &WhoAreYouResponse, from: NodeId) -> Request<T> {
    let mut request = Request::new(message);
    let hello = Hello {
        protocol: to.protocol,
        cluster_id: to.cluster_id.clone(),
        from: from.0,
        to: to.node,
    };
    let hello = MetadataValue::from_bytes(&hello.encode_to_vec());
    request.metadata_mut().insert_bin(HELLO, hello);
    request
}
