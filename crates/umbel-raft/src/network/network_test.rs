//! openraft's calls and snapshots between two served nodes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use openraft::RaftNetworkFactory;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError};
use openraft::network::RPCOption;
use openraft::network::v2::RaftNetworkV2;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::storage::Snapshot;
use openraft::type_config::TypeConfigExt;
use tempfile::TempDir;
use tokio::time::Instant;
use tonic::Status;
use umbel_engine::{GroupId, NodeId, ShardId};
use umbel_filter::HashRange;
use umbel_ports::encoding::{decode, encode};
use umbel_ports::testing::{CountingSeed, MemoryNet};
use umbel_ports::{Net, Pacer, PortFuture, RealDisk};
use umbel_proto::v1::{AdoptRequest, WhoAreYouResponse};
use umbel_storage::identity::Identity;
use umbel_storage::testing::{entry as log_entry, id as log_id};
use umbel_storage::types::{LogId, NodeAddress, SnapshotMeta, Types, Vote};
use umbel_storage::{SnapshotFile, Storage, WalOptions};

use super::moves::Moves;
use super::moves::tests::report;
use super::snapshot_receiver::{SNAPSHOT_CHUNK_BYTES, SnapshotBegin, SnapshotReceiver};
use super::terms::INDEX_MAX;
use super::{Network, PeerReplica};
use crate::beats::Beats;
use crate::group::Group;
use crate::peer::test_node::{TIMING, TestNode, identity, links, serve_handler};
use crate::peer::{CallHandler, CallKind, CallRefusal, LocalIdentity, RefusalReason};
use crate::read_rounds::ReadRounds;
use crate::recall::calls::{RecallAnswer, RecallRequest};
use crate::state_machine::GroupReplica;

pub(super) const GROUP: GroupId = GroupId::of_shard(ShardId(3));

pub(super) async fn storage(folder: &TempDir) -> Storage {
    let disk = Arc::new(RealDisk::open(folder.path()).unwrap());
    Storage::open_wrapped(disk, WalOptions::new(Identity::new(1).log_owner()), None)
        .await
        .unwrap()
        .0
}

pub(super) fn vote() -> Vote {
    Vote::new(5, NodeId(1))
}

/// Records what it receives; grants votes, accepts entries that fit its log, and answers every other
/// call with letters.
struct Follower {
    /// Index of the last entry.
    last: Mutex<u64>,
    /// The entries of whose loss it was notified.
    notified: Mutex<Vec<LogId>>,
    receiver: SnapshotReceiver,
    installed: Mutex<Vec<(Vote, SnapshotFile)>>,
    never_ends: bool,
}

impl CallHandler for Follower {
    fn identity(&self) -> Option<LocalIdentity> {
        Some(identity(2))
    }

    fn handle(
        self: Arc<Self>,
        from: NodeId,
        kind: CallKind,
        group: GroupId,
        body: Bytes,
    ) -> PortFuture<'static, Result<Bytes, CallRefusal>> {
        assert_eq!((from, group), (NodeId(1), GROUP));
        Box::pin(async move {
            match kind {
                CallKind::Vote => {
                    let request: VoteRequest<Types> =
                        decode(&body).map_err(CallRefusal::bad_body)?;
                    Ok(encode(&VoteResponse::<Types>::new(request.vote, None, true)))
                }
                CallKind::Append => {
                    let request: AppendEntriesRequest<Types> =
                        decode(&body).map_err(CallRefusal::bad_body)?;
                    let (prev, mut last) = (request.prev_log_id, self.last.lock().unwrap());
                    if prev.is_some_and(|prev| prev.index > *last) {
                        return Ok(encode(&AppendEntriesResponse::<Types>::Conflict));
                    }
                    *last = request.entries.last().map_or(*last, |entry| entry.log_id.index);
                    Ok(encode(&AppendEntriesResponse::<Types>::Success))
                }
                CallKind::Recall => {
                    if let Ok(RecallRequest::Lost { confirmed }) = decode(&body) {
                        self.notified.lock().unwrap().push(confirmed);
                    }
                    Ok(encode(&RecallAnswer::Noted))
                }
                CallKind::SnapshotBegin => self.receiver.begin(from, body).await,
                CallKind::SnapshotChunk => self.receiver.chunk(from, body).await,
                CallKind::SnapshotEnd if self.never_ends => std::future::pending().await,
                CallKind::SnapshotEnd => {
                    let (vote, file) = self.receiver.end(from, body).await?;
                    self.installed.lock().unwrap().push((vote, file));
                    Ok(encode(&SnapshotResponse::<Types>::new(vote)))
                }
                _ => Ok(Bytes::from_static(b"no answer of Raft")),
            }
        })
    }

    fn adopt(&self, _: AdoptRequest) -> PortFuture<'_, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }

    fn who_are_you(&self) -> WhoAreYouResponse {
        WhoAreYouResponse::default()
    }
}

