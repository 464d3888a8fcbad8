//! Sessions that begin with stored sketches, compared with plain sets.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::error::SessionError;
use super::item::Item;
use super::options::{Direction, Options, SymbolKind};
use super::session::Session;
use super::session_test::{item, sets};
use super::testing::{Shuttle, sketch_of};

/// A session in which both sides have sketches with the given numbers of coded symbols.
fn stored(
    kind: SymbolKind,
    direction: Direction,
    (ours, theirs): (&BTreeSet<Item>, &BTreeSet<Item>),
    coded_counts: (u64, u64),
) -> Shuttle {
    let mut shuttle = Shuttle::of(kind, direction, ours, theirs);
    shuttle.ours.begin_with(sketch_of(kind, ours, coded_counts.0));
    shuttle.theirs.begin_with(sketch_of(kind, theirs, coded_counts.1));
    shuttle
}

#[test]
fn equal_sets_are_not_scanned() {
    for kind in SymbolKind::ALL {
        let (ours, _) = sets(kind, true, 3000, 0, 0);
        let mut shuttle = stored(kind, Direction::TwoWay, (&ours, &ours), (9, 40));
        shuttle.run();
        shuttle.check(Direction::TwoWay);
        assert_eq!((shuttle.ours.scan_count, shuttle.theirs.scan_count), (0, 0));
        let outcome = shuttle.ours.result.unwrap().unwrap();
        // 55 bytes before the estimator, which is 64 numbers of 9 bits here, then the digest in the answer.
        assert!(outcome.bytes.total() < 55 + 80 + 40, "{}", outcome.bytes.total());
    }
}

/// One scan finds this side's part of the difference, and serves the other side's request; a side that only
/// receives does not scan at all.
#[test]
fn what_differs_takes_one_scan_of_a_side() {
    for kind in SymbolKind::ALL {
        let (ours, theirs) = sets(kind, true, 3000, 30, 60);
        let mut shuttle = stored(kind, Direction::TwoWay, (&ours, &theirs), (500, 400));
        shuttle.run();
        shuttle.check(Direction::TwoWay);
        // Ids are not requested, because their symbols determine them.
        let asked = usize::from(kind != SymbolKind::Id64);
        assert_eq!((shuttle.ours.scan_count, shuttle.theirs.scan_count), (1, asked), "{kind:?}");
        let outcome = shuttle.ours.result.unwrap().unwrap();
        assert!(outcome.plan.starts_with("stored riblt"), "{}", outcome.plan);
        assert_eq!(outcome.attempt_count, 1);
    }
    let (ours, theirs) = sets(SymbolKind::Hashed, true, 300, 20, 0);
    let mut shuttle = stored(SymbolKind::Hashed, Direction::Push, (&ours, &theirs), (200, 200));
    shuttle.run();
    shuttle.check(Direction::Push);
    assert_eq!((shuttle.ours.scan_count, shuttle.theirs.scan_count), (1, 0));
}

#[test]
fn undecodable_sketches_lead_to_a_plain_session() {
    let (ours, theirs) = sets(SymbolKind::Hashed, true, 2000, 300, 200);
    // Too short on both sides, or on one side only.
    for coded_counts in [(5, 5), (5, 2000), (2000, 5), (500, 500)] {
        let mut shuttle =
            stored(SymbolKind::Hashed, Direction::TwoWay, (&ours, &theirs), coded_counts);
        shuttle.run();
        shuttle.check(Direction::TwoWay);
        let outcome = shuttle.ours.result.unwrap().unwrap();
        assert!(!outcome.plan.contains("stored"), "{}", outcome.plan);
    }
    for is_ours in [true, false] {
        let mut shuttle = Shuttle::of(SymbolKind::Hashed, Direction::TwoWay, &ours, &theirs);
        let (side, items) =
            if is_ours { (&mut shuttle.ours, &ours) } else { (&mut shuttle.theirs, &theirs) };
        side.begin_with(sketch_of(SymbolKind::Hashed, items, 2000));
        shuttle.run();
        shuttle.check(Direction::TwoWay);
    }
    // Equal sets, one without a sketch: it scans once, and nothing more is needed.
    let mut shuttle = Shuttle::of(SymbolKind::Hashed, Direction::TwoWay, &ours, &ours);
    shuttle.ours.begin_with(sketch_of(SymbolKind::Hashed, &ours, 20));
    shuttle.run();
    shuttle.check(Direction::TwoWay);
    assert_eq!((shuttle.ours.scan_count, shuttle.theirs.scan_count), (0, 1));
}

