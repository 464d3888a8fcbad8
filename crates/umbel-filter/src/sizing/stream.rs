//! Sizes and rates of the kinds that forget by what comes: aging and stable filters.

use super::{SizingError, check_items, check_rate};
use crate::lanes::BLOCK_PROBE_COUNT_MAX;
use crate::lanes::LINE_BITS;
use crate::stable_pace::STABLE_LOWERED_MAX;

/// The rate q that each of two generations may have so that both together err with
/// `false_positive_rate` (p): 1 − (1 − q)² = p, so q = 1 − √(1 − p) (Yoon 2010,
/// doi:10.1109/TKDE.2009.136, plans for the rate of both caches in the same way).
///
/// # Errors
/// If p does not lie in (0, 1).
///
/// ```
/// use umbel_filter::sizing::aging_generation_rate;
///
/// // 0.9 · 0.9 = 0.81.
/// assert!((aging_generation_rate(0.19)? - 0.1).abs() < 1e-12);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn aging_generation_rate(false_positive_rate: f64) -> Result<f64, SizingError> {
    check_rate(false_positive_rate)?;
    // The same without the difference of two numbers that are nearly equal.
    Ok(false_positive_rate / (1.0 + (1.0 - false_positive_rate).sqrt()))
}

/// Zeros among the cells of a stable filter in the limit: (1 + k/P)^−Max, where an insert lowers P cells
/// (`lowered_cells`) and sets k (`probe_count`) to Max (`cell_max`) (Deng & Rafiei 2006,
/// doi:10.1145/1142473.1142477, theorem 2, for many cells). The rate of false *present* tends to
/// (1 − zeros)^k; where the k cells share a block of 512, to a little more. Numbers that no filter has count as the nearest:
/// k and P as 1 at least, Max as 1 to 15.
///
/// ```
/// use umbel_filter::sizing::stable_zeros;
///
/// // 11/14 with k = 3, P = 11, Max = 1; then (3/14)^3 = 27/2744 of the strangers are present, 0.98 %.
/// assert!((stable_zeros(3, 11, 1) - 11.0 / 14.0).abs() < 1e-12);
/// ```
#[must_use]
pub fn stable_zeros(probe_count: u32, lowered_cells: u32, cell_max: u32) -> f64 {
    let (probes, lowered, cell_max) = nearest(probe_count, lowered_cells, cell_max);
    (f64::from(cell_max) * (lowered / (lowered + probes)).ln()).exp()
}

/// The nearest k, P and Max that a filter can have.
fn nearest(probe_count: u32, lowered_cells: u32, cell_max: u32) -> (f64, f64, u32) {
    let (probes, lowered) = (probe_count.max(1), lowered_cells.max(1));
    (probes.into(), lowered.into(), cell_max.clamp(1, CELL_MAX))
}

/// How often an item is missing that came last δ (`age`) inserts ago, into m (`cell_count`) cells.
///
/// Seen backwards from the question, one of its cells is 0 if it was lowered Max times before it was
/// set, by anybody, and within the δ inserts. Settings and lowerings come at k : P, so that Max of
/// lowerings come first with (P/(P + k))^Max, and in time with the probability that a Poisson number of
/// mean (P + k)·δ/m is Max at least:
///
/// P0 = (P/(P + k))^Max · Pr[Poisson((P + k)·δ/m) ≥ Max],   missed = 1 − (1 − P0)^k.
///
/// This is the sum of Deng & Rafiei 2006 (doi:10.1145/1142473.1142477, section 4.2) in the limit of many
/// cells, with the k cells independent. As neighbouring cells are lowered together, cells of one block
/// reach 0 together rather than one by one, and less is missed than this says. Numbers that no filter has count as the
/// nearest, as in [`stable_zeros`], and m as 1 at least.
///
/// ```
/// use umbel_filter::sizing::stable_missed_rate;
///
/// // k = 3, P = 11, Max = 1: 10 % after m/314 inserts. 11/14 · (1 − e^(−14/314)) = 0.0343, and
/// // 1 − 0.9657^3 = 0.0994.
/// assert!((stable_missed_rate(3, 11, 1, 314_000, 1_000) - 0.0994).abs() < 1e-4);
/// ```
#[must_use]
pub fn stable_missed_rate(
    probe_count: u32,
    lowered_cells: u32,
    cell_max: u32,
    cell_count: u64,
    age: u64,
) -> f64 {
    let zeros = stable_zeros(probe_count, lowered_cells, cell_max);
    let (probes, lowered, cell_max) = nearest(probe_count, lowered_cells, cell_max);
    let mean = (probes + lowered) * age as f64 / cell_count.max(1) as f64;
    let zero = zeros * poisson_tail(mean, cell_max);
    -(probes * (-zero.min(1.0)).ln_1p()).exp_m1()
}

/// Numbers of a stable filter: what [`stable_size`] finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StableSize {
    /// Number of blocks of 512 cells.
    pub block_count: u64,
    /// Cells of an item, k.
    pub probe_count: u32,
    /// Cells that an insert lowers, P.
    pub lowered_cells: u32,
    /// What an insert sets its cells to, Max.
    pub cell_max: u32,
}

