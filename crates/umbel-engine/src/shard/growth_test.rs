//! Slices with levels grow as far as they are allowed, and alike on every replica.

use umbel_filter::Kind;

use super::shard_test::{FIRST, filter_of, list, range, state};
use super::*;
use crate::ids::{Generation, ShardId};

fn prepared(state: &ShardState, hashes: &HashList, growth: SliceGrowth) -> PreparedInsert {
    let filter = filter_of(Kind::Scalable, 0);
    state.prepare_insert(filter, FIRST, None, hashes.clone(), growth).unwrap()
}

fn allowed(allowed_bytes: u64, is_final: bool) -> SliceGrowth {
    SliceGrowth { allowed_bytes, is_final, waiting_items: 0 }
}

fn bytes(state: &ShardState) -> u64 {
    state.summary(filter_of(Kind::Scalable, 0)).unwrap().memory_bytes
}

fn apply(state: &mut ShardState, prepared: PreparedInsert) -> Result<Bitmap, PartError> {
    let PreparedInsert::Propose(part) = prepared else { panic!("{prepared:?}") };
    match state.apply(&ShardCommand::Insert(vec![part])) {
        ShardReply::Inserted(mut answers) => answers.pop().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_slice_asks_before_it_grows_and_grows_by_what_it_said() {
    let mut state = state();
    let planned = bytes(&state);
    let few = prepared(&state, &list(&[1, 2, 3]), allowed(0, false));
    assert_eq!(apply(&mut state, few).unwrap().count_ones(), 3);
    let many = list(&(10..2_000).collect::<Vec<_>>());
    let asked = prepared(&state, &many, allowed(0, false));
    let PreparedInsert::Growing { growth_bytes } = asked else { panic!("{asked:?}") };
    assert!(growth_bytes > 0 && bytes(&state) == planned, "nothing has grown yet");
    assert!(matches!(
        prepared(&state, &many, allowed(growth_bytes - 1, false)),
        PreparedInsert::Growing { growth_bytes: again } if again == growth_bytes
    ));
    let part = prepared(&state, &many, allowed(growth_bytes, false));
    assert!(apply(&mut state, part).unwrap().count_ones() > 1_900);
    assert_eq!(bytes(&state), planned + growth_bytes);
}

#[test]
fn items_that_wait_take_the_room_first() {
    let state = state();
    let few = list(&[1, 2, 3]);
    for waiting_items in [0, 10, 1_000, u64::MAX] {
        let growth = SliceGrowth { waiting_items, ..allowed(0, false) };
        // An entry that exceeds every slice's limit is refused when it is applied.
        let asks = (1_000..u64::MAX).contains(&waiting_items);
        let prepared = prepared(&state, &few, growth);
        assert_eq!(matches!(prepared, PreparedInsert::Growing { .. }), asks, "{waiting_items}");
    }
}

#[test]
fn what_may_not_grow_takes_the_items_that_it_has_room_for() {
    let mut state = state();
    let planned = bytes(&state);
    let numbers: Vec<u64> = (0..500).collect();
    let part = prepared(&state, &list(&numbers), allowed(0, true));
    let error = apply(&mut state, part).unwrap_err();
    assert!(matches!(&error, PartError::Full { .. }), "{error}");
    assert_eq!(bytes(&state), planned);
    let filter = filter_of(Kind::Scalable, 0);
    let present = state.contains(filter, FIRST, &list(&numbers)).unwrap();
    let room = present.iter().take_while(|&is_present| is_present).count();
    assert!((20..500).contains(&room), "{room} items of a level for 20 or more");
    assert!(state.summary(filter).unwrap().new_count <= room as u64);
    // Items that are present need no room.
    let again = prepared(&state, &list(&numbers[..room]), allowed(0, false));
    assert!(matches!(again, PreparedInsert::AllPresent { .. }), "{again:?}");
    // A cleared slice starts with its first level again.
    state.apply(&ShardCommand::ClearSlice { filter, generation: Generation(2) });
    assert_eq!(bytes(&state), planned);
}

/// So the catalogue can take growth for a part that has such items for that of a shard that is not cut yet.
#[test]
fn a_shard_that_is_cut_does_not_ask_to_grow_for_items_that_it_lost() {
    let mut state = state();
    let many = list(&(0..2_000).collect::<Vec<_>>());
    let asked = prepared(&state, &many, allowed(0, false));
    assert!(matches!(asked, PreparedInsert::Growing { .. }), "{asked:?}");
    let at = range().start() + u64::try_from(range().width() / 2).unwrap();
    let split = ShardCommand::Split { into: ShardId(9), at };
    assert_eq!(state.apply(&split), ShardReply::Done(Ok(())));
    let filter = filter_of(Kind::Scalable, 0);
    let refused = state.prepare_insert(filter, FIRST, None, many, allowed(0, false));
    assert!(matches!(refused, Err(PartError::ForeignHash { .. })), "{refused:?}");
}
