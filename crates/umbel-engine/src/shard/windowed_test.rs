//! Windows in a shard: times of entries, late items, and replicas that agree.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use umbel_filter::{CellCount, HashFunction, Kind};

use super::shard_test::{self, FIRST, RULES, SHARD, filter_of, list, range};
use super::*;
use crate::ids::{FilterId, Generation};

const FILTER: FilterId = FilterId(5);

fn spec(rules: WindowRules) -> SliceSpec {
    let shards = CellCount::new(3).unwrap();
    // Fingerprints so long that no two items of a test share one.
    let shape = SliceShape::plan_window(3_000, 1e-12, shards, rules).unwrap();
    let key = KeyName { function: HashFunction::Xxh3Seeded.id(), key_id: 1 };
    SliceSpec { filter: FILTER, generation: FIRST, shape, key }
}

fn state(rules: WindowRules) -> ShardState {
    let mut state = ShardState::new(SHARD, range());
    assert_eq!(state.apply(&ShardCommand::CreateSlice(spec(rules))), ShardReply::Done(Ok(())));
    state
}

/// Inserts like a leader whose clock shows `now_ms`: first advances the window, then inserts absent
/// items.
fn insert(
    state: &mut ShardState,
    now_ms: u64,
    at_ms: Option<u64>,
    items: &[u64],
) -> Result<Vec<bool>, PartError> {
    if state.is_behind(FILTER, now_ms) {
        state.apply(&ShardCommand::Advance { now_ms });
    }
    let hashes = list(items);
    let prepared = state.prepare_insert(FILTER, FIRST, None, hashes, SliceGrowth::ANY)?;
    let part = match prepared {
        PreparedInsert::Propose(part) => part,
        PreparedInsert::AllPresent { .. } => return Ok(vec![false; items.len()]),
        other => panic!("{other:?}"),
    };
    let inserts = vec![TimedInsert { part, at_ms }];
    match state.apply(&ShardCommand::InsertTimed { now_ms, inserts }) {
        ShardReply::Inserted(mut answers) => {
            let answer = answers.pop().unwrap()?;
            let ones: Vec<usize> = answer.iter_ones().collect();
            Ok((0..items.len()).map(|at| ones.contains(&at)).collect())
        }
        other => panic!("{other:?}"),
    }
}

fn has(state: &mut ShardState, now_ms: u64, item: u64) -> bool {
    if state.is_behind(FILTER, now_ms) {
        state.apply(&ShardCommand::Advance { now_ms });
    }
    state.contains(FILTER, FIRST, &list(&[item])).unwrap().get(0)
}

/// Five slices of one second: items are found for at least five seconds, and are gone after six.
#[test]
fn items_stay_for_the_slices_of_the_window_and_one_more_at_most() {
    let mut state = state(WindowRules { time: WindowTime::Ingest, ..RULES });
    assert_eq!(insert(&mut state, 10_400, None, &[1]), Ok(vec![true]));
    assert_eq!(insert(&mut state, 15_999, None, &[1, 2]), Ok(vec![false, true]));
    assert!(has(&mut state, 15_999, 1));
    assert!(!has(&mut state, 16_000, 1) && has(&mut state, 16_000, 2));
    // A clock that goes back moves no window back.
    assert!(!has(&mut state, 9_000, 1));
    assert_eq!(insert(&mut state, 9_000, None, &[1]), Ok(vec![true]));
    assert!(has(&mut state, 21_999, 1) && !has(&mut state, 22_000, 1));
}

#[test]
fn items_that_come_again_stay_where_the_window_says_so() {
    for refresh in [false, true] {
        let mut state = state(WindowRules { refresh, ..RULES });
        insert(&mut state, 10_000, None, &[1, 2]).unwrap();
        assert_eq!(insert(&mut state, 14_000, None, &[1]), Ok(vec![false]));
        assert!(!has(&mut state, 16_000, 2));
        assert_eq!(has(&mut state, 16_000, 1), refresh);
        assert_eq!(has(&mut state, 19_999, 1), refresh);
        assert!(!has(&mut state, 20_000, 1));
    }
}

