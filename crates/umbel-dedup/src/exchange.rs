//! Phases 2 to 7: count, sample, plan, and then the exchange of every cell between all workers of the job.
//!
//! Input: the entries of all workers by cell. Output: the dropped records, marked in the facts of their chunks and added to
//! the report; at exactness `bytes` first the suspects, which [`compare`] decides once their items were read.
//!
//! The state machines and frames are those of a job over many machines. A thread has one [`Worker`] per worker of the job.
//! It takes the next cell, gives every worker its entries, and passes frames between them until there are none: a single
//! worker without references sends none. Cells are independent, so threads do not wait for each other.

use super::chunk_facts::ChunkFacts;
use super::context::Job;
use super::drop_rows::{DropRow, DropRows, DropWriter};
use super::hash_runs::HashRuns;
use super::progress::Bar;
use super::run_builder::CellEntries;
use super::turns::{lock, run_tasks};
use crate::clock::Stopwatch;
use crate::error::{Context, Result, bail};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;
use umbel_dedup_engine::{
    CoordinatorInput, CoordinatorOutput, Drops, Entry, ExchangeCoordinator, ExchangeInput,
    ExchangeOutput, ExchangeReport, JobShape, Mailbox, Plan, SampleOrder, Suspect, SuspectItem,
    Worker, WorkerId,
};
use umbel_filter::HashRange;
use umbel_step::Outbox;

/// The result of the exchange.
#[derive(Clone, Copy)]
pub(crate) struct Outcome {
    /// The plan.
    pub(crate) plan: Plan,
    /// Counters of what was sent and found.
    pub(crate) report: ExchangeReport,
    /// Thread time of sorting, encoding and deciding.
    pub(crate) exchange_time: Duration,
}

/// The state after all cells were exchanged.
pub(crate) struct Exchange<'a> {
    /// The result so far.
    pub(crate) outcome: Outcome,
    sample_report: ExchangeReport,
    /// Exactness `bytes`: the state of each thread, whose workers wait for items.
    states: Vec<ThreadState<'a>>,
}

/// Takes a record whose item must be compared, at exactness `bytes`.
pub(crate) type SuspectSink<'a> = dyn Fn(Suspect) + Sync + 'a;

/// Where decisions about records go.
pub(crate) struct Decisions<'a> {
    /// The facts of each chunk, in which drops are marked.
    pub(crate) facts: &'a [ChunkFacts],
    /// The report of dropped records, if there is one.
    pub(crate) dropped: Option<&'a DropRows>,
    /// Takes suspects.
    pub(crate) suspect: &'a SuspectSink<'a>,
}

/// The state of one thread: all workers of the job, and the frames between them.
struct ThreadState<'a> {
    mailbox: Mailbox,
    drops: Option<DropWriter<'a>>,
    /// Exactness `bytes`: the cells and workers that wait for items.
    compares: Vec<(u32, WorkerId)>,
    exchange_time: Duration,
}

impl<'a> ThreadState<'a> {
    fn new(job: &Job<'_>, plan: Option<Plan>, dropped: Option<&'a DropRows>) -> Result<Self> {
        let workers = job.worker_ids().map(|id| Worker::new(id, job.shape, job.id));
        let mut mailbox = Mailbox::new(workers.collect::<Result<_, _>>()?);
        if let Some(plan) = plan {
            for id in job.worker_ids() {
                mailbox.step(id, ExchangeInput::Plan(plan))?;
            }
        }
        Ok(Self {
            mailbox,
            drops: dropped.map(DropRows::writer),
            compares: Vec::new(),
            exchange_time: Duration::ZERO,
        })
    }

    fn record_drops(&mut self, decisions: &Decisions<'_>, drops: &Drops) -> Result<()> {
        for &record_id in &drops.record_ids {
            decisions.facts[record_id.chunk() as usize].dropped.set(record_id.item());
        }
        if let Some(writer) = &mut self.drops {
            for (index, (&record_id, &kept)) in drops.record_ids.iter().zip(&drops.kept).enumerate()
            {
                let rank = drops.ranks.get(index).copied().unwrap_or_default();
                writer.append(DropRow { record_id, kept, rank })?;
            }
        }
        Ok(())
    }

