//! How often a counting filter takes an item for one that came so many times (Kim et al. 2019,
//! doi:10.3390/electronics8070779).

use super::classic::check_shape;
use super::{SizingError, check_items};
use crate::lanes::BLOCK_PROBE_COUNT_MAX;

/// The probability that all k counters of an item that was not inserted have reached `threshold` (t), in a counting filter
/// of `counter_count` counters (m) with `probe_count` probes (k) after `item_count` different items (n):
/// (1 − Σ_(l < t) C(n·k, l) m^−l (1 − 1/m)^(n·k − l))^k. 1 for t = 0.
///
/// # Errors
/// If m or k is 0.
///
/// ```
/// use umbel_filter::sizing::counting_threshold_rate;
///
/// // Two items with one probe in two counters: both in this one with 1/4.
/// assert!((counting_threshold_rate(2, 1, 2, 2)? - 0.25).abs() < 1e-12);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn counting_threshold_rate(
    counter_count: u64,
    probe_count: u32,
    item_count: u64,
    threshold: u32,
) -> Result<f64, SizingError> {
    check_shape(counter_count, probe_count)?;
    let raises = item_count as f64 * f64::from(probe_count);
    let share = 1.0 / counter_count as f64;
    // Of one counter all raises are its own.
    let others = 1.0 - share;
    if others == 0.0 {
        return Ok(f64::from(u8::from(raises >= f64::from(threshold))));
    }
    let (mut term, mut below) = ((raises * (-share).ln_1p()).exp(), 0.0);
    for l in 0..threshold {
        below += term;
        // All further terms are nothing, too.
        if term == 0.0 {
            break;
        }
        let l = f64::from(l);
        term *= (raises - l).max(0.0) / (l + 1.0) * share / others;
    }
    Ok((1.0 - below).clamp(0.0, 1.0).powf(probe_count.into()))
}

/// The number of probes, 1 to [`BLOCK_PROBE_COUNT_MAX`], with the least rate of
/// [`counting_threshold_rate`], and that rate. A higher threshold takes more probes than membership, where k · n/m tends to ln 2: 0.933, 1.164
/// and 1.389 for t = 2, 3 and 4.
///
/// # Errors
/// If m or n is 0.
///
/// ```
/// use umbel_filter::sizing::counting_threshold_probes;
///
/// let best = |threshold| counting_threshold_probes(1000, 100, threshold).map(|(probes, _)| probes);
/// assert_eq!([best(1)?, best(2)?, best(3)?, best(4)?], [7, 9, 12, 14]);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn counting_threshold_probes(
    counter_count: u64,
    item_count: u64,
    threshold: u32,
) -> Result<(u32, f64), SizingError> {
    check_items(item_count)?;
    let mut best = (1, counting_threshold_rate(counter_count, 1, item_count, threshold)?);
    for probe_count in 2..=BLOCK_PROBE_COUNT_MAX {
        let rate = counting_threshold_rate(counter_count, probe_count, item_count, threshold)?;
        if rate < best.1 {
            best = (probe_count, rate);
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizing::classic_false_positive_rate;

    #[test]
    fn golden_rates() {
        for (threshold, rate) in [(1, 8.21e-3), (2, 1.63e-6), (3, 9.3e-12), (4, 1.6e-18)] {
            let (_, best) = counting_threshold_probes(1000, 100, threshold).unwrap();
            assert!((best / rate - 1.0).abs() < 0.05, "t = {threshold}: {best}");
        }
    }

    #[test]
    fn a_threshold_of_one_is_membership() {
        for (m, k, n) in [(1000, 7, 100), (512, 3, 900), (10, 1, 1)] {
            let [ours, classic] =
                [counting_threshold_rate(m, k, n, 1), classic_false_positive_rate(m, k, n)];
            assert!((ours.unwrap() - classic.unwrap()).abs() < 1e-12);
        }
        assert_eq!(counting_threshold_rate(10, 3, 5, 0), Ok(1.0));
        assert_eq!(counting_threshold_rate(1, 1, 3, 3), Ok(1.0));
        assert_eq!(counting_threshold_rate(1, 1, 3, 4), Ok(0.0));
        // As soon as for a small threshold.
        assert!(counting_threshold_rate(10, 1, 3, u32::MAX).unwrap() < 1e-12);
        assert_eq!(counting_threshold_rate(0, 1, 3, 4), Err(SizingError::NoBits));
        assert_eq!(counting_threshold_rate(5, 0, 3, 4), Err(SizingError::NoProbes));
        assert_eq!(counting_threshold_probes(5, 0, 4), Err(SizingError::NoItems));
    }
}
