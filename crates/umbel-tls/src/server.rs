//! The server side of TLS.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::CertificateError::{
    BadSignature, InvalidPurpose, InvalidPurposeContext, UnknownIssuer,
};
use rustls::Error::InvalidCertificate;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{
    NoServerSessionStorage, ParsedCertificate, ServerConfig, WebPkiClientVerifier,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::clock::now;
use crate::error::TlsError;
use crate::files::{KeyPairFiles, Life, Loaded, TlsFiles, certificates, roots};
use crate::identity::PeerIdentity;
use crate::reload::Reloading;

/// Accepts TLS connections: presents this end's certificate, and verifies the other end's, if it has one.
pub struct ServerTls {
    config: Reloading<ServerConfig>,
}

impl ServerTls {
    /// Reads the authorities' certificates and this end's certificate.
    ///
    /// # Errors
    /// If a file cannot be read or used, or the certificate is a client's.
    pub fn open(ca: &Path, pair: KeyPairFiles) -> Result<Self, TlsError> {
        let files = TlsFiles { ca: ca.to_owned(), pair: Some(pair) };
        Ok(Self { config: Reloading::open(files, server_config)? })
    }

    /// Reloads the files if they were replaced since the last call, for later connections; returns
    /// whether they were.
    ///
    /// # Errors
    /// If the new files cannot be used. The error is returned once, and the old files stay in use.
    pub fn refresh(&self) -> Result<bool, TlsError> {
        self.config.refresh()
    }

    /// When this end's certificate expires.
    #[must_use]
    pub fn expires_at(&self) -> Option<SystemTime> {
        self.config.life().map(|life| life.expires_at)
    }

    /// Whether two thirds of the validity of this end's certificate have passed: it is time for the next
    /// one, with enough time left to fix what may prevent it.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.config.life().is_some_and(|life| is_due(life, now()))
    }

    /// Performs the handshake on an accepted connection; returns the identity of the other end.
    ///
    /// # Errors
    /// If the other end speaks no TLS, presents a certificate that the authorities did not sign or that
    /// is not valid now, or disconnects.
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

/// The last second, since 1970, in which the certificate that the other end has shown is valid; None if it has shown none.
#[must_use]
pub fn shown_until_s<S>(stream: &TlsStream<S>) -> Option<u64> {
    let shown = stream.get_ref().1.peer_certificates()?.first()?;
    let (_, certificate) = X509Certificate::from_der(shown).ok()?;
    // A date before 1970 has passed, too.
    Some(u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or_default())
}

/// Whether the certificate in a file is for this host, a name or an IP address: those who call the host refuse another
/// one.
///
/// # Errors
/// If the file cannot be read, or holds no certificate that can be used.
pub fn names_host(file: &Path, host: &str) -> Result<bool, TlsError> {
    let chain = certificates(file)?;
    let own = parsed(file, &chain[0])?;
    // No certificate is for what is no name.
    let name = ServerName::try_from(host);
    Ok(name.is_ok_and(|name| verify_server_name(&own, &name).is_ok()))
}

/// Why those who trust the authorities of `ca` refuse a node with the certificate in a file, whatever its hosts are; None
/// if they accept it, at both ends of a connection.
///
/// # Errors
/// If a file cannot be read, or holds no certificate that can be used.
pub fn why_refused(ca: &Path, file: &Path) -> Result<Option<String>, TlsError> {
    let roots = roots(ca, &certificates(ca)?)?;
    let chain = certificates(file)?;
    let (own, above) = (&chain[0], &chain[1..]);
    if X509Certificate::from_der(own).is_ok_and(|(_, own)| own.is_ca()) {
        return Ok(Some("is an authority's own certificate, and no node's".to_owned()));
    }
    let since = now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let at = UnixTime::since_unix_epoch(since);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let algorithms = provider.signature_verification_algorithms.all;
    let as_server = parsed(file, own).map(|own| {
        verify_server_cert_signed_by_trust_anchor(&own, &roots, above, at, algorithms)
    })?;
    let unusable = |source| TlsError::Authority { file: ca.to_owned(), source };
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider);
    let verifier = verifier.build().map_err(unusable)?;
    let as_client = verifier.verify_client_cert(own, above, at).map(drop);
    Ok(as_server.and(as_client).err().map(|error| match error {
        InvalidCertificate(UnknownIssuer | BadSignature) => {
            format!("is signed by no authority of {}", ca.display())
        }
        InvalidCertificate(InvalidPurpose | InvalidPurposeContext { .. }) => {
            "lacks the usage of servers or that of clients, and a node is both".to_owned()
        }
        error => format!("cannot be used ({error})"),
    }))
}

fn parsed<'a>(file: &Path, own: &'a CertificateDer<'_>) -> Result<ParsedCertificate<'a>, TlsError> {
    ParsedCertificate::try_from(own)
        .map_err(|error| TlsError::Certificate { file: file.to_owned(), why: error.to_string() })
}

fn is_due(life: Life, now: SystemTime) -> bool {
    let Life { begins_at, expires_at } = life;
    let whole = expires_at.duration_since(begins_at).unwrap_or_default();
    now >= begins_at + whole / 3 * 2
}

/// The chain with the authority's certificate at its end, for clients that have no file of it but know a
/// hash of its key, such as a node that joins with a token.
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
    if let Some(PeerIdentity::Client(name)) =
        pair.chain.first().map(|own| PeerIdentity::from_certificate(own))
    {
        let (file, name) = (names.certificate.clone(), name.to_string());
        return Err(TlsError::OfClient { file, name });
    }
    let chain = with_authority(pair.chain, &loaded.authorities);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let unusable = |source| TlsError::Authority { file: files.ca.clone(), source };
    // An end without a certificate is accepted as anonymous; the caller decides what it may do.
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
    // Connections last for hours. A resumed session would skip the check of the certificate's dates.
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
