//! Sums of counts: once per request, alike on every replica, however often the slices have grown.

use umbel_filter::Kind;

use super::shard_test::{FIRST, SHARD, filter_of, insert, list, range, remove, spec, stamp, state};
use super::*;
use crate::ids::FilterId;

fn sources(kind: Kind) -> Vec<(FilterId, crate::ids::Generation)> {
    [1, 2].map(|number| (filter_of(kind, number), FIRST)).to_vec()
}

fn sum_of(state: &ShardState, kind: Kind, request: Option<RequestStamp>) -> PreparedSum {
    let target = (filter_of(kind, 0), FIRST);
    state.prepare_sum(target, sources(kind), request, SliceGrowth::ANY).unwrap()
}

fn command(prepared: PreparedSum) -> ShardCommand {
    let PreparedSum::Propose(command) = prepared else { panic!("{prepared:?}") };
    command
}

/// Three slices of a kind: the first has items 0 to 9, the second 0 to 19, the third 10 to 29.
fn filled(kind: Kind) -> ShardState {
    let mut state = state();
    for (number, items) in [(0, 0..10), (1, 0..20), (2, 10..30)] {
        let items: Vec<u64> = items.collect();
        insert(&mut state, filter_of(kind, number), None, list(&items)).unwrap();
    }
    state
}

#[test]
fn a_request_that_comes_again_adds_nothing() {
    for kind in [Kind::Counting, Kind::Quotient] {
        let mut state = filled(kind);
        let target = filter_of(kind, 0);
        let request = Some(stamp(5, 1, &list(&[])));
        let add = command(sum_of(&state, kind, request));
        let first = state.apply(&add);
        let ShardReply::Merged(Ok(new_count)) = first else { panic!("{kind}: {first:?}") };
        assert!(new_count >= 20, "{kind}: {new_count}");
        let digest = state.digest();
        // As a duplicate log entry, as a request to a leader that has recorded it, and after a snapshot.
        assert_eq!((state.apply(&add), state.digest()), (first.clone(), digest));
        assert_eq!(sum_of(&state, kind, request), PreparedSum::Answered(new_count));
        let snapshot = state.snapshot();
        let mut loader = SnapshotLoader::new(SHARD, range(), snapshot.head()).unwrap();
        snapshot.frames().for_each(|frame| loader.push(&frame.unwrap()).unwrap());
        let mut loaded = loader.finish().unwrap();
        assert_eq!((loaded.apply(&add), loaded.digest()), (first, digest));
        // The request id of another sum, or of an insert, is refused.
        let other =
            state.prepare_sum((target, FIRST), vec![sources(kind)[0]], request, SliceGrowth::ANY);
        assert!(matches!(other, Err(PartError::RequestReused { .. })), "{kind}: {other:?}");
        // Items 0 to 9 were inserted twice, 10 to 19 twice, and 20 to 29 once.
        for (left, round) in [(30, 0), (20, 1), (0, 2)] {
            let all: Vec<u64> = (0..30).collect();
            let there = state.contains(target, FIRST, &list(&all)).unwrap().count_ones();
            assert_eq!(there, left, "{kind} after {round}");
            let present: Vec<u64> = all.into_iter().take(left as usize).collect();
            remove(&mut state, target, None, list(&present)).unwrap();
        }
        // Another request id is another sum.
        let again = command(sum_of(&state, kind, Some(stamp(5, 2, &list(&[])))));
        assert!(matches!(state.apply(&again), ShardReply::Merged(Ok(new)) if new > 0));
    }
}

#[test]
fn what_does_not_count_is_not_added_up() {
    for kind in Kind::ALL {
        let mut state = filled(kind);
        let digest = state.digest();
        let target = (filter_of(kind, 0), FIRST);
        let prepared = state.prepare_sum(target, sources(kind), None, SliceGrowth::ANY);
        assert_eq!(prepared.is_ok(), kind.merges_by_sum(), "{kind}");
        let terms = SumTerms { request: None, growth_bytes: 0 };
        for given in [sources(kind), vec![target], vec![(FilterId(999), FIRST)]] {
            let is_sum = kind.merges_by_sum() && given.len() > 1;
            let (target, generation) = target;
            let operation = SetOperation::Sum(terms);
            let add = ShardCommand::MergeSlices { target, generation, sources: given, operation };
            let mut other = state.clone();
            let ShardReply::Merged(merged) = other.apply(&add) else { panic!() };
            assert_eq!(merged.is_ok(), is_sum, "{kind}: {merged:?}");
            assert!(is_sum || other.digest() == digest, "{kind}");
        }
        // Nor are counting kinds merged by union.
        let union = SetOperation::Union;
        let (target, generation) = target;
        let add = ShardCommand::MergeSlices {
            target,
            generation,
            sources: sources(kind),
            operation: union,
        };
        let ShardReply::Merged(merged) = state.apply(&add) else { panic!() };
        assert_eq!(merged.is_ok(), kind.merges_by_or(), "{kind}");
    }
}

