//! The size and the rate of a quotient filter: a set of positions, in a table of remainders.
//!
//! A question errs where another item has its position, of m = Q · 2^r: with 1 − (1 − 1/m)^n, the formula of a
//! single-shot filter ([`single_shot_false_positive_rate`](super::single_shot_false_positive_rate)), which is about α · 2^−r
//! for a share α of the Q quotients. A slot has r bits of remainder and v of a count, 2 bits tell whose it is,
//! and an eighth of a bit where its block begins.
//!
//! | p | bits an item, planned for 10^6 | as a set, v = 0 |
//! |---|--:|--:|
//! | 1 % | 12.1 | 10.0 |
//! | 0.1 % | 15.4 | 13.2 |
//! | 0.01 % | 19.8 | 17.6 |

use super::halving::{SPREAD, page_count};
use super::{SizingError, check_items, check_rate};

/// Most bits of a remainder: 2^20 items have some 2^60 positions then, which are the most of a filter.
pub const QUOTIENT_REMAINDER_BITS_MAX: u32 = 40;

/// Least quotients of a page: those of one block.
pub const QUOTIENT_PAGE_SLOTS_MIN: u32 = 64;

/// Quotients of the largest page: a page takes its share of the items give or take six deviations, which are 2.4 %
/// of so many, and its 256 spare slots are 0.4 % more.
pub const QUOTIENT_PAGE_SLOTS_MAX: u32 = 1 << 16;

/// Bits of a count, unless the shape says otherwise: what was inserted up to three times can be taken out as often.
pub const QUOTIENT_COUNT_BITS: u32 = 2;

/// Most bits of a count, which with the longest remainder fill 56 bits of a slot.
pub const QUOTIENT_COUNT_BITS_MAX: u32 = 16;

/// Share of the quotients that is planned for in the mean: an item lies some 8 slots behind its quotient then, and
/// an insert moves some 140.
const LOAD: f64 = 0.94;

/// Share of a page's quotients that it may have taken when most items fall on it: offsets stay below 256 then.
const PAGE_LOAD_MAX: f64 = 0.97;

/// Numbers of a quotient filter: what [`quotient_size`] finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotientSize {
    /// Number of pages.
    pub page_count: u64,
    /// Quotients of a page, a power of two.
    pub page_slots: u32,
    /// Bits of a remainder, r.
    pub remainder_bits: u32,
}

/// The least quotient filter that holds `item_count` items (n) at this `false_positive_rate` (p), in pages of up
/// to `page_slots_max` quotients, themselves at most [`QUOTIENT_PAGE_SLOTS_MAX`].
///
/// # Errors
/// If n is 0, p does not lie in (0, 1), or is so low that a remainder would have more than
/// [`QUOTIENT_REMAINDER_BITS_MAX`] bits.
///
/// ```
/// use umbel_filter::sizing::quotient_size;
///
/// // One page, of which 60,000 are 91.6 %: 0.916 / 2^7 = 0.72 %. Of 2^6 they would be 1.4 %.
/// let size = quotient_size(60_000, 0.01, 1 << 16)?;
/// assert_eq!((size.page_count, size.page_slots, size.remainder_bits), (1, 65_536, 7));
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn quotient_size(
    item_count: u64,
    false_positive_rate: f64,
    page_slots_max: u32,
) -> Result<QuotientSize, SizingError> {
    check_rate(false_positive_rate)?;
    check_items(item_count)?;
    let most = page_slots_max.clamp(QUOTIENT_PAGE_SLOTS_MIN, QUOTIENT_PAGE_SLOTS_MAX);
    let sizes = std::iter::successors(Some(QUOTIENT_PAGE_SLOTS_MIN), |slots| Some(2 * slots));
    let sizes = sizes.take_while(|&page_slots| page_slots <= most).filter_map(|page_slots| {
        let page_count = page_count_of(page_slots, item_count);
        let quotients = page_count as f64 * f64::from(page_slots);
        let is_enough = |&bits: &u32| {
            let positions = quotients * f64::from(bits).exp2();
            -(-(item_count as f64) / positions).exp_m1() <= false_positive_rate
        };
        let remainder_bits = (1..=QUOTIENT_REMAINDER_BITS_MAX).find(is_enough)?;
        Some(QuotientSize { page_count, page_slots, remainder_bits })
    });
    // Of equal sums the largest pages, which need the least spread when the filter is cut.
    let smallest = sizes.min_by_key(|size| {
        let slots = u128::from(size.page_count) * u128::from(size.page_slots);
        (slots * u128::from(size.remainder_bits + QUOTIENT_COUNT_BITS + 2), size.page_count)
    });
    smallest.ok_or(SizingError::QuotientRate { rate: false_positive_rate })
}

/// The least number of pages of `page_slots` that hold so many items.
fn page_count_of(page_slots: u32, item_count: u64) -> u64 {
    let slots = f64::from(page_slots);
    page_count(item_count, |mean, spread| {
        mean <= LOAD * slots && mean + spread <= PAGE_LOAD_MAX * slots
    })
}

