//! Copies that exchange in the order of the cube, or in no order.

use proptest::prelude::*;
use umbel_codec::{FrameView, frames};
use umbel_filter::Contains;

use super::fixture::*;
use super::*;
use crate::hypercube::delta::DeltaContent;
use crate::hypercube::topology::Cube;

#[test]
fn one_sweep_makes_all_copies_the_or_of_all_inserts() {
    for (kind, count) in KINDS.into_iter().flat_map(|kind| (1..=64).map(move |p| (kind, p))) {
        let mut copies = copies(count, kind, 1 << 20);
        // Neighbours share half of their items.
        for (at, copy) in copies.iter_mut().enumerate() {
            insert(copy, at as u64 * 5..at as u64 * 5 + 10);
        }
        let cost = sweep(&mut copies);
        assert_eq!(cost.deltas, Cube::new(count).unwrap().message_count());
        assert_eq!(cost.wholes, 0);
        assert_equal_to(&copies, &filter_of(kind, 0..count as u64 * 5 + 5));
        // All versions are equal, and nothing is left to send.
        for copy in &copies {
            assert_eq!(copy.coverage.complete, copies[0].coverage.complete, "{count} nodes");
        }
        assert_eq!(sweep(&mut copies).bytes, 0, "{kind} {count}");
        for copy in &mut copies {
            copy.trim_log();
            let is_in_sync = |&node: &NodeId| copy.lag(node) == 0;
            assert!(copy.partners.keys().all(is_in_sync) && !copy.has_news());
            assert_eq!(copy.log_bytes(), 0, "{count} nodes");
        }
    }
}

#[test]
fn one_sweep_of_a_thousand_nodes_makes_all_copies_equal() {
    let mut copies = copies(1024, Kind::Blocked, 1 << 20);
    for (at, copy) in copies.iter_mut().enumerate() {
        insert(copy, at as u64..at as u64 + 1);
    }
    assert_eq!(sweep(&mut copies).deltas, 10 * 1024);
    assert_equal_to(&copies, &filter_of(Kind::Blocked, 0..1024));
}

/// An item that was inserted at one node reaches every other node exactly once.
#[test]
fn a_whole_sweep_sends_every_change_once_to_everybody() {
    for count in 1..=33 {
        let mut copies = copies(count, Kind::SingleShot, 1 << 20);
        for round in 0..3 {
            let first = round * count as u64;
            for (at, copy) in copies.iter_mut().enumerate() {
                insert(copy, first + at as u64..first + at as u64 + 1);
            }
            let before: Vec<u64> = copies.iter().map(|copy| copy.log.end()).collect();
            sweep(&mut copies);
            // No node received what it had: every received change was new, and is in the log once.
            for (copy, before) in copies.iter().zip(before) {
                assert_eq!(copy.log.end() - before, count as u64);
            }
        }
        assert_equal_to(&copies, &filter_of(Kind::SingleShot, 0..3 * count as u64));
    }
}

#[test]
fn what_a_partner_sent_is_not_sent_back() {
    for kind in KINDS {
        let mut copies = copies(2, kind, 1 << 20);
        insert(&mut copies[0], 0..100);
        copies[0].begin_sweep();
        let delta = answer(&mut copies, 0, 1);
        copies[1].merge(NodeId(1), &delta).unwrap();
        // Only item 100 of these is new to node 2.
        insert(&mut copies[1], 50..101);
        copies[1].begin_sweep();
        let delta = answer(&mut copies, 1, 0);
        let mut received = empty(kind);
        for frame in &delta.frames {
            FrameView::parse(frame).unwrap().0.merge_into(&mut received, KEY).unwrap();
        }
        assert_eq!(received, filter_of(kind, 100..101));
    }
}

#[test]
fn who_is_behind_the_log_gets_the_whole_filter_once() {
    for kind in KINDS {
        let mut copies = copies(2, kind, 20);
        insert(&mut copies[0], 0..100);
        assert!(copies[0].log_bytes() <= 20 * ENTRY_BYTES);
        insert(&mut copies[1], 200..210);
        let cost = sweep(&mut copies);
        assert_eq!(cost.wholes, 1);
        let mut expected = filter_of(kind, 0..100);
        expected.insert_batch(&hashes(200..210), &mut Vec::new()).unwrap();
        assert_equal_to(&copies, &expected);
        let cost = sweep(&mut copies);
        assert_eq!((cost.wholes, cost.bytes), (0, 0));
    }
}

