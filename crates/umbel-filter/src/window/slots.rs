//! Slots of a window, packed without gaps: where an item may be, and reading and writing one slot.

use crate::hash::ItemHash;
use crate::shape::BlockShape;
use crate::sizing::{SLICE_BITS, WINDOW_BUCKET_SLOTS};

/// Slots of a bucket.
pub(super) const BUCKET_SLOTS: usize = WINDOW_BUCKET_SLOTS as usize;

/// Spreads the lower half of a hash, so that the fingerprint depends on bits that the bucket does not.
const FINGERPRINT_FACTOR: u64 = 0xd134_2543_de82_ef95;

/// Spreads a fingerprint over the buckets of a block.
const PAIR_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The buckets of an item, by their first slots, and its fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) buckets: [usize; 2],
    pub(super) fingerprint: u64,
}

/// What a slot holds; free if the fingerprint is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    pub(super) fingerprint: u64,
    /// The slice's number, modulo 64.
    pub(super) tag: u64,
}

impl Slot {
    pub(super) const FREE: Self = Self { fingerprint: 0, tag: 0 };

    pub(super) const fn is_free(self) -> bool {
        self.fingerprint == 0
    }
}

/// How slots lie in the words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slots {
    fingerprint_bits: u32,
    slot_bits: usize,
    block_slots: usize,
    /// The lowest bit of each slot of a bucket that is 128 bits at most, else 0.
    lowest_bits: u128,
}

