//! Quotient filter: a table of remainders in the order of the hashes, each with a count.
//!
//! Bender et al. 2012, doi:10.14778/2350229.2350275; with ranks and selections: Pandey, Bender, Johnson & Patro
//! 2017, doi:10.1145/3035918.3035963.
//!
//! *Positions.* An item has the position x = ⌊hi · m / 2^64⌋ of m = Q · 2^r: the quotient ⌊x / 2^r⌋ says where it
//! lies, and the remainder x mod 2^r is what is stored, so a filter *is* the set of positions of a single-shot filter
//! of m positions, with its rate, in a table of Q slots and a few more.
//!
//! *Pages.* The table is an array of pages of up to 2^16 quotients, each with some spare slots, that are independent
//! of each other: a hash range is a slice of it. Inside a page every item lies as near behind its quotient as the
//! items before it permit (`page.rs`), and two bits a slot tell whose it is.
//!
//! *One filter, one table.* The words depend on what is in the filter and not on the order in which it came, nor
//! on what was there in between. So merging is equal to inserting, word by word, a part is a part of the words, and
//! a filter of twice the quotients and remainders of one bit less ([`grow`](Quotient::grow)) has the same positions.
//!
//! *Counts.* A slot has v bits for its copies, which tell 1 to 2^v; so many are sticky, as a counter of 15 is.
//! With v = 0 it is a set, from which nothing leaves and whose merge is idempotent.

use crate::bits::{BitArray, index};
use crate::capability::{
    Contains, Describe, Description, Insert, InsertError, Insertion, OutOfRange, Removal, Remove,
    check_all_in_range, check_in_range,
};
use crate::hash::ItemHash;
use crate::kind::Kind;
use crate::quotient_layout::Layout;
use crate::range::HashRange;
use crate::shape::{BlockShape, CreateError, Shape};
use crate::sizing;

mod grow;
mod join;
mod load;
mod loops;
mod merge;
mod page;
#[cfg(test)]
mod page_test;
#[cfg(test)]
mod quotient_test;
mod stream;
mod walk;

pub use grow::QuotientGrowError;
pub use load::QuotientSliceError;

use page::Place;
use stream::PageItems;

/// A quotient filter over a hash range.
///
/// ```
/// use umbel_filter::{Contains, HashRange, Insert, ItemHasher, Quotient, Removal, Remove};
///
/// let alice = ItemHasher::Xxh3 { seed: 7 }.hash(b"alice");
/// let mut online = Quotient::for_rate(HashRange::WHOLE, 1_000, 0.01)?;
/// online.insert(alice)?;
/// online.insert(alice)?;
/// assert_eq!((online.copies(alice), online.taken_count()), (2, 1));
/// assert_eq!(online.remove(alice)?, Removal::Removed);
/// assert!(online.contains(alice)); // Inserted twice, removed once.
/// assert_eq!(online.remove(alice)?, Removal::Removed);
/// assert!(!online.contains(alice));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quotient {
    shape: BlockShape,
    layout: Layout,
    places: Places,
    bits: BitArray,
    /// Slots that are taken.
    taken_count: u64,
}

/// How hashes are mapped to quotients and remainders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Places {
    /// Pages over the whole hash space.
    page_count: u64,
    /// Bits of a quotient in its page.
    quotient_bits: u32,
    remainder_bits: u32,
}

impl Quotient {
    /// The smallest empty filter that holds `item_count` items of the range at this
    /// `false_positive_rate`, and counts up to four copies of each.
    ///
    /// # Errors
    /// If there are no items, no quotient filter has such a rate, or there is no memory.
    pub fn for_rate(
        range: HashRange,
        item_count: u64,
        false_positive_rate: f64,
    ) -> Result<Self, CreateError> {
        let kind = Kind::Quotient;
        Self::with_shape(BlockShape::for_rate(kind, range, item_count, false_positive_rate)?)
    }

