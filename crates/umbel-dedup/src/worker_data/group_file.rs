//! The file of the groups that a worker knows: those of its own records, and those of other workers' records
//! for which some of its records were dropped.
//!
//! ```text
//! block:  | owner u32 | groups u32 | flags u32 | crc32c u32 | { kept u64, size u64, with flag 1: record u64, part u64 } ... |
//! ```
//!
//! All integers are little-endian, and the checksum covers the rest of the block. `owner` is the worker that has the kept
//! records; its groups are ascending through its blocks. With flag 1 a group has the record and part that the kept id
//! stands for. The file is valid once the journal has the record `Counted`.

use super::folder::{DataFile, crc32c};
use crate::error::{DedupError, Result, bail, failed};
use crate::segments::SegmentFile;
use umbel_dedup_engine::{KeptGroup, RecordId, RecordPart, WorkerId};

/// Bytes before the groups of a block.
const HEAD_BYTES: usize = 16;

/// Offset of the checksum.
const CRC_AT: usize = 12;

/// Most groups of a block, which is read as a whole: one or two megabytes.
const BLOCK_GROUPS_MAX: usize = 1 << 16;

const NAMES_PARTS: u32 = 1;

/// Bytes of a group in a block with these flags.
const fn group_bytes(flags: u32) -> usize {
    if flags == NAMES_PARTS { 32 } else { 16 }
}

/// Appends groups of an owner; they are durable after a sync.
pub(super) fn append(file: &DataFile, owner: WorkerId, groups: &[KeptGroup]) -> Result<()> {
    let names_parts = groups.first().is_some_and(|group| group.part.is_some());
    if groups.iter().any(|group| group.part.is_some() != names_parts) {
        bail!("worker {} has told which parts some of its places are, not of all", owner.0);
    }
    let flags = if names_parts { NAMES_PARTS } else { 0 };
    for groups in groups.chunks(BLOCK_GROUPS_MAX) {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + group_bytes(flags) * groups.len());
        bytes.extend(u32::from(owner.0).to_le_bytes());
        bytes.extend(u32::try_from(groups.len()).expect("few in a block").to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend([0; 4]);
        for KeptGroup { kept, size, part } in groups {
            let part = part.map(|RecordPart { record, part }| [record, part]);
            let words = [kept.to_bits(), *size].into_iter().chain(part.into_iter().flatten());
            bytes.extend(words.flat_map(u64::to_le_bytes));
        }
        let crc = crc32c(&bytes); // computed with zeros in its own field
        bytes[CRC_AT..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
        file.append(&bytes)?;
    }
    Ok(())
}

/// A block: its header and its offset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Block {
    owner: u32,
    offset: u64,
    groups: u32,
    flags: u32,
}

impl Block {
    const fn bytes(self) -> usize {
        HEAD_BYTES + group_bytes(self.flags) * self.groups as usize
    }
}

/// Reads groups in the order of kept records.
pub(super) struct GroupReader<'a> {
    file: &'a DataFile,
    blocks: std::vec::IntoIter<Block>,
    groups: std::vec::IntoIter<KeptGroup>,
    before: Option<RecordId>,
}

impl<'a> GroupReader<'a> {
    /// A reader of the first `good_bytes` bytes, for the groups of all owners or of one.
    pub(super) fn new(file: &'a DataFile, good_bytes: u64, of: Option<WorkerId>) -> Result<Self> {
        let mut blocks = Vec::new();
        let mut offset = 0;
        while offset < good_bytes {
            let block = head(file, offset, good_bytes)?;
            offset += block.bytes() as u64;
            if of.is_none_or(|of| u32::from(of.0) == block.owner) {
                blocks.push(block);
            }
        }
        // Record ids ascend with the numbers of workers.
        blocks.sort_unstable();
        let (blocks, groups) = (blocks.into_iter(), Vec::new().into_iter());
        Ok(Self { file, blocks, groups, before: None })
    }

    /// The next group.
    pub(super) fn next(&mut self) -> Result<Option<KeptGroup>> {
        loop {
            if let Some(group) = self.groups.next() {
                if self.before.is_some_and(|before| before >= group.kept) {
                    bail!("{}: groups are out of order", self.file.name());
                }
                self.before = Some(group.kept);
                return Ok(Some(group));
            }
            let Some(block) = self.blocks.next() else { return Ok(None) };
            self.groups = read(self.file, block)?.into_iter();
        }
    }
}

