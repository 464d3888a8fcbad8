//! The size and the rate of a cuckoo filter: a table of fingerprints, four a bucket, two buckets an item.
//!
//! A question compares its fingerprint of f bits with at most eight others, which are 2^f − 1 values at
//! random, so it errs with 1 − (1 − 1/(2^f − 1))^(8·α) where a share α of the slots is taken: the formula of
//! a window ([`window_false_positive_rate`](super::window_false_positive_rate)), without the slices' bits.
//!
//! | p | bits an item, planned for 10^6 |
//! |---|--:|
//! | 1 % | 11.1 |
//! | 0.1 % | 14.5 |
//! | 0.01 % | 18.9 |

use super::halving::page_count;
use super::window::rate_at;
use super::{SizingError, check_items, check_rate};
use crate::lanes::LINE_BITS;

/// Most bits of a fingerprint, which comes from the upper 32 of the lower half of a hash.
pub const CUCKOO_FINGERPRINT_BITS_MAX: u32 = 32;

/// Slots of the largest page: a page takes its share of the items give or take six deviations, which are
/// 2.4 % of so many, and moves of items stay within a few hundred KiB.
pub const CUCKOO_PAGE_SLOTS_MAX: u32 = 1 << 16;

/// Most copies of a fingerprint in its two buckets, of eight slots: one stays free of it.
pub const CUCKOO_COPIES_MAX: u64 = 7;

/// Most buckets that are looked at for one item. From the two of an item on four times as many a step: five
/// moves reach them.
pub const CUCKOO_BUCKETS_LOOKED_AT: usize = 512;

/// Share of the slots that is planned for in the mean.
const LOAD: f64 = 0.93;

/// Share of a page's slots that it may have taken when most items fall on it, but for small pages. No page of some
/// thousands, of any size, refused an item before 0.96 − 0.8/√slots; `cuckoo_test.rs` measures that.
const PAGE_LOAD_MAX: f64 = 0.96;

/// What is left free of a page beside it, times the root of the slots: small pages differ more.
const PAGE_RESERVE: f64 = 1.2;

/// Numbers of a cuckoo filter: what [`cuckoo_size`] finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CuckooSize {
    /// Number of pages.
    pub page_count: u64,
    /// Slots of a page, 512 times a power of two.
    pub page_slots: u32,
    /// Bits of a fingerprint.
    pub fingerprint_bits: u32,
}

/// The least cuckoo filter that holds `item_count` items (n) at this `false_positive_rate` (p), in pages of up
/// to `page_slots_max` slots, themselves at most [`CUCKOO_PAGE_SLOTS_MAX`].
///
/// # Errors
/// If n is 0, p does not lie in (0, 1), or is so low that a fingerprint would have more than
/// [`CUCKOO_FINGERPRINT_BITS_MAX`] bits.
///
/// ```
/// use umbel_filter::sizing::cuckoo_size;
///
/// // 7.44 slots are compared, of 1,023 values: 0.725 %. Of 511 values they would be 1.45 %.
/// let size = cuckoo_size(60_000, 0.01, 1 << 16)?;
/// // One page, of which 60,000 are 91.6 %.
/// assert_eq!((size.page_count, size.page_slots, size.fingerprint_bits), (1, 65_536, 10));
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn cuckoo_size(
    item_count: u64,
    false_positive_rate: f64,
    page_slots_max: u32,
) -> Result<CuckooSize, SizingError> {
    check_rate(false_positive_rate)?;
    check_items(item_count)?;
    let rate = |&bits: &u32| rate_at(bits, LOAD) <= false_positive_rate;
    let fingerprint_bits = (1..=CUCKOO_FINGERPRINT_BITS_MAX).find(rate);
    let fingerprint_bits =
        fingerprint_bits.ok_or(SizingError::CuckooRate { rate: false_positive_rate })?;
    let most = page_slots_max.clamp(LINE_BITS, CUCKOO_PAGE_SLOTS_MAX);
    let sizes = std::iter::successors(Some(LINE_BITS), |slots| Some(2 * slots));
    let sizes = sizes.take_while(|&page_slots| page_slots <= most);
    // Of equal sums the largest pages, which need the least spread when the filter is cut.
    let smallest = sizes
        .map(|page_slots| {
            let slots = f64::from(page_slots);
            let most = PAGE_LOAD_MAX * slots - PAGE_RESERVE * slots.sqrt();
            let fits = |mean: f64, spread: f64| mean <= LOAD * slots && mean + spread <= most;
            (page_count(item_count, fits), page_slots)
        })
        .min_by_key(|&(page_count, page_slots)| {
            (u128::from(page_count) * u128::from(page_slots), page_count)
        });
    let (page_count, page_slots) = smallest.unwrap_or((u64::MAX, LINE_BITS));
    Ok(CuckooSize { page_count, page_slots, fingerprint_bits })
}

