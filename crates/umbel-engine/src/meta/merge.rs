//! Merging the last shard into its parent, the shard that it was split from.
//!
//! A merge undoes the last split, so the ranges stay those of linear hashing:
//!
//! ```text
//! 5 shards      │ 0   │ 4    │ 2          │ 1          │ 3          │
//! MergeShard    │ 0 <── 4    │ 2          │ 1          │ 3          │    4 ends, 0 takes over its state
//! ShardMerged   │ 0          │ 2          │ 1          │ 3          │    4 shards
//! ```
//!
//! The controller has shard 4 ended and its state taken over by shard 0 between the two commands. From the
//! first to the second neither shard moves, nothing is split, and no slice is made, emptied or dropped: the
//! state of a shard that has ended cannot change any more.

use umbel_filter::Kind;

use super::command::MetaCommand;
use super::filter_record::{FilterRecord, FilterState};
use super::node_record::NodeRecord;
use super::reply::{MetaError, MetaReply};
use super::state::MetaState;
use super::version::ClusterVersion;
use crate::ids::{Epoch, NodeId, ShardId};
use crate::limits::{ERA_MAX, SLICE_BYTES_MAX};
use crate::meta::Result;
use crate::placement::{ShardRanges, ShardRecord};

/// The version that introduced merges.
pub(super) const MERGES_SINCE: ClusterVersion = ClusterVersion(3);

/// Most characters of the reason why a merge was given up: it names a filter and what does not fit.
const GIVEN_UP_CHARS_MAX: usize = 500;

/// What brings a cluster nearer to a lower number of shards.
///
/// ```
/// use umbel_engine::meta::{ClusterVersion, MergeStep, MetaCommand, MetaState};
/// use umbel_engine::{NodeId, ShardId};
///
/// let nodes = vec![(NodeId(1), "a:7070".to_owned())];
/// let form = MetaCommand::Form { cluster: 9, nodes, shard_count: 1, replica_count: 1 };
/// let formed = |shard| MetaCommand::ShardFormed { shard: ShardId(shard) };
/// let mut state = MetaState::new().at_version(ClusterVersion(3));
/// for command in [form, formed(0), MetaCommand::SplitShard { shard_count: 2 }, formed(1)] {
///     state.apply(1, &command);
/// }
/// assert_eq!(state.merge_step(2), Ok(MergeStep::Done));
/// let merge = MetaCommand::MergeShard { shard_count: 1 };
/// assert_eq!(state.merge_step(1), Ok(MergeStep::Propose(merge.clone())));
/// state.apply(5, &merge);
/// assert!(matches!(state.merge_step(1), Ok(MergeStep::Wait { .. })));
/// state.apply(6, &MetaCommand::ShardMerged { shard: ShardId(1), era: 0 });
/// assert_eq!(state.merge_step(1), Ok(MergeStep::Done));
/// ```
#[derive(Clone, PartialEq, Debug)]
pub enum MergeStep {
    /// There are that many shards, and no merge is under way.
    Done,
    /// Propose this, then ask again: `MergeShard`, or `PlanReplicas` if the last shard must be moved to
    /// the nodes of its parent first.
    Propose(MetaCommand),
    /// The controller is at work: ask again when the state has changed.
    Wait {
        /// What it is doing, with which shard.
        what: String,
    },
}

/// The last shard and its parent.
#[derive(Clone, Copy)]
struct Pair<'a> {
    from: &'a ShardRecord,
    into: &'a ShardRecord,
    /// The ranges after the merge.
    after: ShardRanges,
}

