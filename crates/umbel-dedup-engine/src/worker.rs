//! A worker of the exchange, as a state machine: checks each received frame and passes it to the sending or
//! the owning half of its cell.
//!
//! Inputs in order: the sample (if the coordinator orders one), the plan, then the worker's entries cell by
//! cell; frames at any time. A frame that arrives before the sample order or the plan is stored and processed
//! after it. Outputs: frames to send, the sample's counts, requests for items, and the drops of each cell.

use super::drops::Drops;
use super::entry::{Entry, Rank, Suspect, SuspectItem, WorkerId};
use super::error::ExchangeError;
use super::frame::{Frame, FrameKind, FrameLink};
use super::list::LocalList;
use super::owner::{Decision, OwnerCell};
use super::payload::{expect_at_most, expect_equal};
use super::plan::{JobShape, Mode, Plan, SampleOrder};
use super::report::ExchangeReport;
use super::sample::{SampleOwner, sample_drafts};
use super::sender::{Draft, SenderCell, SenderStep};
use crate::limits::{CELL_ENTRIES_MAX, DEDUP_CELLS_AHEAD_MAX, EARLY_FRAMES_PER_PEER_MAX};
use std::collections::{BTreeMap, BTreeSet};
use umbel_bits::{binary_entropy_bits, gap_entropy_bits};
use umbel_filter::{HashRange, ItemHash};
use umbel_step::Outbox;

/// The outputs of a transition.
type Out = Outbox<ExchangeOutput>;

/// An input of a worker.
#[derive(Clone, PartialEq, Debug)]
pub enum ExchangeInput {
    /// The coordinator has ordered the sample: for each owner the worker's entries in its [`JobShape::sample_range`], in
    /// any order.
    Sample {
        /// The order.
        order: SampleOrder,
        /// The entries, one list per owner.
        lists: Vec<Vec<Entry>>,
    },
    /// If the job has references, before [`ExchangeInput::Sample`]: their hashes in this worker's [`JobShape::sample_range`], in
    /// any order.
    SampleReferences {
        /// The hashes.
        hashes: Vec<ItemHash>,
    },
    /// If the job has references, once for every cell that this worker owns: their hashes in it, in any order.
    References {
        /// The cell.
        cell: u32,
        /// The hashes.
        hashes: Vec<ItemHash>,
    },
    /// The plan, by which every cell is exchanged.
    Plan(Plan),
    /// All of the worker's entries in a cell, in any order, repeats included. Exactly once for each cell of
    /// the job.
    Cell {
        /// The cell.
        cell: u32,
        /// The entries.
        entries: Vec<Entry>,
        /// Their ranks, one per entry; empty unless [`JobShape::ranks_entries`].
        ranks: Vec<Rank>,
    },
    /// The items of the records that [`ExchangeOutput::Compare`] listed, in any order.
    Items {
        /// The cell.
        cell: u32,
        /// The items.
        items: Vec<SuspectItem>,
    },
    /// A frame was received from a worker (possibly this one).
    Frame {
        /// The sender.
        from: WorkerId,
        /// The frame, undecoded.
        bytes: Vec<u8>,
    },
}

/// An output of a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExchangeOutput {
    /// Send a frame to a worker (possibly this one).
    Send {
        /// The receiver.
        to: WorkerId,
        /// The frame.
        frame: Vec<u8>,
    },
    /// Report to the coordinator what this worker, as an owner, has counted in the sample.
    Sampled {
        /// Entries of all workers in the sample.
        entries: u64,
        /// How many of them collided.
        candidates: u64,
    },
    /// At exactness `bytes`: read the items of these records again and answer with [`ExchangeInput::Items`].
    Compare {
        /// The cell.
        cell: u32,
        /// The records.
        suspects: Vec<Suspect>,
    },
    /// The worker's entries in the cell are decided: these records are dropped, all others are kept.
    Decided {
        /// The cell.
        cell: u32,
        /// The dropped records.
        drops: Drops,
    },
}

