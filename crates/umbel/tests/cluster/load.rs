//! Clients that insert and query while a test acts on the cluster.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use umbel_client::proto::import_chunk::Part;
use umbel_client::proto::{ImportChunk, ImportHeader, export_chunk};
use umbel_client::{
    Client, ClientError, ClientOptions, ExportOptions, Filter, Inserted, Kind, NewFilter, Outcome,
    ReadLevel,
};

use crate::history::History;
use crate::servers::{PATIENCE, options, until};

/// Clients that insert, each with its own session.
const WRITER_COUNT: u64 = 16;

/// Batches under way at the same time, each inserted by several clients.
const BATCHES_AT_ONCE: u64 = 6;

/// Items of a batch.
const BATCH_ITEMS: u64 = 64;

/// Items of a query.
const QUESTION_ITEMS: u64 = 200;

/// Tasks that query.
const READER_COUNT: u64 = 3;

/// A filter that has no false positives even with a million items: the sum of the probabilities over all
/// of them is below 10^-4. With one, "new exactly once" would not hold.
pub(crate) fn sharp_filter() -> NewFilter {
    NewFilter { kind: Kind::Classic, ..NewFilter::for_rate(1_000_000, 1e-10) }
}

/// The bytes of an item.
pub(crate) fn item(number: u64) -> Vec<u8> {
    format!("item {number}").into_bytes()
}

/// Creates a replicated filter, and waits until each of so many nodes has its copy: a busy node may make it later than the
/// answer waits for it.
pub(crate) async fn create_with_copies(
    client: &Client,
    name: &str,
    new: &NewFilter,
    node_count: usize,
) {
    client.create(name, new).await.unwrap();
    until(&format!("{node_count} copies of {name}"), || async {
        let copies = client.info(name).await.ok()?.copies;
        let is_all = copies.len() == node_count && copies.iter().all(|copy| copy.is_reachable);
        is_all.then_some(())
    })
    .await;
}

/// Inserts until there is an answer, despite failures; each request keeps its name.
///
/// # Panics
///
/// If an insert is refused, or has no answer within [`PATIENCE`].
pub(crate) async fn insert(filter: &Filter, numbers: &[u64]) -> Inserted {
    let deadline = Instant::now() + PATIENCE;
    let mut outcome = filter.insert(numbers.iter().map(|&number| item(number))).await;
    loop {
        let error = match outcome {
            Ok(inserted) => return inserted,
            Err(error) => error,
        };
        assert!(Instant::now() < deadline, "no answer within {PATIENCE:?}: {error}");
        outcome = match error {
            ClientError::OutcomeUnknown { request, .. } => match request.resend().await {
                Ok(Outcome::Inserted(inserted)) => Ok(inserted),
                Ok(Outcome::Removed(_)) => unreachable!("it was an insert"),
                Err(error) => Err(error),
            },
            // Nothing was inserted.
            ClientError::Unavailable(_) => {
                filter.insert(numbers.iter().map(|&number| item(number))).await
            }
            error => panic!("{error}"),
        };
    }
}

/// Queries until there is an answer.
///
/// # Panics
///
/// As those of [`insert`].
pub(crate) async fn contains(filter: &Filter, numbers: &[u64], level: ReadLevel) -> Vec<bool> {
    until("an answer", || async {
        match filter.contains(numbers.iter().map(|&number| item(number)), level).await {
            Ok(answers) => Some(answers.iter().collect()),
            Err(ClientError::Unavailable(_)) => None,
            Err(error) => panic!("{error}"),
        }
    })
    .await
}

/// Imports a copy of a filter under another name.
pub(crate) async fn copy(client: &Client, from: &str, to: &str) -> Result<(), ClientError> {
    copy_with(client, from, to, ExportOptions::default()).await
}

/// Like `copy`, with options of the export.
pub(crate) async fn copy_with(
    client: &Client,
    from: &str,
    to: &str,
    options: ExportOptions,
) -> Result<(), ClientError> {
    let mut chunks = Vec::new();
    let mut export = client.export_with(from, options).await?;
    while let Some(chunk) = export.next().await? {
        let part = match chunk.part.unwrap() {
            export_chunk::Part::Header(exported) => {
                Part::Header(ImportHeader { name: to.to_owned(), exported: Some(exported) })
            }
            export_chunk::Part::Frame(frame) => Part::Frame(frame),
            export_chunk::Part::End(end) => Part::End(end),
            export_chunk::Part::Change(_) => panic!("nothing was known"),
        };
        chunks.push(ImportChunk { part: Some(part) });
    }
    client.import(tokio_stream::iter(chunks)).await.map(drop)
}

/// State that all tasks share.
struct Shared {
    filter: String,
    history: Mutex<History>,
    next_batch: AtomicU64,
    is_over: AtomicBool,
}