impl MetaState {
    /// The next step on the way to `shard_count` shards: for the last shard first, then for the one that
    /// is the last one then. The state does not remember the wish, so whoever has it asks again after
    /// each step.
    ///
    /// # Errors
    /// [`MetaError::BadMerge`] if there cannot be that few shards, or there are fewer;
    /// [`MetaError::VersionTooLow`]; [`MetaError::ShardBusy`] if a filter is not live, which may last as
    /// long as an import, or if a merge is under way that would leave fewer shards.
    pub fn merge_step(&self, shard_count: u32) -> Result<MergeStep> {
        self.check_version(MERGES_SINCE)?;
        let count = self.shard_count();
        if let Err(MetaError::ShardBusy { what }) = self.check_no_merge() {
            return if shard_count < count {
                Ok(MergeStep::Wait { what })
            } else {
                Err(MetaError::ShardBusy { what })
            };
        }
        if shard_count == count {
            return Ok(MergeStep::Done);
        }
        if shard_count > count {
            return Err(bad_merge(format!("there are only {count} shards, not {shard_count}")));
        }
        self.check_founded(shard_count)?;
        let pair = self.last_pair()?;
        self.check_slices_fit(pair)?;
        self.check_all_live()?;
        match self.check_still(pair) {
            Err(MetaError::ShardBusy { what }) => return Ok(MergeStep::Wait { what }),
            still => still?,
        }
        if pair.from.replicas == pair.into.replicas {
            return Ok(MergeStep::Propose(MetaCommand::MergeShard { shard_count: count - 1 }));
        }
        let is_available = |node: &NodeId| self.node(*node).is_some_and(NodeRecord::is_available);
        let into = pair.into;
        let is_placed = into.replicas.len() == self.replicas_wanted();
        if !is_placed || !into.replicas.iter().all(is_available) {
            let what = format!("the replicas of {} are about to be moved", into.shard);
            return Ok(MergeStep::Wait { what });
        }
        let (shard, target) = (pair.from.shard, into.replicas.clone());
        Ok(MergeStep::Propose(MetaCommand::PlanReplicas { shard, target }))
    }

    pub(super) fn merge_shard(&mut self, shard_count: u32) -> Result<MetaReply> {
        // A snapshot of an earlier version could not say that a merge is under way.
        self.check_version(MERGES_SINCE)?;
        self.check_founded(shard_count)?;
        let count = self.shard_count();
        let is_next = shard_count.checked_add(1) == Some(count);
        if let Err(under_way) = self.check_no_merge() {
            return if is_next { Ok(MetaReply::Done) } else { Err(under_way) };
        }
        if shard_count == count {
            return Ok(MetaReply::Done);
        }
        if !is_next {
            let less = count.saturating_sub(1);
            let what = format!("{count} shards become {less} by the next merge, not {shard_count}");
            return Err(bad_merge(what));
        }
        let pair = self.last_pair()?;
        self.check_slices_fit(pair)?;
        self.check_still(pair)?;
        let Pair { from, into, .. } = pair;
        if from.replicas != into.replicas {
            let what = format!(
                "{} is on nodes {}, and {}, into which it is merged, on nodes {}: move {} there first",
                from.shard,
                numbers(&from.replicas),
                into.shard,
                numbers(&into.replicas),
                from.shard
            );
            return Err(MetaError::ShardBusy { what });
        }
        self.check_all_live()?;
        self.shard_map.begin_merge();
        Ok(MetaReply::Done)
    }

    pub(super) fn shard_merged(&mut self, shard: ShardId, era: u32) -> Result<MetaReply> {
        if self.shard_map.get(shard).is_none_or(|record| record.era != era) {
            return Ok(MetaReply::Done);
        }
        if self.shard_map.merging() != Some(shard) {
            return Err(bad_merge(format!("{shard} is not being merged into another shard")));
        }
        if let Some((from, into)) = self.shard_map.merged() {
            self.filters.values_mut().for_each(|record| record.merge_growth(into, from));
        }
        Ok(MetaReply::Done)
    }

    pub(super) fn merge_given_up(&mut self, since: Epoch, what: &str) -> MetaReply {
        let what = what.chars().take(GIVEN_UP_CHARS_MAX).collect();
        self.shard_map.give_up_merge(since, what);
        MetaReply::Done
    }

    /// Refuses what would change slices, or split or move shards, while a merge is under way.
    pub(super) fn check_no_merge(&self) -> Result<()> {
        let (Some(from), Some(into)) = (self.shard_map.merging(), self.shard_map.absorbing())
        else {
            return Ok(());
        };
        Err(MetaError::ShardBusy { what: format!("{from} is being merged into {into}: try again") })
    }

    /// Refuses a growth by which the slice of two shards that are being merged would become too large.
    pub(super) fn check_merged_growth(
        &self,
        record: &FilterRecord,
        shard: ShardId,
        growth_bytes: u64,
    ) -> Result<()> {
        let Ok(pair) = self.last_pair() else { return Ok(()) };
        let (from, into) = (pair.from.shard, pair.into.shard);
        let other = match shard {
            _ if self.shard_map.merging().is_none() => return Ok(()),
            shard if shard == from => into,
            shard if shard == into => from,
            _ => return Ok(()),
        };
        let grown = growth_bytes.saturating_add(record.growth_bytes(other));
        check_slice_fits(record, pair, grown).map_err(|what| MetaError::BadSettings { what })
    }

