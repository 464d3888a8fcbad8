//! The side that listens.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::error::TlsError;
use crate::files::{KeyPairFiles, Loaded, TlsFiles};
use crate::identity::PeerIdentity;
use crate::reload::Reloading;

/// Takes connections: shows the own certificate, and checks the other end's, if it has one.
pub struct ServerTls {
    config: Reloading<ServerConfig>,
}

impl ServerTls {
    /// Reads the authority's certificate and the own one.
    ///
    /// # Errors
    /// If a file cannot be read or used.
    pub fn open(ca: &std::path::Path, pair: KeyPairFiles) -> Result<Self, TlsError> {
        let files = TlsFiles { ca: ca.to_owned(), pair: Some(pair) };
        Ok(Self { config: Reloading::open(files, server_config)? })
    }

    /// Takes the files if they were replaced since the last look, for connections to come, and says
    /// whether they were.
    ///
    /// # Errors
    /// If the new files cannot be used: once, and the old ones stay in use.
    pub fn refresh(&self) -> Result<bool, TlsError> {
        self.config.refresh()
    }

    /// When the own certificate expires.
    #[must_use]
    pub fn expires_at(&self) -> Option<SystemTime> {
        self.config.expires_at()
    }

    /// Proves this end on a connection that was taken, and says who the other one is.
    ///
    /// # Errors
    /// If the other end speaks no TLS, shows a certificate that this authority did not sign or that
    /// is not valid now, or breaks off.
    pub async fn accept<S>(&self, stream: S) -> io::Result<(TlsStream<S>, PeerIdentity)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = TlsAcceptor::from(self.config.current()).accept(stream).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let identity = shown.map_or(PeerIdentity::Anonymous, |certificate| {
            PeerIdentity::from_certificate(certificate)
        });
        Ok((stream, identity))
    }
}

fn server_config(files: &TlsFiles, loaded: Loaded) -> Result<ServerConfig, TlsError> {
    let (Some(names), Some(pair)) = (&files.pair, loaded.pair) else {
        unreachable!("a server is opened with a certificate")
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let unusable = |source| TlsError::Authority { file: files.ca.clone(), source };
    // Who shows no certificate is let in and named so: what such a one may do is decided above.
    let verifier = WebPkiClientVerifier::builder_with_provider(loaded.roots, Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .map_err(unusable)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(pair.chain, pair.key)
        .map_err(|error| names.refused(error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Connections last for hours. A resumed one would skip the look at the certificate's dates.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}
