//! Window: the items of the last slices of time, in one table for any number of slices.
//!
//! A table of fingerprints as in a cuckoo filter (Fan, Andersen, Kaminsky & Mitzenmacher 2014,
//! doi:10.1145/2674005.2674994), each with the number of the slice of time that it came in:
//!
//! ```text
//! block      │ bucket 0 │ bucket 1 │ …       of up to 2^17 slots, of which an item has two buckets
//! bucket     │ slot │ slot │ slot │ slot │
//! slot       │ fingerprint, f bits │ slice modulo 64, 6 bits │      fingerprint 0: the slot is free
//! ```
//!
//! An item is present if its fingerprint is in one of its buckets. When time moves on, slots of
//! slices that end become free. Compared with a ring of S + 1 Bloom filters, one per slice, each of
//! rate p/(S + 1): a query reads two buckets instead of S + 1 blocks; memory is the same or less
//! (the table of [`sizing::window_size`](crate::sizing::window_size)); a slice may have any share of
//! the items; and an item that is inserted again in a later slice takes no more memory.
//!
//! The price: the table holds the planned number of items and a few percent more, and then refuses
//! inserts; it never forgets early.
//!
//! *Numbers of slices* are the caller's, whatever unit they have. The window holds slices from
//! [`oldest`](Window::oldest) to one beyond [`newest`](Window::newest), for items whose clock runs
//! ahead, at most [`WINDOW_SLICES_MAX`] in all.
//!
//! *Equal histories, equal tables.* The slot of an item depends only on the table's content and the
//! item's hash, so replicas that do the same in the same order have the same words.

use crate::bits::{BitArray, wide};
use crate::capability::{
    Contains, Describe, Description, Insert, InsertError, Insertion, check_all_in_range,
    check_in_range,
};
use crate::hash::ItemHash;
use crate::kind::Kind;
use crate::range::HashRange;
use crate::shape::{BlockShape, CreateError, Shape};
use crate::sizing::{Estimate, SLICE_BITS};
use crate::slots::{BUCKET_SLOTS, Place, Slot, Slots};
use crate::spread::{INCREMENT, MULTIPLIER};

mod join;
mod load;
mod places;
#[cfg(test)]
mod window_test;

use places::Places;

/// Most slices that a window can tell apart, with the one ahead of the newest: six bits of a slot.
pub const WINDOW_SLICES_MAX: u64 = TAGS as u64;

/// Values of the six bits.
const TAGS: usize = 64;

/// Most items that are moved to make room for one. Fan et al. 2014 move as many; a table at its
/// planned load needs a few.
const MOVES_MAX: usize = 500;

/// Most slices that are freed by one pass over the table each. For more, one pass that examines every
/// slot is quicker: it takes as long as five of the others.
const PASSES_MAX: usize = 4;

/// How many items ahead of the current one a batch prefetches.
const PREFETCH_DISTANCE: usize = 16;

/// What happens to an item that is present from an earlier slice.
///
/// ```
/// use umbel_filter::Sighting;
///
/// assert_ne!(Sighting::First, Sighting::Last);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sighting {
    /// It stays in its slice: the window counts from the first time that it came.
    First,
    /// It moves to the later slice: the window counts from the last time that it came.
    Last,
}

/// A window over a hash range.
///
/// ```
/// use umbel_filter::{Contains, HashRange, Insertion, ItemHasher, Sighting, Window};
///
/// let alice = ItemHasher::Xxh3 { seed: 7 }.hash(b"alice");
/// let mut seen = Window::for_rate(HashRange::WHOLE, 1_000, 0.01)?;
/// seen.advance(100, 124);
/// assert_eq!(seen.insert_at(alice, 124, Sighting::First)?, Insertion::New);
/// seen.advance(124, 148);
/// assert_eq!(seen.insert_at(alice, 148, Sighting::First)?, Insertion::Present);
/// seen.advance(125, 149); // Slice 124 ends, and what came first in it.
/// assert!(!seen.contains(alice));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Window {
    shape: BlockShape,
    slots: Slots,
    places: Places,
    bits: BitArray,
    oldest: u64,
    newest: u64,
    /// Slots that are taken, by their slice modulo 64.
    counts: Box<[u64; TAGS]>,
}

