//! A client that does nothing wrong; every one of its calls must be answered in time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};
use umbel_client::{Client, ClientError, NewFilter, ReadLevel};

use crate::servers::until;

/// The filter that it uses.
pub(crate) const FILTER: &str = "honest";

/// Longest duration of a call: many times what it takes on a machine whose two cores are busy with an attack, and no longer
/// than what a node gives a stranger that reads nothing, so that who is starved until then is noticed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// The shortest interval between calls. It is well above the time that a node needs for a call, so that
/// an attack that merely keeps the processor busy is distinguished from one that starves other clients.
const PACE: Duration = Duration::from_millis(20);

/// Items per call.
const BATCH_ITEMS: u64 = 50;

/// Makes a client with its own connection; clones of a client share one.
pub(crate) type Connect = Box<dyn Fn() -> Client + Send + Sync>;

/// The honest client, as the module describes it.
pub(crate) struct Honest {
    connect: Connect,
    counts: Arc<Counts>,
    task: Option<JoinHandle<Result<(), String>>>,
}

#[derive(Default)]
struct Counts {
    calls: AtomicU64,
    slowest_ms: AtomicU64,
    is_over: AtomicBool,
    /// Why a call failed.
    failure: OnceLock<String>,
}

impl Honest {
    /// Creates its filter and starts.
    pub(crate) async fn begin(connect: Connect) -> Self {
        connect().create(FILTER, &NewFilter::for_rate(1_000_000, 1e-6)).await.unwrap();
        let mut honest = Self { connect, counts: Arc::default(), task: None };
        honest.goes_on();
        honest
    }

    /// Continues after it has finished.
    pub(crate) fn goes_on(&mut self) {
        self.counts.is_over.store(false, Ordering::SeqCst);
        self.task = Some(tokio::spawn(work(self.client(), Arc::clone(&self.counts))));
    }

    /// Another client with the same rights and its own connection.
    pub(crate) fn client(&self) -> Client {
        (self.connect)()
    }

    fn calls(&self) -> u64 {
        self.counts.calls.load(Ordering::SeqCst)
    }

    /// The longest duration of a call so far.
    pub(crate) fn slowest(&self) -> Duration {
        Duration::from_millis(self.counts.slowest_ms.load(Ordering::SeqCst))
    }

    /// Waits until it has made this many further calls.
    pub(crate) async fn makes_calls(&self, count: u64) {
        let begun = self.calls();
        until("further calls of the honest client", || async {
            let has_ended = self.task.as_ref().is_some_and(JoinHandle::is_finished);
            (has_ended || self.calls() >= begun + count).then_some(())
        })
        .await;
        let failure = self.counts.failure.get();
        assert!(self.calls() >= begun + count, "a call of the honest client failed: {failure:?}");
    }

    /// The number of calls that it makes in a period.
    pub(crate) async fn count_for(&self, period: Duration) -> u64 {
        let begun = self.calls();
        tokio::time::sleep(period).await;
        self.calls() - begun
    }

    /// Checks that a client with a new connection is served, too.
    pub(crate) async fn comes_anew(&self) {
        let anew = self.client();
        let asked = tokio::time::timeout(DEADLINE, anew.info(FILTER)).await;
        asked.expect("a new connection is answered").unwrap();
    }

    /// Stops it; panics if any call failed.
    pub(crate) async fn finish(&mut self) {
        self.counts.is_over.store(true, Ordering::SeqCst);
        self.task.take().unwrap().await.unwrap().unwrap();
    }
}

async fn work(client: Client, counts: Arc<Counts>) -> Result<(), String> {
    let filter = client.filter(FILTER);
    let mut pace = tokio::time::interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0_u64.. {
        if counts.is_over.load(Ordering::SeqCst) {
            break;
        }
        pace.tick().await;
        let items = || (0..BATCH_ITEMS).map(move |at| format!("{} of {}", at, number / 2));
        let began = Instant::now();
        let call = async {
            if number % 2 == 0 {
                filter.insert(items()).await.map(drop)
            } else {
                let found = filter.contains(items(), ReadLevel::Linearizable).await?;
                assert!(found.iter().all(|is_present| is_present), "an acknowledged item is gone");
                Ok::<(), ClientError>(())
            }
        };
        let called = tokio::time::timeout(DEADLINE, call).await;
        let called = called.map_err(|_| format!("no answer within {DEADLINE:?}"));
        let called = called.and_then(|answered| answered.map_err(|error| error.to_string()));
        if let Err(failure) = &called {
            counts.failure.get_or_init(|| failure.clone());
        }
        called?;
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap();
        counts.slowest_ms.fetch_max(ms, Ordering::SeqCst);
        counts.calls.fetch_add(1, Ordering::SeqCst);
    }
    Ok(())
}
