//! How a page of a quotient filter lies in memory, and how its slots are read and moved.
//!
//! ```text
//! page    │ offsets, a byte a block │ block │ block │ …        Q/64 blocks, and 1 to 4 spare ones
//! block   │ occupieds, 64 bits │ runends, 64 bits │ 64 slots of w bits │
//! slot    │ copies − 1, v bits │ remainder, r bits │             w = v + r, the remainder in the upper bits
//! ```
//!
//! 64 slots of w bits are w words, so every block begins with a word. Offsets stand apart: those of 10^7
//! items are 160 KiB, which stay in a cache while blocks do not.

use crate::lanes::LINE_BITS;
use crate::shape::BlockShape;

/// Slots of a block, and quotients: as many as a word has bits.
pub(crate) const BLOCK_SLOTS: usize = 64;

/// Words of a block before its slots.
const HEAD_WORDS: usize = 2;

/// Largest offset: what a byte holds.
pub(crate) const OFFSET_MAX: usize = 255;

/// The sizes of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    /// Quotients of a page, a power of two from 64 on.
    pub(crate) quotient_count: usize,
    /// Blocks, spare ones too.
    pub(crate) block_count: usize,
    /// Bits of a remainder, r.
    pub(crate) remainder_bits: u32,
    /// Bits of a count, v.
    pub(crate) count_bits: u32,
    /// Words of the offsets.
    offset_words: usize,
    /// Words of a block.
    block_words: usize,
    /// Words of a page, whole lines.
    pub(crate) page_words: usize,
}

impl Layout {
    pub(crate) const fn new(shape: BlockShape) -> Self {
        Self::of(shape.block_bits(), shape.probe_count(), shape.count_bits())
    }

    pub(crate) const fn of(quotient_count: u32, remainder_bits: u32, count_bits: u32) -> Self {
        let quotient_count = quotient_count as usize;
        let block_count = quotient_count / BLOCK_SLOTS + spare_blocks(quotient_count);
        let offset_words = block_count.div_ceil(8);
        let block_words = HEAD_WORDS + (remainder_bits + count_bits) as usize;
        let words = offset_words + block_count * block_words;
        let page_words = words.next_multiple_of(LINE_BITS as usize / 64);
        Self {
            quotient_count,
            block_count,
            remainder_bits,
            count_bits,
            offset_words,
            block_words,
            page_words,
        }
    }

    /// Cache lines of a page.
    pub(crate) const fn page_lines(shape: BlockShape) -> u64 {
        (Self::new(shape).page_words / (LINE_BITS as usize / 64)) as u64
    }

    /// Slots of a page, spare ones too.
    #[inline(always)]
    pub(crate) const fn slot_count(self) -> usize {
        self.block_count * BLOCK_SLOTS
    }

    /// What a count may be: copies less one.
    #[inline(always)]
    pub(crate) const fn count_mask(self) -> u64 {
        (1 << self.count_bits) - 1
    }

    /// Bits of a slot.
    #[inline(always)]
    const fn slot_bits(self) -> usize {
        self.block_words - HEAD_WORDS
    }

    /// The block's first word, which is that of its occupieds.
    #[inline(always)]
    pub(crate) const fn block_word(self, block: usize) -> usize {
        self.offset_words + block * self.block_words
    }

    /// The word in which a slot begins.
    #[inline(always)]
    pub(crate) const fn slot_word(self, slot: usize) -> usize {
        let (block, slot) = (slot / BLOCK_SLOTS, slot % BLOCK_SLOTS);
        self.block_word(block) + HEAD_WORDS + slot * self.slot_bits() / 64
    }

    /// Which quotients of the block have a run.
    #[inline(always)]
    pub(crate) fn occupieds(self, words: &[u64], block: usize) -> u64 {
        words[self.block_word(block)]
    }

    /// Which slots of the block are the last of a run.
    #[inline(always)]
    pub(crate) fn runends(self, words: &[u64], block: usize) -> u64 {
        words[self.block_word(block) + 1]
    }

    /// How many slots from the block's first on are taken by quotients of earlier blocks.
    #[inline(always)]
    pub(crate) fn offset(self, words: &[u64], block: usize) -> usize {
        usize::from(words[block / 8].to_le_bytes()[block % 8])
    }

    /// Adds one to an offset that is below [`OFFSET_MAX`].
    #[inline(always)]
    pub(crate) fn raise_offset(self, words: &mut [u64], block: usize) {
        words[block / 8] = words[block / 8].wrapping_add(1 << (block % 8 * 8));
    }

