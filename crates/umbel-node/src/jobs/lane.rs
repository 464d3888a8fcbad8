//! A lane of an attempt: its share of the cells, with a machine of its own.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;
use umbel_dedup_engine::job::{CellSet, CellWindow, Tallied};
use umbel_dedup_engine::{
    Entry, ExchangeError, ExchangeReport, Input, Output, Plan, SampleOrder, Worker, WorkerId,
};
use umbel_filter::{HashRange, ItemHash};
use umbel_step::Outbox;

use super::outgoing::PeerQueues;
use super::wire::error_text;
use super::workshop::{Workshop, WorkshopError};

/// What a lane is told.
pub(super) enum LaneInput {
    /// A frame of a peer, undecoded.
    Frame(WorkerId, Vec<u8>),
    /// Send the sample; one list an owner. What references hold of this worker's own part is
    /// empty where there are none.
    Sample { order: SampleOrder, lists: Vec<Vec<Entry>>, references: Vec<ItemHash> },
    /// Exchange the lane's share of all cells but these.
    Begin(Box<Plan>, CellSet),
    /// Items were fetched.
    Fetched,
}

/// What a lane, or a stream of frames, has to tell.
pub(super) enum LaneEvent {
    /// The sample was seen.
    Sampled { entries: u64, candidates: u64 },
    /// One more cell is settled.
    Settled,
    /// All cells are settled or wait for these items.
    Compared,
    /// All cells are settled, and no verdict is owed.
    Done,
    /// All cells are settled everywhere, and groups are counted from now on.
    Tallying,
    /// They are, durably.
    Tallied(Box<Tallied>),
    /// A peer's frame was refused, or its stream broke.
    Trouble { peer: WorkerId, cause: String },
    /// The worker cannot go on.
    Broken(WorkshopError),
}

/// Which walk over the cells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Walk {
    /// Nothing was ordered yet, or all is done.
    Rest,
    Hashes,
    /// Level `bytes`: the cells whose items are compared.
    Items,
}

/// See the module.
pub(super) struct Lane {
    pub(super) me: WorkerId,
    pub(super) number: u32,
    pub(super) lanes: u32,
    pub(super) machine: Worker,
    pub(super) workshop: Arc<dyn Workshop>,
    pub(super) queues: Arc<PeerQueues>,
    pub(super) events: mpsc::UnboundedSender<LaneEvent>,
    pub(super) figures: Arc<Mutex<ExchangeReport>>,
    pub(super) inbox: mpsc::Receiver<LaneInput>,
    pub(super) course: Course,
}

/// Where in the order of cells the lane is.
pub(super) struct Course {
    walk: Walk,
    begun: Option<(Plan, CellSet)>,
    window: Option<CellWindow>,
    /// Done as a sender, but as an owner not.
    owing: BTreeSet<u32>,
    /// Cells that wait for items.
    compared: BTreeSet<u32>,
}

impl Course {
    /// Before the first order.
    pub(super) fn new() -> Self {
        let (owing, compared) = (BTreeSet::new(), BTreeSet::new());
        Self { walk: Walk::Rest, begun: None, window: None, owing, compared }
    }
}

