//! `umbel dedup`: arguments to a job.

use crate::dedup::{
    JobSpec, OutputTarget, default_memory_bytes, is_closed_pipe, parse_bytes, run as run_job,
};
use crate::exit::{Exit, UsageError};
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use umbel_engine::dedup::{FilterChoice, Keep, Level};
use umbel_records::{Format, Granularity, KeyPath};

/// Arguments of `umbel dedup`.
#[derive(Args)]
#[command(after_help = "Without --output, kept records go to standard output, in input order.\n\
    Exit codes: 0 done, 1 failed, 2 nothing to do or wrong usage, 3 done but bad records were left out.")]
pub(crate) struct DedupArgs {
    /// Files, directories, globs, or - for standard input; plain, gzip or zstd (told by content)
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<String>,
    /// Workers in this process that run the whole exchange [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Option<u32>,
    /// What is compared [default: key with --key, else line]
    #[arg(long, value_enum)]
    granularity: Option<GranularityArg>,
    /// Compare this field of JSON Lines records, like user.id or tags.0; repeatable
    #[arg(long, value_name = "PATH")]
    key: Vec<String>,
    /// How records are cut [default: by file name: .jsonl and .ndjson, else text]
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// Where kept records go: a file, a directory (existing, or with a / behind) for one file an input, or -
    #[arg(long, short, value_name = "DIR|FILE|-")]
    output: Option<PathBuf>,
    /// Write which record was dropped for which one, as JSON Lines
    #[arg(long, value_name = "FILE")]
    duplicates: Option<PathBuf>,
    /// When records are equal
    #[arg(long, value_enum, default_value_t = ExactnessArg::Fingerprint)]
    exactness: ExactnessArg,
    /// At exactness approximate: chance that a record is dropped wrongly [default: 0.001]
    #[arg(long, value_name = "RATE")]
    false_positive_rate: Option<f64>,
    /// Which of equal records stays
    #[arg(long, value_enum, default_value_t = KeepArg::First)]
    keep: KeepArg,
    /// Write the summary as JSON
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// Seed of the hash, to repeat a run exactly, decimal or 0x… as the summary has it [default: drawn]
    #[arg(long, value_name = "N", value_parser = parse_seed)]
    seed: Option<u64>,
    /// Memory to use, like 512M or 2G; what does not fit goes to scratch disk [default: 1G or a quarter]
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Directory for scratch files [default: the system's]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// How workers compare: whatever is cheapest, always a filter, or always whole hashes
    #[arg(long, value_enum, default_value_t = FilterArg::Auto)]
    filter: FilterArg,
    /// Leave bad records out instead of failing, MAX at most, and exit with 3
    #[arg(long, value_name = "MAX", num_args = 0..=1, require_equals = true, default_missing_value = "18446744073709551615")]
    skip_bad: Option<u64>,
    /// List bad records that were left out, as JSON Lines [default: bad.jsonl in an output directory]
    #[arg(long, value_name = "FILE", requires = "skip_bad")]
    bad: Option<PathBuf>,
    /// Replace outputs that exist
    #[arg(long)]
    overwrite: bool,
    /// No progress and no closing table
    #[arg(long, short)]
    quiet: bool,
    /// Only say what the job would need
    #[arg(long)]
    plan: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GranularityArg {
    /// The bytes of a line, without its end
    Line,
    /// The fields that --key names
    Key,
    /// The whole record: of JSON Lines in canonical form, so that white space and the order of fields do not count
    Record,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormatArg {
    /// Lines of any bytes
    Text,
    /// One JSON value a line
    Jsonl,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExactnessArg {
    /// A few hash bits are equal: see --false-positive-rate
    Approximate,
    /// 128-bit hashes are equal
    Fingerprint,
    /// Bytes are equal
    Bytes,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KeepArg {
    /// The first in input order
    First,
    /// The last in input order
    Last,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FilterArg {
    /// Whatever is cheapest
    Auto,
    /// A single-shot filter
    SingleShot,
    /// Whole hashes
    Wide,
}

/// Runs the command.
///
/// # Errors
///
/// As the job; a closed standard output is not one.
pub(crate) fn run(args: &DedupArgs) -> Result<Exit> {
    match run_job(&args.spec()?) {
        Err(error) if is_closed_pipe(&error) => Ok(Exit::Done),
        outcome => outcome,
    }
}

impl DedupArgs {
    fn spec(&self) -> Result<JobSpec> {
        let memory_bytes = match &self.memory {
            Some(text) => {
                parse_bytes(text).map_err(|error| UsageError(format!("--memory: {error}")))?
            }
            None => default_memory_bytes(),
        };
        let format = self.format.map(|format| match format {
            FormatArg::Text => Format::Text,
            FormatArg::Jsonl => Format::JsonLines,
        });
        Ok(JobSpec {
            inputs: self.inputs.clone(),
            workers: self.workers,
            granularity: self.granularity()?,
            format,
            output: self.output(),
            duplicates: self.duplicates.clone(),
            bad: self.bad.clone(),
            summary: self.summary.clone(),
            level: self.level()?,
            keep: if self.keep == KeepArg::First { Keep::First } else { Keep::Last },
            filter: match self.filter {
                FilterArg::Auto => FilterChoice::Auto,
                FilterArg::SingleShot => FilterChoice::SingleShot,
                FilterArg::Wide => FilterChoice::Wide,
            },
            seed: self.seed.unwrap_or_else(draw_seed),
            memory_bytes,
            scratch: self.scratch.clone().unwrap_or_else(std::env::temp_dir),
            skip_bad: self.skip_bad,
            overwrite: self.overwrite,
            quiet: self.quiet,
            plan_only: self.plan,
        })
    }

    fn granularity(&self) -> Result<Granularity> {
        let default = if self.key.is_empty() { GranularityArg::Line } else { GranularityArg::Key };
        let granularity = self.granularity.unwrap_or(default);
        if (granularity == GranularityArg::Key) == self.key.is_empty() {
            let text = "--granularity key and --key PATH go together";
            return Err(UsageError(text.into()).into());
        }
        Ok(match granularity {
            GranularityArg::Line => Granularity::Line,
            GranularityArg::Record => Granularity::Record,
            GranularityArg::Key => {
                let parse = |key: &String| {
                    key.parse::<KeyPath>()
                        .map_err(|error| UsageError(format!("--key {key}: {error}")))
                };
                Granularity::Key(self.key.iter().map(parse).collect::<Result<_, _>>()?)
            }
        })
    }

    fn level(&self) -> Result<Level> {
        let rate = self.false_positive_rate.unwrap_or(1e-3);
        if !(rate > 0.0 && rate < 1.0) {
            let text = format!("--false-positive-rate {rate}: expected a rate above 0 and below 1");
            return Err(UsageError(text).into());
        }
        if self.false_positive_rate.is_some() && self.exactness != ExactnessArg::Approximate {
            let text = "--false-positive-rate goes with --exactness approximate";
            return Err(UsageError(text.into()).into());
        }
        Ok(match self.exactness {
            ExactnessArg::Approximate => Level::Approximate { false_positive_rate: rate },
            ExactnessArg::Fingerprint => Level::Fingerprint,
            ExactnessArg::Bytes => Level::Bytes,
        })
    }

    fn output(&self) -> OutputTarget {
        match &self.output {
            None => OutputTarget::Stdout,
            Some(path) if path == Path::new("-") => OutputTarget::Stdout,
            Some(path) if path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/") => {
                OutputTarget::Directory(path.clone())
            }
            Some(path) => OutputTarget::File(path.clone()),
        }
    }
}

/// A seed in decimal, or in hexadecimal behind 0x.
fn parse_seed(text: &str) -> Result<u64, std::num::ParseIntError> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
}

/// A fresh seed: nobody can prepare an input whose hashes collide under it.
#[expect(clippy::disallowed_methods, reason = "the one die that is cast")]
fn draw_seed() -> u64 {
    rand::random()
}
