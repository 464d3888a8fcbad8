//! Sizes of groups: how many records stand for each kept one, over all workers.
//!
//! A group is a kept record and what was dropped for it. Who dropped a record knows which one was kept for it, and who
//! kept that one does not know of the dropped. So each worker walks over its own records, range by range, and asks all
//! (itself, too) how many they have dropped for which:
//!
//! ```text
//!   keeper                                every worker
//!     │  Ask    (a range of its records) ──►  of these, for which have you dropped any?
//!     │  ◄── Claims  (record, how many)
//!     │  adds up: its groups in the range
//!     │  Sizes  (if the job wants them)  ──►  of the groups that were claimed, in the order of the claims
//!     │  Ask of no range: it has come to its end
//! ```
//!
//! A keeper has one range open, so all that is held in memory are the counts of a range and, of each worker, the coded
//! claims on it. All depends on what was dropped alone: a tally that was broken off is made again and gives the same.

mod code;
mod cost;
mod keeper;
#[cfg(test)]
mod tally_test;

use super::entry::{Place, WorkerId};
use super::error::{ExchangeError, FrameError};
use super::frame::{Frame, FrameKind, FrameLink, flag};
use super::report::ExchangeReport;
use super::sender::Draft;
use crate::limits::{DEDUP_WORKERS_MAX, FRAME_PAYLOAD_BYTES_CUT, PLACE_CHUNK_BITS};
use code::{decode_range, decode_sizes, encode_claims, encode_range};
use keeper::Keeper;
use umbel_step::Outbox;

pub use cost::tally_bits_per_entry;

/// Largest payload of a tally's frames: they are cut as soon as they have grown to the limit, and what is written
/// between two looks takes less than this beyond it.
const PAYLOAD_BYTES_MAX: usize = 2 * FRAME_PAYLOAD_BYTES_CUT;

/// How many of a worker's records were dropped for one that was kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Claim {
    /// The kept record.
    pub kept: Place,
    /// Records dropped for it; at least 1.
    pub dropped: u64,
}

/// A kept record for which others were dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Group {
    /// The kept record.
    pub kept: Place,
    /// Records of the group, the kept one included; at least 2.
    pub size: u64,
    /// Which part of which record the kept one is, where records have parts and it is another worker's: what its own
    /// worker knows anyway.
    pub part: Option<RecordPart>,
}

/// Which part of which record a place is, where records have several.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RecordPart {
    /// The record in its chunk, from 0.
    pub record: u64,
    /// The part of it, from 1.
    pub part: u64,
}

/// What a keeper tells of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupSize {
    /// Records of the group, the kept one included; at least 2.
    pub size: u64,
    /// Which part of which record the kept one is, where records have parts.
    pub part: Option<RecordPart>,
}

/// The places from one up to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlaceRange {
    /// The first one.
    pub start: Place,
    /// The first one behind the range.
    pub end: Place,
}

impl PlaceRange {
    /// Whether a place is in the range.
    ///
    /// ```
    /// use umbel_dedup_engine::{Place, PlaceRange};
    /// let range = PlaceRange { start: Place::new(1, 7), end: Place::new(3, 0) };
    /// assert!(range.contains(Place::new(1, 7)) && range.contains(Place::new(2, 99)));
    /// assert!(!range.contains(Place::new(3, 0)));
    /// ```
    #[must_use]
    pub fn contains(self, place: Place) -> bool {
        self.start <= place && place < self.end
    }
}

/// What all workers know of a tally.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TallyShape {
    /// Number of the job, in every frame's checksum.
    pub job: u64,
    /// The attempt: frames of other attempts are refused as damaged.
    pub attempt: u32,
    /// Number in the job of each worker's first chunk, in the order of workers.
    pub chunk_bases: Vec<u32>,
    /// Whether those who have dropped records hear how large the groups are.
    pub tells_sizes: bool,
    /// Whether records have parts: then they also hear which one each kept place is, and how large its group.
    pub names_parts: bool,
}

