//! The filter of two neighbouring hash ranges, level by level.

use super::{FilterLevel, Scalable, counts};
use crate::block_array;
use crate::blocked::Blocked;
use crate::join_error::FilterJoinError;
use crate::range::HashRange;
use crate::scalable_shape::ScalableShape;
use crate::shape::{CreateError, ShapeMismatch};

impl Scalable {
    /// The filter of our range and the upper neighbour's. A level that one of the two has not opened is empty there.
    pub(crate) fn join(&self, upper: &Self, range: HashRange) -> Result<Self, FilterJoinError> {
        let (ours, theirs) = (self.shape, upper.shape);
        let (first_capacity, rate) = (ours.first_capacity(), ours.false_positive_rate());
        let is_alike = first_capacity == theirs.first_capacity()
            && rate.to_bits() == theirs.false_positive_rate().to_bits();
        if !is_alike {
            return Err(ShapeMismatch { ours: ours.into(), theirs: theirs.into() }.into());
        }
        let shape = ScalableShape::new(range, first_capacity, rate).map_err(CreateError::from)?;
        let mut levels = Vec::with_capacity(self.levels.len().max(upper.levels.len()));
        let (mut ours, mut theirs) = (self.levels.iter(), upper.levels.iter());
        loop {
            levels.push(match (ours.next(), theirs.next()) {
                (Some(lower), Some(upper)) => lower.join(Some(upper), range)?,
                (Some(level), None) | (None, Some(level)) => level.join(None, range)?,
                (None, None) => return Ok(Self { shape, levels }),
            });
        }
    }
}

impl FilterLevel {
    /// The level of a larger range, of ours and of the neighbour's if it has opened it.
    fn join(&self, other: Option<&Self>, range: HashRange) -> Result<Self, FilterJoinError> {
        let ours = self.filter.block_shape();
        let theirs = other.map_or(ours, |other| other.filter.block_shape());
        let mut filter = Blocked::with_shape(block_array::union_of([ours, theirs], range)?)?;
        let mut sum: u64 = 0;
        for level in [Some(self), other].into_iter().flatten() {
            filter.merge_part(&level.filter)?;
            sum = sum.saturating_add(level.item_count);
        }
        let capacity = range.share_of(self.whole_capacity);
        let whole_capacity = self.whole_capacity;
        let (least, most) = counts::bounds(whole_capacity, &filter);
        Ok(Self { filter, capacity, whole_capacity, item_count: sum.clamp(least, most) })
    }
}
