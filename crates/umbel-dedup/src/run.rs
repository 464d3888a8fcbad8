//! Runs a job in one process: the phases in order, the commit last.

use super::bad::{BadCounts, BadLine};
use super::by_size;
use super::chunk_facts::{ChunkFacts, FactTotals};
use super::chunks::{Chunk, cut};
use super::commit::Commit;
use super::compare::{self, Suspects};
use super::context::Job;
use super::drop_rows::DropRows;
use super::exchange::{self, Decisions, Outcome};
use super::hash_runs::{HashRuns, RunStore};
use super::inputs::Source;
use super::local_pass::{self, LocalPass};
use super::memory::{check_workers, threads_of_process};
use super::observer::{Observer, Unit};
use super::online::Online;
use super::output::Written;
use super::outputs::{
    Named, Outputs, PageOutput, check_against_inputs, check_named, remove_leftovers_beside,
    try_objects, write_bad,
};
use super::plan::{self, Forecast, JobPlan};
use super::progress::Bar;
use super::references::References;
use super::report::records_before;
use super::reports::{self, Drops, ReportOutputs};
use super::save_index;
use super::segments::SegmentLayout;
use super::sink::Complete;
use super::sources::open_sources;
use super::spec::JobSpec;
use super::spill::ScratchFile;
use super::summary::{DroppedItems, Facts, Summary};
use super::unchanged::check_unchanged;
use crate::clock::{ProcessorTime, Stopwatch};
use crate::error::{Result, bail};
use std::ffi::OsStr;
use std::sync::Arc;
use umbel_dedup_engine::{Exactness, JobShape};
use umbel_files::UsageError;
use umbel_filter::ItemHasher;

/// The result of a job.
pub struct Done {
    /// The summary.
    pub summary: Summary,
    /// Whether the reader of an output that was written directly, as standard output is, closed it before the
    /// end.
    pub was_closed: bool,
    /// The output of the page, if one is wanted.
    pub page: Option<PageOutput>,
}

/// The opened inputs of a job, and its shape.
struct Prepared {
    sources: Vec<Source>,
    chunks: Vec<Chunk>,
    references: References,
    forecast: Forecast,
    shape: JobShape,
    threads: usize,
}

impl Prepared {
    /// Finds, opens and cuts the inputs of a job; `is_written` tells whether the job runs, and is not only
    /// planned.
    fn new(spec: &JobSpec, observer: &dyn Observer, is_written: bool) -> Result<Self> {
        let sources = open_sources(spec, observer, is_written)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads_of_process(spec.memory_bytes, cores);
        let workers = spec.workers.unwrap_or(1);
        let references = References::open(spec)?;
        let forecast = plan::forecast(spec, &sources)?;
        let shape = plan::shape(spec, workers, &forecast, references.shape());
        shape.validate().map_err(|error| UsageError(error.to_string()))?;
        if spec.pairs_bytes() > 0 {
            check_workers(spec.memory_bytes, workers, spec.exactness)?;
        }
        let chunks = cut(&sources, workers, threads, spec.compares_files())?;
        Ok(Self { sources, chunks, references, forecast, shape, threads })
    }

    fn job<'a>(&'a self, spec: &'a JobSpec, observer: &'a dyn Observer) -> Job<'a> {
        let Self { sources, chunks, references, shape, threads, .. } = self;
        // Depends on seed and input names alone, so that a repeated job sends the same frames.
        let names = spec.inputs.join(OsStr::new("\n"));
        let id = ItemHasher::Xxh3 { seed: spec.seed }.hash(names.as_encoded_bytes()).lo();
        let (shape, threads) = (*shape, *threads);
        Job { spec, observer, sources, chunks, references, shape, id, threads }
    }
}

/// The plan of a job: what it will need. Nothing is run.
///
/// # Errors
///
/// As [`run`], without those of outputs.
pub fn plan(spec: &JobSpec, observer: &dyn Observer) -> Result<JobPlan> {
    let prepared = Prepared::new(spec, observer, false)?;
    Ok(plan::explain(&prepared.job(spec, observer), &prepared.forecast))
}

