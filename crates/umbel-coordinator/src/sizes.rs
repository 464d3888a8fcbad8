//! Turns what a client requests into the settings of a filter.

use umbel_engine::limits::{FILTER_BYTES_MAX, REPLICATED_BYTES_MAX, SLICE_BYTES_MAX};
use umbel_engine::meta::{Distribution, FilterSettings, HashKey, MetaError};
use umbel_engine::shard::{PlanError, SliceShape, WindowRules, WindowTime};
use umbel_filter::{
    BlockShape, CellCount, HashRange, Kind, PROBE_COUNT_MAX, RedisBloomShape, sizing,
};

use umbel_node::failure::CallFailure;

use crate::Result;

/// How large a filter is to be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FilterSize {
    /// As large as this false-positive rate requires.
    Rate(f64),
    /// As large as the capacity requires in a filter that grows, and still has at most this false-positive rate
    /// when it has grown to this many items.
    Grown {
        /// The rate.
        rate: f64,
        /// The number of items, if the capacity is not larger.
        item_count: u64,
    },
    /// This many bytes over all shards.
    Bytes(u64),
    /// As large as this false-positive rate requires, over all slices of time together.
    Window {
        /// The rate.
        rate: f64,
        /// How time is cut into slices.
        rules: WindowRules,
    },
    /// RedisBloom's chain, as `BF.RESERVE` requests it.
    Chain {
        /// The maximum false-positive rate of the chain.
        rate: f64,
        /// Each link has this many times the capacity of the link before; None for a fixed chain.
        expansion: Option<u32>,
    },
}

/// Cells for which a replicated filter is planned: one slice if that is small enough, otherwise four.
/// Four slices of the largest size are the largest copy.
const COPY_CELLS: [u32; 2] = [1, 4];

/// The settings of a filter for this many items.
///
/// # Errors
/// [`CallFailure::Invalid`] if there is no such filter, [`MetaError::Quota`] if it is too large.
pub(super) fn planned(
    kind: Kind,
    distribution: Distribution,
    capacity: u64,
    size: FilterSize,
    cells: CellCount,
    key: HashKey,
) -> Result<FilterSettings> {
    if capacity == 0 {
        let what = "capacity is 0, expected at least 1".to_owned();
        return Err(CallFailure::Invalid { what });
    }
    let planned = match (distribution, size) {
        (Distribution::Partitioned, _) => planned_over(kind, capacity, size, cells),
        (Distribution::Replicated, FilterSize::Window { rate, rules }) => {
            planned_ring(capacity, rate, rules)
        }
        (Distribution::Replicated, _) => {
            over_copy_cells(|cells| planned_over(kind, capacity, size, cells))
        }
    };
    let (shape, false_positive_rate, memory_bytes) = planned?;
    let kind = kind.id();
    let settings = FilterSettings {
        distribution,
        kind,
        capacity,
        false_positive_rate,
        shape,
        memory_bytes,
        key,
    };
    Ok(settings)
}

/// Plans a ring of slices of time.
fn planned_ring(capacity: u64, rate: f64, rules: WindowRules) -> Result<(SliceShape, f64, u64)> {
    check_rate(rate)?;
    let what = match rules.time {
        WindowTime::Ingest => None,
        WindowTime::Event => {
            Some("event_time is set: items of a replicated window come when they arrive")
        }
        WindowTime::Manual => {
            Some("window.slice_ms is 0: slices of a replicated window end by time")
        }
    };
    if let Some(what) = what {
        return Err(CallFailure::Invalid { what: what.to_owned() });
    }
    let shape =
        SliceShape::plan_ring(capacity, rate, rules).map_err(|error| not_planned(&error))?;
    Ok((shape, rate, ring_bytes(&shape)?))
}

/// Bytes of a ring, if it does not exceed the limit of a copy.
fn ring_bytes(shape: &SliceShape) -> Result<u64> {
    let bytes = shape.memory_bytes(HashRange::WHOLE);
    let bytes = bytes.map_err(|error| not_planned(&error.into()))?;
    if bytes > REPLICATED_BYTES_MAX {
        let what = format!(
            "{bytes} bytes for each copy of the window, at most {REPLICATED_BYTES_MAX} are allowed"
        );
        return Err(MetaError::Quota { what }.into());
    }
    Ok(bytes)
}

