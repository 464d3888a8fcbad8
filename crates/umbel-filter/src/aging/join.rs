//! The filter of two neighbouring hash ranges, generation by generation.
//!
//! Each part turns when its newer generation is full, so that two of them are differently far. With the newer
//! generation of part i full to the share fᵢ, and of n items of it in all:
//!
//! ```text
//! lower, f = 3/4   older ────────┤ newer ──────       ┤ turns in a quarter
//! upper, f = 1/4         older ────────┤ newer ──                     ┤ in three quarters of a generation
//! joined           older: both ────────┤ newer: both, counted as min(n, 1/4 of a generation)
//! ```
//!
//! The next turn drops both older generations, so it has to come when the later of the two would have: the count goes
//! on from the less full one. Whose older generation is empty has nothing to lose, and does not delay it.

use super::{Aging, BLOCK_WORDS, GENERATION_WORDS};
use crate::block_array;
use crate::join_error::FilterJoinError;
use crate::range::HashRange;
use crate::words::or;

impl Aging {
    /// The filter of our range and the upper neighbour's.
    pub(crate) fn join(&self, upper: &Self, range: HashRange) -> Result<Self, FilterJoinError> {
        let mut whole = Self::with_shape(block_array::union_of([self.shape, upper.shape], range)?)?;
        let words = [self.words(), upper.words()];
        block_array::join_words(whole.bits.words_mut(), words, |ours, theirs| {
            or(ours, theirs);
        });
        let [newer, older] =
            [0, 1].map(|at: usize| self.counts[at].saturating_add(upper.counts[at]));
        let newer = newer.min(self.most_over(range)).min(upper.most_over(range));
        whole.counts = [newer, older];
        Ok(whole)
    }

    /// The most items that the newer generation may count over a larger range, so that what is in our older one
    /// does not go before its time: our count by width, where what is cut off of one item is ours.
    fn most_over(&self, whole: HashRange) -> u64 {
        let older = |block: &[u64]| block[GENERATION_WORDS..].iter().any(|&word| word != 0);
        if !self.words().chunks_exact(BLOCK_WORDS).any(older) {
            return u64::MAX;
        }
        // Below 2^128: a count below 2^64, of a width of at most 2^64.
        let scaled = u128::from(self.counts[0].saturating_add(1)) * whole.width();
        u64::try_from(scaled / self.shape.range().width()).unwrap_or(u64::MAX)
    }
}
