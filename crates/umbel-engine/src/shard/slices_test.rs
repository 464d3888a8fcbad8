//! Whole slices: created, cleared, merged, exported, grown.

use bytes::Bytes;
use umbel_filter::Kind;

use super::shard_test::*;
use super::*;
use crate::ids::{FilterId, Generation};

#[test]
fn slices_are_created_cleared_and_dropped() {
    let mut state = state();
    let spec = spec(Kind::Blocked, 0);
    let filter = spec.filter;
    insert(&mut state, filter, None, list(&[1])).unwrap();
    let create = |spec: &SliceSpec| ShardCommand::CreateSlice(spec.clone());
    let done = ShardReply::Done(Ok(()));
    let digest = state.digest();
    assert_eq!(state.apply(&create(&spec)), done);
    let other = SliceSpec { key: KeyName { function: 1, key_id: 2 }, ..spec.clone() };
    let refused = state.apply(&create(&other));
    assert!(matches!(refused, ShardReply::Done(Err(PartError::Malformed { .. }))));
    assert_eq!(state.digest(), digest);

    let clear =
        |generation| ShardCommand::ClearSlice { filter, generation: Generation(generation) };
    assert_eq!(state.apply(&clear(3)), done);
    assert_eq!(state.summary(filter).unwrap().new_count, 0);
    assert_eq!(state.apply(&clear(3)), done);
    assert_eq!(state.apply(&create(&spec)), done);
    let (got, current) = (Generation(2), Generation(3));
    let stale = PartError::StaleGeneration { filter, got, current };
    assert_eq!(state.apply(&clear(2)), ShardReply::Done(Err(stale.clone())));
    assert_eq!(state.contains(filter, got, &list(&[1])), Err(stale));
    assert_eq!(state.contains(filter, current, &list(&[1])), Ok(Bitmap::zeros(1)));

    assert_eq!(state.apply(&ShardCommand::DropSlice(filter)), done);
    let unknown = PartError::UnknownSlice { filter, shard: SHARD };
    assert_eq!(state.contains(filter, current, &list(&[1])), Err(unknown.clone()));
    assert_eq!(state.apply(&clear(4)), ShardReply::Done(Err(unknown)));
    assert_eq!(state.slices().len(), 3 * Kind::ALL.len() - 1);
    assert!(state.describe(filter).is_none());
}

#[test]
fn slices_merge_where_their_kind_does() {
    for kind in Kind::ALL {
        let mut state = state();
        let [a, b, c] = [0, 1, 2].map(|number| filter_of(kind, number));
        insert(&mut state, b, None, list(&[1, 2])).unwrap();
        insert(&mut state, c, None, list(&[2, 3])).unwrap();
        let sources = [(b, FIRST), (a, FIRST), (c, FIRST)];
        let merge = merge_of(a, FIRST, &sources, SetOperation::Union);
        let ShardReply::Merged(merged) = state.apply(&merge) else { panic!() };
        if !kind.merges_by_or() {
            assert!(matches!(merged, Err(PartError::WrongKind { .. })));
            continue;
        }
        assert_eq!(merged, Ok(state.describe(a).unwrap().description.one_count));
        assert_eq!(state.apply(&merge), ShardReply::Merged(Ok(0)));
        assert_eq!(state.contains(a, FIRST, &list(&[1, 2, 3])), Ok(Bitmap::ones(3)));
        let other = if kind == Kind::Blocked { Kind::Classic } else { Kind::Blocked };
        let sources = [(b, FIRST), (filter_of(other, 0), FIRST)];
        let merge = merge_of(a, FIRST, &sources, SetOperation::Union);
        let ShardReply::Merged(Err(refused)) = state.apply(&merge) else { panic!() };
        assert!(matches!(refused, PartError::ShapeMismatch { .. }));
    }
}

#[test]
fn slices_of_bits_are_intersected() {
    for kind in Kind::ALL {
        let mut state = state();
        let [a, b, c] = [0, 1, 2].map(|number| filter_of(kind, number));
        insert(&mut state, a, None, list(&[7])).unwrap();
        insert(&mut state, b, None, list(&[1, 2, 3])).unwrap();
        insert(&mut state, c, None, list(&[2, 3, 4])).unwrap();
        let apply = |state: &mut ShardState, sources: &[(FilterId, Generation)]| {
            let command = merge_of(a, FIRST, sources, SetOperation::Intersection);
            let ShardReply::Merged(merged) = state.apply(&command) else { panic!() };
            merged
        };
        let before = state.digest();
        let merged = apply(&mut state, &[(b, FIRST), (c, FIRST)]);
        if !matches!(kind, Kind::Blocked | Kind::Classic | Kind::Partitioned) {
            assert!(matches!(merged, Err(PartError::WrongKind { .. })), "{kind}");
            assert_eq!(state.digest(), before);
            continue;
        }
        let set_count = merged.unwrap();
        let summary = state.summary(a).unwrap();
        assert_eq!((summary.new_count, summary.merged_count), (1, set_count), "{kind}");
        let present = state.contains(a, FIRST, &list(&[7, 1, 2, 3, 4])).unwrap();
        assert_eq!(present.iter().collect::<Vec<_>>(), [true, false, true, true, false], "{kind}");
        assert_eq!(apply(&mut state, &[(c, FIRST), (b, FIRST)]), Ok(0));
        // It already has everything that it has in common with others.
        assert_eq!(apply(&mut state, &[(b, FIRST), (a, FIRST)]), Ok(0));
        assert_eq!(apply(&mut state, &[]), Ok(0));
        let before = state.digest();
        let other = if kind == Kind::Blocked { Kind::Classic } else { Kind::Blocked };
        let refused = apply(&mut state, &[(b, FIRST), (filter_of(other, 0), FIRST)]);
        assert!(matches!(refused, Err(PartError::ShapeMismatch { .. })));
        assert!(apply(&mut state, &[(b, FIRST), (c, Generation(9))]).is_err());
        assert_eq!(state.digest(), before);
    }
}

