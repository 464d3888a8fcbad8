//! Lattice filter: a small value in place of each bit, so that the answer is *which*, *how often* or *how far* (compact
//! approximators, Boldi & Vigna 2005, doi:10.1016/j.scico.2004.05.003).
//!
//! Values are those of a lattice of 16: raising an item joins a value into the cells of its k positions, asking for it
//! meets them. So the answer is never below what was given, copies merge in any order and any number of times, and a blocked
//! filter is the case of two values.
//!
//! | you want | join | a cell says | ask |
//! |---|---|---|---|
//! | which of up to 15 sets, in rising priority (spatial filter, Palmieri et al. 2014, doi:10.1007/978-3-319-16745-9_2) | [`Join::Max`] | number of the set | [`Lattice::value`] |
//! | how often, up to 15 times (layered filter, Cen et al. 2010, doi:10.1109/ICACTE.2010.5578947; spectral with minimal increase, Cohen & Matias 2003, doi:10.1145/872757.872787) | [`Join::Max`] | a count | [`Lattice::count`] |
//! | how many hops away (attenuated filter, Rhea & Kubiatowicz 2002, doi:10.1109/INFCOM.2002.1019375) | [`Join::Or`] | flag i: within a path of i hops | [`Lattice::attenuated`] |
//!
//! Cells lie as the counters of [`Counting`](crate::Counting) do, at the positions of the [blocked](crate::Blocked) filter
//! of equal numbers, with four times its memory. Another item has a value above 0 with the blocked filter's rate.
//!
//! *Counts do not add up.* After a merge a count is at least the larger of two, not their sum: the join of counts is
//! their maximum, or merging twice would count twice. Who needs sums takes a counting filter.

use thiserror::Error;

use crate::bits::{BitArray, scalar, wide};
use crate::capability::{Contains, OutOfRange, check_in_range};
use crate::counting::{self, BLOCK_LINES, COUNTER_MAX};
use crate::hash::ItemHash;
use crate::kind::Kind;
use crate::lanes::{self, LaneSets};
use crate::range::HashRange;
use crate::shape::{BlockShape, CreateError, LINE_BITS, ShapeMismatch, check_equal};

#[cfg(test)]
mod lattice_test;

/// Largest value of a cell.
pub const LATTICE_MAX: u8 = 15;

/// Every other cell of a word, and the bit above each.
const EVEN: u64 = 0x0f0f_0f0f_0f0f_0f0f;
const ABOVE_EVEN: u64 = 0x1010_1010_1010_1010;

/// Every flag but the last, of each cell.
const SHIFTED: u64 = 0xeeee_eeee_eeee_eeee;

/// How two values become one that is at least both.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Join {
    /// A chain of 16, 0 to 15: the larger.
    Max,
    /// Sets of four flags: what either has.
    Or,
}

/// A lattice filter over a hash range.
///
/// ```
/// use umbel_filter::{HashRange, ItemHasher, Join, Lattice};
///
/// let hash = |item: &str| ItemHasher::Xxh3 { seed: 7 }.hash(item.as_bytes());
/// // Which set: 1 a park, 2 a building, 3 a building that is closed.
/// let mut map = Lattice::for_rate(Join::Max, HashRange::WHOLE, 1_000, 0.01)?;
/// map.raise(hash("cell 17"), 2)?;
/// map.raise(hash("cell 17"), 1)?;
/// assert_eq!((map.value(hash("cell 17")), map.value(hash("cell 18"))), (2, 0));
///
/// // How often: twice.
/// let mut seen = Lattice::for_rate(Join::Max, HashRange::WHOLE, 1_000, 0.01)?;
/// assert_eq!((seen.count(hash("alice"))?, seen.count(hash("alice"))?), (1, 2));
///
/// // How far: what is here is one hop away for the neighbours.
/// let mut here = Lattice::for_rate(Join::Or, HashRange::WHOLE, 1_000, 0.01)?;
/// here.raise(hash("file"), 0b0001)?;
/// assert_eq!(here.attenuated()?.value(hash("file")), 0b0010);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lattice {
    join: Join,
    /// Of the counting filter with equal numbers.
    shape: BlockShape,
    sets: LaneSets,
    cells: BitArray,
}

/// Why a value was not raised. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum RaiseError {
    /// Send the item to the filter of its hash range.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// Name a value that a cell has.
    #[error("value {value}, expected at most {LATTICE_MAX}")]
    Value {
        /// The value that was given.
        value: u8,
    },
    /// The values of the filter are not of this kind. Make one with the other join.
    #[error(transparent)]
    Join(#[from] JoinError),
}

