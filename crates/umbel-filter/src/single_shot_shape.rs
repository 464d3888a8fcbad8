//! Shape of a single-shot filter: how `hi` maps to a position and how little restores it.
//!
//! With m positions over the whole hash space, `hi` has the position x = ⌊hi · m / 2^64⌋ (multiply-shift, Lemire
//! 2019, doi:10.1145/3230636). The map is monotone, so sorted hashes give sorted positions for any m, and a filter
//! over a hash range has a slice of the positions, which it counts from that of its start on. A position that a
//! border of two ranges divides is in both.
//!
//! *Residue*: the hashes on position x are the at most ⌈2^64 / m⌉ ≤ 2^t neighbours from
//! ⌈x · 2^64 / m⌉ on, t = 64 − ⌊log2 m⌋. No two of them share their low t bits, so whoever knows x
//! needs only those t bits, the residue, to restore all 64 of `hi`.
//!
//! ```text
//!           x − 1            x              x + 1
//! hashes ────────────┼┄┄┄┄┄┄┄┄●┄┄┄┄┄┼──────────────        ● = the only one with these low t bits
//!                    ⌈x·2^64/m⌉     at most 2^t later
//! ```

use std::fmt;

use crate::range::HashRange;
use crate::shape::ShapeError;

/// Largest position count: 2^60 leaves every position 16 hashes, and sums of positions fit a u64.
pub const POSITION_COUNT_MAX: u64 = 1 << 60;

/// What must be equal for two single-shot filters to merge: the hash range and m.
///
/// `position_count` is m, the number of positions over the *whole* hash space, 1 to
/// [`POSITION_COUNT_MAX`]. A filter over half of the space has about m/2 positions.
///
/// ```
/// use umbel_filter::{HashRange, SingleShotShape};
///
/// // 16 positions over the space: the position is the top hexadecimal digit.
/// let shape = SingleShotShape::new(HashRange::WHOLE, 16)?;
/// assert_eq!(shape.position(0xabcd_0000_0000_0000), 0xa);
/// assert_eq!(shape.residue_bits(), 60);
/// assert_eq!(shape.residue(0xabcd_0000_0000_0000), 0xbcd_0000_0000_0000);
/// assert_eq!(shape.restore(0xa, 0xbcd_0000_0000_0000), Some(0xabcd_0000_0000_0000));
/// assert_eq!(shape.width(), 16);
/// # Ok::<(), umbel_filter::ShapeError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SingleShotShape {
    range: HashRange,
    position_count: u64,
    /// Position of the range's start, counted over the whole hash space.
    first_position: u64,
}

impl SingleShotShape {
    /// Checks the numbers.
    ///
    /// # Errors
    /// If `position_count` is 0 or above [`POSITION_COUNT_MAX`].
    pub const fn new(range: HashRange, position_count: u64) -> Result<Self, ShapeError> {
        if position_count == 0 || position_count > POSITION_COUNT_MAX {
            return Err(ShapeError::PositionCount { position_count });
        }
        let first_position = position_of(range.start(), position_count);
        Ok(Self { range, position_count, first_position })
    }

    /// The hash range whose items the filter holds.
    #[inline]
    #[must_use]
    pub const fn range(self) -> HashRange {
        self.range
    }

    /// Number of positions over the whole hash space, m.
    #[inline]
    #[must_use]
    pub const fn position_count(self) -> u64 {
        self.position_count
    }

    /// Position of the range's start, counted over the whole hash space.
    ///
    /// ```
    /// use umbel_filter::{HashRange, SingleShotShape};
    ///
    /// // The lower half ends inside the second of three positions, and the upper one begins in it.
    /// let upper = SingleShotShape::new(HashRange::new(1 << 63, 1 << 64)?, 3)?;
    /// assert_eq!((upper.first_position(), upper.width()), (1, 2));
    /// let lower = SingleShotShape::new(HashRange::new(0, 1 << 63)?, 3)?;
    /// assert_eq!((lower.first_position(), lower.width()), (0, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[must_use]
    pub const fn first_position(self) -> u64 {
        self.first_position
    }

    /// Position of an item, counted from that of the range's start: below [`width`](Self::width) and
    /// monotone in `hi`, which must lie in the range. For any other `hi` the result means nothing,
    /// and debug builds stop.
    #[inline]
    #[must_use]
    pub fn position(self, hi: u64) -> u64 {
        debug_assert!(self.range.contains(hi), "{hi} lies outside {:?}", self.range);
        position_of(hi, self.position_count).wrapping_sub(self.first_position)
    }

