//! Bits of dropped records: one per record id of a chunk, set by many threads.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bits of a chunk while one thread reads it.
#[derive(Default)]
pub(crate) struct ChunkBits(Vec<u64>);

impl ChunkBits {
    /// Sets the bit of a record.
    #[inline]
    pub(crate) fn set(&mut self, record: u64) {
        let word = usize::try_from(record / 64).expect("a chunk's records fit in memory as bits");
        if word >= self.0.len() {
            self.0.resize((word + 1).next_power_of_two(), 0);
        }
        self.0[word] |= 1 << (record % 64);
    }

    /// The bits as a set for exactly this number of record ids.
    pub(crate) fn finish(mut self, records: u64) -> SharedBits {
        let words =
            usize::try_from(records.div_ceil(64)).expect("a chunk's records fit in memory as bits");
        self.0.resize(words, 0);
        SharedBits(self.0.into_iter().map(AtomicU64::new).collect())
    }
}

/// The bits of a chunk, set by any thread.
#[derive(Default)]
pub(crate) struct SharedBits(Box<[AtomicU64]>);

impl SharedBits {
    /// An empty set for this number of record ids.
    pub(crate) fn new(records: u64) -> Self {
        ChunkBits::default().finish(records)
    }

    /// The set with the words that [`SharedBits::words`] returned.
    pub(crate) fn from_words(words: impl Iterator<Item = u64>) -> Self {
        Self(words.map(AtomicU64::new).collect())
    }

    /// Sets the bit of a record. Relaxed ordering is enough: bits are read after the threads that set them were joined.
    #[inline]
    pub(crate) fn set(&self, record: u64) {
        let word = usize::try_from(record / 64).expect("a record of the chunk");
        self.0[word].fetch_or(1 << (record % 64), Ordering::Relaxed);
    }

    /// Whether the bit of a record is set.
    #[inline]
    pub(crate) fn get(&self, record: u64) -> bool {
        let word = usize::try_from(record / 64).expect("a record of the chunk");
        self.0[word].load(Ordering::Relaxed) >> (record % 64) & 1 == 1
    }

    /// The bits as words of 64 records, the first record in the lowest bit.
    pub(crate) fn words(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.0.iter().map(|word| word.load(Ordering::Relaxed))
    }

    /// The word with this index; 0 after the last one.
    pub(crate) fn word(&self, index: usize) -> u64 {
        self.0.get(index).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// How many bits are set.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_again() {
        let mut bits = ChunkBits::default();
        [3, 64, 700].into_iter().for_each(|record| bits.set(record));
        let bits = bits.finish(1000);
        bits.set(999);
        assert_eq!(bits.count(), 4);
        assert!(bits.get(64) && bits.get(999) && !bits.get(65));
    }
}
