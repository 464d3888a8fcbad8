//! Counts the groups over all workers: how many records each kept one stands for.
//!
//! A *group* is a kept record and the records dropped for it. The worker that dropped a record knows which
//! one was kept for it; the *owner* of the kept record, the worker that has read it, does not know of the
//! drops. So each worker, as the owner of its own records, sends one range of its records after the other to
//! all workers (including itself), and they answer with *claims*: for each record of the range, the number of
//! records that they have dropped for it.
//!
//! ```text
//!   owner                                 every worker
//!     │  Ask    (a range of its records) ──►  looks up its drops for records in the range
//!     │  ◄── Claims  (record, drop count)
//!     │  adds up: its groups in the range
//!     │  Sizes  (if the job needs them)  ──►  the sizes of the groups that it claimed, in the order of its claims
//!     │  Ask without a range             ──►  this owner has no more ranges
//! ```
//!
//! Input of [`GroupCounter`]: the number of records of each chunk, then claims and record parts as it
//! requests them, and frames. Output: the owner's groups in ascending order, and the sizes of the groups that
//! it has claimed at other owners. An owner has one range open at a time, so its memory is the counters of
//! that range and the encoded claims of all workers on it. The result depends only on the drops, so a count
//! that was interrupted can be repeated.

mod code;
mod cost;
#[cfg(test)]
mod group_count_test;
mod owner;

use super::entry::{RecordId, WorkerId};
use super::error::{ExchangeError, ExchangeFrameError};
use super::frame::{Frame, FrameKind, FrameLink, flag};
use super::payload::{expect_at_most, expect_equal};
use super::report::ExchangeReport;
use super::sender::Draft;
use crate::FrameResult;
use crate::limits::{DEDUP_WORKERS_MAX, FRAME_PAYLOAD_BYTES_CUT, RECORD_ID_CHUNK_BITS};
use code::{decode_range, decode_sizes, encode_claims, encode_range};
use owner::GroupOwner;
use umbel_step::Outbox;

pub use cost::group_count_bits_per_entry;

/// The outputs of a transition.
type Out = Outbox<GroupCountOutput>;

/// Largest payload of these frames: a frame is complete once its payload reaches FRAME_PAYLOAD_BYTES_CUT, and
/// one more claim or size takes far less than that.
const PAYLOAD_BYTES_MAX: usize = 2 * FRAME_PAYLOAD_BYTES_CUT;

/// How many records one worker has dropped for a kept one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Claim {
    /// The kept record.
    pub kept: RecordId,
    /// Records dropped for it; at least 1.
    pub dropped: u64,
}

/// A kept record and how many records it stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KeptGroup {
    /// The kept record.
    pub kept: RecordId,
    /// Records of the group, the kept one included; at least 2.
    pub size: u64,
    /// The record and part that the id stands for, if records have parts and another worker owns the kept one
    /// (the owner can look them up itself).
    pub part: Option<RecordPart>,
}

/// The record, and its part, that a record id stands for, if records are compared in parts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RecordPart {
    /// The record's number in its chunk, from 0.
    pub record: u64,
    /// The part's number in the record, from 1.
    pub part: u64,
}

/// What an owner sends about a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupSize {
    /// Records of the group, the kept one included; at least 2.
    pub size: u64,
    /// The record and part that the kept record's id stands for, if records have parts.
    pub part: Option<RecordPart>,
}

/// A half-open range of record ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordRange {
    /// The first one.
    pub start: RecordId,
    /// The first one after the range.
    pub end: RecordId,
}

impl RecordRange {
    /// Whether a record id is in the range.
    ///
    /// ```
    /// use umbel_dedup_engine::{RecordId, RecordRange};
    /// let range = RecordRange { start: RecordId::new(1, 7), end: RecordId::new(3, 0) };
    /// assert!(range.contains(RecordId::new(1, 7)) && range.contains(RecordId::new(2, 99)));
    /// assert!(!range.contains(RecordId::new(3, 0)));
    /// ```
    #[must_use]
    pub fn contains(self, record_id: RecordId) -> bool {
        self.start <= record_id && record_id < self.end
    }
}

