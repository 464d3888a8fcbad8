//! Both ends against each other, with right and wrong certificates.

use std::fs;
use std::path::PathBuf;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::*;

/// An authority with its files in a temporary folder.
struct Files {
    folder: TempDir,
    authority: Authority,
}

impl Files {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let (authority, own) = Authority::new("test", 1).unwrap();
        fs::write(folder.path().join("ca.pem"), &own.certificate).unwrap();
        Self { folder, authority }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, name: &str, pem: &Pem) -> KeyPairFiles {
        let (certificate, key) =
            (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        fs::write(&certificate, &pem.certificate).unwrap();
        fs::write(&key, &pem.key).unwrap();
        KeyPairFiles { certificate, key }
    }

    fn node(&self, name: &str) -> KeyPairFiles {
        self.put(name, &self.authority.issue(&node("node-1"), 1).unwrap())
    }

    fn server(&self) -> ServerTls {
        ServerTls::open(&self.path("ca.pem"), self.node("server")).unwrap()
    }

    fn client(&self, pair: Option<KeyPairFiles>) -> ClientTls {
        ClientTls::open(TlsFiles { ca: self.path("ca.pem"), pair }).unwrap()
    }

    fn alice(&self) -> KeyPairFiles {
        self.put("alice", &self.authority.issue(&alice(), 1).unwrap())
    }
}

fn node(host: &str) -> Subject {
    Subject::Node { hosts: vec![host.to_owned(), "10.0.0.1".to_owned(), "::1".to_owned()] }
}

fn alice() -> Subject {
    Subject::Client { name: "alice".to_owned() }
}

/// The client's identity as the server sees it, and the byte that the client gets back.
async fn meet(
    server: &ServerTls,
    client: &ClientTls,
    address: &str,
) -> (std::io::Result<PeerIdentity>, Result<u8, HandshakeError>) {
    let (here, there) = duplex(1 << 16);
    let serving = async {
        let (mut stream, identity) = server.accept(there).await?;
        let byte = stream.read_u8().await?;
        stream.write_u8(byte + 1).await?;
        stream.flush().await?;
        Ok(identity)
    };
    let asking = async {
        let mut stream = client.connect(address, here).await?;
        let io = |source| HandshakeError::Other { address: address.to_owned(), source };
        stream.write_u8(6).await.map_err(io)?;
        stream.read_u8().await.map_err(io)
    };
    tokio::join!(serving, asking)
}

#[tokio::test]
async fn both_ends_know_each_other() {
    let files = Files::new();
    let server = files.server();
    let cases = [
        (Some(files.node("other")), PeerIdentity::Node),
        (Some(files.alice()), PeerIdentity::Client("alice".into())),
        (None, PeerIdentity::Anonymous),
    ];
    for (pair, expected) in cases {
        let client = files.client(pair);
        for address in ["node-1:7300", "10.0.0.1:1", "[::1]:7300"] {
            let (identity, byte) = meet(&server, &client, address).await;
            assert_eq!(identity.unwrap(), expected, "{address}");
            assert_eq!(byte.unwrap(), 7, "{address}");
        }
    }
}

#[tokio::test]
async fn a_certificate_of_another_name_or_authority_is_refused() {
    let files = Files::new();
    let server = files.server();
    let client = files.client(Some(files.alice()));
    for address in ["node-2:7300", "10.0.0.2:7300", "localhost:1"] {
        let (served, asked) = meet(&server, &client, address).await;
        assert!(served.is_err());
        assert!(matches!(asked, Err(HandshakeError::OtherName { .. })), "{address}: {asked:?}");
    }
    let stranger = Files::new();
    let (_, asked) = meet(&server, &stranger.client(None), "node-1:1").await;
    assert!(matches!(asked, Err(HandshakeError::OtherAuthority { .. })), "{asked:?}");
}

