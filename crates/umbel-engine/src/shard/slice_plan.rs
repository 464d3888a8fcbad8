//! Computes the shape of slices from the size of the whole filter.
//!
//! *Spread.* Hashes are uniform, so the number of items that a shard gets of n is Poisson distributed with
//! mean λ = n/S. Each slice is made for λ + 6·√λ items, rounded up, but never for more than n. A given
//! shard gets more with probability 10^-9 for large λ and 10^-5 for λ = 1, and its rate is then only
//! slightly higher. At a million items this costs 2.4 % of memory over 16 shards, and nothing over one.
//!
//! *Borders.* There are B = c·S blocks over the hash space, c for each shard. Block c·i begins at
//! ⌈i·2^64/S⌉, shard i at ⌈i·2^24/S⌉·2^40:
//!
//! ```text
//! S a power of two    ├─ block c−1 ─┤├─ block c ─┤        no block is shared
//!                       shard 0      │ shard 1
//!
//! any other S         ├─ block c−1 ─┤├─ block c ─┤        the border lies up to 2^40 hashes
//!                       shard 0        │ shard 1          behind the block's begin
//! ```
//!
//! In the second case no B makes all borders coincide. Both shards then store block c, each with its own
//! items, and shard 0 has at most a 2^-24-th of the space in it: one block too many. To make this
//! negligible, blocks of 64 KiB are cut smaller, so that a shard has 64 or more.
//!
//! *Halves.* A split cuts a slice in its middle. Where copies are counted, a block that this divides is in
//! both halves, and when they are merged again, what it had is counted twice. So the blocks of a shard are a
//! multiple of two, four, and so on, up to the highest one that is almost free: that many splits of a shard
//! divide no block. If the number of shards is no power of two, borders and blocks do not coincide anyway.
//!
//! Levels of a scalable filter have as many lines as the items of all shards need, whatever the number of
//! shards, so both shards at a border may store the same line.

use thiserror::Error;
use umbel_filter::{
    AnyFilter, BLOCK_BITS_MAX, BlockShape, CellCount, CreateError, Describe, FilterPlan, HashRange,
    Kind, LINE_BITS, RedisBloomShape, Shape, ShapeError, sizing,
};

use super::slice_shape::{SliceShape, SliceShapeError, positions_bytes};
use super::window_rules::WindowRules;
use crate::limits::{FILTER_BYTES_MAX, SHARD_COUNT_MAX, SLICE_BYTES_MAX};

/// Standard deviations above the mean for which a shard's slice is planned.
const SPREAD: f64 = 6.0;

/// Minimum number of blocks in a slice whose last block may lie across its border: that block costs at most
/// a 64th.
const SHARED_BORDER_BLOCKS: u64 = 64;

/// Splits of a shard that are to divide no block of its slices, at most: from 16 shards to 1,024.
const HALVINGS_MAX: u32 = 6;

/// Share of a cuckoo filter that this may cost, as 1 in so many: its pages are large, and one that is
/// divided may forbid a merge.
const HALVED_PAGES_COST: u128 = 32;

/// Share of a counting filter that this may cost, as 1 in so many: its blocks are single lines.
const HALVED_LINES_COST: u128 = 512;

/// While the rate is too high, the size is raised by 1/512.
const GROWTH_STEP: u64 = 512;

/// Why there is no such filter. Request a different one.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum PlanError {
    /// No filter has this capacity and rate.
    #[error(transparent)]
    Shape(#[from] SliceShapeError),
    /// Plan fewer items or a higher rate, or use a cluster of more shards.
    #[error(
        "slices of {slice_bytes} bytes on {shard_count} shards, expected at most {SLICE_BYTES_MAX}: plan fewer items or \
         a higher rate, or have more shards (umbel cluster split)"
    )]
    SliceTooLarge {
        /// Bytes of the largest slice.
        slice_bytes: u64,
        /// Number of shards.
        shard_count: u32,
    },
    /// Plan fewer items or a higher rate, or another kind: more shards do not help.
    #[error(
        "a RedisBloom filter of {chain_bytes} bytes, which is whole in one shard, expected at most {SLICE_BYTES_MAX}: \
         plan fewer items or a higher rate, or another kind"
    )]
    ChainTooLarge {
        /// Bytes of the chain's first link.
        chain_bytes: u64,
    },
    /// Plan fewer items or a higher rate.
    #[error(
        "filter of {filter_bytes} bytes, expected at most {FILTER_BYTES_MAX}: plan fewer items or a higher rate"
    )]
    FilterTooLarge {
        /// Bytes of all slices.
        filter_bytes: u64,
    },
    /// Growing kinds have no fixed size, and the size of kinds that forget or refuse excess items follows
    /// from what they hold. Plan by items and rate.
    #[error("a {kind} filter is planned by items and rate, not by its size")]
    NoFixedSize {
        /// The requested kind.
        kind: Kind,
    },
    /// A window must be planned with its rules.
    #[error("a window is planned with its slices of time: name those in place of a kind")]
    NoWindow,
    /// A cluster cannot have so many shards.
    #[error("{shard_count} shards, expected at most {SHARD_COUNT_MAX}")]
    ShardCount {
        /// The requested number.
        shard_count: u32,
    },
}