/// What all workers agree on before they count groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupCountShape {
    /// Number of the job, which every frame's checksum covers.
    pub job: u64,
    /// The attempt: frames of other attempts are rejected as damaged.
    pub attempt: u32,
    /// Number in the job of each worker's first chunk, in the order of workers.
    pub chunk_bases: Vec<u32>,
    /// Whether owners answer claims with the sizes of the groups.
    pub sends_sizes: bool,
    /// Whether records have parts: then owners answer claims with sizes, records and parts.
    pub names_parts: bool,
}

impl GroupCountShape {
    /// Checks the number of workers and the chunks.
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
        let is_bounded = self.chunk_bases.iter().all(|base| *base < 1 << RECORD_ID_CHUNK_BITS);
        if !is_bounded || !self.chunk_bases.is_sorted() {
            return Err(ExchangeError::Driver { what: "chunks numbered through all workers" });
        }
        Ok(())
    }

    /// Whether owners answer claims.
    const fn answers_claims(&self) -> bool {
        self.sends_sizes || self.names_parts
    }

    /// The number after a worker's last chunk.
    fn chunks_end(&self, worker: usize) -> u32 {
        self.chunk_bases.get(worker + 1).copied().unwrap_or(1 << RECORD_ID_CHUNK_BITS)
    }
}

/// An input of a [`GroupCounter`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupCountInput {
    /// Begin. Must be the first input; only once.
    Begin {
        /// Number of record ids of each of the worker's own chunks.
        record_counts: Vec<u64>,
    },
    /// Answer to [`GroupCountOutput::Read`].
    Claims {
        /// The owner of the range.
        owner: WorkerId,
        /// This worker's claims on records of the range, ascending.
        claims: Vec<Claim>,
    },
    /// Answer to [`GroupCountOutput::Name`].
    Parts(Vec<RecordPart>),
    /// A frame was received from a worker (possibly this one).
    Frame {
        /// The sender.
        from: WorkerId,
        /// The frame, undecoded.
        bytes: Vec<u8>,
    },
}

/// An output of a [`GroupCounter`], to be carried out in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupCountOutput {
    /// Send a frame to a worker (possibly this one).
    Send {
        /// The receiver.
        to: WorkerId,
        /// The frame.
        frame: Vec<u8>,
    },
    /// Look up this worker's claims on records of the range, and answer with [`GroupCountInput::Claims`].
    Read {
        /// The owner of the range.
        owner: WorkerId,
        /// The range; the ranges of one owner are ascending.
        range: RecordRange,
    },
    /// Groups of this worker's own records, ascending over all outputs.
    Groups(Vec<KeptGroup>),
    /// Look up the record and part of these record ids of this worker, and answer with
    /// [`GroupCountInput::Parts`] in the same order.
    Name(Vec<RecordId>),
    /// The sizes of the groups that this worker has claimed in a range of another worker's records, in the order of its
    /// claims.
    Sizes {
        /// The owner of the range, never this worker: its own groups are in [`GroupCountOutput::Groups`].
        owner: WorkerId,
        /// The range.
        range: RecordRange,
        /// One per claim.
        sizes: Vec<GroupSize>,
    },
    /// The worker has all its groups and sizes, and all owners have finished their ranges.
    Done,
}

/// What this worker knows about the ranges of one owner.
#[derive(Clone, Debug, Default)]
struct OwnerProgress {
    /// Number of the range that the owner opens next.
    next_range: u32,
    /// The next range begins at this record id or later.
    after: RecordId,
    /// The range whose claims the driver is looking up.
    reading: Option<RecordRange>,
    /// The range whose claims were sent, and of whose sizes some are missing.
    pending: Option<PendingSizes>,
    /// The owner has no more ranges.
    has_ended: bool,
}

#[derive(Clone, Debug)]
struct PendingSizes {
    range: RecordRange,
    claims: u32,
    sizes: Vec<GroupSize>,
    sequence: u32,
}