    /// Number of positions in the range: the last one plus 1, at most m.
    #[inline]
    #[must_use]
    pub fn width(self) -> u64 {
        self.position(self.range.last()) + 1
    }

    /// Number t of residue bits: 64 − ⌊log2 m⌋, from 4 (m = 2^60) to 64 (m = 1).
    #[inline]
    #[must_use]
    pub const fn residue_bits(self) -> u32 {
        64 - self.position_count.ilog2()
    }

    /// The low t bits of `hi`.
    #[inline]
    #[must_use]
    pub const fn residue(self, hi: u64) -> u64 {
        hi & self.residue_mask()
    }

    /// The `hi` with this position and residue, or None if there is none in the range: such a pair
    /// can only come from a damaged or hostile message.
    #[inline]
    #[must_use]
    pub fn restore(self, position: u64, residue: u64) -> Option<u64> {
        if residue > self.residue_mask() {
            return None;
        }
        let first = self.first_of(position)?;
        // From the position's first hash up to the next one with the right low bits.
        let step = residue.wrapping_sub(first) & self.residue_mask();
        let hi = first.checked_add(step)?;
        (self.range.contains(hi) && self.position(hi) == position).then_some(hi)
    }

    /// The smallest `hi` of the range with this position, or None if there is none.
    ///
    /// ```
    /// use umbel_filter::{HashRange, SingleShotShape};
    ///
    /// let shape = SingleShotShape::new(HashRange::WHOLE, 3)?;
    /// // ⌈2^64 / 3⌉: below it, a third of the hash space has position 0.
    /// assert_eq!(shape.first_hi(1), Some(0x5555_5555_5555_5556));
    /// assert_eq!(shape.first_hi(3), None);
    /// # Ok::<(), umbel_filter::ShapeError>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn first_hi(self, position: u64) -> Option<u64> {
        // That of the range's start may begin before it.
        let hi = self.first_of(position)?.max(self.range.start());
        (hi <= self.range.last()).then_some(hi)
    }

    /// A position's first `hi`, as if the range were the whole hash space.
    #[inline]
    fn first_of(self, position: u64) -> Option<u64> {
        let position = position.checked_add(self.first_position)?;
        // Beyond m it would not fit into 64 bits.
        let is_within = position < self.position_count;
        let first = (u128::from(position) << 64).div_ceil(self.position_count.into());
        u64::try_from(first).ok().filter(|_| is_within)
    }

    #[inline]
    const fn residue_mask(self) -> u64 {
        // t is at least 4, so the shift is at most 60.
        u64::MAX >> (64 - self.residue_bits())
    }
}

/// ⌊hi · m / 2^64⌋
#[inline]
const fn position_of(hi: u64, position_count: u64) -> u64 {
    ((hi as u128 * position_count as u128) >> 64) as u64
}