/// The least stable filter of which strangers are present with this rate (p) at most, however many come,
/// and of which items that came last `item_count` inserts ago are missing with it at most.
///
/// For each k the largest share of cells above 0 that keeps p, by the rate of blocked filters and
/// [`stable_crowding`]; for each
/// Max the fewest lowerings P that keep it, and then the cells that the missing need.
///
/// # Errors
/// If there are no items, p does not lie in (0, 1), or no such filter has it.
///
/// ```
/// use umbel_filter::sizing::{stable_missed_rate, stable_size, stable_zeros};
///
/// let size = stable_size(1_000_000, 0.01)?;
/// let (k, lowered, max) = (size.probe_count, size.lowered_cells, size.cell_max);
/// assert!((1.0 - stable_zeros(k, lowered, max)).powi(k.cast_signed()) < 0.01);
/// assert!(stable_missed_rate(k, lowered, max, size.block_count * 512, 1_000_000) <= 0.01);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn stable_size(item_count: u64, rate: f64) -> Result<StableSize, SizingError> {
    check_rate(rate)?;
    check_items(item_count)?;
    let mut best: Option<(f64, StableSize)> = None;
    for probe_count in 1..=BLOCK_PROBE_COUNT_MAX {
        let Some(fill) = fill_at_rate(probe_count, rate / stable_crowding(probe_count))? else {
            continue;
        };
        for cell_max in 1..=CELL_MAX {
            let Some((cells, size)) = size_at(probe_count, cell_max, fill, item_count, rate) else {
                continue;
            };
            if best.is_none_or(|(least, _)| cells < least) {
                best = Some((cells, size));
            }
        }
    }
    best.map(|(_, size)| size).ok_or(SizingError::BlockedRate { rate })
}

/// How many times more often than a blocked filter of as many cells above 0 a stable one is taken to err:
/// e^(k²/170). Neighbouring cells are lowered together, so that the shares of cells above 0 differ more
/// from block to block and lane to lane than items alone make them, and k cells multiply that.
/// Measured at the limit, of plans for 10 %, 1 %, 0.1 % and 0.01 % with 3, 6, 8 and 10 cells: 1.02, 1.09,
/// 1.38 and 1.79 times, where this is 1.05, 1.24, 1.46 and 1.80. Infinite for more cells than any block has.
///
/// ```
/// use umbel_filter::sizing::stable_crowding;
///
/// // 100/170 = 0.588.
/// assert!((stable_crowding(10) - 1.80).abs() < 0.001);
/// ```
#[must_use]
pub fn stable_crowding(probe_count: u32) -> f64 {
    (f64::from(probe_count).powi(2) / CROWDING).exp()
}

/// See [`stable_crowding`].
const CROWDING: f64 = 170.0;

/// Largest value of a cell of four bits.
const CELL_MAX: u32 = 15;

/// Blocks of the filter by which a share of cells above 0 is planned: so many that their number does not
/// matter.
const MANY_BLOCKS: u64 = 1 << 20;

/// Steps of a search by halving: to the last bit of a float.
const HALVINGS: u32 = 60;

/// The largest share of cells above 0 with which k cells in a block of 512 err at this rate at most.
fn fill_at_rate(probe_count: u32, rate: f64) -> Result<Option<f64>, SizingError> {
    let rate_of = |items: u64| super::blocked_false_positive_rate(MANY_BLOCKS, probe_count, items);
    let (mut least, mut most) = (0, MANY_BLOCKS * u64::from(LINE_BITS));
    while least < most {
        let middle = least + (most - least).div_ceil(2);
        if rate_of(middle)? <= rate {
            least = middle;
        } else {
            most = middle - 1;
        }
    }
    let load = least as f64 / MANY_BLOCKS as f64;
    // Each item of a block sets k of its 512 cells, each once.
    let spared = (-f64::from(probe_count) / f64::from(LINE_BITS)).ln_1p();
    Ok((least > 0).then(|| -(load * spared).exp_m1()))
}

/// The least filter with these cells of an item and this Max: its cells as a fraction, and its numbers.
fn size_at(
    probe_count: u32,
    cell_max: u32,
    fill: f64,
    item_count: u64,
    rate: f64,
) -> Option<(f64, StableSize)> {
    // (1 + k/P)^−Max ≥ 1 − fill.
    let ratio = (-(1.0 - fill).ln() / f64::from(cell_max)).exp_m1();
    let lowered = (f64::from(probe_count) / ratio).ceil();
    if !(1.0..=f64::from(STABLE_LOWERED_MAX)).contains(&lowered) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked")]
    let lowered_cells = lowered as u32;
    let missed_cell = -((-rate).ln_1p() / f64::from(probe_count)).exp_m1();
    let tail = missed_cell / stable_zeros(probe_count, lowered_cells, cell_max);
    // The mean number of events of a cell in time, which the tail bounds: at most 1 is no bound.
    let (mut low, mut high) = (0.0, 4.0 * f64::from(cell_max) + 40.0);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if poisson_tail(middle, cell_max) <= tail {
            low = middle;
        } else {
            high = middle;
        }
    }
    if low <= 0.0 {
        return None;
    }
    let cells = item_count as f64 * (lowered + f64::from(probe_count)) / low;
    let blocks = (cells / f64::from(LINE_BITS)).ceil().max(1.0);
    // Too many are refused as a shape.
    #[expect(clippy::cast_possible_truncation, reason = "saturates")]
    let block_count = blocks as u64;
    Some((cells, StableSize { block_count, probe_count, lowered_cells, cell_max }))
}