#[tokio::test]
async fn a_client_of_another_authority_or_of_yesterday_is_refused() {
    let files = Files::new();
    let server = files.server();
    let stranger = Files::new();
    let (served, asked) = meet(&server, &files.client(Some(stranger.alice())), "node-1:1").await;
    assert!(served.is_err());
    let Err(HandshakeError::Other { source, .. }) = asked else { panic!("{asked:?}") };
    let refused = refused_after_handshake("node-1:1", &source).unwrap();
    assert!(matches!(refused, HandshakeError::OwnRefused { .. }), "{refused}");
    let said = refused.to_string();
    assert!(said.starts_with(&format!("node-1:1 {OWN_REFUSED}: ")), "{said}");
    assert!(said.contains("another authority than those that node-1:1 trusts"), "{said}");
    let hung_up = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    assert!(refused_after_handshake("node-1:1", &hung_up).is_none());

    // An expired certificate is refused when it is loaded.
    let old = files.put("old", &files.authority.issue_expired(&alice()).unwrap());
    let open = ClientTls::open(TlsFiles { ca: files.path("ca.pem"), pair: Some(old) });
    let Err(TlsError::Expired { file, .. }) = open else { panic!("it is taken") };
    assert_eq!(file, files.path("old.pem"));
}

#[tokio::test]
async fn a_nodes_certificate_of_yesterday_is_not_shown() {
    let files = Files::new();
    let old = files.put("old", &files.authority.issue_expired(&node("node-1")).unwrap());
    let open = ServerTls::open(&files.path("ca.pem"), old);
    assert!(matches!(open, Err(TlsError::Expired { .. })));
}

#[tokio::test]
async fn a_peer_without_tls_is_recognized() {
    let files = Files::new();
    let client = files.client(None);
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b""] {
        let (here, mut there) = duplex(1 << 16);
        there.write_all(answer).await.unwrap();
        drop(there);
        let asked = client.connect("node-1:1", here).await;
        assert!(matches!(asked, Err(HandshakeError::NoTls { .. })), "{:?}", asked.err());
    }
    let (mut here, there) = duplex(1 << 16);
    here.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    assert!(files.server().accept(there).await.is_err());
}

#[tokio::test]
async fn replaced_files_are_taken_and_damaged_ones_are_not() {
    let files = Files::new();
    let server = files.server();
    let client = files.client(Some(files.alice()));
    assert!(!server.refresh().unwrap());

    let moved = files.authority.issue(&node("node-9"), 2).unwrap();
    let before = server.expires_at().unwrap();
    files.put("server", &moved);
    assert!(server.refresh().unwrap());
    assert!(server.expires_at().unwrap() > before);
    assert!(meet(&server, &client, "node-9:1").await.1.is_ok());
    assert!(meet(&server, &client, "node-1:1").await.1.is_err());

    fs::write(files.path("server.pem"), "torn").unwrap();
    let error = server.refresh().unwrap_err();
    assert!(matches!(error, TlsError::Missing { .. }), "{error}");
    assert!(error.to_string().contains("server.pem"), "{error}");
    assert!(!server.refresh().unwrap(), "it is said once");
    assert!(meet(&server, &client, "node-9:1").await.1.is_ok(), "the old one stays in use");
}

#[test]
fn files_that_do_not_fit_are_named() {
    let files = Files::new();
    let (ours, theirs) = (files.node("ours"), files.node("theirs"));
    let ca = files.path("ca.pem");
    let mixed = KeyPairFiles { key: theirs.key, ..ours.clone() };
    let error = ServerTls::open(&ca, mixed).err().unwrap();
    assert!(matches!(error, TlsError::KeyMismatch { .. }), "{error}");

    let swapped = KeyPairFiles { certificate: ours.key.clone(), key: ours.certificate.clone() };
    let error = ServerTls::open(&ca, swapped).err().unwrap();
    assert!(matches!(error, TlsError::Missing { expected: "certificate", .. }), "{error}");

    let none = KeyPairFiles { key: files.path("none"), ..ours.clone() };
    let error = ServerTls::open(&ca, none).err().unwrap();
    assert!(matches!(error, TlsError::Read { .. }), "{error}");

    let error = ServerTls::open(&ca, files.alice()).err().unwrap();
    assert!(matches!(&error, TlsError::OfClient { name, .. } if name == "alice"), "{error}");

    let torn = fs::read_to_string(&ours.certificate).unwrap().replace("M", "*");
    fs::write(files.path("torn.pem"), torn).unwrap();
    let torn = KeyPairFiles { certificate: files.path("torn.pem"), ..ours };
    let error = ServerTls::open(&ca, torn).err().unwrap();
    assert!(matches!(error, TlsError::Pem { .. }), "{error}");
}

