//! Cuckoo filters beside multisets, full ones, and parts of them.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::hash::ItemHasher;
use crate::range::CellCount;
use crate::shape::ShapeError;
use crate::table_error::{TableLoadError, TablePartError};

fn hash(number: u64) -> ItemHash {
    ItemHasher::Xxh3 { seed: 5 }.hash(&number.to_le_bytes())
}

/// One page of so many slots, with fingerprints of so many bits.
fn page(page_slots: u32, fingerprint_bits: u32) -> Cuckoo {
    let shape =
        BlockShape::new(Kind::Cuckoo, HashRange::WHOLE, 1, page_slots, fingerprint_bits).unwrap();
    Cuckoo::with_shape(shape).unwrap()
}

/// How often each fingerprint is in its pair of buckets, by the lower of them.
fn pairs(filter: &Cuckoo) -> BTreeMap<(usize, u64), u64> {
    let mut pairs = BTreeMap::new();
    for at in 0..index(filter.shape.position_count()) {
        let Slot { fingerprint, .. } = filter.slots.get(filter.words(), at);
        let first = at / BUCKET_SLOTS * BUCKET_SLOTS;
        if fingerprint != 0 {
            let other = filter.places.other_bucket(first, fingerprint);
            *pairs.entry((first.min(other), fingerprint)).or_insert(0) += 1;
        }
    }
    pairs
}

fn pair_of(filter: &Cuckoo, hash: ItemHash) -> (usize, u64) {
    let Place { buckets: [first, second], fingerprint } = filter.place(hash);
    (first.min(second), fingerprint)
}

/// Inserts numbers from 0 on until one is refused, which changes no word, and returns it.
fn fill(filter: &mut Cuckoo) -> u64 {
    for number in 0.. {
        let before = filter.clone();
        match filter.insert(hash(number)) {
            Ok(_) => assert_eq!(filter.item_count(), before.item_count() + 1),
            Err(error) => {
                assert_eq!(error, InsertError::Full { item_count: number });
                assert_eq!(*filter, before);
                return number;
            }
        }
    }
    unreachable!("a filter is full at some point")
}

