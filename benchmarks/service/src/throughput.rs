//! Items a second: every system, request and cell, in rounds.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use tokio::time::timeout;

use crate::connection::Store;
use crate::load::{Cell, Extent, Operation, fill, measure};
use crate::system::{Places, Request, SYSTEMS, Servers, System};
use crate::table::{Figures, Row, csv, grouped, markdown, save};

/// Promised rate of false positives of filters.
const RATE: f64 = 0.01;

/// How long emptying and filling a store may take before a cell.
const FILL_TIMEOUT: Duration = Duration::from_secs(300);

/// What is measured, and for how long.
#[derive(Args, Clone, Debug)]
pub(crate) struct ThroughputArgs {
    /// Rounds; in each every system is started anew, one after the other. Tables have medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=99))]
    rounds: u64,
    /// Seconds that a cell is measured, after a tenth of that for warming up
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Only these systems
    #[arg(long, value_delimiter = ',', value_name = "NAME,…",
        value_parser = clap::builder::PossibleValuesParser::new(SYSTEMS.map(|system| system.name)))]
    systems: Vec<String>,
    /// Only these operations
    #[arg(long, value_delimiter = ',', value_name = "NAME,…",
        value_parser = clap::builder::PossibleValuesParser::new(Operation::ALL.map(Operation::name)))]
    operations: Vec<String>,
    /// Items of a batch
    #[arg(long, default_value_t = 1000, value_name = "N",
        value_parser = clap::value_parser!(u64).range(2..=65_536))]
    batch: u64,
    /// Connections with one batch in flight each, one cell for each number
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_value = "1,8",
        value_parser = clap::value_parser!(u64).range(1..=256))]
    in_flight: Vec<u64>,
    /// The same for single items; `0` leaves single items out
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_value = "1,64",
        value_parser = clap::value_parser!(u64).range(0..=256))]
    in_flight_single: Vec<u64>,
    /// Umbel's calls in flight share one handle, in place of a client for each: single items travel together then
    #[arg(long)]
    share_client: bool,
    /// Ask Umbel by streams of requests over plain gRPC, by plain calls, and by its client with and without joining
    /// single items, in place of items and hashes by its client
    #[arg(long, conflicts_with = "share_client")]
    streams: bool,
    /// Items that filters are made for; a cell that inserts new items ends there at the latest
    #[arg(long, default_value_t = 20_000_000, value_name = "N")]
    capacity: u64,
    /// Items that are inserted before present ones are sent
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    present: u64,
}

impl ThroughputArgs {
    /// So small that it takes seconds.
    pub(crate) fn shrink(&mut self) {
        self.rounds = self.rounds.min(1);
        self.seconds = self.seconds.min(0.5);
        self.present = self.present.min(20_000);
    }

    fn systems(&self) -> Vec<System> {
        let is_wanted = |system: &System| {
            self.systems.is_empty() || self.systems.iter().any(|name| name == system.name)
        };
        SYSTEMS.into_iter().filter(is_wanted).collect()
    }

    fn cells(&self, request: Request) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        let sizes = [(self.batch, &self.in_flight), (1, &self.in_flight_single)];
        for (batch_items, in_flight) in sizes {
            if batch_items == 1 && request == Request::SaddMany {
                continue; // the same as one by one
            }
            if batch_items > 1 && request == Request::Joined {
                continue; // batches are not joined
            }
            for operation in Operation::ALL {
                let name = operation.name();
                if !self.operations.is_empty() && self.operations.iter().all(|one| one != name) {
                    continue;
                }
                for &in_flight in in_flight.iter().filter(|&&count| count > 0) {
                    let batch_items = usize::try_from(batch_items)?;
                    let in_flight = usize::try_from(in_flight)?;
                    cells.push(Cell { operation, batch_items, in_flight });
                }
            }
        }
        // Those that need an empty filter first, so that the others are filled only once.
        cells.sort_by_key(|cell| cell.operation);
        Ok(cells)
    }

    fn requests(&self, system: System) -> &'static [Request] {
        if self.streams { system.requests_with_streams() } else { system.requests }
    }

    fn extent(&self, system: System) -> Extent {
        let measured = Duration::from_secs_f64(self.seconds);
        let warm_up = measured / 10;
        let rate = if system.is_umbel() { RATE } else { 0.0 };
        Extent { present_count: self.present, capacity: self.capacity, rate, warm_up, measured }
    }

    fn check(&self) -> Result<()> {
        ensure!((0.05..=600.0).contains(&self.seconds), "--seconds: expected 0.05 to 600");
        let (present, capacity) = (self.present, self.capacity);
        ensure!(
            present >= 1 && present <= capacity && capacity < 1 << 40,
            "--present {present}, --capacity {capacity}: expected 1 to the capacity, below 2^40"
        );
        Ok(())
    }
}

