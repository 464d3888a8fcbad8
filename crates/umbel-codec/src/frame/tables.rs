//! Frames of tables of fingerprints: their words, which are loaded into empty pages and never ORed.

use umbel_filter::{BlockShape, Cuckoo, Kind, Quotient, TableLoadError, TablePartError, Window};

use super::FrameView;
use super::view::Fixed;
use crate::error::{FrameError, FrameMergeError, PayloadError};

/// How many items the words of a table hold, which keeps these slices if it is a window.
///
/// # Errors
/// If they are not so many, or no window keeps such slices.
pub(super) fn check_table(
    part: BlockShape,
    slices: Option<(u64, u64)>,
    words: &[u64],
) -> Result<u64, TablePartError> {
    match slices {
        Some(slices) => Window::check_part(part, slices, words),
        None if part.kind() == Kind::Quotient => Quotient::check_part(part, words),
        None => Cuckoo::check_part(part, words),
    }
}

impl FrameView<'_> {
    /// Has the words of the frame taken by `load`, and returns how many items they hold.
    pub(super) fn load_table(
        &self,
        part: BlockShape,
        load: impl FnOnce(&[u64]) -> Result<u64, TableLoadError>,
    ) -> Result<u64, FrameMergeError> {
        let words = self.table_words(part).map_err(FrameError::from)?;
        load(&words).map_err(|error| match error {
            TableLoadError::Shape(mismatch) => mismatch.into(),
            TableLoadError::NotEmpty { item_count: position_count } => {
                FrameMergeError::NotEmpty { position_count }
            }
            TableLoadError::Part(error) => FrameError::from(PayloadError::from(error)).into(),
        })
    }

    /// The words of a table of fingerprints, which are as many as came, checked.
    pub(super) fn table_words(&self, part: BlockShape) -> Result<Vec<u64>, PayloadError> {
        self.codes.check_word_count(self.codes.end / 64)?;
        let words: Vec<u64> = self.codes.each_word().collect();
        let slices = match self.fixed {
            Fixed::Slices(oldest, newest) => Some((oldest, newest)),
            _ => None,
        };
        let (expected, actual) = (self.header.count, check_table(part, slices, &words)?);
        if actual == expected { Ok(words) } else { Err(PayloadError::Count { expected, actual }) }
    }
}
