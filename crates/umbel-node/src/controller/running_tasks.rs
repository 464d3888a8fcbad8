//! What the controller has under way: tasks run side by side, so that one which waits for a node that is
//! not reached holds up nothing but what is about the same group or slice.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::sync::Arc;

use tokio::task::JoinSet;
use umbel_engine::meta::{SLICE_TASKS_PER_SHARD_MAX, SliceDone, Task};
use umbel_engine::{FilterId, GroupId, ShardId};

use super::carry_out;
use crate::coordinator::Coordinator;
use crate::local::Local;

/// What a task is about. Of two about the same the second one waits: a slice that is dropped must not be
/// made by an order from before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Subject {
    /// Who the members of a group are.
    Members(GroupId),
    /// A new shard that is cut off.
    Split(ShardId),
    /// A slice of a filter.
    Slice(ShardId, FilterId),
}

impl Subject {
    /// None for what is decided, not done.
    fn of(task: &Task) -> Option<Self> {
        match *task {
            Task::Propose(_) => None,
            Task::ChangeMembers { group, .. } => Some(Self::Members(group)),
            Task::SplitShard { into, .. } => Some(Self::Split(into)),
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

/// Tasks that are under way, at most one a group and [`SLICE_TASKS_PER_SHARD_MAX`] a shard. Dropped, it
/// ends them.
#[derive(Default)]
pub(super) struct RunningTasks {
    running: JoinSet<(Subject, Confirmed)>,
    subjects: BTreeSet<Subject>,
}

impl RunningTasks {
    /// Begins a task, unless another one about the same is under way, or too many are: then it comes again.
    pub(super) fn begin(&mut self, local: &Arc<Local>, coordinator: &Arc<Coordinator>, task: Task) {
        let Some(subject) = Subject::of(&task) else { return };
        let is_full = match subject {
            Subject::Members(_) | Subject::Split(_) => false,
            Subject::Slice(shard, _) => self.slice_count(shard) >= SLICE_TASKS_PER_SHARD_MAX,
        };
        if is_full || !self.subjects.insert(subject) {
            return;
        }
        let (local, coordinator) = (Arc::clone(local), Arc::clone(coordinator));
        self.running.spawn(async move { (subject, carry_out(&local, &coordinator, task).await) });
    }

    fn slice_count(&self, shard: ShardId) -> usize {
        let slice = |filter| Subject::Slice(shard, FilterId(filter));
        self.subjects.range(slice(0)..=slice(u64::MAX)).count()
    }

    /// Whether anything is done to slices.
    pub(super) fn has_slices(&self) -> bool {
        matches!(self.subjects.last(), Some(Subject::Slice(..)))
    }

    /// Whether nothing but changes of members is under way, and something is.
    pub(super) fn are_of_members(&self) -> bool {
        matches!(self.subjects.last(), Some(Subject::Members(_)))
    }

    /// What the next task that ends has confirmed; None if none is under way. Dropped, it loses nothing.
    pub(super) async fn next(&mut self) -> Option<Confirmed> {
        match self.running.join_next().await? {
            Ok((subject, confirmed)) => {
                self.subjects.remove(&subject);
                Some(confirmed)
            }
            // Nobody aborts a task: it has panicked, and so does the controller.
            Err(error) => resume_unwind(error.into_panic()),
        }
    }
}
