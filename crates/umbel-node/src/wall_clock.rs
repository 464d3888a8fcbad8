//! The wall clock by which a node lets filters expire and windows forget. It follows the machine's, except for an
//! hour after that one jumped ahead.
//!
//! What a clock that is wrong by a day has dropped does not come back when the clock is right again. So the wall
//! clock is compared with the monotonic one, which nobody sets. Which of the two is wrong after a jump cannot be
//! told from here: on a machine that was suspended the monotonic clock stood still, and the wall clock is right.
//! That is why a jump is only held back for a while, in which somebody can correct the clock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use umbel_ports::{Purpose, Rare, Seed, locked};

/// How far the wall clock may part from the monotonic one between two looks without having jumped. A node looks
/// once a second, and in that time NTP steps a clock by seconds, or by minutes where it was never right; a virtual
/// machine that is moved or saved stands still for seconds to minutes. What expires, or is in a window, that much
/// earlier was about to go anyway.
const STEP_MS_MAX: u64 = 10 * 60 * 1000;

/// How long a clock that jumped ahead is not believed: enough to read the error and correct the clock. It ends,
/// because the new time may be the right one.
const CLOCK_HOLD: Duration = Duration::from_secs(60 * 60);

/// Judges the clock of the machine. As [`Seed`] of what decides by time, it tells the time that it believes;
/// entropy is that of the machine.
pub(crate) struct WallClock {
    seed: Arc<dyn Seed>,
    looks: Mutex<Looks>,
}

impl WallClock {
    /// The clock of a node that starts. There is nothing to compare it with, so it is taken for right.
    pub(crate) fn new(seed: Arc<dyn Seed>) -> Self {
        let last = Reading::of(&*seed);
        Self { seed, looks: Mutex::new(Looks { last, held: None }) }
    }

    /// The time to decide by, in milliseconds since 1970: that of the wall clock, or, for an hour after a jump ahead,
    /// the one that it would show without the jump.
    pub(crate) fn believed_ms(&self) -> u64 {
        let (believed_ms, event) = {
            // The clocks are read under the lock, so that looks are in their order.
            let mut looks = locked(&self.looks);
            looks.look(Reading::of(&*self.seed))
        };
        if let Some(event) = event {
            event.log();
        }
        believed_ms
    }

    /// The time from which a term counts that is given now, such as an hour until a filter expires, in milliseconds
    /// since 1970: the time to decide by, or, for an hour after a jump back, the one that the clock would show without
    /// the jump. From a clock that is wrongly behind, the term would be over at once for whoever leads. If the clock
    /// was ahead instead, and the jump is its correction, terms that are given within the hour are longer by as much:
    /// the lesser evil, because nothing is dropped early.
    pub(crate) fn term_start_ms(&self) -> u64 {
        let believed_ms = self.believed_ms();
        let held = locked(&self.looks).held;
        held.map_or(believed_ms, |held| believed_ms.max(held.before.expected_ms(Instant::now())))
    }

    /// Ends the hold as time does.
    #[cfg(test)]
    pub(crate) fn end_hold(&self) {
        let mut looks = locked(&self.looks);
        let held = looks.held.as_mut().expect("the clock has jumped");
        held.ends = Instant::now();
    }
}

impl Seed for WallClock {
    fn fill(&self, purpose: Purpose, bytes: &mut [u8]) {
        self.seed.fill(purpose, bytes);
    }

    fn wall_ms(&self) -> u64 {
        self.believed_ms()
    }

    fn provokes(&self, rare: Rare) -> bool {
        self.seed.provokes(rare)
    }

    fn number(&self, purpose: Purpose) -> u64 {
        self.seed.number(purpose)
    }
}

/// Both clocks at one moment.
#[derive(Clone, Copy)]
struct Reading {
    at: Instant,
    wall_ms: u64,
}

impl Reading {
    fn of(seed: &dyn Seed) -> Self {
        Self { at: Instant::now(), wall_ms: seed.wall_ms() }
    }

