//! A set that others may reconcile with, over TCP.
//!
//! ```text
//!   accepts ──► a thread for each who knocks: it proves itself, or says something ──► one session after another
//! ```
//!
//! Nothing is read of the set for somebody who has not come so far, and who takes long to keeps nobody else waiting.

use super::drive::{Driving, answer};
use super::endpoint::{Connection, HANDSHAKE_TIMEOUT};
use super::set::ItemSet;
use crate::error::{Context, Result, ensure, failed};
use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use umbel_files::UsageError;
use umbel_reconcile_engine::Options;
use umbel_tls::{HANDSHAKE_RECORD, SecretTls};

/// Connections that prove themselves or wait for their turn; more wait in the system's queue. Each has a socket and a
/// thread.
const KNOCKING_MAX: usize = 32;

/// Refused connections that are shown between two sessions: strangers shall not fill a disk with lines.
const REFUSALS_REPORTED_MAX: usize = 20;

/// Where to listen, and for whom.
pub struct Listening<'l> {
    /// The address, `HOST:PORT`.
    pub address: &'l str,
    /// What both sides prove themselves by; none for whoever comes.
    pub secret: Option<SecretTls>,
    /// Whether whoever comes may come from other machines.
    pub is_insecure: bool,
    /// Whether it ends after one session.
    pub once: bool,
}

/// What becomes of a connection.
enum Knocked {
    Admitted(Connection),
    Refused(String),
}

/// Answers sessions, one after another, each with the file as it is then. With a folder of journals, those that are cut
/// can go on.
///
/// # Errors
///
/// If the address cannot be listened on, or may not be; with `once`, if the session fails.
pub fn listen(
    listening: Listening<'_>,
    open: impl Fn() -> Result<Box<dyn ItemSet>>,
    options: impl Fn(&dyn ItemSet) -> Result<Options>,
    driving: Driving<'_>,
) -> Result<()> {
    let Listening { address, secret, is_insecure, once } = listening;
    let addresses: Vec<SocketAddr> =
        address.to_socket_addrs().with_context(|| address.to_owned())?.collect();
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
        let session = || {
            let set = open()?;
            answer(&*set, options(&*set)?, connection, driving)
        };
        match session() {
            Ok(None) => driving.observer.notice(format_args!("{peer}: nothing was left to do")),
            Ok(Some(ended)) => driving.observer.notice(format_args!(
                "{peer}: {} items came, {} bytes sent, {} received",
                ended.change.added.len() + ended.change.replaced.len(),
                ended.outcome.sent_bytes,
                ended.outcome.received_bytes
            )),
            Err(error) if once => return Err(error),
            Err(error) => driving.observer.notice(format_args!("{error:#}")),
        }
        if once {
            return Ok(());
        }
    }
    Ok(())
}

/// Ends the thread that accepts.
struct Stops(TcpListener);

impl Drop for Stops {
    fn drop(&mut self) {
        // A socket is a socket: one that listens and is shut down accepts no more. Where the system does not do that, the
        // thread ends with the next connection.
        if let Ok(listener) = self.0.try_clone() {
            drop(TcpStream::from(OwnedFd::from(listener)).shutdown(Shutdown::Both));
        }
    }
}

/// A thread that waits for connections, whose ends nobody waits for.
#[expect(clippy::disallowed_methods, reason = "a silent peer must not hold the process")]
fn spawn(work: impl FnOnce() + Send + 'static) {
    drop(std::thread::spawn(work));
}

/// Takes connections until nobody wants them.
struct Knocking {
    listener: TcpListener,
    secret: Option<SecretTls>,
    /// How long somebody who need not prove anything may be silent.
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
                    // Keeps its place until it is its turn.
                    Ok(connection) => drop(knocked.send(Ok(Knocked::Admitted(connection)))),
                    Err(error) => {
                        // A refusal that is not shown during a long session is not shown at all.
                        let text = format!("{peer}: not let in: {error:#}");
                        drop(knocked.try_send(Ok(Knocked::Refused(text))));
                    }
                }
                let _ = free.send(());
            });
        }
    }

    fn next(&self, room: &Receiver<()>) -> std::io::Result<(TcpStream, SocketAddr)> {
        // Its other end is this thread's.
        let _ = room.recv();
        loop {
            match self.listener.accept() {
                // It is gone already.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                taken => return taken,
            }
        }
    }
}

/// Waits until the other end has proved itself or, where nobody has to, has said something.
fn admit(
    socket: TcpStream,
    peer: SocketAddr,
    secret: Option<&SecretTls>,
    idle: Duration,
) -> Result<Connection> {
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
            Connection::accepted(socket, peer, tls)
        }
        None => {
            ensure!(
                !speaks_tls,
                "it speaks TLS, and this side was given no secret (--secret-file)"
            );
            Connection::tcp(socket, peer)
        }
    }
}

#[cfg(test)]
#[path = "listen_test.rs"]
mod listen_test;
