//! Joins with numbers that can be checked by hand, and what is not joined.

use umbel_filter::{
    AnyFilter, BlockShape, Contains, Cuckoo, FilterJoinError, FilterPlan, HashRange, Insert,
    InsertError, ItemHash, Kind, Quotient, RedisBloom, RedisBloomShape, Removal, Scalable,
    Sighting, Window,
};

use super::joins::{cut, is_loadable};
use super::{counts, empty, filled, insert, items, kinds};

fn two() -> [HashRange; 2] {
    cut(HashRange::WHOLE, 1 << 63)
}

#[test]
fn what_is_no_neighbour_or_has_another_shape_is_refused() {
    let [lower, upper] = two();
    for kind in kinds() {
        let (low, high) = (empty(kind, lower), empty(kind, upper));
        let ranges = |lower, upper| Err(FilterJoinError::Ranges { lower, upper });
        assert_eq!(high.join(&low), ranges(upper, lower), "{kind}");
        assert_eq!(low.join(&low), ranges(lower, lower), "{kind}");
        let gap = HashRange::new((1 << 63) + 1, 1 << 64).unwrap();
        assert_eq!(low.join(&empty(kind, gap)), ranges(lower, gap), "{kind}");
        let other = if kind == Kind::Blocked { Kind::Classic } else { Kind::Blocked };
        let refused = low.join(&empty(other, upper));
        assert!(matches!(refused, Err(FilterJoinError::Shape(_))), "{kind}");
    }
    let range = HashRange::WHOLE;
    for kind in kinds() {
        let [one, other] = [100, 20_000].map(|item_count| {
            let false_positive_rate = 0.01;
            FilterPlan { kind, range, item_count, false_positive_rate }
        });
        let [one, other] = [one, other].map(|plan| AnyFilter::create(&plan).unwrap());
        let refused = one.part(lower).unwrap().join(&other.part(upper).unwrap());
        assert!(matches!(refused, Err(FilterJoinError::Shape(_))), "{kind}: {refused:?}");
    }
    let chain = RedisBloom::with_shape(RedisBloomShape::for_rate(100, 0.01).unwrap()).unwrap();
    let chain = AnyFilter::from(chain);
    let refused = chain.join(&chain).unwrap_err();
    assert_eq!(refused, FilterJoinError::Unsupported { kind: Kind::RedisBloom });
    assert_eq!(refused.to_string(), "redisbloom filters are not joined by hash range");
}

/// Each part has a page of its own for half of the items, and the join one for all.
#[test]
fn tables_that_were_filled_from_both_sides_are_refused() {
    let border = 1 << 63;
    for (kind, block) in [(Kind::Cuckoo, 512), (Kind::Window, 512), (Kind::Quotient, 256)] {
        let shape = |range| BlockShape::new(kind, range, 1, block, 9).unwrap();
        let parts = [0_u16, 1].map(|at| {
            let half = two()[usize::from(at)];
            let mut part: AnyFilter = match kind {
                Kind::Cuckoo => Cuckoo::with_shape(shape(half)).unwrap().into(),
                Kind::Window => Window::with_shape(shape(half)).unwrap().into(),
                _ => Quotient::with_shape(shape(half)).unwrap().into(),
            };
            let numbers: Vec<u16> = (1_000 * at..1_000 * (at + 1)).collect();
            let outcomes = items(half, &numbers).into_iter().map(|item| part.insert(item));
            assert!(
                outcomes
                    .into_iter()
                    .any(|outcome| matches!(outcome, Err(InsertError::Full { .. })))
            );
            part
        });
        let refused = parts[0].join(&parts[1]);
        assert_eq!(refused, Err(FilterJoinError::Full { kind, border }));
    }
    let full = FilterJoinError::Full { kind: Kind::Window, border };
    let text =
        "the block of hash 9223372036854775808 has no room for what both window filters have in it";
    assert_eq!(full.to_string(), text);
}

