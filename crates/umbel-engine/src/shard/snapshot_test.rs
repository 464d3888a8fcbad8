//! Snapshots of all kinds, intact and damaged.

use proptest::prelude::*;
use umbel_filter::{HashRange, Kind};

use super::shard_test::{FIRST, SHARD, filter_of, insert, list, range, spec, state, steps, take};
use super::{ShardCommand, ShardSnapshot, ShardState, SliceShape, SnapshotError, SnapshotLoader};
use crate::ids::{Generation, ShardId};

pub(super) fn load(snapshot: &ShardSnapshot) -> Result<ShardState, SnapshotError> {
    let mut loader = SnapshotLoader::new(SHARD, range(), snapshot.head())?;
    for frame in snapshot.frames() {
        loader.push(&frame.unwrap())?;
    }
    loader.finish()
}

/// Slices of several frames, scalable ones of several levels, and quotient filters that have grown.
#[test]
fn large_slices_travel_in_pieces() {
    let mut state = state();
    for kind in Kind::ALL {
        let filter = filter_of(kind, 0);
        for first in (0..6_000).step_by(1_000) {
            let items: Vec<u64> = (first..first + 1_000).collect();
            insert(&mut state, filter, None, list(&items)).unwrap();
        }
    }
    let grown = filter_of(Kind::Quotient, 1);
    let planned_bytes = state.summary(grown).unwrap().memory_bytes;
    for first in (0..40_000).step_by(10_000) {
        let items: Vec<u64> = (first..first + 10_000).collect();
        insert(&mut state, grown, None, list(&items)).unwrap();
    }
    assert!(state.summary(grown).unwrap().memory_bytes > 2 * planned_bytes);
    let mut large = spec(Kind::Blocked, 5);
    let (kind, probe_count) = (Kind::Blocked.id(), 6);
    large.shape = SliceShape::Blocks { kind, block_count: 3 << 16, block_bits: 512, probe_count };
    let filter = large.filter;
    state.apply(&ShardCommand::CreateSlice(large));
    let items: Vec<u64> = (0..50_000).collect();
    insert(&mut state, filter, None, list(&items)).unwrap();
    let snapshot = state.snapshot();
    assert!(snapshot.frames().count() > snapshot.head().slices_len() + 4);
    let loaded = load(&snapshot).unwrap();
    assert_eq!(loaded.digest(), state.digest());
    for kind in Kind::ALL {
        let filter = filter_of(kind, 0);
        let there = loaded.contains(filter, FIRST, &list(&items[..6_000])).unwrap();
        // A stable filter has forgotten most of them, in the copy as in the original.
        let expected = if kind == Kind::Stable { 1_000..4_000 } else { 6_000..6_001 };
        assert!(expected.contains(&there.count_ones()), "{kind}");
    }
}

#[test]
fn snapshots_stand_still() {
    let mut state = state();
    let digest = state.digest();
    let snapshot = state.snapshot();
    insert(&mut state, filter_of(Kind::Classic, 0), None, list(&[1])).unwrap();
    assert_ne!(state.digest(), digest);
    assert_eq!(load(&snapshot).unwrap().digest(), digest);
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut state = state();
    insert(&mut state, filter_of(Kind::Classic, 0), None, list(&[1])).unwrap();
    let snapshot = state.snapshot();
    let head = snapshot.head();
    let frames: Vec<Vec<u8>> = snapshot.frames().map(Result::unwrap).collect();
    let new = |shard, range| SnapshotLoader::new(shard, range, head.clone());
    let refused = new(ShardId(2), range()).unwrap_err();
    assert!(matches!(refused, SnapshotError::WrongShard { .. }));
    let refused = new(SHARD, HashRange::WHOLE).unwrap_err();
    assert!(matches!(refused, SnapshotError::WrongShard { .. }));

    let mut loader = new(SHARD, range()).unwrap();
    assert!(loader.push(&frames[5]).is_err());
    let loader = new(SHARD, range()).unwrap();
    let slice_count = head.slices_len();
    let refused = loader.finish().unwrap_err();
    assert_eq!(refused, SnapshotError::Incomplete { loaded: 0, expected: slice_count });
    let mut loader = new(SHARD, range()).unwrap();
    frames.iter().for_each(|frame| loader.push(frame).unwrap());
    let refused = loader.push(&frames[0]);
    assert_eq!(refused, Err(SnapshotError::BeyondEnd { slice_count }));
    let mut loader = new(SHARD, range()).unwrap();
    let two = [frames[0].as_slice(), &frames[1]].concat();
    assert!(loader.push(&two).is_err());
}

#[test]
fn hostile_heads_are_refused() {
    let head = state().snapshot().head();
    let refused = |head| SnapshotLoader::new(SHARD, range(), head).is_err();
    assert!(!refused(head.clone()));
    assert!(refused(head.clone().with_slices(|slices| slices.swap(0, 1))));
    assert!(refused(head.clone().with_slices(|slices| slices[1] = slices[0].clone())));
    assert!(refused(head.clone().with_slices(|slices| slices[0].generation = Generation(0))));
    assert!(refused(head.clone().with_slices(|slices| slices[0].spec.key.function = 9)));
    let (kind, probe_count) = (Kind::Blocked.id(), 6);
    let huge = SliceShape::Blocks { kind, block_count: 1 << 34, block_bits: 512, probe_count };
    assert!(refused(head.clone().with_slices(|slices| slices[0].spec.shape = huge)));
    assert!(refused(head.with_slices(|slices| {
        for _ in 0..10_001 {
            slices.push(slices[0].clone());
        }
    })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Three replicas: one is never reloaded, one is loaded from its snapshot in the middle, and one again
    /// at the end.
    #[test]
    fn what_is_loaded_is_what_was_saved(before in steps(), after in steps()) {
        let mut state = state();
        for step in &before {
            let _ = take(&mut state, step);
        }
        let mut loaded = load(&state.snapshot()).unwrap();
        prop_assert_eq!(loaded.digest(), state.digest());
        for step in &after {
            prop_assert_eq!(take(&mut loaded, step), take(&mut state, step));
        }
        prop_assert_eq!(loaded.digest(), state.digest());
        prop_assert_eq!(load(&loaded.snapshot()).unwrap().digest(), state.digest());
    }

    #[test]
    fn damaged_frames_are_refused(frame: usize, byte: usize, bit in 0..8u32) {
        let snapshot = state().snapshot();
        let mut frames: Vec<Vec<u8>> = snapshot.frames().map(Result::unwrap).collect();
        let frame = frame % frames.len();
        let byte = byte % frames[frame].len();
        frames[frame][byte] ^= 1 << bit;
        let mut loader = SnapshotLoader::new(SHARD, range(), snapshot.head()).unwrap();
        let pushed: Result<(), SnapshotError> =
            frames.iter().try_for_each(|frame| loader.push(frame));
        prop_assert!(pushed.is_err());
    }
}