impl Window {
    /// The smallest empty window that holds `item_count` items of the range, in all its slices
    /// together, at this `false_positive_rate`.
    ///
    /// # Errors
    /// If there are no items, no window has such a rate, or there is no memory.
    pub fn for_rate(
        range: HashRange,
        item_count: u64,
        false_positive_rate: f64,
    ) -> Result<Self, CreateError> {
        let kind = Kind::Window;
        Self::with_shape(BlockShape::for_rate(kind, range, item_count, false_positive_rate)?)
    }

    /// An empty window of this shape, whose oldest and newest slice is 0.
    ///
    /// # Errors
    /// If the shape is another kind's, or there is no memory.
    pub fn with_shape(shape: BlockShape) -> Result<Self, CreateError> {
        shape.check_kind(Kind::Window)?;
        let bits = BitArray::new(shape.memory_bytes() / 64)?;
        let (slots, places) = (slots_of(shape), Places::new(shape));
        Ok(Self { shape, slots, places, bits, oldest: 0, newest: 0, counts: Box::new([0; TAGS]) })
    }

    /// The filter's shape.
    #[must_use]
    pub const fn block_shape(&self) -> BlockShape {
        self.shape
    }

    /// The oldest slice that is kept.
    #[must_use]
    pub const fn oldest(&self) -> u64 {
        self.oldest
    }

    /// The slice at hand.
    #[must_use]
    pub const fn newest(&self) -> u64 {
        self.newest
    }

    /// Number of items in the window, as far as they can be told apart.
    #[must_use]
    pub fn item_count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Number of items whose slice is this one.
    #[must_use]
    pub fn slice_item_count(&self, slice: u64) -> u64 {
        let is_kept = (self.oldest..=self.ahead()).contains(&slice);
        if is_kept { self.counts[tag_index(slice)] } else { 0 }
    }

