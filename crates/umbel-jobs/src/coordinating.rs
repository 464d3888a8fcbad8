//! Drives the coordinator of a job, in the process of worker 0.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout_at};
use tonic::Status;
use umbel_dedup_engine::WorkerId;
use umbel_dedup_engine::job::{
    JobCoordinator, JobFailure, JobInput, JobOutput, JobResult, Order, WorkerMessage,
};
use umbel_step::Outbox;

use super::journal_records::encode_coordinator_record;
use super::limits::{HEARTBEAT_INTERVAL, LINGER, ORDERS_WAITING_MAX};
use super::observer::JobObserver;
use super::wire::encode_body;
use super::workshop::{Workshop, WorkshopError};

/// Events for the coordinator's driver.
pub(super) enum CoordinatorEvent {
    /// A worker requests a line.
    Connect { worker: WorkerId, incarnation: u64, reply: oneshot::Sender<Result<Line, Status>> },
    /// A worker sent a message.
    Word { worker: WorkerId, line: u64, word: WorkerMessage },
    /// A line broke.
    Ended { worker: WorkerId, line: u64 },
    /// The user cancels the job.
    Cancel,
}

/// A worker's line, on the worker's side.
pub(super) struct Line {
    pub(super) number: u64,
    /// Encoded orders. The end of the channel is the end of the line.
    pub(super) orders: mpsc::Receiver<Bytes>,
}

/// A worker's line, on the coordinator's side.
struct Seat {
    line: Option<(u64, mpsc::Sender<Bytes>)>,
    incarnation: u64,
    away_since: Instant,
    /// The end of the job was sent to the worker.
    knows_end: bool,
    /// The worker was notified that the job has ended for good, and has not yet reported that this is
    /// durable there.
    owes_word: bool,
}

/// How a job ended.
pub(super) enum Conclusion {
    /// All workers have completed the job. The result is missing if the job had ended before this
    /// process was started.
    Finished(Option<Box<JobResult>>),
    Failed(JobFailure),
    /// The coordinator's own data cannot be written.
    Broken(WorkshopError),
}

/// Drives one coordinator.
pub(super) struct Coordinating {
    machine: JobCoordinator,
    seats: Vec<Seat>,
    workshop: Arc<dyn Workshop>,
    observer: Arc<dyn JobObserver>,
    worker_timeout: Duration,
    lines: u64,
    /// The workers that were last reported to the observer as away.
    away: Vec<WorkerId>,
    conclusion: Option<Conclusion>,
}

impl Coordinating {
    /// A coordinator to which no worker is connected yet.
    pub(super) fn new(
        machine: JobCoordinator,
        workers: u32,
        worker_timeout: Duration,
        workshop: Arc<dyn Workshop>,
        observer: Arc<dyn JobObserver>,
    ) -> Self {
        let away_since = Instant::now();
        let seat =
            |_| Seat { line: None, incarnation: 0, away_since, knows_end: false, owes_word: false };
        let seats = (0..workers).map(seat).collect();
        let (lines, away, conclusion) = (0, Vec::new(), None);
        Self { machine, seats, workshop, observer, worker_timeout, lines, away, conclusion }
    }

