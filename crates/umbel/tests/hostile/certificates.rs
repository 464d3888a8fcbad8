//! Certificates of a cluster, and others that its nodes must refuse.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, Issuer, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use umbel_client::KeyPairFiles;
use umbel_tls::{Authority, Pem, Subject};

use crate::frames::connect;
use crate::servers::Server;

const DAY: Duration = Duration::from_secs(86_400);

/// An authority, and a folder for its certificates.
pub(crate) struct Certificates {
    pub(crate) authority: Authority,
    own: Pem,
    folder: PathBuf,
}

/// The validity of a certificate.
#[derive(Clone, Copy)]
pub(crate) enum Life {
    Now,
    Over,
    ToCome,
}

impl Certificates {
    pub(crate) fn new(folder: &Path) -> Self {
        let (authority, own) = Authority::new("cluster", 1).unwrap();
        let folder = folder.join("certificates");
        fs::create_dir(&folder).unwrap();
        put(&folder.join("ca.pem"), &own.certificate);
        Self { authority, own, folder }
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// The paths of a certificate and its key.
    pub(crate) fn pair(&self, name: &str) -> KeyPairFiles {
        let file = |ending: &str| self.folder.join(format!("{name}.{ending}"));
        KeyPairFiles { certificate: file("pem"), key: file("key") }
    }

    /// Writes a certificate and its key to these paths, the key first.
    pub(crate) fn put(&self, name: &str, pem: &Pem) -> KeyPairFiles {
        let pair = self.pair(name);
        put(&pair.key, &pem.key);
        put(&pair.certificate, &pem.certificate);
        pair
    }

    /// A valid certificate for a node at this host.
    pub(crate) fn node(&self, host: &str) -> Pem {
        self.authority.issue(&Subject::Node { hosts: vec![host.to_owned()] }, 1).unwrap()
    }

    pub(crate) fn client(&self, name: &str) -> Pem {
        self.authority.issue(&Subject::Client { name: name.to_owned() }, 1).unwrap()
    }

    /// A client's certificate of this authority with any validity, even one that it would never issue.
    pub(crate) fn client_of(&self, name: &str, life: Life) -> Pem {
        let issuer = Issuer::from_ca_cert_pem(
            &self.own.certificate,
            KeyPair::from_pem(&self.own.key).unwrap(),
        );
        signed(&params(name, life), &issuer.unwrap())
    }

    /// A client's certificate that is signed by another client instead of an authority.
    pub(crate) fn client_by_client(&self, name: &str) -> Pem {
        let alice = self.client("alice");
        let key = KeyPair::from_pem(&alice.key).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&alice.certificate, key).unwrap();
        let made = signed(&params(name, Life::Now), &issuer);
        Pem { certificate: format!("{}{}", made.certificate, alice.certificate), ..made }
    }

    /// Sets a node's files.
    pub(crate) fn give(&self, node: &mut Server, pair: &KeyPairFiles) {
        node.set("UMBEL_TLS_CA", self.ca().to_str().unwrap());
        node.set("UMBEL_TLS_CERT", pair.certificate.to_str().unwrap());
        node.set("UMBEL_TLS_KEY", pair.key.to_str().unwrap());
    }

    /// A hostile client's connection with this certificate, whether or not the node accepts it later.
    pub(crate) async fn connect(&self, address: &str, shown: Option<&Pem>) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.own.certificate.as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match shown {
            Some(pem) => {
                let chain = CertificateDer::pem_slice_iter(pem.certificate.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(pem.key.as_bytes()).unwrap();
                config.with_client_auth_cert(chain.map(Result::unwrap).collect(), key).unwrap()
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let stream = connect(address).await;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
    }
}

/// A client's self-signed certificate.
pub(crate) fn self_signed(name: &str) -> Pem {
    let key = KeyPair::generate().unwrap();
    let certificate = params(name, Life::Now).self_signed(&key).unwrap();
    Pem { certificate: certificate.pem(), key: key.serialize_pem() }
}

/// Replaces a file atomically.
pub(crate) fn put(path: &Path, text: &str) {
    let aside = path.with_extension("aside");
    fs::write(&aside, text).unwrap();
    fs::rename(aside, path).unwrap();
}

fn params(name: &str, life: Life) -> CertificateParams {
    let mut params = CertificateParams::default();
    let uri = format!("umbel:client:{name}");
    params.subject_alt_names = vec![SanType::URI(uri.as_str().try_into().unwrap())];
    params.use_authority_key_identifier_extension = true;
    #[expect(clippy::disallowed_methods, reason = "certificates live by the clock of the machine")]
    let now = SystemTime::now();
    let (from, to) = match life {
        Life::Now => (now - DAY, now + DAY),
        Life::Over => (now - 2 * DAY, now - DAY),
        Life::ToCome => (now + DAY, now + 2 * DAY),
    };
    (params.not_before, params.not_after) = (from.into(), to.into());
    params
}

fn signed(params: &CertificateParams, issuer: &Issuer<'_, KeyPair>) -> Pem {
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    Pem { certificate: certificate.pem(), key: key.serialize_pem() }
}
