//! openraft's network calls over the links between nodes.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::v2::RaftNetworkV2;
use openraft::network::{RPCOption, RaftNetworkFactory, stream_append_sequential};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use umbel_engine::{GroupId, NodeId};
use umbel_ports::Rare;
use umbel_ports::encoding::{DecodeError, decode, encode};
use umbel_storage::SnapshotFile;
use umbel_storage::types::{LogId, NodeAddress, Types, Vote};

use crate::metrics;
use crate::peer::{CallError, CallKind, Links};
use crate::read_rounds::ReadRounds;
use crate::recall::notify_lost;
use crate::witness::{Restarted, Witness};

mod held_commits;
mod moves;
#[cfg(test)]
mod network_test;
#[cfg(test)]
mod recorded_test;
mod snapshot_receiver;
#[cfg(test)]
mod snapshot_receiver_test;
pub(crate) mod terms;

use held_commits::{COMMIT_HOLD, hold_commits};
use terms::{AbsurdTerm, check_vote};

pub use moves::MOVE_BYTES_PER_SECOND_MIN;
pub(crate) use moves::{Moves, Reports, SLOW_MOVE_BYTES_PER_SECOND};
pub(crate) use snapshot_receiver::SnapshotReceiver;
use snapshot_receiver::{SNAPSHOT_CHUNK_BYTES, SnapshotBegin, SnapshotEnd, chunk_body};

/// Bytes of a snapshot in one call where a simulation asks for small chunks.
const SMALL_CHUNK_BYTES: usize = 1 << 10;

/// Creates the network clients of one group. All of them share the node's links.
#[derive(Clone)]
pub(crate) struct Network {
    links: Arc<Links>,
    witness: Arc<Witness>,
    rounds: ReadRounds,
    group: GroupId,
    /// The highest index up to which a follower was told that entries are committed.
    announced: Arc<AtomicU64>,
    /// Snapshot transfers that this group has started; numbers them.
    transfer_count: Arc<AtomicU64>,
    /// Set when the snapshot to send was found to be damaged on the disk.
    has_damaged_snapshot: Arc<AtomicBool>,
    moves: Arc<Moves>,
}

impl Network {
    /// Creates the network to pass to the group's `Raft::new`.
    pub(crate) fn new(
        links: Arc<Links>,
        witness: Arc<Witness>,
        rounds: ReadRounds,
        group: GroupId,
        moves: Moves,
    ) -> Self {
        let (announced, transfer_count, has_damaged_snapshot) = Default::default();
        let moves = Arc::new(moves);
        Self {
            links,
            witness,
            rounds,
            group,
            announced,
            transfer_count,
            has_damaged_snapshot,
            moves,
        }
    }

    /// Learns of the group's members from now on, on which it depends what is sent at the rate of moves. The
    /// catalogue is never sent at that rate: it is small, and a node that joins can do nothing without it.
    pub(crate) fn follow_members(&self, reports: Reports) {
        if self.group.shard().is_some() {
            self.moves.follow(reports);
        }
    }

    /// The index up to which followers may have applied entries because this node told them of the
    /// commit; 0 before the first. Known before any of them is told.
    pub(crate) fn announced(&self) -> u64 {
        self.announced.load(Ordering::SeqCst)
    }

    /// Notes that a node gets a replica of this group that has no entries yet.
    pub(crate) fn starts_anew(&self, node: NodeId) {
        self.witness.starts_anew(node, self.group);
        self.moves.starts_anew(node);
    }

    /// Whether a snapshot was found to be damaged since this was asked last.
    pub(crate) fn takes_damage(&self) -> bool {
        self.has_damaged_snapshot.swap(false, Ordering::Relaxed)
    }

    /// The node's rounds of read confirmations.
    pub(crate) const fn rounds(&self) -> &ReadRounds {
        &self.rounds
    }

    fn replica(&self, to: NodeId, address: &str) -> PeerReplica {
        PeerReplica { network: self.clone(), to, address: address.to_owned() }
    }

    /// Sends a pre-vote request to a replica.
    ///
    /// # Errors
    /// If the replica does not respond, or refuses: for example because a live node leads the group.
    pub(crate) async fn request_pre_vote(
        &self,
        to: NodeId,
        address: &str,
        request: &VoteRequest<Types>,
        timeout: Duration,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Ok(self.replica(to, address).request_vote(CallKind::PreVote, request, timeout).await?)
    }
}

