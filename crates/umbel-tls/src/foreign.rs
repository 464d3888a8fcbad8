//! TLS to servers that are not nodes, such as a server that speaks the Redis protocol.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::client::ClientConfig;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::client::TlsStream;

use crate::client::{HandshakeError, config_of, handshake};
use crate::clock::now;
use crate::error::TlsError;
use crate::files::{KeyPairFiles, certificates, roots};

/// Makes TLS connections to servers whose certificates come from authorities outside of the cluster.
pub struct ForeignTls {
    config: Arc<ClientConfig>,
}

/// Certificate files for such servers, all in PEM.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ForeignFiles {
    /// Certificates of the authorities that servers' certificates must come from; without, those of this
    /// machine.
    pub ca: Option<PathBuf>,
    /// The certificate and key for servers that ask for a client certificate.
    pub pair: Option<KeyPairFiles>,
}

/// Why there is no trust in servers, or no certificate for this end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrustError {
    /// A file cannot be used. Name the right one.
    #[error(transparent)]
    File(#[from] TlsError),
    /// This machine has no trusted authorities. Install them, or name a file of certificates.
    #[error("this machine has no certificates to trust: install them, or name a file of them")]
    NoCertificates {
        /// The first error of loading this machine's certificates, if any.
        #[source]
        first: Option<rustls_native_certs::Error>,
    },
}

impl ForeignTls {
    /// Trusts the authorities in the file or, without one, those of this machine. The client certificate,
    /// if given, is presented to servers that ask for one.
    ///
    /// # Errors
    /// If a file cannot be used; if this machine has no trusted authorities.
    pub fn open(files: &ForeignFiles) -> Result<Self, TrustError> {
        let roots = match &files.ca {
            Some(ca) => roots(ca, &certificates(ca)?)?,
            None => Arc::new(system_roots()?),
        };
        let pair = match &files.pair {
            Some(names) => Some((names, names.load(now())?)),
            None => None,
        };
        let config = config_of(roots, pair)?;
        Ok(Self { config: Arc::new(config) })
    }

    /// Performs the handshake on a connection to `host:port`.
    ///
    /// # Errors
    /// If the other end speaks no TLS, or is not the host of the address. No data of the application was
    /// sent.
    pub async fn connect<S>(&self, address: &str, stream: S) -> Result<TlsStream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        handshake(Arc::clone(&self.config), address, stream).await
    }
}

/// The authorities that this machine trusts; certificates that cannot be read are left out.
fn system_roots() -> Result<RootCertStore, TrustError> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);
    if roots.is_empty() {
        return Err(TrustError::NoCertificates { first: loaded.errors.into_iter().next() });
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Authority, PeerIdentity, ServerTls, Subject};
    use std::fs;
    use tempfile::TempDir;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    /// The files of the authority in a folder.
    fn of(folder: &TempDir) -> ForeignFiles {
        ForeignFiles { ca: Some(folder.path().join("ca.pem")), pair: None }
    }

    /// A folder with an authority's certificate, and a server with a certificate of that authority.
    fn server() -> (TempDir, ServerTls) {
        let folder = TempDir::new().unwrap();
        let put = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let (authority, own) = Authority::new("test", 1).unwrap();
        let ca = put("ca.pem", &own.certificate);
        let [node, client] = [
            Subject::Node { hosts: vec!["redis-1".to_owned()] },
            Subject::Client { name: "alice".to_owned() },
        ]
        .map(|subject| authority.issue(&subject, 1).unwrap());
        put("alice.pem", &client.certificate);
        put("alice.key", &client.key);
        let (certificate, key) = (put("own.pem", &node.certificate), put("own.key", &node.key));
        let server = ServerTls::open(&ca, KeyPairFiles { certificate, key }).unwrap();
        (folder, server)
    }

    #[tokio::test]
    async fn who_trusts_the_authority_is_connected_to_the_name_that_it_signed() {
        let (folder, server) = server();
        let client = ForeignTls::open(&of(&folder)).unwrap();
        let (here, there) = duplex(4096);
        let (connected, accepted) =
            tokio::join!(client.connect("redis-1:6379", here), server.accept(there));
        let (mut connected, (mut accepted, _)) = (connected.unwrap(), accepted.unwrap());
        connected.write_all(b"PING").await.unwrap();
        let mut got = [0; 4];
        accepted.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"PING");

        let (here, there) = duplex(4096);
        let (refused, _) = tokio::join!(client.connect("redis-2:6379", here), server.accept(there));
        assert!(matches!(refused, Err(HandshakeError::OtherName { .. })));
        let (other, _) = self::server();
        let client = ForeignTls::open(&of(&other)).unwrap();
        let (here, there) = duplex(4096);
        let (refused, _) = tokio::join!(client.connect("redis-1:6379", here), server.accept(there));
        assert!(matches!(refused, Err(HandshakeError::OtherAuthority { .. })));
    }

    #[tokio::test]
    async fn a_certificate_is_shown_where_there_is_one() {
        let (folder, server) = server();
        let [certificate, key] = ["alice.pem", "alice.key"].map(|name| folder.path().join(name));
        let pair = Some(KeyPairFiles { certificate, key });
        let alice = PeerIdentity::Client("alice".into());
        let shown = ForeignFiles { pair, ..of(&folder) };
        for (files, expected) in [(shown, alice), (of(&folder), PeerIdentity::Anonymous)] {
            let client = ForeignTls::open(&files).unwrap();
            let (here, there) = duplex(4096);
            let (connected, accepted) =
                tokio::join!(client.connect("redis-1:6379", here), server.accept(there));
            connected.unwrap();
            assert_eq!(accepted.unwrap().1, expected);
        }
    }

    #[tokio::test]
    async fn a_server_without_tls_is_recognized() {
        let (folder, _) = server();
        let client = ForeignTls::open(&of(&folder)).unwrap();
        let (here, mut there) = duplex(4096);
        there.write_all(b"-ERR Protocol error\r\n").await.unwrap();
        let refused = client.connect("redis-1:6379", here).await;
        assert!(matches!(refused, Err(HandshakeError::NoTls { .. })));
        let none = folder.path().join("none.pem");
        let pair = KeyPairFiles { certificate: none.clone(), key: none.clone() };
        let no_authority = ForeignFiles { ca: Some(none), pair: None };
        for files in [no_authority, ForeignFiles { pair: Some(pair), ..of(&folder) }] {
            let missing = ForeignTls::open(&files);
            assert!(matches!(missing, Err(TrustError::File(TlsError::Read { .. }))));
        }
    }
}
