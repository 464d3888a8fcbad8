//! Cuckoo filter: a table of fingerprints, from which items can be taken out.
//!
//! Fan, Andersen, Kaminsky & Mitzenmacher 2014, doi:10.1145/2674005.2674994; both buckets of an item lie in
//! one chunk of the table as in the vacuum filter, doi:10.14778/3364324.3364333:
//!
//! ```text
//! page       │ bucket 0 │ bucket 1 │ …       2^7 to 2^14 buckets, of which an item has two
//! bucket     │ slot │ slot │ slot │ slot │
//! slot       │ fingerprint, f bits │          fingerprint 0: the slot is free
//! ```
//!
//! An item is present if its fingerprint is in one of its buckets, and a removal frees one slot that has it.
//! Compared with a counting filter of the same rate: a quarter of the memory, and a query reads two buckets
//! instead of four cache lines. The price: the table holds the planned number of items and a few percent
//! more, and then refuses inserts.
//!
//! *Copies.* Every insert takes a slot, also that of an item that is present, so that the item can be
//! removed as often as it was inserted. A fingerprint has at most seven copies in its two buckets: further
//! inserts add none, and seven copies are never removed again, like a counter of a counting filter that has
//! reached 15.
//!
//! *No fingerprint is lost.* Room is made along a path that was found before anything moves
//! (`paths.rs`). A filter that moves fingerprints before it has found a path may have to drop one,
//! and then answers wrongly about its item.
//!
//! *Equal histories, equal tables.* The slot of an item depends only on the table's content and the
//! item's hash, so replicas that do the same in the same order have the same words. Another order
//! may give other words with the same answers.

use std::ops::Range;

use crate::bits::{BitArray, index, wide};
use crate::capability::{
    Contains, Describe, Description, Insert, InsertError, Insertion, OutOfRange, Removal, Remove,
    check_all_in_range, check_in_range,
};
use crate::hash::ItemHash;
use crate::kind::Kind;
use crate::merge_error::MergeError;
use crate::planted::{self, TableBug};
use crate::range::HashRange;
use crate::shape::{BlockShape, CreateError, Shape, check_equal};
use crate::sizing::{CUCKOO_COPIES_MAX, Estimate};
use crate::slots::{BUCKET_SLOTS, Place, Slot, Slots};

#[cfg(test)]
mod cuckoo_test;
mod join;
mod load;
mod paths;
mod places;

use places::Places;

/// How many items ahead of the current one a batch prefetches.
const PREFETCH_DISTANCE: usize = 16;

/// A cuckoo filter over a hash range.
///
/// ```
/// use umbel_filter::{Contains, Cuckoo, HashRange, Insert, ItemHasher, Removal, Remove};
///
/// let alice = ItemHasher::Xxh3 { seed: 7 }.hash(b"alice");
/// let mut online = Cuckoo::for_rate(HashRange::WHOLE, 1_000, 0.01)?;
/// online.insert(alice)?;
/// online.insert(alice)?;
/// assert_eq!(online.copies(alice), 2);
/// assert_eq!(online.remove(alice)?, Removal::Removed);
/// assert!(online.contains(alice)); // Inserted twice, removed once.
/// assert_eq!(online.remove(alice)?, Removal::Removed);
/// assert!(!online.contains(alice));
/// assert_eq!(online.remove(alice)?, Removal::Absent);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cuckoo {
    shape: BlockShape,
    slots: Slots,
    places: Places,
    bits: BitArray,
    /// Slots that are taken.
    item_count: u64,
}

impl Cuckoo {
    /// The smallest empty filter that holds `item_count` items of the range at this
    /// `false_positive_rate`.
    ///
    /// # Errors
    /// If there are no items, no cuckoo filter has such a rate, or there is no memory.
    pub fn for_rate(
        range: HashRange,
        item_count: u64,
        false_positive_rate: f64,
    ) -> Result<Self, CreateError> {
        let kind = Kind::Cuckoo;
        Self::with_shape(BlockShape::for_rate(kind, range, item_count, false_positive_rate)?)
    }

    /// An empty filter of this shape.
    ///
    /// # Errors
    /// If the shape is another kind's, or there is no memory.
    pub fn with_shape(shape: BlockShape) -> Result<Self, CreateError> {
        shape.check_kind(Kind::Cuckoo)?;
        let bits = BitArray::new(shape.memory_bytes() / 64)?;
        let (slots, places) = (slots_of(shape), Places::new(shape));
        Ok(Self { shape, slots, places, bits, item_count: 0 })
    }

    /// The filter's shape.
    #[must_use]
    pub const fn block_shape(&self) -> BlockShape {
        self.shape
    }

    /// Number of slots that are taken: one for every insert that was not undone by a removal, up to seven
    /// for one item.
    #[must_use]
    pub const fn item_count(&self) -> u64 {
        self.item_count
    }