impl RaftNetworkFactory<Types> for Network {
    type Network = PeerReplica;

    async fn new_client(&mut self, target: NodeId, node: &NodeAddress) -> PeerReplica {
        self.replica(target, &node.0)
    }
}

/// The results of a stream of appends.
type AppendResults<'s> = BoxStream<'s, Result<StreamAppendResult<Types>, RPCError<Types>>>;

/// The group's replica on another node.
pub(crate) struct PeerReplica {
    network: Network,
    to: NodeId,
    address: String,
}

/// Why a replica gave no usable response. openraft backs off a little before it retries.
#[derive(Debug, Error)]
enum ReplicaError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the answer of {from} was not understood: {error}")]
    Answer { from: NodeId, error: DecodeError },
    #[error("the snapshot at hand could not be read at byte {offset}: {error}")]
    Read { offset: u64, error: std::io::Error },
    #[error("the snapshot at hand is not sent: {0}")]
    Damaged(std::io::Error),
    #[error("the snapshot at hand ends at byte {offset} of {byte_count}")]
    Short { offset: u64, byte_count: u64 },
    #[error(transparent)]
    Restarted(#[from] Restarted),
    #[error("{from}: {error}")]
    Term { from: NodeId, error: AbsurdTerm },
    #[error("{node} lacks entries that it confirmed, up to {lost}, and is being told so")]
    Lost { node: NodeId, lost: LogId },
}

impl From<ReplicaError> for RPCError<Types> {
    fn from(error: ReplicaError) -> Self {
        Self::Unreachable(Unreachable::new(&error))
    }
}