/// Counts the groups at one worker, both as the owner of its records and as a worker that has dropped records.
///
/// ```
/// use umbel_step::Outbox;
/// use umbel_dedup_engine::*;
/// let (sends_sizes, names_parts) = (false, false);
/// let shape = GroupCountShape { job: 7, attempt: 1, chunk_bases: vec![0], sends_sizes, names_parts };
/// let mut group_count = GroupCounter::new(WorkerId(0), shape).unwrap();
/// let mut outbox = Outbox::new();
/// let mut groups = Vec::new();
/// group_count.step(GroupCountInput::Begin { record_counts: vec![10] }, &mut outbox).unwrap();
/// let mut orders = outbox.take();
/// while !orders.is_empty() {
///     for order in std::mem::take(&mut orders) {
///         let input = match order {
///             GroupCountOutput::Send { to, frame } => GroupCountInput::Frame { from: to, bytes: frame },
///             // Two records were dropped for item 3 of chunk 0.
///             GroupCountOutput::Read { owner, .. } => GroupCountInput::Claims {
///                 owner, claims: vec![Claim { kept: RecordId::new(0, 3), dropped: 2 }] },
///             GroupCountOutput::Groups(found) => { groups.extend(found); continue }
///             _ => continue,
///         };
///         group_count.step(input, &mut outbox).unwrap();
///         orders.extend(outbox.take());
///     }
/// }
/// assert_eq!(groups, [KeptGroup { kept: RecordId::new(0, 3), size: 3, part: None }]);
/// ```
pub struct GroupCounter {
    me: WorkerId,
    shape: GroupCountShape,
    owner: Option<GroupOwner>,
    owners: Vec<OwnerProgress>,
    report: ExchangeReport,
    is_done: bool,
}

impl GroupCounter {
    /// A counter that waits for [`GroupCountInput::Begin`].
    ///
    /// # Errors
    ///
    /// Those of [`GroupCountShape::validate`], and [`ExchangeError::Driver`] for a worker that the job does not have.
    pub fn new(me: WorkerId, shape: GroupCountShape) -> Result<Self, ExchangeError> {
        shape.validate()?;
        if me.index() >= shape.chunk_bases.len() {
            return Err(ExchangeError::Driver { what: "a worker of the job" });
        }
        let owners = vec![OwnerProgress::default(); shape.chunk_bases.len()];
        let report = ExchangeReport::default();
        Ok(Self { me, shape, owner: None, owners, report, is_done: false })
    }

    /// Counters of what the worker has sent.
    #[must_use]
    pub fn report(&self) -> ExchangeReport {
        self.report
    }

    /// One transition.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::Frame`] and [`ExchangeError::OutOfPhase`] for a peer's frame that was refused: the state is
    /// unchanged. [`ExchangeError::Driver`] for an input that was not requested.
    pub fn step(
        &mut self,
        input: GroupCountInput,
        out: &mut Outbox<GroupCountOutput>,
    ) -> Result<(), ExchangeError> {
        match input {
            GroupCountInput::Begin { record_counts } => self.begin(&record_counts, out)?,
            GroupCountInput::Claims { owner, claims } => self.send_claims(owner, &claims, out)?,
            GroupCountInput::Parts(parts) => self.take_parts(&parts, out)?,
            GroupCountInput::Frame { from, bytes } => self.receive(from, &bytes, out)?,
        }
        let has_all = self.owner.as_ref().is_some_and(GroupOwner::has_ended)
            && self.owners.iter().all(|progress| progress.has_ended);
        if has_all && !std::mem::replace(&mut self.is_done, true) {
            out.push(GroupCountOutput::Done);
        }
        Ok(())
    }

    fn begin(&mut self, record_counts: &[u64], out: &mut Out) -> Result<(), ExchangeError> {
        let me = self.me.index();
        let chunks_end = u64::from(self.shape.chunk_bases[me]) + record_counts.len() as u64;
        if self.owner.is_some() || chunks_end > self.shape.chunks_end(me).into() {
            return Err(ExchangeError::Driver { what: "the worker's own chunks, once" });
        }
        let workers = self.shape.chunk_bases.len();
        self.owner = Some(GroupOwner::new(self.shape.chunk_bases[me], record_counts, workers)?);
        self.open_next_range(out);
        Ok(())
    }

