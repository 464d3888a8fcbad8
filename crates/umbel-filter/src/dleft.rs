//! d-left counting filter: a table of short remainders with counts, where an insert touches four places and moves
//! nothing (Bonomi et al. 2006, doi:10.1007/11841036_61).
//!
//! A page has four subtables of 2^b buckets of eight cells; a cell has a remainder of r bits and a count of two. With
//! f the lower s = b + r bits of `lo`, place i is the number a_i · f mod 2^s, a_i odd: its upper b bits are the bucket in
//! subtable i, its lower r bits the remainder. Each place is a permutation of f, so two items that share bucket and
//! remainder at one place share all: **an f has one cell at most**, and removing it takes nothing of another.
//!
//! ```text
//! page       │ subtable 0      │ subtable 1      │ subtable 2      │ subtable 3      │
//! bucket     │ 0 │ 1 │ … │ 2^b−1 …                                                    eight cells each
//! cell       │ remainder, r bits │ count, 2 bits │                                    free if the count is 0
//! ```
//!
//! An insert raises the count where the remainder stands already, up to 3, where it sticks; else it takes a free cell of
//! the emptiest of the four buckets, the leftmost of equals. With all of them full the filter is full: it was never seen
//! below a load of 0.90, and [`for_rate`](DLeft::for_rate) plans for 0.85.
//!
//! It is a library type, no kind of the service: [`Cuckoo`](crate::Cuckoo) takes a third less. Its one virtue is what an
//! insert costs at worst.

use crate::bits::{BitArray, index};
use crate::block_map::BlockMap;
use crate::capability::{
    InsertError, Insertion, ItemByItem, OutOfRange, Removal, Remove, check_in_range, item_by_item,
};
use crate::hash::ItemHash;
use crate::range::HashRange;
use crate::shape::{CreateError, FILTER_BYTES_MAX, LINE_BITS, ShapeError};
use crate::sizing::{
    DLEFT_BUCKET_CELLS, DLEFT_PAGE_CELLS_MAX, DLEFT_PAGE_CELLS_MIN, DLEFT_REMAINDER_BITS_MAX,
    DLEFT_SUBTABLES, dleft_false_positive_rate, dleft_size,
};
use crate::slots::{Slot, Slots};

#[cfg(test)]
mod dleft_test;

/// Bits of a count.
const COUNT_BITS: u32 = 2;

/// Largest count, which it never leaves again.
const COUNT_MAX: u64 = 3;

/// Cells of a bucket, and subtables.
const BUCKET_CELLS: usize = DLEFT_BUCKET_CELLS as usize;
const SUBTABLES: usize = DLEFT_SUBTABLES as usize;

/// a_i: the first outputs of `SplitMix64` from state 0 (Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195), made odd. Never to
/// change: words that were kept depend on them.
const FACTORS: [u64; SUBTABLES] =
    [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f5, 0x06c4_5d18_8009_454f, 0xf88b_b8a8_724c_81ed];

/// A d-left counting filter over a hash range.
///
/// An insert of a present item raises its count: it must be removed as often, up to three times; then it stays.
///
/// ```
/// use umbel_filter::{Contains, DLeft, HashRange, Insert, ItemHasher, Removal, Remove};
///
/// let alice = ItemHasher::Xxh3 { seed: 7 }.hash(b"alice");
/// let mut online = DLeft::for_rate(HashRange::WHOLE, 1_000, 0.01)?;
/// online.insert(alice)?;
/// online.insert(alice)?;
/// assert_eq!(online.remove(alice)?, Removal::Removed);
/// assert!(online.contains(alice)); // Inserted twice, removed once.
/// assert_eq!(online.remove(alice)?, Removal::Removed);
/// assert_eq!(online.remove(alice)?, Removal::Absent);
/// // 12 bits of remainder and 2 of count in 2,048 cells, in whole lines.
/// assert_eq!(online.memory_bytes(), 2048 * 14 / 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DLeft {
    map: BlockMap,
    page_cells: u32,
    remainder_bits: u32,
    slots: Slots,
    cells: BitArray,
    item_count: u64,
}

/// A bucket by its first cell, and the remainder there.
type Place = (usize, u64);

impl DLeft {
    /// An empty filter of `page_count` pages over the whole hash space, of which it holds those of `range`. Each has
    /// `page_cells` cells, a power of two from [`DLEFT_PAGE_CELLS_MIN`] to [`DLEFT_PAGE_CELLS_MAX`]; remainders have 1 to
    /// [`DLEFT_REMAINDER_BITS_MAX`] bits.
    ///
    /// # Errors
    /// If the numbers are no shape, or there is no memory.
    pub fn new(
        range: HashRange,
        page_count: u64,
        page_cells: u32,
        remainder_bits: u32,
    ) -> Result<Self, CreateError> {
        let (step, block_bits_max) = (DLEFT_PAGE_CELLS_MIN, DLEFT_PAGE_CELLS_MAX);
        if !(step..=block_bits_max).contains(&page_cells) {
            let block_bits = page_cells;
            return Err(ShapeError::BlockBits { block_bits, step, block_bits_max }.into());
        }
        if !page_cells.is_power_of_two() {
            return Err(ShapeError::PageSlots { page_slots: page_cells }.into());
        }
        if !(1..=DLEFT_REMAINDER_BITS_MAX).contains(&remainder_bits) {
            let probe_count_max = DLEFT_REMAINDER_BITS_MAX;
            let probe_count = remainder_bits;
            return Err(ShapeError::ProbeCount { probe_count, probe_count_max }.into());
        }
        let map = BlockMap::new(range, page_count)?;
        let cell_bits = u128::from(remainder_bits + COUNT_BITS);
        let bits = u128::from(map.len()) * u128::from(page_cells) * cell_bits;
        let lines = bits.div_ceil(LINE_BITS.into());
        let bytes = lines * 64;
        let lines = u64::try_from(lines).ok().filter(|_| bytes <= FILTER_BYTES_MAX.into());
        let cells = BitArray::new(lines.ok_or(ShapeError::TooLarge { bytes })?)?;
        let slots = Slots::new(remainder_bits, COUNT_BITS);
        Ok(Self { map, page_cells, remainder_bits, slots, cells, item_count: 0 })
    }

