//! The levels of a scalable filter, which grows with its items.
//!
//! A scalable filter is a list of filters. When the last is full, a larger one is appended; a query
//! asks all. Level i holds s^i times the items of level 0 at the rate p·(1 − r)·r^i, so that the
//! rates of however many levels sum to less than p (Almeida, Baquero, Preguiça & Hutchison 2007,
//! *Scalable Bloom filters*, doi:10.1016/j.ipl.2006.10.007). Umbel's levels are blocked filters.
//!
//! Growing has a price, because later levels have lower rates than p. Bits an item when all levels
//! are full, beside one blocked filter that was made for all the items:
//!
//! | levels | items beside the first level's | 1 % | 0.1 % | 0.01 % |
//! |---|---|---|---|---|
//! | one filter | × any | 9.91 | 15.61 | 22.15 |
//! | 1 | × 1 | 14.56 | 20.91 | 28.43 |
//! | 5 | × 31 | 15.88 | 22.48 | 30.28 |
//! | 10 | × 1,023 | 17.99 | 25.00 | 33.31 |
//! | 20 | × 1,048,575 | 22.82 | 30.69 | 40.24 |

use super::blocked::BLOCKED_RATE_MIN;
use super::{SizingError, check_items, check_rate};

/// Items of a level beside those of the one before (s). With 2 about half of the memory may be idle
/// after a level is added, with 4 three quarters; and twenty levels hold a million times the items
/// of the first, so that even a bad guess does not make queries slow.
pub const SCALABLE_GROWTH: u64 = 2;

/// False-positive rate of a level beside that of the one before (r). The paper advises 0.8 to 0.9.
/// Small values make late levels dear and soon impossible, because blocked filters end at
/// [`BLOCKED_RATE_MIN`]; values near 1 make the first level dear, which gets only 1 − r of the
/// rate. With 0.85 a filter for 1 % can double 59 times, one for 0.01 % 30 times.
pub const SCALABLE_TIGHTENING: f64 = 0.85;

/// Plan of one level of a scalable filter: what [`scalable_level`] finds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ScalableLevel {
    /// Items that the level is made for.
    pub capacity: u64,
    /// False-positive rate that the level keeps up to its capacity.
    pub false_positive_rate: f64,
}

