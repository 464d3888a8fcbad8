//! The tasks of the meta group's leader.
//!
//! The state says what should be, the groups' leaders report what is, and [`next_tasks`] returns what
//! to do next. It keeps no state: a new leader calls it and continues. So every task may be lost or
//! done twice, and is returned again until the state and the reports agree.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::command::MetaCommand;
use super::filter_name::FilterName;
use super::filter_record::{FilterRecord, FilterState};
use super::state::MetaState;
use crate::ids::{Epoch, FilterId, Generation, GroupId, NodeId, ShardId};

mod replan;

#[cfg(test)]
mod controller_test;
#[cfg(test)]
mod simulation_test;
#[cfg(test)]
mod unreachable_test;

use replan::Places;

/// Most shards whose members change at once. A new replica receives a snapshot of up to gigabytes
/// from a leader that also serves clients. With two changes, the end of one transfer overlaps the
/// start of the next, and clients keep most of the network.
pub const SHARD_MOVES_MAX: usize = 2;

/// Most slice tasks per shard that one call returns. A slow shard delays no other shard, and 1,024
/// shards have at most 65,536 tasks.
pub const SLICE_TASKS_PER_SHARD_MAX: usize = 64;

/// The last report of a group's leader. A report of a deposed leader must not replace a newer one:
/// keep the report with the highest term and log index.
///
/// ```
/// use umbel_engine::meta::GroupView;
///
/// assert_eq!(GroupView::default().leader, None);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GroupView {
    /// The leader; None if no leader reports, in which case the group gets no tasks.
    pub leader: Option<NodeId>,
    /// The voters, in any order; all voters of both sets in a joint configuration.
    pub voters: Vec<NodeId>,
    /// Members that do not vote, in any order.
    pub learners: Vec<NodeId>,
    /// Whether the configuration is joint. The leader that began the change of voters may be gone,
    /// and until the change is completed, every decision needs majorities of both the old and the new
    /// voters.
    pub is_joint: bool,
}

impl GroupView {
    /// Whether the group has exactly these members, which are sorted, and no change of them is in progress.
    ///
    /// ```
    /// use umbel_engine::NodeId;
    /// use umbel_engine::meta::GroupView;
    ///
    /// let view = GroupView { voters: [3, 1].map(NodeId).to_vec(), ..GroupView::default() };
    /// assert!(view.has_members(&[1, 3].map(NodeId), &[]));
    /// assert!(!view.has_members(&[NodeId(1)], &[NodeId(3)]));
    /// ```
    #[must_use]
    pub fn has_members(&self, voters: &[NodeId], learners: &[NodeId]) -> bool {
        // If voters are only added, the voters of the joint configuration already equal the target.
        !self.is_joint && sorted(&self.voters) == voters && sorted(&self.learners) == learners
    }
}

/// The progress of a slice, as its shard confirmed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SliceDone {
    /// The slice exists.
    Created,
    /// The slice is at this generation: it was emptied, rotated or renewed for it.
    Begun(Generation),
    /// The slice does not exist any more.
    Dropped,
}

/// Slices' progress, as shards have confirmed it. The caller keeps it in memory and records every
/// answer. A new leader starts without any and asks again, which is harmless.
pub type SliceProgress = BTreeMap<(FilterId, ShardId), SliceDone>;

