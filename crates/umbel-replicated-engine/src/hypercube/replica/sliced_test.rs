//! Replicas of windowed filters: changes are exchanged as usual, and what was dropped does not come back.

use proptest::prelude::*;
use umbel_filter::{Blocked, words};

use super::fixture::*;
use super::*;
use crate::hypercube::delta::{DeltaContent, DeltaError};

const SLICES: u32 = 3;
/// Number of the time slice that clocks are in when a test begins.
const NOW: u64 = 500;

fn ring() -> SliceRing {
    SliceRing::new(20, 6, SLICES).unwrap()
}

fn ringed(node: u64, log_entries: usize) -> Replica {
    let empty = AnyFilter::Blocked(Blocked::with_shape(ring().block_shape()).unwrap());
    let copy = Replica::new(options(node, log_entries), empty).unwrap();
    let mut copy = copy.with_ring(Some(ring()));
    copy.advance(NOW);
    copy
}

fn ringed_copies(count: usize, log_entries: usize) -> Vec<Replica> {
    let mut copies = copies(count, Kind::Blocked, log_entries);
    for copy in &mut copies {
        let partners: Vec<NodeId> = copy.partners().collect();
        *copy = ringed(copy.options().node.0, log_entries);
        copy.set_partners(&partners);
    }
    copies
}

fn put(copy: &mut Replica, number: u64, items: std::ops::Range<u64>) {
    copy.insert_in_slice(number, &hashes(items), &mut Vec::new());
}

/// Number of the items that are present by the copy's own clock.
fn count_of(copy: &Replica, items: std::ops::Range<u64>) -> usize {
    let (own, mut present) = (copy.ring().unwrap().own(), Vec::new());
    copy.contains_batch(own, &hashes(items), &mut present);
    present.into_iter().filter(|&is_present| is_present).count()
}

fn one_count(copy: &Replica) -> u64 {
    let AnyFilter::Blocked(bits) = copy.filter() else { panic!("another kind") };
    words::count_ones(bits.words())
}

/// Entry limits: a log that holds everything, and one that holds nothing.
const LOGS: [usize; 2] = [1 << 20, 0];

#[test]
fn what_is_in_the_window_comes_everywhere_and_goes_everywhere() {
    for log_entries in LOGS {
        let mut copies = ringed_copies(5, log_entries);
        put(&mut copies[0], NOW, 0..50);
        sweep(&mut copies);
        for own in NOW..NOW + 6 {
            copies.iter_mut().for_each(|copy| copy.advance(own));
            sweep(&mut copies);
            let expected = if own <= NOW + u64::from(SLICES) { 50 } else { 0 };
            assert!(copies.iter().all(|copy| count_of(copy, 0..50) == expected), "{own}");
        }
        assert!(copies.iter().all(|copy| one_count(copy) == 0));
    }
}

#[test]
fn what_was_dropped_does_not_come_back_into_another_slice() {
    for log_entries in LOGS {
        let mut copies = ringed_copies(2, log_entries);
        put(&mut copies[0], NOW, 0..50);
        copies[0].begin_sweep();
        // In a ring of five, slice 505 reuses the blocks of slice 500.
        copies[1].advance(NOW + 5);
        let delta = answer(&mut copies, 0, 1);
        let expected = if log_entries == 0 { DeltaContent::Whole } else { DeltaContent::Changes };
        assert_eq!((delta.content, delta.newest_slice), (expected, Some(NOW)));
        assert_eq!(copies[1].merge(NodeId(1), &delta).unwrap(), 0);
        assert_eq!(one_count(&copies[1]), 0);
        // It has everything that it is queried for, and its version covers it.
        assert_eq!(copies[1].version_of(NodeId(1)), 50);
        // The copy whose log has it does not send it any more, once the slice is gone there, too.
        copies[0].advance(NOW + 5);
        let (mut fresh, mut old) = (ringed(3, log_entries), copies.remove(0));
        fresh.advance(NOW + 5);
        let question = fresh.ask(NodeId(1));
        let delta = old.answer(NodeId(3), &question).unwrap();
        assert!(delta.content == DeltaContent::Whole || delta.frames.is_empty());
        assert_eq!(fresh.merge(NodeId(1), &delta).unwrap(), 0);
        assert_eq!((one_count(&fresh), fresh.version_of(NodeId(1))), (0, 50));
    }
}

