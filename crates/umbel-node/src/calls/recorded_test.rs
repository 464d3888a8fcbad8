//! The bytes of all calls between nodes are those that earlier builds send and expect.

use std::path::Path;

use bytes::Bytes;
use umbel_engine::liveness::{Beat, Led, LedVersion};
use umbel_engine::shard::{BlockContents, ScrubbedPiece};
use umbel_engine::{OwnerId, RequestId, SessionId};
use umbel_ports::testing::recorded::Recordings;

use super::*;
use crate::comparisons::Ending;
use crate::export_change::FrameChange;

umbel_ports::recorded! {
    ShardRequest {
        Insert, Remove, Contains, Sum, Command, Describe, ExportBegin, ExportRelease, ExportKeep, ExportEnd, Overlap,
        ExportNext, Status, Scrub, Compare, Copies, Fence, Absorb, InsertAbsent,
    }
    ShardAnswer {
        Bits, Growing, Done, Slice, Overlap, Export, Frames, Status, Scrubbed, Held, Failed, Copies,
    }
    ShardFailure {
        NotLeader, Overloaded, DiskFull, Unknown, Stopped, Part, NoExport, TooManyExports, WrittenMeanwhile,
        NotCompared,
    }
    MetaRequest { Propose, Confirm }
    MetaAnswer { Reply, Confirmed, NotLeader, Unknown }
    GroupRequest { View, ChangeMembers }
    GroupAnswer { View, Changed, Failed }
    CopyRequest { Hold, Find, Inserted, Dominates, Version, Describe, Follow, Scrub }
    CopyAnswer { Bits, Count, Done, Version, Load, Failed, Compared }
    ReportRequest { Standing, Comparisons }
    ReportAnswer { Standing, Comparisons }
    ReplicaQuestion { Root, Digests, Blocks }
    ReplicaAnswer { Root, Digests, Blocks }
    ExportedFrame { Whole, Change }
    CopyFailure {
        UnknownCopy, StaleGeneration, StaleEpoch, DiskFull, Overloaded, BadHashes, Stopped, Unmergeable, NotSaved,
        Full,
    }
    Compares { Slice, Copies }
    Ending { Left, Failed, Partial, Mended, Equal }
}

const FILTER: FilterId = FilterId(7);
const GENERATION: Generation = Generation(2);

fn hashes() -> HashList {
    HashList::from_bytes(Bytes::from_static(b"sixteen bytes...")).unwrap()
}

fn stamp() -> RequestStamp {
    RequestStamp {
        id: RequestId { session: SessionId(5), sequence: 6 },
        acknowledged_below: 4,
        digest: 0xabc,
        cut: (1, 9),
        owner: OwnerId::default(),
    }
}

fn view() -> GroupView {
    let (voters, learners) = (vec![NodeId(1), NodeId(2)], vec![NodeId(3)]);
    GroupView { leader: Some(NodeId(2)), voters, learners, is_joint: true }
}

fn shard_requests() -> Vec<ShardRequest> {
    let (filter, generation, export) = (FILTER, GENERATION, 11);
    let growth = Some(AllowedGrowth { bytes: 640, is_final: true });
    let (request, hashes) = (Some(stamp()), hashes());
    let (of, into) = (GroupId::of_shard_in(ShardId(3), 1), GroupId::of_shard_in(ShardId(1), 0));
    let known = FrameDigests { piece_counts: vec![2], digests: Bytes::from_static(b"digest") };
    let insert = ShardRequest::Insert {
        filter,
        generation,
        request,
        hashes: hashes.clone(),
        growth,
        at_ms: Some(99),
    };
    vec![
        insert,
        ShardRequest::Remove { filter, generation, request, hashes: hashes.clone() },
        ShardRequest::Contains { filter, generation, hashes: hashes.clone(), confirmed: true },
        ShardRequest::Sum {
            target: (filter, generation),
            sources: vec![(FilterId(8), Generation(1))],
            request,
            growth,
        },
        ShardRequest::Command(ShardCommand::DropSlice(filter)),
        ShardRequest::Describe { filter, generation },
        ShardRequest::ExportBegin { filter, generation, known: Some(known), snapshot: Some(12) },
        ShardRequest::ExportRelease { export },
        ShardRequest::ExportKeep { export },
        ShardRequest::ExportEnd { export },
        ShardRequest::Overlap { ours: (filter, generation), theirs: (FilterId(8), Generation(1)) },
        ShardRequest::ExportNext { export },
        ShardRequest::Status,
        ShardRequest::Scrub { filter, generation },
        ShardRequest::Compare { question: ReplicaQuestion::Root { seed: 13 }, applied_index: 14 },
        ShardRequest::Copies { filter, generation, hashes: hashes.clone() },
        ShardRequest::Fence { of, into, since: Epoch(15) },
        ShardRequest::Absorb { from: of, fence_index: 16 },
        ShardRequest::InsertAbsent { filter, generation, request, hashes, growth },
    ]
}

