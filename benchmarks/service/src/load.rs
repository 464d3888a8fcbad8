//! Load on a store: workers in a closed loop, each with a connection of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use umbel_client::PackedBatch;

use crate::check::Falses;
use crate::connection::{Connection, Store, Verb};
use crate::items::{ABSENT_FIRST, Dice, Item};
use crate::processes::{processor_time, rss_bytes};

/// How long workers may take to finish their last batch.
const LAST_BATCH_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the first call of all connections may take.
const PRIMING_TIMEOUT: Duration = Duration::from_secs(60);

/// First of the items that make connections ready.
const PRIMING_FIRST: u64 = 1 << 50;

/// Least time that a figure may come from.
const MEASURED_MIN: Duration = Duration::from_millis(200);

/// Connections and items of a batch when a store is filled before it is measured.
const FILL_CONNECTIONS: usize = 4;
const FILL_BATCH_ITEMS: usize = 10_000;

const WARMING: u8 = 0;
const MEASURING: u8 = 1;
const STOPPED: u8 = 2;

/// What the items of a batch are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Operation {
    /// Items that were never sent before.
    InsertNew,
    /// Items that were inserted before.
    InsertPresent,
    /// Questions; half of the items were inserted.
    Contains,
}

impl Operation {
    pub(crate) const ALL: [Self; 3] = [Self::InsertNew, Self::InsertPresent, Self::Contains];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::InsertNew => "insert-new",
            Self::InsertPresent => "insert-present",
            Self::Contains => "contains",
        }
    }

    pub(crate) const fn verb(self) -> Verb {
        match self {
            Self::InsertNew | Self::InsertPresent => Verb::Insert,
            Self::Contains => Verb::Contains,
        }
    }
}

/// One measurement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Cell {
    pub(crate) operation: Operation,
    pub(crate) batch_items: usize,
    /// Connections, each with one batch in flight.
    pub(crate) in_flight: usize,
}

/// What items there are, and for how long.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Extent {
    /// Items 0 to this one are inserted, unless new ones are.
    pub(crate) present_count: u64,
    /// Most items that are inserted.
    pub(crate) capacity: u64,
    /// Promised rate of false positives; 0 if answers are exact.
    pub(crate) rate: f64,
    /// Load that is not measured yet.
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

/// What came out.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) elapsed: Duration,
    pub(crate) item_count: u64,
    pub(crate) server_time: Duration,
    pub(crate) client_time: Duration,
    /// Latency of batches in nanoseconds.
    pub(crate) latency: Histogram<u64>,
    /// Memory of the servers at the end.
    pub(crate) rss_bytes: u64,
    pub(crate) falses: Falses,
}

struct Shared {
    phase: AtomicU8,
    /// New items that were given out.
    taken: AtomicU64,
    /// Absent items that were given out.
    asked: AtomicU64,
    cell: Cell,
    extent: Extent,
}

/// What one worker did while it was measured; wrong answers count at all times.
struct Tally {
    item_count: u64,
    latency: Histogram<u64>,
    falses: Falses,
}

impl Tally {
    fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, 100_000_000_000, 3);
        let latency = latency.expect("from 1 ns to 100 s with three digits");
        Self { item_count: 0, latency, falses: Falses::default() }
    }
}

/// Inserts items 0 to `item_count` before something is measured; answers are checked.
pub(crate) async fn fill(store: &Store, item_count: u64, rate: f64) -> Result<Falses> {
    let batch_items = FILL_BATCH_ITEMS;
    let (operation, in_flight) = (Operation::InsertNew, FILL_CONNECTIONS);
    let cell = Cell { operation, batch_items, in_flight };
    let (warm_up, measured) = (Duration::ZERO, Duration::ZERO);
    let extent = Extent { present_count: 0, capacity: item_count, rate, warm_up, measured };
    let shared = share(cell, extent);
    let mut workers = start(store.connect(FILL_CONNECTIONS, false).await?, &shared);
    let mut falses = Falses::default();
    while let Some(worker) = workers.join_next().await {
        falses.join(worker??.falses);
    }
    falses.hold_to(rate)?;
    Ok(falses)
}

