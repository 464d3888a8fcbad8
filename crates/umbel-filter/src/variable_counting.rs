//! Counting filter with variable increments: an item adds increments of its own to its counters, and is absent if the
//! sum of a counter cannot contain its increment (Rottenstreich et al. 2014, doi:10.1109/TNET.2013.2272604).
//!
//! With a base L an item adds a v of its own to each of its k cells, L ≤ v < 2L. A cell with the sum c admits v only
//! if c − v is 0 or at least L: a cell with one item rejects every other v, a cell with two items most others. So
//! 28.9 bits an item give 1 % at L = 8 (29.2 in blocks), where counters that rise by 1 take 39.6.
//!
//! ```text
//! L = 4, v from 4 to 7           c = 5: 5 alone          admits 5, refuses 4, 6 and 7
//!                                c = 9: 4 + 5            admits 4 and 5, refuses 6 and 7
//! ```
//!
//! Cells have eight bits, in the order of [`Counting`](crate::Counting)'s counters: position p of a block is byte p mod 8 of
//! its word ⌊p / 8⌋. The lane pattern uses the upper half of `lo`; in lane l v is L + ⌊(lo · SALT[l] mod 2^32) · L / 2^32⌋,
//! with the multipliers of lanes. It must not be one for all cells: a small one is admitted by more sums in each of them, and the
//! rate rises by an eighth. A cell that reached 255 stays there and admits everything.
//!
//! It is a library type, no kind of the service: a [`Cuckoo`](crate::Cuckoo) filter removes, too, and takes two fifths.

use crate::bits::{BitArray, scalar, wide};
use crate::capability::{
    InsertError, Insertion, ItemByItem, OutOfRange, Removal, Remove, check_in_range, item_by_item,
};
use crate::hash::ItemHash;
use crate::kind::Kind;
use crate::lanes::{self, LANE_BITS, LaneSets, SALTS};
use crate::range::HashRange;
use crate::shape::{BlockShape, CreateError, LINE_BITS, ShapeMismatch};
use crate::sizing::{SizingError, VARIABLE_BASE_MAX, variable_counting_size};

#[cfg(test)]
mod variable_counting_test;

/// A sum that perhaps missed an item.
const CELL_MAX: u64 = 255;

/// Cache lines of a block.
const BLOCK_LINES: usize = 8;

/// A counting filter with variable increments, over a hash range.
///
/// An item that was inserted twice must be removed twice.
///
/// ```
/// use umbel_filter::{Contains, HashRange, Insert, ItemHasher, Remove, VariableCounting};
///
/// let alice = ItemHasher::Xxh3 { seed: 7 }.hash(b"alice");
/// let mut online = VariableCounting::for_rate(HashRange::WHOLE, 1_000, 0.01, 8)?;
/// online.insert(alice)?;
/// assert!(online.contains(alice));
/// online.remove(alice)?;
/// assert!(!online.contains(alice));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VariableCounting {
    /// Of the counting filter with equal numbers.
    shape: BlockShape,
    base: u8,
    sets: LaneSets,
    cells: BitArray,
}

impl VariableCounting {
    /// An empty filter of `block_count` blocks of 512 cells over the whole hash space, of which it holds those of `range`,
    /// with k = `probe_count` probes, 1 to [`BLOCK_PROBE_COUNT_MAX`](crate::BLOCK_PROBE_COUNT_MAX), and increments from
    /// L = `base`, 2 to [`VARIABLE_BASE_MAX`], to 2L − 1.
    ///
    /// # Errors
    /// If the numbers are no shape, or there is no memory.
    pub fn new(
        range: HashRange,
        block_count: u64,
        probe_count: u32,
        base: u8,
    ) -> Result<Self, CreateError> {
        let kind = Kind::Counting;
        if !(2..=VARIABLE_BASE_MAX).contains(&base) {
            return Err(SizingError::VariableBase { base }.into());
        }
        let shape = BlockShape::new(kind, range, block_count, LINE_BITS, probe_count)?;
        let cells = BitArray::new(shape.map().len() * BLOCK_LINES as u64)?;
        Ok(Self { shape, base, sets: LaneSets::new(probe_count), cells })
    }