fn shard_answers() -> Vec<ShardAnswer> {
    let load = SliceLoad {
        leader: NodeId(1),
        position_count: 1_000,
        one_count: 400,
        item_count: Some(50.5),
        false_positive_rate: 0.25,
        new_count: 49,
        memory_bytes: 125,
        room: Some(3),
        probes: RateProbes { probe_count: 10, hit_count: 2 },
        unexplained_one_count: Some(0),
        new_per_second: Some(1.5),
    };
    let scrubbed = SliceScrubbed {
        compared: [NodeId(1)].into(),
        away: [(NodeId(2), "down".to_owned())].into(),
        differing: [].into(),
        union_blocks: 3,
        left_blocks: 4,
        answers_differ: true,
    };
    let overlap = OverlapCount { ours: 1, theirs: 2, either: 3, positions: 4, next_word: 5 };
    let status = ReplicaStatus { view: view(), applied_index: 6, memory_bytes: 7 };
    let held = ReplicaAnswer::Root { root: 1, answers: 2, block_count: 3, block_words: 4 };
    let frames = vec![ExportedFrame::Whole(Bytes::from_static(b"frame"))];
    vec![
        ShardAnswer::Bits(Bitmap::from_bools([true, false, true])),
        ShardAnswer::Growing { growth_bytes: 8 },
        ShardAnswer::Done(9),
        ShardAnswer::Slice(load),
        ShardAnswer::Overlap(overlap),
        ShardAnswer::Export { holder: NodeId(1), export: 11, written_index: 12 },
        ShardAnswer::Frames { frames, is_last: true },
        ShardAnswer::Status(status),
        ShardAnswer::Scrubbed(scrubbed),
        ShardAnswer::Held(held),
        ShardAnswer::Failed(ShardFailure::Unknown),
        ShardAnswer::Copies(vec![2, 0]),
    ]
}

fn shard_failures() -> Vec<ShardFailure> {
    vec![
        ShardFailure::NotLeader(Some(NodeId(1))),
        ShardFailure::Overloaded(2),
        ShardFailure::DiskFull { free_bytes: 3 },
        ShardFailure::Unknown,
        ShardFailure::Stopped("stopped".to_owned()),
        ShardFailure::Part(PartError::BadFrame { what: "short".to_owned() }),
        ShardFailure::NoExport,
        ShardFailure::TooManyExports,
        ShardFailure::WrittenMeanwhile,
        ShardFailure::NotCompared("away".to_owned()),
    ]
}

fn copy_requests() -> Vec<CopyRequest> {
    let (generation, epoch, hashes) = (GENERATION, Epoch(3), hashes());
    let counts = [(NodeId(1), 40)].into_iter().collect();
    vec![
        CopyRequest::Hold { generation, epoch, hashes: hashes.clone() },
        CopyRequest::Find { generation, epoch, hashes },
        CopyRequest::Inserted { generation },
        CopyRequest::Dominates { generation, counts },
        CopyRequest::Version { generation },
        CopyRequest::Describe,
        CopyRequest::Follow { index: 4 },
        CopyRequest::Scrub { generation, partner: NodeId(2) },
    ]
}

fn sweeps() -> SweepCounts {
    SweepCounts {
        sweep: 1,
        is_running: true,
        sweep_count: 2,
        broken_sweep_count: 3,
        last_sweep_ms: Some(4),
    }
}

fn copy_answers() -> Vec<CopyAnswer> {
    let load = CopyLoad {
        generation: GENERATION,
        position_count: 1_000,
        one_count: 400,
        item_count: Some(50.5),
        false_positive_rate: 0.25,
        new_count: 49,
        memory_bytes: 125,
        log_bytes: 126,
        is_in_sync: true,
        lags: vec![(NodeId(2), 5)],
        sent_bytes: 6,
        received_bytes: 7,
        refused_count: 8,
        convergence_ms: Some(9),
        probes: RateProbes { probe_count: 10, hit_count: 2 },
        new_per_second: Some(1.5),
    };
    let version = [(NodeId(1), 40)].into_iter().collect();
    vec![
        CopyAnswer::Bits { bits: Bitmap::from_bools([true, false]), is_in_sync: true },
        CopyAnswer::Count(3),
        CopyAnswer::Done(true),
        CopyAnswer::Version { version, is_in_sync: true },
        CopyAnswer::Load(Box::new(CopyReport { load, sweeps: sweeps() })),
        CopyAnswer::Failed(CopyFailure::UnknownCopy { filter: FILTER }),
        CopyAnswer::Compared(Err("away".to_owned())),
    ]
}

