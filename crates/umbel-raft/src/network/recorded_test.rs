//! The bytes of Raft's calls, and of the questions about replicas, are those that earlier builds send and expect.

use std::collections::BTreeMap;
use std::path::Path;

use openraft::Membership;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderError,
    TransferLeaderRequest, VoteRequest, VoteResponse,
};
use umbel_engine::meta::NodeRecord;
use umbel_engine::{FilterId, Generation, GroupId, NodeId, ShardId};
use umbel_ports::encoding::{decode, encode};
use umbel_ports::testing::recorded::Recordings;
use umbel_storage::testing::{entry, id};
use umbel_storage::types::{
    EntryPayload, NodeAddress, SnapshotMeta, StoredMembership, Types, Vote,
};

use super::snapshot_receiver::{ChunkHead, SnapshotBegin, SnapshotEnd, chunk_body};
use crate::recall::calls::{RecallAnswer, RecallRequest, ReplicaStanding, Standings};

type AppendAnswer = AppendEntriesResponse<Types>;
type TransferError = TransferLeaderError<Types>;

umbel_ports::recorded! {
    AppendAnswer { Success, PartialSuccess, Conflict, HigherVote }
    TransferError { VoteChanged, LogNotFlushed }
    EntryPayload { Blank, Normal, Membership }
    RecallRequest { Standings, Lost, Committed }
    RecallAnswer { Standings, Noted, Committed }
}

fn vote() -> Vote {
    Vote::new_committed(5, NodeId(1))
}

fn members() -> Membership<NodeId, NodeAddress> {
    let voters = vec![[NodeId(1), NodeId(2)].into(), [NodeId(2)].into()];
    let node = |node| (NodeId(node), NodeAddress(format!("n{node}:1")));
    let nodes: BTreeMap<_, _> = [node(1), node(2), node(3)].into();
    Membership::new(voters, nodes).unwrap()
}

fn check_appends(recordings: &mut Recordings) {
    let append = AppendEntriesRequest::<Types> {
        vote: vote(),
        prev_log_id: Some(id(4, 8)),
        entries: vec![entry(5, 9)],
        leader_commit: Some(id(4, 7)),
    };
    // It cannot be compared, but its text has all that is in it.
    let decoded =
        |bytes: &[u8]| format!("{:?}", decode::<AppendEntriesRequest<Types>>(bytes).unwrap());
    recordings.check_as("Append", &format!("{append:?}"), &encode(&append), decoded);
    let payloads = [EntryPayload::Blank, entry(5, 9).payload, EntryPayload::Membership(members())];
    check_all(recordings, &payloads);
    let answers = [
        AppendAnswer::Success,
        AppendAnswer::PartialSuccess(Some(id(5, 9))),
        AppendAnswer::Conflict,
        AppendAnswer::HigherVote(Vote::new(6, NodeId(2))),
    ];
    check_all(recordings, &answers);
}

fn check_snapshots(recordings: &mut Recordings) {
    let last_membership = StoredMembership::new(Some(id(4, 3)), members());
    let meta = SnapshotMeta { last_log_id: Some(id(4, 8)), last_membership };
    let begin = SnapshotBegin { transfer: 11, vote: vote(), meta, byte_count: 12 };
    recordings.check("SnapshotBegin", &begin);
    let head = ChunkHead { transfer: 11, offset: 4 };
    recordings.check("SnapshotChunk", &head);
    assert_eq!(chunk_body(11, 4, b"bytes"), [&encode(&head)[..], b"bytes"].concat());
    recordings.check("SnapshotEnd", &SnapshotEnd { transfer: 11 });
    recordings.check("SnapshotEnd-answer", &SnapshotResponse::<Types>::new(vote()));
}

fn check_recalls(recordings: &mut Recordings) {
    let lost = RecallRequest::Lost { confirmed: id(4, 8) };
    check_all(recordings, &[RecallRequest::Standings, lost, RecallRequest::Committed]);
    let group = GroupId::of_shard_in(ShardId(3), 1);
    let standings = Standings {
        groups: vec![ReplicaStanding { group, vote: Some(vote()), last: Some(id(4, 8)) }],
        copies: vec![(FilterId(7), Generation(2), 40)],
        nodes: vec![(NodeId(2), "n2:1".to_owned())],
    };
    let committed = RecallAnswer::Committed(vec![(group, 8)]);
    check_all(recordings, &[RecallAnswer::Standings(standings), RecallAnswer::Noted, committed]);
    recordings.check("ConfirmReads", &vec![(group, vote())]);
    recordings.check("ConfirmReads-answer", &vec![true, false]);
}

fn empty_entries(count: u64) -> AppendEntriesRequest<Types> {
    let empty = |index| {
        let mut entry = entry(5, index);
        entry.payload = EntryPayload::Blank;
        entry
    };
    AppendEntriesRequest {
        vote: vote(),
        prev_log_id: Some(id(4, 8)),
        entries: (9..9 + count).map(empty).collect(),
        leader_commit: None,
    }
}

/// An empty entry has 28 bytes, and takes as much memory as any command.
#[test]
fn an_append_takes_no_more_memory_than_its_bytes_allow() {
    let decoded = |count| {
        let bytes = encode(&empty_entries(count));
        decode::<AppendEntriesRequest<Types>>(&bytes).map(|append| append.entries.len())
    };
    // Twice as many as Raft sends at once.
    assert_eq!(decoded(128).unwrap(), 128);
    let error = decoded(100_000).unwrap_err().to_string();
    assert!(error.contains("bytes of memory"), "{error}");
}

/// Removed nodes stay in the catalogue, and groups that a node left stay in its log, for ever.
#[test]
fn long_lists_of_short_records_are_understood() {
    let removed = |node| (NodeId(node), NodeRecord::Removed);
    let nodes: BTreeMap<NodeId, NodeRecord> = (0..100_000).map(removed).collect();
    assert!(decode::<BTreeMap<NodeId, NodeRecord>>(&encode(&nodes)).unwrap() == nodes);
    let left = |era| {
        let group = GroupId::of_shard_in(ShardId(1), era);
        ReplicaStanding { group, vote: Some(vote()), last: None }
    };
    let standings = Standings { groups: (0..20_000).map(left).collect(), ..Standings::default() };
    let answer = RecallAnswer::Standings(standings);
    assert!(decode::<RecallAnswer>(&encode(&answer)).unwrap() == answer);
}

#[test]
fn every_call_of_raft_is_understood_as_it_was_recorded() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/raft_calls.txt");
    let mut recordings = Recordings::read(path);
    check_appends(&mut recordings);
    let mut asked = VoteRequest::<Types>::new(Vote::new(6, NodeId(2)), Some(id(4, 8)));
    recordings.check("PreVote", &asked);
    asked.leadership_transfer = true;
    recordings.check("Vote", &asked);
    recordings.check("Vote-answer", &VoteResponse::<Types>::new(vote(), Some(id(4, 8)), true));
    let transfer = TransferLeaderRequest::<Types>::new(vote(), NodeId(2), Some(id(4, 8)));
    recordings.check("TransferLeader", &transfer);
    recordings.check("TransferLeader-answer", &Ok::<(), TransferError>(()));
    let refusals = [
        TransferError::VoteChanged { expected: vote(), actual: Vote::new(6, NodeId(2)) },
        TransferError::LogNotFlushed { expected: Some(id(4, 8)), actual: None },
    ];
    check_all(&mut recordings, &refusals);
    check_snapshots(&mut recordings);
    check_recalls(&mut recordings);
    recordings.finish();
}
