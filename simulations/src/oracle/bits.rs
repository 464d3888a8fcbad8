//! Which positions an item has in a filter, and when each of them was first set.

use std::collections::BTreeMap;

use umbel_engine::meta::{FilterSettings, HashKey};
use umbel_filter::{AnyFilter, HashRange, Insert, ItemHash};

/// The time of an event that did not happen; later than all others.
pub(crate) const NEVER_US: u64 = u64::MAX;

/// The hash of item `number`, which is the text `item N`.
pub(crate) fn hash_of(key: HashKey, number: u32) -> ItemHash {
    key.hasher().hash(format!("item {number}").as_bytes())
}

/// The positions of items in one filter, over all its shards. Positions are numbered from 0 in the
/// order in which they are first seen; different shards share no positions.
///
/// The two halves of a split shard share the block at their border: each starts with the old contents
/// of the block, and does not see what the other sets later, until the two are merged. So the positions over
/// the initial shards bound what may be set, and those over the most shards that there were what must be set.
#[derive(Debug)]
pub(crate) struct Probes {
    of_item: BTreeMap<u32, Box<[u32]>>,
    position_count: usize,
}

impl Probes {
    /// The positions of these items; `None` for kinds whose positions depend on the order of inserts.
    pub(crate) fn new(
        settings: &FilterSettings,
        shard_of: impl Fn(u64) -> u32,
        items: impl IntoIterator<Item = u32>,
    ) -> Option<Self> {
        let mut numbers = BTreeMap::new();
        let mut of_item = BTreeMap::new();
        for item in items {
            if of_item.contains_key(&item) {
                continue;
            }
            let hash = hash_of(settings.key, item);
            let (block, bits) = block_and_bits(settings, hash)?;
            let shard = shard_of(hash.hi());
            let number = |bit: u32| {
                let next = u32::try_from(numbers.len()).expect("fewer than 2^32 positions are met");
                *numbers.entry((shard, block, bit)).or_insert(next)
            };
            let positions: Vec<u32> = bits.into_iter().map(number).collect();
            of_item.insert(item, positions.into());
        }
        Some(Self { of_item, position_count: numbers.len() })
    }

    /// The item's positions without duplicates; empty for items that were not passed to `new`.
    pub(crate) fn of(&self, item: u32) -> &[u32] {
        self.of_item.get(&item).map_or(&[], |positions| positions)
    }

    /// Number of positions that the items have.
    pub(crate) const fn position_count(&self) -> usize {
        self.position_count
    }
}

/// The item's block and its bits in it. A slice for the range of the item's hash alone is just its
/// block.
fn block_and_bits(settings: &FilterSettings, hash: ItemHash) -> Option<(u64, Vec<u32>)> {
    let alone = HashRange::new(hash.hi(), u128::from(hash.hi()) + 1).ok()?;
    let mut filter = settings.shape.create(alone).ok()?;
    filter.insert(hash).ok()?;
    let (map, words) = match &filter {
        AnyFilter::Blocked(filter) => (filter.block_shape().map(), filter.words()),
        AnyFilter::Classic(filter) => (filter.block_shape().map(), filter.words()),
        AnyFilter::Partitioned(filter) => (filter.block_shape().map(), filter.words()),
        // Counters that were raised once have one bit set each.
        AnyFilter::Counting(filter) => (filter.block_shape().map(), filter.words()),
        AnyFilter::SingleShot(_)
        | AnyFilter::Scalable(_)
        | AnyFilter::Window(_)
        | AnyFilter::Aging(_)
        | AnyFilter::Stable(_)
        | AnyFilter::Cuckoo(_)
        | AnyFilter::Quotient(_)
        | AnyFilter::RedisBloom(_) => return None,
    };
    let mut ones = Vec::new();
    for (at, &word) in (0_u32..).zip(words) {
        let mut rest = word;
        while rest != 0 {
            ones.push(64 * at + rest.trailing_zeros());
            rest &= rest - 1;
        }
    }
    Some((map.first_block(), ones))
}

/// For each position, the earliest time at which it may have been set, and the earliest time by any
/// other setter.
#[derive(Debug)]
pub(crate) struct FirstSet(Vec<[(u64, u32); 2]>);

impl FirstSet {
    /// Nothing was set.
    pub(crate) fn new(position_count: usize) -> Self {
        Self(vec![[(NEVER_US, 0); 2]; position_count])
    }

