//! How fast items come, so that it can be said when a filter will be full.
//!
//! An item that came t ago counts 2^−(t/h), h the half-life: what comes now weighs most, and nothing is
//! kept but the sum. Items that come steadily at λ a second for T seconds add up to
//!
//! ```text
//!       T
//! W = λ ∫ 2^−(t/h) dt = λ · h/ln 2 · (1 − 2^−(T/h))        so λ* = W · ln 2 / (h · (1 − 2^−(T/h)))
//!       0
//! ```
//!
//! This is exponential smoothing (Holt 1957, reprinted 2004, doi:10.1016/j.ijforecast.2003.09.015) with its
//! bias at the beginning taken out, as Kingma & Ba 2015 do (arXiv:1412.6980, section 3): the estimate is right
//! from the first minute on, not only after hours.

/// Half of what was counted is forgotten after this: an hour, so that a forecast follows the day and not
/// the second.
pub const ARRIVAL_HALF_LIFE_MS: u64 = 3_600_000;

/// Arrivals that were watched for less than this tell no rate: within a minute a single batch is all there
/// is.
pub const ARRIVAL_WATCH_MS_MIN: u64 = 60_000;

/// The rate at which items come, watched from some moment on. Time is in milliseconds of any clock; one that
/// is set back stands still here.
///
/// ```
/// use umbel_filter::sizing::ArrivalRate;
///
/// let mut arrivals = ArrivalRate::new(0);
/// // 500 items every second, for two minutes.
/// for second in 1..=120 {
///     arrivals.add(second * 1_000, 500.0);
/// }
/// let rate = arrivals.per_second(120_000).expect("it was watched for a minute");
/// assert!((rate - 500.0).abs() < 5.0);
/// assert_eq!(ArrivalRate::new(0).per_second(59_999), None);
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ArrivalRate {
    begun_ms: u64,
    newest_ms: u64,
    /// W as it was at `newest_ms`, in items.
    weight: f64,
}

impl ArrivalRate {
    /// Begins to watch.
    #[must_use]
    pub const fn new(now_ms: u64) -> Self {
        Self { begun_ms: now_ms, newest_ms: now_ms, weight: 0.0 }
    }

    /// Counts so many items that came now; fewer than 0 if items were taken out.
    pub fn add(&mut self, now_ms: u64, item_count: f64) {
        self.weight = self.weight_at(now_ms) + item_count;
        self.newest_ms = self.newest_ms.max(now_ms);
    }

    /// Items a second; None before [`ARRIVAL_WATCH_MS_MIN`].
    #[must_use]
    pub fn per_second(&self, now_ms: u64) -> Option<f64> {
        let now_ms = now_ms.max(self.newest_ms);
        let watched_ms = now_ms.saturating_sub(self.begun_ms);
        if watched_ms < ARRIVAL_WATCH_MS_MIN {
            return None;
        }
        let half_life_s = ARRIVAL_HALF_LIFE_MS as f64 / 1e3;
        let seen = 1.0 - decay(watched_ms);
        Some(self.weight_at(now_ms) * std::f64::consts::LN_2 / (half_life_s * seen))
    }

    fn weight_at(&self, now_ms: u64) -> f64 {
        self.weight * decay(now_ms.saturating_sub(self.newest_ms))
    }
}

/// What is left of a count after this time: 2^−(t/h).
fn decay(elapsed_ms: u64) -> f64 {
    (-(elapsed_ms as f64) / ARRIVAL_HALF_LIFE_MS as f64).exp2()
}

