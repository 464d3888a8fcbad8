//! `umbel dedup`: turns arguments into a job and runs it.

mod binary;
mod by_size;
mod choices;
mod cluster;
pub(super) mod cutting;
mod equality;
mod job_words;
mod machines;
mod membership;
mod page;
mod plan;
mod summary;
pub(super) mod terminal;
mod values;

pub(super) use choices::GranularityArg;
pub(crate) use cluster::{described_since, options_of, spec_of};
pub(super) use membership::start_cell_tasks;
pub(crate) use page::page_of;
pub(super) use values::{parse_index_bits, parse_seed, text_argument};

use crate::amounts::parse_bytes;
use crate::cluster_client::{Credentials, TlsPaths};
use crate::exit::{Exit, UsageError, refuse};
use anyhow::Result;
use choices::{EmptyArg, ExactnessArg, FilterArg, MissingKeyArg, ScopeArg};
use clap::Args;
use membership::{PeerSpec, run_as_member};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use terminal::Terminal;
use umbel_dedup::{
    DedupError, Done, EmptyItems, FilterAddress, JobSpec, MissingKey, NameFilter, NamePattern,
    ObjectStores, OutputTarget, Reach, SaveIndex, Scope, default_memory_bytes, is_directory,
    plan as plan_job, run as run_job, seed_of_first, write_stdout,
};
use umbel_dedup_engine::{Exactness, FilterChoice, IndexBits, Keep};
use umbel_files::remove_empty_folders;
use umbel_records::Normaliser;
use values::{KeepArg, parse_bad_max, parse_keep};

const INPUT: &str = "Input";
const EQUAL: &str = "What is equal";
const OUTPUT: &str = "Output";
const REPORTS: &str = "Reports";
const OTHER_JOBS: &str = "Against other jobs";
const RESOURCES: &str = "Resources";

/// The end of the text of `--help`.
const HELP_END: &str = "\
Examples:
  umbel dedup access-*.log.gz > unique.log
  umbel dedup crawl/ --key url --keep best:crawled_at --output clean/
  umbel dedup today/ -o new/ --reference seen.umbi --save-index seen.umbi

Kept records come in input order. The first job of a series is run without
--reference. docs/dedup.md has every detail. Exit codes: 0 done, 1 failed,
2 wrong usage or nothing to do, 3 bad records were left out, 130 interrupted.";

