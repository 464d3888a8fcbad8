//! Hash ranges: half-open pieces of the hash space [0, 2^64), and equal cells that tile it.
//!
//! ```text
//! 0 ├──── cell 0 ────┼──── cell 1 ────┼──── cell 2 ────┤ 2^64
//! ```
//!
//! The cell of `hi` is ⌊⌊hi / 2^40⌋ · cells / 2^24⌋, a multiply and a shift in place of a division
//! (Lemire 2019, doi:10.1145/3230636), on the top [`GRAIN_BITS`] bits of `hi` only; cell i begins
//! at ⌈i · 2^24 / cells⌉ · 2^40. With that coarse grain every border is a multiple of 2^40. A
//! filter with m = 2^j positions over the whole space, j ≥ 24, gives each position 2^(64−j) ≤ 2^40
//! neighbouring values of `hi`, aligned to that size, so no position ever straddles two cells:
//! whatever the cell count, items on one position have one owner. Cells differ in width by at most
//! 2^40, a 2^24-th of the space.

use thiserror::Error;

/// Bits of `hi` that decide its cell: borders of cells are multiples of 2^(64 − `GRAIN_BITS`).
pub const GRAIN_BITS: u32 = 24;

/// Largest number of cells. At 2^20, widths differ by at most one part in sixteen, and there
/// are a thousand cells for each of a thousand workers.
pub const CELL_COUNT_MAX: u32 = 1 << 20;

/// The hash space's size, 2^64.
const SPACE: u128 = 1 << 64;

/// A non-empty half-open range of the hash space [0, 2^64).
///
/// ```
/// use umbel_filter::HashRange;
///
/// let range = HashRange::new(10, 20)?;
/// assert_eq!((range.start(), range.last(), range.end(), range.width()), (10, 19, 20, 10));
/// assert!(range.contains(19) && !range.contains(20));
/// assert_eq!(HashRange::WHOLE.width(), 1 << 64);
/// # Ok::<(), umbel_filter::HashRangeError>(())
/// ```
// Stored with its last value, because the end of the whole space is not a u64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HashRange {
    start: u64,
    last: u64,
}

/// The two numbers are no range of the hash space. Fix the caller, or refuse the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum HashRangeError {
    /// The range holds nothing: name an end above the start.
    #[error("empty hash range: end {end} is not above start {start}")]
    Empty {
        /// First value of the range.
        start: u64,
        /// One past its last value.
        end: u128,
    },
    /// The range leaves the space: name an end of at most 2^64.
    #[error("hash range ends at {end}, the hash space at 2^64")]
    BeyondSpace {
        /// One past the range's last value.
        end: u128,
    },
}

impl HashRange {
    /// The whole hash space.
    pub const WHOLE: Self = Self { start: 0, last: u64::MAX };

    /// The range [start, end), `end` at most 2^64.
    ///
    /// # Errors
    /// If the range is empty or ends beyond the space.
    pub fn new(start: u64, end: u128) -> Result<Self, HashRangeError> {
        if end > SPACE {
            return Err(HashRangeError::BeyondSpace { end });
        }
        match end.checked_sub(1).and_then(|last| u64::try_from(last).ok()) {
            Some(last) if last >= start => Ok(Self { start, last }),
            _ => Err(HashRangeError::Empty { start, end }),
        }
    }

    /// The index-th of `cells` tiles of the space: every `hi` with `cells.cell_of(hi) == index`.
    ///
    /// # Panics
    /// If `index` is not below the cell count.
    #[must_use]
    pub fn cell(index: u32, cells: CellCount) -> Self {
        assert!(index < cells.get(), "cell {index} of {}", cells.get());
        let border = |index: u32| {
            (u64::from(index) << GRAIN_BITS).div_ceil(cells.get().into()) << (64 - GRAIN_BITS)
        };
        // The end of the last cell is 2^64, which wraps to 0 here: its last value is right again.
        Self { start: border(index), last: border(index + 1).wrapping_sub(1) }
    }

    /// First value.
    #[inline]
    #[must_use]
    pub const fn start(self) -> u64 {
        self.start
    }

    /// One past the last value, at most 2^64.
    #[inline]
    #[must_use]
    pub const fn end(self) -> u128 {
        self.last as u128 + 1
    }

    /// Last value, inclusive.
    #[inline]
    #[must_use]
    pub const fn last(self) -> u64 {
        self.last
    }