    /// An empty filter of this shape.
    ///
    /// # Errors
    /// If the shape is another kind's, or there is no memory.
    ///
    /// ```
    /// use umbel_filter::{BlockShape, HashRange, Insert, ItemHash, Kind, Quotient};
    ///
    /// // One page of 64 quotients, and remainders of 4 bits: 2^10 positions, of which the upper ten bits of an
    /// // item are one.
    /// let shape = BlockShape::new(Kind::Quotient, HashRange::WHOLE, 1, 64, 4)?;
    /// let mut set = Quotient::with_shape(shape.with_count_bits(0)?)?;
    /// set.insert(ItemHash::new(0xabc0 << 48, 0))?;
    /// assert_eq!(set.positions().collect::<Vec<u64>>(), [0xabc0 >> 6]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_shape(shape: BlockShape) -> Result<Self, CreateError> {
        shape.check_kind(Kind::Quotient)?;
        let bits = BitArray::new(shape.memory_bytes() / 64)?;
        let (layout, places) = (Layout::new(shape), Places::new(shape));
        Ok(Self { shape, layout, places, bits, taken_count: 0 })
    }

    /// The filter's shape.
    #[must_use]
    pub const fn block_shape(&self) -> BlockShape {
        self.shape
    }

    /// Number of slots that are taken: one for each different position of the items that were inserted and
    /// not removed.
    #[must_use]
    pub const fn taken_count(&self) -> u64 {
        self.taken_count
    }

    /// The words of the pages, one after the other: as `quotient_layout.rs` draws them.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        self.bits.words()
    }

    /// Changes words, whatever they were, and counts what is taken anew.
    pub fn rewrite(&mut self, change: impl FnOnce(&mut [u64])) {
        change(self.bits.words_mut());
        self.taken_count = taken_count(self.layout, self.bits.words());
    }

    /// Takes all items out.
    pub fn clear(&mut self) {
        self.bits.words_mut().fill(0);
        self.taken_count = 0;
    }

    /// How often the item's position was inserted and not removed, up to 2^v.
    #[must_use]
    pub fn copies(&self, hash: ItemHash) -> u64 {
        if !self.shape.range().contains(hash.hi()) {
            return 0;
        }
        let value = self.find(hash);
        value.map_or(0, |value| (value & self.layout.count_mask()) + 1)
    }

    /// The position of an item, counted over the whole hash space: items of one position are not told apart, however
    /// often the filter has [grown](Self::grow). None outside of the range.
    ///
    /// ```
    /// use umbel_filter::{HashRange, Insert, ItemHash, Quotient};
    ///
    /// let mut filter = Quotient::for_rate(HashRange::WHOLE, 100, 0.01)?;
    /// let item = ItemHash::new(1 << 60, 7);
    /// filter.insert(item)?;
    /// assert_eq!(filter.position(item), filter.positions().next());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn position(&self, hash: ItemHash) -> Option<u64> {
        self.shape.range().contains(hash.hi()).then(|| {
            let (page, place) = self.place(hash);
            self.places.position(self.shape.map().first_block() + page as u64, place)
        })
    }

    /// The positions of its items, each once, ascending, counted over the whole hash space.
    pub fn positions(&self) -> impl Iterator<Item = u64> + '_ {
        (self.shape.map().first_block()..).zip(self.pages()).flat_map(move |(page, words)| {
            let places = self.places;
            PageItems::new(self.layout, words).map(move |(place, _)| places.position(page, place))
        })
    }

    /// Inserts the items one after the other, or none of them: [`Insert::insert_batch`] with a filter that is
    /// full in between as it was before, word by word.
    ///
    /// # Errors
    /// If an item lies outside the hash range, or there is no room for all; `outcomes` is empty then.
    ///
    /// ```
    /// use umbel_filter::{HashRange, ItemHash, Quotient};
    ///
    /// let mut filter = Quotient::for_rate(HashRange::WHOLE, 100, 0.01)?;
    /// let before = filter.clone();
    /// // 128 quotients and 64 spare slots.
    /// let items: Vec<_> = (0..193).map(|item| ItemHash::new(item << 50, item)).collect();
    /// assert!(filter.insert_all(&items, &mut Vec::new()).is_err());
    /// assert_eq!(filter, before);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert_all(
        &mut self,
        hashes: &[ItemHash],
        outcomes: &mut Vec<Insertion>,
    ) -> Result<(), InsertError> {
        outcomes.clear();
        check_all_in_range(self.shape.range(), hashes)?;
        let mut changed = Vec::with_capacity(hashes.len());
        let inserted = self.put_batch(hashes, outcomes, Some(&mut changed));
        if inserted.is_err() {
            for hash in changed {
                self.take(hash);
            }
            outcomes.clear();
        }
        inserted
    }

    /// Page and place of an item of the range.
    #[inline]
    fn place(&self, hash: ItemHash) -> (usize, Place) {
        (index(self.shape.map().block(hash.hi())), self.places.place(hash.hi()))
    }

    #[inline]
    fn page(&self, page: usize) -> &[u64] {
        &self.bits.words()[page * self.layout.page_words..][..self.layout.page_words]
    }

    fn pages(&self) -> impl Iterator<Item = &[u64]> {
        self.words().chunks_exact(self.layout.page_words)
    }

    #[inline]
    fn page_mut(&mut self, page: usize) -> &mut [u64] {
        &mut self.bits.words_mut()[page * self.layout.page_words..][..self.layout.page_words]
    }
}

