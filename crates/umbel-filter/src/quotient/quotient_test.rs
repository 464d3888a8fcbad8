//! Quotient filters beside sorted multisets of positions, their laws, and full ones.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::hash::ItemHasher;
use crate::merge_error::MergeError;
use crate::range::CellCount;
use crate::shape::ShapeError;
use crate::single_shot_shape::SingleShotShape;
use crate::sizing::single_shot_false_positive_rate;
use crate::stored_single_shot::StoredSingleShot;
use crate::table_error::{TableLoadError, TablePartError};

fn hash(number: u64) -> ItemHash {
    ItemHasher::Xxh3 { seed: 5 }.hash(&number.to_le_bytes())
}

fn hashes(numbers: &[u64]) -> Vec<ItemHash> {
    numbers.iter().map(|&number| hash(number)).collect()
}

/// Pages of so many quotients with remainders and counts of so many bits.
fn shape(pages: u64, page_slots: u32, remainder_bits: u32, count_bits: u32) -> BlockShape {
    let range = HashRange::WHOLE;
    let shape = BlockShape::new(Kind::Quotient, range, pages, page_slots, remainder_bits);
    shape.unwrap().with_count_bits(count_bits).unwrap()
}

fn empty(shape: BlockShape) -> Quotient {
    Quotient::with_shape(shape).unwrap()
}

fn filled(shape: BlockShape, numbers: &[u64]) -> Quotient {
    let mut filter = empty(shape);
    for &number in numbers {
        filter.insert(hash(number)).unwrap();
    }
    filter
}

/// Few bits, so that items share positions, and many; one page, and several that are no power of two.
fn shapes() -> impl Strategy<Value = BlockShape> {
    (
        prop_oneof![Just(1_u64), Just(5)],
        6..9_u32,
        prop_oneof![Just(1_u32), Just(4), Just(30)],
        0..4_u32,
    )
        .prop_map(|(pages, slots, remainder, count)| shape(pages, 1 << slots, remainder, count))
}

fn numbers() -> impl Strategy<Value = Vec<u64>> {
    vec(0..60_u64, 0..100)
}

/// The position of an item, and how often it is in a multiset.
fn multiset(shape: BlockShape, numbers: &[u64]) -> BTreeMap<u64, u64> {
    let mut twin = BTreeMap::new();
    for &number in numbers {
        let m = u128::from(shape.map().block_count() * u64::from(shape.block_bits()));
        let m = m << shape.probe_count();
        let position = u64::try_from((u128::from(hash(number).hi()) * m) >> 64).unwrap();
        *twin.entry(position).or_insert(0) += 1;
    }
    twin
}

