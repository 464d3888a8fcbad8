//! From what all workers expect to the shape, from what they have read to the plan, and from the plan to an attempt.

use super::super::super::coordinator::{Coordinator, CoordinatorInput, CoordinatorOutput};
use super::super::super::error::ExchangeError;
use super::super::super::plan::{Plan, SampleOrder};
use super::super::cell_set::CellSet;
use super::super::messages::{Counts, Forecast, Order};
use super::super::outcome::JobFailure;
use super::super::shape::shape_for;
use super::{CoordinatorMark, JobCoordinator, JobOutput, Phase};
use crate::limits::PLACE_CHUNK_BITS;
use umbel_step::Outbox;
use umbel_step::planted::{self, Planted};

/// Attempts in a row that may end without one more settled cell or counted worker: connections that never hold are nobody's transient
/// trouble.
const FRUITLESS_ATTEMPTS_MAX: u32 = 16;

impl JobCoordinator {
    /// All are there: what they expect of their input gives the shape.
    pub(super) fn begin_reading(&mut self, out: &mut Outbox<JobOutput>) -> Result<(), JobFailure> {
        let forecasts: Vec<Forecast> = self.rows.iter().filter_map(|row| row.forecast).collect();
        let differs = |forecast: &&Forecast| forecast.references != forecasts[0].references;
        let others = self.workers().zip(&forecasts).find(|(_, forecast)| differs(forecast));
        if let Some((worker, _)) = others {
            return Err(JobFailure::References { worker });
        }
        let shape = shape_for(self.rules, &forecasts);
        shape.validate()?;
        let mut chunk_bases = Vec::new();
        let mut chunks = 0u64;
        for forecast in &forecasts {
            chunk_bases.push(u32::try_from(chunks).unwrap_or(u32::MAX));
            chunks += u64::from(forecast.chunks);
        }
        if chunks >= 1 << PLACE_CHUNK_BITS {
            let (what, max) = ("chunks of input", (1 << PLACE_CHUNK_BITS) - 1);
            return Err(ExchangeError::JobShape { what, got: chunks, max }.into());
        }
        let mark = CoordinatorMark::Shaped { shape, chunk_bases: chunk_bases.clone() };
        out.push(JobOutput::Mark(mark));
        self.shape = Some((shape, chunk_bases));
        self.enter(Phase::Reading, "reading", out);
        for worker in self.workers() {
            self.order_again(worker, out);
        }
        self.advance(out)
    }

    /// Whether what all have read can be a job.
    pub(super) fn check_counts(&self) -> Result<(), JobFailure> {
        let counts = || self.rows.iter().filter_map(|row| row.counts.as_ref());
        let bad = counts().map(|counts| counts.bad).fold(0, u64::saturating_add);
        if bad > self.rules.bad_max {
            let text =
                |(worker, counts): (usize, &Counts)| format!("worker {worker}: {}", counts.bad);
            let by_worker: Vec<String> = counts().enumerate().map(text).collect();
            let (max, by_worker) = (self.rules.bad_max, by_worker.join(", "));
            return Err(JobFailure::TooManyBad { bad, max, by_worker });
        }
        if counts().all(|counts| counts.records == 0) {
            return Err(JobFailure::NothingToDo);
        }
        Ok(())
    }

    /// All have stopped: what is settled everywhere is known.
    pub(super) fn begin_exchange(&mut self, out: &mut Outbox<JobOutput>) -> Result<(), JobFailure> {
        let Some((shape, bases)) = self.shape.clone() else { return Ok(()) };
        let cells = shape.cells().get();
        let mut common: Option<CellSet> = None;
        for (worker, row) in self.workers().zip(&self.rows) {
            let settled = row.settled.as_ref().filter(|settled| settled.is_of(cells));
            let what = "it tells of cells that the job does not have";
            let settled = settled.ok_or(JobFailure::Nonsense { worker, what })?;
            match &mut common {
                Some(common) if planted::on(Planted::SettledSomewhere) => {
                    let all = (0..cells).filter(|&cell| settled.contains(cell));
                    all.for_each(|cell| common.insert(cell));
                }
                Some(common) => common.keep_common(settled),
                None => common = Some(settled.clone()),
            }
        }
        let settled = common.unwrap_or_else(|| CellSet::new(cells));
        self.check_progress(settled.count())?;
        if let Some(plan) = self.plan {
            self.exchange(plan, settled, out);
            return Ok(());
        }
        let mut planner = Coordinator::new(shape, self.rules.choice)?;
        let references = self.rows.iter().find_map(|row| row.forecast?.references);
        if let Some(references) = references {
            planner = planner.with_references(references.shape)?;
        }
        let mut planned = Outbox::new();
        for (worker, row) in self.workers().zip(&self.rows) {
            let Some(counts) = &row.counts else { continue };
            let base = bases.get(worker.index()).copied().unwrap_or(0);
            let chunks = row.forecast.map_or(0, |forecast| forecast.chunks);
            let counted = CoordinatorInput::Counted {
                worker,
                items: counts.items,
                chunks_end: base.saturating_add(chunks),
                chunk_items_max: counts.chunk_items_max,
            };
            planner.step(counted, &mut planned)?;
        }
        self.planner = Some(planner);
        self.follow(planned, out);
        Ok(())
    }

    fn check_progress(&mut self, settled: u32) -> Result<(), JobFailure> {
        let tallied = self.rows.iter().filter(|row| row.tallied.is_some()).count();
        let known = (settled, tallied);
        let grew = known > self.known_before || self.attempts <= 1;
        self.known_before = known;
        self.fruitless = if grew { 0 } else { self.fruitless + 1 };
        if self.fruitless >= FRUITLESS_ATTEMPTS_MAX {
            let (attempts, cause) = (self.fruitless, self.trouble.clone());
            return Err(JobFailure::Fruitless { attempts, cause });
        }
        Ok(())
    }

    pub(super) fn plan_step(
        &mut self,
        input: CoordinatorInput,
        out: &mut Outbox<JobOutput>,
    ) -> Result<(), JobFailure> {
        let mut planned = Outbox::new();
        if let Some(planner) = &mut self.planner {
            planner.step(input, &mut planned)?;
        }
        self.follow(planned, out);
        Ok(())
    }

    fn follow(&mut self, mut planned: Outbox<CoordinatorOutput>, out: &mut Outbox<JobOutput>) {
        for order in planned.take() {
            match order {
                CoordinatorOutput::Sample(order) => self.sample(order, out),
                CoordinatorOutput::Plan(plan) => {
                    out.push(JobOutput::Mark(CoordinatorMark::Planned(plan)));
                    self.plan = Some(plan);
                    // Nothing is settled before there is a plan.
                    let settled = CellSet::new(plan.shape.cells().get());
                    self.exchange(plan, settled, out);
                }
            }
        }
    }

    fn sample(&mut self, order: SampleOrder, out: &mut Outbox<JobOutput>) {
        self.enter(Phase::Sampling, "sampling", out);
        self.tell_all(&Order::Sample { attempt: self.attempt, order }, out);
    }

    fn exchange(&mut self, plan: Plan, settled: CellSet, out: &mut Outbox<JobOutput>) {
        self.enter(Phase::Exchanging, "exchanging", out);
        self.tell_all(&Order::Exchange { attempt: self.attempt, plan, settled }, out);
    }
}
