//! The bytes of shards' commands and replies are those that earlier builds write, send and expect.

use std::path::Path;

use bytes::Bytes;
use umbel_engine::shard::{
    Bitmap, InsertPart, KeyName, LateItems, PartError, RemovePart, RepairPart, RequestStamp,
    ScrubPart, SetOperation, SliceShape, SliceSpec, SumTerms, TimedInsert, WindowRules, WindowTime,
};
use umbel_engine::{Epoch, FilterId, GroupId, OwnerId, RequestId, SessionId, ShardId};
use umbel_ports::testing::recorded::Recordings;

use super::*;

umbel_ports::recorded! {
    ShardCommand {
        Insert, Remove, CreateSlice, DropSlice, ClearSlice, MergeSlices, LoadFrame, Scrub, Repair,
        InsertTimed, Advance, RotateSlice, RenewSlice, Split, SplitAgain, Fence, Absorb, Reopen,
        InsertAbsent,
    }
    ShardReply { Inserted, Removed, Merged, Done }
    PartError {
        UnknownSlice, StaleGeneration, ForeignHash, RequestExpired, SessionExpired, OtherCut, CutBefore,
        RequestReused, WrongKind, ShapeMismatch, BadFrame, Full, LateItem, FutureItem, Malformed, NotJoined,
        Fenced,
    }
    SetOperation { Union, Intersection, Sum }
    SliceShape { Blocks, SingleShot, Scalable, Window, Paced, Ring, RedisBloom }
    WindowTime { Ingest, Event, Manual }
    LateItems { Reject, Drop, Oldest }
    LogCommand { Meta, Shard, Copy, CopySlice }
    CommandReply { None, Meta, Shard }
}
const FILTER: FilterId = FilterId(7);
const GENERATION: Generation = Generation(2);
const ID: RequestId = RequestId { session: SessionId(5), sequence: 6 };

fn hashes() -> HashList {
    HashList::from_bytes(Bytes::from_static(b"sixteen bytes...")).unwrap()
}

fn stamp() -> RequestStamp {
    let owner = OwnerId(8);
    RequestStamp { id: ID, acknowledged_below: 4, digest: 0xabc, cut: (1, 9), owner }
}

fn insert() -> InsertPart {
    InsertPart {
        filter: FILTER,
        generation: GENERATION,
        request: Some(stamp()),
        proposed: Bitmap::from_bools([false, true]),
        hashes: hashes(),
        growth_bytes: 640,
    }
}

fn commands() -> Vec<ShardCommand> {
    let (filter, generation, request) = (FILTER, GENERATION, Some(stamp()));
    let key = KeyName { function: 1, key_id: 3 };
    let shape = SliceShape::SingleShot { position_count: 100 };
    let scrub = ScrubPart { filter, generation, seed: 13, first_block: 4 };
    let blocks = vec![(1, vec![2, 3])];
    let repair = RepairPart { filter, generation, read_at: 12, blocks, counters: vec![7] };
    let timed = TimedInsert { part: insert(), at_ms: Some(98) };
    let (group, since) = (GroupId::of_shard_in(ShardId(3), 1), Epoch(15));
    let merge = ShardCommand::MergeSlices {
        target: filter,
        generation,
        sources: vec![(FilterId(8), Generation(1))],
        operation: SetOperation::Union,
    };
    vec![
        ShardCommand::Insert(vec![insert()]),
        ShardCommand::Remove(RemovePart { filter, generation, request, hashes: hashes() }),
        ShardCommand::CreateSlice(SliceSpec { filter, generation, shape, key }),
        ShardCommand::DropSlice(filter),
        ShardCommand::ClearSlice { filter, generation },
        merge,
        ShardCommand::LoadFrame { filter, generation, frame: Bytes::from_static(b"frame") },
        ShardCommand::Scrub(scrub),
        ShardCommand::Repair(repair),
        ShardCommand::InsertTimed { now_ms: 99, inserts: vec![timed] },
        ShardCommand::Advance { now_ms: 99 },
        ShardCommand::RotateSlice { filter, generation },
        ShardCommand::RenewSlice { filter, generation },
        ShardCommand::Split { into: ShardId(3), at: 1 << 63 },
        ShardCommand::SplitAgain { into: group, at: 1 << 63 },
        ShardCommand::Fence { into: group, since },
        ShardCommand::Absorb { from: group, fence_index: 16 },
        ShardCommand::Reopen { since },
        ShardCommand::InsertAbsent(vec![insert()]),
    ]
}

