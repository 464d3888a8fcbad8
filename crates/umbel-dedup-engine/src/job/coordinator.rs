//! The coordinator of a job: who is there, what comes next, what must be done again.

use super::super::coordinator::{Coordinator, CoordinatorInput, FilterChoice};
use super::super::entry::{Keep, WorkerId};
use super::super::error::ExchangeError;
use super::super::plan::{JobShape, Level, Plan};
use super::super::report::ExchangeReport;
use super::cell_set::CellSet;
use super::messages::{Counts, Forecast, Order, ReadOrder, Stage, Tallied, Word, Written};
use super::outcome::{JobFailure, JobResult};
use crate::limits::{DEDUP_WORKERS_MAX, JOB_ATTEMPT_MAX};
use serde::{Deserialize, Serialize};
use umbel_step::Outbox;

mod finishing;
mod planning;

/// What a job decides by; all its workers were given the same.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobRules {
    /// When items are equal.
    pub level: Level,
    /// Which of them stays.
    pub keep: Keep,
    /// Whether a dropped item must name the kept one.
    pub report_kept: bool,
    /// Whether it must also tell how many records were equal to it; only where the kept one is named.
    pub report_sizes: bool,
    /// Whether records have parts, and it must tell which one was kept; only where the kept one is named.
    pub names_parts: bool,
    /// What the user says about the filter.
    pub choice: FilterChoice,
    /// Bad records that may be left out, over all workers.
    pub bad_max: u64,
    /// Whether what stays is added to a filter of a cluster, once the outputs of all workers stand under their names.
    pub adds: bool,
}

/// What must be durable before later outputs of the same step are carried out.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum CoordinatorMark {
    /// Workers were told to read by this.
    Shaped {
        /// The shape.
        shape: JobShape,
        /// Number in the job of each worker's first chunk.
        chunk_bases: Vec<u32>,
    },
    /// Cells are exchanged by this plan, for good.
    Planned(Plan),
    /// All outputs are durable: the job commits, whatever happens.
    Committing,
    /// All workers have committed.
    Finished,
    /// The job has failed, and cannot be taken up again.
    Failed {
        /// Why, for people.
        cause: String,
    },
}

impl CoordinatorMark {
    /// Whether nothing can follow it.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        matches!(self, Self::Finished | Self::Failed { .. })
    }
}

/// What the coordinator is told.
#[derive(Clone, PartialEq, Debug)]
pub enum JobInput {
    /// A worker said this.
    Word(WorkerId, Word),
    /// A worker's connection broke.
    Lost(WorkerId),
    /// A worker was away for longer than the job waits.
    GaveUp(WorkerId),
    /// The user wants the job to end.
    Cancel,
}