/// Levels of ten items and of twenty, five and ten of each half: of nine items of the lower half four, and of twelve of
/// the upper one seven are in the second level.
#[test]
fn levels_add_up() {
    let parts = [(0, 9), (1, 12)].map(|(at, count)| {
        let mut part = Scalable::new(two()[at], 10, 0.001).unwrap();
        let numbers: Vec<u16> = (0..count).collect();
        for item in items(two()[at], &numbers) {
            part.insert(item).unwrap();
        }
        AnyFilter::from(part)
    });
    assert_eq!(parts.each_ref().map(counts), [vec![5, 4], vec![5, 7]]);
    let joined = parts[0].join(&parts[1]).unwrap();
    assert_eq!(counts(&joined), [10, 11]);
    // A level that one of the two has not opened is empty there.
    let empty = AnyFilter::from(Scalable::new(two()[1], 10, 0.001).unwrap());
    assert_eq!(counts(&parts[0].join(&empty).unwrap()), [5, 4]);
    assert!(is_loadable(&joined));
}

/// A level of one item takes one in each of two parts. The bits prove both, and the filter is one all the same.
#[test]
fn a_level_may_have_more_than_it_is_made_for() {
    let parts = [0, 1].map(|at| {
        let half = two()[usize::from(at)];
        let mut part = Scalable::new(half, 1, 0.01).unwrap();
        part.insert(items(half, &[at])[0]).unwrap();
        AnyFilter::from(part)
    });
    let joined = parts[0].join(&parts[1]).unwrap();
    assert_eq!(counts(&joined), [2]);
    assert!(is_loadable(&joined));
    assert_eq!(joined.room(), Some(0));
    let AnyFilter::Scalable(mut joined) = joined else { panic!("another kind") };
    joined.insert(items(HashRange::WHOLE, &[8])[0]).unwrap();
    assert_eq!(counts(&joined.into()), [2, 1]);
}

/// The number of the next insert is one that neither has used.
#[test]
fn stable_filters_go_on_with_the_larger_count() {
    let [lower, upper] = two();
    let numbers: Vec<u16> = (0..9).collect();
    let low = filled(Kind::Stable, lower, &items(lower, &numbers));
    let high = filled(Kind::Stable, upper, &items(upper, &numbers[..5]));
    let AnyFilter::Stable(joined) = low.join(&high).unwrap() else { panic!("another kind") };
    assert_eq!(joined.counts(), [9, 0]);
}

/// One half has just turned, and the other one is about to: the older items of the first stay as long as they would
/// have.
#[test]
fn aging_filters_turn_when_the_later_one_would() {
    // A generation of each is of 20 items, and one of both of 40.
    for turned in [0, 1] {
        let numbers: Vec<u16> = (0..21).collect();
        let first = items(two()[turned], &numbers);
        let part = filled(Kind::Aging, two()[turned], &first);
        let other =
            filled(Kind::Aging, two()[1 - turned], &items(two()[1 - turned], &numbers[..19]));
        assert_eq!((counts(&part), counts(&other)), (vec![1, 20], vec![19, 0]));
        let ordered = |part: &AnyFilter, other: &AnyFilter| {
            if turned == 0 { part.join(other) } else { other.join(part) }.unwrap()
        };
        let mut joined = ordered(&part, &other);
        // One item of a half is as one of two halves, and what a second one would be before it comes.
        assert_eq!(counts(&joined), [4, 20]);
        let numbers: Vec<u16> = (100..136).collect();
        insert(&mut joined, &items(HashRange::WHOLE, &numbers));
        assert!(first.iter().all(|&item| joined.contains(item)), "no turn before 36 more");
        // A half whose older generation is empty has nothing to lose.
        let idle = empty(Kind::Aging, two()[turned]);
        assert_eq!(counts(&ordered(&idle, &other)), [19, 0]);
    }
}

