//! The least number that is enough, and the least number of pages of a table.

/// Standard deviations of a page's share of the items that are planned for, as for a shard's share.
pub(super) const SPREAD: f64 = 6.0;

/// The least number from `low` to `high` that is enough, if every larger one is; `high` if none of them is.
pub(crate) fn least(mut low: u64, mut high: u64, is_enough: impl Fn(u64) -> bool) -> u64 {
    while low < high {
        let middle = low + (high - low) / 2;
        if is_enough(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// The least number of pages that hold so many items. `fits` is asked with the mean number of items of a page,
/// and by how many more may fall on one.
pub(super) fn page_count(item_count: u64, fits: impl Fn(f64, f64) -> bool) -> u64 {
    let is_enough = |page_count: u64| {
        let mean = item_count as f64 / page_count as f64;
        let spread = if page_count > 1 { SPREAD * mean.sqrt() } else { 0.0 };
        fits(mean, spread)
    };
    // Between one page and two the need for a spread begins, so one is tried apart.
    if is_enough(1) { 1 } else { least(2, item_count, is_enough) }
}
