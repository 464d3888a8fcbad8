//! Inputs of `saved_filter`, and saved filters whose checksums are put right.

use umbel_codec::{FRAME_HEADER_BYTES, FrameKey, FrameView, SAVED_HEAD_BYTES, SavedFilter, crc32c};
use umbel_filter::{AnyFilter, FilterPlan, HashFunction, HashRange, ItemHasher, Kind};

/// A saved filter of each kind, over a part of the hash space where the kind can be cut.
#[must_use]
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    Kind::ALL.into_iter().map(|kind| (kind.name(), saved(kind))).collect()
}

fn saved(kind: Kind) -> Vec<u8> {
    let range = if kind.is_whole() {
        HashRange::WHOLE
    } else {
        HashRange::new(1 << 62, 1 << 63).expect("a range")
    };
    let plan = FilterPlan { kind, range, item_count: 10, false_positive_rate: 0.1 };
    let mut filter = AnyFilter::create(&plan).expect("a small filter");
    let hashes = (0..100u32).map(|item| ItemHasher::Xxh3 { seed: 0 }.hash(&item.to_le_bytes()));
    filter.extend(hashes.filter(|hash| range.contains(hash.hi())));
    let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 0 };
    SavedFilter { key, filter }.to_bytes().expect("a small filter")
}

/// The bytes with the length in the head, its checksum and those of all frames put right; None if
/// they are shorter than a head.
#[must_use]
pub fn forged(bytes: &[u8]) -> Option<Vec<u8>> {
    let length = bytes.len().checked_sub(SAVED_HEAD_BYTES)? as u64;
    let mut forged = bytes.to_vec();
    let (head, mut rest) = forged.split_at_mut(SAVED_HEAD_BYTES);
    head[24..32].copy_from_slice(&length.to_le_bytes());
    let checksum = crc32c(&[&head[..32]]);
    head[32..].copy_from_slice(&checksum.to_le_bytes());
    while let Ok(Some(total_bytes)) = FrameView::total_bytes(rest) {
        if total_bytes > rest.len() {
            break;
        }
        let (frame, following) = rest.split_at_mut(total_bytes);
        let (head, payload) = frame.split_at_mut(FRAME_HEADER_BYTES);
        let (checked, checksum) = head.split_at_mut(FRAME_HEADER_BYTES - 4);
        checksum.copy_from_slice(&crc32c(&[checked, payload]).to_le_bytes());
        rest = following;
    }
    Some(forged)
}
