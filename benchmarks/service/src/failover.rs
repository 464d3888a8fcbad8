//! How long callers wait when a node dies, stands still, is cut off or is stopped, or a shard is split.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use tokio::time::{Instant, sleep};
use umbel_client::{Client, NewFilter, ReadLevel};

use crate::cables::Cables;
use crate::processes::Process;
use crate::system::{Places, SYSTEMS, Servers};
use crate::table::save;

/// Items of a call.
const BATCH_ITEMS: u32 = 64;

/// Rate of wrong answers of the filter.
const RATE: f64 = 0.01;

/// Calls before the fault, so that connections and maps are there.
const WARM_UP: Duration = Duration::from_secs(2);

/// How long a node that is told to stop may take.
const STOP_PATIENCE: Duration = Duration::from_secs(20);

/// Pause between two looks whether it has ended.
const END_POLL: Duration = Duration::from_millis(5);

/// Pause between two looks whether all shards are led evenly again.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// How long that may take.
const EVEN_PATIENCE: Duration = Duration::from_secs(90);

/// What happens to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Fault {
    /// SIGKILL; it is started again after the watch
    Kill,
    /// SIGSTOP, and SIGCONT after the watch: its connections stay, and nothing answers on them
    Stop,
    /// Its network cable is pulled, and plugged in after the watch: nobody is told. Needs root and `ip netns`; all nodes have
    /// networks of their own then
    Cut,
    /// SIGTERM, and started again at once, as a rolling restart does it
    Term,
    /// The next shard is cut in two, which is no fault, but callers must not notice either
    Split,
}

impl Fault {
    const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill -9",
            Self::Stop => "SIGSTOP",
            Self::Cut => "cable pulled",
            Self::Term => "SIGTERM, started again",
            Self::Split => "a shard is split",
        }
    }
}

/// Faults and their number.
#[derive(Args, Clone, Debug)]
pub(crate) struct FailoverArgs {
    /// What happens to a node, each so many times
    #[arg(long, value_delimiter = ',', value_name = "LIST",
        default_values_t = [Fault::Kill, Fault::Stop, Fault::Term], value_enum)]
    faults: Vec<Fault>,
    /// Times that each happens, to one node after the other
    #[arg(long, default_value_t = 20, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    failover_rounds: u32,
    /// Shards, with three replicas each on three nodes
    #[arg(long, default_value_t = 64, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    failover_shards: u32,
    /// Items that the filter is made for: more than come, and so many decide how large a shard is that is split
    #[arg(long, default_value_t = 50_000_000, value_name = "N",
        value_parser = clap::value_parser!(u64).range(1_000_000..=4_000_000_000))]
    failover_items: u64,
    /// Seconds that callers are watched after the fault
    #[arg(long, default_value_t = 6.0)]
    watch_seconds: f64,
}

impl FailoverArgs {
    /// So small that it takes seconds.
    pub(crate) fn shrink(&mut self) {
        self.failover_rounds = 1;
        self.failover_shards = 4;
        self.watch_seconds = self.watch_seconds.min(2.0);
    }
}

/// What callers saw of one fault.
struct Row {
    fault: Fault,
    insert_gap: Duration,
    contains_gap: Duration,
    failure_count: u64,
    /// Until the shards were led evenly again, from when the node was back.
    even_after: Duration,
}

/// Measures, and writes `failover.csv` and `failover.md`.
///
/// # Errors
/// If a cluster failed, or gave a wrong answer.
pub(crate) async fn run(
    args: &FailoverArgs,
    places: &Places,
    out: &Path,
    machine: &str,
) -> Result<()> {
    ensure!((0.5..=600.0).contains(&args.watch_seconds), "--watch-seconds: expected 0.5 to 600");
    let shards = args.failover_shards.to_string();
    let [.., system] = SYSTEMS;
    let mut more = vec!["--shards", &shards, "--replicas", "3"];
    let cables = if args.faults.contains(&Fault::Cut) {
        Some(Cables::lay(system.node_count)?)
    } else {
        None
    };
    if cables.is_some() {
        // Their network is nobody else's.
        more.push("--insecure");
    }
    let mut servers = Servers::start_on(system, places, &more, cables).await?;
    let client = servers.client()?;
    client.create("failover", &NewFilter::for_rate(args.failover_items, RATE)).await?;
    even(&client, servers.addresses.len()).await?;
    let mut rows = Vec::new();
    let mut next_item = 0;
    for &fault in &args.faults {
        for round in 0..args.failover_rounds {
            let victim = round as usize % servers.addresses.len();
            eprintln!("failover, {}, round {}: node {}", fault.name(), round + 1, victim + 1);
            let row = run_one(fault, victim, args, &mut servers, &mut next_item).await;
            rows.push(row.with_context(|| format!("{}, round {}", fault.name(), round + 1))?);
        }
    }
    let text = format!("### Failover\n\n{}\n", markdown(args, &rows));
    println!("{text}");
    save(out, "failover.csv", &csv(&rows))?;
    save(out, "failover.md", &format!("{machine}\n{text}"))
}

