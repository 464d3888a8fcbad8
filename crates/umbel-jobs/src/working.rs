//! Drives a worker of a job: carries out the outputs of its state machine.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use umbel_dedup_engine::WorkerId;
use umbel_dedup_engine::job::{
    JobWorker, Order, WorkerEvent, WorkerJournalRecord, WorkerMessage, WorkerOutput,
};
use umbel_step::Outbox;

use super::control::{COORDINATOR, LineEvent};
use super::exchanger::Exchanger;
use super::journal_records::encode_worker_record;
use super::limits::FAREWELL;
use super::wire::encode_body;
use super::workshop::{Workshop, WorkshopError};

/// How a worker ended.
pub(super) enum Ending {
    /// All workers have completed the job.
    Finished,
    /// This worker has completed its part; whether all have is unknown.
    Done,
    /// The coordinator ended the job.
    Aborted { cause: String, resumable: bool },
    /// This worker cannot continue, and has reported that if it could.
    Failed(WorkshopError),
    /// The coordinator refused this worker.
    Refused(String),
    /// The coordinator was absent for longer than the job waits.
    Unreachable(String),
}

/// Drives one worker.
pub(super) struct Working {
    machine: JobWorker,
    workers: u32,
    workshop: Arc<dyn Workshop>,
    exchanger: Exchanger,
    /// Sends words over the line; None if there is no line.
    words: Option<mpsc::Sender<Bytes>>,
    /// Tasks that read, write, commit or add.
    tasks: JoinSet<WorkerEvent>,
    ending: Option<Ending>,
}

impl Working {
    /// Creates a worker that has no line yet.
    pub(super) fn new(machine: JobWorker, workers: u32, exchanger: Exchanger) -> Self {
        let workshop = Arc::clone(&exchanger.workshop);
        let (words, tasks, ending) = (None, JoinSet::new(), None);
        Self { machine, workers, workshop, exchanger, words, tasks, ending }
    }

    /// Works until the job ends here. `exchange_events` are the exchanger's events.
    pub(super) async fn run(
        mut self,
        mut line: mpsc::Receiver<LineEvent>,
        mut exchange_events: mpsc::UnboundedReceiver<WorkerEvent>,
    ) -> Ending {
        while self.ending.is_none() {
            tokio::select! {
                event = line.recv() => match event {
                    Some(event) => self.on_line_event(event).await,
                    None => self.ending = Some(Ending::Unreachable("there is no line".to_owned())),
                },
                Some(event) = exchange_events.recv() => self.step(event).await,
                Some(outcome) = self.tasks.join_next() => {
                    let event = outcome.unwrap_or_else(|error| WorkerEvent::Failed {
                        cause: format!("a task of the worker broke: {error}"),
                        resumable: true,
                    });
                    self.step(event).await;
                }
            }
        }
        // This also makes decisions durable for the next start.
        if let Err(error) = self.exchanger.end().await {
            tracing::warn!(%error, "what was decided last is not durable");
        }
        let ending = self.ending.take().expect("the loop has ended");
        match &ending {
            Ending::Failed(error) => {
                let words = send_failed(self.words.take(), &mut line, error).await;
                self.journal_failure(error);
                send_ended(words, &mut line).await;
            }
            Ending::Finished | Ending::Aborted { resumable: false, .. } => {
                send_ended(self.words.take(), &mut line).await;
            }
            _ => {}
        }
        ending
    }

    /// Makes durable that the job has ended for good here. In the coordinator's process that is left to
    /// the coordinator: the other workers must learn of the end first.
    fn journal_end(&self, record: &WorkerJournalRecord) {
        if self.exchanger.reach.identity.worker == COORDINATOR {
            return;
        }
        if let Err(error) = self.workshop.append_end_record(&encode_worker_record(record)) {
            // The job has ended nevertheless; only if the process crashes now, it waits for the
            // coordinator once more after its restart.
            tracing::warn!(%error, "the end of the job is not durable");
        }
    }

    /// The same for a worker that cannot continue, while its line is still open.
    fn journal_failure(&self, error: &WorkshopError) {
        let WorkerId(worker) = self.exchanger.reach.identity.worker;
        if !error.resumable {
            let failure = Some(format!("worker {worker}: {}", error.cause));
            self.journal_end(&WorkerJournalRecord::Ended { failure });
        }
    }

