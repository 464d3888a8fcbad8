//! Slots of a table of fingerprints, four a bucket, packed without gaps.

use crate::bits::wide;
use crate::hash::ItemHash;
use crate::sizing::WINDOW_BUCKET_SLOTS;

/// Slots of a bucket.
pub(crate) const BUCKET_SLOTS: usize = WINDOW_BUCKET_SLOTS as usize;

/// Items of a batch whose buckets are computed and prefetched before the first is read: about as many cache
/// lines as a processor fetches at once, and the numbers of the buckets fit into its first-level cache.
const ASKED_TOGETHER: usize = 16;

/// The buckets of an item, by their first slots, and its fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) buckets: [usize; 2],
    pub(crate) fingerprint: u64,
}

/// What a slot holds; free if the fingerprint is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    pub(crate) fingerprint: u64,
    /// What a kind notes beside it.
    pub(crate) tag: u64,
}

impl Slot {
    pub(crate) const FREE: Self = Self { fingerprint: 0, tag: 0 };

    pub(crate) const fn is_free(self) -> bool {
        self.fingerprint == 0
    }
}

/// How slots lie in the words: slot i has the bits from i · (fingerprint + tag) on, the fingerprint in the lower ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slots {
    fingerprint_bits: u32,
    slot_bits: usize,
    /// The lowest bit of each slot of a bucket that is 128 bits at most, else 0.
    lowest_bits: u128,
}

impl Slots {
    /// Slots of up to 64 bits in all.
    pub(crate) const fn new(fingerprint_bits: u32, tag_bits: u32) -> Self {
        let slot_bits = (fingerprint_bits + tag_bits) as usize;
        let lowest_bits = if BUCKET_SLOTS * slot_bits <= 128 {
            1 | 1 << slot_bits | 1 << (2 * slot_bits) | 1 << (3 * slot_bits)
        } else {
            0
        };
        Self { fingerprint_bits, slot_bits, lowest_bits }
    }

    /// The word that a slot begins in.
    #[inline]
    pub(crate) const fn word_of(self, at: usize) -> usize {
        at * self.slot_bits / 64
    }

    #[inline]
    pub(crate) fn get(self, words: &[u64], at: usize) -> Slot {
        let bit = at * self.slot_bits;
        let (word, shift) = (bit / 64, bit % 64);
        let next = words.get(word + 1).copied().unwrap_or_default();
        let both = u128::from(words[word]) | u128::from(next) << 64;
        self.split(both >> shift)
    }

    /// The first slot of a bucket with this fingerprint; with 0, the first that is free.
    #[inline]
    pub(crate) fn find(self, words: &[u64], first: usize, fingerprint: u64) -> Option<usize> {
        if self.lowest_bits == 0 {
            return self.find_one_by_one(words, first, fingerprint);
        }
        let equal = self.equal(words, first, fingerprint);
        (equal != 0).then(|| first + equal.trailing_zeros() as usize / self.slot_bits)
    }

    /// Whether a fingerprint is in one of its buckets.
    #[inline]
    pub(crate) fn holds(self, words: &[u64], Place { buckets, fingerprint }: Place) -> bool {
        if self.lowest_bits == 0 {
            let find = |first| self.find_one_by_one(words, first, fingerprint);
            return buckets.into_iter().any(|first| find(first).is_some());
        }
        // Both buckets at once: a branch between them could not be predicted.
        let [first, other] = buckets.map(|first| self.equal(words, first, fingerprint));
        first | other != 0
    }

    /// Queries items in a table that consists of these words; items without buckets are absent.
    pub(crate) fn contains_batch(
        self,
        words: &[u64],
        is_far: bool,
        hashes: &[ItemHash],
        present: &mut Vec<bool>,
        place: impl Fn(ItemHash) -> Option<Place>,
    ) {
        present.clear();
        present.reserve(hashes.len());
        let mut places = [None; ASKED_TOGETHER];
        for hashes in hashes.chunks(ASKED_TOGETHER) {
            for (at, &hash) in places.iter_mut().zip(hashes) {
                *at = place(hash);
                if let (true, Some(Place { buckets, .. })) = (is_far, *at) {
                    for first in buckets {
                        wide::prefetch_far(words, self.word_of(first));
                    }
                }
            }
            let holds = |place: &Option<Place>| place.is_some_and(|place| self.holds(words, place));
            present.extend(places[..hashes.len()].iter().map(holds));
        }
    }

    /// How many slots of a bucket of 128 bits at most have this fingerprint.
    #[inline]
    pub(crate) fn count(self, words: &[u64], first: usize, fingerprint: u64) -> u64 {
        self.equal(words, first, fingerprint).count_ones().into()
    }

    /// The highest bit of each fingerprint of a bucket that is equal to this one.
    #[inline]
    fn equal(self, words: &[u64], first: usize, fingerprint: u64) -> u128 {
        self.fields(0, self.fingerprint_bits, fingerprint).equal(self.bucket(words, first))
    }

    /// Frees those of the first so many slots that have this tag, in buckets of 128 bits at most.
    pub(crate) fn free_tagged(self, words: &mut [u64], slot_count: usize, tag: u64) {
        let tags = self.fields(self.fingerprint_bits, self.tag_bits(), tag);
        for first in (0..slot_count).step_by(BUCKET_SLOTS) {
            let mut equal = tags.equal(self.bucket(words, first));
            while equal != 0 {
                let at = first + equal.trailing_zeros() as usize / self.slot_bits;
                self.set(words, at, Slot::FREE);
                equal &= equal - 1;
            }
        }
    }

    /// Whether a bucket has 128 bits at most, so that its slots are compared at once.
    pub(crate) const fn are_compared_at_once(self) -> bool {
        self.lowest_bits != 0
    }

