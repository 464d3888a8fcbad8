//! Inputs of `sliced_file`, and indexes of files whose lengths and checksums are put right.

use umbel_codec::{FrameKey, crc32c};
use umbel_filter::{HashFunction, ItemHash, ItemHasher};
use umbel_static::sliced::{SLICED_HEADER_BYTES, SLICED_PAGE_BYTES, SlicedShape, build_sliced};

const KEY: FrameKey = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 0 };

/// Where the header has the bytes of the directory, and of the matrix: see `umbel_static::sliced`.
const DIRECTORY_BYTES: usize = 40;
const MATRIX_BYTES: usize = 48;

/// No set, one, and sets of three sizes.
#[must_use]
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let file = |probe_count: u32, counts: &[u64]| {
        let shape = SlicedShape::new(KEY, probe_count, 0.1).and_then(|s| s.with_form("lines"));
        let set = |(number, count): (usize, &u64)| {
            let items = (0..*count).map(|item| hash(100 * number as u64 + item));
            (format!("s{number}"), items.collect())
        };
        let sets = counts.iter().enumerate().map(set);
        build_sliced(&shape.expect("within limits"), sets).expect("few items")
    };
    vec![
        ("empty", file(1, &[])),
        ("one", file(2, &[3])),
        ("several", file(3, &[3, 150, 0, 150, 7, 9, 90, 11, 5, 1])),
    ]
}

/// Hash of a number.
#[must_use]
pub fn hash(number: u64) -> ItemHash {
    ItemHasher::Xxh3 { seed: 0 }.hash(&number.to_le_bytes())
}

/// The bytes with the length of the matrix and all checksums put right; None if they cannot be a file.
#[must_use]
pub fn forged(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut forged = bytes.to_vec();
    let number = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    let form = usize::from(u16::from_le_bytes(bytes.get(8..10)?.try_into().ok()?));
    let directory = usize::try_from(number(DIRECTORY_BYTES)?).ok()?;
    let before = SLICED_HEADER_BYTES.checked_add(form)?.checked_add(directory)?;
    let rest = bytes.len().checked_sub(before)?;
    let page_bytes = SLICED_PAGE_BYTES as usize;
    let page_count = rest.div_ceil(page_bytes + 4);
    let matrix = rest.checked_sub(4 * page_count)?;
    forged[MATRIX_BYTES..MATRIX_BYTES + 8].copy_from_slice(&(matrix as u64).to_le_bytes());
    let head = before + 4 * page_count;
    let checksums: Vec<u8> =
        bytes[head..].chunks(page_bytes).flat_map(|page| crc32c(&[page]).to_le_bytes()).collect();
    forged.get_mut(before..head)?.get_mut(..checksums.len())?.copy_from_slice(&checksums);
    let checksum = crc32c(&[&forged[..12], &forged[16..head]]);
    forged[12..16].copy_from_slice(&checksum.to_le_bytes());
    Some(forged)
}
