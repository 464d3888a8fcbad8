//! The turn of a session: how long its peer may keep those waiting who come after it.
//!
//! Whoever reaches a listener without a secret gets a turn for a whole first message. If it is silent then, or says a
//! byte now and then, its time ends, provided that somebody waits. A peer that reads its set or transfers something
//! has more time: as this side has worked itself, and by the bytes that went over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Time for which a peer is waited for in any case: for round trips, and for a pass over a set that this side need
/// not read.
pub(super) const TURN_PATIENCE: Duration = Duration::from_secs(30);

/// How many times as long as this side has worked its peer may take. Both read their sets about as often; the peer's
/// may have four times as many items, and its machine half the speed.
const PEER_WORK_FACTOR: u32 = 8;

/// Rate, in bytes per second, at which bytes in either direction earn the peer more time: slower lines are rare.
const TRANSFER_BYTES_PER_SECOND_MIN: u64 = 16 << 10;

/// How often a session looks whether somebody waits: who begins to wait wakes nobody.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Timeouts of a session.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Maximum time in which nothing arrives.
    pub idle: Duration,
    /// Maximum time of the whole session, if it is limited.
    pub whole: Option<Duration>,
}

/// The time, for a deadline.
#[expect(clippy::disallowed_methods, reason = "no result depends on it, only when it is given up")]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// Those that wait for their turn.
pub(super) struct Queue {
    waiting_count: AtomicUsize,
    patience: Duration,
}

impl Queue {
    pub(super) fn new(patience: Duration) -> Arc<Self> {
        Arc::new(Self { waiting_count: AtomicUsize::new(0), patience })
    }

    pub(super) fn enter(&self) {
        self.waiting_count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn leave(&self) {
        self.waiting_count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why no event came.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Missed {
    Timeout,
    Disconnected,
    /// Others wait, and the peer was waited for for this long in all.
    Overdue(Duration),
}

impl From<RecvTimeoutError> for Missed {
    fn from(error: RecvTimeoutError) -> Self {
        match error {
            RecvTimeoutError::Timeout => Self::Timeout,
            RecvTimeoutError::Disconnected => Self::Disconnected,
        }
    }
}

/// The turn of one session. By default nobody waits for its end.
#[derive(Default)]
pub(super) struct Turn(Option<Limited>);

struct Limited {
    queue: Arc<Queue>,
    since: Instant,
    /// How much of the time since then this side has waited for its peer.
    waited: Duration,
}

impl Turn {
    /// A turn that begins now, before this side opens its set.
    pub(super) fn before(queue: &Arc<Queue>) -> Self {
        let (queue, since, waited) = (Arc::clone(queue), now(), Duration::ZERO);
        Self(Some(Limited { queue, since, waited }))
    }

    /// Waits for an event of the peer; `moved` is how many bytes have gone over so far.
    pub(super) fn receive<T>(
        &mut self,
        events: &Receiver<T>,
        within: Duration,
        moved: &AtomicU64,
    ) -> Result<T, Missed> {
        let Some(turn) = &mut self.0 else { return Ok(events.recv_timeout(within)?) };
        let since = now();
        loop {
            let began = now();
            let left = within.saturating_sub(began.duration_since(since));
            let look = LOOK_INTERVAL.min(turn.queue.patience);
            let received = events.recv_timeout(left.min(look));
            turn.waited += began.elapsed();
            if turn.is_overdue(moved.load(Ordering::Relaxed)) {
                return Err(Missed::Overdue(turn.waited));
            }
            match received {
                Err(RecvTimeoutError::Timeout) if left > look => {}
                received => return Ok(received?),
            }
        }
    }
}

impl Limited {
    /// Whether others wait, and the peer has had its time.
    fn is_overdue(&self, moved_bytes: u64) -> bool {
        let worked = self.since.elapsed().saturating_sub(self.waited);
        self.queue.waiting_count.load(Ordering::Relaxed) > 0
            && self.waited >= earned(self.queue.patience, worked, moved_bytes)
    }
}

/// How long a peer is waited for in all, if this side has worked for so long and so many bytes have gone over.
fn earned(patience: Duration, worked: Duration, moved_bytes: u64) -> Duration {
    let transfer_ms = moved_bytes.saturating_mul(1000) / TRANSFER_BYTES_PER_SECOND_MIN;
    let work = worked.saturating_mul(PEER_WORK_FACTOR);
    patience.saturating_add(work).saturating_add(Duration::from_millis(transfer_ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const SOON: Duration = Duration::from_millis(20);

    /// Longer than any test.
    const NEVER: Duration = Duration::from_secs(3600);

    #[test]
    fn work_and_bytes_earn_time() {
        let seconds = Duration::from_secs;
        assert_eq!(earned(TURN_PATIENCE, Duration::ZERO, 0), seconds(30));
        assert_eq!(earned(TURN_PATIENCE, seconds(5), 0), seconds(70));
        assert_eq!(earned(TURN_PATIENCE, Duration::ZERO, 1 << 20), seconds(94));
        // Who says a byte a second earns nothing by it.
        assert_eq!(earned(TURN_PATIENCE, Duration::ZERO, 16), seconds(30));
        assert!(earned(TURN_PATIENCE, Duration::MAX, u64::MAX) == Duration::MAX);
    }

    /// A turn in which this side has waited for so long, while so many others wait.
    fn turn(waiting_count: usize, patience: Duration, waited: Duration) -> Turn {
        let queue = Queue::new(patience);
        (0..waiting_count).for_each(|_| queue.enter());
        let Turn(Some(limited)) = Turn::before(&queue) else { unreachable!("it is limited") };
        Turn(Some(Limited { waited, ..limited }))
    }

    #[test]
    fn the_time_of_a_silent_peer_ends_if_somebody_waits() {
        let (_sender, events) = channel::<u8>();
        let nothing = AtomicU64::new(0);
        let missed = turn(1, SOON, Duration::ZERO).receive(&events, NEVER, &nothing);
        assert!(matches!(missed, Err(Missed::Overdue(_))), "{missed:?}");
        for mut alone in [turn(0, SOON, NEVER), Turn::default()] {
            assert_eq!(alone.receive(&events, 3 * SOON, &nothing), Err(Missed::Timeout));
        }
    }

    #[test]
    fn the_time_of_a_peer_that_says_little_ends_too() {
        let (sender, events) = channel();
        (0..3).for_each(|byte| sender.send(byte).unwrap());
        let (little, much) = (AtomicU64::new(3), AtomicU64::new(1 << 30));
        let mut late = turn(1, SOON, NEVER);
        assert!(matches!(late.receive(&events, NEVER, &little), Err(Missed::Overdue(_))));
        assert_eq!(late.receive(&events, NEVER, &much), Ok(1));
        assert_eq!(turn(0, SOON, NEVER).receive(&events, NEVER, &little), Ok(2));
    }

    #[test]
    fn who_has_left_does_not_wait() {
        let (sender, events) = channel::<u8>();
        drop(sender);
        let mut turn = turn(1, SOON, NEVER);
        let Turn(Some(limited)) = &turn else { unreachable!("it is limited") };
        limited.queue.leave();
        let missed = turn.receive(&events, NEVER, &AtomicU64::new(0));
        assert_eq!(missed, Err(Missed::Disconnected));
    }
}
