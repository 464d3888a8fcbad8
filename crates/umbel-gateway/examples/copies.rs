//! Measures copies of replicated filters on running nodes.
//!
//! ```text
//! copies speed [ITEMS]                 a copy's inserts and questions beside the kernel's, in batches
//! copies lag [NODES RATE SECONDS MB]   inserts at a rate into the first node: how far the others lag
//! ```

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example that prints a table")]

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::Instant;
use tonic::transport::{Endpoint, Uri};
use umbel_engine::FilterId;
use umbel_filter::{AnyFilter, Blocked, Contains, HashRange, Insert, ItemHash, ItemHasher};
use umbel_gateway::client_interface;
use umbel_node::ports::Ports;
use umbel_node::{Config, LocalCopy, Node};
use umbel_ports::{Net, RealNet};
use umbel_proto::v1;
use umbel_proto::v1::filters_client::FiltersClient;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Items of a batch: as many as one request takes.
const BATCH_ITEMS: usize = 1 << 16;

/// False-positive rate that the filters are planned for.
const RATE: f64 = 0.01;

/// Number of measurements of each value; the best counts, because the machine is shared.
const ROUNDS: usize = 3;

#[tokio::main]
async fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |at: usize, otherwise: u64| args.get(at).map_or(Ok(otherwise), |text| text.parse::<u64>());
    match args.first().map(String::as_str) {
        Some("speed") => speed(number(1, 10_000_000)?).await,
        Some("lag") => {
            let (nodes, rate) = (number(1, 3)?, number(2, 1_000_000)?);
            lag(usize::try_from(nodes)?, rate, number(3, 10)?, number(4, 64)?).await
        }
        _ => Err("expected `speed [ITEMS]` or `lag [NODES RATE SECONDS MB]`".into()),
    }
}

/// Distinct hashes of numbered items.
fn hashes(first: u64, count: u64) -> Vec<ItemHash> {
    let hasher = ItemHasher::Xxh3 { seed: 7 };
    (first..first + count).map(|item| hasher.hash(&item.to_le_bytes())).collect()
}

fn free_addresses(count: usize) -> Outcome<Vec<String>> {
    let listeners: Result<Vec<_>, _> =
        (0..count).map(|_| std::net::TcpListener::bind("127.0.0.1:0")).collect();
    Ok(listeners?.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect())
}

/// Starts the nodes of a new cluster; returns them with their folders.
async fn start(
    count: usize,
    change: impl Fn(Config) -> Config,
) -> Outcome<(Vec<TempDir>, Vec<Node>)> {
    let (addresses, mut folders) = (free_addresses(count)?, Vec::new());
    let mut starts = Vec::new();
    for address in &addresses {
        let folder = tempfile::tempdir()?;
        let config = Config {
            listen: address.clone(),
            initial_cluster: addresses.clone(),
            data: folder.path().display().to_string(),
            shards: 1,
            ..Config::default()
        };
        let config = change(config);
        let ports = Ports::real(Path::new(&config.data))?;
        starts.push(Node::start(config, ports, client_interface(None)));
        folders.push(folder);
    }
    let nodes = futures_util::future::try_join_all(starts).await?;
    Ok((folders, nodes))
}

/// Creates a replicated filter; returns every node's copy of it.
async fn create(nodes: &[Node], capacity: u64) -> Outcome<Vec<LocalCopy>> {
    let endpoint = Endpoint::from_shared(format!("http://{}", nodes[0].address()))?;
    let net: std::sync::Arc<dyn Net> = std::sync::Arc::new(RealNet);
    let channel = endpoint.connect_with_connector_lazy(tower::service_fn(move |uri: Uri| {
        let net = std::sync::Arc::clone(&net);
        async move {
            let address = uri.authority().map(ToString::to_string).unwrap_or_default();
            net.connect(&address).await.map(hyper_util::rt::TokioIo::new)
        }
    }));
    let mut client = FiltersClient::new(channel);
    let request = v1::CreateRequest {
        name: "seen".to_owned(),
        capacity,
        false_positive_rate: RATE,
        hashing: v1::Hashing::Public.into(),
        distribution: v1::Distribution::Replicated.into(),
        ..Default::default()
    };
    let created = client.create(request).await?.into_inner();
    let id = FilterId(created.filter.ok_or("no filter")?.filter_id);
    let copies: Option<Vec<LocalCopy>> = nodes.iter().map(|node| node.local_copy(id)).collect();
    copies.ok_or_else(|| "a node has no copy".into())
}

fn nanos_per_item(time: Duration, items: u64) -> f64 {
    time.as_secs_f64() * 1e9 / items as f64
}

