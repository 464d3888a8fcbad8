//! What callers notice while a cluster grows from one node to five and back to three, and its shards are split.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use umbel_client::{Client, ClientError, ErrorCode, NewFilter, StatusResponse};

use self::callers::{BATCH_ITEMS, Callers, Seen, absent_count};
use crate::system::{Places, SYSTEMS, Servers};
use crate::table::{grouped, save};

mod callers;

/// Name of the filter.
const FILTER: &str = "grow";

/// Rate of wrong answers of the filter.
const RATE: f64 = 0.01;

/// Shards that the first node founds the cluster with.
const FOUNDED_SHARDS: u32 = 4;

/// Replicas of a shard where there are as many nodes.
const REPLICAS: usize = 3;

/// Nodes are balanced when no node has so many more replicas than another one, see docs/cluster.md.
const IMBALANCE_MIN: usize = 4;

/// Pause between two looks at the cluster.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// How long a step may take.
const STEP_PATIENCE: Duration = Duration::from_secs(1800);

/// How long shards may take in the end until every node leads its share.
const EVEN_PATIENCE: Duration = Duration::from_secs(120);

/// How the cluster changes.
#[derive(Clone, Copy)]
enum Step {
    /// So many nodes join.
    Join(usize),
    /// Shards are split, until there are as many as was asked for.
    Split,
    /// So many nodes are drained and removed, the oldest ones, one after the other.
    Leave(usize),
}

const STEPS: [Step; 4] = [Step::Join(2), Step::Split, Step::Join(2), Step::Leave(2)];

/// Size of the cluster.
#[derive(Args, Clone, Debug)]
pub(crate) struct GrowArgs {
    /// Shards in the end, by splits of the 4 that the cluster is founded with
    #[arg(long, default_value_t = 64, value_name = "N",
        value_parser = clap::value_parser!(u32).range(4..=1024))]
    grow_shards: u32,
    /// Items that the filter is made for: more than come, and so many decide how large a replica is that moves
    #[arg(long, default_value_t = 100_000_000, value_name = "N",
        value_parser = clap::value_parser!(u64).range(1_000_000..=4_000_000_000))]
    grow_items: u64,
    /// Seconds before each step in which nothing changes, to compare with
    #[arg(long, default_value_t = 10.0)]
    quiet_seconds: f64,
}

impl GrowArgs {
    /// So small that it takes seconds.
    pub(crate) fn shrink(&mut self) {
        self.grow_shards = self.grow_shards.min(8);
        self.grow_items = self.grow_items.min(1_000_000);
        self.quiet_seconds = self.quiet_seconds.min(1.0);
    }
}

/// One step.
struct Row {
    step: String,
    /// Until every replica was where it should be.
    elapsed: Duration,
    /// What the caller that inserts and the one that asks saw before it, and during it.
    quiet: [Seen; 2],
    during: [Seen; 2],
}

/// What a node has in the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Share {
    node: u64,
    replica_count: usize,
    leader_count: usize,
    /// Of filters, over all of its replicas.
    byte_count: u64,
}

/// The outcome of everything.
struct Report {
    rows: Vec<Row>,
    shares: Vec<Share>,
    /// Until every node led its share after the last step, within one; None if that took too long.
    even_after: Option<Duration>,
    acknowledged: u64,
    /// Acknowledged items that were called absent in the end.
    absent_count: u64,
}

/// Measures, and writes `grow.csv` and `grow.md`.
///
/// # Errors
/// If a cluster failed, or gave a wrong answer.
pub(crate) async fn run(args: &GrowArgs, places: &Places, out: &Path, machine: &str) -> Result<()> {
    ensure!((0.5..=600.0).contains(&args.quiet_seconds), "--quiet-seconds: expected 0.5 to 600");
    let report = run_steps(args, places).await?;
    let text = format!("### Grow\n\n{}\n", markdown(args, &report));
    println!("{text}");
    save(out, "grow.csv", &csv(&report.rows))?;
    save(out, "grow.md", &format!("{machine}\n{text}"))?;
    let wrong_count = wrong_count(&report);
    ensure!(wrong_count == 0, "wrong answers: {wrong_count} acknowledged items were called absent");
    Ok(())
}

