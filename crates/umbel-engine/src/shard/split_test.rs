//! Both halves of a split shard, compared with the unsplit one.

use proptest::prelude::*;
use umbel_filter::{HashRange, Kind};

use super::shard_test::{
    FIRST, SHARD, Step, filter_of, insert, item, list, range, stamp, state, steps, take,
};
use super::{
    PartError, PreparedInsert, RequestStamp, ShardCommand, ShardReply, ShardState, SliceGrowth,
    SnapshotLoader,
};
use crate::ids::{FilterId, ShardId};

const INTO: ShardId = ShardId(7);

/// Where the shard is split: not at the border of a block.
fn middle() -> u64 {
    range().start() + u64::try_from(range().width() / 2).unwrap() + 12_345
}

/// The lower and the upper half.
fn halves(whole: &ShardState) -> [ShardState; 2] {
    let split = ShardCommand::Split { into: INTO, at: middle() };
    let mut lower = whole.clone();
    let upper = lower.upper_half(&split).unwrap().unwrap();
    assert_eq!(lower.apply_at(9, &split), ShardReply::Done(Ok(())));
    [lower, upper]
}

/// The stamp of a part that is cut for the shard's current range.
fn cut_for(state: &ShardState, stamp: RequestStamp) -> RequestStamp {
    RequestStamp { cut: state.range().bounds(), ..stamp }
}

fn of_range(range: HashRange, items: &[u64]) -> Vec<u64> {
    items.iter().copied().filter(|&number| range.contains(item(number).hi())).collect()
}

/// The state loaded from a snapshot of it.
fn reloaded(state: &ShardState, first_range: HashRange) -> ShardState {
    let snapshot = state.snapshot();
    let mut loader = SnapshotLoader::new(state.shard(), first_range, snapshot.head()).unwrap();
    snapshot.frames().for_each(|frame| loader.push(&frame.unwrap()).unwrap());
    loader.finish().unwrap()
}

#[test]
fn halves_tile_the_range_and_count_what_the_whole_counted() {
    let mut whole = state();
    let items: Vec<u64> = (0..50).collect();
    for kind in Kind::ALL {
        insert(&mut whole, filter_of(kind, 0), None, list(&items)).unwrap();
    }
    let halves = halves(&whole);
    let [lower, upper] = halves.each_ref().map(ShardState::range);
    assert_eq!((lower.start(), upper.end()), (range().start(), range().end()));
    assert_eq!((u128::from(upper.start()), upper.start()), (lower.end(), middle()));
    assert_eq!(halves.each_ref().map(ShardState::shard), [SHARD, INTO]);
    for kind in Kind::ALL {
        let counts = |state: &ShardState| {
            let summary = state.summary(filter_of(kind, 0)).unwrap();
            (summary.new_count, summary.memory_bytes)
        };
        let ((lower, _), (upper, _)) = (counts(&halves[0]), counts(&halves[1]));
        assert_eq!(lower + upper, counts(&whole).0, "{kind}");
    }
}

#[test]
fn what_is_whole_in_one_shard_goes_where_its_place_is() {
    let mut whole = state();
    let filter = filter_of(Kind::RedisBloom, 0);
    let items: Vec<u64> = (0..20).collect();
    insert(&mut whole, filter, None, list(&items)).unwrap();
    let [lower, upper] = halves(&whole);
    // It was placed at the start of the range, and has items of the whole range.
    assert_eq!(
        lower.contains(filter, FIRST, &list(&items)),
        whole.contains(filter, FIRST, &list(&items))
    );
    let refused = upper.contains(filter, FIRST, &list(&items));
    assert!(matches!(refused, Err(PartError::ForeignHash { shard: INTO, .. })), "{refused:?}");
    assert_eq!(upper.summary(filter).unwrap().new_count, 0);
}

#[test]
fn a_split_that_comes_late_or_makes_no_sense_changes_nothing() {
    let [mut lower, upper] = halves(&state());
    let again = ShardCommand::Split { into: ShardId(9), at: lower.range().start() + 100 };
    assert_eq!(lower.apply(&again), ShardReply::Done(Ok(())));
    let digest = lower.digest();
    for at in [lower.range().start() + 100, middle(), middle() + 1, u64::MAX] {
        let late = ShardCommand::Split { into: INTO, at };
        assert!(lower.upper_half(&late).unwrap().is_none());
        assert_eq!(lower.apply(&late), ShardReply::Done(Ok(())));
    }
    for at in [0, lower.range().start()] {
        let bad = ShardCommand::Split { into: INTO, at };
        assert!(matches!(lower.upper_half(&bad), Err(PartError::Malformed { .. })));
        assert!(matches!(lower.apply(&bad), ShardReply::Done(Err(PartError::Malformed { .. }))));
    }
    assert_eq!(lower.digest(), digest);
    let other = ShardCommand::DropSlice(FilterId(1));
    assert!(upper.upper_half(&other).unwrap().is_none());
}

