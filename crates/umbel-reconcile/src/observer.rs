//! What a caller sees of a session while it runs.

use std::fmt;

/// Receives what goes on. All of it is for people: no result depends on it.
pub trait Observer: Sync {
    /// Something that a person should know, in one line.
    fn notice(&self, text: fmt::Arguments<'_>);

    /// The session has come to a phase of this name.
    fn phase(&self, name: &'static str) {
        let _ = name;
    }

    /// No phase follows: whatever shows the current one goes.
    fn end_phases(&self) {}
}