impl Shared {
    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// Running writers and readers.
pub(crate) struct Load {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

impl Load {
    /// Starts the load on a filter: writers know these nodes and learn of others; readers connect to one
    /// of these nodes per query.
    pub(crate) fn begin(filter: &str, addresses: &[String]) -> Self {
        let shared = Arc::new(Shared {
            filter: filter.to_owned(),
            history: Mutex::default(),
            next_batch: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let connect = |_| Client::connect_with(addresses.to_vec(), options()).unwrap();
        let writers: Vec<Client> = (0..WRITER_COUNT).map(connect).collect();
        let mut tasks = JoinSet::new();
        for _ in 0..BATCHES_AT_ONCE {
            tasks.spawn(write(Arc::clone(&shared), writers.clone()));
        }
        for number in 0..READER_COUNT {
            tasks.spawn(ask(Arc::clone(&shared), addresses.to_vec(), number));
        }
        Self { shared, tasks }
    }

    /// Waits until this many more items are acknowledged.
    pub(crate) async fn progress(&mut self, item_count: usize) {
        let start = self.shared.history().acknowledged().len();
        let deadline = Instant::now() + PATIENCE;
        while self.shared.history().acknowledged().len() < start + item_count {
            if let Some(ended) = self.tasks.try_join_next() {
                panic!("a client gave up: {:?}", ended.err());
            }
            assert!(Instant::now() < deadline, "no {item_count} more inserts within {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until this many queries in all are answered.
    pub(crate) async fn questions(&self, count: usize) {
        until("answers to queries", || async {
            (self.shared.history().question_count() >= count).then_some(())
        })
        .await;
    }

    /// Stops after the answers to pending requests; returns all answers.
    pub(crate) async fn finish(mut self) -> History {
        self.shared.is_over.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        std::mem::take(&mut *self.shared.history())
    }
}

/// Inserts batch after batch, each by two to four clients at the same time.
async fn write(shared: Arc<Shared>, writers: Vec<Client>) {
    while !shared.is_over() {
        let batch = shared.next_batch.fetch_add(1, Ordering::Relaxed);
        let mut inserts = JoinSet::new();
        for copy in 0..2 + batch % 3 {
            // Five and sixteen are coprime, so these are different clients.
            let writer = (batch * 7 + copy * 5) % WRITER_COUNT;
            let filter = writers[usize::try_from(writer).unwrap()].filter(&shared.filter);
            let shared = Arc::clone(&shared);
            inserts.spawn(async move {
                // Each client sends the items in another order.
                let turned = |at| batch * BATCH_ITEMS + (at + copy * 17) % BATCH_ITEMS;
                let numbers: Vec<u64> = (0..BATCH_ITEMS).map(turned).collect();
                let inserted = insert(&filter, &numbers).await;
                let mut history = shared.history();
                for (&number, is_new) in numbers.iter().zip(inserted.iter()) {
                    history.inserted(number, is_new);
                }
            });
        }
        while let Some(ended) = inserts.join_next().await {
            ended.unwrap();
        }
    }
}

/// Queries items that were acknowledged before, through one node after the other, at both levels.
async fn ask(shared: Arc<Shared>, addresses: Vec<String>, number: u64) {
    let connect = |address: &String| {
        let options =
            ClientOptions { timeout: Duration::from_secs(2), learns_nodes: false, ..options() };
        let client = Client::connect_with(address.as_str(), options).unwrap();
        client.filter(&shared.filter)
    };
    let filters: Vec<Filter> = addresses.iter().map(connect).collect();
    let mut draws = Draws(number);
    while !shared.is_over() {
        let numbers = draw_acknowledged(&shared.history(), &mut draws);
        if numbers.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        let filter = &filters[draws.below(filters.len())];
        let level = [ReadLevel::Linearizable, ReadLevel::AnyReplica][draws.below(2)];
        let asked = filter.contains(numbers.iter().map(|&number| item(number)), level).await;
        match asked {
            Ok(answers) => {
                let mut history = shared.history();
                for (&number, is_present) in numbers.iter().zip(answers.iter()) {
                    history.asked(number, is_present);
                }
            }
            // The node is down or isolated. It may fail, but must not answer "absent".
            Err(ClientError::Unavailable(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Half of the items are drawn from all, half from the newest ones.
fn draw_acknowledged(history: &History, draws: &mut Draws) -> Vec<u64> {
    let all = history.acknowledged();
    if all.is_empty() {
        return Vec::new();
    }
    let newest = &all[all.len().saturating_sub(500)..];
    let from = |at: u64| if at.is_multiple_of(2) { all } else { newest };
    (0..QUESTION_ITEMS).map(|at| from(at)[draws.below(from(at).len())]).collect()
}

/// Pseudo-random numbers (`SplitMix64`), the same in every run.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from(((mixed >> 32) * bound as u64) >> 32).unwrap()
    }
}
