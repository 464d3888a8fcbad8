//! Windows: the leader's clock goes into the log before what it decides is asked.

use umbel_engine::FilterId;
use umbel_engine::shard::{InsertPart, ShardCommand, ShardReply, TimedInsert};
use umbel_step::planted::{self, Planted};

use super::{ShardLeader, unexpected};
use crate::calls::ShardFailure;

impl ShardLeader {
    /// Moves the windows of the shard on, if that of this filter is behind this leader's clock: once a
    /// slice, whoever asks first.
    pub(super) async fn keep_up(&self, filter: FilterId) -> Result<(), ShardFailure> {
        let is_behind =
            |now_ms| self.group.replica().read_shard(|state| state.is_behind(filter, now_ms));
        if planted::on(Planted::WindowStandsStill) || !is_behind(self.group.wall_ms()) {
            return Ok(());
        }
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

/// One entry of all parts; with the leader's clock, if one of them has to do with time.
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

/// What time has to do with an insert.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Timing {
    /// Nothing: the filter does not forget.
    None,
    /// The time is now.
    Now,
    /// The client names the time, in milliseconds since 1970.
    At(u64),
}
