//! Laws of the scalable filter, and its twin: filters in a row, asked one by one, and a set.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::capability::OutOfRange;
use crate::hash::ItemHasher;

fn item(number: u64) -> ItemHash {
    ItemHasher::Xxh3 { seed: 3 }.hash(&number.to_le_bytes())
}

fn empty(first_capacity: u64, rate: f64) -> Scalable {
    Scalable::new(HashRange::WHOLE, first_capacity, rate).unwrap()
}

/// A filter of so many items, which it may have taken for one another.
fn filter_of(first_capacity: u64, rate: f64, item_count: u64) -> Scalable {
    let mut filter = empty(first_capacity, rate);
    for number in 0..item_count {
        filter.insert(item(number)).unwrap();
    }
    filter
}

/// What `from_levels` takes.
type Parts = Vec<(Blocked, u64)>;

fn parts(filter: &Scalable) -> Parts {
    filter.levels().iter().map(|level| (level.filter().clone(), level.item_count())).collect()
}

/// The slow twin: the definition, level after level.
struct Twin {
    levels: Vec<(Blocked, u64)>,
    first_capacity: u64,
    rate: f64,
}

impl Twin {
    fn insert(&mut self, hash: ItemHash) -> Insertion {
        if self.levels.iter().any(|(filter, _)| filter.contains(hash)) {
            return Insertion::Present;
        }
        let level = |number: usize| {
            let number = u32::try_from(number).unwrap();
            sizing::scalable_level(self.first_capacity, self.rate, number).unwrap()
        };
        let count = self.levels.len();
        if count == 0 || self.levels[count - 1].1 == level(count - 1).capacity {
            let size = level(count);
            let (n, rate) = (size.capacity, size.false_positive_rate);
            self.levels.push((Blocked::for_rate(HashRange::WHOLE, n, rate).unwrap(), 0));
        }
        let (filter, item_count) = self.levels.last_mut().unwrap();
        filter.insert(hash).unwrap();
        *item_count += 1;
        Insertion::New
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn agrees_with_the_twin_and_misses_nothing(
        first_capacity in 1..20u64, numbers in vec(0..300u64, 1..300),
    ) {
        // A rate that makes items be taken for one another.
        let rate = 0.2;
        let mut filter = empty(first_capacity, rate);
        let mut twin = Twin { levels: Vec::new(), first_capacity, rate };
        let mut inserted = BTreeSet::new();
        for number in numbers {
            let outcome = filter.insert(item(number)).unwrap();
            prop_assert_eq!(outcome, twin.insert(item(number)));
            prop_assert!(inserted.insert(number) || outcome == Insertion::Present);
        }
        prop_assert_eq!(parts(&filter), twin.levels);
        prop_assert!(inserted.iter().all(|&number| filter.contains(item(number))));
        let count = filter.levels().iter().map(FilterLevel::item_count).sum::<u64>();
        prop_assert!(count <= inserted.len() as u64);
    }

    #[test]
    fn batches_are_single_steps(
        first_capacity in 1..50u64,
        batches in vec(vec(0..4_000u64, 0..1_500), 1..3),
        asked in vec(0..8_000u64, 0..1_500),
    ) {
        let (mut filter, mut single) = (empty(first_capacity, 0.1), empty(first_capacity, 0.1));
        let (mut outcomes, mut present) = (vec![Insertion::New], vec![true]);
        for batch in batches {
            let hashes: Vec<ItemHash> = batch.into_iter().map(item).collect();
            filter.insert_batch(&hashes, &mut outcomes).unwrap();
            let expected: Vec<Insertion> =
                hashes.iter().map(|&hash| single.insert(hash).unwrap()).collect();
            prop_assert_eq!(&outcomes, &expected);
        }
        prop_assert_eq!(&filter, &single);
        let asked: Vec<ItemHash> = asked.into_iter().map(item).collect();
        filter.contains_batch(&asked, &mut present);
        let expected: Vec<bool> = asked.iter().map(|&hash| single.contains(hash)).collect();
        prop_assert_eq!(present, expected);
    }

    #[test]
    fn levels_give_the_same_filter(first_capacity in 1..30u64, item_count in 0..300u64) {
        let filter = filter_of(first_capacity, 0.05, item_count);
        let again = Scalable::from_levels(filter.scalable_shape(), parts(&filter));
        prop_assert_eq!(again, Ok(filter));
    }
}

#[test]
fn the_bound_is_kept_at_1_10_and_100_times_the_first_capacity() {
    let (first_capacity, asked) = (500, 400_000u64);
    for rate in [0.1, 0.01, 0.001] {
        let mut filter = empty(first_capacity, rate);
        let mut next = 0;
        let mut hashes = |count: u64| -> Vec<ItemHash> {
            next += count;
            (next - count..next).map(item).collect()
        };
        let (mut outcomes, mut present) = (Vec::new(), Vec::new());
        for item_count in [500, 4_500, 45_000] {
            filter.insert_batch(&hashes(item_count), &mut outcomes).unwrap();
            filter.contains_batch(&hashes(asked), &mut present);
            let errors = present.iter().filter(|&&is_present| is_present).count() as f64;
            let expected = asked as f64 * rate;
            assert!(errors <= expected + 4.0 * expected.sqrt(), "{errors} of {expected}");
            let described = asked as f64 * filter.describe().false_positive_rate;
            let deviation = 5.0 * described.sqrt() + 0.02 * described;
            assert!((errors - described).abs() <= deviation, "{errors}, described {described}");
        }
        assert!(filter.levels().len() > 3);
    }
}

/// What the module says of a level that is full of new items.
#[test]
fn a_full_level_errs_a_little_more_than_any_items_would() {
    for rate in [0.3, 0.1] {
        let (capacity, asked, rounds) = (2_000, 20_000, 60);
        let (mut errors, mut next, mut planned) = (0, 0, 0.0);
        for _ in 0..rounds {
            let mut filter = Blocked::for_rate(HashRange::WHOLE, capacity, rate).unwrap();
            planned = filter.block_shape().false_positive_rate(capacity);
            let mut new_count = 0;
            while new_count < capacity {
                new_count += u64::from(filter.insert(item(next)).unwrap() == Insertion::New);
                next += 1;
            }
            errors += (next..next + asked).filter(|&i| filter.contains(item(i))).count();
            next += asked;
        }
        let measured = errors as f64 / (asked * rounds) as f64;
        assert!(measured > planned && measured < planned * (1.0 + planned), "{measured} {planned}");
    }
}

#[test]
fn levels_open_exactly_when_the_last_is_full() {
    let mut filter = empty(5, 0.3);
    let capacity = |level| sizing::scalable_level(5, 0.3, level).unwrap().capacity;
    let (mut new_count, mut full_at, mut level) = (0, capacity(0), 1);
    for number in 0..2_000 {
        if filter.insert(item(number)).unwrap() == Insertion::New {
            new_count += 1;
            if new_count > full_at {
                full_at += capacity(level);
                level += 1;
            }
        }
        assert_eq!(filter.levels().len(), level as usize, "after {new_count} new items");
    }
    assert!(new_count < 2_000, "some were taken for others");
    assert_eq!(filter.describe().item_count.unwrap().item_count, new_count as f64);
}

#[test]
fn describe_sums_up() {
    let filter = filter_of(100, 0.01, 1_000);
    let levels: Vec<Description> =
        filter.levels().iter().map(|level| level.filter().describe()).collect();
    let sum = filter.describe();
    assert_eq!(sum.memory_bytes, levels.iter().map(|level| level.memory_bytes).sum::<u64>());
    assert_eq!(sum.position_count, 8 * sum.memory_bytes);
    assert_eq!(sum.one_count, levels.iter().map(|level| level.one_count).sum::<u64>());
    let right: f64 = levels.iter().map(|level| 1.0 - level.false_positive_rate).product();
    assert!((sum.false_positive_rate - (1.0 - right)).abs() < 1e-12);
    assert!(sum.false_positive_rate > 0.0 && sum.false_positive_rate < 0.01);
    assert_eq!(empty(100, 0.01).describe().false_positive_rate, 0.0);
}

/// A filter whose next level would need a rate that no blocked filter has.
fn at_its_end() -> Scalable {
    let mut rate = 1e-3;
    while Scalable::new(HashRange::WHOLE, 1, rate / 2.0).is_ok() {
        rate /= 2.0;
    }
    empty(1, rate)
}

#[test]
fn a_filter_that_cannot_grow_says_so_and_goes_on_answering() {
    let mut filter = at_its_end();
    let mut number = 0;
    let error = loop {
        let before = filter.clone();
        match filter.insert(item(number)) {
            Ok(outcome) => assert_eq!(outcome, Insertion::New),
            Err(error) => {
                assert_eq!(filter, before);
                break error;
            }
        }
        number += 1;
    };
    assert!(matches!(error, InsertError::Grow(CreateError::Sizing(_))), "{error:?}");
    assert!((0..number).all(|number| filter.contains(item(number))));
    assert_eq!(filter.insert(item(0)), Ok(Insertion::Present));
    // A batch keeps what came before.
    let (mut filter, mut outcomes) = (at_its_end(), Vec::new());
    let hashes: Vec<ItemHash> = (0..number + 3).map(item).collect();
    assert_eq!(filter.insert_batch(&hashes, &mut outcomes), Err(error));
    assert_eq!(outcomes, vec![Insertion::New; usize::try_from(number).unwrap()]);
}

#[test]
fn items_of_other_ranges_are_refused_and_absent() {
    let range = HashRange::new(1 << 62, 1 << 63).unwrap();
    let mut filter = Scalable::new(range, 1, 0.1).unwrap();
    let before = filter.clone();
    let (inside, mut outcomes) = (ItemHash::new(1 << 62, 5), vec![Insertion::New]);
    for hi in [0, (1 << 62) - 1, 1 << 63, u64::MAX] {
        let hash = ItemHash::new(hi, 0);
        let error = OutOfRange { hi, range };
        assert!(!filter.contains(hash));
        assert_eq!(filter.insert(hash), Err(error.into()));
        assert_eq!(filter.insert_batch(&[inside, hash], &mut outcomes), Err(error.into()));
        assert_eq!(outcomes, []);
        assert_eq!(filter, before);
    }
    filter.insert(inside).unwrap();
    let mut present = Vec::new();
    filter.contains_batch(&[ItemHash::new(0, 0), inside], &mut present);
    assert_eq!(present, [false, true]);
}

#[test]
fn levels_are_checked() {
    let filter = filter_of(100, 0.05, 1_000);
    let shape = filter.scalable_shape();
    let refused = |change: &dyn Fn(&mut Parts)| {
        let mut levels = parts(&filter);
        change(&mut levels);
        Scalable::from_levels(shape, levels).unwrap_err()
    };
    assert_eq!(refused(&|levels| levels.clear()), LevelsError::None);
    // The second level's bits are of more items than the first is made for, but not of all.
    let second = &filter.levels()[1].filter;
    let proven = second.describe().one_count.div_ceil(second.block_shape().probe_count().into());
    assert!((101..200).contains(&proven));
    assert_eq!(
        refused(&|levels| drop(levels.remove(0))),
        LevelsError::ItemCount { level: 0, item_count: 200, least: 0, capacity: proven }
    );
    let size = sizing::scalable_level(100, 0.05, 0).unwrap();
    let small = Blocked::new(HashRange::WHOLE, 1, 6).unwrap();
    let got = small.block_shape().false_positive_rate(100);
    assert_eq!(
        refused(&|levels| levels[0].0 = small.clone()),
        LevelsError::Rate { level: 0, got, expected: size.false_positive_rate }
    );
    let half = HashRange::new(0, 1 << 63).unwrap();
    assert_eq!(
        refused(&|levels| levels[0].0 = Blocked::new(half, 99, 6).unwrap()),
        LevelsError::Range { level: 0, got: half, expected: HashRange::WHOLE }
    );
    assert_eq!(
        refused(&|levels| levels[0].1 = 101),
        LevelsError::ItemCount { level: 0, item_count: 101, least: 0, capacity: 100 }
    );
    let last = filter.levels().len() - 1;
    let capacity = filter.newest().capacity;
    let level = u32::try_from(last).unwrap();
    assert_eq!(
        refused(&|levels| levels[last].1 = capacity + 1),
        LevelsError::ItemCount { level, item_count: capacity + 1, least: 0, capacity }
    );
    let first = filter.levels()[0].filter.block_shape();
    for (bits, one_count) in [(0, 0), (u64::MAX, first.position_count())] {
        let (item_count, probe_count) = (100, first.probe_count());
        assert_eq!(
            refused(&|levels| levels[0].0.words_mut().fill(bits)),
            LevelsError::OneCount { level: 0, one_count, item_count, probe_count }
        );
    }
    let full = at_its_end();
    let shape = full.scalable_shape();
    let mut full = full;
    let number = (0..).find(|&number| full.insert(item(number)).is_err()).unwrap();
    let mut levels = parts(&full);
    levels.push((Blocked::new(HashRange::WHOLE, 1, 1).unwrap(), 0));
    let error = Scalable::from_levels(shape, levels).unwrap_err();
    let level = u32::try_from(full.levels().len()).unwrap();
    assert!(number > 0 && matches!(error, LevelsError::Create { level: at, .. } if at == level));
}

/// A part of a filter may have levels that were closed before they were full: the last one goes on.
#[test]
fn levels_may_be_closed_before_they_are_full() {
    let filter = filter_of(100, 0.05, 150);
    let mut levels = parts(&filter);
    levels[0].1 = 99;
    let mut again = Scalable::from_levels(filter.scalable_shape(), levels).unwrap();
    assert_eq!(again.insert(item(1_000)), Ok(Insertion::New));
    assert_eq!((again.levels()[0].item_count(), again.levels()[1].item_count()), (99, 51));
    assert_eq!(again.levels().len(), 2);
}

/// The capacities of a range are its share of those of the space, and its blocks a slice of the same ones.
#[test]
fn a_level_of_a_range_is_a_slice() {
    let whole = ScalableShape::new(HashRange::WHOLE, 1_001, 0.01).unwrap();
    let quarter = HashRange::new(1 << 62, 1 << 63).unwrap();
    let shape = ScalableShape::new(quarter, 1_001, 0.01).unwrap();
    for (level, expected) in [(0, 251), (1, 501), (2, 1_001), (3, 2_002)] {
        let (capacity, blocks) = shape.level(level).unwrap();
        assert_eq!(capacity, expected);
        let (_, all) = whole.level(level).unwrap();
        assert_eq!(Ok(blocks), all.with_range(quarter));
        // Both borders may lie inside a block.
        assert!(blocks.map().len().abs_diff(all.map().len() / 4) <= 2);
    }
    // Few items: the share is rounded up, and what the range makes of it is taken back.
    let mut filter = Scalable::new(quarter, 5, 0.01).unwrap();
    let mut numbers = (0..).map(item).filter(|hash| quarter.contains(hash.hi()));
    while filter.levels().len() < 4 {
        filter.insert(numbers.next().unwrap()).unwrap();
    }
    let again = Scalable::from_levels(filter.scalable_shape(), parts(&filter));
    assert_eq!(again, Ok(filter));
}

/// Levels are opened one by one, and each takes the same number whenever a part of it comes.
#[test]
fn levels_are_loaded_in_order() {
    let mut filter = empty(4, 0.05);
    let missing = LevelsError::Missing { level: 2, missing: 1 };
    assert_eq!(filter.level_to_load(2, 1).map(drop), Err(missing));
    assert_eq!(filter.level_to_load(0, 3).map(drop), Ok(()));
    assert_eq!(filter.level_to_load(1, 0).map(drop), Ok(()));
    assert_eq!(filter.level_to_load(2, 16).map(drop), Ok(()));
    let other = LevelsError::ItemCount { level: 0, item_count: 4, least: 3, capacity: 3 };
    assert_eq!(filter.level_to_load(0, 4).map(drop), Err(other));
    // No more than bits can be of that are all set.
    let blocks = filter.scalable_shape().level(3).unwrap().1;
    let capacity = blocks.position_count().div_ceil(blocks.probe_count().into());
    let many = LevelsError::ItemCount { level: 3, item_count: capacity + 1, least: 0, capacity };
    assert_eq!(filter.level_to_load(3, capacity + 1).map(drop), Err(many));
    let counts: Vec<u64> = filter.levels().iter().map(FilterLevel::item_count).collect();
    assert_eq!(counts, [3, 0, 16]);
}
