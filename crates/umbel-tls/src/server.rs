//! The side that listens.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::clock::now;
use crate::error::TlsError;
use crate::files::{KeyPairFiles, Life, Loaded, TlsFiles};
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
        self.config.life().map(|life| life.expires_at)
    }

    /// Whether the own certificate has lived for two thirds of its life: time for the next one, while
    /// there is enough left to mend what keeps it from coming.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.config.life().is_some_and(|life| is_due(life, now()))
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

fn is_due(life: Life, now: SystemTime) -> bool {
    let Life { begins_at, expires_at } = life;
    let whole = expires_at.duration_since(begins_at).unwrap_or_default();
    now >= begins_at + whole / 3 * 2
}

/// The chain with the authority's certificate at its end: who has no file of that and knows a hash of
/// its key, as a node that joins by a token, finds it there.
fn with_authority(
    mut chain: Vec<CertificateDer<'static>>,
    authorities: &[CertificateDer<'static>],
) -> Vec<CertificateDer<'static>> {
    let last = chain.last().and_then(|der| X509Certificate::from_der(der).ok());
    let issuer = last.map(|(_, last)| last.issuer().as_raw().to_vec());
    let is_issuer = |der: &&CertificateDer<'static>| {
        let parsed = X509Certificate::from_der(der);
        parsed.is_ok_and(|(_, one)| Some(one.subject().as_raw()) == issuer.as_deref())
    };
    if let Some(authority) = authorities.iter().find(is_issuer)
        && !chain.contains(authority)
    {
        chain.push(authority.clone());
    }
    chain
}

fn server_config(files: &TlsFiles, loaded: Loaded) -> Result<ServerConfig, TlsError> {
    let (Some(names), Some(pair)) = (&files.pair, loaded.pair) else {
        unreachable!("a server is opened with a certificate")
    };
    let chain = with_authority(pair.chain, &loaded.authorities);
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
        .with_single_cert(chain, pair.key)
        .map_err(|error| names.refused(error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Connections last for hours. A resumed one would skip the look at the certificate's dates.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn two_thirds_of_a_life_are_enough() {
        let at = |days: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(days * 86_400);
        let life = Life { begins_at: at(100), expires_at: at(190) };
        assert!(!is_due(life, at(159)) && is_due(life, at(160)) && is_due(life, at(500)));
    }
}
