//! What filters leave behind that were created, used and dropped: memory of the server, time of a cycle.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use tokio::time::Instant;
use umbel_client::{Client, NewFilter};

use crate::processes::rss_bytes;
use crate::system::{Places, SYSTEMS, Servers};
use crate::table::save;

/// Items of each filter.
const ITEMS: u32 = 100;

/// How many filters, and how they are made.
#[derive(Args, Clone, Debug)]
pub(crate) struct CyclesArgs {
    /// Filters that are created, filled with some items and dropped, one after the other
    #[arg(long, default_value_t = 10_000, value_name = "N",
        value_parser = clap::value_parser!(u64).range(10..=10_000_000))]
    cycles: u64,
    /// Another client, and so another session, for each, as commands have
    #[arg(long)]
    fresh_client: bool,
}

impl CyclesArgs {
    /// So few that it takes seconds.
    pub(crate) fn shrink(&mut self) {
        self.cycles = self.cycles.min(50);
    }
}

/// A tenth of all cycles.
struct Row {
    /// Cycles so far.
    cycles: u64,
    rss_kb: u64,
    /// Mean time of a cycle and of its create, since the last row.
    cycle: Duration,
    create: Duration,
}

/// Measures, and writes `cycles.csv` and `cycles.md`.
///
/// # Errors
/// If the server failed.
pub(crate) async fn run(
    args: &CyclesArgs,
    places: &Places,
    out: &Path,
    machine: &str,
) -> Result<()> {
    // One node: what a cluster keeps is kept by each.
    let [system, ..] = SYSTEMS;
    let servers = Servers::start(system, places, &[]).await?;
    let client = servers.client()?;
    let ids = servers.ids();
    let tenth = (args.cycles / 10).max(1);
    let mut rows = Vec::new();
    for start in (0..args.cycles).step_by(usize::try_from(tenth)?) {
        let end = (start + tenth).min(args.cycles);
        let (began, mut create) = (Instant::now(), Duration::ZERO);
        for number in start..end {
            let own = args.fresh_client.then(|| servers.client()).transpose()?;
            create += cycle(own.as_ref().unwrap_or(&client), number).await?;
        }
        let count = u32::try_from(end - start)?;
        let (cycle, create) = (began.elapsed() / count, create / count);
        rows.push(Row { cycles: end, rss_kb: rss_bytes(&ids)? / 1024, cycle, create });
        eprintln!("{end} cycles: {} kB", rows[rows.len() - 1].rss_kb);
    }
    let text = format!("### Cycles\n\n{}\n", markdown(&rows));
    println!("{text}");
    save(out, "cycles.csv", &csv(&rows))?;
    save(out, "cycles.md", &format!("{machine}\n{text}"))
}

/// Creates a filter, fills and drops it: the time of the create.
async fn cycle(client: &Client, number: u64) -> Result<Duration> {
    let name = format!("cycle-{number}");
    let began = Instant::now();
    client.create(&name, &NewFilter::for_rate(1000, 0.01)).await?;
    let create = began.elapsed();
    let inserted = client.filter(&name).insert((0..ITEMS).map(u32::to_le_bytes)).await?;
    // A filter of an earlier cycle would know some.
    ensure!(inserted.new_count() as f64 > 0.9 * f64::from(ITEMS), "{name} is not new");
    client.drop_filter(&name).await?;
    Ok(create)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn csv(rows: &[Row]) -> String {
    let mut text = "cycles,rss_kb,cycle_ms,create_ms\n".to_owned();
    for row in rows {
        let (cycle, create) = (milliseconds(row.cycle), milliseconds(row.create));
        writeln!(text, "{},{},{cycle:.2},{create:.2}", row.cycles, row.rss_kb)
            .expect("a string takes everything");
    }
    text
}

fn markdown(rows: &[Row]) -> String {
    let mut text =
        "| filters so far | RSS MB | ms a cycle | of these its create |\n|--:|--:|--:|--:|\n"
            .to_owned();
    for row in rows {
        let (cycle, create) = (milliseconds(row.cycle), milliseconds(row.create));
        let rss_mb = row.rss_kb as f64 * 1024.0 / 1e6;
        writeln!(text, "| {} | {rss_mb:.1} | {cycle:.1} | {create:.1} |", row.cycles)
            .expect("a string takes everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_their_units() {
        let time = Duration::from_micros(1500);
        let rows = [Row { cycles: 10, rss_kb: 1000, cycle: time, create: time }];
        assert!(csv(&rows).ends_with("\n10,1000,1.50,1.50\n"));
        assert!(markdown(&rows).ends_with("\n| 10 | 1.0 | 1.5 | 1.5 |\n"));
    }
}
