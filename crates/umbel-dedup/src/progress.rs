//! Progress of a phase, on its way to whoever looks on; and the question whether the job shall go on.

use super::observer::{Observer, Unit};
use crate::error::{DedupError, Result};
use std::sync::atomic::{AtomicU64, Ordering};

/// The progress of one phase.
pub(crate) struct Bar<'a> {
    observer: &'a dyn Observer,
    phase: &'static str,
    done: AtomicU64,
    total: u64,
    unit: Unit,
}

impl<'a> Bar<'a> {
    /// A phase of which nothing is done.
    pub(crate) fn new(
        observer: &'a dyn Observer,
        phase: &'static str,
        total: u64,
        unit: Unit,
    ) -> Self {
        observer.progress(phase, 0, total, unit);
        Self { observer, phase, done: AtomicU64::new(0), total, unit }
    }

    /// Moves on.
    ///
    /// # Errors
    ///
    /// If the job shall end.
    pub(crate) fn add(&self, amount: u64) -> Result<()> {
        let done = self.done.fetch_add(amount, Ordering::Relaxed) + amount;
        self.observer.progress(self.phase, done, self.total, self.unit);
        if self.observer.is_cancelled() { Err(DedupError::Cancelled) } else { Ok(()) }
    }
}

impl Drop for Bar<'_> {
    fn drop(&mut self) {
        self.observer.end_phase();
    }
}
