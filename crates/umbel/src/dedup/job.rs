//! A job from its specification to its outcome: phases in order, the commit last.

use super::bad::BadRecords;
use super::chunks::{Chunk, cut};
use super::compare::{self, Suspects};
use super::exchange::{self, Decisions};
use super::hash_runs::RunStore;
use super::inputs::{Source, resolve};
use super::local_pass::{self, ChunkFacts, LocalPass};
use super::memory::resident_bytes;
use super::output;
use super::plan;
use super::progress::{Bar, Unit};
use super::report;
use super::sink::{Complete, Sink, commit, is_device, refuse_existing_file};
use super::spill::{GroupedBytes, ScratchFile};
use super::summary::{Facts, Summary};
use crate::clock::Stopwatch;
use crate::exit::{Exit, UsageError};
use crate::say::{say, say_line};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use umbel_engine::dedup::{FilterChoice, JobShape, Keep, Level, WorkerId};
use umbel_filter::{CellCount, ItemHasher};
use umbel_records::{Format, Granularity};

/// Where kept records go.
#[derive(Clone, Debug)]
pub(crate) enum OutputTarget {
    /// Standard output.
    Stdout,
    /// One file.
    File(PathBuf),
    /// One file an input.
    Directory(PathBuf),
}

/// What the user wants.
#[derive(Debug)]
pub(crate) struct JobSpec {
    /// Files, directories, globs, `-`.
    pub(crate) inputs: Vec<String>,
    /// Workers in this process; `None`: one a core.
    pub(crate) workers: Option<u32>,
    /// What is compared.
    pub(crate) granularity: Granularity,
    /// How records are cut; `None`: by name.
    pub(crate) format: Option<Format>,
    /// Where kept records go.
    pub(crate) output: OutputTarget,
    /// Where the report of dropped records goes.
    pub(crate) duplicates: Option<PathBuf>,
    /// Where the list of bad records goes, if there are any.
    pub(crate) bad: Option<PathBuf>,
    /// Where the summary goes.
    pub(crate) summary: Option<PathBuf>,
    /// When records are equal.
    pub(crate) level: Level,
    /// Which of equal records stays.
    pub(crate) keep: Keep,
    /// How entries are compared between workers.
    pub(crate) filter: FilterChoice,
    /// Seed of the hash.
    pub(crate) seed: u64,
    /// Memory in bytes.
    pub(crate) memory_bytes: u64,
    /// Directory for scratch files.
    pub(crate) scratch: PathBuf,
    /// Most bad records that are left out; `None`: the first one ends the job.
    pub(crate) skip_bad: Option<u64>,
    /// Whether existing outputs are replaced.
    pub(crate) overwrite: bool,
    /// No progress, no closing table.
    pub(crate) quiet: bool,
    /// Only say what the job would need.
    pub(crate) plan_only: bool,
}

/// A job under way.
pub(crate) struct Job<'a> {
    /// What the user wants.
    pub(crate) spec: &'a JobSpec,
    /// Input files in order.
    pub(crate) sources: &'a [Source],
    /// Their parts in order.
    pub(crate) chunks: &'a [Chunk],
    /// Workers and cells.
    pub(crate) shape: JobShape,
    /// The hash function.
    pub(crate) hasher: ItemHasher,
    /// Number of the job, in every frame's checksum.
    pub(crate) id: u64,
    /// Threads that work.
    pub(crate) threads: usize,
}

impl Job<'_> {
    /// The cells of all owners.
    pub(crate) fn cells(&self) -> CellCount {
        self.shape.cells()
    }

    /// All workers.
    pub(crate) fn worker_ids(&self) -> impl Iterator<Item = WorkerId> + use<> {
        let workers = u16::try_from(self.shape.workers).expect("at most 1,024 workers");
        (0..workers).map(WorkerId)
    }

    /// Bytes that the entries of the job may take in memory; at level `bytes` the items to be compared as much again, at
    /// another time, for freed memory is not always returned.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let bytes = resident_bytes(self.spec.memory_bytes, self.threads);
        if self.shape.level == Level::Bytes { bytes / 2 } else { bytes }
    }

    /// Whether a repeat may be forgotten as soon as it is seen.
    pub(crate) fn drops_early(&self) -> bool {
        !self.shape.report_kept && self.shape.level != Level::Bytes
    }
}

