//! `umbel static`: files that answer membership queries for a set that never changes; built once, queried
//! without a cluster.

mod ask;
mod build;
mod chunks;
pub(crate) mod form;
pub(crate) mod hash_key;
mod info;
mod open_file;

use crate::exit::Exit;
use crate::stderr::eprint_line;
use anyhow::Result;
use ask::AskArgs;
use build::BuildArgs;
use clap::{Args, Subcommand};
use info::InfoArgs;

/// Arguments of `umbel static`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
      umbel static build seen.txt --rate 0.001 -o seen.umbs\n  \
      umbel static build users.csv --key id --value group -o groups.umbs\n  \
      umbel static build revoked.txt --others valid.txt -o revoked.umbs\n  \
      umbel static ask seen.umbs --file new.txt --absent > unseen.txt\n\n\
    docs/static.md has every detail.\n\
    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted. `ask` is like grep: 2 if it failed, and with \
    one ITEM 0 if it is present, 1 if absent.")]
pub(crate) struct StaticArgs {
    #[command(subcommand)]
    verb: StaticVerb,
}

#[derive(Subcommand)]
enum StaticVerb {
    /// Build a file of keys: a filter, a map to the numbers of a field, or an exact set
    Build(Box<BuildArgs>),
    /// Query a file for items
    Ask(AskArgs),
    /// Check a file from end to end and describe it
    Info(InfoArgs),
}

/// Runs the command.
///
/// # Errors
///
/// A usage error if arguments contradict each other; if a file cannot be read or written. `ask` prints
/// its errors itself, because it exits with 2 instead of 1.
pub(crate) fn run(args: &StaticArgs) -> Result<Exit> {
    match &args.verb {
        StaticVerb::Build(args) => args.run(),
        StaticVerb::Info(args) => args.run(),
        StaticVerb::Ask(args) => args.run().or_else(|error| {
            eprint_line(format_args!("{error:#}"));
            Ok(Exit::Unanswered)
        }),
    }
}