/// One worker of the exchange: the sending half for its entries in every cell, the owning half for its own cells.
///
/// [`Mailbox`](super::Mailbox) shows an exchange of two.
pub struct Worker {
    me: WorkerId,
    shape: JobShape,
    job: u64,
    attempt: u32,
    plan: Option<Plan>,
    sample: Option<SampleOwner>,
    sample_references: Vec<ItemHash>,
    senders: BTreeMap<u32, SenderCell>,
    owners: BTreeMap<u32, OwnerCell>,
    sent: BTreeSet<u32>,
    owned: BTreeSet<u32>,
    /// Cells for which a peer has sent frames, but this worker has not yet received its own entries.
    ahead: BTreeSet<u32>,
    early: Vec<(WorkerId, Vec<u8>)>,
    report: ExchangeReport,
}

impl Worker {
    /// A worker that waits for the sample order or the plan.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::JobShape`] if the shape is beyond a limit.
    pub fn new(me: WorkerId, shape: JobShape, job: u64) -> Result<Self, ExchangeError> {
        shape.validate()?;
        Ok(Self {
            me,
            shape,
            job,
            attempt: 0,
            plan: None,
            sample: None,
            sample_references: Vec::new(),
            senders: BTreeMap::new(),
            owners: BTreeMap::new(),
            sent: BTreeSet::new(),
            owned: BTreeSet::new(),
            ahead: BTreeSet::new(),
            early: Vec::new(),
            report: ExchangeReport::default(),
        })
    }

    /// Sets the attempt at the exchange (0 if not set). Frames of other attempts are rejected as damaged.
    #[must_use]
    pub fn in_attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// Counters of what the worker has sent and found so far.
    #[must_use]
    pub fn report(&self) -> ExchangeReport {
        self.report
    }

