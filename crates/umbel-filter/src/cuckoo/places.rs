//! Where an item of a cuckoo filter may be: two buckets of a page.
//!
//! With 2^s buckets in a page, and lo the lower half of the item's hash:
//!
//! ```text
//! bucket        lo mod 2^s
//! fingerprint   1 + ⌊⌊lo / 2^32⌋ · (2^f − 1) / 2^32⌋
//! the other one bucket XOR (⌊(fingerprint · 0x9e3779b1 mod 2^32) / 2^(32 − s)⌋ OR 1)
//! ```
//!
//! The OR makes the two buckets differ, always.

use crate::bits::index;
use crate::hash::ItemHash;
use crate::shape::BlockShape;
use crate::sizing::WINDOW_BUCKET_SLOTS;
use crate::slots::{BUCKET_SLOTS, Place};

/// Spreads a fingerprint over the buckets of a page.
const PAIR_FACTOR: u32 = 0x9e37_79b1;

/// How hashes are mapped to slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Places {
    /// 2^f − 1, the number of fingerprints.
    values: u64,
    /// Buckets of a page, a power of two, minus one.
    bucket_mask: usize,
    /// 32 − s.
    shift: u32,
}

impl Places {
    pub(super) const fn new(shape: BlockShape) -> Self {
        Self::of(shape.probe_count(), shape.block_bits() / WINDOW_BUCKET_SLOTS)
    }

    const fn of(fingerprint_bits: u32, page_buckets: u32) -> Self {
        Self {
            values: (1 << fingerprint_bits) - 1,
            bucket_mask: page_buckets as usize - 1,
            shift: 32 - page_buckets.trailing_zeros(),
        }
    }

    /// Where an item of the page with this number, from the range's first on, may be.
    #[inline]
    pub(super) fn place(self, page: usize, hash: ItemHash) -> Place {
        let lo = hash.lo();
        let fingerprint = 1 + (((lo >> 32) * self.values) >> 32);
        let base = page * (self.bucket_mask + 1);
        let first = base + (index(lo & 0xffff_ffff) & self.bucket_mask);
        let buckets = [first, first ^ self.step(fingerprint)].map(|bucket| bucket * BUCKET_SLOTS);
        Place { buckets, fingerprint }
    }

    /// The other bucket of a fingerprint that is in the bucket with this first slot.
    #[inline]
    pub(super) const fn other_bucket(self, first_slot: usize, fingerprint: u64) -> usize {
        // Pages begin at multiples of their buckets, so a step leads to a bucket of the same page.
        first_slot ^ (self.step(fingerprint) * BUCKET_SLOTS)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a fingerprint has up to 32 bits")]
    const fn step(self, fingerprint: u64) -> usize {
        ((fingerprint as u32).wrapping_mul(PAIR_FACTOR) >> self.shift | 1) as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// From either bucket the fingerprint leads to the other one, of the same page.
        #[test]
        fn buckets_lead_to_each_other(
            bits in 1..=32_u32, pages in 7..=14_u32, page in 0..5_usize, hi: u64, lo: u64,
        ) {
            let page_buckets = 1 << pages;
            let places = Places::of(bits, page_buckets);
            let place = places.place(page, ItemHash::new(hi, lo));
            let [first, second] = place.buckets;
            prop_assert_ne!(first, second);
            prop_assert_eq!(places.other_bucket(first, place.fingerprint), second);
            prop_assert_eq!(places.other_bucket(second, place.fingerprint), first);
            prop_assert!((1..1 << bits).contains(&place.fingerprint));
            let page_slots = 4 * page_buckets as usize;
            let is_in = |slot: &usize| slot / page_slots == page && slot.is_multiple_of(4);
            prop_assert!(place.buckets.iter().all(is_in));
        }
    }

    /// Never to change: stored filters depend on it.
    #[test]
    fn golden_places() {
        // 128 · 0x9e3779b1 is 0x1bbcd880 modulo 2^32, whose upper four bits are 1.
        let place = Places::of(8, 16).place(0, ItemHash::new(0, 0x8000_0000_0000_0005));
        assert_eq!(place, Place { buckets: [5 * 4, 4 * 4], fingerprint: 128 });
        // The same on a page of 2^14: 0x1bbcd880 >> 18 is 0x6ef, and odd.
        let place = Places::of(8, 1 << 14).place(1, ItemHash::new(0, 0x8000_0000_0000_0005));
        let expected = [(1 << 14) + 5, (1 << 14) + (5 ^ 0x6ef)].map(|bucket| bucket * 4);
        assert_eq!(place, Place { buckets: expected, fingerprint: 128 });
    }
}
