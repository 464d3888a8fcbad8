//! The laws of [`AnyFilter::join`], for every kind that has parts.

use proptest::prelude::*;
use umbel_filter::{
    AnyFilter, Blocked, Contains, Describe, FilterJoinError, FilterLevel, HashRange, ItemHash,
    Kind, Removal, Scalable, Shape,
};

use super::{arrays, counts, empty, filled, insert, inside, items, kinds, numbers, of, same};

/// A range, and the two that a border inside it makes.
fn halves() -> impl Strategy<Value = (HashRange, [HashRange; 2])> {
    let whole = prop_oneof![2 => Just(HashRange::WHOLE), 1 => inside(HashRange::WHOLE)];
    let wide = whole.prop_filter("a range of one hash has no border", |range| range.width() > 1);
    let half = prop_oneof![1 => Just(1 << 63), 2 => any::<u64>()];
    (wide, half).prop_map(|(range, at)| {
        let offset = 1 + ((u128::from(at) * (range.width() - 1)) >> 64);
        (range, cut(range, u128::from(range.start()) + offset))
    })
}

pub(crate) fn cut(range: HashRange, border: u128) -> [HashRange; 2] {
    let lower = HashRange::new(range.start(), border).unwrap();
    [lower, HashRange::new(u64::try_from(border).unwrap(), range.end()).unwrap()]
}

