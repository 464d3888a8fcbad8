//! A cell task of an attempt: processes its share of the cells, with its own state machine.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;
use umbel_dedup_engine::job::{CellSet, CellWindow, GroupCountResult};
use umbel_dedup_engine::{
    Entry, ExchangeError, ExchangeInput, ExchangeOutput, ExchangeReport, Plan, SampleOrder, Worker,
    WorkerId,
};
use umbel_filter::{HashRange, ItemHash};
use umbel_step::Outbox;

use super::outgoing::PeerQueues;
use super::wire::error_text;
use super::workshop::{Attempt, CellItems, WorkshopError};

/// Input of a cell task.
pub(super) enum CellTaskInput {
    /// A frame of a peer, not decoded yet.
    Frame(WorkerId, Vec<u8>),
    /// Send the sample: one list of entries per owner. `references` are the reference hashes in this
    /// worker's own part of the sample; empty if there are none.
    Sample { order: SampleOrder, lists: Vec<Vec<Entry>>, references: Vec<ItemHash> },
    /// Exchange the task's share of all cells, except the given ones.
    Begin(Box<Plan>, CellSet),
    /// The items were fetched.
    Fetched(CellItems),
}

/// Events of a cell task, or of a stream of frames.
pub(super) enum CellTaskEvent {
    /// The sample was processed.
    Sampled { entries: u64, candidates: u64 },
    /// One more cell is decided.
    Decided,
    /// All cells are decided or wait for items to be fetched.
    Compared,
    /// All cells are decided, and the task owes no verdict.
    Done,
    /// All cells are decided at all workers; groups are counted from now on.
    CountingGroups,
    /// The groups are counted, and that is durable.
    GroupsCounted(Box<GroupCountResult>),
    /// A peer's frame was refused, or the peer's stream broke.
    Trouble { peer: WorkerId, cause: String },
    /// The worker cannot continue.
    Broken(WorkshopError),
}

/// The current pass over the cells.
enum Pass {
    /// Nothing was ordered yet, or everything is done.
    Rest,
    Hashes,
    /// Exactness `bytes`: the cells whose items are compared.
    Items(CellItems),
}

/// One cell task.
pub(super) struct CellTask {
    pub(super) me: WorkerId,
    pub(super) number: u32,
    pub(super) cell_tasks: u32,
    pub(super) machine: Worker,
    pub(super) attempt: Arc<dyn Attempt>,
    pub(super) queues: Arc<PeerQueues>,
    pub(super) events: mpsc::UnboundedSender<CellTaskEvent>,
    pub(super) figures: Arc<Mutex<ExchangeReport>>,
    pub(super) inbox: mpsc::Receiver<CellTaskInput>,
    pub(super) progress: CellProgress,
    /// Whether a peer's frame was refused. Only the first one is reported, as the overseer of an attempt heeds one trouble
    /// alone: a peer may send any number.
    pub(super) is_in_trouble: bool,
}

/// Progress of the task in the order of its cells.
pub(super) struct CellProgress {
    pass: Pass,
    begun: Option<(Plan, CellSet)>,
    window: Option<CellWindow>,
    /// Cells that are done on the sender's side, but not on the owner's.
    owing: BTreeSet<u32>,
    /// Cells that wait for items.
    compared: BTreeSet<u32>,
}

impl CellProgress {
    /// The state before the first order.
    pub(super) fn new() -> Self {
        let (owing, compared) = (BTreeSet::new(), BTreeSet::new());
        Self { pass: Pass::Rest, begun: None, window: None, owing, compared }
    }
}

impl CellTask {
    /// Works until the attempt ends.
    pub(super) async fn run(mut self) {
        let outcome = self.work().await;
        if let Err(error) = outcome {
            self.send_event(CellTaskEvent::Broken(error));
        }
        // Frames that still arrive must not block their streams.
        while self.inbox.recv().await.is_some() {}
    }

    async fn work(&mut self) -> Result<(), WorkshopError> {
        loop {
            self.open_cells().await?;
            match self.inbox.recv().await {
                Some(input) => self.take(input)?,
                None => return Ok(()),
            }
        }
    }

    /// Opens as many cells as the window permits.
    async fn open_cells(&mut self) -> Result<(), WorkshopError> {
        while let Some(cell) = self.progress.window.as_mut().and_then(CellWindow::open) {
            match &self.progress.pass {
                Pass::Items(items) if self.progress.compared.remove(&cell) => {
                    let items = items(cell)?;
                    self.step(ExchangeInput::Items { cell, items })?;
                }
                Pass::Hashes => {
                    self.know(cell)?;
                    let (entries, ranks) = self.attempt.entries(cell)?;
                    self.step(ExchangeInput::Cell { cell, entries, ranks })?;
                }
                Pass::Items(_) | Pass::Rest => self.sent(cell),
            }
            while let Ok(input) = self.inbox.try_recv() {
                self.take(input)?;
            }
            tokio::task::yield_now().await;
        }
        if self.progress.window.as_ref().is_some_and(CellWindow::is_done) {
            self.progress.window = None;
            self.end_pass();
        }
        Ok(())
    }

    /// If this worker owns the cell, passes it the hashes that earlier jobs have kept there.
    fn know(&mut self, cell: u32) -> Result<(), WorkshopError> {
        let plan = self.progress.begun.as_ref().map(|(plan, _)| plan);
        let Some(plan) = plan.filter(|plan| plan.references.is_some()) else { return Ok(()) };
        if plan.shape.owner(cell) != u32::from(self.me.0) {
            return Ok(());
        }
        let hashes = self.attempt.references(HashRange::cell(cell, plan.shape.cells()))?;
        self.step(ExchangeInput::References { cell, hashes })
    }

