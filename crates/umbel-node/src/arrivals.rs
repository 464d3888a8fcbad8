//! How fast new items come: to each slice of a shard, watched by the leader that calls them new, and to each copy of a
//! replicated filter from the clients of its node. Nothing of it is replicated: a new leader, and a node that
//! restarts, watch anew.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use umbel_engine::limits::FILTER_COUNT_MAX;
use umbel_engine::{FilterId, Generation};
use umbel_filter::sizing::ArrivalRate;

#[cfg(test)]
mod arrivals_test;

/// The rates of a shard's slices, or of a copy. Each is watched from its first batch on, which alone gives no rate.
pub(crate) struct Arrivals {
    began: Instant,
    rates: Mutex<BTreeMap<FilterId, (Generation, ArrivalRate)>>,
    /// Milliseconds that a test has let go by.
    #[cfg(test)]
    pub(crate) ahead_ms: std::sync::atomic::AtomicU64,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            rates: Mutex::default(),
            #[cfg(test)]
            ahead_ms: std::sync::atomic::AtomicU64::default(),
        }
    }
}

impl Arrivals {
    /// Counts items that were called new now; fewer than 0 if items were taken out.
    pub(crate) fn add(&self, slice: (FilterId, Generation), item_count: f64) {
        self.add_at(slice, item_count, self.now_ms());
    }

    fn add_at(&self, (filter, generation): (FilterId, Generation), item_count: f64, now_ms: u64) {
        let mut rates = self.lock();
        match rates.get_mut(&filter) {
            Some((known, rate)) if *known == generation => rate.add(now_ms, item_count),
            _ => {
                // There are no more filters: most of these are gone, and others begin anew.
                if rates.len() >= FILTER_COUNT_MAX {
                    rates.clear();
                }
                rates.insert(filter, (generation, ArrivalRate::new(now_ms)));
            }
        }
    }

    /// Items a second that come to a slice; None if it was watched for too short a time.
    pub(crate) fn per_second(&self, slice: (FilterId, Generation)) -> Option<f64> {
        self.per_second_at(slice, self.now_ms())
    }

    fn per_second_at(
        &self,
        (filter, generation): (FilterId, Generation),
        now_ms: u64,
    ) -> Option<f64> {
        let rates = self.lock();
        let (known, rate) = rates.get(&filter)?;
        (*known == generation).then(|| rate.per_second(now_ms)).flatten()
    }

    /// Forgets a filter that is dropped.
    pub(crate) fn forget(&self, filter: FilterId) {
        self.lock().remove(&filter);
    }

    fn now_ms(&self) -> u64 {
        let elapsed_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        #[cfg(test)]
        let elapsed_ms = elapsed_ms + self.ahead_ms.load(std::sync::atomic::Ordering::Relaxed);
        elapsed_ms
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<FilterId, (Generation, ArrivalRate)>> {
        // No holder of the lock panics, and each entry is whole after every statement.
        self.rates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
