//! Authorities that are known by a hash of their key, which suffices to verify that another end's
//! certificate comes from one of them.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, DigitallySignedStruct, Error as Refusal, RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::client::TlsStream;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::client::{HandshakeError, handshake};
use crate::error::TlsError;
use crate::files::certificates;

/// Length of a hash in bytes.
const PIN_BYTES: usize = 32;

/// SHA-256 of an authority's public key as certificates encode it (its `SubjectPublicKeyInfo`), like
/// `kubeadm join --discovery-token-ca-cert-hash`. Its text is 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct AuthorityPin([u8; PIN_BYTES]);

impl AuthorityPin {
    /// The pin of a certificate in DER; None if it cannot be parsed.
    pub(crate) fn of_certificate(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let hash = digest(&SHA256, certificate.public_key().raw);
        Some(Self(hash.as_ref().try_into().ok()?))
    }

    /// The pins of all certificates in a PEM file.
    ///
    /// # Errors
    /// If the file cannot be read, or holds no certificate.
    pub fn of_file(ca: &Path) -> Result<Vec<Self>, TlsError> {
        Ok(certificates(ca)?.iter().filter_map(|der| Self::of_certificate(der)).collect())
    }
}

impl fmt::Display for AuthorityPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for AuthorityPin {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut pin = [0; PIN_BYTES];
        if text.len() != 2 * PIN_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(());
        }
        for (at, byte) in pin.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| ())?;
        }
        Ok(Self(pin))
    }
}

/// Makes TLS connections to servers of an authority that is known by its pin, without a client
/// certificate.
pub struct PinnedTls {
    config: Arc<ClientConfig>,
}

impl PinnedTls {
    /// Accepts servers of any of these authorities.
    ///
    /// # Errors
    /// If the library refuses the configuration, which is a bug.
    pub fn new(pins: Vec<AuthorityPin>) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = PinVerifier { pins, provider: Arc::clone(&provider) };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config) })
    }

    /// Performs the handshake: the other end must have a certificate for this address from a pinned
    /// authority.
    ///
    /// # Errors
    /// If it has none. No data of the application was sent then.
    pub async fn connect<S>(&self, address: &str, stream: S) -> Result<TlsStream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let connected = handshake(Arc::clone(&self.config), address, stream).await;
        connected.map_err(|error| match error {
            HandshakeError::OtherAuthority { address } => HandshakeError::OtherPin { address },
            other => other,
        })
    }
}

/// Finds the pinned authority's certificate in the chain that the server presents, and then verifies the
/// chain as usual with it as the root.
#[derive(Debug)]
struct PinVerifier {
    pins: Vec<AuthorityPin>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Refusal> {
        let is_pinned = |der: &&CertificateDer<'_>| {
            AuthorityPin::of_certificate(der).is_some_and(|pin| self.pins.contains(&pin))
        };
        let unknown = || Refusal::InvalidCertificate(CertificateError::UnknownIssuer);
        let authority = intermediates.iter().find(is_pinned).ok_or_else(unknown)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let provider = Arc::clone(&self.provider);
        let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let verifier = built.map_err(|error| Refusal::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Refusal> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Refusal> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