    /// The slots' words. Slot i has the f + 6 bits from i · (f + 6) on, bit j of which is bit j mod 64
    /// of word ⌊j / 64⌋; the fingerprint is in the lower f.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        self.bits.words()
    }

    /// Changes words, whatever they were, and counts the items anew.
    pub fn rewrite(&mut self, change: impl FnOnce(&mut [u64])) {
        change(self.bits.words_mut());
        self.recount();
    }

    /// Advances the window: items in slices before `oldest` are forgotten. Neither end ever moves
    /// back, and the older end advances too if more than [`WINDOW_SLICES_MAX`] slices would be kept.
    pub fn advance(&mut self, oldest: u64, newest: u64) {
        let newest = newest.max(self.newest).min(u64::MAX - WINDOW_SLICES_MAX);
        let least = (newest + 2).saturating_sub(WINDOW_SLICES_MAX);
        let oldest = oldest.max(self.oldest).max(least).min(newest);
        let ends = |slice: u64| slice < oldest && self.counts[tag_index(slice)] > 0;
        if (self.oldest..=self.ahead()).any(ends) {
            self.take_out(|slice| slice < oldest);
        }
        (self.oldest, self.newest) = (oldest, newest);
    }

    /// Takes all items out; the slices stay.
    pub fn clear(&mut self) {
        self.bits.words_mut().fill(0);
        self.counts.fill(0);
    }

    /// Inserts an item into a slice. A slice before the window counts as its oldest one, a slice after
    /// it as the one ahead of its newest one.
    ///
    /// # Errors
    /// If the item lies outside the hash range, or the window is full. Nothing was changed.
    pub fn insert_at(
        &mut self,
        hash: ItemHash,
        slice: u64,
        sighting: Sighting,
    ) -> Result<Insertion, InsertError> {
        check_in_range(self.shape.range(), hash)?;
        self.put(self.place(hash), slice.clamp(self.oldest, self.ahead()), sighting, hash)
    }

    /// The same one after the other, with one outcome an item; `outcomes` is emptied first.
    ///
    /// # Errors
    /// If an item lies outside the hash range: nothing was changed. If the window is full: `outcomes`
    /// holds the outcomes of the items that were inserted before.
    pub fn insert_batch_at(
        &mut self,
        hashes: &[ItemHash],
        slice: u64,
        sighting: Sighting,
        outcomes: &mut Vec<Insertion>,
    ) -> Result<(), InsertError> {
        outcomes.clear();
        check_all_in_range(self.shape.range(), hashes)?;
        let slice = slice.clamp(self.oldest, self.ahead());
        outcomes.reserve(hashes.len());
        for (at, &hash) in hashes.iter().enumerate() {
            self.prefetch_ahead(hashes, at);
            outcomes.push(self.put(self.place(hash), slice, sighting, hash)?);
        }
        Ok(())
    }

    /// The slice of an item, if it is present.
    #[must_use]
    pub fn slice_of(&self, hash: ItemHash) -> Option<u64> {
        if !self.shape.range().contains(hash.hi()) {
            return None;
        }
        let at = self.find(self.place(hash))?;
        Some(self.slice(self.slots.get(self.words(), at).tag))
    }

    /// The last slice that is kept, one ahead of the newest.
    const fn ahead(&self) -> u64 {
        self.newest + 1
    }

    /// The slice that a tag stands for: the last one up to the one ahead.
    const fn slice(&self, tag: u64) -> u64 {
        let ahead = self.ahead();
        ahead.saturating_sub(ahead.wrapping_sub(tag) % WINDOW_SLICES_MAX)
    }

    #[inline]
    fn place(&self, hash: ItemHash) -> Place {
        self.places.place(crate::bits::index(self.shape.map().block(hash.hi())), hash)
    }

    /// The slot of a fingerprint.
    #[inline]
    fn find(&self, Place { buckets, fingerprint }: Place) -> Option<usize> {
        let words = self.words();
        buckets.into_iter().find_map(|first| self.slots.find(words, first, fingerprint))
    }

    /// Puts an item into a slice that is kept; where it has to make room, the hash decides how.
    fn put(
        &mut self,
        place: Place,
        slice: u64,
        sighting: Sighting,
        hash: ItemHash,
    ) -> Result<Insertion, InsertError> {
        let tag = slice % WINDOW_SLICES_MAX;
        let new = Slot { fingerprint: place.fingerprint, tag };
        if let Some(at) = self.find(place) {
            let old = self.slots.get(self.words(), at);
            if sighting == Sighting::Last && self.slice(old.tag) < slice {
                self.counts[tag_index(old.tag)] -= 1;
                self.counts[tag_index(tag)] += 1;
                self.slots.set(self.bits.words_mut(), at, new);
            }
            return Ok(Insertion::Present);
        }
        let free = place.buckets.into_iter().find_map(|first| self.free_slot(first));
        match free {
            Some(at) => self.slots.set(self.bits.words_mut(), at, new),
            None => self.make_room(place, new, hash)?,
        }
        self.counts[tag_index(tag)] += 1;
        Ok(Insertion::New)
    }

    fn free_slot(&self, first: usize) -> Option<usize> {
        self.slots.find(self.words(), first, Slot::FREE.fingerprint)
    }

    /// Puts an item into a taken slot, moves the item from there to its other bucket in the same way,
    /// and so on until a slot is free. The hash decides which slots, so all replicas do the same.
    fn make_room(&mut self, place: Place, new: Slot, hash: ItemHash) -> Result<(), InsertError> {
        let mut dice = hash.lo() | 1;
        let mut bucket = place.buckets[usize::from(hash.hi() & 1 == 1)];
        let (mut carried, mut moved) = (new, Vec::new());
        for _ in 0..MOVES_MAX {
            dice = dice.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
            let at = bucket + crate::bits::index(dice >> 62) % BUCKET_SLOTS;
            let other = self.slots.get(self.words(), at);
            self.slots.set(self.bits.words_mut(), at, carried);
            moved.push((at, other));
            carried = other;
            bucket = self.places.other_bucket(bucket, carried.fingerprint);
            if let Some(free) = self.free_slot(bucket) {
                self.slots.set(self.bits.words_mut(), free, carried);
                return Ok(());
            }
        }
        for (at, other) in moved.into_iter().rev() {
            self.slots.set(self.bits.words_mut(), at, other);
        }
        Err(InsertError::Full { item_count: self.item_count() })
    }

    /// Frees the slots of slices.
    ///
    /// Usually one slice ends: its tag is compared with all slots of a bucket at once. If a few end
    /// together, there is one such pass over the table for each.
    fn take_out(&mut self, is_out: impl Fn(u64) -> bool) {
        let gone: [bool; TAGS] = std::array::from_fn(|tag| is_out(self.slice(tag as u64)));
        let ended = |tag: &usize| gone[*tag] && self.counts[*tag] > 0;
        let ended: Vec<usize> = (0..TAGS).filter(ended).collect();
        for &tag in &ended {
            self.counts[tag] = 0;
        }
        if self.item_count() == 0 {
            self.bits.words_mut().fill(0);
            return;
        }
        let slot_count = crate::bits::index(self.shape.position_count());
        let (slots, words) = (self.slots, self.bits.words_mut());
        if slots.are_compared_at_once() && ended.len() <= PASSES_MAX {
            for tag in ended {
                slots.free_tagged(words, slot_count, tag as u64);
            }
            return;
        }
        for at in 0..slot_count {
            let slot = slots.get(words, at);
            if !slot.is_free() && gone[tag_index(slot.tag)] {
                slots.set(words, at, Slot::FREE);
            }
        }
    }

    fn recount(&mut self) {
        self.counts.fill(0);
        for at in 0..crate::bits::index(self.shape.position_count()) {
            let slot = self.slots.get(self.bits.words(), at);
            self.counts[tag_index(slot.tag)] += u64::from(!slot.is_free());
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

/// How a window of this shape packs its slots.
const fn slots_of(shape: BlockShape) -> Slots {
    Slots::new(shape.probe_count(), SLICE_BITS)
}

/// Where a slice, or a tag, is counted.
#[inline]
const fn tag_index(slice: u64) -> usize {
    crate::bits::index(slice % WINDOW_SLICES_MAX)
}

impl Contains for Window {
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

/// Into the newest slice; what is present stays in its slice.
impl Insert for Window {
    fn insert(&mut self, hash: ItemHash) -> Result<Insertion, InsertError> {
        self.insert_at(hash, self.newest, Sighting::First)
    }

    fn insert_batch(
        &mut self,
        hashes: &[ItemHash],
        outcomes: &mut Vec<Insertion>,
    ) -> Result<(), InsertError> {
        self.insert_batch_at(hashes, self.newest, Sighting::First, outcomes)
    }
}

impl Describe for Window {
    fn shape(&self) -> Shape {
        self.shape.into()
    }

    fn describe(&self) -> Description {
        let one_count = self.item_count();
        let false_positive_rate = self.shape.false_positive_rate(one_count);
        // Items that fell on another one's fingerprint, at half of the rate on average, are not counted.
        let item_count = one_count as f64 * (1.0 + false_positive_rate / 2.0);
        let standard_error = (one_count as f64 * false_positive_rate / 2.0).sqrt();
        Description {
            shape: self.shape.into(),
            memory_bytes: self.shape.memory_bytes(),
            position_count: self.shape.position_count(),
            one_count,
            item_count: Some(Estimate { item_count, standard_error }),
            false_positive_rate,
        }
    }
}