    /// The slots' words. Slot i has the f bits from i · f on, bit j of which is bit j mod 64 of word
    /// ⌊j / 64⌋.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        self.bits.words()
    }

    /// Changes words, whatever they were, and counts the items anew.
    pub fn rewrite(&mut self, change: impl FnOnce(&mut [u64])) {
        change(self.bits.words_mut());
        let slots = 0..index(self.shape.position_count());
        self.item_count = taken_count(self.slots, self.bits.words(), slots);
    }

    /// Takes all items out.
    pub fn clear(&mut self) {
        self.bits.words_mut().fill(0);
        self.item_count = 0;
    }

    /// How often the item's fingerprint is in its buckets, 0 to [`CUCKOO_COPIES_MAX`]: as often as the item was
    /// inserted and not removed, and others with the same fingerprint and buckets.
    #[must_use]
    pub fn copies(&self, hash: ItemHash) -> u64 {
        if self.shape.range().contains(hash.hi()) { self.count(self.place(hash)) } else { 0 }
    }

    /// What the table keeps of an item: the lower one of its buckets, and its fingerprint. Items that have both in common
    /// are not told apart. None outside of the range.
    ///
    /// ```
    /// use umbel_filter::{Cuckoo, HashRange, ItemHash};
    ///
    /// let filter = Cuckoo::for_rate(HashRange::WHOLE, 100, 0.01)?;
    /// let kept = |lo| filter.bucket_and_fingerprint(ItemHash::new(0, lo));
    /// assert_eq!(kept(1 << 63), kept(1 << 63 | 1 << 20)); // A page has at most 2^14 buckets.
    /// assert_ne!(kept(1 << 63), kept(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn bucket_and_fingerprint(&self, hash: ItemHash) -> Option<(usize, u64)> {
        self.shape.range().contains(hash.hi()).then(|| {
            let Place { buckets: [one, other], fingerprint } = self.place(hash);
            (one.min(other) / BUCKET_SLOTS, fingerprint)
        })
    }

    /// Inserts the items one after the other, or none of them: [`Insert::insert_batch`] with a filter that is
    /// full in between as it was before, but for where fingerprints lie in their two buckets.
    ///
    /// # Errors
    /// If an item lies outside the hash range, or there is no room for all; `outcomes` is empty then.
    ///
    /// ```
    /// use umbel_filter::{Contains, Cuckoo, HashRange, ItemHash};
    ///
    /// let mut filter = Cuckoo::for_rate(HashRange::WHOLE, 100, 0.01)?;
    /// // 512 slots.
    /// let items: Vec<_> = (0..513).map(|item| ItemHash::new(item, item << 50 | item)).collect();
    /// assert!(filter.insert_all(&items, &mut Vec::new()).is_err());
    /// assert_eq!(filter.item_count(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert_all(
        &mut self,
        hashes: &[ItemHash],
        outcomes: &mut Vec<Insertion>,
    ) -> Result<(), InsertError> {
        outcomes.clear();
        check_all_in_range(self.shape.range(), hashes)?;
        let mut taken = Vec::with_capacity(hashes.len());
        for (at, &hash) in hashes.iter().enumerate() {
            self.prefetch_ahead(hashes, at);
            let (place, before) = (self.place(hash), self.item_count);
            match self.put(place) {
                Ok(outcome) => outcomes.push(outcome),
                Err(error) => {
                    taken.into_iter().for_each(|place| self.free(place));
                    outcomes.clear();
                    return Err(match error {
                        InsertError::Full { .. } => {
                            InsertError::Full { item_count: self.item_count }
                        }
                        error => error,
                    });
                }
            }
            if self.item_count > before {
                taken.push(place);
            }
        }
        Ok(())
    }

    /// Inserts what another filter of the same shape holds, each fingerprint as often as it is there.
    ///
    /// # Errors
    /// If the shapes differ, or there is no room for all. Nothing was changed.
    ///
    /// ```
    /// use umbel_filter::{Cuckoo, HashRange, Insert, ItemHash};
    ///
    /// let mut ours = Cuckoo::for_rate(HashRange::WHOLE, 100, 0.01)?;
    /// let mut theirs = ours.clone();
    /// ours.insert(ItemHash::new(1, 2))?;
    /// theirs.insert(ItemHash::new(1, 2))?;
    /// ours.absorb(&theirs)?;
    /// assert_eq!((ours.copies(ItemHash::new(1, 2)), ours.item_count()), (2, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn absorb(&mut self, other: &Self) -> Result<(), MergeError> {
        check_equal(self.shape, other.shape)?;
        let mut all = self.clone();
        for at in 0..index(other.shape.position_count()) {
            let Slot { fingerprint, .. } = other.slots.get(other.words(), at);
            if fingerprint != 0 {
                let first = at / BUCKET_SLOTS * BUCKET_SLOTS;
                let buckets = [first, self.places.other_bucket(first, fingerprint)];
                all.put(Place { buckets, fingerprint })?;
            }
        }
        *self = all;
        Ok(())
    }

    #[inline]
    fn place(&self, hash: ItemHash) -> Place {
        self.places.place(index(self.shape.map().block(hash.hi())), hash)
    }

    /// The first slot of a fingerprint.
    #[inline]
    fn find(&self, Place { buckets, fingerprint }: Place) -> Option<usize> {
        let words = self.words();
        buckets.into_iter().find_map(|first| self.slots.find(words, first, fingerprint))
    }

    #[inline]
    fn count(&self, Place { buckets, fingerprint }: Place) -> u64 {
        let words = self.words();
        buckets.into_iter().map(|first| self.slots.count(words, first, fingerprint)).sum()
    }

    fn put(&mut self, place: Place) -> Result<Insertion, InsertError> {
        let copies = self.count(place);
        if copies >= CUCKOO_COPIES_MAX {
            return Ok(Insertion::Present);
        }
        let words = self.bits.words_mut();
        let has_room = |first: &usize| {
            !planted::on(TableBug::LosesMoved) || self.slots.get(words, *first).fingerprint == 0
        };
        let mut roomy = place.buckets.into_iter().filter(has_room);
        let free = roomy.find_map(|first| self.slots.find(words, first, 0));
        let free = free.or_else(|| paths::make_room(self.slots, self.places, words, place));
        let at = free.ok_or(InsertError::Full { item_count: self.item_count })?;
        self.slots.set(words, at, Slot { fingerprint: place.fingerprint, tag: 0 });
        self.item_count += 1;
        Ok(if copies == 0 { Insertion::New } else { Insertion::Present })
    }

    /// Frees a slot of the fingerprint, if there is one.
    fn free(&mut self, place: Place) {
        if let Some(at) = self.find(place) {
            self.slots.set(self.bits.words_mut(), at, Slot::FREE);
            self.item_count -= 1;
        }
    }

    /// Prefetches the buckets of the item that is [`PREFETCH_DISTANCE`] after `at`.
    #[inline]
    fn prefetch_ahead(&self, hashes: &[ItemHash], at: usize) {
        if wide::is_far(self.bits.lines())
            && let Some(&ahead) = hashes.get(at + PREFETCH_DISTANCE)
            && self.shape.range().contains(ahead.hi())
        {
            for first in self.place(ahead).buckets {
                wide::prefetch_far(self.words(), self.slots.word_of(first));
            }
        }
    }
}

