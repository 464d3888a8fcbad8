//! Connections between ends that share a secret, and attempts of ends that do not.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls::version::TLS12;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::pinned::{certified, client_config, nobody, server_config};
use crate::{
    Derived, Secret, SecretError, SecretReader, SecretRefusal, SecretTls, SecretUse, SecretWriter,
};

const TEXT: &str = "8f14e45fceea167a5a36dedd4bea2543";

/// Enough for two threads, even on a busy machine.
const WITHIN: Duration = Duration::from_secs(60);

fn derived(text: &str, secret_use: SecretUse) -> Derived {
    Secret::new(text).unwrap().derive(secret_use)
}

fn tls() -> SecretTls {
    SecretTls::new(&derived(TEXT, SecretUse::Job)).unwrap()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn keys(tls: &Derived) -> [Arc<CertifiedKey>; 2] {
    ["listener", "dialer"].map(|role| certified(&provider(), &tls.bytes(role)).unwrap())
}

/// The result at each end: that of the listener, then that of the dialer.
async fn meet(listener: &SecretTls, dialer: &SecretTls) -> [Result<u8, SecretRefusal>; 2] {
    let (here, there) = duplex(1 << 16);
    let serving = async {
        let mut stream = listener.accept(there).await?;
        let byte = stream.read_u8().await.map_err(SecretRefusal::of_io)?;
        stream.write_u8(byte + 1).await.map_err(SecretRefusal::of_io)?;
        stream.flush().await.map_err(SecretRefusal::of_io)?;
        Ok(byte)
    };
    let asking = async {
        let mut stream = dialer.connect(here).await?;
        stream.write_u8(6).await.map_err(SecretRefusal::of_io)?;
        stream.read_u8().await.map_err(SecretRefusal::of_io)
    };
    let (served, asked) = tokio::join!(serving, asking);
    [served, asked]
}

/// The listener's refusal of a stranger.
async fn accept(stranger: impl AsyncFnOnce(DuplexStream)) -> SecretRefusal {
    let (here, there) = duplex(1 << 20);
    let tls = tls();
    let (accepted, ()) = tokio::join!(tls.accept(there), stranger(here));
    accepted.expect_err("somebody let it in")
}

#[tokio::test]
async fn who_knows_the_secret_is_let_in() {
    let [served, asked] = meet(&tls(), &tls()).await;
    assert_eq!((served.unwrap(), asked.unwrap()), (6, 7));
}

#[tokio::test]
async fn another_secret_or_another_use_of_it_is_refused_by_both() {
    let other = TEXT.replace('8', "9");
    for wrong in [derived(&other, SecretUse::Job), derived(TEXT, SecretUse::Reconcile)] {
        let refused = meet(&tls(), &SecretTls::new(&wrong).unwrap()).await;
        for refused in refused {
            assert!(matches!(refused, Err(SecretRefusal::OtherSecret)), "{refused:?}");
        }
    }
}

#[tokio::test]
async fn a_key_that_is_shown_without_having_it_is_refused() {
    let provider = provider();
    let [listener, dialer] = keys(&derived(TEXT, SecretUse::Job));
    let [stranger, _] = keys(&derived(&TEXT.replace('8', "9"), SecretUse::Job));
    // The key that a listener has presented, with another private key for signatures.
    let borrowed = |shown: &CertifiedKey| {
        Arc::new(CertifiedKey::new(shown.cert.clone(), Arc::clone(&stranger.key)))
    };
    let server = server_config(&provider, borrowed(&listener), &dialer).unwrap();
    let impostor = SecretTls { server, ..tls() };
    let [_, asked] = meet(&impostor, &tls()).await;
    assert!(matches!(asked, Err(SecretRefusal::NotItsKey)), "{asked:?}");

    let client = client_config(&provider, borrowed(&dialer), &listener).unwrap();
    let [served, _] = meet(&tls(), &SecretTls { client, ..tls() }).await;
    assert!(matches!(served, Err(SecretRefusal::NotItsKey)), "{served:?}");

    // A listener's key cannot be used to connect, even by its owner.
    let client = client_config(&provider, Arc::clone(&listener), &listener).unwrap();
    let [served, _] = meet(&tls(), &SecretTls { client, ..tls() }).await;
    assert!(matches!(served, Err(SecretRefusal::OtherSecret)), "{served:?}");
}

#[tokio::test]
async fn a_peer_without_tls_or_one_that_hangs_up_is_recognized() {
    let plain = accept(async |mut stream| {
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    });
    let refused = plain.await;
    let text = refused.to_string();
    let why = text.strip_prefix("it speaks no TLS, so it was not given the secret (");
    assert!(why.is_some_and(|why| why.len() > 1), "{text}");
    let refused = accept(async |stream| drop(stream)).await;
    assert!(matches!(refused, SecretRefusal::Broken(_)) && !refused.is_final(), "{refused:?}");
}

#[tokio::test]
async fn messages_are_not_waited_for_beyond_what_a_handshake_has() {
    let refused = accept(async |mut stream| {
        // A hello of 16 MiB, in records of 16 KiB: the listener stops reading after the first ones.
        let mut record = vec![22, 3, 1, 0x40, 0];
        record.extend([1, 0xff, 0xff, 0xff]);
        record.resize(5 + (16 << 10), 0);
        stream.write_all(&record).await.unwrap();
    });
    let refused = tokio::time::timeout(WITHIN, refused).await.unwrap();
    assert!(refused.is_final(), "{refused:?}");
}

#[tokio::test]
async fn certificates_and_tls_1_2_are_refused() {
    let builder = || ClientConfig::builder_with_provider(provider());
    let roots = RootCertStore::empty();
    let old = builder().with_protocol_versions(&[&TLS12]).unwrap();
    let new = builder().with_safe_default_protocol_versions().unwrap();
    for (config, expected) in [
        (old.with_root_certificates(roots.clone()).with_no_client_auth(), "Tls12NotOffered"),
        (new.with_root_certificates(roots).with_no_client_auth(), "CertificateType"),
    ] {
        let refused = accept(async |stream| {
            let connector = TlsConnector::from(Arc::new(config));
            assert!(connector.connect(nobody(), stream).await.is_err());
        });
        let refused = refused.await;
        assert!(matches!(refused, SecretRefusal::OtherProgram { .. }), "{refused:?}");
        assert!(refused.to_string().contains(expected), "{refused}");
    }

    let own = rcgen::generate_simple_self_signed(["umbel.invalid".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let server = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key.into())
        .unwrap();
    let (here, there) = duplex(1 << 16);
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let dialer = tls();
    let (connected, _) = tokio::join!(dialer.connect(here), acceptor.accept(there));
    let refused = connected.err().unwrap();
    assert!(matches!(refused, SecretRefusal::OtherProgram { .. }), "{refused:?}");
}

#[test]
fn what_is_no_secret_is_refused_and_never_shown() {
    assert!(matches!(Secret::new("  short\n"), Err(SecretError::Short { got: 5 })));
    assert!(matches!(Secret::new(&"a".repeat(5_000)), Err(SecretError::Long)));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    let error = Secret::read_private(&file).unwrap_err();
    assert!(matches!(error, SecretError::Read { .. }), "{error}");
    std::fs::write(&file, "short").unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let error = Secret::read_private(&file).unwrap_err().to_string();
    assert!(error.contains("secret: a secret of 5 bytes: expected at least 32, drawn"), "{error}");
    std::fs::write(&file, "a".repeat(100_000)).unwrap();
    let Err(SecretError::File { source, .. }) = Secret::read_private(&file) else {
        panic!("it is taken")
    };
    assert!(matches!(*source, SecretError::Long));
    std::fs::write(&file, format!("{TEXT}\n")).unwrap();
    let secret = Secret::read_private(&file).unwrap();
    assert_eq!(secret, Secret::new(TEXT).unwrap());
    let shown = format!("{secret:?} {:?}", secret.derive(SecretUse::Job));
    assert!(!shown.contains(&TEXT[..8]), "{shown}");
}

#[test]
fn a_secret_that_others_may_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, TEXT).unwrap();
    let read = |mode: u32| {
        std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        Secret::read_private(&file)
    };
    for mode in [0o604, 0o602, 0o660] {
        let error = read(mode).unwrap_err().to_string();
        assert!(error.contains(&format!("(mode {mode:o}): chmod 600")), "{error}");
    }
    assert!(read(0o600).is_ok());
}

