//! Copies of every kind that are re-cut and loaded, compared with shards that were split with the
//! filters in them.

use bytes::Bytes;
use proptest::prelude::*;
use umbel_filter::Kind;

use super::shard_test::{FIRST, SHARD, Step, filter_of, list, range, spec, state, steps, take};
use super::{PartError, Recut, ShardCommand, ShardReply, ShardState};
use crate::ids::{FilterId, Generation, ShardId};
use crate::placement::ShardRanges;

/// Payloads of few blocks, so that a slice has several frames.
const PAYLOAD_BYTES_MAX: usize = 1 << 10;

/// The three shards from which the copy was made.
fn three() -> ShardRanges {
    ShardRanges::new(3, 3).unwrap()
}

/// The same after the shard of the tests and the one before it were split.
fn five() -> ShardRanges {
    ShardRanges::new(3, 5).unwrap()
}

fn kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(|kind| !kind.is_whole())
}

fn frames_of(state: &ShardState, filter: FilterId) -> Vec<Bytes> {
    let generation = state.summary(filter).unwrap().generation;
    let frames = state.export_frames(filter, generation, PAYLOAD_BYTES_MAX).unwrap();
    frames.map(|frame| frame.unwrap().into()).collect()
}

fn recut_of(kind: Kind) -> Recut {
    let spec = spec(kind, 0);
    Recut::new(spec.shape, spec.key, three(), five()).unwrap()
}

/// A shard into which the frames are loaded.
fn loaded(shard: ShardId, kind: Kind, generation: Generation, frames: &[Bytes]) -> ShardState {
    let mut state = ShardState::new(shard, five().range(shard).unwrap());
    let mut spec = spec(kind, 0);
    spec.generation = generation;
    let filter = spec.filter;
    state.apply(&ShardCommand::CreateSlice(spec));
    for frame in frames {
        let frame = frame.clone();
        let reply = state.apply(&ShardCommand::LoadFrame { filter, generation, frame });
        assert!(matches!(reply, ShardReply::Merged(Ok(_))), "{kind}: {reply:?}");
    }
    state
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_is_loaded_is_what_a_split_would_have_left(steps in steps()) {
        let mut whole = state();
        for step in &steps {
            // Refusals do not matter here.
            let _ = take(&mut whole, step);
        }
        let mut lower = whole.clone();
        let at = five().range(ShardId(4)).unwrap().start();
        let split = ShardCommand::Split { into: ShardId(4), at };
        let upper = lower.upper_half(&split).unwrap().unwrap();
        lower.apply(&split);
        for kind in kinds() {
            let filter = filter_of(kind, 0);
            let generation = whole.summary(filter).unwrap().generation;
            let mut recut = recut_of(kind);
            let mut slices = Vec::new();
            for frame in frames_of(&whole, filter) {
                slices.extend(recut.push(SHARD, &frame).unwrap());
            }
            prop_assert!(slices.len() == 1 && !recut.is_within_a_slice(), "{}", kind);
            let parts: Vec<_> = slices[0].parts().collect();
            prop_assert_eq!(parts.len(), 2);
            for ((shard, part), half) in parts.into_iter().zip([&lower, &upper]) {
                prop_assert_eq!(shard, half.shard());
                let frames: Vec<Bytes> = part.unwrap().frames(PAYLOAD_BYTES_MAX).map(|frame| frame.unwrap().into()).collect();
                let loaded = loaded(shard, kind, generation, &frames);
                prop_assert_eq!(frames_of(&loaded, filter), frames_of(half, filter), "{}", kind);
            }
        }
    }
}

#[test]
fn shards_that_lie_across_two_are_refused() {
    let spec = spec(Kind::Blocked, 0);
    let new = |theirs, ours| Recut::new(spec.shape, spec.key, theirs, ours);
    assert!(new(three(), three()).is_ok());
    for theirs in [five(), ShardRanges::new(4, 4).unwrap()] {
        let refused = new(theirs, three());
        assert!(matches!(refused, Err(PartError::ShapeMismatch { .. })), "{refused:?}");
    }
}

#[test]
fn a_slice_has_all_its_frames_before_the_next() {
    let mut whole = state();
    let filter = filter_of(Kind::Cuckoo, 0);
    let step = Step::Insert { kind: Kind::Cuckoo, items: (0..50).collect(), request: None };
    take(&mut whole, &step).unwrap();
    let frames = frames_of(&whole, filter);
    assert!(frames.len() > 2 && whole.range() == range());
    let refuses = |recut: &mut Recut, shard, frame: &[u8]| {
        matches!(recut.push(shard, frame), Err(PartError::BadFrame { .. }))
    };
    // For another shard, for no shard, out of order, cut short.
    assert!(refuses(&mut recut_of(Kind::Cuckoo), ShardId(0), &frames[0]));
    assert!(refuses(&mut recut_of(Kind::Cuckoo), ShardId(3), &frames[0]));
    assert!(refuses(&mut recut_of(Kind::Cuckoo), SHARD, &frames[1]));
    assert!(refuses(&mut recut_of(Kind::Cuckoo), SHARD, &frames[0][..frames[0].len() - 1]));
    let mut recut = recut_of(Kind::Cuckoo);
    assert!(recut.push(SHARD, &frames[0]).unwrap().is_none());
    assert!(recut.is_within_a_slice());
    assert!(refuses(&mut recut, ShardId(2), &frames[1]));
    // Items of one kind cannot be loaded as another.
    assert!(refuses(&mut recut_of(Kind::Quotient), SHARD, &frames[0]));
    assert_eq!(whole.contains(filter, FIRST, &list(&[1])).unwrap().count_ones(), 1);
}
