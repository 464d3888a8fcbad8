//! Detects files that are not text, from their first bytes: cut at line ends, they would give
//! meaningless records.
//!
//! Known formats are detected by their magic numbers, others by their zero bytes: text has next to
//! none, while in UTF-16 and UTF-32 text often half of the bytes or more are zero. Bytes that are not
//! valid UTF-8 prove nothing: they occur in many encodings.

/// Bytes at the start of a file that are examined.
pub const BINARY_HEAD_BYTES: usize = 4096;

/// Offset of the magic number of a tar archive.
const TAR_MAGIC_OFFSET: usize = 257;

/// If at least one byte in this many is zero, the file counts as binary. Fewer are tolerated: a text
/// may have some.
const ZEROS_ONE_IN: usize = 64;

/// First bytes that no text begins with, and the kind of file that they identify.
const MAGICS: [(&[u8], &str); 26] = [
    (b"\xff\xfe\0\0", "UTF-32 text"),
    (b"\0\0\xfe\xff", "UTF-32 text"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
    (b"\x7fELF", "an ELF program"),
    (b"PK\x03\x04", "a zip archive"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!\x1a\x07", "a rar archive"),
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF87a", "a GIF image"),
    (b"GIF89a", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"Obj\x01", "an Avro file"),
    (b"ARROW1\0\0", "an Arrow file"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\0asm", "a WebAssembly program"),
    (b"\xca\xfe\xba\xbe", "a program"),
    (b"\xcf\xfa\xed\xfe", "a program"),
    (b"\xff\x06\0\0sNaPpY", "a snappy file"),
    (b"\x02\x21\x4c\x18", "an lz4 file of the legacy format"),
    (b"LZIP\x01", "an lzip file"),
    (b"\x1f\x9d", "a file of compress"),
];

/// The kind of a file that is not text, in words; `None` for text. `head` has the first
/// [`BINARY_HEAD_BYTES`], or the whole file if it is shorter.
///
/// ```
/// use umbel_records::binary_kind;
///
/// assert_eq!(binary_kind(b"GIF89a..."), Some("a GIF image"));
/// assert_eq!(binary_kind("a\0b\0".as_bytes()), Some("UTF-16 text"));
/// assert_eq!(binary_kind(b"one \xff line\n"), None);
/// ```
pub fn binary_kind(head: &[u8]) -> Option<&'static str> {
    if let Some(kind) = magic_kind(head) {
        return Some(kind);
    }
    let zeros_at =
        |parity: usize| head.iter().skip(parity).step_by(2).filter(|byte| **byte == 0).count();
    let (even, odd) = (zeros_at(0), zeros_at(1));
    if (even + odd) * ZEROS_ONE_IN < head.len().max(1) || even + odd == 0 {
        return None;
    }
    // In UTF-16 text of most scripts, many bytes at one parity are zero, and hardly any at the other.
    let (few, many) = (even.min(odd), even.max(odd));
    let is_utf16 = many * 8 > head.len() && few * 16 < many;
    Some(if is_utf16 { "UTF-16 text" } else { "a binary file, full of zero bytes" })
}

/// The same, by magic numbers alone, for text that may have zero bytes.
///
/// ```
/// use umbel_records::magic_kind;
///
/// assert_eq!(magic_kind(b"GIF89a..."), Some("a GIF image"));
/// assert_eq!(magic_kind(b"a\0b\0"), None);
/// ```
pub fn magic_kind(head: &[u8]) -> Option<&'static str> {
    if let Some((_, kind)) = MAGICS.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Some(kind);
    }
    let is_tar = head.get(TAR_MAGIC_OFFSET..).is_some_and(|rest| rest.starts_with(b"ustar"));
    is_tar.then_some("a tar archive")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_text_in_any_encoding_of_bytes() {
        let with_few_zeros = [&b"a\0b\n"[..], &[b'x'; 500]].concat();
        let texts: [&[u8]; 7] = [
            b"",
            b"a\n",
            "größe\n\u{feff}".as_bytes(),
            b"gr\xf6\xdfe\n",
            b"\xef\xbb\xbfwith a mark\n",
            &with_few_zeros,
            b"PKI and BZh and Obj\n",
        ];
        texts.iter().for_each(|text| assert_eq!(binary_kind(text), None, "{text:?}"));
    }

    #[test]
    fn binary_content_is_detected() {
        let utf16 = |text: &str, big: bool| -> Vec<u8> {
            let bytes = |unit: u16| if big { unit.to_be_bytes() } else { unit.to_le_bytes() };
            text.encode_utf16().flat_map(bytes).collect()
        };
        for big in [false, true] {
            assert_eq!(binary_kind(&utf16("a,b\r\n1,2\r\n", big)), Some("UTF-16 text"));
            assert_eq!(binary_kind(&utf16("\u{feff}日本\n", big)), Some("UTF-16 text"));
        }
        let mut tar = vec![b'n'; 512];
        tar[257..262].copy_from_slice(b"ustar");
        assert_eq!(binary_kind(&tar), Some("a tar archive"));
        assert_eq!(binary_kind(b"\x7fELF\x02\x01"), Some("an ELF program"));
        assert_eq!(
            binary_kind(&[7, 0, 0, 0, 9, 0, 0, 1]),
            Some("a binary file, full of zero bytes")
        );
        assert_eq!(binary_kind(&[0; 64]), Some("a binary file, full of zero bytes"));
    }
}
