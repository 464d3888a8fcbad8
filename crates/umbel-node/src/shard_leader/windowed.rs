//! Windowed filters: the leader's time is written to the log before a request that depends on it is
//! served.

use umbel_engine::FilterId;
use umbel_engine::shard::{InsertPart, ShardCommand, ShardReply, TimedInsert};
use umbel_step::planted::{self, Planted};

use super::{ShardLeader, unexpected};
use crate::calls::ShardFailure;

impl ShardLeader {
    /// Advances the windows of the shard if this filter's is behind the leader's clock. That happens
    /// once per time slice, with the first request.
    pub(super) async fn keep_up(&self, filter: FilterId) -> Result<(), ShardFailure> {
        let is_behind =
            |now_ms| self.group.replica().read_shard(|state| state.is_behind(filter, now_ms));
        if planted::on(Planted::WindowStandsStill) || !is_behind(self.group.wall_ms()) {
            return Ok(());
        }
        // Boxed: it is rare, and the future of every call about items would reserve room for it.
        Box::pin(self.advance(is_behind)).await
    }

    /// Advances the windows of the shard, unless another call has done so meanwhile.
    async fn advance(&self, is_behind: impl Fn(u64) -> bool) -> Result<(), ShardFailure> {
        let _turn = self.window_turn.lock().await;
        let now_ms = self.group.wall_ms();
        if !is_behind(now_ms) {
            return Ok(());
        }
        let command = ShardCommand::Advance { now_ms };
        if planted::on(Planted::ReplicaClock) {
            self.group.replica().apply_unlogged(&command);
            return Ok(());
        }
        match self.propose(command).await? {
            ShardReply::Done(outcome) => Ok(outcome?),
            other => Err(unexpected(&other)),
        }
    }
}

/// Combines all parts into one entry, with the leader's time if one of them depends on time.
pub(super) fn entry_of(parts: Vec<(InsertPart, Timing)>, now_ms: u64) -> ShardCommand {
    if parts.iter().all(|(_, timing)| *timing == Timing::None) {
        return ShardCommand::Insert(parts.into_iter().map(|(part, _)| part).collect());
    }
    let timed = parts.into_iter().map(|(part, timing)| {
        let at_ms = match timing {
            Timing::At(at_ms) => Some(at_ms),
            Timing::None | Timing::Now => None,
        };
        TimedInsert { part, at_ms }
    });
    ShardCommand::InsertTimed { now_ms, inserts: timed.collect() }
}

/// How an insert depends on time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Timing {
    /// Not at all: the filter is not windowed.
    None,
    /// It counts as inserted now.
    Now,
    /// The client gives the time, in milliseconds since 1970.
    At(u64),
}
