//! From items and a rate to the shape of an array of blocks, and from its ones back to items.

use crate::capability::Description;
use crate::kind::Kind;
use crate::range::HashRange;
use crate::shape::{
    AGING_BLOCK_BITS, BLOCK_BITS_MAX, BlockShape, CreateError, LINE_BITS, ShapeError,
};
use crate::sizing;
use crate::stable_pace::StablePace;

/// A size is raised by one part in this many while its rate is above the requested one: blocks and
/// whole numbers of probes cost a classic filter at most a few such steps.
const GROWTH_STEP: u64 = 512;

impl BlockShape {
    /// The least blocks, and the best number of probes, with which a filter of the kind holds
    /// `item_count` items (n) of the hash range at this `false_positive_rate` (p).
    ///
    /// # Errors
    /// If the kind is no array of blocks, n is 0, p is none that the kind can have, or the filter
    /// would be larger than [`FILTER_BYTES_MAX`](crate::FILTER_BYTES_MAX).
    ///
    /// ```
    /// use umbel_filter::{BlockShape, HashRange, Kind};
    ///
    /// // 1 %: 9.6 bits an item where probes go anywhere, 9.9 where they share a cache line.
    /// let bits = |kind| -> Result<f64, umbel_filter::CreateError> {
    ///     let shape = BlockShape::for_rate(kind, HashRange::WHOLE, 1_000_000, 0.01)?;
    ///     Ok(shape.position_count() as f64 / 1e6)
    /// };
    /// assert!((bits(Kind::Classic)? - 9.6).abs() < 0.05);
    /// assert!((bits(Kind::Blocked)? - 9.91).abs() < 0.01);
    /// # Ok::<(), umbel_filter::CreateError>(())
    /// ```
    pub fn for_rate(
        kind: Kind,
        range: HashRange,
        item_count: u64,
        false_positive_rate: f64,
    ) -> Result<Self, CreateError> {
        match kind {
            Kind::Blocked | Kind::Counting => {
                let size = sizing::blocked_block_count(item_count, false_positive_rate)?;
                let block_count = over_the_space(range, size.block_count);
                Ok(Self::new(kind, range, block_count, LINE_BITS, size.probe_count)?)
            }
            Kind::Classic | Kind::Partitioned => {
                spread_for_rate(kind, range, item_count, false_positive_rate)
            }
            Kind::Window => {
                let size = sizing::window_size(
                    item_count,
                    false_positive_rate,
                    sizing::WINDOW_BLOCK_SLOTS_MAX,
                )?;
                let block_count = over_the_space(range, size.block_count);
                Ok(Self::new(kind, range, block_count, size.block_slots, size.fingerprint_bits)?)
            }
            Kind::Cuckoo => {
                let most = sizing::CUCKOO_PAGE_SLOTS_MAX;
                let size = sizing::cuckoo_size(item_count, false_positive_rate, most)?;
                let page_count = over_the_space(range, size.page_count);
                Ok(Self::new(kind, range, page_count, size.page_slots, size.fingerprint_bits)?)
            }
            Kind::Quotient => {
                let most = sizing::QUOTIENT_PAGE_SLOTS_MAX;
                let size = sizing::quotient_size(item_count, false_positive_rate, most)?;
                let page_count = over_the_space(range, size.page_count);
                Ok(Self::new(kind, range, page_count, size.page_slots, size.remainder_bits)?)
            }
            Kind::Aging => {
                let rate = sizing::aging_generation_rate(false_positive_rate)?;
                let size = sizing::blocked_block_count(item_count, rate)?;
                let block_count = over_the_space(range, size.block_count);
                let shape =
                    Self::new(kind, range, block_count, AGING_BLOCK_BITS, size.probe_count)?;
                Ok(shape.with_pace(range.whole_of(item_count))?)
            }
            Kind::Stable => {
                let size = sizing::stable_size(item_count, false_positive_rate)?;
                let block_count = over_the_space(range, size.block_count);
                let sizing::StableSize { probe_count, lowered_cells, cell_max, .. } = size;
                let shape = Self::new(kind, range, block_count, LINE_BITS, probe_count)?;
                Ok(shape.with_pace(StablePace { lowered_cells, cell_max }.number())?)
            }
            Kind::SingleShot | Kind::Scalable | Kind::RedisBloom => {
                Err(ShapeError::Kind { kind }.into())
            }
        }
    }

    /// The rate of an aging filter whose generations took so many items.
    pub(crate) fn aging_false_positive_rate(self, item_counts: [u64; 2]) -> f64 {
        let blocks = self.whole_block_count();
        let right = item_counts.into_iter().map(|item_count| {
            let rate = sizing::blocked_false_positive_rate(blocks, self.probe_count(), item_count);
            1.0 - rate.expect("a shape has blocks and probes within the formula's limits")
        });
        1.0 - right.product::<f64>()
    }

