//! TLS connections, with certificates of nodes and, if named, of the client.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use umbel_tls::{ClientTls, HandshakeError, TlsError, TlsFiles, refused_after_handshake};

use crate::connector::{Connecting, Connection, Connector, tcp};

/// How long a node that refused the client's certificate is not called with it again: new connections fail with that
/// refusal. A connection may be gone before a call is sent on it, and the call then knows only that, so it is its next
/// attempt that says why. Short, because the node or the client may get another file.
const REFUSAL_STANDS: Duration = Duration::from_secs(3);

/// Makes TLS connections. Nodes authenticate with certificates of the trusted authority, the client with
/// its own certificate. A node's certificate must name the host of the address at which the node is
/// called.
///
/// If the files are replaced, the next connection uses the new ones; if the new ones are damaged, the old
/// ones stay in use.
///
/// ```no_run
/// use umbel_client::{Client, ClientOptions, KeyPairFiles, TlsConnector, TlsFiles};
///
/// let pair = KeyPairFiles { certificate: "alice.pem".into(), key: "alice.key".into() };
/// let tls = TlsConnector::open(TlsFiles { ca: "ca.pem".into(), pair: Some(pair) })?;
/// let client = Client::connect_through("node-1:7300", ClientOptions::default(), tls)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TlsConnector {
    tls: Arc<ClientTls>,
    refusals: Arc<Refusals>,
}

impl TlsConnector {
    /// Reads the authority's certificate, and the client's certificate and key if they are named. Without
    /// a client's certificate, nodes only answer health checks.
    ///
    /// # Errors
    /// If a file cannot be read or used.
    pub fn open(files: TlsFiles) -> Result<Self, TlsError> {
        Ok(Self { tls: Arc::new(ClientTls::open(files)?), refusals: Arc::default() })
    }
}

impl Connector for TlsConnector {
    fn connect(&self, address: &str) -> Connecting {
        let (tls, address) = (Arc::clone(&self.tls), address.to_owned());
        let refusals = Arc::clone(&self.refusals);
        Box::pin(async move {
            if let Some(refused) = refusals.of(&address) {
                return Err(io::Error::other(refused));
            }
            // Damaged files must not break connections while the old ones still work.
            let _ = tls.refresh();
            let stream = tcp(&address).await?;
            let stream = tls.connect(&address, stream).await.map_err(io::Error::other)?;
            let stream = Refusable { stream, address, refusals, is_taken: false };
            Ok(Box::new(stream) as Box<dyn Connection>)
        })
    }
}

/// Refusals of late, by the node's address: when, and what is wrong with the client's certificate.
#[derive(Default)]
struct Refusals(Mutex<BTreeMap<String, (Instant, String)>>);

impl Refusals {
    fn of(&self, address: &str) -> Option<HandshakeError> {
        let mut known = self.lock();
        known.retain(|_, (at, _)| at.elapsed() < REFUSAL_STANDS);
        let (_, why) = known.get(address)?;
        Some(HandshakeError::OwnRefused { address: address.to_owned(), why: why.clone() })
    }