proptest! {
    /// The slow twin: a sorted multiset of positions that counts to 2^v; and the order does not show.
    #[test]
    fn a_quotient_filter_is_a_multiset_of_positions(shape in shapes(), numbers in numbers()) {
        let filter = filled(shape, &numbers);
        let twin = multiset(shape, &numbers);
        prop_assert!(filter.positions().eq(twin.keys().copied()));
        prop_assert_eq!(filter.taken_count(), twin.len() as u64);
        for number in 0..120 {
            let (position, _) = multiset(shape, &[number]).pop_first().unwrap();
            let copies = twin.get(&position).copied().unwrap_or_default();
            prop_assert_eq!(filter.position(hash(number)), Some(position));
            prop_assert_eq!(filter.contains(hash(number)), copies > 0);
            prop_assert_eq!(filter.copies(hash(number)), copies.min(1 << shape.count_bits()));
        }
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        prop_assert_eq!(&filled(shape, &sorted), &filter);
        sorted.reverse();
        prop_assert_eq!(&filled(shape, &sorted), &filter);
    }

    /// A single-shot filter of equal m has the same positions.
    #[test]
    fn positions_are_those_of_a_single_shot_filter(shape in shapes(), numbers in numbers()) {
        let m = shape.position_count() << shape.probe_count();
        let mut single = StoredSingleShot::new(SingleShotShape::new(HashRange::WHOLE, m).unwrap());
        single.extend(hashes(&numbers));
        prop_assert!(filled(shape, &numbers).positions().eq(single.positions()));
    }

    /// k inserts need k removals, below the sticky value; then nothing is left of them.
    #[test]
    fn as_many_removals_as_inserts(shape in shapes(), kept in numbers(), gone in numbers()) {
        let before = filled(shape, &kept);
        let all = [&kept[..], &gone[..]].concat();
        let mut filter = filled(shape, &all);
        let most = 1 << shape.count_bits();
        prop_assume!(multiset(shape, &all).values().all(|&copies| copies < most));
        for &number in gone.iter().rev() {
            prop_assert_eq!(filter.remove(hash(number)), Ok(Removal::Removed));
        }
        prop_assert_eq!(filter, before);
    }

    /// 2^v copies are as many as are counted, and stay.
    #[test]
    fn the_last_copy_is_sticky(shape in shapes(), number: u64) {
        let most = 1 << shape.count_bits();
        let mut filter = empty(shape);
        for copies in 1..most + 3 {
            filter.insert(hash(number)).unwrap();
            prop_assert_eq!(filter.copies(hash(number)), most.min(copies));
        }
        let full = filter.clone();
        for _ in 0..most + 3 {
            prop_assert_eq!(filter.remove(hash(number)), Ok(Removal::Removed));
        }
        prop_assert_eq!(filter, full);
    }

    /// A merge is what inserting both gives, in words; so it is commutative and associative, and of sets
    /// idempotent.
    #[test]
    fn merging_is_inserting(shape in shapes(), a in numbers(), b in numbers()) {
        let (ours, theirs) = (filled(shape, &a), filled(shape, &b));
        let mut union = ours.clone();
        let new_count = union.merge(&theirs).unwrap();
        prop_assert_eq!(union.taken_count(), ours.taken_count() + new_count);
        prop_assert_eq!(&union, &filled(shape, &[&a[..], &b[..]].concat()));
        let mut other = theirs.clone();
        other.merge(&ours).unwrap();
        prop_assert_eq!(&other, &union);
        if shape.count_bits() == 0 {
            prop_assert_eq!(other.merge(&ours), Ok(0));
            prop_assert_eq!(&other, &union);
        }
        let mut same = ours.clone();
        prop_assert_eq!(same.merge(&empty(shape)), Ok(0));
        prop_assert_eq!(same, ours);
    }

    /// Growing keeps positions and copies, and gives the filter of all items with twice the quotients.
    #[test]
    fn growing_keeps_positions(shape in shapes(), numbers in numbers()) {
        let before = filled(shape, &numbers);
        let mut filter = before.clone();
        let mut remainder_bits = shape.probe_count();
        while filter.grow().is_ok() {
            remainder_bits -= 1;
            let grown = filter.block_shape();
            prop_assert_eq!(grown.probe_count(), remainder_bits);
            prop_assert!(filter.positions().eq(before.positions()));
            prop_assert_eq!(&filter, &filled(grown, &numbers));
            prop_assert!(shape.growths().any(|growth| growth == grown));
            if remainder_bits < shape.probe_count().saturating_sub(4) {
                break;
            }
        }
        if remainder_bits == 1 {
            prop_assert_eq!(filter.grow(), Err(QuotientGrowError::NoRemainder));
        }
    }

    /// Slices at the borders of pages, joined, are the filter; each is that of its items, wherever it is cut.
    #[test]
    fn slices_join(slots in 6..8_u32, numbers in numbers(), cut in 1..u64::MAX) {
        let shape = shape(4, 1 << slots, 5, 2);
        let filter = filled(shape, &numbers);
        let mut joined = empty(shape);
        for cell in 0..4 {
            let range = HashRange::cell(cell, CellCount::new(4).unwrap());
            let slice = filter.slice(range).unwrap();
            let inside = |number: &u64| range.contains(hash(*number).hi());
            let items: Vec<u64> = numbers.iter().copied().filter(inside).collect();
            let part = shape.with_range(range).unwrap();
            prop_assert_eq!(&slice, &filled(part, &items));
            let loaded = joined.load_part(part, slice.words()).unwrap();
            prop_assert_eq!(Quotient::check_part(part, slice.words()), Ok(loaded));
            prop_assert_eq!(loaded, slice.taken_count());
            if loaded > 0 {
                let item_count = loaded;
                let refused = joined.load_part(part, slice.words());
                prop_assert_eq!(refused, Err(TableLoadError::NotEmpty { item_count }));
            }
        }
        prop_assert_eq!(&joined, &filter);
        for range in [HashRange::new(0, cut.into()).unwrap(), HashRange::new(cut, 1 << 64).unwrap()] {
            let slice = filter.slice(range).unwrap();
            for &number in &numbers {
                let is_in = range.contains(hash(number).hi());
                let expected = u64::from(is_in) * filter.copies(hash(number));
                prop_assert_eq!(slice.copies(hash(number)), expected);
            }
            let whole = slice.slice(HashRange::WHOLE);
            prop_assert!(matches!(whole, Err(QuotientSliceError::Shape(_))));
        }
    }

    /// All or none: what was inserted before the item that does not fit is out again, word by word.
    #[test]
    fn items_that_do_not_all_fit_are_none(first in vec(0..300_u64, 0..150), count_bits in 0..3_u32) {
        let mut filter = filled(shape(1, 64, 20, count_bits), &[]);
        let mut outcomes = Vec::new();
        let first = hashes(&first);
        let _ = filter.insert_all(&first, &mut outcomes);
        let before = filter.clone();
        let more: Vec<ItemHash> = (250..400).map(hash).collect();
        let refused = filter.insert_all(&more, &mut outcomes);
        let is_full = matches!(refused, Err(InsertError::Full { .. }));
        prop_assert!(is_full && outcomes.is_empty());
        prop_assert_eq!(filter, before);
    }
}

