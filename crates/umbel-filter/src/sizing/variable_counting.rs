//! Size and rate of the counting filter with variable increments (Rottenstreich et al. 2014, doi:10.1109/TNET.2013.2272604).

use super::classic::check_shape;
use super::{SizingError, check_items, check_rate};
use crate::lanes::BLOCK_PROBE_COUNT_MAX;
use crate::lanes::LINE_BITS;

/// Largest base of increments, so that a cell holds four items before it sticks.
pub const VARIABLE_BASE_MAX: u8 = 32;

/// Most items of a block that are looked at one by one; with more every block has as many as the mean.
const BLOCK_ITEMS_MAX: f64 = 10_000.0;

/// Steps of a search for the load: each halves what is left of 64.
const STEPS: u32 = 60;

/// The probability that a cell admits an item that is none of its own, once it has had `raises` items in the mean and
/// increments are from L = `base` to 2L − 1: 1 − e^−a (1 + a (L − 1)/L + a² (L² − 1)/(12 L²)). One item of its own is told apart
/// by another increment, two by most sums; three never.
fn cell_rate(raises: f64, base: f64) -> f64 {
    let one = (base - 1.0) / base;
    let two = (base * base - 1.0) / (12.0 * base * base);
    1.0 - (-raises).exp() * (1.0 + raises * one + raises * raises * two)
}

/// Rate without blocks, of `cell_count` cells (m) with `probe_count` probes (k) and increments from `base` (L) after `item_count`
/// items (n), with a = k · n/m: (1 − e^−a (1 + a (L − 1)/L + a² (L² − 1)/(12 L²)))^k.
///
/// # Errors
/// If m or k is 0, or L is not from 2 to [`VARIABLE_BASE_MAX`].
///
/// ```
/// use umbel_filter::sizing::variable_counting_false_positive_rate;
///
/// // 28.9 bits an item are 3.61 cells of eight.
/// let rate = variable_counting_false_positive_rate(361_250, 4, 8, 100_000)?;
/// assert_eq!(format!("{rate:.4}"), "0.0100");
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn variable_counting_false_positive_rate(
    cell_count: u64,
    probe_count: u32,
    base: u8,
    item_count: u64,
) -> Result<f64, SizingError> {
    check_shape(cell_count, probe_count)?;
    check_base(base)?;
    let raises = f64::from(probe_count) * item_count as f64 / cell_count as f64;
    Ok(cell_rate(raises, base.into()).clamp(0.0, 1.0).powf(probe_count.into()))
}

/// The same in blocks of 512 cells: the rate in a block, over the Poisson number of its items.
///
/// # Errors
/// If there is no block or no probe, or the base is not from 2 to [`VARIABLE_BASE_MAX`].
///
/// ```
/// use umbel_filter::sizing::{
///     variable_counting_blocked_rate, variable_counting_false_positive_rate,
/// };
///
/// let blocked = variable_counting_blocked_rate(706, 4, 8, 100_000)?;
/// let free = variable_counting_false_positive_rate(706 * 512, 4, 8, 100_000)?;
/// assert!(blocked > free && blocked < 1.1 * free);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn variable_counting_blocked_rate(
    block_count: u64,
    probe_count: u32,
    base: u8,
    item_count: u64,
) -> Result<f64, SizingError> {
    if block_count == 0 {
        return Err(SizingError::NoBlocks);
    }
    if probe_count == 0 {
        return Err(SizingError::NoProbes);
    }
    check_base(base)?;
    let mean = item_count as f64 / block_count as f64;
    let raises = f64::from(probe_count) / f64::from(LINE_BITS);
    let in_block = |items: f64| {
        cell_rate(items * raises, base.into()).clamp(0.0, 1.0).powf(probe_count.into())
    };
    if mean > BLOCK_ITEMS_MAX || mean == 0.0 {
        return Ok(in_block(mean));
    }
    let (mut rate, mut log_chance, mut items) = (0.0, -mean, 0.0);
    // Beyond twelve standard deviations nothing is left.
    while items <= mean + 12.0 * mean.sqrt() + 20.0 {
        rate += log_chance.exp() * in_block(items);
        items += 1.0;
        log_chance += (mean / items).ln();
    }
    Ok(rate.min(1.0))
}

/// Blocks and probes of the smallest filter for so many items at a rate, with increments from `base`.
///
/// # Errors
/// If there are no items, the rate is not in (0, 1) or too low for any filter of the type, or the base is not from 2 to
/// [`VARIABLE_BASE_MAX`].
///
/// ```
/// use umbel_filter::sizing::variable_counting_size;
///
/// let (block_count, probe_count) = variable_counting_size(100_000, 0.01, 8)?;
/// assert_eq!(probe_count, 4);
/// let bits = block_count as f64 * 512.0 * 8.0 / 100_000.0;
/// assert_eq!(format!("{bits:.1}"), "29.2");
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn variable_counting_size(
    item_count: u64,
    false_positive_rate: f64,
    base: u8,
) -> Result<(u64, u32), SizingError> {
    check_rate(false_positive_rate)?;
    check_items(item_count)?;
    check_base(base)?;
    let mut best: Option<(u64, u32)> = None;
    for probe_count in 1..=BLOCK_PROBE_COUNT_MAX {
        let fits = |block_count: u64| {
            variable_counting_blocked_rate(block_count, probe_count, base, item_count)
                .is_ok_and(|rate| rate <= false_positive_rate)
        };
        // More blocks never err more often.
        let (mut too_few, mut enough) = (0, item_count.saturating_mul(u64::from(LINE_BITS)));
        if !fits(enough) {
            continue;
        }
        for _ in 0..STEPS + 13 {
            if too_few + 1 >= enough {
                break;
            }
            let middle = too_few + (enough - too_few) / 2;
            if fits(middle) { enough = middle } else { too_few = middle }
        }
        if best.is_none_or(|(least, _)| enough < least) {
            best = Some((enough, probe_count));
        }
    }
    best.ok_or(SizingError::VariableCountingRate { rate: false_positive_rate })
}

/// Refuses bases of which a cell tells nothing apart, or holds next to no items.
fn check_base(base: u8) -> Result<(), SizingError> {
    let is_base = (2..=VARIABLE_BASE_MAX).contains(&base);
    if is_base { Ok(()) } else { Err(SizingError::VariableBase { base }) }
}
