//! Delivers frames from other workers to the tasks of their attempt.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tokio::sync::{mpsc, watch};
use tonic::{Status, Streaming};
use umbel_dedup_engine::job::CellWindow;
use umbel_dedup_engine::{Frame, FrameKind, JobShape, WorkerId};
use umbel_proto::v1::{JobFrames, JobFramesEnd};

use super::cell_task::{CellTaskEvent, CellTaskInput};
use super::group_count_task::GroupCountFrame;
use super::outgoing::{Arrival, PeerQueues};
use super::packing::Unpacker;
use super::wire::{Carries, error_text, status_text};

/// The frames that the tasks are ready for. Other frames wait in their streams.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Ready {
    Nothing,
    Sample,
    Everything,
    /// Everything, and the frames that count groups.
    GroupCount,
}

/// The state of a worker's attempt, as the readers of frames need it.
#[derive(Clone)]
pub(super) struct Inlet {
    pub(super) attempt: u32,
    pub(super) ready: Ready,
    pub(super) cell_tasks: Option<Arc<Inboxes>>,
    /// The workers that have opened a stream in this attempt, and what the stream carries.
    pub(super) senders: Arc<Mutex<BTreeSet<(WorkerId, Carries)>>>,
}

/// The recipients of an attempt's frames.
pub(super) struct Inboxes {
    pub(super) shape: JobShape,
    pub(super) cell_tasks: Vec<mpsc::Sender<CellTaskInput>>,
    /// For frames that are passed on to other workers.
    pub(super) queues: Arc<PeerQueues>,
    pub(super) group_count: mpsc::Sender<GroupCountFrame>,
    pub(super) events: mpsc::UnboundedSender<CellTaskEvent>,
}

impl Inlet {
    /// The state that accepts no frames.
    pub(super) fn of_attempt(attempt: u32) -> Self {
        Self { attempt, ready: Ready::Nothing, cell_tasks: None, senders: Arc::default() }
    }
}

/// The response to a stream of frames: nothing, until the stream ends.
pub(super) type FramesAnswer = mpsc::Receiver<Result<JobFramesEnd, Status>>;

/// Accepts a peer's stream if it is the first for the current attempt.
pub(super) fn accept(
    inlet: &watch::Sender<Inlet>,
    sender: (WorkerId, Carries),
    attempt: u32,
    frames: Streaming<JobFrames>,
    runtime: &tokio::runtime::Handle,
) -> Result<FramesAnswer, Status> {
    let watched = inlet.subscribe();
    let now = watched.borrow().clone();
    if now.attempt != attempt {
        return Err(Status::failed_precondition(format!(
            "frames of attempt {attempt}, attempt {} is under way here",
            now.attempt
        )));
    }
    let is_first = now.senders.lock().expect("nothing panics while holding it").insert(sender);
    let (from, carries) = sender;
    if !is_first {
        let worker = from.0;
        return Err(Status::failed_precondition(format!(
            "worker {worker} has sent frames of attempt {attempt} on another stream"
        )));
    }
    let (ending, answer) = mpsc::channel(1);
    runtime.spawn(async move {
        let mut present = watched.clone();
        let mut reader =
            Reader { neighbour: from, carries, attempt, inlet: watched, cell_tasks: None };
        let cause = tokio::select! {
            cause = reader.read(frames) => cause,
            // An error means that the worker has ended.
            _ = present.wait_for(|inlet| inlet.attempt != attempt) => {
                "the attempt is over".to_owned()
            }
            // The caller has gone.
            () = ending.closed() => "its stream broke".to_owned(),
        };
        if let Some(inboxes) = reader.present(Ready::Nothing) {
            let _ =
                inboxes.events.send(CellTaskEvent::Trouble { peer: from, cause: cause.clone() });
        }
        let _ = ending.try_send(Err(Status::aborted(cause)));
    });
    Ok(answer)
}

struct Reader {
    neighbour: WorkerId,
    carries: Carries,
    attempt: u32,
    inlet: watch::Receiver<Inlet>,
    cell_tasks: Option<(Ready, Arc<Inboxes>)>,
}

impl Reader {
    /// Reads until the stream ends, and returns the reason.
    async fn read(&mut self, mut frames: Streaming<JobFrames>) -> String {
        let mut unpacker = Unpacker::default();
        loop {
            let message = match frames.message().await {
                Ok(Some(message)) => message,
                Ok(None) => return "it ended its stream".to_owned(),
                Err(status) => return status_text(&status),
            };
            let whole = match unpacker.take(message) {
                Ok(whole) => whole,
                Err(cause) => return cause,
            };
            for frame in whole {
                if let Err(cause) = self.deliver(frame).await {
                    return cause;
                }
            }
        }
    }

    async fn deliver(&mut self, bytes: Vec<u8>) -> Result<(), String> {
        // A frame for another worker needs only the running attempt, and room in that worker's queue.
        let queues = Arc::clone(&self.wait(Ready::Nothing).await?.queues);
        let arrival = queues
            .arrived(self.neighbour, self.carries, bytes)
            .map_err(|error| error_text(error.to_string(), std::error::Error::source(&error)))?;
        match arrival {
            Arrival::Here(from, frame) => self.take(from, frame).await,
            Arrival::Elsewhere(to, bytes) => {
                queues.pass_on(to, bytes).await;
                Ok(())
            }
        }
    }

    /// Delivers a frame for this worker.
    async fn take(&mut self, from: WorkerId, frame: Vec<u8>) -> Result<(), String> {
        let (kind, cell) = Frame::peek(&frame).map_err(|error| error.to_string())?;
        let gone = || "the attempt is over".to_owned();
        if kind.is_group_count() {
            let inbox = self.wait(Ready::GroupCount).await?.group_count.clone();
            return inbox.send((from, frame)).await.map_err(|_| gone());
        }
        let is_sample = kind == FrameKind::Sample;
        let inboxes = self.wait(if is_sample { Ready::Sample } else { Ready::Everything }).await?;
        let cell_tasks = u32::try_from(inboxes.cell_tasks.len()).expect("a handful of tasks");
        let cell_task =
            if is_sample { 0 } else { CellWindow::task_of(inboxes.shape, cell, cell_tasks) };
        let inbox = inboxes.cell_tasks[cell_task as usize].clone();
        inbox.send(CellTaskInput::Frame(from, frame)).await.map_err(|_| gone())
    }

    /// Waits until the tasks exist and are ready for a kind of frames.
    async fn wait(&mut self, needed: Ready) -> Result<Arc<Inboxes>, String> {
        if let Some((ready, inboxes)) = &self.cell_tasks
            && *ready >= needed
        {
            return Ok(Arc::clone(inboxes));
        }
        let attempt = self.attempt;
        let is_due = |inlet: &Inlet| {
            inlet.attempt != attempt || (inlet.cell_tasks.is_some() && inlet.ready >= needed)
        };
        let inlet = self.inlet.wait_for(is_due).await;
        let inlet = inlet.map_err(|_| "the worker has ended".to_owned())?;
        match &inlet.cell_tasks {
            Some(inboxes) if inlet.attempt == attempt => {
                self.cell_tasks = Some((inlet.ready, Arc::clone(inboxes)));
                Ok(Arc::clone(inboxes))
            }
            _ => Err("the attempt is over".to_owned()),
        }
    }

    /// The tasks, if the attempt is still the current one.
    fn present(&self, needed: Ready) -> Option<Arc<Inboxes>> {
        let inlet = self.inlet.borrow();
        let is_present = inlet.attempt == self.attempt && inlet.ready >= needed;
        inlet.cell_tasks.clone().filter(|_| is_present)
    }
}
