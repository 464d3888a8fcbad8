//! Rate limits per second.
//!
//! A limiter is a point in time, up to which everything taken is paid for. Taking an amount moves it
//! forward by the amount's cost at the rate, starting no earlier than one second ago; so a second's
//! worth may be taken at once. A caller that owes nothing may take any amount, and owes it afterwards:
//! a batch larger than the rate is not refused for ever. However large it was, all of it is paid for, unless an
//! administrator changes the principal's rates.
//!
//! ```text
//!       now − 1 s        now
//! ──────────┼─────────────┼──────────►     paid until here: nothing is owed
//!                 ●
//!                         ┼────●            owed until there: refused, with the time that is left
//! ```

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;
use umbel_engine::meta::{PrincipalName, Rates};
use umbel_ports::locked;

use umbel_node::failure::CallFailure;

use crate::Result;

/// What can be saved up: as much as one second brings.
const BURST: Duration = Duration::from_secs(1);

/// Highest cost of one take, a hundred years: more than any call costs, and little enough for points in time.
const COST_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Callers that are remembered; beyond that, those that owe nothing are forgotten.
const REMEMBERED_MAX: usize = 1024;

/// The names of the limits, in the order of [`Rates::limits`].
const NAMES: [&str; 3] = ["calls", "items", "bytes"];

/// The amounts of a call: calls, items, bytes.
pub type Amounts = [u64; 3];

/// Up to when everything taken is paid for.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Limiter {
    owed_until: Option<Instant>,
}

impl Limiter {
    /// The time until everything taken is paid for; None if nothing is owed.
    fn owed(self, now: Instant) -> Option<Duration> {
        self.owed_until.map(|until| until.saturating_duration_since(now)).filter(|d| !d.is_zero())
    }

    fn charge(&mut self, now: Instant, amount: u64, per_second: f64) {
        let cost = (amount as f64 / per_second).min(COST_MAX.as_secs_f64());
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let from = self.owed_until.map_or(earliest, |until| until.max(earliest));
        self.owed_until = Some(from + Duration::from_secs_f64(cost));
    }

    /// Takes one if nothing is owed.
    pub(crate) fn take_one(&mut self, now: Instant, per_second: f64) -> bool {
        let is_free = self.owed(now).is_none();
        if is_free {
            self.charge(now, 1, per_second);
        }
        is_free
    }
}

/// What principals with rates have taken on this node.
#[derive(Default)]
pub(crate) struct TakenByPrincipals {
    taken: Mutex<BTreeMap<PrincipalName, Taken>>,
}

/// What a principal has taken since it has these rates.
#[derive(Default)]
struct Taken {
    rates: Rates,
    limiters: [Limiter; 3],
}

