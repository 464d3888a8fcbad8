//! What a command waits for, said while it waits: at once when that changes, and again and again with since when.

use crate::clock::Stopwatch;
use crate::say::say_line;
use std::time::Duration;

/// How long nothing changes before it is said again: people begin to wonder.
const REPEAT: Duration = Duration::from_secs(10);

/// One wait.
pub(crate) struct Waiting {
    told: String,
    since: Stopwatch,
    told_at: Stopwatch,
}

impl Waiting {
    /// Nothing was said yet.
    pub(crate) fn start() -> Self {
        let now = Stopwatch::start();
        Self { told: String::new(), since: now, told_at: now }
    }

    /// Says on standard error what is waited for, if that is new or has not been said for a while.
    pub(crate) fn tell(&mut self, text: &str) {
        let told_ago = self.told_at.elapsed();
        if let Some(line) = line(&self.told, text, (self.since.elapsed(), told_ago)) {
            say_line(line);
            if self.told != text {
                text.clone_into(&mut self.told);
                self.since = Stopwatch::start();
            }
            self.told_at = Stopwatch::start();
        }
    }
}

/// What is said after `told`, if anything is.
fn line(told: &str, text: &str, (unchanged, told_ago): (Duration, Duration)) -> Option<String> {
    if told != text {
        return Some(text.to_owned());
    }
    (told_ago >= REPEAT).then(|| format!("{text}, for {} s now", unchanged.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_is_said_at_once_and_what_stays_again_and_again() {
        let times =
            |unchanged_s, told_s| (Duration::from_secs(unchanged_s), Duration::from_secs(told_s));
        assert_eq!(line("", "a", times(0, 0)).as_deref(), Some("a"));
        assert_eq!(line("a", "a", times(9, 9)), None);
        assert_eq!(line("a", "a", times(20, 10)).as_deref(), Some("a, for 20 s now"));
        assert_eq!(line("a", "b", times(20, 1)).as_deref(), Some("b"));
    }
}
