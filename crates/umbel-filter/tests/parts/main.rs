//! The laws of [`AnyFilter::part`], for every kind that has parts: over ranges that are powers of two and over odd ones.
//!
//! The filters are tiny, so that borders lie inside blocks and positions, and items collide.

#![allow(clippy::unwrap_used, reason = "a failed test is what should come of it")]

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use umbel_filter::{
    AGING_BLOCK_BITS, Aging, AnyFilter, BlockShape, Blocked, Classic, Contains, Counting, Cuckoo,
    Describe, FilterPartError, HashRange, Insert, Insertion, ItemHash, ItemHasher, Kind,
    Partitioned, Quotient, RedisBloom, RedisBloomShape, Scalable, Shape, Sighting, SingleShotShape,
    Stable, StablePace, StoredSingleShot, Window,
};

mod joined;
mod joins;

/// Items of a level, and of a generation, over the whole hash space: fewer than most cases insert.
const FEW: u64 = 40;

fn kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(|kind| !kind.is_whole())
}

/// Whether what an insert does depends on the item's block alone, and not on what was counted elsewhere.
fn is_local(kind: Kind) -> bool {
    !matches!(kind, Kind::Scalable | Kind::Aging | Kind::Stable)
}

fn empty(kind: Kind, range: HashRange) -> AnyFilter {
    let blocks = |blocks, bits, probes| BlockShape::new(kind, range, blocks, bits, probes).unwrap();
    match kind {
        Kind::SingleShot => StoredSingleShot::new(SingleShotShape::new(range, 301).unwrap()).into(),
        Kind::Blocked => Blocked::with_shape(blocks(7, 512, 6)).unwrap().into(),
        Kind::Classic => Classic::with_shape(blocks(5, 1_536, 7)).unwrap().into(),
        Kind::Partitioned => Partitioned::with_shape(blocks(5, 1_536, 7)).unwrap().into(),
        Kind::Counting => Counting::with_shape(blocks(7, 512, 6)).unwrap().into(),
        Kind::Scalable => Scalable::new(range, FEW, 0.1).unwrap().into(),
        Kind::Window => Window::with_shape(blocks(3, 512, 9)).unwrap().into(),
        Kind::Aging => {
            let shape = blocks(5, AGING_BLOCK_BITS, 6).with_pace(FEW);
            Aging::with_shape(shape.unwrap()).unwrap().into()
        }
        Kind::Stable => {
            let pace = StablePace { lowered_cells: 20, cell_max: 9 }.number();
            Stable::with_shape(blocks(7, 512, 6).with_pace(pace).unwrap()).unwrap().into()
        }
        Kind::Cuckoo => Cuckoo::with_shape(blocks(3, 512, 9)).unwrap().into(),
        Kind::Quotient => Quotient::with_shape(blocks(5, 256, 7)).unwrap().into(),
        Kind::RedisBloom => panic!("{kind} has no parts"),
    }
}

/// Items of a range, some of them equal.
fn items(range: HashRange, numbers: &[u16]) -> Vec<ItemHash> {
    let item = |number: &u16| {
        let hash = ItemHasher::Xxh3 { seed: 3 }.hash(&number.to_le_bytes());
        let offset = (u128::from(hash.hi()) * range.width()) >> 64;
        ItemHash::new(range.start() + u64::try_from(offset).unwrap(), hash.lo())
    };
    numbers.iter().map(item).collect()
}

/// Inserts items, into a window as time goes on; whether each was new, or refused.
fn insert(filter: &mut AnyFilter, items: &[ItemHash]) -> Vec<Option<Insertion>> {
    let insert = |(at, &item)| match &mut *filter {
        AnyFilter::Window(window) => {
            let newest = window.newest().max(100) + u64::from(at % 16 == 0);
            window.advance(newest - 9, newest);
            window.insert_at(item, newest, Sighting::Last).ok()
        }
        filter => filter.insert(item).ok(),
    };
    items.iter().enumerate().map(insert).collect()
}

fn filled(kind: Kind, range: HashRange, items: &[ItemHash]) -> AnyFilter {
    let mut filter = empty(kind, range);
    insert(&mut filter, items);
    filter
}

fn of(range: HashRange, items: &[ItemHash]) -> Vec<ItemHash> {
    items.iter().copied().filter(|item| range.contains(item.hi())).collect()
}

