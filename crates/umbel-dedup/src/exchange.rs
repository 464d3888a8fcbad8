//! Phases 2 to 7: count, sample, plan, and then the exchange of every cell between all workers.
//!
//! The state machines and frames are those of a cluster. A thread holds one [`Worker`] a worker, takes the next cell,
//! gives every worker its entries of it and carries frames between them until all is silent; what was dropped is
//! marked at once. Cells are independent, so threads never wait for each other.

use super::chunk_facts::ChunkFacts;
use super::context::Job;
use super::drop_rows::{DropRow, DropRows, DropWriter};
use super::hash_runs::{CellEntries, HashRuns};
use super::progress::Bar;
use super::turns::{lock, run_tasks};
use crate::clock::Stopwatch;
use crate::error::{Context, Result, bail};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;
use umbel_dedup_engine::{
    Coordinator, CoordinatorInput, CoordinatorOutput, Drops, ExchangeReport, Input, Item, Output,
    Plan, SampleOrder, Suspect, Worker, WorkerId,
};
use umbel_filter::HashRange;
use umbel_step::Outbox;

/// What the exchange came to.
#[derive(Clone, Copy)]
pub(crate) struct Outcome {
    /// The plan it ran by.
    pub(crate) plan: Plan,
    /// What was sent and found.
    pub(crate) report: ExchangeReport,
    /// Thread time of sorting, coding and settling.
    pub(crate) settle_time: Duration,
}

/// What the phase leaves.
pub(crate) struct Exchange<'a> {
    /// What it came to so far.
    pub(crate) outcome: Outcome,
    sample_report: ExchangeReport,
    /// Level `bytes`: lanes whose workers still wait for items.
    lanes: Vec<Lane<'a>>,
}

/// Takes records whose items must be compared, at level `bytes`.
pub(crate) type SuspectSink<'a> = dyn Fn(Suspect) + Sync + 'a;

/// Where the decisions about a cell go.
pub(crate) struct Decisions<'a> {
    /// What reading has shown of each chunk; drops are marked there.
    pub(crate) facts: &'a [ChunkFacts],
    /// The report of dropped records, if there is one.
    pub(crate) dropped: Option<&'a DropRows>,
    /// Takes suspects.
    pub(crate) suspect: &'a SuspectSink<'a>,
}

/// All workers of the job on one thread.
struct Lane<'a> {
    workers: Vec<Worker>,
    outbox: Outbox<Output>,
    /// Oldest first: frames of a stream must not overtake each other.
    mail: VecDeque<(WorkerId, Output)>,
    drops: Option<DropWriter<'a>>,
    /// Level `bytes`: the cells and workers that wait for items.
    compares: Vec<(u32, WorkerId)>,
    settle_time: Duration,
}

impl<'a> Lane<'a> {
    fn new(job: &Job<'_>, plan: Option<Plan>, dropped: Option<&'a DropRows>) -> Result<Self> {
        let mut outbox = Outbox::new();
        let mut workers = Vec::new();
        for id in job.worker_ids() {
            let mut worker = Worker::new(id, job.shape, job.id)?;
            if let Some(plan) = plan {
                worker.step(Input::Plan(plan), &mut outbox)?;
            }
            workers.push(worker);
        }
        Ok(Self {
            workers,
            outbox,
            mail: VecDeque::new(),
            drops: dropped.map(DropRows::writer),
            compares: Vec::new(),
            settle_time: Duration::ZERO,
        })
    }

    /// One step of one worker; its orders join the mail.
    fn step(&mut self, worker: WorkerId, input: Input) -> Result<()> {
        self.workers[worker.index()].step(input, &mut self.outbox)?;
        self.mail.extend(self.outbox.take().into_iter().map(|order| (worker, order)));
        Ok(())
    }

    /// Carries frames until all is silent; hands out what is left for the driver.
    fn carry(
        &mut self,
        mut order: impl FnMut(&mut Self, WorkerId, Output) -> Result<()>,
    ) -> Result<()> {
        while let Some((from, output)) = self.mail.pop_front() {
            match output {
                Output::Send { to, frame } => self.step(to, Input::Frame { from, bytes: frame })?,
                other => order(self, from, other)?,
            }
        }
        Ok(())
    }

    fn settled(&mut self, decisions: &Decisions<'_>, drops: &Drops) -> Result<()> {
        for &place in &drops.places {
            decisions.facts[place.chunk() as usize].dropped.set(place.item());
        }
        if let Some(writer) = &mut self.drops {
            for (index, (&place, &kept)) in drops.places.iter().zip(&drops.kept).enumerate() {
                let rank = drops.ranks.get(index).copied().unwrap_or_default();
                writer.append(DropRow { place, kept, rank })?;
            }
        }
        Ok(())
    }

    /// Exchanges what every worker was given, to the end.
    fn decide(&mut self, decisions: &Decisions<'_>) -> Result<()> {
        self.carry(|lane, worker, output| match output {
            Output::Settled { drops, .. } => lane.settled(decisions, &drops),
            Output::Compare { cell, suspects } => {
                lane.compares.push((cell, worker));
                suspects.into_iter().for_each(decisions.suspect);
                Ok(())
            }
            other => bail!("unexpected order in the exchange: {other:?}"),
        })
    }
}

