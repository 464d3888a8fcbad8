//! Replicas compared with plain filters, through leaders that leave out items known to be present.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use umbel_filter::{
    AnyFilter, CellCount, HashFunction, HashRange, Insert, Insertion, ItemHash, ItemHasher, Kind,
    Removal,
};

use super::{
    Bitmap, HashList, InsertPart, KeyName, LateItems, PartError, PlanError, PreparedInsert,
    PreparedRemove, RequestStamp, SetOperation, ShardCommand, ShardReply, ShardState, SliceGrowth,
    SliceShape, SliceSpec, TimedInsert, WindowRules, WindowTime,
};
use crate::ids::{FilterId, Generation, OwnerId, RequestId, SessionId, ShardId};

pub(super) const SHARD: ShardId = ShardId(1);
pub(super) const FIRST: Generation = Generation(1);

/// The second of three shards: at both borders it shares a block.
pub(super) fn range() -> HashRange {
    HashRange::cell(1, CellCount::new(3).unwrap())
}

/// An item of the shard.
pub(super) fn item(number: u64) -> ItemHash {
    let hash = ItemHasher::Xxh3 { seed: 1 }.hash(&number.to_le_bytes());
    let offset = (u128::from(hash.hi()) * range().width()) >> 64;
    ItemHash::new(range().start() + u64::try_from(offset).unwrap(), hash.lo())
}

pub(super) fn list(items: &[u64]) -> HashList {
    HashList::from_hashes(&items.iter().map(|&number| item(number)).collect::<Vec<_>>())
}

/// Filter 10·i + j, with j in 0..3, is of the i-th kind.
pub(super) fn filter_of(kind: Kind, number: u64) -> FilterId {
    FilterId(10 * u64::from(kind.id()) + number)
}

pub(super) const RULES: WindowRules = WindowRules {
    slice_ms: 1_000,
    slice_count: 5,
    time: WindowTime::Event,
    late: LateItems::Reject,
    refresh: false,
};

/// The leader's clock, in tests where time does not pass.
pub(super) const NOW_MS: u64 = 1_000_000;

/// A slice shape for any kind.
pub(super) fn plan(
    kind: Kind,
    capacity: u64,
    rate: f64,
    shard_count: CellCount,
) -> Result<SliceShape, PlanError> {
    match kind {
        Kind::Window => SliceShape::plan_window(capacity, rate, shard_count, RULES),
        // A filter that lies entirely in one shard lies in this one.
        kind => SliceShape::plan(kind, capacity, rate, shard_count)
            .map(|shape| shape.placed(range().start())),
    }
}

/// The command that a leader proposes for a part.
pub(super) fn insert_of(state: &ShardState, part: InsertPart) -> ShardCommand {
    if state.is_windowed(part.filter) {
        let inserts = vec![TimedInsert { part, at_ms: None }];
        ShardCommand::InsertTimed { now_ms: NOW_MS, inserts }
    } else {
        ShardCommand::Insert(vec![part])
    }
}

pub(super) fn spec(kind: Kind, number: u64) -> SliceSpec {
    let capacity = match kind {
        // Tables hold only the items that they were made for, and so does an aging filter.
        Kind::Window | Kind::Cuckoo | Kind::Quotient | Kind::Aging => 30_000,
        // Small enough for one frame, and large enough that it does not forget what the tests
        // insert.
        Kind::Stable => 3_000,
        _ => 60,
    };
    let shape = plan(kind, capacity, 0.05, CellCount::new(3).unwrap()).unwrap();
    let key = KeyName { function: HashFunction::Xxh3Seeded.id(), key_id: 1 };
    SliceSpec { filter: filter_of(kind, number), generation: FIRST, shape, key }
}