/// How a cuckoo filter of this shape packs its slots.
const fn slots_of(shape: BlockShape) -> Slots {
    Slots::new(shape.probe_count(), 0)
}

/// Number of slots among these that are taken.
fn taken_count(slots: Slots, words: &[u64], range: Range<usize>) -> u64 {
    let buckets = range.step_by(BUCKET_SLOTS);
    buckets.map(|first| BUCKET_SLOTS as u64 - slots.count(words, first, 0)).sum()
}

impl Contains for Cuckoo {
    #[inline]
    fn contains(&self, hash: ItemHash) -> bool {
        self.shape.range().contains(hash.hi()) && self.slots.holds(self.words(), self.place(hash))
    }

    fn contains_batch(&self, hashes: &[ItemHash], present: &mut Vec<bool>) {
        let (words, is_far) = (self.words(), wide::is_far(self.bits.lines()));
        let range = self.shape.range();
        self.slots.contains_batch(words, is_far, hashes, present, |hash| {
            range.contains(hash.hi()).then(|| self.place(hash))
        });
    }
}

/// Also what is present takes a slot: a full filter refuses it.
impl Insert for Cuckoo {
    fn insert(&mut self, hash: ItemHash) -> Result<Insertion, InsertError> {
        check_in_range(self.shape.range(), hash)?;
        self.put(self.place(hash))
    }

    fn insert_batch(
        &mut self,
        hashes: &[ItemHash],
        outcomes: &mut Vec<Insertion>,
    ) -> Result<(), InsertError> {
        outcomes.clear();
        check_all_in_range(self.shape.range(), hashes)?;
        outcomes.reserve(hashes.len());
        for (at, &hash) in hashes.iter().enumerate() {
            self.prefetch_ahead(hashes, at);
            outcomes.push(self.put(self.place(hash))?);
        }
        Ok(())
    }
}

impl Remove for Cuckoo {
    fn remove(&mut self, hash: ItemHash) -> Result<Removal, OutOfRange> {
        check_in_range(self.shape.range(), hash)?;
        let place = self.place(hash);
        match self.count(place) {
            0 => return Ok(Removal::Absent),
            CUCKOO_COPIES_MAX.. => {}
            _ => self.free(place),
        }
        Ok(Removal::Removed)
    }
}

impl Describe for Cuckoo {
    fn shape(&self) -> Shape {
        self.shape.into()
    }

    /// The items are counted, each as often as it was inserted and not removed.
    fn describe(&self) -> Description {
        let one_count = self.item_count;
        Description {
            shape: self.shape.into(),
            memory_bytes: self.shape.memory_bytes(),
            position_count: self.shape.position_count(),
            one_count,
            item_count: Some(Estimate { item_count: one_count as f64, standard_error: 0.0 }),
            false_positive_rate: self.shape.false_positive_rate(one_count),
        }
    }
}
