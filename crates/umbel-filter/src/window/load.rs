//! Blocks that come from another window of the same shape: a copy of it, or of a part of its range.

use super::{WINDOW_SLICES_MAX, Window, slots_of, tag_index};
use crate::bits::index;
use crate::kind::Kind;
use crate::shape::BlockShape;
use crate::slots::Slot;
use crate::table_error::{TableLoadError, TablePartError, check_words};

impl Window {
    /// Checks the words of a window of this shape that keeps these slices, and returns how many items
    /// they hold. Words of any value are valid: corrupted memory is found by comparing replicas, and
    /// must not prevent a copy.
    ///
    /// # Errors
    /// If the shape is another kind's, the words are too many or too few, or no window keeps such slices.
    pub fn check_part(
        part: BlockShape,
        (oldest, newest): (u64, u64),
        words: &[u64],
    ) -> Result<u64, TablePartError> {
        let most = u64::MAX - WINDOW_SLICES_MAX;
        if oldest > newest || newest > most || newest - oldest > WINDOW_SLICES_MAX - 2 {
            return Err(TablePartError::Slices { oldest, newest });
        }
        check_words(Kind::Window, part, words)?;
        let slots = slots_of(part);
        let is_taken = |slot: &usize| !slots.get(words, *slot).is_free();
        Ok((0..index(part.position_count())).filter(is_taken).count() as u64)
    }

    /// Loads the blocks of a part of this window's hash range into blocks that are empty, and returns
    /// how many items they hold. The part's window keeps the slices `oldest` to `newest`. The later
    /// of both windows applies: items of slices that it no longer keeps are left out.
    ///
    /// # Errors
    /// If the shapes differ in more than the range, the part leaves our range or is not one, or the
    /// blocks have items. Nothing was changed.
    pub fn load_part(
        &mut self,
        part: BlockShape,
        (oldest, newest): (u64, u64),
        words: &[u64],
    ) -> Result<u64, TableLoadError> {
        let block = self.shape.part_offset(part)?;
        Self::check_part(part, (oldest, newest), words)?;
        let first_slot = index(block * u64::from(part.block_bits()));
        let slots = first_slot..first_slot + index(part.position_count());
        let taken = |at: &usize| !self.slots.get(self.words(), *at).is_free();
        let item_count = slots.clone().filter(taken).count() as u64;
        if item_count > 0 {
            return Err(TableLoadError::NotEmpty { item_count });
        }
        self.advance(oldest, newest);
        let first_word = self.slots.word_of(first_slot);
        self.bits.words_mut()[first_word..][..words.len()].copy_from_slice(words);
        let mut loaded = 0;
        for at in slots {
            let slot = self.slots.get(self.words(), at);
            if slot.is_free() {
                continue;
            }
            // By the part's newest slice, as the slot was written.
            let age = (newest + 1).wrapping_sub(slot.tag) % WINDOW_SLICES_MAX;
            if newest + 1 >= age + self.oldest {
                self.counts[tag_index(slot.tag)] += 1;
                loaded += 1;
            } else {
                self.slots.set(self.bits.words_mut(), at, Slot::FREE);
            }
        }
        Ok(loaded)
    }
}
