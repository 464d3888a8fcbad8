//! Slices of quotient filters: they grow with inserts, alike on every replica; a part that does not fit is
//! refused entirely, duplicates are counted, and removals make room.

use bytes::Bytes;
use umbel_filter::{CellCount, HashRange, Kind};

use super::shard_test::{self, FIRST, SHARD, insert, list, range, remove, stamp};
use super::*;
use crate::ids::{FilterId, Generation};
use crate::limits::SLICE_BYTES_MAX;

const FILTER: FilterId = FilterId(3);

/// A slice of one page of 512 quotients and 128 spare slots over the shard's whole range, planned for 481
/// items.
fn spec(filter: FilterId, remainder_bits: u32) -> SliceSpec {
    let (kind, block_bits, probe_count) = (Kind::Quotient.id(), 512, remainder_bits);
    // The shard has one of three cells.
    let shape = SliceShape::Blocks { kind, block_count: 3, block_bits, probe_count };
    SliceSpec { filter, shape, ..shard_test::spec(Kind::Quotient, 0) }
}

fn state() -> ShardState {
    let mut state = ShardState::new(SHARD, range());
    let reply = state.apply(&ShardCommand::CreateSlice(spec(FILTER, 20)));
    assert_eq!(reply, ShardReply::Done(Ok(())));
    state
}

fn numbers(range: std::ops::Range<u64>) -> HashList {
    list(&range.collect::<Vec<_>>())
}

fn count_present(state: &ShardState, items: &[u64]) -> u64 {
    state.contains(FILTER, FIRST, &list(items)).unwrap().count_ones().into()
}

fn bytes(state: &ShardState, filter: FilterId) -> u64 {
    state.summary(filter).unwrap().memory_bytes
}

/// Inserts like a leader whose slice may take `allowed_bytes` beyond its plan, and no more.
fn insert_within(
    state: &mut ShardState,
    allowed_bytes: u64,
    hashes: HashList,
) -> Result<Bitmap, PartError> {
    let growth = SliceGrowth { allowed_bytes, is_final: true, waiting_items: 0 };
    let prepared = state.prepare_insert(FILTER, FIRST, None, hashes, growth).unwrap();
    let PreparedInsert::Propose(part) = prepared else { panic!("{prepared:?}") };
    let ShardReply::Inserted(mut answers) = state.apply(&ShardCommand::Insert(vec![part])) else {
        panic!("another reply")
    };
    answers.pop().unwrap()
}

fn loaded(state: &ShardState) -> ShardState {
    let snapshot = state.snapshot();
    let mut loader = SnapshotLoader::new(SHARD, range(), snapshot.head()).unwrap();
    snapshot.frames().for_each(|frame| loader.push(&frame.unwrap()).unwrap());
    loader.finish().unwrap()
}

/// No item of a refused part is present; fewer items are accepted, and as many as were removed.
#[test]
fn what_may_not_grow_refuses_what_does_not_fit_as_a_whole() {
    let mut state = state();
    let planned = bytes(&state, FILTER);
    let first: Vec<u64> = (0..400).collect();
    let insert = |state: &mut ShardState, items: &[u64]| insert_within(state, 0, list(items));
    assert_eq!(insert(&mut state, &first).unwrap().count_ones(), 400);
    // Again: no slot is taken, and each item is counted.
    assert_eq!(insert(&mut state, &first).unwrap().count_ones(), 0);
    let summary = state.summary(FILTER).unwrap();
    assert_eq!(summary.room, Some(81));
    let more: Vec<u64> = (1_000..1_300).collect();
    let refused = insert(&mut state, &more).unwrap_err();
    assert!(matches!(refused, PartError::Full { filter: FILTER, .. }), "{refused}");
    let text = refused.to_string();
    assert!(
        text.contains(&format!("expected at most {planned}; remove some, or create")),
        "{text}"
    );
    assert_eq!((count_present(&state, &first), count_present(&state, &more)), (400, 0));
    assert_eq!(state.summary(FILTER).unwrap(), summary);

    assert_eq!(insert(&mut state, &more[..50]).unwrap().count_ones(), 50);
    for left in [400, 150] {
        let removed = remove(&mut state, FILTER, None, list(&first[150..])).unwrap();
        assert_eq!((removed.count_ones(), count_present(&state, &first)), (250, left));
    }
    assert_eq!(insert(&mut state, &more[50..]).unwrap().count_ones(), 250);
    assert_eq!((count_present(&state, &first), count_present(&state, &more)), (150, 300));
    assert_eq!(bytes(&state, FILTER), planned);
}

