//! Two shards merged into one, compared with the shard that was never split.

use proptest::prelude::*;
use umbel_filter::{HashRange, Kind};

use super::shard_test::{
    FIRST, SHARD, Step, filter_of, insert, item, list, range, remove, spec, stamp, state, steps,
    take,
};
use super::{
    Fence, HashList, PartError, PreparedInsert, RequestStamp, ShardCommand, ShardReply, ShardState,
    SliceGrowth, SnapshotLoader,
};
use crate::ids::{Epoch, FilterId, Generation, GroupId, ShardId};

const UPPER: ShardId = ShardId(7);

/// Index of the entry that ends the upper shard.
const FENCE_INDEX: u64 = 17;

/// When the merge began.
const SINCE: Epoch = Epoch(5);

fn group(shard: ShardId) -> GroupId {
    GroupId::of_shard(shard)
}

/// Where the shard is split: not at the border of a block.
fn middle() -> u64 {
    range().start() + u64::try_from(range().width() / 2).unwrap() + 12_345
}

fn halves(whole: &ShardState) -> [ShardState; 2] {
    let split = ShardCommand::split_off(group(UPPER), middle());
    let mut lower = whole.clone();
    let upper = lower.upper_half(&split).unwrap().unwrap();
    assert_eq!(lower.apply_at(9, &split), ShardReply::Done(Ok(())));
    [lower, upper]
}

fn fence(upper: &mut ShardState) {
    let command = ShardCommand::Fence { into: group(SHARD), since: SINCE };
    let ended = upper.ended(FENCE_INDEX, &command).expect("it ends");
    assert_eq!(upper.apply_at(FENCE_INDEX, &command), ShardReply::Done(Ok(())));
    assert_eq!(upper.digest(), ended.digest());
}

/// The lower shard, which has absorbed the upper one.
fn merged([mut lower, mut upper]: [ShardState; 2]) -> ShardState {
    fence(&mut upper);
    assert_eq!(lower.absorb(21, group(UPPER), upper), ShardReply::Done(Ok(())));
    lower
}

fn of_range(range: HashRange, items: &[u64]) -> Vec<u64> {
    items.iter().copied().filter(|&number| range.contains(item(number).hi())).collect()
}

/// The half to which an item belongs.
fn half_of(number: u64) -> usize {
    usize::from(item(number).hi() >= middle())
}

fn reloaded(state: &ShardState, first_range: HashRange) -> ShardState {
    let snapshot = state.snapshot();
    let head = snapshot.head();
    let marks = head.marks().clone();
    let mut loader =
        SnapshotLoader::new(state.shard(), first_range, head.with_marks(marks)).unwrap();
    snapshot.frames().for_each(|frame| loader.push(&frame.unwrap()).unwrap());
    loader.finish().unwrap()
}

#[test]
fn a_shard_that_has_ended_refuses_everything() {
    let [_, mut upper] = halves(&state());
    let filter = filter_of(Kind::Blocked, 0);
    let mine = list(&of_range(upper.range(), &(0..30).collect::<Vec<_>>()));
    insert(&mut upper, filter, None, mine.clone()).unwrap();
    fence(&mut upper);
    let digest = upper.digest();
    assert_eq!(upper.fence(), Some(Fence { into: group(SHARD), since: SINCE, index: FENCE_INDEX }));
    let is_fenced =
        |error: &PartError| *error == PartError::Fenced { shard: UPPER, into: group(SHARD) };
    assert!(is_fenced(&insert(&mut upper, filter, None, mine.clone()).unwrap_err()));
    let counting = filter_of(Kind::Counting, 0);
    assert!(is_fenced(&remove(&mut upper, counting, None, mine.clone()).unwrap_err()));
    assert!(is_fenced(&upper.contains(filter, FIRST, &mine).unwrap_err()));
    let prepared = upper.prepare_insert(filter, FIRST, None, mine, SliceGrowth::ANY);
    assert!(is_fenced(&prepared.unwrap_err()));
    let commands = [
        ShardCommand::DropSlice(filter),
        ShardCommand::ClearSlice { filter, generation: Generation(9) },
        ShardCommand::Advance { now_ms: 5 },
        ShardCommand::split_off(group(ShardId(9)), upper.range().start() + 5),
        ShardCommand::Absorb { from: group(ShardId(9)), fence_index: 1 },
    ];
    for command in commands {
        let ShardReply::Done(Err(error)) = upper.apply_at(40, &command) else {
            panic!("{command:?}")
        };
        assert!(is_fenced(&error), "{command:?}: {error:?}");
        assert!(upper.upper_half(&command).map_or(true, |half| half.is_none()), "{command:?}");
    }
    // The first fence counts.
    upper.apply_at(50, &ShardCommand::Fence { into: group(ShardId(0)), since: Epoch(9) });
    assert_eq!(
        (upper.fence().map(|fence| fence.index), upper.digest()),
        (Some(FENCE_INDEX), digest)
    );
    assert_eq!(reloaded(&upper, upper.range()).digest(), digest);
    // The rest of the replay table and the slices go to the shard that absorbs it.
    assert!(upper.range_above(HashRange::WHOLE).is_some());
}

