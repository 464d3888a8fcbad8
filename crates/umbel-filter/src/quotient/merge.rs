//! Two filters in one: a pass over two sorted streams.

use super::Quotient;
use super::stream::{PageBuilder, PageItems};
use crate::capability::InsertError;
use crate::merge_error::MergeError;
use crate::shape::check_equal;

impl Quotient {
    /// Inserts what another filter of the same shape holds, each position as often as it was inserted there, and
    /// returns how many positions are new.
    ///
    /// The sum of copies is commutative and associative, also where it is sticky, and so is this.
    ///
    /// # Errors
    /// If the shapes differ, there is no room for all, or no memory. Nothing was changed.
    ///
    /// ```
    /// use umbel_filter::{HashRange, Insert, ItemHash, Quotient};
    ///
    /// let mut ours = Quotient::for_rate(HashRange::WHOLE, 100, 0.01)?;
    /// let mut theirs = ours.clone();
    /// ours.insert(ItemHash::new(1, 2))?;
    /// theirs.insert(ItemHash::new(1, 2))?;
    /// theirs.insert(ItemHash::new(1 << 60, 2))?;
    /// assert_eq!(ours.merge(&theirs)?, 1);
    /// assert_eq!((ours.copies(ItemHash::new(1, 2)), ours.taken_count()), (2, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn merge(&mut self, other: &Self) -> Result<u64, MergeError> {
        check_equal(self.shape, other.shape)?;
        let mut union = Self::with_shape(self.shape)?;
        let (layout, full) = (self.layout, InsertError::Full { item_count: self.taken_count });
        let pages = union.bits.words_mut().chunks_exact_mut(layout.page_words);
        for (page, (ours, theirs)) in pages.zip(self.pages().zip(other.pages())) {
            let (ours, theirs) = (PageItems::new(layout, ours), PageItems::new(layout, theirs));
            let mut builder = PageBuilder::new(layout, page);
            for (place, count) in summed(ours, theirs, layout.count_mask()) {
                builder.push(place, count).ok_or(full)?;
                union.taken_count += 1;
            }
        }
        let new_count = union.taken_count.saturating_sub(self.taken_count);
        *self = union;
        Ok(new_count)
    }
}

/// Two sorted streams in one, where equal places have the sum of their copies, at most `mask` + 1.
pub(super) fn summed<P: Ord>(
    ours: impl Iterator<Item = (P, u64)>,
    theirs: impl Iterator<Item = (P, u64)>,
    mask: u64,
) -> impl Iterator<Item = (P, u64)> {
    let (mut ours, mut theirs) = (ours.peekable(), theirs.peekable());
    std::iter::from_fn(move || match (ours.peek(), theirs.peek()) {
        (Some(a), Some(b)) if a.0 == b.0 => {
            let count = (a.1 + b.1 + 1).min(mask);
            theirs.next();
            ours.next().map(|(place, _)| (place, count))
        }
        (Some(a), Some(b)) if a.0 < b.0 => ours.next(),
        (_, Some(_)) => theirs.next(),
        (_, None) => ours.next(),
    })
}
