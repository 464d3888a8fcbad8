//! The coordinator of a job: waits until all workers have completed a phase, orders the next one, and begins
//! a new attempt when the exchange fails.
//!
//! What must survive a restart, it returns as journal records; everything else, the workers report again when
//! they join.

use super::super::coordinator::{CoordinatorInput, ExchangeCoordinator, FilterChoice};
use super::super::entry::{Keep, WorkerId};
use super::super::error::ExchangeError;
use super::super::plan::{Exactness, JobShape, Plan};
use super::super::report::ExchangeReport;
use super::cell_set::CellSet;
use super::messages::{
    Counts, Forecast, GroupCountResult, Order, ReadOrder, Stage, WorkerMessage, Written,
};
use super::outcome::{JobFailure, JobResult};
use crate::limits::{DEDUP_WORKERS_MAX, JOB_ATTEMPT_MAX};
use serde::{Deserialize, Serialize};
use umbel_step::Outbox;

mod finishing;
mod planning;

/// The options of a job that the coordinator needs. They are equal at all workers.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobRules {
    /// When two items are equal.
    pub exactness: Exactness,
    /// Which of several equal items is kept.
    pub keep: Keep,
    /// Whether outputs name, for each dropped record, the kept one.
    pub report_kept: bool,
    /// Whether they also name the size of its group; only if `report_kept`.
    pub report_sizes: bool,
    /// Whether records have parts, and outputs name the part that was kept; only if `report_kept`.
    pub names_parts: bool,
    /// The user's choice of the exchange.
    pub choice: FilterChoice,
    /// The most bad records that may be skipped, over all workers.
    pub bad_max: u64,
    /// Whether kept items are added to a filter of a cluster, after the outputs of all workers have their names.
    pub adds: bool,
}

/// A record of the coordinator's journal: it must be durable before later outputs of the same step are carried out.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum CoordinatorJournalRecord {
    /// Workers were ordered to read with this shape.
    Shaped {
        /// The shape.
        shape: JobShape,
        /// Number in the job of each worker's first chunk.
        chunk_bases: Vec<u32>,
    },
    /// Cells are exchanged by this plan, in all attempts.
    Planned(Plan),
    /// All outputs are durable: the job commits and can no longer fail.
    Committing,
    /// All workers have committed.
    Finished,
    /// The job has failed and cannot be resumed.
    Failed {
        /// The cause, for people.
        cause: String,
    },
}

impl CoordinatorJournalRecord {
    /// Whether it is the last record.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        matches!(self, Self::Finished | Self::Failed { .. })
    }
}

/// An input of the coordinator.
#[derive(Clone, PartialEq, Debug)]
pub enum JobInput {
    /// A message of a worker.
    Message(WorkerId, WorkerMessage),
    /// A worker's connection has broken.
    Lost(WorkerId),
    /// A worker was disconnected for longer than the job waits.
    GaveUp(WorkerId),
    /// The user cancels the job.
    Cancel,
}