#[test]
fn exported_frames_load_again() {
    for kind in Kind::ALL {
        let mut state = state();
        let [a, b] = [0, 1].map(|number| filter_of(kind, number));
        insert(&mut state, a, None, list(&[1, 2, 3])).unwrap();
        let frames: Vec<Vec<u8>> =
            state.export_frames(a, FIRST, 1 << 16).unwrap().map(Result::unwrap).collect();
        for frame in &frames {
            let frame = Bytes::from(frame.clone());
            let load = ShardCommand::LoadFrame { filter: b, generation: FIRST, frame };
            let ShardReply::Merged(loaded) = state.apply(&load) else { panic!() };
            assert!(loaded.unwrap() > 0);
            let again = state.apply(&load);
            // A level or link that is loaded again is the same one.
            let has_levels = matches!(kind, Kind::Scalable | Kind::RedisBloom);
            if !kind.merges_by_or() && !has_levels {
                assert!(matches!(again, ShardReply::Merged(Err(PartError::BadFrame { .. }))));
            } else {
                assert_eq!(again, ShardReply::Merged(Ok(0)));
            }
        }
        let there = state.contains(b, FIRST, &list(&[1, 2, 3])).unwrap().count_ones();
        assert_eq!(there, 3, "{kind}");
    }
}

/// Level by level, in small frames: the copy equals the filter, counts its items, and grows as the filter
/// would.
#[test]
fn scalable_slices_load_level_by_level() {
    let mut state = state();
    let [a, b] = [8, 9].map(|number| {
        let mut spec = spec(Kind::Scalable, number);
        spec.shape = SliceShape::Scalable { item_count: 100, false_positive_rate: 0.01 };
        state.apply(&ShardCommand::CreateSlice(spec.clone()));
        spec.filter
    });
    let items: Vec<u64> = (0..1_000).collect();
    insert(&mut state, a, None, list(&items)).unwrap();
    let frames: Vec<Vec<u8>> =
        state.export_frames(a, FIRST, 256).unwrap().map(Result::unwrap).collect();
    let load = |state: &mut ShardState, frame: &[u8]| {
        let frame = Bytes::copy_from_slice(frame);
        state.apply(&ShardCommand::LoadFrame { filter: b, generation: FIRST, frame })
    };
    // A level out of order is refused, and opens none.
    let before = state.digest();
    let reply = load(&mut state, frames.last().unwrap());
    assert!(matches!(reply, ShardReply::Merged(Err(PartError::BadFrame { .. }))), "{reply:?}");
    assert_eq!(state.digest(), before);
    for frame in &frames {
        let ShardReply::Merged(Ok(_)) = load(&mut state, frame) else { panic!() };
    }
    let count = |state: &ShardState, filter| {
        let slice = state.summary(filter).unwrap();
        (slice.new_count, slice.memory_bytes)
    };
    assert_eq!(count(&state, b), count(&state, a));
    assert_eq!(state.contains(b, FIRST, &list(&items)).unwrap().count_ones(), 1_000);
    let more: Vec<u64> = (1_000..3_000).collect();
    let new = |state: &mut ShardState, filter| insert(state, filter, None, list(&more)).unwrap();
    let of_a = new(&mut state, a);
    assert_eq!(new(&mut state, b), of_a);
}

/// Each level has half the rate of the previous one, so at some point no blocked filter has the required
/// rate.
#[test]
fn scalable_slices_say_where_they_end() {
    let mut state = state();
    let mut spec = spec(Kind::Scalable, 9);
    spec.shape = SliceShape::Scalable { item_count: 4, false_positive_rate: 1e-6 };
    let filter = spec.filter;
    state.apply(&ShardCommand::CreateSlice(spec));
    let mut full = None;
    for first in (0..40_000).step_by(40) {
        let items: Vec<u64> = (first..first + 40).collect();
        if let Err(error) = insert(&mut state, filter, None, list(&items)) {
            full = Some((first, error));
            break;
        }
    }
    let (first, error) = full.expect("rates end before items do");
    assert!(matches!(error, PartError::Full { .. }), "{error}");
    let new_count = state.summary(filter).unwrap().new_count;
    assert!((first..first + 40).contains(&new_count), "{new_count} of {first}");
    // Present items are still answered, and others are still refused.
    let there = list(&(0..new_count).collect::<Vec<_>>());
    assert_eq!(insert(&mut state, filter, None, there.clone()).map(|new| new.count_ones()), Ok(0));
    assert_eq!(
        state.contains(filter, FIRST, &there).map(|there| there.count_ones() as u64),
        Ok(new_count)
    );
    assert!(insert(&mut state, filter, None, list(&[0, 999_999])).is_err());
}
