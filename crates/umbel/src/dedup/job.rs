//! A job from its specification to its outcome: phases in order, the commit last.

use super::bad::BadRecords;
use super::chunks::{Chunk, cut};
use super::compare::{self, Suspects};
use super::exchange::{self, Decisions, Outcome};
use super::hash_runs::RunStore;
use super::inputs::{Source, resolve};
use super::local_pass::{self, ChunkFacts, LocalPass};
use super::memory::resident_bytes;
use super::output;
use super::outputs::{Named, Outputs, check_against_inputs, check_named, write_bad};
use super::plan;
use super::progress::{Bar, Unit};
use super::report;
use super::sink::{Complete, Sink, commit};
use super::spill::{GroupedBytes, ScratchFile};
use super::summary::{Facts, Summary};
use crate::clock::{ProcessorTime, Stopwatch};
use crate::exit::{Exit, UsageError};
use crate::say::say;
use anyhow::Result;
use std::path::PathBuf;
use std::sync::Arc;
use umbel_engine::dedup::{FilterChoice, JobShape, Keep, Level, WorkerId};
use umbel_filter::{CellCount, ItemHasher};
use umbel_records::{Format, Granularity, ItemExtractor};

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

    /// Stored bytes of the input.
    fn input_bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.bytes).sum()
    }

    /// Bytes that the entries of the job may take in memory; at level `bytes` the items to be compared as much again, at
    /// another time, for freed memory is not always returned.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let bytes = resident_bytes(self.spec.memory_bytes, self.threads);
        if self.shape.level == Level::Bytes { bytes / 2 } else { bytes }
    }

    /// Whether a repeat may be dropped as soon as it is seen: not where its bytes are to be compared.
    pub(crate) fn drops_early(&self) -> bool {
        self.shape.level != Level::Bytes
    }
}

/// Runs a job.
///
/// # Errors
///
/// A [`UsageError`] where there is nothing to do; any other error names file and record or path. Nothing was
/// committed then.
pub(crate) fn run(spec: &JobSpec) -> Result<Exit> {
    let clocks = (Stopwatch::start(), ProcessorTime::start());
    if !spec.plan_only {
        check_named(spec)?;
    }
    let sources = resolve(&spec.inputs, spec.format, &spec.scratch)?;
    for source in &sources {
        ItemExtractor::new(source.format, spec.granularity.clone())
            .map_err(|error| UsageError(format!("{}: {error} (--format jsonl)", source.name)))?;
    }
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
    check_against_inputs(spec, &sources)?;
    execute(&job, Outputs::open(spec)?, clocks)
}

/// Number of the job: from its seed and input names, so that a repeated job repeats its frames.
fn job_id(spec: &JobSpec) -> u64 {
    let names = spec.inputs.join("\n");
    ItemHasher::Xxh3 { seed: spec.seed }.hash(names.as_bytes()).lo()
}

