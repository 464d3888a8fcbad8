//! Accepts sessions over TCP for one set.
//!
//! ```text
//!   accepts ──► a thread for each who knocks: it proves itself, or says its first message ──► one session after another
//! ```
//!
//! The set is checked before the first connection. It is not read for a connection before that step, and a
//! slow connection delays no other: a first message has a time limit, and where all places are taken, the oldest connection
//! gives way that has proved nothing.
//! Sessions do not run side by side: each may change the set, and holds up to some fifty bytes for each of its items. So
//! one without a secret has a time limit as soon as another one waits.

use super::drive::{Driving, Ended, answer, decline};
use super::endpoint::{HANDSHAKE_TIMEOUT, PeerConnection};
use super::set::ItemSet;
use super::turn::{Queue, TURN_PATIENCE, Turn, now};
use crate::error::{Context, ReconcileError, Result, bail, ensure};
use crate::foreign::foreign;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use umbel_files::UsageError;
use umbel_reconcile_engine::{Beginning, Options};
use umbel_tls::{HANDSHAKE_RECORD, SecretTls, StrangerLines};

/// Maximum number of connections that are authenticating or waiting for their session; for one more, the oldest that is
/// still authenticating is closed, and if there is none, more wait in the system's queue. Each has a socket and a thread.
const KNOCKING_MAX: usize = 32;

/// Maximum time from the first byte of a connection that need not authenticate to the end of its first message,
/// which has some hundred bytes and is sent at once: as long as a handshake may take. Before its first byte, a side
/// reads its whole set.
const FIRST_MESSAGE_TIMEOUT: Duration = HANDSHAKE_TIMEOUT;

/// Shortest time limit of a read: none is no limit.
const READ_TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// Bytes read at a time until the first message is whole: more than a first message has.
const FIRST_READ_BYTES: usize = 8 << 10;

/// Pause after a connection could not be accepted: the reason, such as too many open files, is seldom gone at
/// once, and must not take a processor meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Where to listen, and which connections to accept.
pub struct Listening<'l> {
    /// The address, `HOST:PORT`.
    pub address: &'l str,
    /// The secret that both sides prove to know; with `None` nobody is authenticated.
    pub secret: Option<SecretTls>,
    /// Whether connections without a secret may come from other machines.
    pub is_insecure: bool,
    /// Whether to end after one session.
    pub once: bool,
}

/// The result of a connection attempt.
enum Knocked {
    Admitted(PeerConnection),
    Refused(String),
}

/// Answers sessions, one after another, each over the file as it is then; it is opened once before, to check
/// it. With a folder of journals, cut sessions can be resumed.
///
/// # Errors
///
/// If the address cannot be listened on, or must not be without a secret; if the set cannot be opened at the
/// start; with `once`, if the session fails.
pub fn listen(
    listening: Listening<'_>,
    open: impl Fn() -> Result<Box<dyn ItemSet>>,
    options: impl Fn(&dyn ItemSet) -> Result<Options>,
    driving: Driving<'_>,
) -> Result<()> {
    listen_with(listening, open, options, driving, &Queue::new(TURN_PATIENCE))
}

fn listen_with(
    listening: Listening<'_>,
    open: impl Fn() -> Result<Box<dyn ItemSet>>,
    options: impl Fn(&dyn ItemSet) -> Result<Options>,
    driving: Driving<'_>,
    queue: &Arc<Queue>,
) -> Result<()> {
    let listener = bound(&listening)?;
    let Listening { address, secret, once, .. } = listening;
    // What would end every session is known before anybody comes.
    let ready = || -> Result<(Box<dyn ItemSet>, Options)> {
        let set = open()?;
        let options = options(&*set)?;
        Ok((set, options))
    };
    drop(ready()?);
    driving.observer.notice(format_args!("listening on {}", listener.local_addr()?));
    let _stops = StopsListening(listener.try_clone()?);
    let (knocked, arrivals) = sync_channel(KNOCKING_MAX);
    // Nobody has a turn after the only one, and who knows the secret is trusted to take no more time than it needs.
    let is_limited = secret.is_none() && !once;
    let silence = if secret.is_some() { HANDSHAKE_TIMEOUT } else { driving.timeouts.idle };
    let waits = Waits { silence, first_message: FIRST_MESSAGE_TIMEOUT, queue: Arc::clone(queue) };
    let knocking = Accepting { listener, secret, waits, knocked };
    spawn(move || knocking.run());
    let refusals = StrangerLines::default();
    for arrived in arrivals {
        let connection = match arrived {
            Ok(Knocked::Admitted(connection)) => connection,
            Ok(Knocked::Refused(why)) => {
                report_refusal(driving, &refusals, &why);
                continue;
            }
            Err(error) => return Err(error).with_context(|| address.to_owned()),
        };
        queue.leave();
        let turn = if is_limited { Turn::before(queue) } else { Turn::default() };
        let connection = PeerConnection { turn, ..connection };
        let peer = connection.peer.clone();
        let session = || match ready() {
            Ok((set, options)) => answer(&*set, options, connection, driving),
            Err(error) => {
                decline(connection, driving.timeouts);
                Err(error)
            }
        };
        match session().map_err(|error| error.of_peer(&peer)) {
            Ok(None) => driving.observer.notice(format_args!("{peer}: nothing was left to do")),
            Ok(Some(ended)) => {
                driving.observer.notice(format_args!("{peer}: {}", summary_of(&ended)));
            }
            Err(error) if once => return Err(error),
            Err(error) => driving.observer.notice(format_args!("{error:#}")),
        }
        if once {
            return Ok(());
        }
    }
    Ok(())
}