/// The result of a handshake between a server and a client that knows the authority by a pin.
async fn meet_pinned(
    server: &ServerTls,
    pins: Vec<AuthorityPin>,
    address: &str,
) -> Result<(), HandshakeError> {
    let (here, there) = duplex(1 << 16);
    let client = PinnedTls::new(pins).unwrap();
    let (_, met) = tokio::join!(server.accept(there), client.connect(address, here));
    met.map(drop)
}

#[tokio::test]
async fn an_authority_is_known_by_its_pin_alone() {
    let (files, strangers) = (Files::new(), Files::new());
    let pins = AuthorityPin::of_file(&files.path("ca.pem")).unwrap();
    let theirs = AuthorityPin::of_file(&strangers.path("ca.pem")).unwrap();
    assert!(pins.len() == 1 && pins != theirs);
    let server = files.server();
    assert!(meet_pinned(&server, pins.clone(), "node-1:7300").await.is_ok());
    let both = [theirs.clone(), pins.clone()].concat();
    assert!(meet_pinned(&server, both, "10.0.0.1:7300").await.is_ok());
    let met = meet_pinned(&server, pins.clone(), "node-2:7300").await;
    assert!(matches!(met, Err(HandshakeError::OtherName { .. })), "{met:?}");
    let met = meet_pinned(&server, theirs, "node-1:7300").await;
    assert!(matches!(met, Err(HandshakeError::OtherPin { .. })), "{met:?}");
    // A stranger that appends the right authority's certificate to its own chain.
    let own = strangers.authority.issue(&node("node-1"), 1).unwrap();
    let ca = fs::read_to_string(files.path("ca.pem")).unwrap();
    let chain = Pem { certificate: format!("{}{ca}", own.certificate), key: own.key };
    let eve = ServerTls::open(&strangers.path("ca.pem"), strangers.put("eve", &chain)).unwrap();
    let met = meet_pinned(&eve, pins, "node-1:7300").await;
    assert!(matches!(met, Err(HandshakeError::OtherPin { .. })), "{met:?}");
}

#[test]
fn a_certificate_is_for_the_hosts_that_it_names() {
    let files = Files::new();
    let own = files.node("server").certificate;
    for (host, is_named) in [
        ("node-1", true),
        ("10.0.0.1", true),
        ("::1", true),
        ("node-2", false),
        ("10.0.0.2", false),
        ("a b", false),
    ] {
        assert_eq!(names_host(&own, host).unwrap(), is_named, "{host}");
    }
    assert!(names_host(&files.path("gone.pem"), "node-1").is_err());
}

#[test]
fn a_nodes_certificate_comes_from_the_authority_that_others_trust() {
    let (files, strangers) = (Files::new(), Files::new());
    let why = |file: PathBuf| why_refused(&files.path("ca.pem"), &file).unwrap();
    assert_eq!(why(files.node("server").certificate), None);
    let theirs = why(strangers.node("server").certificate).unwrap();
    assert!(theirs.starts_with("is signed by no authority of "), "{theirs}");
    let authority = why(files.path("ca.pem")).unwrap();
    assert!(authority.starts_with("is an authority's own"), "{authority}");
    let client = why(files.alice().certificate).unwrap();
    assert!(client.starts_with("lacks the usage of servers"), "{client}");
    assert!(why_refused(&files.path("ca.pem"), &files.path("gone.pem")).is_err());
    // While an authority takes over from another one, both are trusted.
    let ca = |files: &Files| fs::read_to_string(files.path("ca.pem")).unwrap();
    fs::write(files.path("both.pem"), ca(&strangers) + &ca(&files)).unwrap();
    for own in [files.node("server"), strangers.node("server")] {
        assert_eq!(why_refused(&files.path("both.pem"), &own.certificate).unwrap(), None);
    }
}

