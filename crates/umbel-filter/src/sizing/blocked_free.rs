//! Blocked filters with free probes: a classic filter of b bits in every one of B blocks.
//!
//! An item has all its k probes in one block. A block holds a random number i of the n items, and a
//! query meets the block as it is, so the rate is the mean of the classic rate over i (Putze,
//! Sanders & Singler 2007, doi:10.1007/978-3-540-72845-0_9, and 2009, doi:10.1145/1498698.1594230):
//!
//! ```text
//! p = Σ P(i) · (1 − (1 − 1/b)^(k·i))^k      i ~ Binomial(n, 1/B)
//! ```
//!
//! The paper takes the limit of many blocks, Poisson(n/B). The binomial is no harder, and right for
//! one block too, where it is the classic rate itself.
//!
//! No gamma function is needed: the shares P(i) are known up to a factor, and the factor is the sum
//! of all. Up to a standard deviation of [`DEVIATION_DIRECT_MAX`] they follow from each other, from
//! the mean outward, until what is left is below the rounding. Beyond, P is a smooth bell, and its
//! sum over every eighth of a standard deviation, twelve to both sides, has all digits of the whole
//! sum: the trapezoid rule errs by e^(−2·π²·64) on a bell, and e^−72 lies outside.

use super::SizingError;
use super::classic::check_shape;

/// Largest standard deviation of the items of a block that is summed item by item: a thousand
/// terms, and large enough for the smooth sum above it.
const DEVIATION_DIRECT_MAX: f64 = 64.0;

/// Terms whose share is less than this of the sum are left out: below the rounding of an `f64`.
const SHARE_MIN: f64 = 1e-17;

/// False-positive rate of a blocked filter with free probes: `block_count` blocks (B) of
/// `block_bits` bits (b), `probe_count` independent probes (k) of each item in its block, after
/// `item_count` items (n): the mean of (1 − (1 − 1/b)^(k·i))^k over i ~ Binomial(n, 1/B) (Putze,
/// Sanders & Singler 2009, doi:10.1145/1498698.1594230). Ten digits of the sum are right.
///
/// Umbel's classic kind lives in blocks of 64 KiB, 2^19 bits: this is the rate that it is held
/// against. Such blocks cost next to nothing: at the classic size for 1 % their rate is higher by a
/// 6,000th of itself, for 0.01 % by an 800th. Blocks of 512 bits with free probes need 9.90 bits an
/// item for 1 % (k = 6), where the classic formula needs 9.59. In blocks that small Bloom's formula
/// is itself a trifle low: with [`super::classic_false_positive_rate_exact`] in every block it is
/// 9.92.
///
/// # Errors
/// If b, B or k is 0.
///
/// ```
/// use umbel_filter::sizing::{blocked_free_false_positive_rate, classic_false_positive_rate};
///
/// // One item, two blocks of two bits, one probe: same block 1/2, same bit 1/2.
/// let rate = blocked_free_false_positive_rate(2, 2, 1, 1)?;
/// assert!((rate - 0.25).abs() < 1e-15);
/// // A hundred blocks of 64 KiB and 10 bits an item: the classic rate, and 0.02 % of it more.
/// let blocked = blocked_free_false_positive_rate(1 << 19, 100, 7, 5_242_880)?;
/// let classic = classic_false_positive_rate(100 << 19, 7, 5_242_880)?;
/// assert!(blocked > classic && blocked < 1.0002 * classic);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn blocked_free_false_positive_rate(
    block_bits: u32,
    block_count: u64,
    probe_count: u32,
    item_count: u64,
) -> Result<f64, SizingError> {
    check_shape(block_bits.into(), probe_count)?;
    if block_count == 0 {
        return Err(SizingError::NoBlocks);
    }
    // Every probe of an item may set any bit: k probes an item, and k bits to be met.
    Ok(mean_over_blocks(block_count, item_count, block_bits.into(), probe_count, probe_count))
}

/// False-positive rate of a partitioned filter in blocks: each of `block_count` blocks (B) has
/// `part_count` parts (k) of `part_bit_count` bits (w), and an item has one probe in each part of
/// its block, after `item_count` items (n): the mean of (1 − (1 − 1/w)^i)^k over
/// i ~ Binomial(n, 1/B). Exact for independent probes, as parts share nothing.
///
/// # Errors
/// If w, B or k is 0.
///
/// ```
/// use umbel_filter::sizing::blocked_partitioned_false_positive_rate;
///
/// // One item, two blocks of two parts of two bits: same block 1/2, same bit in both parts 1/4.
/// let rate = blocked_partitioned_false_positive_rate(2, 2, 2, 1)?;
/// assert!((rate - 0.125).abs() < 1e-15);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn blocked_partitioned_false_positive_rate(
    part_bit_count: u64,
    part_count: u32,
    block_count: u64,
    item_count: u64,
) -> Result<f64, SizingError> {
    check_shape(part_bit_count, part_count)?;
    if block_count == 0 {
        return Err(SizingError::NoBlocks);
    }
    // Of an item's probes one goes to each part.
    Ok(mean_over_blocks(block_count, item_count, part_bit_count, 1, part_count))
}

