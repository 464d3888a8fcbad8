//! Umbel's membership service under load, beside Redis: see README.md.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::float_cmp))]

mod cables;
mod calls;
mod check;
mod connection;
mod console;
mod cycles;
mod failover;
mod grow;
mod idle;
mod items;
mod load;
mod machine;
mod memory;
mod processes;
mod resp;
mod start;
mod system;
mod table;
mod throughput;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Args, Parser, Subcommand};

use crate::console::ConsoleArgs;
use crate::cycles::CyclesArgs;
use crate::failover::FailoverArgs;
use crate::grow::GrowArgs;
use crate::idle::IdleArgs;
use crate::memory::MemoryArgs;
use crate::start::StartArgs;
use crate::system::Places;
use crate::throughput::ThroughputArgs;

/// Measures Umbel's membership service beside Redis on this machine.
#[derive(Parser)]
#[command(max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Items a second, processor time an item, latency
    Throughput(ThroughputArgs),
    /// Memory of a filled filter
    Memory(MemoryArgs),
    /// Processor time and leader changes of a cluster that nobody asks anything
    Idle(IdleArgs),
    /// How long callers wait when a node dies, stands still or is stopped
    Failover(FailoverArgs),
    /// What callers notice while nodes join and leave and shards are split
    Grow(GrowArgs),
    /// How long a node with a long log needs to start
    Start(StartArgs),
    /// Memory of a server whose filters come and go
    Cycles(CyclesArgs),
    /// Processor time and memory of open pages of the console
    Console(ConsoleArgs),
    /// All of them
    All(Box<AllArgs>),
}

#[derive(Args)]
struct AllArgs {
    #[command(flatten)]
    throughput: ThroughputArgs,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    idle: IdleArgs,
    #[command(flatten)]
    failover: FailoverArgs,
    #[command(flatten)]
    grow: GrowArgs,
    #[command(flatten)]
    start: StartArgs,
    #[command(flatten)]
    cycles: CyclesArgs,
    #[command(flatten)]
    console: ConsoleArgs,
}

#[derive(Args)]
struct CommonArgs {
    /// The server [default: what `cargo build --release` makes of this repository]
    #[arg(long, global = true, value_name = "FILE")]
    umbel: Option<PathBuf>,
    /// The peer's server
    #[arg(long, global = true, value_name = "FILE", default_value = "redis-server")]
    redis_server: PathBuf,
    /// Where servers keep data while they run; its disk decides what durable inserts cost
    /// [default: target/bench/service-data of this repository]
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where tables go [default: target/bench/service of this repository]
    #[arg(long, global = true, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Threads of the client [default: one a core]
    #[arg(long, global = true, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    client_threads: Option<u16>,
    /// Try the benchmark itself: seconds in all, any build is accepted, figures mean nothing
    #[arg(long, global = true)]
    smoke: bool,
}

impl CommonArgs {
    fn places(&self) -> Places {
        Places {
            umbel: self.umbel.clone().unwrap_or_else(built_server),
            redis: self.redis_server.clone(),
            data: self.data.clone().unwrap_or_else(|| of_repository("target/bench/service-data")),
            logs: self.out().join("logs"),
            is_smoke: self.smoke,
        }
    }

    fn out(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| of_repository("target/bench/service"))
    }
}

/// Where `cargo build --release` at the root of the repository puts the server.
fn built_server() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    of_repository("").join(target).join("release/umbel")
}

fn of_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = cli.common.client_threads {
        builder.worker_threads(threads.into());
    }
    // Servers are started by this thread: they end with it.
    let outcome = builder.enable_all().build().map_err(Into::into).and_then(|runtime| {
        let outcome = runtime.block_on(run(cli));
        runtime.shutdown_background();
        outcome
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> Result<()> {
    let (places, out) = (cli.common.places(), cli.common.out());
    ensure!(
        !cfg!(debug_assertions) || places.is_smoke,
        "this client was built for debugging: build it with --release"
    );
    let machine = machine::describe(&places)?;
    println!("{machine}");
    let is_smoke = places.is_smoke;
    match cli.command {
        Command::Throughput(mut args) => {
            is_smoke.then(|| args.shrink());
            throughput::run(&args, &places, &out, &machine).await
        }
        Command::Memory(mut args) => {
            is_smoke.then(|| args.shrink());
            memory::run(&args, &places, &out, &machine).await
        }
        Command::Idle(mut args) => {
            is_smoke.then(|| args.shrink());
            idle::run(&args, &places, &out, &machine).await
        }
        Command::Failover(mut args) => {
            is_smoke.then(|| args.shrink());
            failover::run(&args, &places, &out, &machine).await
        }
        Command::Grow(mut args) => {
            is_smoke.then(|| args.shrink());
            grow::run(&args, &places, &out, &machine).await
        }
        Command::Start(mut args) => {
            is_smoke.then(|| args.shrink());
            start::run(&args, &places, &out, &machine).await
        }
        Command::Cycles(mut args) => {
            is_smoke.then(|| args.shrink());
            cycles::run(&args, &places, &out, &machine).await
        }
        Command::Console(mut args) => {
            is_smoke.then(|| args.shrink());
            console::run(&args, &places, &out, &machine).await
        }
        Command::All(args) => run_all(*args, &places, &out, &machine).await,
    }
}

/// Runs one after the other. A failure of one says nothing about the others.
async fn run_all(args: AllArgs, places: &Places, out: &Path, machine: &str) -> Result<()> {
    let AllArgs {
        mut throughput,
        mut memory,
        mut idle,
        mut failover,
        mut grow,
        mut start,
        mut cycles,
        mut console,
    } = args;
    if places.is_smoke {
        throughput.shrink();
        memory.shrink();
        idle.shrink();
        failover.shrink();
        grow.shrink();
        start.shrink();
        cycles.shrink();
        console.shrink();
    }
    let outcomes = [
        throughput::run(&throughput, places, out, machine).await,
        memory::run(&memory, places, out, machine).await,
        idle::run(&idle, places, out, machine).await,
        failover::run(&failover, places, out, machine).await,
        grow::run(&grow, places, out, machine).await,
        start::run(&start, places, out, machine).await,
        cycles::run(&cycles, places, out, machine).await,
        console::run(&console, places, out, machine).await,
    ];
    outcomes.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        let cli = Cli::parse_from(["x", "all", "--seconds", "2", "--items", "5000", "--smoke"]);
        assert!(cli.common.smoke && matches!(cli.command, Command::All(_)));
    }
}
