//! Inserts, questions and removals, compiled for the processor's instructions for bits.

use super::Quotient;
use super::page::{Place, Put, Taken};
use crate::bits::{BitLoop, Select, wide};
use crate::capability::{InsertError, Insertion};
use crate::hash::ItemHash;

/// How many items ahead of the current one a batch prefetches.
const PREFETCH_DISTANCE: usize = 24;

/// How far behind its quotient an item is looked for ahead of time: its mean distance at 0.9 of the capacity.
const DISTANCE: usize = 5;

struct Find<'a>(&'a Quotient, ItemHash);

impl BitLoop for Find<'_> {
    type Output = Option<u64>;

    #[inline(always)]
    fn run(self, select: impl Select) -> Option<u64> {
        self.0.value(self.1, select)
    }
}

struct FindBatch<'a>(&'a Quotient, &'a [ItemHash], &'a mut Vec<bool>);

impl BitLoop for FindBatch<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, select: impl Select) {
        let Self(filter, hashes, present) = self;
        let range = filter.shape.range();
        present.clear();
        present.reserve(hashes.len());
        // Not by an iterator's loop, which is a function of its own and compiled for any processor.
        for (at, &hash) in hashes.iter().enumerate() {
            filter.prefetch_ahead(hashes, at);
            present.push(range.contains(hash.hi()) && filter.value(hash, select).is_some());
        }
    }
}

struct PutOne<'a>(&'a mut Quotient, ItemHash);

impl BitLoop for PutOne<'_> {
    type Output = Put;

    #[inline(always)]
    fn run(self, select: impl Select) -> Put {
        self.0.put_one(self.1, select)
    }
}

struct PutBatch<'a> {
    filter: &'a mut Quotient,
    hashes: &'a [ItemHash],
    outcomes: &'a mut Vec<Insertion>,
    /// Gets what was not there as often as can be counted.
    changed: Option<&'a mut Vec<ItemHash>>,
}

impl BitLoop for PutBatch<'_> {
    type Output = Result<(), InsertError>;

    #[inline(always)]
    fn run(mut self, select: impl Select) -> Result<(), InsertError> {
        self.outcomes.reserve(self.hashes.len());
        for (at, &hash) in self.hashes.iter().enumerate() {
            self.filter.prefetch_ahead(self.hashes, at);
            let put = self.filter.put_one(hash, select);
            self.outcomes.push(self.filter.outcome_of(put)?);
            if let Some(changed) = &mut self.changed
                && put != Put::Sticky
            {
                changed.push(hash);
            }
        }
        Ok(())
    }
}

struct Take<'a>(&'a mut Quotient, ItemHash);

impl BitLoop for Take<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, select: impl Select) {
        let Self(filter, hash) = self;
        let ((page, place), layout) = (filter.place(hash), filter.layout);
        let taken = layout.take(filter.page_mut(page), place, select);
        let freed = u64::from(taken == Taken::Slot);
        filter.taken_count = filter.taken_count.saturating_sub(freed);
    }
}

impl Quotient {
    /// What is in the slot of an item of the range.
    #[inline]
    pub(super) fn find(&self, hash: ItemHash) -> Option<u64> {
        wide::with_bits(Find(self, hash))
    }

    /// Whether each item is there.
    pub(super) fn find_batch(&self, hashes: &[ItemHash], present: &mut Vec<bool>) {
        wide::with_bits(FindBatch(self, hashes, present));
    }

    /// Inserts an item of the range.
    #[inline]
    pub(super) fn put(&mut self, hash: ItemHash) -> Result<Insertion, InsertError> {
        let put = wide::with_bits(PutOne(self, hash));
        self.outcome_of(put)
    }

    /// Inserts items of the range up to the one that does not fit. `changed` gets those that were not sticky.
    pub(super) fn put_batch(
        &mut self,
        hashes: &[ItemHash],
        outcomes: &mut Vec<Insertion>,
        changed: Option<&mut Vec<ItemHash>>,
    ) -> Result<(), InsertError> {
        wide::with_bits(PutBatch { filter: self, hashes, outcomes, changed })
    }

    /// Takes a copy out, also of a position that has as many as can be counted.
    pub(super) fn take(&mut self, hash: ItemHash) {
        wide::with_bits(Take(self, hash));
    }

    #[inline(always)]
    fn value(&self, hash: ItemHash, select: impl Select) -> Option<u64> {
        let (page, place) = self.place(hash);
        self.layout.find(self.page(page), place, select)
    }

    #[inline(always)]
    fn put_one(&mut self, hash: ItemHash, select: impl Select) -> Put {
        let ((page, place), layout) = (self.place(hash), self.layout);
        let put = layout.put(self.page_mut(page), place, select);
        self.taken_count += u64::from(put == Put::New);
        put
    }

    /// What an insert says.
    #[inline(always)]
    fn outcome_of(&self, put: Put) -> Result<Insertion, InsertError> {
        match put {
            Put::New => Ok(Insertion::New),
            Put::Copied | Put::Sticky => Ok(Insertion::Present),
            Put::Full => Err(InsertError::Full { item_count: self.taken_count }),
        }
    }

    /// Prefetches the block of the item that is [`PREFETCH_DISTANCE`] after `at`, and the line where its slot is likely.
    #[inline(always)]
    fn prefetch_ahead(&self, hashes: &[ItemHash], at: usize) {
        if wide::is_far(self.bits.lines())
            && let Some(&ahead) = hashes.get(at + PREFETCH_DISTANCE)
            && self.shape.range().contains(ahead.hi())
        {
            let (page, Place { quotient, .. }) = self.place(ahead);
            let base = page * self.layout.page_words;
            wide::prefetch_far(self.words(), base + quotient / 64 / 8);
            wide::prefetch_far(self.words(), base + self.layout.block_word(quotient / 64));
            wide::prefetch_far(self.words(), base + self.layout.slot_word(quotient + DISTANCE));
        }
    }
}
