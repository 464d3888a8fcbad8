//! The first fields of a page header, looked at before the page is unpacked.
//!
//! A header claims how large its page is, and decoders allocate by it. No packing shrinks a page by
//! more than its own factor, so a claim beyond that is damage.

use parquet::basic::Compression;

use super::thrift::{I32, STRUCT, Thrift};
use crate::RECORD_BYTES_MAX;

/// Largest page accepted once unpacked: the longest record, since a page holds at least one value.
pub(super) const PAGE_BYTES_MAX: u64 = RECORD_BYTES_MAX as u64;

/// Packed bytes from which a gzip page is inflated on trial: the crate inflates without a bound,
/// but no gzip grows by more than 1,032, so shorter ones stay below [`PAGE_BYTES_MAX`].
pub(super) const GZIP_TRIED_BYTES: usize = RECORD_BYTES_MAX / 1032;

/// What a page header claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageHead {
    /// Bytes of the page in the file.
    pub(super) stored_bytes: u64,
    /// Bytes once unpacked.
    pub(super) page_bytes: u64,
    /// Bytes of levels in front, which are not packed (second version of data pages).
    pub(super) level_bytes: u64,
}

impl PageHead {
    /// Reads the first fields out of the beginning of a header, which may be cut off behind them.
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
                        break; // Cut off; what matters stands in front.
                    }
                }
                _ => break,
            }
        }
        Some(Self { stored_bytes: stored_bytes?, page_bytes: page_bytes?, level_bytes })
    }

    /// Whether a page of this packing can be so large.
    pub(super) fn is_plausible(self, codec: Compression) -> bool {
        // Most bytes out of one: snappy copies 64 by 3, lz4 255 by 1, deflate 258 by two bits, zstd
        // 128 KiB by 4.
        let factor = match codec {
            Compression::UNCOMPRESSED => return true, // The claim is not used.
            Compression::SNAPPY => 32,
            Compression::LZ4 | Compression::LZ4_RAW => 256,
            Compression::GZIP(_) => 1040,
            _ => 64 << 10,
        };
        let page_bytes_max = self.stored_bytes.saturating_mul(factor).saturating_add(64);
        self.page_bytes <= page_bytes_max.min(PAGE_BYTES_MAX)
    }
}

/// Bytes of both kinds of levels in the header of a data page of the second version.
fn levels(thrift: &mut Thrift<'_>) -> Option<u64> {
    let mut last = 0;
    let mut bytes = 0u64;
    while let Some((field, kind)) = thrift.field(&mut last)? {
        match (field, kind) {
            (5 | 6, I32) => bytes += u64::try_from(thrift.integer()?).ok()?,
            (7.., _) => break, // Statistics come last and may be cut off.
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