    async fn on_line_event(&mut self, event: LineEvent) {
        match event {
            LineEvent::Connected(words) => {
                self.words = Some(words);
                self.step(WorkerEvent::Connected).await;
            }
            LineEvent::Order(order) => match self.check(&order) {
                Ok(()) => self.step(WorkerEvent::Order(*order)).await,
                Err(cause) => {
                    let cause = format!("the coordinator's order cannot be: {cause}");
                    self.step(WorkerEvent::Failed { cause, resumable: true }).await;
                }
            },
            LineEvent::Lost => self.words = None,
            LineEvent::Refused(cause) => self.ending = Some(Ending::Refused(cause)),
            LineEvent::GivenUp(_) if self.machine.is_done() => {
                self.ending = Some(Ending::Done);
            }
            LineEvent::GivenUp(cause) => self.ending = Some(Ending::Unreachable(cause)),
        }
    }

    /// Checks that an order is possible in this job: nothing that is computed from it may overflow.
    fn check(&self, order: &Order) -> Result<(), String> {
        let text = |error: umbel_dedup_engine::ExchangeError| error.to_string();
        match order {
            Order::Read(read) => {
                read.shape.validate().map_err(text)?;
                let workers = read.shape.workers;
                if workers != self.workers {
                    return Err(format!(
                        "a job of {workers} workers, this one has {}",
                        self.workers
                    ));
                }
            }
            Order::Sample { order, .. } => {
                if !(1..=1 << 60).contains(&order.position_count) {
                    return Err(format!("a sample of {} positions", order.position_count));
                }
            }
            Order::Exchange { plan, decided, .. } => {
                plan.validate().map_err(text)?;
                if self.machine.read_order().is_none_or(|read| read.shape != plan.shape) {
                    return Err("a plan of another job".to_owned());
                }
                if plan.references != self.machine.references() {
                    // Otherwise owners would wait for hashes that they never get, or ignore those that
                    // they have.
                    return Err("a plan with other hashes of earlier jobs".to_owned());
                }
                if !decided.is_of(plan.shape.cells().get()) {
                    return Err("cells that the job does not have".to_owned());
                }
            }
            Order::CountGroups { order, .. } => {
                let base = self.machine.read_order().map(|read| read.chunk_base);
                let own = usize::from(self.exchanger.reach.identity.worker.0);
                let bases = &order.chunk_bases;
                if bases.len() != self.workers as usize || bases.get(own) != base.as_ref() {
                    return Err(format!("chunks of {} workers, or others here", bases.len()));
                }
            }
            Order::Write(write) => {
                let workers = self.workers as usize;
                let lists = [&write.catalogues, &write.weights].map(Vec::len);
                if write.chunk_bases.len() != workers || lists != [workers; 2] {
                    return Err(format!("chunks of {} workers", write.chunk_bases.len()));
                }
            }
            Order::Stop { .. }
            | Order::Commit
            | Order::Add
            | Order::Finish
            | Order::Abort { .. } => {}
        }
        Ok(())
    }

