//! Which peers may open links, and what hostile peers get.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use prost::Message;
use tokio::sync::oneshot;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status, Streaming};
use umbel_engine::{GroupId, NodeId};
use umbel_ports::testing::{MemoryNet, ProvingNet};
use umbel_ports::{Net, NodeIdentity, PeerIdentity};
use umbel_proto::v1::link_answer::Outcome;
use umbel_proto::v1::{
    AdoptRequest, Hello, LinkAnswers, LinkCall, LinkCalls, LinkRefusal, WhoAreYouRequest,
};

use super::clients::peer_client;
use super::limits::LINK_MESSAGE_BYTES_MAX;
use super::test_node::{CLUSTER, SECOND, TestNode, links, send_request, serve};
use super::{CallError, CallKind, PEER_PROTOCOL, RefusalReason, cluster_bytes};

fn net() -> Arc<dyn Net> {
    Arc::new(MemoryNet::default())
}

fn hello() -> Hello {
    Hello { protocol: PEER_PROTOCOL, cluster_id: cluster_bytes(CLUSTER), from: 1, to: 2 }
}

/// Opens a link with this hello and sends the messages.
async fn open(
    net: &Arc<dyn Net>,
    there: &TestNode,
    hello: Option<Vec<u8>>,
    messages: Vec<LinkCalls>,
) -> Result<Opened, Status> {
    let (keep, kept) = oneshot::channel();
    let mut request = Request::new(Calls { messages: messages.into(), kept });
    if let Some(hello) = hello {
        request.metadata_mut().insert_bin("umbel-hello-bin", MetadataValue::from_bytes(&hello));
    }
    let mut client = peer_client(net, &there.address)
        .unwrap()
        .max_encoding_message_size(2 * LINK_MESSAGE_BYTES_MAX);
    Ok(Opened { answers: client.link(request).await?.into_inner(), _keep: keep })
}

/// A link that ends when this is dropped.
struct Opened {
    answers: Streaming<LinkAnswers>,
    _keep: oneshot::Sender<()>,
}

/// Messages, then a stream that stays open. It must end with its link: HTTP/2 keeps a stream whose
/// response was dropped until its requests end.
struct Calls {
    messages: VecDeque<LinkCalls>,
    kept: oneshot::Receiver<()>,
}

impl tokio_stream::Stream for Calls {
    type Item = LinkCalls;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<LinkCalls>> {
        match self.messages.pop_front() {
            Some(calls) => Poll::Ready(Some(calls)),
            None => Pin::new(&mut self.kept).poll(cx).map(|_| None),
        }
    }
}