/// A state with three slices of every kind.
pub(super) fn state() -> ShardState {
    let mut state = ShardState::new(SHARD, range());
    for kind in Kind::ALL {
        for number in 0..3 {
            let reply = state.apply(&ShardCommand::CreateSlice(spec(kind, number)));
            assert_eq!(reply, ShardReply::Done(Ok(())));
        }
    }
    state
}

pub(super) fn stamp(session: u64, sequence: u64, hashes: &HashList) -> RequestStamp {
    let id = RequestId { session: SessionId(session), sequence };
    let (owner, cut) = (OwnerId(session % 3), range().bounds());
    RequestStamp { id, acknowledged_below: 0, digest: hashes.digest(), cut, owner }
}

/// Prepares and applies an insert at once.
pub(super) fn insert(
    state: &mut ShardState,
    filter: FilterId,
    request: Option<RequestStamp>,
    hashes: HashList,
) -> Result<Bitmap, PartError> {
    let generation = state.summary(filter).map_or(FIRST, |summary| summary.generation);
    match state.prepare_insert(filter, generation, request, hashes, SliceGrowth::ANY)? {
        PreparedInsert::Answered(answer) => Ok(answer),
        PreparedInsert::AllPresent { item_count } => Ok(Bitmap::zeros(item_count)),
        PreparedInsert::Propose(part) => {
            let command = insert_of(state, part);
            let ShardReply::Inserted(mut answers) = state.apply(&command) else {
                panic!("another reply")
            };
            answers.pop().unwrap()
        }
        growing @ PreparedInsert::Growing { .. } => panic!("{growing:?}"),
    }
}

pub(super) fn remove(
    state: &mut ShardState,
    filter: FilterId,
    request: Option<RequestStamp>,
    hashes: HashList,
) -> Result<Bitmap, PartError> {
    let generation = state.summary(filter).map_or(FIRST, |summary| summary.generation);
    match state.prepare_remove(filter, generation, request, hashes)? {
        PreparedRemove::Answered(answer) => Ok(answer),
        PreparedRemove::Propose(part) => match state.apply(&ShardCommand::Remove(part)) {
            ShardReply::Removed(answer) => answer,
            other => panic!("{other:?}"),
        },
    }
}

#[test]
fn of_two_equal_items_the_first_is_new() {
    for kind in Kind::ALL {
        let mut state = state();
        let answer = insert(&mut state, filter_of(kind, 0), None, list(&[1, 2, 1, 1]));
        assert_eq!(answer, Ok(Bitmap::from_ones(4, [0, 1])), "{kind}");
        assert_eq!(state.summary(filter_of(kind, 0)).unwrap().new_count, 2);
        let there = state.contains(filter_of(kind, 0), FIRST, &list(&[2, 900_000])).unwrap();
        assert!(there.get(0));
    }
}

#[test]
fn leaders_propose_what_is_absent_only() {
    for kind in Kind::ALL {
        let mut state = state();
        let filter = filter_of(kind, 0);
        insert(&mut state, filter, None, list(&[1, 2])).unwrap();
        let prepared =
            state.prepare_insert(filter, FIRST, None, list(&[2, 3, 1]), SliceGrowth::ANY).unwrap();
        let PreparedInsert::Propose(part) = prepared else { panic!() };
        if kind.counts_every_insert() {
            assert_eq!((part.proposed, part.hashes), (Bitmap::ones(3), list(&[2, 3, 1])));
        } else {
            assert_eq!((part.proposed, part.hashes), (Bitmap::from_ones(3, [1]), list(&[3])));
            let prepared =
                state.prepare_insert(filter, FIRST, None, list(&[2, 1]), SliceGrowth::ANY).unwrap();
            assert_eq!(prepared, PreparedInsert::AllPresent { item_count: 2 });
        }
        let prepared =
            state.prepare_insert(filter, FIRST, None, list(&[]), SliceGrowth::ANY).unwrap();
        assert_eq!(prepared, PreparedInsert::AllPresent { item_count: 0 });
    }
}