    /// Steps the state machine and carries out its outputs.
    async fn step(&mut self, event: WorkerEvent) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut out = Outbox::new();
            self.machine.step(event, &mut out);
            for output in out.take() {
                match self.carry_out(output).await {
                    Ok(more) => events.extend(more),
                    Err(error) => {
                        // Later outputs depend on what could not be done.
                        self.ending = Some(Ending::Failed(error));
                        return;
                    }
                }
            }
        }
    }

    async fn carry_out(
        &mut self,
        output: WorkerOutput,
    ) -> Result<Option<WorkerEvent>, WorkshopError> {
        let workshop = Arc::clone(&self.workshop);
        match output {
            WorkerOutput::Journal(record) if record.is_end() => self.journal_end(&record),
            WorkerOutput::Journal(record) => {
                workshop.append_record(&encode_worker_record(&record))?;
            }
            WorkerOutput::Send(word) => self.send_word(&word)?,
            WorkerOutput::Read(order) => {
                self.spawn(async move { workshop.read(order).await.map(WorkerEvent::Read) });
            }
            WorkerOutput::Stop { attempt } => {
                return self.exchanger.stop(attempt).await.map(Some);
            }
            WorkerOutput::Sample { attempt, read, order } => {
                self.exchanger.sample(attempt, read.shape, order).await?;
            }
            WorkerOutput::Exchange { attempt, plan, decided } => {
                self.exchanger.exchange(attempt, plan, decided).await?;
            }
            WorkerOutput::CountGroups { attempt, order } => {
                self.exchanger.count_groups(attempt, order)?;
            }
            WorkerOutput::Write(order) => {
                self.exchanger.end().await?;
                self.spawn(async move { workshop.write(order).await.map(WorkerEvent::Written) });
            }
            WorkerOutput::Commit => {
                let commit = async move { workshop.commit().await };
                self.spawn(async move { commit.await.map(|()| WorkerEvent::Committed) });
            }
            WorkerOutput::Add => {
                self.spawn(async move { workshop.add().await.map(|()| WorkerEvent::Added) });
            }
            WorkerOutput::End { failure, resumable } => {
                self.ending.get_or_insert(match failure {
                    None => Ending::Finished,
                    Some(cause) => Ending::Aborted { cause, resumable },
                });
            }
        }
        Ok(None)
    }

    /// Runs long work concurrently.
    fn spawn(
        &mut self,
        work: impl Future<Output = Result<WorkerEvent, WorkshopError>> + Send + 'static,
    ) {
        let event = async move {
            work.await.unwrap_or_else(|WorkshopError { cause, resumable }| WorkerEvent::Failed {
                cause,
                resumable,
            })
        };
        self.tasks.spawn_on(event, &self.exchanger.runtime);
    }

    fn send_word(&mut self, word: &WorkerMessage) -> Result<(), WorkshopError> {
        if let WorkerMessage::Failed { cause, resumable } = word {
            // The machine sends this when nothing else is in progress.
            let error = WorkshopError { cause: cause.clone(), resumable: *resumable };
            self.ending = Some(Ending::Failed(error));
            return Ok(());
        }
        let body = encode_body(word).map_err(|bytes| WorkshopError {
            cause: format!(
                "the list of inputs has {bytes} bytes: give this worker fewer files, or do not \
                 report what is kept"
            ),
            resumable: false,
        })?;
        if let Some(words) = &self.words
            && words.try_send(body).is_err()
        {
            // A line that accepts no words is treated as broken; it is reopened.
            self.words = None;
        }
        Ok(())
    }
}

/// Reports to the coordinator that the end is durable here, and waits for a limited time until the
/// coordinator has received that.
pub(super) async fn send_ended(
    words: Option<mpsc::Sender<Bytes>>,
    line: &mut mpsc::Receiver<LineEvent>,
) {
    let (Some(words), Ok(body)) = (words, encode_body(&WorkerMessage::Ended)) else { return };
    let deadline = Instant::now() + FAREWELL;
    if words.try_send(body).is_ok() {
        // The coordinator then ends the line; another order to end changes nothing.
        while let Ok(Some(LineEvent::Order(_))) = timeout_at(deadline, line.recv()).await {}
    }
}

/// Reports to the coordinator why this worker cannot continue, and waits for a limited time until the
/// coordinator has received that. Returns the line.
pub(super) async fn send_failed(
    words: Option<mpsc::Sender<Bytes>>,
    line: &mut mpsc::Receiver<LineEvent>,
    error: &WorkshopError,
) -> Option<mpsc::Sender<Bytes>> {
    let WorkshopError { cause, resumable } = error.clone();
    let Ok(body) = encode_body(&WorkerMessage::Failed { cause, resumable }) else { return words };
    let deadline = Instant::now() + FAREWELL;
    let mut line_words = words;
    if let Some(words) = &line_words {
        // If the line has just broken, it is reopened.
        let _ = words.try_send(body.clone());
    }
    loop {
        match timeout_at(deadline, line.recv()).await {
            Ok(Some(LineEvent::Connected(words))) => {
                let _ = words.try_send(body.clone());
                line_words = Some(words);
            }
            Ok(Some(LineEvent::Order(order))) => {
                if matches!(*order, Order::Finish | Order::Abort { .. }) {
                    break;
                }
            }
            Ok(Some(LineEvent::Lost)) => line_words = None,
            Ok(Some(LineEvent::Refused(_) | LineEvent::GivenUp(_)) | None) | Err(_) => break,
        }
    }
    line_words
}
