//! RedisBloom chains in shards: whole in one shard, and empty in the others.

use umbel_filter::{AnyFilter, HashFunction, HashRange, ItemHash, ItemHasher, RedisBloomShape};

use super::command::{KeyName, ShardCommand, ShardReply, SliceSpec};
use super::hash_list::HashList;
use super::part_error::PartError;
use super::prepare::SliceGrowth;
use super::shard_test::{FIRST, insert, range, stamp};
use super::slice_shape::SliceShape;
use super::snapshot::SnapshotLoader;
use super::state::ShardState;
use crate::ids::{FilterId, ShardId};
use crate::shard::PreparedInsert;

const HERE: FilterId = FilterId(1);
const FIXED: FilterId = FilterId(2);
const ELSEWHERE: FilterId = FilterId(3);

fn spec(filter: FilterId, shape: RedisBloomShape, place: u64) -> SliceSpec {
    let key = KeyName { function: HashFunction::RedisBloomPair.id(), key_id: 0 };
    SliceSpec { filter, generation: FIRST, shape: SliceShape::from(shape).placed(place), key }
}

/// A growing chain and a fixed one in this shard, and chains of other shards before and after them.
fn state() -> ShardState {
    let mut state = ShardState::new(ShardId(1), range());
    let shape = RedisBloomShape::for_rate(10, 0.01).unwrap();
    for spec in [
        spec(FilterId(0), shape, range().start() - 1),
        spec(HERE, shape, range().start()),
        spec(FIXED, shape.fixed(), range().last()),
        spec(ELSEWHERE, shape, 0),
    ] {
        let reply = state.apply(&ShardCommand::CreateSlice(spec));
        assert_eq!(reply, ShardReply::Done(Ok(())));
    }
    state
}

fn list(items: std::ops::Range<u32>) -> HashList {
    let hash = |item: u32| ItemHasher::RedisBloom.hash(item.to_string().as_bytes());
    HashList::from_hashes(&items.map(hash).collect::<Vec<ItemHash>>())
}

/// Like RedisBloom: one of 100 items is reported present, and four links hold the others.
#[test]
fn a_chain_has_all_items_wherever_their_hashes_lie() {
    let mut state = state();
    let answer = insert(&mut state, HERE, None, list(0..100)).unwrap();
    assert_eq!(answer.count_ones(), 99);
    let present = state.contains(HERE, FIRST, &list(0..100)).unwrap();
    assert_eq!(present.count_ones(), 100);
    let summary = state.summary(HERE).unwrap();
    // 16, 32, 72 and 160 bytes in whole lines; the last link holds 80 items.
    assert_eq!((summary.new_count, summary.memory_bytes, summary.room), (99, 448, Some(51)));
    assert!(state.probe((HERE, FIRST), 7, 1_000).unwrap() < 40);
    assert_eq!(state.probe((ELSEWHERE, FIRST), 7, 1_000), Ok(0));
}

#[test]
fn a_request_that_comes_again_is_answered_as_at_first() {
    let mut state = state();
    let stamp = stamp(1, 1, &list(0..30));
    let first = insert(&mut state, HERE, Some(stamp), list(0..30)).unwrap();
    assert_eq!(first.count_ones(), 30);
    assert_eq!(insert(&mut state, HERE, Some(stamp), list(0..30)), Ok(first));
    assert_eq!(insert(&mut state, HERE, None, list(0..30)).unwrap().count_ones(), 0);
}

#[test]
fn a_shard_where_it_does_not_live_knows_none_of_its_items() {
    let mut state = state();
    let refused = |error| matches!(error, PartError::ForeignHash { .. });
    assert!(refused(insert(&mut state, ELSEWHERE, None, list(0..2)).unwrap_err()));
    assert!(refused(state.contains(ELSEWHERE, FIRST, &list(0..2)).unwrap_err()));
    let summary = state.summary(ELSEWHERE).unwrap();
    assert_eq!((summary.memory_bytes, summary.room), (0, None));
    assert_eq!(state.export_frames(ELSEWHERE, FIRST, 1 << 20).unwrap().count(), 0);
    // Nothing can be loaded there, either.
    let mut full = self::state();
    insert(&mut full, HERE, None, list(0..5)).unwrap();
    let frame = full.export_frames(HERE, FIRST, 1 << 20).unwrap().next().unwrap().unwrap();
    let load =
        |filter| ShardCommand::LoadFrame { filter, generation: FIRST, frame: frame.clone().into() };
    assert!(matches!(state.apply(&load(ELSEWHERE)), ShardReply::Merged(Err(_))));
    assert!(matches!(state.apply(&load(FIXED)), ShardReply::Merged(Err(_))), "another shape");
    assert!(matches!(state.apply(&load(HERE)), ShardReply::Merged(Ok(1..))));
    assert_eq!(state.summary(HERE).unwrap().new_count, 5);
}

