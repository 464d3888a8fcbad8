//! What a caller hears while a job is under way, and how it ends the job.

/// What the progress of a phase counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Stored bytes.
    Bytes,
    /// Stored bytes whose records are written; once all are, the disks are waited for.
    BytesWritten,
    /// Hash ranges.
    Cells,
}

/// Hears of a job while it is under way, from any of its threads.
pub trait Observer: Send + Sync {
    /// So much of a phase is done, of so much in all. One phase is under way at a time.
    fn progress(&self, phase: &'static str, done: u64, total: u64, unit: Unit) {
        let _ = (phase, done, total, unit);
    }

    /// The phase has ended, or was given up.
    fn end_phase(&self) {}

    /// Something that may be of interest, in one line.
    fn notice(&self, text: &str) {
        let _ = text;
    }

    /// Something that was lost or left behind, in one line.
    fn warn(&self, text: &str);

    /// Whether the job shall end. Asked for with every block that is read and every cell that is settled; what was
    /// begun is removed then.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// Nobody, who looks on in tests.
#[cfg(test)]
pub(crate) struct Unwatched;

#[cfg(test)]
impl Observer for Unwatched {
    fn warn(&self, _: &str) {}
}