#[test]
fn only_the_upper_neighbour_that_has_ended_is_absorbed_and_once() {
    let [lower, upper] = halves(&state());
    let absorbed = |mut into: ShardState, from: GroupId, other: ShardState| {
        let digest = into.digest();
        let reply = into.absorb(21, from, other);
        let is_refused = matches!(&reply, ShardReply::Done(Err(PartError::Malformed { .. })));
        assert_eq!(is_refused, into.digest() == digest);
        is_refused
    };
    // It has not ended.
    assert!(absorbed(lower.clone(), group(UPPER), upper.clone()));
    let mut ended = upper.clone();
    fence(&mut ended);
    // Another shard than named, or no neighbour.
    assert!(absorbed(lower.clone(), group(ShardId(8)), ended.clone()));
    assert!(absorbed(state(), group(UPPER), ended.clone()));
    let [_, mut top] = {
        let split = ShardCommand::split_off(group(ShardId(9)), upper.range().start() + (1 << 40));
        let top = upper.upper_half(&split).unwrap().unwrap();
        [upper, top]
    };
    top.apply_at(3, &ShardCommand::Fence { into: group(UPPER), since: SINCE });
    assert!(absorbed(lower.clone(), group(ShardId(9)), top));
    // Without its state, the entry says so.
    let mut early = lower.clone();
    let command = ShardCommand::Absorb { from: group(UPPER), fence_index: FENCE_INDEX };
    assert!(matches!(early.apply(&command), ShardReply::Done(Err(PartError::Malformed { .. }))));

    let mut whole = lower;
    assert!(!whole.has_absorbed(group(UPPER)));
    assert_eq!(whole.absorb(21, group(UPPER), ended.clone()), ShardReply::Done(Ok(())));
    assert_eq!((whole.range(), whole.shard()), (range(), SHARD));
    assert!(whole.has_absorbed(group(UPPER)));
    assert!(!whole.has_absorbed(GroupId::of_shard_in(UPPER, 1)));
    let digest = whole.digest();
    assert_eq!(whole.absorb(22, group(UPPER), ended), ShardReply::Done(Ok(())));
    assert_eq!(whole.apply_at(23, &command), ShardReply::Done(Ok(())));
    assert_eq!(whole.digest(), digest);
    // An order to split that comes late changes nothing.
    let late = ShardCommand::split_off(group(UPPER), middle());
    assert!(whole.upper_half(&late).unwrap().is_none());
    assert_eq!((whole.apply(&late), whole.digest()), (ShardReply::Done(Ok(())), digest));
    // It may be split off again, and be absorbed again, in a later era.
    let again = GroupId::of_shard_in(UPPER, 1);
    let split = ShardCommand::split_off(again, middle());
    assert_eq!(split.splits_off(), Some((again, middle())));
    let mut upper = whole.upper_half(&split).unwrap().unwrap();
    whole.apply_at(24, &split);
    assert!(upper.fence().is_none() && whole.has_absorbed(group(UPPER)));
    fence(&mut upper);
    assert_eq!(whole.absorb(25, again, upper), ShardReply::Done(Ok(())));
    assert!(whole.has_absorbed(again));
    assert_eq!(reloaded(&whole, range()).digest(), whole.digest());
}

