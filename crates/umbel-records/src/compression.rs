//! Detects the compression of a file from its first bytes.
//!
//! The name of a file proves nothing: HTTP clients often decompress `.gz` files on the way. It only decides
//! of a file that is cut off within its magic number, of which the bytes alone say nothing. The magic
//! numbers are those of RFC 1952 (gzip, with its only method, deflate), RFC 8878 (zstd frames and
//! skippable frames), the .xz format 1.2, and the frame format of lz4 1.6. For bzip2, the level and the
//! magic number of the first block or of the stream's end are checked, too, because a text may begin
//! with `BZh`.

use std::fmt;
use std::fs::File;
use std::path::Path;

use crate::error::ReadError;
use crate::stored::read_at;

/// Magic numbers of bzip2 behind the level: of the first block, and of the end of a stream without blocks.
const BZIP2_BLOCKS: [[u8; 6]; 2] =
    [[0x31, 0x41, 0x59, 0x26, 0x53, 0x59], [0x17, 0x72, 0x45, 0x38, 0x50, 0x90]];

/// The compression of a file, detected from its content.
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
            [b'B', b'Z', b'h', b'1'..=b'9', rest @ ..]
                if BZIP2_BLOCKS.iter().any(|block| rest.starts_with(block)) =>
            {
                Self::Bzip2
            }
            [0x04, 0x22, 0x4d, 0x18, ..] => Self::Lz4,
            _ => Self::Plain,
        }
    }

    /// As [`detect`](Self::detect), for a file of this name. One that is no more than the beginning of the
    /// magic number that belongs to its name was cut off there: it is no text, and its readers say
    /// [`ReadError::Truncated`]. An empty file is plain whatever its name.
    ///
    /// ```
    /// use std::path::Path;
    /// use umbel_records::Compression;
    ///
    /// let detect = |head: &[u8], name: &str| Compression::detect_named(head, Path::new(name));
    /// assert_eq!(detect(b"\x1f\x8b", "a.gz"), Compression::Gzip);
    /// assert_eq!(detect(b"\x1f\x8b", "a.txt"), Compression::Plain);
    /// assert_eq!(detect(b"a line\n", "a.gz"), Compression::Plain);
    /// ```
    pub fn detect_named(head: &[u8], name: &Path) -> Self {
        let (by_content, by_name) = (Self::detect(head), Self::of_name(name));
        if by_content == Self::Plain && by_name.begins_with(head) { by_name } else { by_content }
    }

    /// The compression that the extension of a file's name promises.
    pub fn of_name(name: &Path) -> Self {
        match name.extension().and_then(|extension| extension.to_str()) {
            Some("gz" | "gzip") => Self::Gzip,
            Some("zst" | "zstd") => Self::Zstd,
            Some("xz") => Self::Xz,
            Some("bz2") => Self::Bzip2,
            Some("lz4") => Self::Lz4,
            _ => Self::Plain,
        }
    }

    /// Whether files of this compression may begin with these bytes, of which there is at least one.
    fn begins_with(self, head: &[u8]) -> bool {
        let begins = |magic: &[u8], head: &[u8]| magic.starts_with(head);
        match (self, head) {
            (Self::Plain, _) | (_, []) => false,
            (Self::Gzip, _) => begins(b"\x1f\x8b\x08", head),
            (Self::Zstd, [0x50..=0x5f, rest @ ..]) => begins(b"\x2a\x4d\x18", rest),
            (Self::Zstd, _) => begins(b"\x28\xb5\x2f\xfd", head),
            (Self::Xz, _) => begins(b"\xfd7zXZ\0", head),
            (Self::Bzip2, [b'B', b'Z', b'h', b'1'..=b'9', rest @ ..]) => {
                BZIP2_BLOCKS.iter().any(|block| begins(block, rest))
            }
            (Self::Bzip2, _) => begins(b"BZh", head),
            (Self::Lz4, _) => begins(b"\x04\x22\x4d\x18", head),
        }
    }

    /// Reads the head of `file`, independent of the file's cursor, and detects its compression [by it and the
    /// name](Self::detect_named).
    ///
    /// # Errors
    /// [`ReadError::Io`] if the file cannot be read at offset 0, as for directories and pipes.
    pub fn of_file(file: &File, name: &Path) -> Result<Self, ReadError> {
        let mut head = [0; Self::HEAD_BYTES];
        let mut filled = 0;
        while filled < head.len() {
            match read_at(file, &mut head[filled..], filled as u64)? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(Self::detect_named(&head[..filled], name))
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
    fn a_file_that_is_cut_off_within_its_magic_number_is_what_its_name_says() {
        let detect = |head: &[u8], name: &str| Compression::detect_named(head, Path::new(name));
        for (name, magic, compression) in [
            ("a.gz", &b"\x1f\x8b\x08"[..], Compression::Gzip),
            ("d/a.jsonl.zst", b"\x28\xb5\x2f\xfd", Compression::Zstd),
            ("a.zst", b"\x50\x2a\x4d\x18", Compression::Zstd),
            ("a.xz", b"\xfd7zXZ\0", Compression::Xz),
            ("a.bz2", b"BZh91AY&SY", Compression::Bzip2),
            ("a.bz2", b"BZh9\x17\x72\x45\x38\x50\x90", Compression::Bzip2),
            ("a.lz4", b"\x04\x22\x4d\x18", Compression::Lz4),
        ] {
            for cut in 1..magic.len() {
                assert_eq!(detect(&magic[..cut], name), compression, "{name}: {cut}");
                assert_eq!(detect(&magic[..cut], "a.txt"), Compression::Plain, "{name}: {cut}");
                let text = [&magic[..cut], b"\n"].concat();
                assert_eq!(detect(&text, name), Compression::Plain, "{name}: {cut}");
            }
            assert_eq!(detect(b"", name), Compression::Plain, "an empty file is legal");
            // The content decides where it says something.
            assert_eq!(detect(magic, "a.txt"), compression);
            assert_eq!(detect(b"\x1f\x8b\x08", name), Compression::Gzip);
        }
    }

    #[test]
    fn a_file_is_read_at_its_start_wherever_the_cursor_stands() {
        let mut file = tempfile::tempfile().unwrap();
        let name = Path::new("a.zst");
        assert_eq!(Compression::of_file(&file, name).unwrap(), Compression::Plain);
        file.write_all(&[0x28, 0xb5, 0x2f]).unwrap();
        assert_eq!(Compression::of_file(&file, name).unwrap(), Compression::Zstd);
        assert_eq!(Compression::of_file(&file, Path::new("a")).unwrap(), Compression::Plain);
        file.write_all(&[0xfd, 9, 9]).unwrap();
        assert_eq!(Compression::of_file(&file, Path::new("a")).unwrap(), Compression::Zstd);
    }
}
