//! The serving side of links, and the calls that need no link.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use prost::Message;
use tokio::sync::watch;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};
use umbel_engine::{GroupId, NodeId};
use umbel_ports::{NodeIdentity, PeerIdentity, PortFuture};
use umbel_proto::v1::peer_server::{Peer, PeerServer};
use umbel_proto::v1::{
    AdoptRequest, AdoptResponse, ExchangePart, ExchangeQuestion, Hello, LinkAnswers, LinkCalls,
    ScrubPart, WhoAreYouRequest, WhoAreYouResponse,
};
use umbel_step::planted::{self, Planted};

use super::incoming_link::{Answers, IncomingLink};
use super::limits::LINK_MESSAGE_BYTES_MAX;
use super::link_slots::LinkSlots;
use super::refused_hellos::NO_CLUSTER_YET;
use super::session::HELLO;
use super::{CallKind, CallRefusal, LocalIdentity, PEER_PROTOCOL, cluster_of_bytes};

/// Messages that answer a call, sent as they become ready.
pub type AnswerStream<T> = Pin<Box<dyn tokio_stream::Stream<Item = Result<T, Status>> + Send>>;

/// Carries out calls of peers.
pub trait CallHandler: Send + Sync + 'static {
    /// The identity of this node; None while it belongs to no cluster, and links are refused then.
    fn identity(&self) -> Option<LocalIdentity>;

    /// Whether this node knows the other one; links of unknown nodes have less room.
    fn knows(&self, _from: NodeId) -> bool {
        true
    }

    /// Checks that a node may call, as far as this node knows: it must not have been removed.
    ///
    /// # Errors
    /// If it must not call; the message is for its operator.
    fn check_member(&self, _from: NodeId) -> Result<(), Status> {
        Ok(())
    }

    /// Carries out a call. The future is dropped when the caller's timeout has passed or its link has
    /// ended, so work that must not stop half way belongs in its own task. A refusal means that nothing
    /// was done, unless its reason is `Unspecified`.
    fn handle(
        self: Arc<Self>,
        from: NodeId,
        kind: CallKind,
        group: GroupId,
        body: Bytes,
    ) -> PortFuture<'static, Result<Bytes, CallRefusal>>;

    /// Reads the questions of a partner in the cube, and answers them in their turn. The default
    /// refuses, for nodes without copies.
    fn exchange(
        self: Arc<Self>,
        _from: NodeId,
        _questions: Streaming<ExchangeQuestion>,
    ) -> PortFuture<'static, Result<AnswerStream<ExchangePart>, Status>> {
        Box::pin(async { Err(Status::unimplemented("there are no copies here")) })
    }

    /// Compares a copy with a partner's. The default refuses, for nodes without copies.
    ///
    /// # Errors
    /// If nothing is compared: why.
    fn scrub(
        self: Arc<Self>,
        _from: NodeId,
        _parts: Streaming<ScrubPart>,
    ) -> Result<AnswerStream<ScrubPart>, Status> {
        Err(Status::unimplemented("there are no copies here"))
    }

    /// Makes this node a founder of a cluster.
    fn adopt(&self, request: AdoptRequest) -> PortFuture<'_, Result<(), Status>>;

    /// Returns this node's identity to any caller.
    fn who_are_you(&self) -> WhoAreYouResponse;
}

/// The peer service of a node.
pub struct PeerService {
    handler: Arc<dyn CallHandler>,
    slots: Arc<LinkSlots>,
    closed: Arc<watch::Sender<bool>>,
}

/// Ends all links that a service serves: links do not end by themselves, and a server that shuts down
/// waits for every stream.
#[derive(Clone)]
pub struct LinkCloser(Arc<watch::Sender<bool>>);

impl LinkCloser {
    /// Ends all current and future links. Calls in progress get no response.
    pub fn close(&self) {
        self.0.send_replace(true);
    }
}

impl PeerService {
    /// Creates a service that passes calls to a handler.
    pub fn new(handler: Arc<dyn CallHandler>) -> Self {
        let slots = Arc::default();
        Self { handler, slots, closed: Arc::new(watch::Sender::new(false)) }
    }

    /// For use when the server shuts down.
    pub fn closer(&self) -> LinkCloser {
        LinkCloser(Arc::clone(&self.closed))
    }

    /// Checks the caller and returns its node number. A refused caller occupies no resources.
    fn admit<T>(&self, request: &Request<T>) -> Result<NodeId, Status> {
        let hello = hello_of(request.metadata())?;
        check_hello(&hello, self.handler.identity())?;
        check_proof(&hello, request.extensions().get())?;
        self.handler.check_member(NodeId(hello.from))?;
        if *self.closed.borrow() {
            return Err(Status::unavailable("this node is stopping"));
        }
        Ok(NodeId(hello.from))
    }

    /// The service for a server's router, with its message limits.
    pub fn into_server(self) -> PeerServer<Self> {
        PeerServer::new(self)
            .max_decoding_message_size(LINK_MESSAGE_BYTES_MAX)
            .max_encoding_message_size(LINK_MESSAGE_BYTES_MAX)
    }
}