fn execute(
    job: &Job<'_>,
    named: Outputs,
    (total, cpu): (Stopwatch, ProcessorTime),
) -> Result<Exit> {
    let spec = job.spec;
    let mut watch = total;
    let input_bytes = job.input_bytes();
    let scratch = Arc::new(ScratchFile::new(&spec.scratch));
    let bar = |phase, length, unit| Bar::new(phase, length, unit, spec.quiet);
    let mut phases = vec![("open", watch.lap())];

    let store = RunStore::new(job.resident_bytes(), Arc::clone(&scratch));
    let dropped = spec.duplicates.as_ref().map(|_| {
        let groups = report::group_count(job.chunks.len());
        GroupedBytes::new(groups, job.resident_bytes() / 4, Arc::clone(&scratch))
    });
    let bar_read = bar("read", input_bytes, Unit::Bytes);
    let local = local_pass::run(job, &store, dropped.as_ref(), &bar_read)?;
    drop(bar_read);
    let items: u64 = local.facts.iter().map(ChunkFacts::items).sum();
    let records: u64 = local.facts.iter().map(|facts| facts.records).sum();
    if records == 0 && local.facts.iter().all(|facts| facts.bad.is_empty()) {
        return Err(UsageError("nothing to do: the input holds no record".into()).into());
    }
    phases.push(("local", watch.lap()));

    let exchange = decide(job, store, &local, dropped.as_ref(), &scratch, |phase| {
        phases.push((phase, watch.lap()));
    })?;
    let bar = bar("write", input_bytes, Unit::Bytes);
    let mut written = output::run(job, named.kept, &local.facts, &bar)?;
    drop(bar);
    let report = write_report(job, named.duplicates, &local.facts, dropped.as_ref())?;
    written.complete.extend(report);
    let bad = take_bad(job, local.facts);
    written.complete.extend(write_bad(spec, named.bad, &bad.records)?);
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
        cpu_s: cpu.seconds(),
        local_times: local.times,
        output_times: written.times,
        scratch_bytes: scratch.bytes(),
    };
    let summary = Summary::new(&facts);
    if let Some(named) = named.summary {
        // Renamed last: where it stands, the job is done.
        let mut sink = named.sink()?;
        sink.write(summary.json()?.as_bytes())?;
        written.complete.push(sink.complete()?);
    }
    commit(written.complete)?;
    // Like `sort | head`: whoever has heard enough is not told more.
    if !spec.quiet && !written.was_closed {
        say(summary.table());
    }
    Ok(if bad.records.total() > 0 { Exit::BadSkipped } else { Exit::Done })
}

/// Exchanges all entries, and at level `bytes` all items in doubt; `done` hears of each phase's end.
fn decide(
    job: &Job<'_>,
    store: RunStore,
    local: &LocalPass,
    dropped: Option<&GroupedBytes>,
    scratch: &Arc<ScratchFile>,
    mut done: impl FnMut(&'static str),
) -> Result<Outcome> {
    let runs = store.finish(job.shape.workers, job.cells());
    let suspects = (job.shape.level == Level::Bytes).then(|| Suspects::new(&local.facts));
    let suspect = |suspect| {
        if let Some(suspects) = &suspects {
            suspects.add(suspect);
        }
    };
    let decisions = Decisions { facts: &local.facts, dropped, suspect: &suspect };
    let bar = Bar::new("exchange", job.cells().get().into(), Unit::Cells, job.spec.quiet);
    let mut exchange = exchange::run(job, &runs, &decisions, &bar)?;
    drop((bar, runs));
    done("exchange");
    if let Some(suspects) = &suspects {
        let bar = Bar::new("compare", job.input_bytes(), Unit::Bytes, job.spec.quiet);
        compare::run(job, suspects, &mut exchange, &decisions, scratch, &bar)?;
        done("compare");
    }
    Ok(exchange.outcome)
}

/// Writes which records were dropped for which, if the user wants to know.
fn write_report(
    job: &Job<'_>,
    named: Option<Named>,
    facts: &[ChunkFacts],
    dropped: Option<&GroupedBytes>,
) -> Result<Option<Complete>> {
    let (Some(named), Some(dropped)) = (named, dropped) else { return Ok(None) };
    let mut sink = named.sink()?;
    report::write(job.sources, job.chunks, facts, dropped, job.spec.keep, &mut sink)?;
    Ok(Some(sink.complete()?))
}

/// What is left of the chunks' facts at the end.
struct TakenFacts {
    records: BadRecords,
    early_drops: u64,
}

fn take_bad(job: &Job<'_>, facts: Vec<ChunkFacts>) -> TakenFacts {
    let before = report::records_before(job.chunks, &facts);
    let mut taken = TakenFacts { records: BadRecords::default(), early_drops: 0 };
    for ((chunk, facts), before) in job.chunks.iter().zip(facts).zip(before) {
        taken.early_drops += facts.early_drops;
        for bad in facts.bad {
            taken.records.add(bad, &job.sources[chunk.source], before);
        }
    }
    taken
}
