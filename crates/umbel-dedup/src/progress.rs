//! Progress of a phase for the observer, and the check for cancellation.

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
    /// The progress of a phase that begins.
    pub(crate) fn new(
        observer: &'a dyn Observer,
        phase: &'static str,
        total: u64,
        unit: Unit,
    ) -> Self {
        observer.progress(phase, 0, total, unit);
        Self { observer, phase, done: AtomicU64::new(0), total, unit }
    }

    /// Adds to what is done.
    ///
    /// # Errors
    ///
    /// If the job is cancelled.
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
