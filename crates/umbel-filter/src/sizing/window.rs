//! The size and the rate of a window: a table of fingerprints, four a bucket, two buckets an item.
//!
//! A question compares its fingerprint of f bits with at most eight others, which are 2^f − 1 values
//! at random, so it errs with 1 − (1 − 1/(2^f − 1))^(8·α) where a share α of the slots is taken (Fan,
//! Andersen, Kaminsky & Mitzenmacher 2014, doi:10.1145/2674005.2674994, have the bound 8/2^f). The
//! slice of an item costs six bits more, whatever the number of slices. Beside it the theory of a
//! ring of S + 1 Bloom filters, of which each has a rate of p/(S + 1): log2((S + 1)/p)/ln 2 bits an
//! item, (S + 1)/S times, because one slice more than the window is kept.
//!
//! | p | bits an item, planned for 10^6 | ring of 4 + 1 | ring of 24 + 1 | ring of 60 + 1 |
//! |---|--:|--:|--:|--:|
//! | 1 % | 17.4 | 16.2 | 17.0 | 18.4 |
//! | 0.1 % | 20.7 | 22.2 | 22.0 | 23.3 |
//! | 0.01 % | 25.0 | 28.2 | 27.0 | 28.2 |

use super::halving::{SPREAD, least};
use super::{SizingError, check_items, check_rate};
use crate::lanes::LINE_BITS;

/// Slots of a bucket: with four, 95 % of the slots can be taken (Fan et al. 2014, table 2).
pub const WINDOW_BUCKET_SLOTS: u32 = 4;

/// Most bits of a fingerprint: with the slice's six, and however they lie, in two words.
pub const FINGERPRINT_BITS_MAX: u32 = 50;

/// Bits of a slot that say the slice.
pub const SLICE_BITS: u32 = 6;

/// Slots of the largest block: a block takes its share of the items give or take six deviations,
/// which are 1.7 % of so many, and moves of items stay within a few hundred KiB.
pub const WINDOW_BLOCK_SLOTS_MAX: u32 = 1 << 17;

/// Share of a block's slots that is planned for: inserts still find room by moving a few others.
const LOAD_MAX: f64 = 0.94;

/// Numbers of a window: what [`window_size`] finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowSize {
    /// Number of blocks.
    pub block_count: u64,
    /// Slots of a block, a multiple of 512.
    pub block_slots: u32,
    /// Bits of a fingerprint.
    pub fingerprint_bits: u32,
}

/// The least window that holds `item_count` items (n) in all its slices together at this
/// `false_positive_rate` (p), in blocks of up to `block_slots_max` slots, itself at most
/// [`WINDOW_BLOCK_SLOTS_MAX`].
///
/// # Errors
/// If n is 0, p does not lie in (0, 1), or is so low that a fingerprint would have more than
/// [`FINGERPRINT_BITS_MAX`] bits.
///
/// ```
/// use umbel_filter::sizing::window_size;
///
/// // 7.52 slots are compared, of 8,191 values: 0.09 %. Of 4,095 values they would be 0.18 %.
/// let size = window_size(481_000, 0.001, 1 << 17)?;
/// assert_eq!((size.block_count, size.fingerprint_bits), (4, 13));
/// // 481,000 / 4 + 6 · √120,250, over 0.94, in whole 512s.
/// assert_eq!(size.block_slots, 130_560);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn window_size(
    item_count: u64,
    false_positive_rate: f64,
    block_slots_max: u32,
) -> Result<WindowSize, SizingError> {
    check_rate(false_positive_rate)?;
    check_items(item_count)?;
    let rate = |&bits: &u32| rate_at(bits, LOAD_MAX) <= false_positive_rate;
    let fingerprint_bits = (1..=FINGERPRINT_BITS_MAX).find(rate);
    let fingerprint_bits =
        fingerprint_bits.ok_or(SizingError::WindowRate { rate: false_positive_rate })?;
    let most = block_slots_max.clamp(LINE_BITS, WINDOW_BLOCK_SLOTS_MAX) / LINE_BITS * LINE_BITS;
    let fits = |block_count| slots_of(item_count, block_count) <= f64::from(most);
    // A few more blocks than the slots alone would fill, for the spread.
    let at_least = (item_count as f64 / LOAD_MAX / f64::from(most)).floor().max(1.0);
    #[expect(clippy::cast_possible_truncation, reason = "positive, whole")]
    let at_least = at_least as u64;
    let block_count = least(at_least, at_least.saturating_mul(4), fits);
    #[expect(clippy::cast_possible_truncation, reason = "at most 2^17")]
    let slots = slots_of(item_count, block_count).ceil() as u32;
    let block_slots = slots.next_multiple_of(LINE_BITS).min(most);
    Ok(WindowSize { block_count, block_slots, fingerprint_bits })
}