impl TallyShape {
    /// Whether there can be such a tally.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::JobShape`] for a number of workers beyond the limit, [`ExchangeError::Driver`] for chunks out of order.
    pub fn validate(&self) -> Result<(), ExchangeError> {
        let workers = self.chunk_bases.len();
        if workers == 0 || workers > DEDUP_WORKERS_MAX as usize {
            let (what, got, max) = ("workers", workers as u64, DEDUP_WORKERS_MAX);
            return Err(ExchangeError::JobShape { what, got, max });
        }
        let is_bounded = self.chunk_bases.iter().all(|base| *base < 1 << PLACE_CHUNK_BITS);
        if !is_bounded || !self.chunk_bases.is_sorted() {
            return Err(ExchangeError::Driver { what: "chunks numbered through all workers" });
        }
        Ok(())
    }

    /// Whether a keeper answers claims.
    const fn answers(&self) -> bool {
        self.tells_sizes || self.names_parts
    }

    /// Number behind a worker's last chunk.
    fn chunks_end(&self, worker: usize) -> u32 {
        self.chunk_bases.get(worker + 1).copied().unwrap_or(1 << PLACE_CHUNK_BITS)
    }
}

/// What a tally is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TallyInput {
    /// The worker's own chunks were read: how many places each has. Once, before anything else.
    Begin {
        /// Places of each chunk.
        places: Vec<u64>,
    },
    /// Answer to [`TallyOutput::Read`].
    Claims {
        /// Whose records they are.
        keeper: WorkerId,
        /// This worker's claims on them, in rising order.
        claims: Vec<Claim>,
    },
    /// Answer to [`TallyOutput::Name`].
    Parts(Vec<RecordPart>),
    /// A frame came from a worker (perhaps this one), undecoded.
    Frame {
        /// From whom.
        from: WorkerId,
        /// As it came.
        bytes: Vec<u8>,
    },
}

/// What a tally wants done, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TallyOutput {
    /// This frame to that worker, perhaps itself.
    Send {
        /// To whom.
        to: WorkerId,
        /// The frame.
        frame: Vec<u8>,
    },
    /// Answer with this worker's claims on records in the range.
    Read {
        /// Whose records they are.
        keeper: WorkerId,
        /// The range; those of one keeper rise.
        range: PlaceRange,
    },
    /// These are the worker's own groups, in rising order through all outputs.
    Groups(Vec<Group>),
    /// Answer with the parts that these places of the worker's own are, in their order.
    Name(Vec<Place>),
    /// So large are the groups that the worker has claimed in a range of another one's records, in the order of its
    /// claims.
    Sizes {
        /// Who has kept their records; not this worker, which knows its own groups.
        keeper: WorkerId,
        /// The range.
        range: PlaceRange,
        /// Of each group.
        sizes: Vec<GroupSize>,
    },
    /// The worker knows all that it wants to know; others may still ask.
    Done,
}

/// What one worker owes to a keeper, and hears of it.
#[derive(Clone, Debug, Default)]
struct Debt {
    /// Number of the range that the keeper opens next.
    next_range: u32,
    /// Its ranges begin here or behind.
    after: Place,
    /// The range that the driver was asked about.
    reading: Option<PlaceRange>,
    /// Claims that were made and whose sizes have not all come.
    awaited: Option<Awaited>,
    /// The keeper has come to its end.
    has_ended: bool,
}

#[derive(Clone, Debug)]
struct Awaited {
    range: PlaceRange,
    claims: u32,
    sizes: Vec<GroupSize>,
    sequence: u32,
}