    /// What the wall clock shows later if it goes on like the monotonic one.
    fn expected_ms(&self, later: Instant) -> u64 {
        let elapsed = later.saturating_duration_since(self.at).as_millis();
        self.wall_ms.saturating_add(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }

    /// By how much the wall clock is ahead of what was to be expected; negative if it is behind.
    fn ahead_ms(&self, before: &Self) -> i64 {
        let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        signed(self.wall_ms).saturating_sub(signed(before.expected_ms(self.at)))
    }
}

/// A wall clock that is not believed.
#[derive(Clone, Copy)]
struct UnbelievedClock {
    /// The last look before the jump.
    before: Reading,
    ends: Instant,
}

/// The last look, and what is held back.
struct Looks {
    last: Reading,
    held: Option<UnbelievedClock>,
}

impl Looks {
    /// Returns the time that is believed, and what is to be logged.
    fn look(&mut self, now: Reading) -> (u64, Option<ClockEvent>) {
        let last = std::mem::replace(&mut self.last, now);
        let has_jumped = is_jump(now.ahead_ms(&last));
        let held = match self.held {
            // A further jump does not prolong the hold: a machine that is suspended again and again would
            // never believe its clock.
            Some(held) => held,
            None if has_jumped => UnbelievedClock { before: last, ends: now.at + CLOCK_HOLD },
            None => return (now.wall_ms, None),
        };
        let ahead_ms = now.ahead_ms(&held.before);
        let is_back = !is_jump(ahead_ms);
        if is_back || now.at >= held.ends {
            self.held = None;
            let event = if is_back { ClockEvent::Returned } else { ClockEvent::Taken { ahead_ms } };
            return (now.wall_ms, Some(event));
        }
        self.held = Some(held);
        let event = has_jumped.then(|| ClockEvent::Jumped { ahead_ms, left: held.ends - now.at });
        // A clock that jumped back is followed: it makes nothing expire.
        (now.wall_ms.min(held.before.expected_ms(now.at)), event)
    }
}

const fn is_jump(ahead_ms: i64) -> bool {
    ahead_ms.unsigned_abs() > STEP_MS_MAX
}

/// What a look found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ClockEvent {
    /// The wall clock jumped, and is now ahead by so much of what it showed before. A jump ahead is held back for
    /// so long.
    Jumped { ahead_ms: i64, left: Duration },
    /// It is back at what it showed before the jump.
    Returned,
    /// It did not come back in time, and is believed.
    Taken { ahead_ms: i64 },
}