    /// Records that a setter set these positions at a time.
    pub(crate) fn set(&mut self, positions: &[u32], at_us: u64, setter: u32) {
        for &position in positions {
            let [first, second] = &mut self.0[position as usize];
            if setter == first.1 && first.0 != NEVER_US {
                first.0 = first.0.min(at_us);
            } else if at_us < first.0 {
                *second = *first;
                *first = (at_us, setter);
            } else if at_us < second.0 {
                *second = (at_us, setter);
            }
        }
    }

    /// When the last of these positions was first set, and by which setter.
    pub(crate) fn all_set(&self, positions: &[u32]) -> (u64, u32) {
        let firsts = positions.iter().map(|&position| self.0[position as usize][0]);
        firsts.max_by_key(|&(at_us, _)| at_us).unwrap_or((0, 0))
    }

    /// When the position was first set by any other setter.
    pub(crate) fn set_by_others(&self, position: u32, setter: u32) -> u64 {
        let [first, second] = self.0[position as usize];
        if first.1 == setter { second.0 } else { first.0 }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use umbel_engine::shard::SliceShape;
    use umbel_filter::{CellCount, Contains, Describe, Kind};

    use super::*;
    use crate::oracle::fixture::settings;
    use crate::plan::FilterKind;

    const KINDS: [FilterKind; 3] = [FilterKind::Classic, FilterKind::Blocked, FilterKind::Counting];

    /// Slow reference: whole slices, one per shard.
    #[test]
    fn positions_are_those_of_the_slices() {
        for (kind, shard_count) in KINDS.into_iter().flat_map(|kind| [1, 3, 4].map(|n| (kind, n))) {
            let shards = CellCount::new(shard_count).unwrap();
            let settings = settings(kind, 40, shards);
            let probes = Probes::new(&settings, |hi| shards.cell_of(hi), 0..200).unwrap();
            let ranges = (0..shard_count).map(|shard| HashRange::cell(shard, shards));
            let mut slices: Vec<_> =
                ranges.map(|range| settings.shape.create(range).unwrap()).collect();
            let mut set: BTreeSet<u32> = BTreeSet::new();
            for item in 0..60 {
                let hash = hash_of(settings.key, item);
                slices[shards.cell_of(hash.hi()) as usize].insert(hash).unwrap();
                set.extend(probes.of(item));
                let ones: u64 = slices.iter().map(|slice| slice.describe().one_count).sum();
                assert_eq!(ones, set.len() as u64, "{kind:?} over {shard_count} shards");
            }
            for item in 0..200 {
                let hash = hash_of(settings.key, item);
                let contains = slices[shards.cell_of(hash.hi()) as usize].contains(hash);
                let all = probes.of(item).iter().all(|position| set.contains(position));
                assert_eq!(contains, all, "{kind:?} over {shard_count} shards, item {item}");
            }
        }
    }

    #[test]
    fn growing_kinds_have_no_positions() {
        let shards = CellCount::new(2).unwrap();
        let shard_of = |hi| shards.cell_of(hi);
        let scalable = settings(FilterKind::Scalable, 40, shards);
        assert!(Probes::new(&scalable, shard_of, 0..2).is_none());
        let mut single_shot = settings(FilterKind::Classic, 40, shards);
        single_shot.shape = SliceShape::SingleShot { position_count: 1000 };
        single_shot.kind = Kind::SingleShot.id();
        assert!(Probes::new(&single_shot, shard_of, 0..2).is_none());
    }

    proptest! {
        /// The slow reference keeps all events.
        #[test]
        fn first_and_first_of_others(sets in vec((0..3_u32, 0..20_u64, 0..4_u32), 0..30)) {
            let mut table = FirstSet::new(3);
            for &(position, at_us, setter) in &sets {
                table.set(&[position], at_us, setter);
            }
            for position in 0..3 {
                let here = || sets.iter().filter(move |set| set.0 == position);
                let first = here().map(|set| set.1).min().unwrap_or(NEVER_US);
                prop_assert_eq!(table.all_set(&[position]).0, first);
                for setter in 0..4 {
                    let others = here().filter(|set| set.2 != setter).map(|set| set.1).min();
                    let got = table.set_by_others(position, setter);
                    prop_assert_eq!(got, others.unwrap_or(NEVER_US));
                }
            }
        }
    }
}
