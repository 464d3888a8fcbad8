//! A worker of a job: turns the coordinator's orders into work, repeats the report of work that is already
//! done, and returns journal records of what is durable.

use super::super::entry::WorkerId;
use super::super::plan::{Plan, ReferenceShape, SampleOrder};
use super::super::report::ExchangeReport;
use super::cell_set::CellSet;
use super::messages::{
    Counts, Forecast, GroupCountOrder, GroupCountResult, Order, ReadOrder, Stage, WorkerMessage,
    WriteOrder, Written,
};
use serde::{Deserialize, Serialize};
use umbel_step::Outbox;

/// A record of the worker's journal: it must be durable before later outputs of the same step are carried out.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum WorkerJournalRecord {
    /// Reading has begun by this order.
    Reading(ReadOrder),
    /// All input was read; its entries are durable.
    Read(Counts),
    /// The groups were counted; the result is durable.
    GroupsCounted(Box<GroupCountResult>),
    /// All outputs are durable, under temporary names.
    Written(Written),
    /// The outputs have their names.
    Committed,
    /// Kept items were added to the cluster's filter.
    Added,
    /// The job has ended: the worker needs neither its scratch nor the coordinator any more.
    Ended {
        /// Why there is no result; `None` if there is one.
        failure: Option<String>,
    },
}

impl WorkerJournalRecord {
    /// Whether it is the last record.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }
}

/// An input of a worker.
#[derive(Clone, PartialEq, Debug)]
pub enum WorkerEvent {
    /// The connection to the coordinator is established.
    Connected,
    /// A message of the coordinator.
    Order(Order),
    /// [`WorkerOutput::Read`] was carried out, durably.
    Read(Counts),
    /// [`WorkerOutput::Stop`] was carried out.
    Stopped {
        /// The attempt of the order to stop.
        attempt: u32,
        /// The cells that are decided, durably.
        decided: CellSet,
    },
    /// The worker, as an owner, has all streams of the sample.
    Sampled {
        /// The attempt.
        attempt: u32,
        /// Entries in its part.
        entries: u64,
        /// How many of them collided.
        candidates: u64,
    },
    /// All cells are decided, durably, and all verdicts are sent.
    Exchanged {
        /// The attempt.
        attempt: u32,
        /// Counters of what was sent and found.
        report: ExchangeReport,
    },
    /// A peer cannot be reached, or has disconnected.
    Trouble {
        /// The attempt.
        attempt: u32,
        /// The peer.
        peer: WorkerId,
        /// The cause.
        cause: String,
    },
    /// [`WorkerOutput::CountGroups`] was carried out, durably.
    GroupsCounted {
        /// The attempt.
        attempt: u32,
        /// The result.
        group_count: GroupCountResult,
    },
    /// [`WorkerOutput::Write`] was carried out, durably.
    Written(Written),
    /// [`WorkerOutput::Commit`] was carried out.
    Committed,
    /// [`WorkerOutput::Add`] was carried out.
    Added,
    /// An output cannot be carried out.
    Failed {
        /// The cause, for people.
        cause: String,
        /// Whether the job can be resumed once the cause is fixed.
        resumable: bool,
    },
}

