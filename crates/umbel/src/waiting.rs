//! Reports what a command waits for: when that changes, and then every ten seconds with the time since.

use crate::clock::Stopwatch;
use crate::stderr::eprint_line;
use std::time::Duration;

/// An unchanged state is reported again after this time.
const REPEAT: Duration = Duration::from_secs(10);

/// A wait and what was last reported of it.
pub(crate) struct Waiting {
    shown: String,
    since: Stopwatch,
    shown_at: Stopwatch,
}

impl Waiting {
    /// Starts a wait of which nothing was reported yet.
    pub(crate) fn start() -> Self {
        let now = Stopwatch::start();
        Self { shown: String::new(), since: now, shown_at: now }
    }

    /// Writes to standard error what the command waits for, if that has changed or was last written
    /// `REPEAT` ago.
    pub(crate) fn show(&mut self, text: &str) {
        let shown_ago = self.shown_at.elapsed();
        if let Some(line) = line(&self.shown, text, (self.since.elapsed(), shown_ago)) {
            eprint_line(line);
            if self.shown != text {
                text.clone_into(&mut self.shown);
                self.since = Stopwatch::start();
            }
            self.shown_at = Stopwatch::start();
        }
    }
}

/// The line to write after `shown`, if one is due.
fn line(shown: &str, text: &str, (unchanged, shown_ago): (Duration, Duration)) -> Option<String> {
    if shown != text {
        return Some(text.to_owned());
    }
    (shown_ago >= REPEAT).then(|| format!("{text}, for {} s now", unchanged.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_states_are_shown_at_once_and_old_ones_repeatedly() {
        let times =
            |unchanged_s, shown_s| (Duration::from_secs(unchanged_s), Duration::from_secs(shown_s));
        assert_eq!(line("", "a", times(0, 0)).as_deref(), Some("a"));
        assert_eq!(line("a", "a", times(9, 9)), None);
        assert_eq!(line("a", "a", times(20, 10)).as_deref(), Some("a, for 20 s now"));
        assert_eq!(line("a", "b", times(20, 1)).as_deref(), Some("b"));
    }
}
