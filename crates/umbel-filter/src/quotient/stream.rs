//! A page as a sorted stream: what it holds by ascending position, and a page of such a stream.
//!
//! Where an item lies depends on what else is in the page and not on what came first, so a page that is
//! filled in order is the page that inserts in any order make. That makes merging two streams and growing
//! one pass each.

use super::Quotient;
use super::page::Place;
use crate::bits::index;
use crate::quotient_layout::{BLOCK_SLOTS, Layout, OFFSET_MAX};

impl Quotient {
    /// What it holds by ascending position over the whole hash space, which stays as the filter grows, with copies
    /// less one.
    pub(super) fn counted_positions(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (layout, remainder_bits) = (self.layout, self.layout.remainder_bits);
        (self.shape.map().first_block()..).zip(self.pages()).flat_map(move |(page, words)| {
            PageItems::new(layout, words).map(move |(place, count)| {
                let quotient = page * layout.quotient_count as u64 + place.quotient as u64;
                (quotient << remainder_bits | place.remainder, count)
            })
        })
    }

    /// Fills an empty filter with such items; None if there is no room for all.
    pub(super) fn fill(&mut self, mut items: impl Iterator<Item = (u64, u64)>) -> Option<()> {
        let (layout, first_page) = (self.layout, self.shape.map().first_block());
        let mut next = items.next();
        let pages = self.bits.words_mut().chunks_exact_mut(layout.page_words);
        for (page, words) in (first_page..).zip(pages) {
            let first = page * layout.quotient_count as u64;
            let mut builder = PageBuilder::new(layout, words);
            while let Some((position, count)) = next
                && let quotient = position >> layout.remainder_bits
                && quotient < first + layout.quotient_count as u64
            {
                let quotient = index(quotient.saturating_sub(first));
                let remainder = position & ((1 << layout.remainder_bits) - 1);
                builder.push(Place { quotient, remainder }, count)?;
                self.taken_count += 1;
                next = items.next();
            }
        }
        Some(())
    }
}

/// What a page holds: places, and copies less one, ascending.
pub(super) struct PageItems<'a> {
    layout: Layout,
    words: &'a [u64],
    /// The block whose quotients come next, and those of them that have not come.
    block: usize,
    occupieds: u64,
    quotient: usize,
    /// Slots of the run that have not come, and behind them the slot where the next one may begin.
    slot: usize,
    end: usize,
}

impl<'a> PageItems<'a> {
    pub(super) fn new(layout: Layout, words: &'a [u64]) -> Self {
        let occupieds = layout.occupieds(words, 0);
        Self { layout, words, block: 0, occupieds, quotient: 0, slot: 0, end: 0 }
    }

    /// Goes on to the next quotient that has a run.
    fn next_run(&mut self) -> Option<()> {
        while self.occupieds == 0 {
            self.block += 1;
            // Spare blocks have no quotients.
            if self.block * BLOCK_SLOTS >= self.layout.quotient_count {
                return None;
            }
            self.occupieds = self.layout.occupieds(self.words, self.block);
        }
        self.quotient = self.block * BLOCK_SLOTS + self.occupieds.trailing_zeros() as usize;
        self.occupieds &= self.occupieds - 1;
        self.slot = self.end.max(self.quotient);
        let mut keep = u64::MAX << (self.slot % 64);
        for block in self.slot / 64..self.layout.block_count {
            let ends = self.layout.runends(self.words, block) & keep;
            if ends != 0 {
                self.end = block * 64 + ends.trailing_zeros() as usize + 1;
                return Some(());
            }
            keep = u64::MAX;
        }
        None
    }
}

impl Iterator for PageItems<'_> {
    type Item = (Place, u64);

    fn next(&mut self) -> Option<Self::Item> {
        if self.slot == self.end && self.next_run().is_none() {
            // Words of no filter: nothing comes any more.
            (self.block, self.occupieds) = (self.layout.block_count, 0);
            (self.slot, self.end) = (0, 0);
            return None;
        }
        let value = self.layout.get(self.words, self.slot);
        self.slot += 1;
        let remainder = value >> self.layout.count_bits;
        let place = Place { quotient: self.quotient, remainder };
        Some((place, value & self.layout.count_mask()))
    }
}

/// An empty page that is filled in order.
pub(super) struct PageBuilder<'a> {
    layout: Layout,
    words: &'a mut [u64],
    /// The slot behind the last item.
    next: usize,
    last_quotient: Option<usize>,
}

impl<'a> PageBuilder<'a> {
    /// Of words that are zeros.
    pub(super) fn new(layout: Layout, words: &'a mut [u64]) -> Self {
        Self { layout, words, next: 0, last_quotient: None }
    }

    /// Puts an item behind all that came, with its copies less one; None if there is no room.
    pub(super) fn push(&mut self, place: Place, count: u64) -> Option<()> {
        let Self { layout, next, .. } = *self;
        let Place { quotient, remainder } = place;
        let slot = next.max(quotient);
        if slot >= layout.slot_count() {
            return None;
        }
        if self.last_quotient == Some(quotient) {
            layout.set_runend(self.words, slot - 1, false);
        } else {
            layout.set_occupied(self.words, quotient, true);
        }
        layout.set(self.words, slot, remainder << layout.count_bits | count);
        layout.set_runend(self.words, slot, true);
        for block in quotient / 64 + 1..=slot / 64 {
            if layout.offset(self.words, block) == OFFSET_MAX {
                return None;
            }
            layout.raise_offset(self.words, block);
        }
        (self.next, self.last_quotient) = (slot + 1, Some(quotient));
        Some(())
    }
}
