//! Memory of a filled filter beside what theory asks for, and beside Redis.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use tokio::time::{Instant, sleep, timeout};

use crate::connection::{Store, Verb};
use crate::load::{Cell, Extent, Operation, fill, measure};
use crate::processes::rss_bytes;
use crate::system::{Places, Request, SYSTEMS, Servers, System};
use crate::table::{grouped, save};

/// How long snapshots and allocators may settle after the last insert.
const SETTLE: Duration = Duration::from_secs(5);

/// Size of the filter.
#[derive(Args, Clone, Debug)]
pub(crate) struct MemoryArgs {
    /// Items that go into Umbel's filter, which is made for so many
    #[arg(long, default_value_t = 100_000_000, value_name = "N",
        value_parser = clap::value_parser!(u64).range(1000..1 << 40))]
    items: u64,
    /// Items that go into Redis, which needs some 70 bytes for each; 0 leaves it out
    #[arg(long, default_value_t = 10_000_000, value_name = "N")]
    redis_items: u64,
    /// Promised rate of false positives
    #[arg(long, default_value_t = 0.01)]
    rate: f64,
    /// Give up after so many seconds of filling
    #[arg(long, default_value_t = 1200, value_name = "S")]
    fill_seconds_max: u64,
}

impl MemoryArgs {
    /// So small that it takes seconds.
    pub(crate) fn shrink(&mut self) {
        self.items = self.items.min(200_000);
        self.redis_items = self.redis_items.min(200_000);
    }
}

/// One filled server.
struct Row {
    system: System,
    request: Request,
    items: u64,
    fill_seconds: f64,
    /// What the filter says that it has; None of Redis.
    shape_bytes: Option<u64>,
    rss_before: u64,
    rss_after: u64,
    /// Measured after filling; None of Redis.
    false_positives: Option<f64>,
}

/// Bytes of a Bloom filter with any number of hash functions: ln(1/p) / ln(2)² bits an item.
fn bloom_bytes(items: u64, rate: f64) -> f64 {
    items as f64 * rate.recip().ln() / std::f64::consts::LN_2.powi(2) / 8.0
}

/// Measures, and writes `memory.csv` and `memory.md`.
///
/// # Errors
/// If a server failed, answered wrongly, or was not filled in time.
pub(crate) async fn run(
    args: &MemoryArgs,
    places: &Places,
    out: &Path,
    machine: &str,
) -> Result<()> {
    ensure!(args.rate > 0.0 && args.rate < 1.0, "--rate: expected a number between 0 and 1");
    let [umbel, redis, ..] = SYSTEMS;
    let mut rows = vec![run_one(args, places, umbel, Request::Keyed, args.items).await?];
    if args.redis_items > 0 {
        for request in [Request::Sadd, Request::SetNx] {
            rows.push(run_one(args, places, redis, request, args.redis_items).await?);
        }
    }
    let text = format!("### Memory\n\n{}\n", markdown(&rows, args.rate));
    println!("{text}");
    save(out, "memory.csv", &csv(&rows, args.rate))?;
    save(out, "memory.md", &format!("{machine}\n{text}"))
}

async fn run_one(
    args: &MemoryArgs,
    places: &Places,
    system: System,
    request: Request,
    items: u64,
) -> Result<Row> {
    eprintln!(
        "memory: {}, {}, {} items",
        system.command(),
        request.name(Verb::Insert),
        grouped(items as f64)
    );
    let servers = Servers::start(system, places, &[]).await?;
    let ids = servers.ids();
    let rss_before = rss_bytes(&ids)?;
    let store = Store::empty(&servers, request, items, args.rate).await?;
    let rate = if system.is_umbel() { args.rate } else { 0.0 };
    let started = Instant::now();
    let limit = Duration::from_secs(args.fill_seconds_max);
    timeout(limit, fill(&store, items, rate))
        .await
        .with_context(|| format!("not filled within {limit:?}"))??;
    let fill_seconds = started.elapsed().as_secs_f64();
    // Inserted and absent items, asked for a moment: the filter must really hold them.
    let cell = Cell { operation: Operation::Contains, batch_items: 1000, in_flight: 4 };
    let (warm_up, measured) = (Duration::ZERO, Duration::from_secs(1));
    let extent = Extent { present_count: items, capacity: items, rate, warm_up, measured };
    let checked = measure(store.connect(4, false).await?, cell, extent, &ids).await?;
    sleep(SETTLE).await;
    let rss_after = rss_bytes(&ids)?;
    let shape_bytes = if system.is_umbel() {
        Some(servers.client()?.info(store.name()).await?.memory_bytes)
    } else {
        None
    };
    let false_positives = checked.falses.share().filter(|_| system.is_umbel());
    Ok(Row {
        system,
        request,
        items,
        fill_seconds,
        shape_bytes,
        rss_before,
        rss_after,
        false_positives,
    })
}

