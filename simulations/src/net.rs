//! The network port over turmoil's TCP, with connections that can be reset.
//!
//! turmoil drops, holds and delays segments but never retransmits one, as TCP would, so a connection
//! with a dropped segment hangs until a ping detects it. A lossy link therefore resets connections
//! instead.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinSet;
use umbel_client::{Connecting, Connection, Connector};
use umbel_ports::{Incoming, Listener, Net, NodeIdentity, PortFuture, Stream};

use crate::certificate::Certificate;
use crate::identity::Papers;
use crate::links::closed::{self, Closing};
use crate::links::note_write;
use crate::names::node_at;
use crate::seed::stream;

/// Pause after which an attempt to connect that got no answer is repeated: a second, as TCP waits the first time
/// (RFC 6298).
const CONNECT_PAUSE: Duration = Duration::from_secs(1);

/// The network of one host. Clones share it; it outlives the host's crashes.
#[derive(Clone)]
pub(crate) struct SimNet {
    state: Arc<HostNet>,
    /// Credentials that both ends prove before the first byte; `None` without authentication.
    papers: Option<Arc<Papers>>,
}

struct HostNet {
    /// Number of the host.
    host: u32,
    /// Probability that a write resets its connection, in thousandths.
    loss_per_mille: AtomicU32,
    /// Number of connections reset at random so far.
    loss_count: AtomicU64,
    dice: Mutex<ChaCha8Rng>,
    live: Mutex<VecDeque<Weak<Fate>>>,
}

/// Faults that may affect a connection.
#[derive(Default)]
struct Fate {
    /// The number of the host at the other end, if this end opened the connection.
    opened_to: Option<u32>,
    is_reset: AtomicBool,
    reader: Mutex<Option<Waker>>,
}

impl Fate {
    /// Resets the connection.
    fn reset(&self) {
        self.is_reset.store(true, Ordering::Relaxed);
        if let Some(waker) = lock(&self.reader).take() {
            waker.wake();
        }
    }
}

/// Resets these connections; returns how many they are.
fn reset_each(fates: impl Iterator<Item = Arc<Fate>>) -> u64 {
    let mut count = 0;
    for fate in fates {
        fate.reset();
        count += 1;
    }
    count
}

/// The number of the host with this address, as [`address_of_number`] gives it.
fn number_of(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(address) => u32::from(address.octets()[3]) - 1,
        IpAddr::V6(_) => u32::MAX,
    }
}

/// The address that the host with this number must have.
pub(crate) fn address_of_number(number: u32) -> IpAddr {
    let last = u8::try_from(number + 1).expect("a world has a few hosts");
    IpAddr::from([192, 168, 0, last])
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimNet {
    /// The network of a host.
    pub(crate) fn new(seed: u64, host: u32) -> Self {
        let state = HostNet {
            host,
            loss_per_mille: AtomicU32::new(0),
            loss_count: AtomicU64::new(0),
            dice: Mutex::new(stream(seed, &format!("{host}/net"))),
            live: Mutex::default(),
        };
        Self { state: Arc::new(state), papers: None }
    }

    /// The same network with these certificates, if any.
    #[must_use]
    pub(crate) fn proving(self, papers: Option<Arc<Papers>>) -> Self {
        Self { papers, ..self }
    }

    /// Whether connections begin with certificates.
    pub(crate) const fn is_proving(&self) -> bool {
        self.papers.is_some()
    }

    /// The network of the same host for a caller that presents another certificate, or none.
    pub(crate) fn showing(&self, certificate: Option<Certificate>) -> Self {
        let papers = self
            .papers
            .is_some()
            .then(|| Papers::new(self.state.host, certificate, 0, Arc::default()));
        Self { papers, ..self.clone() }
    }

    /// Sets the probability that a write resets its connection, in thousandths.
    pub(crate) fn set_loss_per_mille(&self, per_mille: u32) {
        self.state.loss_per_mille.store(per_mille, Ordering::Relaxed);
    }

    /// Resets all connections of the host; returns how many there were.
    pub(crate) fn reset_all(&self) -> u64 {
        let live = std::mem::take(&mut *lock(&self.state.live));
        reset_each(live.iter().filter_map(Weak::upgrade))
    }

    /// Resets all connections that the host has opened to another one; returns how many there were.
    pub(crate) fn reset_opened_to(&self, to: u32) -> u64 {
        let live: Vec<Arc<Fate>> =
            lock(&self.state.live).iter().filter_map(Weak::upgrade).collect();
        let is_met =
            |fate: &Arc<Fate>| fate.opened_to == Some(to) && !fate.is_reset.load(Ordering::Relaxed);
        reset_each(live.into_iter().filter(is_met))
    }

    /// Number of connections reset at random so far.
    pub(crate) fn loss_count(&self) -> u64 {
        self.state.loss_count.load(Ordering::Relaxed)
    }

    fn stream(&self, tcp: turmoil::net::TcpStream, is_opened_here: bool) -> SimStream {
        let peer = tcp.peer_addr().map_or(u32::MAX, |peer| number_of(peer.ip()));
        let opened_to = is_opened_here.then_some(peer);
        let fate = Arc::new(Fate { opened_to, ..Fate::default() });
        let mut live = lock(&self.state.live);
        // The oldest connections are at the front; most of them are closed.
        while live.front().is_some_and(|oldest| oldest.strong_count() == 0) {
            live.pop_front();
        }
        live.push_back(Arc::downgrade(&fate));
        drop(live);
        SimStream { tcp, peer, fate, net: self.clone() }
    }

    /// What a fault does to an attempt to connect to an address.
    fn closing(&self, address: &str) -> Option<Closing> {
        closed::attempt(self.state.host, node_at(address)?)
    }

    async fn dial(self, address: String, wanted: Option<NodeIdentity>) -> io::Result<SimStream> {
        while let Some(closing) = self.closing(&address) {
            match closing {
                Closing::Refused => return Err(io::ErrorKind::ConnectionRefused.into()),
                Closing::Silent => tokio::time::sleep(CONNECT_PAUSE).await,
            }
        }
        let tcp = turmoil::net::TcpStream::connect(address.as_str()).await?;
        if self.closing(&address).is_some() {
            // It was closed meanwhile.
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let mut stream = self.stream(tcp, true);
        if let Some(papers) = &self.papers {
            papers.call(&mut stream, wanted).await?;
        }
        Ok(stream)
    }
}

impl Net for SimNet {
    fn listen<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let tcp = turmoil::net::TcpListener::bind(address).await?;
            let (net, address) = (self.clone(), address.to_owned());
            let plain = SimListener { tcp, net, address };
            Ok(match &self.papers {
                None => Box::new(plain) as Box<dyn Listener>,
                Some(papers) => {
                    let papers = Arc::clone(papers);
                    Box::new(ProvingListener { plain, papers, handshakes: JoinSet::new() })
                }
            })
        })
    }

    fn connect<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Stream>>> {
        let dialing = self.clone().dial(address.to_owned(), None);
        Box::pin(async move { Ok(Box::new(dialing.await?) as Box<dyn Stream>) })
    }

    fn connect_node<'a>(
        &'a self,
        address: &'a str,
        wanted: NodeIdentity,
    ) -> PortFuture<'a, io::Result<Box<dyn Stream>>> {
        let dialing = self.clone().dial(address.to_owned(), Some(wanted));
        Box::pin(async move { Ok(Box::new(dialing.await?) as Box<dyn Stream>) })
    }
}