#[test]
fn a_fixed_chain_is_full_and_one_that_grows_asks_first() {
    let mut state = state();
    let answer = insert(&mut state, FIXED, None, list(0..8)).unwrap();
    assert_eq!(answer.count_ones(), 8);
    let full = insert(&mut state, FIXED, None, list(0..20)).unwrap_err();
    assert!(full.to_string().contains("10 items that it was made for"), "{full}");
    // The items before were inserted.
    assert_eq!(state.summary(FIXED).unwrap().new_count, 10);
    let none_more = insert(&mut state, FIXED, None, list(0..10)).unwrap();
    assert_eq!(none_more.count_ones(), 0);

    let growth = SliceGrowth { allowed_bytes: 0, is_final: false, waiting_items: 0 };
    let prepared = state.prepare_insert(HERE, FIRST, None, list(0..25), growth).unwrap();
    // The links for 20 items have room; 32 bytes take a whole line.
    assert_eq!(prepared, PreparedInsert::Growing { growth_bytes: 64 });
    let bytes = |place| SliceShape::growth_bytes(&spec(HERE, shape(), place).shape, range(), 3);
    assert_eq!((bytes(range().start()), bytes(0)), (Ok(64 + 128 + 192), Ok(0)));
    let growth = SliceGrowth { allowed_bytes: 64, is_final: true, waiting_items: 0 };
    let prepared = state.prepare_insert(HERE, FIRST, None, list(0..50), growth).unwrap();
    let PreparedInsert::Propose(part) = prepared else { panic!("{prepared:?}") };
    let ShardReply::Inserted(answers) = state.apply(&ShardCommand::Insert(vec![part])) else {
        panic!("another reply")
    };
    assert!(matches!(answers[0], Err(PartError::Full { .. })));
    assert_eq!(state.summary(HERE).unwrap().new_count, 30);
}

fn shape() -> RedisBloomShape {
    RedisBloomShape::for_rate(10, 0.01).unwrap()
}

#[test]
fn snapshots_have_those_that_live_elsewhere_too() {
    let mut state = state();
    insert(&mut state, HERE, None, list(0..100)).unwrap();
    insert(&mut state, FIXED, None, list(0..7)).unwrap();
    let snapshot = state.snapshot();
    let mut loader = SnapshotLoader::new(ShardId(1), range(), snapshot.head()).unwrap();
    let mut frame_count = 0;
    for frame in snapshot.frames() {
        loader.push(&frame.unwrap()).unwrap();
        frame_count += 1;
    }
    assert_eq!(frame_count, 4 + 1);
    let loaded = loader.finish().unwrap();
    assert_eq!(loaded.digest(), state.digest());
    assert_eq!(loaded.slices().len(), 4);
    // A shard with only such slices needs no frame.
    let mut other = ShardState::new(ShardId(0), HashRange::new(0, 1 << 62).unwrap());
    other.apply(&ShardCommand::CreateSlice(spec(HERE, shape(), 1 << 63)));
    let loader = SnapshotLoader::new(ShardId(0), other.range(), other.snapshot().head()).unwrap();
    assert_eq!(loader.finish().unwrap().digest(), other.digest());
}

#[test]
fn shapes_are_checked() {
    let huge = RedisBloomShape::for_rate(1 << 30, 0.01).unwrap();
    let one = umbel_filter::CellCount::new(1).unwrap();
    assert!(SliceShape::plan_redis_bloom(huge, one).is_err());
    assert!(SliceShape::from(huge).create(HashRange::WHOLE).is_err());
    let none = SliceShape::RedisBloom {
        place: 0,
        first_capacity: 1,
        first_rate: f64::NAN,
        expansion: 2,
        is_fixed: false,
    };
    assert!(none.create(HashRange::WHOLE).is_err() && none.memory_bytes(range()).is_err());
    let filter = SliceShape::from(shape()).create(range()).unwrap();
    let AnyFilter::RedisBloom(filter) = filter else { panic!("another kind") };
    assert!(filter.links().is_empty(), "it lives at the beginning of the space");
}
