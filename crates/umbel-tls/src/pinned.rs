//! TLS between two ends that know one secret: each presents a key derived from it, and expects the other
//! end's derived key.
//!
//! The keys are raw public keys (RFC 7250): there are no certificates, names or dates. The listener's key
//! differs from the dialer's, so that nobody can authenticate with a key that the other end has shown. Only
//! TLS 1.3 is supported, because it encrypts the keys of both ends.

use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, ClientConfig, Resumption};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, ServerConfig};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    AlertDescription, CertificateError, DigitallySignedStruct, DistinguishedName, Error as Refusal,
    PeerMisbehaved, SignatureScheme,
};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use crate::error::TlsError;
use crate::secret::Derived;

/// The first byte of a TLS connection: the type of a handshake record (RFC 8446, 5.1).
pub const HANDSHAKE_RECORD: u8 = 22;

/// The PKCS #8 header before the 32 bytes of a key (RFC 8410, 7).
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// Both ends of TLS connections between processes that share a secret.
#[derive(Clone)]
pub struct SecretTls {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
}

/// Why the other end did not prove that it knows the secret, or why the connection failed. No data of the
/// application was sent.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SecretRefusal {
    /// The other end speaks no TLS: start it with the secret, or this end without.
    #[error("it speaks no TLS, so it was not given the secret ({why})")]
    NoTls {
        /// What came in the place of TLS.
        why: String,
    },
    /// The secrets differ: give both ends the same one.
    #[error("it has another secret")]
    OtherSecret,
    /// The other end presents the right key, which it has seen elsewhere, but does not own it: it is a
    /// stranger.
    #[error("it shows the right key, but cannot sign with it")]
    NotItsKey,
    /// Another program or release: bring both ends to one release, or correct the address.
    #[error(
        "it speaks TLS, but not with keys of a secret: another program, or another release ({why})"
    )]
    OtherProgram {
        /// What is wrong.
        why: String,
    },
    /// The handshake was not finished in time: try again.
    #[error("it did not prove itself within {seconds} s")]
    Late {
        /// The limit.
        seconds: u64,
    },
    /// The connection broke, or the other end hung up, as one does that was given no secret: give it the
    /// secret, or try again.
    #[error(
        "the connection ended before it proved itself: it broke, or the other end was given no secret"
    )]
    Broken(#[source] io::Error),
}

impl SecretRefusal {
    /// Whether a retry is useless until somebody has corrected one of the ends.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(
            self,
            Self::NoTls { .. } | Self::OtherSecret | Self::NotItsKey | Self::OtherProgram { .. }
        )
    }

    pub(crate) fn of_io(error: io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Refusal>()) {
            Some(refusal) => Self::of(refusal),
            None => Self::Broken(error),
        }
    }

    pub(crate) fn of(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::InvalidMessage(_) => Self::NoTls { why: refusal.to_string() },
            // The alert that the other end sends if it finds this.
            Refusal::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
            | Refusal::AlertReceived(AlertDescription::AccessDenied) => Self::OtherSecret,
            Refusal::InvalidCertificate(CertificateError::BadSignature) => Self::NotItsKey,
            other => Self::OtherProgram { why: other.to_string() },
        }
    }
}

impl SecretTls {
    /// Both ends, with keys derived from a secret.
    ///
    /// # Errors
    /// If the library refuses the configuration, which is a bug.
    pub fn new(derived: &Derived) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let [listener, dialer] =
            ["listener", "dialer"].map(|role| certified(&provider, &derived.bytes(role)));
        let (listener, dialer) = (listener?, dialer?);
        Ok(Self {
            client: client_config(&provider, Arc::clone(&dialer), &listener)?,
            server: server_config(&provider, listener, &dialer)?,
        })
    }

    /// Authenticates both ends of a connection that this end has made.
    ///
    /// # Errors
    /// If the other end does not prove that it knows the secret. If the other end rejects this one, that
    /// shows only on the first read.
    pub async fn connect<S>(&self, stream: S) -> Result<TlsStream<S>, SecretRefusal>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let connector = TlsConnector::from(Arc::clone(&self.client));
        let connected = connector.connect(nobody(), stream).await;
        connected.map(TlsStream::from).map_err(SecretRefusal::of_io)
    }

    /// Authenticates both ends of an accepted connection.
    ///
    /// # Errors
    /// If the other end does not prove that it knows the secret.
    pub async fn accept<S>(&self, stream: S) -> Result<TlsStream<S>, SecretRefusal>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let accepted = TlsAcceptor::from(Arc::clone(&self.server)).accept(stream).await;
        accepted.map(TlsStream::from).map_err(SecretRefusal::of_io)
    }
}

/// A name that the library requires; it is neither sent nor verified, since keys have no names.
pub(crate) fn nobody() -> ServerName<'static> {
    ServerName::try_from("umbel.invalid").expect("it is a name")
}

pub(crate) fn client_config(
    provider: &Arc<CryptoProvider>,
    own: Arc<CertifiedKey>,
    theirs: &CertifiedKey,
) -> Result<Arc<ClientConfig>, TlsError> {
    let mut config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Pinned::new(provider, theirs)?)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own)));
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(Arc::new(config))
}

pub(crate) fn server_config(
    provider: &Arc<CryptoProvider>,
    own: Arc<CertifiedKey>,
    theirs: &CertifiedKey,
) -> Result<Arc<ServerConfig>, TlsError> {
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Pinned::new(provider, theirs)?)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// An Ed25519 key from its seed.
pub(crate) fn certified(
    provider: &CryptoProvider,
    seed: &[u8; 32],
) -> Result<Arc<CertifiedKey>, TlsError> {
    let document = [&PKCS8_PREFIX[..], seed].concat();
    let document = PrivatePkcs8KeyDer::from(document);
    let key = provider.key_provider.load_private_key(document.into())?;
    let public = key.public_key().ok_or_else(no_public_half)?;
    let shown = CertificateDer::from(public.as_ref().to_vec());
    Ok(Arc::new(CertifiedKey::new(vec![shown], key)))
}

fn no_public_half() -> Refusal {
    Refusal::General("a key without its public half".to_owned())
}

/// Verifies that the other end presents one particular key.
#[derive(Debug)]
struct Pinned {
    /// The key, as the other end presents it.
    key: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn new(provider: &Arc<CryptoProvider>, theirs: &CertifiedKey) -> Result<Arc<Self>, Refusal> {
        let key = theirs.end_entity_cert()?.clone().into_owned();
        Ok(Arc::new(Self { key, provider: Arc::clone(provider) }))
    }

    fn check(&self, shown: &[u8]) -> Result<(), Refusal> {
        // Both are public keys, so the time of the comparison reveals nothing.
        if self.key.as_ref() == shown {
            return Ok(());
        }
        Err(Refusal::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }
}

/// The checks of signatures, which are the same for both ends.
macro_rules! signatures {
    () => {
        /// Never called, because TLS 1.2 is disabled.
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Refusal> {
            Err(Refusal::PeerMisbehaved(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            shown: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Refusal> {
            let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
            let algorithms = &self.provider.signature_verification_algorithms;
            verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Refusal> {
        self.check(shown).map(|()| ServerCertVerified::assertion())
    }

    signatures!();
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Refusal> {
        self.check(shown).map(|()| ClientCertVerified::assertion())
    }

    signatures!();
}