#[test]
fn late_and_early_items_are_as_the_window_says() {
    for late in [LateItems::Reject, LateItems::Drop, LateItems::Oldest] {
        let mut state = state(WindowRules { late, ..RULES });
        insert(&mut state, 60_000, None, &[9]).unwrap();
        // The oldest slice is that of second 55.
        assert_eq!(insert(&mut state, 60_500, Some(55_000), &[1]), Ok(vec![true]));
        let outcome = insert(&mut state, 60_500, Some(54_999), &[2]);
        let there = has(&mut state, 60_500, 2);
        match late {
            LateItems::Reject => {
                let (at_ms, oldest_ms) = (54_999, 55_000);
                assert_eq!(outcome, Err(PartError::LateItem { filter: FILTER, at_ms, oldest_ms }));
                assert!(!there);
            }
            LateItems::Drop => assert_eq!((outcome, there), (Ok(vec![false]), false)),
            LateItems::Oldest => assert_eq!((outcome, there), (Ok(vec![true]), true)),
        }
        assert!(!has(&mut state, 61_000, 1) && !has(&mut state, 61_000, 2));
        // An item one slice ahead is accepted, and stays for as long as others of its slice.
        assert_eq!(insert(&mut state, 61_000, Some(62_999), &[3]), Ok(vec![true]));
        let refused = insert(&mut state, 61_000, Some(63_000), &[4]);
        let (at_ms, latest_ms) = (63_000, 62_999);
        assert_eq!(refused, Err(PartError::FutureItem { filter: FILTER, at_ms, latest_ms }));
        assert!(has(&mut state, 67_999, 3) && !has(&mut state, 68_000, 3));
    }
    let mut state = state(WindowRules { time: WindowTime::Ingest, ..RULES });
    let refused = insert(&mut state, 60_000, Some(60_000), &[1]);
    assert!(matches!(refused, Err(PartError::WrongKind { .. })), "{refused:?}");
}

const MANUAL: WindowRules =
    WindowRules { slice_ms: 0, slice_count: 2, time: WindowTime::Manual, ..RULES };

fn rotate(state: &mut ShardState, generation: u64) -> ShardReply {
    let generation = Generation(generation);
    state.apply(&ShardCommand::RotateSlice { filter: FILTER, generation })
}

/// Like [`insert`], for a given generation and a single item.
fn insert_in(state: &mut ShardState, generation: u64, item: u64) -> Result<bool, PartError> {
    assert!(!state.is_behind(FILTER, u64::MAX));
    let hashes = list(&[item]);
    let prepared =
        state.prepare_insert(FILTER, Generation(generation), None, hashes, SliceGrowth::ANY)?;
    let PreparedInsert::Propose(part) = prepared else { return Ok(false) };
    let inserts = vec![TimedInsert { part, at_ms: None }];
    // Whatever the clock shows.
    let reply = state.apply(&ShardCommand::InsertTimed { now_ms: 1 << 40, inserts });
    let ShardReply::Inserted(mut answers) = reply else { panic!("{reply:?}") };
    answers.pop().unwrap().map(|answer| answer.get(0))
}

/// Two slices, rotated manually: items are found until two rotations have followed, and are gone after
/// the third.
#[test]
fn rotations_end_slices_where_no_clock_does() {
    let mut state = state(MANUAL);
    let has = |state: &ShardState, generation, item| {
        state.contains(FILTER, Generation(generation), &list(&[item])).map(|found| found.get(0))
    };
    assert_eq!(insert_in(&mut state, 1, 1), Ok(true));
    state.apply(&ShardCommand::Advance { now_ms: u64::MAX });
    assert_eq!(rotate(&mut state, 2), ShardReply::Done(Ok(())));
    // It is retried, and the old generation is refused everywhere.
    assert_eq!(rotate(&mut state, 2), ShardReply::Done(Ok(())));
    let (filter, got, current) = (FILTER, Generation(1), Generation(2));
    let stale = PartError::StaleGeneration { filter, got, current };
    assert_eq!(has(&state, 1, 1), Err(stale.clone()));
    assert_eq!(insert_in(&mut state, 1, 9), Err(stale));
    assert_eq!(insert_in(&mut state, 2, 1), Ok(false));
    assert_eq!(insert_in(&mut state, 2, 2), Ok(true));
    rotate(&mut state, 3);
    assert_eq!(has(&state, 3, 1), Ok(true));
    rotate(&mut state, 4);
    assert_eq!((has(&state, 4, 1), has(&state, 4, 2)), (Ok(false), Ok(true)));
    // A clear empties all slices, and rotations continue from there.
    let generation = Generation(5);
    state.apply(&ShardCommand::ClearSlice { filter, generation });
    assert_eq!((has(&state, 5, 2), insert_in(&mut state, 5, 2)), (Ok(false), Ok(true)));
    rotate(&mut state, 6);
    assert_eq!(has(&state, 6, 2), Ok(true));
}

#[test]
fn what_is_not_rotated_by_hand_refuses_it() {
    let mut by_time = state(RULES);
    let refused = rotate(&mut by_time, 2);
    assert!(matches!(refused, ShardReply::Done(Err(PartError::WrongKind { .. }))), "{refused:?}");
    assert_eq!(insert(&mut by_time, 1_000, None, &[1]), Ok(vec![true]));
    let mut others = shard_test::state();
    let filter = filter_of(Kind::Blocked, 0);
    let refused = others.apply(&ShardCommand::RotateSlice { filter, generation: Generation(2) });
    assert!(matches!(refused, ShardReply::Done(Err(PartError::WrongKind { .. }))), "{refused:?}");
    let mut by_hand = state(MANUAL);
    let named = insert(&mut by_hand, 1_000, Some(1_000), &[1]);
    assert!(matches!(named, Err(PartError::WrongKind { .. })), "{named:?}");
}

