//! The handshake by which both ends of a connection prove who they are. They exchange their certificates as
//! plain text before the first byte of data, in place of what TLS proves. Each end validates the other one's
//! certificate by its own wall clock, as `umbel-tls` does.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use umbel_ports::{Net, NodeIdentity, PeerIdentity};

use crate::certificate::Certificate;
use crate::counters;
use crate::invariants::identities_hold;
use crate::seed::true_wall_ms;

/// The principal that is identified by a certificate.
pub(crate) const CERTIFIED: &str = "certified";

/// Longest time from a connection to the identity of its peer, as on the real network.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest certificate in bytes: a URI and three numbers.
const CERTIFICATE_BYTES_MAX: usize = 1024;

/// The certificate that a machine presents, and the clock by which it validates others.
pub(crate) struct Papers {
    machine: u32,
    shown: Mutex<Option<Certificate>>,
    /// Lifetime of the certificates that it is issued, in milliseconds.
    life_ms: u64,
    wall_offset_ms: Arc<AtomicI64>,
    /// Whether renewals are stopped.
    is_lapsed: AtomicBool,
    /// Whether nodes must present a certificate that names them.
    is_required: AtomicBool,
}

impl Papers {
    /// The papers of a machine whose wall clock is off by `wall_offset_ms`.
    pub(crate) fn new(
        machine: u32,
        shown: Option<Certificate>,
        life_ms: u64,
        wall_offset_ms: Arc<AtomicI64>,
    ) -> Arc<Self> {
        let (is_lapsed, is_required) = (AtomicBool::default(), AtomicBool::default());
        let shown = Mutex::new(shown);
        Arc::new(Self { machine, shown, life_ms, wall_offset_ms, is_lapsed, is_required })
    }

    /// Issues it the certificate of a node.
    pub(crate) fn issue(&self, node: NodeIdentity) {
        self.show(Some(Certificate::member(node, self.life_ms)));
    }

    /// Whether its certificate is due for renewal: two thirds of the lifetime are over.
    fn is_due(&self) -> bool {
        let due = |shown: Certificate| self.now_ms() + self.life_ms / 3 >= shown.valid_ms.1;
        !self.is_lapsed() && self.shown().is_some_and(due)
    }

    /// Renews its certificate, with the same URI.
    fn renew(&self) {
        let renewed = |shown: Certificate| Certificate::issued(shown.uri, self.life_ms);
        self.show(self.shown().map(renewed));
    }

    /// The certificate that is presented on new connections.
    pub(crate) fn shown(&self) -> Option<Certificate> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Presents another certificate on new connections.
    pub(crate) fn show(&self, certificate: Option<Certificate>) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = certificate;
    }

    /// Expires its certificate now and stops renewals.
    pub(crate) fn lapse(&self) {
        let now_ms = self.now_ms();
        self.is_lapsed.store(true, Ordering::Relaxed);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(certificate) = &mut *shown {
            certificate.valid_ms.1 = certificate.valid_ms.1.min(now_ms);
        }
    }

    /// Allows renewals again.
    pub(crate) fn mend(&self) {
        self.is_lapsed.store(false, Ordering::Relaxed);
    }

    /// Whether renewals are stopped.
    pub(crate) fn is_lapsed(&self) -> bool {
        self.is_lapsed.load(Ordering::Relaxed)
    }

    /// From its next start on, the node requires that nodes present a certificate that names them.
    pub(crate) fn require(&self) {
        self.is_required.store(true, Ordering::Relaxed);
    }

    /// Whether the node requires that.
    pub(crate) fn is_required(&self) -> bool {
        self.is_required.load(Ordering::Relaxed)
    }

    /// This machine's wall clock.
    pub(crate) fn now_ms(&self) -> u64 {
        true_wall_ms().saturating_add_signed(self.wall_offset_ms.load(Ordering::Relaxed))
    }

    /// Handshake of the connecting end: presents its certificate and validates the peer's. The peer must
    /// be a node, and if `wanted` is given, its certificate must not name another node.
    ///
    /// # Errors
    /// If one end refuses the other one's certificate, the connection breaks, or the handshake times out.
    pub(crate) async fn call<S>(
        &self,
        stream: &mut S,
        wanted: Option<NodeIdentity>,
    ) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let proving = async {
            send(stream, self.shown().as_ref()).await?;
            let found = receive(stream).await?;
            match self.identity(found.as_ref())? {
                PeerIdentity::Member(found) if wanted.is_some_and(|wanted| wanted != found) => {
                    Err(io::Error::other(format!("{found} is there, another node is wanted")))
                }
                PeerIdentity::Member(_) | PeerIdentity::Node => Ok(()),
                other => Err(io::Error::other(format!("{other} is there, a node is wanted"))),
            }
        };
        in_time(proving).await
    }

    /// Handshake of the accepting end: validates the peer's certificate, presents its own and returns the
    /// peer's identity.
    ///
    /// # Errors
    /// As of [`call`](Self::call).
    pub(crate) async fn take<S>(&self, stream: &mut S) -> io::Result<PeerIdentity>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let proving = async {
            let found = receive(stream).await?;
            let identity = self.identity(found.as_ref());
            let taken = identity.as_ref().ok();
            identities_hold::check_taken(self.machine, found.as_ref(), self.now_ms(), taken);
            let identity = identity?;
            send(stream, self.shown().as_ref()).await?;
            Ok(identity)
        };
        in_time(proving).await
    }

    fn identity(&self, shown: Option<&Certificate>) -> io::Result<PeerIdentity> {
        let Some(certificate) = shown else { return Ok(PeerIdentity::Anonymous) };
        match certificate.refusal(self.now_ms()) {
            Some(refusal) => Err(io::Error::other(refusal.to_string())),
            None => Ok(PeerIdentity::from_uri(&certificate.uri).unwrap_or(PeerIdentity::Anonymous)),
        }
    }
}

async fn in_time<T>(proving: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let proved = tokio::time::timeout(HANDSHAKE_TIMEOUT, proving).await;
    proved.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Pause between two checks whether a certificate is due for renewal.
const RENEWAL_PAUSE: Duration = Duration::from_millis(200);

/// Renews a node's certificate before it expires, once any other node accepts the current one; never
/// returns. The real implementation is `umbel_node`'s `renewal`, whose requests are signed.
pub(crate) async fn keep_certificate(net: impl Net, papers: Arc<Papers>, others: Vec<String>) {
    loop {
        tokio::time::sleep(RENEWAL_PAUSE).await;
        if !papers.is_due() {
            continue;
        }
        for address in &others {
            let asking = tokio::time::timeout(HANDSHAKE_TIMEOUT, net.connect(address));
            if matches!(asking.await, Ok(Ok(_))) && !papers.is_lapsed() {
                papers.renew();
                counters::state("certificate_renewed");
                break;
            }
        }
    }
}

async fn send<S: AsyncWrite + Unpin>(
    stream: &mut S,
    certificate: Option<&Certificate>,
) -> io::Result<()> {
    let text = serde_json::to_vec(&certificate)?;
    let length = u16::try_from(text.len()).expect("a certificate is short");
    stream.write_u16(length).await?;
    stream.write_all(&text).await?;
    stream.flush().await
}

async fn receive<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Option<Certificate>> {
    let length = usize::from(stream.read_u16().await?);
    if length > CERTIFICATE_BYTES_MAX {
        let text =
            format!("a certificate of {length} bytes, expected {CERTIFICATE_BYTES_MAX} at most");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text).await?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
#[path = "identity_test.rs"]
mod identity_test;
