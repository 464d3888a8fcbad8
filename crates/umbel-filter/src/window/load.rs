//! Blocks that come from another window of the same shape: a copy of it, or of a part of its range.

use thiserror::Error;

use super::slots::Slot;
use super::{WINDOW_SLICES_MAX, Window, tag_index};
use crate::bits::index;
use crate::shape::{BlockShape, ShapeMismatch};

/// Why blocks were not taken. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum WindowLoadError {
    /// Make a window of the same shape.
    #[error(transparent)]
    Shape(#[from] ShapeMismatch),
    /// Load into an empty window, and every part once.
    #[error("the blocks hold {item_count} items already, expected none")]
    NotEmpty {
        /// Items that the blocks hold.
        item_count: u64,
    },
    /// The part has another number of words than its shape. Send it again from a good copy.
    #[error("{actual} words of slots, expected {expected}")]
    Length {
        /// Words of the shape.
        expected: usize,
        /// Words that came.
        actual: usize,
    },
    /// No window has such slices. Send the part again from a good copy.
    #[error(
        "slices {oldest} to {newest}, expected them to rise and to be fewer than \
         {WINDOW_SLICES_MAX}"
    )]
    Slices {
        /// The oldest.
        oldest: u64,
        /// The newest.
        newest: u64,
    },
}

impl Window {
    /// Takes the blocks of a part of our hash range, whose window has kept these slices, into blocks
    /// that are empty, and returns how many items they hold. The window moves on to the part's slices,
    /// or the part's items to ours.
    ///
    /// # Errors
    /// If the shapes differ in more than the range, the part leaves our range or is not one, or the
    /// blocks have items. Nothing was changed.
    pub fn load_part(
        &mut self,
        part: BlockShape,
        (oldest, newest): (u64, u64),
        words: impl ExactSizeIterator<Item = u64>,
    ) -> Result<u64, WindowLoadError> {
        let is_alike = self.shape.kind() == part.kind()
            && self.shape.block_bits() == part.block_bits()
            && self.shape.probe_count() == part.probe_count();
        let offset = is_alike.then(|| self.shape.map().offset_of(part.map())).flatten();
        let Some(block) = offset else {
            return Err(ShapeMismatch { ours: self.shape.into(), theirs: part.into() }.into());
        };
        let most = u64::MAX - WINDOW_SLICES_MAX;
        if oldest > newest || newest > most || newest - oldest > WINDOW_SLICES_MAX - 2 {
            return Err(WindowLoadError::Slices { oldest, newest });
        }
        let (expected, actual) = (index(part.memory_bytes() / 8), words.len());
        if expected != actual {
            return Err(WindowLoadError::Length { expected, actual });
        }
        let first_slot = index(block * u64::from(part.block_bits()));
        let slots = first_slot..first_slot + index(part.position_count());
        let taken = |at: &usize| !self.slots.get(self.words(), *at).is_free();
        let item_count = slots.clone().filter(taken).count() as u64;
        if item_count > 0 {
            return Err(WindowLoadError::NotEmpty { item_count });
        }
        self.advance(oldest, newest);
        let first_word = self.slots.word_of(first_slot);
        for (ours, theirs) in self.bits.words_mut()[first_word..].iter_mut().zip(words) {
            *ours = theirs;
        }
        let mut loaded = 0;
        for at in slots {
            let slot = self.slots.get(self.words(), at);
            if slot.is_free() {
                self.slots.set(self.bits.words_mut(), at, Slot::FREE);
                continue;
            }
            // By the part's newest slice, as the slot was written.
            let age = (newest + 1).wrapping_sub(slot.tag) % WINDOW_SLICES_MAX;
            let slice = (newest + 1).checked_sub(age);
            if slice.is_some_and(|slice| slice >= self.oldest) {
                self.counts[tag_index(slot.tag)] += 1;
                loaded += 1;
            } else {
                self.slots.set(self.bits.words_mut(), at, Slot::FREE);
            }
        }
        Ok(loaded)
    }
}