/// A node that is started with its clock ahead advances its window, which nothing else takes back.
#[test]
fn a_cleared_window_begins_with_the_clock_again() {
    let mut copies = ringed_copies(2, 1 << 20);
    copies[0].advance(NOW + 1000);
    put(&mut copies[0], NOW + 1000, 0..9);
    copies[0].begin_sweep();
    let delta = answer(&mut copies, 0, 1);
    let refused = copies[1].merge(NodeId(1), &delta);
    assert!(matches!(refused, Err(DeltaError::AheadOfClock { .. })), "{refused:?}");
    for copy in &mut copies {
        let empty = AnyFilter::Blocked(Blocked::with_shape(ring().block_shape()).unwrap());
        copy.clear(Generation(2), 0, empty).unwrap();
        copy.advance(NOW);
        assert_eq!(copy.ring().unwrap().own(), NOW);
    }
    put(&mut copies[0], NOW, 9..12);
    sweep(&mut copies);
    assert_eq!((count_of(&copies[1], 0..9), count_of(&copies[1], 9..12)), (0, 3));
}

#[test]
fn changes_of_a_slice_that_ended_are_sent_to_nobody() {
    let mut copies = ringed_copies(2, 1 << 20);
    put(&mut copies[0], NOW, 0..9);
    put(&mut copies[0], NOW + 5, 9..12);
    assert_eq!(copies[0].inserted(), 12);
    copies[1].advance(NOW + 5);
    sweep(&mut copies);
    assert_eq!((count_of(&copies[1], 0..9), count_of(&copies[1], 9..12)), (0, 3));
    assert_eq!(copies[1].version_of(NodeId(1)), 12);
}

/// A partner that is further ahead has dropped slices that this copy is queried for, so its version is not
/// merged.
#[test]
fn who_is_far_ahead_is_refused_until_the_clock_is_there() {
    for log_entries in LOGS {
        let mut copies = ringed_copies(3, log_entries);
        put(&mut copies[0], NOW, 0..50);
        copies[1].advance(NOW + 5);
        copies[0].begin_sweep();
        let delta = answer(&mut copies, 0, 1);
        copies[1].merge(NodeId(1), &delta).unwrap();
        put(&mut copies[1], NOW + 5, 50..60);
        copies[1].begin_sweep();

        let delta = answer(&mut copies, 1, 2);
        let before = copies[2].filter().clone();
        let error = copies[2].merge(NodeId(2), &delta).unwrap_err();
        let text = "node 2 sent changes of filter 12 of slice 505 of time, where the clock here is in slice 500";
        assert!(error.to_string().starts_with(text), "{error}");
        assert_eq!((copies[2].version_of(NodeId(1)), copies[2].newest_slice()), (0, Some(NOW)));
        assert!(*copies[2].filter() == before);
        // In the other direction everything arrives.
        let delta = answer(&mut copies, 0, 2);
        copies[2].merge(NodeId(1), &delta).unwrap();
        assert_eq!(count_of(&copies[2], 0..50), 50);
        // It follows by one slice, and nothing in its own window is lost.
        copies[2].advance(NOW + 3);
        copies[1].set_partners(&[NodeId(3)]);
        let delta = answer(&mut copies, 1, 2);
        assert!(copies[2].merge(NodeId(2), &delta).is_err());
        copies[2].advance(NOW + 4);
        let delta = answer(&mut copies, 1, 2);
        copies[2].merge(NodeId(2), &delta).unwrap();
        assert_eq!((copies[2].newest_slice(), count_of(&copies[2], 50..60)), (Some(NOW + 5), 10));
    }
}

#[test]
fn only_rings_send_slices() {
    let mut copies = ringed_copies(2, 1 << 20);
    let delta = answer(&mut copies, 0, 1);
    let unsliced = delta.with(|delta| delta.newest_slice = None);
    let error = copies[1].merge(NodeId(1), &unsliced).unwrap_err();
    assert!(matches!(error, DeltaError::Slices { theirs: None, ours: Some(NOW), .. }), "{error}");
    let mut plain = fixture::copies(2, Kind::Blocked, 9);
    let delta = answer(&mut plain, 0, 1);
    let sliced = delta.with(|delta| delta.newest_slice = Some(1));
    assert!(plain[1].merge(NodeId(1), &sliced).is_err());
    assert!(plain[1].slices().is_none() && copies[1].slices() == Some((NOW, NOW)));
    // A whole filter that does not state its slices.
    let bits = copies[0].filter().clone();
    assert!(copies[1].absorb(&bits, None).is_err());
    assert!(plain[1].absorb(&bits, Some(NOW)).is_err());
}

