//! Sizes of a table: how many cells a number of keys takes, in segments of which length.
//!
//! A table of n keys, with m = max(n, 2), has segments of 2^s cells and at least 3 of them:
//!
//! ```text
//! s        = min(18, ⌊ln m / ln 3.33 + 2.25⌋)
//! capacity = m · max(1.125, 0.875 + 0.25 · ln 10^6 / ln m)
//! segments = max(3, ⌈capacity / 2^s⌉)
//! ```
//!
//! Reference: Graf & Lemire 2022, doi:10.1145/3510449, part 3 (three-wise). The quotients of logarithms are those of
//! binary ones, in fixed point by repeated squaring: integers give the same layout on every platform.

use crate::limits::{CHUNK_KEYS_MAX, SEGMENT_BITS_MAX};

/// Bits behind the binary point of a logarithm.
const POINT: u32 = 32;

/// log2(10^6) · 2^32, rounded down.
const LOG2_MILLION: u64 = 85_605_435_163;

/// log2(3.33) · 2^32, rounded down.
const LOG2_SPREAD: u64 = 7_454_010_992;

/// Number and length of the segments of a table.
///
/// ```
/// use umbel_static::Geometry;
///
/// let small = Geometry::of(1000); // segments of 2^7 cells, 9 + 2 of them
/// assert_eq!((small.segment_bits(), small.segment_count()), (7, 11));
/// assert_eq!(small.cell_count(), 1408);
/// assert_eq!(Geometry::of(1_000_000).cell_count(), 1_130_496);
/// assert_eq!(Geometry::of(0).cell_count(), 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Geometry {
    segment_bits: u8,
    segment_count: u32,
}

impl Geometry {
    /// Of a table without keys and cells.
    pub const EMPTY: Self = Self { segment_bits: 0, segment_count: 0 };

    /// Of a table of so many keys, at most [`CHUNK_KEYS_MAX`](crate::CHUNK_KEYS_MAX); of more keys that of so many.
    #[must_use]
    pub fn of(key_count: usize) -> Self {
        if key_count == 0 {
            return Self::EMPTY;
        }
        let keys = key_count.clamp(2, CHUNK_KEYS_MAX) as u64;
        let log = log2(keys);
        // The quotient has two bits behind its point, so that 2.25 can be added.
        let segment_bits = ((log << 2) / LOG2_SPREAD + 9) >> 2;
        let segment_bits = segment_bits.min(SEGMENT_BITS_MAX.into());
        // In thousandths of a cell a key, with the point of the logarithm.
        let million = u128::from(250 * LOG2_MILLION) << POINT;
        let per_key = ((875 << POINT) + million / u128::from(log)).max(1125 << POINT);
        let cells = (u128::from(keys) * per_key).div_ceil(1000 << POINT);
        let segments = cells.div_ceil(1 << segment_bits).max(3);
        #[expect(clippy::cast_possible_truncation, reason = "at most 18, and some hundred")]
        let (segment_bits, segment_count) = (segment_bits as u8, segments as u32);
        Self { segment_bits, segment_count }
    }

    /// What a directory says of a table, if there can be such a table.
    pub(crate) fn from_parts(segment_bits: u8, segment_count: u32) -> Option<Self> {
        let is_empty = segment_bits == 0 && segment_count == 0;
        let cells = u64::from(segment_count) << segment_bits.min(SEGMENT_BITS_MAX);
        // The smallest tables have 6 cells a key.
        let is_table = segment_bits <= SEGMENT_BITS_MAX
            && segment_count >= 3
            && cells <= 6 * CHUNK_KEYS_MAX as u64;
        (is_empty || is_table).then_some(Self { segment_bits, segment_count })
    }

    /// Cells of a segment are 2 to the power of this.
    #[must_use]
    pub const fn segment_bits(self) -> u8 {
        self.segment_bits
    }

    /// Number of segments: 0, or 3 and more.
    #[must_use]
    pub const fn segment_count(self) -> u32 {
        self.segment_count
    }

    /// Number of cells.
    #[must_use]
    pub const fn cell_count(self) -> usize {
        (self.segment_count as usize) << self.segment_bits
    }
}

/// log2(number) · 2^32, rounded down but for the last few bits; of 2 and more.
///
/// Squaring doubles a logarithm; whether the square reaches 2 is its next bit.
fn log2(number: u64) -> u64 {
    let whole = number.ilog2();
    // In [1, 2), with 63 bits behind the point.
    let mut rest = number << (63 - whole);
    let mut log = u64::from(whole);
    for _ in 0..POINT {
        let square = u128::from(rest) * u128::from(rest);
        let carry = u32::from(square >> 127 == 1);
        log = (log << 1) | u64::from(carry);
        rest = u64::try_from(square >> (63 + carry)).expect("shifted below 2^64");
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_those_of_the_platform() {
        for number in (2..5000).chain([10_000, 999_999, 1_000_000, 2_097_152]) {
            let expected = (number as f64).log2() * (1u64 << POINT) as f64;
            assert!((log2(number) as f64 - expected).abs() < 64.0, "{number}");
        }
        assert_eq!(log2(8), 3 << POINT);
        assert!(log2(1_000_000).abs_diff(LOG2_MILLION) < 64);
        let spread = 3.33f64.log2() * (1u64 << POINT) as f64;
        assert!((LOG2_SPREAD as f64 - spread).abs() < 2.0, "{spread}");
    }

    #[test]
    fn sizes_are_those_of_the_formula() {
        for keys in (2..3000).chain([10_000, 65_536, 123_456, 1_000_000, 1 << 20, 1 << 21]) {
            let m = keys as f64;
            let s = (m.ln() / 3.33f64.ln() + 2.25).floor().min(18.0);
            let capacity = m * f64::max(1.125, 0.875 + 0.25 * 1e6f64.ln() / m.ln());
            let segments = (capacity / s.exp2() - 1e-9).ceil().max(3.0);
            let found = Geometry::of(keys);
            let found = (f64::from(found.segment_bits()), f64::from(found.segment_count()));
            assert_eq!(found, (s, segments), "{keys} keys");
        }
    }

    #[test]
    fn golden_sizes() {
        let golden = [
            (1, 2, 3, 12),
            (2, 2, 3, 12),
            (10, 4, 3, 48),
            (1000, 7, 11, 1408),
            (1_000_000, 13, 138, 1_130_496),
            (1 << 20, 13, 144, 1_179_648),
            (1 << 21, 14, 144, 2_359_296),
        ];
        for (keys, bits, segments, cells) in golden {
            let found = Geometry::of(keys);
            let found = (found.segment_bits(), found.segment_count(), found.cell_count());
            assert_eq!(found, (bits, segments, cells), "{keys} keys");
            assert!(Geometry::from_parts(bits, segments).is_some());
        }
    }

    #[test]
    fn impossible_parts_are_refused() {
        for (bits, segments) in [(1, 0), (0, 1), (0, 2), (19, 3), (18, u32::MAX), (18, 49)] {
            assert_eq!(Geometry::from_parts(bits, segments), None, "{bits} {segments}");
        }
        assert_eq!(Geometry::from_parts(0, 0), Some(Geometry::EMPTY));
    }
}