impl fmt::Display for SingleShotShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, last) = (self.range.start(), self.range.last());
        write!(f, "single-shot, {} positions over hashes {start} to {last}", self.position_count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Position counts of all magnitudes, often beside a power of two, where t changes.
    fn position_counts() -> impl Strategy<Value = u64> {
        let by_magnitude = (0..=60u32).prop_flat_map(|bits| 1..=1u64 << bits);
        let near_power = (1..60u32, 0..3u64).prop_map(|(bits, step)| (1u64 << bits) - 1 + step);
        prop_oneof![by_magnitude, near_power]
    }

    fn ranges() -> impl Strategy<Value = HashRange> {
        let inside = (any::<u64>(), any::<u64>(), 0..64u32).prop_map(|(start, width, shift)| {
            let end = u128::from(start) + u128::from(width >> shift) + 1;
            HashRange::new(start, end.min(1 << 64)).unwrap()
        });
        prop_oneof![Just(HashRange::WHOLE), inside]
    }

    fn shapes() -> impl Strategy<Value = SingleShotShape> {
        (ranges(), position_counts()).prop_map(|(range, m)| SingleShotShape::new(range, m).unwrap())
    }

    /// A hash inside the range, often at one of its ends.
    fn hi_inside(range: HashRange, pick: u64) -> u64 {
        match pick % 4 {
            0 => range.start(),
            1 => range.last(),
            _ => range.start() + u64::try_from(u128::from(pick) % range.width()).unwrap(),
        }
    }

    #[test]
    fn position_counts_are_checked() {
        for position_count in [0, POSITION_COUNT_MAX + 1, u64::MAX] {
            let refused = Err(ShapeError::PositionCount { position_count });
            assert_eq!(SingleShotShape::new(HashRange::WHOLE, position_count), refused);
        }
    }

    #[test]
    fn the_extremes_of_m() {
        let one = SingleShotShape::new(HashRange::WHOLE, 1).unwrap();
        assert_eq!((one.width(), one.residue_bits()), (1, 64));
        assert_eq!(one.restore(0, u64::MAX), Some(u64::MAX));
        assert_eq!(one.restore(1, 0), None);
        let most = SingleShotShape::new(HashRange::WHOLE, POSITION_COUNT_MAX).unwrap();
        assert_eq!((most.width(), most.residue_bits()), (1 << 60, 4));
        assert_eq!(most.restore((1 << 60) - 1, 15), Some(u64::MAX));
        assert_eq!(most.restore(1 << 60, 0), None);
        assert_eq!(most.restore(0, 16), None);
    }

    /// m = 3 by hand: the borders are at thirds of 2^64, and 2 bits less than 64 do not suffice.
    #[test]
    fn three_positions() {
        let shape = SingleShotShape::new(HashRange::WHOLE, 3).unwrap();
        let third = u64::MAX / 3;
        assert_eq!([third, third + 1].map(|hi| shape.position(hi)), [0, 1]);
        assert_eq!(shape.residue_bits(), 63);
        assert_eq!(shape.restore(1, third + 1), Some(third + 1));
    }

    /// Every hash of hundreds of neighbouring positions, also the first and the last of each. Just
    /// above a power of two, positions of 2^t hashes begin between two offsets, the tightest case.
    #[test]
    fn whole_positions_are_restored() {
        for m in [(1 << 60) - 1, 1 << 60, (1 << 59) + 1, 3 << 57, (1 << 58) + 1, (1 << 57) + 9] {
            let shape = SingleShotShape::new(HashRange::WHOLE, m).unwrap();
            for base in [0, 1 << 40, (1 << 63) - 2_000, u64::MAX - 4_000] {
                for hi in base..=base + 4_000 {
                    let (position, residue) = (shape.position(hi), shape.residue(hi));
                    assert_eq!(shape.restore(position, residue), Some(hi), "m = {m}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn restore_inverts(shape in shapes(), pick: u64) {
            let hi = hi_inside(shape.range(), pick);
            let position = shape.position(hi);
            prop_assert!(position < shape.width());
            prop_assert_eq!(shape.restore(position, shape.residue(hi)), Some(hi));
        }

        #[test]
        fn restore_is_total_and_exact(
            shape in shapes(), position: u64, position_shift in 0..64u32,
            residue: u64, residue_shift in 0..64u32,
        ) {
            let (position, residue) = (position >> position_shift, residue >> residue_shift);
            if let Some(hi) = shape.restore(position, residue) {
                prop_assert!(shape.range().contains(hi));
                prop_assert_eq!((shape.position(hi), shape.residue(hi)), (position, residue));
            }
        }

        #[test]
        fn positions_are_monotone(shape in shapes(), a: u64, b: u64) {
            let (a, b) = (hi_inside(shape.range(), a), hi_inside(shape.range(), b));
            prop_assert!(shape.position(a.min(b)) <= shape.position(a.max(b)));
        }

        /// The slow twin: divisions of 128 bits instead of multiply and shift back and forth.
        #[test]
        fn the_position_is_the_quotient(shape in shapes(), pick: u64) {
            let hi = hi_inside(shape.range(), pick);
            let slow = |hi: u64| u128::from(hi) * u128::from(shape.position_count()) / (1 << 64);
            prop_assert_eq!(u128::from(shape.position(hi)), slow(hi) - slow(shape.range().start()));
            let first = shape.first_hi(shape.position(hi)).unwrap();
            prop_assert!(first <= hi && shape.position(first) == shape.position(hi));
            prop_assert!(first == shape.range().start() || slow(first - 1) < slow(first));
        }

        /// A range has a slice of the positions of the whole.
        #[test]
        fn a_range_is_a_slice(shape in shapes(), pick: u64) {
            let hi = hi_inside(shape.range(), pick);
            let whole = SingleShotShape::new(HashRange::WHOLE, shape.position_count()).unwrap();
            prop_assert_eq!(shape.first_position() + shape.position(hi), whole.position(hi));
            prop_assert_eq!(shape.residue(hi), whole.residue(hi));
        }
    }
}
