//! What a side says when it cannot go on with a session, so that the other one learns more than that the
//! connection ended.
//!
//! The cause is for this side's own messages: who asks may be a stranger.

use super::Drive;
use crate::endpoint::PeerConnection;
use crate::link::{Event, Link, Reading};
use crate::turn::Timeouts;
use std::time::Duration;
use umbel_reconcile_engine::{
    Direction, JOURNAL_ON_ONE_SIDE, Options, Session, SessionError, SessionInput, SessionOutput,
    SymbolKind,
};
use umbel_step::Outbox;

/// What the other side is told where this one failed.
pub(super) const CANNOT_READ: &str = "it cannot read its set: its own messages say why";

/// What the other side is told where an item of this one is longer than a session carries.
pub(super) const TOO_LONG: &str =
    "an item of its set is longer than those that are sent: its own messages name it";

/// What the other side is told whose time has ended.
pub(super) const OTHERS_WAIT: &str =
    "others wait, and this session took long: run it again later, or give both sides a secret";

/// Why the time of a peer has ended.
pub(super) fn overdue(peer: &str, time: Duration) -> String {
    format!("{peer}: others wait, and this side has waited for it for {} s", time.as_secs())
}

/// Ends a session; returns what it sends. A session that has ended says nothing more.
fn last_bytes(mut session: Session, why: &'static str) -> Vec<u8> {
    let mut out = Outbox::new();
    session.step(SessionInput::Cancel(why), &mut out);
    let sent = out.take().into_iter().filter_map(|order| match order {
        SessionOutput::Send(bytes) => Some(bytes),
        _ => None,
    });
    sent.flatten().collect()
}

/// Tells a peer that this side cannot answer it, whatever it asks for.
pub(crate) fn decline(connection: PeerConnection, timeouts: Timeouts) {
    let mut link = Link::new(connection, timeouts, Reading::Plain);
    // A connection that is closed with unread bytes is reset, and a reset may overtake the answer.
    drop(link.next_event());
    link.send(last_bytes(Session::new(Options::responder(SymbolKind::Hashed, 0)), CANNOT_READ));
    link.mark();
    while matches!(link.next_event(), Event::Bytes(_)) {}
    link.end();
}

/// The reason in the first bytes of a peer that has declined; None if that is only that it keeps no journals, for which
/// this side has the remedy.
pub(super) fn declined(first: Vec<u8>) -> Option<SessionError> {
    let options = Options::initiator(SymbolKind::Hashed, Direction::Compare, 0);
    let (mut session, mut out) = (Session::new(options), Outbox::new());
    session.step(SessionInput::Received(first), &mut out);
    out.take()
        .into_iter()
        .find_map(|order| match order {
            SessionOutput::Finish(Err(error @ SessionError::Aborted { .. })) => Some(error),
            _ => None,
        })
        .filter(|error| !is_about_journals(error))
}

/// Whether the peer gave up because one side keeps a journal and the other does not.
fn is_about_journals(error: &SessionError) -> bool {
    matches!(error, SessionError::Aborted { text } if text == JOURNAL_ON_ONE_SIDE)
}

