//! What was dropped in the cells that are settled.
//!
//! ```text
//! block of a cell:  | cell u32 | flags u32 | drops u64 | crc32c u32 | places u64 ... | kept u64 ... |   little-endian
//! ```
//!
//! Flag 1: each drop names the place kept in its stead. The checksum covers the rest of the block. Places are those of
//! the job. A block counts once the journal says so; what is behind the last one that does is cut.

use super::folder::{DataFile, crc32c};
use anyhow::{Result, bail};
use crc_fast::CrcAlgorithm;
use umbel_engine::dedup::{Drops, Place};

/// Bytes before the places of a block.
const HEAD_BYTES: usize = 20;

const NAMES_KEPT: u32 = 1;

/// Most drops that are held in memory while a block is read.
const PIECE_DROPS: u64 = 1 << 16;

fn block(cell: u32, drops: &Drops) -> Vec<u8> {
    let flags = if drops.kept.is_empty() { 0 } else { NAMES_KEPT };
    let mut bytes = Vec::with_capacity(HEAD_BYTES + 8 * (drops.places.len() + drops.kept.len()));
    bytes.extend(cell.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend((drops.places.len() as u64).to_le_bytes());
    bytes.extend([0; 4]);
    for place in drops.places.iter().chain(&drops.kept) {
        bytes.extend(place.to_bits().to_le_bytes());
    }
    let crc = crc32c(&bytes); // of a block whose own place for it holds zeros
    bytes[16..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Appends the drops of a cell; durable after a sync.
pub(super) fn append(file: &DataFile, cell: u32, drops: &Drops) -> Result<()> {
    if !drops.kept.is_empty() && drops.kept.len() != drops.places.len() {
        bail!("cell {cell} has {} drops and {} kept", drops.places.len(), drops.kept.len());
    }
    // The order in which lanes settle their cells does not matter, so blocks may come in any.
    file.append(&block(cell, drops)).map(|_| ())
}

/// Hands out every drop in the first so many bytes, and the place kept in its stead if that is known.
pub(super) fn for_each(
    file: &DataFile,
    good_bytes: u64,
    mut each: impl FnMut(Place, Option<Place>) -> Result<()>,
) -> Result<()> {
    let mut at = 0;
    while at < good_bytes {
        at += read_block(file, at, good_bytes, &mut each)?;
    }
    Ok(())
}

/// Reads the block at an offset; its length.
fn read_block(
    file: &DataFile,
    at: u64,
    good_bytes: u64,
    each: &mut impl FnMut(Place, Option<Place>) -> Result<()>,
) -> Result<u64> {
    let damaged = || anyhow::anyhow!("{}: damaged in the block at byte {at}", file.name());
    let mut head = [0; HEAD_BYTES];
    file.read(at, &mut head)?;
    let word = |from: usize| u32::from_le_bytes(head[from..from + 4].try_into().expect("4 bytes"));
    let count = u64::from_le_bytes(head[8..16].try_into().expect("8 bytes"));
    let lists = if word(4) & NAMES_KEPT == 0 { 1 } else { 2 };
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
        let places = read_places(file, first + 8 * from, drops)?;
        let kept = match lists {
            2 => read_places(file, first + 8 * (count + from), drops)?,
            _ => Vec::new(),
        };
        for (index, place) in places.into_iter().enumerate() {
            each(place, kept.get(index).copied())?;
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

fn read_places(file: &DataFile, offset: u64, count: u64) -> Result<Vec<Place>> {
    let mut bytes = vec![0; usize::try_from(8 * count).expect("half a megabyte")];
    file.read(offset, &mut bytes)?;
    let places = bytes.as_chunks::<8>().0.iter();
    Ok(places.map(|bits| Place::from_bits(u64::from_le_bytes(*bits))).collect())
}

#[cfg(test)]
mod tests {
    use super::super::folder::JobFolder;
    use super::*;

    fn drops(places: &[u64], names_kept: bool) -> Drops {
        let place = |item: &u64| Place::new(3, *item);
        let kept = |item: &u64| Place::new(0, *item / 2);
        Drops {
            places: places.iter().map(place).collect(),
            kept: if names_kept { places.iter().map(kept).collect() } else { Vec::new() },
            ..Drops::default()
        }
    }

    #[test]
    fn drops_come_back_as_far_as_they_are_good_and_damage_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let folder = JobFolder::take(directory.path()).unwrap();
        let many: Vec<u64> = (0..PIECE_DROPS + 10).collect();
        for names_kept in [false, true] {
            let file = DataFile::open(&folder, "drops", 0).unwrap();
            append(&file, 0, &drops(&[5, 2], names_kept)).unwrap();
            append(&file, 1, &drops(&[], names_kept)).unwrap();
            append(&file, 2, &drops(&many, names_kept)).unwrap();
            let good_bytes = file.bytes();
            append(&file, 3, &drops(&[77], names_kept)).unwrap();
            let read = || {
                let mut found = Vec::new();
                let outcome = for_each(&file, good_bytes, |place, kept| {
                    found.push((place.item(), kept.map(Place::item)));
                    Ok(())
                });
                outcome.map(|()| found)
            };
            let found = read().unwrap();
            let expected = [5, 2].into_iter().chain(many.iter().copied());
            let expected: Vec<_> =
                expected.map(|item| (item, names_kept.then_some(item / 2))).collect();
            assert_eq!(found, expected);
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