    /// The bits of a bucket of at most 128 bits; the bits above them may have any value.
    #[inline]
    fn bucket(self, words: &[u64], first: usize) -> u128 {
        let bit = first * self.slot_bits;
        let (word, shift) = (bit / 64, bit % 64);
        let words = words.get(word..).unwrap_or_default();
        let [first, second, third] = match words.first_chunk() {
            Some(three) => *three,
            None => std::array::from_fn(|at| words.get(at).copied().unwrap_or_default()),
        };
        let low = u128::from(first) | u128::from(second) << 64;
        // Shifted in two steps, because a shift by all bits of a word is not defined.
        low >> shift | u128::from(third) << 64 << (63 - shift) << 1
    }

    /// The fields of so many bits, from this bit of each slot of a bucket on, that have this value.
    #[inline]
    fn fields(self, from: u32, bits: u32, value: u64) -> Fields {
        let ones = self.lowest_bits << from;
        let lower = u128::from((1_u64 << (bits - 1)) - 1) * ones;
        Fields { value: u128::from(value) * ones, highest: ones << (bits - 1), lower }
    }

    /// The same, slot by slot.
    fn find_one_by_one(self, words: &[u64], first: usize, fingerprint: u64) -> Option<usize> {
        (first..first + BUCKET_SLOTS).find(|&at| self.get(words, at).fingerprint == fingerprint)
    }

    pub(crate) fn set(self, words: &mut [u64], at: usize, slot: Slot) {
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
        Slot { fingerprint, tag: low >> self.fingerprint_bits & ((1 << self.tag_bits()) - 1) }
    }

    /// Bits of a slot behind its fingerprint.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a slot has 64 bits at most")]
    const fn tag_bits(self) -> u32 {
        self.slot_bits as u32 - self.fingerprint_bits
    }
}

/// A value that fields of a bucket are compared with, all four at once.
#[derive(Clone, Copy)]
struct Fields {
    /// The value in each of them.
    value: u128,
    /// Their highest bits, and all their others.
    highest: u128,
    lower: u128,
}

impl Fields {
    /// The highest bit of each field that has the value.
    ///
    /// Where the lower n − 1 of n bits differ, 2^(n − 1) − 1 more carry into the highest bit of the field,
    /// and no further; where that one differs, it is set itself.
    #[inline]
    const fn equal(self, bucket: u128) -> u128 {
        let differs = bucket ^ self.value;
        !(((differs & self.lower) + self.lower) | differs) & self.highest
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the halves are wanted")]
const fn halves(value: u128) -> (u64, u64) {
    (value as u64, (value >> 64) as u64)
}

/// ⌊value · count / 2^64⌋, below the count.
#[inline]
pub(crate) fn scaled(value: u64, count: u64) -> u64 {
    halves(u128::from(value) * u128::from(count)).1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Slots do not touch each other, at any width and wherever they lie.
        #[test]
        fn slots_are_apart(
            bits in 1..=50_u32, tag_bits in 0..=6_u32, at in 1..1023_usize, seed: u64,
        ) {
            let slots = Slots::new(bits, tag_bits);
            let slot = Slot {
                fingerprint: seed & ((1 << bits) - 1),
                tag: seed >> 58 & ((1 << tag_bits) - 1),
            };
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
            (bits, tag_bits) in prop_oneof![
                (1..=26_u32, Just(6)), (1..=32_u32, Just(0)), (1..=31_u32, Just(1)),
            ],
            bucket in 0..256_usize, seeds: [u64; 8], taken in 0..4_usize, wanted: u64,
        ) {
            let slots = Slots::new(bits, tag_bits);
            let words_len = 1024 * slots.slot_bits / 64;
            let mut words: Vec<u64> =
                (0..words_len).map(|at| seeds[at % 8].wrapping_mul(at as u64 | 1)).collect();
            let (first, most) = (4 * bucket, (1 << bits) - 1);
            let wanted = wanted & most;
            for fingerprint in [0, wanted, most] {
                let found = slots.find(&words, first, fingerprint);
                prop_assert_eq!(found, slots.find_one_by_one(&words, first, fingerprint));
            }
            let tag = (1 << tag_bits) - 1;
            slots.set(&mut words, first + taken, Slot { fingerprint: wanted, tag });
            let found = slots.find(&words, first, wanted);
            prop_assert!(found.is_some_and(|at| at <= first + taken));
            prop_assert_eq!(found, slots.find_one_by_one(&words, first, wanted));
            let is_equal = |at: &usize| slots.get(&words, *at).fingerprint == wanted;
            let count = (first..first + 4).filter(is_equal).count() as u64;
            prop_assert_eq!(slots.count(&words, first, wanted), count);
        }

        /// The slots of a tag are freed, and no bit of another one changes.
        #[test]
        fn slots_of_a_tag_are_freed(
            bits in 1..=26_u32, bucket in 0..256_usize, seeds: [u64; 8], tags: [u64; 4],
        ) {
            let slots = Slots::new(bits, 6);
            let words_len = 1024 * slots.slot_bits / 64;
            let mut words: Vec<u64> =
                (0..words_len).map(|at| seeds[at % 8].wrapping_mul(at as u64 | 1)).collect();
            let first = 4 * bucket;
            for (at, tag) in (first..).zip(tags) {
                let fingerprint = slots.get(&words, at).fingerprint;
                slots.set(&mut words, at, Slot { fingerprint, tag: tag % 3 * 31 });
            }
            let mut expected = words.clone();
            for at in 0..first + 4 {
                if slots.get(&words, at).tag == 31 {
                    slots.set(&mut expected, at, Slot::FREE);
                }
            }
            slots.free_tagged(&mut words, first + 4, 31);
            prop_assert_eq!(words, expected);
        }
    }
}
