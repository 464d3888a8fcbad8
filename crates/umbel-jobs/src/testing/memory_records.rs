//! Records of workers in tests: their ids, hashes, ranks and parts.

use umbel_dedup_engine::{Rank, RecordId, RecordPart};
use umbel_filter::ItemHash;

/// Chunks per worker.
pub(super) const CHUNKS: u32 = 2;

/// The hash of a record: records that end in `~` and differ only in the byte before it have the same
/// hash.
pub(super) fn hash(record: &[u8]) -> ItemHash {
    let (head, seed) = match record.split_last() {
        Some((b'~', head)) => (&head[..head.len().saturating_sub(1)], 1),
        _ => (record, 0),
    };
    let mix = |mut x: u64| {
        for byte in head {
            x = (x ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            x ^= x >> 29;
        }
        x.wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    ItemHash::new(mix(seed + 17), mix(seed + 99))
}

/// The id of record `index` of so many.
pub(super) fn record_id(chunk_base: u32, index: usize, records: usize) -> RecordId {
    let first = records.div_ceil(CHUNKS as usize);
    let chunk = u32::from(index >= first);
    RecordId::new(chunk_base + chunk, (index - first * chunk as usize) as u64)
}

/// The rank of a record; there are few ranks.
pub(super) fn rank(record_id: RecordId) -> Rank {
    Rank(record_id.to_bits().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61)
}

/// The part and record that an id stands for, if records have parts.
pub(super) fn part(record_id: RecordId) -> RecordPart {
    RecordPart { record: record_id.item() / 3, part: record_id.item() % 3 + 1 }
}