#[test]
fn counts_add_up_and_what_is_whole_comes_back() {
    let mut whole = state();
    let items: Vec<u64> = (0..50).collect();
    for kind in Kind::ALL {
        insert(&mut whole, filter_of(kind, 0), None, list(&items)).unwrap();
    }
    let merged = merged(halves(&whole));
    for kind in Kind::ALL {
        let of = |state: &ShardState| {
            let summary = state.summary(filter_of(kind, 0)).unwrap();
            (summary.new_count, summary.generation)
        };
        assert_eq!(of(&merged), of(&whole), "{kind}");
        let filter = filter_of(kind, 0);
        assert_eq!(
            merged.contains(filter, FIRST, &list(&items)),
            whole.contains(filter, FIRST, &list(&items)),
            "{kind}"
        );
    }
    assert_eq!(reloaded(&merged, range()).digest(), merged.digest());
}

/// The catalogue changes no filter while shards are merged. If it did, nothing would be lost that counts.
#[test]
fn slices_that_only_one_has_or_that_one_has_cleared_are_joined_with_empty_ones() {
    let mut whole = state();
    let items: Vec<u64> = (0..50).collect();
    let [cleared, dropped] = [0, 1].map(|number| filter_of(Kind::Blocked, number));
    for filter in [cleared, dropped] {
        insert(&mut whole, filter, None, list(&items)).unwrap();
    }
    let [mut lower, mut upper] = halves(&whole);
    let second = Generation(FIRST.0 + 1);
    lower.apply(&ShardCommand::ClearSlice { filter: cleared, generation: second });
    upper.apply(&ShardCommand::DropSlice(dropped));
    let merged = merged([lower, upper]);
    // The slice of the upper shard was not cleared yet.
    assert_eq!(merged.contains(cleared, second, &list(&items)).unwrap().count_ones(), 0);
    // Items above may seem to be in, because the divided block has their bits.
    let below: Vec<u64> = items.iter().copied().filter(|&number| half_of(number) == 0).collect();
    let kept = merged.contains(dropped, FIRST, &list(&below)).unwrap();
    assert_eq!(kept.count_ones() as usize, below.len());
}

#[test]
fn a_request_that_only_one_of_them_had_answered_is_completed_once() {
    let filter = filter_of(Kind::Blocked, 0);
    let items: Vec<u64> = (0..30).collect();
    let mut halves = halves(&state());
    let part = |range: HashRange| {
        let hashes = list(&of_range(range, &items));
        let stamp = RequestStamp { cut: range.bounds(), ..stamp(1, 1, &hashes) };
        (stamp, hashes)
    };
    let [lower, upper] = halves.each_ref().map(|half| part(half.range()));
    let first = insert(&mut halves[0], filter, Some(lower.0), lower.1.clone()).unwrap();
    assert_eq!(first.count_ones() as usize, lower.1.len());
    let mut whole = merged(halves);
    // The whole request is cut for the new range: the shard says what it has answered.
    let all = list(&items);
    let asked = stamp(1, 1, &all);
    let refused = insert(&mut whole, filter, Some(asked), all).unwrap_err();
    let PartError::CutBefore { start, last, .. } = refused else { panic!("{refused:?}") };
    assert_eq!((start, last), lower.0.cut);
    assert_eq!(insert(&mut whole, filter, Some(lower.0), lower.1.clone()), Ok(first));
    let second = insert(&mut whole, filter, Some(upper.0), upper.1.clone()).unwrap();
    assert_eq!(second.count_ones() as usize, upper.1.len());
    assert_eq!(insert(&mut whole, filter, Some(upper.0), upper.1), Ok(second));
}

