//! The filter of a part of the hash range, level by level.

use super::{FilterLevel, Scalable, counts};
use crate::block_array;
use crate::blocked::Blocked;
use crate::range::HashRange;
use crate::scalable_shape::ScalableShape;
use crate::shape::CreateError;

impl Scalable {
    /// The filter of a part of our range.
    pub(crate) fn part(&self, range: HashRange) -> Result<Self, CreateError> {
        let (first_capacity, rate) =
            (self.shape.first_capacity(), self.shape.false_positive_rate());
        let shape = ScalableShape::new(range, first_capacity, rate)?;
        let levels = self.levels.iter().map(|level| level.part(range));
        Ok(Self { shape, levels: levels.collect::<Result<_, _>>()? })
    }
}

impl FilterLevel {
    /// The level of a part of the filter's range, with what it is taken to have of our items: its part by width, but no
    /// more than it has ones and no less than these must be of, as levels are checked where they come from elsewhere.
    fn part(&self, range: HashRange) -> Result<Self, CreateError> {
        let whole = self.filter.block_shape();
        let (shape, words) = block_array::part_of(whole, self.filter.words(), range)?;
        let mut filter = Blocked::with_shape(shape)?;
        filter.words_mut().copy_from_slice(words);
        let whole_capacity = self.whole_capacity;
        let cut = whole.range().cut_count(range, self.item_count);
        let (least, most) = counts::bounds(whole_capacity, &filter);
        let capacity = range.share_of(whole_capacity);
        Ok(Self { filter, capacity, whole_capacity, item_count: cut.clamp(least, most) })
    }
}