/// The tally of one worker: a keeper, and one that has dropped records.
///
/// ```
/// use umbel_step::Outbox;
/// use umbel_dedup_engine::*;
/// let (tells_sizes, names_parts) = (false, false);
/// let shape = TallyShape { job: 7, attempt: 1, chunk_bases: vec![0], tells_sizes, names_parts };
/// let mut tally = Tally::new(WorkerId(0), shape).unwrap();
/// let mut outbox = Outbox::new();
/// let mut groups = Vec::new();
/// tally.step(TallyInput::Begin { places: vec![10] }, &mut outbox).unwrap();
/// let mut orders = outbox.take();
/// while !orders.is_empty() {
///     for order in std::mem::take(&mut orders) {
///         let input = match order {
///             TallyOutput::Send { to, frame } => TallyInput::Frame { from: to, bytes: frame },
///             // Two records were dropped for item 3 of chunk 0.
///             TallyOutput::Read { keeper, .. } => TallyInput::Claims {
///                 keeper, claims: vec![Claim { kept: Place::new(0, 3), dropped: 2 }] },
///             TallyOutput::Groups(found) => { groups.extend(found); continue }
///             _ => continue,
///         };
///         tally.step(input, &mut outbox).unwrap();
///         orders.extend(outbox.take());
///     }
/// }
/// assert_eq!(groups, [Group { kept: Place::new(0, 3), size: 3, part: None }]);
/// ```
pub struct Tally {
    me: WorkerId,
    shape: TallyShape,
    keeper: Option<Keeper>,
    debts: Vec<Debt>,
    report: ExchangeReport,
    is_done: bool,
}

impl Tally {
    /// A tally that waits for [`TallyInput::Begin`].
    ///
    /// # Errors
    ///
    /// Those of [`TallyShape::validate`], and [`ExchangeError::Driver`] for a worker that there is not.
    pub fn new(me: WorkerId, shape: TallyShape) -> Result<Self, ExchangeError> {
        shape.validate()?;
        if me.index() >= shape.chunk_bases.len() {
            return Err(ExchangeError::Driver { what: "a worker of the job" });
        }
        let debts = vec![Debt::default(); shape.chunk_bases.len()];
        let report = ExchangeReport::default();
        Ok(Self { me, shape, keeper: None, debts, report, is_done: false })
    }

    /// What the worker has sent.
    #[must_use]
    pub fn report(&self) -> ExchangeReport {
        self.report
    }

    /// One transition.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::Frame`] and [`ExchangeError::OutOfPhase`] for a peer's frame that was refused: the state is as before.
    /// [`ExchangeError::Driver`] for what the driver was not asked for.
    pub fn step(
        &mut self,
        input: TallyInput,
        out: &mut Outbox<TallyOutput>,
    ) -> Result<(), ExchangeError> {
        match input {
            TallyInput::Begin { places } => self.begin(&places, out)?,
            TallyInput::Claims { keeper, claims } => self.claim(keeper, &claims, out)?,
            TallyInput::Parts(parts) => self.named(&parts, out)?,
            TallyInput::Frame { from, bytes } => self.hear(from, &bytes, out)?,
        }
        let is_told = self.keeper.as_ref().is_some_and(Keeper::has_ended)
            && self.debts.iter().all(|debt| debt.has_ended);
        if is_told && !std::mem::replace(&mut self.is_done, true) {
            out.push(TallyOutput::Done);
        }
        Ok(())
    }

    fn begin(
        &mut self,
        places: &[u64],
        out: &mut Outbox<TallyOutput>,
    ) -> Result<(), ExchangeError> {
        let me = self.me.index();
        let chunks_end = u64::from(self.shape.chunk_bases[me]) + places.len() as u64;
        if self.keeper.is_some() || chunks_end > self.shape.chunks_end(me).into() {
            return Err(ExchangeError::Driver { what: "the worker's own chunks, once" });
        }
        let workers = self.shape.chunk_bases.len();
        self.keeper = Some(Keeper::new(self.shape.chunk_bases[me], places, workers)?);
        self.ask(out);
        Ok(())
    }

    /// Opens the next range, or tells all that there is none.
    fn ask(&mut self, out: &mut Outbox<TallyOutput>) {
        let Some(keeper) = &mut self.keeper else { return };
        let (number, range) = keeper.open_next();
        let payload = range.map_or_else(Vec::new, encode_range);
        let count = u32::from(range.is_some());
        let (kind, flags) = (FrameKind::Ask, flag::LAST);
        let draft = Draft { kind, flags, param: 0, sequence: 0, count, covered: 0, payload };
        let workers = u16::try_from(self.debts.len()).expect("at most 1,024 workers");
        (0..workers).for_each(|worker| self.send(WorkerId(worker), number, &draft, out));
    }