/// Plans a copy as one slice if that is small enough, otherwise as several.
fn over_copy_cells<T>(plan: impl Fn(CellCount) -> Result<T>) -> Result<T> {
    let [one, most] = COPY_CELLS.map(|count| CellCount::new(count).expect("a small count"));
    let is_too_large =
        |outcome: &Result<T>| matches!(outcome, Err(CallFailure::Meta(MetaError::Quota { .. })));
    let planned = plan(one);
    let planned = if is_too_large(&planned) { plan(most) } else { planned };
    if is_too_large(&planned) {
        // The slices of a copy are not shards of the cluster, and more of them do not help.
        let what = format!(
            "each copy of a replicated filter has at most {REPLICATED_BYTES_MAX} bytes, and this one would have more: \
             plan fewer items or a higher rate, or a partitioned filter"
        );
        return Err(MetaError::Quota { what }.into());
    }
    planned
}

/// Shape, rate and bytes over this many cells.
fn planned_over(
    kind: Kind,
    capacity: u64,
    size: FilterSize,
    cells: CellCount,
) -> Result<(SliceShape, f64, u64)> {
    let (shape, false_positive_rate) = match size {
        FilterSize::Rate(rate) => {
            check_rate(rate)?;
            let shape = SliceShape::plan(kind, capacity, rate, cells);
            (shape.map_err(|error| not_planned_for(kind, capacity, rate, &error))?, rate)
        }
        FilterSize::Grown { rate, item_count } => {
            check_rate(rate)?;
            let first_rate = rate_before_growth(rate, capacity, item_count);
            let shape = SliceShape::plan(kind, capacity, first_rate, cells);
            (shape.map_err(|error| not_planned_for(kind, capacity, first_rate, &error))?, rate)
        }
        FilterSize::Window { rate, rules } => {
            check_rate(rate)?;
            let shape = SliceShape::plan_window(capacity, rate, cells, rules);
            (shape.map_err(|error| not_planned_for(kind, capacity, rate, &error))?, rate)
        }
        FilterSize::Chain { rate, expansion } => {
            check_rate(rate)?;
            let chain = match expansion {
                // The first link gets half of the rate, as in RedisBloom.
                Some(expansion) => RedisBloomShape::new(capacity, rate / 2.0, expansion),
                None => RedisBloomShape::new(capacity, rate, RedisBloomShape::EXPANSION)
                    .map(RedisBloomShape::fixed),
            };
            let chain =
                chain.map_err(|error| not_planned_for(kind, capacity, rate, &error.into()))?;
            let shape = SliceShape::plan_redis_bloom(chain, cells);
            (shape.map_err(|error| not_planned(&error))?, rate)
        }
        FilterSize::Bytes(bytes) => planned_bytes(kind, capacity, bytes, cells)?,
    };
    let memory_bytes = memory_bytes(&shape, capacity, cells)?;
    if let FilterSize::Bytes(bytes) = size
        && memory_bytes > bytes
    {
        let what = format!(
            "memory_bytes is {bytes}, expected at least {memory_bytes}: a filter of kind {kind} has a block in \
             each shard"
        );
        return Err(CallFailure::Invalid { what });
    }
    Ok((shape, false_positive_rate, memory_bytes))
}

/// The rate of a filter with `capacity` items that has `rate` with `item_count` items, if those are more: it has
/// the same positions before and after it grows, and its rate is the share of them that are taken.
#[expect(clippy::cast_precision_loss, reason = "a share of a rate")]
fn rate_before_growth(rate: f64, capacity: u64, item_count: u64) -> f64 {
    rate * (capacity as f64 / capacity.max(item_count) as f64)
}

fn check_rate(rate: f64) -> Result<()> {
    if rate > 0.0 && rate < 1.0 {
        return Ok(());
    }
    let what = format!("false_positive_rate is {rate}, expected a number between 0 and 1");
    Err(CallFailure::Invalid { what })
}

