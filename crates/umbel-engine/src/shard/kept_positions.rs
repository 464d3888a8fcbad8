//! What positions held, by their place: 16 bits for each, in one list for each region of the arrays.
//!
//! ```text
//!              region                          entry
//! bits         8 KiB, 65,536 positions    │ number in the region, 16                          │  each was 0
//! counters     2 KiB,  4,096 positions    │ number in the region, 12    │ what it was, 4      │
//! ```
//!
//! A position is kept once, as it was when it was kept first, however often it changes or is kept again: two bytes, and
//! its share of the list's room.

use super::changed_positions::{Position, PositionKind, WordAt};

/// Bits of an entry.
const ENTRY_BITS: u32 = u16::BITS;

/// Bytes that a list with entries takes beside them: what an allocation needs for itself.
const LIST_BYTES: usize = 16;

/// Entries that a list has room for at first.
const ROOM_MIN: usize = 8;

/// Positions with their former contents.
#[derive(Debug)]
pub(super) struct KeptPositions {
    kind: PositionKind,
    /// The number of each array's first region, and the number of all regions at last.
    starts: Vec<usize>,
    /// The entries of each region, ascending. No lists as long as nothing is kept.
    regions: Vec<Vec<u16>>,
    /// How many of the regions were released.
    released: usize,
    bytes: usize,
}

impl PositionKind {
    /// Bits of what an entry says of the content: nothing of bits, which were 0.
    const fn content_bits(self) -> u32 {
        match self {
            Self::Bit => 0,
            Self::Counter => self.bits(),
        }
    }

    /// Positions of a region: as many as an entry tells apart.
    const fn of_region(self) -> u32 {
        1 << (ENTRY_BITS - self.content_bits())
    }

    /// Words of a region.
    const fn region_words(self) -> usize {
        (self.of_region() / self.of_word()) as usize
    }
}

impl KeptPositions {
    /// Nothing of these arrays.
    pub(super) fn new(kind: PositionKind, arrays: &[&[u64]]) -> Self {
        let mut starts = vec![0];
        let mut count = 0;
        for words in arrays {
            count += words.len().div_ceil(kind.region_words());
            starts.push(count);
        }
        Self { kind, starts, regions: Vec::new(), released: 0, bytes: 0 }
    }

    /// Bytes that it takes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of a word's region, or of all regions if it lies in another array.
    fn region_of(&self, at: WordAt) -> usize {
        let all = self.starts.last().copied().unwrap_or_default();
        let start = self.starts.get(at.array as usize).copied().unwrap_or(all);
        start + at.word as usize / self.kind.region_words()
    }

    /// Keeps what a position of one of the arrays holds, unless what it held earlier is kept. A bit must be 0.
    pub(super) fn keep(&mut self, at: Position) {
        let kind = self.kind;
        let region = self.region_of(at.word(kind));
        if self.regions.is_empty() {
            let count = self.starts.last().copied().unwrap_or_default();
            self.regions.resize_with(count, Vec::new);
            self.bytes = count * size_of::<Vec<u16>>();
        }
        let Some(list) = self.regions.get_mut(region) else { return };
        let number = at.number % kind.of_region();
        let place =
            list.binary_search_by_key(&number, |&entry| u32::from(entry) >> kind.content_bits());
        let Err(place) = place else { return };
        if list.len() == list.capacity() {
            let before = list_bytes(list);
            // By a quarter only. All lists of a slice grow together: so what they left before is enough for what they
            // need next, which it never is if they double.
            list.reserve_exact((list.len() / 4).max(ROOM_MIN));
            self.bytes += list_bytes(list) - before;
        }
        let entry = u64::from(number) << kind.content_bits() | at.content;
        // A region has no more positions, and a bit no content.
        list.insert(place, u16::try_from(entry).unwrap_or(u16::MAX));
    }

    /// Puts what is kept of these words, which begin at one of an array, back into them.
    pub(super) fn restore(&self, first: WordAt, words: &mut [u64]) {
        let kind = self.kind;
        let Some(&start) = self.starts.get(first.array as usize) else { return };
        let (first, region_words) = (first.word as usize, kind.region_words());
        for region in first / region_words..(first + words.len()).div_ceil(region_words) {
            for &entry in self.regions.get(start + region).into_iter().flatten() {
                let number = u32::from(entry) >> kind.content_bits();
                let word = region * region_words + (number / kind.of_word()) as usize;
                let word = word.checked_sub(first).and_then(|word| words.get_mut(word));
                let Some(word) = word else { continue };
                let content = u64::from(entry) & ((1 << kind.content_bits()) - 1);
                let shift = number % kind.of_word() * kind.bits();
                *word = *word & !(kind.content_max() << shift) | content << shift;
            }
        }
    }

