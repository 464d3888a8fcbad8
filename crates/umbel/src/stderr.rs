//! Texts for people on standard error. If that is closed or full they are lost, and the command goes on.

use std::fmt::Display;
use std::io::Write;

/// Writes a text to standard error as it is.
pub(crate) fn eprint_text(text: impl Display) {
    let _ = write!(std::io::stderr(), "{text}");
}

/// Writes a line that names the program to standard error.
pub(crate) fn eprint_line(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "umbel: {text}");
}