/// The plan of a scalable filter's level `level` (i, from 0), where level 0 holds `first_capacity`
/// items (n_0) and all levels together keep the `false_positive_rate` (p): capacity n_0 · 2^i and
/// rate p · (1 − r) · r^i with r = [`SCALABLE_TIGHTENING`] (Almeida et al. 2007,
/// doi:10.1016/j.ipl.2006.10.007).
///
/// # Errors
/// If n_0 is 0, p does not lie in (0, 1), the capacity exceeds 2^64 − 1 or the level's rate falls
/// below [`BLOCKED_RATE_MIN`].
///
/// ```
/// use umbel_filter::sizing::scalable_level;
///
/// // 1 % · 0.15 for the first, and 0.85 of that, for twice the items, for the second.
/// let first = scalable_level(1_000, 0.01, 0)?;
/// assert!(first.capacity == 1_000 && (first.false_positive_rate - 0.001_5).abs() < 1e-15);
/// let second = scalable_level(1_000, 0.01, 1)?;
/// assert!(second.capacity == 2_000 && (second.false_positive_rate - 0.001_275).abs() < 1e-15);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
///
/// What it costs: three levels for 7,000 items at 1 % take 209 · 512 / 7,000 = 15.3 bits an item,
/// one filter for as many 9.9.
///
/// ```
/// use umbel_filter::sizing::{blocked_block_count, scalable_level};
///
/// let mut block_count = 0;
/// for level in 0..3 {
///     let plan = scalable_level(1_000, 0.01, level)?;
///     block_count += blocked_block_count(plan.capacity, plan.false_positive_rate)?.block_count;
/// }
/// assert_eq!(block_count, 209);
/// assert_eq!(blocked_block_count(7_000, 0.01)?.block_count, 136);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn scalable_level(
    first_capacity: u64,
    false_positive_rate: f64,
    level: u32,
) -> Result<ScalableLevel, SizingError> {
    check_items(first_capacity)?;
    check_rate(false_positive_rate)?;
    let capacity = SCALABLE_GROWTH
        .checked_pow(level)
        .and_then(|growth| growth.checked_mul(first_capacity))
        .ok_or(SizingError::LevelCapacity { first_capacity, level })?;
    let first_rate = false_positive_rate * (1.0 - SCALABLE_TIGHTENING);
    let rate = first_rate * SCALABLE_TIGHTENING.powf(level.into());
    if rate < BLOCKED_RATE_MIN {
        return Err(SizingError::LevelRate { false_positive_rate, level, rate });
    }
    Ok(ScalableLevel { capacity, false_positive_rate: rate })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::blocked::{blocked_block_count, blocked_false_positive_rate};
    use super::*;

    #[test]
    fn levels_end_where_rates_or_numbers_do() {
        let level_count = |first_capacity, rate| {
            (0..).find(|&level| scalable_level(first_capacity, rate, level).is_err())
        };
        assert_eq!(level_count(1, 1e-2), Some(60));
        assert_eq!(level_count(1, 1e-4), Some(31));
        assert_eq!(level_count(1 << 40, 1e-2), Some(24));
        assert_eq!(scalable_level(0, 0.1, 0), Err(SizingError::NoItems));
        assert_eq!(scalable_level(1, 1.0, 0), Err(SizingError::Rate { rate: 1.0 }));
        let error = SizingError::LevelCapacity { first_capacity: 3, level: 63 };
        assert_eq!(scalable_level(3, 0.5, 63), Err(error));
        assert_eq!(error.to_string(), "level 63 after a first capacity of 3 exceeds 2^64 items");
        assert!(scalable_level(1, 0.5, u32::MAX).is_err());
        // The rate that was asked for is named, not the level's alone.
        let error = scalable_level(1, 1e-10, 0).unwrap_err();
        let said = "false-positive rate 1e-10 of a scalable filter, whose level 0 needs 1.5e-11: \
                    the least of a level is 1e-7";
        assert_eq!(error.to_string(), said);
        let error = scalable_level(1, 1e-6, 4).unwrap_err().to_string();
        assert!(
            error.contains("rate 1e-6 of") && error.contains("level 4 needs 7.8e-8"),
            "{error}"
        );
    }

    /// Bits an item of full levels, the first with 2^20 items.
    fn bits_an_item(rate: f64, level_count: u32) -> f64 {
        let (mut blocks, mut items) = (0, 0);
        for level in 0..level_count {
            let plan = scalable_level(1 << 20, rate, level).unwrap();
            blocks +=
                blocked_block_count(plan.capacity, plan.false_positive_rate).unwrap().block_count;
            items += plan.capacity;
        }
        512.0 * blocks as f64 / items as f64
    }

    #[test]
    fn the_table_of_the_module() {
        for (level_count, row) in [
            (1, [14.56, 20.91, 28.43]),
            (5, [15.88, 22.48, 30.28]),
            (10, [17.99, 25.00, 33.31]),
            (20, [22.82, 30.69, 40.24]),
        ] {
            for (rate, bits) in [0.01, 0.001, 0.000_1].into_iter().zip(row) {
                let measured = bits_an_item(rate, level_count);
                assert!((measured - bits).abs() < 0.006, "{level_count} {rate}: {measured}");
            }
        }
    }

    proptest! {
        /// The promise: full levels together stay below the rate that was asked for.
        #[test]
        fn all_levels_keep_the_rate(first in 1..1u64 << 30, exponent in 0.1..5.0f64) {
            let rate = 10f64.powf(-exponent);
            let mut none = 1.0;
            let mut sum = 0.0;
            for level in 0..64 {
                let Ok(plan) = scalable_level(first, rate, level) else { break };
                sum += plan.false_positive_rate;
                let size = blocked_block_count(plan.capacity, plan.false_positive_rate).unwrap();
                none *= 1.0 - blocked_false_positive_rate(
                    size.block_count, size.probe_count, plan.capacity,
                )
                .unwrap();
            }
            prop_assert!(sum < rate && 1.0 - none <= rate, "{sum} {none}");
        }
    }
}