    /// Sends the next range to all workers, or an Ask without a range if there is none.
    fn open_next_range(&mut self, out: &mut Out) {
        let Some(owner) = &mut self.owner else { return };
        let (number, range) = owner.open_next();
        let payload = range.map_or_else(Vec::new, encode_range);
        let count = u32::from(range.is_some());
        let (kind, flags) = (FrameKind::Ask, flag::LAST);
        let draft = Draft { kind, flags, param: 0, sequence: 0, count, covered: 0, payload };
        let workers = u16::try_from(self.owners.len()).expect("at most 1,024 workers");
        (0..workers).for_each(|worker| self.send(WorkerId(worker), number, &draft, out));
    }

    fn send_claims(
        &mut self,
        owner: WorkerId,
        claims: &[Claim],
        out: &mut Out,
    ) -> Result<(), ExchangeError> {
        let wrong = ExchangeError::Driver { what: "claims that were asked for, in rising order" };
        let progress = self.owners.get_mut(owner.index()).ok_or(wrong.clone())?;
        let range = progress.reading.ok_or(wrong.clone())?;
        let is_rising = claims.is_sorted_by(|a, b| a.kept < b.kept);
        if !is_rising || !claims.iter().all(|c| range.contains(c.kept) && c.dropped > 0) {
            return Err(wrong);
        }
        progress.reading = None;
        let number = progress.next_range - 1;
        let count = u32::try_from(claims.len()).map_err(|_| wrong)?;
        if self.shape.answers_claims() && count > 0 && owner != self.me {
            let (sizes, sequence) = (Vec::new(), 0);
            progress.pending = Some(PendingSizes { range, claims: count, sizes, sequence });
        }
        for draft in Draft::stream(FrameKind::Claims, 0, 0, encode_claims(range, claims)) {
            self.send(owner, number, &draft, out);
        }
        Ok(())
    }

    fn receive(
        &mut self,
        from: WorkerId,
        bytes: &[u8],
        out: &mut Out,
    ) -> Result<(), ExchangeError> {
        let GroupCountShape { job, attempt, .. } = self.shape;
        let link = FrameLink { job, sender: from.0, receiver: self.me.0, attempt };
        let frame = Frame::decode(bytes, link);
        let frame = frame.map_err(|source| ExchangeError::Frame { from, cell: None, source })?;
        let (cell, kind) = (frame.cell, frame.kind);
        let refuse = |source| ExchangeError::Frame { from, cell: Some(cell), source };
        expect_at_most("sender", from.index(), self.owners.len() - 1).map_err(refuse)?;
        expect_at_most("bytes", frame.payload.len(), PAYLOAD_BYTES_MAX).map_err(refuse)?;
        let is_due = match kind {
            FrameKind::Ask => self.receive_ask(from, &frame, out).map_err(refuse)?,
            FrameKind::Claims => self.receive_claims(from, &frame, out).map_err(refuse)?,
            FrameKind::Sizes => self.receive_sizes(from, &frame, out).map_err(refuse)?,
            _ => false,
        };
        if is_due { Ok(()) } else { Err(ExchangeError::OutOfPhase { from, cell, kind }) }
    }

    /// Processes an owner's next range, or the end of its ranges. False if that is not possible now.
    fn receive_ask(
        &mut self,
        from: WorkerId,
        frame: &Frame<'_>,
        out: &mut Out,
    ) -> FrameResult<bool> {
        let base = self.shape.chunk_bases[from.index()];
        let chunks = base..self.shape.chunks_end(from.index());
        let progress = &mut self.owners[from.index()];
        if progress.has_ended || progress.reading.is_some() || progress.pending.is_some() {
            return Ok(false);
        }
        expect_equal("cell", progress.next_range, frame.cell)?;
        expect_equal("flags", flag::LAST, frame.flags)?;
        if frame.count == 0 {
            expect_equal("bytes", 0_u64, frame.payload.len() as u64)?;
            progress.has_ended = true;
            return Ok(true);
        }
        let range = decode_range(frame)?;
        let last =
            range.end.to_bits().checked_sub(1).map_or(0, |bits| RecordId::from_bits(bits).chunk());
        let is_its_own = chunks.contains(&range.start.chunk()) && chunks.contains(&last);
        if !is_its_own || range.start < progress.after || range.end <= range.start {
            return Err(ExchangeFrameError::Header { field: "range" });
        }
        (progress.reading, progress.after) = (Some(range), range.end);
        progress.next_range += 1;
        out.push(GroupCountOutput::Read { owner: from, range });
        Ok(true)
    }