    /// Coordinates until the job has ended and the workers have been notified.
    pub(super) async fn run(mut self, mut events: mpsc::Receiver<CoordinatorEvent>) -> Conclusion {
        let mut tick = interval(HEARTBEAT_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.machine.has_ended() && self.conclusion.is_none() {
            tokio::select! {
                Some(event) = events.recv() => self.on_event(event).await,
                _ = tick.tick() => self.give_up().await,
            }
        }
        self.linger(&mut events).await;
        let known = || self.machine.known_failure().map(Conclusion::Failed);
        self.conclusion.or_else(known).unwrap_or(Conclusion::Finished(None))
    }

    /// Sends the end to workers that do not know of it, for a limited time.
    async fn linger(&mut self, events: &mut mpsc::Receiver<CoordinatorEvent>) {
        let deadline = Instant::now() + LINGER;
        // The worker of this process is awaited elsewhere, and the end of its line may never be
        // reported.
        let is_owed = |(worker, seat): (usize, &Seat)| {
            !seat.knows_end || (worker != 0 && (seat.owes_word || seat.line.is_some()))
        };
        while self.seats.iter().enumerate().any(is_owed) {
            match timeout_at(deadline, events.recv()).await {
                Ok(Some(event)) => self.on_event(event).await,
                Ok(None) => sleep_until(deadline).await,
                Err(_) => return,
            }
        }
    }

    async fn on_event(&mut self, event: CoordinatorEvent) {
        match event {
            CoordinatorEvent::Connect { worker, incarnation, reply } => {
                // A caller that has gone will call again.
                let _ = reply.send(self.connect(worker, incarnation));
            }
            CoordinatorEvent::Word { worker, line, word: WorkerMessage::Ended }
                if self.is_current(worker, line) =>
            {
                // The worker only waits for the end of its line, and needs no other.
                self.seats[worker.index()].owes_word = false;
                self.hang_up(worker);
            }
            CoordinatorEvent::Word { worker, line, word } if self.is_current(worker, line) => {
                self.step(JobInput::Message(worker, word)).await;
            }
            CoordinatorEvent::Ended { worker, line } if self.is_current(worker, line) => {
                self.hang_up(worker);
                self.step(JobInput::Lost(worker)).await;
            }
            CoordinatorEvent::Cancel => self.step(JobInput::Cancel).await,
            _ => {} // Of a line that was given up.
        }
    }

    fn is_current(&self, worker: WorkerId, line: u64) -> bool {
        let seat = self.seats.get(worker.index());
        seat.and_then(|seat| seat.line.as_ref()).is_some_and(|(number, _)| *number == line)
    }

    /// Gives a worker a line; a process that has one already gets a new one instead.
    fn connect(&mut self, worker: WorkerId, incarnation: u64) -> Result<Line, Status> {
        let seat = self.seats.get_mut(worker.index());
        let seat = seat.ok_or_else(|| Status::failed_precondition("no such worker"))?;
        if seat.line.is_some() && seat.incarnation != incarnation {
            return Err(Status::already_exists(format!(
                "worker {} is there as process {:016x}, and process {incarnation:016x} claims to be \
                 it too: end one of them",
                worker.0, seat.incarnation
            )));
        }
        self.lines += 1;
        let (sender, orders) = mpsc::channel(ORDERS_WAITING_MAX);
        seat.line = Some((self.lines, sender));
        seat.incarnation = incarnation;
        Ok(Line { number: self.lines, orders })
    }

    fn hang_up(&mut self, worker: WorkerId) {
        if let Some(seat) = self.seats.get_mut(worker.index()) {
            seat.line = None;
            seat.away_since = Instant::now();
        }
    }

    async fn give_up(&mut self) {
        let is_late = |worker: &WorkerId| {
            let seat = &self.seats[worker.index()];
            seat.away_since.elapsed() >= self.worker_timeout
        };
        let late = self.machine.away().find(is_late);
        if let Some(worker) = late {
            self.step(JobInput::GaveUp(worker)).await;
        }
    }

    /// Steps the state machine and carries out its outputs.
    async fn step(&mut self, input: JobInput) {
        self.carry_out(input).await;
        let away: Vec<WorkerId> = self.machine.away().collect();
        if away != self.away {
            self.observer.away(&away);
            self.away = away;
        }
    }

    async fn carry_out(&mut self, input: JobInput) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let mut out = Outbox::new();
            self.machine.step(input, &mut out);
            for output in out.take() {
                let carried_out = match output {
                    JobOutput::Journal(record) if record.is_end() => {
                        self.workshop.append_end_record(&encode_coordinator_record(&record))
                    }
                    JobOutput::Journal(record) => {
                        self.workshop.append_record(&encode_coordinator_record(&record))
                    }
                    JobOutput::Send(worker, order) => {
                        inputs.extend(self.send_order(worker, &order));
                        Ok(())
                    }
                    JobOutput::Event(event) => {
                        tracing::info!(?event, "the job goes on");
                        self.observer.event(&event);
                        Ok(())
                    }
                    JobOutput::Finished(result) => {
                        let concluded = self.workshop.conclude(&result).await;
                        self.conclusion = Some(Conclusion::Finished(Some(result)));
                        // All outputs have their names, and what is missing can be written later.
                        concluded.map_err(|error| WorkshopError { resumable: true, ..error })
                    }
                    JobOutput::Failed(failure) => {
                        self.conclusion = Some(Conclusion::Failed(failure));
                        Ok(())
                    }
                };
                if let Err(error) = carried_out {
                    // Later outputs of this step depend on what could not be written.
                    return self.abort(error);
                }
            }
        }
    }

    /// Sends an order. Returns the resulting input if it cannot be sent.
    fn send_order(&mut self, worker: WorkerId, order: &Order) -> Option<JobInput> {
        let seat = &mut self.seats[worker.index()];
        let (_, orders) = seat.line.as_ref()?;
        let body = match encode_body(order) {
            Ok(body) => body,
            Err(bytes) => {
                let cause = format!(
                    "an order of {bytes} bytes for it is too large: report what is kept of fewer \
                     files at once"
                );
                let word = WorkerMessage::Failed { cause, resumable: false };
                return Some(JobInput::Message(worker, word));
            }
        };
        if orders.try_send(body).is_ok() {
            seat.knows_end |= matches!(order, Order::Finish | Order::Abort { .. });
            seat.owes_word |=
                matches!(order, Order::Finish | Order::Abort { resumable: false, .. });
            return None;
        }
        self.hang_up(worker);
        Some(JobInput::Lost(worker))
    }

    /// Ends the job because the coordinator cannot write its own data.
    fn abort(&mut self, error: WorkshopError) {
        let WorkshopError { cause, resumable } = error.clone();
        let order = Order::Abort { cause: format!("worker 0: {cause}"), resumable };
        for worker in (0..self.seats.len()).filter_map(|index| u16::try_from(index).ok()) {
            self.send_order(WorkerId(worker), &order);
            self.seats[usize::from(worker)].knows_end = true;
        }
        self.conclusion = Some(Conclusion::Broken(error));
    }
}