    /// Bytes of memory that the lists and streams of open cells and the stored early frames take; this grows
    /// with the input. Items at exactness `bytes` are not counted.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        let senders: usize = self.senders.values().map(SenderCell::held_bytes).sum();
        let owners: usize = self.owners.values().map(OwnerCell::held_bytes).sum();
        let early: usize = self.early.iter().map(|(_, frame)| frame.len()).sum();
        (senders + owners + early) as u64
    }

    /// Whether no cell is open: the worker waits for no frame, neither as sender nor as owner.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.senders.is_empty() && self.owners.is_empty()
    }

    /// Whether the worker, as the owner of this cell, has received frames and not yet sent the last verdict.
    #[must_use]
    pub fn owes(&self, cell: u32) -> bool {
        self.owners.contains_key(&cell)
    }

    /// As [`Worker::owes`], for verdicts on hashes alone: at exactness `bytes` those on items may still be missing.
    #[must_use]
    pub fn owes_hashes(&self, cell: u32) -> bool {
        self.owners.get(&cell).is_some_and(|owner| !owner.awaits_items())
    }

    /// One transition.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::Frame`], [`ExchangeError::OutOfPhase`], [`ExchangeError::TooEarly`] and
    /// [`ExchangeError::TooFarAhead`] for a peer's frame that was rejected: the state is unchanged.
    /// [`ExchangeError::Driver`] and [`ExchangeError::CellTooLarge`] for other inputs that are not possible
    /// in this state: fail the job.
    pub fn step(
        &mut self,
        input: ExchangeInput,
        out: &mut Outbox<ExchangeOutput>,
    ) -> Result<(), ExchangeError> {
        match input {
            ExchangeInput::Sample { order, lists } => self.sample(order, lists, out),
            ExchangeInput::SampleReferences { hashes } => {
                self.sample_references = hashes;
                Ok(())
            }
            ExchangeInput::References { cell, hashes } => self.references(cell, hashes, out),
            ExchangeInput::Plan(plan) => self.take_plan(plan, out),
            ExchangeInput::Cell { cell, entries, ranks } => self.cell(cell, entries, &ranks, out),
            ExchangeInput::Items { cell, items } => self.items(cell, items, out),
            ExchangeInput::Frame { from, bytes } => self.frame(from, bytes, out),
        }
    }

    fn sample(
        &mut self,
        order: SampleOrder,
        lists: Vec<Vec<Entry>>,
        out: &mut Out,
    ) -> Result<(), ExchangeError> {
        if self.sample.is_some() || lists.len() != self.shape.workers as usize {
            return Err(ExchangeError::Driver { what: "one sample list an owner, once" });
        }
        self.sample = Some(self.sample_owner(order));
        for (owner, entries) in (0u16..).zip(lists) {
            let range = self.shape.sample_range(owner.into());
            let list = LocalList::build(entries, range, self.shape.keep);
            let cell = u32::from(owner) * self.shape.cells_per_owner;
            for draft in sample_drafts(order, range, &list) {
                self.send(WorkerId(owner), cell, &draft, out);
            }
        }
        self.replay_early(out)
    }

    fn sample_owner(&mut self, order: SampleOrder) -> SampleOwner {
        let references = std::mem::take(&mut self.sample_references);
        SampleOwner::new(order, self.shape, u32::from(self.me.0), &references)
    }

    /// Passes the references' hashes in a cell to the cell's owning half.
    fn references(
        &mut self,
        cell: u32,
        hashes: Vec<ItemHash>,
        out: &mut Out,
    ) -> Result<(), ExchangeError> {
        let wrong = ExchangeError::Driver { what: "references of each cell to its owner, once" };
        let plan = self.plan.filter(|plan| plan.references.is_some()).ok_or(wrong.clone())?;
        let cells = self.shape.cells();
        let is_mine = cell < cells.get() && self.shape.owner(cell) == u32::from(self.me.0);
        let range = is_mine.then(|| HashRange::cell(cell, cells)).ok_or(wrong.clone())?;
        if self.owned.contains(&cell) || !hashes.iter().all(|hash| range.contains(hash.hi())) {
            return Err(wrong);
        }
        let owner = self.owners.entry(cell).or_insert_with(|| OwnerCell::new(&plan));
        if let Some(decision) = owner.take_references(&plan, cell, hashes).ok_or(wrong)? {
            self.decide(cell, decision, out);
        }
        Ok(())
    }

    fn take_plan(&mut self, plan: Plan, out: &mut Out) -> Result<(), ExchangeError> {
        if self.plan.is_some() || plan.shape != self.shape {
            return Err(ExchangeError::Driver { what: "one plan, of this job" });
        }
        self.plan = Some(plan);
        self.replay_early(out)
    }

    fn cell(
        &mut self,
        cell: u32,
        mut entries: Vec<Entry>,
        ranks: &[Rank],
        out: &mut Out,
    ) -> Result<(), ExchangeError> {
        let plan = self.plan.ok_or(ExchangeError::Driver { what: "a cell before the plan" })?;
        if cell >= self.shape.cells().get() || !self.sent.insert(cell) {
            return Err(ExchangeError::Driver { what: "each cell of the job, once" });
        }
        if entries.len() > CELL_ENTRIES_MAX {
            let (got, max) = (entries.len(), CELL_ENTRIES_MAX);
            return Err(ExchangeError::CellTooLarge { cell, got, max });
        }
        if ranks.len() != if self.shape.ranks_entries() { entries.len() } else { 0 } {
            return Err(ExchangeError::Driver { what: "one rank an entry, where entries rank" });
        }
        self.ahead.remove(&cell);
        self.report.items += entries.len() as u64;
        if let Some(truncation) = plan.truncation {
            entries.iter_mut().for_each(|entry| entry.hash = truncation.apply(entry.hash));
        }
        let range = HashRange::cell(cell, self.shape.cells());
        let list = if self.shape.ranks_entries() {
            LocalList::build_ranked(&entries, ranks, range)
        } else if plan.mode == Mode::Local {
            LocalList::build_unsorted(entries, range, self.shape.keep)
        } else {
            LocalList::build(entries, range, self.shape.keep)
        };
        self.report.entries += list.distinct_count() as u64;
        if plan.mode == Mode::Filter && !list.entries().is_empty() {
            let count = list.entries().len() as f64;
            let width = plan.cell_shape(cell).width() as f64;
            let bits = count * gap_entropy_bits(width / count);
            self.report.add_entropy(FrameKind::Positions, bits);
        }
        let (sender, step) = SenderCell::start(&plan, cell, list);
        self.senders.insert(cell, sender);
        self.follow(cell, step, out);
        Ok(())
    }

    fn items(
        &mut self,
        cell: u32,
        items: Vec<SuspectItem>,
        out: &mut Out,
    ) -> Result<(), ExchangeError> {
        let wrong = ExchangeError::Driver { what: "items that were asked for, once" };
        let plan = self.plan.ok_or(wrong.clone())?;
        let sender = self.senders.get_mut(&cell).ok_or(wrong.clone())?;
        let step = sender.items(&plan, items).ok_or(wrong)?;
        self.report.collisions += sender.local_collisions();
        self.follow(cell, step, out);
        Ok(())
    }

    fn send_all(&mut self, cell: u32, drafts: &[Draft], out: &mut Out) {
        let owner = u16::try_from(self.shape.owner(cell)).expect("at most 1,024 workers");
        drafts.iter().for_each(|draft| self.send(WorkerId(owner), cell, draft, out));
    }

    /// Carries out a step of the sending half.
    fn follow(&mut self, cell: u32, step: SenderStep, out: &mut Out) {
        match step {
            SenderStep::Send(drafts) => self.send_all(cell, &drafts, out),
            SenderStep::SendNothing(drafts) => {
                self.send_all(cell, &drafts, out);
                self.finish_cell(cell, Drops::default(), out);
            }
            SenderStep::Compare(suspects) => out.push(ExchangeOutput::Compare { cell, suspects }),
            SenderStep::Decided(drops) => self.finish_cell(cell, drops, out),
        }
    }

    fn finish_cell(&mut self, cell: u32, drops: Drops, out: &mut Out) {
        self.senders.remove(&cell);
        self.report.cross_drops += drops.cross;
        self.report.reference_drops += drops.reference;
        self.report.local_drops += drops.record_ids.len() as u64 - drops.cross - drops.reference;
        out.push(ExchangeOutput::Decided { cell, drops });
    }

    fn frame(
        &mut self,
        from: WorkerId,
        bytes: Vec<u8>,
        out: &mut Out,
    ) -> Result<(), ExchangeError> {
        let refuse = |cell, source| ExchangeError::Frame { from, cell, source };
        let link =
            FrameLink { job: self.job, sender: from.0, receiver: self.me.0, attempt: self.attempt };
        let frame = Frame::decode(&bytes, link).map_err(|source| refuse(None, source))?;
        let cell = frame.cell;
        let refuse = |source| refuse(Some(cell), source);
        let out_of_phase = ExchangeError::OutOfPhase { from, cell, kind: frame.kind };
        let worker_max = self.shape.workers as usize - 1;
        expect_at_most("sender", from.index(), worker_max).map_err(refuse)?;
        let cell_max = self.shape.cells().get() as usize - 1;
        expect_at_most("cell", cell as usize, cell_max).map_err(refuse)?;
        if frame.kind.is_group_count() {
            return Err(out_of_phase);
        }
        let owner = self.shape.owner(cell);
        let expected_owner = if frame.kind.is_verdict() { from.0 } else { self.me.0 };
        expect_equal("owner", owner, expected_owner).map_err(refuse)?;
        if frame.kind == FrameKind::Sample {
            let Some(sample) = &mut self.sample else { return self.stash(from, bytes) };
            if let Some((entries, candidates)) = sample.receive(from, &frame).map_err(refuse)? {
                out.push(ExchangeOutput::Sampled { entries, candidates });
            }
            return Ok(());
        }
        let Some(plan) = self.plan else { return self.stash(from, bytes) };
        if frame.kind.is_verdict() {
            return self.verdict(&plan, from, &frame, out);
        }
        if plan.mode == Mode::Local {
            return Err(out_of_phase);
        }
        if self.owned.contains(&cell) {
            return Ok(()); // A repetition: the cell is done.
        }
        if !self.sent.contains(&cell) && !self.ahead.contains(&cell) {
            let max = DEDUP_CELLS_AHEAD_MAX;
            if self.ahead.len() >= max {
                return Err(ExchangeError::TooFarAhead { from, cell, max });
            }
            self.ahead.insert(cell);
        }
        let owner = self.owners.entry(cell).or_insert_with(|| OwnerCell::new(&plan));
        if let Some(decision) = owner.receive(&plan, cell, from, &frame).map_err(refuse)? {
            self.decide(cell, decision, out);
        }
        Ok(())
    }

    fn verdict(
        &mut self,
        plan: &Plan,
        from: WorkerId,
        frame: &Frame<'_>,
        out: &mut Out,
    ) -> Result<(), ExchangeError> {
        let cell = frame.cell;
        let Some(sender) = self.senders.get_mut(&cell) else {
            if self.sent.contains(&cell) {
                return Ok(()); // A repetition: the cell is decided.
            }
            return Err(ExchangeError::OutOfPhase { from, cell, kind: frame.kind });
        };
        let refuse = |source| ExchangeError::Frame { from, cell: Some(cell), source };
        let step = sender.verdict(plan, cell, frame).map_err(refuse)?;
        let Some(step) = step else { return Ok(()) };
        let undecided = sender.undecided_count() as u64;
        match frame.kind {
            FrameKind::PositionsVerdict => self.report.candidates += undecided,
            FrameKind::RefineVerdict => self.report.survivors += undecided,
            _ => {}
        }
        self.follow(cell, step, out);
        Ok(())
    }

    /// Sends the verdicts of a completed pass, and closes the cell if it is done.
    fn decide(&mut self, cell: u32, decision: Decision, out: &mut Out) {
        for (to, draft) in decision.verdicts {
            if matches!(draft.kind, FrameKind::PositionsVerdict | FrameKind::RefineVerdict) {
                let covered = f64::from(draft.covered);
                let share = f64::from(draft.count) / covered; // with COMPLEMENT, 1 − share: H2 is symmetric
                self.report.add_entropy(draft.kind, covered * binary_entropy_bits(share));
            }
            self.send(to, cell, &draft, out);
        }
        if decision.done {
            let owner = self.owners.remove(&cell).expect("it has just decided");
            self.report.shared += owner.shared;
            self.report.collisions += owner.collisions;
            self.owned.insert(cell);
        }
    }

    fn send(&mut self, to: WorkerId, cell: u32, draft: &Draft, out: &mut Out) {
        let Draft { kind, flags, param, sequence, count, covered, ref payload } = *draft;
        let frame = Frame { kind, flags, param, cell, sequence, count, covered, payload };
        let link =
            FrameLink { job: self.job, sender: self.me.0, receiver: to.0, attempt: self.attempt };
        let bytes = frame.encode(link);
        self.report.sent(&frame, bytes.len(), to == self.me);
        out.push(ExchangeOutput::Send { to, frame: bytes });
    }

    /// Stores a frame that arrived before the sample order or the plan.
    fn stash(&mut self, from: WorkerId, bytes: Vec<u8>) -> Result<(), ExchangeError> {
        let max = EARLY_FRAMES_PER_PEER_MAX;
        if self.early.iter().filter(|(peer, _)| *peer == from).count() >= max {
            return Err(ExchangeError::TooEarly { from, max });
        }
        self.early.push((from, bytes));
        Ok(())
    }

    fn replay_early(&mut self, out: &mut Out) -> Result<(), ExchangeError> {
        let early = std::mem::take(&mut self.early);
        early.into_iter().try_for_each(|(from, bytes)| self.frame(from, bytes, out))
    }
}