proptest! {
    /// The slow twin: a multiset of pairs of buckets and fingerprints, which counts to seven. Of 3 bits, so
    /// that items share fingerprints, and of 32.
    #[test]
    fn a_cuckoo_filter_is_a_multiset(
        bits in prop_oneof![Just(3_u32), Just(32)],
        steps in vec((0..40_u64, 0..5_u32), 0..400),
    ) {
        let mut filter = page(512, bits);
        let mut twin = BTreeMap::<(usize, u64), u64>::new();
        for (number, action) in steps {
            let pair = pair_of(&filter, hash(number));
            let copies = twin.get(&pair).copied().unwrap_or_default();
            if action < 3 {
                if copies < 7 && filter.clone().insert(hash(number)).is_err() {
                    // Pairs that share both buckets have eight slots together.
                    continue;
                }
                let expected = if copies == 0 { Insertion::New } else { Insertion::Present };
                prop_assert_eq!(filter.insert(hash(number)), Ok(expected));
                twin.insert(pair, (copies + 1).min(7));
            } else {
                let expected = if copies == 0 { Removal::Absent } else { Removal::Removed };
                prop_assert_eq!(filter.remove(hash(number)), Ok(expected));
                match copies {
                    0 | 7 => {}
                    1 => { twin.remove(&pair); }
                    _ => { twin.insert(pair, copies - 1); }
                }
            }
        }
        prop_assert_eq!(pairs(&filter), twin.clone());
        prop_assert_eq!(filter.item_count(), twin.values().sum::<u64>());
        for number in 0..40 {
            let copies = twin.get(&pair_of(&filter, hash(number))).copied().unwrap_or_default();
            prop_assert_eq!(filter.copies(hash(number)), copies);
            prop_assert_eq!(filter.contains(hash(number)), copies > 0);
        }
    }

    /// A copy of all parts is the filter, and no page is loaded twice.
    #[test]
    fn parts_are_loaded_as_they_were(numbers in vec(0..2_000_u64, 0..300), bits in 1..=32_u32) {
        let shape = BlockShape::new(Kind::Cuckoo, HashRange::WHOLE, 4, 512, bits).unwrap();
        let mut filter = Cuckoo::with_shape(shape).unwrap();
        for number in numbers {
            // Of one bit few pairs of buckets differ in more than their place: some pages are full early.
            let _ = filter.insert(hash(number));
        }
        let mut copy = Cuckoo::with_shape(shape).unwrap();
        let words_of_part = filter.words().len() / 4;
        for cell in 0..4_usize {
            let cells = CellCount::new(4).unwrap();
            let range = HashRange::cell(u32::try_from(cell).unwrap(), cells);
            let part = shape.with_range(range).unwrap();
            let words = &filter.words()[cell * words_of_part..][..words_of_part];
            let loaded = copy.load_part(part, words).unwrap();
            prop_assert_eq!(Cuckoo::check_part(part, words), Ok(loaded));
            let again = copy.load_part(part, words);
            let expected = match loaded {
                0 => Ok(0),
                item_count => Err(TableLoadError::NotEmpty { item_count }),
            };
            prop_assert_eq!(again, expected);
        }
        prop_assert_eq!(copy, filter);
    }

    /// What is taken in from another filter is what inserting its items gives. Three items of one pair of buckets can
    /// be more than its eight places, though nearly all others are free: then either is refused, and changes nothing.
    #[test]
    fn absorbing_is_inserting(
        ours in vec(0..200_u64, 0..100), theirs in vec(0..200_u64, 0..100), bits in 10..=32_u32,
    ) {
        let (mut a, mut b) = (page(512, bits), page(512, bits));
        a.extend(ours.iter().map(|&number| hash(number)));
        b.extend(theirs.iter().map(|&number| hash(number)));
        let (before, mut both) = (a.clone(), a.clone());
        let fits = theirs.iter().all(|&number| both.insert(hash(number)).is_ok());
        match a.absorb(&b) {
            Ok(()) => prop_assert_eq!(pairs(&a), pairs(&both)),
            Err(error) => prop_assert!(!fits && a == before, "{error}"),
        }
    }
}

/// A filter of one item has the items that it does not tell from it, and no others.
#[test]
fn items_of_one_fingerprint_and_pair_of_buckets_are_one() {
    let mut filter = page(512, 3);
    filter.insert(hash(0)).unwrap();
    let kept = |number| filter.bucket_and_fingerprint(hash(number));
    let (present, absent): (Vec<u64>, Vec<u64>) =
        (0..5_000).partition(|&number| filter.contains(hash(number)));
    assert!(present.len() > 1 && present.iter().all(|&number| kept(number) == kept(0)));
    assert!(absent.iter().all(|&number| kept(number) != kept(0)));
    let half = filter.shape.with_range(HashRange::cell(0, CellCount::new(2).unwrap())).unwrap();
    let half = Cuckoo::with_shape(half).unwrap();
    assert_eq!(half.bucket_and_fingerprint(ItemHash::new(u64::MAX, 0)), None);
}

/// The items that [`absorbing_is_inserting`] found to be of one pair of buckets.
#[test]
fn nine_of_one_pair_of_buckets_are_refused() {
    let (mut a, mut b) = (page(512, 25), page(512, 25));
    let pair = |number| {
        let Place { buckets: [x, y], .. } = a.place(hash(number));
        (x.min(y), x.max(y))
    };
    assert!(pair(159) == pair(100) && pair(100) == pair(55));
    for number in [159, 159, 159, 100, 100] {
        a.insert(hash(number)).unwrap();
    }
    for number in [55, 159, 55, 100] {
        b.insert(hash(number)).unwrap();
    }
    let before = a.clone();
    assert_eq!(a.absorb(&b).unwrap_err(), InsertError::Full { item_count: 8 }.into());
    assert_eq!(a, before);
}