#[tonic::async_trait]
impl Peer for PeerService {
    type LinkStream = Answers;

    async fn link(
        &self,
        request: Request<Streaming<LinkCalls>>,
    ) -> Result<Response<Answers>, Status> {
        let from = self.admit(&request)?;
        let slot = self.slots.enter(from, self.handler.knows(from));
        let link = IncomingLink::new(from, Arc::clone(&self.handler));
        Ok(Response::new(link.serve(request.into_inner(), self.closed.subscribe(), slot)))
    }

    type ExchangeStream = AnswerStream<ExchangePart>;

    async fn exchange(
        &self,
        request: Request<Streaming<ExchangeQuestion>>,
    ) -> Result<Response<AnswerStream<ExchangePart>>, Status> {
        let from = self.admit(&request)?;
        let answered = Arc::clone(&self.handler).exchange(from, request.into_inner()).await?;
        Ok(Response::new(answered))
    }

    type ScrubStream = AnswerStream<ScrubPart>;

    async fn scrub(
        &self,
        request: Request<Streaming<ScrubPart>>,
    ) -> Result<Response<AnswerStream<ScrubPart>>, Status> {
        let from = self.admit(&request)?;
        Ok(Response::new(Arc::clone(&self.handler).scrub(from, request.into_inner())?))
    }

    async fn adopt(
        &self,
        request: Request<AdoptRequest>,
    ) -> Result<Response<AdoptResponse>, Status> {
        self.handler.adopt(request.into_inner()).await?;
        Ok(Response::new(AdoptResponse {}))
    }

    async fn who_are_you(
        &self,
        _request: Request<WhoAreYouRequest>,
    ) -> Result<Response<WhoAreYouResponse>, Status> {
        Ok(Response::new(self.handler.who_are_you()))
    }
}

fn hello_of(metadata: &MetadataMap) -> Result<Hello, Status> {
    let value = metadata
        .get_bin(HELLO)
        .ok_or_else(|| Status::invalid_argument(format!("a link without {HELLO}")))?;
    let bytes =
        value.to_bytes().map_err(|_| Status::invalid_argument(format!("{HELLO} is not base64")))?;
    Hello::decode(bytes)
        .map_err(|error| Status::invalid_argument(format!("{HELLO} is no hello: {error}")))
}

/// Checks that the caller means this node. The messages are for the caller's log and its operator.
fn check_hello(hello: &Hello, local: Option<LocalIdentity>) -> Result<(), Status> {
    let refused = |text: String| Err(Status::failed_precondition(text));
    if hello.protocol != PEER_PROTOCOL {
        return refused(format!(
            "peer protocol {PEER_PROTOCOL} is spoken here, the caller speaks {}: bring both nodes \
             to one release",
            hello.protocol
        ));
    }
    let Some(cluster) = cluster_of_bytes(&hello.cluster_id) else {
        let byte_count = hello.cluster_id.len();
        return Err(Status::invalid_argument(format!(
            "a cluster id of {byte_count} bytes, not 16"
        )));
    };
    let wanted = NodeId(hello.to);
    match local {
        None => refused(format!(
            "{NO_CLUSTER_YET}, so it is not {wanted} of cluster {cluster:032x}: it is \
             about to join; if that lasts, its data was replaced: remove {wanted} from the cluster"
        )),
        Some(us) if us.cluster != cluster => refused(format!(
            "this is {} of cluster {:032x}, not {wanted} of cluster {cluster:032x}: correct the \
             address of {wanted}, or remove it from its cluster",
            us.node, us.cluster
        )),
        Some(us) if us.node != wanted => refused(format!(
            "this is {} of cluster {cluster:032x}, not {wanted}: its data was replaced; remove \
             {wanted} from the cluster",
            us.node
        )),
        Some(_) => Ok(()),
    }
}

/// Checks that the connection's certificate permits the claimed identity. A certificate that names no
/// particular node permits any, and without TLS nothing is proved.
fn check_proof(hello: &Hello, proved: Option<&PeerIdentity>) -> Result<(), Status> {
    let (from, cluster) = (hello.from, cluster_of_bytes(&hello.cluster_id).unwrap_or_default());
    let claimed = NodeIdentity { cluster, node: from };
    let why = match proved {
        Some(PeerIdentity::Unchecked | PeerIdentity::Node) => return Ok(()),
        Some(PeerIdentity::Member(proved)) if *proved == claimed => return Ok(()),
        Some(PeerIdentity::Member(_)) if planted::on(Planted::HelloUnproved) => return Ok(()),
        Some(PeerIdentity::Member(proved)) => format!("its certificate is that of {proved}"),
        Some(other) => format!("its certificate is that of no node: it is {other}"),
        None => "nothing is known of its connection".to_owned(),
    };
    Err(Status::failed_precondition(format!(
        "the caller says that it is {claimed}, but {why}: give each node its own certificate and data folder"
    )))
}

impl tokio_stream::Stream for Answers {
    type Item = Result<LinkAnswers, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_answers(cx).map(|answers| answers.map(Ok))
    }
}
