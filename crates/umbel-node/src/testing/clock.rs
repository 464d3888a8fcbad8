//! A wall clock for tests.

use std::sync::atomic::{AtomicU64, Ordering};

use umbel_ports::{Purpose, RealSeed, Seed};

/// A wall clock that stands still unless the test moves it; its entropy is the machine's.
pub(crate) struct SetClock(AtomicU64);

impl SetClock {
    /// A clock that shows this many milliseconds since 1970.
    pub(crate) fn new(wall_ms: u64) -> Self {
        Self(AtomicU64::new(wall_ms))
    }

    /// Moves it ahead.
    pub(crate) fn add(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }

    /// Sets it back.
    pub(crate) fn subtract(&self, ms: u64) {
        self.0.fetch_sub(ms, Ordering::Relaxed);
    }
}

impl Seed for SetClock {
    fn fill(&self, purpose: Purpose, bytes: &mut [u8]) {
        RealSeed.fill(purpose, bytes);
    }

    fn wall_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
