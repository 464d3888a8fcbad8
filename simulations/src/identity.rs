//! Certificates without cryptography: what TLS proves of both ends of a connection, in one exchange of plain texts
//! before the first byte. Each end judges the other one's by its own wall clock, as `umbel-tls` does.
//!
//! Nothing here can be forged, for nobody in a simulation tries: a certificate says which authority signed it.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use umbel_node::ports::{Net, NodeIdentity, PeerIdentity};

use crate::counters;
use crate::invariants::identities_hold;
use crate::net::SimNet;
use crate::seed::true_wall_ms;

/// The authority of the cluster.
pub(crate) const OWN_AUTHORITY: u32 = 0;

/// One that nobody trusts.
pub(crate) const FOREIGN_AUTHORITY: u32 = 1;

/// The principal that proves itself by a certificate.
pub(crate) const CERTIFIED: &str = "certified";

/// The URI of a node's certificate that does not say which node.
const NODE_URI: &str = "umbel:node";

/// Longest time from the connection to its proved identity; as that of the real network.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest certificate in bytes: a URI and three numbers.
const CERTIFICATE_BYTES_MAX: usize = 1024;

/// A certificate begins so much earlier than it was issued, in milliseconds: clocks of two machines differ.
const BACKDATED_MS: u64 = 10_000;

/// A certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Certificate {
    /// Who signed it.
    pub(crate) authority: u32,
    /// Whom it names.
    pub(crate) uri: String,
    /// The first millisecond of its life, and the first one after it.
    pub(crate) valid_ms: (u64, u64),
}

/// Why a certificate is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// Another authority signed it.
    Foreign,
    /// Its life has not begun.
    Early,
    /// Its life is over.
    Expired,
}

impl Certificate {
    /// One of the cluster's authority that was issued now.
    fn issued(uri: String, life_ms: u64) -> Self {
        let now_ms = true_wall_ms();
        let valid_ms = (now_ms - BACKDATED_MS, now_ms.saturating_add(life_ms));
        Self { authority: OWN_AUTHORITY, uri, valid_ms }
    }

    /// A node's that does not say which; valid for ever.
    pub(crate) fn generic() -> Self {
        Self::issued(NODE_URI.to_owned(), u64::MAX)
    }

    /// A node's.
    pub(crate) fn member(node: NodeIdentity, life_ms: u64) -> Self {
        Self::issued(node.uri(), life_ms)
    }

    /// A client's; valid for ever.
    pub(crate) fn client(name: &str) -> Self {
        Self::issued(format!("umbel:client:{name}"), u64::MAX)
    }

    /// Why it is not taken at this time.
    pub(crate) const fn refusal(&self, now_ms: u64) -> Option<Refusal> {
        let (from_ms, to_ms) = self.valid_ms;
        if self.authority != OWN_AUTHORITY {
            Some(Refusal::Foreign)
        } else if now_ms < from_ms {
            Some(Refusal::Early)
        } else if now_ms >= to_ms {
            Some(Refusal::Expired)
        } else {
            None
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Foreign => "its certificate comes from another authority",
            Self::Early => "its certificate is not valid yet",
            Self::Expired => "its certificate has expired",
        })
    }
}

/// What a machine shows, and by which clock it judges others.
pub(crate) struct Papers {
    machine: u32,
    shown: Mutex<Option<Certificate>>,
    /// For how long it is issued a certificate, in milliseconds.
    life_ms: u64,
    wall_offset_ms: Arc<AtomicI64>,
    /// It is not renewed.
    is_lapsed: AtomicBool,
    /// Whether nodes must show which ones they are.
    is_required: AtomicBool,
}

impl Papers {
    /// A machine's papers, which judge by its clock.
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

    /// The authority gives it a node's certificate.
    pub(crate) fn issue(&self, node: NodeIdentity) {
        self.show(Some(Certificate::member(node, self.life_ms)));
    }

    /// Whether it is time for the next certificate: two thirds of the life of this one are over.
    fn is_due(&self) -> bool {
        let due = |shown: Certificate| self.now_ms() + self.life_ms / 3 >= shown.valid_ms.1;
        !self.is_lapsed() && self.shown().is_some_and(due)
    }

    /// Shows the same with a new life.
    fn renew(&self) {
        let renewed = |shown: Certificate| Certificate::issued(shown.uri, self.life_ms);
        self.show(self.shown().map(renewed));
    }

    /// What is shown on connections to come.
    pub(crate) fn shown(&self) -> Option<Certificate> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shows another certificate from now on.
    pub(crate) fn show(&self, certificate: Option<Certificate>) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = certificate;
    }

    /// Its certificate ends now, and it gets no other one.
    pub(crate) fn lapse(&self) {
        let now_ms = self.now_ms();
        self.is_lapsed.store(true, Ordering::Relaxed);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(certificate) = &mut *shown {
            certificate.valid_ms.1 = certificate.valid_ms.1.min(now_ms);
        }
    }

    /// Its certificate may be renewed again.
    pub(crate) fn mend(&self) {
        self.is_lapsed.store(false, Ordering::Relaxed);
    }

    /// Whether nobody renews it.
    pub(crate) fn is_lapsed(&self) -> bool {
        self.is_lapsed.load(Ordering::Relaxed)
    }

    /// From the next start on the node asks that nodes show which ones they are.
    pub(crate) fn require(&self) {
        self.is_required.store(true, Ordering::Relaxed);
    }

    /// Whether it does.
    pub(crate) fn is_required(&self) -> bool {
        self.is_required.load(Ordering::Relaxed)
    }

    /// This machine's wall clock.
    pub(crate) fn now_ms(&self) -> u64 {
        true_wall_ms().saturating_add_signed(self.wall_offset_ms.load(Ordering::Relaxed))
    }

    /// Proves this end of a connection that it made, and asks who the other one is: `wanted`, if that is named.
    ///
    /// # Errors
    /// If one end refuses the other one's certificate, or the connection breaks.
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

    /// Proves this end of a connection that it took, and says who the other one is.
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
            identities_hold::judge_taken(self.machine, found.as_ref(), self.now_ms(), taken);
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

/// Pause between two looks whether a certificate is due.
const RENEWAL_PAUSE: Duration = Duration::from_millis(200);

/// Has a node's certificate renewed before it expires, by whichever other node takes the one that it has; never
/// ends. The real one is `umbel_node`'s `renewal`, whose requests are signed.
pub(crate) async fn keep_certificate(net: SimNet, papers: Arc<Papers>, others: Vec<String>) {
    loop {
        tokio::time::sleep(RENEWAL_PAUSE).await;
        if !papers.is_due() {
            continue;
        }
        for address in &others {
            let asking = tokio::time::timeout(HANDSHAKE_TIMEOUT, Net::connect(&net, address));
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
