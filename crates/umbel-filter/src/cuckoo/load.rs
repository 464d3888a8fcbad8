//! Pages that come from another filter of the same shape: a copy of it, or of a part of its range.

use super::{Cuckoo, slots_of, taken_count};
use crate::bits::index;
use crate::kind::Kind;
use crate::shape::BlockShape;
use crate::table_error::{TableLoadError, TablePartError, check_words};

impl Cuckoo {
    /// Checks the words of a filter of this shape, and returns how many items they hold. Words of any value
    /// are valid: corrupted memory is found by comparing replicas, and must not prevent a copy.
    ///
    /// # Errors
    /// If the shape is another kind's, or the words are too many or too few.
    pub fn check_part(part: BlockShape, words: &[u64]) -> Result<u64, TablePartError> {
        check_words(Kind::Cuckoo, part, words)?;
        Ok(taken_count(slots_of(part), words, 0..index(part.position_count())))
    }

    /// Takes the pages of a part of our hash range into pages that are empty, and returns how many items
    /// they hold.
    ///
    /// # Errors
    /// If the shapes differ in more than the range, the part leaves our range or is not one, or the pages
    /// have items. Nothing was changed.
    pub fn load_part(&mut self, part: BlockShape, words: &[u64]) -> Result<u64, TableLoadError> {
        let page = self.shape.part_offset(part)?;
        let loaded = Self::check_part(part, words)?;
        let first_slot = index(page * u64::from(part.block_bits()));
        let slots = first_slot..first_slot + index(part.position_count());
        let item_count = taken_count(self.slots, self.words(), slots);
        if item_count > 0 {
            return Err(TableLoadError::NotEmpty { item_count });
        }
        let first_word = self.slots.word_of(first_slot);
        self.bits.words_mut()[first_word..][..words.len()].copy_from_slice(words);
        self.item_count += loaded;
        Ok(loaded)
    }
}
