//! The wait for the first word of the other side, which may be a program that never says one.
//!
//! A side that answers reads its set before it says anything, or waits until the sessions before it have ended. So silence
//! at the beginning is no error before the time limit for silence, but the user is told what is waited for.

use super::foreign::Heard;
use super::turn::now;
use std::time::{Duration, Instant};

/// How long the other side may be silent at first until the user is told: longer than a connection and a set of some
/// million items take.
const GREETING_PATIENCE: Duration = Duration::from_secs(10);

/// Whether and since when the first word of the other side is waited for. By default it is not.
#[derive(Default)]
pub(super) struct Greeting {
    patience: Option<Duration>,
    since: Option<Instant>,
}

impl Greeting {
    /// It is waited for: silence is reported after some seconds, or after half the time that it may take.
    pub(super) fn awaited(idle: Duration) -> Self {
        Self { patience: Some(GREETING_PATIENCE.min(idle / 2)), since: None }
    }

    /// How long to wait, from the first such wait on, until silence is reported; `None` if there is nothing to report.
    pub(super) fn left(&mut self, heard: &Heard) -> Option<Duration> {
        let patience = self.patience.filter(|_| heard.is_empty())?;
        let since = *self.since.get_or_insert_with(now);
        Some(patience.saturating_sub(since.elapsed()))
    }

    /// Silence is reported now, and not again. Returns how long it has lasted.
    pub(super) fn report(&mut self) -> Duration {
        self.patience.take().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Driving, Form, Initiative, PeerConnection, SessionObserver, Timeouts, open_set, reconcile,
    };
    use std::fmt;
    use std::net::{TcpListener, TcpStream};
    use std::sync::Mutex;
    use umbel_reconcile_engine::{Aim, Direction, Limits, Options, SessionRole};

    #[test]
    fn nothing_is_reported_of_a_peer_that_has_spoken_or_is_not_waited_for() {
        let heard = Heard::default();
        assert_eq!(Greeting::default().left(&heard), None);
        let mut greeting = Greeting::awaited(Duration::from_secs(600));
        assert!(greeting.left(&heard).is_some_and(|left| left <= GREETING_PATIENCE));
        assert_eq!(greeting.report(), GREETING_PATIENCE);
        assert_eq!(greeting.left(&heard), None);
        let mut greeting = Greeting::awaited(Duration::from_secs(600));
        heard.add(b"H");
        assert_eq!(greeting.left(&heard), None);
    }

    /// What the user is told.
    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    impl SessionObserver for Told {
        fn notice(&self, text: fmt::Arguments<'_>) {
            self.0.lock().unwrap().push(text.to_string());
        }
    }

    /// As an HTTP server to which no whole request comes. Regression: ten minutes passed without a word.
    #[test]
    fn a_peer_that_says_nothing_is_told_of_long_before_it_is_left() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("set"), "1\n").unwrap();
        let set = open_set(&folder.path().join("set"), &Form::Lines).unwrap();
        // Who connects is never accepted.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for journal in [None, Some(folder.path().join("journal"))] {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let connection = PeerConnection::tcp(stream, "peer".to_owned()).unwrap();
            let told = Told::default();
            let driving = Driving {
                initiative: Initiative { delete: false },
                timeouts: Timeouts { idle: Duration::from_millis(50), whole: None },
                journal: journal.as_deref(),
                observer: &told,
                draw: || 7,
            };
            let options = Options {
                role: SessionRole::Initiator(Aim::new(Direction::Compare)),
                kind: set.kind(),
                dataset_id: Form::Lines.dataset_id(&*set),
                domain: [0; 16],
                nonce: 5,
                limits: Limits::default(),
            };
            let ended = reconcile(&*set, options, connection, driving).map(drop);
            let error = format!("{:#}", ended.unwrap_err());
            let why = "peer: nothing came at all for 0 s: it may be no `umbel reconcile`";
            assert!(error.contains(why), "{error}");
            let told = told.0.into_inner().unwrap();
            let waits = |text: &String| text.starts_with("peer: nothing has come for 0 s: ");
            assert!(told.len() == 1 && told.iter().all(waits), "{told:?}");
        }
    }
}