/// Reports a refused connection, unless there were too many just now.
fn report_refusal(driving: Driving<'_>, refusals: &StrangerLines, why: &str) {
    let Some(left_out) = refusals.take(now()) else { return };
    match left_out.count() {
        None => driving.observer.notice(format_args!("{why}")),
        Some(count) => {
            driving.observer.notice(format_args!("{why}; {count} more like this before"));
        }
    }
}

/// The socket that listens at the address. Without a secret other machines must not reach it, unless that is allowed.
fn bound(listening: &Listening<'_>) -> Result<TcpListener> {
    let address = listening.address;
    let addresses = address.to_socket_addrs().map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => ReconcileError::from(UsageError(format!(
            "{address}: expected HOST:PORT, like 127.0.0.1:7400"
        ))),
        _ => ReconcileError::from(error).context(address),
    });
    let addresses: Vec<SocketAddr> = addresses?.collect();
    let is_open = listening.secret.is_none() && !listening.is_insecure;
    if is_open && addresses.iter().any(|address| !address.ip().is_loopback()) {
        let text = format!(
            "{address}: whoever reaches it could read the set, and nobody is asked who they are: give both sides a \
             secret (--secret-file), or --insecure allows that"
        );
        return Err(UsageError(text).into());
    }
    TcpListener::bind(&addresses[..]).with_context(|| format!("{address}: cannot listen"))
}

/// What became of the set, and what it cost.
fn summary_of(ended: &Ended) -> String {
    let (change, outcome) = (&ended.change, &ended.outcome);
    let removed = match change.removed.len() {
        0 => String::new(),
        count => format!("{count} removed, "),
    };
    format!(
        "{} items came, {removed}{} bytes sent, {} received",
        change.added.len() + change.replaced.len(),
        outcome.sent_bytes,
        outcome.received_bytes
    )
}

/// Ends the accepting thread when dropped.
struct StopsListening(TcpListener);

impl Drop for StopsListening {
    fn drop(&mut self) {
        // `shutdown` works on a listening socket too and makes it accept no more. Where the system does
        // not support that, the thread ends with the next connection.
        if let Ok(listener) = self.0.try_clone() {
            drop(TcpStream::from(OwnedFd::from(listener)).shutdown(Shutdown::Both));
        }
    }
}

/// Spawns a thread that nobody joins: it waits for connections.
#[expect(clippy::disallowed_methods, reason = "a silent peer must not hold the process")]
fn spawn(work: impl FnOnce() + Send + 'static) {
    drop(std::thread::spawn(work));
}

/// Accepts connections until nobody receives them.
struct Accepting {
    listener: TcpListener,
    secret: Option<SecretTls>,
    waits: Waits,
    knocked: SyncSender<std::io::Result<Knocked>>,
}

/// How long a connection is waited for before it is admitted.
#[derive(Clone)]
struct Waits {
    /// Time in which it must say something.
    silence: Duration,
    /// Time in which the first message must be whole that has begun.
    first_message: Duration,
    /// Those that are admitted and wait for their turn.
    queue: Arc<Queue>,
}

/// The connections that have proved nothing yet, and have sent no whole first message.
#[derive(Clone, Default)]
struct Strangers(Arc<Mutex<StrangerTable>>);

#[derive(Default)]
struct StrangerTable {
    last: u64,
    /// Their sockets, the oldest first.
    sockets: BTreeMap<u64, TcpStream>,
}

impl Strangers {
    fn table(&self) -> MutexGuard<'_, StrangerTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, and returns its number.
    fn enter(&self, socket: &TcpStream) -> std::io::Result<u64> {
        let socket = socket.try_clone()?;
        let mut table = self.table();
        table.last += 1;
        let number = table.last;
        table.sockets.insert(number, socket);
        Ok(number)
    }

    /// Removes a connection; false if it had to give way.
    fn leave(&self, number: u64) -> bool {
        self.table().sockets.remove(&number).is_some()
    }

    /// Closes the oldest connection, whose thread then ends.
    fn end_oldest(&self) {
        let oldest = self.table().sockets.pop_first();
        if let Some((_, socket)) = oldest {
            drop(socket.shutdown(Shutdown::Both));
        }
    }
}

