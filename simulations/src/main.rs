//! Runs whole Umbel clusters under simulated time, network and disk, determined by one seed.

mod access;
mod answer;
mod bugs;
mod certificate;
mod channel;
mod child;
mod clock;
mod commands;
mod counters;
mod disk;
mod exit;
mod failure;
mod faults;
mod heal;
mod history;
mod host;
mod identity;
mod invariants;
mod job_users;
mod jobs;
mod limits;
mod links;
mod meta;
mod names;
mod net;
mod now;
mod operator;
mod oracle;
mod plan;
mod pool;
mod profile;
mod promises;
mod rebuild;
mod reconcile;
mod report;
mod run;
mod seed;
mod show;
mod shrink;
mod sweep;
mod table;
mod timed;
mod trace;
mod violation;
mod watch;
mod workload;
mod world;

use std::process::ExitCode;

use clap::Parser as _;

use crate::exit::Exit;

/// Whether tokio's scheduler can be seeded in this build.
#[expect(unexpected_cfgs, reason = "the flag is tokio's")]
const IS_REPEATABLE: bool = cfg!(tokio_unstable);

fn main() -> ExitCode {
    if !IS_REPEATABLE {
        eprintln!(
            "this build's runs would not repeat: it lacks `--cfg tokio_unstable`, which \
             .cargo/config.toml sets and a RUSTFLAGS variable hides; build it without that variable"
        );
        return Exit::Usage.into();
    }
    // In the process of a run, nothing may draw entropy before the run seeds it; so this check comes
    // first.
    let ended = if std::env::args_os().nth(1).is_some_and(|argument| argument == child::CHILD) {
        child::serve().map(|()| Exit::Held.into())
    } else {
        commands::Cli::parse().run()
    };
    ended.unwrap_or_else(|error| {
        eprintln!("{error:#}");
        Exit::Usage.into()
    })
}
