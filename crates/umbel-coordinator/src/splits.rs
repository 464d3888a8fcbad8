//! Splits and merges of shards, and calls that ask every shard while there may be some.
//!
//! A request that is cut anew when a shard refuses a hash needs none of this. A call that asks every
//! shard once, and adds up the answers, waits until no split is in progress, and checks afterwards
//! whether one began meanwhile: a shard that was cut before it was asked has answered only for its lower
//! half. The check reads a copy of the catalogue that is as new as the last answer, and a shard is cut
//! only after the catalogue says so.

use std::sync::Mutex;

use tokio::time::Instant;
use umbel_engine::limits::SHARD_COUNT_MAX;
use umbel_engine::meta::{MergeStep, MetaCommand, MetaError, MetaState};
use umbel_engine::placement::ShardRanges;
use umbel_engine::{GroupId, ShardId};
use umbel_ports::locked;

use umbel_step::planted::{self, Planted};

use super::Result;
use umbel_node::failure::CallFailure;
use umbel_node::leader_calls::{LeaderCalls, absorbed_by};
use umbel_node::limits::RETRY_WAIT_MAX;

/// The last split that this node has seen carried out, although it may still be in progress in the catalogue: the new
/// shard elects its first leader. Until then a shard that is to be split is asked as before, since it answers for all of
/// its range.
#[derive(Default)]
pub(crate) struct SeenSplit(Mutex<Option<ShardRanges>>);

impl SeenSplit {
    /// The ranges for which what is left of a request is divided after a shard refused its part, as it was divided for
    /// `tried`: if that was as before the split in progress, the split is taken for carried out.
    pub(crate) fn next_ranges(
        &self,
        tried: ShardRanges,
        ranges: ShardRanges,
        unsplit: Option<ShardRanges>,
    ) -> ShardRanges {
        if unsplit == Some(tried) {
            self.remember(ranges);
        }
        self.first_ranges(ranges, unsplit)
    }

    /// Remembers that the shards are cut as in `ranges`.
    fn remember(&self, ranges: ShardRanges) {
        *locked(&self.0) = Some(ranges);
    }

    /// The ranges for which a request about items is divided at first, if they are to be `ranges` once the split in
    /// progress is carried out, and are `unsplit` before it. Those of another moment do no harm: a shard refuses hashes that
    /// it does not have, and the rest is divided by the newest ranges.
    pub(crate) fn first_ranges(
        &self,
        ranges: ShardRanges,
        unsplit: Option<ShardRanges>,
    ) -> ShardRanges {
        let Some(unsplit) = unsplit else { return ranges };
        let seen = *locked(&self.0);
        if seen == Some(ranges) { ranges } else { unsplit }
    }
}

/// The shards as a whole: how they are cut, and who waits for that.
#[derive(Clone, Copy)]
pub struct Shards<'a> {
    pub(super) calls: &'a LeaderCalls,
}

