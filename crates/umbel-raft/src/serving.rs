//! Carries out other nodes' calls about the groups of this one.

use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use umbel_engine::{GroupId, NodeId};
use umbel_ports::encoding::{decode, encode};
use umbel_storage::types::Vote;

use crate::group::Group;
use crate::host::{GroupHost, RunningGroups};
use crate::peer::{CallKind, CallRefusal, RefusalReason};
use crate::recall::calls::{RecallAnswer, RecallRequest};

impl GroupHost {
    /// Carries out a call of Raft, a beat, or a question about replicas.
    ///
    /// # Errors
    /// A refusal if the body is malformed, or this node has no such group, or it stopped.
    ///
    /// # Panics
    /// If the call is of another kind, or asks what is known of its caller: the node answers these itself.
    pub async fn serve(
        &self,
        groups: &dyn RunningGroups,
        from: NodeId,
        kind: CallKind,
        group: GroupId,
        body: Bytes,
    ) -> Result<Bytes, CallRefusal> {
        match kind {
            CallKind::Recall => Ok(encode(&serve_recall(groups, group, argument(&body)?).await?)),
            CallKind::Beat if self.is_stalled() => Err(CallRefusal::new(
                RefusalReason::Unavailable,
                "the disk of this node does not return",
            )),
            CallKind::Beat => {
                let beat = argument(&body)?;
                if !self.beats().is_alive(from) {
                    self.links().retry(from);
                }
                Ok(encode(&self.beats().take(from, beat)))
            }
            CallKind::ConfirmReads => {
                let claims: Vec<(GroupId, Vote)> = argument(&body)?;
                let follows = |(group, vote): &(GroupId, Vote)| {
                    groups.group(*group).is_some_and(|group| group.follows(vote))
                };
                Ok(encode(&claims.iter().map(follows).collect::<Vec<bool>>()))
            }
            _ => {
                let group = groups.group(group).ok_or_else(|| CallRefusal::unknown_group(group))?;
                serve_raft(&group, from, kind, &body).await
            }
        }
    }
}

async fn serve_raft(
    group: &Group,
    from: NodeId,
    kind: CallKind,
    body: &Bytes,
) -> Result<Bytes, CallRefusal> {
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
    groups: &dyn RunningGroups,
    group: GroupId,
    request: RecallRequest,
) -> Result<RecallAnswer, CallRefusal> {
    match request {
        RecallRequest::Standings => unreachable!("peer admission has answered it"),
        RecallRequest::Lost { confirmed } => {
            let group = groups.group(group).ok_or_else(|| CallRefusal::unknown_group(group))?;
            group.lost(confirmed).await.map_err(stopped)?;
            Ok(RecallAnswer::Noted)
        }
        RecallRequest::Committed => {
            let led = groups.groups().into_iter().filter(|group| group.is_leader());
            let committed = |group: Arc<Group>| (group.id(), group.committed_index());
            Ok(RecallAnswer::Committed(led.map(committed).collect()))
        }
    }
}

fn argument<T: DeserializeOwned>(body: &[u8]) -> Result<T, CallRefusal> {
    decode(body).map_err(CallRefusal::bad_body)
}

fn stopped(why: String) -> CallRefusal {
    CallRefusal::new(RefusalReason::Unavailable, why)
}
