//! Batches single items of many tasks.
//!
//! ```text
//!   task   insert_one ──┐
//!   task   insert_one ──┤ wait here ──► a batch ──► the cluster     at most two on their way
//!   task   insert_one ──┘                  │
//!     ▲────────────── each its answer ─────┘
//! ```
//!
//! There is no timer: the first item is sent at once, and items that arrive while two batches are in
//! flight go with the next one. An item whose task has stopped waiting by then is left out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::answers::Answer;
use crate::batch::Verb;
use crate::error::{ClientError, Result};
use crate::failure::Failure;
use crate::filter::Filter;
use crate::limits::SINGLES_BATCHES_MAX;
use crate::packed_batch::PackedBatch;

/// The result for an item, or the error of its batch.
type Single = Result<bool, Arc<ClientError>>;

/// Waiting single items of all clones of a handle.
#[derive(Default)]
pub(crate) struct Singles {
    queues: Mutex<Vec<(Verb, Queue)>>,
}

/// Items that wait for the same operation.
#[derive(Default)]
struct Queue {
    batch: PackedBatch,
    /// The waiting tasks, one per item.
    callers: Vec<oneshot::Sender<Single>>,
    /// Number of tasks that send batches of this queue, each one batch at a time.
    sender_count: usize,
}

impl Queue {
    /// Leaves out the items whose tasks have stopped waiting.
    fn drop_abandoned(&mut self) {
        if !self.callers.iter().any(oneshot::Sender::is_closed) {
            return;
        }
        let (batch, callers) = (self.batch.take(), std::mem::take(&mut self.callers));
        for (item, caller) in batch.iter().zip(callers) {
            if !caller.is_closed() {
                self.batch.push(item).expect("the batch had it, among more");
                self.callers.push(caller);
            }
        }
    }
}

impl Singles {
    /// Runs `act` on the queue of an operation. A linear search suffices: there are few operations and
    /// levels.
    fn queue<T>(&self, verb: Verb, act: impl FnOnce(&mut Queue) -> T) -> T {
        let mut queues: MutexGuard<'_, _> =
            self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, queue)) = queues.iter_mut().find(|(known, _)| *known == verb) {
            return act(queue);
        }
        let mut queue = Queue::default();
        let done = act(&mut queue);
        queues.push((verb, queue));
        done
    }
}

/// Adds an item to the queue of its operation and waits for its result.
pub(crate) async fn send(filter: &Filter, verb: Verb, item: &[u8]) -> Single {
    let begun = filter.singles().queue(verb, |queue| {
        queue.batch.push(item)?;
        let (caller, answer) = oneshot::channel();
        queue.callers.push(caller);
        let is_sender_wanted = queue.sender_count < SINGLES_BATCHES_MAX;
        queue.sender_count += usize::from(is_sender_wanted);
        Ok((answer, is_sender_wanted))
    });
    let (answer, is_sender_wanted) = begun.map_err(|error| Arc::new(ClientError::Item(error)))?;
    if is_sender_wanted {
        let sender = Sender { filter: filter.clone(), verb, is_counted: true };
        tokio::spawn(sender.run());
    }
    answer.await.unwrap_or_else(|_| Err(Arc::new(ended(filter, verb))))
}

/// The error of an item whose sending task is gone, for example because its runtime ended.
fn ended(filter: &Filter, verb: Verb) -> ClientError {
    let target = format!("filter {:?}", filter.name());
    let text = "the task that sends single items ended".to_owned();
    let failure = Box::new(Failure::bad_answer(text, &target, "(none)"));
    match verb {
        Verb::Contains(_) => ClientError::Unavailable(failure),
        Verb::Insert { .. } | Verb::Remove => ClientError::FirstAnswerLost(failure),
    }
}

/// A task that sends batches until no items wait.
struct Sender {
    filter: Filter,
    verb: Verb,
    /// Whether the queue's `sender_count` includes it.
    is_counted: bool,
}

impl Sender {
    async fn run(mut self) {
        while let Some((batch, callers)) = self.next() {
            let answered = self.filter.run(self.verb, batch).await;
            answer(answered, callers);
        }
    }

    /// Takes all waiting items. If there are none, this sender leaves the queue in the same critical
    /// section, so that the next item starts a new one.
    fn next(&mut self) -> Option<(PackedBatch, Vec<oneshot::Sender<Single>>)> {
        let is_counted = &mut self.is_counted;
        self.filter.singles().queue(self.verb, |queue| {
            queue.drop_abandoned();
            if queue.callers.is_empty() {
                queue.sender_count -= 1;
                *is_counted = false;
                return None;
            }
            let room = Vec::with_capacity(queue.callers.len());
            Some((queue.batch.take(), std::mem::replace(&mut queue.callers, room)))
        })
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.is_counted {
            return;
        }
        // The runtime ended, or a task panicked. Without a sender, waiting items would never be answered.
        self.filter.singles().queue(self.verb, |queue| {
            queue.sender_count -= 1;
            if queue.sender_count == 0 {
                queue.batch.clear();
                queue.callers.clear();
            }
        });
    }
}

fn answer(answered: Result<Answer>, callers: Vec<oneshot::Sender<Single>>) {
    // Sending fails for a caller that has stopped waiting.
    match answered {
        Ok(answer) => {
            for (caller, is_one) in callers.into_iter().zip(answer.bits.iter()) {
                let _ = caller.send(Ok(is_one));
            }
        }
        Err(error) => {
            let error = Arc::new(error);
            for caller in callers {
                let _ = caller.send(Err(Arc::clone(&error)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_a_sender_whose_runtime_ended() {
        let runtime =
            || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let filter = crate::Client::connect("127.0.0.1:1").unwrap().filter("seen");
        let first = runtime();
        let mut asked = Box::pin(filter.insert_one("a"));
        assert!(first.block_on(is_pending(&mut asked)), "it waits for its sender");
        drop(first);
        let ended = runtime().block_on(asked).unwrap_err();
        assert!(matches!(*ended, ClientError::FirstAnswerLost(_)), "{ended}");
        let level = umbel_proto::v1::AckLevel::Unspecified;
        let verb = Verb::Insert { level, at_ms: None };
        let left = filter.singles().queue(verb, |queue| (queue.sender_count, queue.callers.len()));
        assert_eq!(left, (0, 0));
    }

    /// Polls once; returns whether the future is still pending.
    async fn is_pending<F: Future + Unpin>(asked: &mut F) -> bool {
        std::future::poll_fn(|cx| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut *asked).poll(cx).is_pending())
        })
        .await
    }
}
