//! How long a node with a long log needs until it is ready.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use tokio::time::{Instant, sleep, timeout};
use umbel_client::{Filter, ReadLevel};

use crate::connection::Store;
use crate::idle::{page, sum_of};
use crate::items::{Dice, Item};
use crate::load::fill;
use crate::system::{Places, Request, SYSTEMS, Servers};
use crate::table::{grouped, save};

/// Rate of wrong answers of the filter.
const RATE: f64 = 0.01;

/// Bytes of the log that an item takes.
const HASH_BYTES: u64 = 16;

/// Limit of the log by its length: a shard whose log is longer than a quarter of the limit writes a snapshot, and even
/// if one shard has all of it none may.
const LIMIT_PER_LENGTH: u64 = 8;

/// Lowest limit that a node accepts.
const LIMIT_MIN: u64 = 16 << 20;

/// How long filling may take.
const FILL_TIMEOUT: Duration = Duration::from_secs(1800);

/// Nodes measure their log once a second.
const MEASURED_PAUSE: Duration = Duration::from_secs(3);

/// How long a start may take.
const START_PATIENCE: Duration = Duration::from_secs(600);

/// Pause between two looks whether the node is ready, and how long a look may take.
const LOOK_PAUSE: Duration = Duration::from_millis(5);
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// Batches that are asked for after each start, and items of each.
const CHECKED_BATCHES: u64 = 100;
const CHECKED_ITEMS: u64 = 1000;

/// Length of the log, and number of starts.
#[derive(Args, Clone, Debug)]
pub(crate) struct StartArgs {
    /// MiB of hashes in the log that the node starts with
    #[arg(long, default_value_t = 1024, value_name = "MIB",
        value_parser = clap::value_parser!(u64).range(1..=16_384))]
    start_log_mib: u64,
    /// Shards of the node
    #[arg(long, default_value_t = 16, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    start_shards: u32,
    /// Starts, each after a `kill -9`
    #[arg(long, default_value_t = 3, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=99))]
    start_rounds: u32,
}

impl StartArgs {
    /// So small that it takes seconds.
    pub(crate) fn shrink(&mut self) {
        self.start_log_mib = self.start_log_mib.min(4);
        self.start_rounds = 1;
    }
}

/// One start.
struct Row {
    /// As the node measured it before it was killed.
    log_bytes: f64,
    elapsed: Duration,
}

/// Measures, and writes `start.csv` and `start.md`.
///
/// # Errors
/// If the server failed, or lacks an item after a start.
pub(crate) async fn run(
    args: &StartArgs,
    places: &Places,
    out: &Path,
    machine: &str,
) -> Result<()> {
    // There is no flag for the limit of the log.
    let settings = places.data.join(format!("start-{}.toml", std::process::id()));
    let limit = ((args.start_log_mib << 20) * LIMIT_PER_LENGTH).max(LIMIT_MIN);
    std::fs::write(&settings, format!("log_bytes_max = {limit}\n"))
        .with_context(|| settings.display().to_string())?;
    let rows = run_all(args, places, &settings).await;
    std::fs::remove_file(&settings).with_context(|| settings.display().to_string())?;
    let rows = rows?;
    let text = format!("### Start\n\n{}\n", markdown(args, &rows));
    println!("{text}");
    save(out, "start.csv", &csv(&rows))?;
    save(out, "start.md", &format!("{machine}\n{text}"))
}