    /// Processes a worker's claims on the open range. False if none are expected from it.
    fn receive_claims(
        &mut self,
        from: WorkerId,
        frame: &Frame<'_>,
        out: &mut Out,
    ) -> FrameResult<bool> {
        let Some(owner) = &mut self.owner else { return Ok(false) };
        let Some(is_whole) = owner.receive_claims(from, frame)? else { return Ok(false) };
        if is_whole {
            let groups = owner.close();
            let kept: Vec<RecordId> = groups.iter().map(|group| group.kept).collect();
            if !groups.is_empty() {
                out.push(GroupCountOutput::Groups(groups));
            }
            if self.shape.names_parts && owner.owes_answers(self.me) {
                out.push(GroupCountOutput::Name(kept));
            } else {
                self.close_range(&[], out);
            }
        }
        Ok(true)
    }

    /// Processes the parts of the kept records in the closed range.
    fn take_parts(&mut self, parts: &[RecordPart], out: &mut Out) -> Result<(), ExchangeError> {
        let count = self.owner.as_ref().and_then(GroupOwner::closed_groups);
        let are_possible = parts.iter().all(|part| part.part > 0);
        if !self.shape.names_parts || count != Some(parts.len()) || !are_possible {
            return Err(ExchangeError::Driver { what: "parts that were asked for, one a place" });
        }
        self.close_range(parts, out);
        Ok(())
    }

    /// Answers the claims on the closed range, and opens the next one.
    fn close_range(&mut self, parts: &[RecordPart], out: &mut Out) {
        let Some(owner) = &mut self.owner else { return };
        let answers_claims =
            owner.take_answers(self.shape.answers_claims().then_some(self.me), parts);
        for (to, number, drafts) in answers_claims {
            drafts.iter().for_each(|draft| self.send(to, number, draft, out));
        }
        self.open_next_range(out);
    }

    /// Processes an owner's sizes of claimed groups. False if none are expected from it.
    fn receive_sizes(
        &mut self,
        from: WorkerId,
        frame: &Frame<'_>,
        out: &mut Out,
    ) -> FrameResult<bool> {
        let progress = &mut self.owners[from.index()];
        let Some(pending) = progress.pending.as_mut().filter(|_| progress.reading.is_none()) else {
            return Ok(false);
        };
        expect_equal("cell", u64::from(progress.next_range) - 1, frame.cell)?;
        expect_equal("covered", pending.claims, frame.covered)?;
        expect_equal("sequence", pending.sequence, frame.sequence)?;
        let sizes = decode_sizes(frame, self.shape.names_parts)?;
        let (got, max) = (pending.sizes.len() + sizes.len(), pending.claims as usize);
        let is_last = frame.has(flag::LAST);
        if got > max || is_last != (got == max) || sizes.is_empty() {
            let (field, expected, got) = ("count", max as u64, got as u64);
            return Err(ExchangeFrameError::Unexpected { field, expected, got });
        }
        pending.sizes.extend(sizes);
        pending.sequence += 1;
        if let Some(PendingSizes { range, sizes, .. }) = progress.pending.take_if(|_| is_last) {
            out.push(GroupCountOutput::Sizes { owner: from, range, sizes });
        }
        Ok(true)
    }

    fn send(&mut self, to: WorkerId, cell: u32, draft: &Draft, out: &mut Out) {
        let Draft { kind, flags, param, sequence, count, covered, ref payload } = *draft;
        let frame = Frame { kind, flags, param, cell, sequence, count, covered, payload };
        let GroupCountShape { job, attempt, .. } = self.shape;
        let link = FrameLink { job, sender: self.me.0, receiver: to.0, attempt };
        let bytes = frame.encode(link);
        self.report.sent(&frame, bytes.len(), to == self.me);
        out.push(GroupCountOutput::Send { to, frame: bytes });
    }
}
