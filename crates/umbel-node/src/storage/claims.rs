//! Which groups run on this node, so that nothing is written below one that does.
//!
//! A shard that is split off begins on each node when that node applies the split, unless it runs there
//! already: the others may have begun it long ago, and its leader sends what it has.

use std::collections::BTreeSet;

use tokio::sync::{Mutex, MutexGuard, watch};
use umbel_engine::GroupId;

/// Groups that run, and how many were begun here.
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
    /// From here on the group runs: waits for whoever writes it.
    pub(super) async fn claim(&self, group: GroupId) {
        self.running.lock().await.insert(group);
    }

    /// It runs no more, and nothing of it is left but what it has promised.
    pub(super) async fn release(&self, group: GroupId) {
        self.running.lock().await.remove(&group);
    }

    /// Keeps groups from being started; None if this one runs.
    pub(super) async fn hold(&self, group: GroupId) -> Option<MutexGuard<'_, BTreeSet<GroupId>>> {
        let running = self.running.lock().await;
        (!running.contains(&group)).then_some(running)
    }

    pub(super) fn note_begun(&self) {
        self.begun_count.send_modify(|count| *count += 1);
    }

    /// How many groups were begun here, and every change of that.
    pub(super) fn begun_count(&self) -> watch::Receiver<u64> {
        self.begun_count.subscribe()
    }
}
