//! Merges a shard into its lower neighbour: the part of each of the two leaders.

use umbel_engine::shard::{ShardCommand, ShardReply, ShardState};
use umbel_engine::{Epoch, GroupId};

use super::{ShardLeader, unexpected};
use crate::calls::{ShardAnswer, ShardFailure};

impl ShardLeader {
    /// Ends this shard, and returns the index of the entry that ended it. Nothing is applied after that.
    pub(super) async fn fence(
        &self,
        of: GroupId,
        into: GroupId,
        since: Epoch,
    ) -> Result<ShardAnswer, ShardFailure> {
        if of != self.group.id() {
            // The order is older than this group, which was split off since then.
            return Err(ShardFailure::Stopped(format!(
                "this is {:#}, not {of:#}",
                self.group.id()
            )));
        }
        self.check_leader()?;
        match self.propose(ShardCommand::Fence { into, since }).await? {
            // A fenced shard accepts no other fence: the first one counts.
            ShardReply::Done(outcome) => outcome?,
            other => return Err(unexpected(&other)),
        }
        match self.group.replica().read_shard(ShardState::fence) {
            Some(fence) if (fence.into, fence.since) == (into, since) => {
                Ok(ShardAnswer::Done(fence.index))
            }
            other => Err(ShardFailure::Stopped(format!("{} is fenced as {other:?}", self.shard()))),
        }
    }

    /// Absorbs a shard that has ended, as soon as this node has its final state.
    pub(super) async fn absorb(
        &self,
        from: GroupId,
        fence_index: u64,
    ) -> Result<ShardAnswer, ShardFailure> {
        self.check_leader()?;
        if !self.group.can_absorb(from, fence_index) {
            // Its replica on this node has still to apply its last entry; the caller tries again.
            let what = format!("{} has not the final state of {from} yet", self.shard());
            return Err(ShardFailure::Stopped(what));
        }
        let _writing = self.writes.read().await;
        match self.propose(ShardCommand::Absorb { from, fence_index }).await? {
            ShardReply::Done(Ok(())) => Ok(ShardAnswer::Done(0)),
            // Only what is refused for good may end the merge: otherwise the entry could be applied later, after
            // the other shard was opened again.
            ShardReply::Done(Err(error)) => {
                let is_final = |state: &ShardState| state.has_decided(from, fence_index);
                Err(if self.group.replica().read_shard(is_final) {
                    error.into()
                } else {
                    ShardFailure::Stopped(error.to_string())
                })
            }
            other => Err(unexpected(&other)),
        }
    }
}
