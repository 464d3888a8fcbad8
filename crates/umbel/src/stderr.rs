//! Writes messages for people to standard error. If it is closed or full, messages are lost and the
//! command goes on.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::Write;

/// Writes a text to standard error. Control characters, which names of files and contents of headers may
/// have, become escapes, so that they do nothing to a terminal.
pub(crate) fn eprint_text(text: impl Display) {
    let _ = write!(std::io::stderr(), "{}", escaped(&text.to_string()));
}

/// Writes a line to standard error, prefixed with the name of the program; see [`eprint_text`].
pub(crate) fn eprint_line(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "umbel: {}", escaped(&text.to_string()));
}

/// The text with escapes in the place of its control characters, except line ends and tabs.
fn escaped(text: &str) -> Cow<'_, str> {
    let is_shown = |c: char| !c.is_control() || c == '\n' || c == '\t';
    if text.chars().all(is_shown) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_shown(c) { shown.push(c) } else { shown.extend(c.escape_default()) }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_as_escapes() {
        assert_eq!(escaped("a\tb: é\n"), "a\tb: é\n");
        assert_eq!(escaped("\u{1b}[31mred\r\u{9b}"), r"\u{1b}[31mred\r\u{9b}");
    }
}