#[test]
fn a_full_window_says_so_and_takes_items_again_later() {
    let mut state = state(RULES);
    let mut taken = 0;
    let refused = loop {
        let items: Vec<u64> = (taken..taken + 100).collect();
        match insert(&mut state, 10_000, None, &items) {
            Ok(_) => taken += 100,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, PartError::Full { .. }) && taken >= 1_000, "{refused} {taken}");
    assert!((0..taken).all(|item| has(&mut state, 10_000, item)));
    assert_eq!(insert(&mut state, 16_000, None, &[1 << 40]), Ok(vec![true]));
}

#[test]
fn other_filters_have_no_times() {
    let mut state = shard_test::state();
    let filter = filter_of(Kind::Blocked, 0);
    let prepared = state.prepare_insert(filter, FIRST, None, list(&[1]), SliceGrowth::ANY);
    let Ok(PreparedInsert::Propose(part)) = prepared else { panic!() };
    let with = |at_ms| {
        let inserts = vec![TimedInsert { part: part.clone(), at_ms }];
        ShardCommand::InsertTimed { now_ms: 7, inserts }
    };
    let ShardReply::Inserted(refused) = state.apply(&with(Some(7))) else { panic!() };
    assert!(matches!(refused[0], Err(PartError::WrongKind { .. })), "{refused:?}");
    // In one entry with inserts into windows, it is an insert like any other.
    let ShardReply::Inserted(answers) = state.apply(&with(None)) else { panic!() };
    assert_eq!(answers, [Ok(Bitmap::ones(1))]);
}

#[test]
fn windows_that_are_none_are_refused() {
    let shards = CellCount::new(4).unwrap();
    for rules in [
        WindowRules { slice_count: 0, ..RULES },
        WindowRules { slice_count: 1_000_000, ..RULES },
        WindowRules { slice_ms: 0, ..RULES },
        WindowRules { slice_ms: u64::MAX, ..RULES },
        WindowRules { slice_ms: 1_000, ..MANUAL },
        WindowRules { slice_count: 63, ..MANUAL },
    ] {
        assert!(SliceShape::plan_window(1_000, 0.01, shards, rules).is_err(), "{rules:?}");
        let mut hostile = spec(RULES);
        let SliceShape::Window { rules: ours, .. } = &mut hostile.shape else { panic!() };
        *ours = rules;
        let mut state = ShardState::new(SHARD, range());
        let reply = state.apply(&ShardCommand::CreateSlice(hostile));
        assert!(matches!(reply, ShardReply::Done(Err(_))), "{reply:?}");
    }
}

proptest! {
    /// The slow twin: items with the number of their slice, and a clock that never goes back. A replica
    /// that is loaded from a snapshot in between continues like the others.
    #[test]
    fn a_window_is_a_map_with_times(
        refresh: bool,
        steps in vec((0..20_u64, 0..1_500_u64, 0..4_000_u64, any::<bool>()), 0..80),
        snapshot_at in 0..80_usize,
    ) {
        let rules = WindowRules { refresh, ..RULES };
        let (mut replica, mut twin) = (state(rules), BTreeMap::<u64, u64>::new());
        let mut now_ms = 100_000;
        for (at, (item, passed_ms, back_ms, is_event)) in steps.into_iter().enumerate() {
            now_ms += passed_ms;
            let slice = now_ms / 1_000;
            twin.retain(|_, inserted| *inserted + 5 >= slice);
            let at_ms = is_event.then(|| now_ms + 900 - back_ms);
            let expected = !twin.contains_key(&item);
            let inserted = at_ms.unwrap_or(now_ms) / 1_000;
            let outcome = insert(&mut replica, now_ms, at_ms, &[item]);
            prop_assert_eq!(outcome, Ok(vec![expected]));
            let kept = twin.entry(item).or_insert(inserted);
            if refresh {
                *kept = inserted.max(*kept);
            }
            for item in 0..20 {
                prop_assert_eq!(has(&mut replica, now_ms, item), twin.contains_key(&item));
            }
            if at == snapshot_at {
                let snapshot = replica.snapshot();
                let mut loader = SnapshotLoader::new(SHARD, range(), snapshot.head()).unwrap();
                for frame in snapshot.frames() {
                    loader.push(&frame.unwrap()).unwrap();
                }
                let loaded = loader.finish().unwrap();
                prop_assert_eq!(loaded.digest(), replica.digest());
                replica = loaded;
            }
        }
    }
}
