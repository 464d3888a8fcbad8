//! Serves other nodes: Raft's calls, coordinators' requests, the controller's requests.

use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use umbel_engine::meta::{MetaCommand, MetaReply};
use umbel_engine::shard::Bitmap;
use umbel_engine::{GroupId, NodeId};
use umbel_ports::encoding::{decode, encode};
use umbel_step::planted::{self, Planted};
use umbel_storage::types::{Command, NodeAddress, Reply, Vote};

use super::Local;
use crate::calls::{
    GroupAnswer, GroupRequest, MetaAnswer, MetaRequest, RecallAnswer, RecallRequest, ShardAnswer,
    ShardRequest,
};
use crate::peer::{CallKind, Refusal, RefusalReason};
use crate::raft::group::{Group, ProposeError};

impl Local {
    /// Responds as the meta group's leader, if this node leads it. Also returns the index that a reader
    /// of its own replica must wait for.
    pub async fn serve_meta(&self, request: MetaRequest) -> (MetaAnswer, u64) {
        let outcome = match request {
            MetaRequest::Propose(command) => {
                if let Some(refused) = self.refuse_unwritable(&command).await {
                    return (refused, self.meta.applied_index());
                }
                self.meta.propose(Command::Meta(command)).await.map(|reply| match reply {
                    Reply::Meta(reply) => MetaAnswer::Reply(reply),
                    Reply::None | Reply::Shard(_) => MetaAnswer::Unknown,
                })
            }
            MetaRequest::Confirm => self.meta.confirm().await.map(|()| MetaAnswer::Confirmed),
        };
        let answer = outcome.unwrap_or_else(|error| self.unproposed(&error));
        // The entries applied here by now include the command, or all that the question was about.
        (answer, self.meta.applied_index())
    }

    /// The refusal of a command that came with a later version than the cluster's. This node may know
    /// an older version than the leader does, or lead without having applied all entries; so it
    /// confirms its state before it refuses.
    async fn refuse_unwritable(&self, command: &MetaCommand) -> Option<MetaAnswer> {
        if planted::on(Planted::WrittenEarly) {
            return None;
        }
        let check = || self.meta.replica().read_meta(|state| state.check_writable(command));
        check().err()?;
        if let Err(error) = self.meta.confirm().await {
            return Some(self.unproposed(&error));
        }
        check().err().map(|error| MetaAnswer::Reply(MetaReply::Refused(error)))
    }

    fn unproposed(&self, error: &ProposeError) -> MetaAnswer {
        match error {
            ProposeError::NotLeader(leader) => {
                MetaAnswer::NotLeader(leader.filter(|&leader| leader != self.node))
            }
            ProposeError::Unknown(_) | ProposeError::Stopped(_) => MetaAnswer::Unknown,
        }
    }

    /// Sends a command to the meta group's leader, which is another node; whether it succeeded shows in
    /// this node's replica.
    pub(crate) async fn propose_elsewhere(&self, command: &MetaCommand) {
        let Some(leader) = self.meta.leader().filter(|&leader| leader != self.node) else { return };
        let body = encode(&MetaRequest::Propose(command.clone()));
        let timeout = self.beats.election();
        let view = self.meta.address_of(leader);
        let Some(address) = view else { return };
        let called =
            self.links.call(leader, &address, CallKind::Meta, GroupId::META, body, timeout);
        if let Err(error) = called.await {
            tracing::debug!(%error, "a proposal did not arrive");
        }
    }

    /// Carries out a call of another node.
    pub(crate) async fn serve(
        self: Arc<Self>,
        from: NodeId,
        kind: CallKind,
        group: GroupId,
        body: Bytes,
    ) -> Result<Bytes, Refusal> {
        match kind {
            CallKind::Shard => {
                let request: ShardRequest = argument(&body)?;
                let shard = self.leader_of(group);
                if planted::on(Planted::ForeignShardAbsent)
                    && shard.is_none()
                    && let ShardRequest::Contains { hashes, .. } = &request
                {
                    let count = u32::try_from(hashes.len()).unwrap_or(u32::MAX);
                    return Ok(encode(&ShardAnswer::Bits(Bitmap::zeros(count))));
                }
                let shard = shard.ok_or_else(|| unknown_group(group))?;
                Ok(encode(&shard.serve(request).await))
            }
            CallKind::Meta => Ok(encode(&self.serve_meta(argument(&body)?).await)),
            CallKind::Group => Ok(encode(&self.serve_group(group, argument(&body)?).await?)),
            CallKind::Copy => Ok(encode(&self.serve_copy(group, argument(&body)?).await)),
            CallKind::Job => Ok(encode(&self.jobs().standing(argument(&body)?))),
            CallKind::Recall => Ok(encode(&self.serve_recall(group, argument(&body)?).await?)),
            CallKind::Report => Ok(encode(&self.report(argument(&body)?).await)),
            CallKind::Beat => {
                let beat = argument(&body)?;
                if !self.beats.is_alive(from) {
                    self.links.retry(from);
                }
                Ok(encode(&self.beats.take(from, beat)))
            }
            CallKind::ConfirmReads => {
                let claims: Vec<(GroupId, Vote)> = argument(&body)?;
                let follows = |(group, vote): &(GroupId, Vote)| {
                    self.group(*group).is_some_and(|group| group.follows(vote))
                };
                Ok(encode(&claims.iter().map(follows).collect::<Vec<bool>>()))
            }
            _ => self.serve_raft(from, kind, group, &body).await,
        }
    }