/// A pair of connected sockets: the dialer's, then the listener's.
fn sockets() -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    [here, listener.accept().unwrap().0]
}

type Halves = (SecretReader, SecretWriter);

fn meet_blocking(listener: &SecretTls, dialer: &SecretTls) -> [Result<Halves, SecretRefusal>; 2] {
    let [here, there] = sockets();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| listener.accept_blocking(there, WITHIN));
        let connected = dialer.connect_blocking(here, WITHIN);
        [serving.join().unwrap(), connected]
    })
}

#[test]
fn threads_read_and_write_at_once() {
    let tls = tls();
    let [listening, connected] = meet_blocking(&tls, &tls).map(Result::unwrap);
    let ((mut from_dialer, mut to_dialer), (mut from_listener, mut to_listener)) =
        (listening, connected);
    // More than the buffers of sockets and library hold: if one half waited for the other, both would
    // block.
    let long: Vec<u8> = (0..8_000_000_u32).map(|i| (i / 7).to_le_bytes()[0]).collect();
    std::thread::scope(|scope| {
        for writer in [&mut to_dialer, &mut to_listener] {
            scope.spawn(|| writer.write_all(&long).unwrap());
        }
        for reader in [&mut from_dialer, &mut from_listener] {
            let mut came = vec![0; long.len()];
            let long = &long;
            scope.spawn(move || {
                reader.read_exact(&mut came).unwrap();
                assert!(came == *long);
            });
        }
    });
    // A cut connection reads as ended.
    drop((from_dialer, to_dialer));
    assert_eq!(from_listener.read(&mut [0; 9]).unwrap(), 0);
    assert_eq!(from_listener.read(&mut [0; 9]).unwrap(), 0);
}

#[test]
fn threads_refuse_as_tasks_do() {
    let other = SecretTls::new(&derived(TEXT, SecretUse::Reconcile)).unwrap();
    for refused in meet_blocking(&tls(), &other) {
        assert!(matches!(refused.err(), Some(SecretRefusal::OtherSecret)));
    }
    let [mut here, there] = sockets();
    here.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let refused = tls().accept_blocking(there, WITHIN).err().unwrap();
    assert!(matches!(refused, SecretRefusal::NoTls { .. }), "{refused:?}");
    // A silent peer occupies a thread only for the time limit.
    let [_here, there] = sockets();
    let refused = tls().accept_blocking(there, Duration::from_millis(1)).err().unwrap();
    assert!(matches!(refused, SecretRefusal::Late { .. }), "{refused:?}");
}
