//! Peers that speak otherwise: a shell that greets, another program at an address, a person at a terminal.

use crate::error::{ReconcileError, failed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use umbel_reconcile_engine::Beginning;

/// How many bytes of such a peer a message shows: the line that it begins with, mostly.
const SHOWN_BYTES_MAX: usize = 80;

/// How many of the first bytes of a peer are kept to tell what it is: text that is a message by its first two bytes
/// would be one of at most 132 bytes, and is known by the checksum.
const KEPT_BYTES_MAX: usize = 256;

/// The first bytes of the other side, at most [`KEPT_BYTES_MAX`].
#[derive(Default)]
pub(crate) struct Heard(Mutex<Vec<u8>>);

impl Heard {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what has come. Returns whether it can belong to a session.
    pub(crate) fn add(&self, bytes: &[u8]) -> bool {
        let mut first = self.lock();
        let room = KEPT_BYTES_MAX.saturating_sub(first.len());
        first.extend(bytes.iter().take(room));
        room == 0 || Beginning::of(&first) != Beginning::Foreign
    }

    /// Whether nothing has come.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// What came first, if that is no message.
    pub(crate) fn foreign(&self) -> Option<ReconcileError> {
        let first = self.lock();
        (Beginning::of(&first) == Beginning::Foreign).then(|| foreign(&first))
    }
}

/// Says what came where a message was expected.
pub(crate) fn foreign(first: &[u8]) -> ReconcileError {
    failed!("it began with `{}`, which is no message of umbel reconcile", shown(first))
}

/// The bytes as text in one line, cut to what a message shows.
fn shown(first: &[u8]) -> String {
    let (cut, more) = match first.get(..SHOWN_BYTES_MAX) {
        Some(cut) if cut.len() < first.len() => (cut, "…"),
        _ => (first, ""),
    };
    let mut shown = String::new();
    for character in String::from_utf8_lossy(cut).chars() {
        if character.is_control() {
            shown.extend(character.escape_debug());
        } else {
            shown.push(character);
        }
    }
    shown + more
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Driving, Form, Initiative, ItemSet, PeerConnection, SessionObserver, Timeouts, answer,
        open_set, reconcile,
    };
    use std::fmt;
    use std::path::Path;
    use std::time::Duration;
    use umbel_reconcile_engine::{Aim, Direction, Limits, OnConflict, Options, SessionRole};

    struct Silent;

    impl SessionObserver for Silent {
        fn notice(&self, _: fmt::Arguments<'_>) {}
    }

    #[test]
    fn what_came_is_shown_in_one_line_of_bounded_length() {
        let said = |first: &[u8]| foreign(first).to_string();
        let shown = said("it's\tgrüß\u{1b}[1m\r\n".as_bytes());
        assert!(shown.contains(r"`it's\tgrüß\u{1b}[1m\r\n`"), "{shown}");
        let shown = said(&[b'x'; KEPT_BYTES_MAX]);
        assert!(shown.contains(&format!("`{}…`", "x".repeat(SHOWN_BYTES_MAX))), "{shown}");
        let shown = said(&[0xff, 0, b'x']);
        assert!(shown.contains("`\u{fffd}\\0x`"), "{shown}");
    }

    /// The error of a session with a peer that says this first and then waits, at the side that begins or at the one
    /// that answers.
    fn after(first: &[u8], begins: bool, journal: Option<&Path>) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("set");
        std::fs::write(&path, "1\n").unwrap();
        let set = open_set(&path, &Form::Lines).unwrap();
        let options = |set: &dyn ItemSet, role| {
            let (dataset_id, limits) = (Form::Lines.dataset_id(set), Limits::default());
            Options { role, kind: set.kind(), dataset_id, domain: [0; 16], nonce: 5, limits }
        };
        let initiative = Initiative { delete: false };
        // A session that waits for the peer would not end.
        let timeouts = Timeouts { idle: Duration::from_secs(3600), whole: None };
        let driving = Driving { initiative, timeouts, journal, observer: &Silent, draw: || 7 };
        let [here, mut there] = PeerConnection::pair(["us", "peer"].map(str::to_owned)).unwrap();
        there.writer.write_all(first).unwrap();
        let ended = if begins {
            let role = SessionRole::Initiator(Aim::new(Direction::Compare));
            reconcile(&*set, options(&*set, role), here, driving).map(drop)
        } else {
            let on_conflict = OnConflict::Report;
            let role = SessionRole::Responder { accept_items: false, on_conflict };
            answer(&*set, options(&*set, role), here, driving).map(drop)
        };
        format!("{:#}", ended.unwrap_err())
    }

    /// Regression: it was told as a malformed frame, or as a peer without a journal.
    #[test]
    fn a_peer_that_greets_is_quoted_by_both_sides_with_and_without_journals() {
        // By its first two bytes, the second one is an offer to resume.
        let release =
            "A new release is available: run do-release-upgrade, or wait until tomorrow\n";
        for text in ["Welcome\n", release] {
            let quoted = format!("peer: it began with `{}`", text.replace('\n', "\\n"));
            for begins in [true, false] {
                let folder = tempfile::tempdir().unwrap();
                for journal in [None, Some(folder.path().join("journal"))] {
                    let said = after(text.as_bytes(), begins, journal.as_deref());
                    assert!(said.starts_with(&quoted), "{said}");
                    assert!(said.ends_with(": another program speaks there"), "{said}");
                }
            }
        }
    }
}