/// No log lists what a merged whole filter changed; a copy that has it from elsewhere needs nothing.
#[test]
fn a_copy_that_dominates_needs_nothing_however_it_came_by_it() {
    let mut copies = copies(4, Kind::Blocked, 10);
    insert(&mut copies[0], 0..300);
    let cost = sweep(&mut copies);
    assert_equal_to(&copies, &filter_of(Kind::Blocked, 0..300));
    // Three nodes get it from one other each: along a tree.
    assert_eq!(cost.wholes, 3);
    let cost = sweep(&mut copies);
    assert_eq!((cost.wholes, cost.bytes), (0, 0));
}

#[test]
fn long_deltas_travel_as_the_whole_filter() {
    let mut copies = copies(2, Kind::Blocked, 1 << 20);
    // 50 blocks are 25,600 bits; a probe takes 33 bits or more.
    insert(&mut copies[0], 0..1000);
    copies[0].begin_sweep();
    let delta = answer(&mut copies, 0, 1);
    assert_eq!(delta.content, DeltaContent::Whole);
    copies[1].merge(NodeId(1), &delta).unwrap();
    assert_equal_to(&copies, &filter_of(Kind::Blocked, 0..1000));
}

/// A frame whose header states one position more than its payload has, with the right checksum.
fn with_wrong_count(mut frame: Vec<u8>) -> Vec<u8> {
    frame[40] ^= 1;
    let checksum = umbel_codec::crc32c(&[&frame[..56], &frame[60..]]);
    frame[56..60].copy_from_slice(&checksum.to_le_bytes());
    frame
}

/// Bits that arrived without their version must not keep others from sending them.
#[test]
fn a_whole_filter_that_came_in_part_hides_nothing() {
    let mut copies = copies(3, Kind::Blocked, 1 << 20);
    insert(&mut copies[0], 0..20);
    copies[0].begin_sweep();
    let fits = answer(&mut copies, 0, 1);
    let mut frames: Vec<Vec<u8>> =
        frames(copies[0].filter(), KEY, 1000).map(Result::unwrap).collect();
    assert!(frames.len() > 2);
    let last = frames.pop().unwrap();
    frames.push(with_wrong_count(last));
    let broken = Sent { frames, ..fits.with(|delta| delta.content = DeltaContent::Whole) };
    copies[1].merge(NodeId(1), &broken).unwrap_err();
    assert_ne!(copies[1].filter(), &empty(Kind::Blocked));
    assert_eq!(copies[1].version_of(NodeId(1)), 0);
    for (from, to) in [(0, 1), (1, 2)] {
        let (node, delta) = (copies[from].options().node, answer(&mut copies, from, to));
        assert_eq!(delta.content, DeltaContent::Changes);
        copies[to].merge(node, &delta).unwrap();
    }
    assert_equal_to(&copies, &filter_of(Kind::Blocked, 0..20));
    assert_eq!(copies[1].coverage.partial, VersionVector::new());
}

/// A whole filter whose transfer is aborted: after all of its frames, or after the first.
fn merge_part(copy: &mut Replica, from: NodeId, delta: &Sent, is_all: bool) {
    copy.begin_whole(from, delta).unwrap();
    for frame in delta.frames.iter().take(if is_all { usize::MAX } else { 1 }) {
        copy.merge_whole_frame(from, delta, frame).unwrap();
    }
}

/// When it is sent again, it sets no bits, although no partner has been sent them.
#[test]
fn a_whole_filter_that_broke_off_is_forwarded_when_it_is_repeated() {
    for kind in KINDS {
        for is_restarted in [false, true] {
            let mut copies = copies(3, kind, 1);
            insert(&mut copies[0], 0..20);
            copies[0].begin_sweep();
            let delta = answer(&mut copies, 0, 1);
            assert_eq!(delta.content, DeltaContent::Whole);
            merge_part(&mut copies[1], NodeId(1), &delta, true);
            if is_restarted {
                let (bits, saved) = (copies[1].filter().clone(), copies[1].save());
                let options = ReplicaOptions { log: 22, ..*copies[1].options() };
                copies[1] = Replica::restore(options, bits, saved).unwrap();
            }
            for (from, to) in [(0, 1), (1, 2)] {
                let (node, delta) = (copies[from].options().node, answer(&mut copies, from, to));
                copies[to].merge(node, &delta).unwrap();
            }
            assert_eq!(copies[2].version_of(NodeId(1)), 20);
            assert_equal_to(&copies, &filter_of(kind, 0..20));
        }
    }
}

