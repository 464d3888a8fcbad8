//! Whole sessions, compared with plain sets.

use std::collections::BTreeSet;

use proptest::prelude::*;

use umbel_step::Outbox;

use super::error::{SessionError, SessionRefusal};
use super::event::{SessionInput, SessionOutput};
use super::item::Item;
use super::message::{Message, Welcome};
use super::options::{Aim, Direction, OnConflict, Optimize, Options, SessionRole, SymbolKind};
use super::session::Session;
use super::testing::Shuttle;
use super::wire::{FrameBuffer, put_frame};

/// The item of a number: an id, a line of varying length, a 32-byte id, or a record (some records share
/// their key).
pub(crate) fn item(kind: SymbolKind, number: u64, is_fixed: bool) -> Item {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    match kind {
        SymbolKind::Id64 => Item::Id(mixed ^ mixed >> 32),
        SymbolKind::Hashed if is_fixed => {
            let words = (1..=4u64).flat_map(|word| mixed.wrapping_mul(2 * word + 1).to_be_bytes());
            Item::Bytes(words.collect())
        }
        SymbolKind::Hashed => Item::Bytes(format!("line {}", mixed >> (mixed % 64)).into_bytes()),
        SymbolKind::Keyed => Item::Keyed {
            key: (number / 2).to_le_bytes().to_vec(),
            value: format!("{mixed:x}").into_bytes(),
        },
    }
}

pub(crate) fn sets(
    kind: SymbolKind,
    is_fixed: bool,
    shared: u64,
    only_ours: u64,
    only_theirs: u64,
) -> (BTreeSet<Item>, BTreeSet<Item>) {
    let range = |from: u64, count: u64| (from..from + count).map(|at| item(kind, at, is_fixed));
    let both: BTreeSet<Item> = range(0, shared).collect();
    let ours: BTreeSet<Item> = range(1 << 40, only_ours).collect();
    let theirs: BTreeSet<Item> = range(2 << 40, only_theirs).collect();
    (both.union(&ours).cloned().collect(), both.union(&theirs).cloned().collect())
}

/// A session whose initiator wants this.
fn aimed(kind: SymbolKind, aim: Aim, ours: &BTreeSet<Item>, theirs: &BTreeSet<Item>) -> Shuttle {
    let mut initiator = Options::initiator(kind, aim.direction, 5);
    initiator.role = SessionRole::Initiator(aim);
    Shuttle::new(initiator, Options::responder(kind, 6), ours, theirs)
}

#[test]
fn every_kind_direction_and_size_finds_the_difference() {
    let sizes = [
        (0, 0, 0),
        (100, 0, 0),
        (0, 1, 0),
        (100, 1, 0),
        (100, 0, 1),
        (500, 7, 6),
        (500, 16, 0),
        (500, 0, 20),
        (3000, 30, 60),
        (5000, 400, 300),
        (300, 0, 700),
        (2000, 2500, 2500),
        (0, 50, 0),
        (0, 300, 900),
    ];
    for kind in SymbolKind::ALL {
        for direction in Direction::ALL {
            for (shared, only_ours, only_theirs) in sizes {
                let (ours, theirs) = sets(kind, true, shared, only_ours, only_theirs);
                let mut shuttle = Shuttle::of(kind, direction, &ours, &theirs);
                shuttle.run();
                for side in [&shuttle.ours, &shuttle.theirs] {
                    let result = side.result.as_ref().unwrap();
                    assert!(
                        result.is_ok(),
                        "{kind:?} {direction:?} {shared} {only_ours} {only_theirs}: {result:?}"
                    );
                }
                shuttle.check(direction);
            }
        }
    }
}