/// Something that people may want to see.
#[derive(Clone, PartialEq, Debug)]
pub enum JobEvent {
    /// All workers are in this phase: `reading`, `sampling`, `exchanging`, `tallying`, `writing`, `committing`,
    /// `adding`.
    Phase(&'static str),
    /// The exchange begins again, because of this.
    Attempt {
        /// The attempt that begins.
        attempt: u32,
        /// What ended the one before.
        cause: String,
    },
}

/// What the coordinator wants done, in this order.
#[derive(Clone, PartialEq, Debug)]
pub enum JobOutput {
    /// Make this durable before anything that follows.
    Mark(CoordinatorMark),
    /// To a worker.
    Tell(WorkerId, Order),
    /// For people.
    Event(JobEvent),
    /// All workers have committed: conclude the job, durably, before anything that follows.
    Finished(Box<JobResult>),
    /// The job has ended without a result; all workers that are there were told.
    Failed(JobFailure),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Phase {
    Joining,
    Reading,
    /// Waits until all have stopped, then begins the attempt.
    Stopping,
    Sampling,
    Exchanging,
    Tallying,
    Writing,
    Committing,
    Adding,
    Ended,
}

#[derive(Default)]
struct Row {
    is_there: bool,
    forecast: Option<Forecast>,
    counts: Option<Counts>,
    settled: Option<CellSet>,
    exchanged: Option<ExchangeReport>,
    tallied: Option<Tallied>,
    written: Option<Written>,
    committed: bool,
    added: bool,
}

/// The coordinator of a job.
///
/// ```
/// use umbel_step::Outbox;
/// use umbel_dedup_engine::{FilterChoice, Keep, Level, WorkerId, job::*};
/// let rules = JobRules { level: Level::Fingerprint, keep: Keep::First, report_kept: false,
///                        report_sizes: false, names_parts: false, choice: FilterChoice::Auto,
///                        bad_max: 0, adds: false };
/// let mut coordinator = JobCoordinator::new(rules, 1, &[]).unwrap();
/// let mut outbox = Outbox::new();
/// let join = Word::Join { forecast: Forecast { chunks: 3, ..Forecast::default() },
///                         stage: Box::default(), attempt: 0 };
/// coordinator.step(JobInput::Word(WorkerId(0), join), &mut outbox);
/// let outputs = outbox.take();
/// assert!(matches!(outputs[0], JobOutput::Mark(CoordinatorMark::Shaped { .. })));
/// assert!(outputs.iter().any(|o| matches!(o, JobOutput::Tell(WorkerId(0), Order::Read(_)))));
/// ```
pub struct JobCoordinator {
    rules: JobRules,
    phase: Phase,
    rows: Vec<Row>,
    shape: Option<(JobShape, Vec<u32>)>,
    plan: Option<Plan>,
    planner: Option<Coordinator>,
    attempt: u32,
    attempts: u32,
    fruitless: u32,
    /// Cells that were settled everywhere when the last attempt began, and workers whose groups were counted.
    known_before: (u32, usize),
    /// What ended the last attempt.
    trouble: String,
    /// Why the job has ended without a result, and whether it can be taken up again.
    ending: Option<(String, bool)>,
}

impl JobCoordinator {
    /// A coordinator of so many workers that has written these marks, oldest first.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::JobShape`] for a number of workers beyond the limit.
    pub fn new(
        rules: JobRules,
        workers: u32,
        marks: &[CoordinatorMark],
    ) -> Result<Self, ExchangeError> {
        if workers == 0 || workers > DEDUP_WORKERS_MAX {
            let (what, got, max) = ("workers", workers.into(), DEDUP_WORKERS_MAX);
            return Err(ExchangeError::JobShape { what, got, max });
        }
        let mut coordinator = Self {
            rules,
            phase: Phase::Joining,
            rows: (0..workers).map(|_| Row::default()).collect(),
            shape: None,
            plan: None,
            planner: None,
            attempt: 0,
            attempts: 0,
            fruitless: 0,
            known_before: (0, 0),
            trouble: String::new(),
            ending: None,
        };
        for mark in marks {
            match mark {
                CoordinatorMark::Shaped { shape, chunk_bases } => {
                    coordinator.shape = Some((*shape, chunk_bases.clone()));
                    coordinator.phase = Phase::Reading;
                }
                CoordinatorMark::Planned(plan) => coordinator.plan = Some(*plan),
                CoordinatorMark::Committing => coordinator.phase = Phase::Committing,
                CoordinatorMark::Finished => coordinator.phase = Phase::Ended,
                CoordinatorMark::Failed { cause } => {
                    coordinator.phase = Phase::Ended;
                    coordinator.ending = Some((cause.clone(), false));
                }
            }
        }
        Ok(coordinator)
    }

    /// Whether the job has ended, with a result or without.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// The workers that are not there.
    pub fn away(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.workers().filter(|worker| !self.rows[worker.index()].is_there)
    }

    /// One transition. A word that comes twice, or of an attempt that has ended, changes nothing.
    pub fn step(&mut self, input: JobInput, out: &mut Outbox<JobOutput>) {
        if self.has_ended() {
            return self.step_after_end(&input, out);
        }
        let outcome = match input {
            JobInput::Word(worker, _) | JobInput::Lost(worker) | JobInput::GaveUp(worker)
                if worker.index() >= self.rows.len() =>
            {
                Ok(())
            }
            JobInput::Word(worker, word) => self.hear(worker, word, out),
            JobInput::Lost(worker) => self.lost(worker, "its connection broke", out),
            JobInput::GaveUp(worker) => self.give_up(worker),
            // Outputs stand under their names already.
            JobInput::Cancel if self.phase >= Phase::Committing => Ok(()),
            JobInput::Cancel => Err(JobFailure::Cancelled),
        };
        if let Err(failure) = outcome.and_then(|()| self.advance(out)) {
            self.fail(failure, out);
        }
    }

    /// Whoever comes after the end hears of it.
    fn step_after_end(&self, input: &JobInput, out: &mut Outbox<JobOutput>) {
        if let JobInput::Word(worker, Word::Join { .. }) = input {
            let order = match &self.ending {
                None => Order::Finish,
                Some((cause, resumable)) => {
                    Order::Abort { cause: cause.clone(), resumable: *resumable }
                }
            };
            out.push(JobOutput::Tell(*worker, order));
        }
    }