/// Something to do. Every task is idempotent.
#[derive(Clone, PartialEq, Debug)]
pub enum Task {
    /// Propose a command to the meta group.
    Propose(MetaCommand),
    /// Ask a group's leader to change the members to exactly these: first add all as learners, then,
    /// once the future voters have caught up, make them voters. The leader must refuse, and abandon a
    /// change in progress, if the shard map that it knows wants other voters.
    ChangeMembers {
        /// The group.
        group: GroupId,
        /// Its leader.
        leader: NodeId,
        /// All future voters, sorted.
        voters: Vec<NodeId>,
        /// All future learners, sorted; empty for a shard.
        learners: Vec<NodeId>,
    },
    /// Ask a shard to move the upper part of its range to a new shard, whose group has no leader yet.
    SplitShard {
        /// The shard.
        shard: ShardId,
        /// The new shard.
        into: ShardId,
        /// The era of the new shard, without which an order that arrives after a merge would split the
        /// shard again.
        era: u32,
        /// First hash of the new shard.
        at: u64,
    },
    /// Merge a shard into its parent: ask the leader of `from` to end the shard, then the leader of
    /// `shard` to take over what `from` had, and, when both have confirmed it, propose
    /// [`MetaCommand::ShardMerged`] with `from` and `era`. Either group may have no leader now.
    MergeShard {
        /// The parent, which gets the whole range.
        shard: ShardId,
        /// The last shard, which will be gone.
        from: ShardId,
        /// The era of `from`.
        era: u32,
        /// The epoch at which the merge began.
        since: Epoch,
    },
    /// Ask a shard to create its slice of a filter ([`FilterRecord::slice_spec`]); confirmed by
    /// [`SliceDone::Created`].
    ///
    /// [`FilterRecord::slice_spec`]: super::FilterRecord::slice_spec
    EnsureSlice {
        /// The shard.
        shard: ShardId,
        /// The filter.
        filter: FilterId,
    },
    /// Ask a shard to drop its slice of a filter; confirmed by [`SliceDone::Dropped`].
    DropSlice {
        /// The shard.
        shard: ShardId,
        /// The filter.
        filter: FilterId,
    },
    /// Ask a shard to empty its slice of a filter; confirmed by [`SliceDone::Begun`].
    ClearSlice {
        /// The shard.
        shard: ShardId,
        /// The filter.
        filter: FilterId,
        /// The generation that starts.
        generation: Generation,
    },
    /// Ask a shard to raise the generation of a slice; confirmed by [`SliceDone::Begun`].
    RenewSlice {
        /// The shard.
        shard: ShardId,
        /// The filter.
        filter: FilterId,
        /// The generation that starts.
        generation: Generation,
    },
    /// Ask a shard to end the current slice of a filter's window; confirmed by [`SliceDone::Begun`].
    RotateSlice {
        /// The shard.
        shard: ShardId,
        /// The filter.
        filter: FilterId,
        /// The generation that starts.
        generation: Generation,
    },
}

/// All tasks that can be done now, in an order that depends only on the arguments: for the meta
/// group's members, then for shards, then for filters, each by number.
///
/// A group without a leader gets no task: it needs its own majority to change its members, and
/// nothing else may change them. Views are by group and not by shard, because after a merge the next shard
/// of the same number is another group: the view of the earlier one says nothing about it.
///
/// No shard is planned onto a node that is not in `alive`, the nodes that the leader can reach, and no such
/// node becomes a voter of the meta group.
///
/// ```
/// use std::collections::{BTreeMap, BTreeSet};
/// use umbel_engine::meta::{GroupView, MetaCommand, MetaState, Task, next_tasks};
/// use umbel_engine::{GroupId, NodeId, ShardId};
///
/// let node = NodeId(1);
/// let mut state = MetaState::new();
/// let nodes = vec![(node, "a:7070".to_owned())];
/// state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 1, replica_count: 1 });
/// let view = GroupView { leader: Some(node), voters: vec![node], ..GroupView::default() };
/// let views = BTreeMap::from([(GroupId::of_shard(ShardId(0)), view.clone())]);
///
/// let formed = MetaCommand::ShardFormed { shard: ShardId(0) };
/// let alive = BTreeSet::from([node]);
/// let tasks = next_tasks(&state, &views, &view, &alive, &BTreeMap::new());
/// assert_eq!(tasks, [Task::Propose(formed.clone())]);
/// state.apply(2, &formed);
/// assert_eq!(next_tasks(&state, &views, &view, &alive, &BTreeMap::new()), []);
/// ```
#[must_use]
pub fn next_tasks(
    state: &MetaState,
    views: &BTreeMap<GroupId, GroupView>,
    meta_view: &GroupView,
    alive: &BTreeSet<NodeId>,
    progress: &SliceProgress,
) -> Vec<Task> {
    let mut tasks = Vec::new();
    if state.is_formed() {
        tasks.extend(meta_task(state, meta_view, alive));
        shard_tasks(state, views, alive, &mut tasks);
        filter_tasks(state, views, progress, &mut tasks);
    }
    tasks
}