/// The mean over blocks of the rate (1 − (1 − 1/m)^(probes · i))^bits of a block with i items, m
/// and B at least 1.
fn mean_over_blocks(
    block_count: u64,
    item_count: u64,
    bit_count: u64,
    probe_count: u32,
    asked_bit_count: u32,
) -> f64 {
    let zero_log = (-(bit_count as f64).recip()).ln_1p();
    let (probes, asked) = (f64::from(probe_count), f64::from(asked_bit_count));
    // One bit: minus infinity times no items is no number.
    let rate_in_block = |items: f64| {
        if items > 0.0 { (-(probes * items * zero_log).exp_m1()).powf(asked) } else { 0.0 }
    };
    if block_count == 1 {
        return rate_in_block(item_count as f64);
    }
    let mean = item_count as f64 / block_count as f64;
    let deviation = (mean * (1.0 - (block_count as f64).recip())).sqrt();
    let rate = if deviation <= DEVIATION_DIRECT_MAX {
        mean_direct(item_count, block_count, rate_in_block)
    } else {
        mean_smooth(item_count as f64, mean, deviation, rate_in_block)
    };
    rate.min(1.0)
}

/// Mean of f(i) for i ~ Binomial(n, 1/B), n/B small, B at least 2, and f rising from 0 to 1: term
/// by term from the mean outward.
fn mean_direct(item_count: u64, block_count: u64, f: impl Fn(f64) -> f64) -> f64 {
    // P(i + 1) / P(i) = (n − i) / (i + 1) / (B − 1).
    let others = (block_count - 1) as f64;
    let start = item_count / block_count;
    let (mut shares, mut sum) = (1.0, f(start as f64));
    let mut share = 1.0;
    for items in start..item_count {
        share *= (item_count - items) as f64 / ((items + 1) as f64 * others);
        shares += share;
        sum += share * f((items + 1) as f64);
        // No f above 1 can lift the rest, and underflow ends even a sum of 0.
        if share <= SHARE_MIN * sum {
            break;
        }
    }
    share = 1.0;
    for items in (0..start).rev() {
        share *= (items + 1) as f64 * others / (item_count - items) as f64;
        shares += share;
        sum += share * f(items as f64);
        if share <= SHARE_MIN {
            break;
        }
    }
    sum / shares
}

/// Mean of f(i) for i ~ Binomial(n, 1/B) with a standard deviation of dozens: every eighth of it,
/// twelve to both sides.
fn mean_smooth(item_count: f64, mean: f64, deviation: f64, f: impl Fn(f64) -> f64) -> f64 {
    let rest = item_count - mean;
    let (mut shares, mut sum) = (0.0, 0.0);
    for step in -96..=96 {
        let difference = f64::from(step) / 8.0 * deviation;
        let (inside, outside) = (mean + difference, rest - difference);
        // ln P up to a constant, by Stirling's series: ln x! = x·ln x − x + ln(2πx)/2 + 1/(12x).
        let share_log = -mean * log_excess(difference / mean)
            - rest * log_excess(-difference / rest)
            - 0.5 * ((difference / mean).ln_1p() + (-difference / rest).ln_1p())
            - (inside.recip() + outside.recip()) / 12.0;
        let share = share_log.exp();
        shares += share;
        sum += share * f(inside);
    }
    sum / shares
}