/// An output of a worker, to be carried out in order.
#[derive(Clone, PartialEq, Debug)]
pub enum WorkerOutput {
    /// Append this record to the journal durably, before anything that follows.
    Journal(WorkerJournalRecord),
    /// Send a message to the coordinator. Without a connection it is discarded; the next Join reports the
    /// same.
    Send(WorkerMessage),
    /// Read the input, except for chunks that were read before a crash.
    Read(ReadOrder),
    /// End the running exchange, then answer with [`WorkerEvent::Stopped`].
    Stop {
        /// The attempt of the order.
        attempt: u32,
    },
    /// Exchange the sample.
    Sample {
        /// The attempt.
        attempt: u32,
        /// The order to read, with the shape of the job.
        read: ReadOrder,
        /// The order to sample.
        order: SampleOrder,
    },
    /// Exchange all cells that are not decided at all workers.
    Exchange {
        /// The attempt.
        attempt: u32,
        /// The plan.
        plan: Plan,
        /// The cells that are decided at all workers.
        decided: CellSet,
    },
    /// Count the groups, and answer other workers that count theirs, until the attempt ends.
    CountGroups {
        /// The attempt.
        attempt: u32,
        /// The order.
        order: GroupCountOrder,
    },
    /// Write the outputs under temporary names.
    Write(WriteOrder),
    /// Rename the outputs to their names.
    Commit,
    /// Add kept items to the cluster's filter.
    Add,
    /// The job has ended.
    End {
        /// Why there is no result; `None` if there is one.
        failure: Option<String>,
        /// Whether to keep what is durable, because the job can be resumed.
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
/// assert!(matches!(outbox.take()[..], [WorkerOutput::Send(WorkerMessage::Join { attempt: 0, .. })]));
/// worker.step(WorkerEvent::Order(Order::Commit), &mut outbox);
/// assert_eq!(outbox.take(), [WorkerOutput::Commit]);
/// ```
pub struct JobWorker {
    forecast: Forecast,
    /// Whether the job adds kept items to a filter.
    adds: bool,
    stage: Stage,
    attempt: u32,
    doing: Doing,
    /// The answer to the last `Stop`, which is repeated if the order is.
    stopped: Option<(u32, CellSet)>,
}

impl JobWorker {
    /// A worker in the state after these records of its journal, oldest first.
    #[must_use]
    pub fn new(forecast: Forecast, journal: &[WorkerJournalRecord]) -> Self {
        let mut stage = Stage::default();
        for record in journal {
            match record {
                WorkerJournalRecord::Reading(order) => stage.order = Some(*order),
                WorkerJournalRecord::Read(counts) => stage.counts = Some(counts.clone()),
                WorkerJournalRecord::GroupsCounted(group_count) => {
                    stage.group_count = Some((**group_count).clone());
                }
                WorkerJournalRecord::Written(written) => stage.written = Some(written.clone()),
                WorkerJournalRecord::Committed => stage.committed = true,
                WorkerJournalRecord::Added => stage.added = true,
                // A driver that finds this record starts no worker.
                WorkerJournalRecord::Ended { .. } => {}
            }
        }
        let (adds, doing) = (false, Doing::Nothing);
        Self { forecast, adds, stage, attempt: 0, doing, stopped: None }
    }

    /// Sets whether the job adds kept items to a filter ([`JobRules::adds`]).
    ///
    /// [`JobRules::adds`]: super::JobRules::adds
    #[must_use]
    pub const fn adding(mut self, adds: bool) -> Self {
        self.adds = adds;
        self
    }

    /// Whether the worker has done all its work: its outputs have their names, and kept items were added if the job adds
    /// them.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.stage.committed && (self.stage.added || !self.adds)
    }

    /// The current attempt.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The references of the job.
    #[must_use]
    pub fn references(&self) -> Option<ReferenceShape> {
        self.forecast.references.map(|references| references.shape)
    }

    /// The order to read, once it was received.
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
                out.push(WorkerOutput::Send(WorkerMessage::Join { forecast, stage, attempt }));
            }
            WorkerEvent::Order(order) => self.receive_order(order, out),
            WorkerEvent::Read(counts) => {
                self.doing = Doing::Nothing;
                self.stage.counts = Some(counts.clone());
                out.push(WorkerOutput::Journal(WorkerJournalRecord::Read(counts.clone())));
                out.push(WorkerOutput::Send(WorkerMessage::ReadDone(counts)));
            }
            WorkerEvent::Stopped { attempt, decided } if attempt == self.attempt => {
                self.doing = Doing::Nothing;
                self.stopped = Some((attempt, decided.clone()));
                out.push(WorkerOutput::Send(WorkerMessage::Stopped { attempt, decided }));
            }
            WorkerEvent::Sampled { attempt, entries, candidates } if attempt == self.attempt => {
                let message = WorkerMessage::Sampled { attempt, entries, candidates };
                out.push(WorkerOutput::Send(message));
            }
            WorkerEvent::Exchanged { attempt, report } if attempt == self.attempt => {
                let report = Box::new(report);
                out.push(WorkerOutput::Send(WorkerMessage::Exchanged { attempt, report }));
            }
            WorkerEvent::Trouble { attempt, peer, cause } if attempt == self.attempt => {
                out.push(WorkerOutput::Send(WorkerMessage::Trouble { attempt, peer, cause }));
            }
            WorkerEvent::GroupsCounted { attempt, group_count } if attempt == self.attempt => {
                // A worker that already had its result has counted again only to answer the others; its first
                // result is kept.
                let is_known = self.stage.group_count.is_some();
                let group_count =
                    Box::new(self.stage.group_count.get_or_insert(group_count).clone());
                if !is_known {
                    let record = WorkerJournalRecord::GroupsCounted(group_count.clone());
                    out.push(WorkerOutput::Journal(record));
                }
                out.push(WorkerOutput::Send(WorkerMessage::GroupsCounted { attempt, group_count }));
            }
            WorkerEvent::Written(written) => {
                self.doing = Doing::Nothing;
                self.stage.written = Some(written.clone());
                out.push(WorkerOutput::Journal(WorkerJournalRecord::Written(written.clone())));
                out.push(WorkerOutput::Send(WorkerMessage::Written(written)));
            }
            WorkerEvent::Committed => {
                self.stage.committed = true;
                self.doing = Doing::Nothing;
                out.push(WorkerOutput::Journal(WorkerJournalRecord::Committed));
                out.push(WorkerOutput::Send(WorkerMessage::Committed));
            }
            WorkerEvent::Added => {
                self.stage.added = true;
                self.doing = Doing::Nothing;
                out.push(WorkerOutput::Journal(WorkerJournalRecord::Added));
                out.push(WorkerOutput::Send(WorkerMessage::Added));
            }
            WorkerEvent::Failed { cause, resumable } => {
                let resumable = resumable || self.has_begun_to_commit();
                let message = WorkerMessage::Failed { cause: cause.clone(), resumable };
                out.push(WorkerOutput::Send(message));
                self.end(Some(cause), resumable, out);
            }
            _ => {} // From an attempt that has ended.
        }
    }

    /// From then on the others' outputs stand: what this worker needs to complete its own must stay.
    fn has_begun_to_commit(&self) -> bool {
        self.stage.committed || self.doing == Doing::Committing
    }

    fn receive_order(&mut self, order: Order, out: &mut Outbox<WorkerOutput>) {
        match order {
            Order::Read(order) => self.read(order, out),
            Order::Stop { attempt } if attempt < self.attempt => {}
            Order::Stop { attempt } => match &self.stopped {
                Some((stopped, decided)) if *stopped == attempt => {
                    let decided = decided.clone();
                    out.push(WorkerOutput::Send(WorkerMessage::Stopped { attempt, decided }));
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
            Order::Exchange { attempt, plan, decided } => {
                if attempt == self.attempt {
                    self.begin_exchange();
                    out.push(WorkerOutput::Exchange { attempt, plan, decided });
                }
            }
            Order::CountGroups { attempt, order } => {
                if attempt == self.attempt {
                    out.push(WorkerOutput::CountGroups { attempt, order });
                }
            }
            Order::Write(order) => match &self.stage.written {
                Some(written) => {
                    out.push(WorkerOutput::Send(WorkerMessage::Written(written.clone())));
                }
                None if self.doing == Doing::Writing => {}
                None => {
                    self.doing = Doing::Writing;
                    out.push(WorkerOutput::Write(order));
                }
            },
            Order::Commit if self.stage.committed => {
                out.push(WorkerOutput::Send(WorkerMessage::Committed));
            }
            Order::Commit if self.doing == Doing::Committing => {}
            Order::Commit => {
                self.doing = Doing::Committing;
                out.push(WorkerOutput::Commit);
            }
            Order::Add if self.stage.added => out.push(WorkerOutput::Send(WorkerMessage::Added)),
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
            out.push(WorkerOutput::Send(WorkerMessage::ReadDone(counts.clone())));
            return;
        }
        if self.doing == Doing::Reading {
            return;
        }
        self.doing = Doing::Reading;
        if self.stage.order.is_none() {
            self.stage.order = Some(order);
            out.push(WorkerOutput::Journal(WorkerJournalRecord::Reading(order)));
        }
        out.push(WorkerOutput::Read(order));
    }

    /// The cells reported by the last stop are no longer current.
    fn begin_exchange(&mut self) {
        self.doing = Doing::Exchanging;
        self.stopped = None;
    }

    /// Journals the end first: a worker that crashes after this may find no coordinator that could report the
    /// end again.
    fn end_for_good(&mut self, failure: Option<String>, out: &mut Outbox<WorkerOutput>) {
        out.push(WorkerOutput::Journal(WorkerJournalRecord::Ended { failure: failure.clone() }));
        self.end(failure, false, out);
    }

    fn end(&mut self, failure: Option<String>, resumable: bool, out: &mut Outbox<WorkerOutput>) {
        self.doing = Doing::Ended;
        out.push(WorkerOutput::End { failure, resumable });
    }
}
