//! Umbel's blocked filter: the exact rate of the lanes of a 512-bit block, and the size for a rate.
//!
//! The pattern is that of `lanes`: an item picks r of 16 evenly, occupies the k lanes
//! L_r = {d XOR r : d ∈ L_0} of its block, and one of 32 bits in each. By symmetry every query has
//! r = 0. It is answered `Maybe` if all its k bits are set. By inclusion and exclusion over the
//! subsets S of its lanes whose bits are all still 0,
//!
//! ```text
//! p = Σ (−1)^|S| · (1 − (1 − q_S)/B)^n       S ⊆ L_0
//!     S
//! q_S = 1/16 · Σ (31/32)^|S ∩ L_r|           r = 0 … 15: one item misses the bits of S
//! ```
//!
//! because an item falls into the query's block with 1/B and misses S with q_S if it does. Nothing
//! is approximated, neither the number of items in the block nor the lanes that items share. (The
//! frame is Putze, Sanders & Singler 2009, doi:10.1145/1498698.1594230.) Of the 2^k subsets most
//! have the same q: at most 66 different ones remain, found once for every k.
//!
//! To this comes the one thing that the lanes cannot show: a probe seed has 32 bits, and an item of
//! the block with the seed of the query answers for it whatever k is: 1 − (1 − 2^−32/B)^n more.
//! For up to five probes the lanes' rate has that already, and the sum is high by at most
//! n/B · 2^−32.
//!
//! The sum alternates, so its rounding does not shrink with it: the absolute error is below
//! [`RATE_ERROR`]. That is a 20,000th of the smallest rate that a filter is sized for.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::{SizingError, check_items, check_rate};
use crate::lanes::{BLOCK_PROBE_COUNT_MAX, LANE_BITS, LANE_COUNT, LANE_SETS, translate};

/// The lowest rate that a blocked filter is sized for. Simulations of the lanes with their real
/// multipliers agree with the formula as far down as this: 1.05e-7 ± 0.04e-7 was measured here.
/// The rate costs 51.0 bits an item with all 16 probes, half as much again as the classic 33.5, and
/// below it the sixteen lanes are too few: 1e-8 would cost 67.6. Equal probe seeds are 2 % of it.
pub const BLOCKED_RATE_MIN: f64 = 1e-7;

/// Bound of the absolute rounding error of a pattern's rate: 3e-12 is the worst measured, at 16
/// probes, against sums of 60 digits.
const RATE_ERROR: f64 = 5e-12;

/// Share of all probe seeds that is one: 2^−32.
const SEED_SHARE: f64 = 1.0 / (1u64 << 32) as f64;

/// Size of a blocked filter: what [`blocked_block_count`] finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockedSize {
    /// Number of 512-bit blocks (B).
    pub block_count: u64,
    /// Probes of an item in its block (k), 1 to 16.
    pub probe_count: u32,
}

/// Exact false-positive rate of Umbel's blocked filter: `block_count` blocks (B) of 512 bits,
/// `probe_count` probes (k, 1 to 16) of an item in lanes of its block, after `item_count` items
/// (n): Σ (−1)^|S| · (1 − (1 − q_S)/B)^n over the subsets S of the query's lanes, where q_S is the
/// share of items that leave the bits of S alone; and 1 − (1 − 2^−32/B)^n for items with the
/// query's probe seed. The absolute error is below 5e-12. (Blocks after Putze, Sanders & Singler
/// 2009, doi:10.1145/1498698.1594230.)
///
/// # Errors
/// If B or k is 0, or k is above 16.
///
/// ```
/// use umbel_filter::sizing::blocked_false_positive_rate;
///
/// // One item, one block, one probe: 1 of 16 lanes, 1 of 32 bits.
/// let rate = blocked_false_positive_rate(1, 1, 1)?;
/// assert!((rate - 1.0 / 512.0).abs() < 1e-9);
/// // Sixteen probes: the item has all lanes as the query has, so both bits of each must meet. What
/// // is left are equal probe seeds.
/// let rate = blocked_false_positive_rate(1, 16, 1)?;
/// assert!((rate - 2f64.powi(-32)).abs() < 1e-11);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn blocked_false_positive_rate(
    block_count: u64,
    probe_count: u32,
    item_count: u64,
) -> Result<f64, SizingError> {
    if block_count == 0 {
        return Err(SizingError::NoBlocks);
    }
    if probe_count == 0 {
        return Err(SizingError::NoProbes);
    }
    if probe_count > BLOCK_PROBE_COUNT_MAX {
        return Err(SizingError::TooManyProbes { probe_count });
    }
    Ok(Pattern::of(probe_count).rate(block_count, item_count))
}