/// Arguments of `umbel dedup`.
#[derive(Args)]
#[command(after_help = HELP_END)]
pub(crate) struct DedupArgs {
    /// Files, directories, globs, - or objects, plain or packed [default: standard input]
    #[arg(value_name = "INPUT")]
    inputs: Vec<OsString>,
    /// In directories only files of this name; repeatable
    #[arg(long, value_name = "GLOB", value_parser = NamePattern::parse, help_heading = INPUT)]
    include: Vec<NamePattern>,
    /// Skip files and directories of this name; repeatable
    #[arg(long, value_name = "GLOB", value_parser = NamePattern::parse, help_heading = INPUT)]
    exclude: Vec<NamePattern>,
    #[command(flatten)]
    cutting: cutting::CuttingArgs,
    /// Binary: refuse, skip, copy or text
    #[arg(long, value_enum, value_name = "RULE", default_value_t = binary::BinaryArg::Refuse, help_heading = INPUT,
        hide_possible_values = true)]
    binary: binary::BinaryArg,
    /// Leave bad records out, MAX at most, and exit with 3
    #[arg(long, value_name = "MAX", num_args = 0..=1, require_equals = true, default_missing_value = "18446744073709551615",
        value_parser = parse_bad_max, help_heading = INPUT)]
    skip_bad: Option<u64>,
    /// List what was left out [default: DIR/bad.jsonl]
    #[arg(long, value_name = "FILE", requires = "skip_bad", help_heading = INPUT)]
    bad: Option<PathBuf>,
    /// Compare this field or column; repeatable
    #[arg(long, value_name = "FIELD", help_heading = EQUAL)]
    key: Vec<String>,
    /// line, key, record, paragraph or file [default: line or key]
    #[arg(long, value_enum, value_name = "WHAT", help_heading = EQUAL, hide_possible_values = true)]
    granularity: Option<GranularityArg>,
    /// trim, lower, nfc, nfkc, squeeze, crlf, punct or url
    #[arg(long, alias = "normalize", value_name = "NAMES", value_delimiter = ',', help_heading = EQUAL)]
    normalise: Vec<Normaliser>,
    /// Compare all records, or those of a dir or a file
    #[arg(long, value_enum, value_name = "SCOPE", default_value_t = ScopeArg::Global, help_heading = EQUAL,
        hide_possible_values = true)]
    scope: ScopeArg,
    /// fail, keep or drop [default: fail]
    #[arg(long, value_enum, value_name = "RULE", requires = "key", help_heading = EQUAL,
        hide_possible_values = true)]
    missing_key: Option<MissingKeyArg>,
    /// compare or keep empty items
    #[arg(long, value_enum, value_name = "RULE", default_value_t = EmptyArg::Compare, help_heading = EQUAL,
        hide_possible_values = true)]
    empty: EmptyArg,
    /// Shorter paragraphs are not compared
    #[arg(long, value_name = "N", requires = "key", help_heading = EQUAL)]
    paragraph_bytes_min: Option<u64>,
    /// approximate, fingerprint or bytes
    #[arg(long, value_enum, value_name = "HOW", default_value_t = ExactnessArg::Fingerprint, help_heading = EQUAL,
        hide_possible_values = true)]
    exactness: ExactnessArg,
    /// With approximate: chance of a wrong drop [default: 0.001]
    #[arg(long, value_name = "R", help_heading = EQUAL)]
    false_positive_rate: Option<f64>,
    /// Kept records: a file, a directory, an object or -
    #[arg(long, short, value_name = "DIR|FILE|-", help_heading = OUTPUT)]
    output: Option<PathBuf>,
    /// first, last, best:FIELD or best:FIELD:min
    #[arg(long, value_name = "RULE", value_parser = parse_keep, default_value = "first", help_heading = OUTPUT)]
    keep: KeepArg,
    /// Drop nothing; report what each record repeats
    #[arg(long, value_name = "DIR|FILE|-", conflicts_with = "output", help_heading = OUTPUT)]
    annotate: Option<PathBuf>,
    /// Replace each input file by its kept records
    #[arg(long, conflicts_with_all = ["output", "annotate"], help_heading = OUTPUT)]
    in_place: bool,
    #[command(flatten)]
    by_size: by_size::BySizeArgs,
    /// Replace outputs that exist
    #[arg(long, help_heading = OUTPUT)]
    overwrite: bool,
    /// Which record was dropped for which, as JSON Lines
    #[arg(long, value_name = "FILE", help_heading = REPORTS)]
    duplicates: Option<PathBuf>,
    /// Kept records that were repeated, and how often
    #[arg(long, value_name = "FILE", help_heading = REPORTS)]
    groups: Option<PathBuf>,
    /// The summary, as JSON
    #[arg(long, value_name = "FILE", help_heading = REPORTS)]
    summary: Option<PathBuf>,
    /// A page with charts, as HTML
    #[arg(long, value_name = "FILE.html", help_heading = REPORTS)]
    report: Option<PathBuf>,
    /// No progress and no closing table
    #[arg(long, short, help_heading = REPORTS)]
    quiet: bool,
    /// Only show what the job would need
    #[arg(long, help_heading = REPORTS)]
    plan: bool,
    /// Drop what an index or filter holds; repeatable
    #[arg(long, value_name = "FILE|URL", help_heading = OTHER_JOBS)]
    reference: Vec<OsString>,
    /// Write what was kept as an index; one that is a --reference is updated
    #[arg(long, value_name = "FILE", help_heading = OTHER_JOBS)]
    save_index: Option<PathBuf>,
    /// Bits of a hash in the index [default: 128]
    #[arg(long, value_name = "64|96|128", requires = "save_index", value_parser = parse_index_bits,
        help_heading = OTHER_JOBS)]
    index_bits: Option<IndexBits>,
    /// Insert what was kept into this filter
    #[arg(long, value_name = "URL", help_heading = OTHER_JOBS)]
    add_to: Option<String>,
    /// Like 512M, the rest to disk [default: 1G or a quarter]
    #[arg(long, value_name = "SIZE", help_heading = RESOURCES)]
    memory: Option<String>,
    /// Folder for scratch files [default: the system's]
    #[arg(long, value_name = "DIR", help_heading = RESOURCES)]
    scratch: Option<PathBuf>,
    /// Hash seed, to repeat a run exactly [default: drawn]
    #[arg(long, value_name = "N", value_parser = parse_seed, help_heading = RESOURCES)]
    seed: Option<u64>,
    /// Exchange as N machines would, to measure it [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = RESOURCES)]
    workers: Option<u32>,
    /// Exchanged: auto, single-shot or wide
    #[arg(long, value_enum, value_name = "KIND", default_value_t = FilterArg::Auto, help_heading = RESOURCES,
        hide_possible_values = true)]
    filter: FilterArg,
    #[command(flatten)]
    machines: machines::MachineArgs,
    #[command(flatten)]
    on_cluster: cluster::ClusterJobArgs,
}