/// Makes every connection ready: whoever connects lazily, asks for the map of shards or opens a
/// session does so now. An insert inserts one item for it that nothing else asks for.
async fn prime(connections: Vec<Connection>, verb: Verb) -> Result<Vec<Connection>> {
    let mut calls = JoinSet::new();
    for (index, mut connection) in (PRIMING_FIRST..).zip(connections) {
        calls.spawn(async move {
            let mut batch = PackedBatch::from_items([Item::of(index).as_bytes()])?;
            connection.call(verb, &mut batch).await?;
            Ok::<_, anyhow::Error>(connection)
        });
    }
    let mut ready = Vec::new();
    while let Some(connection) = calls.join_next().await {
        ready.push(connection??);
    }
    Ok(ready)
}

/// Runs a cell against a store, whose servers have these process ids.
pub(crate) async fn measure(
    connections: Vec<Connection>,
    cell: Cell,
    extent: Extent,
    servers: &[u32],
) -> Result<Measured> {
    let shared = share(cell, extent);
    let own = [std::process::id()];
    let primed = timeout(PRIMING_TIMEOUT, prime(connections, cell.operation.verb())).await;
    let connections = primed.context("the connections are not ready")??;
    let mut workers = start(connections, &shared);
    ensure!(wait(&mut workers, extent.warm_up).await?.is_none(), too_few(extent));
    let (server_start, client_start) = (processor_time(servers)?, processor_time(&own)?);
    shared.phase.store(MEASURING, Ordering::Relaxed);
    let started = Instant::now();
    let early = wait(&mut workers, extent.measured).await?;
    shared.phase.store(STOPPED, Ordering::Relaxed);
    let elapsed = started.elapsed();
    let server_time = processor_time(servers)?.saturating_sub(server_start);
    let client_time = processor_time(&own)?.saturating_sub(client_start);
    ensure!(elapsed >= MEASURED_MIN.min(extent.measured), too_few(extent));
    let mut whole = early.unwrap_or_else(Tally::new);
    let join = async {
        while let Some(worker) = workers.join_next().await {
            let tally = worker??;
            whole.item_count += tally.item_count;
            whole.latency.add(&tally.latency)?;
            whole.falses.join(tally.falses);
        }
        Ok::<_, anyhow::Error>(())
    };
    timeout(LAST_BATCH_TIMEOUT, join).await.context("the last batches are not answered")??;
    whole.falses.hold_to(extent.rate)?;
    ensure!(whole.item_count > 0, "no batch was answered within {elapsed:?}");
    Ok(Measured {
        elapsed,
        item_count: whole.item_count,
        server_time,
        client_time,
        latency: whole.latency,
        rss_bytes: rss_bytes(servers)?,
        falses: whole.falses,
    })
}

fn too_few(extent: Extent) -> String {
    format!("{} items are inserted too soon: give a larger --capacity", extent.capacity)
}

fn share(cell: Cell, extent: Extent) -> Arc<Shared> {
    let (phase, taken, asked) = (AtomicU8::new(WARMING), AtomicU64::new(0), AtomicU64::new(0));
    Arc::new(Shared { phase, taken, asked, cell, extent })
}

fn start(connections: Vec<Connection>, shared: &Arc<Shared>) -> JoinSet<Result<Tally>> {
    let mut workers = JoinSet::new();
    for (seed, connection) in (1..).zip(connections) {
        workers.spawn(work(connection, Arc::clone(shared), seed));
    }
    workers
}

/// Waits; ends early with the tally of a worker that ran out of items.
async fn wait(workers: &mut JoinSet<Result<Tally>>, time: Duration) -> Result<Option<Tally>> {
    match timeout(time, workers.join_next()).await {
        Err(_) => Ok(None),
        Ok(Some(worker)) => Ok(Some(worker??)),
        Ok(None) => bail!("there are no workers"),
    }
}

