//! How often an item that was not raised is read as one of a lattice filter's sets.

use super::{SizingError, classic_false_positive_rate};

/// The probability that an item that is in no set reads as set i, for each i from 1 on, of a lattice filter of
/// `cell_count` cells (m) with `probe_count` probes (k), whose sets in rising priority have so many items.
///
/// It reads i or more with the rate r_i of the items of set i and all above, so exactly i with r_i − r_(i+1); an item of
/// set i is misread as a higher one with r_(i+1) (Palmieri et al. 2014, doi:10.1007/978-3-319-16745-9_2). Probes are
/// taken for free: in blocks rates are a little higher.
///
/// # Errors
/// If m or k is 0.
///
/// ```
/// use umbel_filter::sizing::spatial_false_positive_rates;
///
/// // Ten cells, one probe, one item a set: 0.19 − 0.1, and 0.1.
/// let rates = spatial_false_positive_rates(10, 1, &[1, 1])?;
/// assert!((rates[0] - 0.09).abs() < 1e-12 && (rates[1] - 0.1).abs() < 1e-12);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn spatial_false_positive_rates(
    cell_count: u64,
    probe_count: u32,
    item_counts: &[u64],
) -> Result<Vec<f64>, SizingError> {
    let (mut items, mut above) = (0u64, 0.0);
    let mut rates = Vec::with_capacity(item_counts.len());
    for count in item_counts.iter().rev() {
        items = items.saturating_add(*count);
        let rate = classic_false_positive_rate(cell_count, probe_count, items)?;
        rates.push(rate - above);
        above = rate;
    }
    rates.reverse();
    Ok(rates)
}