/// Removes the progress of filters that need no task. Call it occasionally, so that `progress` does
/// not grow with every filter that ever existed.
///
/// ```
/// use umbel_engine::meta::{MetaState, SliceDone, SliceProgress, forget_finished};
/// use umbel_engine::{FilterId, ShardId};
///
/// let mut progress = SliceProgress::from([((FilterId(5), ShardId(0)), SliceDone::Dropped)]);
/// forget_finished(&mut progress, &MetaState::new());
/// assert!(progress.is_empty());
/// ```
pub fn forget_finished(progress: &mut SliceProgress, state: &MetaState) {
    progress.retain(|(filter, _), _| {
        state.filter(*filter).is_some_and(|record| {
            !matches!(record.state, FilterState::Live | FilterState::Importing)
        })
    });
}

fn sorted(nodes: &[NodeId]) -> Vec<NodeId> {
    let mut nodes = nodes.to_vec();
    nodes.sort_unstable();
    nodes
}

/// The task that gives a group these members, or None if it has them.
fn change_members(
    group: GroupId,
    view: &GroupView,
    voters: Vec<NodeId>,
    learners: Vec<NodeId>,
) -> Option<Task> {
    let leader = view.leader?;
    let is_so = view.has_members(&voters, &learners);
    (!is_so).then_some(Task::ChangeMembers { group, leader, voters, learners })
}

fn meta_task(state: &MetaState, view: &GroupView, alive: &BTreeSet<NodeId>) -> Option<Task> {
    let voters = state.meta_voters_wanted(&view.voters, alive);
    let mut learners = state.live_nodes();
    learners.retain(|node| !voters.contains(node));
    change_members(GroupId::META, view, voters, learners.into_iter().collect())
}

pub(super) fn shard_tasks(
    state: &MetaState,
    views: &BTreeMap<GroupId, GroupView>,
    alive: &BTreeSet<NodeId>,
    tasks: &mut Vec<Task>,
) {
    let places = Places::new(state, alive);
    let mut misplaced = Vec::new();
    let mut moves = 0;
    let map_now = state.shard_map();
    // The shards of a split or a merge, which have to stay on the same nodes until it is over.
    let paired = [map_now.halved(), map_now.merging(), map_now.absorbing()];
    tasks.extend(split_task(state, views));
    tasks.extend(merge_task(state));
    for record in &state.shard_map().shards {
        let (shard, group) = (record.shard, record.group());
        let Some(view) = views.get(&group).filter(|view| view.leader.is_some()) else { continue };
        if !record.is_formed {
            tasks.push(Task::Propose(MetaCommand::ShardFormed { shard }));
            continue;
        }
        if paired.contains(&Some(shard)) {
            continue;
        }
        if places.is_misplaced(record) {
            misplaced.push(shard);
            moves += usize::from(record.target.is_some());
            continue;
        }
        if let Some(change) = change_members(group, view, record.wanted().to_vec(), Vec::new()) {
            if moves < SHARD_MOVES_MAX {
                tasks.push(change);
            }
            moves += 1;
        } else if let Some(replicas) = record.target.clone() {
            tasks.push(Task::Propose(MetaCommand::ReplicasChanged { shard, replicas }));
        }
    }
    tasks.extend(places.plans(state, &misplaced, moves).into_iter().map(Task::Propose));
}

/// The task for the split under way, until the new shard has a leader, whose replicas then have their
/// state.
fn split_task(state: &MetaState, views: &BTreeMap<GroupId, GroupView>) -> Option<Task> {
    let into = state.shard_map().splitting()?;
    let (era, group) = state.shard(into).map(|record| (record.era, record.group()))?;
    let is_led = views.get(&group).is_some_and(|view| view.leader.is_some());
    let ranges = state.shard_map().ranges().filter(|_| !is_led)?;
    let (shard, at) = (ranges.parent(into)?, ranges.first_range(into)?.start());
    Some(Task::SplitShard { shard, into, era, at })
}

/// The task for the merge under way, until the last shard is gone.
fn merge_task(state: &MetaState) -> Option<Task> {
    let map = state.shard_map();
    let (from, shard) = (map.get(map.merging()?)?, map.absorbing()?);
    Some(Task::MergeShard { shard, from: from.shard, era: from.era, since: map.merging_since? })
}