/// It asks for the growth that it needs before anything is proposed, and grows by exactly that. Duplicates
/// are kept, and a clear restores the planned size.
#[test]
fn a_slice_asks_before_it_grows_and_grows_by_what_it_said() {
    let mut state = state();
    let planned = bytes(&state, FILTER);
    insert(&mut state, FILTER, None, numbers(0..400)).unwrap();
    insert(&mut state, FILTER, None, numbers(0..400)).unwrap();
    let growth = |allowed_bytes| SliceGrowth { allowed_bytes, is_final: false, waiting_items: 0 };
    let prepared = |state: &ShardState, items, allowed_bytes| {
        state.prepare_insert(FILTER, FIRST, None, items, growth(allowed_bytes)).unwrap()
    };
    assert!(matches!(prepared(&state, numbers(400..481), 0), PreparedInsert::Propose(_)));
    for (items, times) in [(82, 1), (562, 1), (563, 2), (1_000, 2), (50_000, 7)] {
        let asked = prepared(&state, numbers(400..400 + items), 0);
        let PreparedInsert::Growing { growth_bytes } = asked else { panic!("{items}: {asked:?}") };
        assert_eq!(spec(FILTER, 20).shape.growth_bytes(range(), times), Ok(growth_bytes));
        let still = prepared(&state, numbers(400..400 + items), growth_bytes - 1);
        assert_eq!(still, PreparedInsert::Growing { growth_bytes });
        let mut grown = state.clone();
        let new = insert_within(&mut grown, growth_bytes, numbers(400..400 + items)).unwrap();
        // Some items share a position.
        assert!(u64::from(new.count_ones()) >= items - 12, "{items}");
        assert_eq!(bytes(&grown, FILTER), planned + growth_bytes, "{items}");
        assert_eq!(count_present(&grown, &(0..400 + items).collect::<Vec<_>>()), 400 + items);
        // Inserted twice, and removed twice.
        for left in [400, 0] {
            remove(&mut grown, FILTER, None, numbers(0..400)).unwrap();
            assert!(count_present(&grown, &(0..400).collect::<Vec<_>>()).abs_diff(left) < 5);
        }
        let clear = ShardCommand::ClearSlice { filter: FILTER, generation: Generation(2) };
        grown.apply(&clear);
        assert_eq!(bytes(&grown, FILTER), planned);
    }
}

/// Copies are counted up to four, from which on they stay, before the slice has grown and after it.
#[test]
fn copies_are_counted_up_to_four_and_kept_when_it_grows() {
    let mut state = state();
    let planned = bytes(&state, FILTER);
    let copies =
        |state: &ShardState| state.copies(FILTER, FIRST, &list(&[0, 1, 2, 3, 4, 5])).unwrap();
    for times in 1..6_u64 {
        insert(&mut state, FILTER, None, list(&(times..6).collect::<Vec<_>>())).unwrap();
    }
    assert_eq!(copies(&state), [0, 1, 2, 3, 4, 4]);
    insert(&mut state, FILTER, None, numbers(1_000..2_000)).unwrap();
    assert!(bytes(&state, FILTER) > planned);
    assert_eq!(copies(&state), [0, 1, 2, 3, 4, 4]);
    for left in [[0, 0, 1, 2, 4, 4], [0, 0, 0, 1, 4, 4]] {
        remove(&mut state, FILTER, None, numbers(0..6)).unwrap();
        assert_eq!(copies(&state), left);
    }
    let refused = state.copies(FILTER, Generation(9), &list(&[1])).unwrap_err();
    assert!(matches!(refused, PartError::StaleGeneration { .. }), "{refused}");
}

/// Replicas of which one loads a snapshot in between are equal at every entry, and answer retried requests
/// as before.
#[test]
fn replicas_grow_alike() {
    let (mut one, mut other) = (state(), state());
    for step in 0_u64..40 {
        let hashes = numbers(100 * step..100 * step + 150);
        let request = Some(stamp(7, step + 1, &hashes));
        let prepared = one.prepare_insert(FILTER, FIRST, request, hashes.clone(), SliceGrowth::ANY);
        let PreparedInsert::Propose(part) = prepared.unwrap() else { panic!("it is new") };
        let command = ShardCommand::Insert(vec![part]);
        let reply = one.apply_at(step, &command);
        assert_eq!(other.apply_at(step, &command), reply);
        assert_eq!(one.digest(), other.digest());
        // Again, as after a leader was lost: nothing is counted twice.
        assert_eq!((one.apply(&command), one.digest()), (reply, other.digest()));
        if step % 7 == 3 {
            other = loaded(&other);
            assert_eq!(one.digest(), other.digest());
        }
    }
    assert!(bytes(&one, FILTER) > 4 * bytes(&state(), FILTER));
}