/// Inserts numbers from 0 on until one is refused, which changes no word, and returns it.
fn fill(filter: &mut Quotient) -> u64 {
    for number in 0.. {
        let was_full = filter.taken_count() + 40 > filter.shape.position_count();
        let before = was_full.then(|| filter.clone());
        if let Err(error) = filter.insert(hash(number)) {
            assert_eq!(error, InsertError::Full { item_count: filter.taken_count() });
            assert_eq!(Some(&*filter), before.as_ref());
            return number;
        }
    }
    unreachable!("a filter is full at some point")
}

/// At the planned load nothing is refused, in pages of any size, and the rate is as planned.
#[test]
fn what_was_planned_for_fits_at_the_planned_rate() {
    for (item_count, rate) in [(60_u64, 0.01), (481, 0.001), (20_000, 0.01), (300_000, 0.001)] {
        let mut filter = Quotient::for_rate(HashRange::WHOLE, item_count, rate).unwrap();
        for number in 0..item_count {
            filter.insert(hash(number)).unwrap();
        }
        assert!((0..item_count).all(|number| filter.contains(hash(number))));
        let asked = 400_000_u64;
        let others = (0..asked).filter(|number| filter.contains(hash(1 << 40 | number))).count();
        let description = filter.describe();
        let expected = description.false_positive_rate * asked as f64;
        assert!(expected <= 1.1 * rate * asked as f64, "{item_count}");
        let deviation = (others as f64 - expected) / expected.sqrt();
        assert!(deviation.abs() < 5.0, "{item_count}: {others}, expected {expected}");
        let estimate = description.item_count.unwrap();
        let error = (estimate.item_count - item_count as f64) / estimate.standard_error.max(1.0);
        assert!(error.abs() < 5.0, "{item_count}: {estimate:?}");
    }
}

/// A full filter refuses, has changed nothing, forgets nothing, and takes an item again when some are out; and when it
/// has grown.
#[test]
fn a_full_filter_refuses_until_items_leave_or_it_grows() {
    for page_slots in [64, 512, 1 << 13] {
        let mut filter = empty(shape(1, page_slots, 20, 2));
        let count = fill(&mut filter);
        assert!(count as f64 > 0.94 * f64::from(page_slots), "{count} of {page_slots}");
        assert!((0..count).all(|number| filter.contains(hash(number))));
        let mut larger = filter.clone();
        larger.grow().unwrap();
        assert_eq!(larger.insert(hash(count)), Ok(Insertion::New));
        assert!((0..=count).all(|number| larger.contains(hash(number))));
        for number in 0..count {
            assert_eq!(filter.remove(hash(number)), Ok(Removal::Removed));
            if number == count / 4 {
                assert_eq!(filter.insert(hash(count)), Ok(Insertion::New));
            }
        }
        assert_eq!(filter.remove(hash(count)), Ok(Removal::Removed));
        assert_eq!(filter, empty(shape(1, page_slots, 20, 2)));
    }
}

/// Merging more than there is room for changes nothing, nor does another shape.
#[test]
fn what_is_too_much_to_merge_is_refused() {
    let numbers: Vec<u64> = (0..900).collect();
    let mut ours = filled(shape(1, 512, 20, 2), &numbers[..450]);
    let theirs = filled(shape(1, 512, 20, 2), &numbers[450..]);
    let before = ours.clone();
    assert!(matches!(ours.merge(&theirs), Err(MergeError::Full(_))));
    for other in [shape(1, 512, 20, 1), shape(1, 512, 19, 2), shape(2, 512, 20, 2)] {
        assert!(matches!(ours.merge(&empty(other)), Err(MergeError::Shape(_))));
    }
    assert_eq!(ours, before);
}

