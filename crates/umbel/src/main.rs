//! The `umbel` command: parses its arguments, runs a subcommand and turns its outcome into an exit code.
//!
//! Exit codes, the same for every subcommand: 0 done, 1 failed, 2 nothing to do or wrong usage, 3 done
//! but bad records were skipped, 130 interrupted. Exceptions: `filter contains` exits with 1 if the item
//! is absent, and `reconcile` with 1 if the sets differ; both exit with 2 if they failed.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod amounts;
mod arguments;
mod clock;
mod cluster_client;
mod commands;
mod end_signals;
mod exit;
mod interrupt;
mod picture;
mod printer;
mod screen;
mod stderr;
mod units;
mod waiting;

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

const _: () = assert!(
    !umbel_step::planted::PLANTED,
    "umbel was built with the feature `planted` of umbel-engine: bugs to test the simulations with must not ship"
);

/// musl's own allocator has one lock for all threads and is many times slower than glibc's, of which a node's time is a sixth.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A cluster that remembers what it has seen.
#[derive(Parser)]
#[command(name = "umbel", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Find and drop duplicate records in files, exactly.
    Dedup(Box<commands::dedup::DedupArgs>),
    /// Merge indexes of what jobs have kept; build and query indexes of many files.
    Index(commands::index::IndexArgs),
    /// Run a node of a cluster.
    Serve(Box<commands::serve::ServeArgs>),
    /// Create, fill and query named filters of a cluster.
    Filter(Box<commands::filter::FilterArgs>),
    /// Administer a cluster: nodes, shards, backups.
    Cluster(Box<commands::cluster::AdminArgs>),
    /// Manage who may do what on a cluster.
    Access(Box<commands::access::AccessArgs>),
    /// List, follow, cancel and resume jobs of a cluster.
    Job(Box<commands::job::JobArgs>),
    /// Compare what a filter would cost partitioned and replicated; needs no cluster.
    Plan(Box<commands::plan::PlanArgs>),
    /// Find and resolve the difference of two sets, with close to the fewest bytes.
    Reconcile(Box<commands::reconcile::ReconcileArgs>),
    /// Build and update sketches: small files that stand in for a set when another is compared with it.
    Sketch(Box<commands::sketch::SketchArgs>),
    /// Build and query files that answer for a set that does not change; needs no cluster.
    Static(commands::static_file::StaticArgs),
}

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let Cli { command } = arguments::parse(&args).unwrap_or_else(|error| error.exit());
    // A server handles signals itself, and a process can have only one handler.
    if !matches!(command, Command::Serve(_)) {
        interrupt::remove_partial_files_on_interrupt();
    }
    let outcome = match command {
        Command::Dedup(args) => commands::dedup::run(&args),
        Command::Index(args) => commands::index::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Filter(args) => commands::filter::run(&args),
        Command::Cluster(args) => commands::cluster::run(&args),
        Command::Access(args) => commands::access::run(&args),
        Command::Job(args) => commands::job::run(&args),
        Command::Plan(args) => commands::plan::run(&args),
        Command::Reconcile(args) => commands::reconcile::run(&args),
        Command::Sketch(args) => commands::sketch::run(&args),
        Command::Static(args) => commands::static_file::run(&args),
    };
    umbel_objects::abort_open_uploads(false);
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => {
            stderr::eprint_line(exit::text_of(&error));
            exit::Exit::of(&error).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// The commands of an example, each without its redirection.
    fn commands(example: &str) -> impl Iterator<Item = &str> {
        let parts = example.split(" | ").flat_map(|part| part.split(" && "));
        parts.map(|part| part.split(" > ").next().unwrap().trim())
    }

    #[test]
    fn every_example_of_the_help_is_a_command() {
        let mut parsed_count = 0;
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = help.lines().filter(|line| line.starts_with("  "));
            for words in examples.flat_map(commands).filter(|part| part.starts_with("umbel ")) {
                if let Err(error) = Cli::try_parse_from(words.split_whitespace()) {
                    panic!("{words}: {error}");
                }
                parsed_count += 1;
            }
        }
        // Eleven commands have three examples each, two of them a fourth, and one example line holds two
        // commands.
        assert_eq!(parsed_count, 36);
    }
}