fn csv(rows: &[Row], rate: f64) -> String {
    let mut text = "system,server,request,items,rate,fill_seconds,bloom_bytes,shape_bytes,\
                    rss_before_bytes,rss_after_bytes,false_positives\n"
        .to_owned();
    for row in rows {
        let bloom = bloom_bytes(row.items, rate);
        let shape = row.shape_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
        let falses = row.false_positives.map(|share| format!("{share:.6}")).unwrap_or_default();
        writeln!(
            text,
            "{},{},{},{},{rate},{:.1},{bloom:.0},{shape},{},{},{falses}",
            row.system.name,
            row.system.command(),
            row.request.name(Verb::Insert),
            row.items,
            row.fill_seconds,
            row.rss_before,
            row.rss_after,
        )
        .expect("a string takes everything");
    }
    text
}

fn markdown(rows: &[Row], rate: f64) -> String {
    let mut text =
        "| system | server | request | items | filled in s | Bloom filter MB | bits/item | \
                    own shape MB | bits/item | RSS before MB | RSS after MB | growth bits/item | \
                    growth ÷ Bloom filter | measured rate |\n\
                    |---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"
            .to_owned();
    let megabytes = |bytes: f64| grouped(bytes / 1e6);
    for row in rows {
        let items = row.items as f64;
        let bloom = bloom_bytes(row.items, rate);
        let growth = row.rss_after as f64 - row.rss_before as f64;
        let bits = |bytes: f64| format!("{:.2}", bytes * 8.0 / items);
        let shape = row.shape_bytes.map(|bytes| bytes as f64);
        let or_exact = row.false_positives.map(|share| format!("{:.3} %", share * 100.0));
        writeln!(
            text,
            "| {} | `{}` | `{}` | {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.2} | {} |",
            row.system.name,
            row.system.command(),
            row.request.name(Verb::Insert),
            grouped(items),
            grouped(row.fill_seconds),
            megabytes(bloom),
            bits(bloom),
            shape.map_or("–".to_owned(), megabytes),
            shape.map_or("–".to_owned(), bits),
            megabytes(row.rss_before as f64),
            megabytes(row.rss_after as f64),
            bits(growth),
            growth / bloom,
            or_exact.as_deref().unwrap_or("exact"),
        )
        .expect("a string takes everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bloom_filter_takes_9_59_bits_at_one_percent() {
        let bytes = bloom_bytes(100_000_000, 0.01);
        assert!((bytes * 8.0 / 1e8 - 9.585).abs() < 0.001, "{bytes}");
    }

    #[test]
    fn rows_have_all_columns() {
        let row = Row {
            system: SYSTEMS[0],
            request: Request::Keyed,
            items: 1_000_000,
            fill_seconds: 1.5,
            shape_bytes: Some(1_250_000),
            rss_before: 20_000_000,
            rss_after: 22_500_000,
            false_positives: Some(0.0099),
        };
        let table = markdown(std::slice::from_ref(&row), 0.01);
        let counts: Vec<usize> = table.lines().map(|line| line.matches('|').count()).collect();
        assert_eq!(counts, [15; 3]);
        assert!(table.contains("| 20.00 | 2.09 | 0.990 % |"), "{table}");
        assert_eq!(csv(&[row], 0.01).lines().count(), 2);
    }
}
