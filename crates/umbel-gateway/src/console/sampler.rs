//! Takes samples once for all pages that watch the same topic, and only while a page watches.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use futures_util::future::OptionFuture;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use umbel_ports::locked;

use super::events::view_event;
use super::places::Places;
use super::query::Page;
use super::views::View;

/// Samples with counted figures that are taken at once: a view of filters asks every shard, and many
/// pages that show different filters must not all ask together. Samples without counting do not wait for
/// these.
const COUNTS_AT_ONCE_MAX: usize = 4;

/// Bytes of snapshots that a node writes to all pages together in a second, on average: some hundredths
/// of a core. If many pages watch large samples, these are sent less often.
const WRITTEN_BYTES_PER_SECOND_MAX: u64 = 16 << 20;

/// What a stream watches: streams of the same topic show the same.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Topic {
    pub(super) view: View,
    pub(super) page: Page,
    /// The principal by whose rights content is shown; empty for callers that may see everything, or if
    /// all callers see the same.
    pub(super) owner: String,
}

/// How much a sample contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Depth {
    /// What exists, without counted figures; it is available at once.
    Listed,
    /// Everything.
    Counted,
}

/// The newest sample as an encoded event, which all watchers share; None before the first.
pub(super) type Latest = Option<Bytes>;

/// The topics that are watched now.
pub(super) struct Topics {
    /// One entry for each running sampler; there are no more than streams.
    open: Mutex<BTreeMap<Topic, watch::Sender<Latest>>>,
    turns: Semaphore,
    /// The places of all streams; their count determines the pauses.
    places: Arc<Places>,
}

/// The pause that keeps the bytes written to this many pages within the limit.
fn pause_for(pages: usize, byte_count: usize) -> Duration {
    let bytes = (pages as u64).saturating_mul(byte_count as u64);
    Duration::from_millis(bytes.saturating_mul(1000) / WRITTEN_BYTES_PER_SECOND_MAX)
}

impl Topics {
    pub(super) fn new(places: Arc<Places>) -> Self {
        Self { open: Mutex::default(), turns: Semaphore::new(COUNTS_AT_ONCE_MAX), places }
    }

    /// Watches a topic: the receiver gets each sample that differs from the one before, beginning with
    /// the newest. The first watcher of a topic provides the function that takes its samples.
    pub(super) fn watch<S, F>(self: &Arc<Self>, topic: Topic, sample: S) -> watch::Receiver<Latest>
    where
        S: Fn(Depth) -> F + Send + Sync + 'static,
        F: Future<Output = String> + Send,
    {
        let mut open = locked(&self.open);
        if let Some(sender) = open.get(&topic) {
            let mut latest = sender.subscribe();
            latest.mark_changed();
            return latest;
        }
        let (sender, latest) = watch::channel(None);
        open.insert(topic.clone(), sender.clone());
        drop(open);
        let topics = Arc::clone(self);
        tokio::spawn(async move { topics.run(&topic, &sender, sample).await });
        latest
    }

