//! Aging filters beside lists of what came, and at the borders.

use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::capability::{Contains, Insert};
use crate::hash::ItemHasher;
use crate::range::CellCount;
use crate::shape::ShapeError;

fn hash(number: u64) -> ItemHash {
    ItemHasher::Xxh3 { seed: 5 }.hash(&number.to_le_bytes())
}

/// So rarely wrong that a test sees no false positive: 256 bits an item and generation.
fn exact(pace: u64) -> Aging {
    let blocks = pace.div_ceil(2);
    let shape = BlockShape::new(Kind::Aging, HashRange::WHOLE, blocks, AGING_BLOCK_BITS, 12);
    Aging::with_shape(shape.unwrap().with_pace(pace).unwrap()).unwrap()
}

/// The slow twin: two sets.
#[derive(Default)]
struct Twin {
    newer: BTreeSet<u64>,
    older: BTreeSet<u64>,
}

impl Twin {
    fn contains(&self, item: u64) -> bool {
        self.newer.contains(&item) || self.older.contains(&item)
    }

    fn insert(&mut self, item: u64, pace: u64) -> Insertion {
        let outcome = if self.contains(item) { Insertion::Present } else { Insertion::New };
        if !self.newer.contains(&item) && self.newer.len() as u64 >= pace {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(item);
        outcome
    }
}

/// The golden case of the design: with two items a generation, 3 to 5 of 1 to 5 are present.
#[test]
fn the_older_generation_goes_when_the_newer_is_full() {
    let mut filter = exact(2);
    for item in 1..=5 {
        assert_eq!(filter.insert(hash(item)), Ok(Insertion::New));
    }
    assert_eq!(filter.counts(), [1, 2]);
    let present: Vec<u64> = (1..=5).filter(|&item| filter.contains(hash(item))).collect();
    assert_eq!(present, [3, 4, 5]);
    // What is in the older one is present, and young again.
    assert_eq!(filter.insert(hash(3)), Ok(Insertion::Present));
    assert_eq!((filter.counts(), filter.is_newest(hash(3))), ([2, 2], true));
    assert_eq!(filter.insert(hash(6)), Ok(Insertion::New));
    let present: Vec<u64> = (1..=6).filter(|&item| filter.contains(hash(item))).collect();
    assert_eq!(present, [3, 5, 6]);
}

/// Stored filters depend on it: block by `hi`, lanes by the upper half of `lo`, the newer line first.
#[test]
fn golden_words() {
    let shape = BlockShape::new(Kind::Aging, HashRange::WHOLE, 4, AGING_BLOCK_BITS, 6).unwrap();
    let mut filter = Aging::with_shape(shape.with_pace(1).unwrap()).unwrap();
    let mut plain = crate::Blocked::new(HashRange::WHOLE, 4, 6).unwrap();
    let item = ItemHash::new(0x5000_0000_0000_0000, 0x89ab_cdef_0123_4567);
    filter.insert(item).unwrap();
    plain.insert(item).unwrap();
    let block = &filter.words()[16..32];
    assert_eq!((&block[..8], &block[8..]), (&plain.words()[8..16], &[0; 8][..]));
    filter.insert(ItemHash::new(0, 0)).unwrap();
    let block = &filter.words()[16..32];
    assert_eq!((&block[..8], &block[8..]), (&[0; 8][..], &plain.words()[8..16]));
    assert_eq!(filter.words().iter().map(|word| word.count_ones()).sum::<u32>(), 12);
}

proptest! {
    #[test]
    fn it_is_two_sets(pace in 1..9u64, items in prop::collection::vec(0..24u64, 0..120)) {
        let (mut filter, mut twin) = (exact(pace), Twin::default());
        for item in items {
            prop_assert_eq!(filter.insert(hash(item)), Ok(twin.insert(item, pace)));
            let counts = [twin.newer.len() as u64, twin.older.len() as u64];
            prop_assert_eq!(filter.counts(), counts);
            for item in 0..24 {
                prop_assert_eq!(filter.contains(hash(item)), twin.contains(item));
                prop_assert_eq!(filter.is_newest(hash(item)), twin.newer.contains(&item));
            }
        }
    }

    /// The law, also of filters that err all the time: of the last c different items none is missing.
    #[test]
    fn the_last_items_are_never_missed(
        pace in 1..40u64, blocks in 1..4u64, probes in 1..=16u32,
        items in prop::collection::vec(0..200u64, 0..400),
    ) {
        let shape = BlockShape::new(Kind::Aging, HashRange::WHOLE, blocks, AGING_BLOCK_BITS, probes);
        let mut filter = Aging::with_shape(shape.unwrap().with_pace(pace).unwrap()).unwrap();
        let mut last: VecDeque<u64> = VecDeque::new();
        for item in items {
            let was_present = filter.contains(hash(item));
            let outcome = filter.insert(hash(item)).unwrap();
            prop_assert_eq!(outcome == Insertion::Present, was_present);
            last.retain(|&other| other != item);
            last.push_back(item);
            if last.len() as u64 > pace {
                last.pop_front();
            }
            prop_assert!(last.iter().all(|&item| filter.contains(hash(item))));
            prop_assert!(filter.counts().iter().all(|&count| count <= pace));
        }
    }

    /// The blocks of a range are those of the whole, at the same pace.
    #[test]
    fn a_range_is_a_slice(items in prop::collection::vec(0..500u64, 0..60)) {
        let mut whole = exact(200);
        let cells = CellCount::new(4).unwrap();
        let part = |cell| {
            let range = HashRange::cell(cell, cells);
            Aging::with_shape(whole.block_shape().with_range(range).unwrap()).unwrap()
        };
        let mut parts: Vec<Aging> = (0..4).map(part).collect();
        for item in items {
            let hash = hash(item);
            let cell = usize::try_from(hash.hi() >> 62).unwrap();
            prop_assert_eq!(parts[cell].insert(hash), whole.insert(hash));
        }
        let words: Vec<u64> = parts.iter().flat_map(|part| part.words().to_vec()).collect();
        prop_assert_eq!(&words, whole.words());
    }
}

/// Of eight items a generation over the space, a quarter takes two.
#[test]
fn a_generation_of_a_range_is_its_share() {
    let quarter = HashRange::cell(2, CellCount::new(4).unwrap());
    let shape = exact(8).block_shape().with_range(quarter).unwrap();
    let mut filter = Aging::with_shape(shape).unwrap();
    let items = (0..).map(hash).filter(|hash| quarter.contains(hash.hi()));
    let counts: Vec<[u64; 2]> = items
        .take(5)
        .map(|hash| {
            filter.insert(hash).unwrap();
            filter.counts()
        })
        .collect();
    assert_eq!(counts, [[1, 0], [2, 0], [1, 2], [2, 2], [1, 2]]);
    // What is planned for a range is planned for the items of the range.
    let planned = BlockShape::for_rate(Kind::Aging, quarter, 1_000, 0.01).unwrap();
    assert_eq!((planned.pace(), quarter.share_of(planned.pace())), (4_000, 1_000));
}

/// After any number of items the rate is at most the planned one, and what the filter says of itself.
#[test]
fn the_rate_is_as_planned_however_many_come() {
    for (pace, rate) in [(20_000, 0.01), (20_000, 0.001), (500, 0.05)] {
        let mut filter = Aging::for_rate(HashRange::WHOLE, pace, rate).unwrap();
        let asked = 400_000_u64;
        let mut next = 0;
        // Half of one generation, both full, one full and one half, both full again after many.
        for until in [pace / 2, 2 * pace, 2 * pace + pace / 2, 9 * pace] {
            assert!((next..until).all(|number| filter.insert(hash(number)).is_ok()));
            next = until;
            let others =
                (0..asked).filter(|number| filter.contains(hash(1 << 40 | number))).count();
            let described = filter.describe();
            assert!(described.false_positive_rate <= rate * 1.000_001, "{described:?}");
            let expected = described.false_positive_rate * asked as f64;
            // One filter has one fill: of 500 items that moves the rate by some percent of itself.
            let deviation =
                (expected + (expected * 0.08 * (500.0 / pace as f64).sqrt()).powi(2)).sqrt();
            let off = (others as f64 - expected) / deviation;
            assert!(off.abs() < 5.0, "{pace} at {rate}, {until}: {others}, expected {expected}");
            let held = described.item_count.unwrap();
            let true_count = until.min(filter.counts().iter().sum()) as f64;
            assert!((held.item_count / true_count - 1.0).abs() < 0.05, "{held:?}, {true_count}");
        }
    }
}

#[test]
fn shapes_that_are_none_are_refused() {
    let shape = |bits| BlockShape::new(Kind::Aging, HashRange::WHOLE, 4, bits, 6);
    for bits in [0, 512, 1_536, 2_048] {
        assert!(matches!(shape(bits), Err(ShapeError::BlockBits { step: 1_024, .. })), "{bits}");
    }
    let without = shape(AGING_BLOCK_BITS).unwrap();
    let refused = ShapeError::Pace { kind: Kind::Aging, pace: 0 };
    assert_eq!(Aging::with_shape(without), Err(refused.into()));
    let blocked = BlockShape::new(Kind::Blocked, HashRange::WHOLE, 4, 512, 6).unwrap();
    assert!(matches!(blocked.with_pace(3), Err(ShapeError::Pace { .. })));
    let refused = ShapeError::Kind { kind: Kind::Blocked };
    assert_eq!(Aging::with_shape(blocked), Err(refused.into()));
    let slow = without.with_pace(3).unwrap();
    assert_eq!(slow.offset_of(without.with_pace(4).unwrap()), None);
    assert!(slow.to_string().ends_with("at a pace of 3"), "{slow}");
}

/// Counts that no filter has, as they may come from a copy, do no harm.
#[test]
fn counts_of_any_size_are_borne() {
    let mut filter = exact(10);
    *filter.parts_mut().1 = [u64::MAX, u64::MAX];
    assert_eq!(filter.insert(hash(1)), Ok(Insertion::New));
    assert_eq!(filter.counts(), [1, u64::MAX]);
    let described = filter.describe();
    assert!(described.false_positive_rate <= 1.0);
    filter.clear();
    assert_eq!(filter, exact(10));
}

/// The table of docs/filters.md.
#[test]
fn bits_an_item_are_those_of_the_table() {
    for (rate, expected) in [(0.01, 23.2), (0.001, 34.8), (0.000_1, 48.7)] {
        let shape = BlockShape::for_rate(Kind::Aging, HashRange::WHOLE, 1_000_000, rate).unwrap();
        let bits = shape.memory_bytes() as f64 * 8.0 / 1e6;
        assert!((bits - expected).abs() < 0.06, "{bits} at {rate}");
    }
}