    /// An empty filter that holds `item_count` different items of the whole hash space at this `false_positive_rate`, of which
    /// it holds those of `range`. Items take 85 % of its cells at most: of one page of a power of two of cells, so up to twice as
    /// many as they need, or of as few pages of [`DLEFT_PAGE_CELLS_MAX`] as hold them.
    ///
    /// # Errors
    /// If there are no items, no filter of this type has such a rate, or there is no memory.
    pub fn for_rate(
        range: HashRange,
        item_count: u64,
        false_positive_rate: f64,
    ) -> Result<Self, CreateError> {
        let size = dleft_size(item_count, false_positive_rate)?;
        Self::new(range, size.page_count, size.page_cells, size.remainder_bits)
    }

    /// Different items that it holds, but for those that share all places.
    #[must_use]
    pub const fn item_count(&self) -> u64 {
        self.item_count
    }

    /// Cells in the pages of its range.
    #[must_use]
    pub const fn cell_count(&self) -> u64 {
        self.map.len() * self.page_cells as u64
    }

    /// Bytes of memory for cells.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.cells.words().len() as u64 * 8
    }

    /// The probability that an item that was not inserted is called present now.
    #[must_use]
    pub fn false_positive_rate(&self) -> f64 {
        let load = self.item_count as f64 / self.cell_count() as f64;
        dleft_false_positive_rate(load, self.remainder_bits)
    }

    /// The cells: cell i has the bits from i · (r + 2) on, the remainder in the lower ones.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        self.cells.words()
    }

    /// The four places of an item of the range.
    #[inline]
    fn places(&self, hash: ItemHash) -> [Place; SUBTABLES] {
        let buckets = self.page_cells / (DLEFT_SUBTABLES * DLEFT_BUCKET_CELLS);
        let mask = u64::from(buckets) << self.remainder_bits;
        let remainder_mask = (1 << self.remainder_bits) - 1;
        let page = index(self.map.block(hash.hi()) * u64::from(self.page_cells));
        std::array::from_fn(|subtable| {
            let number = FACTORS[subtable].wrapping_mul(hash.lo()) & (mask - 1);
            let bucket = index(number >> self.remainder_bits) + subtable * buckets as usize;
            (page + bucket * BUCKET_CELLS, number & remainder_mask)
        })
    }

    /// The cell of an item of the range, and what is in it.
    #[inline]
    fn find(&self, places: &[Place; SUBTABLES]) -> Option<(usize, Slot)> {
        places.iter().find_map(|(first, remainder)| {
            let cells = (*first..first + BUCKET_CELLS).map(|at| (at, self.get(at)));
            cells.into_iter().find(|(_, cell)| cell.tag > 0 && cell.fingerprint == *remainder)
        })
    }

    #[inline]
    fn get(&self, at: usize) -> Slot {
        self.slots.get(self.cells.words(), at)
    }

    fn set(&mut self, at: usize, cell: Slot) {
        self.slots.set(self.cells.words_mut(), at, cell);
    }
}

impl ItemByItem for DLeft {
    #[inline]
    fn range(&self) -> HashRange {
        self.map.range()
    }

    #[inline]
    fn has(&self, hash: ItemHash) -> bool {
        self.find(&self.places(hash)).is_some()
    }

    fn put(&mut self, hash: ItemHash) -> Result<Insertion, InsertError> {
        let places = self.places(hash);
        if let Some((at, cell)) = self.find(&places) {
            self.set(at, Slot { tag: (cell.tag + 1).min(COUNT_MAX), ..cell });
            return Ok(Insertion::Present);
        }
        let taken = |first: usize| (first..first + BUCKET_CELLS).filter(|at| self.get(*at).tag > 0);
        // The first of equals is the leftmost.
        let emptiest = places.iter().min_by_key(|(first, _)| taken(*first).count());
        let (first, remainder) = emptiest.expect("there are four");
        let free = (*first..first + BUCKET_CELLS).find(|at| self.get(*at).tag == 0);
        let Some(at) = free else {
            return Err(InsertError::Full { item_count: self.item_count });
        };
        self.set(at, Slot { fingerprint: *remainder, tag: 1 });
        self.item_count += 1;
        Ok(Insertion::New)
    }
}

item_by_item!(DLeft);

impl Remove for DLeft {
    fn remove(&mut self, hash: ItemHash) -> Result<Removal, OutOfRange> {
        check_in_range(self.map.range(), hash)?;
        let Some((at, cell)) = self.find(&self.places(hash)) else { return Ok(Removal::Absent) };
        match cell.tag {
            COUNT_MAX => {}
            1 => {
                self.set(at, Slot::FREE);
                self.item_count -= 1;
            }
            count => self.set(at, Slot { tag: count - 1, ..cell }),
        }
        Ok(Removal::Removed)
    }
}
