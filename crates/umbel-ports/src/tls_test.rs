//! Encrypted connections over loopback.

use std::fs;
use std::path::PathBuf;
use std::task::{Context, Waker};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use umbel_tls::{Authority, NodeIdentity, PeerIdentity, Pem, Subject};

use super::*;
use crate::RealNet;
use crate::connections::HANDSHAKES_MAX;

struct Certificates {
    folder: TempDir,
    authority: Authority,
}

impl Certificates {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let (authority, own) = Authority::new("test", 1).unwrap();
        fs::write(folder.path().join("ca.pem"), &own.certificate).unwrap();
        Self { folder, authority }
    }

    fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    fn pair(&self, name: &str) -> KeyPairFiles {
        let subject = Subject::Node { hosts: vec!["127.0.0.1".to_owned()] };
        self.put(name, &self.authority.issue(&subject, 1).unwrap())
    }

    fn put(&self, name: &str, pem: &Pem) -> KeyPairFiles {
        let file = |ending: &str| self.folder.path().join(format!("{name}.{ending}"));
        fs::write(file("pem"), &pem.certificate).unwrap();
        fs::write(file("key"), &pem.key).unwrap();
        KeyPairFiles { certificate: file("pem"), key: file("key") }
    }

    fn net(&self, takes_plain: bool) -> TlsNet {
        TlsNet::open(&self.ca(), &self.pair("node"), takes_plain).unwrap()
    }
}

/// Sends a byte there and back, and returns the identity that the listener assigned to the caller.
async fn ask(listener: &mut dyn Listener, from: &dyn Net) -> io::Result<PeerIdentity> {
    let address = listener.local_address();
    let serving = async {
        let mut taken = listener.accept().await?;
        let byte = taken.stream.read_u8().await?;
        taken.stream.write_u8(byte).await?;
        taken.stream.flush().await?;
        Ok(taken.identity)
    };
    let asking = async {
        let mut stream = from.connect(&address).await?;
        stream.write_u8(7).await?;
        stream.flush().await?;
        assert_eq!(stream.read_u8().await?, 7);
        io::Result::Ok(())
    };
    // A listener continues to wait after a caller failed.
    tokio::select! {
        served = serving => served,
        Err(error) = asking => Err(error),
    }
}

#[tokio::test]
async fn nodes_know_each_other() {
    let certificates = Certificates::new();
    let net = certificates.net(false);
    let mut listener = net.listen("127.0.0.1:0").await.unwrap();
    assert_eq!(ask(&mut *listener, &net).await.unwrap(), PeerIdentity::Node);
}

/// It had all rights of its certificate until it ended by itself.
#[tokio::test]
async fn a_connection_ends_with_the_certificate_that_it_has_shown() {
    let certificates = Certificates::new();
    let net = certificates.net(false);
    let mut listener = net.listener("127.0.0.1:0", ConnectionSlots::new(16)).await.unwrap();
    let address = listener.local_address();
    let (taken, called) = tokio::join!(listener.accept(), net.connect(&address));
    let (taken, _called) = (taken.unwrap(), called.unwrap());
    let connection = taken.slot.as_ref().unwrap().connection().clone();
    let context = Context::from_waker(Waker::noop());
    let is_ended = || connection.poll_ended(&context).is_ready();
    let now_s = RealSeed.wall_ms() / 1000;
    listener.end_expired(now_s);
    assert!(!is_ended());
    // Certificates of tests are valid for a day.
    listener.end_expired(now_s + 2 * 86_400);
    assert!(is_ended() && listener.dated.is_empty());

    let (taken, called) = tokio::join!(listener.accept(), net.connect(&address));
    let _called = called.unwrap();
    assert_eq!(listener.dated.len(), 1);
    drop(taken.unwrap());
    listener.end_expired(now_s);
    assert!(listener.dated.is_empty(), "what is closed is forgotten");
}

#[tokio::test]
async fn who_shows_to_be_another_node_is_not_called() {
    let certificates = Certificates::new();
    let seventh = NodeIdentity { cluster: 1, node: 7 };
    let subject = |identity| Subject::Member { identity, hosts: vec!["127.0.0.1".to_owned()] };
    let pem = certificates.authority.issue(&subject(seventh), 1).unwrap();
    let net = TlsNet::open(&certificates.ca(), &certificates.put("7", &pem), false).unwrap();
    let mut listener = net.listen("127.0.0.1:0").await.unwrap();
    assert_eq!(ask(&mut *listener, &net).await.unwrap(), PeerIdentity::Member(seventh));

    let address = listener.local_address();
    let generic = certificates.net(false);
    let calls = async {
        assert!(generic.connect_node(&address, seventh).await.is_ok());
        for wanted in [NodeIdentity { node: 8, ..seventh }, NodeIdentity { cluster: 2, ..seventh }]
        {
            let text = generic.connect_node(&address, wanted).await.err().unwrap().to_string();
            assert!(text.contains(&seventh.to_string()), "{text}");
            assert!(text.contains(&format!("{wanted} was called")), "{text}");
        }
    };
    tokio::select! {
        () = calls => {}
        () = async { while listener.accept().await.is_ok() {} } => panic!("it stopped listening"),
    }
    // A server whose certificate names no particular node may be any.
    let mut listener = generic.listen("127.0.0.1:0").await.unwrap();
    let address = listener.local_address();
    let (taken, called) = tokio::join!(listener.accept(), net.connect_node(&address, seventh));
    assert_eq!(taken.unwrap().identity, PeerIdentity::Member(seventh));
    assert!(called.is_ok());
}