struct Pair {
    replica: PeerReplica,
    follower: TestNode<Follower>,
    leader_storage: Storage,
    folders: [TempDir; 2],
}

async fn pair(never_ends: bool) -> Pair {
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let leader_storage = storage(&folders[0]).await;
    let store = storage(&folders[1]).await.snapshots(GROUP);
    let (receiver, installed) = (SnapshotReceiver::new(store), Mutex::default());
    let net: Arc<dyn Net> = Arc::new(MemoryNet::default());
    let (last, notified) = (Mutex::new(0), Mutex::default());
    let follower = Arc::new(Follower { last, notified, receiver, installed, never_ends });
    let follower = serve_handler(&*net, "two:1", follower).await;
    let links = Arc::new(links(&net, 1));
    let beats = Arc::new(Beats::new(NodeId(1), 1, TIMING));
    let rounds = ReadRounds::start(NodeId(1), Arc::clone(&links), Arc::clone(&beats));
    // A chunk a second, once the group's members are known.
    let moves = Moves::new(Arc::new(Pacer::new(SNAPSHOT_CHUNK_BYTES as u64)), beats);
    let mut network = Network::new(links, Arc::default(), rounds, GROUP, moves);
    let replica = network.new_client(NodeId(2), &NodeAddress("two:1".to_owned())).await;
    Pair { replica, follower, leader_storage, folders }
}

/// Longer than any call here takes.
const PATIENCE: Duration = Duration::from_secs(40);

fn option() -> RPCOption {
    RPCOption::new(PATIENCE)
}

async fn snapshot_of(storage: &Storage, bytes: &[u8]) -> SnapshotFile {
    let mut writer = storage.snapshots(GROUP).writer(SnapshotMeta::default()).await.unwrap();
    if !bytes.is_empty() {
        writer.write(Bytes::copy_from_slice(bytes)).await.unwrap();
    }
    writer.finish().await.unwrap()
}

#[tokio::test]
async fn raft_calls_arrive_and_letters_are_no_answer() {
    let mut pair = pair(false).await;
    let request = VoteRequest::<Types>::new(vote(), None);
    let response = pair.replica.vote(request.clone(), option()).await.unwrap();
    assert!(response.vote_granted && response.vote == vote());
    let (network, two) = (pair.replica.network.clone(), pair.replica.to);
    let error = network.request_pre_vote(two, "two:1", &request, PATIENCE).await.unwrap_err();
    assert!(matches!(&error, RPCError::Unreachable(_)), "{error}");
    assert!(error.to_string().contains("was not understood"), "{error}");
    pair.follower.crash();
    let _ = (&mut pair.follower.server).await;
    let error = pair.replica.vote(request, option()).await.unwrap_err();
    assert!(matches!(&error, RPCError::Unreachable(_)), "{error}");
}

#[tokio::test]
async fn snapshots_arrive_whole() {
    let mut pair = pair(false).await;
    for byte_count in [0, 1, SNAPSHOT_CHUNK_BYTES, 2 * SNAPSHOT_CHUNK_BYTES + 12_345] {
        let bytes: Vec<u8> = (0..byte_count).map(|at| (at * 31 / 7).to_le_bytes()[0]).collect();
        let file = snapshot_of(&pair.leader_storage, &bytes).await;
        let snapshot = Snapshot { meta: file.meta().clone(), snapshot: file };
        let cancel = std::future::pending();
        let response =
            pair.replica.full_snapshot(vote(), snapshot, cancel, option()).await.unwrap();
        assert_eq!(response.vote, vote());
        let (got_vote, got) = pair.follower.handler.installed.lock().unwrap().pop().unwrap();
        assert_eq!((got_vote, got.byte_count()), (vote(), byte_count as u64));
        let mut read = Vec::new();
        while read.len() < byte_count {
            read.extend(got.read(read.len() as u64, byte_count - read.len()).await.unwrap());
        }
        assert!(read == bytes);
    }
}