#[test]
fn a_dry_run_brings_contents_and_notifies_the_responder_on_request() {
    for kind in SymbolKind::ALL {
        for (only_ours, only_theirs) in [(3, 5), (40, 90)] {
            for (want_items, notify_responder) in
                [(false, false), (true, false), (false, true), (true, true)]
            {
                let (ours, theirs) = sets(kind, false, 1000, only_ours, only_theirs);
                let aim = Aim { want_items, notify_responder, ..Aim::new(Direction::Compare) };
                let mut shuttle = aimed(kind, aim, &ours, &theirs);
                shuttle.run();
                shuttle.check(Direction::Compare);
                let there: BTreeSet<Item> = theirs.difference(&ours).cloned().collect();
                assert_eq!(shuttle.ours.only_there.len(), there.len());
                if want_items || kind == SymbolKind::Id64 {
                    assert_eq!(shuttle.ours.items_there(), there);
                }
                if notify_responder {
                    assert_eq!(shuttle.theirs.only_there.len(), ours.difference(&theirs).count());
                    assert_eq!(shuttle.theirs.items_here().unwrap(), there);
                }
            }
        }
    }
}

#[test]
fn a_responder_that_is_pushed_to_learns_what_only_it_has_where_it_is_to_remove_it() {
    for kind in SymbolKind::ALL {
        for optimize in [Optimize::Bytes, Optimize::Time] {
            for (shared, only_ours, only_theirs) in
                [(1000, 3, 5), (1000, 40, 90), (50, 0, 0), (0, 30, 40), (0, 300, 900), (0, 0, 20)]
            {
                let (ours, theirs) = sets(kind, false, shared, only_ours, only_theirs);
                let aim = Aim { notify_responder: true, optimize, ..Aim::new(Direction::Push) };
                let mut shuttle = aimed(kind, aim, &ours, &theirs);
                shuttle.run();
                shuttle.check(Direction::Push);
                let outcome = shuttle.theirs.result.clone().unwrap().unwrap();
                assert!(outcome.notifies_responder);
                let there: BTreeSet<Item> = theirs.difference(&ours).cloned().collect();
                let items_there = shuttle.theirs.items_here();
                let case = (kind, optimize, shared, only_ours, only_theirs);
                assert_eq!(items_there, Some(there), "{case:?}: {outcome:?}");
            }
        }
    }
}

/// Regression: the list of the items came back to a side that needs nothing of it.
#[test]
fn who_has_nothing_gets_no_list_of_what_is_to_be_removed() {
    for kind in SymbolKind::ALL {
        for optimize in [Optimize::Bytes, Optimize::Time] {
            for only_theirs in [1, 15, 16, 3000] {
                let (ours, theirs) = sets(kind, false, 0, 0, only_theirs);
                let aim = Aim { notify_responder: true, optimize, ..Aim::new(Direction::Push) };
                let mut shuttle = aimed(kind, aim, &ours, &theirs);
                shuttle.run();
                shuttle.check(Direction::Push);
                let outcome = shuttle.ours.result.clone().unwrap().unwrap();
                assert!(outcome.received_bytes < 150, "{kind:?} {only_theirs}: {outcome:?}");
                assert!(shuttle.ours.only_there.is_empty());
                assert_eq!(shuttle.theirs.items_here(), Some(theirs), "{kind:?} {only_theirs}");
            }
        }
    }
}

#[test]
fn both_sides_learn_whose_version_wins() {
    let (ours, theirs) = sets(SymbolKind::Keyed, true, 30, 2, 2);
    for (on_conflict, is_b) in [
        (OnConflict::Report, false),
        (OnConflict::A, false),
        (OnConflict::A, true),
        (OnConflict::B, false),
        (OnConflict::B, true),
    ] {
        for insisted in [OnConflict::Report, on_conflict] {
            let mut initiator = Options::initiator(SymbolKind::Keyed, Direction::TwoWay, 5);
            let aim = Aim { on_conflict, is_b, ..Aim::new(Direction::TwoWay) };
            initiator.role = SessionRole::Initiator(aim);
            let mut responder = Options::responder(SymbolKind::Keyed, 6);
            responder.role = SessionRole::Responder { accept_items: true, on_conflict: insisted };
            let mut shuttle = Shuttle::new(initiator, responder, &ours, &theirs);
            shuttle.run();
            for side in [&shuttle.ours, &shuttle.theirs] {
                let outcome = side.result.clone().unwrap().unwrap();
                assert_eq!((outcome.on_conflict, outcome.initiator_is_b), (on_conflict, is_b));
            }
        }
    }
}