/// Runs the command.
///
/// # Errors
///
/// If the arguments are wrong or the job fails. A reader that closes a report, or the kept records, is no
/// error.
pub(crate) fn run(args: &DedupArgs) -> Result<Exit> {
    let mut spec = args.spec()?;
    if let Some(addresses) = &args.on_cluster.cluster {
        return cluster::run(args, addresses);
    }
    let peers = args.machines.peers()?;
    if spec.inputs.is_empty() {
        spec.inputs = vec![piped_input(peers.is_some())?];
    }
    check_names(&spec)?;
    // All workers and references must have the same seed: that of the first reference counts where no
    // flag sets one.
    spec.seed = match (args.seed, seed_of_first(&spec)?) {
        (Some(seed), _) | (None, Some(seed)) => seed,
        (None, None) => peers.as_ref().map_or_else(draw_seed, PeerSpec::seed),
    };
    let done = match peers {
        Some(peers) => run_as_member(spec, &peers, args.quiet),
        None => work(&spec, args).map_err(anyhow::Error::from),
    };
    if done.is_err() {
        remove_empty_folders();
    }
    done
}

/// Plans the job or runs it.
fn work(spec: &JobSpec, args: &DedupArgs) -> Result<Exit, DedupError> {
    let terminal = Terminal::new(args.quiet);
    if args.plan {
        let plan = plan::text(spec, &plan_job(spec, &terminal)?);
        return match write_stdout(plan.as_bytes()) {
            // The plan is all that there is to do, so its reader's end is the end of the command.
            Err(error) if !error.is_closed_pipe() => Err(error),
            _ => Ok(Exit::Done),
        };
    }
    let Done { summary, was_closed, page } = run_job(spec, &terminal)?;
    summary::show(summary.value(), args.quiet || was_closed);
    if let Some(output) = page {
        output.write(&page_of(summary.value()))?;
    }
    Ok(summary::exit(summary.value()))
}

/// The input if none is named: standard input, unless it is a terminal or this process is one worker of
/// many.
fn piped_input(is_one_of_many: bool) -> Result<OsString> {
    let text = if is_one_of_many {
        "name what this worker reads: files, directories, globs or objects"
    } else if std::io::stdin().is_terminal() {
        "no input: name files, directories, globs or objects, or pipe records into standard input"
    } else {
        return Ok("-".into());
    };
    Err(UsageError(text.into()).into())
}

/// Refuses `--include` and `--exclude` if no input is a directory, as they would select nothing.
fn check_names(spec: &JobSpec) -> Result<()> {
    let has_directory = spec.inputs.iter().any(|input| is_directory(Path::new(input)));
    if spec.names.is_empty() || has_directory {
        return Ok(());
    }
    refuse!(
        "--include and --exclude choose among the files of directories, and no input is one: what is named, \
         also by a glob, is read"
    )
}

/// The indexes and filters of other jobs that this job reads or writes.
struct OtherJobs {
    references: Vec<PathBuf>,
    online: Vec<FilterAddress>,
    add_to: Option<FilterAddress>,
    save_index: Option<SaveIndex>,
    reach: Reach,
}

impl DedupArgs {
    /// The indexes and filters that the job reads or writes, and the credentials for their clusters.
    fn beside(&self, exactness: Exactness) -> Result<OtherJobs> {
        let is_filter =
            |reference: &&OsString| FilterAddress::is_meant(&reference.to_string_lossy());
        let (online, references): (Vec<&OsString>, Vec<&OsString>) =
            self.reference.iter().partition(is_filter);
        let refuse =
            |text: &str| Err(UsageError(format!("{text}: leave one of the two out")).into());
        if exactness == Exactness::Bytes && !references.is_empty() {
            return refuse(
                "--exactness bytes compares items, and a reference holds only their hashes",
            );
        }
        if self.annotate.is_some() && !self.reference.is_empty() {
            return refuse("--annotate names kept records, and what a reference holds has none");
        }
        let address = |text: &str| text.parse::<FilterAddress>();
        let online_address = |reference: &OsString| match reference.to_str() {
            Some(text) => address(text),
            None => Err(UsageError(format!(
                "--reference {}: names of filters are UTF-8",
                reference.display()
            ))),
        };
        let added = |text: &str| {
            if FilterAddress::is_meant(text) {
                return address(text);
            }
            Err(UsageError(format!(
                "--add-to `{text}`: expected umbel://HOST[:PORT][,..]/FILTER; --save-index FILE writes an index"
            )))
        };
        let bits = self.index_bits;
        let reaches_clusters =
            !online.is_empty() || self.add_to.is_some() || self.on_cluster.cluster.is_some();
        let credentials = if reaches_clusters {
            Credentials::read(TlsPaths::default(), None)?
        } else {
            // A job on files alone does not read credentials from the environment, so bad ones cannot
            // fail it.
            Credentials::default()
        };
        Ok(OtherJobs {
            references: references.into_iter().map(PathBuf::from).collect(),
            online: online.into_iter().map(online_address).collect::<Result<_, _>>()?,
            add_to: self.add_to.as_deref().map(added).transpose()?,
            save_index: self.save_index.clone().map(|path| SaveIndex { path, bits }),
            reach: credentials.reach(None),
        })
    }