    /// Delivers all frames, and records the decisions and the suspects that come out.
    fn decide(&mut self, decisions: &Decisions<'_>) -> Result<()> {
        while let Some((worker, output)) = self.mailbox.carry()? {
            match output {
                ExchangeOutput::Decided { drops, .. } => self.record_drops(decisions, &drops)?,
                ExchangeOutput::Compare { cell, suspects } => {
                    self.compares.push((cell, worker));
                    suspects.into_iter().for_each(decisions.suspect);
                }
                other => bail!("unexpected order in the exchange: {other:?}"),
            }
        }
        Ok(())
    }
}

/// Plans the exchange and runs it over all cells.
pub(crate) fn run<'a>(
    job: &Job<'_>,
    runs: &HashRuns,
    decisions: &Decisions<'a>,
    bar: &Bar<'_>,
) -> Result<Exchange<'a>> {
    let mut sampling = ThreadState::new(job, None, None)?;
    let plan = plan(job, runs, decisions.facts, &mut sampling)?;
    let mut sample_report = ExchangeReport::default();
    sampling.mailbox.workers().iter().for_each(|worker| sample_report += worker.report());
    let done = Mutex::new(Vec::new());
    let work = |state: &mut ThreadState<'a>, cell: usize| {
        let watch = Stopwatch::start();
        let cell = u32::try_from(cell).expect("at most 2^20 cells");
        for id in job.worker_ids() {
            let CellEntries { entries, ranks } = runs.cell(id.0, cell)?;
            state.mailbox.step(id, ExchangeInput::Cell { cell, entries, ranks })?;
        }
        if plan.references.is_some() {
            let owner = u16::try_from(job.shape.owner(cell)).expect("at most 1,024 workers");
            let hashes = job.references.hashes(HashRange::cell(cell, job.cells()))?;
            state.mailbox.step(WorkerId(owner), ExchangeInput::References { cell, hashes })?;
        }
        state.decide(decisions)?;
        if !plan.compares_bytes() && !state.mailbox.workers().iter().all(Worker::is_idle) {
            bail!("cell {cell} was left undecided: a bug in the exchange");
        }
        state.exchange_time += watch.elapsed();
        bar.add(1)?;
        Ok(())
    };
    let new_state = || ThreadState::new(job, Some(plan), decisions.dropped);
    let finish = |state| {
        lock(&done).push(state);
        Ok(())
    };
    run_tasks(job.threads, job.cells().get() as usize, new_state, work, finish)
        .context("exchange")?;
    let outcome = Outcome { plan, report: sample_report, exchange_time: Duration::ZERO };
    let mut exchange = Exchange { outcome, sample_report, states: Vec::new() };
    for mut state in done.into_inner().expect("threads are done") {
        state
            .mailbox
            .workers()
            .iter()
            .for_each(|worker| exchange.outcome.report += worker.report());
        exchange.outcome.exchange_time += state.exchange_time;
        if plan.compares_bytes() {
            exchange.states.push(state);
        } else if let Some(writer) = state.drops.take() {
            writer.finish()?;
        }
    }
    Ok(exchange)
}

