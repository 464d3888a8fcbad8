//! A queue of what waits to be sent on a link, read in batches. It needs no timer: the reader first
//! lets all runnable tasks run, which may add more, and then sends everything as one batch.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use super::limits::LINK_BATCH_BYTES;

/// The queues of the outbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum QueueName {
    /// Goes first, so that heartbeats are not delayed by bulk.
    Raft,
    /// Everything else. It goes first in at least every second batch.
    Bulk,
}

/// Why an item was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotTaken {
    /// The queue is full.
    Full,
    /// The outbox is closed.
    Closed,
}

/// Two bounded queues with one reader.
pub(super) struct Outbox<T> {
    state: Mutex<State<T>>,
    /// Notified after a batch was taken.
    room: Notify,
}

struct State<T> {
    raft: Queue<T>,
    bulk: Queue<T>,
    /// The last batch was full without anything from bulk.
    bulk_is_due: bool,
    /// The reader has yielded to other tasks since items began to wait.
    has_yielded: bool,
    is_closed: bool,
    reader: Option<Waker>,
}

struct Queue<T> {
    items: VecDeque<(T, usize)>,
    byte_count: usize,
}

impl<T> Queue<T> {
    const fn new() -> Self {
        Self { items: VecDeque::new(), byte_count: 0 }
    }

    /// Moves items over until the batch would exceed its size; the first one always fits. Returns
    /// whether items are left.
    fn take_into(&mut self, batch: &mut Vec<T>, batch_bytes: &mut usize) -> bool {
        while let Some(&(_, bytes)) = self.items.front() {
            if !batch.is_empty() && *batch_bytes + bytes > LINK_BATCH_BYTES {
                return true;
            }
            if let Some((item, _)) = self.items.pop_front() {
                batch.push(item);
            }
            *batch_bytes += bytes;
            self.byte_count -= bytes;
        }
        false
    }
}

impl<T> Outbox<T> {
    pub(super) fn new() -> Self {
        let (raft, bulk) = (Queue::new(), Queue::new());
        let (bulk_is_due, has_yielded, is_closed) = (false, false, false);
        let state = State { raft, bulk, bulk_is_due, has_yielded, is_closed, reader: None };
        Self { state: Mutex::new(state), room: Notify::new() }
    }

