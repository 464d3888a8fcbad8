//! An index: a file of sorted hashes of the items that a job has kept, for later jobs to compare with.
//!
//! ```text
//! 0 "UMBI" | 4 version u16 | 6 index_bits u8 | 7 B u8 | 8 seed u64 | 16 spec digest 16 B | 32 count u64
//! 40 block_bits u32 | 44 zero 16 B | 60 crc32c of these 60 bytes
//! 64 directory: 2^block_bits × ( offset u64 | count u32 | crc32c u32 )
//!    blocks, one for every value of the leading block_bits of hi, one after the other:
//!    hashes in rising order, each  Rice(hi − previous hi, at first − the block's start) | leading index_bits − 64 bits of lo
//! ```
//!
//! Numbers are little-endian, bits most significant first. A block's checksum covers the file's header
//! (without its count) and the block's number, offset, count and bytes, so a block that was moved, truncated
//! or taken from another file is rejected like a damaged one. A block has about 4,096 hashes. To read a range
//! of hashes, read the header, the directory and the blocks of that range.
//!
//! 64, 96 or all 128 bits of a hash are stored: 4.4, 8.4 or 12.4 bytes per item among 10^9.

mod header;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use header::{IndexBits, IndexError, IndexHeader, IndexSpec, SpecDigest};
pub use reader::{IndexDirectory, IndexExtent};
pub use writer::IndexWriter;

/// First bytes of every index.
const MAGIC: [u8; 4] = *b"UMBI";

/// Version of the file.
const VERSION: u16 = 1;

/// Bytes of the header.
pub const INDEX_HEADER_BYTES: usize = 64;

/// Bytes of a directory entry.
pub const INDEX_DIRECTORY_ENTRY_BYTES: usize = 16;

/// The least mean number of hashes in a block; it can be up to twice as many: 20 to 100 KiB, one read from a disk.
const BLOCK_ITEMS_MEAN: u64 = 4096;

/// Most hashes of a block: a thousand times the mean, which uniform hashes do not reach, and 256 MiB in memory.
const BLOCK_ITEMS_MAX: u32 = 1 << 24;

/// Most bytes of a hash in a block: an escaped gap and 64 bits of `lo` have 21.
const HASH_BYTES_MAX: u64 = 24;

/// Most bits of a block's number: 2^28 blocks of 4,096 are 10^12 items, and their directory 4 GiB.
const BLOCK_BITS_MAX: u32 = 28;
