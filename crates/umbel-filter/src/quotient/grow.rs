//! Growing a filter to twice as many quotients, the shapes that result, and the number of items that each
//! has room for.

use thiserror::Error;

use super::Quotient;
use crate::kind::Kind;
use crate::shape::{BlockShape, CreateError};
use crate::sizing::{QUOTIENT_PAGE_SLOTS_MAX, quotient_capacity};

/// Why a filter did not grow. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum QuotientGrowError {
    /// Its remainders have one bit. Build a larger filter of all items.
    #[error("remainders of one bit, and growing takes one")]
    NoRemainder,
    /// Too many items lie on neighbouring quotients for chance: somebody chose them, or the words are corrupted.
    /// Build a filter with another seed.
    #[error("some 250 items that are neighbours by choice")]
    Crowded,
    /// Free memory, or cut the filter by hash range.
    #[error(transparent)]
    Create(#[from] CreateError),
}

impl Quotient {
    /// Doubles the number of quotients: the upper bit of every remainder becomes a bit of its quotient. Positions,
    /// counts, answers and the rate stay as they are. There is room for as many items again, and they add as much to
    /// the rate.
    ///
    /// Pages double up to 65,536 quotients, and then in number.
    ///
    /// # Errors
    /// If remainders have one bit, items are crowded by choice, or there is no memory. Nothing was changed.
    ///
    /// ```
    /// use umbel_filter::{BlockShape, HashRange, Insert, ItemHash, Kind, Quotient};
    ///
    /// let mut filter = Quotient::for_rate(HashRange::WHOLE, 60, 0.01)?;
    /// filter.extend((0..60).map(|item| ItemHash::new(item << 58 | item << 40, 0)));
    /// let before: Vec<u64> = filter.positions().collect();
    /// filter.grow()?;
    /// assert!(filter.positions().eq(before));
    /// assert_eq!(filter.block_shape().position_count(), 128);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn grow(&mut self) -> Result<(), QuotientGrowError> {
        *self = self.grown()?;
        Ok(())
    }

    /// A copy of the filter as [`grow`](Self::grow) makes it; this one stays as it is.
    ///
    /// # Errors
    /// As of `grow`.
    pub fn grown(&self) -> Result<Self, QuotientGrowError> {
        let mut grown = Self::with_shape(self.shape.grown()?)?;
        grown.fill(self.counted_positions()).ok_or(QuotientGrowError::Crowded)?;
        Ok(grown)
    }
}

impl BlockShape {
    /// The shape of a quotient filter that has [grown](Quotient::grow) once: of twice the quotients, in pages of
    /// twice the size or in twice as many of the largest, and remainders of one bit less.
    ///
    /// # Errors
    /// If remainders have one bit, the kind is another one, or the filter would be too large.
    ///
    /// ```
    /// use umbel_filter::{BlockShape, HashRange, Kind};
    ///
    /// let shape = BlockShape::new(Kind::Quotient, HashRange::WHOLE, 3, 1 << 15, 7)?;
    /// let grown = shape.grown()?;
    /// assert_eq!((grown.map().block_count(), grown.block_bits(), grown.probe_count()), (3, 1 << 16, 6));
    /// let grown = grown.grown()?;
    /// assert_eq!((grown.map().block_count(), grown.block_bits(), grown.probe_count()), (6, 1 << 16, 5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn grown(self) -> Result<Self, QuotientGrowError> {
        self.check_kind(Kind::Quotient).map_err(CreateError::from)?;
        let remainder_bits = self.probe_count() - 1;
        if remainder_bits == 0 {
            return Err(QuotientGrowError::NoRemainder);
        }
        let (pages, slots) = (self.map().block_count(), self.block_bits());
        let (pages, slots) =
            if slots < QUOTIENT_PAGE_SLOTS_MAX { (pages, 2 * slots) } else { (2 * pages, slots) };
        let grown = Self::new(self.kind(), self.range(), pages, slots, remainder_bits)
            .and_then(|grown| grown.with_count_bits(self.count_bits()));
        Ok(grown.map_err(CreateError::from)?)
    }

    /// The shapes that a quotient filter of this one takes as it [grows](Quotient::grow), this one first; of
    /// another kind this one alone.
    ///
    /// ```
    /// use umbel_filter::{BlockShape, HashRange, Kind};
    ///
    /// let shape = BlockShape::new(Kind::Quotient, HashRange::WHOLE, 1, 64, 3)?;
    /// let remainder_bits: Vec<u32> = shape.growths().map(BlockShape::probe_count).collect();
    /// assert_eq!(remainder_bits, [3, 2, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn growths(self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self), |shape| shape.grown().ok())
    }

    /// How often a quotient filter of this shape must grow so that one of another shape, over its range or a part
    /// of it, is a part of it; None if it never is. Of another kind 0 or None, as
    /// [`offset_of`](Self::offset_of) says.
    ///
    /// ```
    /// use umbel_filter::{BlockShape, HashRange, Kind};
    ///
    /// let shape = BlockShape::new(Kind::Quotient, HashRange::WHOLE, 1, 64, 5)?;
    /// let grown = shape.grown()?.grown()?;
    /// assert_eq!((shape.growths_to(grown), grown.growths_to(shape)), (Some(2), None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn growths_to(self, part: Self) -> Option<u32> {
        let times = self.growths().position(|grown| grown.offset_of(part).is_some())?;
        u32::try_from(times).ok()
    }

    /// Items that a quotient filter of this shape is planned for at most, by
    /// [`quotient_capacity`]: it holds some more before it is full, and is slower then.
    ///
    /// ```
    /// use umbel_filter::{BlockShape, HashRange, Kind};
    ///
    /// let shape = BlockShape::new(Kind::Quotient, HashRange::WHOLE, 1, 1 << 16, 7)?;
    /// // 94 % of one page.
    /// assert_eq!(shape.quotient_capacity(), 61_603);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn quotient_capacity(self) -> u64 {
        let quotients = u128::from(self.map().block_count()) * u128::from(self.block_bits());
        let of_range = (self.range().width() * quotients + (1 << 63)) >> 64;
        quotient_capacity(u64::try_from(of_range).unwrap_or(u64::MAX), self.block_bits())
    }
}
