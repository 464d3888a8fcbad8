//! A worker's control connection (line) to the coordinator, which is reopened whenever it breaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Status};
use umbel_dedup_engine::WorkerId;
use umbel_dedup_engine::job::{Order, WorkerMessage};
use umbel_ports::encoding::decode;
use umbel_proto::v1::JobWord;
use umbel_proto::v1::job_control_client::JobControlClient;

use super::coordinating::CoordinatorEvent;
use super::host::{beating, connect};
use super::limits::{
    BACKOFF_MAX, BACKOFF_MIN, CONTROL_MESSAGE_BYTES_MAX, DOUBLE_PATIENCE, HEARTBEAT_TIMEOUT,
    WORDS_WAITING_MAX,
};
use super::observer::JobObserver;
use super::outgoing::Reach;
use super::wire::{Carries, is_final, is_stranger};

/// The worker whose process runs the coordinator.
pub(super) const COORDINATOR: WorkerId = WorkerId(0);

/// Events of the line for a worker's driver.
pub(super) enum LineEvent {
    /// The line is open; encoded words for the coordinator go into the channel.
    Connected(mpsc::Sender<Bytes>),
    /// The coordinator sent an order.
    Order(Box<Order>),
    /// The line broke, and is being reopened.
    Lost,
    /// The coordinator refused this worker. The line is not reopened.
    Refused(String),
    /// The line could not be opened for as long as the job waits. It is not tried again.
    GivenUp(String),
}

/// Where the coordinator runs.
pub(super) enum Coordinator {
    /// In this process.
    Here(mpsc::Sender<CoordinatorEvent>),
    /// In another process, over the network.
    There,
}

/// Keeps a line open for as long as the receiver of its events exists.
pub(super) struct LineTask {
    pub(super) reach: Reach,
    pub(super) coordinator: Coordinator,
    pub(super) patience: Duration,
    pub(super) observer: Arc<dyn JobObserver>,
    /// Whether the observer was told that the coordinator is away.
    pub(super) away_told: AtomicBool,
    pub(super) events: mpsc::Sender<LineEvent>,
}

/// The receiver of the events is gone.
struct WorkerGone;

impl LineTask {
    /// Runs the line; see [`LineTask`].
    pub(super) async fn run(self) {
        let mut lost_at = Instant::now();
        let mut doubled_since = None;
        let mut pause = BACKOFF_MIN;
        loop {
            let before = Instant::now();
            let (was_connected, status) = match self.talk().await {
                Ok(talked) => talked,
                Err(WorkerGone) => return,
            };
            let text = self.reach.identity.status_text(&status);
            if was_connected {
                (lost_at, pause, doubled_since) = (Instant::now(), BACKOFF_MIN, None);
                if self.send_event(LineEvent::Lost).await.is_err() {
                    return;
                }
            }
            // It may also be a worker of an earlier job that still runs there, with another secret.
            let is_double = status.code() == Code::AlreadyExists || is_stranger(&status);
            let since = doubled_since.get_or_insert(before);
            let is_taken = is_double && since.elapsed() >= DOUBLE_PATIENCE;
            if !is_double {
                doubled_since = None;
            }
            let ended = if is_final(&status) || is_taken {
                Some(LineEvent::Refused(text))
            } else if lost_at.elapsed() >= self.patience || self.has_coordinator_ended() {
                Some(LineEvent::GivenUp(text))
            } else {
                // A line that has just ended may have been the last one, or be open again at once.
                if !was_connected {
                    self.tell_away(&text);
                }
                None
            };
            if let Some(event) = ended {
                let _ = self.send_event(event).await;
                return;
            }
            sleep(pause).await;
            pause = (2 * pause).min(BACKOFF_MAX);
        }
    }

    /// Tells the observer, once until there is a line again, that the coordinator of another process is away.
    fn tell_away(&self, cause: &str) {
        let is_there = matches!(self.coordinator, Coordinator::There);
        if is_there && !self.away_told.swap(true, Ordering::Relaxed) {
            self.observer.coordinator_away(Some(cause));
        }
    }

    /// Whether the coordinator ran in this process and has ended.
    fn has_coordinator_ended(&self) -> bool {
        matches!(&self.coordinator, Coordinator::Here(coordinator) if coordinator.is_closed())
    }

