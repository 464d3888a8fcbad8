//! Connections that prove both ends.

use std::io;
use std::sync::Arc;

use umbel_tls::{ClientTls, TlsError, TlsFiles};

use crate::connector::{Connecting, Connection, Connector, tcp};

/// Makes encrypted connections: nodes prove themselves by certificates of the authority that is
/// trusted, the client by its own one. A node is called by the host of its address, which must
/// stand in its certificate.
///
/// Files that are replaced are taken with the next connection; where the new ones are damaged, the
/// old ones stay.
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
    /// Reads the authority's certificate, and the own one with its key if they are named. Without
    /// an own one nodes answer health questions only.
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
            // Damaged files are no reason to fail while the old ones are good.
            let _ = tls.refresh();
            let stream = tcp(&address).await?;
            let stream = tls.connect(&address, stream).await.map_err(io::Error::other)?;
            Ok(Box::new(stream) as Box<dyn Connection>)
        })
    }
}
