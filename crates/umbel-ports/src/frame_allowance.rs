//! Limits how many frames without content a connection may send.
//!
//! Pings, settings, window updates and empty data frames cost the sender a few bytes, but the node a
//! wake-up and often a response (RFC 9113, 10.5). Calls need such frames in proportion to their
//! content. So each frame takes one unit from an allowance, which calls, data in both directions and
//! time refill. A connection that has used up its allowance is closed.

use std::time::Duration;

use super::frame_watch::FrameCount;

/// The initial allowance: so many frames are read in well below a millisecond.
const FRAMES_AT_FIRST: u64 = 1_000;

/// The most that can be saved up, for a client that reads a long response at once and then sends window
/// updates.
const FRAMES_MAX: u64 = 10_000;

/// The refill for a call: its own frames, a reset, window updates, and a ping that measures the round
/// trip.
const FRAMES_PER_CALL: u64 = 8;

/// Bytes of received data that refill one frame: the smallest message is one frame with this many
/// bytes.
const BYTES_PER_FRAME: u64 = 8;

/// Bytes sent to the peer that refill one frame: the response to a ping refills less than the ping
/// took, and a window update may follow every message.
const SENT_BYTES_PER_FRAME: u64 = 32;

/// Interval of the refill by time; long enough that it is not rounded to nothing.
const FILL_INTERVAL: Duration = Duration::from_millis(250);

/// The refill per interval, for connections that are quiet for long: they are pinged each second.
const FRAMES_PER_INTERVAL: u64 = 50;

/// The allowance of one connection.
#[derive(Debug)]
pub(super) struct FrameAllowance {
    left: u64,
    /// Remainders of data bytes and sent bytes that do not make up a frame yet.
    data_bytes: u64,
    sent_bytes: u64,
    /// Time since the start of the connection up to which time has refilled.
    filled_until: Duration,
}

impl FrameAllowance {
    pub(super) const fn new() -> Self {
        let (left, filled_until) = (FRAMES_AT_FIRST, Duration::ZERO);
        Self { left, data_bytes: 0, sent_bytes: 0, filled_until }
    }

    /// Notes that bytes were sent to the peer.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.sent_bytes = self.sent_bytes.saturating_add(bytes as u64);
    }

    /// Whether the peer may send these frames, at this time since the start of the connection.
    pub(super) fn allows(&mut self, came: FrameCount, since_begin: Duration) -> bool {
        let passed = since_begin.saturating_sub(self.filled_until);
        // If more than thirty years have passed, the rest counts next time.
        let intervals = passed.as_millis() / FILL_INTERVAL.as_millis();
        let intervals = u32::try_from(intervals).unwrap_or(u32::MAX);
        self.filled_until += FILL_INTERVAL.saturating_mul(intervals);
        self.data_bytes = self.data_bytes.saturating_add(came.data_bytes);
        let brought = came
            .headers
            .saturating_mul(FRAMES_PER_CALL)
            .saturating_add(self.data_bytes / BYTES_PER_FRAME)
            .saturating_add(self.sent_bytes / SENT_BYTES_PER_FRAME)
            .saturating_add(u64::from(intervals).saturating_mul(FRAMES_PER_INTERVAL));
        self.data_bytes %= BYTES_PER_FRAME;
        self.sent_bytes %= SENT_BYTES_PER_FRAME;
        let left = self.left.saturating_add(brought).min(FRAMES_MAX).checked_sub(came.frames);
        self.left = left.unwrap_or(0);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: FrameCount = FrameCount { frames: 1, headers: 0, data_bytes: 0 };

    /// How many such frames are allowed at once.
    fn allowed(allowance: &mut FrameAllowance, frame: FrameCount, at: Duration) -> u64 {
        (0..2 * FRAMES_MAX).take_while(|_| allowance.allows(frame, at)).count() as u64
    }

    #[test]
    fn frames_that_carry_nothing_are_counted_and_time_brings_new_ones() {
        let mut allowance = FrameAllowance::new();
        assert_eq!(allowed(&mut allowance, IDLE, Duration::ZERO), FRAMES_AT_FIRST);
        assert_eq!(allowed(&mut allowance, IDLE, Duration::from_millis(249)), 0);
        assert_eq!(allowed(&mut allowance, IDLE, Duration::from_secs(1)), 200);
        assert_eq!(allowed(&mut allowance, IDLE, Duration::from_secs(86_400)), FRAMES_MAX);
    }

    #[test]
    fn calls_and_data_are_allowed_without_end() {
        let call = FrameCount { frames: 4, headers: 1, data_bytes: 10 };
        let message = FrameCount { frames: 1, headers: 0, data_bytes: 8 };
        for frames in [call, message] {
            let mut allowance = FrameAllowance::new();
            assert_eq!(allowed(&mut allowance, frames, Duration::ZERO), 2 * FRAMES_MAX);
        }
        let byte = FrameCount { frames: 1, headers: 0, data_bytes: 1 };
        let mut allowance = FrameAllowance::new();
        // Each frame refills an eighth of what it takes.
        assert_eq!(allowed(&mut allowance, byte, Duration::ZERO), FRAMES_AT_FIRST * 8 / 7);
    }

    #[test]
    fn windows_follow_what_was_sent_and_answers_of_pings_bring_less_than_these_took() {
        const PING_BYTES: usize = 17;
        let mut allowance = FrameAllowance::new();
        for _ in 0..2 * FRAMES_MAX {
            allowance.sent(16 << 10);
            assert!(allowance.allows(FrameCount { frames: 2, ..IDLE }, Duration::ZERO));
        }
        let mut allowance = FrameAllowance::new();
        let pings = (0..2 * FRAMES_MAX).take_while(|_| {
            allowance.sent(PING_BYTES);
            allowance.allows(IDLE, Duration::ZERO)
        });
        assert!(pings.count() < 3_000);
    }
}
