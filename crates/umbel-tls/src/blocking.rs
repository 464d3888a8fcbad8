//! Encrypted connections for threads that wait: one reads, one writes.
//!
//! Both share the state of the connection, and none waits for the network while it holds that. What
//! the library wants to say by itself, as the answer to new keys, goes out with what is written next.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::{ClientConnection, Connection, ServerConnection};

use crate::clock::instant;
use crate::pinned::{SecretRefusal, SecretTls, nobody};

/// Bytes that are read at a time: a record and what is around it.
const READ_BYTES: usize = 18 << 10;

/// Bytes that are encrypted at a time: some records, below what the library holds unsent.
const WRITE_BYTES: usize = 32 << 10;

/// What is read from an encrypted connection.
pub struct SecretReader {
    connection: Arc<Mutex<Connection>>,
    socket: TcpStream,
    raw: Box<[u8]>,
    /// What of it came and was not taken yet.
    unread: std::ops::Range<usize>,
}

/// What is written to an encrypted connection.
pub struct SecretWriter {
    connection: Arc<Mutex<Connection>>,
    socket: TcpStream,
    records: Vec<u8>,
}

impl SecretTls {
    /// Proves both ends of a connection that this one has made, within a time.
    ///
    /// # Errors
    /// If the other end does not prove that it knows the secret. That it does not believe this one
    /// shows only when it is read.
    pub fn connect_blocking(
        &self,
        socket: TcpStream,
        within: Duration,
    ) -> Result<(SecretReader, SecretWriter), SecretRefusal> {
        let connection = ClientConnection::new(Arc::clone(&self.client), nobody());
        let connection = connection.map_err(|refusal| SecretRefusal::of(&refusal))?;
        halves(connection.into(), socket, within)
    }

    /// Proves both ends of a connection that was taken, within a time.
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

/// Until both ends have proved themselves: however slowly the other one speaks, it ends in time.
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
                // The other end hears why, if it still listens.
                let _ = connection.write_tls(&mut socket);
                return Err(SecretRefusal::of(&refusal));
            }
        } else {
            return Ok(());
        }
    }
}

/// What panicked in one half leaves the other one with a connection that ends with an error.
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
                    // Who is cut off says no farewell. A session knows by itself whether it is whole.
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
                // From now on the reader says that it has ended.
                lock(&self.connection).read_tls(&mut io::empty())?;
            }
        }
    }
}

impl SecretWriter {
    /// Encrypts some of it, and whatever else is to be said: how much was taken.
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
