//! Rates of the kinds that forget by what comes: aging filters.

use super::{SizingError, check_rate};

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

#[cfg(test)]
mod tests {
    use super::*;

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
