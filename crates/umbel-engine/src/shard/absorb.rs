//! Merging a shard back into its lower neighbour, from which it was split off: the inverse of a split.
//!
//! ```text
//! entry i of shard 4        Fence into shard 0
//! after it                  4 ├────────┤ refuses everything: its state is final, and each replica keeps it
//! entry j of shard 0        Absorb shard 4 as of entry i
//! after it, each replica    0 ├────────────────────────┤  both ranges, slices joined, all answers
//! ```
//!
//! The result depends only on the two states before these entries, which are equal on all replicas.
//!
//! *Law.* The shard answers queries for items of both ranges, and retried requests, as the two shards
//! would have done before.

use std::collections::{BTreeMap, BTreeSet};
use umbel_filter::{CreateError, FilterJoinError, HashRange};
use umbel_step::planted::{self, Planted};

use super::command::{ShardCommand, ShardReply};
use super::merge_marks::Fence;
use super::part_error::PartError;
use super::positions::Positions;
use super::slice::{Slice, stop};
use super::state::{NO_INDEX, ShardState};
use crate::ids::{Epoch, FilterId, GroupId};
use crate::shard::PartResult;

impl ShardState {
    /// The entry that ended this shard, if there is one.
    #[must_use]
    pub const fn fence(&self) -> Option<Fence> {
        self.marks.fence
    }

    /// Whether this shard absorbed a group, or the same shard of a later era.
    #[must_use]
    pub fn has_absorbed(&self, from: GroupId) -> bool {
        let absorbed = from.shard().and_then(|shard| self.marks.absorbed.get(&shard));
        absorbed.is_some_and(|&era| era >= from.era() || planted::on(Planted::ErasAlike))
    }

    /// Whether this shard has decided about a final state of a group: absorbed it, or found that it cannot.
    /// The state is then needed no more.
    #[must_use]
    pub fn has_decided(&self, from: GroupId, fence_index: u64) -> bool {
        let refused = from.shard().and_then(|shard| self.marks.refused.get(&shard));
        let is_refused = refused.is_some_and(|&refused| refused >= (from.era(), fence_index));
        is_refused || self.has_absorbed(from)
    }

    /// The final state of a shard that a command of this index will end, computed before the command is
    /// applied. None if the command ends no shard, or is refused.
    #[must_use]
    pub fn ended(&self, index: u64, command: &ShardCommand) -> Option<Self> {
        let ShardCommand::Fence { into, since } = *command else { return None };
        let mut ended = self.clone();
        ended.end(index, into, since).ok().map(|()| ended)
    }

    /// The range from the end of this shard's range to the end of the range with which it began; None if it
    /// still has all of that.
    #[must_use]
    pub fn range_above(&self, first_range: HashRange) -> Option<HashRange> {
        let start = u64::try_from(self.range.end()).ok()?;
        HashRange::new(start, first_range.end()).ok()
    }

    /// Refuses everything once the shard is fenced.
    pub(super) fn check_open(&self) -> PartResult<()> {
        let shard = self.shard;
        match self.marks.fence {
            Some(_) if planted::on(Planted::EndedShardServes) => Ok(()),
            Some(Fence { into, .. }) => Err(PartError::Fenced { shard, into }),
            None => Ok(()),
        }
    }

    /// The reply of a fenced shard to a command that it does not apply.
    pub(super) fn refuse(command: &ShardCommand, error: &PartError) -> ShardReply {
        let refused = || error.clone();
        match command {
            ShardCommand::Insert(parts) | ShardCommand::InsertAbsent(parts) => {
                ShardReply::Inserted(parts.iter().map(|_| Err(refused())).collect())
            }
            ShardCommand::InsertTimed { inserts, .. } => {
                ShardReply::Inserted(inserts.iter().map(|_| Err(refused())).collect())
            }
            ShardCommand::Remove(_) => ShardReply::Removed(Err(refused())),
            ShardCommand::MergeSlices { .. } | ShardCommand::LoadFrame { .. } => {
                ShardReply::Merged(Err(refused()))
            }
            _ => ShardReply::Done(Err(refused())),
        }
    }