/// The rate of a cuckoo filter with `slot_count` slots of `fingerprint_bits` (f), of which `taken_count` are
/// taken: 1 − (1 − 1/(2^f − 1))^(8·α), for α of at most 1.
///
/// # Errors
/// If there are no slots, or no bits.
///
/// ```
/// use umbel_filter::sizing::cuckoo_false_positive_rate;
///
/// // At the planned load of 0.93, 7.44 slots are compared with 1,023 values.
/// let rate = cuckoo_false_positive_rate(10_000, 10, 9_300)?;
/// assert!((rate - 0.007_25).abs() < 0.000_01);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn cuckoo_false_positive_rate(
    slot_count: u64,
    fingerprint_bits: u32,
    taken_count: u64,
) -> Result<f64, SizingError> {
    super::window_false_positive_rate(slot_count, fingerprint_bits, taken_count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every size holds what it was planned for, and is not much larger.
    #[test]
    fn sizes_hold_their_items_and_little_more() {
        for item_count in [1, 100, 464, 465, 10_000, 60_000, 60_949, 200_000, 1_000_000, 98_765_432]
        {
            for page_slots_max in [1, 512, 5_000, u32::MAX] {
                let size = cuckoo_size(item_count, 0.001, page_slots_max).unwrap();
                let CuckooSize { page_count, page_slots, .. } = size;
                assert!(page_slots.is_power_of_two() && page_slots >= 512, "{size:?}");
                assert!(page_slots <= page_slots_max.clamp(512, 1 << 16), "{size:?}");
                let load = item_count as f64 / (page_count as f64 * f64::from(page_slots));
                assert!(load <= 0.93, "{item_count}: {size:?}");
                // The worst pages are of 512 slots, of which six deviations are a quarter.
                let least = if page_slots_max < 1024 { 0.6 } else { 0.8 };
                assert!(load > least || page_count <= 4, "{item_count}: {size:?}, {load}");
            }
        }
    }

    /// The table of the module.
    #[test]
    fn bits_an_item_are_those_of_the_table() {
        for (rate, expected) in [(0.01, 11.1), (0.001, 14.5), (0.000_1, 18.9)] {
            let size = cuckoo_size(1_000_000, rate, CUCKOO_PAGE_SLOTS_MAX).unwrap();
            let slots = size.page_count as f64 * f64::from(size.page_slots);
            let bits = slots * f64::from(size.fingerprint_bits) / 1e6;
            assert!((bits - expected).abs() < 0.06, "{bits} at {rate}");
        }
    }

    #[test]
    fn absurd_numbers_are_refused() {
        assert_eq!(cuckoo_size(0, 0.01, 512), Err(SizingError::NoItems));
        assert!(matches!(cuckoo_size(1, 1.0, 512), Err(SizingError::Rate { .. })));
        assert!(matches!(cuckoo_size(1, f64::NAN, 512), Err(SizingError::Rate { .. })));
        assert_eq!(cuckoo_size(1, 1e-9, 512), Err(SizingError::CuckooRate { rate: 1e-9 }));
        assert!(cuckoo_size(u64::MAX, 0.5, 512).unwrap().page_count > 1 << 54);
        assert!(cuckoo_false_positive_rate(0, 8, 1).is_err());
    }
}
