//! The filter of two neighbouring hash ranges, whose slices have the same numbers.
//!
//! ```text
//! lower     ├ 100 … 124 ┤              lags behind
//! upper            ├ 110 … 134 ┤
//! joined    ├ 100   …      134 ┤       all that either has, while no two slices have the same six bits
//! ```

use std::ops::Range;

use super::{Sighting, WINDOW_SLICES_MAX, Window, tag_index};
use crate::bits::index;
use crate::block_array;
use crate::hash::ItemHash;
use crate::join_error::FilterJoinError;
use crate::kind::Kind;
use crate::range::HashRange;
use crate::slots::{BUCKET_SLOTS, Place, Slot};

impl Window {
    /// The filter of our range and the upper neighbour's. The block that the border divides has each fingerprint of both
    /// once, in the later of its slices.
    pub(crate) fn join(&self, upper: &Self, range: HashRange) -> Result<Self, FilterJoinError> {
        let mut whole = Self::with_shape(block_array::union_of([self.shape, upper.shape], range)?)?;
        (whole.oldest, whole.newest) = self.slices_with(upper);
        block_array::join_words(whole.bits.words_mut(), [self.words(), upper.words()], |_, _| ());
        let slot_count = |filter: &Self| index(filter.shape.position_count());
        let first = slot_count(&whole) - slot_count(upper);
        let divided = slot_count(self) - first;
        whole.take_part(self, 0..slot_count(self), 0);
        whole.take_part(upper, divided..slot_count(upper), first);
        let full =
            FilterJoinError::Full { kind: Kind::Window, border: upper.shape.range().start() };
        for at in 0..divided {
            let Slot { fingerprint, tag } = upper.slots.get(upper.words(), at);
            let slice = upper.slice(tag);
            if fingerprint != 0 && slice >= whole.oldest {
                let bucket = (first + at) / BUCKET_SLOTS * BUCKET_SLOTS;
                let buckets = [bucket, whole.places.other_bucket(bucket, fingerprint)];
                // Any hash does that all replicas have.
                let dice = ItemHash::new(fingerprint, at as u64);
                let put = whole.put(Place { buckets, fingerprint }, slice, Sighting::Last, dice);
                put.map_err(|_| full)?;
            }
        }
        Ok(whole)
    }

    /// The oldest and newest slice of both: from the older of their oldest ones on, where it can be told from the newest,
    /// but for that of a window without items, which keeps nothing.
    fn slices_with(&self, other: &Self) -> (u64, u64) {
        let newest = self.newest.max(other.newest);
        let kept = [self, other].into_iter().filter(|window| window.item_count() > 0);
        let oldest = kept.map(|window| window.oldest).min();
        let oldest = oldest.unwrap_or(self.oldest.max(other.oldest));
        (oldest.max((newest + 2).saturating_sub(WINDOW_SLICES_MAX)), newest)
    }

    /// Counts what was copied from slots of a part, from this slot of ours on, and frees those whose slice we do not keep.
    fn take_part(&mut self, part: &Self, slots: Range<usize>, first: usize) {
        for at in slots {
            let Slot { fingerprint, tag } = part.slots.get(part.words(), at);
            if fingerprint == 0 {
                continue;
            }
            if part.slice(tag) >= self.oldest {
                self.counts[tag_index(tag)] += 1;
            } else {
                self.slots.set(self.bits.words_mut(), first + at, Slot::FREE);
            }
        }
    }
}
