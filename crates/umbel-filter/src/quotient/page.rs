//! One page: where an item's slot is, and which slots an insert or a removal moves.
//!
//! ```text
//! quotients    0     1     2     3     4         a, b have quotient 1, c has 2, and d has 4
//! occupieds    0     1     1     0     1         whether a quotient has a run
//! slots        ·     a     b     c     d         each run by ascending remainders, as near to its quotient as may be
//! runends      0     0     1     1     1         the last slot of each run, in the order of quotients
//! ```
//!
//! The i-th quotient with a run has the i-th end of a run, so its run is found by counting. A block's offset
//! says how many of its slots earlier quotients take, so the count begins at the block.
//!
//! The words may have any value, because memory can be corrupted: answers are meaningless then, but every
//! loop ends, and stays inside the page.

use super::walk::{Eight, eight};
use crate::bits::Select;
use crate::planted::{self, TableBug};
use crate::quotient_layout::{BLOCK_SLOTS, Layout, OFFSET_MAX};

/// Where in a page an item belongs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    /// Number of its quotient in the page.
    pub(super) quotient: usize,
    /// Its remainder.
    pub(super) remainder: u64,
}

/// What an insert did to a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Put {
    /// A slot was taken.
    New,
    /// One more copy was counted.
    Copied,
    /// The item has as many copies as can be counted.
    Sticky,
    /// There is no room, and nothing was changed.
    Full,
}

/// What a removal did to a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    /// There is no such remainder.
    Absent,
    /// One copy less was counted.
    Copy,
    /// The last copy went, and its slot is free.
    Slot,
}

/// Slots of a run that is there, or would be.
#[derive(Clone, Copy)]
struct Run {
    first: usize,
    /// The slot behind its last one; `first` if there is no run.
    end: usize,
}

impl Layout {
    /// What is in the slot with an item's remainder.
    #[inline(always)]
    pub(super) fn find(self, words: &[u64], place: Place, select: impl Select) -> Option<u64> {
        self.slot_of(words, place, select).map(|(_, value)| value)
    }

    /// The slot with an item's remainder, and what is in it.
    #[inline(always)]
    fn slot_of(self, words: &[u64], place: Place, select: impl Select) -> Option<(usize, u64)> {
        let Place { quotient, remainder } = place;
        if self.occupieds(words, quotient / 64) >> (quotient % 64) & 1 == 0 {
            return None;
        }
        let Run { first, end } = self.run(words, quotient, select)?;
        let (slot, value) = self.search(words, first, end, remainder);
        (slot < end && value >> self.count_bits == remainder).then_some((slot, value))
    }

    /// Inserts one copy.
    #[inline(always)]
    pub(super) fn put(self, words: &mut [u64], place: Place, select: impl Select) -> Put {
        let Place { quotient, remainder } = place;
        let is_run = self.occupieds(words, quotient / 64) >> (quotient % 64) & 1 == 1;
        let Some(Run { first, end }) = self.run(words, quotient, select) else { return Put::Full };
        let (slot, value) = self.search(words, first, end, remainder);
        if slot < end && value >> self.count_bits == remainder {
            if value & self.count_mask() == self.count_mask() {
                return Put::Sticky;
            }
            self.set(words, slot, value + 1);
            return Put::Copied;
        }
        let free =
            self.free_slot(words, slot).filter(|&free| self.has_offsets(words, quotient, free));
        let Some(free) = free else { return Put::Full };
        let value = remainder << self.count_bits;
        let last = free - usize::from(planted::on(TableBug::ShiftsShort) && free > slot);
        if slot == last {
            self.set(words, slot, value);
        } else {
            self.open(words, slot, last, value);
        }
        if slot == end {
            if is_run {
                self.set_runend(words, end - 1, false);
            }
            self.set_runend(words, slot, true);
            self.set_occupied(words, quotient, true);
        }
        for block in quotient / 64 + 1..=free / 64 {
            self.raise_offset(words, block);
        }
        Put::New
    }

    /// Removes one of the copies that are counted.
    pub(super) fn take(self, words: &mut [u64], place: Place, select: impl Select) -> Taken {
        let Some((slot, value)) = self.slot_of(words, place, select) else { return Taken::Absent };
        if value & self.count_mask() > 0 {
            self.set(words, slot, value - 1);
            return Taken::Copy;
        }
        let quotient = place.quotient;
        let last = self.clear_slot(words, slot);
        let ends_run = self.runends(words, slot / 64) >> (slot % 64) & 1 == 1;
        if ends_run {
            let is_first = self.run(words, quotient, select).is_none_or(|run| run.first == slot);
            if is_first {
                self.set_occupied(words, quotient, false);
            } else {
                self.set_runend(words, slot - 1, true);
            }
        }
        self.close(words, slot, last);
        for block in quotient / 64 + 1..=last / 64 {
            self.lower_offset(words, block);
        }
        Taken::Slot
    }

