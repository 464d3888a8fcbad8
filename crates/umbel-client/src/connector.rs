//! How a client makes connections.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// A byte stream to a node.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Connection for T {}

/// What [`Connector::connect`] returns.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Connection>>> + Send>>;

/// Makes a client's connections in place of TCP: through a proxy, or a simulated network.
///
/// ```
/// use umbel_client::{Client, ClientOptions, Connecting, Connector};
///
/// /// Whatever is called, nobody answers.
/// struct Nobody;
///
/// impl Connector for Nobody {
///     fn connect(&self, _address: &str) -> Connecting {
///         Box::pin(async { Err(std::io::ErrorKind::ConnectionRefused.into()) })
///     }
/// }
///
/// let client = Client::connect_through("node-1:7300", ClientOptions::default(), Nobody)?;
/// assert_eq!(client.node_addresses(), ["node-1:7300"]);
/// # Ok::<(), umbel_client::ClientError>(())
/// ```
pub trait Connector: Send + Sync + 'static {
    /// Connects to `host:port`.
    fn connect(&self, address: &str) -> Connecting;
}

/// Makes plain TCP connections, without TLS.
pub(crate) struct TcpConnector;

impl Connector for TcpConnector {
    fn connect(&self, address: &str) -> Connecting {
        let address = address.to_owned();
        Box::pin(async move { Ok(Box::new(tcp(&address).await?) as Box<dyn Connection>) })
    }
}

/// A TCP connection with Nagle's algorithm off.
pub(crate) async fn tcp(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Called when an established connection is gone, whichever side ended it.
pub(crate) type Lost = Arc<dyn Fn() + Send + Sync>;

/// A channel that connects when it is first used, and again after a failure.
pub(crate) fn channel(
    endpoint: &Endpoint,
    address: &Arc<str>,
    connector: &Arc<dyn Connector>,
    lost: Option<Lost>,
) -> Channel {
    let (connector, address) = (Arc::clone(connector), Arc::clone(address));
    endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
        let (connecting, lost) = (connector.connect(&address), lost.clone());
        async move {
            let connection = connecting.await?;
            Ok::<_, io::Error>(TokioIo::new(Watched { connection, lost }))
        }
    }))
}

/// A connection that reports when it is dropped. The channel above does not report that: it reconnects
/// with the next call.
struct Watched {
    connection: Box<dyn Connection>,
    lost: Option<Lost>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(lost) = &self.lost {
            lost();
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}