/// The shape for a size in bytes, with the number of probes that has the lowest rate, and that rate.
fn planned_bytes(
    kind: Kind,
    capacity: u64,
    bytes: u64,
    cells: CellCount,
) -> Result<(SliceShape, f64)> {
    if bytes > FILTER_BYTES_MAX {
        return Err(not_planned(&PlanError::FilterTooLarge { filter_bytes: bytes }));
    }
    let mut best: Option<(SliceShape, f64)> = None;
    for probe_count in 1..=PROBE_COUNT_MAX {
        let shape = SliceShape::plan_bytes(kind, bytes, probe_count, cells);
        let shape = match (shape, &best) {
            (Ok(shape), _) => shape,
            (Err(error), None) => return Err(not_planned(&error)),
            // More probes than the kind supports.
            (Err(_), Some(_)) => break,
        };
        let rate = rate_of(&shape, capacity)?;
        // With more probes the rate falls, then rises.
        if best.is_some_and(|(_, least)| rate >= least) {
            break;
        }
        best = Some((shape, rate));
    }
    match best {
        Some((shape, rate)) if rate < 1.0 => Ok((shape, rate.max(f64::MIN_POSITIVE))),
        _ => {
            let what = format!("memory_bytes is {bytes}, too few to tell {capacity} items apart");
            Err(CallFailure::Invalid { what })
        }
    }
}

/// The rate of a filter of blocks, over all shards.
fn rate_of(shape: &SliceShape, capacity: u64) -> Result<f64> {
    let SliceShape::Blocks { block_count, block_bits, probe_count, .. } = *shape else {
        return Err(CallFailure::Invalid { what: "memory_bytes: the kind grows".to_owned() });
    };
    let kind = shape.kind().map_err(|error| not_planned(&error.into()))?;
    BlockShape::new(kind, HashRange::WHOLE, block_count, block_bits, probe_count)
        .map(|whole| whole.false_positive_rate(capacity))
        .map_err(|error| not_planned(&error.into()))
}

/// The number of items at which a filter of this shape has this rate; None for kinds that grow or forget.
pub(crate) fn items_at_rate(shape: &SliceShape, rate: f64) -> Option<f64> {
    let rate_at = |item_count| match *shape {
        SliceShape::SingleShot { position_count } => {
            sizing::single_shot_false_positive_rate(position_count, item_count).ok()
        }
        _ => rate_of(shape, item_count).ok(),
    };
    rate_at(0)?;
    // The rate rises with the number of items: a binary search of at most 64 steps.
    let (mut low, mut high) = (0, u64::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        if rate_at(middle)? < rate { low = middle + 1 } else { high = middle }
    }
    Some(low as f64)
}

/// Bytes of one copy of a replicated filter, at the planned number of items.
///
/// # Errors
/// If the shape is invalid, or the copy is too large.
pub(super) fn copy_bytes(shape: &SliceShape, capacity: u64) -> Result<u64> {
    if matches!(shape, SliceShape::Ring { .. }) {
        return ring_bytes(shape);
    }
    over_copy_cells(|cells| memory_bytes(shape, capacity, cells))
}

/// Bytes of one replica of all slices, at the planned number of items; for a scalable filter those of its
/// first level, for RedisBloom's kind those of its first link.
///
/// # Errors
/// If the shape is invalid, or one of its slices is too large.
pub(super) fn memory_bytes(shape: &SliceShape, capacity: u64, cells: CellCount) -> Result<u64> {
    if let SliceShape::SingleShot { position_count } = *shape {
        // A position costs about the logarithm of the gap to the next one, and two bits.
        let gap = position_count / capacity.max(1);
        let bits = u64::from(gap.max(1).ilog2()) + 2;
        return Ok(capacity.saturating_mul(bits).div_ceil(8));
    }
    let mut sum = 0_u64;
    for cell in 0..cells.get() {
        let slice_bytes = shape
            .memory_bytes(HashRange::cell(cell, cells))
            .map_err(|error| not_planned(&error.into()))?;
        if slice_bytes > SLICE_BYTES_MAX {
            let shard_count = cells.get();
            return Err(not_planned(&PlanError::SliceTooLarge { slice_bytes, shard_count }));
        }
        sum = sum.saturating_add(slice_bytes);
    }
    Ok(sum)
}

