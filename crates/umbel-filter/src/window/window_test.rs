//! Windows beside maps from items to slices, full ones, and parts of them.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::hash::ItemHasher;
use crate::range::{CellCount, HashRange};
use crate::table_error::{TableLoadError, TablePartError};

fn hash(number: u64) -> ItemHash {
    ItemHasher::Xxh3 { seed: 5 }.hash(&number.to_le_bytes())
}

/// So wide fingerprints that no two of a few thousand items share one.
fn exact(slot_count: u32) -> Window {
    with_fingerprints(slot_count, 50)
}

fn with_fingerprints(slot_count: u32, bits: u32) -> Window {
    let shape = BlockShape::new(Kind::Window, HashRange::WHOLE, 1, slot_count, bits).unwrap();
    Window::with_shape(shape).unwrap()
}

/// What is done to a window.
#[derive(Clone, Copy, Debug)]
enum Step {
    Insert { number: u64, back: u64, sighting: Sighting },
    Advance { oldest_by: u64, newest_by: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let sighting = prop_oneof![Just(Sighting::First), Just(Sighting::Last)];
    let insert = (0..60_u64, 0..4_u64, sighting)
        .prop_map(|(number, back, sighting)| Step::Insert { number, back, sighting });
    let advance = (0..4_u64, prop_oneof![9 => 0..3_u64, 1 => 0..200_u64])
        .prop_map(|(oldest_by, newest_by)| Step::Advance { oldest_by, newest_by });
    vec(prop_oneof![4 => insert, 1 => advance], 0..200)
}

proptest! {
    /// The slow twin: a map from items to slices. Buckets of 26 bits are compared at once, of 50 slot by slot;
    /// no two of these items are alike in either.
    #[test]
    fn a_window_is_a_map_to_slices(
        steps in steps(), bits in prop_oneof![Just(26_u32), Just(50_u32)],
    ) {
        let (mut window, mut twin) = (with_fingerprints(512, bits), BTreeMap::<u64, u64>::new());
        let (mut oldest, mut newest) = (0_u64, 0_u64);
        for step in steps {
            match step {
                Step::Insert { number, back, sighting } => {
                    let slice = (newest + 1).saturating_sub(back).clamp(oldest, newest + 1);
                    let outcome = window.insert_at(hash(number), slice, sighting).unwrap();
                    let is_new = !twin.contains_key(&number);
                    prop_assert_eq!(outcome == Insertion::New, is_new);
                    let kept = twin.entry(number).or_insert(slice);
                    if sighting == Sighting::Last {
                        *kept = slice.max(*kept);
                    }
                }
                Step::Advance { oldest_by, newest_by } => {
                    newest += newest_by;
                    oldest = (oldest + oldest_by).max((newest + 2).saturating_sub(64)).min(newest);
                    window.advance(oldest, newest);
                    twin.retain(|_, slice| *slice >= oldest);
                }
            }
            prop_assert_eq!((window.oldest(), window.newest()), (oldest, newest));
            prop_assert_eq!(window.item_count(), twin.len() as u64);
        }
        for number in 0..60 {
            prop_assert_eq!(window.slice_of(hash(number)), twin.get(&number).copied());
        }
        for slice in oldest..=newest + 1 {
            let expected = twin.values().filter(|&&other| other == slice).count() as u64;
            prop_assert_eq!(window.slice_item_count(slice), expected);
        }
    }

    /// A copy of all parts is the window, and one whose own time is ahead keeps what is not out.
    #[test]
    fn parts_are_loaded_as_they_were(numbers in vec(0..2_000_u64, 0..300), ahead in 0..12_u64) {
        let shape = BlockShape::new(Kind::Window, HashRange::WHOLE, 4, 512, 20).unwrap();
        let mut window = Window::with_shape(shape).unwrap();
        window.advance(40, 50);
        for (at, &number) in numbers.iter().enumerate() {
            window.insert_at(hash(number), 40 + at as u64 % 12, Sighting::First).unwrap();
        }
        for advanced in [0, ahead] {
            let mut copy = Window::with_shape(shape).unwrap();
            copy.advance(advanced * 40 / ahead.max(1) + advanced, 50 + advanced);
            let words_of_part = window.words().len() / 4;
            for cell in 0..4_usize {
                let cells = CellCount::new(4).unwrap();
                let range = HashRange::cell(u32::try_from(cell).unwrap(), cells);
                let part = shape.with_range(range).unwrap();
                let words = &window.words()[cell * words_of_part..][..words_of_part];
                let loaded = copy.load_part(part, (40, 50), words).unwrap();
                let taken = Window::check_part(part, (40, 50), words).unwrap();
                prop_assert!(loaded <= taken && (advanced > 0 || loaded == taken));
                let again = copy.load_part(part, (40, 50), words);
                let expected = match loaded {
                    0 => Ok(0),
                    item_count => Err(TableLoadError::NotEmpty { item_count }),
                };
                prop_assert_eq!(again, expected);
            }
            let mut twin = window.clone();
            twin.advance(copy.oldest(), copy.newest());
            prop_assert_eq!(copy, twin);
        }
    }
}

/// At the planned load nothing is refused, in blocks of any size, and the rate is as planned.
#[test]
fn what_was_planned_for_fits_at_the_planned_rate() {
    for (item_count, rate) in [(100_u64, 0.01), (481, 0.001), (20_000, 0.01), (300_000, 0.001)] {
        let mut window = Window::for_rate(HashRange::WHOLE, item_count, rate).unwrap();
        window.advance(0, 9);
        for number in 0..item_count {
            window.insert_at(hash(number), number % 10, Sighting::First).unwrap();
        }
        assert!((0..item_count).all(|number| window.contains(hash(number))));
        let asked = 400_000_u64;
        let others = (0..asked).filter(|number| window.contains(hash(1 << 40 | number))).count();
        let expected = window.describe().false_positive_rate * asked as f64;
        assert!(expected <= rate * asked as f64 * 1.001, "{item_count}");
        let deviation = (others as f64 - expected) / expected.sqrt();
        assert!(deviation.abs() < 5.0, "{item_count}: {others}, expected {expected}");
    }
}

/// A full window refuses, has changed nothing, and takes items again when a slice ends.
#[test]
fn a_full_window_refuses_until_a_slice_ends() {
    let mut window = exact(512);
    let mut number = 0;
    let full = loop {
        let before = window.clone();
        match window.insert_at(hash(number), number % 2, Sighting::First) {
            Ok(_) => number += 1,
            Err(error) => {
                assert_eq!(window, before);
                break error;
            }
        }
    };
    assert_eq!(full, InsertError::Full { item_count: number });
    assert!(number > 512 * 94 / 100, "{number}");
    assert!((0..number).all(|number| window.contains(hash(number))));
    window.advance(1, 1);
    window.insert_at(hash(number), 1, Sighting::First).unwrap();
    assert_eq!(window.item_count(), number / 2 + 1);
    assert!((1..number).step_by(2).all(|number| window.contains(hash(number))));
    window.clear();
    assert_eq!((window.item_count(), window.newest()), (0, 1));
}

/// What is no window's words is refused, and named.
#[test]
fn words_of_no_window_are_refused() {
    let shape = exact(512).block_shape();
    let words = vec![0; 512 * 56 / 64];
    let check = |span, words: &[u64]| Window::check_part(shape, span, words);
    assert_eq!(check((3, 9), &words), Ok(0));
    assert_eq!(check((9, 3), &words), Err(TablePartError::Slices { oldest: 9, newest: 3 }));
    assert!(matches!(check((0, 63), &words), Err(TablePartError::Slices { .. })));
    assert!(matches!(check((0, u64::MAX), &words), Err(TablePartError::Slices { .. })));
    let short = TablePartError::Length { kind: Kind::Window, expected: 448, actual: 447 };
    assert_eq!(check((3, 9), &words[1..]), Err(short));
    // Whatever a slot says, it is taken or free.
    for (tag, fingerprint, expected) in
        [(3, 7, Ok(1)), (2, 7, Ok(1)), (63, 7, Ok(1)), (4, 0, Ok(0))]
    {
        let mut words = words.clone();
        words[0] = tag << 50 | fingerprint;
        assert_eq!(check((3, 9), &words), expected, "{tag}");
    }
}

/// Items of a batch are inserted as one by one, up to the one that does not fit.
#[test]
fn batches_are_items_in_order() {
    let hashes: Vec<ItemHash> = (0..700).map(|number| hash(number % 600)).collect();
    let (mut one, mut many) = (exact(512), exact(512));
    let mut outcomes = Vec::new();
    let refused = many.insert_batch_at(&hashes, 0, Sighting::First, &mut outcomes);
    assert!(matches!(refused, Err(InsertError::Full { .. })));
    for (&hash, &outcome) in hashes.iter().zip(&outcomes) {
        assert_eq!(one.insert(hash), Ok(outcome));
    }
    assert_eq!(one, many);
    let mut present = Vec::new();
    many.contains_batch(&hashes, &mut present);
    assert!(present[..outcomes.len()].iter().all(|present| *present));
}

#[test]
fn words_that_are_rewritten_are_counted_anew() {
    let mut window = exact(512);
    assert!((0..100).all(|number| window.insert(hash(number)).is_ok()));
    let words = window.words().to_vec();
    let mut other = exact(512);
    other.rewrite(|ours| ours.copy_from_slice(&words));
    assert_eq!(other, window);
    // Whatever words there are, nothing panics.
    other.rewrite(|ours| ours.fill(0x5555_aaaa_1234_ffff));
    other.advance(3, 1 << 62);
    assert_eq!(other.oldest(), (1 << 62) + 2 - 64);
    let _ = other.insert(hash(1));
}
