//! gRPC over the network port, in both directions.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};
use tonic::body::Body;
use tonic::codegen::http::Request;
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint, Server, Uri};
use tower::layer::util::{Identity, Stack};
use tower::util::MapRequestLayer;

use super::failed_accepts::FailedAccepts;
use super::frame_allowance::FrameAllowance;
use super::frame_watch::FrameWatch;
use super::limits::{
    ACCEPT_PAUSE, CONNECT_TIMEOUT, CONNECTION_WINDOW_BYTES, KEEP_ALIVE_INTERVAL,
    KEEP_ALIVE_TIMEOUT, OWED_TIMEOUT, STREAM_WINDOW_BYTES,
};
use crate::metrics;
use crate::{
    ConnectionHandle, ConnectionSlot, Listener, Net, NodeIdentity, PeerIdentity, PortFuture, Stream,
};

/// How nodes and workers name themselves to servers, which take whoever names tonic alone for a caller of a former release.
const USER_AGENT: &str = concat!("umbel/", env!("CARGO_PKG_VERSION"));

/// Like [`channel_to`], for any server.
///
/// # Errors
/// `InvalidInput` if the text is not an address.
pub fn channel(net: &Arc<dyn Net>, address: &str) -> io::Result<Channel> {
    channel_to(net, address, None)
}

/// A channel to `host:port` that connects when first used, and reconnects after a failure. If a node is
/// named, refuses a server that proves to be another node.
///
/// Pings detect that a peer is gone: without them, a call on a connection whose other end vanished
/// would wait for its own timeout, and so would every later call.
///
/// # Errors
/// `InvalidInput` if the text is not an address.
pub fn channel_to(
    net: &Arc<dyn Net>,
    address: &str,
    wanted: Option<NodeIdentity>,
) -> io::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .and_then(|endpoint| endpoint.user_agent(USER_AGENT))
        .map_err(|error| {
            let text = format!("{address:?} is no address like host:port: {error}");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    let (net, address) = (Arc::clone(net), address.to_owned());
    Ok(endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
        let (net, address) = (Arc::clone(&net), address.clone());
        async move {
            let connected = match wanted {
                Some(wanted) => net.connect_node(&address, wanted).await,
                None => net.connect(&address).await,
            };
            connected.map(TokioIo::new)
        }
    })))
}

/// A server with the windows and pings that match [`channel_to`]; the caller adds the services. Each
/// request carries the [`PeerIdentity`], the [`PeerAddress`] and the [`ConnectionHandle`] that it came on in its extensions.
pub fn server() -> Server<Stack<MapRequestLayer<NameOrigin>, Identity>> {
    let name: NameOrigin = name_origin;
    Server::builder()
        .layer(MapRequestLayer::new(name))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
}

/// See [`server`].
pub type NameOrigin = fn(Request<Body>) -> Request<Body>;

fn name_origin(mut request: Request<Body>) -> Request<Body> {
    if let Some(RequestOrigin { identity, from, connection }) = request.extensions_mut().remove() {
        connection.note_request();
        request.extensions_mut().insert(identity);
        request.extensions_mut().insert(from);
        request.extensions_mut().insert(connection);
    }
    request
}

/// The address of the other end of a connection, for messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerAddress(Arc<str>);

impl PeerAddress {
    /// The address as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for PeerAddress {
    fn from(address: String) -> Self {
        Self(address.into())
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The connections of a listener, for `serve_with_incoming_shutdown`. The stream never ends and never
/// fails: if a connection cannot be accepted, that is logged, and accepting continues after a pause.
pub fn incoming(listener: Box<dyn Listener>) -> IncomingConnections {
    IncomingConnections { accepting: accept(listener, FailedAccepts::default()) }
}

/// See [`incoming`].
pub struct IncomingConnections {
    accepting: PortFuture<'static, Accepting>,
}

/// A listener, what it could not take so far, and what it took.
type Accepting = (Box<dyn Listener>, FailedAccepts, Accepted);

fn accept(
    mut listener: Box<dyn Listener>,
    mut failed: FailedAccepts,
) -> PortFuture<'static, Accepting> {
    Box::pin(async move {
        loop {
            match listener.accept().await {
                Ok(taken) => {
                    return (listener, failed, Accepted::new(taken));
                }
                Err(error) => {
                    failed.tell(&error);
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    })
}

impl tokio_stream::Stream for IncomingConnections {
    type Item = io::Result<Accepted>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let (listener, failed, accepted) = ready!(self.accepting.as_mut().poll(cx));
        self.accepting = accept(listener, failed);
        Poll::Ready(Some(Ok(accepted)))
    }
}

/// An accepted connection. It fails if something that it began to send does not end in time, if it
/// sends more frames than allowed, or if it has to make room for others.
pub struct Accepted {
    stream: Box<dyn Stream>,
    identity: PeerIdentity,
    from: PeerAddress,
    connection: ConnectionHandle,
    watch: FrameWatch,
    allowance: FrameAllowance,
    taken_at: Instant,
    /// Deadline for what the connection owes, and `ended_count` when the deadline was set.
    owed: Option<(u64, Pin<Box<Sleep>>)>,
    /// Freed with the connection.
    _slot: Option<ConnectionSlot>,
}

impl Accepted {
    fn new(taken: crate::Incoming) -> Self {
        let crate::Incoming { stream, identity, slot, from } = taken;
        let connection = slot.as_ref().map(|slot| slot.connection().clone()).unwrap_or_default();
        if !matches!(identity, PeerIdentity::Unchecked | PeerIdentity::Anonymous) {
            connection.prove();
        }
        let watch = FrameWatch::new();
        Self {
            stream,
            identity,
            from: from.into(),
            connection,
            watch,
            allowance: FrameAllowance::new(),
            taken_at: Instant::now(),
            owed: None,
            _slot: slot,
        }
    }

    /// Reads once; fails if the connection has sent more frames than allowed.
    fn poll_allowed(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        self.watch.see(&buf.filled()[before..]);
        let came = self.watch.take_frames();
        if !self.allowance.allows(came, self.taken_at.elapsed()) {
            metrics::connection_refused("frames");
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Poll::Ready(read)
    }

    fn note_sent(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.allowance.sent(*bytes);
        }
        written
    }

    /// Ready once the connection has owed something for too long.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.watch.is_owing(self.connection.has_asked()) {
            self.owed = None;
            return Poll::Pending;
        }
        let ended_count = self.watch.ended_count();
        let begin = || (ended_count, Box::pin(sleep(OWED_TIMEOUT)));
        let (since, late) = self.owed.get_or_insert_with(begin);
        if *since != ended_count {
            *since = ended_count;
            late.as_mut().reset(Instant::now() + OWED_TIMEOUT);
        }
        late.as_mut().poll(cx)
    }
}

/// The origin of a connection's requests.
#[derive(Clone)]
pub struct RequestOrigin {
    identity: PeerIdentity,
    from: PeerAddress,
    connection: ConnectionHandle,
}

impl Connected for Accepted {
    type ConnectInfo = RequestOrigin;

    fn connect_info(&self) -> RequestOrigin {
        RequestOrigin {
            identity: self.identity.clone(),
            from: self.from.clone(),
            connection: self.connection.clone(),
        }
    }
}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.connection.poll_ended(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        match this.poll_allowed(cx, buf) {
            Poll::Ready(read) => Poll::Ready(read),
            Poll::Pending => this.poll_late(cx).map(|()| {
                metrics::connection_refused("late");
                Err(io::ErrorKind::TimedOut.into())
            }),
        }
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.note_sent(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.note_sent(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
