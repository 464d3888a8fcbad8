//! Filters that forget as they take inserts, in a shard: what leaders propose, and what replicas
//! take over.

use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;
use umbel_filter::{AGING_BLOCK_BITS, Kind};

use super::shard_test::{self, FIRST, SHARD, insert, list, range};
use super::*;
use crate::ids::FilterId;

const FILTER: FilterId = FilterId(5);

/// Items of a generation in the shard.
const PACE: u64 = 8;

/// So large that no test sees a false positive.
fn spec() -> SliceSpec {
    let shape = SliceShape::Paced {
        kind: Kind::Aging.id(),
        block_count: 3_000,
        block_bits: AGING_BLOCK_BITS,
        probe_count: 12,
        pace: range().whole_of(PACE),
    };
    SliceSpec { filter: FILTER, shape, ..shard_test::spec(Kind::Blocked, 0) }
}

fn state() -> ShardState {
    let mut state = ShardState::new(SHARD, range());
    assert_eq!(state.apply(&ShardCommand::CreateSlice(spec())), ShardReply::Done(Ok(())));
    state
}

fn copy_of(state: &ShardState) -> ShardState {
    let snapshot = state.snapshot();
    let mut loader = SnapshotLoader::new(SHARD, range(), snapshot.head()).unwrap();
    for frame in snapshot.frames() {
        loader.push(&frame.unwrap()).unwrap();
    }
    loader.finish().unwrap()
}

fn has(state: &ShardState, item: u64) -> bool {
    state.contains(FILTER, FIRST, &list(&[item])).unwrap().get(0)
}

/// Items in the newer generation are not proposed; items only in the older one are proposed, and
/// are not new.
#[test]
fn what_ages_is_proposed_again() {
    let mut state = state();
    insert(&mut state, FILTER, None, list(&(0..=PACE).collect::<Vec<_>>())).unwrap();
    let asked = list(&[0, PACE, PACE + 1]);
    let prepared = state.prepare_insert(FILTER, FIRST, None, asked, SliceGrowth::ANY).unwrap();
    let PreparedInsert::Propose(part) = prepared else { panic!("{prepared:?}") };
    assert_eq!(
        (&part.proposed, &part.hashes),
        (&Bitmap::from_ones(3, [0, 2]), &list(&[0, PACE + 1]))
    );
    let answer = state.apply(&ShardCommand::Insert(vec![part]));
    assert_eq!(answer, ShardReply::Inserted(vec![Ok(Bitmap::from_ones(3, [2]))]));
    assert_eq!(state.summary(FILTER).unwrap().new_count, PACE + 2);
}

/// A shape of another kind is invalid, and so is one without a pace.
#[test]
fn shapes_without_a_pace_are_refused() {
    let SliceShape::Paced { block_count, block_bits, probe_count, .. } = spec().shape else {
        unreachable!("as it was made")
    };
    for (kind, pace) in [(Kind::Aging, 0), (Kind::Blocked, PACE), (Kind::Window, PACE)] {
        let shape =
            SliceShape::Paced { kind: kind.id(), block_count, block_bits, probe_count, pace };
        assert!(shape.create(range()).is_err(), "{shape:?}");
    }
    let kind = Kind::Aging.id();
    let shape = SliceShape::Blocks { kind, block_count, block_bits, probe_count };
    assert!(shape.create(range()).is_err());
    let of_no_release =
        SliceShape::Paced { kind: 99, block_count, block_bits, probe_count, pace: 1 };
    assert_eq!(of_no_release.kind(), Err(SliceShapeError::UnknownKind { kind: 99 }));
}

proptest! {
    /// The slow twin keeps a list of the last items; a copy continues like its original.
    #[test]
    fn the_last_items_are_there_on_every_replica(
        steps in vec((vec(0..40u64, 1..6), any::<bool>()), 1..30),
    ) {
        let (mut leader, mut follower) = (state(), state());
        let mut last: VecDeque<u64> = VecDeque::new();
        for (items, is_copied) in steps {
            if is_copied {
                follower = copy_of(&leader);
            }
            let hashes = list(&items);
            let prepared = leader.prepare_insert(FILTER, FIRST, None, hashes, SliceGrowth::ANY);
            let mut later = Vec::new();
            if let PreparedInsert::Propose(part) = prepared.unwrap() {
                later.extend(part.proposed.iter_ones().map(|at| items[at]));
                let command = ShardCommand::Insert(vec![part]);
                prop_assert_eq!(leader.apply(&command), follower.apply(&command));
            }
            // Items that are not proposed were inserted before the rest of their batch.
            for &item in items.iter().chain(&later) {
                last.retain(|&other| other != item);
                last.push_back(item);
            }
            while last.len() as u64 > PACE {
                last.pop_front();
            }
            prop_assert_eq!(leader.digest(), follower.digest());
            prop_assert!(last.iter().all(|&item| has(&leader, item)));
        }
    }
}