/// The least number of blocks with which `item_count` items (n) keep Umbel's blocked filter at or
/// below the `false_positive_rate` (p), and of all probe counts that reach p there the one with the
/// least rate. Of rates that differ by rounding only, the fewest probes win.
///
/// | p | bits an item (512 · B/n) | k | classic filter |
/// |---|---|---|---|
/// | 1 % | 9.91 | 6 | 9.59 |
/// | 0.1 % | 15.61 | 10 | 14.38 |
/// | 0.01 % | 22.15 | 12 | 19.17 |
/// | 1e-5 | 29.88 | 14 | 23.96 |
/// | 1e-6 | 39.25 | 16 | 28.76 |
/// | 1e-7 | 51.04 | 16 | 33.55 |
///
/// From 2^53 items on, counts are rounded as `f64` is.
///
/// # Errors
/// If n is 0, p does not lie in (0, 1), or p is below [`BLOCKED_RATE_MIN`].
///
/// ```
/// use umbel_filter::sizing::{BlockedSize, blocked_block_count};
///
/// // One probe in one block: the item and the query meet with 1/512.
/// assert_eq!(blocked_block_count(1, 0.002)?.block_count, 1);
/// // A million items at 1 %: 19,359 · 512 bits are 9.91 bits an item.
/// let size = BlockedSize { block_count: 19_359, probe_count: 6 };
/// assert_eq!(blocked_block_count(1_000_000, 0.01), Ok(size));
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn blocked_block_count(
    item_count: u64,
    false_positive_rate: f64,
) -> Result<BlockedSize, SizingError> {
    check_items(item_count)?;
    check_rate(false_positive_rate)?;
    if false_positive_rate < BLOCKED_RATE_MIN {
        return Err(SizingError::BlockedRate { rate: false_positive_rate });
    }
    let mut block_count = u64::MAX;
    // From many probes to few: the first sizes are then near the best for low rates, and most of
    // the others fail at once.
    for probe_count in (1..=BLOCK_PROBE_COUNT_MAX).rev() {
        let pattern = Pattern::of(probe_count);
        let reaches = |blocks: u64| pattern.rate(blocks, item_count) <= false_positive_rate;
        if reaches(block_count - 1) {
            block_count = least(block_count - 1, item_count, reaches);
        }
        if block_count == 1 {
            break;
        }
    }
    Ok(BlockedSize { block_count, probe_count: best_probe_count(block_count, item_count) })
}