async fn run_one(
    fault: Fault,
    victim: usize,
    args: &FailoverArgs,
    servers: &mut Servers,
    next_item: &mut u64,
) -> Result<Row> {
    // A client a caller, as if they were programs on two machines.
    let inserting = Caller::start(servers.client()?, *next_item, true);
    let asking = Caller::start(servers.client()?, 0, false);
    sleep(WARM_UP).await;
    inserting.forget();
    asking.forget();
    match fault {
        Fault::Kill => servers.process(victim).signal(libc::SIGKILL)?,
        Fault::Stop => servers.process(victim).signal(libc::SIGSTOP)?,
        Fault::Cut => servers.set_plugged(victim, false)?,
        Fault::Term => {
            servers.process(victim).signal(libc::SIGTERM)?;
            ended(servers.process(victim)).await?;
            servers.restart(victim)?;
        }
        Fault::Split => split(&servers.client()?).await?,
    }
    sleep(Duration::from_secs_f64(args.watch_seconds)).await;
    let (insert_gap, insert_failures, inserted) = inserting.end().await?;
    let (contains_gap, contains_failures, _) = asking.end().await?;
    match fault {
        Fault::Kill => servers.restart(victim)?,
        Fault::Stop => servers.process(victim).signal(libc::SIGCONT)?,
        Fault::Cut => servers.set_plugged(victim, true)?,
        Fault::Term | Fault::Split => {}
    }
    let back = Instant::now();
    servers.ready().await?;
    let client = servers.client()?;
    even(&client, servers.addresses.len()).await?;
    check_present(&client, *next_item, inserted).await?;
    *next_item = inserted;
    Ok(Row {
        fault,
        insert_gap,
        contains_gap,
        failure_count: insert_failures + contains_failures,
        even_after: back.elapsed(),
    })
}

/// Cuts the next shard in two.
async fn split(client: &Client) -> Result<()> {
    let count = u32::try_from(client.status().await?.shards.len())?;
    client.split_shard(count + 1).await?;
    Ok(())
}

/// Waits until a process that was told to end has ended.
async fn ended(process: &mut Process) -> Result<()> {
    let started = Instant::now();
    while !process.has_ended()? {
        ensure!(started.elapsed() < STOP_PATIENCE, "it has not ended after {STOP_PATIENCE:?}");
        sleep(END_POLL).await;
    }
    Ok(())
}

/// A caller that sends one call after the other.
struct Caller {
    /// Of the longest time between two answers, in microseconds.
    gap_us: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Result<(u64, u64)>>,
}

impl Caller {
    fn start(client: Client, first_item: u64, inserts: bool) -> Self {
        let (gap_us, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (longest, stop) = (Arc::clone(&gap_us), Arc::clone(&is_over));
        let task = tokio::spawn(async move {
            let filter = client.filter("failover");
            let (mut item, mut failure_count) = (first_item, 0);
            let mut answered = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                let items = batch(item);
                let outcome = if inserts {
                    filter.insert(&items).await.map(drop)
                } else {
                    filter.contains(&items, ReadLevel::Unspecified).await.map(drop)
                };
                match outcome {
                    Ok(()) => {
                        let gap = answered.elapsed().as_micros();
                        longest.fetch_max(u64::try_from(gap)?, Ordering::Relaxed);
                        answered = Instant::now();
                        item += u64::from(BATCH_ITEMS);
                    }
                    Err(error) => {
                        eprintln!("a call failed: {error}");
                        failure_count += 1;
                    }
                }
            }
            Ok((failure_count, item))
        });
        Self { gap_us, is_over, task }
    }

    /// What was before does not count.
    fn forget(&self) {
        self.gap_us.store(0, Ordering::Relaxed);
    }

    /// The longest gap, failed calls, and the first item that was not sent.
    async fn end(self) -> Result<(Duration, u64, u64)> {
        self.is_over.store(true, Ordering::Relaxed);
        let (failure_count, item) = self.task.await??;
        Ok((Duration::from_micros(self.gap_us.load(Ordering::Relaxed)), failure_count, item))
    }
}