/// The join; None where a block has no room for both, which only tables may say.
fn join(lower: &AnyFilter, upper: &AnyFilter) -> Option<AnyFilter> {
    match lower.join(upper) {
        Ok(joined) => Some(joined),
        Err(FilterJoinError::Full {
            kind: Kind::Cuckoo | Kind::Window | Kind::Quotient, ..
        }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Counts of a scalable filter's levels lie within what their bits can be of, and so the filter is one.
pub(crate) fn is_loadable(filter: &AnyFilter) -> bool {
    let AnyFilter::Scalable(filter) = filter else { return true };
    let level = |level: &FilterLevel| (level.filter().clone(), level.item_count());
    let levels: Vec<(Blocked, u64)> = filter.levels().iter().map(level).collect();
    Scalable::from_levels(filter.scalable_shape(), levels).as_ref() == Ok(filter)
}

fn position_of_border(filter: &AnyFilter, border: u64) -> Option<u64> {
    let AnyFilter::Quotient(quotient) = filter else { return None };
    let shape = quotient.block_shape();
    let bits = shape.block_bits().trailing_zeros() + shape.probe_count();
    let place = |hi: u64| {
        let product = u128::from(hi) * u128::from(shape.map().block_count());
        u64::try_from(product >> (64 - bits)).unwrap()
    };
    (place(border) == place(border - 1)).then(|| place(border))
}

proptest! {
    /// What was cut answers as before once it is joined, with the same bits; but copies that a removal takes away are
    /// counted twice in the block that the border divides.
    #[test]
    fn parts_join_to_the_whole(
        (range, halves) in halves(), inserted in numbers(), asked in numbers(),
    ) {
        for kind in kinds() {
            let inserted = items(range, &inserted);
            let whole = filled(kind, range, &inserted);
            let parts = halves.map(|half| whole.part(half).unwrap());
            let Some(joined) = join(&parts[0], &parts[1]) else {
                // All of it in one page, and more than half full.
                same(kind, kind == Kind::Cuckoo && inserted.len() > 100, "it is full")?;
                continue;
            };
            prop_assert_eq!(joined.shape(), whole.shape());
            same(kind, is_loadable(&joined), "no filter")?;
            for item in inserted.iter().copied().chain(items(range, &asked)) {
                same(kind, joined.contains(item) == whole.contains(item), "another answer")?;
            }
            match (&joined, &whole) {
                (AnyFilter::Counting(joined), AnyFilter::Counting(whole)) => {
                    same(kind, joined.to_blocked() == whole.to_blocked(), "other counters")?;
                }
                (AnyFilter::Cuckoo(joined), AnyFilter::Cuckoo(whole)) => {
                    for &item in &inserted {
                        let (copies, least) = (joined.copies(item), whole.copies(item));
                        same(kind, (least..=7.min(2 * least)).contains(&copies), "other copies")?;
                    }
                }
                (AnyFilter::Quotient(joined), AnyFilter::Quotient(all)) => {
                    prop_assert!(joined.positions().eq(all.positions()));
                    prop_assert_eq!(joined.taken_count(), all.taken_count());
                    let border = position_of_border(&whole, halves[1].start());
                    let is_divided = all.positions().any(|position| Some(position) == border);
                    same(kind, is_divided || joined == all, "other counts")?;
                }
                (AnyFilter::Scalable(_), _) => {
                    same(kind, arrays(&joined) == arrays(&whole), "other bits")?;
                }
                _ => same(kind, joined == whole, "another filter")?,
            }
        }
    }

    /// Cut where blocks begin, or positions, parts join to exactly what they were.
    #[test]
    fn parts_of_whole_blocks_join_to_the_whole(numbers in numbers(), at in any::<u64>()) {
        let range = HashRange::WHOLE;
        for kind in kinds() {
            let whole = filled(kind, range, &items(range, &numbers));
            let border = match whole.shape() {
                Shape::SingleShot(shape) => shape.first_hi(1 + at % (shape.width() - 1)).unwrap(),
                Shape::Blocks(shape) => {
                    let blocks = 1 + at % (shape.map().len() - 1);
                    u64::try_from(shape.map().range_of_blocks(0..blocks).end()).unwrap()
                }
                // Its levels have other blocks each.
                _ => continue,
            };
            let parts = cut(range, border.into()).map(|half| whole.part(half).unwrap());
            same(kind, parts[0].join(&parts[1]).as_ref() == Ok(&whole), "another filter")?;
        }
    }

    /// Parts that were cut, or created empty, and went on: what is in one of them is in the join, and nothing else that is
    /// in none. The join is a filter as any other: it takes more, and has parts.
    #[test]
    fn a_join_contains_what_either_contains(
        (range, halves) in halves(), before in numbers(), after in [numbers(), numbers()],
        last in numbers(), is_cut: bool,
    ) {
        let before = items(range, &before);
        let after = [items(halves[0], &after[0]), items(halves[1], &after[1])];
        for kind in kinds() {
            let whole = filled(kind, range, &before);
            let parts = [0, 1].map(|at| {
                let half = halves[at];
                let mut part = if is_cut { whole.part(half).unwrap() } else { empty(kind, half) };
                insert(&mut part, &after[at]);
                part
            });
            let Some(mut joined) = join(&parts[0], &parts[1]) else { continue };
            same(kind, is_loadable(&joined), "no filter")?;
            let created = empty(kind, range);
            prop_assert_eq!(joined.shape(), created.shape());
            if matches!(joined.shape(), Shape::Blocks(_)) {
                let bytes = [&joined, &created].map(|filter| filter.describe().memory_bytes);
                prop_assert_eq!(bytes[0], bytes[1]);
            }
            for (half, part) in halves.into_iter().zip(&parts) {
                let again = joined.part(half).unwrap();
                same(kind, is_loadable(&again), "a part is no filter")?;
                for &item in before.iter().chain(&after[0]).chain(&after[1]) {
                    if part.contains(item) {
                        same(kind, joined.contains(item), "an item is missing")?;
                        same(kind, again.contains(item), "an item of the part is missing")?;
                    }
                }
            }
            let sums: Vec<u64> = counts(&parts[0]).iter().zip(counts(&parts[1])).map(|(a, b)| a + b).collect();
            if let ([_, older], [newer_sum, older_sum]) = (&counts(&joined)[..], &sums[..])
                && kind == Kind::Aging
            {
                prop_assert!(older == older_sum && counts(&joined)[0] <= *newer_sum);
            }
            let last = items(range, &last);
            let outcomes = insert(&mut joined, &last);
            if let (Some(&item), Some(Some(_))) = (last.last(), outcomes.last()) {
                same(kind, joined.contains(item), "what came last is missing")?;
            }
        }
    }

    /// What was inserted and not removed stays, whatever else is removed from parts and from the join.
    #[test]
    fn removals_from_a_join_take_nothing_else(
        (range, halves) in halves(), before in numbers(), after in [numbers(), numbers()],
        is_cut: bool, picks in any::<[u64; 2]>(),
    ) {
        for kind in kinds().filter(|kind| kind.removes()) {
            let mut whole = empty(kind, range);
            let mut inside = Vec::new();
            let keep = |filter: &mut AnyFilter, items: Vec<ItemHash>, inside: &mut Vec<ItemHash>| {
                let outcomes = insert(filter, &items);
                inside.extend(items.into_iter().zip(outcomes).filter_map(|(item, put)| put.map(|_| item)));
            };
            if is_cut {
                keep(&mut whole, items(range, &before), &mut inside);
            }
            let mut parts = halves.map(|half| whole.part(half).unwrap());
            let picked = |pick: u64| move |at: usize| pick >> (at % 64) & 1 == 1;
            for (at, half) in halves.into_iter().enumerate() {
                let (mut ours, rest) = split(std::mem::take(&mut inside), |_, item| half.contains(item.hi()));
                keep(&mut parts[at], items(half, &after[at]), &mut ours);
                let (left, kept) = split(ours, |at, _| picked(picks[0])(at));
                for item in left {
                    same(kind, parts[at].remove(item) == Ok(Removal::Removed), "absent in the part")?;
                }
                inside = [rest, kept].concat();
            }
            let Some(mut joined) = join(&parts[0], &parts[1]) else { continue };
            let (left, kept) = split(inside, |at, _| picked(picks[1])(at));
            for item in left {
                same(kind, joined.remove(item) == Ok(Removal::Removed), "absent")?;
            }
            for item in kept {
                same(kind, joined.contains(item), "a removal took another item")?;
            }
        }
    }

    /// In which order three are joined is seen by nobody.
    #[test]
    fn joins_of_three_are_one((range, halves) in halves(), numbers in numbers(), at in any::<u64>()) {
        let upper = halves[1];
        prop_assume!(upper.width() > 1);
        let offset = 1 + ((u128::from(at) * (upper.width() - 1)) >> 64);
        let [middle, last] = cut(upper, u128::from(upper.start()) + offset);
        for kind in kinds().filter(|&kind| kind != Kind::Cuckoo) {
            let tiles = [halves[0], middle, last].map(|tile| filled(kind, tile, &of(tile, &items(range, &numbers))));
            let left = join(&tiles[0], &tiles[1]).and_then(|low| join(&low, &tiles[2]));
            let right = join(&tiles[1], &tiles[2]).and_then(|high| join(&tiles[0], &high));
            let (Some(left), Some(right)) = (left, right) else { continue };
            // Where a fingerprint lies in its two buckets is all that may differ.
            if let (AnyFilter::Window(left), AnyFilter::Window(right)) = (&left, &right) {
                for item in items(range, &numbers) {
                    prop_assert_eq!(left.slice_of(item), right.slice_of(item));
                }
                prop_assert_eq!(left.item_count(), right.item_count());
            } else {
                same(kind, arrays(&left) == arrays(&right), "other bits")?;
            }
        }
    }

    /// A quotient filter that has grown joins one that has not.
    #[test]
    fn quotient_filters_join_grown_ones(
        (range, halves) in halves(), numbers in numbers(), times in [0..3_u32, 0..3],
    ) {
        let inserted = items(range, &numbers);
        let parts = [0, 1].map(|at| {
            let half = halves[at];
            let AnyFilter::Quotient(mut part) = filled(Kind::Quotient, half, &of(half, &inserted)) else {
                panic!("another kind")
            };
            (0..times[at]).for_each(|_| part.grow().unwrap());
            part
        });
        let most = parts.iter().max_by_key(|part| part.block_shape().position_count()).unwrap();
        let mut expected: Vec<u64> = parts.iter().flat_map(umbel_filter::Quotient::positions).collect();
        expected.dedup();
        let [lower, upper] = parts.clone().map(AnyFilter::from);
        let Some(AnyFilter::Quotient(joined)) = join(&lower, &upper) else { return Ok(()) };
        prop_assert!(joined.positions().eq(expected));
        prop_assert!(parts.iter().all(|part| joined.block_shape().probe_count() <= part.block_shape().probe_count()));
        prop_assert!(joined.block_shape().position_count() >= most.block_shape().position_count());
        for item in inserted {
            if lower.contains(item) || upper.contains(item) {
                prop_assert!(joined.contains(item));
            }
        }
    }
}

/// Those that are picked, and the others.
fn split(
    items: Vec<ItemHash>,
    pick: impl Fn(usize, &ItemHash) -> bool,
) -> (Vec<ItemHash>, Vec<ItemHash>) {
    let (picked, rest): (Vec<_>, Vec<_>) =
        items.into_iter().enumerate().partition(|(at, item)| pick(*at, item));
    let items = |numbered: Vec<(usize, ItemHash)>| numbered.into_iter().map(|(_, item)| item);
    (items(picked).collect(), items(rest).collect())
}