async fn work(mut connection: Connection, shared: Arc<Shared>, seed: u64) -> Result<Tally> {
    let (cell, mut dice) = (shared.cell, Dice::new(seed));
    let mut tally = Tally::new();
    let mut batch = PackedBatch::new();
    let mut inserted = Vec::with_capacity(cell.batch_items);
    while shared.phase.load(Ordering::Relaxed) != STOPPED {
        inserted.clear();
        if !shared.take(&mut dice, &mut batch, &mut inserted)? {
            break;
        }
        let started = Instant::now();
        let answers = connection.call(cell.operation.verb(), &mut batch).await?;
        let latency = started.elapsed();
        tally.falses.add(&inserted, &answers)?;
        if shared.phase.load(Ordering::Relaxed) == MEASURING {
            tally.item_count += inserted.len() as u64;
            tally.latency.saturating_record(u64::try_from(latency.as_nanos())?);
        }
    }
    Ok(tally)
}

impl Shared {
    /// Takes items for a batch, and whether each was inserted; false if there are none left.
    fn take(
        &self,
        dice: &mut Dice,
        batch: &mut PackedBatch,
        inserted: &mut Vec<bool>,
    ) -> Result<bool> {
        let batch_items = self.cell.batch_items as u64;
        match self.cell.operation {
            Operation::InsertNew => {
                let first = self.taken.fetch_add(batch_items, Ordering::Relaxed);
                for index in first..(first + batch_items).min(self.extent.capacity) {
                    batch.push(Item::of(index).as_bytes())?;
                    inserted.push(false);
                }
            }
            Operation::InsertPresent => {
                for _ in 0..batch_items {
                    batch.push(Item::of(dice.below(self.extent.present_count)).as_bytes())?;
                    inserted.push(true);
                }
            }
            Operation::Contains => {
                let first = self.asked.fetch_add(batch_items, Ordering::Relaxed);
                for absent in first..first + batch_items {
                    let is_inserted = dice.below(2) == 1;
                    let index = if is_inserted {
                        dice.below(self.extent.present_count)
                    } else {
                        ABSENT_FIRST + absent
                    };
                    batch.push(Item::of(index).as_bytes())?;
                    inserted.push(is_inserted);
                }
            }
        }
        Ok(!inserted.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(operation: Operation) -> Arc<Shared> {
        let cell = Cell { operation, batch_items: 1000, in_flight: 1 };
        let second = Duration::from_secs(1);
        let (warm_up, measured) = (second, second);
        share(cell, Extent { present_count: 10, capacity: 1500, rate: 0.01, warm_up, measured })
    }

    fn take(shared: &Shared, dice: &mut Dice) -> (Vec<Vec<u8>>, Vec<bool>) {
        let (mut batch, mut inserted) = (PackedBatch::new(), Vec::new());
        let is_some = shared.take(dice, &mut batch, &mut inserted).unwrap();
        assert_eq!(is_some, !batch.is_empty());
        (batch.iter().map(<[u8]>::to_vec).collect(), inserted)
    }

    #[test]
    fn new_items_come_once_and_end() {
        let (shared, mut dice) = (shared(Operation::InsertNew), Dice::new(1));
        let counts = [1000, 500, 0].map(|_| take(&shared, &mut dice).0.len());
        assert_eq!(counts, [1000, 500, 0]);
    }

    #[test]
    fn half_of_the_questions_are_about_inserted_items() {
        let (shared, mut dice) = (shared(Operation::Contains), Dice::new(1));
        let (items, inserted) = take(&shared, &mut dice);
        let known: Vec<Vec<u8>> = (0..10).map(|i| Item::of(i).as_bytes().to_vec()).collect();
        let found: Vec<bool> = items.iter().map(|item| known.contains(item)).collect();
        assert_eq!(found, inserted);
        assert!((400..600).contains(&inserted.iter().filter(|&&is| is).count()));
    }

    #[test]
    fn present_items_are_those_that_were_inserted() {
        let (shared, mut dice) = (shared(Operation::InsertPresent), Dice::new(1));
        let (items, inserted) = take(&shared, &mut dice);
        let known: Vec<Vec<u8>> = (0..10).map(|i| Item::of(i).as_bytes().to_vec()).collect();
        assert!(inserted.iter().all(|&is| is) && items.iter().all(|item| known.contains(item)));
    }
}