/// A sketch that does not match its set any more ends the session at the first scan. A responder of ids
/// does not scan.
#[test]
fn a_stale_sketch_is_noticed_by_the_first_scan() {
    for kind in SymbolKind::ALL {
        let (ours, theirs) = sets(kind, true, 500, 4, 3);
        let sides: &[bool] = if kind == SymbolKind::Id64 { &[true] } else { &[true, false] };
        for &is_ours in sides {
            for (gone, more) in [(0, 1), (1, 0), (1, 1)] {
                let mut shuttle = stored(kind, Direction::TwoWay, (&ours, &theirs), (300, 300));
                let side = if is_ours { &mut shuttle.ours } else { &mut shuttle.theirs };
                side.items.drain(..gone);
                side.items.extend((0..more).map(|at| item(kind, (9 << 40) + at, true)));
                shuttle.run();
                let side = if is_ours { &shuttle.ours } else { &shuttle.theirs };
                let result = side.result.as_ref().unwrap();
                assert_eq!(result, &Err(SessionError::StaleSketch), "{kind:?} {gone} {more}");
            }
        }
    }
}

/// Coded symbols of another set under the right digest decode to a difference that is rejected.
#[test]
fn a_sketch_that_contradicts_itself_costs_an_attempt() {
    let (ours, theirs) = sets(SymbolKind::Hashed, true, 500, 10, 10);
    let (_, other) = sets(SymbolKind::Hashed, true, 450, 0, 60);
    let (true_bytes, mut forged) =
        (sketch_of(SymbolKind::Hashed, &theirs, 100), sketch_of(SymbolKind::Hashed, &other, 100));
    forged.set_header_of(&true_bytes);
    let mut shuttle = stored(SymbolKind::Hashed, Direction::TwoWay, (&ours, &theirs), (100, 100));
    shuttle.theirs.begin_with(forged);
    shuttle.run();
    shuttle.check(Direction::TwoWay);
    assert_eq!(shuttle.ours.result.unwrap().unwrap().attempt_count, 2);
}

#[test]
fn sketches_of_other_items_and_sessions_with_domains_do_not_go_together() {
    let (ours, _) = sets(SymbolKind::Hashed, true, 5, 0, 0);
    let sketch = sketch_of(SymbolKind::Hashed, &ours, 9);
    let other_kind = Session::new(Options::responder(SymbolKind::Keyed, 1));
    assert!(other_kind.with_sketch(sketch.clone()).is_err());
    let other_set = Options { dataset_id: 3, ..Options::responder(SymbolKind::Hashed, 1) };
    assert!(Session::new(other_set).with_sketch(sketch.clone()).is_err());
    let other = Options { domain: [1; 16], ..Options::responder(SymbolKind::Hashed, 1) };
    assert!(Session::new(other).with_sketch(sketch.clone()).is_err());
    // A side with a domain does not answer a session that begins with a sketch either.
    let initiator = Options::initiator(SymbolKind::Hashed, Direction::TwoWay, 1);
    let mut shuttle = Shuttle::new(initiator, other, &ours, &ours);
    shuttle.ours.begin_with(sketch);
    shuttle.run();
    assert_eq!(shuttle.theirs.result, Some(Err(SessionError::Key)));
    assert!(shuttle.ours.result.unwrap().is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_sets_are_reconciled(
        kind in prop::sample::select(&SymbolKind::ALL),
        direction in prop::sample::select(&Direction::ALL),
        is_fixed: bool,
        shared in 0..800u64,
        sides in prop_oneof![(0..12u64, 0..12u64), (0..300u64, 0..300u64)],
        coded_counts in (1..900u64, 1..900u64),
        chunk_bytes in prop_oneof![Just(0usize), Just(1), 1..200usize],
    ) {
        let (ours, theirs) = sets(kind, is_fixed, shared, sides.0, sides.1);
        let mut shuttle = stored(kind, direction, (&ours, &theirs), coded_counts);
        shuttle.chunk_bytes = chunk_bytes;
        shuttle.run();
        shuttle.check(direction);
    }
}
