//! TLS over the machine's network: both ends of a connection prove their identity.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use umbel_tls::{
    ClientTls, HandshakeError, KeyPairFiles, NodeIdentity, NodeSigner, PinnedTls, ServerTls,
    StrangerLines, TlsError, TlsFiles, shown_until_s,
};

use super::connections::{ConnectionHandle, ConnectionSlot, ConnectionSlots};
use super::net::connect;
use super::{
    Incoming, IssuedFiles, Listener, Net, PortFuture, RealSeed, Seed as _, Stream, locked,
};
use crate::metrics;

/// Time limit from the connection to the proved identity. Two round trips and two signatures take less
/// than a second anywhere in the world.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How often the files and the dates of shown certificates are checked: a replaced certificate is used, and a connection
/// whose certificate has expired is ended, after at most this long, also if the clock jumps.
const RELOAD_INTERVAL: Duration = Duration::from_secs(2);

/// The first byte of a TLS connection: a handshake record (RFC 8446, 5.1). No HTTP request begins with
/// it.
const HANDSHAKE_RECORD: u8 = 22;

/// TCP with TLS.
pub struct TlsNet {
    server: Arc<ServerTls>,
    client: Arc<ClientTls>,
    takes_plain: bool,
    signer: Option<NodeSigner>,
    issued: Option<IssuedFiles>,
}

impl TlsNet {
    /// A network whose nodes trust the authority of `ca`; this node's certificate and key are in the
    /// two files of `pair`. With `takes_plain`, connections without TLS are accepted, and nodes without
    /// TLS are called without it: for the time in which a running cluster is moved to TLS, node by
    /// node.
    ///
    /// # Errors
    /// If a file cannot be read or used.
    pub fn open(ca: &Path, pair: &KeyPairFiles, takes_plain: bool) -> Result<Self, TlsError> {
        let files = TlsFiles { ca: ca.to_owned(), pair: Some(pair.clone()) };
        Ok(Self {
            server: Arc::new(ServerTls::open(ca, pair.clone())?),
            client: Arc::new(ClientTls::open(files)?),
            takes_plain,
            signer: None,
            issued: None,
        })
    }

    /// Lets the node sign certificates of nodes that join with a token.
    #[must_use]
    pub fn signing(self, signer: NodeSigner) -> Self {
        Self { signer: Some(signer), ..self }
    }

    /// Marks the node's certificate as issued by the cluster, and says where the next one is stored.
    #[must_use]
    pub fn renewing(self, issued: IssuedFiles) -> Self {
        Self { issued: Some(issued), ..self }
    }

    async fn listener(&self, address: &str, slots: ConnectionSlots) -> io::Result<TlsListener> {
        let tcp = TcpListener::bind(address).await?;
        let local_address = tcp.local_addr()?.to_string();
        let mut reload = tokio::time::interval(RELOAD_INTERVAL);
        reload.set_missed_tick_behavior(MissedTickBehavior::Delay);
        show_expiry(self.server.expires_at());
        Ok(TlsListener {
            tcp,
            local_address,
            server: Arc::clone(&self.server),
            client: Arc::clone(&self.client),
            takes_plain: self.takes_plain,
            handshakes: JoinSet::new(),
            slots,
            reload,
            failed: Arc::default(),
            dated: Vec::new(),
        })
    }

    async fn dial(
        &self,
        address: &str,
        wanted: Option<NodeIdentity>,
    ) -> io::Result<Box<dyn Stream>> {
        let stream = connect(address).await?;
        let proved = async {
            match wanted {
                Some(wanted) => self.client.connect_node(address, wanted, stream).await,
                None => self.client.connect(address, stream).await,
            }
        };
        let proved = tokio::time::timeout(HANDSHAKE_TIMEOUT, proved);
        match proved.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))? {
            Ok(stream) => Ok(Box::new(stream)),
            Err(HandshakeError::NoTls { .. }) if self.takes_plain => {
                Ok(Box::new(connect(address).await?))
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

impl Net for TlsNet {
    fn listen<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = self.listener(address, ConnectionSlots::of_process()).await?;
            Ok(Box::new(listener) as Box<dyn Listener>)
        })
    }

    fn connect<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(self.dial(address, None))
    }

    fn connect_node<'a>(
        &'a self,
        address: &'a str,
        wanted: NodeIdentity,
    ) -> PortFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(self.dial(address, Some(wanted)))
    }

    fn node_signer(&self) -> Option<&NodeSigner> {
        self.signer.as_ref()
    }

    fn due_certificate(&self) -> Option<&IssuedFiles> {
        self.issued.as_ref().filter(|_| self.server.is_due())
    }
}

/// The network of a node that has a token but no certificate yet: it connects only to servers of the
/// token's authorities, and accepts no connections.
pub struct PinnedNet {
    tls: PinnedTls,
    /// An error that no retry can resolve.
    refused: Mutex<Option<String>>,
}

impl PinnedNet {
    /// A network that connects only to servers of these authorities.
    #[must_use]
    pub fn new(tls: PinnedTls) -> Self {
        Self { tls, refused: Mutex::new(None) }
    }

    /// Why the other end is not the one that the token names, if it is not.
    #[must_use]
    pub fn refused(&self) -> Option<String> {
        locked(&self.refused).clone()
    }

    async fn dial(&self, address: &str) -> io::Result<Box<dyn Stream>> {
        let stream = connect(address).await?;
        let proved = tokio::time::timeout(HANDSHAKE_TIMEOUT, self.tls.connect(address, stream));
        let error = match proved.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))? {
            Ok(stream) => return Ok(Box::new(stream)),
            Err(error) => error,
        };
        let passes = matches!(error, HandshakeError::NoTls { .. } | HandshakeError::Other { .. });
        let refused = (!passes).then(|| error.to_string());
        *locked(&self.refused) = refused;
        Err(io::Error::other(error))
    }
}

