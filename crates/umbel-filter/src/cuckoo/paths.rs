//! Room for an item: a shortest path of moves that ends at a free slot, found breadth-first.
//!
//! ```text
//! buckets of the item   b0 ─┬─ other buckets of what is in b0, slots ascending ─┬─ …
//!                       b1 ─┴─ other buckets of what is in b1                  ─┴─ …   up to 512 in all
//! ```
//!
//! The moves are made from the free slot backwards, so that no fingerprint ever leaves the table, and
//! nothing is changed if there is no such path. Li, Andersen, Kaminsky & Freedman 2014,
//! doi:10.1145/2592798.2592820, search a cuckoo table so.

use crate::planted::{self, TableBug};
use crate::sizing::CUCKOO_BUCKETS_LOOKED_AT;
use crate::slots::{BUCKET_SLOTS, Place, Slots};

use super::places::Places;

/// A full bucket, and the step from which the search reached it.
#[derive(Clone, Copy)]
struct Step {
    /// Its first slot.
    bucket: usize,
    /// The slot whose fingerprint has it as its other bucket, and the number of that slot's step; none for the
    /// item's own buckets.
    from: Option<(usize, usize)>,
}

/// Frees a slot in one of the two buckets, both full, and returns it; None, with nothing changed, if no
/// bucket among the first [`CUCKOO_BUCKETS_LOOKED_AT`] has a free slot.
pub(super) fn make_room(
    slots: Slots,
    places: Places,
    words: &mut [u64],
    place: Place,
) -> Option<usize> {
    let mut steps: Vec<Step> = Vec::with_capacity(CUCKOO_BUCKETS_LOOKED_AT);
    steps.extend(place.buckets.map(|bucket| Step { bucket, from: None }));
    let mut at = 0;
    while let Some(&Step { bucket, .. }) = steps.get(at) {
        for slot in bucket..bucket + BUCKET_SLOTS {
            let other = places.other_bucket(bucket, slots.get(words, slot).fingerprint);
            if let Some(free) = slots.find(words, other, 0) {
                return Some(move_along(slots, words, &steps, (slot, at), free));
            }
            if steps.len() < CUCKOO_BUCKETS_LOOKED_AT {
                steps.push(Step { bucket: other, from: Some((slot, at)) });
            }
        }
        at += 1;
    }
    None
}

/// Moves the fingerprint of the slot into the free one, that of the step before into the slot, and so on;
/// returns the slot of the item's own bucket that becomes free. A shortest path has no bucket twice.
fn move_along(
    slots: Slots,
    words: &mut [u64],
    steps: &[Step],
    last: (usize, usize),
    free: usize,
) -> usize {
    let (mut free, mut next) = (free, Some(last));
    while let Some((slot, step)) = next {
        let moved = slots.get(words, slot);
        if !planted::on(TableBug::LosesMoved) {
            slots.set(words, free, moved);
        }
        (free, next) = (slot, steps[step].from);
    }
    free
}
