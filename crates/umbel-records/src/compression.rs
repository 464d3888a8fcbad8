//! Detects the compression of a file from its first bytes.
//!
//! The name of a file proves nothing: HTTP clients often decompress `.gz` files on the way. The magic
//! numbers are those of RFC 1952 (gzip, with its only method, deflate), RFC 8878 (zstd frames and
//! skippable frames), the .xz format 1.2, and the frame format of lz4 1.6. For bzip2, the level and the
//! magic number of the first block or of the stream's end are checked, too, because a text may begin
//! with `BZh`.

use std::fmt;
use std::fs::File;

use crate::error::ReadError;
use crate::stored::read_at;

/// The compression of a file, detected from its content and never from its name.
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
    /// One xz stream or several in a row, padding allowed between and behind them.
    Xz,
    /// One bzip2 stream or several in a row.
    Bzip2,
    /// One lz4 frame or several in a row, skippable ones behind the first.
    Lz4,
}

impl Compression {
    /// Bytes from the start of a file that [`detect`](Self::detect) needs.
    pub const HEAD_BYTES: usize = 10;

    /// Detects the compression from the first bytes of a file, `head`: at least
    /// [`HEAD_BYTES`](Self::HEAD_BYTES) of them, or the whole file if it is shorter. Anything that is
    /// not recognised is [`Plain`](Self::Plain).
    pub fn detect(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, 0x08, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            // Skippable frames: the first frame of seekable and parallel writers (`pzstd`) may be one.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..] => Self::Bzip2,
            [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, 0x38, 0x50, 0x90, ..] => Self::Bzip2,
            [0x04, 0x22, 0x4d, 0x18, ..] => Self::Lz4,
            _ => Self::Plain,
        }
    }

    /// Reads the head of `file`, independent of the file's cursor, and [detects](Self::detect) its
    /// compression.
    ///
    /// # Errors
    /// [`ReadError::Io`] if the file cannot be read at offset 0, as for directories and pipes.
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
            Self::Xz => "xz",
            Self::Bzip2 => "bzip2",
            Self::Lz4 => "lz4",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn heads_are_distinguished() {
        assert_eq!(Compression::detect(&[0x1f, 0x8b, 0x08]), Compression::Gzip);
        assert_eq!(Compression::detect(&[0x1f, 0x8b]), Compression::Plain);
        assert_eq!(Compression::detect(&[0x1f, 0x8b, 0x00, 0]), Compression::Plain);
        for first in 0x50..=0x5f {
            assert_eq!(Compression::detect(&[first, 0x2a, 0x4d, 0x18]), Compression::Zstd);
        }
        assert_eq!(Compression::detect(&[0x60, 0x2a, 0x4d, 0x18]), Compression::Plain);
        assert_eq!(Compression::detect(&[0x28, 0xb5, 0x2f]), Compression::Plain);
        assert_eq!(Compression::detect(b"\xfd7zXZ\0"), Compression::Xz);
        assert_eq!(Compression::detect(b"BZh91AY&SY"), Compression::Bzip2);
        assert_eq!(Compression::detect(b"BZh9 is text"), Compression::Plain);
        assert_eq!(Compression::detect(&[0x04, 0x22, 0x4d, 0x18]), Compression::Lz4);
    }

    #[test]
    fn a_file_is_read_at_its_start_wherever_the_cursor_stands() {
        let mut file = tempfile::tempfile().unwrap();
        assert_eq!(Compression::of_file(&file).unwrap(), Compression::Plain);
        file.write_all(&[0x28, 0xb5, 0x2f, 0xfd, 9, 9]).unwrap();
        assert_eq!(Compression::of_file(&file).unwrap(), Compression::Zstd);
    }
}