impl Net for PinnedNet {
    fn listen<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let text = format!("{address}: who has no certificate does not listen");
            Err(io::Error::new(io::ErrorKind::Unsupported, text))
        })
    }

    fn connect<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(self.dial(address))
    }
}

struct TlsListener {
    tcp: TcpListener,
    local_address: String,
    server: Arc<ServerTls>,
    client: Arc<ClientTls>,
    takes_plain: bool,
    /// Connections whose peer is proving its identity; a slow one delays no other.
    handshakes: JoinSet<Option<Proved>>,
    slots: ConnectionSlots,
    reload: Interval,
    /// Limits the lines about handshakes that failed.
    failed: Arc<StrangerLines>,
    /// The last second in which the certificate of a connection is valid, of each that has shown one.
    dated: Vec<(u64, ConnectionHandle)>,
}

/// A connection after its handshake.
struct Proved {
    incoming: Incoming,
    /// The last second, since 1970, in which the certificate that it has shown is valid.
    until_s: Option<u64>,
}

impl TlsListener {
    /// Reloads the files if they were replaced, and ends connections whose certificates have expired.
    fn look(&mut self) {
        self.end_expired(RealSeed.wall_ms() / 1000);
        let looked = self.server.refresh().and_then(|is_new| Ok(self.client.refresh()? || is_new));
        match looked {
            Ok(false) => {}
            Ok(true) => tracing::info!("new certificates were read; new connections use them"),
            Err(error) => {
                tracing::error!(%error, "new certificates cannot be used; the old ones stay");
            }
        }
        show_expiry(self.server.expires_at());
    }

    /// Ends the connections whose certificates have expired by this second since 1970: new ones with these certificates
    /// are refused.
    fn end_expired(&mut self, now_s: u64) {
        self.dated.retain(|(until_s, connection)| {
            let is_valid = now_s <= *until_s;
            if !is_valid && connection.is_known() {
                connection.end();
                metrics::connection_refused("expired");
            }
            is_valid && connection.is_known()
        });
    }

    fn begin(&mut self, stream: TcpStream, from: String, slot: ConnectionSlot) {
        let (server, takes_plain) = (Arc::clone(&self.server), self.takes_plain);
        let failed = Arc::clone(&self.failed);
        self.handshakes.spawn(async move {
            let connection = slot.connection().clone();
            let proved = async {
                let ended = std::future::poll_fn(|cx| connection.poll_ended(cx));
                tokio::select! {
                    biased;
                    () = ended => Err(io::Error::other("another connection needed its place")),
                    proved = prove(&server, takes_plain, stream, from.clone()) => proved,
                }
            };
            let why = match tokio::time::timeout(HANDSHAKE_TIMEOUT, proved).await {
                Ok(Ok(Proved { incoming, until_s })) => {
                    connection.note_handshake();
                    let incoming = Incoming { slot: Some(slot), ..incoming };
                    return Some(Proved { incoming, until_s });
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no handshake within {} s", HANDSHAKE_TIMEOUT.as_secs()),
            };
            if let Some(left_out) = failed.take(Instant::now().into_std()) {
                let left_out = left_out.count();
                tracing::info!(from, why, left_out, "a connection without a proof was closed");
            }
            metrics::handshake_failed();
            None
        });
    }
}

impl Listener for TlsListener {
    fn local_address(&self) -> String {
        self.local_address.clone()
    }

    fn accept(&mut self) -> PortFuture<'_, io::Result<Incoming>> {
        Box::pin(async move {
            loop {
                let taken = async {
                    self.slots.room().await;
                    self.tcp.accept().await
                };
                tokio::select! {
                    Some(done) = self.handshakes.join_next() => {
                        if let Ok(Some(Proved { incoming, until_s })) = done {
                            if let (Some(until_s), Some(slot)) = (until_s, &incoming.slot) {
                                self.dated.push((until_s, slot.connection().clone()));
                            }
                            return Ok(incoming);
                        }
                    }
                    taken = taken => {
                        let (stream, from) = taken?;
                        let Some(slot) = self.slots.enter_handshake(from.ip()) else { continue };
                        stream.set_nodelay(true)?;
                        self.begin(stream, from.to_string(), slot);
                    }
                    _ = self.reload.tick() => self.look(),
                }
            }
        })
    }
}

async fn prove(
    server: &ServerTls,
    takes_plain: bool,
    stream: TcpStream,
    from: String,
) -> io::Result<Proved> {
    let mut first = [0];
    let byte_count = stream.peek(&mut first).await?;
    if byte_count == 1 && first[0] != HANDSHAKE_RECORD {
        if takes_plain {
            let incoming = Incoming::unchecked(stream, from);
            return Ok(Proved { incoming, until_s: None });
        }
        let text = "it speaks no TLS, which this node asks for: connect with --tls-ca";
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let (stream, identity) = server.accept(stream).await?;
    let until_s = shown_until_s(&stream);
    let incoming = Incoming { identity, ..Incoming::unchecked(stream, from) };
    Ok(Proved { incoming, until_s })
}

fn show_expiry(expires_at: Option<SystemTime>) {
    let since = expires_at.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    if let Some(since) = since {
        metrics::certificate_expires(since);
    }
}

#[cfg(test)]
#[path = "tls_test.rs"]
mod tls_test;