/// Measures, and writes `throughput.csv` and `throughput.md` after every server, so that an
/// interrupted run is not lost.
///
/// # Errors
/// If a server failed or answered wrongly, after all the others were measured.
pub(crate) async fn run(
    args: &ThroughputArgs,
    places: &Places,
    out: &std::path::Path,
    machine: &str,
) -> Result<()> {
    args.check()?;
    let mut noted = Noted::default();
    for round in 1..=usize::try_from(args.rounds)? {
        for system in args.systems() {
            eprintln!("round {round}: {}: {}", system.name, system.command());
            if let Err(error) = run_system(args, places, round, system, &mut noted).await {
                noted.fail(format!("round {round}, {}: {error:#}", system.name));
            }
            save(out, "throughput.csv", &csv(&noted.rows))?;
            save(out, "throughput.md", &format!("{machine}\n{}", noted.markdown()))?;
        }
    }
    println!("{}", noted.markdown());
    ensure!(noted.failures.is_empty(), "{} measurements failed", noted.failures.len());
    Ok(())
}

/// What came out so far.
#[derive(Default)]
struct Noted {
    rows: Vec<Row>,
    failures: Vec<String>,
}

impl Noted {
    fn fail(&mut self, failure: String) {
        eprintln!("  FAILED: {failure}");
        self.failures.push(failure);
    }

    fn markdown(&self) -> String {
        let failures = self.failures.iter().map(|failure| format!("FAILED: {failure}\n\n"));
        markdown(&self.rows) + &failures.collect::<String>()
    }
}

/// Measures all cells of a system. A cell that fails is noted and the next one follows, as long as
/// the servers live.
async fn run_system(
    args: &ThroughputArgs,
    places: &Places,
    round: usize,
    system: System,
    noted: &mut Noted,
) -> Result<()> {
    let mut servers = Servers::start(system, places, &[]).await?;
    for &request in args.requests(system) {
        let mut filled: Option<Store> = None;
        for cell in args.cells(request)? {
            let name = request.name(cell.operation.verb());
            let (operation, in_flight) = (cell.operation.name(), cell.in_flight);
            let label =
                format!("{operation}, {} × {in_flight} in flight, {name}", cell.batch_items);
            match run_cell(args, &servers, (system, request, cell), &mut filled).await {
                Ok(figures) => {
                    let rate = grouped(figures.items_per_s);
                    let server_ns = grouped(figures.server_ns);
                    eprintln!("  {label}: {rate} items/s, server {server_ns} ns/item");
                    noted.rows.push(Row { round, system, request, cell, figures });
                }
                Err(error) => {
                    noted.fail(format!("round {round}, {}, {label}: {error:#}", system.name));
                    servers.check_alive()?;
                }
            }
        }
    }
    Ok(())
}

async fn run_cell(
    args: &ThroughputArgs,
    servers: &Servers,
    (system, request, cell): (System, Request, Cell),
    filled: &mut Option<Store>,
) -> Result<Figures> {
    let extent = args.extent(system);
    let empty = Store::empty(servers, request, args.capacity, RATE);
    let fresh;
    let store = match (cell.operation, filled) {
        (Operation::InsertNew, _) => {
            fresh = timeout(FILL_TIMEOUT, empty).await.context("emptying takes too long")??;
            &fresh
        }
        (_, Some(store)) => store,
        (_, none) => {
            let fill = async {
                let store = empty.await?;
                fill(&store, args.present, extent.rate).await?;
                Ok::<_, anyhow::Error>(store)
            };
            none.insert(timeout(FILL_TIMEOUT, fill).await.context("filling takes too long")??)
        }
    };
    let connections = store.connect(cell.in_flight, args.share_client).await?;
    Ok(Figures::of(&measure(connections, cell, extent, &servers.ids()).await?))
}