    fn claim(
        &mut self,
        keeper: WorkerId,
        claims: &[Claim],
        out: &mut Outbox<TallyOutput>,
    ) -> Result<(), ExchangeError> {
        let wrong = ExchangeError::Driver { what: "claims that were asked for, in rising order" };
        let debt = self.debts.get_mut(keeper.index()).ok_or(wrong.clone())?;
        let range = debt.reading.ok_or(wrong.clone())?;
        let is_rising = claims.is_sorted_by(|a, b| a.kept < b.kept);
        if !is_rising || !claims.iter().all(|c| range.contains(c.kept) && c.dropped > 0) {
            return Err(wrong);
        }
        debt.reading = None;
        let number = debt.next_range - 1;
        let count = u32::try_from(claims.len()).map_err(|_| wrong)?;
        if self.shape.answers() && count > 0 && keeper != self.me {
            let (sizes, sequence) = (Vec::new(), 0);
            debt.awaited = Some(Awaited { range, claims: count, sizes, sequence });
        }
        for draft in Draft::stream(FrameKind::Claims, 0, 0, encode_claims(range, claims)) {
            self.send(keeper, number, &draft, out);
        }
        Ok(())
    }

    fn hear(
        &mut self,
        from: WorkerId,
        bytes: &[u8],
        out: &mut Outbox<TallyOutput>,
    ) -> Result<(), ExchangeError> {
        let TallyShape { job, attempt, .. } = self.shape;
        let link = FrameLink { job, sender: from.0, receiver: self.me.0, attempt };
        let frame = Frame::decode(bytes, link);
        let frame = frame.map_err(|source| ExchangeError::Frame { from, cell: None, source })?;
        let (cell, kind) = (frame.cell, frame.kind);
        let refuse = |source| ExchangeError::Frame { from, cell: Some(cell), source };
        let workers = self.debts.len();
        if from.index() >= workers {
            let (got, max) = (from.0.into(), workers as u64 - 1);
            return Err(refuse(FrameError::TooLarge { field: "sender", got, max }));
        }
        if frame.payload.len() > PAYLOAD_BYTES_MAX {
            let (got, max) = (frame.payload.len() as u64, PAYLOAD_BYTES_MAX as u64);
            return Err(refuse(FrameError::TooLarge { field: "bytes", got, max }));
        }
        let is_due = match kind {
            FrameKind::Ask => self.asked(from, &frame, out).map_err(refuse)?,
            FrameKind::Claims => self.claimed(from, &frame, out).map_err(refuse)?,
            FrameKind::Sizes => self.told(from, &frame, out).map_err(refuse)?,
            _ => false,
        };
        if is_due { Ok(()) } else { Err(ExchangeError::OutOfPhase { from, cell, kind }) }
    }

    /// A keeper opens a range, or has come to its end. False if it may not.
    fn asked(
        &mut self,
        from: WorkerId,
        frame: &Frame<'_>,
        out: &mut Outbox<TallyOutput>,
    ) -> Result<bool, FrameError> {
        let base = self.shape.chunk_bases[from.index()];
        let chunks = base..self.shape.chunks_end(from.index());
        let debt = &mut self.debts[from.index()];
        if debt.has_ended || debt.reading.is_some() || debt.awaited.is_some() {
            return Ok(false);
        }
        expect("cell", debt.next_range.into(), frame.cell.into())?;
        expect("flags", flag::LAST.into(), frame.flags.into())?;
        if frame.count == 0 {
            expect("bytes", 0, frame.payload.len() as u64)?;
            debt.has_ended = true;
            return Ok(true);
        }
        let range = decode_range(frame)?;
        let last =
            range.end.to_bits().checked_sub(1).map_or(0, |bits| Place::from_bits(bits).chunk());
        let is_its_own = chunks.contains(&range.start.chunk()) && chunks.contains(&last);
        if !is_its_own || range.start < debt.after || range.end <= range.start {
            return Err(FrameError::Header { field: "range" });
        }
        (debt.reading, debt.after) = (Some(range), range.end);
        debt.next_range += 1;
        out.push(TallyOutput::Read { keeper: from, range });
        Ok(true)
    }

