//! What random items explain: how many positions they set, and how often they are called present.
//!
//! Items that somebody chose so that their probes miss each other fill a filter faster than random ones: k
//! positions an item, as long as there are free ones. (Of such adversaries Naor & Yogev 2015 treat,
//! doi:10.1007/978-3-662-48000-7_28.) So a filter that has more ones than its items explain was not filled by
//! chance.
//!
//! A filter knows how many items it called new, N. With a share u of its positions set it calls the next
//! random item new with 1 − u^k, and an item raises u by k·(1 − u)/m. Along the way
//!
//! ```text
//!     m  u  1 − x^k          m    k   u^j
//! N = ─  ∫  ─────── dx   =   ─    Σ   ───          one probe: N = m·u, each new item sets one position;
//!     k  0   1 − x           k   j=1   j           many: N = −(m/k)·ln(1 − u), the estimate of items
//! ```
//!
//! Solved for u this gives the expected ones m·u. Their variance is that of the occupancy, with ρ =
//! −ln(1 − u): m·(e^−ρ − (1 + ρ)·e^−2ρ) (Whang, Vander-Zanden & Taylor 1990, doi:10.1145/78922.78925).

use super::SizingError;
use super::classic::check_shape;

/// Standard deviations above the expectation that chance is granted: one filter in 10^9 is beyond them.
const DEVIATIONS: f64 = 6.0;

/// Share of the expected ones that is granted above chance, for what the formula leaves out: blocks differ in
/// their fill, so a blocked filter calls somewhat more items present. It is below a 500th at three times the
/// capacity. Who chooses items sets half as much again at the usual fill, and 1 % more from a fill of 2 % on.
const TOLERANCE: f64 = 0.01;

/// Steps of a bisection over the numbers between 0 and 1: all digits of an `f64`.
const BISECTIONS: u32 = 60;

/// The most ones among `bit_count` positions (m) that chance explains, if items with `probe_count` probes (k)
/// each came until `new_count` (N) of them were called new: the expectation of the module's formula, a
/// hundredth, and six standard deviations. More are no chance: somebody chose the items, or bits are damaged.
///
/// # Errors
/// If m or k is 0.
///
/// ```
/// use umbel_filter::sizing::explained_one_count;
///
/// // One probe: 100 new items set 100 of 1,000 positions. ρ = −ln 0.9, and six times the root of
/// // 1,000 · (0.9 − 1.10536 · 0.81) are 12.9; a hundredth is 1.
/// assert_eq!(explained_one_count(1_000, 1, 100), Ok(113));
/// // Seven probes that never meet: 700 ones. By chance there are some 503.
/// assert!(explained_one_count(1_000, 7, 100)? < 600);
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
pub fn explained_one_count(
    bit_count: u64,
    probe_count: u32,
    new_count: u64,
) -> Result<u64, SizingError> {
    check_shape(bit_count, probe_count)?;
    let m = bit_count as f64;
    let wanted = new_count as f64 * f64::from(probe_count) / m;
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..BISECTIONS {
        let middle = f64::midpoint(low, high);
        if series(probe_count, middle) < wanted { low = middle } else { high = middle }
    }
    let fill = high;
    if fill >= 1.0 {
        return Ok(bit_count);
    }
    // 1 − u is e^−ρ.
    let (zeros, load) = (1.0 - fill, -(-fill).ln_1p());
    let variance = m * (zeros - (1.0 + load) * zeros * zeros).max(0.0);
    let explained = m * fill * (1.0 + TOLERANCE) + DEVIATIONS * variance.sqrt();
    #[expect(clippy::cast_possible_truncation, reason = "within 0 and m")]
    Ok((explained as u64).min(bit_count))
}

/// Σ u^j / j for j from 1 to k.
fn series(probe_count: u32, fill: f64) -> f64 {
    let (mut power, mut sum) = (1.0, 0.0);
    for j in 1..=probe_count {
        power *= fill;
        sum += power / f64::from(j);
    }
    sum
}