/// Time is virtual. The first chunk goes at once, each other one after a second.
#[tokio::test]
async fn an_added_replica_is_sent_its_first_snapshot_at_the_rate_of_moves() {
    let mut pair = pair(false).await;
    let file = snapshot_of(&pair.leader_storage, &vec![7; 3 * SNAPSHOT_CHUNK_BYTES]).await;
    let (_sender, reports) = Types::watch_channel(report(&[1]));
    pair.replica.network.follow_members(reports);
    tokio::time::pause();
    let mut seconds = Vec::new();
    for _ in 0..2 {
        let begun_at = Instant::now();
        let snapshot = Snapshot { meta: file.meta().clone(), snapshot: file.clone() };
        let cancel = std::future::pending();
        pair.replica.full_snapshot(vote(), snapshot, cancel, option()).await.unwrap();
        seconds.push(begun_at.elapsed().as_secs_f64());
        let (_, got) = pair.follower.handler.installed.lock().unwrap().pop().unwrap();
        assert_eq!(got.byte_count(), file.byte_count());
    }
    // A twentieth of a second was saved up.
    assert!((1.95..2.5).contains(&seconds[0]), "{seconds:?}");
    assert!(seconds[1] < 0.5, "the second one waits for nothing: {seconds:?}");
}

/// The damage is in the head of the body, which has no checksum of its own.
#[tokio::test]
async fn a_snapshot_that_was_damaged_on_the_disk_is_not_sent() {
    let mut pair = pair(false).await;
    let path = pair.folders[0].path().join(format!("snapshots/{}/empty.snap", GROUP.number()));
    let file = snapshot_of(&pair.leader_storage, b"members and catalogue").await;
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(7).position(|part| part == b"members").unwrap();
    bytes[at] ^= 4;
    std::fs::write(&path, bytes).unwrap();
    let snapshot = Snapshot { meta: file.meta().clone(), snapshot: file };
    let cancel = std::future::pending();
    let error = pair.replica.full_snapshot(vote(), snapshot, cancel, option()).await.unwrap_err();
    assert!(error.to_string().contains("empty.snap is damaged: checksum"), "{error}");
    assert!(pair.follower.handler.installed.lock().unwrap().is_empty());
    assert!(pair.replica.network.takes_damage() && !pair.replica.network.takes_damage());

    // Another one takes its place.
    let file = snapshot_of(&pair.leader_storage, b"members and catalogue").await;
    let snapshot = Snapshot { meta: file.meta().clone(), snapshot: file };
    let cancel = std::future::pending();
    pair.replica.full_snapshot(vote(), snapshot, cancel, option()).await.unwrap();
    assert_eq!(pair.follower.handler.installed.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn sending_can_be_cancelled() {
    let mut pair = pair(true).await;
    let file = snapshot_of(&pair.leader_storage, b"abc").await;
    let snapshot = Snapshot { meta: file.meta().clone(), snapshot: file };
    let (cancel, cancelled) = tokio::sync::oneshot::channel();
    let cancelled = async move {
        cancelled.await.unwrap();
        ReplicationClosed::new("no longer the leader")
    };
    cancel.send(()).unwrap();
    let error = pair.replica.full_snapshot(vote(), snapshot, cancelled, option()).await;
    assert!(matches!(error, Err(StreamingError::Closed(_))), "{error:?}");
}

pub(super) fn begin_of(vote: Vote, transfer: u64, byte_count: u64) -> Bytes {
    let meta = SnapshotMeta::default();
    encode(&SnapshotBegin { transfer, vote, meta, byte_count })
}

/// A group of this node alone.
async fn lone_group(storage: &Storage) -> Arc<Group> {
    let net: Arc<dyn Net> = Arc::new(MemoryNet::default());
    let (links, beats) = (Arc::new(links(&net, 1)), Arc::new(Beats::new(NodeId(1), 1, TIMING)));
    let rounds = ReadRounds::start(NodeId(1), Arc::clone(&links), Arc::clone(&beats));
    let moves = Moves::new(Arc::new(Pacer::new(0)), Arc::clone(&beats));
    let network = Network::new(links, Arc::default(), rounds, GROUP, moves);
    let replica = GroupReplica::shard(GROUP, HashRange::WHOLE);
    let seed = Arc::new(CountingSeed::default());
    Group::start(GROUP, NodeId(1), replica, storage, network, seed, beats).await.unwrap()
}

/// openraft would add to the index, and the node stop.
#[tokio::test]
async fn an_index_that_no_log_reaches_stops_no_group() {
    let folder = TempDir::new().unwrap();
    let storage = storage(&folder).await;
    let group = lone_group(&storage).await;
    let absurd = log_id(5, u64::MAX);
    for (prev_log_id, leader_commit, entries) in [
        (Some(absurd), None, vec![]),
        (None, Some(absurd), vec![]),
        (None, None, vec![log_entry(5, INDEX_MAX + 1)]),
    ] {
        let vote = Vote::new_committed(5, NodeId(1));
        let request = AppendEntriesRequest::<Types> { vote, prev_log_id, entries, leader_commit };
        let refused = group.append(request).await.unwrap_err();
        assert!(refused.contains("no log reaches that"), "{refused}");
    }
    let meta = SnapshotMeta { last_log_id: Some(absurd), ..SnapshotMeta::default() };
    let begin = SnapshotBegin { transfer: 1, vote: vote(), meta, byte_count: 3 };
    let begun = group.incoming_snapshots().begin(NodeId(1), encode(&begin)).await;
    assert_eq!(begun.unwrap_err().reason, RefusalReason::BadBody);
    assert_eq!(group.failure(), None);
    group.shut_down().await;
}

/// openraft would panic, and the node stop.
#[tokio::test]
async fn a_snapshot_of_a_later_leader_than_its_sender_stops_no_group() {
    let folder = TempDir::new().unwrap();
    let storage = storage(&folder).await;
    let group = lone_group(&storage).await;
    let meta = SnapshotMeta { last_log_id: Some(log_id(6, 3)), ..SnapshotMeta::default() };
    let writer = storage.snapshots(GROUP).writer(meta).await.unwrap();
    let file = writer.finish_aside().await.unwrap();
    let vote = Vote::new_committed(5, NodeId(2));
    let refused = group.install(vote, file).await.unwrap_err();
    assert!(refused.contains("entry 3 of term 6"), "{refused}");
    assert_eq!(group.failure(), None);
    group.shut_down().await;
}

#[tokio::test]
async fn a_replica_that_lacks_confirmed_entries_is_notified_before_raft() {
    let mut pair = pair(false).await;
    let append = |prev: u64, entries: std::ops::Range<u64>| AppendEntriesRequest::<Types> {
        vote: Vote::new_committed(5, NodeId(1)),
        prev_log_id: Some(log_id(5, prev)),
        entries: entries.map(|index| log_entry(5, index)).collect(),
        leader_commit: None,
    };
    let nothing = 1..1;
    // The follower never confirmed entry 3: that is an ordinary conflict.
    let answer = pair.replica.append_entries(append(3, nothing.clone()), option()).await.unwrap();
    assert!(answer.is_conflict());
    let answer = pair.replica.append_entries(append(0, 1..4), option()).await.unwrap();
    assert!(answer.is_success());
    let follower = Arc::clone(&pair.follower.handler);
    assert!(follower.notified.lock().unwrap().is_empty());

    *follower.last.lock().unwrap() = 1;
    let error =
        pair.replica.append_entries(append(3, nothing.clone()), option()).await.unwrap_err();
    assert!(error.to_string().contains("lacks entries that it confirmed"), "{error}");
    while follower.notified.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(follower.notified.lock().unwrap()[0], log_id(5, 3));
    // The follower has been notified, so Raft may send the missing entries again.
    let answer = async {
        loop {
            match pair.replica.append_entries(append(3, nothing.clone()), option()).await {
                Ok(answer) => return answer,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    assert!(answer.await.is_conflict());
    let answer = pair.replica.append_entries(append(1, 2..4), option()).await.unwrap();
    assert!(answer.is_success());
}