async fn run_steps(args: &GrowArgs, places: &Places) -> Result<Report> {
    // One node with fsync; those that join it have the same settings.
    let [_, _, system, ..] = SYSTEMS;
    let (shards, replicas) = (FOUNDED_SHARDS.to_string(), REPLICAS.to_string());
    let more = ["--shards", &shards, "--replicas", &replicas];
    let mut servers = Servers::start(system, places, &more).await?;
    servers.client()?.create(FILTER, &NewFilter::for_rate(args.grow_items, RATE)).await?;
    let callers = Callers::start([servers.client()?, servers.client()?], FILTER);
    let mut rows = Vec::new();
    for step in STEPS {
        let row = run_step(step, args, &mut servers, &callers).await;
        rows.push(row.with_context(|| format!("step {}", rows.len() + 1))?);
    }
    let acknowledged = callers.end().await?;
    let client = servers.client()?;
    let even_after = even_after(&client).await?;
    let shares = shares(&client.status().await?);
    let absent_count = absent_count(&client.filter(FILTER), acknowledged).await?;
    Ok(Report { rows, shares, even_after, acknowledged, absent_count })
}

async fn run_step(
    step: Step,
    args: &GrowArgs,
    servers: &mut Servers,
    callers: &Callers,
) -> Result<Row> {
    let nodes_before = servers.addresses.len();
    let shards_before = servers.client()?.status().await?.shards.len();
    callers.take();
    sleep(Duration::from_secs_f64(args.quiet_seconds)).await;
    let (quiet, started) = (callers.take(), Instant::now());
    match step {
        Step::Join(count) => (0..count).try_for_each(|_| servers.join())?,
        Step::Split => split_to(servers, args.grow_shards).await?,
        Step::Leave(count) => {
            for _ in 0..count {
                leave_first(servers).await?;
            }
        }
    }
    let (node_count, client) = (servers.addresses.len(), servers.client()?);
    until(servers, &client, |status| is_settled(status, node_count)).await?;
    let (elapsed, during) = (started.elapsed(), callers.take());
    let step = match step {
        Step::Split => format!("{shards_before} → {} shards", args.grow_shards),
        Step::Join(_) | Step::Leave(_) => format!("{nodes_before} → {node_count} nodes"),
    };
    eprintln!("grow, {step}: {:.1} s", elapsed.as_secs_f64());
    Ok(Row { step, elapsed, quiet, during })
}

/// Waits until the cluster is as wanted.
///
/// # Errors
/// If a process has ended, or it takes too long.
async fn until(
    servers: &mut Servers,
    client: &Client,
    is_wanted: impl Fn(&StatusResponse) -> bool,
) -> Result<()> {
    let started = Instant::now();
    loop {
        servers.check_alive()?;
        if client.status().await.is_ok_and(|status| is_wanted(&status)) {
            return Ok(());
        }
        ensure!(started.elapsed() < STEP_PATIENCE, "not done after {STEP_PATIENCE:?}");
        sleep(LOOK_PAUSE).await;
    }
}

/// Whether all nodes are there, every shard has a leader and its replicas, and none is to be moved.
fn is_settled(status: &StatusResponse, node_count: usize) -> bool {
    let replica_count = REPLICAS.min(node_count);
    let counts: Vec<usize> = shares(status).iter().map(|share| share.replica_count).collect();
    counts.len() == node_count
        && spread(&counts).is_some_and(|spread| spread < IMBALANCE_MIN)
        && status.shards.iter().all(|shard| {
            shard.leader != 0 && shard.replicas.len() == replica_count && shard.target.is_empty()
        })
}

/// The most less the least.
fn spread(counts: &[usize]) -> Option<usize> {
    counts.iter().max().zip(counts.iter().min()).map(|(most, least)| most - least)
}

/// Splits shards until there are so many, by the command, which pauses between splits.
async fn split_to(servers: &Servers, wanted: u32) -> Result<()> {
    let (wanted, patience) = (wanted.to_string(), STEP_PATIENCE.as_secs().to_string());
    let words = ["cluster", "split", "--to", &wanted, "--timeout", &patience];
    let mut command = servers.command(&words)?;
    // It runs for a minute, in which the callers need all threads of the runtime.
    let output = spawn_blocking(move || command.output()).await??;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "umbel cluster split --to {wanted}: {said}");
    Ok(())
}