impl TakenByPrincipals {
    /// Takes the amounts of a call from this node's share of a principal's rates; all of them or none.
    ///
    /// # Errors
    /// [`CallFailure::RateExceeded`] if the principal owes some of a kind that the call needs.
    pub(crate) fn take(
        &self,
        name: &PrincipalName,
        rates: Rates,
        node_count: usize,
        amounts: Amounts,
        now: Instant,
    ) -> Result<()> {
        if rates == Rates::default() {
            return Ok(());
        }
        let mut taken = locked(&self.taken);
        if taken.len() >= REMEMBERED_MAX && !taken.contains_key(name) {
            let owes = |taken: &Taken| taken.limiters.iter().any(|it| it.owed(now).is_some());
            taken.retain(|_, taken| owes(taken));
        }
        let taken = taken.entry(name.clone()).or_default();
        if taken.rates != rates {
            // Raised rates must end the wait for what was taken under the former ones.
            *taken = Taken { rates, ..Taken::default() };
        }
        let limiters = &mut taken.limiters;
        let limits = rates.limits().into_iter().zip(amounts).zip(NAMES);
        let needed = || limits.clone().enumerate().filter(|(_, ((_, amount), _))| *amount > 0);
        for (at, ((limit, _), what)) in needed() {
            let owed = limiters.get(at).and_then(|limiter| limiter.owed(now));
            if let (Some(limit), Some(retry_after)) = (limit, owed) {
                let (principal, retry_after) = (name.to_string(), retry_after);
                return Err(CallFailure::RateExceeded { principal, limit, what, retry_after });
            }
        }
        let share = 1.0 / node_count.max(1) as f64;
        for (at, ((limit, amount), _)) in needed() {
            if let (Some(limit), Some(limiter)) = (limit, limiters.get_mut(at)) {
                limiter.charge(now, amount, limit as f64 * share);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> PrincipalName {
        PrincipalName::new(name).unwrap()
    }

    /// Takes amounts; an error with the milliseconds to wait.
    fn take(
        taken: &TakenByPrincipals,
        name: &str,
        rates: Rates,
        amounts: Amounts,
        now: Instant,
    ) -> Result<(), u128> {
        taken.take(&named(name), rates, 2, amounts, now).map_err(|failure| match failure {
            CallFailure::RateExceeded { retry_after, .. } => retry_after.as_millis(),
            other => panic!("{other}"),
        })
    }

    #[test]
    fn a_node_gives_its_share_of_a_rate_and_a_second_of_it_at_once() {
        let (taken, now) = (TakenByPrincipals::default(), Instant::now());
        // Two nodes, so the share of this node is five a second.
        let rates = Rates { calls: Some(10), ..Rates::default() };
        let call = |at| take(&taken, "alice", rates, [1, 0, 0], at);
        // A second's worth, and one more that is then owed.
        for _ in 0..6 {
            assert_eq!(call(now), Ok(()));
        }
        assert_eq!(call(now), Err(200));
        assert_eq!(take(&taken, "bob", rates, [1, 0, 0], now), Ok(()), "others have their own");
        let later = now + Duration::from_millis(200);
        assert_eq!(call(later), Ok(()));
        assert_eq!(call(later), Err(200));
        // After any pause, no more than a second's worth is saved up.
        let later = later + Duration::from_secs(100);
        assert_eq!((0..20).filter(|_| call(later).is_ok()).count(), 6);
    }

    #[test]
    fn a_batch_above_the_rate_is_taken_and_owed() {
        let (taken, now) = (TakenByPrincipals::default(), Instant::now());
        let rates = Rates { items: Some(2_000), bytes: Some(1 << 30), ..Rates::default() };
        let batch = |at| take(&taken, "alice", rates, [0, 5_000, 64], at);
        assert_eq!(batch(now), Ok(()));
        assert_eq!(batch(now), Err(4_000));
        // Calls without items are not affected by owed items, and a refused call costs nothing.
        assert_eq!(take(&taken, "alice", rates, [1, 0, 0], now), Ok(()));
        assert_eq!(batch(now + Duration::from_secs(3)), Err(1_000));
        assert_eq!(batch(now + Duration::from_secs(4)), Ok(()));
    }

    #[test]
    fn all_of_a_large_batch_is_owed_until_the_rates_change() {
        let (taken, now) = (TakenByPrincipals::default(), Instant::now());
        let rates = Rates { items: Some(100), ..Rates::default() };
        let batch = |rates, at| take(&taken, "alice", rates, [0, 200_000, 0], at);
        assert_eq!(batch(rates, now), Ok(()));
        assert_eq!(batch(rates, now), Err(3_999_000));
        assert_eq!(batch(rates, now + Duration::from_secs(60)), Err(3_939_000));
        let raised = Rates { items: Some(1_000_000), ..rates };
        assert_eq!(batch(raised, now), Ok(()));
        // No amount is too much for the arithmetic.
        let rates = Rates { bytes: Some(1), ..Rates::default() };
        let huge = |at| take(&taken, "bob", rates, [0, 0, u64::MAX], at);
        assert_eq!(huge(now), Ok(()));
        assert_eq!(huge(now), Err(COST_MAX.as_millis() - 1_000));
    }

    #[test]
    fn who_has_no_rates_is_not_remembered_and_others_are_bounded() {
        let (taken, now) = (TakenByPrincipals::default(), Instant::now());
        assert_eq!(take(&taken, "alice", Rates::default(), [1, 1, 1], now), Ok(()));
        assert!(taken.taken.lock().unwrap().is_empty());
        let rates = Rates { calls: Some(10), ..Rates::default() };
        for number in 0..2 * REMEMBERED_MAX {
            assert_eq!(take(&taken, &format!("p{number}"), rates, [1, 0, 0], now), Ok(()));
        }
        assert!(taken.taken.lock().unwrap().len() <= REMEMBERED_MAX);
    }

    #[test]
    fn one_at_a_time_is_limited_too() {
        let (mut limiter, now) = (Limiter::default(), Instant::now());
        let count = (0..100).filter(|_| limiter.take_one(now, 10.0)).count();
        assert_eq!(count, 11);
        assert!(limiter.take_one(now + Duration::from_millis(100), 10.0));
    }
}
