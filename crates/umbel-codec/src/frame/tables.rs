//! Frames of tables of fingerprints: their words, which are loaded into empty pages and never ORed.

use umbel_filter::{
    BlockShape, Cuckoo, CuckooLoadError, Kind, Quotient, QuotientLoadError, Window, WindowLoadError,
};

use super::FrameView;
use super::view::Fixed;
use crate::error::{FrameError, FrameMergeError, PayloadError};

impl FrameView<'_> {
    pub(super) fn load_window(
        &self,
        window: &mut Window,
        part: BlockShape,
        slices: (u64, u64),
    ) -> Result<u64, FrameMergeError> {
        let words = self.table_words(part).map_err(FrameError::from)?;
        window.load_part(part, slices, &words).map_err(|error| match error {
            WindowLoadError::Shape(mismatch) => mismatch.into(),
            WindowLoadError::NotEmpty { item_count: position_count } => {
                FrameMergeError::NotEmpty { position_count }
            }
            WindowLoadError::Part(error) => FrameError::from(PayloadError::Window(error)).into(),
        })
    }

    pub(super) fn load_cuckoo(
        &self,
        filter: &mut Cuckoo,
        part: BlockShape,
    ) -> Result<u64, FrameMergeError> {
        let words = self.table_words(part).map_err(FrameError::from)?;
        filter.load_part(part, &words).map_err(|error| match error {
            CuckooLoadError::Shape(mismatch) => mismatch.into(),
            CuckooLoadError::NotEmpty { item_count: position_count } => {
                FrameMergeError::NotEmpty { position_count }
            }
            CuckooLoadError::Part(error) => FrameError::from(PayloadError::Cuckoo(error)).into(),
        })
    }

    pub(super) fn load_quotient(
        &self,
        filter: &mut Quotient,
        part: BlockShape,
    ) -> Result<u64, FrameMergeError> {
        let words = self.table_words(part).map_err(FrameError::from)?;
        filter.load_part(part, &words).map_err(|error| match error {
            QuotientLoadError::Shape(mismatch) => mismatch.into(),
            QuotientLoadError::NotEmpty { taken_count: position_count } => {
                FrameMergeError::NotEmpty { position_count }
            }
            QuotientLoadError::Part(error) => {
                FrameError::from(PayloadError::Quotient(error)).into()
            }
        })
    }

    /// The words of a table of fingerprints, which are as many as came, checked.
    pub(super) fn table_words(&self, part: BlockShape) -> Result<Vec<u64>, PayloadError> {
        self.codes.check_word_count(self.codes.end / 64)?;
        let words: Vec<u64> = self.codes.each_word().collect();
        let actual = match self.fixed {
            Fixed::Slices(oldest, newest) => {
                Window::check_part(part, (oldest, newest), &words).map_err(PayloadError::Window)?
            }
            _ if part.kind() == Kind::Quotient => {
                Quotient::check_part(part, &words).map_err(PayloadError::Quotient)?
            }
            _ => Cuckoo::check_part(part, &words).map_err(PayloadError::Cuckoo)?,
        };
        let expected = self.header.count;
        if actual == expected { Ok(words) } else { Err(PayloadError::Count { expected, actual }) }
    }
}
