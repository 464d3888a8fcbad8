//! A worker of a job: which order begins something, which one was carried out before.

use super::super::entry::WorkerId;
use super::super::plan::{Plan, ReferenceShape, SampleOrder};
use super::super::report::ExchangeReport;
use super::cell_set::CellSet;
use super::messages::{
    Counts, Forecast, Order, ReadOrder, Stage, Tallied, TallyOrder, Word, WriteOrder, Written,
};
use serde::{Deserialize, Serialize};
use umbel_step::Outbox;

/// What must be durable before later outputs of the same step are carried out.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum WorkerMark {
    /// The worker reads by this.
    Reading(ReadOrder),
    /// All is read, entries are durable.
    Read(Counts),
    /// The groups are counted, durably.
    Tallied(Box<Tallied>),
    /// All is written aside, durably.
    Written(Written),
    /// The outputs stand under their names.
    Committed,
    /// What stays was added to the filter of a cluster.
    Added,
    /// The worker knows that the job has ended for good: it needs neither its scratch nor a coordinator any more.
    Ended {
        /// Why there is no result; `None` if there is one.
        failure: Option<String>,
    },
}

impl WorkerMark {
    /// Whether nothing can follow it.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }
}

/// What a worker is told.
#[derive(Clone, PartialEq, Debug)]
pub enum WorkerEvent {
    /// There is a connection to the coordinator.
    Connected,
    /// The coordinator said this.
    Order(Order),
    /// [`WorkerOutput::Read`] was carried out, durably.
    Read(Counts),
    /// [`WorkerOutput::Stop`] was carried out: these cells are settled, durably.
    Stopped {
        /// By this order.
        attempt: u32,
        /// The cells.
        settled: CellSet,
    },
    /// As owner, the worker has seen the sample.
    Sampled {
        /// The attempt.
        attempt: u32,
        /// Entries in its part.
        entries: u64,
        /// How many collided.
        candidates: u64,
    },
    /// All cells are settled, durably, and no verdict is owed.
    Exchanged {
        /// The attempt.
        attempt: u32,
        /// What was sent and found.
        report: ExchangeReport,
    },
    /// A peer cannot be reached, or broke off.
    Trouble {
        /// The attempt.
        attempt: u32,
        /// The peer.
        peer: WorkerId,
        /// What happened.
        cause: String,
    },
    /// All that [`WorkerOutput::Tally`] asks for is known, durably.
    Tallied {
        /// The attempt.
        attempt: u32,
        /// What came of it.
        tallied: Tallied,
    },
    /// [`WorkerOutput::Write`] was carried out, durably.
    Written(Written),
    /// [`WorkerOutput::Commit`] was carried out.
    Committed,
    /// [`WorkerOutput::Add`] was carried out.
    Added,
    /// Something cannot be carried out.
    Failed {
        /// Why, for people.
        cause: String,
        /// Whether the job can be taken up again once that is mended.
        resumable: bool,
    },
}

