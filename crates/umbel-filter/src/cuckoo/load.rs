//! Pages that come from another filter of the same shape: a copy of it, or of a part of its range.

use thiserror::Error;

use super::{Cuckoo, slots_of, taken_count};
use crate::bits::index;
use crate::kind::Kind;
use crate::shape::{BlockShape, ShapeMismatch};

/// The words are no part of a cuckoo filter. Send the part again from a good copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{actual} words of slots, expected {expected} of a cuckoo filter")]
pub struct CuckooPartError {
    /// Words of the shape.
    pub expected: usize,
    /// Words that came.
    pub actual: usize,
}

/// Why pages were not taken. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum CuckooLoadError {
    /// Make a filter of the same shape.
    #[error(transparent)]
    Shape(#[from] ShapeMismatch),
    /// Send the part again from a good copy.
    #[error(transparent)]
    Part(#[from] CuckooPartError),
    /// Load into an empty filter, and every part once.
    #[error("the pages hold {item_count} items already, expected none")]
    NotEmpty {
        /// Items that the pages hold.
        item_count: u64,
    },
}

impl Cuckoo {
    /// Checks the words of a filter of this shape, and returns how many items they hold. Words of any value
    /// are valid: corrupted memory is found by comparing replicas, and must not prevent a copy.
    ///
    /// # Errors
    /// If the shape is another kind's, or the words are too many or too few.
    pub fn check_part(part: BlockShape, words: &[u64]) -> Result<u64, CuckooPartError> {
        let (expected, actual) = (index(part.memory_bytes() / 8), words.len());
        if expected != actual || part.kind() != Kind::Cuckoo {
            return Err(CuckooPartError { expected, actual });
        }
        Ok(taken_count(slots_of(part), words, 0..index(part.position_count())))
    }

    /// Takes the pages of a part of our hash range into pages that are empty, and returns how many items
    /// they hold.
    ///
    /// # Errors
    /// If the shapes differ in more than the range, the part leaves our range or is not one, or the pages
    /// have items. Nothing was changed.
    pub fn load_part(&mut self, part: BlockShape, words: &[u64]) -> Result<u64, CuckooLoadError> {
        let page = self.shape.part_offset(part)?;
        let loaded = Self::check_part(part, words)?;
        let first_slot = index(page * u64::from(part.block_bits()));
        let slots = first_slot..first_slot + index(part.position_count());
        let item_count = taken_count(self.slots, self.words(), slots);
        if item_count > 0 {
            return Err(CuckooLoadError::NotEmpty { item_count });
        }
        let first_word = self.slots.word_of(first_slot);
        self.bits.words_mut()[first_word..][..words.len()].copy_from_slice(words);
        self.item_count += loaded;
        Ok(loaded)
    }
}
