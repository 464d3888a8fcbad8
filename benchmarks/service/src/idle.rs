//! What a cluster costs that nobody asks anything.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use umbel_client::Client;

use crate::failover::even;
use crate::processes::{processor_time, rss_bytes};
use crate::system::{Places, SYSTEMS, Servers};
use crate::table::{grouped, median, save};

/// Quiet after the shards have leaders, each at its home, before anything is measured.
const SETTLE: Duration = Duration::from_secs(10);

/// Longest page that is read.
const PAGE_BYTES_MAX: u64 = 16 << 20;

/// How long a page of metrics may take.
const METRICS_TIMEOUT: Duration = Duration::from_secs(5);

/// Counts changes of leaders that a node saw.
const LEADER_CHANGES: &str = "umbel_leader_changes_total";

/// Size of the cluster.
#[derive(Args, Clone, Debug)]
pub(crate) struct IdleArgs {
    /// Shards, with three replicas each on three nodes
    #[arg(long, default_value_t = 64, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    shards: u32,
    /// Seconds that are measured
    #[arg(long, default_value_t = 30.0)]
    idle_seconds: f64,
    /// Clusters, one after the other
    #[arg(long, default_value_t = 3, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=99))]
    idle_rounds: u32,
}

impl IdleArgs {
    /// So small that it takes seconds.
    pub(crate) fn shrink(&mut self) {
        self.idle_seconds = self.idle_seconds.min(2.0);
        self.idle_rounds = 1;
    }
}

/// One cluster.
struct Row {
    /// Processor time of all nodes by wall time.
    cores: f64,
    /// As the nodes count them; None if they do not.
    leader_changes: Option<f64>,
    /// Shards that have another leader at the end than at the start.
    moved_count: usize,
    rss_mb: f64,
}

/// Measures, and writes `idle.csv` and `idle.md`.
///
/// # Errors
/// If a cluster failed.
pub(crate) async fn run(args: &IdleArgs, places: &Places, out: &Path, machine: &str) -> Result<()> {
    ensure!((0.5..=3600.0).contains(&args.idle_seconds), "--idle-seconds: expected 0.5 to 3600");
    let mut rows = Vec::new();
    for round in 1..=args.idle_rounds {
        eprintln!("idle, round {round}: {} shards on 3 nodes", args.shards);
        rows.push(run_one(args, places).await?);
    }
    let text = format!("### Idle\n\n{}\n", markdown(args, &rows));
    println!("{text}");
    save(out, "idle.csv", &csv(args, &rows))?;
    save(out, "idle.md", &format!("{machine}\n{text}"))
}

async fn run_one(args: &IdleArgs, places: &Places) -> Result<Row> {
    let [.., system] = SYSTEMS;
    let shards = args.shards.to_string();
    let servers = Servers::start(system, places, &["--shards", &shards, "--replicas", "3"]).await?;
    let ids = servers.ids();
    let client = servers.client()?;
    even(&client, servers.addresses.len()).await?;
    sleep(SETTLE).await;
    let (changes_start, leaders_start) = (leader_changes(&servers).await?, leaders(&client).await?);
    let (time_start, started) = (processor_time(&ids)?, Instant::now());
    sleep(Duration::from_secs_f64(args.idle_seconds)).await;
    let (time, elapsed) = (processor_time(&ids)?.saturating_sub(time_start), started.elapsed());
    let leader_changes = match (changes_start, leader_changes(&servers).await?) {
        (Some(start), Some(end)) => Some(end - start),
        _ => None,
    };
    let leaders_end = leaders(&client).await?;
    let moved_count = leaders_start.iter().zip(leaders_end).filter(|(a, b)| **a != *b).count();
    let rss_mb = rss_bytes(&ids)? as f64 / 1e6;
    let cores = time.as_secs_f64() / elapsed.as_secs_f64();
    Ok(Row { cores, leader_changes, moved_count, rss_mb })
}

/// Leaders of the shards.
async fn leaders(client: &Client) -> Result<Vec<u64>> {
    Ok(client.status().await?.shards.iter().map(|shard| shard.leader).collect())
}

/// Sum over the nodes; None if none of them has the measurement, which appears with the first
/// change: a cluster that formed had one.
async fn leader_changes(servers: &Servers) -> Result<Option<f64>> {
    let mut sum = None;
    for address in &servers.addresses {
        let page = timeout(METRICS_TIMEOUT, page(address, "/metrics")).await;
        let page = page.context("no metrics")??;
        if let Some(count) = sum_of(&page, LEADER_CHANGES) {
            sum = Some(sum.unwrap_or(0.0) + count);
        }
    }
    Ok(sum)
}

/// A page that a node serves over HTTP, with its head.
///
/// # Errors
/// If there is none, or its status is not 200.
pub(crate) async fn page(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut page = Vec::new();
    stream.take(PAGE_BYTES_MAX).read_to_end(&mut page).await?;
    let page = String::from_utf8(page)?;
    let status = page.lines().next().unwrap_or_default();
    ensure!(status.contains(" 200 "), "http://{address}{path}: {status}");
    Ok(page)
}

/// Sum of a measurement over its labels; None if it is not there.
pub(crate) fn sum_of(page: &str, name: &str) -> Option<f64> {
    let values = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let is_whole_name = rest.starts_with(' ') || rest.starts_with('{');
        rest.rsplit_once(' ').filter(|_| is_whole_name)?.1.parse::<f64>().ok()
    });
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

fn csv(args: &IdleArgs, rows: &[Row]) -> String {
    let mut text = "round,shards,replicas,nodes,seconds,cpu_percent,leader_changes,\
                    shards_with_other_leader,rss_mb\n"
        .to_owned();
    for (round, row) in (1..).zip(rows) {
        writeln!(
            text,
            "{round},{},3,3,{},{:.2},{},{},{:.1}",
            args.shards,
            args.idle_seconds,
            row.cores * 100.0,
            row.leader_changes.map(|count| count.to_string()).unwrap_or_default(),
            row.moved_count,
            row.rss_mb
        )
        .expect("a string takes everything");
    }
    text
}

fn markdown(args: &IdleArgs, rows: &[Row]) -> String {
    let [.., system] = SYSTEMS;
    let middle = |pick: fn(&Row) -> f64| median(rows.iter().map(pick));
    let changes: Option<f64> = rows.iter().map(|row| row.leader_changes).sum();
    format!(
        "| server (three of them) | seconds | rounds | % of one core, all nodes | leader changes, \
         all rounds | shards with another leader at the end, all rounds | RSS MB, all nodes |\n\
         |---|--:|--:|--:|--:|--:|--:|\n\
         | `{} --shards {} --replicas 3` | {} | {} | {:.1} | {} | {} | {} |\n",
        system.command(),
        args.shards,
        args.idle_seconds,
        rows.len(),
        middle(|row| row.cores * 100.0),
        changes.map_or("not counted".to_owned(), |count| count.to_string()),
        rows.iter().map(|row| row.moved_count).sum::<usize>(),
        grouped(middle(|row| row.rss_mb)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_summed_over_labels() {
        let page =
            "# HELP a_total x\na_total{b=\"1 2\"} 3\na_total{b=\"2\"} 4\na_total_b 9\nc 1.5\n";
        assert_eq!(sum_of(page, "a_total"), Some(7.0));
        assert_eq!(sum_of(page, "c"), Some(1.5));
        assert_eq!(sum_of(page, "d"), None);
    }
}
