//! Filters that come in parts: the same as a sorted set, in linear time, and not much larger than at once.

use std::collections::BTreeSet;
use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;

use super::run::CODED;
use super::*;

fn whole(position_count: u64) -> SingleShotShape {
    SingleShotShape::new(HashRange::WHOLE, position_count).unwrap()
}

/// The output of splitmix64 (Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195).
fn mix(number: u64) -> u64 {
    let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Sorted positions of so many items, as hashes give them.
fn uniform(shape: SingleShotShape, seed: u64, item_count: u64) -> BTreeSet<u64> {
    let items = seed << 32..(seed << 32) + item_count;
    items.map(|number| shape.position(mix(number))).collect()
}

fn filter_of(shape: SingleShotShape, positions: &[u64]) -> StoredSingleShot {
    StoredSingleShot::from_positions(shape, positions.iter().copied()).unwrap()
}

/// The parts of a filter: as many positions in each, but for the last.
fn parts_of(
    shape: SingleShotShape,
    positions: &BTreeSet<u64>,
    part_len: usize,
) -> Vec<StoredSingleShot> {
    let positions: Vec<u64> = positions.iter().copied().collect();
    positions.chunks(part_len).map(|part| filter_of(shape, part)).collect()
}

/// Merges parts in order. Returns the number of positions that were coded.
fn merge_all(filter: &mut StoredSingleShot, parts: &[StoredSingleShot]) -> u64 {
    CODED.set(0);
    for part in parts {
        filter.merge(part).unwrap();
    }
    CODED.get()
}

/// An item that sets a position.
fn item_at(shape: SingleShotShape, position: u64) -> ItemHash {
    ItemHash::new(shape.first_hi(position).unwrap(), 0)
}

/// All that depends on where the run's codes lie, held to the set.
fn assert_is(filter: &StoredSingleShot, twin: &BTreeSet<u64>) {
    let shape = filter.single_shot_shape();
    assert!(filter.positions().eq(twin.iter().copied()));
    assert_eq!(filter.len(), twin.len() as u64);
    let around = twin.iter().flat_map(|&one| [one.saturating_sub(1), one, one + 1]);
    let asked: Vec<u64> = around.filter(|&one| one < shape.width()).collect();
    let hashes: Vec<ItemHash> = asked.iter().map(|&one| item_at(shape, one)).collect();
    let mut present = Vec::new();
    filter.contains_batch(&hashes, &mut present);
    assert!(asked.iter().zip(present).all(|(one, is_present)| twin.contains(one) == is_present));
    if filter.run.len() > 0 {
        assert!(filter.run.stretch_len_max() <= 128);
    }
}

/// 200 parts into a filter that is empty, has as many others, or all of them. To code the whole anew with each part
/// would be to code 50 or 150 million positions.
#[test]
fn parts_in_order_cost_linear_time() {
    let shape = whole(50_000_000);
    let (ours, theirs) = (uniform(shape, 1, 500_000), uniform(shape, 2, 500_000));
    let parts = parts_of(shape, &theirs, 2_500);
    let other: Vec<u64> = ours.iter().copied().collect();
    let same: Vec<u64> = theirs.iter().copied().collect();
    for (before, coded_max) in [(vec![], 5_000_000), (other, 5_000_000), (same, 0)] {
        let mut filter = filter_of(shape, &before);
        let coded = merge_all(&mut filter, &parts);
        assert!(coded <= coded_max, "{coded} positions coded, into {}", before.len());
        let union: BTreeSet<u64> = before.iter().chain(&theirs).copied().collect();
        assert!(filter.positions().eq(union.iter().copied()));
    }
}

/// A part codes its groups and no other, wherever it lies, also between the parts of another filter.
#[test]
fn a_part_codes_no_more_than_its_groups() {
    let shape = whole(50_000_000);
    let (ours, theirs) = (uniform(shape, 1, 500_000), uniform(shape, 2, 100_000));
    let mut parts = parts_of(shape, &theirs, 500);
    let upper = parts.split_off(100);
    let mut filter = filter_of(shape, &ours.iter().copied().collect::<Vec<_>>());
    for (lower, upper) in parts.iter().zip(&upper) {
        for part in [lower, upper] {
            // A part of 500 lies among 2,500 of ours, and begins and ends in groups of at most 48 · 28 · 1.2.
            let coded = merge_all(&mut filter, std::slice::from_ref(part));
            assert!(coded < 500 + 2_500 + 2 * 1_613 + 300, "{coded} positions coded");
        }
    }
    let union: BTreeSet<u64> = ours.union(&theirs).copied().collect();
    assert!(filter.positions().eq(union));
}

/// Positions of the delta go where their part goes, and stay where no part comes.
#[test]
fn a_part_folds_its_stretch_of_the_delta() {
    let shape = whole(5_000_000);
    let mut twin = uniform(shape, 1, 50_000);
    let mut filter = filter_of(shape, &twin.iter().copied().collect::<Vec<_>>());
    for position in uniform(shape, 2, 1_000) {
        filter.insert(item_at(shape, position)).unwrap();
        twin.insert(position);
    }
    let in_delta = filter.delta.len();
    let part: Vec<u64> = (2_500_000..2_600_000).step_by(1_000).collect();
    let new = part.iter().filter(|position| !twin.contains(position)).count() as u64;
    assert_eq!(filter.merge(&filter_of(shape, &part)), Ok(new));
    assert!((in_delta - 100..in_delta - 10).contains(&filter.delta.len()), "{in_delta}");
    twin.extend(part);
    assert_is(&filter, &twin);
}

/// What the type says of memory, at all rates: at most a fifth above what the same positions take at once, and nothing
/// above it when the filter is sealed.
#[test]
fn parts_take_little_more_memory_than_the_whole() {
    for positions_per_item in [2, 10, 1_000, 1 << 40] {
        for (part_count, is_empty) in [(3, true), (7, true), (40, true), (7, false), (40, false)] {
            let shape = whole(100_000 * positions_per_item);
            let ours = uniform(shape, 1, if is_empty { 0 } else { 100_000 });
            let theirs = uniform(shape, 2, 100_000);
            let parts = parts_of(shape, &theirs, theirs.len().div_ceil(part_count));
            let mut filter = filter_of(shape, &ours.iter().copied().collect::<Vec<_>>());
            merge_all(&mut filter, &parts);
            let union: Vec<u64> = ours.union(&theirs).copied().collect();
            let tight = filter_of(shape, &union).memory_bytes();
            let share = filter.memory_bytes() as f64 / tight as f64;
            assert!(share < 1.2, "{share} at {positions_per_item}, {part_count} parts");
            filter.seal();
            assert_eq!(filter.memory_bytes(), tight);
        }
    }
}

/// One filter to merge, in parts.
#[derive(Clone, Debug)]
struct Source {
    seed: u64,
    item_count: u64,
    /// A crowd: where it begins, the distance of its positions, and how many there are.
    crowd: (u64, u64, usize),
    part_len: usize,
    /// Which parts come, in which order: all as they are, or so many picks.
    picks: Option<Vec<usize>>,
    /// Inserts before the first part.
    inserts: Range<u64>,
}

fn sources() -> impl Strategy<Value = Source> {
    let crowd =
        (any::<u64>(), prop_oneof![Just(1), 1..5_000u64], prop_oneof![Just(0), 0..3_000usize]);
    let picks = prop_oneof![
        2 => Just(None),
        1 => vec(any::<usize>(), 0..30).prop_map(Some),
    ];
    let inserts =
        (any::<u32>(), 0..500u64).prop_map(|(first, len)| u64::from(first)..u64::from(first) + len);
    (1..5u64, 0..12_000u64, crowd, 1..4_000usize, picks, inserts).prop_map(
        |(seed, item_count, crowd, part_len, picks, inserts)| Source {
            seed,
            item_count,
            crowd,
            part_len,
            picks,
            inserts,
        },
    )
}

impl Source {
    fn positions(&self, shape: SingleShotShape) -> BTreeSet<u64> {
        let (first, step, len) = self.crowd;
        let crowd = (first % shape.width()..shape.width()).step_by(usize::try_from(step).unwrap());
        let mut positions = uniform(shape, self.seed, self.item_count);
        positions.extend(crowd.take(len));
        positions
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Parts of several filters, in order or not, repeated or missing, uniform or crowded, into a filter with a delta.
    #[test]
    fn parts_agree_with_a_set(bits in 16..=60u32, sources in vec(sources(), 1..4)) {
        let shape = whole(1 << bits);
        let (mut filter, mut twin) = (StoredSingleShot::new(shape), BTreeSet::new());
        let mut list = SingleShot::new(shape);
        for source in sources {
            for number in source.inserts.clone() {
                let position = shape.position(mix(number));
                filter.insert(item_at(shape, position)).unwrap();
                list.insert(item_at(shape, position)).unwrap();
                twin.insert(position);
            }
            let parts = parts_of(shape, &source.positions(shape), source.part_len);
            let in_order = (0..parts.len()).collect();
            let picked = |picks: Vec<usize>| {
                picks.into_iter().filter_map(|pick| pick.checked_rem(parts.len())).collect()
            };
            let order: Vec<usize> = source.picks.clone().map_or(in_order, picked);
            for part in order.into_iter().map(|index| &parts[index]) {
                let before = twin.len() as u64;
                twin.extend(part.positions());
                let expected = Ok(twin.len() as u64 - before);
                prop_assert_eq!(filter.merge(part), expected);
                let part = SingleShot::from_positions(shape, part.positions().collect()).unwrap();
                prop_assert_eq!(list.merge(&part), expected);
            }
            assert_is(&filter, &twin);
            prop_assert!(twin.iter().eq(list.positions()));
        }
        filter.seal();
        assert_is(&filter, &twin);
    }
}