    /// Refuses `--in-place` with options that leave it no output to write, or that would lose more than repeated
    /// records.
    fn check_in_place(&self) -> Result<()> {
        let text = match self.compared() {
            _ if !self.in_place => return Ok(()),
            _ if self.has_others() => {
                "one process replaces files, not a worker among many: they write to an --output DIR/"
            }
            GranularityArg::File => {
                "files that go as a whole are not replaced: write the others to an --output DIR/"
            }
            _ if self.skip_bad.is_some() && self.bad.is_none() => {
                "with --skip-bad, bad records go from the files: list them in a --bad FILE"
            }
            _ => return Ok(()),
        };
        refuse!("--in-place: {text}")
    }

    /// Whether other workers take part in the job.
    fn has_others(&self) -> bool {
        self.machines.has_others() || self.on_cluster.cluster.is_some()
    }

    fn memory_bytes(&self) -> Result<u64> {
        match &self.memory {
            Some(text) => {
                Ok(parse_bytes(text).map_err(|error| UsageError(format!("--memory: {error}")))?)
            }
            None => Ok(default_memory_bytes()),
        }
    }

    /// The specification of the job. Reads no data; without `--seed`, the seed is 0 and must be replaced
    /// before the job runs.
    fn spec(&self) -> Result<JobSpec> {
        let format = self.cutting.format(self.compared())?;
        let exactness = self.exactness()?;
        cluster::check_objects(self)?;
        self.check_in_place()?;
        let OtherJobs { online, references, add_to, save_index, reach } = self.beside(exactness)?;
        Ok(JobSpec {
            references,
            online,
            add_to,
            roots: None,
            reach,
            save_index,
            inputs: self.inputs.clone(),
            names: NameFilter { include: self.include.clone(), exclude: self.exclude.clone() },
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
            in_place: self.in_place,
            annotates: self.annotate.is_some(),
            by_size: self.by_size.choice(&self.other_options())?,
            groups: self.groups.clone(),
            duplicates: self.duplicates.clone(),
            bad: self.bad.clone(),
            summary: self.summary.clone(),
            page: self.report.clone(),
            reports_files: self.report.is_some(),
            exactness,
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
                FilterArg::Wide => FilterChoice::FullHash,
            },
            seed: self.seed.unwrap_or(0),
            memory_bytes: self.memory_bytes()?,
            scratch: self.scratch.clone().unwrap_or_else(std::env::temp_dir),
            skip_bad: self.skip_bad,
            binary: self.binary.files(&self.output())?,
            overwrite: self.overwrite,
            stores: ObjectStores::new(self.memory_bytes()?),
            rank: None,
        })
    }

    fn other_options(&self) -> by_size::OtherOptions {
        let flags =
            [("--save-index", self.save_index.is_some()), ("--add-to", self.add_to.is_some())];
        by_size::OtherOptions {
            compared: self.compared(),
            has_others: self.has_others(),
            annotates: self.annotate.is_some(),
            kept_flag: flags.into_iter().find_map(|(flag, is_set)| is_set.then_some(flag)),
        }
    }

    fn output(&self) -> OutputTarget {
        match self.annotate.as_ref().or(self.output.as_ref()) {
            None if self.in_place => OutputTarget::Directory(PathBuf::new()),
            None => OutputTarget::Stdout,
            Some(path) if path == Path::new("-") => OutputTarget::Stdout,
            Some(path) if is_directory(path) => OutputTarget::Directory(path.clone()),
            Some(path) => OutputTarget::File(path.clone()),
        }
    }
}

/// Draws a random seed, so that nobody can prepare input whose hashes collide.
#[expect(clippy::disallowed_methods, reason = "the one die that is cast")]
fn draw_seed() -> u64 {
    rand::random()
}
