//! Laws of the counting filter, and its twin: whole numbers in an array, and a map of items.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::capability::{Contains, Insert};
use crate::hash::ItemHasher;
use crate::shape::ShapeError;

/// Few enough blocks and items that counters meet, repeat and saturate.
const BLOCK_COUNT: u64 = 12;

fn range() -> HashRange {
    HashRange::new(1 << 62, 3 << 62).unwrap()
}

/// One of 40 items of the range.
fn item(number: u64) -> ItemHash {
    let hash = ItemHasher::Xxh3 { seed: 1 }.hash(&(number % 40).to_le_bytes());
    ItemHash::new((hash.hi() >> 1) + (1 << 62), hash.lo())
}

fn empty(probe_count: u32) -> Counting {
    Counting::new(range(), BLOCK_COUNT, probe_count).unwrap()
}

fn filter_of(items: &[u64]) -> Counting {
    let mut filter = empty(5);
    for &number in items {
        filter.insert(item(number)).unwrap();
    }
    filter
}

/// Some items, often the same ones again and again.
fn items() -> impl Strategy<Value = Vec<u64>> {
    prop_oneof![vec(0..40u64, 0..60), vec(0..4u64, 0..60)]
}

fn filters() -> impl Strategy<Value = Counting> {
    items().prop_map(|items| filter_of(&items))
}

fn merged(a: &Counting, b: &Counting) -> Counting {
    let mut result = a.clone();
    result.merge(b).unwrap();
    result
}

/// The slow twin: a whole number a position, and the position by itself in an array.
struct Twin {
    probe_count: u32,
    counters: Vec<u32>,
    /// How often each item is in.
    items: BTreeMap<u64, u32>,
}

impl Twin {
    fn new(probe_count: u32) -> Self {
        // The middle half of 12 blocks is six.
        Self { probe_count, counters: vec![0; 6 * 512], items: BTreeMap::new() }
    }

    fn positions(&self, number: u64) -> Vec<usize> {
        let hash = item(number);
        let block = u128::from(hash.hi()) * u128::from(BLOCK_COUNT) / (1 << 64) - 3;
        let seed = u32::try_from(hash.lo() / (1 << 32)).unwrap();
        let in_block = lanes::positions(&LaneSets::new(self.probe_count), seed);
        in_block.map(|position| usize::try_from(block).unwrap() * 512 + position as usize).collect()
    }

    fn contains(&self, number: u64) -> bool {
        self.positions(number).iter().all(|&position| self.counters[position] > 0)
    }

    fn insert(&mut self, number: u64) -> Insertion {
        let outcome = if self.contains(number) { Insertion::Present } else { Insertion::New };
        for position in self.positions(number) {
            self.counters[position] = (self.counters[position] + 1).min(15);
        }
        *self.items.entry(number).or_default() += 1;
        outcome
    }

    /// Takes out an item that is in, or one that is certainly not there.
    fn remove(&mut self, number: u64) -> Removal {
        if !self.contains(number) {
            return Removal::Absent;
        }
        for position in self.positions(number) {
            if self.counters[position] < 15 {
                self.counters[position] -= 1;
            }
        }
        *self.items.get_mut(&number).unwrap() -= 1;
        Removal::Removed
    }

    fn count(&self, number: u64) -> u32 {
        self.items.get(&number).copied().unwrap_or(0)
    }
}

/// The counters, one by one.
fn counters(filter: &Counting) -> Vec<u32> {
    let nibble = |word: u64, i: u32| u32::try_from(word / 16u64.pow(i) % 16).unwrap();
    filter.words().iter().flat_map(|&word| (0..16).map(move |i| nibble(word, i))).collect()
}