impl PeerReplica {
    async fn send(
        &self,
        kind: CallKind,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, ReplicaError> {
        let (links, group) = (&self.network.links, self.network.group);
        Ok(links.call(self.to, &self.address, kind, group, body, timeout).await?)
    }

    async fn send_request<Q: Serialize, A: DeserializeOwned>(
        &self,
        kind: CallKind,
        question: &Q,
        timeout: Duration,
    ) -> Result<A, ReplicaError> {
        let answer = self.send(kind, encode(question), timeout).await?;
        decode(&answer).map_err(|error| ReplicaError::Answer { from: self.to, error })
    }

    /// Checks the term of a response against the term of the request.
    fn check_term(&self, ours: Vote, theirs: &Vote) -> Result<(), ReplicaError> {
        let checked = check_vote(ours.leader_id.term, theirs);
        checked.map_err(|error| ReplicaError::Term { from: self.to, error })
    }

    async fn request_vote(
        &self,
        kind: CallKind,
        request: &VoteRequest<Types>,
        timeout: Duration,
    ) -> Result<VoteResponse<Types>, ReplicaError> {
        let answer: VoteResponse<Types> = self.send_request(kind, request, timeout).await?;
        self.check_term(request.vote, &answer.vote)?;
        Ok(answer)
    }

    /// Sends an append request and records in the witness which entry the follower confirms.
    async fn append(
        &self,
        request: &AppendEntriesRequest<Types>,
        timeout: Duration,
    ) -> Result<AppendEntriesResponse<Types>, ReplicaError> {
        let Network { witness, group, links, announced, .. } = &self.network;
        let ticket = witness.ticket(self.to, *group, request.vote);
        if let Some(committed) = request.leader_commit {
            announced.fetch_max(committed.index, Ordering::SeqCst);
        }
        metrics::append_sent();
        let answer = self.send_request(CallKind::Append, request, timeout).await?;
        let confirmed = match &answer {
            AppendEntriesResponse::Success => {
                request.entries.last().map(|entry| entry.log_id).or(request.prev_log_id)
            }
            AppendEntriesResponse::PartialSuccess(last) => *last,
            AppendEntriesResponse::Conflict => {
                if let Some(lost) = ticket.lost(request.prev_log_id)
                    && !witness.was_notified(self.to, *group, lost)
                {
                    let (links, witness) = (Arc::clone(links), Arc::clone(witness));
                    let (node, address, group) = (self.to, self.address.clone(), *group);
                    // Runs as its own task: Raft's timeout is too short for the follower to sync its
                    // disk.
                    tokio::spawn(notify_lost(links, witness, node, address, group, lost));
                    return Err(ReplicaError::Lost { node, lost });
                }
                return Ok(answer);
            }
            AppendEntriesResponse::HigherVote(vote) => {
                self.check_term(request.vote, vote)?;
                return Ok(answer);
            }
        };
        witness.confirmed(self.to, *group, (ticket, request.vote), confirmed)?;
        Ok(answer)
    }

    /// Checks that a snapshot is as it was written: the receiver cannot know, and computes a checksum of
    /// its own over what comes.
    async fn check_snapshot(&self, file: &SnapshotFile) -> Result<(), ReplicaError> {
        let Err(error) = file.verify().await else { return Ok(()) };
        if error.kind() == std::io::ErrorKind::InvalidData {
            let is_news = !self.network.has_damaged_snapshot.swap(true, Ordering::Relaxed);
            if is_news {
                tracing::error!(
                    group = %self.network.group, %error,
                    "a snapshot was damaged on this node's disk; it is not sent, and a new one is \
                     written in its place; look at that disk"
                );
            }
        }
        Err(ReplicaError::Damaged(error))
    }

    /// Sends a snapshot in chunks; the whole `timeout` applies to each of them, once it may be sent.
    async fn send_snapshot(
        &self,
        vote: Vote,
        snapshot: SnapshotOf<Types, SnapshotFile>,
        timeout: Duration,
    ) -> Result<SnapshotResponse<Types>, ReplicaError> {
        self.check_snapshot(&snapshot.snapshot).await?;
        let Network { witness, group, moves, .. } = &self.network;
        let (ticket, last) = (witness.ticket(self.to, *group, vote), snapshot.meta.last_log_id);
        let transfer = self.network.transfer_count.fetch_add(1, Ordering::Relaxed) + 1;
        let file = snapshot.snapshot;
        let byte_count = file.byte_count();
        let begin = SnapshotBegin { transfer, vote, meta: snapshot.meta, byte_count };
        self.send(CallKind::SnapshotBegin, encode(&begin), timeout).await?;
        let links = &self.network.links;
        let is_small = links.provokes(Rare::SmallPieces) || links.provokes(Rare::SlowMoves);
        let chunk_bytes = if is_small { SMALL_CHUNK_BYTES } else { SNAPSHOT_CHUNK_BYTES };
        let mut offset = 0;
        while offset < byte_count {
            let wanted = (byte_count - offset).min(chunk_bytes as u64);
            let wanted = usize::try_from(wanted).expect("a chunk is small");
            moves.pass(self.to, wanted).await;
            let read = file.read(offset, wanted).await;
            let bytes = read.map_err(|error| ReplicaError::Read { offset, error })?;
            if bytes.is_empty() {
                return Err(ReplicaError::Short { offset, byte_count });
            }
            let body = chunk_body(transfer, offset, &bytes);
            self.send(CallKind::SnapshotChunk, body, timeout).await?;
            metrics::snapshot_sent(bytes.len());
            offset += bytes.len() as u64;
        }
        let end = SnapshotEnd { transfer };
        let answer: SnapshotResponse<Types> =
            self.send_request(CallKind::SnapshotEnd, &end, timeout).await?;
        self.check_term(vote, &answer.vote)?;
        if answer.vote == vote {
            moves.has_served(self.to);
            witness.confirmed(self.to, *group, (ticket, vote), last)?;
        }
        Ok(answer)
    }
}

impl RaftNetworkV2<Types> for PeerReplica {
    type SnapshotData = SnapshotFile;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        Ok(self.append(&request, option.soft_ttl()).await?)
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Result<AppendResults<'s>, RPCError<Types>>>
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + Send + Unpin + 'static,
    {
        match self.network.group.shard() {
            Some(_) => stream_append_sequential(self, hold_commits(input, COMMIT_HOLD), option),
            // The meta group's commits are not held: a caller that changed the catalogue waits until
            // its node learns of the commit.
            None => stream_append_sequential(self, input, option),
        }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Ok(self.request_vote(CallKind::Vote, &request, option.soft_ttl()).await?)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<Types, SnapshotFile>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let mut cancel = pin!(cancel);
        tokio::select! {
            biased;
            closed = &mut cancel => Err(StreamingError::Closed(closed)),
            sent = self.send_snapshot(vote, snapshot, option.soft_ttl()) => {
                sent.map_err(|error| RPCError::from(error).into())
            }
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        Ok(self.send_request(CallKind::TransferLeader, &request, option.soft_ttl()).await?)
    }
}
