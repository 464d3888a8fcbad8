//! Adds up the counts of counting filters in a shard, exactly once per request.

use umbel_engine::shard::{PreparedSum, RequestStamp, ShardState};
use umbel_engine::{FilterId, Generation};

use super::ShardLeader;
use super::growing::slice_growth;
use crate::calls::{AllowedGrowth, ShardAnswer, ShardFailure};

impl ShardLeader {
    /// Adds the sources to the target, exactly once per request.
    pub(super) async fn sum(
        &self,
        target: (FilterId, Generation),
        sources: Vec<(FilterId, Generation)>,
        request: Option<RequestStamp>,
        growth: Option<AllowedGrowth>,
    ) -> Result<ShardAnswer, ShardFailure> {
        self.check_leader()?;
        let items = |state: &ShardState| {
            let taken = sources.iter().filter_map(|&(source, _)| state.describe(source));
            taken.map(|slice| slice.description.one_count).sum()
        };
        let others =
            growth.map(|_| self.growing.enter(target.0, self.group.replica().read_shard(items)));
        let growth = slice_growth(growth, others.as_ref());
        let prepare = |state: &ShardState| state.prepare_sum(target, sources, request, growth);
        match self.group.replica().read_shard(prepare)? {
            PreparedSum::Answered(new_count) => {
                self.confirm().await?;
                Ok(ShardAnswer::Done(new_count))
            }
            PreparedSum::Growing { growth_bytes } => Ok(ShardAnswer::Growing { growth_bytes }),
            PreparedSum::Propose(command) => self.change(command).await.map(ShardAnswer::Done),
        }
    }
}