/// A table without room for both halves of the block that the border divides: nothing is changed, and the
/// shard is opened again.
#[test]
fn what_cannot_be_joined_is_refused_for_good_and_the_shard_goes_on() {
    let mut whole = state();
    let filter = filter_of(Kind::Cuckoo, 0);
    // Both halves have a copy of the block that the border divides, which is more than half full.
    let full: Vec<u64> = (0..9_000).collect();
    for items in full.chunks(100) {
        insert(&mut whole, filter, None, list(items)).unwrap();
    }
    let [mut lower, mut upper] = halves(&whole);
    let open = upper.digest();
    fence(&mut upper);
    let before = lower.digest();
    let reply = lower.absorb(21, group(UPPER), upper.clone());
    let ShardReply::Done(Err(PartError::NotJoined { filter: named, .. })) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!((named, lower.range().end()), (filter, u128::from(middle())));
    assert!(lower.has_decided(group(UPPER), FENCE_INDEX) && !lower.has_absorbed(group(UPPER)));
    assert_ne!(lower.digest(), before);
    assert_eq!(reloaded(&lower, range()).digest(), lower.digest());
    // Whatever becomes of the filter: the shard may have gone on meanwhile.
    lower.apply(&ShardCommand::DropSlice(filter));
    let again = lower.absorb(22, group(UPPER), upper.clone());
    assert!(matches!(again, ShardReply::Done(Err(PartError::Malformed { .. }))), "{again:?}");

    assert_eq!(
        upper.apply_at(23, &ShardCommand::Reopen { since: SINCE }),
        ShardReply::Done(Ok(()))
    );
    assert!(upper.fence().is_none() && upper.digest() != open);
    let there = list(&of_range(upper.range(), &full));
    assert_eq!(upper.contains(filter, FIRST, &there).unwrap().count_ones() as usize, there.len());
    // A fence that comes late does nothing; another merge may succeed.
    let late = ShardCommand::Fence { into: group(SHARD), since: SINCE };
    assert!(matches!(
        upper.apply_at(24, &late),
        ShardReply::Done(Err(PartError::Malformed { .. }))
    ));
    upper.apply(&ShardCommand::DropSlice(filter));
    let next = ShardCommand::Fence { into: group(SHARD), since: Epoch(SINCE.0 + 1) };
    assert_eq!(upper.apply_at(25, &next), ShardReply::Done(Ok(())));
    assert!(!lower.has_decided(group(UPPER), 25));
    assert_eq!(lower.absorb(26, group(UPPER), upper), ShardReply::Done(Ok(())));
    assert_eq!(lower.range(), range());
}

/// A final state that was refused is never absorbed, whatever becomes of the filter for which it was.
#[test]
fn slices_of_other_keys_are_not_joined_and_that_is_final() {
    let [mut lower, mut upper] = halves(&state());
    let filter = filter_of(Kind::Blocked, 0);
    lower.apply(&ShardCommand::DropSlice(filter));
    let mut other = spec(Kind::Blocked, 0);
    other.key.key_id += 1;
    assert_eq!(lower.apply(&ShardCommand::CreateSlice(other)), ShardReply::Done(Ok(())));
    fence(&mut upper);
    let range = lower.range();
    let reply = lower.absorb(21, group(UPPER), upper.clone());
    let ShardReply::Done(Err(PartError::NotJoined { filter: named, .. })) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!((named, lower.range()), (filter, range));
    assert!(lower.has_decided(group(UPPER), FENCE_INDEX));
    lower.apply(&ShardCommand::DropSlice(filter));
    let again = lower.absorb(22, group(UPPER), upper);
    assert!(matches!(again, ShardReply::Done(Err(PartError::Malformed { .. }))), "{again:?}");
    assert_eq!(lower.range(), range);
}

/// Slices are joined one by one. Those before the one that cannot be joined stay as they were, too.
#[test]
fn a_join_that_is_refused_at_the_last_slice_changes_none() {
    let [mut lower, mut upper] = halves(&state());
    let last = Kind::ALL.into_iter().max_by_key(|kind| kind.id()).unwrap();
    let mut other = spec(last, 2);
    other.key.key_id += 1;
    assert_eq!(lower.slices().last(), Some((other.filter, FIRST)));
    lower.apply(&ShardCommand::DropSlice(other.filter));
    assert_eq!(lower.apply(&ShardCommand::CreateSlice(other)), ShardReply::Done(Ok(())));
    fence(&mut upper);
    let before = lower.clone();
    let reply = lower.absorb(21, group(UPPER), upper);
    assert!(matches!(reply, ShardReply::Done(Err(PartError::NotJoined { .. }))), "{reply:?}");
    // It only remembers that it is refused.
    assert!(lower.has_decided(group(UPPER), FENCE_INDEX));
    lower.marks = before.marks.clone();
    assert_eq!(lower.digest(), before.digest());
}