async fn run_all(args: &StartArgs, places: &Places, settings: &Path) -> Result<Vec<Row>> {
    // One node with fsync.
    let [_, _, system, ..] = SYSTEMS;
    let (settings, shards) = (settings.display().to_string(), args.start_shards.to_string());
    let more = ["--config", &settings, "--shards", &shards];
    let mut servers = Servers::start(system, places, &more).await?;
    let item_count = (args.start_log_mib << 20) / HASH_BYTES;
    eprintln!("start: {} items", grouped(item_count as f64));
    let store = Store::empty(&servers, Request::Keyed, item_count, RATE).await?;
    let filled = timeout(FILL_TIMEOUT, fill(&store, item_count, RATE)).await;
    filled.with_context(|| format!("not filled within {FILL_TIMEOUT:?}"))??;
    let mut rows = Vec::new();
    for round in 1..=args.start_rounds {
        sleep(MEASURED_PAUSE).await;
        let log_bytes = log_bytes(&servers.addresses[0]).await?;
        servers.process(0).end();
        let started = Instant::now();
        servers.restart(0)?;
        until_ready(&mut servers).await?;
        let elapsed = started.elapsed();
        eprintln!("start, round {round}: {:.2} s", elapsed.as_secs_f64());
        check_present(&servers.client()?.filter(store.name()), item_count).await?;
        rows.push(Row { log_bytes, elapsed });
    }
    Ok(rows)
}

/// Bytes of the log of the node at this address.
async fn log_bytes(address: &str) -> Result<f64> {
    let page = timeout(LOOK_TIMEOUT, page(address, "/metrics")).await;
    sum_of(&page.context("no metrics")??, "umbel_wal_bytes").context("the log is not measured")
}

/// Waits until the node says that it is ready.
async fn until_ready(servers: &mut Servers) -> Result<()> {
    let started = Instant::now();
    loop {
        servers.check_alive()?;
        let ready = timeout(LOOK_TIMEOUT, page(&servers.addresses[0], "/readyz")).await;
        if ready.is_ok_and(|page| page.is_ok()) {
            return Ok(());
        }
        ensure!(started.elapsed() < START_PATIENCE, "not ready after {START_PATIENCE:?}");
        sleep(LOOK_PAUSE).await;
    }
}

/// # Errors
/// If an inserted item of those that are drawn is absent.
async fn check_present(filter: &Filter, item_count: u64) -> Result<()> {
    let mut dice = Dice::new(1);
    for _ in 0..CHECKED_BATCHES {
        let items: Vec<Item> =
            (0..CHECKED_ITEMS).map(|_| Item::of(dice.below(item_count))).collect();
        let bytes = items.iter().map(Item::as_bytes);
        let present = filter.contains(bytes, ReadLevel::Linearizable).await?;
        ensure!(present.iter().all(|is_present| is_present), "an item is absent after the start");
    }
    Ok(())
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1_u32 << 20)
}

fn csv(rows: &[Row]) -> String {
    let mut text = "round,log_bytes,seconds,mib_per_s\n".to_owned();
    for (round, Row { log_bytes, elapsed }) in (1..).zip(rows) {
        let seconds = elapsed.as_secs_f64();
        let rate = mib(*log_bytes) / seconds;
        writeln!(text, "{round},{log_bytes:.0},{seconds:.3},{rate:.1}")
            .expect("a string takes everything");
    }
    text
}

fn markdown(args: &StartArgs, rows: &[Row]) -> String {
    let mut text = format!(
        "One node with fsync, {} shards with one replica each, no snapshot; from `kill -9` and a new process to 200 of `/readyz`, the \
         log in the page cache.\n\n| start | log, MiB | s | MiB/s |\n|--:|--:|--:|--:|\n",
        args.start_shards
    );
    for (round, Row { log_bytes, elapsed }) in (1..).zip(rows) {
        let (length, seconds) = (mib(*log_bytes), elapsed.as_secs_f64());
        let (length, rate) = (grouped(length), grouped(length / seconds));
        writeln!(text, "| {round} | {length} | {seconds:.2} | {rate} |")
            .expect("a string takes everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_their_units() {
        let rows =
            [Row { log_bytes: f64::from(3_u32 << 20), elapsed: Duration::from_millis(1500) }];
        assert!(csv(&rows).ends_with("\n1,3145728,1.500,2.0\n"));
        let args = StartArgs { start_log_mib: 3, start_shards: 4, start_rounds: 1 };
        let text = markdown(&args, &rows);
        assert!(text.ends_with("\n| 1 | 3.0 | 1.50 | 2.0 |\n"), "{text}");
    }
}