#[test]
fn an_answer_of_before_is_given_for_the_part_of_before_alone() {
    let mut whole = state();
    let filter = filter_of(Kind::Blocked, 0);
    let items: Vec<u64> = (0..30).collect();
    let answer =
        insert(&mut whole, filter, Some(stamp(1, 1, &list(&items))), list(&items)).unwrap();
    for mut half in halves(&whole) {
        let now = list(&of_range(half.range(), &items));
        let again = Some(cut_for(&half, stamp(1, 1, &now)));
        let refused = insert(&mut half, filter, again, now.clone());
        let Err(PartError::CutBefore { start, last, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!((start, last), range().bounds());
        let before = stamp(1, 1, &list(&items));
        assert_eq!(before.cut, (start, last));
        assert_eq!(insert(&mut half, filter, Some(before), list(&items)), Ok(answer.clone()));
        // With other items it is another request.
        let other = stamp(1, 1, &now);
        let reused = insert(&mut half, filter, Some(other), now.clone());
        assert!(matches!(reused, Err(PartError::RequestReused { .. })), "{reused:?}");
        // Parts of later requests are cut for the half.
        let next = Some(cut_for(&half, stamp(1, 2, &now)));
        let next = insert(&mut half, filter, next, now.clone()).unwrap();
        assert_eq!(next.count_ones(), 0);
    }
}

/// A node that learned of a split before the shard did sends it the part of the lower half, and the new
/// shard that of the upper half. If the first were applied and recorded for the whole range, the second
/// would be taken for a part of it.
#[test]
fn what_is_cut_for_a_range_that_the_shard_has_not_yet_is_refused() {
    let mut whole = state();
    let filter = filter_of(Kind::Blocked, 0);
    let items: Vec<u64> = (0..30).collect();
    for early in halves(&whole) {
        let now = list(&of_range(early.range(), &items));
        let request = cut_for(&early, stamp(1, 1, &now));
        let refused = insert(&mut whole, filter, Some(request), now);
        let Err(PartError::OtherCut { start, last, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!((start, last), request.cut);
    }
    // And a part that is cut for the former range, when nothing was answered before.
    for mut half in halves(&whole) {
        let late = insert(&mut half, filter, Some(stamp(1, 1, &list(&items))), list(&items));
        assert!(matches!(late, Err(PartError::OtherCut { .. })), "{late:?}");
        let now = list(&of_range(half.range(), &items));
        let request = cut_for(&half, stamp(1, 1, &now));
        assert_eq!(
            insert(&mut half, filter, Some(request), now.clone()).unwrap().count_ones() as usize,
            now.len()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn halves_answer_what_the_whole_would(steps in steps()) {
        let mut whole = state();
        for step in &steps {
            // Refusals do not matter here.
            let _ = take(&mut whole, step);
        }
        let halves = halves(&whole);
        let items: Vec<u64> = (0..150).collect();
        for half in &halves {
            for kind in Kind::ALL.into_iter().filter(|kind| !kind.is_whole()) {
                for number in 0..2 {
                    let filter = filter_of(kind, number);
                    let generation = whole.summary(filter).unwrap().generation;
                    let ours = list(&of_range(half.range(), &items));
                    prop_assert_eq!(
                        half.contains(filter, generation, &ours),
                        whole.contains(filter, generation, &ours),
                        "{}", kind
                    );
                }
            }
            let first_range = if half.shard() == SHARD { range() } else { half.range() };
            prop_assert_eq!(reloaded(half, first_range).digest(), half.digest());
        }
        for step in &steps {
            let Step::Insert { kind, items, request: Some((session, sequence)) } = step else { continue };
            let (filter, all) = (filter_of(*kind, 0), list(items));
            let generation = whole.summary(filter).unwrap().generation;
            let before = stamp(*session, *sequence, &all);
            let ask = |state: &ShardState, stamp, hashes| {
                state.prepare_insert(filter, generation, Some(stamp), hashes, SliceGrowth::ANY)
            };
            let Ok(PreparedInsert::Answered(answer)) = ask(&whole, before, all.clone()) else { continue };
            for half in &halves {
                let now = list(&of_range(half.range(), items));
                let again = cut_for(half, stamp(*session, *sequence, &now));
                match ask(half, again, now.clone()) {
                    Ok(PreparedInsert::Answered(same)) => prop_assert_eq!((&same, &now), (&answer, &all)),
                    Err(PartError::CutBefore { start, last, .. }) => {
                        prop_assert_eq!(before.cut, (start, last));
                        let answered = ask(half, before, all.clone());
                        prop_assert_eq!(answered, Ok(PreparedInsert::Answered(answer.clone())));
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
            }
        }
    }
}