/// At the planned load nothing is refused, in pages of any size, and the rate is as planned.
#[test]
fn what_was_planned_for_fits_at_the_planned_rate() {
    for (item_count, rate) in [(100_u64, 0.01), (481, 0.001), (20_000, 0.01), (300_000, 0.001)] {
        let mut filter = Cuckoo::for_rate(HashRange::WHOLE, item_count, rate).unwrap();
        for number in 0..item_count {
            filter.insert(hash(number)).unwrap();
        }
        assert!((0..item_count).all(|number| filter.contains(hash(number))));
        let asked = 400_000_u64;
        let others = (0..asked).filter(|number| filter.contains(hash(1 << 40 | number))).count();
        let expected = filter.describe().false_positive_rate * asked as f64;
        assert!(expected <= rate * asked as f64, "{item_count}");
        let deviation = (others as f64 - expected) / expected.sqrt();
        assert!(deviation.abs() < 5.0, "{item_count}: {others}, expected {expected}");
    }
}

/// A full page refuses, has changed nothing, forgets nothing, and takes an item again when one is taken out.
#[test]
fn a_full_filter_refuses_until_an_item_is_taken_out() {
    for (page_slots, least) in [(512, 0.907), (4096, 0.941), (1 << 14, 0.95)] {
        let mut filter = page(page_slots, 20);
        let count = fill(&mut filter);
        assert!(count as f64 > least * f64::from(page_slots), "{count} of {page_slots}");
        assert!((0..count).all(|number| filter.contains(hash(number))));
        let place = filter.place(hash(count));
        let in_the_way = (0..count)
            .find(|&number| filter.place(hash(number)).buckets.contains(&place.buckets[0]));
        filter.remove(hash(in_the_way.unwrap())).unwrap();
        assert_eq!(filter.insert(hash(count)), Ok(Insertion::New));
        filter.clear();
        assert_eq!(filter, page(page_slots, 20));
    }
}

/// All or none: what was inserted before the item that does not fit is out again, as often as it came in.
#[test]
fn items_that_do_not_all_fit_are_none() {
    let mut filter = page(512, 20);
    filter.extend((0..6).map(|_| hash(1)).chain((2..300).map(hash)));
    let before = pairs(&filter);
    let many: Vec<ItemHash> = (0..3).map(|_| hash(1)).chain((1_000..1_300).map(hash)).collect();
    let mut outcomes = vec![Insertion::New];
    let refused = filter.insert_all(&many, &mut outcomes);
    let item_count = filter.item_count();
    assert_eq!((refused, outcomes.len()), (Err(InsertError::Full { item_count }), 0));
    assert_eq!(pairs(&filter), before);
    // The others fit, of which the first is there six times.
    filter.insert_all(&many[..50], &mut outcomes).unwrap();
    assert_eq!((filter.copies(hash(1)), outcomes.len()), (7, 50));
    assert_eq!(filter.item_count(), before.values().sum::<u64>() + 1 + 47);
}

/// Absorbing more than there is room for changes nothing, nor does another shape.
#[test]
fn what_is_too_much_to_absorb_is_refused() {
    let (mut ours, mut theirs) = (page(512, 20), page(512, 20));
    ours.extend((0..300).map(hash));
    theirs.extend((1_000..1_300).map(hash));
    let before = ours.clone();
    assert!(matches!(ours.absorb(&theirs), Err(MergeError::Full(_))));
    assert!(matches!(ours.absorb(&page(512, 19)), Err(MergeError::Shape(_))));
    assert_eq!(ours, before);
}

/// Seven copies are the most, whatever comes, and stay.
#[test]
fn seven_copies_are_sticky() {
    let mut filter = page(512, 20);
    for expected in [1, 2, 3, 4, 5, 6, 7, 7, 7] {
        filter.insert(hash(1)).unwrap();
        assert_eq!(filter.copies(hash(1)), expected);
    }
    for _ in 0..20 {
        assert_eq!(filter.remove(hash(1)), Ok(Removal::Removed));
        assert_eq!((filter.copies(hash(1)), filter.item_count()), (7, 7));
    }
}

