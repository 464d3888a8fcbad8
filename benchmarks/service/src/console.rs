//! What open pages of the console cost a node, and how soon a view is there.

use std::fmt::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use umbel_client::{Client, NewFilter};

use crate::processes::{processor_time, rss_bytes};
use crate::system::{Places, SYSTEMS, Servers};
use crate::table::{grouped, save};

/// The views of a console, by their names in addresses.
const VIEWS: [&str; 5] = ["cluster", "filters", "jobs", "cube", "repair"];

/// Quiet after filters are made, before anything is measured.
const SETTLE: Duration = Duration::from_secs(10);

/// How long a first snapshot may take.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(30);

/// Begins an event that shows something.
const SNAPSHOT: &[u8] = b"event: snapshot";

/// Pages that are opened at once: more would wait in the system's queue of connections.
const OPENED_AT_ONCE: usize = 64;

/// Items of a batch that keeps the cluster busy, and the pause after each.
const BATCH: u32 = 500;
const BATCH_PAUSE: Duration = Duration::from_millis(100);

/// Size of the cluster, and of the crowd.
#[derive(Args, Clone, Debug)]
pub(crate) struct ConsoleArgs {
    /// Shards, with three replicas each on three nodes [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    console_shards: Option<u32>,
    /// Filters [default: 200]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    filters: Option<u32>,
    /// Open pages of one node, of all views in turn [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pages: Option<u32>,
    /// How often the pages are opened and closed again: what a node keeps of them shows by that [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    page_rounds: Option<u32>,
    /// Seconds of each measurement [default: 30]
    #[arg(long)]
    console_seconds: Option<f64>,
    /// Asks nothing beside, so that snapshots do not change
    #[arg(long)]
    quiet: bool,
}

impl ConsoleArgs {
    /// So small that it takes seconds, but for what is named.
    pub(crate) fn shrink(&mut self) {
        self.console_seconds.get_or_insert(2.0);
        self.console_shards.get_or_insert(4);
        self.filters.get_or_insert(4);
        self.pages.get_or_insert(16);
    }

