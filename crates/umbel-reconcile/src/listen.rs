//! Accepts sessions over TCP for one set.
//!
//! ```text
//!   accepts ──► a thread for each who knocks: it proves itself, or says something ──► one session after another
//! ```
//!
//! The set is checked before the first connection. It is not read for a connection before that step, and a
//! slow connection delays no other.

use super::drive::{Driving, Ended, answer, decline};
use super::endpoint::{HANDSHAKE_TIMEOUT, PeerConnection};
use super::set::ItemSet;
use crate::error::{Context, ReconcileError, Result, ensure, failed};
use rustix::io::Errno;
use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use umbel_files::UsageError;
use umbel_reconcile_engine::Options;
use umbel_tls::{HANDSHAKE_RECORD, SecretTls};

/// Maximum number of connections that are authenticating or waiting for their session; more wait in the
/// system's queue. Each has a socket and a thread.
const KNOCKING_MAX: usize = 32;

/// Maximum number of refused connections reported between two sessions, so that strangers cannot fill a
/// log.
const REFUSALS_REPORTED_MAX: usize = 20;

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
    let Listening { address, secret, is_insecure, once } = listening;
    let addresses = address.to_socket_addrs().map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => ReconcileError::from(UsageError(format!(
            "{address}: expected HOST:PORT, like 127.0.0.1:7400"
        ))),
        _ => ReconcileError::from(error).context(address),
    });
    let addresses: Vec<SocketAddr> = addresses?.collect();
    let is_open = secret.is_none() && !is_insecure;
    if is_open && addresses.iter().any(|address| !address.ip().is_loopback()) {
        let text = format!(
            "{address}: whoever reaches it could read the set, and nobody is asked who they are: give both sides a \
             secret (--secret-file), or --insecure allows that"
        );
        return Err(UsageError(text).into());
    }
    let listener =
        TcpListener::bind(&addresses[..]).with_context(|| format!("{address}: cannot listen"))?;
    // What would end every session is known before anybody comes.
    let ready = || -> Result<(Box<dyn ItemSet>, Options)> {
        let set = open()?;
        let options = options(&*set)?;
        Ok((set, options))
    };
    drop(ready()?);
    driving.observer.notice(format_args!("listening on {}", listener.local_addr()?));
    let _stops = Stops(listener.try_clone()?);
    let (knocked, arrivals) = sync_channel(KNOCKING_MAX);
    let knocking = Knocking { listener, secret, idle: driving.patience.idle, knocked };
    spawn(move || knocking.run());
    let mut reported = 0;
    for arrived in arrivals {
        let connection = match arrived {
            Ok(Knocked::Admitted(connection)) => connection,
            Ok(Knocked::Refused(why)) => {
                reported += 1;
                if reported <= REFUSALS_REPORTED_MAX {
                    driving.observer.notice(format_args!("{why}"));
                }
                continue;
            }
            Err(error) => return Err(error).with_context(|| address.to_owned()),
        };
        reported = 0;
        let peer = connection.peer.clone();
        let session = || match ready() {
            Ok((set, options)) => answer(&*set, options, connection, driving),
            Err(error) => {
                decline(connection, driving.patience);
                Err(error)
            }
        };
        match session().map_err(|error| error.of_peer(&peer)) {
            Ok(None) => driving.observer.notice(format_args!("{peer}: nothing was left to do")),
            Ok(Some(ended)) => driving.observer.notice(format_args!("{peer}: {}", told(&ended))),
            Err(error) if once => return Err(error),
            Err(error) => driving.observer.notice(format_args!("{error:#}")),
        }
        if once {
            return Ok(());
        }
    }
    Ok(())
}

/// What became of the set, and what it cost.
fn told(ended: &Ended) -> String {
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
struct Stops(TcpListener);

impl Drop for Stops {
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
struct Knocking {
    listener: TcpListener,
    secret: Option<SecretTls>,
    /// How long a connection that need not authenticate may be silent.
    idle: Duration,
    knocked: SyncSender<std::io::Result<Knocked>>,
}

impl Knocking {
    fn run(self) {
        let (free, room) = sync_channel(KNOCKING_MAX);
        for _ in 0..KNOCKING_MAX {
            let _ = free.send(());
        }
        loop {
            let (socket, peer) = match self.next(&room) {
                Ok(taken) => taken,
                Err(error) => return drop(self.knocked.send(Err(error))),
            };
            let (free, knocked) = (free.clone(), self.knocked.clone());
            let (secret, idle) = (self.secret.clone(), self.idle);
            spawn(move || {
                match admit(socket, peer, secret.as_ref(), idle) {
                    // Keeps its slot until its session is taken.
                    Ok(connection) => drop(knocked.send(Ok(Knocked::Admitted(connection)))),
                    Err(error) => {
                        // A refusal that finds the queue full, during a long session, is not reported.
                        let text = format!("{peer}: not let in: {error:#}");
                        drop(knocked.try_send(Ok(Knocked::Refused(text))));
                    }
                }
                let _ = free.send(());
            });
        }
    }

    fn next(&self, room: &Receiver<()>) -> std::io::Result<(TcpStream, SocketAddr)> {
        // Cannot fail: this thread holds the other end, too.
        let _ = room.recv();
        let report = |error: &std::io::Error| {
            let text = format!("a connection cannot be accepted: {error}: it is tried again");
            drop(self.knocked.try_send(Ok(Knocked::Refused(text))));
            // Nobody wakes this thread.
            std::thread::park_timeout(ACCEPT_PAUSE);
        };
        accepted(|| self.listener.accept(), report)
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

/// Waits until the peer has authenticated or, without a secret, has sent its first byte.
fn admit(
    socket: TcpStream,
    peer: SocketAddr,
    secret: Option<&SecretTls>,
    idle: Duration,
) -> Result<PeerConnection> {
    let within = if secret.is_some() { HANDSHAKE_TIMEOUT } else { idle };
    let mut first = [0];
    socket.set_read_timeout(Some(within))?;
    let count = socket.peek(&mut first).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            failed!("it said nothing within {} s", within.as_secs())
        }
        _ => error.into(),
    })?;
    socket.set_read_timeout(None)?;
    ensure!(count > 0, "it hung up before it said anything");
    let speaks_tls = first[0] == HANDSHAKE_RECORD;
    let peer = peer.to_string();
    match secret {
        Some(tls) => {
            ensure!(speaks_tls, "it speaks no TLS, so it was not given the secret (--secret-file)");
            PeerConnection::accepted(socket, peer, tls)
        }
        None => {
            ensure!(
                !speaks_tls,
                "it speaks TLS, and this side was given no secret (--secret-file)"
            );
            PeerConnection::tcp(socket, peer)
        }
    }
}

#[cfg(test)]
#[path = "listen_test.rs"]
mod listen_test;