impl From<CreateError> for PlanError {
    fn from(error: CreateError) -> Self {
        SliceShapeError::from(error).into()
    }
}

impl From<ShapeError> for PlanError {
    fn from(error: ShapeError) -> Self {
        CreateError::from(error).into()
    }
}

impl From<sizing::SizingError> for PlanError {
    fn from(error: sizing::SizingError) -> Self {
        CreateError::from(error).into()
    }
}

impl SliceShape {
    /// The shape of the slices of a filter that holds `capacity` items over all shards at this rate. For an
    /// aging filter, `capacity` is the least number of last items that it keeps; for a stable filter, the
    /// number of last inserts whose items it keeps, missing some of them at this rate, too; for a scalable
    /// filter, the capacity of all shards' first levels, and the rate is its permanent bound.
    ///
    /// # Errors
    /// If no filter of the kind has this capacity and rate, or it would be too large.
    ///
    /// ```
    /// use umbel_engine::shard::SliceShape;
    /// use umbel_filter::{CellCount, HashRange, Kind};
    ///
    /// let shards = CellCount::new(4)?;
    /// let shape = SliceShape::plan(Kind::Blocked, 1_000_000, 0.01, shards)?;
    /// // 250,000 + 6·500 items a shard at 9.91 bits.
    /// let bytes = shape.memory_bytes(HashRange::cell(0, shards))?;
    /// assert!(bytes.abs_diff(253_000 * 991 / 800) < 200);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn plan(
        kind: Kind,
        capacity: u64,
        false_positive_rate: f64,
        shard_count: CellCount,
    ) -> Result<Self, PlanError> {
        check_shard_count(shard_count)?;
        let item_count = items_of_a_shard(capacity, shard_count);
        let shape = match kind {
            Kind::Blocked | Kind::Counting => {
                let size = sizing::blocked_block_count(item_count, false_positive_rate)?;
                let lines = (size.block_count, LINE_BITS);
                let (count, block_bits) = match kind {
                    Kind::Counting => halvable(&[lines], HALVED_LINES_COST, shard_count),
                    _ => lines,
                };
                let block_count = over_all(count, shard_count);
                let (kind, probe_count) = (kind.id(), size.probe_count);
                Self::Blocks { kind, block_count, block_bits, probe_count }
            }
            Kind::Classic | Kind::Partitioned => {
                spread_blocks(kind, item_count, false_positive_rate, shard_count)?
            }
            Kind::SingleShot => {
                let (range, item_count) = (HashRange::WHOLE, over_all(item_count, shard_count));
                let plan = FilterPlan { kind, range, item_count, false_positive_rate };
                match AnyFilter::create(&plan)?.shape() {
                    Shape::SingleShot(shape) => {
                        Self::SingleShot { position_count: shape.position_count() }
                    }
                    other => return Err(ShapeError::Kind { kind: other.kind() }.into()),
                }
            }
            Kind::Scalable => {
                let item_count = over_all(item_count, shard_count);
                Self::Scalable { item_count, false_positive_rate }
            }
            Kind::RedisBloom => {
                let shape = RedisBloomShape::for_rate(capacity, false_positive_rate)?;
                return Self::plan_redis_bloom(shape, shard_count);
            }
            Kind::Window => return Err(PlanError::NoWindow),
            Kind::Cuckoo => cuckoo_pages(item_count, false_positive_rate, shard_count)?,
            Kind::Quotient => {
                let most = block_bits_max(item_count, shard_count);
                let size = sizing::quotient_size(item_count, false_positive_rate, most)?;
                let sizing::QuotientSize { page_count, page_slots, remainder_bits } = size;
                let block_count = over_all(page_count, shard_count);
                let (block_bits, probe_count) = (page_slots, remainder_bits);
                Self::Blocks { kind: kind.id(), block_count, block_bits, probe_count }
            }
            Kind::Aging | Kind::Stable => {
                // Each shard gets its share of the last items, so it must keep that many.
                let range = HashRange::WHOLE;
                let one = BlockShape::for_rate(kind, range, item_count, false_positive_rate)?;
                let pace = match kind {
                    // Items of a generation, summed over the shards like the planned items.
                    Kind::Aging => over_all(one.pace(), shard_count),
                    // What one insert does to the cells of its shard, independent of the number of shards.
                    _ => one.pace(),
                };
                Self::Paced {
                    kind: kind.id(),
                    block_count: over_all(one.map().block_count(), shard_count),
                    block_bits: one.block_bits(),
                    probe_count: one.probe_count(),
                    pace,
                }
            }
        };
        shape.check_size(item_count, shard_count)?;
        Ok(shape)
    }

    /// The shape of the slices of the largest filter of the kind, with `probe_count` probes per item, that
    /// takes at most `memory_bytes` over all shards. Every shard has at least one block, whatever the
    /// limit.
    ///
    /// # Errors
    /// If the kind is not an array of blocks, or the numbers are out of range.
    ///
    /// ```
    /// use umbel_engine::shard::SliceShape;
    /// use umbel_filter::{CellCount, HashRange, Kind};
    ///
    /// let shards = CellCount::new(4)?;
    /// let shape = SliceShape::plan_bytes(Kind::Blocked, 1 << 20, 6, shards)?;
    /// assert_eq!(shape.memory_bytes(HashRange::cell(3, shards))?, 1 << 18);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn plan_bytes(
        kind: Kind,
        memory_bytes: u64,
        probe_count: u32,
        shard_count: CellCount,
    ) -> Result<Self, PlanError> {
        check_shard_count(shard_count)?;
        let lines = memory_bytes / 64 / u64::from(shard_count.get());
        // One block is reserved for a border that two shards share.
        let spare = u64::from(!shard_count.get().is_power_of_two());
        let (block_count, block_lines) = match kind {
            Kind::Blocked => (lines.saturating_sub(spare), 1),
            Kind::Counting => ((lines / 4).saturating_sub(spare), 1),
            Kind::Classic | Kind::Partitioned => {
                let most = u64::from(block_bits_max(lines.saturating_mul(512), shard_count) / 512);
                let block_count = lines.div_ceil(most).max(1);
                let block_lines = (lines / (block_count + spare)).clamp(1, most);
                (block_count, block_lines)
            }
            Kind::SingleShot
            | Kind::Scalable
            | Kind::Window
            | Kind::Aging
            | Kind::Stable
            | Kind::Cuckoo
            | Kind::Quotient
            | Kind::RedisBloom => return Err(PlanError::NoFixedSize { kind }),
        };
        let block_count = over_all(block_count.max(1), shard_count);
        let block_bits = u32::try_from(block_lines).unwrap_or(u32::MAX).saturating_mul(LINE_BITS);
        let shape = Self::Blocks { kind: kind.id(), block_count, block_bits, probe_count };
        shape.check_size(0, shard_count)?;
        Ok(shape)
    }

    /// The shape of the slices of a windowed filter that holds `capacity` items at this rate, over all
    /// shards and all of its time slices together.
    ///
    /// # Errors
    /// If there is no such window, or it would be too large.
    ///
    /// ```
    /// use umbel_engine::shard::{LateItems, SliceShape, WindowRules, WindowTime};
    /// use umbel_filter::{CellCount, HashRange};
    ///
    /// let rules = WindowRules {
    ///     slice_ms: 60_000, slice_count: 10, time: WindowTime::Ingest, late: LateItems::Reject,
    ///     refresh: true,
    /// };
    /// let shards = CellCount::new(4)?;
    /// let shape = SliceShape::plan_window(1_000_000, 0.001, shards, rules)?;
    /// // 250,000 + 6·500 items a shard at 20.7 bits.
    /// let bytes = shape.memory_bytes(HashRange::cell(0, shards))?;
    /// assert!(bytes.abs_diff(253_000 * 207 / 80) < 4_000, "{bytes}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn plan_window(
        capacity: u64,
        false_positive_rate: f64,
        shard_count: CellCount,
        rules: WindowRules,
    ) -> Result<Self, PlanError> {
        check_shard_count(shard_count)?;
        let item_count = items_of_a_shard(capacity, shard_count);
        let most = block_bits_max(item_count, shard_count);
        let size = sizing::window_size(item_count, false_positive_rate, most)?;
        let sizing::WindowSize { block_count, block_slots, fingerprint_bits } = size;
        let block_count = over_all(block_count, shard_count);
        let shape = Self::Window { block_count, block_slots, fingerprint_bits, rules };
        shape.check_size(item_count, shard_count)?;
        Ok(shape)
    }

    /// The shape of a RedisBloom chain.
    ///
    /// # Errors
    /// If its first link exceeds the size of a slice.
    pub fn plan_redis_bloom(
        shape: RedisBloomShape,
        shard_count: CellCount,
    ) -> Result<Self, PlanError> {
        check_shard_count(shard_count)?;
        let shape = Self::from(shape);
        let chain_bytes = shape.memory_bytes(HashRange::WHOLE)?;
        if chain_bytes > SLICE_BYTES_MAX {
            return Err(PlanError::ChainTooLarge { chain_bytes });
        }
        Ok(shape)
    }

    /// The shape of a copy of a replicated window that holds `capacity` items at this rate in all of its
    /// time slices together, assuming they arrive evenly: each of the S slices gets its share. A query
    /// reads up to S + 2 slices, so each slice has the rate 1 − (1 − p)^(1/(S + 2)).
    ///
    /// # Errors
    /// If there is no such window.
    ///
    /// ```
    /// use umbel_engine::shard::{LateItems, SliceShape, WindowRules, WindowTime};
    /// use umbel_filter::HashRange;
    ///
    /// let rules = WindowRules {
    ///     slice_ms: 60_000, slice_count: 24, time: WindowTime::Ingest, late: LateItems::Reject,
    ///     refresh: true,
    /// };
    /// let shape = SliceShape::plan_ring(1_000_000, 0.01, rules)?;
    /// // 26 slices of 41,667 items each at a rate of 0.000387: 18.1 bits an item, 19.6 an item of the window.
    /// assert_eq!(shape.memory_bytes(HashRange::WHOLE)?, 26 * 1_476 * 64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn plan_ring(
        capacity: u64,
        false_positive_rate: f64,
        rules: WindowRules,
    ) -> Result<Self, PlanError> {
        rules.check().map_err(|what| SliceShapeError::Window { what })?;
        let item_count = capacity.div_ceil(u64::from(rules.slice_count));
        // Precise enough for small rates: 1 − (1 − p)^x = −(e^(x·ln(1 − p)) − 1).
        let asked = f64::from(rules.slice_count + 2);
        let share = 1.0 / asked;
        let rate = -(share * (-false_positive_rate).ln_1p()).exp_m1();
        if rate < sizing::BLOCKED_RATE_MIN {
            let least = 1.0 - (1.0 - sizing::BLOCKED_RATE_MIN).powf(asked);
            let what = format!(
                "a rate of {false_positive_rate:e}, expected at least {least:.1e} where {asked} slices of time \
                 are asked"
            );
            return Err(SliceShapeError::Window { what }.into());
        }
        let size = sizing::blocked_block_count(item_count, rate)?;
        let sizing::BlockedSize { block_count, probe_count } = size;
        let shape = Self::Ring { block_count, probe_count, rules, newest: 0 };
        // Refuses invalid shapes, and shapes larger than any filter.
        shape.memory_bytes(HashRange::WHOLE)?;
        Ok(shape)
    }

    /// Checks the size of every shard's slice, made for this many items.
    fn check_size(&self, item_count: u64, shard_count: CellCount) -> Result<(), PlanError> {
        let (mut filter_bytes, mut slice_bytes) = (0_u64, 0);
        let mut first_level: Option<BlockShape> = None;
        for shard in 0..shard_count.get() {
            let range = HashRange::cell(shard, shard_count);
            let bytes = match self.shape(range)? {
                Shape::SingleShot(shape) => positions_bytes(shape.width(), item_count),
                Shape::Scalable(shape) => {
                    // Every shard's slice has the same blocks, and computing the formula is expensive.
                    let level = match first_level {
                        Some(level) => level.with_range(range)?,
                        None => shape.level(0)?.1,
                    };
                    first_level = Some(level);
                    level.memory_bytes()
                }
                _ => self.memory_bytes(range)?,
            };
            filter_bytes = filter_bytes.saturating_add(bytes);
            slice_bytes = slice_bytes.max(bytes);
        }
        if slice_bytes > SLICE_BYTES_MAX {
            let shard_count = shard_count.get();
            return Err(PlanError::SliceTooLarge { slice_bytes, shard_count });
        }
        if filter_bytes > FILTER_BYTES_MAX {
            return Err(PlanError::FilterTooLarge { filter_bytes });
        }
        Ok(())
    }
}