impl Lane {
    /// Works until the attempt ends.
    pub(super) async fn run(mut self) {
        let outcome = self.work().await;
        if let Err(error) = outcome {
            self.tell(LaneEvent::Broken(error));
        }
        // Frames that still come must not hold up their streams.
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

    /// Begins as many cells as the window allows.
    async fn open_cells(&mut self) -> Result<(), WorkshopError> {
        while let Some(cell) = self.course.window.as_mut().and_then(CellWindow::open) {
            if self.course.walk == Walk::Hashes {
                self.know(cell)?;
                let (entries, ranks) = self.workshop.ranked_entries(cell)?;
                self.step(Input::Cell { cell, entries, ranks })?;
            } else if self.course.compared.remove(&cell) {
                let items = self.workshop.items(cell)?;
                self.step(Input::Items { cell, items })?;
            } else {
                self.sent(cell);
            }
            while let Ok(input) = self.inbox.try_recv() {
                self.take(input)?;
            }
            tokio::task::yield_now().await;
        }
        if self.course.window.as_ref().is_some_and(CellWindow::is_done) {
            self.course.window = None;
            self.end_walk();
        }
        Ok(())
    }

    /// Gives the owner of a cell, if it is this worker, what earlier jobs have kept there.
    fn know(&mut self, cell: u32) -> Result<(), WorkshopError> {
        let plan = self.course.begun.as_ref().map(|(plan, _)| plan);
        let Some(plan) = plan.filter(|plan| plan.references.is_some()) else { return Ok(()) };
        if plan.shape.owner(cell) != u32::from(self.me.0) {
            return Ok(());
        }
        let hashes = self.workshop.references(HashRange::cell(cell, plan.shape.cells()))?;
        self.step(Input::References { cell, hashes })
    }

    fn end_walk(&mut self) {
        let compares = self.course.begun.as_ref().is_some_and(|(plan, _)| plan.compares_bytes());
        let is_first = self.course.walk == Walk::Hashes;
        self.course.walk = Walk::Rest;
        if is_first && compares {
            // Also if nothing is to be compared here: as an owner the lane has to hear of items.
            self.tell(LaneEvent::Compared);
        } else {
            self.tell(LaneEvent::Done);
        }
    }

    fn take(&mut self, input: LaneInput) -> Result<(), WorkshopError> {
        match input {
            LaneInput::Frame(from, bytes) => self.hear(from, bytes),
            LaneInput::Sample { order, lists, references } => {
                self.step(Input::SampleReferences { hashes: references })?;
                self.step(Input::Sample { order, lists })
            }
            LaneInput::Begin(plan, settled) => {
                self.begin(&plan, &settled, Walk::Hashes);
                self.course.begun = Some((*plan, settled));
                self.step(Input::Plan(*plan))
            }
            LaneInput::Fetched => {
                if let Some((plan, settled)) = self.course.begun.take() {
                    self.begin(&plan, &settled, Walk::Items);
                }
                Ok(())
            }
        }
    }

    fn begin(&mut self, plan: &Plan, settled: &CellSet, walk: Walk) {
        self.course.walk = walk;
        let window = CellWindow::new(plan.shape, self.number, self.lanes, settled);
        self.course.window = Some(window);
    }

    /// Takes a peer's frame; one that is refused is the peer's trouble.
    fn hear(&mut self, from: WorkerId, bytes: Vec<u8>) -> Result<(), WorkshopError> {
        let mut out = Outbox::new();
        match self.machine.step(Input::Frame { from, bytes }, &mut out) {
            Ok(()) => self.carry_out(out),
            Err(
                error @ (ExchangeError::Frame { .. }
                | ExchangeError::OutOfPhase { .. }
                | ExchangeError::TooEarly { .. }
                | ExchangeError::TooFarAhead { .. }),
            ) => {
                let cause = error_text(error.to_string(), std::error::Error::source(&error));
                self.tell(LaneEvent::Trouble { peer: from, cause });
                Ok(())
            }
            Err(error) => Err(broken(&error)),
        }
    }

    fn step(&mut self, input: Input) -> Result<(), WorkshopError> {
        let mut out = Outbox::new();
        self.machine.step(input, &mut out).map_err(|error| broken(&error))?;
        self.carry_out(out)
    }

    fn carry_out(&mut self, mut out: Outbox<Output>) -> Result<(), WorkshopError> {
        let mut orders: VecDeque<Output> = out.take().into();
        while let Some(order) = orders.pop_front() {
            match order {
                Output::Send { to, frame } if to == self.me => {
                    let input = Input::Frame { from: to, bytes: frame };
                    self.machine.step(input, &mut out).map_err(|error| broken(&error))?;
                    orders.extend(out.take());
                }
                Output::Send { to, frame } => self.queues.send(to, frame),
                Output::Sampled { entries, candidates } => {
                    self.tell(LaneEvent::Sampled { entries, candidates });
                }
                Output::Compare { cell, suspects } => {
                    self.workshop.suspect(cell, &suspects)?;
                    self.course.compared.insert(cell);
                    self.sent(cell);
                }
                Output::Settled { cell, drops } => {
                    self.workshop.settle(cell, drops)?;
                    self.tell(LaneEvent::Settled);
                    self.sent(cell);
                }
            }
        }
        self.close_cells();
        *self.figures.lock().expect("nobody panics while holding figures") = self.machine.report();
        Ok(())
    }

    /// The lane has sent everything of the cell that this pass needs; as an owner it may still owe verdicts.
    fn sent(&mut self, cell: u32) {
        self.course.owing.insert(cell);
        self.close_cells();
    }

    /// Closes the cells for which the lane owes no verdicts either.
    fn close_cells(&mut self) {
        let Course { walk, window, owing, .. } = &mut self.course;
        let machine = &self.machine;
        let Some(window) = window else { return };
        owing.retain(|&cell| {
            let owes =
                if *walk == Walk::Items { machine.owes(cell) } else { machine.owes_hashes(cell) };
            if !owes {
                window.close(cell);
            }
            owes
        });
    }

    fn tell(&self, event: LaneEvent) {
        // Without a listener the attempt is over.
        let _ = self.events.send(event);
    }
}

/// What a machine that refuses its driver's orders ends the worker with.
pub(super) fn broken(error: &ExchangeError) -> WorkshopError {
    let cause = error_text(error.to_string(), std::error::Error::source(error));
    WorkshopError { cause, resumable: false }
}
