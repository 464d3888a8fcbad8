//! Inserts of items that are absent alone: as if each were looked for and inserted, with nothing in between.

use proptest::collection::vec;
use proptest::prelude::*;
use umbel_filter::Kind;

use super::shard_test::{self, FIRST, SHARD, filter_of, insert, list, range, remove, stamp, state};
use super::*;
use crate::ids::FilterId;

const KINDS: [Kind; 2] = [Kind::Cuckoo, Kind::Quotient];

/// The filter of [`small`].
const SMALL: FilterId = FilterId(3);

/// A slice of one page, that keeps so many bits of an item beside its place there. Of a quotient filter it is planned
/// for 481 items.
fn small(kind: Kind, bits: u32) -> (ShardState, SliceShape) {
    let block_count = if kind == Kind::Quotient { 3 } else { 1 };
    let (kind_id, block_bits, probe_count) = (kind.id(), 512, bits);
    let shape = SliceShape::Blocks { kind: kind_id, block_count, block_bits, probe_count };
    let mut state = ShardState::new(SHARD, range());
    let spec = SliceSpec { filter: SMALL, shape, ..shard_test::spec(kind, 0) };
    assert_eq!(state.apply(&ShardCommand::CreateSlice(spec)), ShardReply::Done(Ok(())));
    (state, shape)
}

fn part(
    filter: FilterId,
    request: Option<RequestStamp>,
    hashes: HashList,
    growth_bytes: u64,
) -> InsertPart {
    let proposed = Bitmap::ones(u32::try_from(hashes.len()).unwrap());
    InsertPart { filter, generation: FIRST, request, proposed, hashes, growth_bytes }
}

/// Proposes the part whatever the state has, as a leader does that has not confirmed its state yet.
fn apply(
    state: &mut ShardState,
    filter: FilterId,
    request: Option<RequestStamp>,
    hashes: HashList,
) -> Result<Bitmap, PartError> {
    apply_part(state, part(filter, request, hashes, u64::MAX))
}

fn apply_part(state: &mut ShardState, part: InsertPart) -> Result<Bitmap, PartError> {
    apply_parts(state, vec![part]).pop().unwrap()
}

fn apply_parts(state: &mut ShardState, parts: Vec<InsertPart>) -> Vec<Result<Bitmap, PartError>> {
    match state.apply(&ShardCommand::InsertAbsent(parts)) {
        ShardReply::Inserted(answers) => answers,
        other => panic!("{other:?}"),
    }
}

fn copies(state: &ShardState, filter: FilterId, item: u64) -> u64 {
    state.copies(filter, FIRST, &list(&[item])).unwrap()[0]
}

#[test]
fn of_several_clients_one_inserts_an_item() {
    for kind in KINDS {
        let (mut state, filter) = (state(), filter_of(kind, 0));
        // More than a slot counts, and more than two buckets hold.
        let new: Vec<bool> =
            (0..20).map(|_| apply(&mut state, filter, None, list(&[7])).unwrap().get(0)).collect();
        assert_eq!(new.iter().filter(|&&is_new| is_new).count(), 1, "{kind}");
        assert!(new[0] && copies(&state, filter, 7) == 1, "{kind}");
        assert_eq!(state.summary(filter).unwrap().new_count, 1);
        assert_eq!(remove(&mut state, filter, None, list(&[7])), Ok(Bitmap::ones(1)));
        assert_eq!(
            apply(&mut state, filter, None, list(&[7, 8, 7])),
            Ok(Bitmap::from_ones(3, [0, 1]))
        );
    }
}