const fn check_shard_count(shard_count: CellCount) -> Result<(), PlanError> {
    let shard_count = shard_count.get();
    if shard_count > SHARD_COUNT_MAX {
        return Err(PlanError::ShardCount { shard_count });
    }
    Ok(())
}

/// λ + 6·√λ, rounded up, but at most n.
fn items_of_a_shard(capacity: u64, shard_count: CellCount) -> u64 {
    let mean = capacity as f64 / f64::from(shard_count.get());
    #[expect(clippy::cast_possible_truncation, reason = "a cast from float saturates")]
    let planned = (mean + SPREAD * mean.sqrt()).ceil() as u64;
    planned.min(capacity)
}

/// The number over all shards. A number that is too large is refused later, as a shape.
fn over_all(of_a_shard: u64, shard_count: CellCount) -> u64 {
    of_a_shard.saturating_mul(shard_count.get().into())
}

/// The pages of a cuckoo filter: of the size of which there are the fewest slots, or of a smaller one of which
/// there are more.
fn cuckoo_pages(
    item_count: u64,
    rate: f64,
    shard_count: CellCount,
) -> Result<SliceShape, PlanError> {
    let most = block_bits_max(item_count, shard_count);
    let size = sizing::cuckoo_size(item_count, rate, most)?;
    let sizes = std::iter::successors(Some(size), |size| {
        let most = Some(size.page_slots / 2).filter(|&most| most >= LINE_BITS)?;
        sizing::cuckoo_size(item_count, rate, most).ok()
    });
    let sizes: Vec<_> = sizes.map(|size| (size.page_count, size.page_slots)).collect();
    let (page_count, block_bits) = halvable(&sizes, HALVED_PAGES_COST, shard_count);
    let (kind, block_count) = (Kind::Cuckoo.id(), over_all(page_count, shard_count));
    Ok(SliceShape::Blocks { kind, block_count, block_bits, probe_count: size.fingerprint_bits })
}