/// Both were prepared before either was applied, as when a client timed out and retried.
#[test]
fn a_request_in_the_log_twice_is_applied_once() {
    let mut state = state();
    let filter = filter_of(Kind::Counting, 0);
    let hashes = list(&[1, 2]);
    let request = Some(stamp(1, 1, &hashes));
    let prepared =
        state.prepare_insert(filter, FIRST, request, hashes.clone(), SliceGrowth::ANY).unwrap();
    let PreparedInsert::Propose(part) = prepared else { panic!() };
    let reply = state.apply(&ShardCommand::Insert(vec![part.clone(), part.clone()]));
    let both = Ok(Bitmap::ones(2));
    assert_eq!(reply, ShardReply::Inserted(vec![both.clone(), both.clone()]));
    let digest = state.digest();
    state.apply(&ShardCommand::Insert(vec![part]));
    assert_eq!(state.digest(), digest);
    let prepared =
        state.prepare_insert(filter, FIRST, request, hashes.clone(), SliceGrowth::ANY).unwrap();
    assert_eq!(prepared, PreparedInsert::Answered(Bitmap::ones(2)));

    // Counted once, so it can be removed once.
    let request = Some(stamp(1, 2, &hashes));
    for _ in 0..2 {
        assert_eq!(remove(&mut state, filter, request, hashes.clone()), both);
    }
    let there = state.contains(filter, FIRST, &hashes).unwrap();
    assert_eq!(there.count_ones(), 0);
    // The insert is still answered as before, and inserts nothing; also after a clear.
    let generation = Generation(2);
    state.apply(&ShardCommand::ClearSlice { filter, generation });
    let request = Some(stamp(1, 1, &hashes));
    assert_eq!(insert(&mut state, filter, request, hashes.clone()), both);
    assert_eq!(state.contains(filter, generation, &hashes).unwrap().count_ones(), 0);
}

/// One step of a shard, the same for every replica.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Insert { kind: Kind, items: Vec<u64>, request: Option<(u64, u64)> },
    Remove { kind: Kind, items: Vec<u64>, request: Option<(u64, u64)> },
    Clear { kind: Kind },
    Merge { kind: Kind },
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = proptest::sample::select(Kind::ALL.to_vec());
    let items = || vec(0..150u64, 0..20);
    let request = || proptest::option::of((1..4u64, 1..6u64));
    vec(
        prop_oneof![
            8 => (kind.clone(), items(), request())
                .prop_map(|(kind, items, request)| Step::Insert { kind, items, request }),
            3 => (0..3_usize, items(), request()).prop_map(|(kind, items, request)| {
                let kind = [Kind::Counting, Kind::Cuckoo, Kind::Quotient][kind];
                Step::Remove { kind, items, request }
            }),
            1 => kind.clone().prop_map(|kind| Step::Remove { kind, items: vec![1], request: None }),
            1 => kind.clone().prop_map(|kind| Step::Clear { kind }),
            1 => kind.prop_map(|kind| Step::Merge { kind }),
        ],
        0..40,
    )
}

/// Carries out a step like a leader with a single replica.
pub(super) fn take(state: &mut ShardState, step: &Step) -> Result<Bitmap, PartError> {
    let stamped = |items: &[u64], request: Option<(u64, u64)>| {
        let hashes = list(items);
        (request.map(|(session, sequence)| stamp(session, sequence, &hashes)), hashes)
    };
    match step {
        Step::Insert { kind, items, request } => {
            let (request, hashes) = stamped(items, *request);
            insert(state, filter_of(*kind, 0), request, hashes)
        }
        Step::Remove { kind, items, request } => {
            let (request, hashes) = stamped(items, *request);
            remove(state, filter_of(*kind, 0), request, hashes)
        }
        Step::Clear { kind } => {
            let filter = filter_of(*kind, 0);
            let generation = Generation(state.summary(filter).unwrap().generation.0 + 1);
            state.apply(&ShardCommand::ClearSlice { filter, generation });
            Ok(Bitmap::zeros(0))
        }
        Step::Merge { kind } => {
            let (target, source) = (filter_of(*kind, 1), filter_of(*kind, 0));
            let generation = state.summary(source).unwrap().generation;
            let sources = vec![(source, generation)];
            let (generation, operation) = (FIRST, SetOperation::Union);
            state.apply(&ShardCommand::MergeSlices { target, generation, sources, operation });
            Ok(Bitmap::zeros(0))
        }
    }
}