/// What is no quotient filter's words or shape is refused, and named.
#[test]
fn words_and_shapes_of_no_quotient_filter_are_refused() {
    let good = shape(1, 64, 4, 2);
    // One word of offsets, and two blocks of 2 + 6.
    let words = vec![0; 24];
    assert_eq!(Quotient::check_part(good, &words), Ok(0));
    let short = TablePartError::Length { kind: Kind::Quotient, expected: 24, actual: 23 };
    assert_eq!(Quotient::check_part(good, &words[1..]), Err(short));
    let cuckoo = BlockShape::new(Kind::Cuckoo, HashRange::WHOLE, 1, 512, 4).unwrap();
    assert!(Quotient::check_part(cuckoo, &words).is_err());
    assert!(Quotient::with_shape(cuckoo).is_err() && cuckoo.with_count_bits(1).is_err());
    let new =
        |pages, slots, bits| BlockShape::new(Kind::Quotient, HashRange::WHOLE, pages, slots, bits);
    assert_eq!(new(1, 192, 10), Err(ShapeError::PageSlots { page_slots: 192 }));
    for block_bits in [0, 32, 100, 1 << 17] {
        assert!(matches!(new(1, block_bits, 10), Err(ShapeError::BlockBits { .. })));
    }
    for probe_count in [0, 41] {
        let refused = ShapeError::ProbeCount { probe_count, probe_count_max: 40 };
        assert_eq!(new(1, 64, probe_count), Err(refused));
    }
    let refused = ShapeError::PositionCount { position_count: 1 << 61 };
    assert_eq!(new(1 << 5, 1 << 16, 40), Err(refused));
    assert!(good.with_count_bits(17).unwrap_err().to_string().contains("17 bits"));
}

/// Whatever words there are, nothing panics, and they are counted.
#[test]
fn words_that_are_rewritten_are_counted_anew() {
    let numbers: Vec<u64> = (0..100).collect();
    let filter = filled(shape(1, 128, 10, 2), &numbers);
    let words = filter.words().to_vec();
    let mut other = empty(shape(1, 128, 10, 2));
    other.rewrite(|ours| ours.copy_from_slice(&words));
    assert_eq!(other, filter);
    other.rewrite(|ours| ours.fill(u64::MAX));
    let _ = (other.insert(hash(1)), other.remove(hash(2)), other.grow(), other.positions().count());
    let _ = (other.clone().merge(&other), other.slice(HashRange::WHOLE));
}

/// Never to change, as stored filters depend on it: kinds of items with known positions.
#[test]
fn golden_positions() {
    let item = ItemHash::new(0xabc0 << 48, 0);
    let mut filter = empty(shape(1, 64, 4, 0));
    assert_eq!(filter.places.place(item.hi()), Place { quotient: 42, remainder: 15 });
    filter.insert(item).unwrap();
    assert!(filter.positions().eq([687]));
    filter.grow().unwrap();
    assert_eq!(filter.places.place(item.hi()), Place { quotient: 85, remainder: 7 });
    assert!(filter.positions().eq([687]));
    let rate = single_shot_false_positive_rate(64 << 4, 512).unwrap();
    assert!((rate - 0.3936).abs() < 0.000_05);
    assert!((shape(1, 64, 4, 0).false_positive_rate(512) - rate).abs() < 1e-12);
}

/// Never to change: the words of a filter with five items, one of them twice.
#[test]
fn golden_words() {
    let mut filter = empty(shape(1, 64, 4, 2));
    let items =
        [0xabc, 0xabc, 0xabd, 0xac0, 0xfff, 0x001].map(|upper| ItemHash::new(upper << 52, 0));
    filter.extend(items);
    let words = filter.words();
    let set = words.iter().enumerate().filter(|(_, word)| **word != 0);
    let set: Vec<(usize, u64)> = set.map(|(at, word)| (at, *word)).collect();
    // Positions 0x2af twice (0xabd is one, too), 0x2b0, 0x3ff and 0: quotients 42, 43, 63 and 0.
    let quotients = 1 | 1 << 42 | 1 << 43 | 1 << 63;
    // Slot 42 has bits 252 to 257: remainder 15 and a count of 2 more; slot 63 the last six of word 5.
    assert_eq!(
        set,
        [(1, quotients), (2, quotients), (6, 0b1110 << 60), (7, 0b11), (8, 0b1111 << 60)]
    );
}
