//! Calls that ask every shard, while shards may be split.
//!
//! A request that is cut anew when a shard refuses a hash needs none of this. A call that asks every
//! shard once, and adds up the answers, waits until no split is in progress, and checks afterwards
//! whether one began meanwhile: a shard that was cut before it was asked has answered only for its lower
//! half. The check reads a copy of the catalogue that is as new as the last answer, and a shard is cut
//! only after the catalogue says so.

use tokio::time::Instant;
use umbel_engine::ShardId;
use umbel_engine::meta::{MetaCommand, MetaError, MetaState};
use umbel_engine::placement::ShardRanges;

use umbel_step::planted::{self, Planted};

use super::Coordinator;
use crate::failure::CallFailure;

impl Coordinator {
    /// Splits the next shard in two, so that there are `shard_count` shards; returns that shard and the
    /// new one, once the new one has a leader.
    ///
    /// # Errors
    /// If the catalogue refuses the split; or if it takes until the deadline, and then continues by itself.
    pub async fn split_shard(
        &self,
        shard_count: u32,
        deadline: Instant,
    ) -> Result<(ShardId, ShardId), CallFailure> {
        self.meta_propose(MetaCommand::SplitShard { shard_count }, deadline).await?;
        let into = ShardId(shard_count.saturating_sub(1));
        let began = Instant::now();
        let is_over =
            |state: &MetaState| (state.shard_map().splitting() != Some(into)).then_some(());
        let waited = self.wait_meta(deadline, is_over).await;
        let parent = self.read_meta(|state| state.shard_map().ranges()?.parent(into))?;
        let Some(parent) = parent else {
            let what = format!("there were {shard_count} shards from the beginning");
            return Err(MetaError::BadSplit { what }.into());
        };
        match waited {
            Ok(()) => Ok((parent, into)),
            Err(CallFailure::NoQuorum { .. }) => {
                let within = began.elapsed().as_millis();
                let what = format!(
                    "{into} is being split off {parent}, and has no leader after {within} ms; it goes on by itself"
                );
                Err(CallFailure::OutcomeUnknown { what })
            }
            Err(error) => Err(error),
        }
    }

    /// Returns once no shard is being split, as far as this node knows.
    ///
    /// # Errors
    /// If that takes until the deadline.
    pub(super) async fn wait_unsplit(&self, deadline: Instant) -> Result<(), CallFailure> {
        let is_over = |state: &MetaState| state.shard_map().splitting().is_none().then_some(());
        self.wait_meta(deadline, is_over).await
    }

    /// Whether the shards are still cut as in `ranges`.
    ///
    /// # Errors
    /// If the catalogue cannot be refreshed.
    pub(super) async fn are_still_cut(
        &self,
        ranges: ShardRanges,
        deadline: Instant,
    ) -> Result<bool, CallFailure> {
        if planted::on(Planted::SplitUnnoticed) {
            return Ok(true);
        }
        self.meta_refresh(deadline).await?;
        self.read_meta(|state| state.shard_map().ranges() == Some(ranges))
    }
}

/// The error for a copy that was made while shards were split: it would lack what moved.
pub(super) fn split_meanwhile() -> CallFailure {
    let what = "shards were split meanwhile: try again".to_owned();
    CallFailure::Overloaded { what }
}