impl Shards<'_> {
    /// Splits the next shard in two, so that there are `shard_count` shards; returns that shard and the
    /// new one, once the new one has a leader. If there were so many from the beginning, returns the last one twice.
    ///
    /// # Errors
    /// If there can never be so many; if the catalogue refuses the split; or if it takes until the deadline, and then
    /// continues by itself.
    pub async fn split(self, shard_count: u32, deadline: Instant) -> Result<(ShardId, ShardId)> {
        if !(1..=SHARD_COUNT_MAX).contains(&shard_count) {
            let what = format!("shard_count is {shard_count}, expected 1 to {SHARD_COUNT_MAX}");
            return Err(CallFailure::Invalid { what });
        }
        self.calls.meta_propose(MetaCommand::SplitShard { shard_count }, deadline).await?;
        let into = ShardId(shard_count - 1);
        let began = Instant::now();
        let is_over =
            |state: &MetaState| (state.shard_map().splitting() != Some(into)).then_some(());
        let waited = self.calls.wait_meta(deadline, is_over).await;
        let parent = self.calls.read_meta(|state| state.shard_map().ranges()?.parent(into))?;
        let parent = parent.unwrap_or(into);
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

    /// Merges the last shard into the one from which it was split off, so that there are `shard_count`
    /// shards; returns the shard that remains and the one that is gone.
    ///
    /// # Errors
    /// If the catalogue refuses the merge; or if it takes until the deadline: what has begun then continues
    /// by itself.
    pub async fn merge(self, shard_count: u32, deadline: Instant) -> Result<(ShardId, ShardId)> {
        let merged = ShardId(shard_count);
        let began = Instant::now();
        self.calls.meta_refresh(deadline).await?;
        let epoch = self.calls.read_meta(MetaState::epoch)?;
        let unfinished = |why: &str| {
            let within = began.elapsed().as_millis();
            let what = format!(
                "{merged} is not merged after {within} ms{why}: what has begun goes on by itself"
            );
            CallFailure::OutcomeUnknown { what }
        };
        loop {
            if let Err(error) = self.calls.meta_refresh(deadline).await {
                return Err(unfinished(&format!(", {error}")));
            }
            let given_up = self.calls.read_meta(|state| state.shard_map().given_up.clone())?;
            if let Some(merge) = given_up.filter(|merge| merge.since > epoch) {
                return Err(MetaError::BadMerge { what: merge.what }.into());
            }
            let step = self.calls.read_meta(|state| state.merge_step(shard_count))?;
            match step? {
                MergeStep::Done => break,
                MergeStep::Propose(command) => {
                    match self.calls.meta_propose(command, deadline).await {
                        // Something else began meanwhile, which is waited for.
                        Ok(_) | Err(CallFailure::Meta(MetaError::ShardBusy { .. })) => {}
                        Err(error) => return Err(error),
                    }
                }
                MergeStep::Wait { .. } => {}
            }
            let is_next = |state: &MetaState| match state.merge_step(shard_count) {
                Ok(MergeStep::Wait { .. }) => None,
                _ => Some(()),
            };
            match self.calls.wait_meta(deadline, is_next).await {
                Ok(()) => {}
                Err(CallFailure::NoQuorum { .. }) => return Err(unfinished("")),
                Err(error) => return Err(error),
            }
        }
        let parent = self.calls.read_meta(|state| absorbed_by(state.shard_map(), merged))?;
        match parent.and_then(GroupId::shard) {
            Some(parent) => Ok((parent, merged)),
            None => {
                let what = format!("no shard of this cluster had the number {}", merged.0);
                Err(MetaError::BadMerge { what }.into())
            }
        }
    }

    /// Returns once no shard is being split or merged, as far as this node knows.
    ///
    /// # Errors
    /// If that takes until the deadline.
    pub(super) async fn wait_unsplit(self, deadline: Instant) -> Result<()> {
        let is_over = |state: &MetaState| is_still(state).then_some(());
        self.calls.wait_meta(deadline, is_over).await
    }

    /// Waits before a part is sent again that a shard refused because it does not know yet what the meta group
    /// decided, or because it has ended: then until the merge is over, so that the waiting requests do not ask the
    /// meta group, which has to end the merge, again and again.
    ///
    /// # Errors
    /// If the merge takes until the deadline.
    pub(super) async fn wait_for_shards(self, deadline: Instant) -> Result<()> {
        if self.calls.read_meta(|state| state.shard_map().merging().is_some())? {
            return self.wait_unsplit(deadline).await;
        }
        tokio::time::sleep(RETRY_WAIT_MAX / 4).await;
        Ok(())
    }

    /// Whether the shards are still cut as in `ranges`.
    ///
    /// # Errors
    /// If the catalogue cannot be refreshed.
    pub(super) async fn are_still_cut(
        self,
        ranges: ShardRanges,
        deadline: Instant,
    ) -> Result<bool> {
        if planted::on(Planted::SplitUnnoticed) {
            return Ok(true);
        }
        self.calls.meta_refresh(deadline).await?;
        self.calls.read_meta(|state| state.shard_map().ranges() == Some(ranges) && is_still(state))
    }
}

/// Whether no shard is being split or merged.
fn is_still(state: &MetaState) -> bool {
    let map = state.shard_map();
    map.splitting().is_none() && map.merging().is_none()
}

/// The error for a copy that was made while shards were split: it would lack what moved.
pub(super) fn split_meanwhile() -> CallFailure {
    let what = "shards were split meanwhile: try again".to_owned();
    CallFailure::Overloaded { what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_in_progress_counts_once_it_was_seen_carried_out() {
        let seen = SeenSplit::default();
        let [two, three, four] = [2, 3, 4].map(|count| ShardRanges::new(2, count).unwrap());
        assert_eq!(seen.first_ranges(two, None), two);
        assert_eq!(seen.first_ranges(three, Some(two)), two);
        seen.remember(three);
        assert_eq!(seen.first_ranges(three, Some(two)), three);
        // The next split, of which a shard has refused what was divided by an old map; and then by the newest.
        assert_eq!(seen.first_ranges(four, Some(three)), three);
        assert_eq!(seen.next_ranges(two, four, Some(three)), three);
        assert_eq!(seen.next_ranges(three, four, Some(three)), four);
        assert_eq!(seen.first_ranges(four, Some(three)), four);
        // The first one again, after a merge.
        let again = three.with_merge_count(1);
        assert_eq!(seen.first_ranges(again, Some(two)), two);
    }
}
