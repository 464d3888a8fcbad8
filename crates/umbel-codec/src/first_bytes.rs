//! The first bytes of files, for messages about a file of another kind than expected.

use std::fmt;

/// The kinds of files, by their first bytes, which are defined where the files are written: most of them in crates
/// that use this one.
const KINDS: [([u8; 4], &str); 6] = [
    (*b"UMBF", "a saved filter"),
    (*b"UMBL", "an export or backup of a filter"),
    (*b"UMBS", "a static file"),
    (*b"UMBX", "an index of files"),
    (*b"UMBI", "an index of umbel dedup"),
    (*b"UMSK", "a sketch"),
];

/// The first bytes of a file, as messages show them: as text, and with the kind of file that begins so, if there
/// is one.
///
/// ```
/// use umbel_codec::FirstBytes;
///
/// assert_eq!(FirstBytes(*b"UMSK").to_string(), "`UMSK` (a sketch)");
/// assert_eq!(FirstBytes(*b"a,b\n").to_string(), r"`a,b\n`");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FirstBytes(pub [u8; 4]);

impl FirstBytes {
    /// The kind of file that begins so, with its article; `None` if there is none.
    #[must_use]
    pub fn kind(self) -> Option<&'static str> {
        KINDS.iter().find(|(magic, _)| *magic == self.0).map(|(_, kind)| *kind)
    }
}

impl fmt::Display for FirstBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0.escape_ascii())?;
        match self.kind() {
            Some(kind) => write!(f, " ({kind})"),
            None => Ok(()),
        }
    }
}