    /// Takes one from an offset above 0.
    pub(crate) fn lower_offset(self, words: &mut [u64], block: usize) {
        if self.offset(words, block) > 0 {
            words[block / 8] -= 1 << (block % 8 * 8);
        }
    }

    #[inline(always)]
    pub(crate) fn set_occupied(self, words: &mut [u64], quotient: usize, is_set: bool) {
        set_bit(&mut words[self.block_word(quotient / 64)], quotient % 64, is_set);
    }

    #[inline(always)]
    pub(crate) fn set_runend(self, words: &mut [u64], slot: usize, is_set: bool) {
        set_bit(&mut words[self.block_word(slot / 64) + 1], slot % 64, is_set);
    }

    /// What is in a slot.
    #[inline(always)]
    pub(crate) fn get(self, words: &[u64], slot: usize) -> u64 {
        let width = self.slot_bits();
        let bit = slot % BLOCK_SLOTS * width;
        let word = self.block_word(slot / BLOCK_SLOTS) + HEAD_WORDS + bit / 64;
        let lower = words[word] >> (bit % 64);
        // Of a slot that ends with its word, what comes from the next one is masked.
        let next = words.get(word + 1).copied().unwrap_or_default();
        let upper = (next << 1) << (63 - bit % 64);
        (lower | upper) & ((1 << width) - 1)
    }

    #[inline(always)]
    pub(crate) fn set(self, words: &mut [u64], slot: usize, value: u64) {
        let width = self.slot_bits();
        let bit = slot % BLOCK_SLOTS * width;
        let word = self.block_word(slot / BLOCK_SLOTS) + HEAD_WORDS + bit / 64;
        let (shift, mask) = (bit % 64, (1 << width) - 1);
        words[word] = words[word] & !(mask << shift) | value << shift;
        if shift + width > 64 {
            let taken = 64 - shift;
            words[word + 1] = words[word + 1] & !(mask >> taken) | value >> taken;
        }
    }

    /// Moves what is in the slots from `first` up to `free` one further, slot by slot and with the ends of
    /// runs; then `first` has this value, and ends no run.
    #[inline(always)]
    pub(crate) fn open(self, words: &mut [u64], first: usize, free: usize, value: u64) {
        for block in (first / 64..=free / 64).rev() {
            let from = if block == first / 64 { first % 64 } else { 0 };
            let to = if block == free / 64 { free % 64 } else { 63 };
            self.shift_up(words, block, from, to);
            // What was in the block's last slot went to the next block before.
            if block > first / 64 {
                let below = self.block_word(block - 1) + 1;
                let moved = self.get(words, block * 64 - 1);
                let was_end = words[below] >> 63 == 1;
                self.set(words, block * 64, moved);
                self.set_runend(words, block * 64, was_end);
            }
        }
        self.set(words, first, value);
        self.set_runend(words, first, false);
    }

    /// Moves what is in the slots after `first` up to `last` one back, with the ends of runs; then `last` is
    /// free.
    pub(crate) fn close(self, words: &mut [u64], first: usize, last: usize) {
        for block in first / 64..=last / 64 {
            let from = if block == first / 64 { first % 64 } else { 0 };
            let to = if block == last / 64 { last % 64 } else { 63 };
            self.shift_down(words, block, from, to);
            let end = block * 64 + to;
            let next = if block < last / 64 {
                let is_end = self.runends(words, block + 1) & 1 == 1;
                (self.get(words, end + 1), is_end)
            } else {
                (0, false)
            };
            self.set(words, end, next.0);
            self.set_runend(words, end, next.1);
        }
    }

    /// Slots `from` up to `to`, which is below 64, go one up inside their block.
    #[inline(always)]
    fn shift_up(self, words: &mut [u64], block: usize, from: usize, to: usize) {
        let head = self.block_word(block);
        let moved = bits_between(from, to);
        let ends = words[head + 1];
        words[head + 1] = ends & !(moved | moved << 1) | (ends & moved) << 1;
        let width = self.slot_bits();
        let slots = &mut words[head + HEAD_WORDS..][..width];
        // The bits that are written.
        let (first, end) = ((from + 1) * width, (to + 1) * width);
        if first >= end {
            return;
        }
        let (first_word, last_word) = (first / 64, (end - 1) / 64);
        for word in (first_word..=last_word).rev() {
            let below = if word > 0 { slots[word - 1] >> (64 - width) } else { 0 };
            let new = slots[word] << width | below;
            let mask = mask_of(word, first, end);
            slots[word] = slots[word] & !mask | new & mask;
        }
    }

