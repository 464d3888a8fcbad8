//! The file of drops: one block for each decided cell.
//!
//! ```text
//! block of a cell:  | cell u32 | flags u32 | drops u64 | crc32c u32 | dropped ids u64 ... | kept ids u64 ... | ranks u64 ... |
//! ```
//!
//! All integers are little-endian, and record ids are those of the job. Flag 1: the block has the kept record
//! of each drop; flag 2: it also has the rank of each drop. The checksum covers the rest of the block. Blocks
//! are valid up to the length in the journal, to which the file is truncated when it is opened.

use super::folder::{DataFile, crc32c};
use crate::error::{Result, bail, failed};
use crate::segments::SegmentFile;
use crc_fast::CrcAlgorithm;
use umbel_dedup_engine::{Drops, Rank, RecordId};

/// Bytes before the record ids of a block.
const HEAD_BYTES: usize = 20;

const NAMES_KEPT: u32 = 1;

const RANKS: u32 = 2;

/// Most drops of a block that are read at once.
const PIECE_DROPS: u64 = 1 << 16;

fn block(cell: u32, drops: &Drops) -> Vec<u8> {
    let flags = [(&drops.kept.is_empty(), NAMES_KEPT), (&drops.ranks.is_empty(), RANKS)];
    let flags: u32 = flags.iter().filter(|(is_empty, _)| !**is_empty).map(|(_, flag)| flag).sum();
    let lists = 1 + flags.count_ones() as usize;
    let mut bytes = Vec::with_capacity(HEAD_BYTES + 8 * lists * drops.record_ids.len());
    bytes.extend(cell.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend((drops.record_ids.len() as u64).to_le_bytes());
    bytes.extend([0; 4]);
    for record_id in drops.record_ids.iter().chain(&drops.kept) {
        bytes.extend(record_id.to_bits().to_le_bytes());
    }
    for rank in &drops.ranks {
        bytes.extend(rank.0.to_le_bytes());
    }
    let crc = crc32c(&bytes); // computed with zeros in its own field
    bytes[16..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Appends the drops of a cell; they are durable after a sync.
pub(super) fn append(file: &DataFile, cell: u32, drops: &Drops) -> Result<()> {
    let [record_ids, kept, ranks] = [drops.record_ids.len(), drops.kept.len(), drops.ranks.len()];
    // A list is complete or empty, and there are no ranks without kept records.
    if (kept != 0 && kept != record_ids) || (ranks != 0 && ranks != kept) {
        bail!("cell {cell} has {record_ids} drops, {kept} kept and {ranks} ranks");
    }
    // Tasks decide cells in any order, and blocks are appended in that order.
    file.append(&block(cell, drops)).map(|_| ())
}

/// Calls `each` for every drop in the first `good_bytes` bytes, with its kept record if the block has it, and its rank, 0
/// if the block has none.
pub(super) fn for_each(
    file: &DataFile,
    good_bytes: u64,
    mut each: impl FnMut(RecordId, Option<RecordId>, Rank) -> Result<()>,
) -> Result<()> {
    let mut at = 0;
    while at < good_bytes {
        at += read_block(file, at, good_bytes, &mut each)?;
    }
    Ok(())
}

/// Reads the block at an offset, and returns its length.
fn read_block(
    file: &DataFile,
    at: u64,
    good_bytes: u64,
    each: &mut impl FnMut(RecordId, Option<RecordId>, Rank) -> Result<()>,
) -> Result<u64> {
    let damaged = || failed!("{}: damaged in the block at byte {at}", file.name());
    let mut head = [0; HEAD_BYTES];
    file.read(at, &mut head)?;
    let word = |from: usize| u32::from_le_bytes(head[from..from + 4].try_into().expect("4 bytes"));
    let count = u64::from_le_bytes(head[8..16].try_into().expect("8 bytes"));
    let flags = word(4);
    // Lists after the dropped ids: none, the kept ids, or the kept ids and the ranks.
    let lists = match flags {
        0 => 1,
        NAMES_KEPT => 2,
        flags if flags == NAMES_KEPT | RANKS => 3,
        _ => return Err(damaged()),
    };
    let body_bytes = count.checked_mul(8 * lists).ok_or_else(damaged)?;
    let length = body_bytes.checked_add(HEAD_BYTES as u64).ok_or_else(damaged)?;
    if at.checked_add(length).is_none_or(|end| end > good_bytes) {
        return Err(damaged());
    }
    check_crc(file, at, length, &head).then_some(()).ok_or_else(damaged)?;
    let first = at + HEAD_BYTES as u64;
    let mut from = 0;
    while from < count {
        let drops = (count - from).min(PIECE_DROPS);
        let list = |number: u64| {
            if number < lists {
                read_words(file, first + 8 * (number * count + from), drops)
            } else {
                Ok(Vec::new())
            }
        };
        let (record_ids, kept, ranks) = (list(0)?, list(1)?, list(2)?);
        for (index, record_id) in record_ids.into_iter().enumerate() {
            let kept = kept.get(index).copied().map(RecordId::from_bits);
            let rank = ranks.get(index).copied().map_or(Rank::default(), Rank);
            each(RecordId::from_bits(record_id), kept, rank)?;
        }
        from += drops;
    }
    Ok(length)
}

fn check_crc(file: &DataFile, at: u64, length: u64, head: &[u8; HEAD_BYTES]) -> bool {
    let expected = u32::from_le_bytes(head[16..].try_into().expect("4 bytes"));
    let mut digest = crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&head[..16]);
    digest.update(&[0; 4]);
    let mut from = HEAD_BYTES as u64;
    let mut buffer = Vec::new();
    while from < length {
        let bytes = (length - from).min(8 * PIECE_DROPS);
        buffer.resize(usize::try_from(bytes).expect("half a megabyte"), 0);
        if file.read(at + from, &mut buffer).is_err() {
            return false;
        }
        digest.update(&buffer);
        from += bytes;
    }
    digest.finalize() == u64::from(expected)
}

fn read_words(file: &DataFile, offset: u64, count: u64) -> Result<Vec<u64>> {
    let mut bytes = vec![0; usize::try_from(8 * count).expect("half a megabyte")];
    file.read(offset, &mut bytes)?;
    Ok(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::folder::JobFolder;
    use super::*;

    fn drops(record_ids: &[u64], lists: u32) -> Drops {
        let record_ids = record_ids.iter();
        Drops {
            record_ids: record_ids.clone().map(|item| RecordId::new(3, *item)).collect(),
            kept: record_ids
                .clone()
                .map(|item| RecordId::new(0, *item / 2))
                .filter(|_| lists > 1)
                .collect(),
            ranks: record_ids.map(|item| Rank(*item + 7)).filter(|_| lists > 2).collect(),
            ..Drops::default()
        }
    }

    #[test]
    fn drops_come_back_as_far_as_they_are_good_and_damage_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let folder = JobFolder::take(directory.path()).unwrap();
        let many: Vec<u64> = (0..PIECE_DROPS + 10).collect();
        for lists in [1, 2, 3] {
            let file = DataFile::open(&folder, "drops", 0).unwrap();
            append(&file, 0, &drops(&[5, 2], lists)).unwrap();
            append(&file, 1, &drops(&[], lists)).unwrap();
            append(&file, 2, &drops(&many, lists)).unwrap();
            let good_bytes = file.bytes();
            append(&file, 3, &drops(&[77], lists)).unwrap();
            let read = || {
                let mut found = Vec::new();
                let outcome = for_each(&file, good_bytes, |record_id, kept, rank| {
                    found.push((record_id.item(), kept.map(RecordId::item), rank.0));
                    Ok(())
                });
                outcome.map(|()| found)
            };
            let found = read().unwrap();
            let row = |item| {
                (item, (lists > 1).then_some(item / 2), if lists > 2 { item + 7 } else { 0 })
            };
            let expected = [5, 2].into_iter().chain(many.iter().copied());
            assert_eq!(found, expected.map(row).collect::<Vec<_>>());
            for at in (0..80).chain([good_bytes - 1]) {
                let mut byte = [0];
                file.read(at, &mut byte).unwrap();
                file.write_at(&[byte[0] ^ 1], at).unwrap();
                assert!(read().unwrap_err().to_string().contains("damaged in the block"), "{at}");
                file.write_at(&byte, at).unwrap();
            }
            file.cut(0).unwrap();
        }
    }
}