    fn workers(&self) -> impl Iterator<Item = WorkerId> + use<> {
        let workers = u16::try_from(self.rows.len()).expect("at most 1,024 workers");
        (0..workers).map(WorkerId)
    }

    fn hear(
        &mut self,
        worker: WorkerId,
        word: Word,
        out: &mut Outbox<JobOutput>,
    ) -> Result<(), JobFailure> {
        let current = |attempt: u32, phase: Phase| attempt == self.attempt && self.phase == phase;
        let is_exchanging = self.is_exchanging();
        let row = &mut self.rows[worker.index()];
        match word {
            Word::Join { forecast, stage, attempt } => {
                return self.join(worker, forecast, *stage, attempt, out);
            }
            // Also of a worker that could not even say what it expects of its input.
            Word::Failed { cause, resumable } => {
                return Err(JobFailure::Worker { worker, cause, resumable });
            }
            _ if !row.is_there => {} // Of a connection that was given up.
            Word::ReadDone(counts) => row.counts = Some(counts),
            Word::Stopped { attempt, settled } if current(attempt, Phase::Stopping) => {
                row.settled = Some(settled);
            }
            Word::Sampled { attempt, entries, candidates } if current(attempt, Phase::Sampling) => {
                let input = CoordinatorInput::Sampled { owner: worker, entries, candidates };
                return self.plan_step(input, out);
            }
            Word::Trouble { attempt, peer, cause } if attempt == self.attempt && is_exchanging => {
                let cause = format!("worker {} lost worker {}: {cause}", worker.0, peer.0);
                self.begin_attempt(cause, out);
            }
            Word::Exchanged { attempt, report } if current(attempt, Phase::Exchanging) => {
                row.exchanged = Some(*report);
            }
            Word::Tallied { attempt, tallied } if current(attempt, Phase::Tallying) => {
                row.tallied = Some(*tallied);
            }
            Word::Written(written) => row.written = Some(written),
            Word::Committed => row.committed = true,
            Word::Added => row.added = true,
            _ => {} // Of an attempt that has ended.
        }
        Ok(())
    }

    fn join(
        &mut self,
        worker: WorkerId,
        forecast: Forecast,
        stage: Stage,
        attempt: u32,
        out: &mut Outbox<JobOutput>,
    ) -> Result<(), JobFailure> {
        if self.rows[worker.index()].is_there {
            self.lost(worker, "it came back by another connection", out)?;
        }
        if let (Some(order), Some((shape, bases))) = (&stage.order, &self.shape)
            && (order.shape != *shape || Some(&order.chunk_base) != bases.get(worker.index()))
        {
            let what = "its scratch belongs to another run of the job: remove it and start again";
            return Err(JobFailure::Nonsense { worker, what });
        }
        if attempt > JOB_ATTEMPT_MAX {
            let what = "it tells of more attempts than any job makes";
            return Err(JobFailure::Nonsense { worker, what });
        }
        let row = &mut self.rows[worker.index()];
        let known = row.forecast.get_or_insert(forecast).chunks;
        if known != forecast.chunks {
            let what = "its input has changed since the job began";
            return Err(JobFailure::Nonsense { worker, what });
        }
        row.is_there = true;
        row.counts = stage.counts;
        row.tallied = stage.tallied;
        row.written = stage.written;
        row.committed = stage.committed;
        row.added = stage.added;
        // Attempts of a coordinator that was started again since: the next one must be later than all of them, and begins
        // when all workers are there.
        self.attempt = self.attempt.max(attempt);
        self.order_again(worker, out);
        Ok(())
    }

    /// What a worker that has just come must be told in the present phase.
    fn order_again(&mut self, worker: WorkerId, out: &mut Outbox<JobOutput>) {
        let row = &self.rows[worker.index()];
        let order = match self.phase {
            Phase::Reading if row.counts.is_none() => self.read_order(worker),
            // An attempt that was under way when the worker left is over.
            Phase::Stopping => Some(Order::Stop { attempt: self.attempt }),
            Phase::Writing if row.written.is_none() => Some(self.write_order()),
            Phase::Committing if !row.committed => Some(Order::Commit),
            Phase::Adding if !row.added => Some(Order::Add),
            _ => None,
        };
        if let Some(order) = order {
            out.push(JobOutput::Tell(worker, order));
        }
    }

    fn read_order(&self, worker: WorkerId) -> Option<Order> {
        let (shape, bases) = self.shape.as_ref()?;
        let chunk_base = *bases.get(worker.index())?;
        Some(Order::Read(ReadOrder { shape: *shape, chunk_base }))
    }