/// Between which rates the true one lies, if `hit_count` of `probe_count` questions about random items were
/// answered "present": Wilson's interval (1927, doi:10.1080/01621459.1927.10502953) with z = 3, outside of
/// which it lies in one of 370 cases. It says something of no hits, too: below 9/(n + 9).
///
/// ```
/// use umbel_filter::sizing::measured_rate_bounds;
///
/// // No hit among 91: at most 9/100.
/// let (low, high) = measured_rate_bounds(91, 0).expect("there were probes");
/// assert!(low.abs() < 1e-12 && (high - 0.09).abs() < 1e-12);
/// assert_eq!(measured_rate_bounds(0, 0), None);
/// ```
#[must_use]
pub fn measured_rate_bounds(probe_count: u64, hit_count: u64) -> Option<(f64, f64)> {
    const Z_SQUARED: f64 = 9.0;
    if probe_count == 0 || hit_count > probe_count {
        return None;
    }
    let n = probe_count as f64;
    let rate = hit_count as f64 / n;
    let middle = rate + Z_SQUARED / (2.0 * n);
    let spread = (Z_SQUARED * (rate * (1.0 - rate) / n + Z_SQUARED / (4.0 * n * n))).sqrt();
    let scale = 1.0 + Z_SQUARED / n;
    Some((((middle - spread) / scale).max(0.0), ((middle + spread) / scale).min(1.0)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::split_mix;
    use super::*;

    /// A filter of free probes, filled by random items until so many were new. Returns its ones.
    fn filled(bit_count: usize, probe_count: u32, new_count: u64, state: &mut u64) -> u64 {
        let mut bits = vec![false; bit_count];
        let (mut new, mut ones) = (0, 0);
        while new < new_count {
            let mut is_new = false;
            for _ in 0..probe_count {
                let product = u128::from(split_mix(state)) * bit_count as u128;
                let bit = &mut bits[usize::try_from(product >> 64).unwrap()];
                ones += u64::from(!*bit);
                is_new |= !std::mem::replace(bit, true);
            }
            new += u64::from(is_new);
        }
        ones
    }

    /// From nearly empty to three times too full.
    #[test]
    fn random_items_are_explained_at_every_fill() {
        let mut state = 1;
        for (m, k, new_count) in [
            (20_000, 7, 20),
            (20_000, 7, 2_000),
            (20_000, 7, 6_000),
            (20_000, 3, 9_000),
            (5_000, 1, 3_000),
        ] {
            let most = explained_one_count(m, k, new_count).unwrap();
            let bits = usize::try_from(m).unwrap();
            let ones: Vec<u64> = (0..40).map(|_| filled(bits, k, new_count, &mut state)).collect();
            assert!(
                ones.iter().all(|&ones| ones <= most),
                "{m} {k} {new_count}: {ones:?} of {most}"
            );
            // The expectation itself is met: what is granted above it is not needed for the formula.
            let mean = ones.iter().sum::<u64>() as f64 / 40.0;
            let expected = {
                let (mut low, mut high) = (0.0, 1.0);
                for _ in 0..BISECTIONS {
                    let middle = f64::midpoint(low, high);
                    let new = m as f64 / f64::from(k) * series(k, middle);
                    if new < new_count as f64 { low = middle } else { high = middle }
                }
                m as f64 * low
            };
            assert!((mean / expected - 1.0).abs() < 0.01, "{mean} for {expected}");
        }
    }

    #[test]
    fn chosen_items_are_not_explained() {
        let m = 1 << 20;
        for k in [3, 7, 10] {
            // From a fill of a 20th on, each item sets k positions that were free.
            for new_count in [m / 20 / u64::from(k), m / 4 / u64::from(k), m / u64::from(k) - 1] {
                let most = explained_one_count(m, k, new_count).unwrap();
                assert!(new_count * u64::from(k) > most, "{k} {new_count}: {most}");
            }
        }
    }

    #[test]
    fn the_ends() {
        assert_eq!(explained_one_count(0, 1, 0), Err(SizingError::NoBits));
        assert_eq!(explained_one_count(1, 0, 0), Err(SizingError::NoProbes));
        assert_eq!(explained_one_count(64, 3, 0), Ok(0));
        assert_eq!(explained_one_count(64, 3, u64::MAX), Ok(64));
        assert_eq!(explained_one_count(u64::MAX, 1, u64::MAX), Ok(u64::MAX));
        assert_eq!(measured_rate_bounds(1, 2), None);
        assert_eq!(measured_rate_bounds(u64::MAX, u64::MAX).map(|bounds| bounds.1), Some(1.0));
    }

    proptest! {
        #[test]
        fn more_items_explain_more(m in 1_u64..1 << 40, k in 1_u32..30, n in 0_u64..1 << 40) {
            let few = explained_one_count(m, k, n).unwrap();
            let more = explained_one_count(m, k, n + 1 + n / 100).unwrap();
            prop_assert!(few <= more && more <= m);
        }

        #[test]
        fn bounds_hold_the_rate(n in 1_u64..1 << 40, share in 0.0..=1.0_f64) {
            let hits = super::super::tests::whole(n as f64 * share).min(n);
            let (low, high) = measured_rate_bounds(n, hits).unwrap();
            let rate = hits as f64 / n as f64;
            prop_assert!((0.0..=1.0).contains(&low) && low <= rate + 1e-12 && rate <= high + 1e-12);
        }
    }
}