/// (1 + t)·ln(1 + t) − t, near t²/2 for small t.
fn log_excess(t: f64) -> f64 {
    if t.abs() < 1e-3 {
        // Where the difference would lose digits, its series has them with four terms.
        t * t * (1.0 / 2.0 - t * (1.0 / 6.0 - t * (1.0 / 12.0 - t / 20.0)))
    } else {
        (1.0 + t) * t.ln_1p() - t
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::classic::classic_false_positive_rate;
    use super::super::tests::whole;
    use super::*;

    /// Slow twin: all terms from no items on, each share by logarithms of factorials.
    fn rate_by_all_terms(block_bits: u32, block_count: u64, probe_count: u32, n: u64) -> f64 {
        let factorial_log = |x: u64| (1..=x).map(|i| (i as f64).ln()).sum::<f64>();
        let blocks = block_count as f64;
        (0..=n)
            .map(|items| {
                let share = factorial_log(n)
                    - factorial_log(items)
                    - factorial_log(n - items)
                    - items as f64 * blocks.ln()
                    + (n - items) as f64 * (-1.0 / blocks).ln_1p();
                let rate =
                    classic_false_positive_rate(block_bits.into(), probe_count, items).unwrap();
                share.exp() * rate
            })
            .sum()
    }

    #[test]
    fn the_shapes_are_checked() {
        let rate = blocked_free_false_positive_rate;
        assert_eq!(rate(0, 1, 1, 1), Err(SizingError::NoBits));
        assert_eq!(rate(1, 0, 1, 1), Err(SizingError::NoBlocks));
        assert_eq!(rate(1, 1, 0, 1), Err(SizingError::NoProbes));
        assert_eq!(rate(512, 7, 3, 0), Ok(0.0));
        // One bit a block: all that counts is whether any item fell there.
        assert!((rate(1, 4, 3, 2).unwrap() - 7.0 / 16.0).abs() < 1e-14);
    }

    #[test]
    fn any_argument_has_a_rate_at_once() {
        let ends = [1, 2, 1000, 1 << 20, 1 << 33, 1 << 52, u64::MAX - 1, u64::MAX];
        for block_bits in [1, 2, 512, 1 << 19, u32::MAX] {
            for block_count in ends {
                for probe_count in [1, 8, 1000, u32::MAX] {
                    for item_count in ends {
                        let rate = blocked_free_false_positive_rate(
                            block_bits,
                            block_count,
                            probe_count,
                            item_count,
                        )
                        .unwrap();
                        assert!((0.0..=1.0).contains(&rate), "{rate}");
                    }
                }
            }
        }
    }

    /// The bits an item of the documentation.
    #[test]
    fn known_sizes() {
        let rate_at = |block_bits: u32, bits_an_item: f64, probe_count| {
            let block_count = 1u64 << 24;
            let items = f64::from(block_bits) * block_count as f64 / bits_an_item;
            blocked_free_false_positive_rate(block_bits, block_count, probe_count, whole(items))
                .unwrap()
        };
        for (bits, k, rate) in [(9.90, 6, 0.01), (15.51, 10, 0.001)] {
            assert!(rate_at(512, bits - 0.01, k) > rate && rate_at(512, bits + 0.01, k) < rate);
        }
        // 64 KiB: a 6,000th above the classic rate.
        let classic = classic_false_positive_rate(10 << 20, 7, 1 << 20).unwrap();
        let blocked = rate_at(1 << 19, 10.0, 7);
        assert!(blocked > 1.0001 * classic && blocked < 1.0002 * classic);
    }

    #[test]
    fn both_sums_agree_where_they_meet() {
        for (mean, block_count) in [(4_200.0, 1_000_003), (8_000.0, 2), (12_288.0, 3)] {
            for bits in [6_000.0, 60_000.0, 600_000.0] {
                for k in [1.0, 8.0, 30.0] {
                    let f = |items: f64| (-(-k * items / bits).exp_m1()).powf(k);
                    let item_count = whole(mean * block_count as f64);
                    let mean = item_count as f64 / block_count as f64;
                    let deviation = (mean * (1.0 - 1.0 / block_count as f64)).sqrt();
                    let direct = mean_direct(item_count, block_count, f);
                    let smooth = mean_smooth(item_count as f64, mean, deviation, f);
                    assert!((direct / smooth - 1.0).abs() < 1e-11, "{direct} {smooth}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn the_sum_is_that_of_all_terms(
            block_bits in 1..2_000u32, block_count in 2..60u64, k in 1..20u32, n in 0..150u64,
        ) {
            let fast = blocked_free_false_positive_rate(block_bits, block_count, k, n).unwrap();
            let slow = rate_by_all_terms(block_bits, block_count, k, n);
            prop_assert!((fast - slow).abs() <= 1e-11 * slow, "{fast} {slow}");
        }

        #[test]
        fn one_block_is_classic(block_bits: u32, k: u32, n: u64) {
            prop_assume!(block_bits > 0 && k > 0);
            let blocked = blocked_free_false_positive_rate(block_bits, 1, k, n).unwrap();
            let classic = classic_false_positive_rate(block_bits.into(), k, n).unwrap();
            prop_assert!((blocked - classic).abs() <= 1e-12 * classic, "{blocked} {classic}");
        }

        /// Crowded blocks lose more than empty ones win, as long as k is not too large.
        #[test]
        fn blocks_never_help(blocks in 1..1u64 << 40, k in 1..16u32, spare in 1..30u64) {
            let n = blocks * 512 / (u64::from(k) + spare);
            let blocked = blocked_free_false_positive_rate(512, blocks, k, n).unwrap();
            let classic = classic_false_positive_rate(blocks * 512, k, n).unwrap();
            prop_assert!(blocked > classic * (1.0 - 1e-9), "{blocked} {classic}");
        }
    }
}