    /// First and last value, as they are stored: both fit a `u64`, where the end of the whole space does not.
    ///
    /// ```
    /// use umbel_filter::HashRange;
    ///
    /// assert_eq!(HashRange::WHOLE.bounds(), (0, u64::MAX));
    /// assert_eq!(HashRange::from_bounds((10, 19))?, HashRange::new(10, 20)?);
    /// # Ok::<(), umbel_filter::HashRangeError>(())
    /// ```
    #[inline]
    #[must_use]
    pub const fn bounds(self) -> (u64, u64) {
        (self.start, self.last)
    }

    /// The range with this first and last value.
    ///
    /// # Errors
    /// If the last value is below the first.
    pub const fn from_bounds((start, last): (u64, u64)) -> Result<Self, HashRangeError> {
        if last < start {
            return Err(HashRangeError::Empty { start, end: last as u128 + 1 });
        }
        Ok(Self { start, last })
    }

    /// Number of values, 1 to 2^64.
    #[inline]
    #[must_use]
    pub const fn width(self) -> u128 {
        self.end() - self.start as u128
    }

    /// What the range has of a number of items over the whole hash space, whose hashes are uniform:
    /// ⌈whole · width / 2^64⌉, at least 1. It is rounded up, so that the parts of a space have room for the
    /// whole at least.
    ///
    /// ```
    /// use umbel_filter::HashRange;
    ///
    /// let quarter = HashRange::new(1 << 62, 1 << 63)?;
    /// assert_eq!(quarter.share_of(1_000), 250);
    /// assert_eq!(quarter.share_of(1_001), 251);
    /// assert_eq!(HashRange::new(7, 8)?.share_of(1_000), 1);
    /// assert_eq!(HashRange::WHOLE.share_of(1_000), 1_000);
    /// # Ok::<(), umbel_filter::HashRangeError>(())
    /// ```
    #[inline]
    #[must_use]
    pub const fn share_of(self, whole: u64) -> u64 {
        // Below 2^128, because `whole` is below 2^64; and so the share is at most `whole`.
        let share = (whole as u128 * self.width()).div_ceil(SPACE);
        #[expect(clippy::cast_possible_truncation, reason = "at most `whole`")]
        let share = share as u64;
        if share == 0 { 1 } else { share }
    }

    /// The number over the whole hash space of which the range's [share](Self::share_of) is `share`:
    /// ⌊share · 2^64 / width⌋, at most 2^64 − 1.
    ///
    /// ```
    /// use umbel_filter::HashRange;
    ///
    /// let quarter = HashRange::new(1 << 62, 1 << 63)?;
    /// assert_eq!(quarter.whole_of(250), 1_000);
    /// // 0.3 of the space: 333 of 1,110 are 0.3 · 1,110.
    /// let part = HashRange::new(0, (1 << 64) / 10 * 3)?;
    /// assert_eq!((part.whole_of(333), part.share_of(part.whole_of(333))), (1_110, 333));
    /// # Ok::<(), umbel_filter::HashRangeError>(())
    /// ```
    #[must_use]
    pub fn whole_of(self, share: u64) -> u64 {
        u64::try_from((u128::from(share) << 64) / self.width()).unwrap_or(u64::MAX)
    }

    /// Whether all of another range lies in this one.
    ///
    /// ```
    /// use umbel_filter::HashRange;
    ///
    /// let range = HashRange::new(10, 20)?;
    /// assert!(range.covers(range) && range.covers(HashRange::new(10, 11)?));
    /// assert!(!range.covers(HashRange::new(19, 21)?));
    /// # Ok::<(), umbel_filter::HashRangeError>(())
    /// ```
    #[inline]
    #[must_use]
    pub const fn covers(self, part: Self) -> bool {
        self.start <= part.start && part.last <= self.last
    }

    /// Whether two ranges have a value in common.
    ///
    /// ```
    /// use umbel_filter::HashRange;
    ///
    /// let range = HashRange::new(10, 20)?;
    /// assert!(range.overlaps(HashRange::new(19, 21)?) && !range.overlaps(HashRange::new(20, 21)?));
    /// # Ok::<(), umbel_filter::HashRangeError>(())
    /// ```
    #[inline]
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start <= other.last && other.start <= self.last
    }

    /// What a part of the range is taken to have of a number that was counted over the range, where nobody
    /// knows what fell where: with [a, b) in [s, s + w) it is ⌊n·(b − s)/w⌋ − ⌊n·(a − s)/w⌋. So the numbers
    /// of parts that tile the range sum to n, and of two the lower one's is rounded down. A part that leaves the range
    /// is taken for the part of it that does not.
    ///
    /// ```
    /// use umbel_filter::HashRange;
    ///
    /// let range = HashRange::new(100, 110)?;
    /// let halves = [HashRange::new(100, 105)?, HashRange::new(105, 110)?];
    /// assert_eq!(halves.map(|half| range.cut_count(half, 5)), [2, 3]);
    /// # Ok::<(), umbel_filter::HashRangeError>(())
    /// ```
    #[must_use]
    pub fn cut_count(self, part: Self, count: u64) -> u64 {
        let below = |end: u128| {
            // At most n, and a product below 2^128 but for all of the whole space.
            let (n, offset) = (u128::from(count), end.saturating_sub(self.start.into()));
            if offset >= self.width() { n } else { n * offset / self.width() }
        };
        let cut = below(part.end()) - below(part.start.into());
        u64::try_from(cut).unwrap_or(count)
    }

    /// Whether an item with this `hi` belongs to the range.
    #[inline]
    #[must_use]
    pub const fn contains(self, hi: u64) -> bool {
        self.start <= hi && hi <= self.last
    }
}