/// What is no cuckoo filter's words or shape is refused, and named.
#[test]
fn words_and_shapes_of_no_cuckoo_filter_are_refused() {
    let shape = page(512, 10).block_shape();
    let words = vec![0; 512 * 10 / 64];
    assert_eq!(Cuckoo::check_part(shape, &words), Ok(0));
    let short = TablePartError::Length { kind: Kind::Cuckoo, expected: 80, actual: 79 };
    assert_eq!(Cuckoo::check_part(shape, &words[1..]), Err(short));
    let window = BlockShape::new(Kind::Window, HashRange::WHOLE, 1, 512, 4).unwrap();
    assert!(Cuckoo::check_part(window, &words).is_err());
    assert!(Cuckoo::with_shape(window).is_err());
    let new =
        |page_slots, bits| BlockShape::new(Kind::Cuckoo, HashRange::WHOLE, 1, page_slots, bits);
    assert_eq!(new(1_536, 10), Err(ShapeError::PageSlots { page_slots: 1_536 }));
    assert!(matches!(new(1 << 17, 10), Err(ShapeError::BlockBits { .. })));
    for probe_count in [0, 33] {
        let refused = ShapeError::ProbeCount { probe_count, probe_count_max: 32 };
        assert_eq!(new(512, probe_count), Err(refused));
    }
}

/// Whatever words there are, nothing panics, and they are counted.
#[test]
fn words_that_are_rewritten_are_counted_anew() {
    let mut filter = page(512, 10);
    assert!((0..100).all(|number| filter.insert(hash(number)).is_ok()));
    let words = filter.words().to_vec();
    let mut other = page(512, 10);
    other.rewrite(|ours| ours.copy_from_slice(&words));
    assert_eq!(other, filter);
    other.rewrite(|ours| ours.fill(u64::MAX));
    assert_eq!(other.item_count(), 512);
    assert!(other.insert(hash(1)).is_err() || other.copies(hash(1)) == 7);
    let _ = other.remove(hash(1));
}

/// Items of a batch are inserted as one by one, up to the one that does not fit.
#[test]
fn batches_are_items_in_order() {
    let hashes: Vec<ItemHash> = (0..700).map(|number| hash(number % 600)).collect();
    let (mut one, mut many) = (page(512, 20), page(512, 20));
    let mut outcomes = Vec::new();
    let refused = many.insert_batch(&hashes, &mut outcomes);
    assert!(matches!(refused, Err(InsertError::Full { .. })));
    for (&hash, &outcome) in hashes.iter().zip(&outcomes) {
        assert_eq!(one.insert(hash), Ok(outcome));
    }
    assert_eq!(one, many);
}

/// Never to change: the words of a filter with five items.
#[test]
fn golden_words() {
    let mut filter = page(512, 8);
    filter.extend((1..=5_u64).map(|number| ItemHash::new(0, number << 61 | number)));
    let words = filter.words();
    let set = words.iter().enumerate().filter(|(_, word)| **word != 0);
    let set: Vec<(usize, u64)> = set.map(|(at, word)| (at, *word)).collect();
    assert_eq!(set, [(0, 32 << 32), (1, 96 << 32 | 64), (2, 160 << 32 | 128)]);
}

/// How full pages get before they refuse an item, by their size: what `PAGE_LOAD_MAX` is drawn from.
/// `cargo test -p umbel-filter --lib loads_at -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn loads_at_the_first_refusal() {
    for page_slots in [512, 1024, 2048, 4096, 8192, 16_384, 65_536] {
        let load_of = |run: u64| {
            let mut filter = page(page_slots, 10);
            let mut numbers = run << 32..;
            while numbers.next().is_some_and(|number| filter.insert(hash(number)).is_ok()) {}
            filter.item_count() as f64 / f64::from(page_slots)
        };
        let mut loads: Vec<f64> = (0..(1 << 21) / u64::from(page_slots)).map(load_of).collect();
        loads.sort_by(f64::total_cmp);
        let (count, median) = (loads.len(), loads[loads.len() / 2]);
        println!(
            "{page_slots} slots: {:.4} is the least of {count}, {median:.4} the median",
            loads[0]
        );
    }
}
