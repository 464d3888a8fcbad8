//! The groups that a worker knows: all of its own, and those of others that it has dropped records for.
//!
//! ```text
//! block:  | keeper u32 | groups u32 | crc32c u32 | { kept u64, size u64 } ... |
//! ```
//!
//! All integers are little-endian, and the checksum covers the rest of the block. Those of one keeper rise through its
//! blocks. Blocks count once the journal says that all groups are there.

use super::folder::{DataFile, crc32c};
use anyhow::{Result, bail};
use umbel_engine::dedup::{Group, Place, WorkerId};

/// Bytes before the groups of a block.
const HEAD_BYTES: usize = 12;

/// Most groups of a block, which is read whole: a megabyte.
const BLOCK_GROUPS_MAX: usize = 1 << 16;

const GROUP_BYTES: usize = 16;

/// Appends groups of a keeper; durable after a sync.
pub(super) fn append(file: &DataFile, keeper: WorkerId, groups: &[Group]) -> Result<()> {
    for groups in groups.chunks(BLOCK_GROUPS_MAX) {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + GROUP_BYTES * groups.len());
        bytes.extend(u32::from(keeper.0).to_le_bytes());
        bytes.extend(u32::try_from(groups.len()).expect("few in a block").to_le_bytes());
        bytes.extend([0; 4]);
        for Group { kept, size } in groups {
            bytes.extend(kept.to_bits().to_le_bytes());
            bytes.extend(size.to_le_bytes());
        }
        let crc = crc32c(&bytes); // of a block whose own place for it holds zeros
        bytes[8..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
        file.append(&bytes)?;
    }
    Ok(())
}

/// Where a block of a keeper begins, and how many groups it has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Block {
    keeper: u32,
    offset: u64,
    groups: u32,
}

/// Hands out groups in the order of kept records.
pub(super) struct GroupReader<'a> {
    file: &'a DataFile,
    blocks: std::vec::IntoIter<Block>,
    groups: std::vec::IntoIter<Group>,
    before: Option<Place>,
}

impl<'a> GroupReader<'a> {
    /// The groups in the first so many bytes: of all workers, or of one.
    pub(super) fn new(file: &'a DataFile, good_bytes: u64, of: Option<WorkerId>) -> Result<Self> {
        let mut blocks = Vec::new();
        let mut offset = 0;
        while offset < good_bytes {
            let block = head(file, offset, good_bytes)?;
            offset += (HEAD_BYTES + GROUP_BYTES * block.groups as usize) as u64;
            if of.is_none_or(|of| u32::from(of.0) == block.keeper) {
                blocks.push(block);
            }
        }
        // Places rise from worker to worker, as their numbers do.
        blocks.sort_unstable();
        let (blocks, groups) = (blocks.into_iter(), Vec::new().into_iter());
        Ok(Self { file, blocks, groups, before: None })
    }

    /// The next group.
    pub(super) fn next(&mut self) -> Result<Option<Group>> {
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

fn damaged(file: &DataFile, offset: u64) -> anyhow::Error {
    anyhow::anyhow!("{}: damaged in the block at byte {offset}", file.name())
}

fn head(file: &DataFile, offset: u64, good_bytes: u64) -> Result<Block> {
    let mut head = [0; 8];
    if good_bytes - offset < HEAD_BYTES as u64 {
        return Err(damaged(file, offset));
    }
    file.read(offset, &mut head)?;
    let number = u64::from_le_bytes(head);
    let keeper = u32::try_from(number & u64::from(u32::MAX)).expect("32 bits");
    let groups = u32::try_from(number >> 32).expect("32 bits");
    let length = HEAD_BYTES as u64 + GROUP_BYTES as u64 * u64::from(groups);
    if groups as usize > BLOCK_GROUPS_MAX || length > good_bytes - offset {
        return Err(damaged(file, offset));
    }
    Ok(Block { keeper, offset, groups })
}

fn read(file: &DataFile, block: Block) -> Result<Vec<Group>> {
    let mut bytes = vec![0; HEAD_BYTES + GROUP_BYTES * block.groups as usize];
    file.read(block.offset, &mut bytes)?;
    let expected = u32::from_le_bytes(bytes[8..HEAD_BYTES].try_into().expect("4 bytes"));
    bytes[8..HEAD_BYTES].fill(0);
    if crc32c(&bytes) != expected {
        return Err(damaged(file, block.offset));
    }
    let (words, _) = bytes[HEAD_BYTES..].as_chunks::<8>();
    let word = |word: &[u8; 8]| u64::from_le_bytes(*word);
    let group =
        |pair: &[[u8; 8]]| Group { kept: Place::from_bits(word(&pair[0])), size: word(&pair[1]) };
    Ok(words.chunks_exact(2).map(group).collect())
}

#[cfg(test)]
mod tests {
    use super::super::folder::JobFolder;
    use super::*;

    fn groups(first: u64, count: u64) -> Vec<Group> {
        let group = |number| Group { kept: Place::from_bits(first + number), size: 2 + number };
        (0..count).map(group).collect()
    }

    fn all(file: &DataFile, good_bytes: u64, of: Option<u16>) -> Result<Vec<Group>> {
        let mut reader = GroupReader::new(file, good_bytes, of.map(WorkerId))?;
        let mut found = Vec::new();
        while let Some(group) = reader.next()? {
            found.push(group);
        }
        Ok(found)
    }

    #[test]
    fn groups_come_back_by_keeper_and_damage_is_named() {
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
        append(&file, WorkerId(0), &groups(5, 1)).unwrap();
        let error = all(&file, file.bytes(), None).unwrap_err().to_string();
        assert!(error.contains("out of order"), "{error}");
    }
}
