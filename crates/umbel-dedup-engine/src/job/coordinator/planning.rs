//! The phases up to the exchange: the shape from the workers' forecasts, the plan from their counts, and the
//! attempts by the plan.

use super::super::super::coordinator::{CoordinatorInput, CoordinatorOutput, ExchangeCoordinator};
use super::super::super::error::ExchangeError;
use super::super::super::plan::{Plan, SampleOrder};
use super::super::cell_set::CellSet;
use super::super::messages::{Counts, Forecast, Order};
use super::super::outcome::JobFailure;
use super::super::shape::shape_for;
use super::{CoordinatorJournalRecord, JobCoordinator, JobOutput, Phase};
use crate::limits::RECORD_ID_CHUNK_BITS;
use umbel_step::Outbox;
use umbel_step::planted::{self, Planted};

/// Most attempts in a row without progress (one more decided cell, or one more worker that has counted
/// groups). After so many, the failure is not transient.
const FRUITLESS_ATTEMPTS_MAX: u32 = 16;

impl JobCoordinator {
    /// All workers have joined: determines the shape from their forecasts, and orders to read.
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
        if chunks >= 1 << RECORD_ID_CHUNK_BITS {
            let (what, max) = ("chunks of input", (1 << RECORD_ID_CHUNK_BITS) - 1);
            return Err(ExchangeError::JobShape { what, got: chunks, max }.into());
        }
        let record = CoordinatorJournalRecord::Shaped { shape, chunk_bases: chunk_bases.clone() };
        out.push(JobOutput::Journal(record));
        self.shape = Some((shape, chunk_bases));
        self.enter(Phase::Reading, "reading", out);
        for worker in self.workers() {
            self.resend_order(worker, out);
        }
        self.advance(out)
    }

    /// Checks the counts of all workers: too many bad records, or no records at all, end the job.
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

    /// All workers have stopped: begins the attempt, with the cells that are not decided at all workers.
    pub(super) fn begin_exchange(&mut self, out: &mut Outbox<JobOutput>) -> Result<(), JobFailure> {
        let Some((shape, bases)) = self.shape.clone() else { return Ok(()) };
        let cells = shape.cells().get();
        let mut common: Option<CellSet> = None;
        for (worker, row) in self.workers().zip(&self.rows) {
            let decided = row.decided.as_ref().filter(|decided| decided.is_of(cells));
            let what = "it tells of cells that the job does not have";
            let decided = decided.ok_or(JobFailure::Nonsense { worker, what })?;
            match &mut common {
                Some(common) if planted::on(Planted::SettledSomewhere) => {
                    let all = (0..cells).filter(|&cell| decided.contains(cell));
                    all.for_each(|cell| common.insert(cell));
                }
                Some(common) => common.keep_common(decided),
                None => common = Some(decided.clone()),
            }
        }
        let decided = common.unwrap_or_else(|| CellSet::new(cells));
        self.check_progress(decided.count())?;
        if let Some(plan) = self.plan {
            self.exchange(plan, decided, out);
            return Ok(());
        }
        let mut planner = ExchangeCoordinator::new(shape, self.rules.choice)?;
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

    fn check_progress(&mut self, decided: u32) -> Result<(), JobFailure> {
        let group_count = self.rows.iter().filter(|row| row.group_count.is_some()).count();
        let known = (decided, group_count);
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
                    out.push(JobOutput::Journal(CoordinatorJournalRecord::Planned(plan)));
                    self.plan = Some(plan);
                    // No cell is decided before there is a plan.
                    let decided = CellSet::new(plan.shape.cells().get());
                    self.exchange(plan, decided, out);
                }
            }
        }
    }

    fn sample(&mut self, order: SampleOrder, out: &mut Outbox<JobOutput>) {
        self.enter(Phase::Sampling, "sampling", out);
        self.send_all(&Order::Sample { attempt: self.attempt, order }, out);
    }

    fn exchange(&mut self, plan: Plan, decided: CellSet, out: &mut Outbox<JobOutput>) {
        self.enter(Phase::Exchanging, "exchanging", out);
        self.send_all(&Order::Exchange { attempt: self.attempt, plan, decided }, out);
    }
}
