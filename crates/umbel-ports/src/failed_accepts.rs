//! Limits the lines of a log about connections that could not be taken: a process without free descriptors fails many times a
//! second, for as long as its clients hold the others.

use std::time::Duration;

use tokio::time::Instant;

/// Time after which one more line may be written.
const LINE_INTERVAL: Duration = Duration::from_secs(60);

/// The connections that a listener could not take.
#[derive(Debug, Default)]
pub struct FailedAccepts {
    told: Option<Instant>,
    left_out: u64,
}

impl FailedAccepts {
    /// Takes one line, with the number of those that were left out before it; None if it must not be written.
    pub fn take(&mut self, now: Instant) -> Option<u64> {
        if self.told.is_some_and(|told| now.duration_since(told) < LINE_INTERVAL) {
            self.left_out += 1;
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }

    /// Logs a failure, unless there was a line about another one a moment ago.
    pub fn tell(&mut self, error: &std::io::Error) {
        if let Some(left_out) = self.take(Instant::now()) {
            let left_out = (left_out > 0).then_some(left_out);
            tracing::warn!(%error, left_out, "a connection could not be taken");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_minute_says_how_many_were_left_out() {
        let (mut failed, begin) = (FailedAccepts::default(), Instant::now());
        let lines = |failed: &mut FailedAccepts, from_ms: u64| {
            let times = (from_ms..from_ms + 60_000).step_by(50);
            let lines = times.filter_map(|ms| failed.take(begin + Duration::from_millis(ms)));
            lines.collect::<Vec<_>>()
        };
        assert_eq!(lines(&mut failed, 0), [0]);
        assert_eq!(lines(&mut failed, 60_000), [1199]);
    }
}