    /// Gives back the memory of the regions before that of this word.
    pub(super) fn release_before(&mut self, end: WordAt) {
        let end = self.region_of(end).min(self.regions.len());
        for list in self.regions.get_mut(self.released..end).unwrap_or_default() {
            self.bytes -= list_bytes(list);
            *list = Vec::new();
        }
        self.released = self.released.max(end);
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        (self.regions, self.bytes) = (Vec::new(), 0);
    }

    /// Number of positions.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.regions.iter().map(Vec::len).sum()
    }
}

/// Bytes that a list takes beside its place.
const fn list_bytes(list: &Vec<u16>) -> usize {
    match list.capacity() {
        0 => 0,
        room => LIST_BYTES + room * size_of::<u16>(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Words of each of two arrays: more than two regions of bits, and more than nine of counters.
    const ARRAY_WORDS: u32 = 2_500;

    /// Positions that the test keeps, far apart.
    const PLACES: u32 = 3_000;

    proptest! {
        /// The slow twin: a map from places to contents.
        #[test]
        fn positions_come_back_as_they_were_first(
            kind in prop_oneof![Just(PositionKind::Bit), Just(PositionKind::Counter)],
            steps in vec((0..PLACES, 0..16_u64, any::<bool>()), 0..4_000),
            [one, other] in [0..ARRAY_WORDS, 0..ARRAY_WORDS],
        ) {
            let array_positions = ARRAY_WORDS * kind.of_word();
            let place = |at: u32| {
                let number = at * (2 * array_positions / PLACES);
                (number / array_positions, number % array_positions)
            };
            let word = |at: u32| {
                let (array, number) = place(at);
                WordAt { array, word: number / kind.of_word() }
            };
            let array = [0; ARRAY_WORDS as usize];
            let arrays = [array.as_slice(); 2];
            let (mut kept, mut twin) = (KeptPositions::new(kind, &arrays), BTreeMap::new());
            let mut behind = 0;
            for &(at, content, releases) in &steps {
                if releases && at < 60 {
                    behind = (behind + at).min(PLACES - 1);
                    kept.release_before(word(behind));
                } else if at >= behind {
                    let (array, number) = place(at);
                    let content = if kind == PositionKind::Bit { 0 } else { content };
                    kept.keep(Position { array, number, content });
                    twin.entry((array, number)).or_insert(content);
                }
            }
            let (read, end) = (word(behind), one.max(other));
            for array in read.array..2 {
                let first = if array == read.array { read.word } else { 0 };
                let first = one.min(other).max(first);
                let mut words = vec![u64::MAX; end.saturating_sub(first) as usize];
                let mut expected = words.clone();
                for (&(_, number), &content) in twin.range((array, 0)..(array + 1, 0)) {
                    let at = (number / kind.of_word()).checked_sub(first);
                    if let Some(word) = at.and_then(|at| expected.get_mut(at as usize)) {
                        // All of its bits are ones.
                        *word ^= (kind.content_max() ^ content)
                            << (number % kind.of_word() * kind.bits());
                    }
                }
                kept.restore(WordAt { array, word: first }, &mut words);
                prop_assert!(words == expected, "array {} from word {} to {}", array, first, end);
            }
            kept.release_before(WordAt { array: 2, word: 0 });
            prop_assert_eq!(kept.len(), 0);
            prop_assert_eq!(kept.bytes(), size_of::<Vec<u16>>() * kept.regions.len());
            kept.clear();
            prop_assert_eq!(kept.bytes(), 0);
        }
    }

    /// Room for 8, 16, 24, 32, 40, 50, 62, 77, 96, 120, 150, 187, 233, 291, 363, 453, 566, 707, 883 and 1,103 entries.
    #[test]
    fn a_thousand_bits_take_two_thousand_bytes_and_little_room() {
        let mut kept = KeptPositions::new(PositionKind::Bit, &[&[0; 1024]]);
        assert_eq!(kept.bytes(), 0);
        for _ in 0..2 {
            for number in (0..1_000).rev() {
                kept.keep(Position { array: 0, number: 65 * number, content: 0 });
            }
            assert_eq!((kept.len(), kept.bytes()), (1_000, 24 + 16 + 2 * 1_103));
        }
    }
}
