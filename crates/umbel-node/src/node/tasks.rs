//! The tasks that a node runs as long as it lives.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::local::Local;

/// The tasks of a node. If one panics, the node fails: it would go on beating and leading groups without what that
/// task does, such as the controller of the cluster.
pub(super) struct Tasks {
    local: Arc<Local>,
    set: JoinSet<()>,
}

impl Tasks {
    /// No tasks, of this node.
    pub(super) fn new(local: &Arc<Local>) -> Self {
        Self { local: Arc::clone(local), set: JoinSet::new() }
    }

    /// Runs a task until it ends or the node is shut down.
    pub(super) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        let local = Arc::clone(&self.local);
        let fail = move || {
            local.fail("a task of the node panicked: see its log, and start it again".to_owned());
        };
        self.set.spawn(watched(task, fail));
    }

    /// All tasks, which end when this is dropped or shut down.
    pub(super) fn into_set(self) -> JoinSet<()> {
        self.set
    }
}

/// Runs a task, and calls `fail` if it panics.
async fn watched(task: impl Future<Output = ()>, fail: impl Fn()) {
    let _watch = OnPanic(fail);
    task.await;
}

struct OnPanic<F: Fn()>(F);

impl<F: Fn()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    async fn fails(task: impl Future<Output = ()> + Send + 'static) -> bool {
        let failed = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&failed);
        let running = tokio::spawn(watched(task, move || told.store(true, Ordering::Relaxed)));
        drop(running.await);
        failed.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn only_a_panic_fails_the_node() {
        assert!(!fails(async {}).await);
        assert!(fails(async { panic!("as a bug does") }).await);
        let failed = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&failed);
        let endless = std::future::pending();
        let running = tokio::spawn(watched(endless, move || told.store(true, Ordering::Relaxed)));
        running.abort();
        assert!(running.await.is_err_and(|error| error.is_cancelled()));
        assert!(!failed.load(Ordering::Relaxed));
    }
}
