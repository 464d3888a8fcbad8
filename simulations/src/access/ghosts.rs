//! Nodes that were removed from the cluster and call on: each founder's machine hears of them.

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

use crate::channel::{NodeChannel, node_channel};
use crate::invariants::removed_stay_out;
use crate::net::SimNet;
use crate::now::now_us;
use crate::watch;

/// Pause between two rounds.
const ROUND_PAUSE: Duration = Duration::from_millis(700);

/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// Name of the metadata in which a node says who it is.
const HELLO: &str = "umbel-hello-bin";

/// A call of a coordinator to the meta group; its body is none, so nothing would come of it.
const META_CALL: u32 = 9;

/// Calls on, as long as the world is.
pub(super) async fn run(net: SimNet, addresses: Vec<String>) {
    loop {
        tokio::time::sleep(ROUND_PAUSE).await;
        let removed = watch::with(|checks| checks.rights.removed());
        for from in removed {
            for (index, address) in addresses.iter().enumerate() {
                let machine = u32::try_from(index).expect("a few nodes") + 1;
                let client = PeerClient::new(node_channel(&net, address.clone(), None));
                let _ = tokio::time::timeout(CALL_TIMEOUT, haunt(client, machine, from)).await;
            }
        }
    }
}

/// Calls a machine's node in the name of a removed one; None if nothing came of it.
async fn haunt(mut client: PeerClient<NodeChannel>, machine: u32, from: NodeId) -> Option<()> {
    let to = client.who_are_you(WhoAreYouRequest {}).await.ok()?.into_inner();
    let from_us = now_us();
    let exchanged = client.exchange(introduced(tokio_stream::empty(), &to, from)).await;
    // Whoever is let in is asked for more. A refusal may have other reasons than the removal: the node is
    // being replaced itself.
    let is_admitted = match &exchanged {
        Ok(_) => true,
        Err(status) => status.message().contains("a step is expected"),
    };
    removed_stay_out::judge(machine, from, (from_us, now_us()), "exchange", is_admitted);
    let call = LinkCall { id: 1, kind: META_CALL, timeout_ms: 500, ..LinkCall::default() };
    // A link whose caller has said all gets no answers any more.
    let calls = tokio_stream::once(LinkCalls { calls: vec![call] }).chain(tokio_stream::pending());
    let from_us = now_us();
    let mut answers = client.link(introduced(calls, &to, from)).await.ok()?.into_inner();
    let answer = answers.message().await.ok()??.answers.pop()?.outcome?;
    let is_admitted = match &answer {
        Outcome::Body(_) => true,
        Outcome::Refusal(refusal) => {
            !matches!(refusal.reason(), Reason::Unavailable | Reason::Overloaded)
        }
    };
    removed_stay_out::judge(machine, from, (from_us, now_us()), "link", is_admitted);
    Some(())
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
