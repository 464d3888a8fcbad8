//! The filter of two neighbouring hash ranges.

use super::{Cuckoo, taken_count};
use crate::bits::index;
use crate::block_array;
use crate::join_error::FilterJoinError;
use crate::kind::Kind;
use crate::range::HashRange;
use crate::slots::{BUCKET_SLOTS, Place};

impl Cuckoo {
    /// The filter of our range and the upper neighbour's. The page that the border divides has each fingerprint as often
    /// as both have it there.
    pub(crate) fn join(&self, upper: &Self, range: HashRange) -> Result<Self, FilterJoinError> {
        let mut whole = Self::with_shape(block_array::union_of([self.shape, upper.shape], range)?)?;
        block_array::join_words(whole.bits.words_mut(), [self.words(), upper.words()], |_, _| ());
        let slot_count = |filter: &Self| index(filter.shape.position_count());
        let first = slot_count(&whole) - slot_count(upper);
        let divided = 0..slot_count(self) - first;
        let twice = taken_count(upper.slots, upper.words(), divided.clone());
        whole.item_count = self.item_count + upper.item_count.saturating_sub(twice);
        let full =
            FilterJoinError::Full { kind: Kind::Cuckoo, border: upper.shape.range().start() };
        for at in divided {
            let fingerprint = upper.slots.get(upper.words(), at).fingerprint;
            if fingerprint != 0 {
                let bucket = (first + at) / BUCKET_SLOTS * BUCKET_SLOTS;
                let buckets = [bucket, whole.places.other_bucket(bucket, fingerprint)];
                whole.put(Place { buckets, fingerprint }).map_err(|_| full)?;
            }
        }
        Ok(whole)
    }
}