    async fn serve_raft(
        &self,
        from: NodeId,
        kind: CallKind,
        group_id: GroupId,
        body: &Bytes,
    ) -> Result<Bytes, Refusal> {
        let group = self.group(group_id).ok_or_else(|| unknown_group(group_id))?;
        let stopped = |why| Refusal::new(RefusalReason::Unavailable, why);
        match kind {
            CallKind::Append => Ok(encode(&group.append(argument(body)?).await.map_err(stopped)?)),
            CallKind::Vote => Ok(encode(&group.vote(argument(body)?).await.map_err(stopped)?)),
            CallKind::PreVote => Ok(encode(&group.pre_vote(&argument(body)?).map_err(stopped)?)),
            CallKind::TransferLeader => {
                Ok(encode(&group.transfer_leader(argument(body)?).await.map_err(stopped)?))
            }
            CallKind::SnapshotBegin => group.incoming_snapshots().begin(from, body.clone()).await,
            CallKind::SnapshotChunk => group.incoming_snapshots().chunk(from, body.clone()).await,
            CallKind::SnapshotEnd => {
                let (vote, file) = group.incoming_snapshots().end(from, body.clone()).await?;
                Ok(encode(&group.install(vote, file).await.map_err(stopped)?))
            }
            CallKind::Shard
            | CallKind::Meta
            | CallKind::Group
            | CallKind::Copy
            | CallKind::Job
            | CallKind::Recall
            | CallKind::Report
            | CallKind::Beat
            | CallKind::ConfirmReads => unreachable!("these have been served already"),
        }
    }

    /// Responds to a leader that has noticed lost entries of this node's replica, and to a follower
    /// that asks whether it still follows.
    async fn serve_recall(
        &self,
        group_id: GroupId,
        request: RecallRequest,
    ) -> Result<RecallAnswer, Refusal> {
        match request {
            RecallRequest::Standings => unreachable!("peer admission has answered it"),
            RecallRequest::Lost { confirmed } => {
                let group = self.group(group_id).ok_or_else(|| unknown_group(group_id))?;
                let stopped = |why| Refusal::new(RefusalReason::Unavailable, why);
                group.lost(confirmed).await.map_err(stopped)?;
                Ok(RecallAnswer::Noted)
            }
            RecallRequest::Committed => {
                let led = self.groups().into_iter().filter(|group| group.is_leader());
                let committed = |group: Arc<Group>| (group.id(), group.committed_index());
                Ok(RecallAnswer::Committed(led.map(committed).collect()))
            }
        }
    }

    /// Responds to the controller.
    pub(crate) async fn serve_group(
        &self,
        group_id: GroupId,
        request: GroupRequest,
    ) -> Result<GroupAnswer, Refusal> {
        let group = self.group(group_id).ok_or_else(|| unknown_group(group_id))?;
        Ok(match request {
            GroupRequest::View => GroupAnswer::View(group.view()),
            GroupRequest::ChangeMembers { voters, learners } => {
                let nodes = |list: Vec<(NodeId, String)>| {
                    list.into_iter().map(|(node, address)| (node, NodeAddress(address))).collect()
                };
                if !self.wants_voters(group_id, &voters) {
                    let why = "the shard map that this node knows wants other voters";
                    return Ok(GroupAnswer::Failed(why.to_owned()));
                }
                match group.change_members(nodes(voters), nodes(learners)).await {
                    Ok(()) => GroupAnswer::Changed,
                    Err(why) => GroupAnswer::Failed(why),
                }
            }
        })
    }

    /// Whether these are the members that a shard should have, as far as this node knows.
    fn wants_voters(&self, group: GroupId, voters: &[(NodeId, String)]) -> bool {
        let Some(shard) = group.shard() else { return true };
        let voters: Vec<NodeId> = voters.iter().map(|&(node, _)| node).collect();
        self.meta
            .replica()
            .read_meta(|state| state.shard(shard).is_some_and(|record| record.wanted() == voters))
    }
}

fn argument<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    decode(body).map_err(Refusal::bad_body)
}

fn unknown_group(group: GroupId) -> Refusal {
    let message = format!("this node has no replica of the {group}");
    Refusal::new(RefusalReason::UnknownGroup, message)
}
