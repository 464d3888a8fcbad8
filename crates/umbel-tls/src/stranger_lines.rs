//! Limits the lines of a log that strangers cause: they cost a stranger nothing, and may fill a disk.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines that may be written at once: a misconfigured client shows in them, with its address and the reason.
const LINES_AT_ONCE: u32 = 20;

/// Time after which one more line may be written: with some hundred bytes each, strangers write some ten megabytes a
/// day at most.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// Limits the lines of one cause.
///
/// ```
/// use std::time::{Duration, Instant};
/// use umbel_tls::StrangerLines;
///
/// let (lines, now) = (StrangerLines::default(), Instant::now() + Duration::from_secs(60));
/// let written = (0..1_000).filter_map(|_| lines.take(now)).count();
/// assert_eq!(written, 20);
/// let next = lines.take(now + Duration::from_secs(1)).expect("a second has passed");
/// assert_eq!(next.count(), Some(980));
/// ```
#[derive(Debug, Default)]
pub struct StrangerLines(Mutex<Written>);

#[derive(Debug, Default)]
struct Written {
    /// Up to when the written lines have used up the rate.
    used_until: Option<Instant>,
    left_out: u64,
}

/// The lines that were not written before one that is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeftOut(u64);

impl LeftOut {
    /// None.
    pub const NONE: Self = Self(0);

    /// How many they are; None if there are none.
    #[must_use]
    pub const fn count(self) -> Option<u64> {
        if self.0 == 0 { None } else { Some(self.0) }
    }
}

impl StrangerLines {
    /// Takes one line. None if it must not be written: the next one that is says how many were left out.
    pub fn take(&self, now: Instant) -> Option<LeftOut> {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(LINE_INTERVAL * (LINES_AT_ONCE - 1)).unwrap_or(now);
        let from = written.used_until.map_or(earliest, |until| until.max(earliest));
        if from > now {
            written.left_out += 1;
            return None;
        }
        written.used_until = Some(from + LINE_INTERVAL);
        Some(LeftOut(std::mem::take(&mut written.left_out)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::instant;

    #[test]
    fn some_lines_are_written_at_once_and_then_one_a_second() {
        let begin = instant() + Duration::from_secs(3600);
        let lines = StrangerLines::default();
        let written = |at| (0..100).filter_map(|_| lines.take(at)).collect::<Vec<_>>();
        assert_eq!(written(begin), vec![LeftOut(0); 20]);
        assert_eq!(written(begin + LINE_INTERVAL), [LeftOut(80)]);
        assert_eq!(written(begin + LINE_INTERVAL * 3), [LeftOut(99), LeftOut(0)]);
        // After any pause, no more may be written at once than at first.
        let later = written(begin + Duration::from_secs(1_000_000));
        assert_eq!((later.len(), later[0].count(), later[1].count()), (20, Some(98), None));
    }
}