impl Slots {
    pub(super) const fn new(shape: BlockShape) -> Self {
        let fingerprint_bits = shape.probe_count();
        let slot_bits = (fingerprint_bits + SLICE_BITS) as usize;
        let lowest_bits = if BUCKET_SLOTS * slot_bits <= 128 {
            1 | 1 << slot_bits | 1 << (2 * slot_bits) | 1 << (3 * slot_bits)
        } else {
            0
        };
        let block_slots = shape.block_bits() as usize;
        Self { fingerprint_bits, slot_bits, block_slots, lowest_bits }
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

    /// The word that a slot begins in.
    #[inline]
    pub(super) const fn word_of(self, at: usize) -> usize {
        at * self.slot_bits / 64
    }

    #[inline]
    pub(super) fn get(self, words: &[u64], at: usize) -> Slot {
        let bit = at * self.slot_bits;
        let (word, shift) = (bit / 64, bit % 64);
        let next = words.get(word + 1).copied().unwrap_or_default();
        let both = u128::from(words[word]) | u128::from(next) << 64;
        self.split(both >> shift)
    }

    /// The first slot of a bucket with this fingerprint; with 0, the first that is free.
    ///
    /// Of a bucket that is 128 bits at most all four are compared at once: a fingerprint that differs is
    /// above 0 in its slot, and with 2^f − 1 more it carries into the slot's bit f, which is no other's.
    #[inline]
    pub(super) fn find(self, words: &[u64], first: usize, fingerprint: u64) -> Option<usize> {
        if self.lowest_bits == 0 {
            return self.find_one_by_one(words, first, fingerprint);
        }
        let bit = first * self.slot_bits;
        let (word, shift) = (bit / 64, bit % 64);
        let at = |word| words.get(word).copied().unwrap_or_default();
        let low = u128::from(words[word]) | u128::from(at(word + 1)) << 64;
        // What is shifted out above is shifted twice, for a shift by all bits is none.
        let bucket = low >> shift | u128::from(at(word + 2)) << 64 << (63 - shift) << 1;
        let ones = u128::from((1_u64 << self.fingerprint_bits) - 1) * self.lowest_bits;
        let differs = (bucket ^ (u128::from(fingerprint) * self.lowest_bits)) & ones;
        let carries = self.lowest_bits << self.fingerprint_bits;
        let equal = !(differs + ones) & carries;
        (equal != 0).then(|| first + equal.trailing_zeros() as usize / self.slot_bits)
    }

    /// The same, slot by slot.
    fn find_one_by_one(self, words: &[u64], first: usize, fingerprint: u64) -> Option<usize> {
        (first..first + BUCKET_SLOTS).find(|&at| self.get(words, at).fingerprint == fingerprint)
    }

    pub(super) fn set(self, words: &mut [u64], at: usize, slot: Slot) {
        let bit = at * self.slot_bits;
        let (word, shift) = (bit / 64, bit % 64);
        let value = u128::from(slot.fingerprint | slot.tag << self.fingerprint_bits) << shift;
        let mask = ((1_u128 << self.slot_bits) - 1) << shift;
        let (low, high) = halves(value);
        let (low_mask, high_mask) = halves(mask);
        words[word] = words[word] & !low_mask | low;
        if high_mask != 0 {
            words[word + 1] = words[word + 1] & !high_mask | high;
        }
    }

    #[inline]
    const fn split(self, bits: u128) -> Slot {
        let (low, _) = halves(bits);
        let fingerprint = low & ((1 << self.fingerprint_bits) - 1);
        Slot { fingerprint, tag: low >> self.fingerprint_bits & ((1 << SLICE_BITS) - 1) }
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the halves are wanted")]
const fn halves(value: u128) -> (u64, u64) {
    (value as u64, (value >> 64) as u64)
}

/// ⌊value · count / 2^64⌋, below the count.
#[inline]
fn scaled(value: u64, count: u64) -> u64 {
    halves(u128::from(value) * u128::from(count)).1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kind::Kind;
    use crate::range::HashRange;

    fn slots(fingerprint_bits: u32) -> Slots {
        let range = HashRange::WHOLE;
        Slots::new(BlockShape::new(Kind::Window, range, 2, 1024, fingerprint_bits).unwrap())
    }

    proptest! {
        /// Slots do not touch each other, at any width and wherever they lie.
        #[test]
        fn slots_are_apart(bits in 1..=50_u32, at in 1..1023_usize, seed: u64) {
            let slots = slots(bits);
            let most = (1 << bits) - 1;
            let slot = Slot { fingerprint: seed & most, tag: seed >> 58 };
            let mut words = vec![u64::MAX; 1024 * slots.slot_bits / 64];
            let full = slots.get(&words, 0);
            slots.set(&mut words, at, slot);
            prop_assert_eq!(slots.get(&words, at), slot);
            prop_assert_eq!(slots.get(&words, at - 1), full);
            prop_assert_eq!(slots.get(&words, at + 1), full);
            slots.set(&mut words, at, full);
            prop_assert!(words.iter().all(|&word| word == u64::MAX));
        }

        /// All four slots at once are the four one by one, at every width that has both.
        #[test]
        fn buckets_are_searched_slot_by_slot(
            bits in 1..=26_u32, bucket in 0..256_usize, seeds: [u64; 8], taken in 0..4_usize,
            wanted: u64,
        ) {
            let slots = slots(bits);
            let words_len = 1024 * slots.slot_bits / 64;
            let mut words: Vec<u64> =
                (0..words_len).map(|at| seeds[at % 8].wrapping_mul(at as u64 | 1)).collect();
            let (first, most) = (4 * bucket, (1 << bits) - 1);
            let wanted = wanted & most;
            for fingerprint in [0, wanted, most] {
                let found = slots.find(&words, first, fingerprint);
                prop_assert_eq!(found, slots.find_one_by_one(&words, first, fingerprint));
            }
            slots.set(&mut words, first + taken, Slot { fingerprint: wanted, tag: 63 });
            let found = slots.find(&words, first, wanted);
            prop_assert!(found.is_some_and(|at| at <= first + taken));
            prop_assert_eq!(found, slots.find_one_by_one(&words, first, wanted));
        }

        /// From either bucket the fingerprint leads to the other one, of the same block.
        #[test]
        fn buckets_lead_to_each_other(bits in 1..=50_u32, block in 0..2_usize, hi: u64, lo: u64) {
            let slots = slots(bits);
            let place = slots.place(block, ItemHash::new(hi, lo));
            let [first, second] = place.buckets;
            prop_assert_eq!(slots.other_bucket(first, place.fingerprint), second);
            prop_assert_eq!(slots.other_bucket(second, place.fingerprint), first);
            prop_assert!((1..1 << bits).contains(&place.fingerprint));
            prop_assert!(place.buckets.iter().all(|slot| slot / 1024 == block && slot % 4 == 0));
        }
    }

    /// Never to change: stored windows depend on it.
    #[test]
    fn golden_places() {
        let place = |hi, lo| slots(13).place(1, ItemHash::new(hi, lo));
        let expected = Place { buckets: [1028, 1408], fingerprint: 3570 };
        assert_eq!(place(0, 0x0123_4567_89ab_cdef), expected);
    }
}