/// A filter that was not planned, with what was requested: the plan's error may speak of a part alone, such as the blocks
/// of a counting filter, or one generation of an aging filter with its share of the rate.
fn not_planned_for(kind: Kind, capacity: u64, rate: f64, error: &PlanError) -> CallFailure {
    match (error, not_planned(error)) {
        (PlanError::Shape(error), CallFailure::Invalid { .. }) => {
            let asked = format!("kind {kind} for {capacity} items at a rate of {rate:?}");
            CallFailure::Invalid { what: format!("{asked}: {error}") }
        }
        (_, failure) => failure,
    }
}

fn not_planned(error: &PlanError) -> CallFailure {
    let what = error.to_string();
    match error {
        PlanError::SliceTooLarge { .. }
        | PlanError::ChainTooLarge { .. }
        | PlanError::FilterTooLarge { .. } => MetaError::Quota { what }.into(),
        PlanError::Shape(_)
        | PlanError::NoFixedSize { .. }
        | PlanError::NoWindow
        | PlanError::ShardCount { .. } => CallFailure::Invalid { what },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: HashKey = HashKey::Xxh3 { seed: 1 };

    fn cells(count: u32) -> CellCount {
        CellCount::new(count).unwrap()
    }

    fn plan(kind: Kind, capacity: u64, size: FilterSize) -> Result<FilterSettings> {
        planned(kind, Distribution::Partitioned, capacity, size, cells(4), KEY)
    }

    #[test]
    fn a_rate_makes_a_size() {
        for kind in Kind::ALL.into_iter().filter(|&kind| kind != Kind::Window) {
            let settings = plan(kind, 1_000_000, FilterSize::Rate(0.01)).unwrap();
            let bits = settings.memory_bytes as f64 * 8.0 / 1_000_000.0;
            let expected = match kind {
                Kind::Counting => 39.0..42.0,
                // Its first level has a lower rate, so that all levels together keep the bound.
                Kind::Scalable => 14.0..15.5,
                Kind::SingleShot => 7.0..9.0,
                // Two generations of all items, each at half of the rate.
                Kind::Aging => 22.5..24.0,
                Kind::Stable => 90.0..105.0,
                // Pages of 2^16 slots; a shard has only whole pages.
                Kind::Cuckoo => 10.7..12.5,
                Kind::Quotient => 11.7..13.5,
                // One link, with half of the rate, in one shard.
                Kind::RedisBloom => 11.02..11.04,
                _ => 9.5..10.3,
            };
            assert!(expected.contains(&bits), "{kind}: {bits} bits an item");
            assert_eq!(settings.false_positive_rate, 0.01);
        }
    }

    #[test]
    fn a_copy_may_be_larger_than_a_slice() {
        let plan = |capacity| {
            let (kind, distribution) = (Kind::Blocked, Distribution::Replicated);
            planned(kind, distribution, capacity, FilterSize::Rate(0.01), cells(16), KEY)
        };
        let small = plan(1_000).unwrap();
        // No reserve for shards with more than their share.
        assert!((small.memory_bytes as f64 * 8.0 / 1_000.0) < 10.5, "{small:?}");
        let large = plan(800_000_000).unwrap();
        assert!(large.memory_bytes > SLICE_BYTES_MAX, "{large:?}");
        let Err(CallFailure::Meta(MetaError::Quota { what })) = plan(1 << 40) else {
            panic!("too large")
        };
        assert!(
            what.starts_with("each copy of a replicated filter has at most 1073741824"),
            "{what}"
        );
    }

    #[test]
    fn errors_name_what_was_requested_and_what_to_do() {
        for (kind, part) in [(Kind::Counting, "rate 1e-9 of"), (Kind::Aging, "of a blocked filter")]
        {
            let error = plan(kind, 1_000, FilterSize::Rate(1e-9)).unwrap_err().to_string();
            let asked = format!("kind {kind} for 1000 items at a rate of 1e-9: ");
            assert!(error.starts_with(&asked) && error.contains(part), "{error}");
        }
        let said = |kind| {
            let refused = plan(kind, 1 << 32, FilterSize::Rate(0.01));
            let Err(CallFailure::Meta(MetaError::Quota { what })) = refused else {
                panic!("{refused:?}")
            };
            what
        };
        assert!(said(Kind::Blocked).contains("or have more shards (umbel cluster split)"));
        assert!(said(Kind::RedisBloom).contains("which is whole in one shard"));
    }

    /// The rate is that of a filter that has grown; one that is planned for more items from the beginning is not
    /// larger for it.
    #[test]
    fn a_filter_that_grows_is_planned_for_its_rate_with_more_items() {
        let size = FilterSize::Grown { rate: 0.01, item_count: 1 << 20 };
        let of = |capacity| plan(Kind::Quotient, capacity, size).unwrap();
        for (capacity, excess_bytes_max) in [(4, 4_000), (1_000, 6_000), (100_000, 70_000)] {
            let settings = of(capacity);
            assert_eq!(settings.false_positive_rate, 0.01);
            let at_rate = items_at_rate(&settings.shape, 0.01).unwrap();
            assert!(at_rate >= f64::from(1 << 20), "{capacity}: {at_rate}");
            let plain = plan(Kind::Quotient, capacity, FilterSize::Rate(0.01)).unwrap();
            let excess_bytes = settings.memory_bytes - plain.memory_bytes;
            assert!((1..=excess_bytes_max).contains(&excess_bytes), "{capacity}: {excess_bytes}");
        }
        let large = plan(Kind::Quotient, 5_000_000, FilterSize::Rate(0.01)).unwrap();
        assert_eq!(of(5_000_000), large);
    }

    #[test]
    fn a_size_makes_a_rate() {
        let blocked = plan(Kind::Blocked, 1_000_000, FilterSize::Rate(0.01)).unwrap();
        let bytes = FilterSize::Bytes(blocked.memory_bytes);
        let again = plan(Kind::Blocked, 1_000_000, bytes).unwrap();
        assert!(again.memory_bytes <= blocked.memory_bytes);
        // Without the reserve for shards with more than their share the rate is lower.
        assert!((0.007..0.0105).contains(&again.false_positive_rate), "{again:?}");
        let classic = plan(Kind::Classic, 1_000_000, bytes).unwrap();
        assert!(classic.false_positive_rate < again.false_positive_rate);
    }

    #[test]
    fn what_is_no_filter_is_refused() {
        let is_invalid = |outcome| matches!(outcome, Err(CallFailure::Invalid { .. }));
        let is_quota = |outcome| matches!(outcome, Err(CallFailure::Meta(MetaError::Quota { .. })));
        for rate in [0.0, 1.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(is_invalid(plan(Kind::Blocked, 10, FilterSize::Rate(rate))), "{rate}");
        }
        assert!(is_invalid(plan(Kind::Blocked, 0, FilterSize::Rate(0.1))));
        assert!(is_invalid(plan(Kind::Scalable, 10, FilterSize::Bytes(1000))));
        assert!(is_quota(plan(Kind::Blocked, 1 << 40, FilterSize::Rate(0.001))));
        assert!(is_quota(plan(Kind::Classic, 10, FilterSize::Bytes(1 << 60))));
        // One line for each shard is the minimum.
        let of_bytes = |bytes| plan(Kind::Blocked, 10, FilterSize::Bytes(bytes));
        let said = of_bytes(255).unwrap_err().to_string();
        assert!(said.contains("memory_bytes is 255, expected at least 256"), "{said}");
        assert_eq!(of_bytes(256).unwrap().memory_bytes, 256);
        // At it, with so many items, every absent item is called present.
        assert!(is_invalid(plan(Kind::Blocked, 1 << 30, FilterSize::Bytes(0))));
    }
}
