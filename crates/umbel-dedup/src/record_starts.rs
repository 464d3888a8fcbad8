//! Which record a place belongs to, where records have several.

use super::drops::SharedBits;

/// The places of a chunk at which a record starts: one bit a place, and one count for 64 of them.
pub(crate) struct RecordStarts {
    bits: SharedBits,
    /// Starts in front of each word.
    before: Vec<u64>,
}

impl RecordStarts {
    /// From one bit a place.
    pub(crate) fn new(bits: SharedBits) -> Self {
        let mut sum = 0;
        let before = bits.words().map(|word| {
            let before = sum;
            sum += u64::from(word.count_ones());
            before
        });
        let before = before.collect();
        Self { bits, before }
    }

    /// One bit a place, as [`RecordStarts::new`] takes them.
    pub(crate) fn bits(&self) -> &SharedBits {
        &self.bits
    }

    /// The record of a place, from 0, and which of its places it is, from 1. The first place starts a record.
    pub(crate) fn record_of(&self, place: u64) -> (u64, u64) {
        let index = usize::try_from(place / 64).expect("a place of the chunk");
        // Starts in the place's word up to the place itself.
        let mut starts = self.bits.word(index) & (u64::MAX >> (63 - place % 64));
        let record = self.before[index] + u64::from(starts.count_ones()) - 1;
        let mut at = index;
        while starts == 0 {
            at -= 1;
            starts = self.bits.word(at);
        }
        let start = at as u64 * 64 + 63 - u64::from(starts.leading_zeros());
        (record, place - start + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_find_their_records() {
        let mut draws = 7u64;
        let starts: Vec<bool> = (0..5000)
            .map(|place| {
                draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let every = if place / 1000 % 2 == 0 { 3 } else { 300 };
                place == 0 || (draws >> 33).is_multiple_of(every)
            })
            .collect();
        let bits = SharedBits::new(starts.len() as u64);
        (0..).zip(&starts).filter(|(_, starts)| **starts).for_each(|(place, _)| bits.set(place));
        let found = RecordStarts::new(bits);
        let (mut record, mut part) = (0, 0);
        for (place, starts) in (0..).zip(starts) {
            (record, part) = if starts && place > 0 { (record + 1, 1) } else { (record, part + 1) };
            assert_eq!(found.record_of(place), (record, part), "{place}");
        }
    }
}
