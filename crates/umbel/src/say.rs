//! Words for people on standard error, which may be closed or full: then they are lost, and nothing else is.

use std::fmt::Display;
use std::io::Write;

/// Writes a text to standard error as it is.
pub(crate) fn say(text: impl Display) {
    let _ = write!(std::io::stderr(), "{text}");
}

/// Writes a line that names the program to standard error.
pub(crate) fn say_line(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "umbel: {text}");
}
