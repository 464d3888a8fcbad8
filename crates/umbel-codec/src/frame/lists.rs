//! Cutting lists into frames: positions of a single-shot filter, insertions of a blocked one.
//!
//! A frame takes as many codes as should fill its payload by formula, and an eighth fewer while they
//! turn out too long. It ends behind its last position or block, so no position and no block is
//! in two frames.

use umbel_bits::RiceCode;
use umbel_filter::{BlockProbe, HashRange, SingleShotShape, SparseBlocked};

use super::content::Content;
use super::encoding::{Encoding, mean_block_gap, mean_gap, probes_bits, rice_bits};
use super::gap_code::GapCode;
use super::header::{Body, Header};
use super::seal::{Budget, Next, seal};
use crate::error::FrameError;
use crate::limits::FRAME_POSITION_COUNT_MAX;

/// The positions of a single-shot filter, and where the next frame begins.
pub(super) struct PositionCursor<'a> {
    shape: SingleShotShape,
    /// Positions that are not in the buffer.
    rest: Box<dyn Iterator<Item = u64> + Send + 'a>,
    /// Number of positions that are not in a frame.
    left: u64,
    /// Positions that are in no frame.
    buffer: Vec<u64>,
    start: u64,
}

impl<'a> PositionCursor<'a> {
    pub(super) fn new(
        shape: SingleShotShape,
        len: u64,
        positions: impl Iterator<Item = u64> + Send + 'a,
    ) -> Self {
        let start = shape.range().start();
        Self { shape, rest: Box::new(positions), left: len, buffer: Vec::new(), start }
    }

    pub(super) fn next(&mut self, budget: Budget) -> Next {
        let (shape, range) = (self.shape, self.shape.range());
        let is_part = self.start != range.start();
        let prefix = range.start().to_le_bytes();
        let prefix: &[u8] = if is_part { &prefix } else { &[] };
        let bits_max = 8 * budget.payload_bytes_max.saturating_sub(prefix.len() as u64);

        let first = shape.position(self.start);
        let expected_bits = rice_bits(shape.width() - first, self.left);
        let mut count = first_guess(self.left, expected_bits, bits_max);
        // One more tells whether the filter goes on.
        let missing = (count + 1).saturating_sub(self.buffer.len());
        self.buffer.extend(self.rest.by_ref().take(missing));
        loop {
            let (positions, after) = self.buffer.split_at(count);
            let cut = after.first().and(positions.last()).map(|last| border(shape, last + 1));
            let end = cut.map_or(range.end(), u128::from);
            let width = cut.map_or(shape.width(), |cut| shape.position(cut)) - first;
            let (code, _) = GapCode::shortest(count as u64, mean_gap(width, count as u64));
            let encoding = if is_part { Encoding::Part } else { Encoding::Gaps };
            let content = Content::Positions { positions, first };
            let range = HashRange::new(self.start, end).expect("a frame has a position");
            let part = SingleShotShape::new(range, shape.position_count());
            let body = Body::SingleShot(part.expect("a shape's count is one"));
            let header = Header::new(budget.key, body, encoding, code, count as u64);
            match seal(header, code, prefix, content, budget.payload_bytes_max) {
                Err(FrameError::PayloadTooLarge { payload_bytes }) => {
                    count = fewer(count, payload_bytes, budget)?;
                }
                sealed => {
                    self.buffer.drain(..count);
                    self.left -= count as u64;
                    self.start = cut.unwrap_or(self.start);
                    return Ok((sealed?, cut.is_none()));
                }
            }
        }
    }
}

/// The insertions of a batch, the next one, and the block where the next frame begins.
pub(super) struct ProbeCursor<'a> {
    filter: &'a SparseBlocked,
    next: usize,
    first: u64,
}

impl<'a> ProbeCursor<'a> {
    pub(super) const fn new(filter: &'a SparseBlocked) -> Self {
        Self { filter, next: 0, first: 0 }
    }

    pub(super) fn next(&mut self, budget: Budget) -> Next {
        let (shape, map) = (self.filter.block_shape(), self.filter.block_shape().map());
        let (first, bits_max) = (self.first, 8 * budget.payload_bytes_max);
        let rest = self.filter.probes().get(self.next..).unwrap_or_default();
        let expected_bits = probes_bits(map.len() - first, rest.len() as u64);
        let mut count = first_guess(rest.len() as u64, expected_bits, bits_max);
        loop {
            // The last block goes with its first insertions, or is left to the next frame.
            if let Some(next) = rest.get(count) {
                let whole = rest.partition_point(|probe| probe.block < next.block).min(count);
                let all = rest.partition_point(|probe| probe.block <= next.block);
                count = if whole == 0 { all } else { whole };
            }
            let (probes, after) = rest.split_at(count);
            let cut = after.first().and(probes.last()).map(|last| last.block + 1);
            let end = cut.unwrap_or(map.len());
            let mean_gap = mean_block_gap(end - first, count as u64);
            let code = GapCode::Rice(RiceCode::for_mean_gap(mean_gap));
            let content = Content::Probes { probes, first };
            let slice = shape.with_range(map.range_of_blocks(first..end));
            let body = Body::Blocks(slice.expect("a part of a shape is a shape"));
            let header = Header::new(budget.key, body, Encoding::Probes, code, count as u64);
            match seal(header, code, &[], content, budget.payload_bytes_max) {
                Err(FrameError::PayloadTooLarge { payload_bytes }) => {
                    let block = |probe: Option<&BlockProbe>| probe.map(|probe| probe.block);
                    if block(probes.first()) == block(probes.last()) {
                        count = 1;
                    }
                    count = fewer(count, payload_bytes, budget)?;
                }
                sealed => {
                    (self.next, self.first) = (self.next + count, end);
                    return Ok((sealed?, cut.is_none()));
                }
            }
        }
    }
}

/// So many codes of random values fill a payload, a 64th left free.
fn first_guess(len: u64, expected_bits: f64, bits_max: u64) -> usize {
    let share = bits_max as f64 / expected_bits.max(1.0) * (63.0 / 64.0);
    #[expect(clippy::cast_possible_truncation, reason = "a cast from float saturates")]
    let count = (len as f64 * share) as u64;
    let count = count.clamp(1, FRAME_POSITION_COUNT_MAX).min(len);
    usize::try_from(count).expect("at most FRAME_POSITION_COUNT_MAX")
}

/// An eighth fewer, if there are any fewer.
fn fewer(count: usize, block_bytes: u64, budget: Budget) -> Result<usize, FrameError> {
    if count <= 1 {
        let payload_bytes_max = budget.payload_bytes_max;
        return Err(FrameError::BlockTooLarge { block_bytes, payload_bytes_max });
    }
    Ok(count - count.div_ceil(8))
}

/// The first hash of a position.
fn border(shape: SingleShotShape, position: u64) -> u64 {
    shape.first_hi(position).expect("a position that another one of the range is behind")
}