    fn check_founded(&self, shard_count: u32) -> Result<()> {
        let founded = self.shard_map.founded;
        if shard_count >= founded {
            return Ok(());
        }
        Err(bad_merge(format!(
            "a cluster that was started with {founded} shards has at least {founded}, not {shard_count}"
        )))
    }

    /// The shards that the next merge is about.
    fn last_pair(&self) -> Result<Pair<'_>> {
        let (map, founded) = (&self.shard_map, self.shard_map.founded);
        if map.merge_count >= ERA_MAX {
            return Err(bad_merge(format!(
                "the cluster has merged {ERA_MAX} times, which is the most"
            )));
        }
        let pair = || {
            let (ranges, from) = (map.ranges()?, map.shards.last()?);
            let into = map.get(ranges.parent(from.shard)?)?;
            Some(Pair { from, into, after: ranges.merge()? })
        };
        pair().ok_or_else(|| bad_merge(format!("there are only the {founded} first shards")))
    }

    /// Refuses to make slices larger than slices may be.
    fn check_slices_fit(&self, pair: Pair<'_>) -> Result<()> {
        for record in self.filters.values().filter(|record| !record.is_replicated()) {
            let growth = |record: &FilterRecord, of: &ShardRecord| record.growth_bytes(of.shard);
            let grown = growth(record, pair.from).saturating_add(growth(record, pair.into));
            check_slice_fits(record, pair, grown).map_err(bad_merge)?;
        }
        Ok(())
    }

    /// Refuses to merge while shards are being made or moved.
    fn check_still(&self, pair: Pair<'_>) -> Result<()> {
        let busy = |what| Err(MetaError::ShardBusy { what });
        if let Some(record) = self.shard_map.shards.iter().find(|record| !record.is_formed) {
            return busy(format!("{} is being made", record.shard));
        }
        match [pair.from, pair.into].into_iter().find(|record| record.target.is_some()) {
            Some(moved) => busy(format!("the replicas of {} are being moved", moved.shard)),
            None => Ok(()),
        }
    }

    /// Refuses to merge while slices are changed: a shard that has ended could not change its own.
    fn check_all_live(&self) -> Result<()> {
        let is_changed =
            |record: &&FilterRecord| !record.is_replicated() && record.state != FilterState::Live;
        let Some(record) = self.filters.values().find(is_changed) else { return Ok(()) };
        let (name, state) = (record.name.as_str(), record.state);
        let what =
            format!("filter {name:?} is {state}: shards are merged when all filters are live");
        Err(MetaError::ShardBusy { what })
    }
}

impl FilterRecord {
    /// Adds up the allowed growth of two slices that become one.
    pub(super) fn merge_growth(&mut self, into: ShardId, from: ShardId) {
        if let Some(theirs) = self.growth.remove(&from) {
            let growth = self.growth.entry(into).or_default();
            *growth = growth.saturating_add(theirs);
        }
    }
}

/// Says what is wrong if the merged slice would be too large.
fn check_slice_fits(record: &FilterRecord, pair: Pair<'_>, grown: u64) -> Result<(), String> {
    // A filter that lies in one shard is as large there as before.
    if Kind::from_id(record.settings.kind).is_some_and(Kind::is_whole) {
        return Ok(());
    }
    let planned = record.settings.memory_bytes.div_ceil(u64::from(pair.after.widest().get()));
    let bytes = planned.saturating_add(grown);
    if bytes <= SLICE_BYTES_MAX {
        return Ok(());
    }
    let (name, into, from) = (record.name.as_str(), pair.into.shard, pair.from.shard);
    Err(format!(
        "filter {name:?} would take {bytes} bytes in {into} together with {from}, at most {SLICE_BYTES_MAX} \
         are allowed"
    ))
}

fn bad_merge(what: String) -> MetaError {
    MetaError::BadMerge { what }
}

/// `1, 2, 4`.
fn numbers(nodes: &[NodeId]) -> String {
    nodes.iter().map(|node| node.0.to_string()).collect::<Vec<_>>().join(", ")
}