/// What a worker wants done, in this order.
#[derive(Clone, PartialEq, Debug)]
pub enum WorkerOutput {
    /// Make this durable before anything that follows.
    Mark(WorkerMark),
    /// To the coordinator, if there is a connection; else it is told again later.
    Tell(Word),
    /// Read the input; what was read before a crash is not read again.
    Read(ReadOrder),
    /// End whatever is exchanged, then say so.
    Stop {
        /// The attempt that begins.
        attempt: u32,
    },
    /// Exchange the sample.
    Sample {
        /// The attempt.
        attempt: u32,
        /// Workers and cells.
        read: ReadOrder,
        /// How.
        order: SampleOrder,
    },
    /// Exchange all cells but these.
    Exchange {
        /// The attempt.
        attempt: u32,
        /// How.
        plan: Plan,
        /// Settled at every worker.
        settled: CellSet,
    },
    /// Count the groups, and answer all who do, until the attempt ends.
    Tally {
        /// The attempt.
        attempt: u32,
        /// How.
        order: TallyOrder,
    },
    /// Write the outputs aside.
    Write(WriteOrder),
    /// Put the outputs under their names.
    Commit,
    /// Add what stays to the filter of a cluster.
    Add,
    /// The job has ended.
    End {
        /// Why there is no result; `None` if there is one.
        failure: Option<String>,
        /// Whether what is durable must stay.
        resumable: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doing {
    Nothing,
    Reading,
    Stopping,
    Exchanging,
    Writing,
    Committing,
    Adding,
    Ended,
}

/// A worker of a job.
///
/// ```
/// use umbel_step::Outbox;
/// use umbel_dedup_engine::job::*;
/// let mut worker = JobWorker::new(Forecast::default(), &[]);
/// let mut outbox = Outbox::new();
/// worker.step(WorkerEvent::Connected, &mut outbox);
/// assert!(matches!(outbox.take()[..], [WorkerOutput::Tell(Word::Join { attempt: 0, .. })]));
/// worker.step(WorkerEvent::Order(Order::Commit), &mut outbox);
/// assert_eq!(outbox.take(), [WorkerOutput::Commit]);
/// ```
pub struct JobWorker {
    forecast: Forecast,
    /// Whether its part ends with adding what stays to a filter.
    adds: bool,
    stage: Stage,
    attempt: u32,
    doing: Doing,
    /// What the coordinator is told again if it asks again: the answer to the last `Stop`.
    stopped: Option<(u32, CellSet)>,
}

impl JobWorker {
    /// A worker that has written these marks, oldest first.
    #[must_use]
    pub fn new(forecast: Forecast, marks: &[WorkerMark]) -> Self {
        let mut stage = Stage::default();
        for mark in marks {
            match mark {
                WorkerMark::Reading(order) => stage.order = Some(*order),
                WorkerMark::Read(counts) => stage.counts = Some(counts.clone()),
                WorkerMark::Tallied(tallied) => stage.tallied = Some((**tallied).clone()),
                WorkerMark::Written(written) => stage.written = Some(written.clone()),
                WorkerMark::Committed => stage.committed = true,
                WorkerMark::Added => stage.added = true,
                // A driver that finds it starts no machine.
                WorkerMark::Ended { .. } => {}
            }
        }
        let (adds, doing) = (false, Doing::Nothing);
        Self { forecast, adds, stage, attempt: 0, doing, stopped: None }
    }

    /// The same in a job that adds what stays to a filter ([`JobRules::adds`]), or does not.
    ///
    /// [`JobRules::adds`]: super::JobRules::adds
    #[must_use]
    pub const fn adding(mut self, adds: bool) -> Self {
        self.adds = adds;
        self
    }

    /// Whether the worker owes the job nothing more, whether the coordinator says so or not: the outputs stand under
    /// their names, and what stays was added where the job adds it.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.stage.committed && (self.stage.added || !self.adds)
    }

    /// The attempt whose frames count.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// What the worker knows of earlier jobs.
    #[must_use]
    pub fn references(&self) -> Option<ReferenceShape> {
        self.forecast.references.map(|references| references.shape)
    }

    /// By what the worker reads, once it was told.
    #[must_use]
    pub const fn read_order(&self) -> Option<ReadOrder> {
        self.stage.order
    }

    /// One transition.
    pub fn step(&mut self, event: WorkerEvent, out: &mut Outbox<WorkerOutput>) {
        if self.doing == Doing::Ended {
            return;
        }
        match event {
            WorkerEvent::Connected => {
                let (forecast, attempt) = (self.forecast, self.attempt);
                let stage = Box::new(self.stage.clone());
                out.push(WorkerOutput::Tell(Word::Join { forecast, stage, attempt }));
            }
            WorkerEvent::Order(order) => self.obey(order, out),
            WorkerEvent::Read(counts) => {
                self.doing = Doing::Nothing;
                self.stage.counts = Some(counts.clone());
                out.push(WorkerOutput::Mark(WorkerMark::Read(counts.clone())));
                out.push(WorkerOutput::Tell(Word::ReadDone(counts)));
            }
            WorkerEvent::Stopped { attempt, settled } if attempt == self.attempt => {
                self.doing = Doing::Nothing;
                self.stopped = Some((attempt, settled.clone()));
                out.push(WorkerOutput::Tell(Word::Stopped { attempt, settled }));
            }
            WorkerEvent::Sampled { attempt, entries, candidates } if attempt == self.attempt => {
                out.push(WorkerOutput::Tell(Word::Sampled { attempt, entries, candidates }));
            }
            WorkerEvent::Exchanged { attempt, report } if attempt == self.attempt => {
                let report = Box::new(report);
                out.push(WorkerOutput::Tell(Word::Exchanged { attempt, report }));
            }
            WorkerEvent::Trouble { attempt, peer, cause } if attempt == self.attempt => {
                out.push(WorkerOutput::Tell(Word::Trouble { attempt, peer, cause }));
            }
            WorkerEvent::Tallied { attempt, tallied } if attempt == self.attempt => {
                // Who knew before has only answered the others.
                let is_known = self.stage.tallied.is_some();
                let tallied = Box::new(self.stage.tallied.get_or_insert(tallied).clone());
                if !is_known {
                    out.push(WorkerOutput::Mark(WorkerMark::Tallied(tallied.clone())));
                }
                out.push(WorkerOutput::Tell(Word::Tallied { attempt, tallied }));
            }
            WorkerEvent::Written(written) => {
                self.doing = Doing::Nothing;
                self.stage.written = Some(written.clone());
                out.push(WorkerOutput::Mark(WorkerMark::Written(written.clone())));
                out.push(WorkerOutput::Tell(Word::Written(written)));
            }
            WorkerEvent::Committed => {
                self.stage.committed = true;
                self.doing = Doing::Nothing;
                out.push(WorkerOutput::Mark(WorkerMark::Committed));
                out.push(WorkerOutput::Tell(Word::Committed));
            }
            WorkerEvent::Added => {
                self.stage.added = true;
                self.doing = Doing::Nothing;
                out.push(WorkerOutput::Mark(WorkerMark::Added));
                out.push(WorkerOutput::Tell(Word::Added));
            }
            WorkerEvent::Failed { cause, resumable } => {
                let word = Word::Failed { cause: cause.clone(), resumable };
                out.push(WorkerOutput::Tell(word));
                self.end(Some(cause), resumable, out);
            }
            _ => {} // Of an attempt that has ended.
        }
    }

    fn obey(&mut self, order: Order, out: &mut Outbox<WorkerOutput>) {
        match order {
            Order::Read(order) => self.read(order, out),
            Order::Stop { attempt } if attempt < self.attempt => {}
            Order::Stop { attempt } => match &self.stopped {
                Some((stopped, settled)) if *stopped == attempt => {
                    let settled = settled.clone();
                    out.push(WorkerOutput::Tell(Word::Stopped { attempt, settled }));
                }
                _ if attempt == self.attempt && self.doing == Doing::Stopping => {}
                _ => {
                    self.attempt = attempt;
                    self.doing = Doing::Stopping;
                    out.push(WorkerOutput::Stop { attempt });
                }
            },
            Order::Sample { attempt, order } => {
                if let (true, Some(read)) = (attempt == self.attempt, self.stage.order) {
                    self.begin_exchange();
                    out.push(WorkerOutput::Sample { attempt, read, order });
                }
            }
            Order::Exchange { attempt, plan, settled } => {
                if attempt == self.attempt {
                    self.begin_exchange();
                    out.push(WorkerOutput::Exchange { attempt, plan, settled });
                }
            }
            Order::Tally { attempt, order } => {
                if attempt == self.attempt {
                    out.push(WorkerOutput::Tally { attempt, order });
                }
            }
            Order::Write(order) => match &self.stage.written {
                Some(written) => out.push(WorkerOutput::Tell(Word::Written(written.clone()))),
                None if self.doing == Doing::Writing => {}
                None => {
                    self.doing = Doing::Writing;
                    out.push(WorkerOutput::Write(order));
                }
            },
            Order::Commit if self.stage.committed => {
                out.push(WorkerOutput::Tell(Word::Committed));
            }
            Order::Commit if self.doing == Doing::Committing => {}
            Order::Commit => {
                self.doing = Doing::Committing;
                out.push(WorkerOutput::Commit);
            }
            Order::Add if self.stage.added => out.push(WorkerOutput::Tell(Word::Added)),
            Order::Add if self.doing == Doing::Adding => {}
            Order::Add => {
                self.doing = Doing::Adding;
                out.push(WorkerOutput::Add);
            }
            Order::Finish => self.end_for_good(None, out),
            Order::Abort { cause, resumable: true } => self.end(Some(cause), true, out),
            Order::Abort { cause, resumable: false } => self.end_for_good(Some(cause), out),
        }
    }

    fn read(&mut self, order: ReadOrder, out: &mut Outbox<WorkerOutput>) {
        if let Some(counts) = &self.stage.counts {
            out.push(WorkerOutput::Tell(Word::ReadDone(counts.clone())));
            return;
        }
        if self.doing == Doing::Reading {
            return;
        }
        self.doing = Doing::Reading;
        if self.stage.order.is_none() {
            self.stage.order = Some(order);
            out.push(WorkerOutput::Mark(WorkerMark::Reading(order)));
        }
        out.push(WorkerOutput::Read(order));
    }

    /// What the last stop left is told no more.
    fn begin_exchange(&mut self) {
        self.doing = Doing::Exchanging;
        self.stopped = None;
    }

    /// A worker that dies from here on is not told of the end again: the coordinator may be gone.
    fn end_for_good(&mut self, failure: Option<String>, out: &mut Outbox<WorkerOutput>) {
        out.push(WorkerOutput::Mark(WorkerMark::Ended { failure: failure.clone() }));
        self.end(failure, false, out);
    }

    fn end(&mut self, failure: Option<String>, resumable: bool, out: &mut Outbox<WorkerOutput>) {
        self.doing = Doing::Ended;
        out.push(WorkerOutput::End { failure, resumable });
    }
}