/// A lattice filter has the other join: its values mean something else. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("values are joined by {actual:?}, expected {expected:?}")]
pub struct JoinError {
    /// What is wanted.
    pub expected: Join,
    /// What the filter has.
    pub actual: Join,
}

/// Two lattice filters differ, so their cells mean other things. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum LatticeMismatch {
    /// The other one joins otherwise. Build it anew with the join of ours.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The other one has another hash range, size or number of probes. Build it anew with ours.
    #[error(transparent)]
    Shape(#[from] ShapeMismatch),
}

impl Lattice {
    /// An empty filter of `block_count` blocks of 512 cells over the whole hash space, of which it holds those of `range`,
    /// with k = `probe_count` probes, 1 to [`BLOCK_PROBE_COUNT_MAX`](crate::BLOCK_PROBE_COUNT_MAX).
    ///
    /// # Errors
    /// If the numbers are no shape, or there is no memory.
    pub fn new(
        join: Join,
        range: HashRange,
        block_count: u64,
        probe_count: u32,
    ) -> Result<Self, CreateError> {
        let kind = Kind::Counting;
        Self::with(join, BlockShape::new(kind, range, block_count, LINE_BITS, probe_count)?)
    }

    /// The smallest empty filter that holds `item_count` items of the range, and calls another one present at this rate.
    ///
    /// # Errors
    /// If there are no items, no filter has such a rate, or there is no memory.
    pub fn for_rate(
        join: Join,
        range: HashRange,
        item_count: u64,
        false_positive_rate: f64,
    ) -> Result<Self, CreateError> {
        let kind = Kind::Counting;
        Self::with(join, BlockShape::for_rate(kind, range, item_count, false_positive_rate)?)
    }

    fn with(join: Join, shape: BlockShape) -> Result<Self, CreateError> {
        let cells = BitArray::new(shape.memory_bytes() / 64)?;
        Ok(Self { join, shape, sets: LaneSets::new(shape.probe_count()), cells })
    }

    /// How values are joined.
    #[must_use]
    pub const fn join(&self) -> Join {
        self.join
    }

    /// The shape, that of the [`Counting`](crate::Counting) filter with equal numbers.
    #[must_use]
    pub const fn block_shape(&self) -> BlockShape {
        self.shape
    }

