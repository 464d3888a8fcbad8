//! The command line.

mod bugs;
mod corpus;
mod meta;
mod replay;
mod run;
mod shrink;
mod sweep;

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use serde::Serialize;

use crate::limits::Limits;
use crate::plan::Plan;
use crate::rebuild;

/// Whole Umbel clusters under simulated time, network and disk, from one seed.
///
/// Each run is a process of its own and depends on its plan alone: the same plan makes the same run.
#[derive(Parser)]
#[command(
    name = "simulations",
    max_term_width = 100,
    after_help = "Exit codes: 0 every promise held, 1 one was broken, 2 wrong usage, 3 a seed made \
                  two different runs, 4 a fault, state or check was never seen, 5 a run used up its \
                  memory or time."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten, next_help_heading = "Limits of a run")]
    limits: Limits,
}

#[derive(Subcommand)]
enum Command {
    /// Make one run
    Run(run::RunArgs),
    /// Run many seeds, each in its own process
    Sweep(sweep::SweepArgs),
    /// Make the run of a plan file again
    Replay(replay::ReplayArgs),
    /// Run all plans of a folder, which must hold
    Corpus(corpus::CorpusArgs),
    /// Make a failing plan smaller while it fails in the same way
    Shrink(shrink::ShrinkArgs),
    /// Run seeds twice and compare all that was logged, byte for byte
    Meta(meta::MetaArgs),
    /// Switch planted bugs on, one after the other, and see that each is found
    Bugs(bugs::BugsArgs),
}

impl Cli {
    /// Carries the command out.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if self.command.needs_planted_bugs()? && !umbel_step::planted::PLANTED {
            return rebuild::run_with_planted_bugs();
        }
        let limits = self.limits;
        let exit = match &self.command {
            Command::Run(args) => run::run(args, limits)?,
            Command::Sweep(args) => sweep::run(args, limits)?,
            Command::Replay(args) => replay::run(args, limits)?,
            Command::Corpus(args) => corpus::run(args, limits)?,
            Command::Shrink(args) => shrink::run(args, limits)?,
            Command::Meta(args) => meta::run(args, limits)?,
            Command::Bugs(args) => bugs::run(args, limits)?,
        };
        Ok(exit.into())
    }
}

impl Command {
    fn needs_planted_bugs(&self) -> anyhow::Result<bool> {
        Ok(match self {
            Self::Run(args) => args.planted.is_some(),
            Self::Sweep(args) => args.planted.is_some(),
            Self::Replay(args) => Plan::read(&args.plan)?.planted.is_some(),
            Self::Shrink(args) => Plan::read(&args.plan)?.planted.is_some(),
            Self::Corpus(_) | Self::Meta(_) => false,
            Self::Bugs(_) => true,
        })
    }
}

/// Writes for people, at once, so that a command can be watched. If nobody reads any more, it goes on
/// without: the verdict is in the exit code.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes a report as JSON.
fn write_report(report: &impl Serialize, path: &Path) -> anyhow::Result<()> {
    let mut json = serde_json::to_vec_pretty(report)?;
    json.push(b'\n');
    std::fs::write(path, json)
        .with_context(|| format!("the report could not be written: {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use clap::error::ErrorKind;

    fn refusal(line: &str) -> clap::Error {
        match Cli::try_parse_from(line.split(' ')) {
            Ok(_) => panic!("accepted: {line}"),
            Err(error) => error,
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_is_meant_is_accepted() {
        let lines = [
            "sim run",
            "sim run --seed 7 --profile crash --ms 5000 --trace event --trace-file t --report r",
            "sim sweep --seeds 1..9 --jobs 2 --profile calm",
            "sim sweep --minutes 5 --first 77",
            "sim replay plan.json --trace full",
            "sim corpus",
            "sim corpus folder",
            "sim shrink plan.json -o small.json --runs 10 --minutes 1",
            "sim meta --seeds 2 --profile disk --ms 1000",
            "sim bugs --rotate 4 --turn 9",
            "sim sweep --seeds 1..9 --profile reconcile --ms 15000",
            "sim bugs local_read ack_before_sync --seeds 20",
            "sim run --planted local_read --cpu-limit 5 --memory-limit 512",
        ];
        for line in lines {
            if let Err(error) = Cli::try_parse_from(line.split(' ')) {
                panic!("{line}: {error}");
            }
        }
    }

    #[test]
    fn wrong_usage_is_refused_with_the_reason_and_exit_code_2() {
        let lines = [
            ("sim sweep --seeds 5..5", "a seed range of nothing"),
            ("sim sweep --seeds 9..5", "a seed range of nothing"),
            ("sim sweep --seeds 9", "expected seeds as A..B"),
            ("sim sweep", "--seeds"),
            ("sim sweep --seeds 1..2 --minutes 3", "cannot be used with"),
            ("sim sweep --seeds 1..2 --first 3", "cannot be used with"),
            ("sim sweep --seeds 1..2 --jobs 0", "0 is not in 1.."),
            ("sim run --profile storm", "no profile \"storm\""),
            ("sim run --planted nothing", "no planted bug \"nothing\""),
            ("sim run --ms 0", "0 is not in 1.."),
            ("sim sweep --seeds 1..2 --ms 600001", "600001 is not in 1..=600000"),
            ("sim run --cpu-limit 0", "0 is not in 1.."),
            ("sim meta --seed 1 --seeds 2", "cannot be used with"),
            ("sim bugs local_read --rotate 3", "cannot be used with"),
            ("sim bugs --turn 3", "--rotate"),
            ("sim replay", "<PLAN>"),
            ("sim replay plan.json --trace-file t", "--trace <LEVEL>"),
        ];
        for (line, reason) in lines {
            let error = refusal(line);
            assert!(error.to_string().contains(reason), "{line}: {error}");
            assert_eq!(error.exit_code(), 2, "{line}");
        }
        assert_eq!(refusal("sim --help").kind(), ErrorKind::DisplayHelp);
    }
}
