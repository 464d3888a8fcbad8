//! Why the words of a table, which a window, a cuckoo or a quotient filter is, are not taken from elsewhere.

use thiserror::Error;

use crate::bits::index;
use crate::kind::Kind;
use crate::shape::{BlockShape, ShapeMismatch};
use crate::sizing::SLICE_BITS;

/// Why words are no part of a table. Send the part again from a good copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum TablePartError {
    /// The part has another number of words than its shape, or its shape is another kind's.
    #[error("{actual} words, expected {expected} of a {kind} filter")]
    Length {
        /// The kind of the table.
        kind: Kind,
        /// Words of the shape.
        expected: usize,
        /// Words that came.
        actual: usize,
    },
    /// No window has such slices.
    #[error(
        "slices {oldest} to {newest} of a window, expected them to rise and to be fewer than {}",
        1 << SLICE_BITS
    )]
    Slices {
        /// The oldest.
        oldest: u64,
        /// The newest.
        newest: u64,
    },
}

/// Why a part was not taken. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum TableLoadError {
    /// Make a filter of the same shape.
    #[error(transparent)]
    Shape(#[from] ShapeMismatch),
    /// Send the part again from a good copy.
    #[error(transparent)]
    Part(#[from] TablePartError),
    /// Load into an empty filter, and every part once.
    #[error("the part's place holds {item_count} items already, expected none")]
    NotEmpty {
        /// Slots of the place that are taken.
        item_count: u64,
    },
}

/// Refuses words that are not so many as a table of this kind and shape has.
pub(crate) fn check_words(
    kind: Kind,
    part: BlockShape,
    words: &[u64],
) -> Result<(), TablePartError> {
    let (expected, actual) = (index(part.memory_bytes() / 8), words.len());
    if expected != actual || part.kind() != kind {
        return Err(TablePartError::Length { kind, expected, actual });
    }
    Ok(())
}
