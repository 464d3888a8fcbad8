//! Splitting and joining batches, compared with a linear scan.

use proptest::collection::vec;
use proptest::prelude::*;
use umbel_filter::ItemHash;

use super::{BatchJoinError, BatchParts};
use crate::ids::ShardId;
use crate::placement::ShardRanges;
use crate::shard::{Bitmap, HashList};

fn equal(count: u32) -> ShardRanges {
    ShardRanges::new(count, count).unwrap()
}

/// The slow twin: every shard checks every item.
fn parts_by_scan(hashes: &[ItemHash], ranges: ShardRanges) -> Vec<(ShardId, HashList)> {
    ranges
        .shards()
        .filter_map(|shard| {
            let is_ours = |hash: &ItemHash| ranges.range(shard).unwrap().contains(hash.hi());
            let ours = hashes.iter().copied().filter(is_ours);
            let ours: Vec<ItemHash> = ours.collect();
            (!ours.is_empty()).then(|| (shard, HashList::from_hashes(&ours)))
        })
        .collect()
}

#[test]
fn no_items_have_no_parts() {
    for count in [1, 5] {
        let parts = BatchParts::cut(&[], equal(count));
        assert!(parts.parts().is_empty());
        assert_eq!(parts.join(|_| None), Ok(Bitmap::zeros(0)));
    }
}

#[test]
fn answers_are_checked() {
    let hashes = [1_u64 << 63, 0, 0].map(|hi| ItemHash::new(hi, 1));
    let parts = BatchParts::cut(&hashes, equal(2));
    let (first, second) = (ShardId(0), ShardId(1));
    let missing = parts.join(|shard| (shard == first).then(|| Bitmap::zeros(2)));
    assert_eq!(missing, Err(BatchJoinError::Missing { shard: second }));
    let short = parts.join(|_| Some(Bitmap::zeros(1)));
    assert_eq!(short, Err(BatchJoinError::Length { shard: first, got: 1, expected: 2 }));
    let one = BatchParts::cut(&hashes, equal(1));
    assert_eq!(one.join(|_| None), Err(BatchJoinError::Missing { shard: first }));
    let long = one.join(|_| Some(Bitmap::zeros(4)));
    assert_eq!(long, Err(BatchJoinError::Length { shard: first, got: 4, expected: 3 }));
}

proptest! {
    #[test]
    fn cutting_is_a_scan(
        hashes in vec((any::<u64>(), any::<u64>()), 0..200),
        (founded, splits) in (1..20u32, 0..40u32), shift in 0..64u32,
    ) {
        let ranges = ShardRanges::new(founded, founded + splits).unwrap();
        let hashes: Vec<ItemHash> =
            hashes.into_iter().map(|(hi, lo)| ItemHash::new(hi >> shift, lo)).collect();
        let parts = BatchParts::cut(&hashes, ranges);
        prop_assert_eq!(parts.item_count() as usize, hashes.len());
        prop_assert_eq!(parts.parts(), parts_by_scan(&hashes, ranges));

        // An answer that is known for every item: a bit of its hash.
        let answer = |hash: ItemHash| hash.lo() & 1 == 1;
        let joined = parts.join(|shard| {
            let (_, part) = parts.parts().iter().find(|(of, _)| *of == shard)?;
            Some(Bitmap::from_bools(part.iter().map(answer)))
        });
        prop_assert_eq!(joined, Ok(Bitmap::from_bools(hashes.iter().map(|&hash| answer(hash)))));
    }
}