    /// The false-positive rate after `item_count` items of the hash range, by the kind's formula: of an
    /// aging filter, of each generation as many; of a stable one, while so many are not forgotten.
    #[expect(clippy::missing_panics_doc, reason = "a shape is within the formula's limits")]
    #[must_use]
    pub fn false_positive_rate(self, item_count: u64) -> f64 {
        let (block_bits, probes) = (self.block_bits(), self.probe_count());
        let blocks = self.whole_block_count();
        let rate = match self.kind() {
            Kind::Blocked | Kind::Counting => {
                sizing::blocked_false_positive_rate(blocks, probes, item_count)
            }
            Kind::Partitioned => {
                let part_bits = u64::from(block_bits / probes);
                sizing::blocked_partitioned_false_positive_rate(
                    part_bits, probes, blocks, item_count,
                )
            }
            Kind::Window | Kind::Cuckoo => {
                let slots = blocks.saturating_mul(block_bits.into());
                sizing::window_false_positive_rate(slots, probes, item_count)
            }
            Kind::Quotient => {
                sizing::single_shot_false_positive_rate(self.quotient_positions(), item_count)
            }
            Kind::Stable => sizing::blocked_false_positive_rate(blocks, probes, item_count)
                .map(|rate| (rate * sizing::stable_crowding(probes)).min(1.0)),
            Kind::Aging => return self.aging_false_positive_rate([item_count; 2]),
            _ => sizing::blocked_free_false_positive_rate(block_bits, blocks, probes, item_count),
        };
        rate.expect("a shape has blocks and probes within the formula's limits")
    }

    /// Positions of a quotient filter in the range, m.
    pub(crate) fn quotient_positions(self) -> u64 {
        (self.whole_block_count() * u64::from(self.block_bits())) << self.probe_count()
    }

    /// Number of blocks in the range, where the parts of a block at both ends count as parts, and
    /// what is over is left out; at least 1.
    fn whole_block_count(self) -> u64 {
        let map = self.map();
        let blocks = (map.range().width() * u128::from(map.block_count())) >> 64;
        u64::try_from(blocks).expect("not above the block count").max(1)
    }

    /// Size and load of a filter of this shape with so many ones.
    pub(crate) fn describe(self, one_count: u64) -> Description {
        let probe_count = self.probe_count();
        // What is over when a block is cut into equal parts is never set.
        let unused_bits = match self.kind() {
            Kind::Partitioned => u64::from(self.block_bits() % probe_count) * self.map().len(),
            _ => 0,
        };
        let position_count = self.position_count() - unused_bits;
        let item_count = sizing::item_count_estimate(position_count, probe_count, one_count).ok();
        #[expect(clippy::cast_possible_truncation, reason = "a cast from float saturates")]
        let rate = |items: f64| self.false_positive_rate(items.round() as u64);
        Description {
            shape: self.into(),
            memory_bytes: self.memory_bytes(),
            position_count,
            one_count,
            item_count,
            false_positive_rate: item_count.map_or(1.0, |estimate| rate(estimate.item_count)),
        }
    }
}

/// The least number of blocks over the whole hash space, of which a range has at least so many: the
/// parts of a block at both ends count as parts.
fn over_the_space(range: HashRange, block_count: u64) -> u64 {
    let all = (u128::from(block_count) << 64).div_ceil(range.width());
    // Too many are refused as a shape.
    u64::try_from(all).unwrap_or(u64::MAX)
}

/// The least blocks of equal size, as large as they may be, for a kind that spreads its probes.
fn spread_for_rate(
    kind: Kind,
    range: HashRange,
    item_count: u64,
    false_positive_rate: f64,
) -> Result<BlockShape, CreateError> {
    let mut bit_count = sizing::classic_bit_count(item_count, false_positive_rate)?;
    loop {
        let probe_count = sizing::classic_optimal_hash_count(bit_count, item_count)?;
        let blocks = bit_count.div_ceil(BLOCK_BITS_MAX.into());
        let block_bits = bit_count.div_ceil(blocks).next_multiple_of(LINE_BITS.into());
        let block_bits = u32::try_from(block_bits).expect("at most BLOCK_BITS_MAX");
        let block_count = over_the_space(range, blocks);
        let shape = BlockShape::new(kind, range, block_count, block_bits, probe_count)?;
        if shape.false_positive_rate(item_count) <= false_positive_rate {
            return Ok(shape);
        }
        bit_count = bit_count.saturating_add(bit_count.div_ceil(GROWTH_STEP));
    }
}
