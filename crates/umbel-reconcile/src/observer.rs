//! Progress of a running session, as reported to the caller.

use std::fmt;

/// Receives progress reports. They are for users only: no result depends on them.
pub trait SessionObserver: Sync {
    /// A notice for the user, in one line.
    fn notice(&self, text: fmt::Arguments<'_>);

    /// The session has entered the phase of this name.
    fn phase(&self, name: &'static str) {
        let _ = name;
    }

    /// So many of the contents of files that one side sends to the other have gone over.
    fn contents(&self, done_count: usize, all_count: usize) {
        let _ = (done_count, all_count);
    }

    /// No phase follows: a progress display should disappear.
    fn end_phases(&self) {}
}