proptest! {
    #[test]
    fn agrees_with_the_twin(
        probe_count in 1..=16u32,
        few in 1..40u64,
        steps in vec((any::<bool>(), 0..40u64), 0..200),
    ) {
        let (mut filter, mut twin) = (empty(probe_count), Twin::new(probe_count));
        for (is_insert, number) in steps {
            let number = number % few;
            if is_insert {
                prop_assert_eq!(filter.insert(item(number)).unwrap(), twin.insert(number));
            } else if twin.count(number) > 0 || !twin.contains(number) {
                prop_assert_eq!(filter.remove(item(number)).unwrap(), twin.remove(number));
            }
        }
        prop_assert_eq!(counters(&filter), &twin.counters[..]);
        let one_count = twin.counters.iter().filter(|&&counter| counter > 0).count();
        prop_assert_eq!(filter.describe().one_count, one_count as u64);
        for number in 0..40 {
            prop_assert_eq!(filter.contains(item(number)), twin.contains(number));
            prop_assert!(twin.count(number) == 0 || filter.contains(item(number)));
        }
    }

    #[test]
    fn what_all_are_removed_from_is_empty(mut items in items()) {
        let mut filter = filter_of(&items);
        // A counter at its maximum would stay.
        prop_assume!(counters(&filter).iter().all(|&counter| counter < 15));
        items.sort_unstable();
        for number in items {
            prop_assert_eq!(filter.remove(item(number)), Ok(Removal::Removed));
        }
        prop_assert_eq!(filter, empty(5));
    }

    #[test]
    fn batches_are_single_steps(items in items(), asked in items()) {
        let hashes: Vec<ItemHash> = items.iter().map(|&number| item(number)).collect();
        let asked: Vec<ItemHash> = asked.iter().map(|&number| item(number)).collect();
        let (mut filter, mut single) = (empty(5), empty(5));
        let (mut outcomes, mut present) = (vec![Insertion::New], vec![true]);
        filter.insert_batch(&hashes, &mut outcomes).unwrap();
        let expected: Vec<Insertion> =
            hashes.iter().map(|&hash| single.insert(hash).unwrap()).collect();
        prop_assert_eq!(outcomes, expected);
        prop_assert_eq!(&filter, &single);
        filter.contains_batch(&asked, &mut present);
        let expected: Vec<bool> = asked.iter().map(|&hash| single.contains(hash)).collect();
        prop_assert_eq!(present, expected);
    }

    #[test]
    fn merge_is_commutative(a in filters(), b in filters()) {
        prop_assert_eq!(merged(&a, &b), merged(&b, &a));
    }

    #[test]
    fn merge_is_associative(a in filters(), b in filters(), c in filters()) {
        prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
    }

    #[test]
    fn merge_is_monotone_and_the_empty_filter_changes_nothing(a in filters(), b in filters()) {
        let both = merged(&a, &b);
        let is_in = |filter: &Counting, number| filter.contains(item(number));
        prop_assert!((0..40).all(|i| is_in(&both, i) || !(is_in(&a, i) || is_in(&b, i))));
        prop_assert_eq!(merged(&a, &empty(5)), a);
    }

    #[test]
    fn merge_is_inserting_both_and_counts_the_new(a in items(), b in items()) {
        let mut filter = filter_of(&a);
        let before = filter.describe().one_count;
        let newly_set = filter.merge(&filter_of(&b)).unwrap();
        prop_assert_eq!(newly_set, filter.describe().one_count - before);
        prop_assert_eq!(filter, filter_of(&[a, b].concat()));
    }

    #[test]
    fn parts_merge_into_the_whole(items in items()) {
        let whole = filter_of(&items);
        let mut joined = empty(5);
        for part in [HashRange::new(1 << 62, 1 << 63), HashRange::new(1 << 63, 3 << 62)] {
            let part = part.unwrap();
            let mut filter = Counting::new(part, BLOCK_COUNT, 5).unwrap();
            for &number in items.iter().filter(|&&number| part.contains(item(number).hi())) {
                filter.insert(item(number)).unwrap();
            }
            joined.merge_part(&filter).unwrap();
        }
        prop_assert_eq!(joined, whole);
    }

    #[test]
    fn the_blocked_filter_is_the_one_of_the_same_items(items in items()) {
        let mut blocked = Blocked::new(range(), BLOCK_COUNT, 5).unwrap();
        for &number in &items {
            blocked.insert(item(number)).unwrap();
        }
        prop_assert_eq!(filter_of(&items).to_blocked().unwrap(), blocked);
    }

    /// The slow twin of the tricks inside a word: sixteen numbers.
    #[test]
    fn words_are_sixteen_counters(ours: u64, theirs: u64, thin: u64) {
        for ours in [ours, ours & thin, 0, u64::MAX] {
            let nibbles = |word: u64| (0..16).map(move |i| word >> (4 * i) & 15);
            let bits = nibbles(ours).rev().fold(0, |bits, n| bits << 1 | u64::from(n > 0));
            prop_assert_eq!(occupied(ours), bits);
            let sums = nibbles(ours).zip(nibbles(theirs)).map(|(a, b)| (a + b).min(15));
            prop_assert!(nibbles(sum(ours, theirs)).eq(sums));
        }
    }
}

#[test]
fn the_maximum_is_sticky() {
    let mut filter = filter_of(&[7; 14]);
    assert_eq!(filter.remove(item(7)), Ok(Removal::Removed));
    assert_eq!(filter, filter_of(&[7; 13]));
    // The fifteenth reaches the maximum: no removal counts from there on.
    let full = filter_of(&[7; 15]);
    let mut filter = full.clone();
    for _ in 0..20 {
        assert_eq!(filter.remove(item(7)), Ok(Removal::Removed));
    }
    assert_eq!(filter, full);
    assert_eq!(filter.insert(item(7)), Ok(Insertion::Present));
    assert_eq!(filter, full);
    assert_eq!(merged(&filter_of(&[7; 8]), &filter_of(&[7; 7])), full);
    assert_eq!(merged(&full, &full), full);
}

#[test]
fn merging_twice_counts_twice() {
    let filter = filter_of(&[3]);
    assert_eq!(merged(&filter, &filter), filter_of(&[3, 3]));
    const { assert!(!Counting::IS_IDEMPOTENT) };
}