/// Runs a job.
///
/// # Errors
///
/// A [`UsageError`] where there is nothing to do; any other error names file and record or path. Nothing was
/// committed then.
pub(crate) fn run(spec: &JobSpec) -> Result<Exit> {
    let watch = Stopwatch::start();
    let sources = resolve(&spec.inputs, spec.format, &spec.scratch)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = spec.workers.unwrap_or_else(|| u32::try_from(threads).unwrap_or(u32::MAX));
    let forecast = plan::forecast(spec, &sources)?;
    let shape = plan::shape(spec, workers, &forecast);
    shape.validate().map_err(|error| UsageError(error.to_string()))?;
    let chunks = cut(&sources, workers)?;
    let hasher = ItemHasher::Xxh3 { seed: spec.seed };
    let id = job_id(spec);
    let job = Job { spec, sources: &sources, chunks: &chunks, shape, hasher, id, threads };
    if spec.plan_only {
        Sink::stdout()?.write(plan::explain(&job, &forecast).as_bytes())?;
        return Ok(Exit::Done);
    }
    check_outputs(&job)?;
    execute(&job, watch)
}

/// Refuses to start where an output would be refused at the end, or two would go to one file.
fn check_outputs(job: &Job<'_>) -> Result<()> {
    let spec = job.spec;
    let is_stdout = |path: &&PathBuf| path.as_path() == Path::new("-");
    let named = [&spec.summary, &spec.duplicates, &spec.bad].into_iter().flatten();
    let mut outputs: Vec<PathBuf> = named.filter(|path| !is_stdout(path)).cloned().collect();
    match &spec.output {
        OutputTarget::Stdout => {}
        OutputTarget::File(path) => outputs.push(path.clone()),
        OutputTarget::Directory(root) => {
            outputs.extend(job.sources.iter().map(|source| root.join(&source.relative)));
            if spec.skip_bad.is_some() && spec.bad.is_none() {
                outputs.push(root.join(BAD_LIST_NAME));
            }
        }
    }
    let mut seen = BTreeSet::new();
    for path in &outputs {
        if !seen.insert(path) && !is_device(path) {
            let text = format!("{}: two outputs would be written there", path.display());
            return Err(UsageError(text).into());
        }
        if !spec.overwrite {
            refuse_existing_file(path)?;
        }
    }
    Ok(())
}

/// Name of the list of bad records in an output directory.
const BAD_LIST_NAME: &str = "bad.jsonl";

/// Number of the job: from its seed and input names, so that a repeated job repeats its frames.
fn job_id(spec: &JobSpec) -> u64 {
    let names = spec.inputs.join("\n");
    ItemHasher::Xxh3 { seed: spec.seed }.hash(names.as_bytes()).lo()
}

fn execute(job: &Job<'_>, mut watch: Stopwatch) -> Result<Exit> {
    let spec = job.spec;
    let total = watch;
    let input_bytes: u64 = job.chunks.iter().map(|chunk| chunk.bytes).sum();
    let scratch = Arc::new(ScratchFile::new(&spec.scratch));
    let bar = |phase, length, unit| Bar::new(phase, length, unit, spec.quiet);
    let mut phases = vec![("open", watch.lap())];

    let store = RunStore::new(job.resident_bytes(), Arc::clone(&scratch));
    let local = local_pass::run(job, &store, &bar("read", input_bytes, Unit::Bytes))?;
    let items: u64 = local.facts.iter().map(ChunkFacts::items).sum();
    let records: u64 = local.facts.iter().map(|facts| facts.records).sum();
    if records == 0 && local.facts.iter().all(|facts| facts.bad.is_empty()) {
        return Err(UsageError("nothing to do: the input holds no record".into()).into());
    }
    phases.push(("local", watch.lap()));

    let runs = store.finish(job.shape.workers);
    let dropped = spec.duplicates.as_ref().map(|_| {
        let groups = report::group_count(job.chunks.len());
        GroupedBytes::new(groups, job.resident_bytes() / 4, Arc::clone(&scratch))
    });
    let suspects = (job.shape.level == Level::Bytes).then(|| Suspects::new(&local.facts));
    let suspect = |suspect| {
        if let Some(suspects) = &suspects {
            suspects.add(suspect);
        }
    };
    let decisions = Decisions { facts: &local.facts, dropped: dropped.as_ref(), suspect: &suspect };
    let cells = bar("exchange", job.cells().get().into(), Unit::Cells);
    let mut exchange = exchange::run(job, &runs, &decisions, &cells)?;
    drop((cells, runs));
    phases.push(("exchange", watch.lap()));
    if let Some(suspects) = &suspects {
        let bar = bar("compare", input_bytes, Unit::Bytes);
        compare::run(job, suspects, &mut exchange, &decisions, &scratch, &bar)?;
        phases.push(("compare", watch.lap()));
    }

    let exchange = exchange.outcome;
    let (mut outputs, output_times) =
        output::run(job, &local.facts, &bar("write", input_bytes, Unit::Bytes))?;
    outputs.extend(write_report(job, &local, dropped.as_ref())?);
    let bad = take_bad(job, local.facts)?;
    outputs.extend(write_bad(job, &bad)?);
    phases.push(("output", watch.lap()));

    let facts = Facts {
        job,
        items,
        records,
        exchange: &exchange,
        bad: &bad.records,
        early_drops: bad.early_drops,
        phases: &phases,
        wall: total.elapsed(),
        local_times: local.times,
        output_times,
        scratch_bytes: scratch.bytes(),
    };
    finish(spec, outputs, &Summary::new(&facts), &bad.records)
}