    /// Ends the shard, unless that merge was given up. A later fence changes nothing.
    pub(super) fn end(&mut self, index: u64, into: GroupId, since: Epoch) -> PartResult<()> {
        let shard = self.shard;
        if into.shard().is_none_or(|into| into >= shard) {
            let what = format!("a fence of {shard} for {into}, expected a lower shard");
            return Err(PartError::Malformed { what });
        }
        if since <= self.marks.given_up {
            let what = format!("a fence of {shard} for a merge that was given up");
            return Err(PartError::Malformed { what });
        }
        self.marks.fence.get_or_insert(Fence { into, since, index });
        Ok(())
    }

    /// Opens the shard again, because its neighbour cannot absorb it, and gives up all merges up to that one.
    pub(super) fn reopen(&mut self, since: Epoch) {
        if self.marks.fence.is_some_and(|fence| fence.since <= since) {
            self.marks.fence = None;
        }
        self.marks.given_up = self.marks.given_up.max(since);
    }

    /// Applies [`ShardCommand::Absorb`] at this index: joins the final state of the upper neighbour to this
    /// state. Does nothing if that was done, or refused, before; then the neighbour's state is not needed.
    ///
    /// It is refused, for good, if a table has no room for the entries of both in the block that the border
    /// divides.
    ///
    /// This reads all slices and makes new ones, so a caller with readers applies it to a copy of the state: the
    /// slices of both shards stay in memory until the joined ones are there, except that each slice of `upper`
    /// goes as soon as it was joined.
    ///
    /// ```
    /// use umbel_engine::shard::{ShardCommand, ShardReply, ShardState};
    /// use umbel_engine::{Epoch, GroupId, ShardId};
    /// use umbel_filter::HashRange;
    ///
    /// let mut lower = ShardState::new(ShardId(0), HashRange::WHOLE);
    /// let split = ShardCommand::Split { into: ShardId(1), at: 1 << 63 };
    /// let mut upper = lower.upper_half(&split)?.expect("the range is to be cut");
    /// lower.apply(&split);
    /// let [into, from] = [0, 1].map(|shard| GroupId::of_shard(ShardId(shard)));
    /// upper.apply_at(7, &ShardCommand::Fence { into, since: Epoch(3) });
    /// assert_eq!(upper.fence().map(|fence| fence.index), Some(7));
    /// assert_eq!(lower.absorb(9, from, upper), ShardReply::Done(Ok(())));
    /// assert_eq!(lower.range(), HashRange::WHOLE);
    /// # Ok::<(), umbel_engine::shard::PartError>(())
    /// ```
    pub fn absorb(&mut self, index: u64, from: GroupId, upper: Self) -> ShardReply {
        ShardReply::Done(self.try_absorb(index, from, upper))
    }

    /// The reply to an entry that absorbs a group, where the group's state is not at hand.
    pub(super) fn check_absorbed(&self, from: GroupId) -> PartResult<()> {
        if self.has_absorbed(from) {
            return Ok(());
        }
        let what = format!(
            "{} cannot absorb {from}: a filter does not fit, as was found before, or its final state is missing",
            self.shard
        );
        Err(PartError::Malformed { what })
    }

    fn try_absorb(&mut self, index: u64, from: GroupId, mut upper: Self) -> PartResult<()> {
        let fence_index = upper.marks.fence.map_or(0, |fence| fence.index);
        if self.has_decided(from, fence_index) {
            return self.check_absorbed(from);
        }
        self.check_open()?;
        let range = self.joined_range(from, &upper)?;
        let filters: BTreeSet<FilterId> =
            self.slices.keys().chain(upper.slices.keys()).copied().collect();
        // Nothing may change unless all slices can be joined, so those of this shard stay until then. Those of
        // the upper one go one by one, so that both shards are in memory once more, not twice.
        let mut slices = BTreeMap::new();
        for filter in filters {
            let pair = (self.slices.get(&filter).cloned(), upper.slices.remove(&filter));
            match join(pair, self.range, upper.range) {
                Ok(joined) => slices.insert(filter, Slice { written_index: index, ..joined }),
                Err(error) => {
                    self.marks.refused.insert(upper.shard, (from.era(), fence_index));
                    return Err(error);
                }
            };
        }
        self.slices = slices;
        if !planted::on(Planted::AbsorbForgetsAnswers) {
            self.replay.merge(&upper.replay);
        }
        self.range = range;
        self.scrubbed = None;
        self.marks.absorbed.insert(upper.shard, from.era());
        Ok(())
    }