/// The numbers of the module's text.
#[test]
fn counters_of_design_load_stay_below_the_maximum() {
    let ln_2 = std::f64::consts::LN_2;
    let reaches = |max: f64| (std::f64::consts::E * ln_2 / max).powf(max);
    assert!((reaches(15.0) / 3.058e-14 - 1.0).abs() < 0.001);
    assert!((reaches(16.0) / 1.368e-15 - 1.0).abs() < 0.001);
    for rate in [0.1, 0.01, 0.001] {
        let item_count = 20_000;
        let mut filter = Counting::for_rate(HashRange::WHOLE, item_count, rate).unwrap();
        let m = filter.block_shape().position_count() as f64;
        let mean = item_count as f64 * f64::from(filter.block_shape().probe_count()) / m;
        assert!(mean <= ln_2, "{mean} a counter at rate {rate}");
        let hasher = ItemHasher::Xxh3 { seed: 5 };
        for number in 0..item_count {
            filter.insert(hasher.hash(&number.to_le_bytes())).unwrap();
        }
        // Poisson: P(counter >= c) <= (e · mean / c)^c, blocks or not.
        let counters = counters(&filter);
        for least in 1..=15u32 {
            let c = f64::from(least);
            let expected = m * (std::f64::consts::E * mean / c).powf(c);
            let count = counters.iter().filter(|&&counter| counter >= least).count() as f64;
            assert!(count <= expected + 4.0 * expected.sqrt(), "{count} of {expected} at {least}");
        }
    }
}

#[test]
fn items_of_other_ranges_are_refused_and_absent() {
    let mut filter = filter_of(&[1, 2]);
    let before = filter.clone();
    for hi in [0, (1 << 62) - 1, 3 << 62, u64::MAX] {
        let hash = ItemHash::new(hi, 0);
        let error = OutOfRange { hi, range: range() };
        let mut outcomes = vec![Insertion::New];
        assert!(!filter.contains(hash));
        assert_eq!(filter.insert(hash), Err(error.into()));
        assert_eq!(filter.insert_batch(&[item(1), hash], &mut outcomes), Err(error.into()));
        assert_eq!(outcomes, []);
        assert_eq!(filter.remove(hash), Err(error));
    }
    assert_eq!(filter, before);
}

#[test]
fn removing_what_is_absent_changes_nothing() {
    let mut filter = filter_of(&[1]);
    let before = filter.clone();
    let absent = (0..40).map(item).find(|&hash| !filter.contains(hash)).unwrap();
    assert_eq!(filter.remove(absent), Ok(Removal::Absent));
    assert_eq!(filter, before);
}

#[test]
fn filters_of_other_shapes_do_not_merge() {
    let filter = filter_of(&[1]);
    let wider = Counting::new(HashRange::WHOLE, BLOCK_COUNT, 5).unwrap();
    let more_blocks = Counting::new(range(), BLOCK_COUNT + 1, 5).unwrap();
    for theirs in [wider, more_blocks, empty(6)] {
        let mismatch =
            ShapeMismatch { ours: filter.shape.into(), theirs: theirs.block_shape().into() };
        let mut ours = filter.clone();
        assert_eq!(ours.merge(&theirs), Err(mismatch));
        assert_eq!(ours.merge_part(&theirs), Err(mismatch));
        assert_eq!(ours, filter);
    }
}

#[test]
fn shapes_of_other_kinds_are_refused() {
    let shape = BlockShape::new(Kind::Blocked, range(), 1, 512, 1).unwrap();
    let refused = ShapeError::Kind { kind: Kind::Blocked };
    assert_eq!(Counting::with_shape(shape), Err(refused.into()));
    // 2^48 blocks of 256 bytes.
    assert!(matches!(
        Counting::new(HashRange::WHOLE, 1 << 48, 6),
        Err(CreateError::Shape(ShapeError::TooLarge { .. }))
    ));
}

/// Items that came twice are told from others at the rate of the formula, over the Poisson number of a block's items.
#[test]
fn thresholds_err_at_the_rate() {
    let (block_count, item_count) = (100, 8_000u64);
    for (probe_count, threshold) in [(6, 1), (5, 2), (8, 2)] {
        let mut filter = Counting::new(HashRange::WHOLE, block_count, probe_count).unwrap();
        let hash = |number: u64| ItemHasher::Xxh3 { seed: 3 }.hash(&number.to_le_bytes());
        (0..item_count).for_each(|number| {
            filter.insert(hash(number)).unwrap();
        });
        let asked = 1_000_000;
        let found = (1 << 32..(1 << 32) + asked)
            .filter(|number| filter.contains_at_least(hash(*number), threshold.into()))
            .count() as f64;
        let mean = item_count as f64 / block_count as f64;
        let (mut rate, mut chance) = (0.0, (-mean).exp());
        for items in 0..300 {
            let in_block =
                crate::sizing::counting_threshold_rate(512, probe_count, items, threshold);
            rate += chance * in_block.unwrap();
            chance *= mean / (items + 1) as f64;
        }
        let expected = rate * asked as f64;
        // A hundred blocks are not quite a Poisson number of items full, and lanes are no free probes.
        let is_near = found > 0.7 * expected && found < 1.3 * expected;
        assert!(expected > 200.0 && is_near, "k = {probe_count}: {found}, not {expected}");
    }
}