/// The target grows as far as the sources have grown, and as far as all of them together need: by exactly
/// what it requests before, and no further than allowed. If refused, nothing is changed.
#[test]
fn slices_that_have_grown_are_added_up() {
    let kind = Kind::Quotient;
    let mut state = state();
    let [target, one, other] = [0, 1, 2].map(|number| filter_of(kind, number));
    let planned = state.summary(target).unwrap().memory_bytes;
    for first in [0, 20_000, 40_000] {
        let items: Vec<u64> = (first..first + 20_000).collect();
        insert(&mut state, one, None, list(&items)).unwrap();
    }
    insert(&mut state, target, None, list(&[1, 2, 90_000])).unwrap();
    insert(&mut state, other, None, list(&[2, 3, 90_001])).unwrap();
    let growth =
        |allowed_bytes, is_final| SliceGrowth { allowed_bytes, is_final, waiting_items: 0 };
    let prepare = |state: &ShardState, growth| {
        state.prepare_sum((target, FIRST), sources(kind), None, growth).unwrap()
    };
    let asked = prepare(&state, growth(0, false));
    let PreparedSum::Growing { growth_bytes } = asked else { panic!("{asked:?}") };
    let digest = state.digest();
    let short = command(prepare(&state, growth(growth_bytes - 1, true)));
    let ShardReply::Merged(Err(refused)) = state.apply(&short) else { panic!("it has no room") };
    assert!(matches!(&refused, PartError::Full { filter, .. } if *filter == target), "{refused}");
    assert_eq!(state.digest(), digest);
    let add = command(prepare(&state, growth(growth_bytes, false)));
    let mut replica = state.clone();
    let ShardReply::Merged(Ok(new_count)) = state.apply(&add) else { panic!("it has room") };
    assert_eq!(
        (replica.apply(&add), replica.digest()),
        (ShardReply::Merged(Ok(new_count)), state.digest())
    );
    let taken = |filter| state.describe(filter).unwrap().description.one_count;
    assert_eq!(
        (new_count + 3, state.summary(target).unwrap().memory_bytes),
        (taken(target), planned + growth_bytes)
    );
    let all: Vec<u64> = (0..60_000).chain([90_000, 90_001]).collect();
    assert_eq!(state.contains(target, FIRST, &list(&all)).unwrap().count_ones(), 60_002);
    // The other way round: a slice that has grown takes from one that has not.
    let (target, generation, sources) = (one, FIRST, vec![(other, FIRST)]);
    let operation = SetOperation::Sum(SumTerms { request: None, growth_bytes: u64::MAX });
    let add = ShardCommand::MergeSlices { target, generation, sources, operation };
    assert!(matches!(state.apply(&add), ShardReply::Merged(Ok(0..=1))));
    let copies = |state: &mut ShardState, item: u64| {
        (0..4)
            .take_while(|_| {
                remove(state, one, None, list(&[item])).unwrap();
                state.contains(one, FIRST, &list(&[item])).unwrap().count_ones() == 1
            })
            .count()
    };
    assert_eq!((copies(&mut state, 2), copies(&mut state, 4)), (1, 0), "once more than the other");
    let unlike = SliceSpec { filter: FilterId(7), ..spec(Kind::Counting, 0) };
    state.apply(&ShardCommand::CreateSlice(unlike));
    let refused =
        state.prepare_sum((one, FIRST), vec![(FilterId(7), FIRST)], None, SliceGrowth::ANY);
    assert!(matches!(refused, Err(PartError::ShapeMismatch { .. })), "{refused:?}");
}

/// Each half has added for its own range; once they are merged, a retry gets both numbers, and nothing is
/// added for a part of the range.
#[test]
fn a_sum_is_answered_for_the_ranges_for_which_it_was_asked() {
    let kind = Kind::Counting;
    let target = (filter_of(kind, 0), FIRST);
    let prepare = |state: &ShardState, cut: umbel_filter::HashRange| {
        let request = RequestStamp { cut: cut.bounds(), ..stamp(5, 1, &list(&[])) };
        state.prepare_sum(target, sources(kind), Some(request), SliceGrowth::ANY)
    };
    let add = |state: &mut ShardState| {
        let added = state.apply(&command(prepare(state, state.range()).unwrap()));
        let ShardReply::Merged(Ok(count)) = added else { panic!("{added:?}") };
        count
    };
    let at = range().start() + u64::try_from(range().width() / 2).unwrap();
    let split = ShardCommand::Split { into: crate::ids::ShardId(7), at };
    let halves = |mut lower: ShardState| {
        let upper = lower.upper_half(&split).unwrap().unwrap();
        lower.apply(&split);
        (lower, upper)
    };
    // Added before the split: each half knows the number, and of which range it is.
    let mut whole = filled(kind);
    let number = add(&mut whole);
    let (lower, upper) = halves(whole);
    for half in [&lower, &upper] {
        let refused = prepare(half, half.range());
        let Err(PartError::CutBefore { start, last, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!((start, last), range().bounds());
        assert_eq!(prepare(half, range()), Ok(PreparedSum::Answered(number)));
    }
    // Added by one half or both, before a merge.
    let (mut lower, mut upper) = halves(filled(kind));
    let (low, high) = (lower.range(), upper.range());
    let below = add(&mut lower);
    let mut merged = filled(kind);
    merged.replay = lower.replay.clone();
    merged.replay.merge(&upper.replay);
    assert!(matches!(prepare(&merged, range()), Err(PartError::CutBefore { .. })));
    assert_eq!(prepare(&merged, low), Ok(PreparedSum::Answered(below)));
    assert!(matches!(prepare(&merged, high), Err(PartError::OtherCut { .. })));
    let above = add(&mut upper);
    merged.replay.merge(&upper.replay);
    assert_eq!(prepare(&merged, low), Ok(PreparedSum::Answered(below)));
    assert_eq!(prepare(&merged, high), Ok(PreparedSum::Answered(above)));
}