#[test]
fn sessions_that_save_time_find_the_difference_too() {
    for kind in SymbolKind::ALL {
        for expected_difference in [None, Some(100)] {
            for (shared, only_ours, only_theirs) in
                [(100, 0, 0), (500, 20, 0), (3000, 30, 60), (5000, 400, 300), (2000, 2500, 2500)]
            {
                let (ours, theirs) = sets(kind, true, shared, only_ours, only_theirs);
                let optimize = Optimize::Time;
                let aim = Aim { optimize, expected_difference, ..Aim::new(Direction::TwoWay) };
                let mut shuttle = aimed(kind, aim, &ours, &theirs);
                shuttle.run();
                shuttle.check(Direction::TwoWay);
            }
        }
    }
}

/// A side without items has no mean item length of its own: it is taken from the received items.
#[test]
fn a_side_without_items_has_a_lower_bound_too() {
    for only_theirs in [10, 300] {
        let (ours, theirs) = sets(SymbolKind::Hashed, true, 0, 0, only_theirs);
        for direction in [Direction::Compare, Direction::Pull] {
            let mut initiator = Options::initiator(SymbolKind::Hashed, direction, 1);
            let SessionRole::Initiator(aim) = &mut initiator.role else { panic!() };
            aim.want_items = true;
            let responder = Options::responder(SymbolKind::Hashed, 2);
            let mut shuttle = Shuttle::new(initiator, responder, &ours, &theirs);
            shuttle.run();
            let outcome = shuttle.ours.result.expect("done").expect("verified");
            // 256 bits per item, less the cost of their order.
            assert!(outcome.lower_bound_bytes > 30 * only_theirs, "{outcome:?}");
        }
    }
}

/// Regression: it got all symbols, and sent them back to request the sum of their items.
#[test]
fn a_side_without_items_does_not_repeat_what_it_was_told() {
    for kind in [SymbolKind::Hashed, SymbolKind::Keyed] {
        for direction in [Direction::Compare, Direction::Push] {
            let (ours, theirs) = sets(kind, true, 0, 0, 3000);
            let mut shuttle = Shuttle::of(kind, direction, &ours, &theirs);
            shuttle.run();
            shuttle.check(direction);
            assert_eq!(shuttle.ours.only_there.len(), 3000);
            let outcome = shuttle.ours.result.expect("done").expect("verified");
            assert!(outcome.sent_bytes < 1000, "{kind:?} {direction:?}: {outcome:?}");
        }
    }
}

/// Another version of the protocol may go on otherwise after the version's byte.
#[test]
fn a_hello_of_another_version_is_refused_by_name() {
    let (mut hello, mut out) = (Vec::new(), Outbox::new());
    put_frame(&mut hello, Message::HELLO, &[2, 99]);
    let mut responder = Session::new(Options::responder(SymbolKind::Hashed, 0));
    responder.step(SessionInput::Received(hello), &mut out);
    let mut answer = FrameBuffer::default();
    for output in out.take() {
        match output {
            SessionOutput::Send(bytes) => answer.push(&bytes),
            SessionOutput::Finish(ended) => {
                assert_eq!(ended, Err(SessionError::Refused(SessionRefusal::Version)));
            }
            _ => {}
        }
    }
    let frame = answer.next_frame().expect("a frame").expect("an answer");
    let refused = Message::Welcome(Welcome::Refused(SessionRefusal::Version));
    assert_eq!(Message::read(&frame).expect("a message"), refused);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_sets_are_reconciled(
        kind in prop::sample::select(&SymbolKind::ALL),
        direction in prop::sample::select(&Direction::ALL),
        is_fixed: bool,
        shared in 0..800u64,
        sides in prop_oneof![(0..12u64, 0..12u64), (0..300u64, 0..300u64)],
        chunk_bytes in prop_oneof![Just(0usize), Just(1), 1..200usize],
    ) {
        let (ours, theirs) = sets(kind, is_fixed, shared, sides.0, sides.1);
        let mut shuttle = Shuttle::of(kind, direction, &ours, &theirs);
        shuttle.chunk_bytes = chunk_bytes;
        shuttle.run();
        shuttle.check(direction);
    }
}
