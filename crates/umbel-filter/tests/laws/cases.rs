//! What the laws are asked of: sets of items that have some in common.

use proptest::prelude::*;
use umbel_filter::{HashRange, ItemHash};

use super::SHAPE_COUNT;

/// Three sets of items of a range, and some of anywhere.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) range: HashRange,
    pub(crate) shape: usize,
    pub(crate) items: [Vec<ItemHash>; 3],
    pub(crate) any: Vec<ItemHash>,
}

fn hash() -> impl Strategy<Value = ItemHash> {
    // Few different values of both halves, so that sets share items.
    let few = (0..16u64, 0..4u64).prop_map(|(hi, lo)| ItemHash::new(hi << 60 | hi, lo));
    prop_oneof![3 => (any::<u64>(), any::<u64>()).prop_map(|(hi, lo)| ItemHash::new(hi, lo)), 1 => few]
}

fn set(range: HashRange) -> impl Strategy<Value = Vec<ItemHash>> {
    // By multiply-shift into the range.
    let inside = move |hash: ItemHash| {
        let offset = (u128::from(hash.hi()) * (range.width() - 1)) >> 64;
        ItemHash::new(range.start() + u64::try_from(offset).unwrap(), hash.lo())
    };
    prop::collection::vec(hash().prop_map(inside), 0..60)
}

/// Cases of few and of many items in common, of the whole range and of a part.
pub(crate) fn cases() -> impl Strategy<Value = Case> {
    let middle = HashRange::new(0x3fff_0000_0000_0000, 0xa000_0000_0000_0001).unwrap();
    let ranges = prop_oneof![Just(HashRange::WHOLE), Just(middle)];
    (ranges, 0..SHAPE_COUNT).prop_flat_map(|(range, shape)| {
        let any = prop::collection::vec(hash(), 0..8);
        (set(range), set(range), set(range), any).prop_map(move |(a, b, c, any)| Case {
            range,
            shape,
            items: [a, b, c],
            any,
        })
    })
}
