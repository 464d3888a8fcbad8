//! Finds the keys that more than one sender has.
//!
//! Input: each sender's keys (positions, or groups with refinement bits), all below a known bound. Output: the keys that
//! at least two *different* senders have, and a rank for each. If there are few possible keys per key, two bitmaps find
//! them in a few nanoseconds per key for any number of senders; otherwise sorting does. A test compares the two ways.

/// A bitmap is used up to this many possible keys per key: then it takes at most as much memory as the keys.
const DENSE_BITS_PER_KEY_MAX: u64 = 64;

/// The keys that at least two senders have, numbered in ascending order.
#[derive(Debug)]
pub(super) enum Collided {
    /// A bitmap, and the number of ones before each of its words.
    Dense { words: Vec<u64>, ones_before: Vec<u32> },
    /// The keys, ascending.
    Sorted(Vec<u64>),
}

impl Collided {
    /// Finds the collided keys; `senders` has one list of keys per sender, all below `space`.
    pub(super) fn find(space: u64, senders: &[Vec<u64>]) -> Self {
        let keys: u64 = senders.iter().map(|keys| keys.len() as u64).sum();
        if space <= keys.saturating_mul(DENSE_BITS_PER_KEY_MAX) {
            Self::find_dense(space, senders)
        } else {
            Self::find_sorted(senders)
        }
    }

    fn find_dense(space: u64, senders: &[Vec<u64>]) -> Self {
        let length = usize::try_from(space.div_ceil(64)).expect("bounded by the keys in memory");
        let mut seen = vec![0u64; length];
        let mut words = vec![0u64; length];
        // Look up all keys of a sender before marking them: a sender does not collide with itself.
        for keys in senders {
            for &key in keys {
                let (word, bit) = split(key);
                words[word] |= seen[word] & bit;
            }
            for &key in keys {
                let (word, bit) = split(key);
                seen[word] |= bit;
            }
        }
        let mut ones = 0;
        let ones_before = words
            .iter()
            .map(|word| {
                let before = ones;
                ones += word.count_ones();
                before
            })
            .collect();
        Self::Dense { words, ones_before }
    }

    fn find_sorted(senders: &[Vec<u64>]) -> Self {
        let mut held: Vec<(u64, usize)> = senders
            .iter()
            .enumerate()
            .flat_map(|(sender, keys)| keys.iter().map(move |&key| (key, sender)))
            .collect();
        held.sort_unstable();
        held.dedup();
        let mut collided = Vec::new();
        for group in held.chunk_by(|a, b| a.0 == b.0) {
            if let [(key, _), _, ..] = group {
                collided.push(*key);
            }
        }
        Self::Sorted(collided)
    }

    /// The index of a key among the collided ones in ascending order; `None` if it did not collide.
    #[inline]
    pub(super) fn rank(&self, key: u64) -> Option<u32> {
        match self {
            Self::Dense { words, ones_before } => {
                let (word, bit) = split(key);
                let ones = words[word];
                (ones & bit != 0).then(|| ones_before[word] + (ones & (bit - 1)).count_ones())
            }
            Self::Sorted(keys) => keys
                .binary_search(&key)
                .ok()
                .map(|rank| u32::try_from(rank).expect("≤ cell entries")),
        }
    }

    /// How many keys collided.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Dense { words, ones_before } => match (words.last(), ones_before.last()) {
                (Some(word), Some(before)) => u64::from(before + word.count_ones()),
                _ => 0,
            },
            Self::Sorted(keys) => keys.len() as u64,
        }
    }
}

/// The index of the word with a key's bit, and the bit.
#[inline]
fn split(key: u64) -> (usize, u64) {
    ((key / 64) as usize, 1 << (key % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    proptest! {
        #[test]
        fn dense_sorted_and_a_map_of_sets_agree(
            senders in proptest::collection::vec(proptest::collection::vec(0u64..200, 0..40), 1..6),
        ) {
            let mut holders: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
            for (sender, keys) in senders.iter().enumerate() {
                for &key in keys {
                    holders.entry(key).or_default().insert(sender);
                }
            }
            let expected: Vec<u64> =
                holders.into_iter().filter(|(_, who)| who.len() > 1).map(|(key, _)| key).collect();
            for collided in [Collided::find_dense(200, &senders), Collided::find_sorted(&senders)] {
                let got: Vec<u64> = (0..200).filter(|&key| collided.rank(key).is_some()).collect();
                prop_assert_eq!(&got, &expected);
                prop_assert_eq!(collided.count(), expected.len() as u64);
                for (rank, &key) in expected.iter().enumerate() {
                    prop_assert_eq!(collided.rank(key), Some(rank as u32));
                }
            }
        }
    }

    #[test]
    fn one_sender_does_not_collide_with_itself() {
        let collided = Collided::find(10, &[vec![3, 3, 5], vec![5]]);
        assert_eq!((collided.rank(3), collided.rank(5), collided.count()), (None, Some(0), 1));
    }
}