impl Accepting {
    fn run(self) {
        let strangers = Strangers::default();
        let (free, room) = sync_channel(KNOCKING_MAX);
        for _ in 0..KNOCKING_MAX {
            let _ = free.send(());
        }
        loop {
            let report = |error: &std::io::Error| self.report(error);
            let (socket, peer) = match accepted(|| self.listener.accept(), report) {
                Ok(taken) => taken,
                Err(error) => return drop(self.knocked.send(Err(error))),
            };
            if room.try_recv().is_err() {
                strangers.end_oldest();
                // Cannot fail: this thread holds the other end, too.
                let _ = room.recv();
            }
            let number = match strangers.enter(&socket) {
                Ok(number) => number,
                Err(error) => {
                    self.report(&error);
                    let _ = free.send(());
                    continue;
                }
            };
            let (free, knocked, strangers) =
                (free.clone(), self.knocked.clone(), strangers.clone());
            let (secret, waits) = (self.secret.clone(), self.waits.clone());
            spawn(move || {
                let admitted = admit(socket, peer, secret.as_ref(), &waits);
                let refused = match (admitted, strangers.leave(number)) {
                    // Keeps its slot until its session is taken.
                    (Ok(connection), true) => {
                        waits.queue.enter();
                        drop(knocked.send(Ok(Knocked::Admitted(connection))));
                        None
                    }
                    (Err(error), true) => Some(format!("{error:#}")),
                    (_, false) => Some("another connection needed its place".to_owned()),
                };
                if let Some(why) = refused {
                    // A refusal that finds the queue full, during a long session, is not reported.
                    let text = format!("{peer}: not let in: {why}");
                    drop(knocked.try_send(Ok(Knocked::Refused(text))));
                }
                let _ = free.send(());
            });
        }
    }

    /// Reports that a connection could not be accepted, and waits a moment.
    fn report(&self, error: &std::io::Error) {
        let text = format!("a connection cannot be accepted: {error}: it is tried again");
        drop(self.knocked.try_send(Ok(Knocked::Refused(text))));
        // Nobody wakes this thread.
        std::thread::park_timeout(ACCEPT_PAUSE);
    }
}

/// Accepts a connection. An error is reported and then tried again, unless the socket no longer listens:
/// accept(2) also returns errors of the network and of resources that run out, which pass.
fn accepted<T>(
    accept: impl Fn() -> std::io::Result<T>,
    report: impl Fn(&std::io::Error),
) -> std::io::Result<T> {
    loop {
        match accept() {
            Ok(taken) => return Ok(taken),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::INVAL | Errno::BADF) => return Err(error),
                // The peer has already closed the connection.
                Some(Errno::CONNABORTED | Errno::INTR) => {}
                _ => report(&error),
            },
        }
    }
}

/// Waits until the peer has authenticated or, without a secret, has sent its first message.
fn admit(
    socket: TcpStream,
    peer: SocketAddr,
    secret: Option<&SecretTls>,
    waits: &Waits,
) -> Result<PeerConnection> {
    let speaks_tls = first_byte(&socket, waits.silence)? == HANDSHAKE_RECORD;
    let peer = peer.to_string();
    match secret {
        Some(tls) => {
            ensure!(speaks_tls, "it speaks no TLS, so it was not given the secret (--secret-file)");
            socket.set_read_timeout(None)?;
            PeerConnection::accepted(socket, peer, tls)
        }
        None => {
            ensure!(
                !speaks_tls,
                "it speaks TLS, and this side was given no secret (--secret-file)"
            );
            let first = first_message(&socket, waits.first_message)?;
            socket.set_read_timeout(None)?;
            Ok(PeerConnection::tcp(socket, peer)?.after(first))
        }
    }
}

/// Whether a read has ended because of its time limit.
fn is_late(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Waits until the peer has sent something, and leaves it unread.
fn first_byte(socket: &TcpStream, silence: Duration) -> Result<u8> {
    let (since, mut first) = (now(), [0]);
    loop {
        let left = silence.saturating_sub(since.elapsed());
        ensure!(!left.is_zero(), "it said nothing within {} s", silence.as_secs());
        socket.set_read_timeout(Some(left))?;
        match socket.peek(&mut first) {
            Ok(0) => bail!("it hung up before it said anything"),
            Ok(_) => return Ok(first[0]),
            Err(error) if is_late(&error) || error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads until the peer's first message is whole, within a time that covers all of it, however slowly it comes. What
/// has already arrived is read in any case.
fn first_message(mut socket: &TcpStream, within: Duration) -> Result<Vec<u8>> {
    let (since, mut first) = (now(), Vec::new());
    loop {
        let left = within.saturating_sub(since.elapsed());
        socket.set_read_timeout(Some(left.max(READ_TIMEOUT_MIN)))?;
        let mut read = [0; FIRST_READ_BYTES];
        match socket.read(&mut read) {
            Ok(0) => bail!("it hung up in its first message"),
            Ok(count) => first.extend_from_slice(&read[..count]),
            Err(error) if is_late(&error) || error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        match Beginning::of(&first) {
            Beginning::Whole => return Ok(first),
            Beginning::Foreign => return Err(foreign(&first)),
            Beginning::Partial => {
                let seconds = within.as_secs();
                ensure!(
                    since.elapsed() < within,
                    "its first message was not whole within {seconds} s"
                );
            }
        }
    }
}

#[cfg(test)]
#[path = "listen_test.rs"]
mod listen_test;
