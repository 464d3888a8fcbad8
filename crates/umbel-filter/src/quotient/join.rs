//! The filter of two neighbouring hash ranges: their pages, and a pass over two sorted streams where both have one.

use super::Quotient;
use super::merge::summed;
use super::stream::{PageBuilder, PageItems};
use crate::block_array;
use crate::join_error::FilterJoinError;
use crate::kind::Kind;
use crate::range::HashRange;
use crate::shape::{BlockShape, CreateError, ShapeMismatch};

impl Quotient {
    /// The filter of our range and the upper neighbour's, grown as often as the one of them that has grown more often.
    /// Copies of the position that the border divides are added.
    pub(crate) fn join(&self, upper: &Self, range: HashRange) -> Result<Self, FilterJoinError> {
        let full =
            FilterJoinError::Full { kind: Kind::Quotient, border: upper.shape.range().start() };
        if let Ok(shape) = block_array::union_of([self.shape, upper.shape], range) {
            return self.join_pages(upper, shape)?.ok_or(full);
        }
        let shape = self.shape_with(upper, range)?;
        let mut whole = Self::with_shape(shape)?;
        let mask = whole.layout.count_mask();
        let items = summed(self.counted_positions(), upper.counted_positions(), mask);
        whole.fill(items).ok_or(full)?;
        Ok(whole)
    }

    /// The same of two that have grown as often, page by page; None if there is no room for all.
    fn join_pages(&self, upper: &Self, shape: BlockShape) -> Result<Option<Self>, CreateError> {
        let mut whole = Self::with_shape(shape)?;
        let layout = whole.layout;
        let words = [self.words(), upper.words()];
        let mut taken_count = self.taken_count + upper.taken_count;
        let mut is_full = false;
        block_array::join_words(whole.bits.words_mut(), words, |ours, theirs| {
            if theirs.is_empty() {
                return;
            }
            let lower = &self.words()[self.words().len() - ours.len()..];
            let before = layout.taken_count(lower) + layout.taken_count(theirs);
            ours.fill(0);
            let mut builder = PageBuilder::new(layout, ours);
            let (lower, upper) = (PageItems::new(layout, lower), PageItems::new(layout, theirs));
            let mut items = summed(lower, upper, layout.count_mask());
            is_full = !items.all(|(place, count)| builder.push(place, count).is_some());
            taken_count = taken_count.saturating_sub(before) + layout.taken_count(ours);
        });
        whole.taken_count = taken_count;
        Ok((!is_full).then_some(whole))
    }

    /// The shape over both ranges, of the growths of one that the other one has.
    fn shape_with(&self, upper: &Self, range: HashRange) -> Result<BlockShape, FilterJoinError> {
        let of_both = |from: BlockShape, other: BlockShape| {
            let union = from.with_range(range).map_err(CreateError::from)?;
            Ok::<_, CreateError>(union.growths().find(|grown| grown.offset_of(other).is_some()))
        };
        let (ours, theirs) = (self.shape, upper.shape);
        if let Some(shape) = of_both(ours, theirs)? {
            return Ok(shape);
        }
        let mismatch = ShapeMismatch { ours: ours.into(), theirs: theirs.into() };
        of_both(theirs, ours)?.ok_or_else(|| mismatch.into())
    }
}
