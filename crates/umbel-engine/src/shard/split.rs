//! Splitting a shard in two: each replica splits its own state, and no state is transferred.
//!
//! ```text
//! entry i of shard 0        Split into shard 4 at b
//! before it                 0 ├────────────────────────┤        range, slices, answers
//! after it, each replica    0 ├───────────┤ 4 ├────────┤        the new shard's state: its first snapshot
//! ```
//!
//! The result depends only on the state before the entry, which is equal on all replicas; so the new
//! shard's replicas start equal. The new group starts with that state as if it had been installed from a
//! snapshot.
//!
//! *Law.* Each half answers queries for items of its range, and retried requests, exactly as the unsplit
//! shard would.

use umbel_filter::{CreateError, FilterPartError, HashRange};

use super::command::ShardCommand;
use super::merge_marks::MergeMarks;
use super::part_error::PartError;
use super::positions::Positions;
use super::replay::{ReplayLimits, ReplayTable};
use super::slice::{Slice, stop};
use super::state::{NO_INDEX, ShardState};
use crate::ids::{GroupId, ShardId};
use crate::shard::PartResult;
use umbel_step::planted::{self, Planted};

impl ShardState {
    /// The new shard that a command will split off, computed before the command is applied. None if the
    /// command is no split, or was applied already.
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
    /// If the shard cannot be split there; applying the command is refused, too.
    pub fn upper_half(&self, command: &ShardCommand) -> PartResult<Option<Self>> {
        let Some((into, at)) = command.splits_off() else { return Ok(None) };
        self.check_open()?;
        let Some((_, upper)) = self.halves(into, at)? else { return Ok(None) };
        let Some(into) = into.shard() else {
            let what = format!("a split into {into}, expected a shard");
            return Err(PartError::Malformed { what });
        };
        self.part(into, upper).map(Some)
    }

    /// Keeps the lower part of the range.
    pub(super) fn split(&mut self, index: u64, (into, at): (GroupId, u64)) -> PartResult<()> {
        let Some((lower, _)) = self.halves(into, at)? else { return Ok(()) };
        if planted::on(Planted::SplitKeepsRange) {
            return Ok(());
        }
        *self = self.part(self.shard, lower)?;
        self.slices.values_mut().for_each(|slice| slice.written_index = index);
        Ok(())
    }

    /// The ranges below and above a hash. None if the upper one was split off before.
    fn halves(&self, into: GroupId, at: u64) -> PartResult<Option<(HashRange, HashRange)>> {
        let range = self.range;
        // The range was split there before, and possibly again since, or the other half came back.
        if u128::from(at) >= range.end() || self.has_absorbed(into) {
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

    /// The state of a part of the shard's range, as a shard of its own.
    fn part(&self, shard: ShardId, range: HashRange) -> PartResult<Self> {
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
        replay.split(whole, range);
        // What the shard absorbed, it has absorbed; the new one has absorbed nothing.
        let marks = if shard == self.shard { self.marks.clone() } else { MergeMarks::NONE };
        Ok(Self { shard, range, slices, replay, scrubbed: None, marks })
    }
}

impl Slice {
    /// The slice of a part of the shard's range.
    fn part(&self, whole: HashRange, range: HashRange) -> PartResult<Self> {
        let shape = &self.spec.shape;
        let is_whole = self.kind().is_whole();
        let is_all_there = is_whole && shape.lives_in(range);
        let count = |count| {
            if !is_whole {
                whole.cut_count(range, count)
            } else if is_all_there {
                count
            } else {
                0
            }
        };
        let filter = if !is_whole {
            self.filter.part(range).map(Positions::new).map_err(|error| match error {
                FilterPartError::Create(CreateError::OutOfMemory { bytes }) => stop(bytes),
                error => PartError::Malformed { what: error.to_string() },
            })?
        } else if is_all_there {
            self.filter.clone()
        } else {
            // The filter lies in the other part, or in another shard.
            shape
                .create(range)
                .map(Positions::new)
                .map_err(|error| PartError::Malformed { what: error.to_string() })?
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
