//! The violation of an invariant.

use std::fmt;

use crate::trace;

/// An invariant was violated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Violation {
    /// Name of the invariant, which is its file's.
    pub(crate) invariant: &'static str,
    /// Simulated microseconds since the start at which it was seen.
    pub(crate) at_us: u64,
    /// What was expected and what was observed, with node, group, filter, item.
    pub(crate) what: String,
}

impl Violation {
    /// Writes it into the run's trace, as whoever finds one does once.
    pub(crate) fn trace(&self) {
        trace::line(self.at_us, "world", "violation", format_args!("{self}"));
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { invariant, at_us, what } = self;
        write!(f, "{invariant} at {}.{:06} s: {what}", at_us / 1_000_000, at_us % 1_000_000)
    }
}
