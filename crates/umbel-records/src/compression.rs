//! How the bytes of a file are packed, told from its first bytes.
//!
//! The name of a file proves nothing: `.gz` files that were unpacked on the way by an HTTP client
//! are common. The magic numbers are those of RFC 1952 (gzip, with its only method, deflate) and
//! RFC 8878 (zstd frames and skippable frames).

use std::fmt;
use std::fs::File;

use crate::error::ReadError;
use crate::stored::read_at;

/// How a file's bytes are packed, told by its content and never by its name.
///
/// ```
/// use umbel_records::Compression;
///
/// assert_eq!(Compression::detect(b"\x1f\x8b\x08\x00..."), Compression::Gzip);
/// assert_eq!(Compression::detect(b"\x28\xb5\x2f\xfd..."), Compression::Zstd);
/// assert_eq!(Compression::detect(b"one line\n"), Compression::Plain);
/// assert_eq!(Compression::detect(b""), Compression::Plain);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Compression {
    /// The stored bytes are the content.
    Plain,
    /// One gzip member or several in a row (RFC 1952), zero padding allowed at the end.
    Gzip,
    /// One zstd frame or several in a row, skippable ones among them (RFC 8878).
    Zstd,
}

impl Compression {
    /// How many bytes of the beginning [`detect`](Self::detect) wants to see.
    pub const HEAD_BYTES: usize = 4;

    /// Tells the packing from the first bytes of a file, `head`: at least
    /// [`HEAD_BYTES`](Self::HEAD_BYTES) of them, or the whole file if it is shorter. What is not
    /// recognised is [`Plain`](Self::Plain).
    pub fn detect(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, 0x08, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            // Skippable frames: seekable and parallel writers (`pzstd`) may open with one.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            _ => Self::Plain,
        }
    }

    /// Reads the head of `file`, wherever its cursor stands, and [detects](Self::detect) its
    /// packing.
    ///
    /// # Errors
    /// [`ReadError::Io`] if the file cannot be read at offset 0, as is the case with directories
    /// and pipes.
    pub fn of_file(file: &File) -> Result<Self, ReadError> {
        let mut head = [0; Self::HEAD_BYTES];
        let mut filled = 0;
        while filled < head.len() {
            match read_at(file, &mut head[filled..], filled as u64)? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(Self::detect(&head[..filled]))
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn heads_are_told_apart() {
        assert_eq!(Compression::detect(&[0x1f, 0x8b, 0x08]), Compression::Gzip);
        assert_eq!(Compression::detect(&[0x1f, 0x8b]), Compression::Plain);
        assert_eq!(Compression::detect(&[0x1f, 0x8b, 0x00, 0]), Compression::Plain);
        for first in 0x50..=0x5f {
            assert_eq!(Compression::detect(&[first, 0x2a, 0x4d, 0x18]), Compression::Zstd);
        }
        assert_eq!(Compression::detect(&[0x60, 0x2a, 0x4d, 0x18]), Compression::Plain);
        assert_eq!(Compression::detect(&[0x28, 0xb5, 0x2f]), Compression::Plain);
    }

    #[test]
    fn a_file_is_read_at_its_start_wherever_the_cursor_stands() {
        let mut file = tempfile::tempfile().unwrap();
        assert_eq!(Compression::of_file(&file).unwrap(), Compression::Plain);
        file.write_all(&[0x28, 0xb5, 0x2f, 0xfd, 9, 9]).unwrap();
        assert_eq!(Compression::of_file(&file).unwrap(), Compression::Zstd);
    }
}
