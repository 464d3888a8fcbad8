//! Which groups run on this node, so that nothing else writes their files.
//!
//! When this node applies a split, it creates the new shard here, unless the shard runs here already:
//! other nodes may have created it long ago, and then its leader replicates its state to this node.

use std::collections::BTreeSet;

use tokio::sync::{Mutex, MutexGuard, watch};
use umbel_engine::GroupId;

/// The running groups, and how many groups were created here.
pub(super) struct Claims {
    running: Mutex<BTreeSet<GroupId>>,
    begun_count: watch::Sender<u64>,
}

impl Default for Claims {
    fn default() -> Self {
        Self { running: Mutex::default(), begun_count: watch::Sender::new(0) }
    }
}

impl Claims {
    /// Marks the group as running; waits until no creation of a group is in progress.
    pub(super) async fn claim(&self, group: GroupId) {
        self.running.lock().await.insert(group);
    }

    /// Marks the group as stopped; only its promises are left of it.
    pub(super) async fn release(&self, group: GroupId) {
        self.running.lock().await.remove(&group);
    }

    /// Blocks the start of groups while the guard is held; None if this group runs already.
    pub(super) async fn hold(&self, group: GroupId) -> Option<MutexGuard<'_, BTreeSet<GroupId>>> {
        let running = self.running.lock().await;
        (!running.contains(&group)).then_some(running)
    }

    pub(super) fn note_begun(&self) {
        self.begun_count.send_modify(|count| *count += 1);
    }

    /// Watches how many groups were created here.
    pub(super) fn begun_count(&self) -> watch::Receiver<u64> {
        self.begun_count.subscribe()
    }
}
