//! The bytes that follow a session: contents, and the byte that confirms the application, or a refusal.
//!
//! A refusal is [`REFUSED`], the length of the reason in 2 bytes, and the reason. A responder sends it in the place of
//! whatever the initiator waits for.

use super::{APPLIED, Drive, Event};
use crate::error::{Context, ReconcileError, Result, bail, ensure};
use std::io::{self, Read};
use umbel_reconcile_engine::SessionError;

/// Most bytes that may arrive while this side sends contents. The other side sends none then: it waits for
/// the contents, and what it asked for has been read.
const UNREAD_BYTES_MAX: usize = 1 << 20;

/// Begins a refusal. It is neither [`APPLIED`], nor a number of contents or a length of a piece that is allowed, so that
/// older builds end with an error, too.
pub(crate) const REFUSED: [u8; 4] = [0xff; 4];

/// Longest reason of a refusal: a few paths and causes.
const REASON_BYTES_MAX: usize = 1 << 10;

impl Drive<'_> {
    /// Waits for the byte with which the other side confirms that it has applied what it received.
    pub(super) fn receive_applied(&mut self) -> Result<()> {
        let mut byte = [0];
        // The other side's set is changed: no limit may keep this one from the same.
        self.behind.received += 1;
        self.fill(&mut byte)?;
        if byte == [APPLIED] {
            return Ok(());
        }
        let mut rest = [0; REFUSED.len() - 1];
        if byte == REFUSED[..1] {
            self.fill(&mut rest)?;
        }
        if rest == REFUSED[1..] {
            Err(self.receive_refusal())
        } else {
            bail!("something else came")
        }
    }

    /// Tells the other side why this one does not apply what it received, unless the connection is what failed.
    /// Not in a session with journals: it can go on at the place where it failed, and its bytes must stay the same. Returns
    /// whether that is written: if it is not, nobody but this side shows the error.
    pub(super) fn send_refusal(&mut self, error: &ReconcileError) -> bool {
        if self.resumed.is_some() || self.is_cut || error.is_peer_gone() {
            return false;
        }
        let reason = format!("{error:#}");
        let reason = &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)];
        let length = u16::try_from(reason.len()).expect("a short reason");
        let mut message = REFUSED.to_vec();
        message.extend(length.to_le_bytes());
        message.extend(reason.bytes());
        self.link.send(message);
        self.wait_sent()
    }

    /// The refusal whose first bytes, [`REFUSED`], were just read.
    pub(crate) fn receive_refusal(&mut self) -> ReconcileError {
        self.read_reason().map_or_else(|error| error, ReconcileError::Refused)
    }

    fn read_reason(&mut self) -> Result<String> {
        let mut length = [0; 2];
        self.fill(&mut length)?;
        let length = usize::from(u16::from_le_bytes(length));
        ensure!(
            length <= REASON_BYTES_MAX,
            "a reason of {length} bytes came, at most {REASON_BYTES_MAX} are allowed"
        );
        let mut reason = vec![0; length];
        self.fill(&mut reason)?;
        // The other side may be cleaning up: a program is killed once this side leaves.
        while matches!(self.next_event(), Ok(Event::Written(_))) {}
        Ok(for_terminal(&reason))
    }

    /// The refusal that has arrived where the other side has nothing else to send, if one has.
    fn unread_refusal(&mut self) -> Option<ReconcileError> {
        let is_refusal = self.pending.iter().take(REFUSED.len()).eq(&REFUSED);
        is_refusal.then(|| {
            self.pending.drain(..REFUSED.len());
            self.receive_refusal()
        })
    }

    /// The error of a failed write: what the other side said before it closed the connection, if that is a refusal.
    fn write_failed(&mut self, error: io::Error) -> ReconcileError {
        let refusal = if self.resumed.is_none() { self.unread_refusal() } else { None };
        refusal.unwrap_or_else(|| ReconcileError::from(error).context("cannot write"))
    }

    /// Confirms that this side has applied what it received, whatever the limit is.
    pub(super) fn send_applied(&mut self) -> Result<()> {
        self.behind.sent += 1;
        self.put(vec![APPLIED])
    }

    /// The user may see this phase, which follows the session.
    pub(crate) fn enter(&self, phase: &'static str) {
        self.observer.phase(phase);
    }

    /// So many contents have gone over in this phase.
    pub(crate) fn note_contents(&self, done_count: usize, all_count: usize) {
        self.observer.contents(done_count, all_count);
    }

    /// Reads bytes that follow the session.
    pub(crate) fn read_exact(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.behind.received += buffer.len() as u64;
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
                    Event::Written(Err(error)) => return Err(self.write_failed(error)),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Sends bytes that follow the session.
    pub(crate) fn send(&mut self, bytes: Vec<u8>) -> Result<()> {
        self.behind.sent += bytes.len() as u64;
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
                    if let Some(refusal) = self.unread_refusal() {
                        return Err(refusal);
                    }
                    ensure!(
                        self.pending.len() <= UNREAD_BYTES_MAX,
                        "{} bytes came while contents were sent, at most {UNREAD_BYTES_MAX} are allowed",
                        self.pending.len()
                    );
                }
                Event::Written(Ok(())) => return Ok(()),
                Event::Written(Err(error)) => return Err(self.write_failed(error)),
                Event::Closed(Some(error)) => return Err(error).context("cannot read"),
                Event::Closed(None) => return Err(ended_too_early()),
                _ => {}
            }
        }
    }

    /// Checks that all bytes, with those of the session, are within its limit.
    fn check_bytes(&self) -> Result<()> {
        let (got, max) =
            (self.session_bytes + self.behind.sent + self.behind.received, self.bytes_max);
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

/// A text of the other side, without characters that act on a terminal or hide others.
fn for_terminal(text: &[u8]) -> String {
    let is_hiding = |c: char| {
        matches!(
            c,
            '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
        )
    };
    let plain = |c: char| if c.is_control() || is_hiding(c) { '?' } else { c };
    String::from_utf8_lossy(text).chars().map(plain).collect()
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
    use crate::{Form, ItemSet, PeerConnection, SessionObserver, Timeouts, open_set};
    use std::fmt;
    use std::time::Duration;
    use umbel_reconcile_engine::{ResumeFrame, ResumeOffer};

    struct Silent;

    impl SessionObserver for Silent {
        fn notice(&self, _: fmt::Arguments<'_>) {}
    }

    /// A side whose session has ended.
    fn drive(set: &dyn ItemSet, connection: PeerConnection) -> Drive<'_> {
        let initiative = Initiative { delete: false };
        let timeouts = Timeouts { idle: Duration::from_secs(60), whole: None };
        let driving =
            Driving { initiative, timeouts, journal: None, observer: &Silent, draw: || 7 };
        let drive = Drive::new(set, connection, driving);
        // What follows a session need not look like the beginning of one.
        let first = ResumeFrame::Offer(ResumeOffer::first(7)).to_bytes();
        assert!(drive.link.traffic.heard.add(&first));
        drive
    }

    #[test]
    fn who_sends_while_contents_are_sent_to_it_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let set = open_set(folder.path(), &Form::Tree).unwrap();
        let [here, there] = PeerConnection::pair(["a", "b"].map(str::to_owned)).unwrap();
        let (mut here, mut there) = (drive(&*set, here), drive(&*set, there));
        (here.bytes_max, there.bytes_max) = (u64::MAX, u64::MAX);
        there.send(vec![0; 2 * UNREAD_BYTES_MAX]).unwrap();
        // Nobody takes as much, so that it is never written.
        here.send(vec![0; 16 << 20]).unwrap();
        let error = here.wait_written().unwrap_err().to_string();
        assert!(error.contains("came while contents were sent"), "{error}");
    }

    #[test]
    fn a_refusal_reaches_the_other_side_wherever_it_waits() {
        let folder = tempfile::tempdir().unwrap();
        let set = open_set(folder.path(), &Form::Tree).unwrap();
        for is_sending in [false, true] {
            let [here, there] = PeerConnection::pair(["a", "b"].map(str::to_owned)).unwrap();
            let (mut here, mut there) = (drive(&*set, here), drive(&*set, there));
            here.bytes_max = u64::MAX;
            let why = format!("b: disk full\u{1b}[2J\u{202e}{}", "\u{e9}".repeat(REASON_BYTES_MAX));
            assert!(there.send_refusal(&ReconcileError::Failed(why)));
            // Nobody takes as much, so that it is never written.
            here.send(vec![0; 16 << 20]).unwrap();
            drop(there);
            let waited = if is_sending { here.wait_written() } else { here.receive_applied() };
            let error = waited.unwrap_err();
            let text = error.to_string();
            assert!(error.is_refusal() && !error.is_peer_gone(), "{text}");
            let begins = "the change could not be applied there; the other side says: \"b: disk full?[2J?\u{e9}";
            assert!(text.starts_with(begins) && text.ends_with("\u{e9}\""), "{text}");
            assert!(text.len() < begins.len() + REASON_BYTES_MAX, "{text}");
        }
    }

    /// Every write fails, though the connection is open.
    struct Broken;

    impl io::Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::TimedOut.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Regression: neither side showed the reason.
    #[test]
    fn a_refusal_that_is_not_written_is_not_told() {
        let folder = tempfile::tempdir().unwrap();
        let set = open_set(folder.path(), &Form::Tree).unwrap();
        let refuse = |there: PeerConnection| {
            let mut there = drive(&*set, there);
            let is_told = there.send_refusal(&ReconcileError::Failed("disk full".into()));
            // What was sent before it is asked for as a whole.
            (is_told, there.wait_sent())
        };
        let pair = || PeerConnection::pair(["a", "b"].map(str::to_owned)).unwrap();
        let [_here, there] = pair();
        assert_eq!(refuse(there), (true, true));
        let [_here, there] = pair();
        assert_eq!(refuse(PeerConnection { writer: Box::new(Broken), ..there }), (false, false));
        // The other side is gone.
        let [here, there] = pair();
        drop(here);
        assert!(!refuse(there).0);
    }

    #[test]
    fn a_refusal_with_a_reason_that_is_too_long_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let set = open_set(folder.path(), &Form::Tree).unwrap();
        let [here, there] = PeerConnection::pair(["a", "b"].map(str::to_owned)).unwrap();
        let (mut here, mut there) = (drive(&*set, here), drive(&*set, there));
        there.bytes_max = u64::MAX;
        there.send([&REFUSED[..], &[0xff; 2]].concat()).unwrap();
        let error = here.receive_applied().unwrap_err().to_string();
        assert!(error.contains("a reason of 65535 bytes came"), "{error}");
    }

    #[test]
    fn what_follows_a_session_counts_against_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let set = open_set(folder.path(), &Form::Tree).unwrap();
        let [here, there] = PeerConnection::pair(["a", "b"].map(str::to_owned)).unwrap();
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
