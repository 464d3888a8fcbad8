//! A worker's exchange, attempt by attempt: starts its tasks, streams of frames, and overseer.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use umbel_dedup_engine::job::{CellSet, GroupCountOrder, WorkerEvent};
use umbel_dedup_engine::{GroupCountShape, GroupCounter, JobShape, Plan, SampleOrder, Worker};
use umbel_step::planted::{self, Planted};

use super::JobProgress;
use super::cell_task::{CellProgress, CellTask, CellTaskEvent, CellTaskInput};
use super::group_count_task::{GroupCountFrame, GroupCountTask};
use super::incoming::{Inboxes, Inlet, Ready};
use super::limits::{CELL_TASKS_MAX, TASK_FRAMES_WAITING_MAX};
use super::observer::JobObserver;
use super::outgoing::{PeerQueues, Reach};
use super::overseer::{Figures, Overseer};
use super::workshop::{Attempt, BegunAttempt, Workshop, WorkshopError};

/// The exchange of one worker.
pub(super) struct Exchanger {
    pub(super) reach: Reach,
    pub(super) workshop: Arc<dyn Workshop>,
    pub(super) observer: Arc<dyn JobObserver>,
    pub(super) runtime: tokio::runtime::Handle,
    /// Cell tasks of every attempt, at least 1.
    pub(super) cell_tasks: u32,
    pub(super) inlet: Arc<watch::Sender<Inlet>>,
    /// Events for the worker's driver.
    pub(super) events: mpsc::UnboundedSender<WorkerEvent>,
    /// The attempt that has begun and is not running yet.
    pub(super) begun: Option<BegunAttempt>,
    pub(super) running: Option<RunningAttempt>,
}

/// A running attempt. Dropping it ends all its tasks.
pub(super) struct RunningAttempt {
    data: Arc<dyn Attempt>,
    cell_tasks: Vec<mpsc::Sender<CellTaskInput>>,
    queues: Arc<PeerQueues>,
    cell_task_events: mpsc::UnboundedSender<CellTaskEvent>,
    /// Receives the frames that count groups; taken when counting begins.
    group_count: Option<mpsc::Receiver<GroupCountFrame>>,
    figures: Arc<Figures>,
    tasks: JoinSet<()>,
    is_exchanging: bool,
}

impl Exchanger {
    /// Ends the running attempt, and returns which cells are decided.
    pub(super) async fn stop(&mut self, attempt: u32) -> Result<WorkerEvent, WorkshopError> {
        self.end().await?;
        self.inlet.send_replace(Inlet::of_attempt(attempt));
        let begun = self.workshop.begin_attempt()?;
        let decided = begun.sealed.clone();
        self.begun = Some(begun);
        Ok(WorkerEvent::Stopped { attempt, decided })
    }

