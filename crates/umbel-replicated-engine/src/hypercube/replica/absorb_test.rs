//! Whole filters from outside reach all copies, even after restarts.

use umbel_filter::{Blocked, HashRange};

use super::fixture::*;
use super::*;

/// The items of both ranges.
fn union(kind: Kind, one: std::ops::Range<u64>, other: std::ops::Range<u64>) -> AnyFilter {
    let mut union = filter_of(kind, one);
    union.merge(&filter_of(kind, other)).unwrap();
    union
}

#[test]
fn what_one_copy_absorbs_all_have_after_a_sweep() {
    for (kind, count) in KINDS.into_iter().flat_map(|kind| (1..=17).map(move |p| (kind, p))) {
        let mut copies = copies(count, kind, 1 << 20);
        for (at, copy) in copies.iter_mut().enumerate() {
            insert(copy, at as u64..at as u64 + 2);
        }
        sweep(&mut copies);
        let last = count - 1;
        insert(&mut copies[last], 100..110);
        let before = copies[last].inserted();
        assert!(copies[last].absorb(&filter_of(kind, 105..200), None).unwrap() > 0);
        assert_eq!(copies[last].inserted(), before + 1);
        // Later inserts are sent with it.
        insert(&mut copies[last], 200..203);
        insert(&mut copies[0], 300..303);
        let cost = sweep(&mut copies);
        assert_eq!(cost.wholes > 0, count > 1, "{kind} {count}");
        let mut expected = union(kind, 0..count as u64 + 1, 100..203);
        expected.merge(&filter_of(kind, 300..303)).unwrap();
        assert_equal_to(&copies, &expected);
        let cost = sweep(&mut copies);
        assert_eq!((cost.bytes, cost.wholes), (0, 0), "{kind} {count}");
    }
}

#[test]
fn a_restart_from_a_save_made_right_after_it_keeps_all_of_it() {
    for kind in KINDS {
        let mut copies = copies(3, kind, 1 << 20);
        insert(&mut copies[0], 0..10);
        copies[0].absorb(&filter_of(kind, 50..90), None).unwrap();
        let (bits, saved) = (copies[0].filter().clone(), copies[0].save());
        // Later inserts are repeated from the node's log, with the same counts.
        let later = insert(&mut copies[0], 90..95);
        sweep(&mut copies);
        insert(&mut copies[1], 20..25);
        let options = ReplicaOptions { log: 11, ..*copies[0].options() };
        copies[0] = Replica::restore(options, bits, saved).unwrap();
        copies[0].insert_again(&later).unwrap();
        assert_eq!(copies[0].inserted(), 16);
        sweep(&mut copies);
        let mut expected = union(kind, 0..10, 50..95);
        expected.merge(&filter_of(kind, 20..25)).unwrap();
        assert_equal_to(&copies, &expected);
        assert_eq!(sweep(&mut copies).bytes, 0);
    }
}

#[test]
fn present_changes_are_not_sent_again() {
    for kind in KINDS {
        let mut copies = copies(2, kind, 1 << 20);
        copies[0].absorb(&filter_of(kind, 0..50), None).unwrap();
        sweep(&mut copies);
        for copy in &mut copies {
            assert_eq!(copy.absorb(&filter_of(kind, 10..40), None).unwrap(), 0);
        }
        let cost = sweep(&mut copies);
        assert_eq!((cost.bytes, cost.wholes), (0, 0));
    }
}

#[test]
fn another_shape_is_refused_and_changes_nothing() {
    let mut copy = copy(1, Kind::Blocked, 1 << 20);
    insert(&mut copy, 0..10);
    let before = copy.clone();
    let larger = AnyFilter::Blocked(Blocked::new(HashRange::WHOLE, 51, 6).unwrap());
    for other in [larger, filter_of(Kind::SingleShot, 0..5)] {
        assert!(copy.absorb(&other, None).is_err());
        assert_eq!((copy.filter(), copy.inserted()), (before.filter(), before.inserted()));
        assert_eq!((&copy.log, &copy.coverage.complete), (&before.log, &before.coverage.complete));
    }
}