/// Parts that a leader puts into one entry, of which one does not fit.
#[test]
fn parts_of_an_entry_are_applied_in_order_and_each_as_a_whole() {
    for kind in KINDS {
        let (mut state, _) = small(kind, 20);
        let many: Vec<u64> = (7..1_000).collect();
        let parts = [list(&[7, 8]), list(&many), list(&[8, 9]), list(&[9])];
        let parts = parts.map(|hashes| part(SMALL, None, hashes, 0)).to_vec();
        let answers = apply_parts(&mut state, parts);
        assert!(matches!(answers[1], Err(PartError::Full { .. })), "{kind}: {answers:?}");
        let others = [0, 2, 3].map(|at| answers[at].clone());
        let expected = [Bitmap::ones(2), Bitmap::from_ones(2, [1]), Bitmap::zeros(1)];
        assert_eq!(others, expected.map(Ok), "{kind}");
        assert_eq!(state.summary(SMALL).unwrap().new_count, 3, "{kind}");
    }
}

#[test]
fn a_retry_is_answered_as_before() {
    for kind in KINDS {
        let (mut state, filter) = (state(), filter_of(kind, 0));
        let hashes = list(&[7, 8]);
        let named = Some(stamp(1, 1, &hashes));
        let first = apply(&mut state, filter, named, hashes.clone());
        assert_eq!(first, Ok(Bitmap::ones(2)));
        assert_eq!(apply(&mut state, filter, named, hashes.clone()), first);
        // Also once the items are gone, and before anything is proposed.
        remove(&mut state, filter, None, hashes.clone()).unwrap();
        let again =
            state.prepare_insert_absent(filter, FIRST, named, &hashes, SliceGrowth::ANY).unwrap();
        assert_eq!(again, PreparedInsert::Answered(Bitmap::ones(2)));
        assert_eq!(apply(&mut state, filter, named, hashes), first);
        assert_eq!(copies(&state, filter, 7), 0);
    }
}

#[test]
fn what_is_present_needs_no_entry_and_no_growth() {
    for kind in KINDS {
        let (mut state, filter) = (state(), filter_of(kind, 0));
        let growth = SliceGrowth { allowed_bytes: 0, is_final: false, waiting_items: 1 << 40 };
        let prepare = |state: &ShardState, items: &[u64]| {
            state.prepare_insert_absent(filter, FIRST, None, &list(items), growth).unwrap()
        };
        insert(&mut state, filter, None, list(&[7, 8])).unwrap();
        let present = PreparedInsert::AllPresent { item_count: 2 };
        assert_eq!(prepare(&state, &[7, 8]), present);
        assert_ne!(prepare(&state, &[7, 9]), present);
    }
}

#[test]
fn a_slice_grows_for_absent_items_alone() {
    let (mut state, shape) = small(Kind::Quotient, 20);
    let there: Vec<u64> = (0..400).collect();
    assert_eq!(apply(&mut state, SMALL, None, list(&there)).unwrap().count_ones(), 400);
    let growth = SliceGrowth { allowed_bytes: 0, is_final: false, waiting_items: 0 };
    let prepare = |new_count: u64| {
        // Each of them twice, of which the second is not absent.
        let new = (1_000..1_000 + new_count).flat_map(|number| [number, number]);
        let items: Vec<u64> = there.iter().copied().chain(new).collect();
        state.prepare_insert_absent(SMALL, FIRST, None, &list(&items), growth).unwrap()
    };
    let PreparedInsert::Propose(part) = prepare(70) else { panic!("there is room for 81") };
    assert_eq!(part.proposed, Bitmap::ones(540), "what is present now may be removed before");
    let growth_bytes = shape.growth_bytes(range(), 1).unwrap();
    assert_eq!(prepare(90), PreparedInsert::Growing { growth_bytes });
}

/// The slice may not grow.
#[test]
fn a_part_without_room_leaves_nothing() {
    for kind in KINDS {
        let (mut state, _) = small(kind, 20);
        let (there, more): (Vec<u64>, Vec<u64>) = ((0..300).collect(), (1_000..1_700).collect());
        assert_eq!(apply(&mut state, SMALL, None, list(&there)).unwrap().count_ones(), 300);
        let refused = apply_part(&mut state, part(SMALL, None, list(&more), 0));
        assert!(matches!(refused, Err(PartError::Full { .. })), "{kind}: {refused:?}");
        let present =
            |items: &[u64]| state.contains(SMALL, FIRST, &list(items)).unwrap().count_ones();
        assert_eq!((present(&there), present(&more)), (300, 0), "{kind}");
        assert_eq!(state.summary(SMALL).unwrap().new_count, 300, "{kind}");
    }
}