/// Some range inside another one: by halving it, or between any two hashes.
fn inside(whole: HashRange) -> impl Strategy<Value = HashRange> {
    let halved = vec(any::<bool>(), 0..5).prop_map(move |uppers| {
        uppers.into_iter().fold(whole, |range, is_upper| {
            let middle = u128::from(range.start()) + range.width() / 2;
            let (start, end) =
                if is_upper { (middle, range.end()) } else { (range.start().into(), middle) };
            // What has one hash has no halves.
            u64::try_from(start).ok().and_then(|s| HashRange::new(s, end).ok()).unwrap_or(range)
        })
    });
    let odd = any::<[u64; 2]>().prop_map(move |ends| {
        let [one, other] = ends.map(|end| (u128::from(end) * 7 + 3) % whole.width());
        let start = whole.start() + u64::try_from(one.min(other)).unwrap();
        HashRange::new(start, u128::from(whole.start()) + one.max(other) + 1).unwrap()
    });
    prop_oneof![halved, odd]
}

/// A range, and a part of it.
fn two_ranges() -> impl Strategy<Value = (HashRange, HashRange)> {
    let whole = prop_oneof![2 => Just(HashRange::WHOLE), 1 => inside(HashRange::WHOLE)];
    whole.prop_flat_map(|whole| (Just(whole), inside(whole)))
}

fn numbers() -> impl Strategy<Value = Vec<u16>> {
    prop_oneof![vec(0..1_000u16, 0..20), vec(0..1_000u16, 0..200)]
}

/// What is stored, array by array, without what was counted.
fn arrays(filter: &AnyFilter) -> Vec<Vec<u64>> {
    match filter {
        AnyFilter::SingleShot(filter) => vec![filter.positions().collect()],
        AnyFilter::Blocked(filter) => vec![filter.words().to_vec()],
        AnyFilter::Classic(filter) => vec![filter.words().to_vec()],
        AnyFilter::Partitioned(filter) => vec![filter.words().to_vec()],
        AnyFilter::Counting(filter) => vec![filter.words().to_vec()],
        AnyFilter::Scalable(filter) => {
            filter.levels().iter().map(|level| level.filter().words().to_vec()).collect()
        }
        AnyFilter::Window(filter) => vec![filter.words().to_vec()],
        AnyFilter::Aging(filter) => vec![filter.words().to_vec()],
        AnyFilter::Stable(filter) => vec![filter.words().to_vec()],
        AnyFilter::Cuckoo(filter) => vec![filter.words().to_vec()],
        AnyFilter::Quotient(filter) => vec![filter.words().to_vec()],
        AnyFilter::RedisBloom(_) => panic!("it has no parts"),
    }
}

/// What was counted over the range.
fn counts(filter: &AnyFilter) -> Vec<u64> {
    match filter {
        AnyFilter::Scalable(filter) => {
            filter.levels().iter().map(umbel_filter::FilterLevel::item_count).collect()
        }
        AnyFilter::Aging(filter) => filter.counts().to_vec(),
        _ => Vec::new(),
    }
}

fn same(kind: Kind, condition: bool, what: &str) -> Result<(), TestCaseError> {
    prop_assert!(condition, "{}: {}", kind, what);
    Ok(())
}

