//! `umbel index`: merges and describes the indexes of hashes that `umbel dedup` has kept, and builds and
//! queries indexes of many files, which answer which files hold an item.

mod ask;
mod build;
mod columns;
mod info;
mod items;
mod open_index;

use super::dedup::parse_index_bits;
use crate::exit::Exit;
use crate::stderr::eprint_line;
use anyhow::Result;
use ask::AskArgs;
use build::BuildArgs;
use clap::{Args, Subcommand};
use info::InfoArgs;
use std::path::PathBuf;
use umbel_dedup::join_indexes;
use umbel_dedup_engine::IndexBits;
use umbel_files::refuse_standard_output;

/// Arguments of `umbel index`.
#[derive(Args)]
#[command(
    after_help = "There are two kinds. F.umbi has the hashes of all that jobs have kept: made by `umbel dedup --save-index`, \
    used by `umbel dedup --reference`, joined by `merge`. F.umbx has a Bloom filter for each of many files: made by \
    `build`, asked by `ask` which of the files may hold an item. `info` describes both.\n\n\
    Examples:\n  \
      umbel index merge monday.umbi tuesday.umbi -o seen.umbi\n  \
      umbel index build logs/*.txt -o logs.umbx --items words\n  \
      umbel index ask logs.umbx timeout refused\n\n\
    docs/dedup.md has every detail of F.umbi, docs/static.md of F.umbx.\n\
    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted. `ask` is like grep: 0 if a file may hold the items, 1 if \
    none does, 2 if it failed."
)]
pub(crate) struct IndexArgs {
    #[command(subcommand)]
    command: IndexCommand,
}

#[derive(Subcommand)]
enum IndexCommand {
    /// Merge several indexes, made with the same seed and of the same kind of items, into one (F.umbi).
    Merge(MergeArgs),
    /// Show what each index holds, and what must match in indexes that are used together (F.umbi, F.umbx).
    Info(InfoArgs),
    /// Build an index of many files, each a set of items (F.umbx).
    Build(Box<BuildArgs>),
    /// Ask which of the files of an index may hold some items (F.umbx).
    Ask(AskArgs),
}

#[derive(Args)]
struct MergeArgs {
    /// The indexes, files or objects
    #[arg(required = true, value_name = "INDEX")]
    inputs: Vec<PathBuf>,
    /// The index to write, with all their hashes; it may be one of them
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Bits of each hash [default: the fewest of any of them]
    #[arg(long, value_name = "64|96|128", value_parser = parse_index_bits)]
    index_bits: Option<IndexBits>,
    /// Directory for scratch files, which take as much as the output [default: the system's]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Replace the output if it exists
    #[arg(long)]
    overwrite: bool,
    /// Print nothing
    #[arg(long, short)]
    quiet: bool,
}

/// Runs the command.
///
/// # Errors
///
/// If a file cannot be read or written (the error names it), or indexes do not match. `ask` prints its
/// errors itself, because it exits with 2 instead of 1.
pub(crate) fn run(args: &IndexArgs) -> Result<Exit> {
    match &args.command {
        IndexCommand::Merge(args) => {
            let scratch = args.scratch.clone().unwrap_or_else(std::env::temp_dir);
            let MergeArgs { inputs, output, index_bits, overwrite, quiet, .. } = args;
            refuse_standard_output("--output", output)?;
            let count = join_indexes(inputs, output, *index_bits, *overwrite, &scratch)?;
            if !quiet {
                eprint_line(format_args!("{}: {count} hashes", output.display()));
            }
            Ok(Exit::Done)
        }
        IndexCommand::Info(args) => args.run(),
        IndexCommand::Build(args) => args.run(),
        IndexCommand::Ask(args) => args.run().or_else(|error| {
            eprint_line(format_args!("{error:#}"));
            Ok(Exit::Unanswered)
        }),
    }
}