/// Frames of a slice that has grown restore that slice in one that has not. A repeated frame is refused,
/// and changes nothing.
#[test]
fn frames_of_a_slice_that_has_grown_load_into_an_empty_one() {
    let mut state = state();
    let copy = FilterId(4);
    state.apply(&ShardCommand::CreateSlice(spec(copy, 20)));
    insert(&mut state, FILTER, None, numbers(0..35_000)).unwrap();
    insert(&mut state, FILTER, None, numbers(35_000..70_000)).unwrap();
    let frames: Vec<Vec<u8>> =
        state.export_frames(FILTER, FIRST, 1 << 18).unwrap().map(Result::unwrap).collect();
    let load = |state: &mut ShardState, frame: &[u8]| {
        let frame = Bytes::copy_from_slice(frame);
        state.apply(&ShardCommand::LoadFrame { filter: copy, generation: FIRST, frame })
    };
    assert!(frames.len() > 1, "of several pages");
    for frame in &frames {
        let ShardReply::Merged(Ok(loaded)) = load(&mut state, frame) else { panic!("refused") };
        let digest = state.digest();
        let again = load(&mut state, frame);
        // A page of which the shard has only one hash, at its border, is empty.
        let is_refused = matches!(again, ShardReply::Merged(Err(PartError::BadFrame { .. })));
        assert_eq!(is_refused, loaded > 0, "{again:?}");
        assert_eq!(state.digest(), digest);
    }
    assert_eq!(bytes(&state, copy), bytes(&state, FILTER));
    let both = [FILTER, copy].map(|filter| state.describe(filter).unwrap().description);
    assert_eq!(both[0], both[1]);
    let more = numbers(70_000..130_000);
    let new = [FILTER, copy].map(|filter| insert(&mut state, filter, None, more.clone()).unwrap());
    assert_eq!(new[0], new[1]);
    assert_eq!(bytes(&state, copy), bytes(&state, FILTER));
}

/// A remainder has at least one bit: then the filter is full, and reports why.
#[test]
fn it_grows_while_there_are_remainders() {
    let mut state = ShardState::new(SHARD, range());
    state.apply(&ShardCommand::CreateSlice(spec(FILTER, 2)));
    let refused = (0..100)
        .find_map(|batch| {
            insert(&mut state, FILTER, None, numbers(100 * batch..100 * batch + 100)).err()
        })
        .unwrap();
    assert!(refused.to_string().contains("its remainders are used up; remove some"), "{refused}");
    assert_eq!(state.summary(FILTER).unwrap().room, None);
    let shape = spec(FILTER, 2).shape;
    let once = shape.memory_bytes(range()).unwrap() + shape.growth_bytes(range(), 1).unwrap();
    assert_eq!(bytes(&state, FILTER), once);
    assert!(shape.growth_bytes(range(), 2).is_err());
}

/// An attacker who chooses neighbouring items fills one place, and does not make the filter grow.
#[test]
fn chosen_items_do_not_make_it_grow() {
    let mut state = state();
    let planned = bytes(&state, FILTER);
    let near = |number: u64| umbel_filter::ItemHash::new(range().start() + (number << 36), number);
    let near: Vec<_> = (0..400).map(near).collect();
    let refused = insert(&mut state, FILTER, None, HashList::from_hashes(&near)).unwrap_err();
    assert!(refused.to_string().contains("as with chosen items"), "{refused}");
    assert_eq!(bytes(&state, FILTER), planned);
}

/// A planned filter takes 11.7 to 13.7 bits per item at 1 %, over any number of shards, and cannot be
/// planned by size.
#[test]
fn slices_are_planned_by_items_and_rate() {
    for (shards, bits_max) in [(1, 12.2), (3, 13.5), (4, 13.0), (16, 13.7)] {
        let cells = CellCount::new(shards).unwrap();
        let shape = SliceShape::plan(Kind::Quotient, 1_000_000, 0.01, cells).unwrap();
        let bytes: u64 = (0..shards)
            .map(|cell| shape.memory_bytes(HashRange::cell(cell, cells)).unwrap())
            .inspect(|&bytes| assert!(bytes < SLICE_BYTES_MAX))
            .sum();
        let bits = bytes as f64 * 8.0 / 1e6;
        assert!((11.7..bits_max).contains(&bits), "{bits} bits over {shards} shards");
    }
    let one = CellCount::new(1).unwrap();
    let refused = SliceShape::plan_bytes(Kind::Quotient, 1 << 20, 10, one);
    assert_eq!(refused, Err(PlanError::NoFixedSize { kind: Kind::Quotient }));
}
