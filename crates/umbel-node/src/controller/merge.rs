//! Merges the last shard into its parent.

use std::sync::Arc;

use tokio::time::Instant;
use umbel_engine::meta::{MetaCommand, MetaReply};
use umbel_engine::placement::ShardRecord;
use umbel_engine::shard::{PartError, ShardCommand};
use umbel_engine::{Epoch, GroupId, ShardId};

use crate::calls::{MetaAnswer, MetaRequest, ShardAnswer, ShardRequest};
use crate::failure::CallFailure;
use crate::leader_calls::LeaderCalls;
use crate::local::Local;

/// A merge that is under way.
pub(super) struct Merge {
    /// The parent.
    pub(super) shard: ShardId,
    /// The last shard.
    pub(super) from: ShardId,
    pub(super) era: u32,
    /// The epoch at which it began.
    pub(super) since: Epoch,
}

impl Merge {
    /// Ends the shard, has its parent absorb it, and tells the catalogue. Each step does nothing if it was
    /// done before. If the parent cannot absorb the shard, which it finds once and for all, opens the shard
    /// again and gives up.
    ///
    /// # Errors
    /// If one of the two shards does not answer: the merge goes on with the next call.
    pub(super) async fn carry_out(
        &self,
        local: &Arc<Local>,
        calls: &Arc<LeaderCalls>,
        deadline: Instant,
    ) -> Result<(), CallFailure> {
        let Self { shard, from, era, since } = *self;
        let of = GroupId::of_shard_in(from, era);
        let into = local.read_meta(|state| state.shard(shard).map(ShardRecord::group));
        let Some(into) = into else { return Ok(()) };
        let fence = ShardRequest::Fence { of, into, since };
        let fence_index = match calls.shard_call(from, fence, deadline).await {
            Ok(ShardAnswer::Done(index)) => index,
            Ok(other) => {
                let what = format!("{from} was to end, and answered {other:?}");
                return Err(CallFailure::OutcomeUnknown { what });
            }
            // An earlier call opened the shard again, and its decision did not reach the catalogue.
            Err(CallFailure::Part(error @ PartError::Malformed { .. })) => {
                let decision = MetaCommand::MergeGivenUp { since, what: error.to_string() };
                return self.decide(local, decision).await;
            }
            Err(error) => return Err(error),
        };
        let absorb = ShardRequest::Absorb { from: of, fence_index };
        let decision = match calls.shard_call(shard, absorb, deadline).await {
            Ok(_) => MetaCommand::ShardMerged { shard: from, era },
            Err(CallFailure::Part(
                error @ (PartError::NotJoined { .. } | PartError::Malformed { .. }),
            )) => {
                let reopen = ShardRequest::Command(ShardCommand::Reopen { since });
                calls.shard_call(from, reopen, deadline).await?;
                MetaCommand::MergeGivenUp { since, what: error.to_string() }
            }
            Err(error) => return Err(error),
        };
        self.decide(local, decision).await
    }

    /// Tells the catalogue how the merge ended. Proposed on this node and at once, like every decision; a
    /// later call finds the same, and proposes it again, until the catalogue has it.
    async fn decide(&self, local: &Arc<Local>, decision: MetaCommand) -> Result<(), CallFailure> {
        let Self { shard, from, .. } = *self;
        match local.serve_meta(MetaRequest::Propose(decision.clone())).await.0 {
            MetaAnswer::Reply(MetaReply::Done) => {
                let given_up = match &decision {
                    MetaCommand::MergeGivenUp { what, .. } => Some(what.as_str()),
                    _ => None,
                };
                tracing::info!(%shard, %from, given_up, "a merge is over");
                Ok(())
            }
            other => {
                let what = format!("{decision:?} was answered {other:?}");
                Err(CallFailure::OutcomeUnknown { what })
            }
        }
    }
}
