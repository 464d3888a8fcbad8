//! The machine's entropy and clock.

use std::time::{SystemTime, UNIX_EPOCH};

use rand::TryRng;
use rand::rngs::SysRng;

use super::{Purpose, Seed};

/// The system's entropy: all purposes draw from the same source; separate streams are not needed.
pub struct RealSeed;

impl Seed for RealSeed {
    /// # Panics
    /// If the system provides no entropy, for example because the kernel lacks the call: without
    /// entropy a node would create keys that can be guessed.
    fn fill(&self, _purpose: Purpose, bytes: &mut [u8]) {
        SysRng.try_fill_bytes(bytes).expect("the system gives entropy");
    }

    #[expect(clippy::disallowed_methods, reason = "the one place where a node reads the clock")]
    fn wall_ms(&self) -> u64 {
        // A clock before 1970 was never set.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_differ_and_the_clock_is_past_this_code() {
        let seed = RealSeed;
        assert_ne!(seed.number(Purpose::FilterKey), seed.number(Purpose::FilterKey));
        // 2026-01-01.
        assert!(seed.wall_ms() > 1_767_225_600_000);
    }
}