/// A partner gets everything that the version covers, even if a received change was already present as a
/// pending insert.
#[test]
fn an_insert_that_waits_hides_nothing() {
    for kind in KINDS {
        let mut copies = copies(3, kind, 1 << 20);
        insert(&mut copies[0], 0..10);
        copies[0].begin_sweep();
        insert(&mut copies[1], 0..10);
        for (from, to) in [(0, 1), (1, 2)] {
            let (node, delta) = (copies[from].options().node, answer(&mut copies, from, to));
            copies[to].merge(node, &delta).unwrap();
        }
        assert_eq!(copies[2].version_of(NodeId(1)), 10);
        assert_equal_to(&copies, &filter_of(kind, 0..10));
    }
}

/// A sweep sends each change once, because later inserts wait for the next sweep.
#[test]
fn inserts_take_part_when_a_sweep_begins() {
    for kind in KINDS {
        let mut copies = copies(2, kind, 1 << 20);
        insert(&mut copies[0], 0..4);
        copies[0].begin_sweep();
        insert(&mut copies[0], 4..10);
        assert_eq!((copies[0].inserted(), copies[0].version_of(NodeId(1))), (10, 4));
        let delta = answer(&mut copies, 0, 1);
        assert_eq!(delta.coverage.complete, [(NodeId(1), 4)].into_iter().collect());
        copies[1].merge(NodeId(1), &delta).unwrap();
        assert_equal_to(&copies[1..], &filter_of(kind, 0..4));
        sweep(&mut copies);
        assert_equal_to(&copies, &filter_of(kind, 0..10));
    }
}

#[test]
fn nothing_of_an_old_generation_comes_back() {
    let mut copies = copies(2, Kind::Blocked, 1 << 20);
    insert(&mut copies[0], 0..10);
    copies[0].begin_sweep();
    let old = answer(&mut copies, 0, 1);
    copies[1].clear(Generation(2), 22, empty(Kind::Blocked)).unwrap();
    let error = copies[1].merge(NodeId(1), &old).unwrap_err().to_string();
    assert_eq!(error, "node 1 is at generation 1 of filter 12, expected generation 2");
    copies[0].clear(Generation(2), 11, empty(Kind::Blocked)).unwrap();
    insert(&mut copies[1], 20..30);
    sweep(&mut copies);
    assert_equal_to(&copies, &filter_of(Kind::Blocked, 20..30));
}

