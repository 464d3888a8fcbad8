//! The keeping half of a tally: a worker's own records, range by range, and which workers dropped records for them.
//!
//! The *ordinal* of a place is the number of places of this worker before it.

use super::super::entry::{Place, WorkerId};
use super::super::error::{ExchangeError, FrameError};
use super::super::frame::{Frame, FrameKind, flag};
use super::super::sender::Draft;
use super::code::{decode_claims, encode_sizes};
use super::{Group, GroupSize, PlaceRange, RecordPart, expect};
use crate::limits::{
    DEDUP_CELLS_MAX, TALLY_RANGE_CLAIMS_MAX, TALLY_RANGE_PLACES_MAX, TALLY_RANGE_PLACES_MIN,
};
use umbel_step::planted::{self, Planted};

/// The answer to a worker about a range: the worker, the number of the range, the frames.
pub(super) type Answer = (WorkerId, u32, Vec<Draft>);

/// See the module.
pub(super) struct Keeper {
    /// Number in the job of the first chunk.
    base: u32,
    /// For each chunk the number of places before it; then the number of all places.
    starts: Vec<u64>,
    /// Places of a range.
    width: u64,
    /// Ordinal of the first place that no range has had.
    next: u64,
    /// Number of the next range.
    number: u32,
    workers: usize,
    open: Option<OpenRange>,
    /// The last range, until it was answered.
    closed: Option<ClosedRange>,
    has_ended: bool,
}

/// A range of which all claims have come.
struct ClosedRange {
    range: OpenRange,
    /// Ordinals of places with groups.
    groups: Vec<u64>,
}

/// A range that workers are asked about.
struct OpenRange {
    range: PlaceRange,
    /// Ordinal of the first place.
    first: u64,
    /// Records dropped for each place, of all workers.
    dropped: Vec<u64>,
    claims: Vec<Claims>,
    /// Workers whose claims have not all come.
    missing: usize,
}

/// What a worker has claimed.
#[derive(Default)]
struct Claims {
    /// As they came, with their numbers of claims.
    payloads: Vec<(Vec<u8>, u32)>,
    count: u32,
    /// The last one.
    last: Option<Place>,
    has_ended: bool,
}

impl Keeper {
    /// A keeper of chunks with so many places, among so many workers.
    pub(super) fn new(base: u32, places: &[u64], workers: usize) -> Result<Self, ExchangeError> {
        let mut starts = vec![0u64];
        for &count in places {
            let total = starts.last().copied().unwrap_or(0);
            let wrong = ExchangeError::Driver { what: "places of chunks, below 2^44 in all" };
            starts.push(total.checked_add(count).ok_or(wrong)?);
        }
        let all = starts.last().copied().unwrap_or(0);
        let width = (TALLY_RANGE_CLAIMS_MAX / workers as u64)
            .clamp(TALLY_RANGE_PLACES_MIN, TALLY_RANGE_PLACES_MAX)
            // Ranges are numbered where cells are in other frames; the last number is that of the end.
            .max(all / u64::from(DEDUP_CELLS_MAX - 2));
        if width > TALLY_RANGE_CLAIMS_MAX {
            return Err(ExchangeError::Driver { what: "places of chunks, below 2^44 in all" });
        }
        let (next, number, open, closed) = (0, 0, None, None);
        Ok(Self { base, starts, width, next, number, workers, open, closed, has_ended: false })
    }

    /// Whether all ranges are done.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The place with an ordinal; for the ordinal after the last one, the place after the last one.
    fn place(&self, ordinal: u64) -> Place {
        // The last chunk that starts at this ordinal or before it: an empty chunk is skipped.
        let chunks = self.starts.len() - 1;
        let chunk = self.starts[..chunks].partition_point(|start| *start <= ordinal) - 1;
        let number = self.base + u32::try_from(chunk).expect("chunk numbers have 24 bits");
        Place::from_bits(Place::new(number, 0).to_bits() + (ordinal - self.starts[chunk]))
    }

    /// The ordinal of a place, if this worker has it.
    fn ordinal(&self, place: Place) -> Option<u64> {
        let chunk = place.chunk().checked_sub(self.base)? as usize;
        let (start, end) = (*self.starts.get(chunk)?, *self.starts.get(chunk + 1)?);
        start.checked_add(place.item()).filter(|ordinal| *ordinal < end)
    }

    /// Opens the next range and gives its number; none if all were open.
    pub(super) fn open_next(&mut self) -> (u32, Option<PlaceRange>) {
        let number = self.number;
        let all = self.starts.last().copied().unwrap_or(0);
        if self.next == all {
            self.has_ended = true;
            return (number, None);
        }
        let first = self.next;
        let places = self.width.min(all - first);
        self.next += places;
        self.number += 1;
        let range = PlaceRange { start: self.place(first), end: self.end(first + places) };
        let dropped = vec![0; usize::try_from(places).expect("a few hundred thousand")];
        let claims = (0..self.workers).map(|_| Claims::default()).collect();
        let missing = self.workers;
        self.open = Some(OpenRange { range, first, dropped, claims, missing });
        (number, Some(range))
    }

    /// The end of a range whose last place is the one before.
    fn end(&self, ordinal: u64) -> Place {
        Place::from_bits(self.place(ordinal - 1).to_bits() + 1)
    }

