//! Writes an index, hash by hash in ascending order.

use super::header::{IndexHeader, IndexSpec};
use super::{BLOCK_BITS_MAX, BLOCK_ITEMS_MAX, BLOCK_ITEMS_MEAN};
use crate::ExchangeError;
use umbel_bits::{BitWriter, RiceCode};
use umbel_filter::ItemHash;

/// Encodes an index: takes hashes in ascending order, returns the bytes of blocks, and at the end those of
/// header and directory, which precede the blocks in the file.
///
/// Memory: one block, and 16 bytes for every block. Hashes that are equal in the stored bits are stored once.
///
/// ```
/// use umbel_dedup_engine::{IndexBits, IndexDirectory, IndexHeader, IndexSpec, IndexWriter, SpecDigest};
/// use umbel_filter::{HashRange, ItemHash};
/// let spec = IndexSpec { bits: IndexBits::Bits128, seed: 7, digest: SpecDigest([0; 16]) };
/// let mut writer = IndexWriter::new(spec, 2);
/// let mut blocks = Vec::new();
/// let hashes = [ItemHash::new(1, 2), ItemHash::new(1 << 62, 3)];
/// hashes.iter().for_each(|hash| writer.push(*hash, &mut blocks).unwrap());
/// let head = writer.finish(&mut blocks);
/// assert_eq!(head.len(), 64 + 16); // the header and one block's directory entry
/// assert_eq!(blocks.len(), (2 * (62 + 2 + 64) as usize).div_ceil(8)); // Rice codes with B = 62, and lo
///
/// let header = IndexHeader::decode(head.first_chunk().unwrap()).unwrap();
/// let file_bytes = (head.len() + blocks.len()) as u64;
/// let directory = IndexDirectory::decode(header, &head[64..], file_bytes).unwrap();
/// let mut found = Vec::new();
/// for block in directory.blocks_of(HashRange::WHOLE) {
///     directory.read_block(block, &blocks, &mut found).unwrap();
/// }
/// assert_eq!(found, hashes);
/// ```
#[derive(Debug)]
pub struct IndexWriter {
    header: IndexHeader,
    /// The directory entries of complete blocks.
    entries: Vec<Entry>,
    block: BitWriter,
    block_items: u32,
    /// Bytes of all complete blocks.
    written: u64,
    last: Option<ItemHash>,
}

/// A complete block.
#[derive(Clone, Copy, Debug)]
struct Entry {
    offset: u64,
    count: u32,
    checksum: u32,
}

impl IndexWriter {
    /// A writer for about `expected_count` hashes, which determine the number of blocks and the Rice code.
    #[must_use]
    pub fn new(spec: IndexSpec, expected_count: u64) -> Self {
        let block_bits = (expected_count / BLOCK_ITEMS_MEAN).max(1).ilog2().min(BLOCK_BITS_MAX);
        let gap_code = RiceCode::for_mean_gap(2f64.powi(64) / expected_count.max(1) as f64);
        let header = IndexHeader { spec, count: 0, gap_code, block_bits };
        Self {
            header,
            entries: Vec::new(),
            block: BitWriter::new(),
            block_items: 0,
            written: 0,
            last: None,
        }
    }

    /// Adds the next hash, and appends the bytes of completed blocks to `out`.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::Driver`] if the hash is less than the previous one, or if a block has 2^24 hashes,
    /// because there are far more hashes than expected.
    pub fn push(&mut self, hash: ItemHash, out: &mut Vec<u8>) -> Result<(), ExchangeError> {
        let bits = self.header.spec.bits;
        let hash = bits.apply(hash);
        if self.last.is_some_and(|last| hash <= last) {
            if self.last == Some(hash) {
                return Ok(());
            }
            return Err(ExchangeError::Driver { what: "hashes of an index in rising order" });
        }
        let block = self.header.block_of(hash.hi());
        while self.entries.len() < block as usize {
            self.end_block(out);
        }
        if self.block_items >= BLOCK_ITEMS_MAX {
            return Err(ExchangeError::Driver { what: "about as many hashes as were expected" });
        }
        let before = match self.last {
            Some(last) if self.block_items > 0 => last.hi(),
            _ => self.header.block_range(block).0,
        };
        self.header.gap_code.write(&mut self.block, hash.hi() - before);
        let low_bits = bits.low_bits();
        if low_bits > 0 {
            self.block.write_bits(hash.lo() >> (64 - low_bits), low_bits);
        }
        self.block_items += 1;
        self.header.count += 1;
        self.last = Some(hash);
        Ok(())
    }

    /// Appends the last blocks to `out`, and returns header and directory, which belong in front of all
    /// blocks.
    #[must_use]
    pub fn finish(mut self, out: &mut Vec<u8>) -> Vec<u8> {
        while self.entries.len() < self.header.block_count() as usize {
            self.end_block(out);
        }
        let mut head = self.header.encode().to_vec();
        for entry in &self.entries {
            head.extend(entry.offset.to_le_bytes());
            head.extend(entry.count.to_le_bytes());
            head.extend(entry.checksum.to_le_bytes());
        }
        head
    }

    /// How many distinct hashes were taken.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.header.count
    }

    fn end_block(&mut self, out: &mut Vec<u8>) {
        let block = u32::try_from(self.entries.len()).expect("at most 2^BLOCK_BITS_MAX blocks");
        let bytes = std::mem::take(&mut self.block).finish();
        let count = std::mem::take(&mut self.block_items);
        let offset = self.header.blocks_offset() + self.written;
        let checksum = self.header.block_checksum(block, offset, count, &bytes);
        self.entries.push(Entry { offset, count, checksum });
        self.written += bytes.len() as u64;
        out.extend(bytes);
    }
}