/// The least number of blocks that `reaches`, which is monotone and true for `high`. At most 128
/// steps: up by doubling from a guess, then a bisection.
fn least(high: u64, item_count: u64, reaches: impl Fn(u64) -> bool) -> u64 {
    // A block for every 51 items has 10 bits an item: near most answers.
    let mut high_near = (item_count / 51).clamp(1, high);
    while high_near < high && !reaches(high_near) {
        high_near = high_near.saturating_mul(2).min(high);
    }
    // Either reaches or is `high`, which does.
    let (mut low, mut high) = (0, high_near);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if reaches(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

/// The probe count of the least rate, the smallest of those that differ by rounding only.
fn best_probe_count(block_count: u64, item_count: u64) -> u32 {
    let (mut best, mut best_rate) = (1, f64::INFINITY);
    for probe_count in 1..=BLOCK_PROBE_COUNT_MAX {
        let rate = Pattern::of(probe_count).rate(block_count, item_count);
        if rate < best_rate - RATE_ERROR {
            (best, best_rate) = (probe_count, rate);
        }
    }
    best
}

/// The sum over subsets for one k, equal q put together.
struct Pattern {
    terms: Vec<Term>,
}

/// All subsets S with one q.
struct Term {
    /// 1 − q: share of the block's items that set a bit of S.
    hit_share: f64,
    /// Subsets of even size minus those of odd size.
    coefficient: f64,
}

impl Pattern {
    /// The pattern of k probes, 1 to 16. Found on first use, a few milliseconds for all, and kept.
    fn of(probe_count: u32) -> &'static Self {
        static PATTERNS: [OnceLock<Pattern>; LANE_COUNT + 1] =
            [const { OnceLock::new() }; LANE_COUNT + 1];
        let probe_count = probe_count as usize;
        PATTERNS[probe_count].get_or_init(|| Self::enumerate(LANE_SETS[probe_count]))
    }

    /// Goes through all subsets of the lanes.
    fn enumerate(lanes: u16) -> Self {
        let translates: Vec<u16> = (0..LANE_COUNT).map(|r| translate(lanes, r)).collect();
        // 16 · 32^16 · (1 − q) is a whole number below 2^84: equal q are found without rounding.
        let whole = u128::from(LANE_BITS).pow(16);
        let hits: Vec<u128> = (0..=16)
            .map(|shared| {
                let kept = u128::from(LANE_BITS - 1).pow(shared);
                whole - kept * u128::from(LANE_BITS).pow(16 - shared)
            })
            .collect();
        let mut coefficients = BTreeMap::<u128, i32>::new();
        let mut subset = lanes;
        loop {
            let shared = |lanes: &u16| hits[(lanes & subset).count_ones() as usize];
            let hit_count: u128 = translates.iter().map(shared).sum();
            let sign = if subset.count_ones().is_multiple_of(2) { 1 } else { -1 };
            *coefficients.entry(hit_count).or_default() += sign;
            if subset == 0 {
                break;
            }
            // The next smaller number whose ones all lie in `lanes`.
            subset = (subset - 1) & lanes;
        }
        let all = LANE_COUNT as f64 * whole as f64;
        let terms = coefficients
            .into_iter()
            .filter(|&(_, coefficient)| coefficient != 0)
            .map(|(hit_count, coefficient)| Term {
                hit_share: hit_count as f64 / all,
                coefficient: coefficient.into(),
            })
            .collect();
        Self { terms }
    }

    /// The module's formula, with the term for equal seeds; in [0, 1].
    fn rate(&self, block_count: u64, item_count: u64) -> f64 {
        let (blocks, items) = (block_count as f64, item_count as f64);
        // (1 − share/B)^n − 1, with all digits where B is large.
        let missed = |share: f64| (items * (-share / blocks).ln_1p()).exp_m1();
        // The coefficients sum to 0, so 1 may be taken from every power: without items the terms
        // are 0 then. Neumaier's sum keeps what additions would round away.
        let (mut sum, mut rest) = (0.0_f64, 0.0_f64);
        for term in &self.terms {
            let value = term.coefficient * missed(term.hit_share);
            let next = sum + value;
            rest +=
                if sum.abs() >= value.abs() { (sum - next) + value } else { (value - next) + sum };
            sum = next;
        }
        let lanes = (sum + rest).clamp(0.0, 1.0);
        let equal_seed = -missed(SEED_SHARE);
        lanes + (1.0 - lanes) * equal_seed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{split_mix, whole};
    use super::*;

    /// One block as the module describes it, with independent dice in place of the multipliers.
    struct Dice {
        lane_sets: Vec<u16>,
        state: u64,
    }

    impl Dice {
        fn new(probe_count: usize, seed: u64) -> Self {
            let lanes = LANE_SETS[probe_count];
            let lane_sets = (0..LANE_COUNT).map(|r| translate(lanes, r)).collect();
            Self { lane_sets, state: seed }
        }

        /// The next item's bits, one word a lane.
        fn item(&mut self) -> [u32; LANE_COUNT] {
            let lanes = self.lane_sets[(split_mix(&mut self.state) >> 60) as usize];
            // Five bits a lane: twelve lanes to a number.
            let bits = [split_mix(&mut self.state), split_mix(&mut self.state)];
            std::array::from_fn(|lane| {
                let bit = bits[lane / 8] >> (5 * (lane % 8)) & 31;
                u32::from(lanes >> lane & 1) << bit
            })
        }

        /// Number of n items in one of B blocks.
        fn items_in_block(&mut self, block_count: u64, item_count: u64) -> u64 {
            (0..item_count)
                .filter(|_| split_mix(&mut self.state).is_multiple_of(block_count))
                .count() as u64
        }
    }

    /// Slow twin: blocks are filled and asked, and the share of `Maybe` counted. Returns the rate
    /// and its standard error over blocks.
    fn simulate(probe_count: usize, block_count: u64, item_count: u64, runs: u32) -> (f64, f64) {
        const QUERY_COUNT: u32 = 400;
        let mut dice = Dice::new(probe_count, 11 + probe_count as u64);
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..runs {
            let mut block = [0u32; LANE_COUNT];
            for _ in 0..dice.items_in_block(block_count, item_count) {
                let item = dice.item();
                (0..LANE_COUNT).for_each(|lane| block[lane] |= item[lane]);
            }
            let hits = (0..QUERY_COUNT)
                .filter(|_| {
                    let query = dice.item();
                    (0..LANE_COUNT).all(|lane| query[lane] & !block[lane] == 0)
                })
                .count() as f64;
            let rate = hits / f64::from(QUERY_COUNT);
            sum += rate;
            squares += rate * rate;
        }
        let runs = f64::from(runs);
        (sum / runs, ((squares / runs - (sum / runs).powi(2)) / runs).sqrt())
    }

    #[test]
    fn the_rate_is_that_of_a_simulation() {
        for probe_count in 1..=16 {
            for item_count in [90, 250] {
                let (rate, deviation) = simulate(probe_count, 5, item_count, 4_000);
                let k = u32::try_from(probe_count).unwrap();
                let exact = blocked_false_positive_rate(5, k, item_count).unwrap();
                assert!(
                    (rate - exact).abs() < 5.0 * deviation + 1e-6,
                    "k = {probe_count}: {rate} ± {deviation}, formula {exact}"
                );
            }
        }
    }

    /// Slow twin for few probes: the sum over subsets for every number of items, times Poisson's
    /// share of that number. With many blocks the binomial is Poisson.
    #[test]
    fn the_rate_is_that_of_the_sum_over_poisson() {
        for probe_count in 1..=6u32 {
            let lanes = LANE_SETS[probe_count as usize];
            for mean in [0.5, 8.0, 50.0] {
                let mut share = f64::exp(-mean);
                let mut sum = 0.0;
                for items in 0..300 {
                    let in_block: f64 = (0..=lanes)
                        .filter(|subset| subset & !lanes == 0)
                        .map(|subset| {
                            let missed: f64 = (0..16)
                                .map(|r| {
                                    let shared = (subset & translate(lanes, r)).count_ones();
                                    (31.0_f64 / 32.0).powi(shared.cast_signed()) / 16.0
                                })
                                .sum();
                            let sign =
                                if subset.count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
                            sign * missed.powi(items)
                        })
                        .sum();
                    sum += share * in_block;
                    share *= mean / f64::from(items + 1);
                }
                let lanes_rate = sum + (1.0 - sum) * mean / 2f64.powi(32);
                let block_count = 1u64 << 40;
                let item_count = whole(mean * block_count as f64);
                let rate = blocked_false_positive_rate(block_count, probe_count, item_count);
                assert!((rate.unwrap() - lanes_rate).abs() < 1e-11);
            }
        }
    }

    /// With all 16 lanes, lanes are independent: a sum without any minus, to the last digits.
    #[test]
    fn sixteen_probes_have_a_positive_sum() {
        for mean in [0.01, 1.0, 8.0, 10.03, 13.0, 20.0, 45.0, 100.0_f64] {
            let mut share = (-mean).exp();
            let mut sum = 0.0;
            for items in 0..400 {
                sum += share * (-(f64::from(items) * (-1.0 / 32.0_f64).ln_1p()).exp_m1()).powi(16);
                share *= mean / f64::from(items + 1);
            }
            let block_count = 1u64 << 44;
            let item_count = whole(mean * block_count as f64);
            let rate = blocked_false_positive_rate(block_count, 16, item_count).unwrap();
            let lanes_rate = sum + (1.0 - sum) * mean / 2f64.powi(32);
            assert!((rate - lanes_rate).abs() < RATE_ERROR, "{mean}: {rate} {lanes_rate}");
        }
    }

    #[test]
    fn the_rates_ends_and_the_checks() {
        let rate = blocked_false_positive_rate;
        assert_eq!(rate(0, 1, 1), Err(SizingError::NoBlocks));
        assert_eq!(rate(1, 0, 1), Err(SizingError::NoProbes));
        let error = SizingError::TooManyProbes { probe_count: 17 };
        assert_eq!(rate(1, 17, 1), Err(error));
        assert_eq!(error.to_string(), "17 probes per item in a block, expected at most 16");
        for probe_count in 1..=16 {
            assert_eq!(rate(9, probe_count, 0), Ok(0.0));
            assert!((rate(1, probe_count, u64::MAX).unwrap() - 1.0).abs() < 1e-12);
            assert!(rate(u64::MAX, probe_count, 1).unwrap() < 1e-11);
        }
        assert_eq!(blocked_block_count(0, 0.1), Err(SizingError::NoItems));
        assert!(blocked_block_count(1, f64::NAN).is_err());
        let error = SizingError::BlockedRate { rate: 1e-8 };
        assert_eq!(blocked_block_count(1, 1e-8), Err(error));
        let message = "false-positive rate 1e-8 of a blocked filter, expected at least 1e-7";
        assert_eq!(error.to_string(), message);
    }

    /// The numbers of the table and of `lanes`.
    #[test]
    fn known_sizes() {
        let n = 1 << 30;
        for (rate, bits, probe_count) in [
            (1e-2, 9.91, 6),
            (1e-3, 15.61, 10),
            (1e-4, 22.15, 12),
            (1e-5, 29.88, 14),
            (1e-6, 39.25, 16),
            (1e-7, 51.04, 16),
        ] {
            let size = blocked_block_count(n, rate).unwrap();
            let bits_an_item = 512.0 * size.block_count as f64 / n as f64;
            assert!((bits_an_item - bits).abs() < 0.006, "{rate}: {bits_an_item}");
            assert_eq!(size.probe_count, probe_count);
        }
        // Bits an item for a given number of probes.
        for (rate, k, bits) in [
            (1e-2, 7, 9.98),
            (1e-2, 5, 10.23),
            (1e-2, 8, 10.12),
            (1e-3, 9, 15.61),
            (1e-3, 8, 15.77),
            (1e-3, 11, 15.78),
            (1e-3, 16, 17.24),
            (1e-4, 11, 22.16),
            (1e-4, 10, 22.28),
            (1e-4, 16, 23.01),
        ] {
            let at = |bits: f64| {
                let blocks = whole(n as f64 * bits / 512.0);
                blocked_false_positive_rate(blocks, k, n).unwrap()
            };
            assert!(at(bits - 0.006) > rate && at(bits + 0.006) < rate, "{rate} {k}");
        }
    }

    #[test]
    fn sizes_from_one_item_to_all() {
        for exponent in 0..64 {
            for rate in [0.99, 0.5, 0.01, 1e-4, 1e-6, BLOCKED_RATE_MIN] {
                let n = 1 << exponent;
                let size = blocked_block_count(n, rate).unwrap();
                assert!((1..=16).contains(&size.probe_count));
                let reached =
                    blocked_false_positive_rate(size.block_count, size.probe_count, n).unwrap();
                assert!(reached <= rate, "{n} {rate}: {reached}");
                assert!(size.block_count < n / 8 + 2, "{size:?} for {n} at {rate}");
            }
        }
        assert!(blocked_block_count(u64::MAX, 0.01).unwrap().block_count < 1 << 60);
    }

    proptest! {
        /// Slow twin: one block more, and one more, with every k.
        #[test]
        fn the_least_block_count_is_the_least(n in 1..3_000u64, exponent in 0.05..7.0f64) {
            let p = 10f64.powf(-exponent);
            let reached = |blocks, k| blocked_false_positive_rate(blocks, k, n).unwrap();
            let block_count = (1..).find(|&blocks| (1..=16).any(|k| reached(blocks, k) <= p));
            let size = blocked_block_count(n, p).unwrap();
            prop_assert_eq!(Some(size.block_count), block_count);
            let best = (1..=16).map(|k| reached(size.block_count, k)).fold(1.0, f64::min);
            prop_assert!(reached(size.block_count, size.probe_count) <= best + 17.0 * RATE_ERROR);
        }
    }
}
