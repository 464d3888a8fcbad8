//! A job from its specification to its outcome: phases in order, the commit last.

use super::bad::BadRecords;
use super::by_size;
use super::chunk_facts::ChunkFacts;
use super::chunks::cut;
use super::commit::commit;
use super::compare::{self, Suspects};
use super::context::Job;
use super::drop_rows::DropRows;
use super::exchange::{self, Decisions, Outcome};
use super::hash_runs::{HashRuns, RunStore};
use super::local_pass::{self, LocalPass};
use super::memory::check_workers;
use super::online::{Asked, Online};
use super::output::Written;
use super::outputs::{
    Named, Outputs, check_against_inputs, check_named, remove_leftovers_beside, try_objects,
    write_bad,
};
use super::plan;
use super::progress::{Bar, Unit};
use super::references::References;
use super::report::records_before;
use super::reports::{self, Drops, ReportOutputs};
use super::save_index::{self, KeptOfJob};
use super::sink::{Complete, Sink};
use super::sources::open_sources;
use super::spec::JobSpec;
use super::spill::ScratchFile;
use super::summary::{DroppedItems, Facts, Summary};
use crate::clock::{ProcessorTime, Stopwatch};
use crate::dedup::error::Result;
use crate::exit::{Exit, UsageError};
use crate::say::say;
use std::sync::Arc;
use umbel_engine::dedup::Level;
use umbel_filter::ItemHasher;

/// Runs a job.
///
/// # Errors
///
/// A [`UsageError`] where no input was found; any other error names file and record or path. Nothing was
/// committed then.
pub(crate) fn run(spec: &JobSpec) -> Result<Exit> {
    let clocks = (Stopwatch::start(), ProcessorTime::start());
    if !spec.plan_only {
        check_named(spec)?;
    }
    let sources = open_sources(spec)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = spec.workers.unwrap_or(1);
    let references = References::open(spec)?;
    let forecast = plan::forecast(spec, &sources)?;
    let shape = plan::shape(spec, workers, &forecast, references.shape());
    shape.validate().map_err(|error| UsageError(error.to_string()))?;
    if spec.pairs_bytes() > 0 {
        check_workers(spec.memory_bytes, workers, spec.level)?;
    }
    let chunks = cut(&sources, workers, threads, spec.compares_files())?;
    let hasher = ItemHasher::Xxh3 { seed: spec.seed };
    let id = job_id(spec);
    let online = if spec.plan_only { None } else { Online::connect(spec)? };
    let (sources, chunks, references) = (&sources[..], &chunks[..], &references);
    let job = Job { spec, sources, chunks, references, shape, hasher, id, threads };
    if spec.plan_only {
        Sink::stdout()?.write(plan::explain(&job, &forecast).as_bytes())?;
        return Ok(Exit::Done);
    }
    check_against_inputs(spec, sources)?;
    try_objects(spec, sources)?;
    remove_leftovers_beside(spec, sources);
    execute(&job, online.as_ref(), Outputs::open(spec)?, clocks)
}

/// Number of the job: from its seed and input names, so that a repeated job repeats its frames.
fn job_id(spec: &JobSpec) -> u64 {
    let names = spec.inputs.join("\n");
    ItemHasher::Xxh3 { seed: spec.seed }.hash(names.as_bytes()).lo()
}

fn execute(
    job: &Job<'_>,
    online: Option<&Online>,
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
    let dropped = spec.reports_kept().then(|| DropRows::new(job, &scratch));
    let bar_read = bar("read", input_bytes, Unit::Bytes);
    let local = local_pass::run(job, &store, dropped.as_ref(), &bar_read)?;
    drop(bar_read);
    let items: u64 = local.facts.iter().map(|facts| facts.items).sum();
    let records: u64 = local.facts.iter().map(|facts| facts.records).sum();
    phases.push(("local", watch.lap()));

    let Outputs { kept, duplicates, groups, bad: bad_list, index, summary: summary_sink } = named;
    let done = |phase| phases.push((phase, watch.lap()));
    let decided = settle(job, online, store, &local, dropped.as_ref(), &scratch, index, done)?;
    let (kept, annotations) = if spec.annotates { (None, kept) } else { (kept, None) };
    let mut written = Written::default();
    let mut drops = Drops::new(job, &local.facts, dropped.as_ref(), &scratch, duplicates);
    if !spec.annotates {
        let bar = bar("write", input_bytes, Unit::BytesWritten);
        written = by_size::write(job, kept, &local.facts, &mut drops, &scratch, &bar)?;
    }
    let reported = reports::write(ReportOutputs { groups, annotations }, drops)?;
    written.complete.extend(reported.complete.into_iter().chain(decided.index));
    written.was_closed |= reported.was_closed;
    let mut chunk_facts = local.facts;
    let bad = take_bad(job, &mut chunk_facts);
    written.complete.extend(write_bad(spec, bad_list, &bad.records)?);
    phases.push(("output", watch.lap()));

    let report = &decided.exchange.report;
    let facts = Facts {
        job,
        items,
        records,
        exempt: bad.exempt,
        left_out: bad.left_out,
        dropped: DroppedItems::of_one_process(bad.early_drops, report, &decided.asked),
        exchange: &decided.exchange,
        asked: &decided.asked,
        bad: &bad.records,
        groups: reported.groups,
        written: written.records,
        early_drops: bad.early_drops,
        phases: &phases,
        wall: total.elapsed(),
        cpu_s: cpu.seconds(),
        local_times: local.times,
        output_times: written.times,
        scratch_bytes: scratch.bytes(),
    };
    let summary = Summary::new(&facts);
    if let Some(named) = summary_sink {
        // Renamed last: where it stands, the job is done.
        let mut sink = named.sink()?;
        sink.write(summary.json()?.as_bytes())?;
        written.complete.push(sink.complete()?);
    }
    job.references.check_not_replaced()?;
    commit(written.complete)?;
    online.map_or(Ok(()), |online| online.add(job, &chunk_facts, &|| Ok(())))?;
    // Like `sort | head`: whoever has heard enough is not told more.
    if !spec.quiet && !written.was_closed {
        say(summary.table());
    }
    Ok(if bad.records.total() > 0 { Exit::BadSkipped } else { Exit::Done })
}