    fn keep(&self, refused: &HandshakeError) {
        if let HandshakeError::OwnRefused { address, why } = refused {
            self.lock().insert(address.clone(), (Instant::now(), why.clone()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (Instant, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection whose node may still refuse the client's certificate, in place of its first bytes. The error
/// then says so.
struct Refusable<S> {
    stream: S,
    address: String,
    refusals: Arc<Refusals>,
    /// Whether the node has sent anything, so that it has taken the certificate.
    is_taken: bool,
}

impl<S: AsyncRead + Unpin> Refusable<S> {
    /// What an error of writing says, or the refusal that came before the node hung up.
    fn unwritten(&mut self, cx: &mut Context<'_>, error: io::Error) -> io::Error {
        if self.is_taken {
            return error;
        }
        // If the node sent something else, it is lost with the connection.
        let mut byte = [0];
        match Pin::new(self).poll_read(cx, &mut ReadBuf::new(&mut byte)) {
            Poll::Ready(Err(why)) if is_refusal(&why) => why,
            _ => error,
        }
    }

    fn written<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        written.map_err(|error| self.unwritten(cx, error))
    }
}

fn is_refusal(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<HandshakeError>)
}

impl<S: AsyncRead + Unpin> AsyncRead for Refusable<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.is_taken |= buffer.filled().len() > before;
        if self.is_taken {
            return read;
        }
        read.map_err(|error| match refused_after_handshake(&self.address, &error) {
            Some(refused) => {
                self.refusals.keep(&refused);
                io::Error::other(refused)
            }
            None => error,
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Refusable<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.written(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use umbel_tls::{Authority, KeyPairFiles, OWN_REFUSED, ServerTls, Subject};

    use super::*;

    fn put(folder: &Path, name: &str, text: &str) -> std::path::PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("the folder is writable");
        path
    }

    fn pair(folder: &Path, authority: &Authority, subject: &Subject) -> KeyPairFiles {
        let pem = authority.issue(subject, 1).expect("a certificate can be made");
        let certificate = put(folder, "own.pem", &pem.certificate);
        KeyPairFiles { certificate, key: put(folder, "own.key", &pem.key) }
    }

    /// A connection of a client to a node that does not trust the client's authority, and has hung up. With
    /// `trusts`, it does, and has not.
    async fn connection(
        trusts: bool,
        refusals: Arc<Refusals>,
    ) -> (impl Connection, Option<impl Connection>) {
        let [of_node, of_client] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let (authority, own) = Authority::new("a", 1).expect("an authority can be made");
        let (strangers, _) = Authority::new("b", 1).expect("an authority can be made");
        let ca = put(of_node.path(), "ca.pem", &own.certificate);
        let node = Subject::Node { hosts: vec!["node-1".to_owned()] };
        let server = ServerTls::open(&ca, pair(of_node.path(), &authority, &node));
        let server = server.expect("the node's files are good");
        let eve = Subject::Client { name: "eve".to_owned() };
        let signed_by = if trusts { &authority } else { &strangers };
        let eve = pair(of_client.path(), signed_by, &eve);
        let client =
            ClientTls::open(TlsFiles { ca, pair: Some(eve) }).expect("eve's files are good");
        let (here, there) = duplex(1 << 16);
        let address = "node-1:7300".to_owned();
        let (served, stream) = tokio::join!(server.accept(there), client.connect(&address, here));
        assert_eq!(served.is_ok(), trusts);
        let stream = stream.expect("the client's end of the handshake succeeds");
        let connection = Refusable { stream, address, refusals, is_taken: false };
        (connection, served.ok().map(|(stream, _)| stream))
    }

    fn check(error: &io::Error) {
        let said = error.to_string();
        assert!(said.starts_with(&format!("node-1:7300 {OWN_REFUSED}: ")), "{said}");
    }

    #[tokio::test]
    async fn a_refusal_of_the_own_certificate_is_read() {
        let refusals = Arc::<Refusals>::default();
        let (mut connection, _) = connection(false, Arc::clone(&refusals)).await;
        check(&connection.read_u8().await.expect_err("it is refused"));
        // The next connection would fail with it.
        check(&io::Error::other(refusals.of("node-1:7300").expect("it is kept")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_stands_for_its_node_and_for_a_while() {
        let refusals = Refusals::default();
        let refused =
            HandshakeError::OwnRefused { address: "a:1".to_owned(), why: "UnknownCA".to_owned() };
        refusals.keep(&refused);
        let said = |address| refusals.of(address).map(|refused| refused.to_string());
        assert_eq!(said("a:1"), Some(refused.to_string()));
        assert_eq!(said("b:1"), None);
        tokio::time::advance(REFUSAL_STANDS).await;
        assert_eq!(said("a:1"), None);
    }

    #[tokio::test]
    async fn a_refusal_comes_before_the_error_of_a_write() {
        let (mut connection, _) = connection(false, Arc::default()).await;
        let mut sent = connection.write_all(b"PRI").await;
        if sent.is_ok() {
            sent = connection.flush().await;
        }
        check(&sent.expect_err("the node has hung up"));
    }

    #[tokio::test]
    async fn an_error_after_the_first_bytes_is_what_it_is() {
        let refusals = Arc::<Refusals>::default();
        let (mut connection, node) = connection(true, Arc::clone(&refusals)).await;
        let mut node = node.expect("the client is trusted");
        node.write_u8(7).await.expect("the client reads");
        node.flush().await.expect("the client reads");
        assert_eq!(connection.read_u8().await.expect("the node has sent it"), 7);
        drop(node);
        let error = connection.read_u8().await.expect_err("the node has hung up");
        assert!(!error.to_string().contains(OWN_REFUSED), "{error}");
        assert!(refusals.of("node-1:7300").is_none());
    }
}
