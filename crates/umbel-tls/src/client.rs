//! The client side of TLS.

use std::io;
use std::sync::Arc;

use rustls::client::{ClientConfig, Resumption};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, Error as Refusal, RootCertStore};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::TlsError;
use crate::files::{KeyPair, KeyPairFiles, Loaded, TlsFiles};
use crate::identity::{NodeIdentity, PeerIdentity};
use crate::reload::Reloading;

/// Makes TLS connections: verifies that the other end is the host of the address, and presents this end's
/// certificate, if there is one.
pub struct ClientTls {
    config: Reloading<ClientConfig>,
}

/// The words by which the text of [`HandshakeError::OwnRefused`] is known, where a layer above has kept nothing of
/// the error but its text.
pub const OWN_REFUSED: &str = "refused the certificate of this end";

/// Why a handshake failed. No data of the application was sent.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The address is invalid: correct it.
    #[error("{address:?} is no address like host:port")]
    Address {
        /// The address.
        address: String,
    },
    /// The other end does not speak TLS, or closes the connection, for example because it stops.
    #[error(
        "{address} does not speak TLS, or hung up: connect without --tls-ca, or start that node with \
         tls_cert"
    )]
    NoTls {
        /// The address.
        address: String,
    },
    /// The other end's certificate is not for this address: use a name that the certificate contains, or
    /// issue a certificate with this name.
    #[error(
        "the certificate of {address} is for another name: call that node by a name that stands in \
         its certificate, or make it one with this name"
    )]
    OtherName {
        /// The address.
        address: String,
    },
    /// The other end's certificate comes from an authority that is not trusted here.
    #[error(
        "the certificate of {address} comes from another authority than that of --tls-ca: one of \
         both has the wrong file, or this is another cluster"
    )]
    OtherAuthority {
        /// The address.
        address: String,
    },
    /// The other end is another node than expected: correct the address.
    #[error("the certificate of {address} is that of {found}, and {wanted} was called: {remedy}")]
    OtherNode {
        /// The address.
        address: String,
        /// The expected node.
        wanted: NodeIdentity,
        /// The node that answered.
        found: NodeIdentity,
        /// What to do.
        remedy: &'static str,
    },
    /// The other end has no certificate of the pinned authority. No secret was sent to it.
    #[error(
        "{address} has no certificate of the authority that the token names: is the address that of a \
         node of the cluster that the token is for?"
    )]
    OtherPin {
        /// The address.
        address: String,
    },
    /// The other end's certificate has expired or is not valid yet: issue another one.
    #[error("the certificate of {address} is not valid now ({why}): give that node another one")]
    NotNow {
        /// The address.
        address: String,
        /// Which of the two.
        why: &'static str,
    },
    /// The other end rejects this end's certificate: correct the file that is wrong, or the address. With TLS
    /// 1.3, this may come only after the handshake, see [`refused_after_handshake`].
    #[error("{address} {OWN_REFUSED}: {why}")]
    OwnRefused {
        /// The address.
        address: String,
        /// What is wrong, and the TLS alert that the other end sent.
        why: String,
    },
    /// The connection broke, or another error.
    #[error("TLS with {address}: {source}")]
    Other {
        /// The address.
        address: String,
        /// The error.
        source: io::Error,
    },
}

impl ClientTls {
    /// Reads the authorities' certificates, and this end's certificate if it is named.
    ///
    /// # Errors
    /// If a file cannot be read or used.
    pub fn open(files: TlsFiles) -> Result<Self, TlsError> {
        Ok(Self { config: Reloading::open(files, client_config)? })
    }

    /// Reloads the files if they were replaced since the last call, for later connections; returns
    /// whether they were.
    ///
    /// # Errors
    /// If the new files cannot be used. The error is returned once, and the old files stay in use.
    pub fn refresh(&self) -> Result<bool, TlsError> {
        self.config.refresh()
    }

    /// Performs the handshake on a connection to `host:port`.
    ///
    /// # Errors
    /// If the other end speaks no TLS, is not the host of the address, or rejects this end.
    pub async fn connect<S>(&self, address: &str, stream: S) -> Result<TlsStream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        handshake(self.config.current(), address, stream).await
    }

    /// Like [`connect`](Self::connect), but for one particular node: the certificate of another node is
    /// refused. A certificate for any node is accepted.
    ///
    /// # Errors
    /// As for `connect`, and if another node answers.
    pub async fn connect_node<S>(
        &self,
        address: &str,
        wanted: NodeIdentity,
        stream: S,
    ) -> Result<TlsStream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = self.connect(address, stream).await?;
        match identity_of(&stream) {
            PeerIdentity::Member(found) if found != wanted => {
                let remedy = "correct the address, or give that node its own certificate";
                Err(HandshakeError::OtherNode {
                    address: address.to_owned(),
                    wanted,
                    found,
                    remedy,
                })
            }
            _ => Ok(stream),
        }
    }
}