/// The slice may double once, and would have to more often.
#[test]
fn a_part_that_is_refused_does_not_let_a_slice_grow() {
    let (mut state, shape) = small(Kind::Quotient, 20);
    let (there, more): (Vec<u64>, Vec<u64>) = ((0..300).collect(), (1_000..4_000).collect());
    assert_eq!(apply(&mut state, SMALL, None, list(&there)).unwrap().count_ones(), 300);
    let before = (state.summary(SMALL), state.digest());
    let growth_bytes = shape.growth_bytes(range(), 1).unwrap();
    let refused = apply_part(&mut state, part(SMALL, None, list(&more), growth_bytes));
    assert!(matches!(refused, Err(PartError::Full { .. })), "{refused:?}");
    assert_eq!((state.summary(SMALL), state.digest()), before);
}

/// Of such a part, as of two parts, the first item is inserted, and once.
#[test]
fn of_items_that_are_not_told_apart_the_first_is_absent() {
    for kind in KINDS {
        let (mut state, _) = small(kind, 1);
        let mut other = state.clone();
        assert_eq!(apply(&mut other, SMALL, None, list(&[0])), Ok(Bitmap::ones(1)));
        let numbers: Vec<u64> = (1..50_000).collect();
        let found = other.contains(SMALL, FIRST, &list(&numbers)).unwrap();
        let alike: Vec<u64> = found.iter_ones().take(5).map(|at| numbers[at]).collect();
        assert_eq!(alike.len(), 5, "{kind}: places are few");
        let hashes = list(&[alike[0], 0, alike[1], alike[2], alike[3], alike[4], 0]);
        let answer = apply(&mut state, SMALL, None, hashes);
        assert_eq!(answer, Ok(Bitmap::from_ones(7, [0])), "{kind}");
        assert_eq!(copies(&state, SMALL, 0), 1, "{kind}");
        assert_eq!(remove(&mut state, SMALL, None, list(&[0])), Ok(Bitmap::ones(1)));
        assert_eq!(copies(&state, SMALL, alike[0]), 0, "{kind}");
    }
}

#[test]
fn kinds_that_tell_no_copies_refuse_it() {
    let mut state = state();
    for kind in Kind::ALL.into_iter().filter(|kind| !kind.tells_copies()) {
        let filter = filter_of(kind, 0);
        let refused = apply(&mut state, filter, None, list(&[1]));
        assert!(matches!(refused, Err(PartError::WrongKind { .. })), "{kind}: {refused:?}");
        let refused =
            state.prepare_insert_absent(filter, FIRST, None, &list(&[1]), SliceGrowth::ANY);
        assert!(matches!(refused, Err(PartError::WrongKind { .. })), "{kind}: {refused:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Of a twin, every item is looked for, and inserted if it is absent. Some are not told apart.
    #[test]
    fn it_is_a_look_and_an_insert(
        kind in prop::sample::select(KINDS.to_vec()),
        parts in vec((vec(0..100_u64, 0..30), vec(0..100_u64, 0..10)), 0..12),
    ) {
        let ((mut one, _), (mut twin, _), filter) = (small(kind, 2), small(kind, 2), SMALL);
        for (items, removed) in parts {
            let mut expected = Vec::new();
            for &item in &items {
                let is_present = twin.contains(filter, FIRST, &list(&[item])).unwrap().get(0);
                if !is_present {
                    insert(&mut twin, filter, None, list(&[item])).unwrap();
                }
                expected.push(!is_present);
            }
            let answer = apply(&mut one, filter, None, list(&items)).unwrap();
            prop_assert_eq!(answer, Bitmap::from_bools(expected));
            for state in [&mut one, &mut twin] {
                remove(state, filter, None, list(&removed)).unwrap();
            }
            prop_assert_eq!(one.digest(), twin.digest());
        }
    }
}