/// The part of a step that belongs to a range.
fn part_of(step: &Step, range: HashRange) -> Step {
    match step {
        Step::Insert { kind, items, request } => {
            Step::Insert { kind: *kind, items: of_range(range, items), request: *request }
        }
        Step::Remove { kind, items, request } => {
            Step::Remove { kind: *kind, items: of_range(range, items), request: *request }
        }
        other => other.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// What was done before the split, in the halves, or after the merge: nothing that is in is missed.
    #[test]
    fn no_item_is_lost_and_halves_merge_into_the_whole(before in steps(), meanwhile in steps()) {
        let mut whole = state();
        for step in &before {
            let _ = take(&mut whole, step);
        }
        // Merged at once, the halves are the whole.
        let at_once = merged(halves(&whole));
        let items: Vec<u64> = (0..150).collect();
        for kind in Kind::ALL.into_iter().filter(|kind| !kind.is_whole()) {
            for number in 0..2 {
                let filter = filter_of(kind, number);
                let generation = whole.summary(filter).unwrap().generation;
                prop_assert_eq!(
                    at_once.contains(filter, generation, &list(&items)),
                    whole.contains(filter, generation, &list(&items)),
                    "{}", kind
                );
            }
        }
        let mut halves = halves(&whole);
        let mut has = std::collections::BTreeSet::new();
        for step in &meanwhile {
            // Both halves clear and merge alike, as the catalogue has them do.
            for half in &mut halves {
                let range = half.range();
                let part = match part_of(step, range) {
                    Step::Insert { kind, items, request: _ } => {
                        Step::Insert { kind, items, request: None }
                    }
                    Step::Remove { kind, items, request: _ } => {
                        Step::Remove { kind, items, request: None }
                    }
                    other => other,
                };
                let done = take(half, &part);
                if let (Step::Insert { kind, items, .. }, true) = (&part, done.is_ok()) {
                    has.extend(items.iter().map(|&number| (filter_of(*kind, 0), number)));
                }
            }
            match step {
                Step::Remove { kind, .. } | Step::Clear { kind } => {
                    has.retain(|&(filter, _)| filter != filter_of(*kind, 0));
                }
                _ => {}
            }
        }
        let contained = |state: &ShardState, filter: FilterId, number: u64| {
            let generation = state.summary(filter).unwrap().generation;
            state.contains(filter, generation, &list(&[number])).is_ok_and(|bits| bits.count_ones() == 1)
        };
        let present: Vec<(FilterId, u64)> = has
            .into_iter()
            .filter(|&(filter, number)| contained(&halves[half_of(number)], filter, number))
            .collect();
        let joined = merged(halves);
        for (filter, number) in present {
            prop_assert!(contained(&joined, filter, number), "{} of {}", number, filter);
        }
        prop_assert_eq!(reloaded(&joined, range()).digest(), joined.digest());
    }

    /// Requests that were answered before the split, or by one of the halves, are answered alike.
    #[test]
    fn answers_of_both_are_kept(before in steps(), meanwhile in steps()) {
        let mut whole = state();
        for step in &before {
            let _ = take(&mut whole, step);
        }
        let mut halves = halves(&whole);
        let mut answers = Vec::new();
        for step in &meanwhile {
            let Step::Insert { kind, items, request: Some((session, sequence)) } = step else { continue };
            if kind.is_whole() {
                continue;
            }
            for half in &mut halves {
                let filter = filter_of(*kind, 0);
                let hashes = list(&of_range(half.range(), items));
                let stamp = RequestStamp {
                    cut: half.range().bounds(),
                    ..stamp(session + 10, *sequence, &hashes)
                };
                let generation = half.summary(filter).unwrap().generation;
                let ask = |state: &ShardState, hashes: HashList| {
                    state.prepare_insert(filter, generation, Some(stamp), hashes, SliceGrowth::ANY)
                };
                if insert(half, filter, Some(stamp), hashes.clone()).is_ok()
                    && let Ok(PreparedInsert::Answered(answer)) = ask(half, hashes.clone())
                {
                    answers.push((filter, generation, stamp, hashes, answer));
                }
            }
        }
        let joined = merged(halves);
        for (filter, generation, stamp, hashes, answer) in answers {
            match joined.prepare_insert(filter, generation, Some(stamp), hashes, SliceGrowth::ANY) {
                Ok(PreparedInsert::Answered(same)) => prop_assert_eq!(same, answer),
                // Dropped by either of the two.
                Err(PartError::RequestExpired { .. } | PartError::SessionExpired { .. }) => {}
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}