/// The most items that so many quotients are planned for, in pages of `page_slots`: a page takes its share give or
/// take six deviations, of which a single page knows nothing.
///
/// Sums, products and a square root, which are the same on every processor, so that replicas may decide by it.
///
/// ```
/// use umbel_filter::sizing::quotient_capacity;
///
/// // 94 % of a page.
/// assert_eq!(quotient_capacity(64, 64), 60);
/// // (9 + 0.97 · 4,096)^½ − 3 is 60.10, and its square, 3,612.5, is below 0.94 · 4,096.
/// assert_eq!(quotient_capacity(2 * 4_096, 4_096), 7_224);
/// ```
#[expect(clippy::cast_possible_truncation, reason = "a cast from float saturates")]
#[must_use]
pub fn quotient_capacity(quotient_count: u64, page_slots: u32) -> u64 {
    let slots = f64::from(page_slots);
    let half = SPREAD / 2.0;
    let deviation = (half * half + PAGE_LOAD_MAX * slots).sqrt() - half;
    let most = if quotient_count > page_slots.into() { deviation * deviation } else { slots };
    (quotient_count as f64 * most.min(LOAD * slots) / slots) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizing::single_shot_false_positive_rate;

    /// Every size holds what it was planned for at the rate, and is not much larger.
    #[test]
    fn sizes_hold_their_items_and_little_more() {
        for item_count in [1, 60, 61, 480, 10_000, 60_000, 61_605, 200_000, 1_000_000, 98_765_432] {
            for page_slots_max in [1, 512, 5_000, u32::MAX] {
                let size = quotient_size(item_count, 0.001, page_slots_max).unwrap();
                let QuotientSize { page_count, page_slots, remainder_bits } = size;
                assert!(page_slots.is_power_of_two() && page_slots >= 64, "{size:?}");
                assert!(page_slots <= page_slots_max.clamp(64, 1 << 16), "{size:?}");
                let quotients = page_count * u64::from(page_slots);
                let load = item_count as f64 / quotients as f64;
                assert!(load <= 0.94, "{item_count}: {size:?}");
                // Pages of 64 quotients have room for a third of them only, those of 4,096 for 0.88.
                let least = if page_slots_max < 1024 { 0.3 } else { 0.8 };
                assert!(load > least || page_count <= 4, "{item_count}: {size:?}, {load}");
                let rate = |bits| single_shot_false_positive_rate(quotients << bits, item_count);
                assert!(rate(remainder_bits).unwrap() <= 0.001);
                assert!(rate(remainder_bits - 1).unwrap() > 0.001);
            }
        }
    }

    /// What pages are planned for is what so many pages are the least for.
    #[test]
    fn the_capacity_is_the_most_that_pages_are_planned_for() {
        for page_slots in [512, 4_096, 1 << 16] {
            for pages in [1, 2, 3, 7, 100, 54_321] {
                let most = quotient_capacity(pages * u64::from(page_slots), page_slots);
                assert_eq!(page_count_of(page_slots, most), pages, "{pages} of {page_slots}");
                assert!(page_count_of(page_slots, most + 1) > pages, "{pages} of {page_slots}");
            }
        }
        // What two pages of 64 are planned for goes into one, which needs no room for a spread.
        assert_eq!((quotient_capacity(64, 64), quotient_capacity(128, 64)), (60, 58));
        assert_eq!((quotient_capacity(0, 64), quotient_capacity(16, 64)), (0, 15));
        assert!(quotient_capacity(u64::MAX, 1 << 16) > 1 << 63);
    }

    /// The table of the module.
    #[test]
    fn bits_an_item_are_those_of_the_table() {
        use crate::{BlockShape, HashRange, Kind};

        let table = [(0.01, 12.1, 10.0), (0.001, 15.4, 13.2), (0.000_1, 19.8, 17.6)];
        for (rate, counting, set) in table {
            let range = HashRange::WHOLE;
            let shape = BlockShape::for_rate(Kind::Quotient, range, 1_000_000, rate).unwrap();
            let bits = |shape: BlockShape| shape.memory_bytes() as f64 * 8.0 / 1e6;
            let actual = (bits(shape), bits(shape.with_count_bits(0).unwrap()));
            let is_close = |actual: f64, expected: f64| (actual - expected).abs() < 0.06;
            assert!(is_close(actual.0, counting) && is_close(actual.1, set), "{rate}: {actual:?}");
        }
    }

    #[test]
    fn absurd_numbers_are_refused() {
        assert_eq!(quotient_size(0, 0.01, 512), Err(SizingError::NoItems));
        assert!(matches!(quotient_size(1, 1.0, 512), Err(SizingError::Rate { .. })));
        assert!(matches!(quotient_size(1, f64::NAN, 512), Err(SizingError::Rate { .. })));
        let refused = Err(SizingError::QuotientRate { rate: 1e-20 });
        assert_eq!(quotient_size(1, 1e-20, 512), refused);
        assert!(quotient_size(u64::MAX, 0.5, 512).unwrap().page_count > 1 << 54);
    }
}