#[tokio::test]
async fn one_who_says_nothing_keeps_nobody_waiting() {
    let certificates = Certificates::new();
    let net = certificates.net(false);
    let mut listener = net.listen("127.0.0.1:0").await.unwrap();
    let _silent = RealNet.connect(&listener.local_address()).await.unwrap();
    assert_eq!(ask(&mut *listener, &net).await.unwrap(), PeerIdentity::Node);
}

/// The silent ones do not go by themselves: but for the oldest, which has to make room, they are still
/// connected when the client has its answer.
#[tokio::test]
async fn many_who_say_nothing_keep_nobody_out() {
    let certificates = Certificates::new();
    let net = certificates.net(false);
    let slots = ConnectionSlots::new(2 * HANDSHAKES_MAX);
    let mut listener = net.listener("127.0.0.1:0", slots).await.unwrap();
    let mut silent = Vec::new();
    for _ in 0..HANDSHAKES_MAX {
        let address = listener.local_address();
        // The system's queue may be shorter, so they are taken while they connect.
        tokio::select! {
            connected = TcpStream::connect(address) => silent.push(connected.unwrap()),
            _ = listener.accept() => panic!("nobody has proved anything"),
        }
    }
    assert_eq!(ask(&mut listener, &net).await.unwrap(), PeerIdentity::Node);
    let mut byte = [0];
    assert_eq!(silent[0].read(&mut byte).await.unwrap(), 0, "the oldest is closed");
    for stream in &silent[1..] {
        let error = stream.try_read(&mut byte).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "only the oldest is closed");
    }
}

#[tokio::test]
async fn who_speaks_no_tls_is_served_only_where_it_is_optional() {
    let certificates = Certificates::new();
    let mut strict = certificates.net(false).listen("127.0.0.1:0").await.unwrap();
    assert!(ask(&mut *strict, &RealNet).await.is_err());

    let mut open = certificates.net(true).listen("127.0.0.1:0").await.unwrap();
    assert_eq!(ask(&mut *open, &RealNet).await.unwrap(), PeerIdentity::Unchecked);
    assert_eq!(ask(&mut *open, &certificates.net(false)).await.unwrap(), PeerIdentity::Node);
}

#[tokio::test]
async fn a_node_that_speaks_none_is_called_only_where_it_is_optional() {
    let certificates = Certificates::new();
    let mut plain = RealNet.listen("127.0.0.1:0").await.unwrap();
    let address = plain.local_address();
    // A node without TLS hangs up at a hello that is not HTTP/2.
    let hanging_up = async {
        drop(plain.accept().await.unwrap());
        plain
    };
    let strict = certificates.net(false);
    let (mut plain, connected) = tokio::join!(hanging_up, strict.connect(&address));
    let text = connected.err().unwrap().to_string();
    assert!(text.contains("does not speak TLS"), "{text}");

    let open = certificates.net(true);
    let accepting = async {
        drop(plain.accept().await.unwrap());
        plain.accept().await.unwrap()
    };
    let (taken, connected) = tokio::join!(accepting, open.connect(&address));
    connected.unwrap().write_u8(7).await.unwrap();
    let mut stream = taken.stream;
    assert_eq!(stream.read_u8().await.unwrap(), 7);
}

#[tokio::test]
async fn a_stranger_is_turned_away_and_the_next_one_served() {
    let (certificates, strangers) = (Certificates::new(), Certificates::new());
    let net = certificates.net(false);
    let mut listener = net.listen("127.0.0.1:0").await.unwrap();
    // The stranger trusts this authority, but shows a certificate of another one.
    let stranger = TlsNet::open(&certificates.ca(), &strangers.pair("node"), false).unwrap();
    assert!(ask(&mut *listener, &stranger).await.is_err());
    assert_eq!(ask(&mut *listener, &net).await.unwrap(), PeerIdentity::Node);
}

#[tokio::test(start_paused = true)]
async fn replaced_certificates_are_taken_while_it_listens() {
    let certificates = Certificates::new();
    let net = certificates.net(false);
    let mut listener = net.listen("127.0.0.1:0").await.unwrap();
    let before = net.server.expires_at();
    let subject = Subject::Node { hosts: vec!["127.0.0.1".to_owned()] };
    let next = certificates.authority.issue(&subject, 9).unwrap();
    fs::write(certificates.folder.path().join("node.pem"), &next.certificate).unwrap();
    fs::write(certificates.folder.path().join("node.key"), &next.key).unwrap();
    // Without a connection, the listener checks the files by itself.
    let waited = tokio::time::timeout(2 * RELOAD_INTERVAL, listener.accept()).await;
    assert!(waited.is_err());
    assert!(net.server.expires_at() > before);
}