fn damaged(file: &DataFile, offset: u64) -> DedupError {
    failed!("{}: damaged in the block at byte {offset}", file.name())
}

fn head(file: &DataFile, offset: u64, good_bytes: u64) -> Result<Block> {
    let mut head = [0; CRC_AT];
    if good_bytes - offset < HEAD_BYTES as u64 {
        return Err(damaged(file, offset));
    }
    file.read(offset, &mut head)?;
    let word = |from: usize| u32::from_le_bytes(head[from..from + 4].try_into().expect("4 bytes"));
    let (owner, groups, flags) = (word(0), word(4), word(8));
    let block = Block { owner, offset, groups, flags };
    let is_possible = groups as usize <= BLOCK_GROUPS_MAX && flags <= NAMES_PARTS;
    if !is_possible || block.bytes() as u64 > good_bytes - offset {
        return Err(damaged(file, offset));
    }
    Ok(block)
}

fn read(file: &DataFile, block: Block) -> Result<Vec<KeptGroup>> {
    let mut bytes = vec![0; block.bytes()];
    file.read(block.offset, &mut bytes)?;
    let expected = u32::from_le_bytes(bytes[CRC_AT..HEAD_BYTES].try_into().expect("4 bytes"));
    bytes[CRC_AT..HEAD_BYTES].fill(0);
    if crc32c(&bytes) != expected {
        return Err(damaged(file, block.offset));
    }
    let (words, _) = bytes[HEAD_BYTES..].as_chunks::<8>();
    let word = |word: &[u8; 8]| u64::from_le_bytes(*word);
    let group = |words: &[[u8; 8]]| KeptGroup {
        kept: RecordId::from_bits(word(&words[0])),
        size: word(&words[1]),
        part: (words.len() > 2)
            .then(|| RecordPart { record: word(&words[2]), part: word(&words[3]) }),
    };
    Ok(words.chunks_exact(group_bytes(block.flags) / 8).map(group).collect())
}

#[cfg(test)]
mod tests {
    use super::super::folder::JobFolder;
    use super::*;

    fn groups(first: u64, count: u64) -> Vec<KeptGroup> {
        let group = |number| KeptGroup {
            kept: RecordId::from_bits(first + number),
            size: 2 + number,
            // The groups of one owner all have parts, those of the other have none.
            part: (first < 1 << 39).then_some(RecordPart { record: number / 2, part: 7 }),
        };
        (0..count).map(group).collect()
    }

    fn all(file: &DataFile, good_bytes: u64, of: Option<u16>) -> Result<Vec<KeptGroup>> {
        let mut reader = GroupReader::new(file, good_bytes, of.map(WorkerId))?;
        let mut found = Vec::new();
        while let Some(group) = reader.next()? {
            found.push(group);
        }
        Ok(found)
    }

    #[test]
    fn groups_come_back_by_owner_and_damage_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let folder = JobFolder::take(directory.path()).unwrap();
        let file = DataFile::open(&folder, "groups", 0).unwrap();
        let long = BLOCK_GROUPS_MAX as u64 + 3;
        append(&file, WorkerId(1), &groups(1 << 40, 2)).unwrap();
        append(&file, WorkerId(0), &groups(5, long)).unwrap();
        append(&file, WorkerId(1), &groups(2 << 40, 1)).unwrap();
        append(&file, WorkerId(1), &[]).unwrap();
        let good_bytes = file.bytes();
        append(&file, WorkerId(0), &groups(1 << 39, 4)).unwrap();
        let of_second = [groups(1 << 40, 2), groups(2 << 40, 1)].concat();
        assert!(
            all(&file, good_bytes, None).unwrap() == [groups(5, long), of_second.clone()].concat()
        );
        assert!(all(&file, good_bytes, Some(1)).unwrap() == of_second);
        for at in (0..60).chain([good_bytes - 1]) {
            let mut byte = [0];
            file.read(at, &mut byte).unwrap();
            file.write_at(&[byte[0] ^ 1], at).unwrap();
            assert!(all(&file, good_bytes, None).is_err(), "{at}");
            file.write_at(&byte, at).unwrap();
        }
        let mixed = [groups(5, 1), groups(1 << 40, 1)].concat();
        assert!(append(&file, WorkerId(0), &mixed).is_err());
        append(&file, WorkerId(0), &groups(5, 1)).unwrap();
        let error = all(&file, file.bytes(), None).unwrap_err().to_string();
        assert!(error.contains("out of order"), "{error}");
    }
}