#[test]
fn rings_are_saved_absorbed_and_compared() {
    let mut copies = ringed_copies(2, 1 << 20);
    put(&mut copies[0], NOW, 0..20);
    let (bits, slices, saved) = (copies[0].filter().clone(), copies[0].slices(), copies[0].save());
    let (own, newest) = slices.unwrap();
    let restored = Replica::restore(options(1, 9), bits.clone(), saved).unwrap();
    let mut restored = restored.with_ring(Some(ring().at(own, newest)));
    assert_eq!((restored.inserted(), count_of(&restored, 0..20)), (20, 20));
    // The log has one entry of that slice, and one of a slice that has ended since.
    restored.insert_in_slice_again(NOW + 5, &hashes(20..30));
    assert_eq!(restored.insert_in_slice_again(NOW, &hashes(30..40)), 0);
    assert_eq!((restored.inserted(), count_of(&restored, 0..20)), (40, 0));
    assert_eq!((count_of(&restored, 20..30), count_of(&restored, 30..40)), (10, 0));

    let claim = copies[0].coverage();
    assert!(copies[1].merge_compared(&bits, &claim, Some(NOW)).unwrap() > 0);
    assert_eq!(count_of(&copies[1], 0..20), 20);
    copies[1].advance(NOW + 5);
    assert_eq!(copies[1].merge_compared(&bits, &claim, Some(NOW)), Ok(0));
    assert_eq!(copies[1].absorb(&bits, Some(NOW)), Ok(0));
    let mut late = ringed(3, 9);
    late.advance(NOW + 3);
    assert!(late.absorb(&bits, Some(NOW)).unwrap() > 0);
    assert_eq!(count_of(&late, 0..20), 20);
    late.clear(Generation(2), 9, {
        AnyFilter::Blocked(Blocked::with_shape(ring().block_shape()).unwrap())
    })
    .unwrap();
    late.advance(NOW + 3);
    assert_eq!((late.newest_slice(), count_of(&late, 0..20)), (Some(NOW + 3), 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Clocks are within one slice of each other. In any order of exchanges, nothing within the window is
    /// missing at a replica whose version covers it, and nothing older is present.
    #[test]
    fn nothing_within_the_window_is_missing(
        acts in prop::collection::vec((0_u8..6, 0_usize..4, 0_usize..4), 1..120),
        log_entries in prop_oneof![Just(0), Just(8), Just(1 << 20)],
    ) {
        let mut copies = ringed_copies(4, log_entries);
        let mut now = NOW;
        // Item, slice, node, and the number of its change.
        let mut made: Vec<(u64, u64, usize, u64)> = Vec::new();
        for (act, at, other) in acts {
            match act {
                0 | 1 => {
                    let (item, own) = (made.len() as u64, copies[at].ring().unwrap().own());
                    put(&mut copies[at], own, item..item + 1);
                    made.push((item, own, at, copies[at].inserted()));
                }
                // One clock is already in the next slice.
                2 => copies[at].advance(now + 1),
                3 => {
                    now += 1;
                    copies.iter_mut().for_each(|copy| copy.advance(now));
                }
                4 => copies[at].begin_sweep(),
                _ if at != other => {
                    let delta = answer(&mut copies, at, other);
                    let from = copies[at].options().node;
                    copies[other].merge(from, &delta).unwrap_or_default();
                }
                _ => {}
            }
            for (node, copy) in copies.iter().enumerate() {
                let own = copy.ring().unwrap().own();
                for &(item, slice, maker, number) in &made {
                    let knows = node == maker
                        || copy.version_of(NodeId(maker as u64 + 1)) >= number;
                    let is_within = own <= slice + u64::from(SLICES);
                    let count = count_of(copy, item..item + 1);
                    if knows && is_within {
                        prop_assert_eq!(count, 1, "{} of slice {} at {}", item, slice, own);
                    }
                    if !is_within {
                        prop_assert_eq!(count, 0, "{} of slice {} at {}", item, slice, own);
                    }
                }
            }
        }
        // Clocks are equal, and all nodes have exchanged everything.
        copies.iter_mut().for_each(|copy| copy.advance(now + 1));
        for _ in 0..2 {
            sweep(&mut copies);
        }
        for copy in &copies[1..] {
            prop_assert!(copy.filter() == copies[0].filter());
        }
    }
}
