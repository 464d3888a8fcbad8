//! The sample: a sparse filter over a small part of every owner's range, from which the coordinator estimates the share
//! of entries that several workers have.
//!
//! Every worker sends each owner the positions of its entries in [`JobShape::sample_range`]. When all streams
//! have ended, the owner counts the entries and those that collided; the senders get no answer.

use super::collide::Collided;
use super::entry::WorkerId;
use super::error::ExchangeFrameError;
use super::frame::{Frame, FrameKind, flag};
use super::list::LocalList;
use super::payload::{cut_positions, expect_at_most, read_positions};
use super::plan::{JobShape, SampleOrder};
use super::sender::Draft;
use crate::FrameResult;
use crate::limits::CELL_ENTRIES_MAX;
use umbel_filter::{HashRange, ItemHash, SingleShotShape};

fn shape(order: SampleOrder, range: HashRange) -> SingleShotShape {
    SingleShotShape::new(range, order.position_count).expect("the coordinator gives 1..=2^60")
}

/// A sender's stream of sample positions.
pub(super) fn sample_drafts(order: SampleOrder, range: HashRange, list: &LocalList) -> Vec<Draft> {
    let (code, payloads) = cut_positions(shape(order, range), list.entries());
    Draft::stream(FrameKind::Sample, 0, code.low_bits(), payloads)
}

/// What an owner has received of the sample.
pub(super) struct SampleOwner {
    width: u64,
    /// Positions by sender; the references' positions are last.
    senders: Vec<Vec<u64>>,
    next_sequence: Vec<u32>,
    ended: Vec<bool>,
}

impl SampleOwner {
    /// An owner that has received nothing.
    pub(super) fn new(
        order: SampleOrder,
        job: JobShape,
        owner: u32,
        references: &[ItemHash],
    ) -> Self {
        let range = job.sample_range(owner);
        let shape = shape(order, range);
        let width = shape.width();
        let known = references.iter().filter(|hash| range.contains(hash.hi()));
        let known = known.map(|hash| shape.position(hash.hi())).collect();
        let workers = job.workers as usize;
        Self {
            width,
            senders: vec![Vec::new(); workers].into_iter().chain([known]).collect(),
            next_sequence: vec![0; workers],
            ended: vec![false; workers],
        }
    }

    /// Processes a sender's frame. Once all streams have ended: the number of entries, and how many of them
    /// collided.
    pub(super) fn receive(
        &mut self,
        from: WorkerId,
        frame: &Frame<'_>,
    ) -> FrameResult<Option<(u64, u64)>> {
        let sender = from.index();
        let expected = self.next_sequence[sender];
        if frame.sequence < expected {
            return Ok(None);
        }
        if frame.sequence > expected || self.ended[sender] {
            let (expected, got) = (expected.into(), frame.sequence.into());
            return Err(ExchangeFrameError::Unexpected { field: "sequence", expected, got });
        }
        // The sample is a part of a cell. A position takes a bit in a frame at least, and eight bytes here.
        let positions = &mut self.senders[sender];
        let left = CELL_ENTRIES_MAX.saturating_sub(positions.len());
        expect_at_most("count", frame.count as usize, left)?;
        read_positions(frame, self.width, positions)?;
        self.next_sequence[sender] += 1;
        self.ended[sender] = frame.has(flag::LAST);
        if self.ended.contains(&false) {
            return Ok(None);
        }
        let collided = Collided::find(self.width, &self.senders);
        let positions = || self.senders.iter().take(self.ended.len()).flatten();
        let candidates = positions().filter(|&&position| collided.rank(position).is_some());
        Ok(Some((positions().count() as u64, candidates.count() as u64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Keep;
    use crate::plan::Exactness;

    /// Bits of a payload, each of which is a position if the code has no low bits.
    const PAYLOAD: [u8; 1 << 10] = [0; 1 << 10];

    fn frame(sequence: u32, count: u32) -> Frame<'static> {
        let payload = &PAYLOAD[..count.div_ceil(8).min(1 << 10) as usize];
        let (kind, flags, param, cell, covered) = (FrameKind::Sample, 0, 0, 0, 0);
        Frame { kind, flags, param, cell, sequence, count, covered, payload }
    }

    #[test]
    fn a_sample_has_no_more_entries_than_a_cell() {
        let job = JobShape {
            workers: 2,
            cells_per_owner: 1,
            exactness: Exactness::Fingerprint,
            keep: Keep::First,
            report_kept: false,
            item_bytes_mean: 40.0,
        };
        let order = SampleOrder { position_count: 1 << 20 };
        let mut owner = SampleOwner::new(order, job, 0, &[]);
        let from = WorkerId(1);
        let most = u32::try_from(CELL_ENTRIES_MAX).unwrap();
        let refused = |got: u32, max: usize| {
            let (field, got, max) = ("count", got.into(), max as u64);
            Err(ExchangeFrameError::TooLarge { field, got, max })
        };
        let whole = frame(0, most + 1);
        assert_eq!(owner.receive(from, &whole), refused(most + 1, CELL_ENTRIES_MAX));
        assert_eq!(owner.receive(from, &frame(0, 8000)), Ok(None));
        let rest = frame(1, most - 7999);
        assert_eq!(owner.receive(from, &rest), refused(most - 7999, CELL_ENTRIES_MAX - 8000));
        assert_eq!(owner.receive(from, &frame(1, 8000)), Ok(None));
        assert_eq!(owner.senders[1].len(), 16_000);
        assert!(owner.senders[0].is_empty());
    }
}