/// Plans the exchange and runs it over all cells.
pub(crate) fn run<'a>(
    job: &Job<'_>,
    runs: &HashRuns,
    decisions: &Decisions<'a>,
    bar: &Bar<'_>,
) -> Result<Exchange<'a>> {
    let mut sampling = Lane::new(job, None, None)?;
    let plan = plan(job, runs, decisions.facts, &mut sampling)?;
    let mut sample_report = ExchangeReport::default();
    sampling.workers.iter().for_each(|worker| sample_report += worker.report());
    let done = Mutex::new(Vec::new());
    let work = |lane: &mut Lane<'a>, cell: usize| {
        let watch = Stopwatch::start();
        let cell = u32::try_from(cell).expect("at most 2^20 cells");
        for id in job.worker_ids() {
            let CellEntries { entries, ranks } = runs.cell(id.0, cell)?;
            lane.step(id, Input::Cell { cell, entries, ranks })?;
        }
        if plan.references.is_some() {
            let owner = u16::try_from(job.shape.owner(cell)).expect("at most 1,024 workers");
            let hashes = job.references.hashes(HashRange::cell(cell, job.cells()))?;
            lane.step(WorkerId(owner), Input::References { cell, hashes })?;
        }
        lane.decide(decisions)?;
        if !plan.compares_bytes() && !lane.workers.iter().all(Worker::is_idle) {
            bail!("cell {cell} was left undecided: a bug in the exchange");
        }
        lane.settle_time += watch.elapsed();
        bar.add(1)?;
        Ok(())
    };
    let new_lane = || Lane::new(job, Some(plan), decisions.dropped);
    let finish = |lane| {
        lock(&done).push(lane);
        Ok(())
    };
    run_tasks(job.threads, job.cells().get() as usize, new_lane, work, finish)
        .context("exchange")?;
    let outcome = Outcome { plan, report: sample_report, settle_time: Duration::ZERO };
    let mut exchange = Exchange { outcome, sample_report, lanes: Vec::new() };
    for mut lane in done.into_inner().expect("threads are done") {
        lane.workers.iter().for_each(|worker| exchange.outcome.report += worker.report());
        exchange.outcome.settle_time += lane.settle_time;
        if plan.compares_bytes() {
            exchange.lanes.push(lane);
        } else if let Some(writer) = lane.drops.take() {
            writer.finish()?;
        }
    }
    Ok(exchange)
}

/// Counts and, where the coordinator asks for it, samples.
fn plan(job: &Job<'_>, runs: &HashRuns, facts: &[ChunkFacts], lane: &mut Lane<'_>) -> Result<Plan> {
    let mut coordinator = Coordinator::new(job.shape, job.spec.filter)?;
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
            chunk_items_max: own().map(|(_, (_, facts))| facts.places).max().unwrap_or(0),
        };
        coordinator.step(counted, &mut outbox)?;
    }
    loop {
        for order in outbox.take() {
            match order {
                CoordinatorOutput::Plan(plan) => return Ok(plan),
                CoordinatorOutput::Sample(order) => sample(job, runs, order, lane)?,
            }
        }
        lane.carry(|_, owner, output| {
            let Output::Sampled { entries, candidates } = output else {
                bail!("unexpected order in the sample: {output:?}");
            };
            let sampled = CoordinatorInput::Sampled { owner, entries, candidates };
            Ok(coordinator.step(sampled, &mut outbox)?)
        })?;
    }
}

/// Gives every worker its sample.
fn sample(job: &Job<'_>, runs: &HashRuns, order: SampleOrder, lane: &mut Lane<'_>) -> Result<()> {
    for worker in job.worker_ids() {
        let mut lists = Vec::new();
        for owner in 0..job.shape.workers {
            let range = job.shape.sample_range(owner);
            let cell = owner * job.shape.cells_per_owner;
            let CellEntries { mut entries, .. } = runs.cell(worker.0, cell)?;
            entries.retain(|entry| range.contains(entry.hash.hi()));
            lists.push(entries);
        }
        if job.references.shape().is_some() {
            let range = job.shape.sample_range(worker.0.into());
            let hashes = job.references.hashes(range)?;
            lane.step(worker, Input::SampleReferences { hashes })?;
        }
        lane.step(worker, Input::Sample { order, lists })?;
    }
    Ok(())
}

/// Level `bytes`: the workers that asked for items get them, cell by cell, and settle.
///
/// `items` hands out the items of a cell, each with its worker.
pub(crate) fn compare(
    exchange: &mut Exchange<'_>,
    items: impl Fn(u32) -> Result<Vec<(WorkerId, Item)>> + Sync,
    decisions: &Decisions<'_>,
) -> Result<()> {
    let lanes: Vec<_> = exchange.lanes.drain(..).map(|lane| Mutex::new(Some(lane))).collect();
    let report = Mutex::new(ExchangeReport::default());
    let work = |(): &mut (), task: usize| {
        let mut lane = lock(&lanes[task]).take().expect("each lane is one task");
        let mut compares = std::mem::take(&mut lane.compares);
        compares.sort_unstable();
        for asked in compares.chunk_by(|a, b| a.0 == b.0) {
            let cell = asked[0].0;
            let mut of_worker: BTreeMap<WorkerId, Vec<Item>> =
                asked.iter().map(|&(_, worker)| (worker, Vec::new())).collect();
            for (worker, item) in items(cell)? {
                of_worker.entry(worker).or_default().push(item);
            }
            for (worker, items) in of_worker {
                lane.step(worker, Input::Items { cell, items })?;
            }
            lane.decide(decisions)?;
        }
        if !lane.workers.iter().all(Worker::is_idle) {
            bail!("a cell was left undecided: a bug in the exchange");
        }
        lane.workers.iter().for_each(|worker| *lock(&report) += worker.report());
        lane.drops.map_or(Ok(()), DropWriter::finish)
    };
    run_tasks(lanes.len(), lanes.len(), || Ok(()), work, Ok).context("comparison of items")?;
    exchange.outcome.report = exchange.sample_report;
    exchange.outcome.report += *lock(&report);
    Ok(())
}