fn batch(first: u64) -> Vec<[u8; 8]> {
    (first..first + u64::from(BATCH_ITEMS)).map(u64::to_le_bytes).collect()
}

/// # Errors
/// If an item is absent whose insert was acknowledged.
async fn check_present(client: &Client, from: u64, to: u64) -> Result<()> {
    let filter = client.filter("failover");
    for first in (from..to).step_by(BATCH_ITEMS as usize) {
        let present = filter.contains(batch(first), ReadLevel::Unspecified).await?;
        ensure!(present.iter().all(|is_present| is_present), "an item of {first}… is absent");
    }
    Ok(())
}

/// Waits until every node leads its share of the shards, within one.
pub(crate) async fn even(client: &Client, node_count: usize) -> Result<()> {
    let started = Instant::now();
    loop {
        let status = client.status().await;
        if let Ok(status) = &status {
            let leads =
                |node: u64| status.shards.iter().filter(|shard| shard.leader == node).count();
            let counts: Vec<usize> = status.nodes.iter().map(|node| leads(node.node)).collect();
            let (least, most) = (counts.iter().min(), counts.iter().max());
            if counts.len() == node_count
                && counts.iter().sum::<usize>() == status.shards.len()
                && least.zip(most).is_some_and(|(least, most)| most - least <= 1)
            {
                return Ok(());
            }
            if started.elapsed() > EVEN_PATIENCE {
                bail!("shards that the nodes lead: {counts:?}");
            }
        } else if started.elapsed() > EVEN_PATIENCE {
            status?;
        }
        sleep(LOOK_PAUSE).await;
    }
}

fn csv(rows: &[Row]) -> String {
    let mut text = "fault,insert_gap_ms,contains_gap_ms,failures,even_after_s\n".to_owned();
    for row in rows {
        let name = row.fault.to_possible_value().expect("none is hidden");
        writeln!(
            text,
            "{},{},{},{},{:.1}",
            name.get_name(),
            row.insert_gap.as_millis(),
            row.contains_gap.as_millis(),
            row.failure_count,
            row.even_after.as_secs_f64()
        )
        .expect("a string takes everything");
    }
    text
}

fn markdown(args: &FailoverArgs, rows: &[Row]) -> String {
    let mut text = format!(
        "3 nodes with fsync, {} shards, a filter for {} items; two callers, each with one call of {BATCH_ITEMS} items after the \
         other; longest time without an answer, of {} faults each.\n\n\
         | fault | inserts: p50 ms | p99 | most | questions: p50 | p99 | most | failed calls | leaders \
         even again, s |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        args.failover_shards, args.failover_items, args.failover_rounds
    );
    for &fault in &args.faults {
        let of_fault = || rows.iter().filter(|row| row.fault == fault);
        let gaps = |gap: fn(&Row) -> Duration| {
            let mut sorted: Vec<u128> = of_fault().map(|row| gap(row).as_millis()).collect();
            sorted.sort_unstable();
            [50, 99, 100].map(|percent| sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1])
        };
        let [insert_p50, insert_p99, insert_most] = gaps(|row| row.insert_gap);
        let [ask_p50, ask_p99, ask_most] = gaps(|row| row.contains_gap);
        let failures: u64 = of_fault().map(|row| row.failure_count).sum();
        let slowest = of_fault().map(|row| row.even_after.as_secs_f64()).fold(0.0, f64::max);
        writeln!(
            text,
            "| {} | {insert_p50} | {insert_p99} | {insert_most} | {ask_p50} | {ask_p99} | {ask_most} | \
             {failures} | {slowest:.0} |",
            fault.name()
        )
        .expect("a string takes everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_ranked() {
        let row = |ms| Row {
            fault: Fault::Kill,
            insert_gap: Duration::from_millis(ms),
            contains_gap: Duration::from_millis(2 * ms),
            failure_count: 1,
            even_after: Duration::from_secs(ms),
        };
        let args = FailoverArgs {
            faults: vec![Fault::Kill],
            failover_rounds: 3,
            failover_shards: 4,
            failover_items: 1_000_000,
            watch_seconds: 1.0,
        };
        let rows = [row(5), row(1), row(3)];
        let table = markdown(&args, &rows);
        assert!(table.contains("| kill -9 | 3 | 5 | 5 | 6 | 10 | 10 | 3 | 5 |"), "{table}");
        assert!(csv(&rows).contains("kill,5,10,1,5.0\n"));
    }
}
