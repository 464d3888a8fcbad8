//! One scenario for every kind, what each kind refuses, and the sizes that a plan leads to.

use super::*;
use crate::hash::ItemHasher;
use crate::shape::ShapeError;
use crate::sizing::SizingError;

/// A quarter of the space.
fn range() -> HashRange {
    HashRange::new(1 << 62, 1 << 63).unwrap()
}

/// Different items of the range.
fn items(first: u64, count: u64) -> Vec<ItemHash> {
    let hasher = ItemHasher::Xxh3 { seed: 11 };
    let hashes = (first..first + count).map(|number| hasher.hash(&number.to_le_bytes()));
    hashes.map(|hash| ItemHash::new((hash.hi() >> 2) + (1 << 62), hash.lo())).collect()
}

/// That, or all of the space for a kind that cannot be cut.
fn range_of(kind: Kind) -> HashRange {
    if kind.is_whole() { HashRange::WHOLE } else { range() }
}

fn plan(kind: Kind) -> FilterPlan {
    FilterPlan { kind, range: range_of(kind), item_count: 5_000, false_positive_rate: 0.02 }
}

fn empty(kind: Kind) -> AnyFilter {
    AnyFilter::create(&plan(kind)).unwrap()
}

fn filter_of(kind: Kind, hashes: &[ItemHash]) -> AnyFilter {
    let mut filter = empty(kind);
    filter.insert_batch(hashes, &mut Vec::new()).unwrap();
    filter
}

#[test]
fn every_kind_keeps_the_plan() {
    let (inside, others) = (items(0, 5_000), items(5_000, 50_000));
    for kind in Kind::ALL {
        let mut filter = empty(kind);
        assert_eq!((filter.kind(), filter.shape().kind()), (kind, kind));
        assert_eq!(filter.shape().range(), range_of(kind));
        let before = filter.describe();
        assert_eq!((before.one_count, before.false_positive_rate), (0, 0.0), "{kind}");
        let mut outcomes = Vec::new();
        filter.insert_batch(&inside, &mut outcomes).unwrap();
        let new_count = outcomes.iter().filter(|&&outcome| outcome == Insertion::New).count();
        assert!(new_count > 4_850, "{kind}: {new_count}");
        let missed = inside.iter().filter(|&&hash| !filter.contains(hash)).count();
        // A stable filter misses up to a fiftieth of those that came first, less of the others.
        assert!(missed == 0 || kind == Kind::Stable && missed < 50, "{kind}: {missed}");
        let mut present = Vec::new();
        filter.contains_batch(&others, &mut present);
        assert!(others.iter().zip(&present).all(|(&hash, &is_in)| filter.contains(hash) == is_in));
        let errors = present.iter().filter(|&&is_present| is_present).count();
        // 1,000 are expected at most; the filter itself is one of many.
        assert!(errors < 1_150, "{kind}: {errors}");
        let after = filter.describe();
        let item_count = after.item_count.unwrap().item_count;
        // Of a stable filter those that are not forgotten.
        let forgets = kind == Kind::Stable && item_count < 5_000.0;
        assert!((item_count - 5_000.0).abs() < 200.0 || forgets, "{kind}: {item_count}");
        assert!(after.false_positive_rate < 0.0212, "{kind}: {}", after.false_positive_rate);
        assert!((after.false_positive_rate * 50_000.0 - errors as f64).abs() < 150.0, "{kind}");
    }
}

#[test]
fn one_by_one_is_as_a_batch() {
    let hashes = [items(0, 300), items(100, 300)].concat();
    for kind in Kind::ALL {
        let (mut filter, mut single) = (empty(kind), empty(kind));
        let mut outcomes = Vec::new();
        filter.insert_batch(&hashes, &mut outcomes).unwrap();
        let expected: Vec<Insertion> =
            hashes.iter().map(|&hash| single.insert(hash).unwrap()).collect();
        assert_eq!(outcomes, expected, "{kind}");
        assert_eq!(filter, single, "{kind}");
    }
}

#[test]
fn items_of_other_ranges_are_refused_and_change_nothing() {
    let outside = ItemHash::new(1, 1);
    let error = OutOfRange { hi: 1, range: range() };
    let part = FilterPlan { range: range(), ..plan(Kind::RedisBloom) };
    let whole = ShapeError::Part { kind: Kind::RedisBloom };
    assert_eq!(AnyFilter::create(&part), Err(whole.into()));
    for kind in Kind::ALL.into_iter().filter(|kind| !kind.is_whole()) {
        let mut filter = filter_of(kind, &items(0, 10));
        let before = filter.clone();
        assert!(!filter.contains(outside));
        assert_eq!(filter.insert(outside), Err(error.into()), "{kind}");
        let batch = [items(10, 1)[0], outside];
        assert_eq!(filter.insert_batch(&batch, &mut Vec::new()), Err(error.into()), "{kind}");
        assert!(filter.remove(outside).is_err());
        assert_eq!(filter, before, "{kind}");
    }
    let refused = Err(RemoveError::OutOfRange(error));
    assert_eq!(empty(Kind::Counting).remove(outside), refused);
}

