//! One shard becomes two: each replica cuts its own state, and nothing travels.
//!
//! ```text
//! entry i of shard 0        Split into shard 4 at b
//! before it                 0 ├────────────────────────┤        range, slices, answers
//! after it, each replica    0 ├───────────┤ 4 ├────────┤        the new shard's state: its first snapshot
//! ```
//!
//! What a replica makes of the entry depends on the states before it, which are equal; so the replicas of
//! the new shard begin equal. Its group begins with that state as if it came from a snapshot.
//!
//! *Law.* What either half answers about an item of its range, and to a request that came before, is what the whole
//! would answer.

use std::sync::Arc;

use umbel_filter::{CreateError, FilterPartError, HashRange};

use super::command::{PartError, ShardCommand};
use super::replay::{ReplayLimits, ReplayTable};
use super::scrub::NO_INDEX;
use super::slice::{Slice, stop};
use super::state::ShardState;
use crate::ids::ShardId;
use umbel_step::planted::{self, Planted};

impl ShardState {
    /// The new shard that a command is about to cut off, before it is applied; None if it cuts none off, or has done so already.
    ///
    /// ```
    /// use umbel_engine::ShardId;
    /// use umbel_engine::shard::{ShardCommand, ShardReply, ShardState};
    /// use umbel_filter::HashRange;
    ///
    /// let mut state = ShardState::new(ShardId(0), HashRange::WHOLE);
    /// let split = ShardCommand::Split { into: ShardId(1), at: 1 << 63 };
    /// let upper = state.upper_half(&split)?.expect("the range is to be cut");
    /// assert_eq!((upper.shard(), upper.range().start()), (ShardId(1), 1 << 63));
    /// assert_eq!(state.apply(&split), ShardReply::Done(Ok(())));
    /// assert_eq!(state.range().last(), (1 << 63) - 1);
    /// // It may come again.
    /// assert!(state.upper_half(&split)?.is_none());
    /// # Ok::<(), umbel_engine::shard::PartError>(())
    /// ```
    ///
    /// # Errors
    /// If the shard cannot be cut there; applying refuses the command, too.
    pub fn upper_half(&self, command: &ShardCommand) -> Result<Option<Self>, PartError> {
        let ShardCommand::Split { into, at } = *command else { return Ok(None) };
        let Some((_, upper)) = self.halves(at)? else { return Ok(None) };
        self.part(into, upper).map(Some)
    }

    /// Keeps the lower part.
    pub(super) fn split(&mut self, index: u64, at: u64) -> Result<(), PartError> {
        let Some((lower, _)) = self.halves(at)? else { return Ok(()) };
        if planted::on(Planted::SplitKeepsRange) {
            return Ok(());
        }
        *self = self.part(self.shard, lower)?;
        self.slices.values_mut().for_each(|slice| slice.written_index = index);
        Ok(())
    }

    /// The ranges on both sides of a hash; None if the upper one is another shard's.
    fn halves(&self, at: u64) -> Result<Option<(HashRange, HashRange)>, PartError> {
        let range = self.range;
        // It has been cut there, and perhaps again since.
        if u128::from(at) >= range.end() {
            return Ok(None);
        }
        let half = |start, end| HashRange::new(start, end).ok().filter(|_| range.contains(at));
        match (half(range.start(), at.into()), half(at, range.end())) {
            (Some(lower), Some(upper)) => Ok(Some((lower, upper))),
            _ => {
                let (shard, (start, last)) = (self.shard, range.bounds());
                let what = format!(
                    "a split of {shard} at {at:#018x}, expected a hash behind the first of {start:#018x} to {last:#018x}"
                );
                Err(PartError::Malformed { what })
            }
        }
    }

    /// What the shard has of a part of its range, as a shard of its own.
    fn part(&self, shard: ShardId, range: HashRange) -> Result<Self, PartError> {
        let whole = self.range;
        let parts = self
            .slices
            .iter()
            .map(|(&filter, slice)| slice.part(whole, range).map(|slice| (filter, slice)));
        let slices = parts.collect::<Result<_, _>>()?;
        let mut replay = self.replay.clone();
        if shard != self.shard && planted::on(Planted::SplitForgetsAnswers) {
            replay = ReplayTable::new(ReplayLimits::SHARD);
        }
        replay.split(whole);
        Ok(Self { shard, range, slices, replay, scrubbed: None })
    }
}

impl Slice {
    /// What it has of a part of the shard's range.
    fn part(&self, whole: HashRange, range: HashRange) -> Result<Self, PartError> {
        let shape = &self.spec.shape;
        let is_all_there = self.kind().is_whole() && shape.lives_in(range);
        let count = |count| match self.kind().is_whole() {
            true if is_all_there => count,
            true => 0,
            false => whole.cut_count(range, count),
        };
        let filter = match self.kind().is_whole() {
            true if is_all_there => Arc::clone(&self.filter),
            // It lives in the other part, or in another shard.
            true => shape
                .create(range)
                .map(Arc::new)
                .map_err(|error| PartError::Malformed { what: error.to_string() })?,
            false => self.filter.part(range).map(Arc::new).map_err(|error| match error {
                FilterPartError::Create(CreateError::OutOfMemory { bytes }) => stop(bytes),
                error => PartError::Malformed { what: error.to_string() },
            })?,
        };
        Ok(Self {
            spec: self.spec.clone(),
            generation: self.generation,
            new_count: count(self.new_count),
            merged_count: count(self.merged_count),
            written_index: NO_INDEX,
            filter,
        })
    }
}