/// Commits everything, the summary last: where it stands, the job is done.
fn finish(
    spec: &JobSpec,
    outputs: Vec<Complete>,
    summary: &Summary,
    bad: &BadRecords,
) -> Result<Exit> {
    commit(outputs)?;
    if let Some(path) = &spec.summary {
        let mut sink = if path == Path::new("-") {
            Sink::stdout()?
        } else {
            Sink::file(path, spec.overwrite)?
        };
        sink.write(summary.json()?.as_bytes())?;
        commit(vec![sink.complete()?])?;
    }
    if !spec.quiet {
        say(summary.table());
    }
    Ok(if bad.total() > 0 { Exit::BadSkipped } else { Exit::Done })
}

fn write_report(
    job: &Job<'_>,
    local: &LocalPass,
    dropped: Option<&GroupedBytes>,
) -> Result<Option<Complete>> {
    let (Some(path), Some(dropped)) = (&job.spec.duplicates, dropped) else { return Ok(None) };
    let mut sink = Sink::file(path, job.spec.overwrite)?;
    report::write(job.sources, job.chunks, &local.facts, dropped, &mut sink)?;
    Ok(Some(sink.complete()?))
}

/// What is left of the chunks' facts at the end.
struct TakenFacts {
    records: BadRecords,
    early_drops: u64,
}

fn take_bad(job: &Job<'_>, facts: Vec<ChunkFacts>) -> Result<TakenFacts> {
    let before = report::records_before(job.chunks, &facts);
    let mut taken = TakenFacts { records: BadRecords::default(), early_drops: 0 };
    for ((chunk, facts), before) in job.chunks.iter().zip(facts).zip(before) {
        taken.early_drops += facts.early_drops;
        for bad in facts.bad {
            taken.records.add(bad, &job.sources[chunk.source], before);
        }
    }
    let (total, max) = (taken.records.total(), job.spec.skip_bad.unwrap_or(0));
    anyhow::ensure!(total <= max, "{total} bad records, --skip-bad={max} allows {max}");
    Ok(taken)
}

/// Bad records that are shown on standard error where no list is written.
const BAD_LINES_SHOWN: usize = 20;

fn write_bad(job: &Job<'_>, bad: &TakenFacts) -> Result<Option<Complete>> {
    let lines = bad.records.lines();
    if lines.is_empty() {
        return Ok(None);
    }
    let path = match (&job.spec.bad, &job.spec.output) {
        (Some(path), _) => path.clone(),
        (None, OutputTarget::Directory(directory)) => directory.join(BAD_LIST_NAME),
        (None, _) => {
            lines
                .iter()
                .take(BAD_LINES_SHOWN)
                .for_each(|line| say_line(format_args!("left out: {}", line.text())));
            if lines.len() > BAD_LINES_SHOWN {
                let more = lines.len() - BAD_LINES_SHOWN;
                say_line(format_args!("left out: {more} more; --bad FILE lists them all"));
            }
            return Ok(None);
        }
    };
    let mut sink = Sink::file(&path, job.spec.overwrite)?;
    for line in lines {
        let mut text = serde_json::to_vec(line).context("list of bad records")?;
        text.push(b'\n');
        sink.write(&text)?;
    }
    Ok(Some(sink.complete()?))
}
