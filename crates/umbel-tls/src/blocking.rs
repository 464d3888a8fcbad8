//! TLS connections for blocking threads: one thread reads, one writes.
//!
//! Both share the state of the connection, and neither waits for the network while it holds the lock.
//! What the library sends by itself, such as the answer to a key update, is sent with the next write.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::{ClientConnection, Connection, ServerConnection};

use crate::clock::instant;
use crate::pinned::{SecretRefusal, SecretTls, nobody};

/// Bytes per read: a record with its overhead.
const READ_BYTES: usize = 18 << 10;

/// Bytes encrypted at a time: some records, less than the library's limit of unsent bytes.
const WRITE_BYTES: usize = 32 << 10;

/// The reading half of a TLS connection.
pub struct SecretReader {
    connection: Arc<Mutex<Connection>>,
    socket: TcpStream,
    raw: Box<[u8]>,
    /// The part of `raw` that was received and not decrypted yet.
    unread: std::ops::Range<usize>,
}

/// The writing half of a TLS connection.
pub struct SecretWriter {
    connection: Arc<Mutex<Connection>>,
    socket: TcpStream,
    records: Vec<u8>,
}

impl SecretTls {
    /// Authenticates both ends of a connection that this end has made, within a time limit.
    ///
    /// # Errors
    /// If the other end does not prove that it knows the secret. If the other end rejects this one, that
    /// shows only on the first read.
    pub fn connect_blocking(
        &self,
        socket: TcpStream,
        within: Duration,
    ) -> Result<(SecretReader, SecretWriter), SecretRefusal> {
        let connection = ClientConnection::new(Arc::clone(&self.client), nobody());
        let connection = connection.map_err(|refusal| SecretRefusal::of(&refusal))?;
        halves(connection.into(), socket, within)
    }

    /// Authenticates both ends of an accepted connection, within a time limit.
    ///
    /// # Errors
    /// If the other end does not prove that it knows the secret.
    pub fn accept_blocking(
        &self,
        socket: TcpStream,
        within: Duration,
    ) -> Result<(SecretReader, SecretWriter), SecretRefusal> {
        let connection = ServerConnection::new(Arc::clone(&self.server));
        let connection = connection.map_err(|refusal| SecretRefusal::of(&refusal))?;
        halves(connection.into(), socket, within)
    }
}

fn halves(
    mut connection: Connection,
    socket: TcpStream,
    within: Duration,
) -> Result<(SecretReader, SecretWriter), SecretRefusal> {
    shake_hands(&mut connection, &socket, within)?;
    let untimed = socket.set_read_timeout(None).and_then(|()| socket.set_write_timeout(None));
    let other = untimed.and_then(|()| socket.try_clone()).map_err(SecretRefusal::Broken)?;
    let connection = Arc::new(Mutex::new(connection));
    let reader = SecretReader {
        connection: Arc::clone(&connection),
        socket: other,
        raw: vec![0; READ_BYTES].into(),
        unread: 0..0,
    };
    Ok((reader, SecretWriter { connection, socket, records: Vec::new() }))
}

/// Runs the handshake. The time limit covers all of it, however slowly the other end sends.
fn shake_hands(
    connection: &mut Connection,
    mut socket: &TcpStream,
    within: Duration,
) -> Result<(), SecretRefusal> {
    let began = instant();
    let late = || SecretRefusal::Late { seconds: within.as_secs() };
    let broken = |error: io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => late(),
        _ => SecretRefusal::Broken(error),
    };
    loop {
        let left = within.checked_sub(began.elapsed()).filter(|left| !left.is_zero());
        let left = Some(left.ok_or_else(late)?);
        let timed = socket.set_read_timeout(left).and_then(|()| socket.set_write_timeout(left));
        timed.map_err(SecretRefusal::Broken)?;
        if connection.wants_write() {
            connection.write_tls(&mut socket).map_err(broken)?;
        } else if connection.is_handshaking() {
            match connection.read_tls(&mut socket) {
                Ok(0) => return Err(SecretRefusal::Broken(ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error)),
            }
            if let Err(refusal) = connection.process_new_packets() {
                // Tells the other end why, if it still reads.
                let _ = connection.write_tls(&mut socket);
                return Err(SecretRefusal::of(&refusal));
            }
        } else {
            return Ok(());
        }
    }
}

/// A panic in one half leaves the connection in a state in which the other half gets an error.
fn lock(connection: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Read for SecretReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            {
                let mut connection = lock(&self.connection);
                match connection.reader().read(buffer) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    // A connection that is cut off ends without close_notify. Sessions themselves detect
                    // whether they are complete.
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                    read => return read,
                }
                if !self.unread.is_empty() {
                    let mut unread = &self.raw[self.unread.clone()];
                    self.unread.start += connection.read_tls(&mut unread)?;
                    connection
                        .process_new_packets()
                        .map_err(|refusal| io::Error::new(ErrorKind::InvalidData, refusal))?;
                    continue;
                }
            }
            let count = self.socket.read(&mut self.raw)?;
            self.unread = 0..count;
            if count == 0 {
                // From now on the reader reports the end of the input.
                lock(&self.connection).read_tls(&mut io::empty())?;
            }
        }
    }
}

impl SecretWriter {
    /// Encrypts some of the bytes, with what the library has to send; returns how many bytes were
    /// consumed.
    fn encrypt(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut connection = lock(&self.connection);
        let taken = connection.writer().write(&bytes[..bytes.len().min(WRITE_BYTES)])?;
        while connection.wants_write() {
            connection.write_tls(&mut self.records)?;
        }
        Ok(taken)
    }
}

impl Write for SecretWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.records.clear();
        let taken = self.encrypt(bytes)?;
        self.socket.write_all(&self.records)?;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}