/// Number of equal cells that the hash space is cut into: 1 to [`CELL_COUNT_MAX`].
///
/// ```
/// use umbel_filter::{CellCount, HashRange};
///
/// let quarters = CellCount::new(4)?;
/// assert_eq!(quarters.cell_of(0x8000_0000_0000_0000), 2);
/// assert_eq!(HashRange::cell(2, quarters).start(), 0x8000_0000_0000_0000);
/// # Ok::<(), umbel_filter::CellCountOutOfRange>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CellCount(u32);

/// A cell count outside 1 to [`CELL_COUNT_MAX`]. Fix the caller, or refuse the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{cells} cells, expected 1 to {CELL_COUNT_MAX}")]
pub struct CellCountOutOfRange {
    /// The count that was asked for.
    pub cells: u32,
}

impl CellCount {
    /// Checks the count.
    ///
    /// # Errors
    /// If it is 0 or above [`CELL_COUNT_MAX`].
    pub const fn new(cells: u32) -> Result<Self, CellCountOutOfRange> {
        if cells == 0 || cells > CELL_COUNT_MAX {
            return Err(CellCountOutOfRange { cells });
        }
        Ok(Self(cells))
    }

    /// The count.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The cell that holds `hi`, below the count and monotone in `hi`.
    #[inline]
    #[must_use]
    pub fn cell_of(self, hi: u64) -> u32 {
        let cell = ((hi >> (64 - GRAIN_BITS)) * u64::from(self.0)) >> GRAIN_BITS;
        #[expect(clippy::cast_possible_truncation, reason = "a 24-bit fraction of a u32")]
        let cell = cell as u32;
        cell
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_are_checked() {
        assert_eq!(HashRange::new(0, SPACE), Ok(HashRange::WHOLE));
        assert_eq!(HashRange::new(7, 8).unwrap().width(), 1);
        assert_eq!(HashRange::new(0, 0), Err(HashRangeError::Empty { start: 0, end: 0 }));
        assert_eq!(HashRange::new(7, 7), Err(HashRangeError::Empty { start: 7, end: 7 }));
        let end = SPACE + 1;
        assert_eq!(HashRange::new(0, end), Err(HashRangeError::BeyondSpace { end }));
        assert_eq!(HashRange::new(u64::MAX, SPACE).unwrap().width(), 1);
    }

    #[test]
    fn cell_counts_are_checked() {
        assert_eq!(CellCount::new(0), Err(CellCountOutOfRange { cells: 0 }));
        let cells = CELL_COUNT_MAX + 1;
        assert_eq!(CellCount::new(cells), Err(CellCountOutOfRange { cells }));
        assert_eq!(CellCount::new(CELL_COUNT_MAX).unwrap().get(), CELL_COUNT_MAX);
    }

    #[test]
    #[should_panic(expected = "cell 3 of 3")]
    fn a_cell_beyond_the_count_is_a_bug() {
        let _ = HashRange::cell(3, CellCount::new(3).unwrap());
    }

    #[test]
    fn shares_end_at_one_item_and_at_all() {
        assert_eq!(HashRange::WHOLE.share_of(u64::MAX), u64::MAX);
        assert_eq!(HashRange::WHOLE.whole_of(u64::MAX), u64::MAX);
        let least = HashRange::new(5, 6).unwrap();
        assert_eq!((least.share_of(0), least.share_of(1), least.share_of(u64::MAX)), (1, 1, 1));
        assert_eq!((least.whole_of(0), least.whole_of(1)), (0, u64::MAX));
    }

    #[test]
    fn the_lower_part_of_a_count_is_rounded_down() {
        let halves = [HashRange::new(0, 1 << 63).unwrap(), HashRange::new(1 << 63, SPACE).unwrap()];
        let cut = |count| halves.map(|half| HashRange::WHOLE.cut_count(half, count));
        assert_eq!(cut(5), [2, 3]);
        assert_eq!(cut(0), [0, 0]);
        assert_eq!(cut(u64::MAX), [u64::MAX / 2, u64::MAX / 2 + 1]);
    }

    /// Every cell begins where the one before ends, from 0 to 2^64, and holds its own ends.
    fn assert_cells_tile(cells: CellCount) {
        let mut end = 0;
        for index in 0..cells.get() {
            let cell = HashRange::cell(index, cells);
            assert_eq!(u128::from(cell.start()), end, "cell {index} of {}", cells.get());
            assert_eq!(cells.cell_of(cell.start()), index);
            assert_eq!(cells.cell_of(cell.last()), index);
            assert_eq!(cell.start().trailing_zeros().min(40), 40);
            let width_equal = SPACE / u128::from(cells.get());
            assert!(cell.width().abs_diff(width_equal) <= 1 << 40);
            end = cell.end();
        }
        assert_eq!(end, SPACE);
    }

    #[test]
    fn cells_tile_at_every_small_count_and_at_the_limit() {
        for cells in (1..=200).chain([1000, 65_535, 65_536, CELL_COUNT_MAX - 1, CELL_COUNT_MAX]) {
            assert_cells_tile(CellCount::new(cells).unwrap());
        }
    }

    proptest! {
        #[test]
        fn cells_tile(cells in 1..=1u32 << 14) {
            assert_cells_tile(CellCount::new(cells).unwrap());
        }

        #[test]
        fn cell_of_agrees_with_contains_and_is_monotone(
            cells in 1..=CELL_COUNT_MAX, a: u64, b: u64,
        ) {
            let cells = CellCount::new(cells).unwrap();
            let cell = cells.cell_of(a);
            prop_assert!(cell < cells.get());
            prop_assert!(HashRange::cell(cell, cells).contains(a));
            prop_assert_eq!(HashRange::cell(cell, cells).contains(b), cells.cell_of(b) == cell);
            prop_assert!(cells.cell_of(a.min(b)) <= cells.cell_of(a.max(b)));
        }

        /// Counts of parts sum up, whatever the cuts.
        #[test]
        fn cut_counts_sum_to_the_count(start: u64, width in 2..=u64::MAX, cuts: [u64; 2], count: u64) {
            let end = (u128::from(start) + u128::from(width)).min(SPACE);
            let range = HashRange::new(start, end).unwrap();
            let mut cuts = cuts.map(|cut| u128::from(start) + u128::from(cut) % range.width());
            cuts.sort_unstable();
            let borders = [u128::from(start), cuts[0], cuts[1], end];
            let parts = borders.windows(2).filter_map(|ends| {
                HashRange::new(u64::try_from(ends[0]).ok()?, ends[1]).ok()
            });
            let sum: u64 = parts.map(|part| range.cut_count(part, count)).sum();
            prop_assert_eq!(sum, count);
            prop_assert_eq!(range.cut_count(range, count), count);
        }

        /// The share of the whole of a share is that share.
        #[test]
        fn the_whole_of_a_share_has_it(start: u64, width in 1..=u64::MAX, share in 1..=1u64 << 40) {
            let end = (u128::from(start) + u128::from(width)).min(SPACE);
            let range = HashRange::new(start, end).unwrap();
            let whole = range.whole_of(share);
            prop_assert!(range.share_of(whole) == share || whole == u64::MAX);
        }

        /// Parts have room for the whole, and for one more at most.
        #[test]
        fn shares_of_two_parts_sum_to_the_whole(cut in 1..=u64::MAX, whole in 1..=u64::MAX / 2) {
            let lower = HashRange::new(0, cut.into()).unwrap().share_of(whole);
            let upper = HashRange::new(cut, SPACE).unwrap().share_of(whole);
            prop_assert!((whole..=whole + 1).contains(&(lower + upper)));
        }

        /// The promise of the module: no position of 2^j positions, j >= 24, lies in two cells.
        #[test]
        fn no_fine_position_straddles_two_cells(
            cells in 1..=CELL_COUNT_MAX, bits in GRAIN_BITS..=60, hi: u64,
        ) {
            let cells = CellCount::new(cells).unwrap();
            let first = hi >> (64 - bits) << (64 - bits);
            let last = first | (u64::MAX >> bits);
            prop_assert_eq!(cells.cell_of(first), cells.cell_of(last));
        }
    }
}