fn errors() -> Vec<PartError> {
    let (filter, shard, id, what) = (FILTER, ShardId(3), ID, || "what".to_owned());
    let (start, last, at_ms) = (1, 9, 99);
    vec![
        PartError::UnknownSlice { filter, shard },
        PartError::StaleGeneration { filter, got: Generation(1), current: GENERATION },
        PartError::ForeignHash { hi: 1 << 63, shard },
        PartError::RequestExpired { id },
        PartError::SessionExpired { id },
        PartError::OtherCut { shard, start, last },
        PartError::CutBefore { id, start, last },
        PartError::RequestReused { id },
        PartError::WrongKind { what: what() },
        PartError::ShapeMismatch { what: what() },
        PartError::BadFrame { what: what() },
        PartError::Full { filter, what: what() },
        PartError::LateItem { filter, at_ms, oldest_ms: 100 },
        PartError::FutureItem { filter, at_ms, latest_ms: 98 },
        PartError::Malformed { what: what() },
        PartError::NotJoined { filter, what: what() },
        PartError::Fenced { shard, into: GroupId::of_shard(ShardId(1)) },
    ]
}

fn shapes() -> [SliceShape; 7] {
    let rules = WindowRules {
        slice_ms: 60_000,
        slice_count: 3,
        time: WindowTime::Ingest,
        late: LateItems::Oldest,
        refresh: true,
    };
    let (block_count, probe_count) = (4, 6);
    let redisbloom = SliceShape::RedisBloom {
        place: 1 << 63,
        first_capacity: 100,
        first_rate: 0.5,
        expansion: 2,
        is_fixed: true,
    };
    [
        SliceShape::Blocks { kind: 1, block_count, block_bits: 512, probe_count },
        SliceShape::SingleShot { position_count: 100 },
        SliceShape::Scalable { item_count: 10, false_positive_rate: 0.5 },
        SliceShape::Window { block_count, block_slots: 8, fingerprint_bits: 16, rules },
        SliceShape::Paced { kind: 8, block_count, block_bits: 512, probe_count, pace: 5 },
        SliceShape::Ring { block_count, probe_count, rules, newest: 9 },
        redisbloom,
    ]
}

#[test]
fn every_command_of_a_shard_is_understood_as_it_was_recorded() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/shard_commands.txt");
    let mut recordings = Recordings::read(path);
    check_all(&mut recordings, &commands());
    let bits = Bitmap::from_bools([true, false]);
    let replies = [
        ShardReply::Inserted(vec![Ok(bits.clone()), Err(PartError::RequestExpired { id: ID })]),
        ShardReply::Removed(Ok(bits)),
        ShardReply::Merged(Ok(3)),
        ShardReply::Done(Ok(())),
    ];
    check_all(&mut recordings, &replies);
    check_all(&mut recordings, &errors());
    let sum = SetOperation::Sum(SumTerms { request: Some(stamp()), growth_bytes: 640 });
    check_all(&mut recordings, &[SetOperation::Union, SetOperation::Intersection, sum]);
    check_all(&mut recordings, &shapes());
    check_all(&mut recordings, &[WindowTime::Ingest, WindowTime::Event, WindowTime::Manual]);
    check_all(&mut recordings, &[LateItems::Reject, LateItems::Drop, LateItems::Oldest]);
    let entry = CopyEntry { generation: GENERATION, hashes: hashes() };
    let commands = [
        LogCommand::Meta(MetaCommand::FilterCreated { filter: FILTER }),
        LogCommand::Shard(ShardCommand::DropSlice(FILTER)),
        LogCommand::Copy(entry.clone()),
        LogCommand::CopySlice { slice: 9, entry },
    ];
    check_all(&mut recordings, &commands);
    let replies = [
        CommandReply::None,
        CommandReply::Meta(MetaReply::Done),
        CommandReply::Shard(ShardReply::Merged(Ok(3))),
    ];
    check_all(&mut recordings, &replies);
    recordings.finish();
}
