//! The controller's tasks in progress. They run concurrently, so that a task that waits for an
//! unreachable node delays only tasks about the same group or slice.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};

use tokio::task::JoinSet;
use umbel_engine::meta::{SLICE_TASKS_PER_SHARD_MAX, SliceDone, Task};
use umbel_engine::{FilterId, GroupId, ShardId};

use super::carry_out;
use crate::leader_calls::LeaderCalls;
use crate::local::Local;
use crate::reasons::Reasons;

/// The subject of a task. Of two tasks with the same subject the second waits: an earlier order must not
/// create a slice that has been dropped since.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Subject {
    /// The members of a group.
    Members(GroupId),
    /// A new shard that is split off.
    Split(ShardId),
    /// The last shard, which is merged into its parent.
    Merge(ShardId),
    /// A slice of a filter.
    Slice(ShardId, FilterId),
}

impl Subject {
    /// None for decisions, which are proposed and not run.
    fn of(task: &Task) -> Option<Self> {
        match *task {
            Task::Propose(_) => None,
            Task::ChangeMembers { group, .. } => Some(Self::Members(group)),
            Task::SplitShard { into, .. } => Some(Self::Split(into)),
            Task::MergeShard { from, .. } => Some(Self::Merge(from)),
            Task::EnsureSlice { shard, filter }
            | Task::DropSlice { shard, filter }
            | Task::ClearSlice { shard, filter, .. }
            | Task::RenewSlice { shard, filter, .. }
            | Task::RotateSlice { shard, filter, .. } => Some(Self::Slice(shard, filter)),
        }
    }
}

/// What a task confirmed about a slice, if anything.
pub(super) type Confirmed = Option<((FilterId, ShardId), SliceDone)>;

/// Tasks in progress: at most one for each group, and [`SLICE_TASKS_PER_SHARD_MAX`] for each shard.
/// Dropping this value ends them.
#[derive(Default)]
pub(super) struct RunningTasks {
    running: JoinSet<(Subject, Confirmed)>,
    subjects: BTreeSet<Subject>,
    /// The shards whose refusals were logged of late.
    refused: Arc<Mutex<Reasons>>,
}

impl RunningTasks {
    /// Starts a task, unless one with the same subject is in progress, or too many are: then a later
    /// round starts it.
    pub(super) fn begin(&mut self, local: &Arc<Local>, calls: &Arc<LeaderCalls>, task: Task) {
        let Some(subject) = Subject::of(&task) else { return };
        let is_full = match subject {
            Subject::Members(_) | Subject::Split(_) | Subject::Merge(_) => false,
            Subject::Slice(shard, _) => self.slice_count(shard) >= SLICE_TASKS_PER_SHARD_MAX,
        };
        if is_full || !self.subjects.insert(subject) {
            return;
        }
        let (local, calls) = (Arc::clone(local), Arc::clone(calls));
        let refused = Arc::clone(&self.refused);
        let carried_out = async move { carry_out(&local, &calls, task, &refused).await };
        self.running.spawn(async move { (subject, carried_out.await) });
    }

    fn slice_count(&self, shard: ShardId) -> usize {
        let slice = |filter| Subject::Slice(shard, FilterId(filter));
        self.subjects.range(slice(0)..=slice(u64::MAX)).count()
    }

    /// Whether tasks on slices are in progress.
    pub(super) fn has_slices(&self) -> bool {
        matches!(self.subjects.last(), Some(Subject::Slice(..)))
    }

    /// Whether changes of members are in progress, and no other tasks.
    pub(super) fn are_of_members(&self) -> bool {
        matches!(self.subjects.last(), Some(Subject::Members(_)))
    }

    /// What the next task to end has confirmed; None if none is in progress. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Confirmed> {
        match self.running.join_next().await? {
            Ok((subject, confirmed)) => {
                self.subjects.remove(&subject);
                Some(confirmed)
            }
            // Tasks are never aborted, so this one has panicked, and the controller panics, too.
            Err(error) => resume_unwind(error.into_panic()),
        }
    }
}
