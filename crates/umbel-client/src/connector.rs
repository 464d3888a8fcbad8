//! How connections are made.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::transport::{Channel, Endpoint, Uri};

/// A connection: bytes in, bytes out.
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

/// A channel that connects when it is first used and again after a failure.
pub(crate) fn channel(
    endpoint: &Endpoint,
    address: &Arc<str>,
    connector: Option<&Arc<dyn Connector>>,
) -> Channel {
    let Some(connector) = connector else { return endpoint.connect_lazy() };
    let (connector, address) = (Arc::clone(connector), Arc::clone(address));
    endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
        let connecting = connector.connect(&address);
        async move { connecting.await.map(TokioIo::new) }
    }))
}