/// Determines the plan from the counts of all workers, and from a sample if the coordinator orders one.
fn plan(
    job: &Job<'_>,
    runs: &HashRuns,
    facts: &[ChunkFacts],
    state: &mut ThreadState<'_>,
) -> Result<Plan> {
    let mut coordinator = ExchangeCoordinator::new(job.shape, job.spec.filter)?;
    if let Some(references) = job.references.shape() {
        coordinator = coordinator.with_references(references)?;
    }
    let mut outbox = Outbox::new();
    for worker in job.worker_ids() {
        let numbered = (0u32..).zip(job.chunks.iter().zip(facts));
        let own = || numbered.clone().filter(|(_, (chunk, _))| chunk.worker == worker.0);
        let counted = CoordinatorInput::Counted {
            worker,
            items: own().map(|(_, (_, facts))| facts.items).sum(),
            chunks_end: own().map(|(number, _)| number + 1).max().unwrap_or(0),
            chunk_items_max: own().map(|(_, (_, facts))| facts.id_count).max().unwrap_or(0),
        };
        coordinator.step(counted, &mut outbox)?;
    }
    loop {
        for order in outbox.take() {
            match order {
                CoordinatorOutput::Plan(plan) => return Ok(plan),
                CoordinatorOutput::Sample(order) => sample(job, runs, order, state)?,
            }
        }
        while let Some((owner, output)) = state.mailbox.carry()? {
            let ExchangeOutput::Sampled { entries, candidates } = output else {
                bail!("unexpected order in the sample: {output:?}");
            };
            let sampled = CoordinatorInput::Sampled { owner, entries, candidates };
            coordinator.step(sampled, &mut outbox)?;
        }
    }
}

/// Gives every worker its entries in the sample.
fn sample(
    job: &Job<'_>,
    runs: &HashRuns,
    order: SampleOrder,
    state: &mut ThreadState<'_>,
) -> Result<()> {
    for worker in job.worker_ids() {
        let lists = sample_lists(job.shape, |cell| runs.cell(worker.0, cell))?;
        if job.references.shape().is_some() {
            let range = job.shape.sample_range(worker.0.into());
            let hashes = job.references.hashes(range)?;
            state.mailbox.step(worker, ExchangeInput::SampleReferences { hashes })?;
        }
        state.mailbox.step(worker, ExchangeInput::Sample { order, lists })?;
    }
    Ok(())
}

/// A worker's entries in every owner's sample, one list per owner; `entries` returns those of a cell.
pub(crate) fn sample_lists(
    shape: JobShape,
    entries: impl Fn(u32) -> Result<CellEntries>,
) -> Result<Vec<Vec<Entry>>> {
    let list = |owner: u32| {
        let range = shape.sample_range(owner);
        let CellEntries { mut entries, .. } = entries(owner * shape.cells_per_owner)?;
        entries.retain(|entry| range.contains(entry.hash.hi()));
        Ok(entries)
    };
    (0..shape.workers).map(list).collect()
}

/// Exactness `bytes`: gives the workers the items that they requested, cell by cell, and exchanges these to the end.
///
/// `items` returns the items of a cell, each with its worker.
pub(crate) fn compare(
    exchange: &mut Exchange<'_>,
    items: impl Fn(u32) -> Result<Vec<(WorkerId, SuspectItem)>> + Sync,
    decisions: &Decisions<'_>,
) -> Result<()> {
    let states: Vec<_> = exchange.states.drain(..).map(|state| Mutex::new(Some(state))).collect();
    let report = Mutex::new(ExchangeReport::default());
    let work = |(): &mut (), task: usize| {
        let mut state = lock(&states[task]).take().expect("each state is one task");
        let mut compares = std::mem::take(&mut state.compares);
        compares.sort_unstable();
        for asked in compares.chunk_by(|a, b| a.0 == b.0) {
            let cell = asked[0].0;
            let mut of_worker: BTreeMap<WorkerId, Vec<SuspectItem>> =
                asked.iter().map(|&(_, worker)| (worker, Vec::new())).collect();
            for (worker, item) in items(cell)? {
                of_worker.entry(worker).or_default().push(item);
            }
            for (worker, items) in of_worker {
                state.mailbox.step(worker, ExchangeInput::Items { cell, items })?;
            }
            state.decide(decisions)?;
        }
        if !state.mailbox.workers().iter().all(Worker::is_idle) {
            bail!("a cell was left undecided: a bug in the exchange");
        }
        state.mailbox.workers().iter().for_each(|worker| *lock(&report) += worker.report());
        state.drops.map_or(Ok(()), DropWriter::finish)
    };
    run_tasks(states.len(), states.len(), || Ok(()), work, Ok).context("comparison of items")?;
    exchange.outcome.report = exchange.sample_report;
    exchange.outcome.report += *lock(&report);
    Ok(())
}
