//! Computations that take long, between tasks that must not wait for them.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs work that may take long, while other threads take over the tasks of this one. Simulated processes
/// have a single thread, and no time passes there while it works: they run it as it is, so that the order
/// of their steps stays the same in every run.
///
/// # Panics
/// Outside of tokio's runtime.
pub fn run_blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_single_thread_runs_it_as_it_is() {
        assert_eq!(run_blocking(|| 7), 7);
    }

    /// The work waits for a task, for which there is no thread but the one that the work is on.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_task_of_the_same_thread_goes_on_meanwhile() {
        let ended = tokio::spawn(async {
            let (sender, receiver) = std::sync::mpsc::channel();
            tokio::spawn(async move { sender.send(7) });
            run_blocking(|| receiver.recv())
        });
        assert_eq!(ended.await.expect("it does not panic"), Ok(7));
    }
}
