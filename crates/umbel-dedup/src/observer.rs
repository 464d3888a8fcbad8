//! How a caller follows the progress of a job, and cancels it.

/// What the progress of a phase counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Stored bytes.
    Bytes,
    /// Stored bytes whose records are written; after all of them the job waits for the disks.
    BytesWritten,
    /// Hash ranges.
    Cells,
}

/// Receives the progress of a job, from any of its threads.
pub trait Observer: Send + Sync {
    /// `done` of `total` units of a phase are done. Only one phase runs at a time.
    fn progress(&self, phase: &'static str, done: u64, total: u64, unit: Unit) {
        let _ = (phase, done, total, unit);
    }

    /// The phase has ended, or has failed.
    fn end_phase(&self) {}

    /// Information, one line.
    fn notice(&self, text: &str) {
        let _ = text;
    }

    /// A warning, one line: something was lost or left behind.
    fn warn(&self, text: &str);

    /// Whether the job is cancelled. It is called for every block that is read and every cell that is decided. If it is, the
    /// job removes its unfinished outputs and ends.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// An observer for tests, which ignores everything.
#[cfg(test)]
pub(crate) struct Unwatched;

#[cfg(test)]
impl Observer for Unwatched {
    fn warn(&self, _: &str) {}
}
