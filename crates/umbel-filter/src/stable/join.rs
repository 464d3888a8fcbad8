//! The filter of two neighbouring hash ranges.

use super::Stable;
use crate::block_array;
use crate::counting;
use crate::join_error::FilterJoinError;
use crate::range::HashRange;

impl Stable {
    /// The filter of our range and the upper neighbour's. No item that one of the two has goes missing: of the block that
    /// the border divides each cell is the higher of two. It counts on from the larger number of inserts, so that none
    /// comes twice in the cells of either.
    pub(crate) fn join(&self, upper: &Self, range: HashRange) -> Result<Self, FilterJoinError> {
        let mut whole = Self::with_shape(block_array::union_of([self.shape, upper.shape], range)?)?;
        let words = [self.words(), upper.words()];
        block_array::join_words(whole.cells.words_mut(), words, |ours, theirs| {
            for (ours, &theirs) in ours.iter_mut().zip(theirs) {
                *ours = counting::larger(*ours, theirs);
            }
        });
        whole.counts = [0, 1].map(|at: usize| self.counts[at].max(upper.counts[at]));
        Ok(whole)
    }
}