    /// Ends the running attempt, and makes its decisions durable.
    pub(super) async fn end(&mut self) -> Result<(), WorkshopError> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        // `senders` is kept: a worker that has opened a stream may not open another one in this
        // attempt.
        self.inlet.send_modify(|inlet| {
            inlet.ready = Ready::Nothing;
            inlet.cell_tasks = None;
        });
        running.tasks.shutdown().await;
        if running.is_exchanging && !planted::on(Planted::UnsealedTold) {
            running.data.seal(&running.figures.sum())?;
        }
        Ok(())
    }

    /// Sends the sample.
    pub(super) async fn sample(
        &mut self,
        attempt: u32,
        shape: JobShape,
        order: SampleOrder,
    ) -> Result<(), WorkshopError> {
        let own = shape.sample_range(self.reach.identity.worker.0.into());
        let running = self.running(attempt, shape)?;
        let (lists, references) = (running.data.sample()?, running.data.references(own)?);
        // If the task has ended, it has reported the reason.
        let _ =
            running.cell_tasks[0].send(CellTaskInput::Sample { order, lists, references }).await;
        self.inlet.send_modify(|inlet| inlet.ready = Ready::Sample);
        Ok(())
    }

    /// Exchanges all cells except the decided ones.
    pub(super) async fn exchange(
        &mut self,
        attempt: u32,
        plan: Plan,
        decided: CellSet,
    ) -> Result<(), WorkshopError> {
        let running = self.running(attempt, plan.shape)?;
        running.is_exchanging = true;
        for cell_task in &running.cell_tasks {
            let _ = cell_task.send(CellTaskInput::Begin(Box::new(plan), decided.clone())).await;
        }
        let cells = (decided.count(), plan.shape.cells().get());
        self.inlet.send_modify(|inlet| inlet.ready = Ready::Everything);
        self.observer.progress(JobProgress { attempt, decided: cells.0, cells: cells.1 });
        Ok(())
    }

    /// Counts the groups once all cells are decided, and responds to other workers that do.
    pub(super) fn count_groups(
        &mut self,
        attempt: u32,
        order: GroupCountOrder,
    ) -> Result<(), WorkshopError> {
        let identity = &self.reach.identity;
        let (me, job) = (identity.worker, identity.job);
        let GroupCountOrder { chunk_bases, sends_sizes, names_parts } = order.clone();
        let shape = GroupCountShape { job, attempt, chunk_bases, sends_sizes, names_parts };
        let machine = GroupCounter::new(me, shape)
            .map_err(|error| WorkshopError { cause: error.to_string(), resumable: false })?;
        let Some(running) = &mut self.running else { return Ok(()) };
        let Some(inbox) = running.group_count.take() else { return Ok(()) };
        let task = GroupCountTask {
            me,
            machine,
            order,
            attempt: Arc::clone(&running.data),
            queues: Arc::clone(&running.queues),
            events: running.cell_task_events.clone(),
            inbox,
            is_in_trouble: false,
        };
        // If the overseer is gone, the attempt is over.
        let _ = running.cell_task_events.send(CellTaskEvent::CountingGroups);
        running.tasks.spawn_on(task.run(), &self.runtime);
        self.inlet.send_modify(|inlet| inlet.ready = Ready::GroupCount);
        Ok(())
    }

    /// The running attempt; starts it if needed.
    fn running(
        &mut self,
        attempt: u32,
        shape: JobShape,
    ) -> Result<&mut RunningAttempt, WorkshopError> {
        if self.running.is_none() {
            let running = self.start(attempt, shape)?;
            self.running = Some(running);
        }
        Ok(self.running.as_mut().expect("it has just been put there"))
    }

    fn start(&mut self, attempt: u32, shape: JobShape) -> Result<RunningAttempt, WorkshopError> {
        let cell_task_count = self.cell_tasks.clamp(1, CELL_TASKS_MAX);
        let begun = self.begun.take().map_or_else(|| self.workshop.begin_attempt(), Ok)?;
        let BegunAttempt { sealed, report, attempt: data } = begun;
        let figures = Arc::new(Figures::new(report, cell_task_count));
        // Tasks do not wait for the overseer, which makes decisions durable meanwhile. What can wait is one event for
        // each cell of the job, and for each task and stream a few more: a task reports one refused frame, and a stream
        // its end.
        let (events, received) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        let queues = PeerQueues::open(&self.reach, attempt, &events, &mut tasks, &self.runtime);
        let queues = Arc::new(queues);
        let me = self.reach.identity.worker;
        let mut cell_tasks = Vec::new();
        for number in 0..cell_task_count {
            let (inbox, received) = mpsc::channel(TASK_FRAMES_WAITING_MAX);
            cell_tasks.push(inbox);
            let machine = Worker::new(me, shape, self.reach.identity.job)
                .map_err(|error| WorkshopError { cause: error.to_string(), resumable: false })?
                .in_attempt(attempt);
            let cell_task = CellTask {
                me,
                number,
                cell_tasks: cell_task_count,
                machine,
                attempt: Arc::clone(&data),
                queues: Arc::clone(&queues),
                events: events.clone(),
                figures: figures.of_cell_task(number),
                inbox: received,
                progress: CellProgress::new(),
                is_in_trouble: false,
            };
            tasks.spawn_on(cell_task.run(), &self.runtime);
        }
        let overseer = Overseer {
            attempt,
            cells: shape.cells().get(),
            decided: sealed.count(),
            data: Arc::clone(&data),
            observer: Arc::clone(&self.observer),
            figures: Arc::clone(&figures),
            cell_tasks: cell_tasks.clone(),
            events: self.events.clone(),
        };
        tasks.spawn_on(overseer.run(received), &self.runtime);
        let (group_count, group_count_inbox) = mpsc::channel(TASK_FRAMES_WAITING_MAX);
        let cell_task_events = events.clone();
        let inboxes = Inboxes {
            shape,
            cell_tasks: cell_tasks.clone(),
            queues: Arc::clone(&queues),
            group_count,
            events,
        };
        let inboxes = Arc::new(inboxes);
        self.inlet.send_modify(|inlet| inlet.cell_tasks = Some(inboxes));
        let (group_count, is_exchanging) = (Some(group_count_inbox), false);
        Ok(RunningAttempt {
            data,
            cell_tasks,
            queues,
            cell_task_events,
            group_count,
            figures,
            tasks,
            is_exchanging,
        })
    }
}
