//! `umbel index`: indexes of what duplicate-detection jobs have kept, joined and described.

use super::dedup::parse_index_bits;
use crate::exit::Exit;
use crate::say::say_line;
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use std::io::Write;
use std::path::PathBuf;
use umbel_dedup::{index_facts, join_indexes};
use umbel_dedup_engine::IndexBits;

/// Arguments of `umbel index`.
#[derive(Args)]
#[command(
    after_help = "Indexes are made by `umbel dedup --save-index FILE`, and used by `umbel dedup --reference FILE`.\n\n\
    Examples:\n  \
      umbel index info seen.umbi\n  \
      umbel index merge monday.umbi tuesday.umbi -o seen.umbi\n  \
      umbel index merge s3://crawl/seen.umbi new.umbi -o all.umbi --index-bits 64\n\n\
    docs/dedup.md has every detail.\n\
    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted."
)]
pub(crate) struct IndexArgs {
    #[command(subcommand)]
    command: IndexCommand,
}

#[derive(Subcommand)]
enum IndexCommand {
    /// Write one index of all that several hold, which were made with one seed and of items alike.
    Merge(MergeArgs),
    /// Say of each index how many hashes it has, and what must be alike in those that go together.
    Info(InfoArgs),
}

#[derive(Args)]
struct MergeArgs {
    /// The indexes, files or objects
    #[arg(required = true, value_name = "INDEX")]
    inputs: Vec<PathBuf>,
    /// The index that has all their hashes; it may be one of them
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Bits of each hash [default: what the one with the fewest has]
    #[arg(long, value_name = "64|96|128", value_parser = parse_index_bits)]
    index_bits: Option<IndexBits>,
    /// Directory for scratch files, which take as much as the output [default: the system's]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Replace the output if it exists
    #[arg(long)]
    overwrite: bool,
    /// Say nothing
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Args)]
struct InfoArgs {
    /// The indexes, files or objects
    #[arg(required = true, value_name = "INDEX")]
    inputs: Vec<PathBuf>,
}

/// Runs the command.
///
/// # Errors
///
/// Names the index that cannot be read, or does not go with the others.
pub(crate) fn run(args: &IndexArgs) -> Result<Exit> {
    match &args.command {
        IndexCommand::Merge(args) => {
            let scratch = args.scratch.clone().unwrap_or_else(std::env::temp_dir);
            let MergeArgs { inputs, output, index_bits, overwrite, quiet, .. } = args;
            let count = join_indexes(inputs, output, *index_bits, *overwrite, &scratch)?;
            if !quiet {
                say_line(format_args!("{}: {count} hashes", output.display()));
            }
        }
        IndexCommand::Info(args) => {
            let mut text = String::from("index\thashes\tbits\tseed\titems\n");
            for index in index_facts(&args.inputs)? {
                let (seed, digest, bits) =
                    (index.spec.seed, index.spec.digest, index.spec.bits.get());
                text +=
                    &format!("{}\t{}\t{bits}\t{seed:#018x}\t{digest}\n", index.name, index.count);
            }
            std::io::stdout().write_all(text.as_bytes()).context("standard output")?;
        }
    }
    Ok(Exit::Done)
}
