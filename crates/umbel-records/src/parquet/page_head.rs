//! Parses the first fields of a page header before the page is decompressed.
//!
//! A header announces the size of its page, and decoders allocate as much. Each compression has a
//! largest possible ratio, so a size beyond it is damage.

use parquet::basic::Compression;

use super::thrift::{I32, STRUCT, Thrift};
use crate::RECORD_BYTES_MAX;

/// Largest accepted page, decompressed: as large as the longest record, since a page has at least one
/// value.
pub(super) const PAGE_BYTES_MAX: u64 = RECORD_BYTES_MAX as u64;

/// A gzip page of at least this compressed size is test-inflated first: the crate inflates without a
/// limit. Gzip expands by at most a factor of 1,032, so shorter pages stay below [`PAGE_BYTES_MAX`].
pub(super) const GZIP_TRIED_BYTES: usize = RECORD_BYTES_MAX / 1032;

/// The sizes that a page header announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageHead {
    /// Bytes of the page in the file.
    pub(super) stored_bytes: u64,
    /// Bytes after decompression.
    pub(super) page_bytes: u64,
    /// Bytes of levels before the values, which are not compressed (second version of data pages).
    pub(super) level_bytes: u64,
}

impl PageHead {
    /// Parses the first fields of a header, which may be truncated behind them.
    pub(super) fn read(header: &[u8]) -> Option<Self> {
        let mut thrift = Thrift::new(header);
        let (mut last, mut page_bytes, mut stored_bytes) = (0, None, None);
        let mut level_bytes = 0;
        while let Some(Some((field, kind))) = thrift.field(&mut last) {
            match (field, kind) {
                (2, I32) => page_bytes = u64::try_from(thrift.integer()?).ok(),
                (3, I32) => stored_bytes = u64::try_from(thrift.integer()?).ok(),
                (8, STRUCT) => level_bytes = levels(&mut thrift)?,
                (1..8, kind) => {
                    if thrift.skip(kind).is_none() {
                        break; // Truncated; the fields that matter come first.
                    }
                }
                _ => break,
            }
        }
        Some(Self { stored_bytes: stored_bytes?, page_bytes: page_bytes?, level_bytes })
    }

    /// Whether a page with this compression can be so large.
    pub(super) fn is_plausible(self, codec: Compression) -> bool {
        // Most bytes that one byte expands to: snappy copies 64 bytes by 3, lz4 255 by 1, deflate 258
        // by two bits, zstd 128 KiB by 4.
        let factor = match codec {
            Compression::UNCOMPRESSED => return true, // The size is not used.
            Compression::SNAPPY => 32,
            Compression::LZ4 | Compression::LZ4_RAW => 256,
            Compression::GZIP(_) => 1040,
            _ => 64 << 10,
        };
        let page_bytes_max = self.stored_bytes.saturating_mul(factor).saturating_add(64);
        self.page_bytes <= page_bytes_max.min(PAGE_BYTES_MAX)
    }
}

/// Bytes of both kinds of levels, from the header of a data page of the second version.
fn levels(thrift: &mut Thrift<'_>) -> Option<u64> {
    let mut last = 0;
    let mut bytes = 0u64;
    while let Some((field, kind)) = thrift.field(&mut last)? {
        match (field, kind) {
            (5 | 6, I32) => bytes += u64::try_from(thrift.integer()?).ok()?,
            (7.., _) => break, // Statistics come last and may be truncated.
            _ => thrift.skip(kind)?,
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_found_and_judged() {
        // type 0, page bytes 200, stored bytes 20, data page header: 5 values
        let head = PageHead::read(&[0x15, 0, 0x15, 0x90, 3, 0x15, 40, 0x2c, 0x15, 10]).unwrap();
        assert_eq!(head, PageHead { stored_bytes: 20, page_bytes: 200, level_bytes: 0 });
        assert!(head.is_plausible(Compression::SNAPPY));
        let bomb = PageHead { page_bytes: 1 << 30, ..head };
        assert!(!bomb.is_plausible(Compression::SNAPPY));
        assert_eq!(PageHead::read(&[0x15, 0, 0x15, 0x91, 3]), None);
    }
}