/// Runs a job.
///
/// # Errors
///
/// A [`UsageError`] if no input was found; any other error names file and record or path. Nothing was committed.
pub fn run(spec: &JobSpec, observer: &dyn Observer) -> Result<Done> {
    let clocks = (Stopwatch::start(), ProcessorTime::start());
    check_named(spec)?;
    let prepared = Prepared::new(spec, observer, true)?;
    check_against_inputs(spec, &prepared.sources)?;
    let online = Online::connect(spec)?;
    try_objects(spec, &prepared.sources)?;
    remove_leftovers_beside(spec, &prepared.sources);
    let outputs = Outputs::open(spec)?;
    execute(&prepared.job(spec, observer), online.as_ref(), outputs, clocks)
}

fn execute(
    job: &Job<'_>,
    online: Option<&Online>,
    named: Outputs,
    (total, cpu): (Stopwatch, ProcessorTime),
) -> Result<Done> {
    let (spec, mut watch) = (job.spec, total);
    let input_bytes = job.input_bytes();
    let scratch = Arc::new(ScratchFile::new(&spec.scratch));
    let bar = |phase, unit| Bar::new(job.observer, phase, input_bytes, unit);
    let mut phases = vec![("open", watch.lap())];

    let store = RunStore::new(
        job.resident_bytes(),
        job.shape.workers,
        SegmentLayout::of(&job.shape),
        Arc::clone(&scratch),
    );
    let dropped = spec.reports_kept().then(|| DropRows::new(job, &scratch));
    let bar_read = bar("read", Unit::Bytes);
    let local = local_pass::run(job, &store, dropped.as_ref(), &bar_read)?;
    drop(bar_read);
    phases.push(("local", watch.lap()));

    let Outputs { kept, duplicates, groups, bad: bad_list, index, summary: summary_sink, page } =
        named;
    let mut done = |phase| phases.push((phase, watch.lap()));
    let (exchange, runs) = decide(job, store, &local, dropped.as_ref(), &scratch, &mut done)?;
    let mut asked = Vec::new();
    if let Some(online) = online {
        asked = online.drop_known(job, &local.facts, dropped.as_ref())?;
        done("ask");
    }
    let index = save_index(job, runs, &local.facts, &scratch, index)?;
    let (kept, annotations) = if spec.annotates { (None, kept) } else { (kept, None) };
    let mut written = Written::default();
    let mut drops = Drops::new(job, &local.facts, dropped.as_ref(), &scratch, duplicates);
    if !spec.annotates {
        let bar = bar("write", Unit::BytesWritten);
        written = by_size::write(job, kept, &local.facts, &mut drops, &scratch, &bar)?;
    }
    let reported = reports::write(ReportOutputs { groups, annotations }, drops)?;
    written.complete.extend(reported.complete);
    written.was_closed |= reported.was_closed;
    check_delivered(spec, written.was_closed)?;
    let mut chunk_facts = local.facts;
    let totals = FactTotals::of(&chunk_facts);
    let bad = BadCounts::of(chunk_facts.iter().map(|facts| &facts.bad));
    let bad_lines = take_bad(job, &mut chunk_facts);
    written.complete.extend(write_bad(spec, job.observer, bad_list, bad.total(), bad_lines)?);
    phases.push(("output", watch.lap()));

    let summary = Summary::new(&Facts {
        job,
        totals,
        dropped: DroppedItems::of_one_process(totals.early_drops, &exchange.report, &asked),
        exchange: &exchange,
        asked: &asked,
        bad: &bad,
        groups: reported.groups,
        files: reported.files,
        written: written.records,
        phases: &phases,
        wall: total.elapsed(),
        cpu_s: cpu.seconds(),
        local_times: local.times,
        output_times: written.times,
        scratch_bytes: scratch.bytes(),
    });
    // The summary is renamed last: if it exists, the job is done.
    let summary_written = summary_sink.map(|named| write_summary(&summary, named)).transpose()?;
    let last: Vec<Complete> = index.into_iter().chain(summary_written).collect();
    let all = written.complete.iter().chain(&last);
    let was_closed = written.was_closed || all.into_iter().any(|output| output.was_closed);
    job.references.take_updated()?;
    check_unchanged(job.sources)?;
    let goes_on = spec.add_to.is_some();
    Commit { outputs: written.complete, last, goes_on }.carry_out()?;
    online.map_or(Ok(()), |online| online.add(job, &chunk_facts, &|| Ok(())))?;
    Ok(Done { summary, was_closed, page: page.map(PageOutput::of_job) })
}

