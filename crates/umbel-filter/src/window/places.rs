//! Where an item of a window may be: two buckets of a block.

use crate::hash::ItemHash;
use crate::shape::BlockShape;
use crate::slots::{BUCKET_SLOTS, Place, scaled};

/// Spreads the lower half of a hash, so that the fingerprint depends on bits that the bucket does not.
const FINGERPRINT_FACTOR: u64 = 0xd134_2543_de82_ef95;

/// Spreads a fingerprint over the buckets of a block.
const PAIR_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// How hashes are mapped to slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Places {
    fingerprint_bits: u32,
    block_slots: usize,
}

impl Places {
    pub(super) const fn new(shape: BlockShape) -> Self {
        let block_slots = shape.block_bits() as usize;
        Self { fingerprint_bits: shape.probe_count(), block_slots }
    }

    /// The buckets of a block: their number.
    const fn bucket_count(self) -> u64 {
        (self.block_slots / BUCKET_SLOTS) as u64
    }

    /// Where an item of the block with this number, from the range's first on, may be.
    #[inline]
    pub(super) fn place(self, block: usize, hash: ItemHash) -> Place {
        let lo = hash.lo();
        let bucket = scaled(lo, self.bucket_count());
        let values = (1 << self.fingerprint_bits) - 1;
        let fingerprint = scaled(lo.wrapping_mul(FINGERPRINT_FACTOR), values) + 1;
        let base = block * self.block_slots;
        let other = self.other(bucket, fingerprint);
        Place { buckets: [self.slot_of(base, bucket), self.slot_of(base, other)], fingerprint }
    }

    /// The other bucket of a fingerprint that is in the bucket with this first slot.
    pub(super) fn other_bucket(self, first_slot: usize, fingerprint: u64) -> usize {
        let base = first_slot / self.block_slots * self.block_slots;
        let bucket = ((first_slot - base) / BUCKET_SLOTS) as u64;
        self.slot_of(base, self.other(bucket, fingerprint))
    }

    /// The two buckets of a fingerprint sum up to the same, modulo their number.
    #[inline]
    fn other(self, bucket: u64, fingerprint: u64) -> u64 {
        let count = self.bucket_count();
        let sum = scaled(fingerprint.wrapping_mul(PAIR_FACTOR), count);
        if sum >= bucket { sum - bucket } else { sum + count - bucket }
    }

    #[inline]
    fn slot_of(self, base: usize, bucket: u64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "below the slots of a block")]
        let bucket = bucket as usize;
        base + bucket * BUCKET_SLOTS
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kind::Kind;
    use crate::range::HashRange;

    fn places(fingerprint_bits: u32) -> Places {
        let range = HashRange::WHOLE;
        Places::new(BlockShape::new(Kind::Window, range, 2, 1024, fingerprint_bits).unwrap())
    }

    proptest! {
        /// From either bucket the fingerprint leads to the other one, of the same block.
        #[test]
        fn buckets_lead_to_each_other(bits in 1..=50_u32, block in 0..2_usize, hi: u64, lo: u64) {
            let places = places(bits);
            let place = places.place(block, ItemHash::new(hi, lo));
            let [first, second] = place.buckets;
            prop_assert_eq!(places.other_bucket(first, place.fingerprint), second);
            prop_assert_eq!(places.other_bucket(second, place.fingerprint), first);
            prop_assert!((1..1 << bits).contains(&place.fingerprint));
            prop_assert!(place.buckets.iter().all(|slot| slot / 1024 == block && slot % 4 == 0));
        }
    }

    /// Never to change: stored windows depend on it.
    #[test]
    fn golden_places() {
        let place = |hi, lo| places(13).place(1, ItemHash::new(hi, lo));
        let expected = Place { buckets: [1028, 1408], fingerprint: 3570 };
        assert_eq!(place(0, 0x0123_4567_89ab_cdef), expected);
    }
}