    /// The smallest empty filter that holds `item_count` items of the whole hash space at this rate, of which it holds
    /// those of `range`. The rate is that of free probes in blocks: of four probes in lanes, as 1 % takes them, it was
    /// measured to be a twentieth higher.
    ///
    /// # Errors
    /// If there are no items, no filter has such a rate or base, or there is no memory.
    pub fn for_rate(
        range: HashRange,
        item_count: u64,
        false_positive_rate: f64,
        base: u8,
    ) -> Result<Self, CreateError> {
        let (block_count, probe_count) =
            variable_counting_size(item_count, false_positive_rate, base)?;
        Self::new(range, block_count, probe_count, base)
    }

    /// The shape, that of the [`Counting`](crate::Counting) filter with equal numbers.
    #[must_use]
    pub const fn block_shape(&self) -> BlockShape {
        self.shape
    }

    /// The base of increments, L.
    #[must_use]
    pub const fn base(&self) -> u8 {
        self.base
    }

    /// The blocks' cells, 64 words a block.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        self.cells.words()
    }

    /// Adds the cells of another filter. As of counters, a merge that arrives twice counts twice.
    ///
    /// # Errors
    /// If shapes or bases differ. Nothing was changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), ShapeMismatch> {
        if (self.shape, self.base) != (other.shape, other.base) {
            return Err(ShapeMismatch { ours: self.shape.into(), theirs: other.shape.into() });
        }
        for (ours, theirs) in self.cells.words_mut().iter_mut().zip(other.words()) {
            let sums = ours.to_le_bytes().into_iter().zip(theirs.to_le_bytes());
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(sums).for_each(|(to, (a, b))| *to = a.saturating_add(b));
            *ours = u64::from_le_bytes(bytes);
        }
        Ok(())
    }

    /// Changes the cells of an item of the range, each by its increment.
    #[inline]
    fn change(&mut self, hash: ItemHash, new: impl Fn(u64, u64) -> u64) {
        let line = scalar::line_of(self.shape.map(), hash) * BLOCK_LINES;
        let positions = lanes::positions(&self.sets, scalar::probe_seed(hash));
        let block = wide::words_mut(&mut self.cells.lines_mut()[line..line + BLOCK_LINES]);
        for position in positions {
            let cell = cell(block, position);
            let new = new(cell, increment(hash, position, self.base.into()));
            block[position as usize / 8] ^= (cell ^ new) << (8 * (position % 8));
        }
    }
}

/// What an item adds to its cell at this position.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
const fn increment(hash: ItemHash, position: u32, base: u64) -> u64 {
    let salt = SALTS[(position / LANE_BITS) as usize];
    base + (((hash.lo() as u32).wrapping_mul(salt) as u64 * base) >> 32)
}

/// Whether a cell with this sum may have an item of this increment.
#[inline]
const fn admits(sum: u64, increment: u64, base: u64) -> bool {
    sum == increment || sum >= increment + base
}

#[inline]
fn cell(block: &[u64], position: u32) -> u64 {
    block[position as usize / 8] >> (8 * (position % 8)) & CELL_MAX
}

impl ItemByItem for VariableCounting {
    #[inline]
    fn range(&self) -> HashRange {
        self.shape.range()
    }

    #[inline]
    fn has(&self, hash: ItemHash) -> bool {
        let line = scalar::line_of(self.shape.map(), hash) * BLOCK_LINES;
        let block = wide::words(&self.cells.lines()[line..line + BLOCK_LINES]);
        let mut positions = lanes::positions(&self.sets, scalar::probe_seed(hash));
        let base = self.base.into();
        positions.all(|at| admits(cell(block, at), increment(hash, at, base), base))
    }

    fn put(&mut self, hash: ItemHash) -> Result<Insertion, InsertError> {
        let outcome = if self.has(hash) { Insertion::Present } else { Insertion::New };
        self.change(hash, |cell, increment| (cell + increment).min(CELL_MAX));
        Ok(outcome)
    }
}

item_by_item!(VariableCounting);

impl Remove for VariableCounting {
    fn remove(&mut self, hash: ItemHash) -> Result<Removal, OutOfRange> {
        check_in_range(self.shape.range(), hash)?;
        if !self.has(hash) {
            return Ok(Removal::Absent);
        }
        // What is admitted has the increment, or sticks.
        self.change(hash, |cell, increment| if cell == CELL_MAX { cell } else { cell - increment });
        Ok(Removal::Removed)
    }
}