impl Drive<'_> {
    /// Ends a session that failed here: tells the other side, unless the connection is what failed, or the
    /// session has said why. Not in a session with journals, whose bytes must stay the same.
    pub(super) fn give_up(&mut self, session: Session) {
        if self.is_cut || self.resumed.is_some() {
            return;
        }
        let bytes = last_bytes(session, self.parting);
        if !bytes.is_empty() {
            self.link.send(bytes);
            self.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Driving, Initiative, answer, reconcile};
    use super::*;
    use crate::{Form, ItemSet, SessionObserver, open_set};
    use std::fmt;
    use std::io::{self, Read, Write};
    use umbel_reconcile_engine::{Aim, Limits, OnConflict, SessionRole};

    struct Silent;

    impl SessionObserver for Silent {
        fn notice(&self, _: fmt::Arguments<'_>) {}
    }

    fn driving() -> Driving<'static> {
        let initiative = Initiative { delete: false };
        let timeouts = Timeouts { idle: Duration::from_secs(3600), whole: None };
        Driving { initiative, timeouts, journal: None, observer: &Silent, draw: || 7 }
    }

    fn options(set: &dyn ItemSet, role: SessionRole) -> Options {
        let (dataset_id, limits) = (Form::Lines.dataset_id(set), Limits::default());
        Options { role, kind: set.kind(), dataset_id, domain: [0; 16], nonce: 5, limits }
    }

    /// A set in a folder that is removed with it.
    fn set(lines: &str) -> (tempfile::TempDir, Box<dyn ItemSet>) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("set"), lines).unwrap();
        let set = open_set(&folder.path().join("set"), &Form::Lines).unwrap();
        (folder, set)
    }

    #[test]
    fn a_side_whose_set_has_changed_says_so_to_the_other() {
        let (_here, ours) = set("1\n");
        let (there, theirs) = set("2\n");
        std::fs::write(there.path().join("set"), "2\n3\n").unwrap();
        let [to_b, to_a] = PeerConnection::pair(["b", "a"].map(str::to_owned)).unwrap();
        let (answered, begun) = std::thread::scope(|scope| {
            let answering = scope.spawn(|| {
                let on_conflict = OnConflict::Report;
                let role = SessionRole::Responder { accept_items: false, on_conflict };
                answer(&*theirs, options(&*theirs, role), to_a, driving()).map(drop)
            });
            let role = SessionRole::Initiator(Aim::new(Direction::Compare));
            let begun = reconcile(&*ours, options(&*ours, role), to_b, driving()).map(drop);
            (answering.join().unwrap(), begun)
        });
        let (answered, begun) = (answered.unwrap_err(), begun.unwrap_err());
        assert!(format!("{answered:#}").contains("changed while it was read"), "{answered:#}");
        let said = format!("{begun:#}");
        assert!(said.contains("the peer gave up: it cannot read its set"), "{said}");
        assert!(begun.is_peer_gone() && !begun.is_unanswered() && !answered.is_peer_gone());
    }

    /// Every write fails.
    struct Broken(io::ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Begins a session whose writes fail, and whose other side says this before it is silent.
    fn begin_with(broken: io::ErrorKind, first: &[u8]) -> String {
        let (_folder, ours) = set("1\n");
        let (reader, mut says) = io::pipe().unwrap();
        says.write_all(first).unwrap();
        let reader: Box<dyn Read + Send> = Box::new(reader);
        let [pair, _other] = PeerConnection::pair(["b", "a"].map(str::to_owned)).unwrap();
        let connection = PeerConnection { reader, writer: Box::new(Broken(broken)), ..pair };
        let role = SessionRole::Initiator(Aim::new(Direction::Compare));
        // Who said something leaves.
        let stays = first.is_empty().then_some(says);
        let begun = reconcile(&*ours, options(&*ours, role), connection, driving());
        drop(stays);
        format!("{:#}", begun.map(drop).unwrap_err())
    }

    /// Regression: it waited as long as for a peer that is silent.
    #[test]
    fn a_failed_write_ends_a_session_though_the_connection_stays_open() {
        let said = begin_with(io::ErrorKind::TimedOut, b"");
        assert!(said.starts_with("a: cannot write: "), "{said}");
        let said = begin_with(io::ErrorKind::BrokenPipe, b"");
        assert_eq!(said, "a: the connection ended while greeting");
        let responder = Session::new(Options::responder(SymbolKind::Hashed, 0));
        let aborts = last_bytes(responder, CANNOT_READ);
        let said = begin_with(io::ErrorKind::BrokenPipe, &aborts);
        assert!(said.starts_with("a: the peer gave up: it cannot read"), "{said}");
    }
}