fn write_summary(summary: &Summary, named: Named) -> Result<Complete> {
    let mut sink = named.sink()?;
    sink.write(summary.json()?.as_bytes())?;
    sink.complete()
}

/// Fails if the reader of the kept records, or of the annotations, has left, and later jobs would drop what it did not
/// get. The job can be run again, since nothing has its name yet.
fn check_delivered(spec: &JobSpec, was_closed: bool) -> Result<()> {
    let index = spec.save_index.as_ref();
    let index = index.map(|index| format!("--save-index {}", index.path.display()));
    let filter = spec.add_to.as_ref().map(|filter| format!("--add-to {filter}"));
    let remembered: Vec<String> = index.into_iter().chain(filter).collect();
    if !was_closed || remembered.is_empty() {
        return Ok(());
    }
    bail!(
        "the reader of the kept records has closed them before the end, and by {} later jobs would drop records that it \
         did not get; nothing was put under its name, run the job again",
        remembered.join(" and ")
    )
}

/// Writes the index of kept items, if it is wanted.
fn save_index(
    job: &Job<'_>,
    runs: Option<HashRuns>,
    facts: &[ChunkFacts],
    scratch: &ScratchFile,
    index: Option<Named>,
) -> Result<Option<Complete>> {
    let (Some(runs), Some(save), Some(named)) = (runs, &job.spec.save_index, index) else {
        return Ok(None);
    };
    let entries = |cell| {
        let of_workers = job.worker_ids().map(|worker| runs.cell(worker.0, cell));
        let of_workers = of_workers.map(|found| Ok(found?.entries));
        Ok(of_workers.collect::<Result<Vec<_>>>()?.concat())
    };
    save_index::write(job, (facts, 0), &entries, save.bits, scratch, named.sink()?).map(Some)
}

/// Exchanges all entries, and compares suspects at exactness `bytes`; calls `done` at the end of each phase. Also returns all
/// entries, if an index is to be made from the kept ones.
fn decide(
    job: &Job<'_>,
    store: RunStore,
    local: &LocalPass,
    dropped: Option<&DropRows>,
    scratch: &Arc<ScratchFile>,
    done: &mut impl FnMut(&'static str),
) -> Result<(Outcome, Option<HashRuns>)> {
    let runs = store.finish()?;
    let suspects = (job.shape.exactness == Exactness::Bytes).then(|| Suspects::new(&local.facts));
    let suspect = |suspect| {
        if let Some(suspects) = &suspects {
            suspects.add(suspect);
        }
    };
    let decisions = Decisions { facts: &local.facts, dropped, suspect: &suspect };
    let bar = Bar::new(job.observer, "exchange", job.cells().get().into(), Unit::Cells);
    let mut exchange = exchange::run(job, &runs, &decisions, &bar)?;
    drop(bar);
    let runs = job.spec.save_index.is_some().then_some(runs);
    done("exchange");
    if let Some(suspects) = &suspects {
        let bar = Bar::new(job.observer, "compare", job.input_bytes(), Unit::Bytes);
        compare::run(job, suspects, &mut exchange, &decisions, scratch, &bar)?;
        done("compare");
    }
    Ok((exchange.outcome, runs))
}

/// Takes the stored bad records of all chunks, in input order, as lines of a list.
fn take_bad<'a>(
    job: &Job<'a>,
    facts: &'a mut [ChunkFacts],
) -> impl Iterator<Item = BadLine<'a>> + use<'a> {
    let (chunks, sources) = (job.chunks, job.sources);
    let before = records_before(chunks, facts);
    chunks.iter().zip(facts).zip(before).flat_map(move |((chunk, facts), before)| {
        let records = facts.bad.take_records().into_iter();
        records.map(move |bad| BadLine::new(bad, &sources[chunk.source], before))
    })
}
