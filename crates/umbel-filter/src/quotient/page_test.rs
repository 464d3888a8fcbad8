//! Pages beside sorted multisets, and pages of words that are no filter's.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::page::{Place, Put, Taken};
use super::stream::{PageBuilder, PageItems};
use crate::bits::scalar::Broadword;
use crate::quotient_layout::Layout;

/// Places of few quotients and remainders, so that runs are long and pages become full.
fn places() -> impl Strategy<Value = Place> {
    let quotients = prop_oneof![3 => 0..256_usize, 2 => 100..110_usize, 1 => 250..256_usize];
    (quotients, 0..32_u64).prop_map(|(quotient, remainder)| Place { quotient, remainder })
}

/// What is in a page, by the words of the slow twin: a sorted multiset.
fn built(layout: Layout, twin: &BTreeMap<Place, u64>) -> Option<Vec<u64>> {
    let mut words = vec![0; layout.page_words];
    let mut builder = PageBuilder::new(layout, &mut words);
    twin.iter().try_for_each(|(&place, &count)| builder.push(place, count))?;
    Some(words)
}

proptest! {
    /// After every step the words are those of the sorted multiset, however it came to be.
    #[test]
    fn a_page_is_a_sorted_multiset(
        count_bits in 0..4_u32, steps in vec((places(), 0..3_u32), 0..700),
    ) {
        let layout = Layout::of(256, 5, count_bits);
        let mut words = vec![0; layout.page_words];
        let mut twin = BTreeMap::new();
        let mut full = 0;
        for (at, (place, action)) in steps.into_iter().enumerate() {
            let count = twin.get(&place).copied();
            prop_assert_eq!(layout.find(&words, place, Broadword).is_some(), count.is_some());
            if action > 0 {
                let mut after = twin.clone();
                let most = layout.count_mask();
                after.entry(place).and_modify(|count| *count = most.min(*count + 1)).or_insert(0);
                let expected = match (count, built(layout, &after)) {
                    (_, None) => Put::Full,
                    (None, _) => Put::New,
                    (Some(count), _) if count == most => Put::Sticky,
                    (Some(_), _) => Put::Copied,
                };
                prop_assert_eq!(layout.put(&mut words, place, Broadword), expected);
                full += u32::from(expected == Put::Full);
                if expected != Put::Full {
                    twin = after;
                }
            } else {
                let expected = match count {
                    None => Taken::Absent,
                    Some(0) => { twin.remove(&place); Taken::Slot }
                    Some(_) => { twin.entry(place).and_modify(|count| *count -= 1); Taken::Copy }
                };
                prop_assert_eq!(layout.take(&mut words, place, Broadword), expected);
            }
            if at % 16 == 0 || full > 0 {
                prop_assert_eq!(&words, &built(layout, &twin).unwrap());
            }
        }
        prop_assert_eq!(&words, &built(layout, &twin).unwrap());
        prop_assert_eq!(layout.taken_count(&words), twin.len() as u64);
        let items: Vec<(Place, u64)> = PageItems::new(layout, &words).collect();
        prop_assert_eq!(items, twin.into_iter().collect::<Vec<_>>());
    }

    /// Words that have rotted give answers without meaning, but every walk ends inside the page.
    #[test]
    fn any_words_are_walked_to_an_end(
        seeds in vec(any::<u64>(), 144), sparse: bool, steps in vec((places(), 0..2_u32), 0..40),
    ) {
        let layout = Layout::of(256, 5, 2);
        let mut words = vec![0; layout.page_words];
        for (at, word) in words.iter_mut().enumerate() {
            let (seed, other) = (seeds[at % 144], seeds[(at * 7 + 1) % 144]);
            *word = if sparse { seed & other & seed.rotate_left(17) } else { seed };
        }
        for (place, action) in steps {
            if action > 0 {
                layout.put(&mut words, place, Broadword);
            } else {
                layout.take(&mut words, place, Broadword);
            }
            prop_assert!(layout.taken_count(&words) <= layout.slot_count() as u64);
            prop_assert!(PageItems::new(layout, &words).count() <= layout.slot_count());
        }
    }
}

/// Offsets say how much of a block is taken from before, up to a byte's worth: then the page is full.
#[test]
fn offsets_count_to_255() {
    let layout = Layout::of(1 << 13, 10, 0);
    let mut words = vec![0; layout.page_words];
    // All on quotient 63, whose slot is the last of the first block.
    for remainder in 0..256 {
        assert_eq!(layout.put(&mut words, Place { quotient: 63, remainder }, Broadword), Put::New);
    }
    assert_eq!([1, 2, 4, 5].map(|block| layout.offset(&words, block)), [255, 191, 63, 0]);
    let before = words.clone();
    assert_eq!(
        layout.put(&mut words, Place { quotient: 63, remainder: 300 }, Broadword),
        Put::Full
    );
    assert_eq!(words, before);
    // The slot before is free, but what would push them on finds no room.
    assert_eq!(layout.put(&mut words, Place { quotient: 62, remainder: 0 }, Broadword), Put::New);
    assert_eq!(layout.put(&mut words, Place { quotient: 62, remainder: 1 }, Broadword), Put::Full);
    assert_eq!(
        layout.take(&mut words, Place { quotient: 63, remainder: 77 }, Broadword),
        Taken::Slot
    );
    assert_eq!(layout.put(&mut words, Place { quotient: 62, remainder: 1 }, Broadword), Put::New);
}
