//! `umbel dedup`: arguments to a job.

mod binary;
mod cluster;
mod machines;

pub(crate) use cluster::spec_of;

use crate::dedup::{
    BestField, EmptyItems, FilterAddress, JobSpec, MissingKey, ObjectStores, OutputTarget,
    PeerSpec, SaveIndex, Scope, default_memory_bytes, is_closed_pipe, is_directory, is_object,
    parse_bytes, run as run_job, run_as_member, seed_of_first,
};
use crate::exit::{Exit, UsageError};
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use umbel_engine::dedup::{FilterChoice, IndexBits, Keep, Level};
use umbel_records::{Format, Granularity, Normaliser};

/// Arguments of `umbel dedup`.
#[derive(Args)]
#[command(after_help = "Without --output, kept records go to standard output, in input order.\n\
    Exit codes: 0 done, 1 failed, 2 nothing to do or wrong usage, 3 done but bad records were left out.")]
pub(crate) struct DedupArgs {
    /// Files, directories, globs, - for standard input, or objects (s3://BUCKET/KEY, PREFIX/ or GLOB); plain, or
    /// packed with gzip, zstd, xz, bzip2 or lz4 (told by content) [default: standard input]
    #[arg(value_name = "INPUT")]
    inputs: Vec<String>,
    /// Workers in this process that exchange what workers on many machines would: to measure it [default: 1, on all
    /// cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Option<u32>,
    /// What is compared [default: key with --key, else line, of Parquet record]
    #[arg(long, value_enum)]
    granularity: Option<GranularityArg>,
    /// Compare this field: of JSON Lines a path like user.id or tags.0, of CSV, TSV and Parquet a column; repeatable
    #[arg(long, value_name = "FIELD")]
    key: Vec<String>,
    /// At granularity paragraph: shorter paragraphs are not compared
    #[arg(long, value_name = "N", requires = "key")]
    paragraph_bytes_min: Option<u64>,
    /// What does not count when items are compared, in this order: trim, lower, nfc, nfkc, squeeze, crlf, punct, url
    #[arg(long, alias = "normalize", value_name = "NAMES", value_delimiter = ',')]
    normalise: Vec<Normaliser>,
    /// Which records are compared with each other
    #[arg(long, value_enum, default_value_t = ScopeArg::Global)]
    scope: ScopeArg,
    /// What becomes of a record without a field that --key names [default: fail]
    #[arg(long, value_enum, requires = "key")]
    missing_key: Option<MissingKeyArg>,
    /// What becomes of empty items, and of keys whose fields are all empty or null
    #[arg(long, value_enum, default_value_t = EmptyArg::Compare)]
    empty: EmptyArg,
    /// How records are cut [default: Parquet by content, others by file name: .jsonl, .ndjson, .csv, .tsv, else text]
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// Where kept records go: a file, a directory (existing, or with a / behind) for one file an input, or -. This and
    /// all other outputs may be objects, s3://BUCKET/KEY and s3://BUCKET/PREFIX/
    #[arg(long, short, value_name = "DIR|FILE|-")]
    output: Option<PathBuf>,
    /// Drop nothing: write one JSON line a record that says whether it is a duplicate, and of which one; a directory
    /// gets one file an input, NAME.jsonl
    #[arg(long, value_name = "DIR|FILE|-", conflicts_with = "output")]
    annotate: Option<PathBuf>,
    /// Write which record was dropped for which one, as JSON Lines
    #[arg(long, value_name = "FILE")]
    duplicates: Option<PathBuf>,
    /// Write every kept record that was repeated, and how often it stood there, as JSON Lines
    #[arg(long, value_name = "FILE")]
    groups: Option<PathBuf>,
    /// When records are equal
    #[arg(long, value_enum, default_value_t = ExactnessArg::Fingerprint)]
    exactness: ExactnessArg,
    /// At exactness approximate: chance that a record is dropped wrongly [default: 0.001]
    #[arg(long, value_name = "RATE")]
    false_positive_rate: Option<f64>,
    /// Which of equal records stays: first or last in input order, best:FIELD (largest number or newest date in
    /// it) or best:FIELD:min
    #[arg(long, value_name = "RULE", value_parser = parse_keep, default_value = "first")]
    keep: KeepArg,
    /// Drop what an earlier job has kept, which FILE or an object lists (made with --save-index), or what a filter of
    /// a cluster holds, umbel://HOST:PORT/FILTER or with --cluster umbel:///FILTER; repeatable
    #[arg(long, value_name = "FILE|URL")]
    reference: Vec<String>,
    /// Write the hashes of all kept records, for --reference of later jobs; a FILE that is a --reference, too, is
    /// updated: it gets them beside its own
    #[arg(long, value_name = "FILE")]
    save_index: Option<PathBuf>,
    /// Bits of each hash in the index: with fewer, later jobs are approximate [default: 128]
    #[arg(long, value_name = "64|96|128", requires = "save_index", value_parser = parse_index_bits)]
    index_bits: Option<IndexBits>,
    /// Insert all kept records into a filter of a cluster, once they are written: umbel://HOST:PORT/FILTER
    #[arg(long, value_name = "URL")]
    add_to: Option<String>,
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
    /// What becomes of files of a directory or pattern that are no text (UTF-16, archives, images, programs ...)
    #[arg(long, value_enum, default_value_t = binary::BinaryArg::Refuse)]
    binary: binary::BinaryArg,
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
    #[command(flatten)]
    machines: machines::MachineArgs,
    #[command(flatten)]
    on_cluster: cluster::ClusterJobArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GranularityArg {
    /// The bytes of a line, without its end
    Line,
    /// The fields that --key names
    Key,
    /// The whole record: of JSON Lines in canonical form, so that white space and the order of fields do not count; of
    /// CSV and TSV all fields, so that quoting does not count; of Parquet all columns
    Record,
    /// The pieces of the text that --key names, each up to its line end: pieces are dropped, and their records stay
    Paragraph,
    /// The whole content of a file: whole files are dropped
    File,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ScopeArg {
    /// All with all
    Global,
    /// Those of files in one directory
    Dir,
    /// Those of one file
    File,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MissingKeyArg {
    /// It is a bad record
    Fail,
    /// It stays, and is compared with nothing
    Keep,
    /// It goes
    Drop,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EmptyArg {
    /// They stay, all of them
    Keep,
    /// They are equal to each other
    Compare,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormatArg {
    /// Lines of any bytes
    Text,
    /// One JSON value a line
    Jsonl,
    /// A header row and fields between commas
    Csv,
    /// A header row and fields between tabs
    Tsv,
    /// Apache Parquet
    Parquet,
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

#[derive(Clone, PartialEq, Eq)]
enum KeepArg {
    First,
    Last,
    Best(BestField),
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
    let mut spec = args.spec()?;
    if let Some(addresses) = &args.on_cluster.cluster {
        return cluster::run(args, addresses);
    }
    let peers = args.machines.peers()?;
    if spec.inputs.is_empty() {
        spec.inputs = vec![piped_input(peers.is_some())?];
    }
    // All workers must hash alike, and as references do.
    spec.seed = match (args.seed, seed_of_first(&spec)?) {
        (Some(seed), _) | (None, Some(seed)) => seed,
        (None, None) => peers.as_ref().map_or_else(draw_seed, PeerSpec::seed),
    };
    if let Some(peers) = peers {
        return run_as_member(spec, &peers);
    }
    match run_job(&spec) {
        Err(error) if is_closed_pipe(&error) => Ok(Exit::Done),
        outcome => outcome,
    }
}

/// What is read where no input is named: standard input, as by `sort`, unless nobody has put anything there.
fn piped_input(is_one_of_many: bool) -> Result<String> {
    let text = if is_one_of_many {
        "name what this worker reads: files, directories, globs or objects"
    } else if std::io::stdin().is_terminal() {
        "no input: name files, directories, globs or objects, or pipe records into standard input"
    } else {
        return Ok("-".to_owned());
    };
    Err(UsageError(text.into()).into())
}

/// What a job has to do with other jobs.
struct Beside {
    references: Vec<PathBuf>,
    online: Vec<FilterAddress>,
    add_to: Option<FilterAddress>,
    save_index: Option<SaveIndex>,
}

impl DedupArgs {
    /// What the job has to do with other jobs.
    fn beside(&self, level: Level) -> Result<Beside> {
        let (online, references): (Vec<&String>, Vec<&String>) =
            self.reference.iter().partition(|reference| FilterAddress::is_meant(reference));
        let refuse =
            |text: &str| Err(UsageError(format!("{text}: leave one of the two out")).into());
        if level == Level::Bytes && !references.is_empty() {
            return refuse(
                "--exactness bytes compares items, and a reference holds only their hashes",
            );
        }
        if self.annotate.is_some() && !self.reference.is_empty() {
            return refuse("--annotate names kept records, and what a reference holds has none");
        }
        let address = |text: &String| text.parse::<FilterAddress>();
        let bits = self.index_bits;
        Ok(Beside {
            references: references.into_iter().map(PathBuf::from).collect(),
            online: online.into_iter().map(address).collect::<Result<_, _>>()?,
            add_to: self.add_to.as_ref().map(address).transpose()?,
            save_index: self.save_index.clone().map(|path| SaveIndex { path, bits }),
        })
    }

    /// Refuses objects where only files can be.
    fn check_objects(&self) -> Result<()> {
        let files = [
            ("--output", &self.output),
            ("--annotate", &self.annotate),
            ("--duplicates", &self.duplicates),
            ("--groups", &self.groups),
            ("--bad", &self.bad),
            ("--save-index", &self.save_index),
            ("--summary", &self.summary),
        ];
        if self.on_cluster.cluster.is_none() {
            return Ok(());
        }
        let files = files.into_iter().filter_map(|(flag, path)| Some((flag, &**path.as_ref()?)));
        let references = self.reference.iter().map(|name| ("--reference", Path::new(name)));
        match files.chain(references).find(|(_, path)| is_object(path)) {
            None => Ok(()),
            Some((flag, path)) => {
                let text = format!(
                    "{flag} {}: jobs of a cluster read and write no objects, for whoever reaches a node would do so \
                     with its credentials; start workers with --peers, or one process",
                    path.display()
                );
                Err(UsageError(text).into())
            }
        }
    }

    fn memory_bytes(&self) -> Result<u64> {
        match &self.memory {
            Some(text) => {
                Ok(parse_bytes(text).map_err(|error| UsageError(format!("--memory: {error}")))?)
            }
            None => Ok(default_memory_bytes()),
        }
    }

    /// What the user wants. Reads nothing: without --seed the seed is 0, and whoever runs the job finds one.
    fn spec(&self) -> Result<JobSpec> {
        let format = self.format.map(|format| match format {
            FormatArg::Text => Format::Text,
            FormatArg::Jsonl => Format::JsonLines,
            FormatArg::Csv => Format::Csv,
            FormatArg::Tsv => Format::Tsv,
            FormatArg::Parquet => Format::Parquet,
        });
        let level = self.level()?;
        self.check_objects()?;
        let Beside { online, references, add_to, save_index } = self.beside(level)?;
        Ok(JobSpec {
            references,
            online,
            add_to,
            own_cluster: None,
            save_index,
            inputs: self.inputs.clone(),
            workers: self.workers,
            granularity: self.granularity()?,
            paragraph_bytes_min: self.paragraph_bytes_min.unwrap_or(0),
            normalise: self.normalise.clone(),
            scope: match self.scope {
                ScopeArg::Global => Scope::Global,
                ScopeArg::Dir => Scope::Directory,
                ScopeArg::File => Scope::File,
            },
            missing_key: match self.missing_key {
                None | Some(MissingKeyArg::Fail) => MissingKey::Fail,
                Some(MissingKeyArg::Keep) => MissingKey::Keep,
                Some(MissingKeyArg::Drop) => MissingKey::Drop,
            },
            empty: match self.empty {
                EmptyArg::Keep => EmptyItems::Keep,
                EmptyArg::Compare => EmptyItems::Compare,
            },
            names_granularity: self.granularity.is_some(),
            format,
            output: self.output(),
            annotates: self.annotate.is_some(),
            groups: self.groups.clone(),
            duplicates: self.duplicates.clone(),
            bad: self.bad.clone(),
            summary: self.summary.clone(),
            level,
            keep: match &self.keep {
                KeepArg::First => Keep::First,
                KeepArg::Last => Keep::Last,
                KeepArg::Best(_) => Keep::Best,
            },
            best: match &self.keep {
                KeepArg::Best(best) => Some(best.clone()),
                _ => None,
            },
            filter: match self.filter {
                FilterArg::Auto => FilterChoice::Auto,
                FilterArg::SingleShot => FilterChoice::SingleShot,
                FilterArg::Wide => FilterChoice::Wide,
            },
            seed: self.seed.unwrap_or(0),
            memory_bytes: self.memory_bytes()?,
            scratch: self.scratch.clone().unwrap_or_else(std::env::temp_dir),
            skip_bad: self.skip_bad,
            binary: self.binary.files(&self.output())?,
            overwrite: self.overwrite,
            quiet: self.quiet,
            plan_only: self.plan,
            stores: ObjectStores::new(self.memory_bytes()?),
            rank: None,
        })
    }

    fn granularity(&self) -> Result<Granularity> {
        let default = if self.key.is_empty() { GranularityArg::Line } else { GranularityArg::Key };
        let granularity = self.granularity.unwrap_or(default);
        if self.paragraph_bytes_min.is_some() && granularity != GranularityArg::Paragraph {
            let text = "--paragraph-bytes-min goes with --granularity paragraph";
            return Err(UsageError(text.into()).into());
        }
        if granularity == GranularityArg::Paragraph {
            let [field] = &self.key[..] else {
                let text = "--granularity paragraph needs one --key FIELD, which holds the text";
                return Err(UsageError(text.into()).into());
            };
            return Ok(Granularity::Paragraph(field.clone()));
        }
        if (granularity == GranularityArg::Key) == self.key.is_empty() {
            let text = "--granularity key and --key FIELD go together";
            return Err(UsageError(text.into()).into());
        }
        Ok(match granularity {
            GranularityArg::Line => Granularity::Line,
            GranularityArg::Record => Granularity::Record,
            GranularityArg::File => Granularity::File,
            GranularityArg::Key | GranularityArg::Paragraph => Granularity::Key(self.key.clone()),
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
        match self.annotate.as_ref().or(self.output.as_ref()) {
            None => OutputTarget::Stdout,
            Some(path) if path == Path::new("-") => OutputTarget::Stdout,
            Some(path) if is_directory(path) => OutputTarget::Directory(path.clone()),
            Some(path) => OutputTarget::File(path.clone()),
        }
    }
}

/// A keep rule. A field whose name ends in `:min` is named with `:max` behind it.
fn parse_keep(text: &str) -> Result<KeepArg, String> {
    let Some(field) = text.strip_prefix("best:") else {
        return match text {
            "first" => Ok(KeepArg::First),
            "last" => Ok(KeepArg::Last),
            _ => Err("expected first, last, best:FIELD or best:FIELD:min".to_owned()),
        };
    };
    let (field, smallest) = match (field.strip_suffix(":min"), field.strip_suffix(":max")) {
        (Some(field), _) => (field, true),
        (None, Some(field)) => (field, false),
        (None, None) => (field, false),
    };
    if field.is_empty() {
        return Err("expected a field behind best:, like best:quality".to_owned());
    }
    Ok(KeepArg::Best(BestField { field: field.to_owned(), smallest }))
}

/// A seed in decimal, or in hexadecimal behind 0x.
fn parse_seed(text: &str) -> Result<u64, std::num::ParseIntError> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
}

pub(super) fn parse_index_bits(text: &str) -> Result<IndexBits, String> {
    let bits = text.parse().ok().and_then(IndexBits::new);
    bits.ok_or_else(|| "expected 64, 96 or 128".to_owned())
}

/// A fresh seed: nobody can prepare an input whose hashes collide under it.
#[expect(clippy::disallowed_methods, reason = "the one die that is cast")]
fn draw_seed() -> u64 {
    rand::random()
}