    /// Appends an item of `bytes` bytes, unless the queue holds `count_max` items or would hold more
    /// than `bytes_max` bytes.
    pub(super) fn push(
        &self,
        name: QueueName,
        item: T,
        bytes: usize,
        (count_max, bytes_max): (usize, usize),
    ) -> Result<(), NotTaken> {
        let reader = {
            let mut state = self.lock();
            if state.is_closed {
                return Err(NotTaken::Closed);
            }
            let queue = state.queue(name);
            if queue.items.len() >= count_max || queue.byte_count + bytes > bytes_max {
                return Err(NotTaken::Full);
            }
            queue.items.push_back((item, bytes));
            queue.byte_count += bytes;
            state.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
        Ok(())
    }

    /// The next batch: at least one item, more up to [`LINK_BATCH_BYTES`]; None when the outbox is
    /// closed and empty. There must be one reader only; a second one would take the first one's
    /// wake-ups.
    pub(super) fn poll_batch(&self, cx: &Context<'_>) -> Poll<Option<Vec<T>>> {
        let mut state = self.lock();
        if state.is_worth_a_turn() {
            state.has_yielded = true;
            // A task that is woken while it runs is scheduled after all tasks that are runnable.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        state.has_yielded = false;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        if state.bulk_is_due {
            state.bulk.take_into(&mut batch, &mut bytes);
            state.raft.take_into(&mut batch, &mut bytes);
            state.bulk_is_due = false;
        } else {
            state.raft.take_into(&mut batch, &mut bytes);
            let raft_count = batch.len();
            let is_bulk_left = state.bulk.take_into(&mut batch, &mut bytes);
            state.bulk_is_due = is_bulk_left && batch.len() == raft_count;
        }
        if !batch.is_empty() {
            drop(state);
            self.room.notify_one();
            Poll::Ready(Some(batch))
        } else if state.is_closed {
            Poll::Ready(None)
        } else {
            state.reader = Some(cx.waker().clone());
            Poll::Pending
        }
    }

    /// Waits until both queues together hold fewer than `count` items, or the outbox is closed.
    pub(super) async fn has_room(&self, count: usize) {
        loop {
            let made = self.room.notified();
            {
                let state = self.lock();
                if state.is_closed || state.raft.items.len() + state.bulk.items.len() < count {
                    return;
                }
            }
            made.await;
        }
    }

    /// Accepts no more items; waiting ones can still be read.
    pub(super) fn close(&self) {
        let reader = {
            let mut state = self.lock();
            state.is_closed = true;
            state.reader.take()
        };
        self.room.notify_one();
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State<T>> {
        self.state.lock().expect("nothing panics while it holds the outbox")
    }
}

impl<T> State<T> {
    /// Whether less than a batch waits and the reader has not yielded for it yet.
    fn is_worth_a_turn(&self) -> bool {
        let is_empty = self.raft.items.is_empty() && self.bulk.items.is_empty();
        let byte_count = self.raft.byte_count + self.bulk.byte_count;
        !self.has_yielded && !self.is_closed && !is_empty && byte_count < LINK_BATCH_BYTES
    }

    fn queue(&mut self, name: QueueName) -> &mut Queue<T> {
        match name {
            QueueName::Raft => &mut self.raft,
            QueueName::Bulk => &mut self.bulk,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOMY: (usize, usize) = (1000, 100 * LINK_BATCH_BYTES);

    /// The next batch, after the reader has let other tasks run.
    fn batch(outbox: &Outbox<u32>) -> Poll<Option<Vec<u32>>> {
        let cx = Context::from_waker(Waker::noop());
        match outbox.poll_batch(&cx) {
            Poll::Pending => outbox.poll_batch(&cx),
            ready => ready,
        }
    }

    #[test]
    fn a_small_batch_waits_for_one_turn_of_the_others() {
        let outbox = Outbox::new();
        let cx = Context::from_waker(Waker::noop());
        assert_eq!(outbox.poll_batch(&cx), Poll::Pending);
        for round in 0..2 {
            outbox.push(QueueName::Bulk, round, 10, ROOMY).unwrap();
            assert_eq!(outbox.poll_batch(&cx), Poll::Pending, "others may have more to send");
            outbox.push(QueueName::Raft, 10 + round, 10, ROOMY).unwrap();
            assert_eq!(outbox.poll_batch(&cx), Poll::Ready(Some(vec![10 + round, round])));
            assert_eq!(outbox.poll_batch(&cx), Poll::Pending);
        }
        // A full batch is returned at once.
        outbox.push(QueueName::Bulk, 2, LINK_BATCH_BYTES, ROOMY).unwrap();
        assert_eq!(outbox.poll_batch(&cx), Poll::Ready(Some(vec![2])));
        // After the close, the rest is returned at once, too.
        outbox.push(QueueName::Bulk, 3, 10, ROOMY).unwrap();
        outbox.close();
        assert_eq!(outbox.poll_batch(&cx), Poll::Ready(Some(vec![3])));
        assert_eq!(outbox.poll_batch(&cx), Poll::Ready(None));
    }

    #[test]
    fn what_waits_goes_together_and_raft_first() {
        let outbox = Outbox::new();
        outbox.push(QueueName::Bulk, 1, 10, ROOMY).unwrap();
        outbox.push(QueueName::Raft, 2, 10, ROOMY).unwrap();
        outbox.push(QueueName::Bulk, 3, 10, ROOMY).unwrap();
        assert_eq!(batch(&outbox), Poll::Ready(Some(vec![2, 1, 3])));
        assert_eq!(batch(&outbox), Poll::Pending);
        outbox.push(QueueName::Bulk, 4, 10, ROOMY).unwrap();
        outbox.close();
        assert_eq!(outbox.push(QueueName::Bulk, 5, 10, ROOMY), Err(NotTaken::Closed));
        assert_eq!(batch(&outbox), Poll::Ready(Some(vec![4])));
        assert_eq!(batch(&outbox), Poll::Ready(None));
    }

    #[test]
    fn batches_end_at_their_size_and_bulk_has_its_turn() {
        let outbox = Outbox::new();
        for item in 0..4 {
            outbox.push(QueueName::Raft, item, LINK_BATCH_BYTES, ROOMY).unwrap();
            outbox.push(QueueName::Bulk, 10 + item, 3 * LINK_BATCH_BYTES, ROOMY).unwrap();
        }
        let mut got = Vec::new();
        while let Poll::Ready(Some(items)) = batch(&outbox) {
            assert_eq!(items.len(), 1);
            got.extend(items);
        }
        assert_eq!(got, [0, 10, 1, 11, 2, 12, 3, 13]);
    }

    #[test]
    fn lanes_are_bounded_in_items_and_in_bytes() {
        let outbox = Outbox::new();
        outbox.push(QueueName::Bulk, 1, 60, (2, 100)).unwrap();
        assert_eq!(outbox.push(QueueName::Bulk, 2, 41, (2, 100)), Err(NotTaken::Full));
        outbox.push(QueueName::Bulk, 3, 40, (2, 100)).unwrap();
        assert_eq!(outbox.push(QueueName::Bulk, 4, 0, (2, 100)), Err(NotTaken::Full));
        outbox.push(QueueName::Raft, 5, 100, (2, 100)).unwrap();
        assert_eq!(batch(&outbox), Poll::Ready(Some(vec![5, 1, 3])));
        outbox.push(QueueName::Bulk, 6, 100, (2, 100)).unwrap();
    }
}