/// Progress of a job, for people.
#[derive(Clone, PartialEq, Debug)]
pub enum JobEvent {
    /// A phase begins: `reading`, `sampling`, `exchanging`, `tallying` (groups are counted), `writing`, `committing`,
    /// `adding`.
    Phase(&'static str),
    /// Another attempt at the exchange begins.
    Attempt {
        /// The attempt.
        attempt: u32,
        /// What ended the previous one.
        cause: String,
    },
}

/// An output of the coordinator, to be carried out in order.
#[derive(Clone, PartialEq, Debug)]
pub enum JobOutput {
    /// Append this record to the journal durably, before anything that follows.
    Journal(CoordinatorJournalRecord),
    /// Send an order to a worker.
    Send(WorkerId, Order),
    /// Show progress.
    Event(JobEvent),
    /// All workers are done: conclude the job (write the summary) durably, before anything that follows.
    Finished(Box<JobResult>),
    /// The job has ended without a result; all connected workers were notified before.
    Failed(JobFailure),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Phase {
    Joining,
    Reading,
    /// Waits until all workers have stopped, then begins the attempt.
    Stopping,
    Sampling,
    Exchanging,
    CountingGroups,
    Writing,
    Committing,
    Adding,
    Ended,
}

#[derive(Default)]
struct Row {
    is_connected: bool,
    forecast: Option<Forecast>,
    counts: Option<Counts>,
    decided: Option<CellSet>,
    exchanged: Option<ExchangeReport>,
    group_count: Option<GroupCountResult>,
    written: Option<Written>,
    committed: bool,
    added: bool,
}

/// The coordinator of a job.
///
/// ```
/// use umbel_step::Outbox;
/// use umbel_dedup_engine::{FilterChoice, Exactness, Keep, WorkerId, job::*};
/// let rules = JobRules { exactness: Exactness::Fingerprint, keep: Keep::First, report_kept: false,
///                        report_sizes: false, names_parts: false, choice: FilterChoice::Auto,
///                        bad_max: 0, adds: false };
/// let mut coordinator = JobCoordinator::new(rules, 1, &[]).unwrap();
/// let mut outbox = Outbox::new();
/// let join = WorkerMessage::Join { forecast: Forecast { chunks: 3, ..Forecast::default() },
///                         stage: Box::default(), attempt: 0 };
/// coordinator.step(JobInput::Message(WorkerId(0), join), &mut outbox);
/// let outputs = outbox.take();
/// assert!(matches!(outputs[0], JobOutput::Journal(CoordinatorJournalRecord::Shaped { .. })));
/// assert!(outputs.iter().any(|o| matches!(o, JobOutput::Send(WorkerId(0), Order::Read(_)))));
/// ```
pub struct JobCoordinator {
    rules: JobRules,
    phase: Phase,
    rows: Vec<Row>,
    shape: Option<(JobShape, Vec<u32>)>,
    plan: Option<Plan>,
    planner: Option<ExchangeCoordinator>,
    attempt: u32,
    attempts: u32,
    fruitless: u32,
    /// When the last attempt began: the number of cells decided at all workers, and of workers that have counted groups.
    known_before: (u32, usize),
    /// What ended the last attempt.
    trouble: String,
    /// Why the job has ended without a result, and whether it can be resumed.
    ending: Option<(String, bool)>,
}

impl JobCoordinator {
    /// A coordinator of this many workers, in the state after these records of its journal, oldest first.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::JobShape`] for a number of workers beyond the limit.
    pub fn new(
        rules: JobRules,
        workers: u32,
        journal: &[CoordinatorJournalRecord],
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
        for record in journal {
            match record {
                CoordinatorJournalRecord::Shaped { shape, chunk_bases } => {
                    coordinator.shape = Some((*shape, chunk_bases.clone()));
                    coordinator.phase = Phase::Reading;
                }
                CoordinatorJournalRecord::Planned(plan) => coordinator.plan = Some(*plan),
                CoordinatorJournalRecord::Committing => coordinator.phase = Phase::Committing,
                CoordinatorJournalRecord::Finished => coordinator.phase = Phase::Ended,
                CoordinatorJournalRecord::Failed { cause } => {
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

    /// The workers that are not connected.
    pub fn away(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.workers().filter(|worker| !self.rows[worker.index()].is_connected)
    }

    /// One transition. A repeated message, or one of an attempt that has ended, changes nothing.
    pub fn step(&mut self, input: JobInput, out: &mut Outbox<JobOutput>) {
        if self.has_ended() {
            return self.step_after_end(&input, out);
        }
        let outcome = match input {
            JobInput::Message(worker, _) | JobInput::Lost(worker) | JobInput::GaveUp(worker)
                if worker.index() >= self.rows.len() =>
            {
                Ok(())
            }
            JobInput::Message(worker, message) => self.receive(worker, message, out),
            JobInput::Lost(worker) => self.lost(worker, "its connection broke", out),
            JobInput::GaveUp(worker) => self.give_up(worker),
            // Some outputs may have their names already.
            JobInput::Cancel if self.phase >= Phase::Committing => Ok(()),
            JobInput::Cancel => Err(JobFailure::Cancelled),
        };
        if let Err(failure) = outcome.and_then(|()| self.advance(out)) {
            self.fail(failure, out);
        }
    }

    fn workers(&self) -> impl Iterator<Item = WorkerId> + use<> {
        let workers = u16::try_from(self.rows.len()).expect("at most 1,024 workers");
        (0..workers).map(WorkerId)
    }

    fn receive(
        &mut self,
        worker: WorkerId,
        message: WorkerMessage,
        out: &mut Outbox<JobOutput>,
    ) -> Result<(), JobFailure> {
        let current = |attempt: u32, phase: Phase| attempt == self.attempt && self.phase == phase;
        let is_exchanging = self.is_exchanging();
        let row = &mut self.rows[worker.index()];
        match message {
            WorkerMessage::Join { forecast, stage, attempt } => {
                return self.join(worker, forecast, *stage, attempt, out);
            }
            // Also from a worker that failed before it could send Join.
            WorkerMessage::Failed { cause, resumable } => {
                return Err(JobFailure::Worker { worker, cause, resumable });
            }
            _ if !row.is_connected => {} // From a connection that is no longer used.
            WorkerMessage::ReadDone(counts) => row.counts = Some(counts),
            WorkerMessage::Stopped { attempt, decided } if current(attempt, Phase::Stopping) => {
                row.decided = Some(decided);
            }
            WorkerMessage::Sampled { attempt, entries, candidates }
                if current(attempt, Phase::Sampling) =>
            {
                let input = CoordinatorInput::Sampled { owner: worker, entries, candidates };
                return self.plan_step(input, out);
            }
            WorkerMessage::Trouble { attempt, peer, cause }
                if attempt == self.attempt && is_exchanging =>
            {
                let cause = format!("worker {} lost worker {}: {cause}", worker.0, peer.0);
                self.begin_attempt(cause, out);
            }
            WorkerMessage::Exchanged { attempt, report } if current(attempt, Phase::Exchanging) => {
                row.exchanged = Some(*report);
            }
            WorkerMessage::GroupsCounted { attempt, group_count }
                if current(attempt, Phase::CountingGroups) =>
            {
                row.group_count = Some(*group_count);
            }
            WorkerMessage::Written(written) => row.written = Some(written),
            WorkerMessage::Committed => row.committed = true,
            WorkerMessage::Added => row.added = true,
            _ => {} // From an attempt that has ended.
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
        if self.rows[worker.index()].is_connected {
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
        // Once there is a plan, cells may be decided by what it had read, and its input may have changed since: it cannot
        // read again.
        let has_read_before = self.plan.is_some() || self.phase > Phase::Reading;
        let is_without_folder = has_read_before && stage.counts.is_none();
        let row = &mut self.rows[worker.index()];
        let known = row.forecast.get_or_insert(forecast).chunks;
        if known != forecast.chunks {
            let what = "its input has changed since the job began";
            return Err(JobFailure::Nonsense { worker, what });
        }
        row.is_connected = true;
        if is_without_folder {
            return Err(JobFailure::NoFolder { worker });
        }
        row.counts = stage.counts;
        row.group_count = stage.group_count;
        row.written = stage.written;
        row.committed = stage.committed;
        row.added = stage.added;
        // A restarted coordinator does not know earlier attempts: the next one, which begins when all workers
        // are connected, must have a larger number than any of them.
        self.attempt = self.attempt.max(attempt);
        self.resend_order(worker, out);
        Ok(())
    }

    /// Sends a worker the order of the current phase again, if it has not reported it as done.
    fn resend_order(&mut self, worker: WorkerId, out: &mut Outbox<JobOutput>) {
        let row = &self.rows[worker.index()];
        let order = match self.phase {
            Phase::Reading if row.counts.is_none() => self.read_order(worker),
            // The attempt during which the worker was lost has ended.
            Phase::Stopping => Some(Order::Stop { attempt: self.attempt }),
            Phase::Writing if row.written.is_none() => Some(self.write_order()),
            Phase::Committing if !row.committed => Some(Order::Commit),
            Phase::Adding if !row.added => Some(Order::Add),
            _ => None,
        };
        if let Some(order) = order {
            out.push(JobOutput::Send(worker, order));
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
        if std::mem::replace(&mut row.is_connected, false) {
            row.decided = None;
            if self.is_exchanging() {
                self.begin_attempt(format!("worker {}: {why}", worker.0), out);
            }
        }
        Ok(())
    }

    fn give_up(&self, worker: WorkerId) -> Result<(), JobFailure> {
        if self.rows[worker.index()].is_connected {
            return Ok(());
        }
        let missing = match self.phase {
            Phase::Joining => "its first word",
            Phase::Reading => "its input",
            Phase::Stopping | Phase::Sampling | Phase::Exchanging => "its part of the exchange",
            Phase::CountingGroups => "its part of the groups' sizes",
            Phase::Writing => "its outputs",
            // The commit is decided: outputs of other workers may have their names already.
            Phase::Committing | Phase::Adding | Phase::Ended => return Ok(()),
        };
        Err(JobFailure::Away { worker, missing })
    }

    const fn is_exchanging(&self) -> bool {
        matches!(
            self.phase,
            Phase::Stopping | Phase::Sampling | Phase::Exchanging | Phase::CountingGroups
        )
    }

    fn begin_attempt(&mut self, cause: String, out: &mut Outbox<JobOutput>) {
        self.attempt += 1;
        self.attempts += 1;
        self.phase = Phase::Stopping;
        self.planner = None;
        for row in &mut self.rows {
            row.decided = None;
            row.exchanged = None;
        }
        if self.attempts > 1 {
            let (attempt, cause) = (self.attempt, cause.clone());
            out.push(JobOutput::Event(JobEvent::Attempt { attempt, cause }));
        }
        self.trouble = cause;
        let attempt = self.attempt;
        self.send_all(&Order::Stop { attempt }, out);
    }

    fn send_all(&self, order: &Order, out: &mut Outbox<JobOutput>) {
        for worker in self.workers().filter(|worker| self.rows[worker.index()].is_connected) {
            out.push(JobOutput::Send(worker, order.clone()));
        }
    }

    fn enter(&mut self, phase: Phase, name: &'static str, out: &mut Outbox<JobOutput>) {
        self.phase = phase;
        out.push(JobOutput::Event(JobEvent::Phase(name)));
    }

    /// Begins the next phases whose conditions are met.
    fn advance(&mut self, out: &mut Outbox<JobOutput>) -> Result<(), JobFailure> {
        let all = |rows: &[Row], has: fn(&Row) -> bool| {
            rows.iter().all(|row| row.is_connected && has(row))
        };
        match self.phase {
            Phase::Joining if all(&self.rows, |_| true) => self.begin_reading(out)?,
            Phase::Reading if all(&self.rows, |row| row.counts.is_some()) => {
                self.check_counts()?;
                self.begin_attempt(String::new(), out);
            }
            Phase::Stopping if all(&self.rows, |row| row.decided.is_some()) => {
                self.begin_exchange(out)?;
            }
            Phase::Exchanging if self.rows.iter().all(|row| row.exchanged.is_some()) => {
                if self.must_count_groups() {
                    self.count_groups(out);
                } else {
                    self.begin(Phase::Writing, "writing", out);
                }
                return self.advance(out);
            }
            Phase::CountingGroups if !self.must_count_groups() => {
                self.begin(Phase::Writing, "writing", out);
                return self.advance(out);
            }
            Phase::Writing if self.have_written() => {
                out.push(JobOutput::Journal(CoordinatorJournalRecord::Committing));
                self.enter(Phase::Committing, "committing", out);
                self.send_all(&Order::Commit, out);
            }
            Phase::Committing if self.rows.iter().all(|row| row.committed) => {
                if self.rules.adds {
                    // All outputs have their names, so every item in the filter is in an output.
                    self.begin(Phase::Adding, "adding", out);
                    return self.advance(out);
                }
                self.finish(out)?;
            }
            Phase::Adding if self.have_added() => self.finish(out)?,
            _ => {}
        }
        Ok(())
    }
}