proptest! {
    /// An item of the part is in it exactly if it is in the whole, and no other item is.
    #[test]
    fn a_part_answers_as_the_whole(
        (range, cut) in two_ranges(), inserted in numbers(), asked in numbers(),
    ) {
        for kind in kinds() {
            let inserted = items(range, &inserted);
            let whole = filled(kind, range, &inserted);
            let part = whole.part(cut).unwrap();
            prop_assert_eq!((part.kind(), part.shape().range()), (kind, cut));
            for item in inserted.iter().copied().chain(items(range, &asked)).chain(items(cut, &asked)) {
                let expected = cut.contains(item.hi()) && whole.contains(item);
                same(kind, part.contains(item) == expected, "another answer")?;
            }
        }
    }

    /// Later items of the part do the same to both, and then the part of the whole is the part.
    #[test]
    fn a_part_goes_on_as_the_whole(
        (range, cut) in two_ranges(), before in numbers(), after in numbers(),
    ) {
        let (before, after) = (items(range, &before), items(cut, &after));
        for kind in kinds() {
            let mut whole = filled(kind, range, &before);
            let mut part = whole.part(cut).unwrap();
            let (in_whole, in_part) = (insert(&mut whole, &after), insert(&mut part, &after));
            // Of a page that a border divides the whole has the neighbour's items, too, and is full before.
            let is_full = kind == Kind::Quotient && in_whole.contains(&None);
            if is_local(kind) && !is_full {
                same(kind, in_whole == in_part, "other outcomes")?;
                same(kind, whole.part(cut).unwrap() == part, "another part")?;
                for &item in &after {
                    let removed = [whole.remove(item), part.remove(item)];
                    same(kind, removed[0] == removed[1], "another removal")?;
                }
                same(kind, whole.part(cut).unwrap() == part, "another part after removals")?;
            } else if let (Some(&last), Some(Some(_))) = (after.last(), in_part.last()) {
                same(kind, part.contains(last), "what came last is missing")?;
            }
        }
    }

    /// The part of all is all; parts of a part are parts of the whole, but for counts: those of an aging filter differ by
    /// one at most, and two parts share what was counted.
    #[test]
    fn parts_of_parts_are_parts(
        (range, cut) in two_ranges(), numbers in numbers(), ends in any::<[u64; 2]>(),
    ) {
        let [one, other] = ends.map(|end| u128::from(end) % cut.width());
        let start = cut.start() + u64::try_from(one.min(other)).unwrap();
        let inner = HashRange::new(start, u128::from(cut.start()) + one.max(other) + 1).unwrap();
        for kind in kinds() {
            let whole = filled(kind, range, &items(range, &numbers));
            same(kind, whole.part(range).unwrap() == whole, "all is another filter")?;
            let (once, part) = (whole.part(inner).unwrap(), whole.part(cut).unwrap());
            let twice = part.part(inner).unwrap();
            same(kind, arrays(&once) == arrays(&twice), "other bits")?;
            same(kind, once.shape() == twice.shape(), "another shape")?;
            let aging = counts(&once).into_iter().zip(counts(&twice));
            for (once, twice) in aging.filter(|_| kind == Kind::Aging) {
                prop_assert!(once.abs_diff(twice) <= 1, "{}: {} and {}", kind, once, twice);
            }
            if counts(&once) == counts(&twice) {
                same(kind, once == twice, "another filter")?;
            }
            if kind == Kind::Aging && inner.end() < range.end() {
                let middle = u64::try_from(inner.end()).unwrap();
                let halves = [
                    HashRange::new(range.start(), middle.into()).unwrap(),
                    HashRange::new(middle, range.end()).unwrap(),
                ];
                let [lower, upper] = halves.map(|half| counts(&whole.part(half).unwrap()));
                let sums: Vec<u64> = lower.iter().zip(&upper).map(|(one, other)| one + other).collect();
                prop_assert_eq!(sums, counts(&whole));
            }
        }
    }

    /// The slow twin: the part's items alone, one after the other. Cut where blocks, or positions, begin.
    #[test]
    fn a_part_is_the_filter_of_its_items(numbers in numbers(), ends in any::<[u64; 2]>()) {
        let all = items(HashRange::WHOLE, &numbers);
        for kind in kinds().filter(|&kind| is_local(kind) && kind != Kind::Window) {
            let whole = filled(kind, HashRange::WHOLE, &all);
            let cut = match whole.shape() {
                Shape::SingleShot(shape) => {
                    let [one, other] = ends.map(|end| end % shape.width());
                    let start = shape.first_hi(one.min(other)).unwrap();
                    let end = shape.first_hi(one.max(other) + 1);
                    HashRange::new(start, end.map_or(1 << 64, u128::from)).unwrap()
                }
                Shape::Blocks(shape) => {
                    let [one, other] = ends.map(|end| end % shape.map().len());
                    shape.map().range_of_blocks(one.min(other)..one.max(other) + 1)
                }
                other => panic!("{other}"),
            };
            let part = whole.part(cut).unwrap();
            same(kind, part == filled(kind, cut, &of(cut, &all)), "another filter")?;
        }
    }

    /// Where filters merge by OR, parts that tile the range make the whole again; and no part takes more memory than its
    /// share and two blocks.
    #[test]
    fn parts_cover_the_whole((range, cut) in two_ranges(), numbers in numbers()) {
        for kind in kinds() {
            let whole = filled(kind, range, &items(range, &numbers));
            let tiles: Vec<HashRange> = [
                HashRange::new(range.start(), cut.start().into()).ok(),
                Some(cut),
                u64::try_from(cut.end()).ok().and_then(|s| HashRange::new(s, range.end()).ok()),
            ].into_iter().flatten().collect();
            let parts = tiles.iter().map(|&tile| whole.part(tile).unwrap());
            let mut sum = empty(kind, range);
            for part in parts {
                match (&mut sum, &part) {
                    (AnyFilter::Blocked(sum), AnyFilter::Blocked(part)) => {
                        sum.merge_part(part).unwrap();
                    }
                    (AnyFilter::Classic(sum), AnyFilter::Classic(part)) => {
                        sum.merge_part(part).unwrap();
                    }
                    (AnyFilter::Partitioned(sum), AnyFilter::Partitioned(part)) => {
                        sum.merge_part(part).unwrap();
                    }
                    (AnyFilter::SingleShot(sum), AnyFilter::SingleShot(part)) => {
                        let (ours, shape) = (sum.single_shot_shape(), part.single_shot_shape());
                        let first = shape.first_position() - ours.first_position();
                        let mut union: Vec<u64> =
                            sum.positions().chain(part.positions().map(|at| at + first)).collect();
                        union.sort_unstable();
                        union.dedup();
                        *sum = StoredSingleShot::from_positions(ours, union.into_iter()).unwrap();
                    }
                    _ => {}
                }
                if let (Shape::Blocks(shape), Shape::Blocks(all)) = (part.shape(), whole.shape()) {
                    let block = all.memory_bytes() / all.map().len();
                    let blocks = u128::from(all.map().block_count()) * shape.range().width();
                    let share = u64::try_from(blocks >> 64).unwrap() * block;
                    let bytes = part.describe().memory_bytes;
                    prop_assert!(bytes <= share + 2 * block, "{}: {} of {}", kind, bytes, share);
                }
            }
            if kind.merges_by_or() {
                same(kind, sum == whole, "the parts are not the whole")?;
            }
        }
    }

    /// What its levels say is taken wherever levels are checked, and a level without bits has no items.
    #[test]
    fn parts_of_scalable_filters_are_filters((range, cut) in two_ranges(), numbers in numbers()) {
        let whole = filled(Kind::Scalable, range, &items(range, &numbers));
        let AnyFilter::Scalable(part) = whole.part(cut).unwrap() else { panic!("another kind") };
        let levels: Vec<(Blocked, u64)> =
            part.levels().iter().map(|level| (level.filter().clone(), level.item_count())).collect();
        for (filter, item_count) in &levels {
            prop_assert!(*item_count > 0 || filter.describe().one_count == 0);
        }
        prop_assert_eq!(Scalable::from_levels(part.scalable_shape(), levels), Ok(part));
    }

    /// A quotient filter that has grown is cut as one that has not.
    #[test]
    fn grown_quotient_filters_have_parts((range, cut) in two_ranges(), numbers in numbers()) {
        let mut whole = filled(Kind::Quotient, range, &items(range, &numbers));
        let AnyFilter::Quotient(mut expected) = whole.part(cut).unwrap() else { panic!() };
        if let AnyFilter::Quotient(filter) = &mut whole {
            filter.grow().unwrap();
            filter.grow().unwrap();
        }
        expected.grow().unwrap();
        expected.grow().unwrap();
        let AnyFilter::Quotient(part) = whole.part(cut).unwrap() else { panic!() };
        prop_assert_eq!(part.block_shape(), expected.block_shape());
        // After growing, the position that a border divides is the same, and neighbours in the block are left out.
        prop_assert!(part.positions().eq(expected.positions()));
    }
}