    /// The range of both shards, if they are neighbours and the upper one has ended.
    fn joined_range(&self, from: GroupId, upper: &Self) -> PartResult<HashRange> {
        let malformed = |what: String| Err(PartError::Malformed { what });
        if from.shard() != Some(upper.shard) || upper.shard <= self.shard {
            return malformed(format!("{} absorbs {} as {from}", self.shard, upper.shard));
        }
        if upper.marks.fence.is_none() {
            return malformed(format!("{} absorbs {from}, which is not fenced", self.shard));
        }
        let (ours, theirs) = (self.range, upper.range);
        let range = HashRange::new(ours.start(), theirs.end()).ok();
        let Some(range) = range.filter(|_| ours.end() == u128::from(theirs.start())) else {
            let ((start, last), (from_start, from_last)) = (ours.bounds(), theirs.bounds());
            return malformed(format!(
                "{} of {start:#018x} to {last:#018x} absorbs {from} of {from_start:#018x} to {from_last:#018x}, \
                 expected its upper neighbour",
                self.shard
            ));
        };
        Ok(range)
    }
}

/// The slice of both ranges.
fn join(
    pair: (Option<Slice>, Option<Slice>),
    lower_range: HashRange,
    upper_range: HashRange,
) -> PartResult<Slice> {
    let (lower, upper) = complete(pair, lower_range, upper_range)?;
    let (ours, theirs) = (&lower.spec, &upper.spec);
    if (ours.shape, ours.key) != (theirs.shape, theirs.key) {
        let what = format!("it is {ours:?} and {theirs:?}");
        return Err(PartError::NotJoined { filter: ours.filter, what });
    }
    lower.join(upper, lower_range)
}

/// Both parts of a filter's slice, at one generation. The catalogue changes no filter while shards are
/// merged, so that normally there are two, and their generations are equal. Otherwise the part of the
/// lower generation counts as not cleared yet, and a missing one as empty.
fn complete(
    (lower, upper): (Option<Slice>, Option<Slice>),
    lower_range: HashRange,
    upper_range: HashRange,
) -> PartResult<(Slice, Slice)> {
    let like = |slice: &Slice, range| {
        let mut empty = Slice::create(&slice.spec, range)?;
        empty.generation = slice.generation;
        Ok::<_, PartError>(empty)
    };
    match (lower, upper) {
        (Some(lower), Some(upper)) if lower.generation < upper.generation => {
            Ok((like(&upper, lower_range)?, upper))
        }
        (Some(lower), Some(upper)) if lower.generation > upper.generation => {
            let empty = like(&lower, upper_range)?;
            Ok((lower, empty))
        }
        (Some(lower), Some(upper)) => Ok((lower, upper)),
        (Some(lower), None) => {
            let empty = like(&lower, upper_range)?;
            Ok((lower, empty))
        }
        (None, Some(upper)) => Ok((like(&upper, lower_range)?, upper)),
        (None, None) => unreachable!("the filter has a slice in one of the shards"),
    }
}

impl Slice {
    /// The slice of both ranges; this one is that of `lower_range`.
    fn join(self, upper: Self, lower_range: HashRange) -> PartResult<Self> {
        let filter = if self.kind().is_whole() {
            // It lies entirely in one of the two shards, or in another one.
            if self.spec.shape.lives_in(lower_range) { self.filter } else { upper.filter }
        } else {
            Positions::new(self.filter.join(&upper.filter).map_err(|error| match error {
                FilterJoinError::Create(CreateError::OutOfMemory { bytes }) => stop(bytes),
                error => PartError::NotJoined { filter: self.spec.filter, what: error.to_string() },
            })?)
        };
        Ok(Self {
            spec: self.spec,
            generation: self.generation,
            new_count: self.new_count.saturating_add(upper.new_count),
            merged_count: self.merged_count.saturating_add(upper.merged_count),
            written_index: NO_INDEX,
            filter,
        })
    }
}