impl ClockEvent {
    fn log(self) {
        match self {
            Self::Jumped { ahead_ms, left } if ahead_ms > 0 => tracing::error!(
                ahead_s = ahead_ms / 1000,
                held_s = left.as_secs(),
                "the wall clock jumped ahead: for an hour this node lets no filter or import expire by it, and no \
                 window forget by it. If the clock is wrong, correct it within the hour (NTP), and nothing is lost; \
                 if it is right, do nothing: it is believed after the hour, or once the node is restarted"
            ),
            Self::Jumped { ahead_ms, .. } => tracing::error!(
                behind_s = ahead_ms.saturating_neg() / 1000,
                "the wall clock jumped back: windows stand still on this node until it has caught up, and filters \
                 and imports expire later by as much. If the clock is wrong, correct it (NTP)"
            ),
            Self::Returned => tracing::info!("the wall clock is back: nothing expired by the jump"),
            Self::Taken { ahead_ms } => tracing::warn!(
                ahead_s = ahead_ms / 1000,
                "the wall clock was not set back after its jump, and is believed from now on"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SetClock;

    const MINUTE_MS: u64 = 60_000;
    const HOUR_MS: u64 = 60 * MINUTE_MS;
    const DAY_MS: u64 = 24 * HOUR_MS;
    const START_MS: u64 = 1_000 * DAY_MS;

    /// A machine whose clocks the test moves, and what a node on it believes.
    struct Machine {
        wall: Arc<SetClock>,
        clock: WallClock,
    }

    impl Machine {
        fn start() -> Self {
            let wall = Arc::new(SetClock::new(START_MS));
            let clock = WallClock::new(Arc::clone(&wall) as _);
            Self { wall, clock }
        }

        /// Time passes for both clocks.
        async fn pass(&self, ms: u64) {
            tokio::time::advance(Duration::from_millis(ms)).await;
            self.wall.add(ms);
        }

        /// The time that is believed, since the start.
        fn believed_ms(&self) -> u64 {
            self.clock.believed_ms() - START_MS
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_by_a_day_and_back_moves_nothing() {
        let machine = Machine::start();
        machine.pass(MINUTE_MS).await;
        assert_eq!(machine.believed_ms(), MINUTE_MS);
        machine.wall.add(DAY_MS);
        assert_eq!(machine.believed_ms(), MINUTE_MS);
        machine.pass(30 * MINUTE_MS).await;
        assert_eq!(machine.believed_ms(), 31 * MINUTE_MS);
        machine.wall.subtract(DAY_MS);
        assert_eq!(machine.believed_ms(), 31 * MINUTE_MS);
        // Nothing is held back any more.
        machine.wall.add(MINUTE_MS);
        assert_eq!(machine.believed_ms(), 32 * MINUTE_MS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_that_stays_is_believed_after_the_hold() {
        let machine = Machine::start();
        machine.wall.add(DAY_MS);
        assert_eq!(machine.believed_ms(), 0);
        machine.pass(HOUR_MS - 1).await;
        assert_eq!(machine.believed_ms(), HOUR_MS - 1);
        machine.pass(1).await;
        assert_eq!(machine.believed_ms(), DAY_MS + HOUR_MS);
        machine.pass(MINUTE_MS).await;
        assert_eq!(machine.believed_ms(), DAY_MS + HOUR_MS + MINUTE_MS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_back_is_followed_and_its_correction_is_no_jump() {
        let machine = Machine::start();
        machine.wall.subtract(DAY_MS);
        assert_eq!(machine.clock.believed_ms(), START_MS - DAY_MS);
        machine.pass(MINUTE_MS).await;
        assert_eq!(machine.clock.believed_ms(), START_MS - DAY_MS + MINUTE_MS);
        machine.wall.add(DAY_MS);
        assert_eq!(machine.believed_ms(), MINUTE_MS);
    }

    #[tokio::test(start_paused = true)]
    async fn terms_do_not_count_from_a_time_before_a_jump_back() {
        let machine = Machine::start();
        let term_start_ms = || machine.clock.term_start_ms() - START_MS;
        machine.wall.subtract(DAY_MS);
        assert_eq!(term_start_ms(), 0);
        machine.pass(MINUTE_MS).await;
        assert_eq!(term_start_ms(), MINUTE_MS);
        machine.wall.add(DAY_MS);
        assert_eq!(term_start_ms(), MINUTE_MS);
        // A jump ahead is not believed, and so adds nothing to a term.
        machine.wall.add(DAY_MS);
        assert_eq!(term_start_ms(), MINUTE_MS);
        machine.wall.subtract(2 * DAY_MS);
        assert_eq!(term_start_ms(), MINUTE_MS);
        // A clock that stays behind is right in the end.
        machine.pass(HOUR_MS).await;
        assert_eq!(machine.clock.term_start_ms(), START_MS - DAY_MS + MINUTE_MS + HOUR_MS);
    }

    /// Which of the two clocks was wrong cannot be told.
    #[tokio::test(start_paused = true)]
    async fn terms_are_longer_for_an_hour_after_a_clock_that_was_ahead_is_corrected() {
        let machine = Machine::start();
        machine.wall.subtract(DAY_MS);
        assert_eq!(machine.clock.believed_ms(), START_MS - DAY_MS);
        machine.pass(HOUR_MS - 1).await;
        assert_eq!(machine.clock.term_start_ms(), START_MS + HOUR_MS - 1);
        machine.pass(1).await;
        assert_eq!(machine.clock.term_start_ms(), START_MS + HOUR_MS - DAY_MS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_corrected_bit_by_bit_has_not_jumped() {
        let machine = Machine::start();
        for second in 1..=200 {
            machine.pass(1_000).await;
            machine.wall.add(MINUTE_MS);
            assert_eq!(machine.believed_ms(), second * (1_000 + MINUTE_MS));
        }
    }

    /// Its monotonic clock stands still meanwhile.
    #[tokio::test(start_paused = true)]
    async fn a_machine_that_is_suspended_again_and_again_believes_its_clock_in_the_end() {
        let machine = Machine::start();
        machine.wall.add(8 * HOUR_MS);
        assert_eq!(machine.believed_ms(), 0);
        machine.pass(HOUR_MS / 2).await;
        machine.wall.add(8 * HOUR_MS);
        assert_eq!(machine.believed_ms(), HOUR_MS / 2);
        machine.pass(HOUR_MS / 2).await;
        assert_eq!(machine.believed_ms(), 17 * HOUR_MS);
    }

    #[tokio::test(start_paused = true)]
    async fn each_jump_is_reported_once() {
        let machine = Machine::start();
        let look = || {
            let mut looks = machine.clock.looks.lock().unwrap();
            looks.look(Reading::of(&*machine.wall)).1
        };
        assert_eq!(look(), None);
        machine.wall.add(DAY_MS);
        let ahead_ms = i64::try_from(DAY_MS).unwrap();
        assert_eq!(look(), Some(ClockEvent::Jumped { ahead_ms, left: CLOCK_HOLD }));
        assert_eq!(look(), None);
        machine.wall.subtract(DAY_MS);
        assert_eq!(look(), Some(ClockEvent::Returned));
        assert_eq!(look(), None);
        machine.wall.subtract(DAY_MS);
        assert_eq!(look(), Some(ClockEvent::Jumped { ahead_ms: -ahead_ms, left: CLOCK_HOLD }));
        machine.pass(HOUR_MS).await;
        assert_eq!(look(), Some(ClockEvent::Taken { ahead_ms: -ahead_ms }));
        assert_eq!(look(), None);
    }
}
