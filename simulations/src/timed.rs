//! Calls of a plan, each at its time.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

/// Makes each call `at_ms` milliseconds after now, in the order of the plans, and waits until all have ended.
pub(crate) async fn run<P, F>(plans: Vec<P>, at_ms: impl Fn(&P) -> u64, call: impl Fn(P) -> F)
where
    F: Future<Output: 'static> + 'static,
{
    let began = Instant::now();
    let mut running = JoinSet::new();
    for plan in plans {
        tokio::time::sleep_until(began + Duration::from_millis(at_ms(&plan))).await;
        while running.try_join_next().is_some() {}
        running.spawn_local(call(plan));
    }
    while running.join_next().await.is_some() {}
}