/// A table's only page is divided. What each part took is there once of each, and what was there before twice.
#[test]
fn copies_of_a_divided_page_add_up() {
    let shape = |kind, block, k| BlockShape::new(kind, HashRange::WHOLE, 1, block, k).unwrap();
    let cuckoo = Cuckoo::with_shape(shape(Kind::Cuckoo, 512, 9)).unwrap();
    // Of 64 quotients with remainders of one bit, a position has 2^57 hashes, and both items have the first one.
    let quotient = Quotient::with_shape(shape(Kind::Quotient, 64, 1)).unwrap();
    let [low, high] = [ItemHash::new(7, 5), ItemHash::new((1 << 56) + 7, 5)];
    let copies = |filter: &AnyFilter, item| match filter {
        AnyFilter::Cuckoo(filter) => filter.copies(item),
        AnyFilter::Quotient(filter) => filter.copies(item),
        other => panic!("{}", other.kind()),
    };
    for whole in [AnyFilter::from(cuckoo), AnyFilter::from(quotient)] {
        let halves = cut(HashRange::WHOLE, 1 << 56);
        let mut parts = halves.map(|half| whole.part(half).unwrap());
        parts[0].insert(low).unwrap();
        parts[1].insert(high).unwrap();
        let mut joined = parts[0].join(&parts[1]).unwrap();
        assert_eq!((copies(&joined, low), copies(&joined, high)), (2, 2));
        assert_eq!(joined.remove(low), Ok(Removal::Removed));
        assert!(joined.contains(high));
        let parts = halves.map(|half| joined.part(half).unwrap());
        assert_eq!(copies(&parts[0].join(&parts[1]).unwrap(), high), 2);
    }
}

/// An item that came again in one part is in the later of its slices, in whichever part that is.
#[test]
fn a_window_keeps_the_later_slice() {
    let shape = BlockShape::new(Kind::Window, HashRange::WHOLE, 1, 512, 9).unwrap();
    for half in two() {
        let mut whole = Window::with_shape(shape).unwrap();
        whole.advance(100, 104);
        let item = items(half, &[7])[0];
        whole.insert_at(item, 101, Sighting::Last).unwrap();
        let parts = two().map(|range| {
            let AnyFilter::Window(mut part) = AnyFilter::from(whole.clone()).part(range).unwrap()
            else {
                panic!("another kind")
            };
            if range == half {
                part.insert_at(item, 104, Sighting::Last).unwrap();
            }
            AnyFilter::from(part)
        });
        let AnyFilter::Window(joined) = parts[0].join(&parts[1]).unwrap() else { panic!() };
        assert_eq!((joined.slice_of(item), joined.item_count()), (Some(104), 1));
    }
}

/// Slices have the same numbers in both; what the one behind still has stays, as far as slices can be told apart.
#[test]
fn windows_are_joined_slice_by_slice() {
    let [lower, upper] = two();
    let window = |half, (oldest, newest): (u64, u64), slices: &[u64]| {
        let AnyFilter::Window(mut window) = empty(Kind::Window, half) else { panic!() };
        window.advance(oldest, newest);
        for &slice in slices {
            let number = u16::try_from(slice).unwrap();
            let item = items(half, &[number])[0];
            window.insert_at(item, slice, Sighting::First).unwrap();
        }
        AnyFilter::from(window)
    };
    let joined = |low: &AnyFilter, high: &AnyFilter| {
        let AnyFilter::Window(joined) = low.join(high).unwrap() else { panic!("another kind") };
        joined
    };
    let low = window(lower, (100, 124), &[100, 104, 124, 125]);
    let high = window(upper, (110, 134), &[110, 124, 135]);
    let both = joined(&low, &high);
    assert_eq!((both.oldest(), both.newest(), both.item_count()), (100, 134, 7));
    let slices = [100, 104, 110, 124, 125, 135].map(|slice| both.slice_item_count(slice));
    assert_eq!(slices, [1, 1, 1, 2, 1, 1]);
    assert_eq!(both.slice_of(items(lower, &[104])[0]), Some(104));
    // 63 slices, with the one ahead 64, may be told apart: those of the lower one up to 120 end.
    let high = window(upper, (160, 183), &[183]);
    let both = joined(&low, &high);
    assert_eq!((both.oldest(), both.newest(), both.item_count()), (121, 183, 3));
    assert_eq!(both.slice_of(items(lower, &[124])[0]), Some(124));
    // One that never had an item has nothing to keep, whatever its clock shows.
    let both = joined(&empty(Kind::Window, lower), &high);
    assert_eq!((both.oldest(), both.newest(), both.item_count()), (160, 183, 1));
}