/// An event of a test run.
#[derive(Clone, Debug)]
enum Act {
    Insert(usize, u64, u64),
    Begin(usize),
    /// One copy asks another; the answer is lost, arrives twice, or is aborted.
    Exchange(usize, usize, u8),
    Forget(usize),
    /// A whole filter arrives from outside, and the coverage is saved at once.
    Absorb(usize, u64, u64),
    Save(usize),
    /// A copy restarts from what was saved, and repeats later inserts.
    Restart(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let place = || 0_usize..8;
    let act = prop_oneof![
        3 => (place(), 0_u64..30, 1_u64..20).prop_map(|(at, first, n)| Act::Insert(at, first, n)),
        2 => place().prop_map(Act::Begin),
        6 => (place(), place(), 0_u8..6).prop_map(|(a, b, how)| Act::Exchange(a, b, how)),
        1 => place().prop_map(Act::Forget),
        1 => (place(), 0_u64..40, 1_u64..20).prop_map(|(at, first, n)| Act::Absorb(at, first, n)),
        1 => place().prop_map(Act::Save),
        1 => place().prop_map(Act::Restart),
    ];
    prop::collection::vec(act, 0..60)
}

proptest! {
    /// Exchanges between any two copies, lost and repeated; logs that are too short; restarts that forget
    /// what was merged since the last save. No bit is invented, versions are never wrong, and at the end
    /// one sweep makes all copies equal.
    #[test]
    fn any_exchange_converges(
        count in 1_usize..9,
        is_single_shot: bool,
        log_entries in prop_oneof![Just(0_usize), 1_usize..50, Just(10_000)],
        acts in acts(),
    ) {
        let kind = if is_single_shot { Kind::SingleShot } else { Kind::Blocked };
        let mut copies = copies(count, kind, log_entries);
        // For each node, the items of each change of its copy.
        let mut inserted: Vec<Vec<Vec<ItemHash>>> = vec![Vec::new(); count];
        let mut saved = vec![(empty(kind), Coverage::default(), 0_usize); count];
        let mut log = 1000;
        let mut expected = empty(kind);
        for act in acts {
            match act {
                Act::Insert(at, first, items) => {
                    // Some items are inserted at several nodes.
                    let at = at % count;
                    expected.insert_batch(&hashes(first..first + items), &mut Vec::new()).unwrap();
                    let absent = insert(&mut copies[at], first..first + items);
                    inserted[at].extend(absent.into_iter().map(|hash| vec![hash]));
                    // Two concurrent inserts may both find an item absent.
                    if items == 1 {
                        inserted[at].push(hashes(first..first + 1));
                        copies[at].insert(&hashes(first..first + 1), &mut Vec::new()).unwrap();
                    }
                }
                Act::Begin(at) => copies[at % count].begin_sweep(),
                Act::Exchange(from, to, how) if from % count != to % count => {
                    let (from, to) = (from % count, to % count);
                    let delta = answer(&mut copies, from, to);
                    if how == 0 {
                        continue;
                    }
                    let answering = copies[from].options().node;
                    if how >= 4 && delta.content == DeltaContent::Whole {
                        merge_part(&mut copies[to], answering, &delta, how == 4);
                        continue;
                    }
                    copies[to].merge(answering, &delta).unwrap();
                    if how == 1 {
                        prop_assert!(copies[to].merge(answering, &delta).is_err());
                    }
                }
                Act::Exchange(..) => {}
                Act::Forget(at) => copies[at % count].trim_log(),
                Act::Absorb(at, first, items) => {
                    let (at, items) = (at % count, first..first + items);
                    let other = filter_of(kind, items.clone());
                    expected.merge(&other).unwrap();
                    let before = copies[at].inserted();
                    copies[at].absorb(&other, None).unwrap();
                    // One change, or none if there was nothing to send.
                    if copies[at].inserted() > before {
                        inserted[at].push(hashes(items));
                    }
                    let coverage = copies[at].save();
                    saved[at] = (copies[at].filter().clone(), coverage, inserted[at].len());
                }
                Act::Save(at) => {
                    let copy = &mut copies[at % count];
                    let coverage = copy.save();
                    saved[at % count] =
                        (copy.filter().clone(), coverage, inserted[at % count].len());
                }
                Act::Restart(at) => {
                    let at = at % count;
                    let (filter, coverage, from) = saved[at].clone();
                    log += 1;
                    let options = ReplicaOptions { log, ..*copies[at].options() };
                    let partners: Vec<NodeId> = copies[at].partners.keys().copied().collect();
                    copies[at] = Replica::restore(options, filter, coverage).unwrap();
                    copies[at].set_partners(&partners);
                    // None of these is an absorbed filter, because a copy is saved with each.
                    copies[at].insert_again(&inserted[at][from..].concat()).unwrap();
                }
            }
        }
        for copy in &copies {
            for (known, inserted) in copies.iter().zip(&inserted) {
                let node = known.options().node;
                prop_assert_eq!(known.inserted(), inserted.len() as u64);
                let has = inserted[..copy.version_of(node) as usize].iter();
                prop_assert!(has.flatten().copied().all(|hash| copy.filter().contains(hash)), "of {}", node);
            }
            let mut union = expected.clone();
            prop_assert_eq!(union.merge(copy.filter()).unwrap(), 0, "a phantom bit");
            prop_assert!(copy.log_bytes() <= 2 * log_entries * ENTRY_BYTES);
        }
        sweep(&mut copies);
        assert_equal_to(&copies, &expected);
        let cost = sweep(&mut copies);
        prop_assert_eq!((cost.bytes, cost.wholes), (0, 0));
    }
}

#[test]
fn memory_is_that_of_the_description() {
    for kind in KINDS {
        let mut copy = copy(1, kind, 100);
        insert(&mut copy, 0..20);
        assert_eq!(copy.memory_bytes(), copy.filter().describe().memory_bytes);
    }
}
