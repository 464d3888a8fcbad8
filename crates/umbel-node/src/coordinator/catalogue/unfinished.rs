//! Why a filter is not made yet: what those shards say that have not done their part.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::Instant;
use umbel_engine::meta::FilterState;
use umbel_engine::{FilterId, Generation, ShardId};

use super::super::Coordinator;
use super::SHARD_CALLS_MAX;
use crate::calls::ShardRequest;
use crate::failure::CallFailure;

/// Time before a call's deadline that is kept to ask shards why they are late: two tries at a leader on a busy machine.
const REASON_TIME: Duration = Duration::from_secs(1);

/// Most reasons in one message; shards on one full disk all say the same.
const REASONS_MAX: usize = 3;

impl Coordinator {
    /// Until when a change of the catalogue is waited for, so that there is time to ask why it is late: to half of
    /// the time if that is short.
    pub(super) fn patience_until(deadline: Instant) -> Instant {
        let remaining = deadline.saturating_duration_since(Instant::now());
        deadline - REASON_TIME.min(remaining / 2)
    }

    /// The meta group has agreed, but not every shard has followed: says which have not, and why.
    pub(super) async fn unfinished(
        &self,
        filter: FilterId,
        within: Duration,
        deadline: Instant,
    ) -> CallFailure {
        let within = within.as_millis();
        let mut what = format!("not every shard has done its part for {filter} within {within} ms");
        let reasons = self.late_shards(filter, deadline).await;
        for reason in reasons.iter().take(REASONS_MAX) {
            what += "; ";
            what += reason;
        }
        if reasons.len() > REASONS_MAX {
            what += &format!("; and {} more", reasons.len() - REASONS_MAX);
        }
        CallFailure::OutcomeUnknown { what }
    }

    /// Asks every shard for its slice of a filter that is being created. Only asks: a slice that was made here might
    /// come behind the filter's end, and nobody would drop it.
    async fn late_shards(&self, filter: FilterId, deadline: Instant) -> Vec<String> {
        let wanted = self.read_meta(|state| {
            let record = state.filter(filter)?;
            let is_creating = matches!(record.state, FilterState::Creating { .. });
            is_creating.then(|| (state.shard_count(), record.generation))
        });
        let Ok(Some((shard_count, generation))) = wanted else { return Vec::new() };
        let ask = |shard: u32| self.ask_late(ShardId(shard), filter, generation, deadline);
        let answers = stream::iter((0..shard_count).map(ask)).buffered(SHARD_CALLS_MAX);
        answers.filter_map(std::future::ready).collect().await
    }

    async fn ask_late(
        &self,
        shard: ShardId,
        filter: FilterId,
        generation: Generation,
        deadline: Instant,
    ) -> Option<String> {
        let request = ShardRequest::Describe { filter, generation };
        let error = self.shard_call(shard, request, deadline).await.err()?;
        Some(match self.shard_leader_hint(shard) {
            Some(leader) => format!("{shard} on {leader}: {error}"),
            None => format!("{shard}: {error}"),
        })
    }
}
