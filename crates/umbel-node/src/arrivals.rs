//! Arrival rates of new items: per slice of a shard, measured by the leader that reports items as new;
//! and per copy of a replicated filter, measured by the node for its own clients. The rates are not
//! replicated: a new leader, or a node that restarts, starts to measure again.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tokio::time::Instant;
use umbel_engine::limits::FILTER_COUNT_MAX;
use umbel_engine::{FilterId, Generation};
use umbel_filter::sizing::ArrivalRate;
use umbel_ports::locked;

#[cfg(test)]
mod arrivals_test;

/// The rates of a shard's slices, or of a copy. Each is measured from its first batch on; that batch
/// alone gives no rate.
pub(crate) struct Arrivals {
    began: Instant,
    rates: Mutex<BTreeMap<FilterId, (Generation, ArrivalRate)>>,
    /// Milliseconds by which a test has advanced the clock.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) ahead_ms: std::sync::atomic::AtomicU64,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            rates: Mutex::default(),
            #[cfg(any(test, feature = "testing"))]
            ahead_ms: std::sync::atomic::AtomicU64::default(),
        }
    }
}

impl Arrivals {
    /// Counts items that were reported as new now; negative if items were removed.
    pub(crate) fn add(&self, slice: (FilterId, Generation), item_count: f64) {
        self.add_at(slice, item_count, self.now_ms());
    }

    fn add_at(&self, (filter, generation): (FilterId, Generation), item_count: f64, now_ms: u64) {
        let mut rates = locked(&self.rates);
        match rates.get_mut(&filter) {
            Some((known, rate)) if *known == generation => rate.add(now_ms, item_count),
            _ => {
                // There cannot be more filters: most of these were dropped; the rest start again.
                if rates.len() >= FILTER_COUNT_MAX {
                    rates.clear();
                }
                rates.insert(filter, (generation, ArrivalRate::new(now_ms)));
            }
        }
    }

    /// Items per second that arrive at a slice; None if it was not measured for long enough.
    pub(crate) fn per_second(&self, slice: (FilterId, Generation)) -> Option<f64> {
        self.per_second_at(slice, self.now_ms())
    }

    fn per_second_at(
        &self,
        (filter, generation): (FilterId, Generation),
        now_ms: u64,
    ) -> Option<f64> {
        let rates = locked(&self.rates);
        let (known, rate) = rates.get(&filter)?;
        (*known == generation).then(|| rate.per_second(now_ms)).flatten()
    }

    /// Forgets a dropped filter.
    pub(crate) fn forget(&self, filter: FilterId) {
        locked(&self.rates).remove(&filter);
    }

    fn now_ms(&self) -> u64 {
        let elapsed_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        #[cfg(any(test, feature = "testing"))]
        let elapsed_ms = elapsed_ms + self.ahead_ms.load(std::sync::atomic::Ordering::Relaxed);
        elapsed_ms
    }
}
