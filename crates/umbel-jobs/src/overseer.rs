//! Supervises an attempt: makes its decisions durable, fetches items, and reports how it ends.

use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use umbel_dedup_engine::job::WorkerEvent;
use umbel_dedup_engine::{ExchangeReport, WorkerId};
use umbel_ports::PortFuture;
use umbel_step::planted::{self, Planted};

use super::JobProgress;
use super::cell_task::{CellTaskEvent, CellTaskInput};
use super::limits::{SEAL_CELLS, SEAL_INTERVAL};
use super::observer::JobObserver;
use super::workshop::{Attempt, CellItems, WorkshopError};

/// Counters of an attempt's tasks, on top of those of earlier attempts.
pub(super) struct Figures {
    base: ExchangeReport,
    cell_tasks: Vec<Arc<Mutex<ExchangeReport>>>,
}

impl Figures {
    /// The counters of an attempt that has just begun.
    pub(super) fn new(base: ExchangeReport, cell_tasks: u32) -> Self {
        Self { base, cell_tasks: (0..cell_tasks).map(|_| Arc::default()).collect() }
    }

    /// The counters that a task updates.
    pub(super) fn of_cell_task(&self, cell_task: u32) -> Arc<Mutex<ExchangeReport>> {
        Arc::clone(&self.cell_tasks[cell_task as usize])
    }

    /// The sum over all tasks.
    pub(super) fn sum(&self) -> ExchangeReport {
        let mut sum = self.base;
        for cell_task in &self.cell_tasks {
            sum += *cell_task.lock().expect("nobody panics while holding figures");
        }
        sum
    }
}

/// Supervises one attempt.
pub(super) struct Overseer {
    pub(super) attempt: u32,
    /// All cells of the job.
    pub(super) cells: u32,
    /// How many of them are decided at this worker.
    pub(super) decided: u32,
    pub(super) data: Arc<dyn Attempt>,
    pub(super) observer: Arc<dyn JobObserver>,
    pub(super) figures: Arc<Figures>,
    pub(super) cell_tasks: Vec<mpsc::Sender<CellTaskInput>>,
    /// Events for the worker's driver.
    pub(super) events: mpsc::UnboundedSender<WorkerEvent>,
}

#[derive(Default)]
struct Watch {
    unsealed: u32,
    compared: usize,
    fetching: Option<PortFuture<'static, Result<CellItems, WorkshopError>>>,
    done: usize,
    /// Events do not matter to this worker now, unless groups are counted next.
    is_over: bool,
    /// The first trouble since `is_over`.
    late_trouble: Option<(WorkerId, String)>,
}

impl Overseer {
    /// Supervises until the attempt is ended from outside.
    pub(super) async fn run(mut self, mut received: mpsc::UnboundedReceiver<CellTaskEvent>) {
        let mut watch = Watch::default();
        let mut tick = interval(SEAL_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let outcome = tokio::select! {
                event = received.recv() => match event {
                    Some(event) => self.on_event(event, &mut watch),
                    None => return,
                },
                fetched = wait(&mut watch.fetching) => {
                    watch.fetching = None;
                    match fetched {
                        Ok(items) => self.compare(&items).await,
                        Err(error) => Err(error),
                    }
                }
                _ = tick.tick() => self.seal(&mut watch, 1),
            };
            if let Err(error) = outcome {
                watch.is_over = true;
                let WorkshopError { cause, resumable } = error;
                self.send_event(WorkerEvent::Failed { cause, resumable });
            }
        }
    }

    fn on_event(&mut self, event: CellTaskEvent, watch: &mut Watch) -> Result<(), WorkshopError> {
        let attempt = self.attempt;
        if watch.is_over && !self.takes_late(&event, watch) {
            return Ok(());
        }
        match event {
            CellTaskEvent::Sampled { entries, candidates } => {
                self.send_event(WorkerEvent::Sampled { attempt, entries, candidates });
            }
            CellTaskEvent::Decided => {
                watch.unsealed += 1;
                self.decided += 1;
                return self.seal(watch, SEAL_CELLS);
            }
            CellTaskEvent::Compared => {
                watch.compared += 1;
                if watch.compared == self.cell_tasks.len() {
                    let data = Arc::clone(&self.data);
                    let fetch = async move { data.fetch().await };
                    watch.fetching = Some(Box::pin(fetch));
                }
            }
            CellTaskEvent::Done => {
                watch.done += 1;
                if watch.done == self.cell_tasks.len() {
                    if !planted::on(Planted::UnsealedTold) {
                        self.seal(watch, 0)?;
                    }
                    watch.is_over = true;
                    let report = self.figures.sum();
                    self.send_event(WorkerEvent::Exchanged { attempt, report });
                }
            }
            CellTaskEvent::CountingGroups => watch.is_over = false,
            CellTaskEvent::GroupsCounted(group_count) => {
                watch.is_over = true;
                self.send_event(WorkerEvent::GroupsCounted { attempt, group_count: *group_count });
            }
            CellTaskEvent::Trouble { peer, cause } => {
                watch.is_over = true;
                self.send_event(WorkerEvent::Trouble { attempt, peer, cause });
            }
            CellTaskEvent::Broken(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether an event matters although this worker has completed its order: groups are counted over
    /// the same streams, and a stream that broke in between matters only then.
    fn takes_late(&self, event: &CellTaskEvent, watch: &mut Watch) -> bool {
        match event {
            CellTaskEvent::Trouble { peer, cause } => {
                watch.late_trouble.get_or_insert_with(|| (*peer, cause.clone()));
                false
            }
            CellTaskEvent::CountingGroups => match watch.late_trouble.take() {
                None => true,
                Some((peer, cause)) => {
                    self.send_event(WorkerEvent::Trouble { attempt: self.attempt, peer, cause });
                    false
                }
            },
            _ => false,
        }
    }

    /// Makes decided cells durable, if there are at least `cells_min` of them.
    fn seal(&self, watch: &mut Watch, cells_min: u32) -> Result<(), WorkshopError> {
        if watch.unsealed < cells_min || watch.is_over {
            return Ok(());
        }
        self.data.seal(&self.figures.sum())?;
        watch.unsealed = 0;
        let (attempt, decided, cells) = (self.attempt, self.decided, self.cells);
        self.observer.progress(JobProgress { attempt, decided, cells });
        Ok(())
    }

    async fn compare(&self, items: &CellItems) -> Result<(), WorkshopError> {
        for cell_task in &self.cell_tasks {
            // A task that has ended has reported the reason.
            let _ = cell_task.send(CellTaskInput::Fetched(Arc::clone(items))).await;
        }
        Ok(())
    }

    fn send_event(&self, event: WorkerEvent) {
        // If the driver is gone, the attempt is over.
        let _ = self.events.send(event);
    }
}

/// Waits for the running fetch; for ever if there is none.
async fn wait<T>(fetching: &mut Option<PortFuture<'static, T>>) -> T {
    match fetching {
        Some(fetching) => fetching.await,
        None => std::future::pending().await,
    }
}