/// What has become of all items.
struct Decided {
    exchange: Outcome,
    asked: Vec<Asked>,
    index: Option<Complete>,
}

/// Decides of all items, and writes the index of those that stay; `done` hears of each phase's end.
fn settle(
    job: &Job<'_>,
    online: Option<&Online>,
    store: RunStore,
    local: &LocalPass,
    dropped: Option<&DropRows>,
    scratch: &Arc<ScratchFile>,
    index: Option<Named>,
    mut done: impl FnMut(&'static str),
) -> Result<Decided> {
    let (exchange, runs) = decide(job, store, local, dropped, scratch, &mut done)?;
    let mut asked = Vec::new();
    if let Some(online) = online {
        asked = online.drop_known(job, &local.facts, dropped)?;
        done("ask");
    }
    let save = job.spec.save_index.as_ref();
    let index = match (runs, save, index) {
        (Some(runs), Some(save), Some(named)) => {
            let kept = KeptOfJob { job, runs: &runs, facts: &local.facts };
            Some(save_index::write(job, &kept, save.bits, scratch, named.sink()?)?)
        }
        _ => None,
    };
    Ok(Decided { exchange, asked, index })
}

/// Exchanges all entries, and at level `bytes` all items in doubt; `done` hears of each phase's end. Also all entries,
/// if an index is to be made of those that stay.
fn decide(
    job: &Job<'_>,
    store: RunStore,
    local: &LocalPass,
    dropped: Option<&DropRows>,
    scratch: &Arc<ScratchFile>,
    done: &mut impl FnMut(&'static str),
) -> Result<(Outcome, Option<HashRuns>)> {
    let runs = store.finish(job.shape.workers, job.cells(), job.shape.ranks_entries());
    let suspects = (job.shape.level == Level::Bytes).then(|| Suspects::new(&local.facts));
    let suspect = |suspect| {
        if let Some(suspects) = &suspects {
            suspects.add(suspect);
        }
    };
    let decisions = Decisions { facts: &local.facts, dropped, suspect: &suspect };
    let bar = Bar::new("exchange", job.cells().get().into(), Unit::Cells, job.spec.quiet);
    let mut exchange = exchange::run(job, &runs, &decisions, &bar)?;
    drop(bar);
    let runs = job.spec.save_index.is_some().then_some(runs);
    done("exchange");
    if let Some(suspects) = &suspects {
        let bar = Bar::new("compare", job.input_bytes(), Unit::Bytes, job.spec.quiet);
        compare::run(job, suspects, &mut exchange, &decisions, scratch, &bar)?;
        done("compare");
    }
    Ok((exchange.outcome, runs))
}

/// What is left of the chunks' facts at the end.
#[derive(Default)]
struct TakenFacts {
    records: BadRecords,
    early_drops: u64,
    exempt: u64,
    left_out: u64,
}

fn take_bad(job: &Job<'_>, facts: &mut [ChunkFacts]) -> TakenFacts {
    let before = records_before(job.chunks, facts);
    let mut taken = TakenFacts::default();
    for ((chunk, facts), before) in job.chunks.iter().zip(facts).zip(before) {
        taken.early_drops += facts.early_drops;
        taken.exempt += facts.exempt;
        taken.left_out += facts.left_out;
        for bad in std::mem::take(&mut facts.bad) {
            taken.records.add(bad, &job.sources[chunk.source], before);
        }
    }
    taken
}