    async fn send_event(&self, event: LineEvent) -> Result<(), WorkerGone> {
        self.events.send(event).await.map_err(|_| WorkerGone)
    }

    /// Runs one connection: returns whether it was established, and why it ended.
    async fn talk(&self) -> Result<(bool, Status), WorkerGone> {
        match &self.coordinator {
            Coordinator::Here(coordinator) => self.talk_here(coordinator).await,
            Coordinator::There => self.talk_there().await,
        }
    }

    async fn talk_here(
        &self,
        coordinator: &mpsc::Sender<CoordinatorEvent>,
    ) -> Result<(bool, Status), WorkerGone> {
        let identity = &self.reach.identity;
        let (worker, incarnation) = (identity.worker, identity.incarnation);
        let mut line = match connect(coordinator, worker, incarnation).await {
            Ok(line) => line,
            Err(status) => return Ok((false, status)),
        };
        let (words, mut spoken) = mpsc::channel::<Bytes>(WORDS_WAITING_MAX);
        self.send_event(LineEvent::Connected(words)).await?;
        let number = line.number;
        let ended = loop {
            tokio::select! {
                body = line.orders.recv() => match body {
                    Some(body) => match order(&body) {
                        Ok(order) => self.send_event(order).await?,
                        Err(status) => break status,
                    },
                    None => break Status::unavailable("the coordinator ended the line"),
                },
                body = spoken.recv() => match body.map(|body| decode::<WorkerMessage>(&body)) {
                    Some(Ok(word)) => {
                        let word_event = CoordinatorEvent::Word { worker, line: number, word };
                        if coordinator.send(word_event).await.is_err() {
                            break Status::unavailable("the coordinator has ended");
                        }
                    }
                    Some(Err(error)) => break Status::internal(error.to_string()),
                    None => break Status::cancelled("the worker has ended"),
                },
            }
        };
        let _ = coordinator.send(CoordinatorEvent::Ended { worker, line: number }).await;
        Ok((true, ended))
    }

    async fn talk_there(&self) -> Result<(bool, Status), WorkerGone> {
        let (words, spoken) = mpsc::channel(WORDS_WAITING_MAX);
        let mut client = match self.reach.channel(COORDINATOR) {
            Ok(channel) => JobControlClient::new(channel)
                .max_decoding_message_size(CONTROL_MESSAGE_BYTES_MAX)
                .max_encoding_message_size(CONTROL_MESSAGE_BYTES_MAX),
            Err(cause) => return Ok((false, Status::invalid_argument(cause))),
        };
        let stream = beating(spoken, |body| JobWord { body });
        let request = self.reach.identity.request(stream, COORDINATOR, 0, Carries::Own);
        let silent = || {
            let seconds = HEARTBEAT_TIMEOUT.as_secs();
            Status::deadline_exceeded(format!("nothing was heard for {seconds} s"))
        };
        let mut orders = match timeout(HEARTBEAT_TIMEOUT, client.control(request)).await {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(status)) => return Ok((false, status)),
            Err(_) => return Ok((false, silent())),
        };
        if self.away_told.swap(false, Ordering::Relaxed) {
            self.observer.coordinator_away(None);
        }
        self.send_event(LineEvent::Connected(words)).await?;
        loop {
            let body = match timeout(HEARTBEAT_TIMEOUT, orders.message()).await {
                Ok(Ok(Some(message))) => message.body,
                Ok(Ok(None)) => {
                    return Ok((true, Status::unavailable("the coordinator ended the line")));
                }
                Ok(Err(status)) => return Ok((true, status)),
                Err(_) => return Ok((true, silent())),
            };
            if body.is_empty() {
                // Heartbeats also serve to check whether the receiver still exists.
                if self.events.is_closed() {
                    return Err(WorkerGone);
                }
                continue;
            }
            match order(&body) {
                Ok(order) => self.send_event(order).await?,
                Err(status) => return Ok((true, status)),
            }
        }
    }
}

fn order(body: &[u8]) -> Result<LineEvent, Status> {
    let order = decode::<Order>(body).map_err(|error| {
        Status::failed_precondition(format!(
            "an order of the coordinator is not understood ({error}): bring all workers to one \
             release"
        ))
    })?;
    Ok(LineEvent::Order(Box::new(order)))
}