    fn lost(
        &mut self,
        worker: WorkerId,
        why: &str,
        out: &mut Outbox<JobOutput>,
    ) -> Result<(), JobFailure> {
        let row = &mut self.rows[worker.index()];
        if std::mem::replace(&mut row.is_there, false) {
            row.settled = None;
            if self.is_exchanging() {
                self.begin_attempt(format!("worker {}: {why}", worker.0), out);
            }
        }
        Ok(())
    }

    fn give_up(&self, worker: WorkerId) -> Result<(), JobFailure> {
        if self.rows[worker.index()].is_there {
            return Ok(());
        }
        let missing = match self.phase {
            Phase::Joining => "its first word",
            Phase::Reading => "its input",
            Phase::Stopping | Phase::Sampling | Phase::Exchanging => "its part of the exchange",
            Phase::Tallying => "its part of the groups' sizes",
            Phase::Writing => "its outputs",
            // What is decided is decided: outputs of all others may stand already.
            Phase::Committing | Phase::Adding | Phase::Ended => return Ok(()),
        };
        Err(JobFailure::Away { worker, missing })
    }

    const fn is_exchanging(&self) -> bool {
        matches!(
            self.phase,
            Phase::Stopping | Phase::Sampling | Phase::Exchanging | Phase::Tallying
        )
    }

    fn begin_attempt(&mut self, cause: String, out: &mut Outbox<JobOutput>) {
        self.attempt += 1;
        self.attempts += 1;
        self.phase = Phase::Stopping;
        self.planner = None;
        for row in &mut self.rows {
            row.settled = None;
            row.exchanged = None;
        }
        if self.attempts > 1 {
            let (attempt, cause) = (self.attempt, cause.clone());
            out.push(JobOutput::Event(JobEvent::Attempt { attempt, cause }));
        }
        self.trouble = cause;
        let attempt = self.attempt;
        self.tell_all(&Order::Stop { attempt }, out);
    }

    fn tell_all(&self, order: &Order, out: &mut Outbox<JobOutput>) {
        for worker in self.workers().filter(|worker| self.rows[worker.index()].is_there) {
            out.push(JobOutput::Tell(worker, order.clone()));
        }
    }

    fn enter(&mut self, phase: Phase, name: &'static str, out: &mut Outbox<JobOutput>) {
        self.phase = phase;
        out.push(JobOutput::Event(JobEvent::Phase(name)));
    }

    /// Goes on as far as what is known allows.
    fn advance(&mut self, out: &mut Outbox<JobOutput>) -> Result<(), JobFailure> {
        let all =
            |rows: &[Row], has: fn(&Row) -> bool| rows.iter().all(|row| row.is_there && has(row));
        match self.phase {
            Phase::Joining if all(&self.rows, |_| true) => self.begin_reading(out)?,
            Phase::Reading if all(&self.rows, |row| row.counts.is_some()) => {
                self.check_counts()?;
                self.begin_attempt(String::new(), out);
            }
            Phase::Stopping if all(&self.rows, |row| row.settled.is_some()) => {
                self.begin_exchange(out)?;
            }
            Phase::Exchanging if self.rows.iter().all(|row| row.exchanged.is_some()) => {
                if self.must_tally() {
                    self.tally(out);
                } else {
                    self.begin_writing(out);
                }
                return self.advance(out);
            }
            Phase::Tallying if !self.must_tally() => {
                self.begin_writing(out);
                return self.advance(out);
            }
            Phase::Writing if self.have_written() => {
                out.push(JobOutput::Mark(CoordinatorMark::Committing));
                self.enter(Phase::Committing, "committing", out);
                self.tell_all(&Order::Commit, out);
            }
            Phase::Committing if self.rows.iter().all(|row| row.committed) => {
                if self.rules.adds {
                    self.begin_adding(out);
                    return self.advance(out);
                }
                self.finish(out)?;
            }
            Phase::Adding if self.have_added() => self.finish(out)?,
            _ => {}
        }
        Ok(())
    }

    fn fail(&mut self, failure: JobFailure, out: &mut Outbox<JobOutput>) {
        self.phase = Phase::Ended;
        let (cause, resumable) = (failure.to_string(), failure.is_resumable());
        if !resumable {
            // Workers that hear of it remove their scratch: it must be known for good before.
            out.push(JobOutput::Mark(CoordinatorMark::Failed { cause: cause.clone() }));
        }
        self.tell_all(&Order::Abort { cause: cause.clone(), resumable }, out);
        self.ending = Some((cause, resumable));
        out.push(JobOutput::Failed(failure));
    }
}