    /// Slots that are taken.
    pub(super) fn taken_count(self, words: &[u64]) -> u64 {
        let mut balance = 0;
        let free = (0..self.block_count).flat_map(|block| {
            let (occupieds, runends) = (self.occupieds(words, block), self.runends(words, block));
            (0..64).step_by(8).map(move |bit| (occupieds >> bit, runends >> bit))
        });
        let free = free.map(|(occupieds, runends)| {
            let seen = eight(occupieds, runends, balance);
            balance = seen.balance;
            u64::from(seen.free.count_ones())
        });
        let free: u64 = free.sum();
        self.slot_count() as u64 - free
    }

    /// The run of a quotient; if it has none, the empty run where it would begin. None if that is after
    /// the page's end.
    #[inline(always)]
    fn run(self, words: &[u64], quotient: usize, select: impl Select) -> Option<Run> {
        let (block, bit) = (quotient / 64, quotient % 64);
        let occupieds = self.occupieds(words, block) << (63 - bit);
        let is_run = occupieds >> 63 == 1;
        // Runs of the block's quotients begin here, and the one looked for is the `rank`-th.
        let begin = block * BLOCK_SLOTS + self.offset(words, block);
        let mut rank = occupieds.count_ones();
        let mut first = begin;
        if rank == 0 {
            let first = first.max(quotient);
            return Some(Run { first, end: first });
        }
        let mut block = begin / 64;
        let mut keep = u64::MAX << (begin % 64);
        while block < self.block_count {
            let ends = self.runends(words, block) & keep;
            let at = select.select(ends, rank - 1);
            if at < 64 {
                let end = block * 64 + at as usize + 1;
                if !is_run {
                    let first = end.max(quotient);
                    return Some(Run { first, end: first });
                }
                let before = ends & !(u64::MAX << at);
                if before != 0 {
                    first = block * 64 + 64 - before.leading_zeros() as usize;
                }
                return Some(Run { first: first.max(quotient), end });
            }
            rank -= ends.count_ones();
            if ends != 0 {
                first = block * 64 + 64 - ends.leading_zeros() as usize;
            }
            block += 1;
            keep = u64::MAX;
        }
        None
    }

    /// The first slot of a run whose remainder is not below this one, and what is in it; `end` if there is none.
    #[inline(always)]
    fn search(self, words: &[u64], first: usize, end: usize, remainder: u64) -> (usize, u64) {
        let mut slot = first.min(end);
        while slot < end {
            let value = self.get(words, slot);
            if value >> self.count_bits >= remainder {
                return (slot, value);
            }
            slot += 1;
        }
        (end, 0)
    }

    /// The first free slot from this one on.
    #[inline(always)]
    fn free_slot(self, words: &[u64], slot: usize) -> Option<usize> {
        self.walk(words, slot, |seen| seen.free)
    }

    /// The first slot from this one on behind which nothing lies of quotients up to it; the page's last if
    /// there is none.
    fn clear_slot(self, words: &[u64], slot: usize) -> usize {
        self.walk(words, slot, |seen| seen.clear).unwrap_or(self.slot_count() - 1)
    }

    /// The first slot from this one on that is marked among its eight.
    #[inline(always)]
    fn walk(self, words: &[u64], slot: usize, marks: impl Fn(Eight) -> u64) -> Option<usize> {
        if slot >= self.slot_count() {
            return None;
        }
        let mut bit = slot % 64 / 8 * 8;
        let mut block = slot / 64;
        let mut balance = self.balance_before(words, block, bit);
        let mut keep = u64::MAX << (slot % 8 * 8);
        while block < self.block_count {
            let (occupieds, runends) = (self.occupieds(words, block), self.runends(words, block));
            while bit < 64 {
                let seen = eight(occupieds >> bit, runends >> bit, balance);
                let marked = marks(seen) & keep;
                if marked != 0 {
                    return Some(block * 64 + bit + marked.trailing_zeros() as usize / 8);
                }
                balance = seen.balance;
                keep = u64::MAX;
                bit += 8;
            }
            block += 1;
            bit = 0;
        }
        None
    }

    /// Runs of quotients before this one of a block less the ends of runs before the slot of the same
    /// number.
    #[inline(always)]
    fn balance_before(self, words: &[u64], block: usize, bit: usize) -> u64 {
        let below = (1 << bit) - 1;
        let begun = (self.occupieds(words, block) & below).count_ones();
        let ended = (self.runends(words, block) & below).count_ones();
        // The ends of runs that lie in the block and are those of earlier quotients.
        let mut over = 0;
        let mut slots = self.offset(words, block);
        for block in block..self.block_count {
            let runends = self.runends(words, block);
            if slots < 64 {
                over += (runends & ((1 << slots) - 1)).count_ones();
                break;
            }
            over += runends.count_ones();
            slots -= 64;
        }
        u64::from(over + begun).wrapping_sub(ended.into())
    }

    /// Whether every offset between a quotient and the slot that becomes taken can rise.
    #[inline(always)]
    fn has_offsets(self, words: &[u64], quotient: usize, free: usize) -> bool {
        (quotient / 64 + 1..=free / 64).all(|block| self.offset(words, block) < OFFSET_MAX)
    }
}