    async fn run<S, F>(&self, topic: &Topic, sender: &watch::Sender<Latest>, sample: S)
    where
        S: Fn(Depth) -> F,
        F: Future<Output = String>,
    {
        let take = async |depth| {
            if depth == Depth::Listed {
                return (sample(depth).await, Duration::ZERO);
            }
            let turn = topic.view.counts().then(|| self.turns.acquire());
            let _turn = OptionFuture::from(turn).await;
            let began = Instant::now();
            let sampled = sample(depth).await;
            (sampled, topic.view.pause_after(began.elapsed()))
        };
        let mut depth = topic.view.first_depth();
        while !self.end_unwatched(topic, sender) {
            let (sampled, pause) = tokio::select! {
                biased;
                () = sender.closed() => continue,
                taken = take(depth) => taken,
            };
            depth = Depth::Counted;
            let message = view_event(&sampled);
            let byte_count = message.len();
            let is_new = sender.send_if_modified(|latest| {
                let is_new = latest.as_ref() != Some(&message);
                if is_new {
                    *latest = Some(message);
                }
                is_new
            });
            let pause =
                if is_new { pause.max(pause_for(self.places.count(), byte_count)) } else { pause };
            tokio::select! {
                biased;
                () = sender.closed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Removes a topic that nobody watches any more; returns whether it did.
    fn end_unwatched(&self, topic: &Topic, sender: &watch::Sender<Latest>) -> bool {
        let mut open = locked(&self.open);
        let is_unwatched = sender.receiver_count() == 0;
        if is_unwatched {
            open.remove(topic);
        }
        is_unwatched
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(2);

    fn topics() -> Arc<Topics> {
        Arc::new(Topics::new(Arc::default()))
    }

    /// The event for a count.
    fn message(count: u32) -> Latest {
        Some(view_event(&count.to_string()))
    }

    fn topic(owner: &str) -> Topic {
        Topic { view: View::Cluster, page: Page::default(), owner: owner.to_owned() }
    }

    /// Takes samples that count themselves and differ only at every third.
    fn counting(count: &Arc<AtomicU32>) -> impl Fn(Depth) -> std::future::Ready<String> + use<> {
        let count = Arc::clone(count);
        move |_| std::future::ready((count.fetch_add(1, Ordering::SeqCst) / 3).to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn watchers_of_a_topic_share_samples_and_receive_only_changes() {
        let (topics, count) = (topics(), Arc::<AtomicU32>::default());
        let began = Instant::now();
        let mut one = topics.watch(topic(""), counting(&count));
        one.wait_for(Option::is_some).await.unwrap();
        let mut two = topics.watch(topic(""), counting(&count));
        assert!(two.has_changed().unwrap(), "the newest comes at once");
        assert_eq!(*two.borrow_and_update(), message(0));
        one.changed().await.unwrap();
        assert_eq!(*one.borrow(), message(1));
        assert_eq!((count.load(Ordering::SeqCst), began.elapsed()), (4, 3 * INTERVAL));
        two.changed().await.unwrap();
        assert_eq!(locked(&topics.open).len(), 1);
    }

    #[test]
    fn many_watchers_of_large_samples_are_sent_them_seldom() {
        assert_eq!(pause_for(3, 20_000), Duration::from_millis(3));
        let crowd = pause_for(1000, 300_000);
        assert!(crowd > Duration::from_secs(15) && crowd < Duration::from_secs(20), "{crowd:?}");
        assert!(pause_for(usize::MAX, usize::MAX) > Duration::from_secs(1));
    }

    /// Watchers of a topic share the same bytes, not copies of them.
    #[tokio::test(start_paused = true)]
    async fn an_event_is_encoded_once() {
        let (topics, count) = (topics(), Arc::<AtomicU32>::default());
        let mut one = topics.watch(topic(""), counting(&count));
        one.wait_for(Option::is_some).await.unwrap();
        let two = topics.watch(topic(""), counting(&count));
        let at = |latest: &watch::Receiver<Latest>| latest.borrow().as_ref().unwrap().as_ptr();
        assert_eq!(at(&one), at(&two));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_sampled_when_nobody_watches() {
        let (topics, count) = (topics(), Arc::<AtomicU32>::default());
        let mut one = topics.watch(topic("a"), counting(&count));
        let two = topics.watch(topic("b"), counting(&count));
        one.wait_for(Option::is_some).await.unwrap();
        drop((one, two));
        tokio::time::sleep(10 * INTERVAL).await;
        assert!(locked(&topics.open).is_empty() && count.load(Ordering::SeqCst) <= 2);
        let mut again = topics.watch(topic("a"), counting(&count));
        again.wait_for(Option::is_some).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_counted_for_long_is_counted_seldom() {
        let topics = topics();
        let filters = Topic { view: View::Filters, ..topic("") };
        let count = Arc::<AtomicU32>::default();
        let counted = Arc::clone(&count);
        let mut one = topics.watch(filters, move |depth| {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                if depth == Depth::Counted {
                    tokio::time::sleep(Duration::from_secs(3)).await;
                }
                number.to_string()
            }
        });
        let began = Instant::now();
        // The listed sample arrives at once.
        one.wait_for(|latest| *latest == message(0)).await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);
        one.wait_for(|latest| *latest == message(1)).await.unwrap();
        let began = Instant::now();
        one.changed().await.unwrap();
        assert_eq!(began.elapsed(), Duration::from_secs(15));
    }

    #[tokio::test(start_paused = true)]
    async fn a_sample_that_hangs_ends_with_who_watches() {
        let topics = topics();
        let watching: Vec<_> = (0..2 * COUNTS_AT_ONCE_MAX)
            .map(|at| Topic { view: View::Cube, ..topic(&at.to_string()) })
            .map(|filters| topics.watch(filters, |_| std::future::pending()))
            .collect();
        tokio::time::sleep(INTERVAL).await;
        assert_eq!(topics.turns.available_permits(), 0);
        let mut cluster = topics.watch(topic(""), counting(&Arc::default()));
        cluster.changed().await.unwrap();
        drop(cluster);
        drop(watching);
        tokio::time::sleep(INTERVAL).await;
        assert!(locked(&topics.open).is_empty());
        assert_eq!(topics.turns.available_permits(), COUNTS_AT_ONCE_MAX);
    }
}