    /// A worker claims records of this one. False if it was not asked.
    fn claimed(
        &mut self,
        from: WorkerId,
        frame: &Frame<'_>,
        out: &mut Outbox<TallyOutput>,
    ) -> Result<bool, FrameError> {
        let Some(keeper) = &mut self.keeper else { return Ok(false) };
        let Some(is_whole) = keeper.hear(from, frame)? else { return Ok(false) };
        if is_whole {
            let groups = keeper.close();
            let kept: Vec<Place> = groups.iter().map(|group| group.kept).collect();
            if !groups.is_empty() {
                out.push(TallyOutput::Groups(groups));
            }
            if self.shape.names_parts && keeper.owes_answers(self.me) {
                out.push(TallyOutput::Name(kept));
            } else {
                self.answer(&[], out);
            }
        }
        Ok(true)
    }

    /// The parts that kept places of the closed range are.
    fn named(
        &mut self,
        parts: &[RecordPart],
        out: &mut Outbox<TallyOutput>,
    ) -> Result<(), ExchangeError> {
        let count = self.keeper.as_ref().and_then(Keeper::closed_groups);
        let are_possible = parts.iter().all(|part| part.part > 0);
        if !self.shape.names_parts || count != Some(parts.len()) || !are_possible {
            return Err(ExchangeError::Driver { what: "parts that were asked for, one a place" });
        }
        self.answer(parts, out);
        Ok(())
    }

    /// Tells of the groups of the closed range, and opens the next one.
    fn answer(&mut self, parts: &[RecordPart], out: &mut Outbox<TallyOutput>) {
        let Some(keeper) = &mut self.keeper else { return };
        let answers = keeper.answer(self.shape.answers().then_some(self.me), parts);
        for (to, number, drafts) in answers {
            drafts.iter().for_each(|draft| self.send(to, number, draft, out));
        }
        self.ask(out);
    }

    /// A keeper tells the sizes of groups. False if none were claimed.
    fn told(
        &mut self,
        from: WorkerId,
        frame: &Frame<'_>,
        out: &mut Outbox<TallyOutput>,
    ) -> Result<bool, FrameError> {
        let debt = &mut self.debts[from.index()];
        let Some(awaited) = debt.awaited.as_mut().filter(|_| debt.reading.is_none()) else {
            return Ok(false);
        };
        expect("cell", u64::from(debt.next_range) - 1, frame.cell.into())?;
        expect("covered", awaited.claims.into(), frame.covered.into())?;
        expect("sequence", awaited.sequence.into(), frame.sequence.into())?;
        let sizes = decode_sizes(frame, self.shape.names_parts)?;
        let (got, max) = (awaited.sizes.len() + sizes.len(), awaited.claims as usize);
        let is_last = frame.has(flag::LAST);
        if got > max || is_last != (got == max) || sizes.is_empty() {
            let (field, expected, got) = ("count", max as u64, got as u64);
            return Err(FrameError::Unexpected { field, expected, got });
        }
        awaited.sizes.extend(sizes);
        awaited.sequence += 1;
        if let Some(Awaited { range, sizes, .. }) = debt.awaited.take_if(|_| is_last) {
            out.push(TallyOutput::Sizes { keeper: from, range, sizes });
        }
        Ok(true)
    }

    fn send(&mut self, to: WorkerId, cell: u32, draft: &Draft, out: &mut Outbox<TallyOutput>) {
        let Draft { kind, flags, param, sequence, count, covered, ref payload } = *draft;
        let frame = Frame { kind, flags, param, cell, sequence, count, covered, payload };
        let TallyShape { job, attempt, .. } = self.shape;
        let link = FrameLink { job, sender: self.me.0, receiver: to.0, attempt };
        let bytes = frame.encode(link);
        self.report.sent(&frame, bytes.len(), to == self.me);
        out.push(TallyOutput::Send { to, frame: bytes });
    }
}

/// Refuses a field that is not what it must be.
fn expect(field: &'static str, expected: u64, got: u64) -> Result<(), FrameError> {
    if expected == got { Ok(()) } else { Err(FrameError::Unexpected { field, expected, got }) }
}
