//! The owning half of a group count: the worker's own records, one range after the other, and the claims on them.
//!
//! A range is opened; it is *closed* when the claims of all workers are complete, and then answered. The
//! *ordinal* of a record id is its index among all record ids of this worker.

use super::super::entry::{RecordId, WorkerId};
use super::super::error::{ExchangeError, ExchangeFrameError};
use super::super::frame::{Frame, FrameKind, flag};
use super::super::payload::expect_equal;
use super::super::sender::Draft;
use super::code::{decode_claims, encode_sizes};
use super::{GroupSize, KeptGroup, RecordPart, RecordRange};
use crate::FrameResult;
use crate::limits::{
    DEDUP_CELLS_MAX, GROUP_COUNT_RANGE_CLAIMS_MAX, GROUP_COUNT_RANGE_RECORDS_MAX,
    GROUP_COUNT_RANGE_RECORDS_MIN,
};
use umbel_step::planted::{self, Planted};

/// The answer to a worker's claims: the worker, the number of the range, the frames.
pub(super) type Answer = (WorkerId, u32, Vec<Draft>);

/// The owning half of a [`GroupCounter`](super::GroupCounter).
pub(super) struct GroupOwner {
    /// Number in the job of the first chunk.
    base: u32,
    /// For each chunk the number of record ids before it; then the number of all.
    starts: Vec<u64>,
    /// Record ids per range.
    width: u64,
    /// Ordinal of the first record id of the next range.
    next: u64,
    /// Number of the next range.
    number: u32,
    workers: usize,
    open: Option<OpenRange>,
    /// The range that was closed and is not yet answered.
    closed: Option<ClosedRange>,
    has_ended: bool,
}

/// A range with the claims of all workers.
struct ClosedRange {
    range: OpenRange,
    /// Ordinals of the kept records, ascending.
    groups: Vec<u64>,
}

/// A range that is waiting for claims.
struct OpenRange {
    range: RecordRange,
    /// Ordinal of its first record id.
    first: u64,
    /// For each record id, the number of records that all workers have dropped for it.
    dropped: Vec<u64>,
    claims: Vec<ReceivedClaims>,
    /// Number of workers whose claims are incomplete.
    missing: usize,
}

/// One worker's claims on the open range.
#[derive(Default)]
struct ReceivedClaims {
    /// The payloads as received, each with its number of claims.
    payloads: Vec<(Vec<u8>, u32)>,
    count: u32,
    /// The record of the last claim.
    last: Option<RecordId>,
    has_ended: bool,
}

impl GroupOwner {
    /// The owner of chunks with these numbers of record ids, in a job with this many workers.
    pub(super) fn new(
        base: u32,
        record_counts: &[u64],
        workers: usize,
    ) -> Result<Self, ExchangeError> {
        let mut starts = vec![0u64];
        for &count in record_counts {
            let total = starts.last().copied().unwrap_or(0);
            let wrong = ExchangeError::Driver { what: "places of chunks, below 2^44 in all" };
            starts.push(total.checked_add(count).ok_or(wrong)?);
        }
        let all = starts.last().copied().unwrap_or(0);
        let width = (GROUP_COUNT_RANGE_CLAIMS_MAX / workers as u64)
            .clamp(GROUP_COUNT_RANGE_RECORDS_MIN, GROUP_COUNT_RANGE_RECORDS_MAX)
            // A range's number is in the field `cell` of frames; the last number belongs to the Ask without a
            // range.
            .max(all / u64::from(DEDUP_CELLS_MAX - 2));
        if width > GROUP_COUNT_RANGE_CLAIMS_MAX {
            return Err(ExchangeError::Driver { what: "places of chunks, below 2^44 in all" });
        }
        let (next, number, open, closed) = (0, 0, None, None);
        Ok(Self { base, starts, width, next, number, workers, open, closed, has_ended: false })
    }

    /// Whether there are no more ranges.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The record id with an ordinal; for the ordinal after the last one, the id after the last one.
    fn record_id(&self, ordinal: u64) -> RecordId {
        // The last chunk that starts at this ordinal or before it: an empty chunk is skipped.
        let chunks = self.starts.len() - 1;
        let chunk = self.starts[..chunks].partition_point(|start| *start <= ordinal) - 1;
        let number = self.base + u32::try_from(chunk).expect("chunk numbers have 24 bits");
        RecordId::from_bits(RecordId::new(number, 0).to_bits() + (ordinal - self.starts[chunk]))
    }

    /// The ordinal of a record id, if this worker has it.
    fn ordinal(&self, record_id: RecordId) -> Option<u64> {
        let chunk = record_id.chunk().checked_sub(self.base)? as usize;
        let (start, end) = (*self.starts.get(chunk)?, *self.starts.get(chunk + 1)?);
        start.checked_add(record_id.item()).filter(|ordinal| *ordinal < end)
    }

