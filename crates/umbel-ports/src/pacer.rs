//! Limits the byte rate at which a node sends.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::locked;

/// How much time sending may save up during a pause.
const BURST: Duration = Duration::from_millis(50);

/// Lets bytes pass at a rate that all senders share. Each passes in the order in which it asked.
pub struct Pacer {
    /// 0 means no limit.
    bytes_per_second_max: u64,
    /// When all bytes that were let pass have been sent at the rate.
    through_at: Mutex<Option<Instant>>,
}

impl Pacer {
    /// A limit of so many bytes per second; 0 for none.
    pub const fn new(bytes_per_second_max: u64) -> Self {
        Self { bytes_per_second_max, through_at: Mutex::new(None) }
    }

    /// Waits until so many bytes may be sent. They count as sent also if the future is dropped while it
    /// waits.
    pub async fn pass(&self, byte_count: usize) {
        if let Some(at) = self.reserve(byte_count, Instant::now()) {
            tokio::time::sleep_until(at).await;
        }
    }

    /// When these bytes may be sent; None for now.
    fn reserve(&self, byte_count: usize, now: Instant) -> Option<Instant> {
        if self.bytes_per_second_max == 0 {
            return None;
        }
        let nanos = byte_count as u128 * 1_000_000_000 / u128::from(self.bytes_per_second_max);
        let time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let mut through_at = locked(&self.through_at);
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let from = through_at.map_or(earliest, |at| at.max(earliest));
        *through_at = Some(from + time);
        (from > now).then_some(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_at_the_rate() {
        let now = Instant::now();
        let pacer = Pacer::new(1_000_000);
        // 100 KB take 100 ms, of which 50 ms were saved up.
        assert_eq!(pacer.reserve(100_000, now), None);
        assert_eq!(pacer.reserve(10_000, now), Some(now + Duration::from_millis(50)));
        assert_eq!(pacer.reserve(1, now), Some(now + Duration::from_millis(60)));
        let later = now + Duration::from_secs(60);
        assert_eq!(pacer.reserve(1_000_000, later), None);
        assert_eq!(pacer.reserve(1, later), Some(later + Duration::from_millis(950)));
    }

    #[test]
    fn without_a_rate_everything_passes() {
        let pacer = Pacer::new(0);
        assert_eq!(pacer.reserve(usize::MAX, Instant::now()), None);
    }
}
