//! TLS towards servers that are no nodes, as one that speaks the Redis protocol.

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::client::{ClientConfig, Resumption};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::client::TlsStream;

use crate::client::{HandshakeError, handshake};
use crate::error::TlsError;
use crate::files::{certificates, roots};

/// Makes connections to servers that somebody else's authority vouches for, and shows no certificate.
pub struct ForeignTls {
    config: Arc<ClientConfig>,
}

/// Nothing vouches for servers.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrustError {
    /// The file with the authority's certificate cannot be used. Name the right one.
    #[error(transparent)]
    File(#[from] TlsError),
    /// This machine trusts nobody. Install its certificates, or name a file of them.
    #[error("this machine has no certificates to trust: install them, or name a file of them")]
    NoCertificates {
        /// What was wrong with the first one that could not be read.
        #[source]
        first: Option<rustls_native_certs::Error>,
    },
}

impl ForeignTls {
    /// Servers whose certificates come from an authority of the file, or, without one, from those that this machine
    /// trusts.
    ///
    /// # Errors
    /// If the file cannot be used; if this machine trusts nobody.
    pub fn open(ca: Option<&Path>) -> Result<Self, TrustError> {
        let roots = match ca {
            Some(ca) => roots(ca, &certificates(ca)?)?,
            None => Arc::new(system_roots()?),
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::from)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config) })
    }

    /// Has the other end of a connection that was made to `host:port` prove itself.
    ///
    /// # Errors
    /// If it speaks no TLS, or is not whom the address names. Nothing of what was to be said has left this machine.
    pub async fn connect<S>(&self, address: &str, stream: S) -> Result<TlsStream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        handshake(Arc::clone(&self.config), address, stream).await
    }
}

/// Those that this machine trusts: what cannot be read among them is left out.
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
    use crate::{Authority, KeyPairFiles, ServerTls, Subject};
    use std::fs;
    use tempfile::TempDir;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    /// A folder with an authority's certificate, and a server that it has signed.
    fn server() -> (TempDir, ServerTls) {
        let folder = TempDir::new().unwrap();
        let put = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let (authority, own) = Authority::new("test", 1).unwrap();
        let ca = put("ca.pem", &own.certificate);
        let subject = Subject::Node { hosts: vec!["redis-1".to_owned()] };
        let pem = authority.issue(&subject, 1).unwrap();
        let (certificate, key) = (put("own.pem", &pem.certificate), put("own.key", &pem.key));
        let server = ServerTls::open(&ca, KeyPairFiles { certificate, key }).unwrap();
        (folder, server)
    }

    #[tokio::test]
    async fn who_trusts_the_authority_is_connected_to_the_name_that_it_signed() {
        let (folder, server) = server();
        let client = ForeignTls::open(Some(&folder.path().join("ca.pem"))).unwrap();
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
        let client = ForeignTls::open(Some(&other.path().join("ca.pem"))).unwrap();
        let (here, there) = duplex(4096);
        let (refused, _) = tokio::join!(client.connect("redis-1:6379", here), server.accept(there));
        assert!(matches!(refused, Err(HandshakeError::OtherAuthority { .. })));
    }

    #[tokio::test]
    async fn a_server_without_tls_is_recognized() {
        let (folder, _) = server();
        let client = ForeignTls::open(Some(&folder.path().join("ca.pem"))).unwrap();
        let (here, mut there) = duplex(4096);
        there.write_all(b"-ERR Protocol error\r\n").await.unwrap();
        let refused = client.connect("redis-1:6379", here).await;
        assert!(matches!(refused, Err(HandshakeError::NoTls { .. })));
        let missing = ForeignTls::open(Some(&folder.path().join("none.pem")));
        assert!(matches!(missing, Err(TrustError::File(TlsError::Read { .. }))));
    }
}