    /// Takes claims; whether all of all workers are there now. `None` if they were not asked for.
    pub(super) fn hear(
        &mut self,
        from: WorkerId,
        frame: &Frame<'_>,
    ) -> Result<Option<bool>, FrameError> {
        let number = u64::from(self.number) - u64::from(self.open.is_some());
        let Some(range) = self.open.as_ref().map(|open| open.range) else { return Ok(None) };
        expect("cell", number, frame.cell.into())?;
        let found = decode_claims(frame, range)?;
        let ordinals: Option<Vec<u64>> =
            found.iter().map(|claim| self.ordinal(claim.kept)).collect();
        let ordinals = ordinals.ok_or(FrameError::Header { field: "claims" })?;
        let Some(open) = &mut self.open else { return Ok(None) };
        let claims = &mut open.claims[from.index()];
        if claims.has_ended {
            return Ok(None);
        }
        expect("sequence", claims.payloads.len() as u64, frame.sequence.into())?;
        let is_last = frame.has(flag::LAST);
        // Frames of nothing would be without end.
        let rises =
            found.first().is_none_or(|first| claims.last.is_none_or(|last| last < first.kept));
        if !rises || (found.is_empty() && !is_last) {
            return Err(FrameError::Header { field: "claims" });
        }
        let at = |ordinal: u64| usize::try_from(ordinal - open.first).expect("within the range");
        // No group is larger than a job can be: what does not fit was made up.
        let mut sums = Vec::with_capacity(found.len());
        for (claim, &ordinal) in found.iter().zip(&ordinals) {
            let dropped = if planted::on(Planted::ClaimCountsOne) { 1 } else { claim.dropped };
            let sum = open.dropped[at(ordinal)].checked_add(dropped);
            let sum = sum.filter(|sum| *sum < u64::MAX);
            sums.push(sum.ok_or(FrameError::Header { field: "claims" })?);
        }
        for (sum, ordinal) in sums.into_iter().zip(ordinals) {
            open.dropped[at(ordinal)] = sum;
        }
        claims.last = found.last().map(|claim| claim.kept).or(claims.last);
        claims.payloads.push((frame.payload.to_vec(), frame.count));
        claims.count += frame.count;
        claims.has_ended = is_last;
        open.missing -= usize::from(is_last);
        Ok(Some(open.missing == 0))
    }

    /// Ends the open range: the groups in it.
    pub(super) fn close(&mut self) -> Vec<Group> {
        let Some(range) = self.open.take() else { return Vec::new() };
        let ordinals = (range.first..).zip(&range.dropped).filter(|(_, dropped)| **dropped > 0);
        let group = |(ordinal, dropped): (u64, &u64)| Group {
            kept: self.place(ordinal),
            size: dropped + 1,
            part: None,
        };
        let (ordinals, groups) =
            ordinals.map(|found| (found.0, group(found))).unzip::<_, _, Vec<_>, Vec<_>>();
        self.closed = Some(ClosedRange { range, groups: ordinals });
        groups
    }

    /// Whether workers but this one have claimed any of the closed range.
    pub(super) fn owes_answers(&self, me: WorkerId) -> bool {
        let claims = self.closed.iter().flat_map(|closed| &closed.range.claims);
        claims.enumerate().any(|(worker, claims)| worker != me.index() && claims.count > 0)
    }

    /// How many groups the closed range has that is to be answered.
    pub(super) fn closed_groups(&self) -> Option<usize> {
        self.closed.as_ref().map(|closed| closed.groups.len())
    }

    /// The answers about the closed range, if they are wanted, to those who have claimed any, but for this worker
    /// itself. `parts` has one row a group, or none.
    pub(super) fn answer(
        &mut self,
        answers_all_but: Option<WorkerId>,
        parts: &[RecordPart],
    ) -> Vec<Answer> {
        let (Some(closed), Some(me)) = (self.closed.take(), answers_all_but) else {
            return Vec::new();
        };
        let workers = (0u16..).map(WorkerId).zip(&closed.range.claims);
        let claimed = workers.filter(|(worker, claims)| *worker != me && claims.count > 0);
        let answer =
            |(worker, claims)| (worker, self.number - 1, self.answer_to(&closed, claims, parts));
        claimed.map(answer).collect()
    }

    fn answer_to(&self, closed: &ClosedRange, claims: &Claims, parts: &[RecordPart]) -> Vec<Draft> {
        let open = &closed.range;
        let part_of = |ordinal: u64| {
            let group = closed.groups.binary_search(&ordinal).expect("what was claimed is a group");
            parts.get(if planted::on(Planted::PartsNamedAlike) { 0 } else { group }).copied()
        };
        let mut sizes = Vec::with_capacity(claims.count as usize);
        for (payload, count) in &claims.payloads {
            let kind = FrameKind::Claims;
            let (flags, param, cell, sequence, covered) = (0, 0, 0, 0, 0);
            let frame =
                Frame { kind, flags, param, cell, sequence, count: *count, covered, payload };
            let found = decode_claims(&frame, open.range).expect("it was read when it came");
            sizes.extend(found.iter().map(|claim| {
                let ordinal = self.ordinal(claim.kept).expect("it was there when it came");
                let at = usize::try_from(ordinal - open.first).expect("within the range");
                GroupSize { size: open.dropped[at] + 1, part: part_of(ordinal) }
            }));
        }
        let mut drafts = Draft::stream(FrameKind::Sizes, 0, 0, encode_sizes(&sizes));
        drafts.iter_mut().for_each(|draft| draft.covered = claims.count);
        drafts
    }
}