    /// The cells, as [`Counting::words`](crate::Counting::words) has counters.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        self.cells.words()
    }

    /// The same, to be changed: a cell that is raised is never wrong, one that is lowered makes answers too low.
    pub fn words_mut(&mut self) -> &mut [u64] {
        self.cells.words_mut()
    }

    /// Joins a value, at most [`LATTICE_MAX`], into an item's, and returns what the item's was before: that or more it is
    /// from now on.
    ///
    /// # Errors
    /// [`RaiseError::OutOfRange`] or [`RaiseError::Value`].
    pub fn raise(&mut self, hash: ItemHash, value: u8) -> Result<u8, RaiseError> {
        check_in_range(self.shape.range(), hash)?;
        if value > LATTICE_MAX {
            return Err(RaiseError::Value { value });
        }
        let before = self.value(hash);
        self.raise_cells(hash, value);
        Ok(before)
    }

    /// Counts an item once more, and returns the count: at least how often it came here, and 15 from then on.
    ///
    /// Only the least of its cells rise (*minimal increase*): those are in the first layer that has not all of them, if
    /// layer i has the cells of at least i.
    ///
    /// # Errors
    /// [`RaiseError::OutOfRange`], or [`RaiseError::Join`] if values are flags.
    pub fn count(&mut self, hash: ItemHash) -> Result<u8, RaiseError> {
        self.check_join(Join::Max)?;
        check_in_range(self.shape.range(), hash)?;
        let count = (self.value(hash) + 1).min(LATTICE_MAX);
        self.raise_cells(hash, count);
        Ok(count)
    }

    /// The value of an item: at least all that was raised for it, joined. 0 of an item that was certainly not raised, and
    /// outside the range.
    #[inline]
    #[must_use]
    pub fn value(&self, hash: ItemHash) -> u8 {
        if !self.shape.range().contains(hash.hi()) {
            return 0;
        }
        let line = scalar::line_of(self.shape.map(), hash) * BLOCK_LINES;
        let block = wide::words(&self.cells.lines()[line..line + BLOCK_LINES]);
        meet(self.join, block, lanes::positions(&self.sets, scalar::probe_seed(hash)))
    }

    fn raise_cells(&mut self, hash: ItemHash, value: u8) {
        let line = scalar::line_of(self.shape.map(), hash) * BLOCK_LINES;
        let positions = lanes::positions(&self.sets, scalar::probe_seed(hash));
        let block = wide::words_mut(&mut self.cells.lines_mut()[line..line + BLOCK_LINES]);
        raise(self.join, block, positions, value);
    }

    /// Joins every cell of another filter into ours, and returns how many of ours were 0 and are not any more. It is
    /// commutative, associative and idempotent.
    ///
    /// # Errors
    /// If joins or shapes differ.
    pub fn merge(&mut self, other: &Self) -> Result<u64, LatticeMismatch> {
        other.check_join(self.join)?;
        check_equal(self.shape, other.shape)?;
        let before = counting::occupied_count(self.words());
        let join = self.join;
        for (ours, theirs) in self.words_mut().iter_mut().zip(other.words()) {
            *ours = join_words(join, *ours, *theirs);
        }
        Ok(counting::occupied_count(self.words()) - before)
    }

    /// The filter to send to a neighbour, which [merges](Self::merge) it: every flag is one hop further away, and
    /// flags that were three hops away are dropped.
    ///
    /// # Errors
    /// If values are no flags.
    pub fn attenuated(&self) -> Result<Self, JoinError> {
        self.check_join(Join::Or)?;
        let mut attenuated = self.clone();
        attenuated.words_mut().iter_mut().for_each(|word| *word = *word << 1 & SHIFTED);
        Ok(attenuated)
    }

    /// The probability that an item that was not raised has this value or a higher one now, by the cells; of flags, that
    /// flag. 1 for the value 0, and 0 for what no cell has.
    #[must_use]
    pub fn false_positive_rate(&self, value: u8) -> f64 {
        let value = u64::from(value);
        if value == 0 {
            return 1.0;
        }
        let cells =
            self.words().iter().flat_map(|word| (0..64).step_by(4).map(move |at| word >> at & 15));
        let is_there = |cell: &u64| match self.join {
            Join::Max => *cell >= value,
            Join::Or => *cell & value == value,
        };
        self.shape.describe(cells.filter(is_there).count() as u64).false_positive_rate
    }

    fn check_join(&self, expected: Join) -> Result<(), JoinError> {
        let actual = self.join;
        if actual == expected { Ok(()) } else { Err(JoinError { expected, actual }) }
    }
}

/// An item is present if its value is above 0.
impl Contains for Lattice {
    #[inline]
    fn contains(&self, hash: ItemHash) -> bool {
        self.value(hash) > 0
    }
}

/// The meet of the cells at some positions of a block, of which there is at least one.
#[inline]
fn meet(join: Join, block: &[u64], positions: impl Iterator<Item = u32>) -> u8 {
    let cells = positions.map(|position| counting::counter(block, position));
    let met = match join {
        Join::Max => cells.fold(COUNTER_MAX, u64::min),
        Join::Or => cells.fold(COUNTER_MAX, |met, cell| met & cell),
    };
    u8::try_from(met).expect("a cell has four bits")
}

/// Joins a value into the cells at some positions of a block.
#[inline]
fn raise(join: Join, block: &mut [u64], positions: impl Iterator<Item = u32>, value: u8) {
    for position in positions {
        let (word, shift) = counting::place(position);
        let cell = block[word] >> shift & COUNTER_MAX;
        let joined = match join {
            Join::Max => cell.max(value.into()),
            Join::Or => cell | u64::from(value),
        };
        block[word] ^= (cell ^ joined) << shift;
    }
}

/// The joins of two words' cells.
#[inline]
const fn join_words(join: Join, ours: u64, theirs: u64) -> u64 {
    match join {
        Join::Or => ours | theirs,
        Join::Max => max_even(ours, theirs) | max_even(ours >> 4, theirs >> 4) << 4,
    }
}

/// The larger of every other cell. Each has a bit above it to borrow from: it stays where ours is not less.
#[inline]
const fn max_even(ours: u64, theirs: u64) -> u64 {
    let (ours, theirs) = (ours & EVEN, theirs & EVEN);
    let stays = ((ours | ABOVE_EVEN) - theirs) & ABOVE_EVEN;
    let is_ours = (stays >> 4) * COUNTER_MAX;
    (ours & is_ours) | (theirs & !is_ours)
}