/// Seconds until so many items more have come at this rate; 0 if there is no room left, None if none come.
///
/// ```
/// use umbel_filter::sizing::seconds_until;
///
/// assert_eq!(seconds_until(6_000.0, 100.0), Some(60.0));
/// assert_eq!(seconds_until(-1.0, 0.0), Some(0.0));
/// assert_eq!(seconds_until(6_000.0, 0.0), None);
/// ```
#[must_use]
pub fn seconds_until(item_count: f64, per_second: f64) -> Option<f64> {
    if item_count <= 0.0 {
        return Some(0.0);
    }
    let seconds = item_count / per_second;
    (per_second > 0.0 && seconds.is_finite()).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::split_mix;
    use super::*;

    /// Slow twin: every batch with its time, weighed one by one.
    fn twin(batches: &[(u64, f64)], now_ms: u64) -> f64 {
        let half_life = ARRIVAL_HALF_LIFE_MS as f64;
        let weight: f64 = batches
            .iter()
            .map(|&(at_ms, count)| count * 0.5_f64.powf((now_ms - at_ms) as f64 / half_life))
            .sum();
        let seen = 1.0 - 0.5_f64.powf(now_ms as f64 / half_life);
        weight * 2.0_f64.ln() / (half_life / 1e3 * seen)
    }

    /// Within 5 % from a minute to a day, though batches come at random times, twenty a second on average.
    #[test]
    fn a_steady_load_is_estimated_from_the_first_minute_on() {
        let (mut state, mut arrivals, mut at_ms) = (5, ArrivalRate::new(0), 0);
        let checked_ms = [60_000, 300_000, 3_600_000, 20_000_000, 86_400_000];
        for now_ms in checked_ms {
            while at_ms < now_ms {
                at_ms += 1 + split_mix(&mut state) % 99;
                arrivals.add(at_ms, 50.0);
            }
            let rate = arrivals.per_second(at_ms).unwrap();
            // 50 items every 50 ms, on average.
            let truth = 1_000.0;
            assert!((rate / truth - 1.0).abs() < 0.05, "{rate} after {now_ms} ms");
        }
    }

    #[test]
    fn a_load_that_ends_is_forgotten_by_half_in_an_hour() {
        let mut arrivals = ArrivalRate::new(0);
        let hours = 24 * ARRIVAL_HALF_LIFE_MS;
        (0..hours / 1_000).for_each(|second| arrivals.add(second * 1_000, 10.0));
        let before = arrivals.per_second(hours).unwrap();
        let after = arrivals.per_second(hours + ARRIVAL_HALF_LIFE_MS).unwrap();
        assert!((before - 10.0).abs() < 0.1 && (after * 2.0 / before - 1.0).abs() < 1e-6);
        // A clock that is set back counts no time twice.
        assert_eq!(arrivals.per_second(0), arrivals.per_second(hours - 1_000));
    }

    #[test]
    fn what_is_taken_out_counts_against_what_comes() {
        let mut arrivals = ArrivalRate::new(0);
        for second in 1..=100 {
            arrivals.add(second * 1_000, 30.0);
            arrivals.add(second * 1_000, -30.0);
        }
        assert!(arrivals.per_second(100_000).unwrap().abs() < 1e-9);
        assert_eq!(seconds_until(10.0, -1.0), None);
        assert_eq!(seconds_until(f64::NAN, 1.0), None);
    }

    proptest! {
        #[test]
        fn a_sum_says_what_all_batches_say(
            gaps in prop::collection::vec((0_u64..10_000_000, -50.0..1e6_f64), 1..40),
            rest_ms in ARRIVAL_WATCH_MS_MIN..100_000_000,
        ) {
            let (mut arrivals, mut at_ms) = (ArrivalRate::new(0), 0);
            let mut batches = Vec::new();
            for (gap_ms, count) in gaps {
                at_ms += gap_ms;
                arrivals.add(at_ms, count);
                batches.push((at_ms, count));
            }
            let (rate, slow) = (arrivals.per_second(at_ms + rest_ms).unwrap(), twin(&batches, at_ms + rest_ms));
            prop_assert!((rate - slow).abs() <= 1e-9 * slow.abs().max(1.0), "{} {}", rate, slow);
        }
    }
}