async fn refused(
    net: &Arc<dyn Net>,
    there: &TestNode,
    change: impl FnOnce(&mut Hello),
) -> (Code, String) {
    let mut hello = hello();
    change(&mut hello);
    let status = open(net, there, Some(hello.encode_to_vec()), vec![]).await.err().unwrap();
    (status.code(), status.message().to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_call_to_another_node_gets_a_hint() {
    let net = net();
    let four = serve(&*net, "four:1", Some(4)).await;
    let (code, text) = refused(&net, &four, |_| {}).await;
    assert_eq!(code, Code::FailedPrecondition);
    assert_eq!(
        text,
        "this is node 4 of cluster 5f000000000000000000000000000000, not node 2: its data was \
         replaced; remove node 2 from the cluster"
    );
    let (code, text) = refused(&net, &four, |hello| hello.protocol = 2).await;
    assert_eq!(code, Code::FailedPrecondition);
    assert_eq!(
        text,
        "peer protocol 1 is spoken here, the caller speaks 2: bring both nodes to one release"
    );
    let (code, text) = refused(&net, &four, |hello| hello.cluster_id = cluster_bytes(7)).await;
    assert_eq!(code, Code::FailedPrecondition);
    assert!(
        text.starts_with(
            "this is node 4 of cluster 5f000000000000000000000000000000, not node 2 of cluster \
             00000000000000000000000000000007: correct the address of node 2"
        ),
        "{text}"
    );
    let nobody = serve(&*net, "nobody:1", None).await;
    let (code, text) = refused(&net, &nobody, |_| {}).await;
    assert_eq!(code, Code::FailedPrecondition);
    assert!(text.starts_with("this node belongs to no cluster yet, so it is not node 2"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_peer_is_an_error_of_its_own() {
    let net = net();
    let four = serve(&*net, "four:1", Some(4)).await;
    let links = links(&net, 1);
    for _ in 0..2 {
        let error = send_request(&links, &four, b"x", SECOND).await.unwrap_err();
        assert!(
            matches!(&error, CallError::WrongPeer { node: NodeId(2), address, .. }
                if address == "four:1"),
            "{error}"
        );
        assert!(error.to_string().contains("remove node 2 from the cluster"), "{error}");
        assert!(error.is_certainly_undone());
    }
    // The right number is accepted at the same time.
    let (kind, group) = (CallKind::Meta, GroupId::META);
    let got = links.call(NodeId(4), "four:1", kind, group, Bytes::new(), SECOND).await;
    assert_eq!(got.unwrap(), "1 9 ");
}

#[tokio::test(start_paused = true)]
async fn who_proves_to_be_one_node_speaks_as_no_other() {
    let member = |cluster, node| PeerIdentity::Member(NodeIdentity { cluster, node });
    let proved = |identity| Arc::new(ProvingNet(MemoryNet::default(), identity)) as Arc<dyn Net>;
    for identity in [member(CLUSTER, 1), PeerIdentity::Node, PeerIdentity::Unchecked] {
        let net = proved(identity);
        let there = serve(&*net, "two:1", Some(2)).await;
        assert!(open(&net, &there, Some(hello().encode_to_vec()), vec![]).await.is_ok());
    }
    let others = [
        (member(CLUSTER, 3), "its certificate is that of node 3 of cluster 5f00"),
        (member(7, 1), "of node 1 of cluster 00000000000000000000000000000007"),
        (PeerIdentity::Client("a".into()), "no node: it is client a"),
        (PeerIdentity::Anonymous, "no node: it is anonymous"),
    ];
    for (identity, why) in others {
        let net = proved(identity);
        let there = serve(&*net, "two:1", Some(2)).await;
        let (code, text) = refused(&net, &there, |_| {}).await;
        assert_eq!(code, Code::FailedPrecondition);
        assert!(text.contains("says that it is node 1 of cluster 5f00"), "{text}");
        assert!(text.contains(why), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hello_that_is_none_is_refused() {
    let net = net();
    let there = serve(&*net, "two:1", Some(2)).await;
    let status = open(&net, &there, None, vec![]).await.err().unwrap();
    assert_eq!(status.code(), Code::InvalidArgument);
    let status = open(&net, &there, Some(vec![0xff; 9]), vec![]).await.err().unwrap();
    assert_eq!(status.code(), Code::InvalidArgument);
    let (code, text) = refused(&net, &there, |hello| hello.cluster_id.truncate(15)).await;
    assert_eq!((code, text.as_str()), (Code::InvalidArgument, "a cluster id of 15 bytes, not 16"));
}

#[tokio::test(start_paused = true)]
async fn sockets_of_one_node_take_no_place_of_another() {
    let net = net();
    let there = serve(&*net, "two:1", Some(2)).await;
    let mut open_links = Vec::new();
    for _ in 0..1100 {
        open_links.push(open(&net, &there, Some(hello().encode_to_vec()), vec![]).await.unwrap());
    }
    // The link that made room for its successors has ended; the last ones continue.
    assert!(!matches!(open_links[0].answers.message().await, Ok(Some(_))));
    let last = open_links.last_mut().unwrap();
    let message = tokio::time::timeout(SECOND, last.answers.message()).await;
    assert!(message.is_err(), "{message:?}");
    send_request(&links(&net, 3), &there, b"x", 10 * SECOND).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn unknown_kinds_and_zero_timeouts_are_answered() {
    let net = net();
    let there = serve(&*net, "two:1", Some(2)).await;
    let call = |id, kind, timeout_ms, body: &'static [u8]| LinkCall {
        id,
        kind,
        group: u32::MAX,
        timeout_ms,
        body: body.into(),
    };
    let calls = vec![
        call(7, 77, 1000, b""),
        call(8, 8, 0, b"never"),
        call(u64::MAX, 8, u32::MAX, b"fine"),
        // A duplicate id is the caller's problem.
        call(7, 0, 0, b""),
    ];
    let messages = vec![LinkCalls { calls: vec![] }, LinkCalls { calls }];
    let mut link = open(&net, &there, Some(hello().encode_to_vec()), messages).await.unwrap();
    let mut got = std::collections::BTreeMap::new();
    while got.len() < 3 {
        for answer in link.answers.message().await.unwrap().unwrap().answers {
            got.insert(answer.id, answer.outcome.unwrap());
        }
    }
    assert!(matches!(&got[&7], Outcome::Refusal(LinkRefusal { reason, message })
        if *reason == i32::from(RefusalReason::BadBody) && message.contains("is not known")));
    assert!(matches!(&got[&8], Outcome::Refusal(LinkRefusal { reason: 0, .. })));
    assert_eq!(got[&u64::MAX], Outcome::Body(Bytes::from_static(b"1 8 fine")));
}

#[tokio::test(start_paused = true)]
async fn a_message_beyond_the_limit_ends_the_link() {
    let net = net();
    let there = serve(&*net, "two:1", Some(2)).await;
    let body = vec![0; LINK_MESSAGE_BYTES_MAX + 1].into();
    let call = LinkCall { id: 1, kind: 8, group: 1, timeout_ms: 1000, body };
    let messages = vec![LinkCalls { calls: vec![call] }];
    let mut link = open(&net, &there, Some(hello().encode_to_vec()), messages).await.unwrap();
    assert!(!matches!(link.answers.message().await, Ok(Some(_))));
    // Other links continue.
    send_request(&links(&net, 1), &there, b"x", 10 * SECOND).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_are_you_and_adopt_need_no_link() {
    let net = net();
    let two = serve(&*net, "two:1", Some(2)).await;
    let nobody = serve(&*net, "nobody:1", None).await;
    let mut client = peer_client(&net, &two.address).unwrap();
    let who = client.who_are_you(WhoAreYouRequest {}).await.unwrap().into_inner();
    assert_eq!((who.node, who.is_formed, who.cluster_id.len()), (2, true, 16));
    let status = client.adopt(AdoptRequest { node: 3, ..Default::default() }).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "this is node 2"));
    let mut client = peer_client(&net, &nobody.address).unwrap();
    client.adopt(AdoptRequest { node: 3, ..Default::default() }).await.unwrap();
    assert_eq!(client.who_are_you(WhoAreYouRequest {}).await.unwrap().into_inner().node, 0);
    assert!(peer_client(&net, "no address").is_err());
}
