//! Writes messages for people to standard error. If it is closed or full, messages are lost and the
//! command goes on.

use std::fmt::Display;
use std::io::Write;

/// Writes a text to standard error unchanged.
pub(crate) fn eprint_text(text: impl Display) {
    let _ = write!(std::io::stderr(), "{text}");
}

/// Writes a line to standard error, prefixed with the name of the program.
pub(crate) fn eprint_line(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "umbel: {text}");
}
