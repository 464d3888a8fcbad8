//! The first 64 bytes of an index: what was hashed, how, and how the hashes are encoded.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use super::{BLOCK_BITS_MAX, INDEX_DIRECTORY_ENTRY_BYTES, INDEX_HEADER_BYTES, MAGIC, VERSION};
use serde::{Deserialize, Serialize};
use std::fmt;
use thiserror::Error;
use umbel_bits::{CodeError, Hex, RiceCode};
use umbel_codec::{FirstBytes, crc32c};
use umbel_filter::ItemHash;

/// How many bits of a hash an index stores.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum IndexBits {
    /// `hi`.
    Bits64,
    /// `hi` and the leading 32 bits of `lo`.
    Bits96,
    /// All of it.
    Bits128,
}

impl IndexBits {
    /// The number: 64, 96 or 128.
    #[must_use]
    pub const fn get(self) -> u32 {
        match self {
            Self::Bits64 => 64,
            Self::Bits96 => 96,
            Self::Bits128 => 128,
        }
    }

    /// From the number; `None` unless it is 64, 96 or 128.
    #[must_use]
    pub const fn new(bits: u32) -> Option<Self> {
        match bits {
            64 => Some(Self::Bits64),
            96 => Some(Self::Bits96),
            128 => Some(Self::Bits128),
            _ => None,
        }
    }

    /// Bits of `lo` that are stored.
    pub(super) const fn low_bits(self) -> u32 {
        self.get() - 64
    }

    /// The hash with every bit cleared that is not stored.
    ///
    /// ```
    /// use umbel_dedup_engine::IndexBits;
    /// use umbel_filter::ItemHash;
    /// let hash = ItemHash::new(7, 0x1234_5678_9abc_def0);
    /// assert_eq!(IndexBits::Bits96.apply(hash), ItemHash::new(7, 0x1234_5678_0000_0000));
    /// assert_eq!(IndexBits::Bits64.apply(hash), ItemHash::new(7, 0));
    /// ```
    #[must_use]
    #[inline]
    pub const fn apply(self, hash: ItemHash) -> ItemHash {
        let mask = match self {
            Self::Bits64 => 0,
            Self::Bits96 => 0xffff_ffff_0000_0000,
            Self::Bits128 => u64::MAX,
        };
        ItemHash::new(hash.hi(), hash.lo() & mask)
    }
}

/// Digest of a job's options that determine what is hashed: two jobs with equal digests and seeds have equal hashes for
/// equal items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpecDigest(pub [u8; 16]);

impl fmt::Display for SpecDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex(&self.0).fmt(f)
    }
}

/// What the hashes of an index are made from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexSpec {
    /// How many bits of each are stored.
    pub bits: IndexBits,
    /// Seed of the hash function.
    pub seed: u64,
    /// What was hashed.
    pub digest: SpecDigest,
}

/// Why bytes are not an index. Save the index again with `--save-index`, or restore it from a backup.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum IndexError {
    /// Not an index.
    #[error("not an index: starts with {}, expected {}", FirstBytes(*got), FirstBytes(MAGIC))]
    Magic {
        /// The first bytes.
        got: [u8; 4],
    },
    /// An index of another version. Use the release that wrote it, or write it again.
    #[error("index of version {got}, this release reads {expected}")]
    Version {
        /// The version that this release reads.
        expected: u16,
        /// The file's version.
        got: u16,
    },
    /// A checksum differs: the file is damaged.
    #[error("{what} is damaged: checksum {got:#010x}, computed {computed:#010x}")]
    Checksum {
        /// What it covers.
        what: &'static str,
        /// The checksum in the file.
        got: u32,
        /// The checksum of the bytes that were read.
        computed: u32,
    },
    /// A field has a value that no writer writes.
    #[error("{field} is {got}, expected {expected}")]
    Field {
        /// Its name.
        field: &'static str,
        /// The possible values.
        expected: &'static str,
        /// The value in the file.
        got: u64,
    },
    /// Too few or too many bytes.
    #[error("damaged or cut short: {what} has {got} bytes, expected {expected}")]
    Length {
        /// The part of the file.
        what: &'static str,
        /// The length according to the header or directory.
        expected: u64,
        /// The actual length.
        got: u64,
    },
    /// The directory contradicts itself or the header.
    #[error("directory entry {block}: {what}")]
    Directory {
        /// The entry.
        block: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// A block's codes are malformed.
    #[error("block {block} is malformed")]
    Code {
        /// The block.
        block: u32,
        /// What is wrong.
        #[source]
        source: CodeError,
    },
    /// A block's hashes are not ascending, or not in its range.
    #[error("block {block}: hash {item} {what}")]
    Order {
        /// The block.
        block: u32,
        /// The hash's number in it.
        item: u32,
        /// What is wrong.
        what: &'static str,
    },
}