#[test]
fn every_call_is_understood_as_it_was_recorded() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/calls.txt");
    let mut recordings = Recordings::read(path);
    check_all(&mut recordings, &shard_requests());
    check_all(&mut recordings, &shard_answers());
    check_all(&mut recordings, &shard_failures());
    let drain = MetaCommand::Drain { node: NodeId(1), drain: true };
    check_all(&mut recordings, &[MetaRequest::Propose(drain), MetaRequest::Confirm]);
    check_all(
        &mut recordings,
        &[
            MetaAnswer::Reply(MetaReply::Filter(FILTER)),
            MetaAnswer::Confirmed,
            MetaAnswer::NotLeader(Some(NodeId(1))),
            MetaAnswer::Unknown,
        ],
    );
    let members = |node| vec![(NodeId(node), format!("n{node}:1"))];
    let change = GroupRequest::ChangeMembers { voters: members(1), learners: members(2) };
    check_all(&mut recordings, &[GroupRequest::View, change]);
    let failed = GroupAnswer::Failed("away".to_owned());
    check_all(&mut recordings, &[GroupAnswer::View(view()), GroupAnswer::Changed, failed]);
    check_all(&mut recordings, &copy_requests());
    check_all(&mut recordings, &copy_answers());
    let comparisons = ReportRequest::Comparisons { reader: Some("ann".to_owned()) };
    check_all(&mut recordings, &[ReportRequest::Standing, comparisons]);
    let standing = NodeStanding {
        version: "0.1.0".to_owned(),
        free_bytes: Some(1),
        is_disk_short: true,
        sweeps: sweeps(),
        step: Some("step".to_owned()),
    };
    let row = ComparedRow { filter: FILTER, compares: Compares::Slice(ShardId(3)), last: None };
    let report = ComparisonsReport {
        interval_s: Some(1),
        count: 2,
        bad_count: 3,
        mended_count: 4,
        pending_count: 5,
        worst: vec![row],
    };
    check_all(
        &mut recordings,
        &[ReportAnswer::Standing(standing), ReportAnswer::Comparisons(report)],
    );
    let standing = JobStanding {
        phase: "exchange".to_owned(),
        attempt: 1,
        trouble: "none".to_owned(),
        away: vec![NodeId(2)],
        decided_cells: 3,
        cells: 4,
    };
    recordings.check("JobStanding", &standing);
    let version = LedVersion { incarnation: 1, number: 2 };
    let led = Led { group: GroupId::of_shard_in(ShardId(3), 1), term: 4 };
    recordings.check("Beat", &Beat { version, leads: Some(vec![led]), has: Some(version) });
    recordings.finish();
}

/// What the calls are made of.
#[test]
fn every_part_of_a_call_is_understood_as_it_was_recorded() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/parts_of_calls.txt");
    let mut recordings = Recordings::read(path);
    let (filter, generation, seed) = (FILTER, GENERATION, 13);
    let blocks = ReplicaQuestion::Blocks { filter, generation, blocks: vec![1, 5] };
    let questions = [ReplicaQuestion::Root { seed }, ReplicaQuestion::Digests { seed }, blocks];
    check_all(&mut recordings, &questions);
    let piece = ScrubbedPiece {
        seed,
        block_count: 3,
        block_words: 4,
        digests: vec![5, 6],
        counters: vec![7],
        answers: 2,
    };
    let contents = BlockContents {
        applied_index: 14,
        written_index: 12,
        is_monotone: true,
        is_words: false,
        contents: vec![vec![8], vec![]],
        counters: vec![7],
    };
    let root = ReplicaAnswer::Root { root: 1, answers: 2, block_count: 3, block_words: 4 };
    let answers = [root, ReplicaAnswer::Digests(piece), ReplicaAnswer::Blocks(contents)];
    check_all(&mut recordings, &answers);
    let (kept, others) = (Bytes::from_static(&[0b01]), Bytes::from_static(b"cd"));
    let change = ExportedFrame::Change(FrameChange { byte_count: 4_098, kept, others });
    let whole = ExportedFrame::Whole(Bytes::from_static(b"frame"));
    check_all(&mut recordings, &[whole, change]);
    check_all(&mut recordings, &copy_failures());
    let compares = [Compares::Slice(ShardId(3)), Compares::Copies(NodeId(2))];
    check_all(&mut recordings, &compares);
    let endings = [Ending::Left, Ending::Failed, Ending::Partial, Ending::Mended, Ending::Equal];
    check_all(&mut recordings, &endings);
    let mut compared = CopyComparison { byte_count: 1, ..CopyComparison::default() };
    (compared.ours.lost_count, compared.ours.news_count) = (2, 3);
    (compared.theirs.lost_count, compared.theirs.news_count) = (4, 5);
    recordings.check("Compared", &compared);
    let last = Comparison {
        at_ms: 99,
        ending: Ending::Partial,
        lost_count: 2,
        surplus_count: 3,
        why: "down".to_owned(),
    };
    let row = ComparedRow { filter, compares: Compares::Slice(ShardId(3)), last: Some(last) };
    recordings.check("ComparedRow", &row);
    recordings.finish();
}

fn copy_failures() -> Vec<CopyFailure> {
    let (filter, what) = (FILTER, "what".to_owned());
    vec![
        CopyFailure::UnknownCopy { filter },
        CopyFailure::StaleGeneration { filter, theirs: GENERATION, ours: Generation(3) },
        CopyFailure::StaleEpoch { theirs: Epoch(1), ours: Epoch(2) },
        CopyFailure::DiskFull { free_bytes: 3 },
        CopyFailure::Overloaded,
        CopyFailure::BadHashes(what.clone()),
        CopyFailure::Stopped(what.clone()),
        CopyFailure::Unmergeable(what.clone()),
        CopyFailure::NotSaved(what.clone()),
        CopyFailure::Full { filter, what },
    ]
}
