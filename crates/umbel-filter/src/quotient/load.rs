//! Pages that come from another filter of the same shape, or go to one: a copy of it, or of a part of its range.

use thiserror::Error;

use super::page::Place;
use super::stream::{PageBuilder, PageItems};
use super::{Quotient, taken_count};
use crate::bits::index;
use crate::kind::Kind;
use crate::quotient_layout::Layout;
use crate::range::HashRange;
use crate::shape::{BlockShape, CreateError, ShapeMismatch};
use crate::table_error::{TableLoadError, TablePartError, check_words};

impl Quotient {
    /// Checks the words of a filter of this shape, and returns how many of their slots are taken. Words of any
    /// value are valid: corrupted memory is found by comparing replicas, and must not prevent a copy.
    ///
    /// # Errors
    /// If the shape is another kind's, or the words are too many or too few.
    pub fn check_part(part: BlockShape, words: &[u64]) -> Result<u64, TablePartError> {
        check_words(Kind::Quotient, part, words)?;
        Ok(taken_count(Layout::new(part), words))
    }

    /// Takes the pages of a part of our hash range into pages that are empty, and returns how many of their slots
    /// are taken.
    ///
    /// # Errors
    /// If the shapes differ in more than the range, the part leaves our range or is not one, or the pages
    /// have items. Nothing was changed.
    pub fn load_part(&mut self, part: BlockShape, words: &[u64]) -> Result<u64, TableLoadError> {
        let page = self.shape.part_offset(part)?;
        let loaded = Self::check_part(part, words)?;
        let first_word = index(page) * self.layout.page_words;
        let ours = &mut self.bits.words_mut()[first_word..][..words.len()];
        let item_count = taken_count(self.layout, ours);
        if item_count > 0 {
            return Err(TableLoadError::NotEmpty { item_count });
        }
        ours.copy_from_slice(words);
        self.taken_count += loaded;
        Ok(loaded)
    }

    /// The filter of the items of a part of our hash range. Cut where pages begin
    /// ([`BlockMap::range_of_blocks`](crate::BlockMap::range_of_blocks)), the parts make the filter again by
    /// [`load_part`](Self::load_part); a position that a border divides is in both parts.
    ///
    /// # Errors
    /// If the part leaves our range, or there is no memory.
    ///
    /// ```
    /// use umbel_filter::{HashRange, Insert, ItemHash, Quotient};
    ///
    /// let mut filter = Quotient::for_rate(HashRange::WHOLE, 100, 0.01)?;
    /// filter.insert(ItemHash::new(1, 0))?;
    /// filter.insert(ItemHash::new(1 << 63, 0))?;
    /// let upper = filter.slice(HashRange::new(1 << 63, 1 << 64)?)?;
    /// assert!(upper.positions().eq(filter.positions().skip(1)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn slice(&self, range: HashRange) -> Result<Self, QuotientSliceError> {
        let part = self.shape.with_range(range).map_err(CreateError::from)?;
        let page = self.shape.part_offset(part)?;
        let mut slice = Self::with_shape(part)?;
        let layout = self.layout;
        let bounds = [range.start(), range.last()].map(|hi| self.places.place(hi));
        let last_page = slice.bits.words().len() / layout.page_words - 1;
        let pages = slice.bits.words_mut().chunks_exact_mut(layout.page_words);
        for (number, (words, ours)) in pages.zip(self.pages().skip(index(page))).enumerate() {
            if number > 0 && number < last_page {
                words.copy_from_slice(ours);
                slice.taken_count += layout.taken_count(ours);
                continue;
            }
            // A border may lie inside a page, and on a position: that one's items are in both parts.
            let is_in = |&(place, _): &(Place, u64)| {
                (number > 0 || place >= bounds[0]) && (number < last_page || place <= bounds[1])
            };
            let mut builder = PageBuilder::new(layout, words);
            let items = PageItems::new(layout, ours).filter(is_in);
            slice.taken_count +=
                items.map_while(|(place, count)| builder.push(place, count)).count() as u64;
        }
        Ok(slice)
    }
}

/// Why there is no such slice.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum QuotientSliceError {
    /// Name a part of the filter's range.
    #[error(transparent)]
    Shape(#[from] ShapeMismatch),
    /// Free memory, or name a smaller part.
    #[error(transparent)]
    Create(#[from] CreateError),
}
