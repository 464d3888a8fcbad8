//! A caller that inserts and one that asks, while the cluster changes, and what they see.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use umbel_client::{Client, ClientError, Filter, ReadLevel};

use crate::items::Dice;

/// Items of a batch.
pub(super) const BATCH_ITEMS: u64 = 1000;

/// Items of a batch when all are asked for in the end.
const CHECK_ITEMS: u64 = 10_000;

/// Pause after a call that failed, or while there is nothing to ask for.
const PAUSE: Duration = Duration::from_millis(100);

/// What one caller saw in a while.
pub(super) struct Seen {
    /// Of batches that were answered, in nanoseconds.
    latency: Histogram<u64>,
    /// When the last answer came.
    answered: Instant,
    /// Longest time between two answers.
    pub(super) gap: Duration,
    /// Calls that ended in an error, after all that the client tried by itself.
    pub(super) failure_count: u64,
    /// Acknowledged items that were called absent.
    pub(super) wrong_count: u64,
}

impl Seen {
    pub(super) fn since(answered: Instant) -> Self {
        let latency = Histogram::new_with_bounds(1, 100_000_000_000, 3);
        let latency = latency.expect("from 1 ns to 100 s with three digits");
        Self { latency, answered, gap: Duration::ZERO, failure_count: 0, wrong_count: 0 }
    }

    /// Notes the outcome of a call: wrong answers, or an error. Returns whether it was answered.
    fn note(&mut self, started: Instant, outcome: Result<u64, ClientError>) -> bool {
        match outcome {
            Ok(wrong_count) => {
                let now = Instant::now();
                self.record(now - started, now - self.answered);
                self.answered = now;
                self.wrong_count += wrong_count;
                true
            }
            Err(error) => {
                eprintln!("a call failed: {error}");
                self.failure_count += 1;
                false
            }
        }
    }

    pub(super) fn record(&mut self, latency: Duration, gap: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latency.saturating_record(nanos);
        self.gap = self.gap.max(gap);
    }

    /// Latency of so large a share of the batches, in milliseconds.
    pub(super) fn quantile_ms(&self, share: f64) -> f64 {
        self.latency.value_at_quantile(share) as f64 / 1e6
    }
}

/// What both tasks have.
struct Shared {
    inserting: Mutex<Seen>,
    asking: Mutex<Seen>,
    /// Items below this one are acknowledged.
    acknowledged: AtomicU64,
    is_over: AtomicBool,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two callers, each with one batch after the other.
pub(super) struct Callers {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

impl Callers {
    /// Starts them, each with a client of its own, as if they were programs on two machines.
    pub(super) fn start([inserting, asking]: [Client; 2], filter: &str) -> Self {
        let now = Instant::now();
        let shared = Arc::new(Shared {
            inserting: Mutex::new(Seen::since(now)),
            asking: Mutex::new(Seen::since(now)),
            acknowledged: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(insert(inserting.filter(filter), Arc::clone(&shared)));
        tasks.spawn(ask(asking.filter(filter), Arc::clone(&shared)));
        Self { shared, tasks }
    }

    /// What was seen since the last call, by the one that inserts and by the one that asks.
    pub(super) fn take(&self) -> [Seen; 2] {
        [&self.shared.inserting, &self.shared.asking].map(|seen| {
            let mut seen = lock(seen);
            // A gap that has begun goes on.
            let next = Seen::since(seen.answered);
            mem::replace(&mut *seen, next)
        })
    }

    /// Ends them after the calls under way; returns how many items are acknowledged.
    ///
    /// # Errors
    /// If one of them has panicked.
    pub(super) async fn end(mut self) -> Result<u64> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended?;
        }
        Ok(self.shared.acknowledged.load(Ordering::Relaxed))
    }
}

/// Inserts batch after batch; one that failed comes again.
async fn insert(filter: Filter, shared: Arc<Shared>) {
    while !shared.is_over() {
        let first = shared.acknowledged.load(Ordering::Relaxed);
        let started = Instant::now();
        let outcome = filter.insert(batch(first, BATCH_ITEMS)).await;
        if lock(&shared.inserting).note(started, outcome.map(|_| 0)) {
            shared.acknowledged.store(first + BATCH_ITEMS, Ordering::Relaxed);
        } else {
            sleep(PAUSE).await;
        }
    }
}

/// Asks for a batch that is acknowledged, drawn from all of them.
async fn ask(filter: Filter, shared: Arc<Shared>) {
    let mut dice = Dice::new(1);
    while !shared.is_over() {
        let batch_count = shared.acknowledged.load(Ordering::Relaxed) / BATCH_ITEMS;
        if batch_count == 0 {
            sleep(PAUSE).await;
            continue;
        }
        let first = dice.below(batch_count) * BATCH_ITEMS;
        let started = Instant::now();
        let outcome = absent_of(&filter, first, BATCH_ITEMS).await;
        if !lock(&shared.asking).note(started, outcome) {
            sleep(PAUSE).await;
        }
    }
}

/// Asks for all acknowledged items; returns how many are called absent.
///
/// # Errors
/// If the cluster does not answer.
pub(super) async fn absent_count(filter: &Filter, acknowledged: u64) -> Result<u64> {
    let mut absent_count = 0;
    for first in (0..acknowledged).step_by(usize::try_from(CHECK_ITEMS)?) {
        let item_count = CHECK_ITEMS.min(acknowledged - first);
        absent_count += absent_of(filter, first, item_count).await?;
    }
    Ok(absent_count)
}

async fn absent_of(filter: &Filter, first: u64, item_count: u64) -> Result<u64, ClientError> {
    let answers = filter.contains(batch(first, item_count), ReadLevel::Linearizable).await?;
    Ok(answers.iter().filter(|&is_present| !is_present).count() as u64)
}

fn batch(first: u64, item_count: u64) -> Vec<[u8; 8]> {
    (first..first + item_count).map(u64::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn gaps_latencies_and_errors_are_noted() {
        let start = Instant::now();
        let mut seen = Seen::since(start);
        assert!(seen.note(start, Ok(2)));
        let address = "x".to_owned();
        assert!(!seen.note(start, Err(ClientError::Address { address })));
        assert_eq!((seen.wrong_count, seen.failure_count), (2, 1));
        // Far longer than what was noted above took, also on a busy machine.
        seen.record(Duration::from_secs(5), Duration::from_secs(90));
        seen.record(Duration::from_secs(5), Duration::from_secs(10));
        assert_eq!(seen.gap, Duration::from_secs(90));
        assert!((seen.quantile_ms(0.99) - 5000.0).abs() < 100.0, "{}", seen.quantile_ms(0.99));
    }
}
