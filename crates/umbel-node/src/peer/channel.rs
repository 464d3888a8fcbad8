//! gRPC over the network port, in both directions.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint, Server, Uri};
use umbel_proto::v1::peer_client::PeerClient;

use super::limits::{
    ACCEPT_PAUSE, CONNECT_TIMEOUT, CONNECTION_WINDOW_BYTES, KEEP_ALIVE_INTERVAL,
    KEEP_ALIVE_TIMEOUT, LINK_MESSAGE_BYTES_MAX, STREAM_WINDOW_BYTES,
};
use crate::ports::{ConnectionSlot, Listener, Net, PeerIdentity, PortFuture, Stream};

/// A channel to `host:port` that connects when it is first used and again after a failure.
///
/// Pings find out that a peer is gone: without them a call on a connection whose other end vanished
/// would wait for its own timeout, and every later one too.
///
/// # Errors
/// `InvalidInput` if the text is no address.
pub(crate) fn channel(net: &Arc<dyn Net>, address: &str) -> io::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
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
        async move { net.connect(&address).await.map(TokioIo::new) }
    })))
}

/// A client of the peer service at `host:port`, for [`Adopt`] and [`WhoAreYou`]; calls travel over
/// [`Links`].
///
/// # Errors
/// `InvalidInput` if the text is no address.
///
/// [`Adopt`]: umbel_proto::v1::AdoptRequest
/// [`WhoAreYou`]: umbel_proto::v1::WhoAreYouRequest
/// [`Links`]: super::Links
pub(crate) fn peer_client(net: &Arc<dyn Net>, address: &str) -> io::Result<PeerClient<Channel>> {
    Ok(PeerClient::new(channel(net, address)?)
        .max_decoding_message_size(LINK_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(LINK_MESSAGE_BYTES_MAX))
}

/// A server with the windows and pings that match [`channel`]; services are the caller's to add.
pub(crate) fn server() -> Server {
    Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
}

/// The connections of a listener, for `serve_with_incoming_shutdown`. It never ends and never
/// fails: a connection that cannot be taken is logged, and the next one is tried after a pause.
pub(crate) fn incoming(listener: Box<dyn Listener>) -> Incoming {
    Incoming { accepting: accept(listener) }
}

/// See [`incoming`].
pub(crate) struct Incoming {
    accepting: PortFuture<'static, (Box<dyn Listener>, Accepted)>,
}

fn accept(mut listener: Box<dyn Listener>) -> PortFuture<'static, (Box<dyn Listener>, Accepted)> {
    Box::pin(async move {
        loop {
            match listener.accept().await {
                Ok(taken) => {
                    let accepted = Accepted {
                        stream: taken.stream,
                        identity: taken.identity,
                        _slot: taken.slot,
                    };
                    return (listener, accepted);
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    })
}

impl tokio_stream::Stream for Incoming {
    type Item = io::Result<Accepted>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let (listener, accepted) = ready!(self.accepting.as_mut().poll(cx));
        self.accepting = accept(listener);
        Poll::Ready(Some(Ok(accepted)))
    }
}

/// A connection that was taken.
pub(crate) struct Accepted {
    stream: Box<dyn Stream>,
    identity: PeerIdentity,
    /// Given back with the connection.
    _slot: Option<ConnectionSlot>,
}

impl Connected for Accepted {
    /// It is among the extensions of each request on the connection.
    type ConnectInfo = PeerIdentity;

    fn connect_info(&self) -> PeerIdentity {
        self.identity.clone()
    }
}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
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
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