/// Performs a client's handshake on a connection to `host:port`.
pub(crate) async fn handshake<S>(
    config: Arc<ClientConfig>,
    address: &str,
    stream: S,
) -> Result<TlsStream<S>, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let name = server_name(address)
        .ok_or_else(|| HandshakeError::Address { address: address.to_owned() })?;
    let connected = TlsConnector::from(config).connect(name, stream).await;
    connected.map_err(|error| explain(address, error))
}

/// The identity in the other end's certificate.
fn identity_of<S>(stream: &TlsStream<S>) -> PeerIdentity {
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    shown.map_or(PeerIdentity::Anonymous, |der| PeerIdentity::from_certificate(der))
}

/// The host of `host:port`, without the brackets of an IPv6 address.
fn server_name(address: &str) -> Option<ServerName<'static>> {
    let (host, _) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(host.to_owned()).ok()
}

/// The TLS alert by which the other end rejected this end's certificate, or demanded one, if that caused
/// an error of reading or writing. With TLS 1.3, a client may receive it only after its handshake.
pub fn own_certificate_refused(error: &io::Error) -> Option<String> {
    alert_of(error).map(|alert| format!("{alert:?}"))
}

/// The refusal of this end's certificate by `host:port`, if that caused an error of reading. A server receives a
/// client's certificate with the last message of a handshake of TLS 1.3, so that the refusal may come in place of the
/// first bytes.
#[must_use]
pub fn refused_after_handshake(address: &str, error: &io::Error) -> Option<HandshakeError> {
    let alert = alert_of(error)?;
    let why = match alert {
        // The second one comes from a node whose authority has the same name as that of the certificate.
        AlertDescription::UnknownCA | AlertDescription::DecryptError => format!(
            "it comes from another authority than those that {address} trusts (its tls_ca): one of both \
             has the wrong file, or this is another cluster ({alert:?})"
        ),
        AlertDescription::CertificateExpired => {
            format!("it has expired, or is of the future, by the clock there ({alert:?})")
        }
        _ => format!("{alert:?}"),
    };
    Some(HandshakeError::OwnRefused { address: address.to_owned(), why })
}

/// The alert about this end's certificate that caused an error.
fn alert_of(error: &io::Error) -> Option<AlertDescription> {
    match error.get_ref()?.downcast_ref::<Refusal>()? {
        Refusal::AlertReceived(alert) if is_about_certificate(*alert) => Some(*alert),
        _ => None,
    }
}

fn explain(address: &str, error: io::Error) -> HandshakeError {
    if let Some(refused) = refused_after_handshake(address, &error) {
        return refused;
    }
    let address = address.to_owned();
    let refusal = error.get_ref().and_then(|inner| inner.downcast_ref::<Refusal>());
    match refusal {
        Some(Refusal::InvalidMessage(_)) => HandshakeError::NoTls { address },
        // A plain HTTP/2 server closes the connection when it gets no HTTP/2 preface.
        None if hung_up(&error) => HandshakeError::NoTls { address },
        Some(Refusal::InvalidCertificate(why)) => match why {
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                HandshakeError::OtherName { address }
            }
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                HandshakeError::OtherAuthority { address }
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                HandshakeError::NotNow { address, why: "it expired" }
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                HandshakeError::NotNow { address, why: "it is of the future" }
            }
            _ => HandshakeError::Other { address, source: error },
        },
        _ => HandshakeError::Other { address, source: error },
    }
}

fn hung_up(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

fn is_about_certificate(alert: AlertDescription) -> bool {
    use AlertDescription as A;
    matches!(
        alert,
        A::BadCertificate
            | A::UnsupportedCertificate
            | A::CertificateRevoked
            | A::CertificateExpired
            | A::CertificateUnknown
            | A::UnknownCA
            | A::CertificateRequired
            | A::DecryptError
    )
}

fn client_config(files: &TlsFiles, loaded: Loaded) -> Result<ClientConfig, TlsError> {
    let mut config = config_of(loaded.roots, files.pair.as_ref().zip(loaded.pair))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// A client's configuration with these trusted authorities and, if given, this certificate.
pub(crate) fn config_of(
    roots: Arc<RootCertStore>,
    pair: Option<(&KeyPairFiles, KeyPair)>,
) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = match pair {
        Some((files, pair)) => builder
            .with_client_auth_cert(pair.chain, pair.key)
            .map_err(|error| files.refused(error))?,
        None => builder.with_no_client_auth(),
    };
    // The servers of this crate do not resume sessions.
    config.resumption = Resumption::disabled();
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_addresses_are_names() {
        for address in ["node-1:7300", "127.0.0.1:7300", "[::1]:7300"] {
            assert!(server_name(address).is_some(), "{address}");
        }
        for address in ["node-1", "", ":7300", "a b:1"] {
            assert!(server_name(address).is_none(), "{address}");
        }
    }
}
