//! Two filters in one, and one in twice the quotients: passes over sorted streams.

use thiserror::Error;

use super::Quotient;
use super::page::Place;
use super::stream::{PageBuilder, PageItems};
use crate::bits::index;
use crate::capability::InsertError;
use crate::shape::{BlockShape, CreateError, ShapeMismatch};
use crate::sizing::QUOTIENT_PAGE_SLOTS_MAX;

/// Why a filter was not merged in. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum QuotientMergeError {
    /// Build one of them anew with the other's shape.
    #[error(transparent)]
    Shape(#[from] ShapeMismatch),
    /// [Grow](Quotient::grow) both, or build a larger one of all items.
    #[error(transparent)]
    Full(#[from] InsertError),
    /// Free memory: the union is built beside both.
    #[error(transparent)]
    Create(#[from] CreateError),
}

/// Why a filter did not grow. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum QuotientGrowError {
    /// Its remainders have one bit. Build a larger filter of all items.
    #[error("remainders of one bit, and growing takes one")]
    NoRemainder,
    /// So many items lie on neighbouring quotients, by chance never: somebody chose them, or the words have rotted.
    /// Build a filter with another seed.
    #[error("some 250 items that are neighbours by choice")]
    Crowded,
    /// Free memory, or cut the filter by hash range.
    #[error(transparent)]
    Create(#[from] CreateError),
}

impl Quotient {
    /// Inserts what another filter of the same shape holds, each position as often as it was inserted there, and
    /// returns how many positions are new.
    ///
    /// The sum of copies is commutative and associative, also where it is sticky, and so is this.
    ///
    /// # Errors
    /// If the shapes differ, there is no room for all, or no memory. Nothing was changed.
    ///
    /// ```
    /// use umbel_filter::{HashRange, Insert, ItemHash, Quotient};
    ///
    /// let mut ours = Quotient::for_rate(HashRange::WHOLE, 100, 0.01)?;
    /// let mut theirs = ours.clone();
    /// ours.insert(ItemHash::new(1, 2))?;
    /// theirs.insert(ItemHash::new(1, 2))?;
    /// theirs.insert(ItemHash::new(1 << 60, 2))?;
    /// assert_eq!(ours.merge(&theirs)?, 1);
    /// assert_eq!((ours.copies(ItemHash::new(1, 2)), ours.taken_count()), (2, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn merge(&mut self, other: &Self) -> Result<u64, QuotientMergeError> {
        if self.shape != other.shape {
            let (ours, theirs) = (self.shape.into(), other.shape.into());
            return Err(ShapeMismatch { ours, theirs }.into());
        }
        let mut union = Self::with_shape(self.shape)?;
        let (layout, full) = (self.layout, InsertError::Full { item_count: self.taken_count });
        let pages = union.bits.words_mut().chunks_exact_mut(layout.page_words);
        for (page, (ours, theirs)) in pages.zip(self.pages().zip(other.pages())) {
            let (ours, theirs) = (PageItems::new(layout, ours), PageItems::new(layout, theirs));
            let mut builder = PageBuilder::new(layout, page);
            for (place, count) in summed(ours, theirs, layout.count_mask()) {
                builder.push(place, count).ok_or(full)?;
                union.taken_count += 1;
            }
        }
        let new_count = union.taken_count.saturating_sub(self.taken_count);
        *self = union;
        Ok(new_count)
    }

    /// Doubles the quotients: every remainder gives its upper bit to its quotient. Positions, counts and
    /// answers stay as they are, the rate with them; there is room for as many items again, which add as much to the rate.
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
        let shape = grown_shape(self.shape)?;
        let mut grown = Self::with_shape(shape)?;
        let (ours, theirs) = (self.layout, grown.layout);
        let first_pages = (self.shape.map().first_block(), shape.map().first_block());
        let mut items = (first_pages.0..).zip(self.pages()).flat_map(|(page, words)| {
            PageItems::new(ours, words).map(move |(place, count)| {
                let quotient = page * ours.quotient_count as u64 + place.quotient as u64;
                let upper = place.remainder >> theirs.remainder_bits & 1;
                let remainder = place.remainder & ((1 << theirs.remainder_bits) - 1);
                (2 * quotient + upper, remainder, count)
            })
        });
        let mut next = items.next();
        let pages = grown.bits.words_mut().chunks_exact_mut(theirs.page_words);
        for (page, words) in (first_pages.1..).zip(pages) {
            let first = page * theirs.quotient_count as u64;
            let mut builder = PageBuilder::new(theirs, words);
            while let Some((quotient, remainder, count)) = next
                && quotient < first + theirs.quotient_count as u64
            {
                let quotient = index(quotient.saturating_sub(first));
                let pushed = builder.push(Place { quotient, remainder }, count);
                pushed.ok_or(QuotientGrowError::Crowded)?;
                grown.taken_count += 1;
                next = items.next();
            }
        }
        drop(items);
        *self = grown;
        Ok(())
    }
}

/// The shape with twice the quotients.
fn grown_shape(shape: BlockShape) -> Result<BlockShape, QuotientGrowError> {
    let remainder_bits = shape.probe_count() - 1;
    if remainder_bits == 0 {
        return Err(QuotientGrowError::NoRemainder);
    }
    let (pages, slots) = (shape.map().block_count(), shape.block_bits());
    let (pages, slots) =
        if slots < QUOTIENT_PAGE_SLOTS_MAX { (pages, 2 * slots) } else { (2 * pages, slots) };
    let grown = BlockShape::new(shape.kind(), shape.range(), pages, slots, remainder_bits)
        .and_then(|grown| grown.with_count_bits(shape.count_bits()));
    Ok(grown.map_err(CreateError::from)?)
}

/// Two sorted streams in one, where equal places have the sum of their copies, at most `mask` + 1.
fn summed(
    ours: impl Iterator<Item = (Place, u64)>,
    theirs: impl Iterator<Item = (Place, u64)>,
    mask: u64,
) -> impl Iterator<Item = (Place, u64)> {
    let (mut ours, mut theirs) = (ours.peekable(), theirs.peekable());
    std::iter::from_fn(move || match (ours.peek(), theirs.peek()) {
        (Some(a), Some(b)) if a.0 == b.0 => {
            let count = (a.1 + b.1 + 1).min(mask);
            theirs.next();
            ours.next().map(|(place, _)| (place, count))
        }
        (Some(a), Some(b)) if a.0 < b.0 => ours.next(),
        (_, Some(_)) => theirs.next(),
        (_, None) => ours.next(),
    })
}