/// Of some sizes of one slice, each a number of blocks and their size, the one that can be halved most often
/// within whole blocks, with as many blocks more as that takes; and of several such the smallest one. It is
/// larger than the smallest given one, which comes first, by at most 1 in `cost`.
fn halvable(sizes: &[(u64, u32)], cost: u128, shard_count: CellCount) -> (u64, u32) {
    let bits = |&(count, block): &(u64, u32)| u128::from(count) * u128::from(block);
    let least = sizes.first().copied().unwrap_or((u64::MAX, LINE_BITS));
    if !shard_count.get().is_power_of_two() {
        return least;
    }
    let most = bits(&least) + bits(&least) / cost;
    let halved = |halvings: u32| {
        let whole = |&(count, block): &(u64, u32)| {
            Some((count.checked_next_multiple_of(1 << halvings)?, block))
        };
        let smallest = sizes.iter().filter_map(whole).min_by_key(|size| (bits(size), size.0));
        smallest.filter(|size| bits(size) <= most)
    };
    (0..=HALVINGS_MAX).rev().find_map(halved).unwrap_or(least)
}

/// The smallest number of equal blocks for a kind that spreads its probes.
fn spread_blocks(
    kind: Kind,
    item_count: u64,
    rate: f64,
    shard_count: CellCount,
) -> Result<SliceShape, PlanError> {
    let mut bit_count = sizing::classic_bit_count(item_count, rate)?;
    loop {
        let probe_count = sizing::classic_optimal_hash_count(bit_count, item_count)?;
        let pieces = bit_count.div_ceil(block_bits_max(bit_count, shard_count).into());
        let block_bits = bit_count.div_ceil(pieces).next_multiple_of(LINE_BITS.into());
        // Blocks are whole cache lines, so fewer of them may suffice.
        let blocks = bit_count.div_ceil(block_bits);
        let block_bits = u32::try_from(block_bits).unwrap_or(u32::MAX);
        // Computed for one shard as if it were the whole space, with that shard's blocks and items.
        let alone = BlockShape::new(kind, HashRange::WHOLE, blocks, block_bits, probe_count)?;
        if alone.false_positive_rate(item_count) <= rate {
            let (kind, block_count) = (kind.id(), over_all(blocks, shard_count));
            return Ok(SliceShape::Blocks { kind, block_count, block_bits, probe_count });
        }
        bit_count = bit_count.saturating_add(bit_count.div_ceil(GROWTH_STEP));
    }
}

/// Largest block size of a slice of this many bits (for a table, slots): a 64th of it if borders cannot
/// coincide.
fn block_bits_max(slice_bits: u64, shard_count: CellCount) -> u32 {
    if shard_count.get().is_power_of_two() {
        return BLOCK_BITS_MAX;
    }
    let bits = (slice_bits / SHARED_BORDER_BLOCKS).next_multiple_of(LINE_BITS.into());
    u32::try_from(bits).unwrap_or(BLOCK_BITS_MAX).clamp(LINE_BITS, BLOCK_BITS_MAX)
}
