//! Inputs of `static_file`, and static files whose checksums are put right.

use std::ops::Range;

use umbel_codec::{FrameKey, crc32c};
use umbel_filter::{HashFunction, ItemHash, ItemHasher};
use umbel_static::{Head, HeadBuilder, StaticShape, build_exact, build_filter, build_map};

const KEY: FrameKey = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 0 };

/// Bytes of a row of the directory: see `umbel_static::layout`.
const ROW_BYTES: usize = 36;

/// A file of each role, an empty one, and one of two chunks with a text.
#[must_use]
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let hashes = |numbers: Range<u64>| numbers.map(hash).collect::<Vec<_>>();
    let pairs = (0..20).map(|number| (hash(number), number)).collect();
    vec![
        ("filter", build_filter(hashes(0..20), 8, KEY).expect("few keys")),
        ("map", build_map(pairs, 5, 6, KEY).expect("few keys")),
        ("exact", build_exact(hashes(0..5), hashes(5..50), KEY).expect("few keys")),
        ("empty", build_filter(Vec::new(), 8, KEY).expect("no keys")),
        ("chunks", chunks()),
    ]
}

/// Hash of a number.
#[must_use]
pub fn hash(number: u64) -> ItemHash {
    ItemHasher::Xxh3 { seed: 0 }.hash(&number.to_le_bytes())
}

fn chunks() -> Vec<u8> {
    let shape = StaticShape::filter(3, KEY).expect("possible").with_form("lines").expect("short");
    let mut head = HeadBuilder::new(shape.clone(), 1);
    let mut hashes: Vec<ItemHash> = (0..20).map(hash).collect();
    hashes.sort_unstable();
    let half = hashes.partition_point(|hash| hash.hi() < 1 << 63);
    let mut cells = Vec::new();
    for hashes in [&hashes[..half], &hashes[half..]] {
        let chunk = shape.filter_chunk(hashes, 1).expect("few keys");
        head.push(&chunk);
        cells.extend(chunk.cells());
    }
    [head.finish().to_bytes(), cells].concat()
}

/// The bytes with the length in the header and all checksums put right; None if they have no header.
#[must_use]
pub fn forged(bytes: &[u8]) -> Option<Vec<u8>> {
    let head_bytes = Head::bytes_needed(bytes).ok().filter(|length| *length <= bytes.len())?;
    let mut forged = bytes.to_vec();
    forged[56..64].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    let first_row = head_bytes - (ROW_BYTES << bytes[9]);
    let offset = |forged: &[u8], row: usize| -> usize {
        let field = forged.get(row..row + 8).filter(|_| row < head_bytes);
        let field = field.and_then(|field| field.try_into().ok()).map(u64::from_le_bytes);
        field.and_then(|offset| usize::try_from(offset).ok()).unwrap_or(forged.len())
    };
    for row in (first_row..head_bytes).step_by(ROW_BYTES) {
        let chunk = offset(&forged, row)..offset(&forged, row + ROW_BYTES);
        let checksum = crc32c(&[forged.get(chunk).unwrap_or_default()]);
        forged[row + 8..row + 12].copy_from_slice(&checksum.to_le_bytes());
    }
    let checksum = crc32c(&[&forged[..12], &forged[16..head_bytes]]);
    forged[12..16].copy_from_slice(&checksum.to_le_bytes());
    Some(forged)
}
