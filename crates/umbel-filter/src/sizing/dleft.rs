//! Size and rate of the d-left counting filter (Bonomi et al. 2006, doi:10.1007/11841036_61).

use super::{SizingError, check_items, check_rate};

/// Subtables of a page.
pub const DLEFT_SUBTABLES: u32 = 4;

/// Cells of a bucket.
pub const DLEFT_BUCKET_CELLS: u32 = 8;

/// Cells of the smallest page: a bucket a subtable.
pub const DLEFT_PAGE_CELLS_MIN: u32 = DLEFT_SUBTABLES * DLEFT_BUCKET_CELLS;

/// Cells of the largest page: its load varies by 0.4 % then, and a hash range can still be cut every 100 KB.
pub const DLEFT_PAGE_CELLS_MAX: u32 = 1 << 16;

/// Most bits of a remainder: with those of the largest page's buckets 43 of the hash.
pub const DLEFT_REMAINDER_BITS_MAX: u32 = 32;

/// Share of cells that a plan fills: no table was seen full below 0.9.
const LOAD: f64 = 0.85;

/// Size of a d-left counting filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DLeftSize {
    /// Pages over the whole hash space.
    pub page_count: u64,
    /// Cells of a page, a power of two.
    pub page_cells: u32,
    /// Bits of a remainder, r.
    pub remainder_bits: u32,
}

/// Rate of a table of which this share of cells is taken: another item has one of 32 · 2^b · load fingerprints of
/// 2^(b + r), so 32 · load · 2^−r; 1 at most.
///
/// ```
/// use umbel_filter::sizing::dleft_false_positive_rate;
///
/// // 27.2 / 4,096.
/// assert_eq!(format!("{:.5}", dleft_false_positive_rate(0.85, 12)), "0.00664");
/// ```
#[must_use]
pub fn dleft_false_positive_rate(load: f64, remainder_bits: u32) -> f64 {
    (f64::from(DLEFT_PAGE_CELLS_MIN) * load * (-f64::from(remainder_bits)).exp2()).min(1.0)
}

/// The smallest size for so many items at a rate: one page of a power of two of cells, or several of
/// [`DLEFT_PAGE_CELLS_MAX`], at a load of 0.85.
///
/// # Errors
/// If there are no items, or the rate is not in (0, 1) or needs more than [`DLEFT_REMAINDER_BITS_MAX`] bits.
///
/// ```
/// use umbel_filter::sizing::dleft_size;
///
/// // 1,176,471 cells.
/// let size = dleft_size(1_000_000, 0.001)?;
/// assert_eq!((size.page_count, size.page_cells, size.remainder_bits), (18, 65_536, 15));
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn dleft_size(item_count: u64, false_positive_rate: f64) -> Result<DLeftSize, SizingError> {
    check_rate(false_positive_rate)?;
    check_items(item_count)?;
    let remainder_bits = (1..=DLEFT_REMAINDER_BITS_MAX)
        .find(|bits| dleft_false_positive_rate(LOAD, *bits) <= false_positive_rate)
        .ok_or(SizingError::DLeftRate { rate: false_positive_rate })?;
    let cells = item_count as f64 / LOAD;
    let one_page = (0..=DLEFT_PAGE_CELLS_MAX.ilog2() - DLEFT_PAGE_CELLS_MIN.ilog2())
        .map(|bits| DLEFT_PAGE_CELLS_MIN << bits)
        .find(|page_cells| cells <= f64::from(*page_cells));
    let page_cells = one_page.unwrap_or(DLEFT_PAGE_CELLS_MAX);
    #[expect(clippy::cast_possible_truncation, reason = "at most 2^49")]
    let page_count = (cells / f64::from(page_cells)).ceil() as u64;
    Ok(DLeftSize { page_count, page_cells, remainder_bits })
}