/// Drains the oldest node, removes it, and ends its process.
async fn leave_first(servers: &mut Servers) -> Result<()> {
    let client = servers.client()?;
    let address = servers.addresses[0].clone();
    let status = client.status().await?;
    let mut members = status.nodes.iter().filter(|node| node.state != "removed");
    let oldest = members.find(|node| node.address == address);
    let node = oldest.context("the oldest node is not a member")?.node;
    client.drain(node, false).await?;
    let is_drained = |status: &StatusResponse| {
        status.nodes.iter().any(|other| other.node == node && other.replica_count == 0)
    };
    until(servers, &client, is_drained).await?;
    let started = Instant::now();
    loop {
        match client.remove_node(node).await {
            Ok(()) => break,
            // An earlier attempt has removed it.
            Err(ClientError::Refused(failure)) if failure.cause == ErrorCode::UnknownNode => break,
            Err(ClientError::Unavailable(_) | ClientError::OrderUnknown(_))
                if started.elapsed() < STEP_PATIENCE =>
            {
                sleep(LOOK_PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    servers.leave(0);
    Ok(())
}

/// Waits until every node leads its share of the shards, within one; None if that takes too long.
async fn even_after(client: &Client) -> Result<Option<Duration>> {
    let started = Instant::now();
    loop {
        let status = client.status().await?;
        let counts: Vec<usize> = shares(&status).iter().map(|share| share.leader_count).collect();
        let is_led = counts.iter().sum::<usize>() == status.shards.len();
        if is_led && spread(&counts).is_some_and(|spread| spread <= 1) {
            return Ok(Some(started.elapsed()));
        }
        if started.elapsed() > EVEN_PATIENCE {
            return Ok(None);
        }
        sleep(LOOK_PAUSE).await;
    }
}

/// What every live node has.
fn shares(status: &StatusResponse) -> Vec<Share> {
    let live = status.nodes.iter().filter(|node| node.state == "live");
    let share = |node: u64| {
        let held = || status.shards.iter().filter(|shard| shard.replicas.contains(&node));
        let led = status.shards.iter().filter(|shard| shard.leader == node);
        Share {
            node,
            replica_count: held().count(),
            leader_count: led.count(),
            byte_count: held().map(|shard| shard.memory_bytes).sum(),
        }
    };
    live.map(|node| share(node.node)).collect()
}

fn wrong_count(report: &Report) -> u64 {
    let seen = report.rows.iter().flat_map(|row| row.quiet.iter().chain(&row.during));
    report.absent_count + seen.map(|seen| seen.wrong_count).sum::<u64>()
}

const CALLERS: [&str; 2] = ["insert", "contains"];

/// The columns of a step, a line for each caller.
fn cells(row: &Row) -> impl Iterator<Item = [String; 11]> {
    CALLERS.iter().zip(row.during.iter().zip(&row.quiet)).map(|(call, (during, quiet))| {
        let gap_ms = |seen: &Seen| seen.gap.as_millis().to_string();
        let quantile_ms = |seen: &Seen, share| format!("{:.2}", seen.quantile_ms(share));
        [
            row.step.clone(),
            format!("{:.1}", row.elapsed.as_secs_f64()),
            (*call).to_owned(),
            gap_ms(during),
            quantile_ms(during, 0.5),
            quantile_ms(during, 0.99),
            gap_ms(quiet),
            quantile_ms(quiet, 0.5),
            quantile_ms(quiet, 0.99),
            (during.failure_count + quiet.failure_count).to_string(),
            (during.wrong_count + quiet.wrong_count).to_string(),
        ]
    })
}

fn csv(rows: &[Row]) -> String {
    let mut text =
        "step,seconds,call,gap_ms,p50_ms,p99_ms,quiet_gap_ms,quiet_p50_ms,quiet_p99_ms,failures,\
         wrong_answers\n"
            .to_owned();
    for cells in rows.iter().flat_map(cells) {
        writeln!(text, "{}", cells.join(",")).expect("a string takes everything");
    }
    text
}

fn markdown(args: &GrowArgs, report: &Report) -> String {
    let mut text = format!(
        "Nodes with fsync, {FOUNDED_SHARDS} shards in the beginning and {} in the end, {REPLICAS} replicas, a filter for {} items; \
         two callers, each with one batch of {BATCH_ITEMS} items after the other. Quiet: {} s before the step.\n\n\
         | step | s | call | longest gap, ms | p50 ms | p99 | quiet: longest gap | p50 | p99 | failed calls | wrong answers |\n\
         |---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        args.grow_shards, args.grow_items, args.quiet_seconds
    );
    for cells in report.rows.iter().flat_map(cells) {
        writeln!(text, "| {} |", cells.join(" | ")).expect("a string takes everything");
    }
    text.push_str("\n| node | replicas | leaders | bytes of filters |\n|--:|--:|--:|--:|\n");
    for share in &report.shares {
        let Share { node, replica_count, leader_count, byte_count } = *share;
        let bytes = grouped(byte_count as f64);
        writeln!(text, "| {node} | {replica_count} | {leader_count} | {bytes} |")
            .expect("a string takes everything");
    }
    let even = match report.even_after {
        Some(after) => format!("{:.1} s after the last step", after.as_secs_f64()),
        None => format!("not within {} s of the last step", EVEN_PATIENCE.as_secs()),
    };
    let (acknowledged, absent_count) = (report.acknowledged, report.absent_count);
    writeln!(
        text,
        "\nLeaders even: {even}. Of {acknowledged} acknowledged items, {absent_count} were called absent in the end."
    )
    .expect("a string takes everything");
    text
}

#[cfg(test)]
mod tests {
    use umbel_client::proto::{NodeStatus, ShardStatus};

    use super::*;

    fn node(node: u64, state: &str) -> NodeStatus {
        NodeStatus { node, state: state.to_owned(), ..NodeStatus::default() }
    }

    fn shard(leader: u64, replicas: &[u64]) -> ShardStatus {
        let replicas = replicas.to_vec();
        ShardStatus { leader, replicas, memory_bytes: 10, ..ShardStatus::default() }
    }

    #[test]
    fn what_live_nodes_have_is_counted() {
        let mut status = StatusResponse {
            nodes: vec![node(1, "removed"), node(2, "live"), node(3, "live"), node(4, "live")],
            shards: vec![shard(2, &[2, 3, 4]), shard(3, &[2, 3, 4]), shard(2, &[2, 3, 4])],
            ..StatusResponse::default()
        };
        let share =
            |node, leader_count| Share { node, replica_count: 3, leader_count, byte_count: 30 };
        assert_eq!(shares(&status), [share(2, 2), share(3, 1), share(4, 0)]);
        assert!(is_settled(&status, 3) && !is_settled(&status, 4));
        status.shards[1].target = vec![2, 3, 5];
        assert!(!is_settled(&status, 3));
    }

    #[tokio::test]
    async fn rows_have_all_columns() {
        let seen = || {
            let mut seen = Seen::since(Instant::now());
            seen.record(Duration::from_millis(2), Duration::from_millis(7));
            seen.failure_count = 1;
            [seen, Seen::since(Instant::now())]
        };
        let elapsed = Duration::from_millis(1500);
        let row = Row { step: "1 → 3 nodes".to_owned(), elapsed, quiet: seen(), during: seen() };
        assert!(csv(std::slice::from_ref(&row)).contains("\n1 → 3 nodes,1.5,insert,7,2.00,"));
        let share = Share { node: 2, replica_count: 3, leader_count: 1, byte_count: 30 };
        let even_after = None;
        let report = Report {
            rows: vec![row],
            shares: vec![share],
            even_after,
            acknowledged: 5000,
            absent_count: 1,
        };
        assert_eq!(wrong_count(&report), 1);
        let args = GrowArgs { grow_shards: 8, grow_items: 1_000_000, quiet_seconds: 1.0 };
        let text = markdown(&args, &report);
        let of_steps = |line: &&str| line.starts_with("| 1 →") || line.starts_with("| step");
        let counts: Vec<usize> =
            text.lines().filter(of_steps).map(|line| line.matches('|').count()).collect();
        assert_eq!(counts, [12; 3]);
        assert!(text.contains("\n| 2 | 3 | 1 | 30.0 |\n"), "{text}");
        assert!(text.contains("5000 acknowledged items, 1 were called absent"), "{text}");
    }
}
