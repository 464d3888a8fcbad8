//! The bytes that follow a session: contents, and the byte that confirms the application.

use super::{APPLIED, Drive, Event};
use crate::error::{Context, ReconcileError, Result, bail, ensure};
use std::io::{self, Read};
use umbel_reconcile_engine::SessionError;

/// Most bytes that may arrive while this side sends contents. The other side sends none then: it waits for
/// the contents, and what it asked for has been read.
const UNREAD_BYTES_MAX: usize = 1 << 20;

impl Drive<'_> {
    /// Waits for the byte with which the other side confirms that it has applied what it received.
    pub(super) fn receive_applied(&mut self) -> Result<()> {
        let mut byte = [0];
        // The other side's set is changed: no limit may keep this one from the same.
        self.behind[1] += 1;
        self.fill(&mut byte)?;
        if byte == [APPLIED] { Ok(()) } else { bail!("something else came") }
    }

    /// Confirms that this side has applied what it received, whatever the limit is.
    pub(super) fn send_applied(&mut self) -> Result<()> {
        self.behind[0] += 1;
        self.put(vec![APPLIED])
    }

    /// Reads bytes that follow the session.
    pub(crate) fn read_exact(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.behind[1] += buffer.len() as u64;
        self.check_bytes()?;
        self.fill(buffer)
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            filled += self.pending.read(&mut buffer[filled..])?;
            if self.pending.is_empty() && filled < buffer.len() {
                if let Some(bytes) = self.next_journaled()? {
                    self.pending.extend(bytes);
                    continue;
                }
                match self.next_event()? {
                    Event::Bytes(bytes) => self.pending.extend(bytes),
                    Event::Closed(Some(error)) => return Err(error).context("cannot read"),
                    Event::Closed(None) => return Err(ended_too_early()),
                    Event::Written(outcome) => outcome.context("cannot write")?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Sends bytes that follow the session.
    pub(crate) fn send(&mut self, bytes: Vec<u8>) -> Result<()> {
        self.behind[0] += bytes.len() as u64;
        self.check_bytes()?;
        // If the writer has ended, the next wait returns its error.
        self.put(bytes)
    }

    /// Waits until everything that was sent is written.
    pub(crate) fn wait_written(&mut self) -> Result<()> {
        self.link.mark();
        loop {
            match self.next_event()? {
                Event::Bytes(bytes) => {
                    self.pending.extend(bytes);
                    ensure!(
                        self.pending.len() <= UNREAD_BYTES_MAX,
                        "{} bytes came while contents were sent, at most {UNREAD_BYTES_MAX} are allowed",
                        self.pending.len()
                    );
                }
                Event::Written(outcome) => return outcome.context("cannot write"),
                Event::Closed(Some(error)) => return Err(error).context("cannot read"),
                Event::Closed(None) => return Err(ended_too_early()),
                _ => {}
            }
        }
    }

    /// Checks that all bytes, with those of the session, are within its limit.
    fn check_bytes(&self) -> Result<()> {
        let (got, max) = (self.session_bytes + self.behind[0] + self.behind[1], self.bytes_max);
        if got > max {
            let limit = "bytes on the wire";
            return Err(SessionError::LimitExceeded { limit, got, max }.into());
        }
        Ok(())
    }
}

/// The other side closed the connection without a reason.
fn ended_too_early() -> ReconcileError {
    io::Error::new(io::ErrorKind::BrokenPipe, "the connection ended too early").into()
}

impl Read for Drive<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_exact(buffer).map_err(io::Error::other)?;
        Ok(buffer.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Driving, Initiative};
    use super::*;
    use crate::{Connection, Form, ItemSet, Observer, Patience, open_set};
    use std::fmt;
    use std::time::Duration;

    struct Silent;

    impl Observer for Silent {
        fn notice(&self, _: fmt::Arguments<'_>) {}
    }

    fn drive(set: &dyn ItemSet, connection: Connection) -> Drive<'_> {
        let initiative = Initiative { delete: false };
        let patience = Patience { idle: Duration::from_secs(60), whole: None };
        let driving =
            Driving { initiative, patience, journal: None, observer: &Silent, draw: || 7 };
        Drive::new(set, connection, driving)
    }

    #[test]
    fn who_sends_while_contents_are_sent_to_it_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let set = open_set(folder.path(), &Form::Tree).unwrap();
        let [here, there] = Connection::pair(["a", "b"].map(str::to_owned)).unwrap();
        let (mut here, mut there) = (drive(&*set, here), drive(&*set, there));
        (here.bytes_max, there.bytes_max) = (u64::MAX, u64::MAX);
        there.send(vec![0; 2 * UNREAD_BYTES_MAX]).unwrap();
        // Nobody takes as much, so that it is never written.
        here.send(vec![0; 16 << 20]).unwrap();
        let error = here.wait_written().unwrap_err().to_string();
        assert!(error.contains("came while contents were sent"), "{error}");
    }

    #[test]
    fn what_follows_a_session_counts_against_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let set = open_set(folder.path(), &Form::Tree).unwrap();
        let [here, there] = Connection::pair(["a", "b"].map(str::to_owned)).unwrap();
        let (mut here, mut there) = (drive(&*set, here), drive(&*set, there));
        (here.session_bytes, here.bytes_max, there.bytes_max) = (90, 100, 100);
        here.send(vec![1; 10]).unwrap();
        let error = here.read_exact(&mut [0]).unwrap_err().to_string();
        assert!(error.contains("101 bytes on the wire, at most 100"), "{error}");
        assert!(here.send(vec![1]).is_err());
        let mut read = [0; 10];
        there.read_exact(&mut read).unwrap();
        assert_eq!(read, [1; 10]);
        // The byte that confirms the application passes in any case.
        here.send_applied().unwrap();
        there.session_bytes = 90;
        there.receive_applied().unwrap();
    }
}