    /// Opens the next range, and returns its number and, unless there are no more, the range.
    pub(super) fn open_next(&mut self) -> (u32, Option<RecordRange>) {
        let number = self.number;
        let all = self.starts.last().copied().unwrap_or(0);
        if self.next == all {
            self.has_ended = true;
            return (number, None);
        }
        let first = self.next;
        let record_count = self.width.min(all - first);
        self.next += record_count;
        self.number += 1;
        let range =
            RecordRange { start: self.record_id(first), end: self.end(first + record_count) };
        let dropped = vec![0; usize::try_from(record_count).expect("a few hundred thousand")];
        let claims = (0..self.workers).map(|_| ReceivedClaims::default()).collect();
        let missing = self.workers;
        self.open = Some(OpenRange { range, first, dropped, claims, missing });
        (number, Some(range))
    }

    /// The end of a range whose last record id has the ordinal `ordinal` − 1.
    fn end(&self, ordinal: u64) -> RecordId {
        RecordId::from_bits(self.record_id(ordinal - 1).to_bits() + 1)
    }

    /// Processes claims, and returns whether those of all workers are complete. `None` if none are expected.
    pub(super) fn receive_claims(
        &mut self,
        from: WorkerId,
        frame: &Frame<'_>,
    ) -> FrameResult<Option<bool>> {
        let number = u64::from(self.number) - u64::from(self.open.is_some());
        let Some(range) = self.open.as_ref().map(|open| open.range) else { return Ok(None) };
        expect_equal("cell", number, frame.cell)?;
        let found = decode_claims(frame, range)?;
        let ordinals: Option<Vec<u64>> =
            found.iter().map(|claim| self.ordinal(claim.kept)).collect();
        let ordinals = ordinals.ok_or(ExchangeFrameError::Header { field: "claims" })?;
        let Some(open) = &mut self.open else { return Ok(None) };
        let claims = &mut open.claims[from.index()];
        if claims.has_ended {
            return Ok(None);
        }
        expect_equal("sequence", claims.payloads.len() as u64, frame.sequence)?;
        let is_last = frame.has(flag::LAST);
        // An empty frame must be the last one; otherwise a stream could go on for ever.
        let rises =
            found.first().is_none_or(|first| claims.last.is_none_or(|last| last < first.kept));
        if !rises || (found.is_empty() && !is_last) {
            return Err(ExchangeFrameError::Header { field: "claims" });
        }
        let at = |ordinal: u64| usize::try_from(ordinal - open.first).expect("within the range");
        // A sum that overflows exceeds the records of any job: the claim is false.
        let mut sums = Vec::with_capacity(found.len());
        for (claim, &ordinal) in found.iter().zip(&ordinals) {
            let dropped = if planted::on(Planted::ClaimCountsOne) { 1 } else { claim.dropped };
            let sum = open.dropped[at(ordinal)].checked_add(dropped);
            let sum = sum.filter(|sum| *sum < u64::MAX);
            sums.push(sum.ok_or(ExchangeFrameError::Header { field: "claims" })?);
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

    /// Closes the open range, and returns its groups.
    pub(super) fn close(&mut self) -> Vec<KeptGroup> {
        let Some(range) = self.open.take() else { return Vec::new() };
        let ordinals = (range.first..).zip(&range.dropped).filter(|(_, dropped)| **dropped > 0);
        let group = |(ordinal, dropped): (u64, &u64)| KeptGroup {
            kept: self.record_id(ordinal),
            size: dropped + 1,
            part: None,
        };
        let (ordinals, groups) =
            ordinals.map(|found| (found.0, group(found))).unzip::<_, _, Vec<_>, Vec<_>>();
        self.closed = Some(ClosedRange { range, groups: ordinals });
        groups
    }

    /// Whether another worker has claims on the closed range.
    pub(super) fn owes_answers(&self, me: WorkerId) -> bool {
        let claims = self.closed.iter().flat_map(|closed| &closed.range.claims);
        claims.enumerate().any(|(worker, claims)| worker != me.index() && claims.count > 0)
    }

    /// The number of groups in the closed range, if there is one.
    pub(super) fn closed_groups(&self) -> Option<usize> {
        self.closed.as_ref().map(|closed| closed.groups.len())
    }

    /// Ends the closed range, and returns, if claims are answered, the answers to the other workers with claims.
    /// `answers_all_but` is this worker, or `None` if claims are not answered; `parts` has one element per group, or none.
    pub(super) fn take_answers(
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

    fn answer_to(
        &self,
        closed: &ClosedRange,
        claims: &ReceivedClaims,
        parts: &[RecordPart],
    ) -> Vec<Draft> {
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
