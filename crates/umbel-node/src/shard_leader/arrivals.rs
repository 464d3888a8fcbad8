//! How fast new items come to each slice, watched by the leader that calls them new. Nothing of it is
//! replicated: a new leader watches anew.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use umbel_engine::limits::FILTER_COUNT_MAX;
use umbel_engine::{FilterId, Generation};
use umbel_filter::sizing::ArrivalRate;

/// The rates of a shard's slices. Each is watched from its first batch on, which itself tells no rate.
pub(super) struct Arrivals {
    began: Instant,
    rates: Mutex<BTreeMap<FilterId, (Generation, ArrivalRate)>>,
    /// Milliseconds that a test has let go by.
    #[cfg(test)]
    ahead_ms: std::sync::atomic::AtomicU64,
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
    pub(super) fn add(&self, slice: (FilterId, Generation), item_count: f64) {
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
    pub(super) fn per_second(&self, slice: (FilterId, Generation)) -> Option<f64> {
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
    pub(super) fn forget(&self, filter: FilterId) {
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

#[cfg(test)]
mod tests {
    use umbel_engine::ShardId;
    use umbel_engine::meta::{Distribution, FilterName};
    use umbel_filter::Kind;

    use super::*;
    use crate::coordinator::catalogue::{Hashing, NewFilter};
    use crate::coordinator::sizes::FilterSize;
    use crate::node::node_test::{deadline, items, start_alone};

    #[test]
    fn each_generation_is_watched_from_its_first_batch_on() {
        let arrivals = Arrivals::default();
        let (first, second) = ((FilterId(1), Generation(1)), (FilterId(1), Generation(2)));
        for second in 0..=100 {
            arrivals.add_at(first, 50.0, second * 1_000);
        }
        let rate = arrivals.per_second_at(first, 100_000).unwrap();
        assert!((rate - 50.0).abs() < 1.0, "{rate}");
        assert_eq!(arrivals.per_second_at(second, 100_000), None);
        arrivals.add_at(second, 50.0, 100_000);
        assert_eq!(arrivals.per_second_at(second, 160_000), Some(0.0), "one batch is no rate");
        assert_eq!(arrivals.per_second_at(first, 160_000), None);
        arrivals.forget(FilterId(1));
        assert_eq!(arrivals.per_second_at(second, 160_000), None);
    }

    #[test]
    fn filters_that_are_gone_take_no_memory() {
        let arrivals = Arrivals::default();
        for filter in 0..3 * FILTER_COUNT_MAX as u64 {
            arrivals.add_at((FilterId(filter), Generation(1)), 1.0, 0);
        }
        assert!(arrivals.lock().len() <= FILTER_COUNT_MAX);
    }

    /// Under a steady load the forecast names the moment at which the filter will have its capacity, and
    /// that at which it will err as often as planned, within a tenth. Items go in by the usual way; how long
    /// that took is what the leaders are told.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_steady_load_is_forecast() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let asked = node.coordinator();
        let (capacity, name) = (100_000, FilterName::new("seen").unwrap());
        let new = NewFilter::Planned {
            kind: Kind::Blocked,
            distribution: Distribution::Partitioned,
            capacity,
            size: FilterSize::Rate(0.01),
            hashing: Hashing::Keyed,
        };
        let filter = asked.create(&name, &new, None, deadline()).await.unwrap().0;
        let leaders: Vec<_> = (0..4).map(|shard| node.shard_leader(ShardId(shard))).collect();
        // 2,000 items every 20 s.
        for batch in 0..20_u32 {
            let items = items(2_000 * batch..2_000 * batch + 2_000);
            asked.insert("seen", &items, None, None, deadline()).await.unwrap();
            for leader in &leaders {
                leader.arrivals.ahead_ms.fetch_add(20_000, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let info = asked.info(&name, deadline()).await.unwrap();
        assert_eq!(info.id, filter);
        let outlook = info.outlook();
        let near = |found: Option<f64>, expected: f64| {
            let found = found.unwrap();
            assert!((found / expected - 1.0).abs() < 0.1, "{found} for {expected}");
        };
        near(outlook.new_per_second, 100.0);
        near(outlook.seconds_to_capacity, 600.0);
        // It is somewhat larger than its capacity needs, so that no shard errs more than planned.
        let to_rate = outlook.seconds_to_rate.unwrap();
        assert!(to_rate > 550.0 && to_rate < 800.0, "{to_rate}");
        drop((asked, leaders));
        node.shutdown().await;
    }
}