/// Pr[Poisson(mean) ≥ least], by the terms from `least` on, which falls to nothing soon where the mean is
/// below it, and by those before it where it is not.
fn poisson_tail(mean: f64, least: u32) -> f64 {
    if mean <= 0.0 {
        return if least == 0 { 1.0 } else { 0.0 };
    }
    let mut term = (-mean).exp();
    let mut below = 0.0;
    for number in 1..=least {
        below += term;
        term *= mean / f64::from(number);
    }
    if mean > f64::from(least) {
        return (1.0 - below).clamp(0.0, 1.0);
    }
    let mut sum = 0.0;
    for number in least + 1..=least + POISSON_TERMS {
        sum += term;
        term *= mean / f64::from(number);
    }
    sum
}

/// Terms of a tail that begins above the mean: each is smaller than the one before, by half and more
/// after twice the mean.
const POISSON_TERMS: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    /// The slow twin: the probabilities, summed from 0 on.
    #[test]
    fn tails_are_what_the_head_leaves() {
        for mean in [0.0_f64, 1e-3, 0.5, 3.0, 8.3, 20.0, 100.0, 1_000.0] {
            for least in [1_u32, 3, 15] {
                let mut head = 0.0;
                for number in 0..least {
                    let factorial: f64 = (1..=number).map(f64::from).product();
                    head += (-mean).exp() * mean.powi(number.cast_signed()) / factorial;
                }
                let tail = poisson_tail(mean, least);
                assert!((tail - (1.0 - head)).abs() < 1e-12, "{mean} {least}: {tail}");
                assert!((0.0..=1.0).contains(&tail));
            }
        }
        // Where the difference from 1 would have no digits left: mean^15 / 15!.
        let tiny = poisson_tail(1e-3, 15);
        assert!((tiny / (1e-45 / 1_307_674_368_000.0) - 1.0).abs() < 1e-3, "{tiny}");
    }

    /// Both rates are kept with little to spare, and one block fewer would not keep them.
    #[test]
    fn stable_sizes_are_the_least() {
        for rate in [0.1, 0.01, 1e-3, 1e-4, 1e-6] {
            for item_count in [1_u64, 1_000, 1_000_000] {
                let size = stable_size(item_count, rate).unwrap();
                let StableSize { block_count, probe_count, lowered_cells, cell_max } = size;
                let missed = |blocks: u64| {
                    let cells = blocks * u64::from(LINE_BITS);
                    stable_missed_rate(probe_count, lowered_cells, cell_max, cells, item_count)
                };
                assert!(missed(block_count) <= rate * 1.000_001, "{rate}: {size:?}");
                // Not by blocks that round up alone.
                let fewer = block_count - block_count.div_ceil(100);
                assert!(fewer == 0 || missed(fewer) > rate, "{rate}: {size:?}");
                let fill = 1.0 - stable_zeros(probe_count, lowered_cells, cell_max);
                assert!(fill.powi(probe_count.cast_signed()) <= rate, "{rate}: {size:?}");
            }
        }
        assert_eq!(stable_size(0, 0.1), Err(SizingError::NoItems));
        assert!(matches!(stable_size(1, f64::NAN), Err(SizingError::Rate { .. })));
        assert!(stable_size(1, 1e-12).is_err());
        assert!(stable_size(u64::MAX, 0.1).unwrap().block_count > 1 << 48);
    }

    #[test]
    fn numbers_of_no_filter_have_rates() {
        assert!(stable_crowding(65_536).is_infinite());
        let most = u32::MAX;
        for probe_count in [0, 1, 16, most] {
            for lowered_cells in [0, 1, most] {
                for cell_max in [0, 1, 15, most] {
                    let zeros = stable_zeros(probe_count, lowered_cells, cell_max);
                    assert!((0.0..=1.0).contains(&zeros), "{zeros}");
                    for (cell_count, age) in [(0, 0), (0, u64::MAX), (u64::MAX, 1), (512, 7)] {
                        let missed = stable_missed_rate(
                            probe_count,
                            lowered_cells,
                            cell_max,
                            cell_count,
                            age,
                        );
                        assert!((0.0..=1.0).contains(&missed), "{missed}");
                    }
                }
            }
        }
    }

    #[test]
    fn two_generations_make_the_rate() {
        for rate in [0.9, 0.1, 1e-3, 1e-9, 1e-300] {
            let each = aging_generation_rate(rate).unwrap();
            let both = each * (2.0 - each);
            assert!((both / rate - 1.0).abs() < 1e-12, "{rate}: {both}");
        }
        for rate in [0.0, 1.0, -0.5, f64::NAN] {
            assert!(aging_generation_rate(rate).is_err());
        }
    }
}