/// The filter kernel alone: nanoseconds per item of inserts, and of lookups.
fn kernel(items: &[ItemHash], capacity: u64) -> Outcome<(f64, f64)> {
    let mut filter = AnyFilter::Blocked(Blocked::for_rate(HashRange::WHOLE, capacity, RATE)?);
    let (mut outcomes, mut present) = (Vec::new(), Vec::new());
    let began = Instant::now();
    for batch in items.chunks(BATCH_ITEMS) {
        outcomes.clear();
        filter.insert_batch(batch, &mut outcomes)?;
    }
    let insert = began.elapsed();
    let began = Instant::now();
    for batch in items.chunks(BATCH_ITEMS) {
        present.clear();
        filter.contains_batch(batch, &mut present);
        assert!(present.iter().all(|is_present| *is_present));
    }
    let count = items.len() as u64;
    Ok((nanos_per_item(insert, count), nanos_per_item(began.elapsed(), count)))
}

/// A node's copy: nanoseconds per item of inserts, with several batches in flight, and of lookups.
async fn copy(items: &[ItemHash], capacity: u64, fsync: bool) -> Outcome<(f64, f64)> {
    let change = |config| Config { fsync, log_bytes_max: 4 << 30, ..config };
    let (_folders, nodes) = start(1, change).await?;
    let copy = create(&nodes, capacity).await?.remove(0);
    let began = Instant::now();
    let batches = items.chunks(BATCH_ITEMS).map(|batch| copy.insert(batch));
    let mut inserted =
        futures_util::stream::StreamExt::buffered(futures_util::stream::iter(batches), 4);
    while let Some(outcome) = futures_util::stream::StreamExt::next(&mut inserted).await {
        outcome?;
    }
    let insert = began.elapsed();
    let began = Instant::now();
    let mut present = Vec::new();
    for batch in items.chunks(BATCH_ITEMS) {
        present.clear();
        copy.contains(batch, &mut present)?;
        assert!(present.iter().all(|is_present| *is_present));
    }
    let contains = began.elapsed();
    for node in nodes {
        node.shutdown().await;
    }
    let count = items.len() as u64;
    Ok((nanos_per_item(insert, count), nanos_per_item(contains, count)))
}

async fn speed(count: u64) -> Outcome<()> {
    let items = hashes(0, count);
    let better = |one: (f64, f64), other: (f64, f64)| (one.0.min(other.0), one.1.min(other.1));
    let worst = (f64::INFINITY, f64::INFINITY);
    let (mut alone, mut synced, mut unsynced) = (worst, worst, worst);
    for _ in 0..ROUNDS {
        alone = better(alone, kernel(&items, count)?);
        synced = better(synced, copy(&items, count, true).await?);
        unsynced = better(unsynced, copy(&items, count, false).await?);
    }
    println!("{count} items, batches of {BATCH_ITEMS}, blocked, {RATE}: ns an item");
    println!("| | insert | ÷ kernel | contains | ÷ kernel |\n|---|--:|--:|--:|--:|");
    for (name, (insert, contains)) in
        [("kernel", alone), ("copy", synced), ("copy without fsync", unsynced)]
    {
        println!(
            "| {name} | {insert:.1} | {:.2} | {contains:.1} | {:.2} |",
            insert / alone.0,
            contains / alone.1
        );
    }
    Ok(())
}

async fn lag(node_count: usize, rate: u64, seconds: u64, log_mb: u64) -> Outcome<()> {
    let change = |config| Config { delta_log_bytes_max: log_mb << 20, ..config };
    let (_folders, nodes) = start(node_count, change).await?;
    let copies = create(&nodes, rate * seconds).await?;
    let items = hashes(0, rate * seconds);
    println!(
        "{node_count} nodes, {rate} inserts a second for {seconds} s, delta logs of {log_mb} MiB"
    );
    println!("| second | inserted | lag, changes | log, MiB |\n|--:|--:|--:|--:|");
    let began = Instant::now();
    let per_tick = usize::try_from(rate / 50)?;
    let mut done = 0_usize;
    for (tick, batch) in (1_u32..).zip(items.chunks(per_tick)) {
        let parts = batch.chunks(BATCH_ITEMS).map(|part| copies[0].insert(part));
        futures_util::future::try_join_all(parts).await?;
        done += batch.len();
        if tick.is_multiple_of(50) {
            let log_mib = copies[0].log_bytes() as f64 / f64::from(1 << 20);
            println!("| {} | {done} | {} | {log_mib:.1} |", tick / 50, copies[0].lag());
        }
        tokio::time::sleep_until(began + Duration::from_millis(20) * tick).await;
    }
    let ended = Instant::now();
    println!("inserting took {:.2} s", began.elapsed().as_secs_f64());
    let own = copies[0].bits();
    for copy in &copies[1..] {
        while copy.bits() != own {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    println!("all copies are equal {:.2} s after the last insert", ended.elapsed().as_secs_f64());
    for node in nodes {
        node.shutdown().await;
    }
    Ok(())
}
