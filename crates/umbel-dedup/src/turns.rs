//! Tasks on many threads: their distribution, the error of the lowest task that failed, and turns to act in order.

use crate::error::{DedupError, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

/// Distributes task numbers in order, until all are taken or a task has failed.
pub(crate) struct Tasks {
    next: AtomicUsize,
    count: usize,
    failed: AtomicBool,
    failure: Mutex<Option<(usize, DedupError)>>,
}

impl Tasks {
    /// Tasks 0..count.
    pub(crate) fn new(count: usize) -> Self {
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { next, count, failed, failure: Mutex::new(None) }
    }

    /// The next task for the calling thread.
    pub(crate) fn next(&self) -> Option<usize> {
        if self.failed() {
            return None;
        }
        let task = self.next.fetch_add(1, Ordering::Relaxed);
        (task < self.count).then_some(task)
    }

    /// Whether a task has failed.
    pub(crate) fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Reports a failed task. Tasks begin in order and run to their ends, so the lowest failing number is the
    /// same in every run.
    pub(crate) fn fail(&self, task: usize, error: DedupError) {
        let mut failure = lock(&self.failure);
        if failure.as_ref().is_none_or(|(lowest, _)| task < *lowest) {
            *failure = Some((task, error));
        }
        drop(failure);
        self.failed.store(true, Ordering::Relaxed);
    }

    /// The outcome, once all threads are done.
    pub(crate) fn outcome(self) -> Result<()> {
        let failure = self.failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        failure.map_or(Ok(()), |(_, error)| Err(error))
    }
}

/// Runs `work` for every task, on `threads` threads. `new_state` creates the state that a thread keeps
/// between its tasks, and `finish` consumes it at the end.
///
/// # Errors
///
/// The error of the lowest task that failed.
pub(crate) fn run_tasks<State>(
    threads: usize,
    count: usize,
    new_state: impl Fn() -> Result<State> + Sync,
    work: impl Fn(&mut State, usize) -> Result<()> + Sync,
    finish: impl Fn(State) -> Result<()> + Sync,
) -> Result<()> {
    let tasks = Tasks::new(count);
    let thread = || {
        let state = new_state().and_then(|mut state| {
            while let Some(task) = tasks.next() {
                if let Err(error) = work(&mut state, task) {
                    tasks.fail(task, error);
                }
            }
            finish(state)
        });
        if let Err(error) = state {
            tasks.fail(count, error);
        }
    };
    std::thread::scope(|scope| {
        let others = threads.min(count).saturating_sub(1);
        for _ in 0..others {
            scope.spawn(thread);
        }
        thread();
    });
    tasks.outcome()
}

/// Lets tasks proceed one at a time, in the order of their numbers.
pub(crate) struct Turns {
    state: Mutex<TurnState>,
    changed: Condvar,
}

struct TurnState {
    turn: usize,
    stopped: bool,
}

impl Turns {
    /// Turn 0 comes first.
    pub(crate) fn new() -> Self {
        let state = Mutex::new(TurnState { turn: 0, stopped: false });
        Self { state, changed: Condvar::new() }
    }

    /// Waits for the turn of this number; false if the turns were stopped.
    pub(crate) fn wait(&self, turn: usize) -> bool {
        let waiting = |state: &mut TurnState| state.turn != turn && !state.stopped;
        let state = self.changed.wait_while(lock(&self.state), waiting);
        !state.unwrap_or_else(std::sync::PoisonError::into_inner).stopped
    }

    /// Passes the turn on to the next number.
    pub(crate) fn pass(&self) {
        lock(&self.state).turn += 1;
        self.changed.notify_all();
    }

    /// Stops the turns, and wakes all waiting tasks.
    pub(crate) fn stop(&self) {
        lock(&self.state).stopped = true;
        self.changed.notify_all();
    }
}

/// Locks a mutex, poisoned or not: a panic of another thread ends the job by itself.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::failed;

    #[test]
    fn turns_come_in_order_whatever_thread_takes_them() {
        let turns = Turns::new();
        let order = Mutex::new(Vec::new());
        let work = |(): &mut (), task| {
            assert!(turns.wait(task));
            lock(&order).push(task);
            turns.pass();
            Ok(())
        };
        run_tasks(4, 100, || Ok(()), work, Ok).unwrap();
        assert_eq!(*lock(&order), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn the_lowest_failure_is_reported() {
        let work = |(): &mut (), task: usize| {
            if task % 7 == 3 { Err(failed!("task {task}")) } else { Ok(()) }
        };
        for _ in 0..50 {
            let error = run_tasks(4, 100, || Ok(()), work, Ok).unwrap_err();
            assert_eq!(error.to_string(), "task 3");
        }
    }
}