/// The rate of a window with `slot_count` slots of `fingerprint_bits` (f), of which `item_count` are
/// taken: 1 − (1 − 1/(2^f − 1))^(8·α), for α of at most 1.
///
/// # Errors
/// If there are no slots, or no bits.
///
/// ```
/// use umbel_filter::sizing::window_false_positive_rate;
///
/// // All of eight slots are compared with 3 values: 1 − (2/3)^8.
/// let rate = window_false_positive_rate(512, 2, 512)?;
/// assert!((rate - (1.0 - 256.0 / 6_561.0)).abs() < 1e-12);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn window_false_positive_rate(
    slot_count: u64,
    fingerprint_bits: u32,
    item_count: u64,
) -> Result<f64, SizingError> {
    if slot_count == 0 {
        return Err(SizingError::NoBits);
    }
    if fingerprint_bits == 0 {
        return Err(SizingError::NoProbes);
    }
    Ok(rate_at(fingerprint_bits, (item_count as f64 / slot_count as f64).min(1.0)))
}

pub(super) fn rate_at(fingerprint_bits: u32, load: f64) -> f64 {
    let values = f64::from(fingerprint_bits).exp2() - 1.0;
    let compared = 2.0 * f64::from(WINDOW_BUCKET_SLOTS) * load;
    if values <= 1.0 {
        return if compared > 0.0 { 1.0 } else { 0.0 };
    }
    -(compared * (-1.0 / values).ln_1p()).exp_m1()
}

/// Slots that each of so many blocks needs.
fn slots_of(item_count: u64, block_count: u64) -> f64 {
    let mean = item_count as f64 / block_count as f64;
    let spread = if block_count > 1 { SPREAD * mean.sqrt() } else { 0.0 };
    (mean + spread) / LOAD_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As docs/windows.md says.
    #[test]
    fn small_windows_have_whole_lines_of_slots() {
        for (item_count, slots) in [(1, 512), (100, 512), (481, 512), (482, 1024), (1_000, 1536)] {
            let size = window_size(item_count, 0.01, WINDOW_BLOCK_SLOTS_MAX).unwrap();
            assert_eq!((size.block_count, size.block_slots), (1, slots), "{item_count}");
        }
    }

    /// Every size holds what it was planned for, and is not much larger.
    #[test]
    fn sizes_hold_their_items_and_little_more() {
        for item_count in [1, 100, 481, 10_000, 123_000, 123_300, 200_000, 1_000_000, 98_765_432] {
            for block_slots_max in [512, 4096, 1 << 17] {
                let size = window_size(item_count, 0.001, block_slots_max).unwrap();
                assert!(size.block_slots <= block_slots_max && size.block_slots > 0, "{size:?}");
                let needed = slots_of(item_count, size.block_count);
                assert!(needed <= f64::from(size.block_slots), "{item_count}: {size:?}");
                let slots = size.block_count as f64 * f64::from(size.block_slots);
                let blocks = size.block_count as f64;
                assert!(slots <= needed * blocks + 512.0 * blocks, "{item_count}: {size:?}");
            }
        }
    }

    /// The table of the module.
    #[test]
    fn bits_an_item_are_those_of_the_table() {
        for (rate, expected) in [(0.01, 17.4), (0.001, 20.7), (0.000_1, 25.0)] {
            let size = window_size(1_000_000, rate, 1 << 17).unwrap();
            let slots = size.block_count as f64 * f64::from(size.block_slots);
            let bits = slots * f64::from(size.fingerprint_bits + SLICE_BITS) / 1e6;
            assert!((bits - expected).abs() < 0.06, "{bits} at {rate}");
        }
        for (slices, rate, expected) in
            [(4.0_f64, 0.01_f64, 16.2), (24.0, 0.001, 22.0), (60.0, 1e-4, 28.2)]
        {
            let ring: f64 = ((slices + 1.0) / rate).log2() / std::f64::consts::LN_2;
            let bits = ring * (slices + 1.0) / slices;
            assert!((bits - expected).abs() < 0.06, "{bits}");
        }
    }

    #[test]
    fn absurd_numbers_are_refused() {
        assert_eq!(window_size(0, 0.01, 512), Err(SizingError::NoItems));
        assert!(matches!(window_size(1, 1.0, 512), Err(SizingError::Rate { .. })));
        assert!(matches!(window_size(1, f64::NAN, 512), Err(SizingError::Rate { .. })));
        assert!(matches!(window_size(1, 1e-16, 512), Err(SizingError::WindowRate { .. })));
        assert!(window_size(u64::MAX, 0.5, 512).unwrap().block_count > 1 << 54);
        assert!(window_false_positive_rate(0, 8, 1).is_err());
    }
}
