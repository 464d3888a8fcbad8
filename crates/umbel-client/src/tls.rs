//! TLS connections, with certificates of nodes and, if named, of the client.

use std::io;
use std::sync::Arc;

use umbel_tls::{ClientTls, TlsError, TlsFiles};

use crate::connector::{Connecting, Connection, Connector, tcp};

/// Makes TLS connections. Nodes authenticate with certificates of the trusted authority, the client with
/// its own certificate. A node's certificate must name the host of the address at which the node is
/// called.
///
/// If the files are replaced, the next connection uses the new ones; if the new ones are damaged, the old
/// ones stay in use.
///
/// ```no_run
/// use umbel_client::{Client, ClientOptions, KeyPairFiles, TlsConnector, TlsFiles};
///
/// let pair = KeyPairFiles { certificate: "alice.pem".into(), key: "alice.key".into() };
/// let tls = TlsConnector::open(TlsFiles { ca: "ca.pem".into(), pair: Some(pair) })?;
/// let client = Client::connect_through("node-1:7300", ClientOptions::default(), tls)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TlsConnector {
    tls: Arc<ClientTls>,
}

impl TlsConnector {
    /// Reads the authority's certificate, and the client's certificate and key if they are named. Without
    /// a client's certificate, nodes only answer health checks.
    ///
    /// # Errors
    /// If a file cannot be read or used.
    pub fn open(files: TlsFiles) -> Result<Self, TlsError> {
        Ok(Self { tls: Arc::new(ClientTls::open(files)?) })
    }
}

impl Connector for TlsConnector {
    fn connect(&self, address: &str) -> Connecting {
        let (tls, address) = (Arc::clone(&self.tls), address.to_owned());
        Box::pin(async move {
            // Damaged files must not break connections while the old ones still work.
            let _ = tls.refresh();
            let stream = tcp(&address).await?;
            let stream = tls.connect(&address, stream).await.map_err(io::Error::other)?;
            Ok(Box::new(stream) as Box<dyn Connection>)
        })
    }
}