#[test]
fn a_request_gets_no_more_than_the_signer_gives() {
    let files = Files::new();
    let (authority, own) = Authority::new("signer", 9).unwrap();
    let ca = fs::read_to_string(files.path("ca.pem")).unwrap();
    fs::write(files.path("both.pem"), format!("{ca}{}", own.certificate)).unwrap();
    fs::write(files.path("ca.key"), &own.key).unwrap();
    let signer = NodeSigner::open(&files.path("both.pem"), &files.path("ca.key")).unwrap();
    let wrong = NodeSigner::open(&files.path("ca.pem"), &files.path("ca.key"));
    assert!(matches!(wrong, Err(RequestError::OtherKey { .. })));
    fs::write(files.path("none.key"), "no key").unwrap();
    let none = NodeSigner::open(&files.path("both.pem"), &files.path("none.key"));
    let said = none.err().unwrap().to_string();
    assert!(said.contains("none.key: not a key that can be used: "), "{said}");

    let request = CertificateRequest::generate().unwrap();
    let again = CertificateRequest::read(&request.key()).unwrap();
    let der = again.der("node-1").unwrap();
    let identity = NodeIdentity { cluster: 5, node: 3 };
    let (certificate, authorities) = signer.sign(&der, identity, "node-1", 1).unwrap();
    assert_eq!(authorities.matches("BEGIN").count(), 2);
    let pair = files.put("issued", &Pem { certificate, key: request.key() });
    assert!(ServerTls::open(&files.path("both.pem"), pair).is_ok());
    assert!(authority.sign_request(&der, identity, "node-1", 1).is_ok());

    let foreign = signer.check(&again.der("node-2").unwrap(), "node-1");
    assert!(matches!(foreign, Err(RequestError::ForeignName { .. })), "{foreign:?}");
    let mut torn = der.clone();
    *torn.last_mut().unwrap() ^= 1;
    for broken in [torn, der[1..].to_vec(), vec![], vec![0x30; 10_000]] {
        let checked = signer.check(&broken, "node-1");
        assert!(matches!(checked, Err(RequestError::Broken(_))), "{checked:?}");
    }
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let other = rcgen::CertificateParams::default().serialize_request(&key).unwrap();
    let checked = signer.check(other.der(), "node-1");
    assert!(matches!(checked, Err(RequestError::Key)), "{checked:?}");
    // The request cannot choose the identity.
    let mut params = rcgen::CertificateParams::default();
    let uri = rcgen::string::Ia5String::try_from("umbel:node").unwrap();
    params.subject_alt_names = vec![rcgen::SanType::URI(uri)];
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::from_pem(&request.key()).unwrap();
    let bold = params.serialize_request(&key).unwrap();
    let (certificate, _) = signer.sign(bold.der(), identity, "node-1", 1).unwrap();
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    assert_eq!(PeerIdentity::from_certificate(&der), PeerIdentity::Member(identity));
    let (_, parsed) = X509Certificate::from_der(&der).unwrap();
    assert!(!parsed.is_ca());
}

#[test]
fn an_authority_is_read_again_and_names_are_checked() {
    let (_, own) = Authority::new("again", 1).unwrap();
    let again = Authority::read(&own).unwrap();
    assert!(again.issue(&alice(), 1).is_ok());
    for hosts in [vec![], vec!["a:1".to_owned()], vec!["a b".to_owned()]] {
        assert!(again.issue(&Subject::Node { hosts: hosts.clone() }, 1).is_err(), "{hosts:?}");
    }
    for name in ["", "a b", "a/b", "ä"] {
        assert!(again.issue(&Subject::Client { name: name.to_owned() }, 1).is_err(), "{name:?}");
    }
    for days in [0, DAYS_TOO_MANY] {
        assert!(matches!(again.issue(&alice(), days), Err(AuthorityError::Days { .. })));
    }
    let swapped = Pem { certificate: own.key.clone(), key: own.certificate };
    assert!(matches!(Authority::read(&swapped), Err(AuthorityError::Own(_))));
}

/// One day more than a hundred years.
const DAYS_TOO_MANY: u32 = 36_526;