#[test]
fn only_counting_and_table_filters_remove() {
    let hashes = items(0, 10);
    for kind in Kind::ALL {
        let mut filter = filter_of(kind, &hashes);
        let before = filter.clone();
        let outcome = filter.remove(hashes[0]);
        if kind.removes() {
            assert_eq!(outcome, Ok(Removal::Removed));
            assert_eq!(filter, filter_of(kind, &hashes[1..]));
        } else {
            assert_eq!(outcome, Err(RemoveError::Unsupported { kind }));
            assert_eq!(filter, before, "{kind}");
        }
    }
    let error = RemoveError::Unsupported { kind: Kind::SingleShot };
    assert_eq!(
        error.to_string(),
        "filters of kind single-shot cannot remove items, those of kind counting, cuckoo and quotient can"
    );
}

#[test]
fn filters_of_one_shape_merge_but_those_that_grow_or_forget() {
    let (ours, theirs) = (items(0, 400), items(200, 400));
    for kind in Kind::ALL {
        let mut filter = filter_of(kind, &ours);
        let before = filter.clone();
        let outcome = filter.merge(&filter_of(kind, &theirs));
        if !kind.merges() {
            assert_eq!(outcome, Err(MergeError::Unsupported { kind }));
            assert_eq!(filter, before);
            assert_eq!(outcome.unwrap_err().to_string(), format!("{kind} filters do not merge"));
        } else {
            let new_count = filter.describe().one_count - before.describe().one_count;
            assert_eq!(outcome, Ok(new_count), "{kind}");
            assert_eq!(filter, filter_of(kind, &[&ours[..], &theirs[..]].concat()), "{kind}");
        }
    }
}

#[test]
fn filters_of_different_kinds_or_sizes_do_not_merge() {
    for kind in Kind::ALL {
        let mut filter = filter_of(kind, &items(0, 10));
        let before = filter.clone();
        let larger = FilterPlan { item_count: 9_000, ..plan(kind) };
        let others = Kind::ALL.into_iter().filter(|&other| other != kind).map(empty);
        for other in others.chain([AnyFilter::create(&larger).unwrap()]) {
            let expected = if !kind.merges() {
                MergeError::Unsupported { kind }
            } else {
                ShapeMismatch { ours: filter.shape(), theirs: other.shape() }.into()
            };
            assert_eq!(filter.merge(&other), Err(expected));
            assert_eq!(filter, before, "{kind}");
        }
    }
    let error = empty(Kind::Blocked).merge(&empty(Kind::Counting)).unwrap_err().to_string();
    assert!(error.contains("ours is blocked") && error.contains("theirs counting"), "{error}");
}

#[test]
fn plans_are_checked() {
    for kind in Kind::ALL {
        let created = |plan: FilterPlan| AnyFilter::create(&plan);
        let none = FilterPlan { item_count: 0, ..plan(kind) };
        assert_eq!(created(none), Err(SizingError::NoItems.into()), "{kind}");
        for rate in [0.0, 1.0, -1.0, f64::INFINITY] {
            let impossible = FilterPlan { false_positive_rate: rate, ..plan(kind) };
            assert_eq!(created(impossible), Err(SizingError::Rate { rate }.into()), "{kind}");
        }
        assert!(created(FilterPlan { false_positive_rate: f64::NAN, ..plan(kind) }).is_err());
        let vast = FilterPlan { item_count: 1 << 62, ..plan(kind) };
        assert!(matches!(created(vast), Err(CreateError::Shape(_))), "{kind}");
    }
}

#[test]
fn a_single_shot_filter_has_the_least_positions() {
    let shape = |range, item_count, rate| {
        let plan =
            FilterPlan { item_count, false_positive_rate: rate, range, ..plan(Kind::SingleShot) };
        single_shot_shape(&plan).map(SingleShotShape::position_count)
    };
    // 1 − (3/4)² = 7/16, and with three positions 5/9.
    assert_eq!(shape(HashRange::WHOLE, 2, 0.4376), Ok(4));
    assert_eq!(shape(HashRange::WHOLE, 2, 0.4374), Ok(5));
    assert_eq!(shape(range(), 2, 0.4376), Ok(16));
    // An item takes one of its m positions: m = 1/p.
    assert_eq!(shape(HashRange::WHOLE, 1, 0.001), Ok(1_000));
    let beyond = ShapeError::PositionCount { position_count: u64::MAX };
    assert_eq!(shape(range(), u64::MAX, 0.01), Err(beyond.into()));
    for item_count in [7, 1_000, 123_456] {
        for rate in [0.9, 0.1, 1e-3, 1e-7] {
            let m = shape(HashRange::WHOLE, item_count, rate).unwrap();
            let reached = |m| sizing::single_shot_false_positive_rate(m, item_count).unwrap();
            assert!(reached(m) <= rate && (m == 1 || reached(m - 1) > rate), "{m}");
        }
    }
}