    /// Slots after `from` up to `to` go one down inside their block.
    fn shift_down(self, words: &mut [u64], block: usize, from: usize, to: usize) {
        let head = self.block_word(block);
        let moved = bits_between(from, to) << 1;
        let ends = words[head + 1];
        words[head + 1] = ends & !(moved | moved >> 1) | (ends & moved) >> 1;
        let width = self.slot_bits();
        let slots = &mut words[head + HEAD_WORDS..][..width];
        let (first, end) = (from * width, to * width);
        if first >= end {
            return;
        }
        for word in first / 64..=(end - 1) / 64 {
            let above = slots.get(word + 1).map_or(0, |above| above << (64 - width));
            let new = slots[word] >> width | above;
            let mask = mask_of(word, first, end);
            slots[word] = slots[word] & !mask | new & mask;
        }
    }
}

/// Spare blocks behind the quotients of a page, for runs that are pushed over its end. At a load of 0.94 more
/// than x slots are with a chance of e^(−x/8), and less in a page that is short: 64 are eight standard
/// deviations of pages of 256, and so on.
const fn spare_blocks(quotient_count: usize) -> usize {
    if quotient_count <= 256 {
        1
    } else if quotient_count <= 4_096 {
        2
    } else {
        4
    }
}

/// Bits `from` up to `to`, which is below 64.
#[inline(always)]
const fn bits_between(from: usize, to: usize) -> u64 {
    ((1 << to) - 1) & (u64::MAX << from)
}

/// The bits of a word, counted over all words, that lie in `first..end`, of which it has some.
#[inline(always)]
fn mask_of(word: usize, first: usize, end: usize) -> u64 {
    let from = first.saturating_sub(word * 64);
    let to = (end - word * 64).min(64);
    (u64::MAX >> (64 - to)) & (u64::MAX << from)
}

#[inline(always)]
fn set_bit(word: &mut u64, bit: usize, is_set: bool) {
    *word = *word & !(1 << bit) | u64::from(is_set) << bit;
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The slow twin: lists of values and of ends.
        #[test]
        fn slots_are_a_list(
            bits in (1..=40_u32, 0..=16_u32), seeds in vec(any::<u64>(), 192),
            places in (0..191_usize, 0..191_usize), value: u64, opens: bool,
        ) {
            let layout = Layout::of(128, bits.0, bits.1);
            prop_assert_eq!(layout.slot_count(), 192);
            let mask = u64::MAX >> (64 - bits.0 - bits.1);
            let (first, last) = (places.0.min(places.1), places.0.max(places.1));
            let mut words = vec![0; layout.page_words];
            let mut twin: Vec<(u64, bool)> = seeds.iter().map(|seed| (seed & mask, seed >> 63 == 1)).collect();
            for (slot, &(value, is_end)) in twin.iter().enumerate() {
                layout.set(&mut words, slot, value);
                layout.set_runend(&mut words, slot, is_end);
            }
            if opens {
                layout.open(&mut words, first, last, value & mask);
                twin.remove(last);
                twin.insert(first, (value & mask, false));
            } else {
                layout.close(&mut words, first, last);
                twin.remove(first);
                twin.insert(last, (0, false));
            }
            for (slot, expected) in twin.into_iter().enumerate() {
                let is_end = layout.runends(&words, slot / 64) >> (slot % 64) & 1 == 1;
                prop_assert_eq!((layout.get(&words, slot), is_end), expected, "slot {}", slot);
            }
        }
    }

    /// Never to change: a page of 2^16 quotients, 7 bits of remainder and 2 of a count takes 131 words of
    /// offsets, and 1,028 blocks of 11 words.
    #[test]
    fn golden_sizes() {
        let layout = Layout::of(1 << 16, 7, 2);
        assert_eq!(layout.block_count, 1_028);
        assert_eq!(layout.offset_words, 129);
        assert_eq!(layout.page_words, (129_usize + 1_028 * 11).next_multiple_of(8));
        assert_eq!(layout.slot_word(64), 129 + 11 + 2);
        assert_eq!(Layout::of(64, 4, 0).page_words, 16);
    }
}