    fn sizes(&self) -> Sizes {
        Sizes {
            shards: self.console_shards.unwrap_or(64),
            filters: self.filters.unwrap_or(200),
            pages: self.pages.unwrap_or(1000),
            rounds: self.page_rounds.unwrap_or(1),
            seconds: self.console_seconds.unwrap_or(30.0),
        }
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    shards: u32,
    filters: u32,
    pages: u32,
    rounds: u32,
    seconds: f64,
}

/// How soon a view is there, and how large it is.
struct Seen {
    view: &'static str,
    took: Duration,
    byte_count: usize,
}

/// What the node with the pages cost over a time.
struct Cost {
    what: &'static str,
    cores: f64,
    rss_mib: f64,
    bytes_per_second: f64,
}

/// Measures, and writes `console.md`.
///
/// # Errors
/// If a cluster failed.
pub(crate) async fn run(
    args: &ConsoleArgs,
    places: &Places,
    out: &Path,
    machine: &str,
) -> Result<()> {
    let sizes = args.sizes();
    let is_right = (0.5..=3600.0).contains(&sizes.seconds);
    ensure!(is_right, "--console-seconds: expected 0.5 to 3600");
    let system = SYSTEMS.into_iter().find(|system| system.name == "umbel-3");
    let system = system.context("there is no system umbel-3")?;
    let shards = sizes.shards.to_string();
    let servers = Servers::start(system, places, &["--shards", &shards, "--replicas", "3"]).await?;
    let client = servers.client()?;
    eprintln!("console: {} filters in {shards} shards", sizes.filters);
    for filter in 0..sizes.filters {
        client.create(&name(filter), &NewFilter::for_rate(10_000, 0.001)).await?;
    }
    sleep(SETTLE).await;
    let goes_on = Arc::new(AtomicBool::new(!args.quiet));
    let busy = tokio::spawn(keep_busy(client, sizes.filters, Arc::clone(&goes_on)));
    let mut seen = Vec::new();
    for view in VIEWS {
        seen.push(look(&servers.addresses[0], view).await.context(view)?);
    }
    let costs = crowd(sizes, &servers).await?;
    goes_on.store(false, Ordering::Relaxed);
    busy.await??;
    let text = format!("### Console\n\n{}", markdown(sizes, args.quiet, &seen, &costs));
    println!("{text}");
    save(out, "console.md", &format!("{machine}\n{text}"))
}

fn name(filter: u32) -> String {
    format!("crawl.{filter:04}")
}

/// Inserts a little, again and again, so that snapshots change.
async fn keep_busy(client: Client, filters: u32, goes_on: Arc<AtomicBool>) -> Result<()> {
    let mut next = 0_u32;
    while goes_on.load(Ordering::Relaxed) {
        let items: Vec<String> = (0..BATCH).map(|item| format!("{next} {item}")).collect();
        client.filter(&name(next % filters)).insert(items).await?;
        next = next.wrapping_add(1);
        sleep(BATCH_PAUSE).await;
    }
    Ok(())
}

/// Opens a page as its script does, up to its first snapshot.
async fn look(address: &str, view: &'static str) -> Result<Seen> {
    let began = Instant::now();
    let mut stream = opened(address, view).await?;
    let mut read = Vec::new();
    let is_whole = |read: &[u8]| {
        let at = read.windows(SNAPSHOT.len()).position(|window| window == SNAPSHOT);
        at.is_some_and(|at| read[at..].windows(2).any(|window| window == b"\n\n"))
    };
    let reading = async {
        while !is_whole(&read) {
            ensure!(stream.read_buf(&mut read).await? > 0, "the stream ended");
        }
        Ok(())
    };
    timeout(SNAPSHOT_TIMEOUT, reading).await.context("no snapshot")??;
    Ok(Seen { view, took: began.elapsed(), byte_count: read.len() })
}

async fn opened(address: &str, view: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!("GET /console/events/{view} HTTP/1.1\r\nhost: {address}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    Ok(stream)
}

/// Measures the first node without pages, and how it goes on from there.
async fn crowd(sizes: Sizes, servers: &Servers) -> Result<Vec<Cost>> {
    let id = servers.ids()[0];
    let bytes = Arc::new(AtomicU64::new(0));
    let mut costs = vec![cost("none open", sizes, id, &bytes).await?];
    for round in 1..=sizes.rounds {
        eprintln!("console: {} pages, round {round} of {}", sizes.pages, sizes.rounds);
        open_and_close(sizes, servers, &bytes, &mut costs).await?;
    }
    Ok(costs)
}

/// Measures the first node with pages, and when they are closed again.
async fn open_and_close(
    sizes: Sizes,
    servers: &Servers,
    bytes: &Arc<AtomicU64>,
    costs: &mut Vec<Cost>,
) -> Result<()> {
    let id = servers.ids()[0];
    let mut pages = JoinSet::new();
    let all = 0..usize::try_from(sizes.pages)?;
    for some in chunks(all, OPENED_AT_ONCE) {
        for page in some {
            let stream = opened(&servers.addresses[0], VIEWS[page % VIEWS.len()]).await?;
            pages.spawn(follow(stream, Arc::clone(bytes)));
        }
        sleep(Duration::from_millis(100)).await;
    }
    sleep(SETTLE).await;
    costs.push(cost("open", sizes, id, bytes).await?);
    ensure!(pages.try_join_next().is_none(), "a page was closed by its node");
    pages.shutdown().await;
    sleep(SETTLE).await;
    costs.push(cost("closed again", sizes, id, bytes).await?);
    Ok(())
}

fn chunks(all: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    let end = all.end;
    all.step_by(size).map(move |start| start..(start + size).min(end))
}

/// Reads what comes, until there is no more.
async fn follow(mut stream: TcpStream, bytes: Arc<AtomicU64>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        bytes.fetch_add(count as u64, Ordering::Relaxed);
    }
}

async fn cost(what: &'static str, sizes: Sizes, id: u32, bytes: &AtomicU64) -> Result<Cost> {
    let (time_start, bytes_start) = (processor_time(&[id])?, bytes.load(Ordering::Relaxed));
    let began = Instant::now();
    sleep(Duration::from_secs_f64(sizes.seconds)).await;
    let (time, elapsed) = (processor_time(&[id])?.saturating_sub(time_start), began.elapsed());
    let byte_count = bytes.load(Ordering::Relaxed) - bytes_start;
    Ok(Cost {
        what,
        cores: time.as_secs_f64() / elapsed.as_secs_f64(),
        rss_mib: rss_bytes(&[id])? as f64 / f64::from(1 << 20),
        bytes_per_second: byte_count as f64 / elapsed.as_secs_f64(),
    })
}

fn markdown(sizes: Sizes, is_quiet: bool, seen: &[Seen], costs: &[Cost]) -> String {
    let Sizes { shards, filters, pages, seconds, .. } = sizes;
    let mut text = format!(
        "Three nodes, {shards} shards, {filters} filters, {}; {pages} pages of all views in turn \
         on one node, {seconds} s each.\n\n| view | first snapshot, ms | bytes |\n|---|--:|--:|\n",
        if is_quiet { "nothing asked beside" } else { "5,000 items a second inserted beside" },
    );
    let line = |text: &mut String, line: std::fmt::Arguments<'_>| {
        text.write_fmt(line).expect("a string takes everything");
    };
    for Seen { view, took, byte_count } in seen {
        let (took, bytes) = (took.as_secs_f64() * 1e3, grouped(*byte_count as f64));
        line(&mut text, format_args!("| {view} | {took:.0} | {bytes} |\n"));
    }
    text += "\n| pages | % of one core, their node | RSS MiB, their node | KB a second, all pages |\n\
             |---|--:|--:|--:|\n";
    for Cost { what, cores, rss_mib, bytes_per_second } in costs {
        let (percent, kb) = (cores * 100.0, grouped(bytes_per_second / 1e3));
        line(&mut text, format_args!("| {what} | {percent:.1} | {rss_mib:.1} | {kb} |\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_opened_in_groups() {
        let groups: Vec<_> = chunks(0..130, 64).collect();
        assert_eq!(groups, [0..64, 64..128, 128..130]);
    }
}