impl Places {
    const fn new(shape: BlockShape) -> Self {
        Self {
            page_count: shape.map().block_count(),
            quotient_bits: shape.block_bits().trailing_zeros(),
            remainder_bits: shape.probe_count(),
        }
    }

    /// Where in its page an item is. The page is ⌊hi · pages / 2^64⌋; the bits of the product below it are the
    /// quotient, then the remainder.
    #[inline]
    const fn place(self, hi: u64) -> Place {
        let behind = hi.wrapping_mul(self.page_count);
        let quotient = index(behind >> (64 - self.quotient_bits));
        let remainder = (behind << self.quotient_bits) >> (64 - self.remainder_bits);
        Place { quotient, remainder }
    }

    /// The position of a place in a page, which is counted over the whole hash space.
    const fn position(self, page: u64, Place { quotient, remainder }: Place) -> u64 {
        (page << self.quotient_bits | quotient as u64) << self.remainder_bits | remainder
    }
}

/// Number of slots that are taken in pages.
fn taken_count(layout: Layout, words: &[u64]) -> u64 {
    words.chunks_exact(layout.page_words).map(|page| layout.taken_count(page)).sum()
}

impl Contains for Quotient {
    #[inline]
    fn contains(&self, hash: ItemHash) -> bool {
        self.shape.range().contains(hash.hi()) && self.find(hash).is_some()
    }

    fn contains_batch(&self, hashes: &[ItemHash], present: &mut Vec<bool>) {
        self.find_batch(hashes, present);
    }
}

/// A present item takes no slot, but is counted.
impl Insert for Quotient {
    fn insert(&mut self, hash: ItemHash) -> Result<Insertion, InsertError> {
        check_in_range(self.shape.range(), hash)?;
        self.put(hash)
    }

    fn insert_batch(
        &mut self,
        hashes: &[ItemHash],
        outcomes: &mut Vec<Insertion>,
    ) -> Result<(), InsertError> {
        outcomes.clear();
        check_all_in_range(self.shape.range(), hashes)?;
        self.put_batch(hashes, outcomes, None)
    }
}

impl Remove for Quotient {
    fn remove(&mut self, hash: ItemHash) -> Result<Removal, OutOfRange> {
        check_in_range(self.shape.range(), hash)?;
        let copies = self.copies(hash);
        if copies == 0 {
            return Ok(Removal::Absent);
        }
        if copies <= self.layout.count_mask() {
            self.take(hash);
        }
        Ok(Removal::Removed)
    }
}

impl Describe for Quotient {
    fn shape(&self) -> Shape {
        self.shape.into()
    }

    /// Of different items, by how many positions are taken.
    fn describe(&self) -> Description {
        let one_count = self.taken_count;
        let m = self.shape.quotient_positions();
        let item_count = sizing::item_count_estimate(m, 1, one_count.min(m)).ok();
        Description {
            shape: self.shape.into(),
            memory_bytes: self.shape.memory_bytes(),
            position_count: self.shape.slot_count(),
            one_count,
            item_count,
            false_positive_rate: (one_count as f64 / m as f64).min(1.0),
        }
    }
}
