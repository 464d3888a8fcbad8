//! Decodes an index, block by block. The caller reads the bytes.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use super::header::{IndexError, IndexHeader};
use super::{BLOCK_ITEMS_MAX, HASH_BYTES_MAX, INDEX_DIRECTORY_ENTRY_BYTES};
use std::ops::RangeInclusive;
use umbel_bits::BitReader;
use umbel_filter::{HashRange, ItemHash};

/// Where a block's bytes are in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexExtent {
    /// Offset of the first one.
    pub offset: u64,
    /// How many there are.
    pub length: u64,
}

/// A block's entry in the directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    extent: IndexExtent,
    count: u32,
    checksum: u32,
}

/// The directory of an index: which blocks contain a range of hashes, and how to decode them. See
/// [`IndexWriter`](super::IndexWriter) for an example.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexDirectory {
    header: IndexHeader,
    entries: Vec<Entry>,
}

impl IndexDirectory {
    /// Decodes the directory, whose bytes follow the header, of a file of `file_bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`IndexError`] if its length contradicts the header, its blocks do not cover the file, or its counts of hashes are
    /// more than can be in the blocks.
    pub fn decode(header: IndexHeader, bytes: &[u8], file_bytes: u64) -> Result<Self, IndexError> {
        let length = |what, expected, got| Err(IndexError::Length { what, expected, got });
        if bytes.len() as u64 != header.directory_bytes() {
            return length("the directory", header.directory_bytes(), bytes.len() as u64);
        }
        let (rows, _) = bytes.as_chunks::<INDEX_DIRECTORY_ENTRY_BYTES>();
        let fields: Vec<(u64, u32, u32)> = rows.iter().map(decode_row).collect();
        let ends = fields.iter().skip(1).map(|row| row.0).chain([file_bytes]);
        let bits_each_min = u64::from(header.gap_code.low_bits() + 1 + header.spec.bits.low_bits());
        let mut expected_offset = header.blocks_offset();
        let mut count_sum = 0u64;
        let mut entries = Vec::with_capacity(fields.len());
        for (block, (&(offset, count, checksum), end)) in (0u32..).zip(fields.iter().zip(ends)) {
            let refuse = |what| Err(IndexError::Directory { block, what });
            if offset != expected_offset {
                return refuse("the block does not begin where the one before ends");
            }
            let Some(length) = end.checked_sub(offset) else {
                return refuse("the block ends before it begins");
            };
            if u64::from(count) > length.saturating_mul(8) / bits_each_min {
                return refuse("more hashes than the block has room for");
            }
            if count > BLOCK_ITEMS_MAX || length > u64::from(count) * HASH_BYTES_MAX {
                return refuse("the block is too long");
            }
            entries.push(Entry { extent: IndexExtent { offset, length }, count, checksum });
            count_sum += u64::from(count);
            expected_offset = end;
        }
        if expected_offset != file_bytes {
            return length("the file", expected_offset, file_bytes);
        }
        if count_sum != header.count {
            let (expected, got) = ("the sum of the directory's counts", header.count);
            return Err(IndexError::Field { field: "count", expected, got });
        }
        Ok(Self { header, entries })
    }

    /// The header.
    #[must_use]
    pub const fn header(&self) -> &IndexHeader {
        &self.header
    }

    /// The blocks that contain the hashes of a range, and possibly hashes outside it.
    #[must_use]
    pub fn blocks_of(&self, range: HashRange) -> RangeInclusive<u32> {
        self.header.block_of(range.start())..=self.header.block_of(range.last())
    }

    /// Where a block is; `None` if there is no such block.
    #[must_use]
    pub fn extent(&self, block: u32) -> Option<IndexExtent> {
        self.entries.get(block as usize).map(|entry| entry.extent)
    }

    /// The expected number of hashes in a range, if hashes are uniform.
    #[must_use]
    pub fn expected_count(&self, range: HashRange) -> f64 {
        self.header.count as f64 * (range.width() as f64 / 2f64.powi(64))
    }

    /// Appends a block's hashes, ascending, to `hashes`; an error leaves these unchanged. Bits that are not stored are 0.
    ///
    /// # Errors
    ///
    /// [`IndexError`] if there is no such block or its bytes are damaged.
    pub fn read_block(
        &self,
        block: u32,
        bytes: &[u8],
        hashes: &mut Vec<ItemHash>,
    ) -> Result<(), IndexError> {
        let missing = IndexError::Directory { block, what: "there is no such block" };
        let entry = self.entries.get(block as usize).ok_or(missing)?;
        let (expected, got) = (entry.extent.length, bytes.len() as u64);
        if expected != got {
            return Err(IndexError::Length { what: "a block", expected, got });
        }
        let offset = entry.extent.offset;
        let computed = self.header.block_checksum(block, offset, entry.count, bytes);
        let got = entry.checksum;
        if computed != got {
            return Err(IndexError::Checksum { what: "a block", got, computed });
        }
        let before = hashes.len();
        let outcome = self.decode_block(block, entry.count, bytes, hashes);
        if outcome.is_err() {
            hashes.truncate(before);
        }
        outcome
    }

    fn decode_block(
        &self,
        block: u32,
        count: u32,
        bytes: &[u8],
        hashes: &mut Vec<ItemHash>,
    ) -> Result<(), IndexError> {
        let malformed = |source| IndexError::Code { block, source };
        let (start, last) = self.header.block_range(block);
        let low_bits = self.header.spec.bits.low_bits();
        let mut reader = BitReader::new(bytes);
        let mut previous: Option<ItemHash> = None;
        // `decode` has checked the count against the block's length.
        hashes.reserve(count as usize);
        for item in 0..count {
            let order = |what| IndexError::Order { block, item, what };
            let gap = self.header.gap_code.read(&mut reader).map_err(malformed)?;
            let from = previous.map_or(start, ItemHash::hi);
            let hi = from.checked_add(gap).filter(|&hi| hi <= last);
            let hi = hi.ok_or(order("lies behind the block's range"))?;
            let lo = match low_bits {
                0 => 0,
                bits => reader.read_bits(bits).map_err(malformed)? << (64 - bits),
            };
            let hash = ItemHash::new(hi, lo);
            if previous.is_some_and(|previous| hash <= previous) {
                return Err(order("does not rise"));
            }
            previous = Some(hash);
            hashes.push(hash);
        }
        reader.finish().map_err(malformed)
    }
}

fn decode_row(row: &[u8; INDEX_DIRECTORY_ENTRY_BYTES]) -> (u64, u32, u32) {
    let number = u128::from_le_bytes(*row);
    #[expect(clippy::cast_possible_truncation, reason = "fields of a packed number")]
    let fields = (number as u64, (number >> 64) as u32, (number >> 96) as u32);
    fields
}