pub(super) fn merge_of(
    target: FilterId,
    generation: Generation,
    sources: &[(FilterId, Generation)],
    operation: SetOperation,
) -> ShardCommand {
    ShardCommand::MergeSlices { target, generation, sources: sources.to_vec(), operation }
}

/// Kind, whether it was a removal, items, answer.
type Answered = (Kind, bool, Vec<u64>, Bitmap);

/// The slow twin: one item after the other into plain filters, and a map that never forgets.
/// Requests that are answered without the log leave no record, as in the shard.
#[derive(Default)]
struct Twin {
    filters: BTreeMap<Kind, (AnyFilter, BTreeSet<u64>)>,
    answers: BTreeMap<(u64, u64), Answered>,
}

impl Twin {
    fn new() -> Self {
        let mut twin = Self::default();
        Kind::ALL.into_iter().for_each(|kind| twin.clear(kind));
        twin
    }

    fn clear(&mut self, kind: Kind) {
        let empty = spec(kind, 0).shape.create(range()).unwrap();
        self.filters.insert(kind, (empty, BTreeSet::new()));
    }

    fn take(&mut self, step: &Step) -> Result<Bitmap, PartError> {
        let (kind, items, request, removes) = match step {
            Step::Insert { kind, items, request } => (*kind, items, request, false),
            Step::Remove { kind, items, request } => (*kind, items, request, true),
            Step::Clear { kind } => {
                self.clear(*kind);
                return Ok(Bitmap::zeros(0));
            }
            Step::Merge { .. } => return Ok(Bitmap::zeros(0)),
        };
        if let Some((session, sequence)) = *request
            && let Some((a, b, c, answer)) = self.answers.get(&(session, sequence))
        {
            let id = RequestId { session: SessionId(session), sequence };
            let is_same = (*a, *b, c) == (kind, removes, items);
            return if is_same { Ok(answer.clone()) } else { Err(PartError::RequestReused { id }) };
        }
        let (filter, inside) = self.filters.get_mut(&kind).unwrap();
        if removes && !kind.removes() {
            return Err(super::slice::no_removal(kind));
        }
        let answer = Bitmap::from_bools(items.iter().map(|&number| {
            if removes {
                inside.remove(&number);
                filter.remove(item(number)).unwrap() == Removal::Removed
            } else {
                inside.insert(number);
                filter.insert(item(number)).unwrap() == Insertion::New
            }
        }));
        let is_logged =
            if kind.counts_every_insert() { !items.is_empty() } else { answer.count_ones() > 0 };
        if let Some(request) = *request
            && is_logged
        {
            self.answers.insert(request, (kind, removes, items.clone(), answer.clone()));
        }
        Ok(answer)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn answers_are_those_of_plain_filters(steps in steps()) {
        let (mut state, mut twin) = (state(), Twin::new());
        for step in &steps {
            prop_assert_eq!(take(&mut state, step), twin.take(step), "{:?}", step);
        }
        for (&kind, (_, inside)) in &twin.filters {
            if kind.removes() {
                continue;
            }
            let items: Vec<u64> = inside.iter().copied().collect();
            let (filter, hashes) = (filter_of(kind, 0), list(&items));
            let generation = state.summary(filter).unwrap().generation;
            let there = state.contains(filter, generation, &hashes).unwrap();
            prop_assert_eq!(there.count_ones() as usize, items.len());
        }
    }
}