fn filter_tasks(
    state: &MetaState,
    views: &BTreeMap<GroupId, GroupView>,
    progress: &SliceProgress,
    tasks: &mut Vec<Task>,
) {
    let freed = FreedNames::new(state, progress);
    let mut task_counts: BTreeMap<ShardId, usize> = BTreeMap::new();
    for (filter, record) in state.filters() {
        let Some((done, when_done)) = wanted_of(filter, record) else { continue };
        let mut is_done = true;
        for record_of_shard in &state.shard_map().shards {
            let shard = record_of_shard.shard;
            if progress.get(&(filter, shard)) == Some(&done) {
                continue;
            }
            is_done = false;
            let count = task_counts.entry(shard).or_default();
            let view = views.get(&record_of_shard.group());
            let has_leader = view.is_some_and(|view| view.leader.is_some());
            if has_leader && *count < SLICE_TASKS_PER_SHARD_MAX {
                *count += 1;
                tasks.push(match done {
                    SliceDone::Created => Task::EnsureSlice { shard, filter },
                    SliceDone::Begun(generation) => match record.state {
                        FilterState::Rotating { .. } => {
                            Task::RotateSlice { shard, filter, generation }
                        }
                        FilterState::Renaming { .. } => {
                            Task::RenewSlice { shard, filter, generation }
                        }
                        _ => Task::ClearSlice { shard, filter, generation },
                    },
                    SliceDone::Dropped => Task::DropSlice { shard, filter },
                });
            }
        }
        if is_done && freed.may_become_live(record) {
            tasks.push(Task::Propose(when_done));
        }
    }
}

/// What all slices of a filter should confirm, and the command that follows; None for a steady filter.
fn wanted_of(filter: FilterId, record: &FilterRecord) -> Option<(SliceDone, MetaCommand)> {
    Some(match record.state {
        FilterState::Live | FilterState::Importing => return None,
        FilterState::Creating { .. } => (SliceDone::Created, MetaCommand::FilterCreated { filter }),
        FilterState::Clearing { to: generation }
        | FilterState::Rotating { to: generation }
        | FilterState::Renaming { to: generation } => {
            let when_done = MetaCommand::FilterCleared { filter, generation };
            (SliceDone::Begun(generation), when_done)
        }
        FilterState::Dropping => (SliceDone::Dropped, MetaCommand::FilterDropped { filter }),
    })
}

/// Names whose earlier holders some shards still serve.
///
/// A drop or a rename frees a name at once, but until all shards have confirmed it, a node whose copy of the
/// catalogue is outdated can still send requests under that name to the earlier holder. The next holder
/// becomes live when no shard would answer them any more: otherwise an insert that such a node acknowledges
/// would be missing in the filter that all other nodes find under the name.
struct FreedNames<'a> {
    /// Names of filters that are being dropped.
    dropped: BTreeSet<&'a FilterName>,
    /// Whether a filter is being renamed. Its record has only its new name, so any name may be its earlier one.
    any: bool,
}

impl<'a> FreedNames<'a> {
    fn new(state: &'a MetaState, progress: &SliceProgress) -> Self {
        let mut freed = Self { dropped: BTreeSet::new(), any: false };
        for (filter, record) in state.filters() {
            let is_freeing =
                matches!(record.state, FilterState::Dropping | FilterState::Renaming { .. });
            let Some((done, _)) = wanted_of(filter, record).filter(|_| is_freeing) else {
                continue;
            };
            let mut shards = state.shard_map().shards.iter();
            if shards.all(|of| progress.get(&(filter, of.shard)) == Some(&done)) {
                continue;
            }
            match record.state {
                FilterState::Dropping => drop(freed.dropped.insert(&record.name)),
                _ => freed.any = true,
            }
        }
        freed
    }

    /// Whether a filter that got its name by its creation or a rename may serve requests under it.
    fn may_become_live(&self, record: &FilterRecord) -> bool {
        match record.state {
            FilterState::Creating { .. } | FilterState::Renaming { .. } => {
                !self.any && !self.dropped.contains(&record.name)
            }
            _ => true,
        }
    }
}