    fn end_pass(&mut self) {
        let compares = self.progress.begun.as_ref().is_some_and(|(plan, _)| plan.compares_bytes());
        let is_first = matches!(self.progress.pass, Pass::Hashes);
        self.progress.pass = Pass::Rest;
        if is_first && compares {
            // Sent even if no items are compared here: as an owner, the task must receive items.
            self.send_event(CellTaskEvent::Compared);
        } else {
            self.send_event(CellTaskEvent::Done);
        }
    }

    fn take(&mut self, input: CellTaskInput) -> Result<(), WorkshopError> {
        match input {
            CellTaskInput::Frame(from, bytes) => self.on_frame(from, bytes),
            CellTaskInput::Sample { order, lists, references } => {
                self.step(ExchangeInput::SampleReferences { hashes: references })?;
                self.step(ExchangeInput::Sample { order, lists })
            }
            CellTaskInput::Begin(plan, decided) => {
                self.begin(&plan, &decided, Pass::Hashes);
                self.progress.begun = Some((*plan, decided));
                self.step(ExchangeInput::Plan(*plan))
            }
            CellTaskInput::Fetched(items) => {
                if let Some((plan, decided)) = self.progress.begun.take() {
                    self.begin(&plan, &decided, Pass::Items(items));
                }
                Ok(())
            }
        }
    }

    fn begin(&mut self, plan: &Plan, decided: &CellSet, pass: Pass) {
        self.progress.pass = pass;
        let window = CellWindow::new(plan.shape, self.number, self.cell_tasks, decided);
        self.progress.window = Some(window);
    }

    /// Processes a peer's frame; the first frame that is refused is reported as trouble with the peer.
    fn on_frame(&mut self, from: WorkerId, bytes: Vec<u8>) -> Result<(), WorkshopError> {
        let mut out = Outbox::new();
        match self.machine.step(ExchangeInput::Frame { from, bytes }, &mut out) {
            Ok(()) => self.carry_out(out),
            Err(
                error @ (ExchangeError::Frame { .. }
                | ExchangeError::OutOfPhase { .. }
                | ExchangeError::TooEarly { .. }
                | ExchangeError::TooFarAhead { .. }),
            ) => {
                if !std::mem::replace(&mut self.is_in_trouble, true) {
                    let cause = error_text(error.to_string(), std::error::Error::source(&error));
                    self.send_event(CellTaskEvent::Trouble { peer: from, cause });
                }
                Ok(())
            }
            Err(error) => Err(broken(&error)),
        }
    }

    fn step(&mut self, input: ExchangeInput) -> Result<(), WorkshopError> {
        let mut out = Outbox::new();
        self.machine.step(input, &mut out).map_err(|error| broken(&error))?;
        self.carry_out(out)
    }

    fn carry_out(&mut self, mut out: Outbox<ExchangeOutput>) -> Result<(), WorkshopError> {
        let mut orders: VecDeque<ExchangeOutput> = out.take().into();
        while let Some(order) = orders.pop_front() {
            match order {
                ExchangeOutput::Send { to, frame } if to == self.me => {
                    let input = ExchangeInput::Frame { from: to, bytes: frame };
                    self.machine.step(input, &mut out).map_err(|error| broken(&error))?;
                    orders.extend(out.take());
                }
                ExchangeOutput::Send { to, frame } => self.queues.send(to, frame),
                ExchangeOutput::Sampled { entries, candidates } => {
                    self.send_event(CellTaskEvent::Sampled { entries, candidates });
                }
                ExchangeOutput::Compare { cell, suspects } => {
                    self.attempt.suspect(cell, &suspects)?;
                    self.progress.compared.insert(cell);
                    self.sent(cell);
                }
                ExchangeOutput::Decided { cell, drops } => {
                    self.attempt.decide(cell, drops)?;
                    self.send_event(CellTaskEvent::Decided);
                    self.sent(cell);
                }
            }
        }
        self.close_cells();
        *self.figures.lock().expect("nobody panics while holding figures") = self.machine.report();
        Ok(())
    }

    /// Notes that everything of the cell that this pass needs was sent; as an owner, the task may still
    /// owe verdicts.
    fn sent(&mut self, cell: u32) {
        self.progress.owing.insert(cell);
        self.close_cells();
    }

    /// Closes the cells for which the task owes no verdicts any more.
    fn close_cells(&mut self) {
        let CellProgress { pass, window, owing, .. } = &mut self.progress;
        let machine = &self.machine;
        let Some(window) = window else { return };
        owing.retain(|&cell| {
            let owes = match pass {
                Pass::Items(_) => machine.owes(cell),
                Pass::Hashes | Pass::Rest => machine.owes_hashes(cell),
            };
            if !owes {
                window.close(cell);
            }
            owes
        });
    }

    fn send_event(&self, event: CellTaskEvent) {
        // If the receiver is gone, the attempt is over.
        let _ = self.events.send(event);
    }
}

/// The error of a worker whose state machine refuses its driver's orders.
pub(super) fn broken(error: &ExchangeError) -> WorkshopError {
    let cause = error_text(error.to_string(), std::error::Error::source(error));
    WorkshopError { cause, resumable: false }
}