/// The header of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexHeader {
    /// What the hashes are.
    pub spec: IndexSpec,
    /// How many there are.
    pub count: u64,
    /// The Rice code of the gaps.
    pub(super) gap_code: RiceCode,
    /// log2 of the number of blocks.
    pub(super) block_bits: u32,
}

/// Takes fields from the front of a header.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let field = self.0.split_off(..N).and_then(<[u8]>::first_chunk);
        *field.expect("the header is as long as its fields")
    }
}

impl IndexHeader {
    /// The header's bytes.
    pub(super) fn encode(&self) -> [u8; INDEX_HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(INDEX_HEADER_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.push(u8::try_from(self.spec.bits.get()).expect("at most 128"));
        bytes.push(u8::try_from(self.gap_code.low_bits()).expect("at most 63"));
        bytes.extend(self.spec.seed.to_le_bytes());
        bytes.extend(self.spec.digest.0);
        bytes.extend(self.count.to_le_bytes());
        bytes.extend(self.block_bits.to_le_bytes());
        bytes.extend([0; 16]);
        bytes.extend(crc32c(&[&bytes]).to_le_bytes());
        bytes.try_into().expect("the fields have 64 bytes together")
    }

    /// Reads a header.
    ///
    /// # Errors
    ///
    /// [`IndexError`] if it is not one of this version, or damaged.
    pub fn decode(bytes: &[u8; INDEX_HEADER_BYTES]) -> Result<Self, IndexError> {
        let mut fields = Fields(bytes);
        let magic = fields.take();
        if magic != MAGIC {
            return Err(IndexError::Magic { got: magic });
        }
        let version = u16::from_le_bytes(fields.take());
        let [index_bits] = fields.take();
        let [low_bits] = fields.take();
        let seed = u64::from_le_bytes(fields.take());
        let digest = SpecDigest(fields.take());
        let count = u64::from_le_bytes(fields.take());
        let block_bits = u32::from_le_bytes(fields.take());
        let reserved = u128::from_le_bytes(fields.take());
        let got = u32::from_le_bytes(fields.take());
        let covered = bytes.split_last_chunk::<4>().map_or(&bytes[..], |(covered, _)| covered);
        let computed = crc32c(&[covered]);
        if got != computed {
            return Err(IndexError::Checksum { what: "the header", got, computed });
        }
        if version != VERSION {
            return Err(IndexError::Version { expected: VERSION, got: version });
        }
        let field = |field, expected, got| IndexError::Field { field, expected, got };
        let bits = IndexBits::new(index_bits.into()).ok_or(field(
            "index_bits",
            "64, 96 or 128",
            index_bits.into(),
        ))?;
        let gap_code = RiceCode::new(low_bits.into())
            .map_err(|_| field("B", "at most 63", low_bits.into()))?;
        if block_bits > BLOCK_BITS_MAX {
            return Err(field("block_bits", "at most 28", block_bits.into()));
        }
        if reserved != 0 {
            return Err(field("a reserved field", "0", u64::MAX));
        }
        Ok(Self { spec: IndexSpec { bits, seed, digest }, count, gap_code, block_bits })
    }

    /// How many blocks there are.
    #[must_use]
    pub const fn block_count(&self) -> u32 {
        1 << self.block_bits
    }

    /// Bytes of the directory, which follows the header.
    #[must_use]
    pub const fn directory_bytes(&self) -> u64 {
        (self.block_count() as u64) * INDEX_DIRECTORY_ENTRY_BYTES as u64
    }

    /// The offset of the first block.
    pub(super) const fn blocks_offset(&self) -> u64 {
        INDEX_HEADER_BYTES as u64 + self.directory_bytes()
    }

    /// The block of a hash.
    pub(super) fn block_of(&self, hi: u64) -> u32 {
        let block = hi.checked_shr(64 - self.block_bits).unwrap_or(0);
        u32::try_from(block).expect("at most BLOCK_BITS_MAX bits")
    }

    /// The least and the greatest `hi` of a block.
    pub(super) fn block_range(&self, block: u32) -> (u64, u64) {
        let shift = 64 - self.block_bits;
        let start = u64::from(block).checked_shl(shift).unwrap_or(0);
        (start, start | u64::MAX.checked_shr(self.block_bits).unwrap_or(0))
    }

    /// The checksum of a block. It covers the header without the number of hashes, which is not known while blocks are
    /// written; the counts of the directory must add up to that number.
    pub(super) fn block_checksum(&self, block: u32, offset: u64, count: u32, bytes: &[u8]) -> u32 {
        let header = Self { count: 0, ..*self }.encode();
        let (offset, count) = (offset.to_le_bytes(), count.to_le_bytes());
        crc32c(&[&header, &block.to_le_bytes(), &offset, &count, bytes])
    }
}