#[test]
fn what_has_no_part_is_refused() {
    let (lower, upper) = (HashRange::new(0, 10).unwrap(), HashRange::new(5, 11).unwrap());
    for kind in kinds() {
        let refused = empty(kind, lower).part(upper);
        assert_eq!(refused, Err(FilterPartError::Range { part: upper, whole: lower }), "{kind}");
    }
    let chain = RedisBloom::with_shape(RedisBloomShape::for_rate(100, 0.01).unwrap()).unwrap();
    let refused = AnyFilter::from(chain).part(lower).unwrap_err();
    assert_eq!(refused, FilterPartError::Unsupported { kind: Kind::RedisBloom });
    assert_eq!(refused.to_string(), "a redisbloom filter has no parts by hash range");
}

/// Five items in the newer generation, and four in the older one: the lower half is rounded down.
#[test]
fn counts_of_halves_sum_to_those_of_the_whole() {
    let numbers: Vec<u16> = (0..9).collect();
    let shape = BlockShape::new(Kind::Aging, HashRange::WHOLE, 64, AGING_BLOCK_BITS, 6).unwrap();
    let mut whole = Aging::with_shape(shape.with_pace(4).unwrap()).unwrap();
    for item in items(HashRange::WHOLE, &numbers) {
        whole.insert(item).unwrap();
    }
    assert_eq!(whole.counts(), [1, 4]);
    *whole.parts_mut().1 = [5, 4];
    let whole = AnyFilter::from(whole);
    let halves = [(0, 1 << 63), (1 << 63, 1 << 64)].map(|(start, end)| HashRange::new(start, end));
    let [lower, upper] = halves.map(|half| counts(&whole.part(half.unwrap()).unwrap()));
    assert_eq!((lower, upper), (vec![2, 2], vec![3, 2]));
}

/// The number of a stable filter's next insert is the same in each part.
#[test]
fn stable_filters_count_on() {
    let numbers: Vec<u16> = (0..9).collect();
    let whole = filled(Kind::Stable, HashRange::WHOLE, &items(HashRange::WHOLE, &numbers));
    let AnyFilter::Stable(part) = whole.part(HashRange::new(3, 1 << 62).unwrap()).unwrap() else {
        panic!("another kind")
    };
    assert_eq!(part.counts(), [9, 0]);
}