impl Connector for SimNet {
    fn connect(&self, address: &str) -> Connecting {
        let dialing = self.clone().dial(address.to_owned(), None);
        Box::pin(async move { Ok(Box::new(dialing.await?) as Box<dyn Connection>) })
    }
}

struct SimListener {
    tcp: turmoil::net::TcpListener,
    net: SimNet,
    address: String,
}

impl Listener for SimListener {
    fn local_address(&self) -> String {
        self.address.clone()
    }

    fn accept(&mut self) -> PortFuture<'_, io::Result<Incoming>> {
        Box::pin(async move {
            let (tcp, from) = self.tcp.accept().await?;
            let stream = self.net.stream(tcp, false);
            Ok(Incoming::unchecked(stream, from.to_string()))
        })
    }
}

/// Accepts connections whose other end has authenticated; a slow one delays no other.
struct ProvingListener {
    plain: SimListener,
    papers: Arc<Papers>,
    handshakes: JoinSet<io::Result<Incoming>>,
}

impl Listener for ProvingListener {
    fn local_address(&self) -> String {
        self.plain.local_address()
    }

    fn accept(&mut self) -> PortFuture<'_, io::Result<Incoming>> {
        Box::pin(async move {
            loop {
                tokio::select! {
                    biased;
                    Some(done) = self.handshakes.join_next() => {
                        // A peer that does not authenticate sees the connection closed.
                        if let Ok(Ok(incoming)) = done {
                            return Ok(incoming);
                        }
                    }
                    taken = self.plain.tcp.accept() => {
                        let (tcp, from) = taken?;
                        let mut stream = self.plain.net.stream(tcp, false);
                        let papers = Arc::clone(&self.papers);
                        self.handshakes.spawn(async move {
                            let identity = papers.take(&mut stream).await?;
                            let mut incoming = Incoming::unchecked(stream, from.to_string());
                            incoming.identity = identity;
                            Ok(incoming)
                        });
                    }
                }
            }
        })
    }
}

struct SimStream {
    tcp: turmoil::net::TcpStream,
    /// Number of the host at the other end.
    peer: u32,
    fate: Arc<Fate>,
    net: SimNet,
}

impl SimStream {
    fn check(&self) -> io::Result<()> {
        if self.fate.is_reset.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }

    /// Resets the connection of a write at random.
    fn risk(&self) {
        let per_mille = self.net.state.loss_per_mille.load(Ordering::Relaxed);
        if per_mille > 0 && lock(&self.net.state.dice).random_range(0..1000) < per_mille {
            self.net.state.loss_count.fetch_add(1, Ordering::Relaxed);
            self.fate.reset();
        }
    }
}

impl AsyncRead for SimStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        let polled = Pin::new(&mut self.tcp).poll_read(cx, buffer);
        if polled.is_pending() {
            *lock(&self.fate.reader) = Some(cx.waker().clone());
        }
        polled
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        note_write(self.net.state.host, self.peer);
        self.risk();
        self.check()?;
        Pin::new(&mut self.tcp).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
