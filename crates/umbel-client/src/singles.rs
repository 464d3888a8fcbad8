//! Single items of many tasks, which travel in batches.
//!
//! ```text
//!   task   insert_one ──┐
//!   task   insert_one ──┤ wait here ──► a batch ──► the cluster     at most two on their way
//!   task   insert_one ──┘                  │
//!     ▲────────────── each its answer ─────┘
//! ```
//!
//! No timer: the first item goes at once, and what comes while two batches are on their way goes with the
//! next one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::answers::Answer;
use crate::batch::Verb;
use crate::error::{ClientError, Failure};
use crate::filter::Filter;
use crate::limits::SINGLES_BATCHES_MAX;
use crate::packed_batch::PackedBatch;

/// What became of one item, or of the batch that it was in.
type Single = Result<bool, Arc<ClientError>>;

/// Single items that wait, of all clones of a handle.
#[derive(Default)]
pub(crate) struct Singles {
    lanes: Mutex<Vec<(Verb, Lane)>>,
}

/// Items that wait for the same to be done with them.
#[derive(Default)]
struct Lane {
    batch: PackedBatch,
    /// Who waits for the answer to each.
    callers: Vec<oneshot::Sender<Single>>,
    /// Tasks that send batches, each one after the other.
    sender_count: usize,
}

impl Singles {
    /// There are a few verbs with a few levels each.
    fn lane<T>(&self, verb: Verb, act: impl FnOnce(&mut Lane) -> T) -> T {
        let mut lanes: MutexGuard<'_, _> =
            self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, lane)) = lanes.iter_mut().find(|(known, _)| *known == verb) {
            return act(lane);
        }
        let mut lane = Lane::default();
        let done = act(&mut lane);
        lanes.push((verb, lane));
        done
    }
}

/// Has an item travel with others of its kind.
pub(crate) async fn ask(filter: &Filter, verb: Verb, item: &[u8]) -> Single {
    let begun = filter.singles().lane(verb, |lane| {
        lane.batch.push(item)?;
        let (caller, answer) = oneshot::channel();
        lane.callers.push(caller);
        let is_sender_wanted = lane.sender_count < SINGLES_BATCHES_MAX;
        lane.sender_count += usize::from(is_sender_wanted);
        Ok((answer, is_sender_wanted))
    });
    let (answer, is_sender_wanted) = begun.map_err(|error| Arc::new(ClientError::Item(error)))?;
    if is_sender_wanted {
        let sender = Sender { filter: filter.clone(), verb, is_counted: true };
        tokio::spawn(sender.run());
    }
    answer.await.unwrap_or_else(|_| Err(Arc::new(ended(filter, verb))))
}

/// The task that had the item is gone, as with its runtime.
fn ended(filter: &Filter, verb: Verb) -> ClientError {
    let target = format!("filter {:?}", filter.name());
    let text = "the task that sends single items ended".to_owned();
    let failure = Box::new(Failure::bad_answer(text, &target, "(none)"));
    match verb {
        Verb::Contains(_) => ClientError::Unavailable(failure),
        Verb::Insert { .. } | Verb::Remove => ClientError::FirstAnswerLost(failure),
    }
}

/// Sends batches until nothing waits.
struct Sender {
    filter: Filter,
    verb: Verb,
    /// Whether it is one of its lane's.
    is_counted: bool,
}

impl Sender {
    async fn run(mut self) {
        while let Some((batch, callers)) = self.next() {
            let answered = self.filter.run(self.verb, batch).await;
            answer(answered, callers);
        }
    }

    /// What waits now. If nothing does, this sender is none of the lane's from that moment on, so that
    /// whoever comes next has a new one begin.
    fn next(&mut self) -> Option<(PackedBatch, Vec<oneshot::Sender<Single>>)> {
        let is_counted = &mut self.is_counted;
        self.filter.singles().lane(self.verb, |lane| {
            if lane.callers.is_empty() {
                lane.sender_count -= 1;
                *is_counted = false;
                return None;
            }
            let room = Vec::with_capacity(lane.callers.len());
            Some((lane.batch.take(), std::mem::replace(&mut lane.callers, room)))
        })
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.is_counted {
            return;
        }
        // Its runtime ended, or a panic did. Nobody may wait for a sender that is not there.
        self.filter.singles().lane(self.verb, |lane| {
            lane.sender_count -= 1;
            if lane.sender_count == 0 {
                lane.batch.clear();
                lane.callers.clear();
            }
        });
    }
}

fn answer(answered: Result<Answer, ClientError>, callers: Vec<oneshot::Sender<Single>>) {
    // Whoever does not listen any more gave up waiting.
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
        let left = filter.singles().lane(verb, |lane| (lane.sender_count, lane.callers.len()));
        assert_eq!(left, (0, 0));
    }

    /// Polls once, and says whether there is no answer yet.
    async fn is_pending<F: Future + Unpin>(asked: &mut F) -> bool {
        std::future::poll_fn(|cx| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut *asked).poll(cx).is_pending())
        })
        .await
    }
}
