//! Maps item numbers of a chunk to records and parts, if records have parts.

use super::drops::SharedBits;

/// The item numbers of a chunk at which a record starts: one bit per number, and one count per 64 of them.
pub(crate) struct RecordStarts {
    bits: SharedBits,
    /// Number of starts before each word.
    before: Vec<u64>,
}

impl RecordStarts {
    /// From one bit per item number.
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

    /// The bits, as [`RecordStarts::new`] takes them.
    pub(crate) fn bits(&self) -> &SharedBits {
        &self.bits
    }

    /// The record of an item number, from 0, and its part, from 1. The first number starts a record.
    pub(crate) fn record_of(&self, number: u64) -> (u64, u64) {
        let index = usize::try_from(number / 64).expect("a number of the chunk");
        // Starts in the number's word, up to the number itself.
        let mut starts = self.bits.word(index) & (u64::MAX >> (63 - number % 64));
        let record = self.before[index] + u64::from(starts.count_ones()) - 1;
        let mut at = index;
        while starts == 0 {
            at -= 1;
            starts = self.bits.word(at);
        }
        let start = at as u64 * 64 + 63 - u64::from(starts.leading_zeros());
        (record, number - start + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_find_their_records() {
        let mut draws = 7u64;
        let starts: Vec<bool> = (0..5000)
            .map(|number| {
                draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let every = if number / 1000 % 2 == 0 { 3 } else { 300 };
                number == 0 || (draws >> 33).is_multiple_of(every)
            })
            .collect();
        let bits = SharedBits::new(starts.len() as u64);
        (0..).zip(&starts).filter(|(_, starts)| **starts).for_each(|(number, _)| bits.set(number));
        let found = RecordStarts::new(bits);
        let (mut record, mut part) = (0, 0);
        for (number, starts) in (0..).zip(starts) {
            (record, part) =
                if starts && number > 0 { (record + 1, 1) } else { (record, part + 1) };
            assert_eq!(found.record_of(number), (record, part), "{number}");
        }
    }
}
