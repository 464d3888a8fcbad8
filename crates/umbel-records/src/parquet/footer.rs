//! The footer: located, limited, and checked before it is decoded.
//!
//! ```text
//! | "PAR1" | column chunks ... | footer: FileMetaData in Thrift | footer bytes u32 | "PAR1" |
//! ```

use super::error::ParquetError;
use super::thrift::{I32, LIST, STRUCT, Thrift};
use crate::stored::StoredReader;
use crate::{ByteSpan, ContentDigest, ReadError, Stored};

/// First and last bytes of a file.
pub(super) const MAGIC: &[u8; 4] = b"PAR1";

/// Bytes behind the footer.
const TAIL_BYTES: usize = 8;

/// Largest accepted footer: 64 MiB. A column chunk takes 100 to 200 bytes, so this is enough for
/// 400,000 of them; decoding takes several times as much memory.
const FOOTER_BYTES_MAX: u64 = 64 << 20;

/// Deepest accepted schema: 64 levels. Lists and maps take three each. The crate's recursion is as deep
/// as the schema.
const SCHEMA_DEPTH_MAX: usize = 64;

/// Bytes at the end of a file that are read first: most footers fit into 64 KiB.
const END_BYTES: u64 = 64 << 10;

/// A footer and its offset.
pub(super) struct Footer {
    pub(super) bytes: Vec<u8>,
    pub(super) offset: u64,
    pub(super) digest: ContentDigest,
}

/// Reads the footer of a file.
pub(super) fn read(stored: &Stored) -> Result<Footer, ParquetError> {
    let damaged = |detail: &str| ParquetError::Footer { detail: detail.to_owned() };
    let file_bytes = stored.bytes().map_err(|source| ParquetError::Io { offset: 0, source })?;
    let tail_offset = file_bytes.saturating_sub(TAIL_BYTES as u64);
    let mut tail = [0; TAIL_BYTES];
    if file_bytes < (TAIL_BYTES + MAGIC.len()) as u64 {
        return Err(damaged("the file is too short to have one"));
    }
    let end = ByteSpan { start: file_bytes.saturating_sub(END_BYTES), end: file_bytes };
    let mut reader = StoredReader::new(stored, end);
    read_exactly(&mut reader, &mut tail, tail_offset)?;
    let (length, magic) = tail.split_at(4);
    if magic != MAGIC {
        return Err(damaged("the file does not end with `PAR1`; it may be cut short or encrypted"));
    }
    let length = u32::from_le_bytes(*length.first_chunk().expect("half of eight bytes"));
    let length = u64::from(length);
    if length > FOOTER_BYTES_MAX {
        let limit = FOOTER_BYTES_MAX >> 20;
        return Err(damaged(&format!("it claims {length} bytes, more than {limit} MiB")));
    }
    let offset = tail_offset.checked_sub(length).filter(|&offset| offset >= MAGIC.len() as u64);
    let offset = offset.ok_or_else(|| damaged("it claims to be longer than the file"))?;
    let mut bytes = vec![0; usize::try_from(length).expect("at most 64 MiB")];
    read_exactly(&mut reader, &mut bytes, offset)?;
    check(&bytes).ok_or_else(|| damaged("it is no Thrift message with a sound schema"))?;
    let digest = ContentDigest::of(&bytes);
    Ok(Footer { bytes, offset, digest })
}

/// Fills `target` from `offset`.
pub(super) fn read_exactly(
    reader: &mut StoredReader,
    target: &mut [u8],
    offset: u64,
) -> Result<(), ParquetError> {
    let mut filled = 0;
    while filled < target.len() {
        let at = offset + filled as u64;
        match reader.read_at(&mut target[filled..], at) {
            Ok(0) => {
                let source = std::io::ErrorKind::UnexpectedEof.into();
                return Err(ParquetError::Io { offset: at, source });
            }
            Ok(count) => filled += count,
            Err(ReadError::Io { offset, source }) => {
                return Err(ParquetError::Io { offset, source });
            }
            Err(other) => {
                let source = std::io::Error::other(other);
                return Err(ParquetError::Io { offset: at, source });
            }
        }
    }
    Ok(())
}

/// Parses a footer without decoding it; `None` if it is malformed, or its schema is too deep, or groups
/// of the schema announce more children than there are.
fn check(footer: &[u8]) -> Option<()> {
    const SCHEMA: i64 = 2;
    let mut thrift = Thrift::new(footer);
    let mut last = 0;
    while let Some((field, kind)) = thrift.field(&mut last)? {
        if field == SCHEMA && kind == LIST {
            check_schema(&mut thrift)?;
        } else {
            thrift.skip(kind)?;
        }
    }
    Some(())
}

/// The elements of a schema are in depth-first order, each with the number of its children.
fn check_schema(thrift: &mut Thrift<'_>) -> Option<()> {
    const CHILDREN: i64 = 5;
    let (kind, count) = thrift.list()?;
    if kind != STRUCT {
        return None;
    }
    // For each group that contains the next element, the number of children that still follow.
    let mut open: Vec<u64> = Vec::new();
    for index in 0..count {
        let mut children = 0;
        let mut last = 0;
        while let Some((field, kind)) = thrift.field(&mut last)? {
            if field == CHILDREN && kind == I32 {
                children = u64::try_from(thrift.integer()?).ok()?;
            } else {
                thrift.skip(kind)?;
            }
        }
        while open.last() == Some(&0) {
            open.pop();
        }
        match open.last_mut() {
            Some(left) => *left -= 1,
            None if index == 0 => {}
            None => return None,
        }
        if children > count || open.len() >= SCHEMA_DEPTH_MAX {
            return None;
        }
        if children > 0 {
            open.push(children);
        }
    }
    open.iter().all(|&left| left == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A footer with only a schema, given as numbers of children.
    fn footer(children: &[u8]) -> Vec<u8> {
        let mut footer = vec![0x29, 0xfc, u8::try_from(children.len()).unwrap()];
        for &children in children {
            footer.extend([0x55, 2 * children, 0]);
        }
        footer.push(0);
        footer
    }

    #[test]
    fn schemas_that_add_up_pass() {
        assert_eq!(check(&footer(&[2, 0, 1, 0])), Some(()));
        assert_eq!(check(&footer(&[1, 1, 0])), Some(()));
        assert_eq!(check(&footer(&[0])), Some(()));
    }

    #[test]
    fn schemas_that_lie_do_not() {
        assert_eq!(check(&footer(&[2, 0])), None);
        assert_eq!(check(&footer(&[1, 0, 0])), None);
        assert_eq!(check(&footer(&[60])), None);
        let deep: Vec<u8> = [vec![1; 63], vec![0]].concat();
        assert_eq!(check(&footer(&deep)), Some(()));
        let too_deep: Vec<u8> = [vec![1; 65], vec![0]].concat();
        assert_eq!(check(&footer(&too_deep)), None);
    }
}
