//! Stored single-shot filter: a Bloom filter with one probe that stays compressed and is queried in
//! this form.
//!
//! [`SingleShot`] takes 64 bits a set position, its code on the wire about log2(m/n) + 1.5 bits.
//! This filter keeps the code (`run` draws it): positions are cut into buckets by their high bits,
//! each bucket is coded on its own, and an index leads to it (Putze, Sanders & Singler 2007,
//! doi:10.1007/978-3-540-72845-0_9). With the index a position takes about log2(m/n) + 2 bits,
//! where a filter with k probes takes 1.44 · log2(m/n) for the same false-positive rate n/m, and
//! one in cache lines more. The price is time: a query decodes half a bucket.
//!
//! A code cannot be changed in its middle, so inserts gather in a *delta*, a sorted set. When the
//! delta is full, run and delta are folded into a new run:
//!
//! ```text
//! insert ──► delta (sorted set, up to 1/32 of the run)
//!                │ full: one pass over both, in order
//!                ▼
//! run (compressed) ──► new run (compressed)
//! ```
//!
//! *Merge* is the OR of two filters of equal shape: idempotent, commutative, associative and
//! monotone. Each law has its test. It codes anew what lies between the first and the last position of the other
//! filter, and leaves the rest of the run as it is, so that a filter that comes in parts costs linear time.

use std::collections::BTreeSet;

use crate::capability::{
    Contains, Describe, Description, Insert, InsertError, Insertion, Merge, check_all_in_range,
    check_in_range,
};
use crate::hash::ItemHash;
use crate::join_error::FilterJoinError;
use crate::range::HashRange;
use crate::shape::{CreateError, Shape, ShapeError, ShapeMismatch, check_equal};
use crate::single_shot::{PositionsError, SingleShot, SortedHashesError};
use crate::single_shot_shape::SingleShotShape;
use crate::sizing;
use run::{Run, RunBuilder, union};

#[cfg(test)]
mod parts_test;
mod run;
#[cfg(test)]
mod stored_single_shot_test;

/// Least positions of a full delta: folding so few takes microseconds, and a small filter is not
/// folded at every other insert.
const DELTA_LEN_MIN: u64 = 4096;

/// A delta is full at this share of the run. It bounds both the memory of the delta and the part of
/// an insert that goes into folding: each insert pays for rewriting so many positions.
const RUN_LEN_PER_DELTA_LEN: u64 = 32;

/// Bytes that a position takes in the delta. Nodes of the standard library's tree hold 11 positions
/// in 104 bytes and are 69 % full after inserts in random order, with the nodes above them 17 bytes
/// a position.
const DELTA_POSITION_BYTES: u64 = 17;

/// Items of a batch that are looked up in the run before they are inserted.
const INSERT_BATCH_LEN: usize = 256;

/// A filter with one probe per item over a hash range, in compressed form.
///
/// *Time.* A query decodes at most 128 gaps, 12 to 24 on average, and looks into the delta; where
/// the positions lie plays no part. An insert is a query, an insert into the delta, and its share
/// of folding: rewriting 32 positions, amortised. One insert in many folds the whole filter.
///
/// A merge takes time for the other filter, for what lies between its first and its last position here, and for some
/// thousand positions around. So parts of a filter, merged in order, take linear time together, if they are not much
/// smaller than that.
///
/// *Memory.* While it is folded or merged, the old and the new run are there at once, or of a merge the parts of both.
/// After merges of parts the run takes up to a fifth more, until it is folded.
///
/// Two filters are equal if their shapes and positions are, however these are spread over run and
/// delta.
///
/// ```
/// use umbel_filter::{
///     Contains, HashRange, Insert, Insertion, ItemHash, SingleShotShape, StoredSingleShot,
/// };
///
/// // 16 positions: the top hexadecimal digit of `hi`.
/// let mut filter = StoredSingleShot::new(SingleShotShape::new(HashRange::WHOLE, 16)?);
/// assert_eq!(filter.insert(ItemHash::new(0x3000_0000_0000_0000, 1))?, Insertion::New);
/// filter.seal();
/// assert_eq!(filter.insert(ItemHash::new(0xf000_0000_0000_0000, 2))?, Insertion::New);
/// // Another item on position 3: a false positive.
/// assert!(filter.contains(ItemHash::new(0x3fff_0000_0000_0000, 3)));
/// assert_eq!(filter.positions().collect::<Vec<_>>(), [0x3, 0xf]);
/// assert_eq!(filter.fill(), 2.0 / 16.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct StoredSingleShot {
    shape: SingleShotShape,
    run: Run,
    /// Positions that are not in the run.
    delta: BTreeSet<u64>,
}

/// What a merge would add.
struct Missing {
    /// The first and the last position of the other filter.
    first: u64,
    last: u64,
    /// How many of its positions are missing.
    count: u64,
}

impl StoredSingleShot {
    /// An empty filter.
    #[must_use]
    pub fn new(shape: SingleShotShape) -> Self {
        Self::with_run(shape, RunBuilder::new(shape.width(), 0).finish())
    }

    /// The filter with exactly these positions, as [`positions`](Self::positions) lists them, in
    /// linear time and with no more memory than the filter needs.
    ///
    /// # Errors
    /// If they do not strictly increase, or one is not below the shape's width.
    ///
    /// ```
    /// use umbel_filter::{HashRange, PositionsError, SingleShotShape, StoredSingleShot};
    ///
    /// let shape = SingleShotShape::new(HashRange::WHOLE, 16)?;
    /// let filter = StoredSingleShot::from_positions(shape, [3, 15].into_iter())?;
    /// assert_eq!(filter.len(), 2);
    /// let refused = StoredSingleShot::from_positions(shape, [3, 16].into_iter());
    /// assert_eq!(refused, Err(PositionsError::BeyondWidth { position: 16, width: 16 }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_positions(
        shape: SingleShotShape,
        positions: impl ExactSizeIterator<Item = u64>,
    ) -> Result<Self, PositionsError> {
        let width = shape.width();
        let mut builder = RunBuilder::new(width, positions.len() as u64);
        let mut previous = None;
        for position in positions {
            if let Some(previous) = previous.filter(|&previous| position <= previous) {
                return Err(PositionsError::NotIncreasing { previous, position });
            }
            if position >= width {
                return Err(PositionsError::BeyondWidth { position, width });
            }
            builder.push(position);
            previous = Some(position);
        }
        Ok(Self::with_run(shape, builder.finish()))
    }

    /// The filter of a sorted list of hashes, which may repeat, in linear time.
    ///
    /// # Errors
    /// If the hashes are not sorted, or one lies outside the shape's range.
    pub fn from_sorted_hashes(
        shape: SingleShotShape,
        hashes: &[ItemHash],
    ) -> Result<Self, SortedHashesError> {
        let mut builder = RunBuilder::new(shape.width(), hashes.len() as u64);
        let (mut previous_hash, mut previous) = (None, None);
        for (index, &hash) in hashes.iter().enumerate() {
            if Some(hash) < previous_hash {
                return Err(SortedHashesError::NotSorted { index });
            }
            previous_hash = Some(hash);
            check_in_range(shape.range(), hash)?;
            let position = shape.position(hash.hi());
            if previous != Some(position) {
                builder.push(position);
                previous = Some(position);
            }
        }
        Ok(Self::with_run(shape, builder.finish()))
    }

    /// Number of set positions: the number of items but for those that share one.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.run.len() + self.delta.len() as u64
    }

    /// Whether nothing was inserted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The filter of a part of our range: a position that its border divides is in it.
    pub(crate) fn part(&self, range: HashRange) -> Result<Self, ShapeError> {
        let shape = SingleShotShape::new(range, self.shape.position_count())?;
        let first = shape.first_position() - self.shape.first_position();
        let (end, width) = (first + shape.width(), shape.width());
        let positions = || {
            let above = self.positions().skip_while(move |&position| position < first);
            above.take_while(move |&position| position < end).map(move |position| position - first)
        };
        // Counted before they are coded, because the best code depends on their number.
        let run = Run::of(width, positions().count() as u64, positions());
        Ok(Self::with_run(shape, run))
    }

    /// The filter of our range and the upper neighbour's: a position that the border divides is in it if it is in one
    /// of the two.
    pub(crate) fn join(&self, upper: &Self, range: HashRange) -> Result<Self, FilterJoinError> {
        let (ours, theirs) = (self.shape, upper.shape);
        if ours.position_count() != theirs.position_count() {
            return Err(ShapeMismatch { ours: ours.into(), theirs: theirs.into() }.into());
        }
        let shape =
            SingleShotShape::new(range, ours.position_count()).map_err(CreateError::from)?;
        let first = theirs.first_position() - ours.first_position();
        let above = || upper.positions().map(move |position| first + position);
        let positions = || union(self.positions(), above());
        // Counted before they are coded, because the best code depends on their number.
        let run = Run::of(shape.width(), positions().count() as u64, positions());
        Ok(Self::with_run(shape, run))
    }

    /// The set positions, strictly increasing, counted from that of the start of the shape's range. They
    /// are decoded on the way: no list of them is made.
    pub fn positions(&self) -> impl Iterator<Item = u64> + '_ {
        union(self.run.positions(), self.delta.iter().copied())
    }

    /// The filter's shape.
    #[must_use]
    pub const fn single_shot_shape(&self) -> SingleShotShape {
        self.shape
    }

    /// Share of the range's positions that are set, 0 to 1: the probability that the next item of
    /// the range, if new, is called present.
    #[must_use]
    pub fn fill(&self) -> f64 {
        self.len() as f64 / self.shape.width() as f64
    }

    /// Folds the delta into the run now, and gives back what merges of parts have reserved: worth it before many
    /// queries, and before the filter is kept for long.
    pub fn seal(&mut self) {
        if !self.delta.is_empty() || self.run.is_loose() {
            let run = Run::of(self.shape.width(), self.len(), self.positions());
            *self = Self::with_run(self.shape, run);
        }
    }

    /// Bytes of memory for the positions: exact for the run, about right for the delta.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.run.memory_bytes() + DELTA_POSITION_BYTES * self.delta.len() as u64
    }

    const fn with_run(shape: SingleShotShape, run: Run) -> Self {
        Self { shape, run, delta: BTreeSet::new() }
    }

    /// The positions that another filter of our shape has and ours lacks; None if there are none.
    fn missing(&self, other: &Self) -> Option<Missing> {
        let first = other.positions().next()?;
        let in_delta = self.delta.range(first..).copied();
        let mut ours = union(self.run.positions_from(first), in_delta).peekable();
        let mut missing = Missing { first, last: first, count: 0 };
        for position in other.positions() {
            while ours.next_if(|&our| our < position).is_some() {}
            missing.count += u64::from(ours.next_if_eq(&position).is_none());
            missing.last = position;
        }
        Some(missing)
    }

    /// Adds a position that is not in the run.
    fn insert_in_delta(&mut self, position: u64) -> Insertion {
        if self.delta.insert(position) { Insertion::New } else { Insertion::Present }
    }

    fn seal_if_full(&mut self) {
        let full = DELTA_LEN_MIN.max(self.run.len() / RUN_LEN_PER_DELTA_LEN);
        if self.delta.len() as u64 >= full {
            self.seal();
        }
    }

    /// Positions of hashes that all lie in the range.
    fn positions_of(&self, hashes: &[ItemHash]) -> Vec<u64> {
        hashes.iter().map(|hash| self.shape.position(hash.hi())).collect()
    }
}

impl From<&SingleShot> for StoredSingleShot {
    fn from(filter: &SingleShot) -> Self {
        let (shape, positions) = (filter.shape(), filter.positions());
        let run = Run::of(shape.width(), filter.len(), positions.iter().copied());
        Self::with_run(shape, run)
    }
}

impl PartialEq for StoredSingleShot {
    fn eq(&self, other: &Self) -> bool {
        self.shape == other.shape
            && self.len() == other.len()
            && self.positions().eq(other.positions())
    }
}

impl Eq for StoredSingleShot {}

impl Contains for StoredSingleShot {
    fn contains(&self, hash: ItemHash) -> bool {
        self.shape.range().contains(hash.hi()) && {
            let position = self.shape.position(hash.hi());
            self.run.contains(position) || self.delta.contains(&position)
        }
    }

    fn contains_batch(&self, hashes: &[ItemHash], present: &mut Vec<bool>) {
        present.clear();
        if check_all_in_range(self.shape.range(), hashes).is_err() {
            present.extend(hashes.iter().map(|&hash| self.contains(hash)));
            return;
        }
        let positions = self.positions_of(hashes);
        self.run.contains_batch(&positions, |index, found| {
            present.push(found || self.delta.contains(&positions[index]));
        });
    }
}

impl Insert for StoredSingleShot {
    fn insert(&mut self, hash: ItemHash) -> Result<Insertion, InsertError> {
        check_in_range(self.shape.range(), hash)?;
        let position = self.shape.position(hash.hi());
        if self.run.contains(position) {
            return Ok(Insertion::Present);
        }
        let outcome = self.insert_in_delta(position);
        self.seal_if_full();
        Ok(outcome)
    }

    fn insert_batch(
        &mut self,
        hashes: &[ItemHash],
        outcomes: &mut Vec<Insertion>,
    ) -> Result<(), InsertError> {
        outcomes.clear();
        check_all_in_range(self.shape.range(), hashes)?;
        let mut found = Vec::with_capacity(INSERT_BATCH_LEN);
        for chunk in hashes.chunks(INSERT_BATCH_LEN) {
            let positions = self.positions_of(chunk);
            found.clear();
            self.run.contains_batch(&positions, |_, in_run| found.push(in_run));
            outcomes.extend(positions.iter().zip(&found).map(|(&position, &in_run)| {
                if in_run { Insertion::Present } else { self.insert_in_delta(position) }
            }));
            // Only now: what was found in the run must hold for the whole chunk.
            self.seal_if_full();
        }
        Ok(())
    }
}

/// For the time that it takes, see the type. The new positions are counted before anything is coded, because the
/// best code depends on their number, and because often there are none.
impl Merge for StoredSingleShot {
    const IS_IDEMPOTENT: bool = true;

    fn merge(&mut self, other: &Self) -> Result<u64, ShapeMismatch> {
        check_equal(self.shape, other.shape)?;
        let Some(Missing { first, last, count }) = self.missing(other) else { return Ok(0) };
        if count == 0 {
            return Ok(0);
        }
        let (width, len) = (self.shape.width(), self.len() + count);
        let part = self.run.part(first, last);
        if self.run.is_most(&part) {
            let run = Run::of(width, len, union(self.positions(), other.positions()));
            *self = Self::with_run(self.shape, run);
        } else if self.run.is_outgrown(len) {
            let run = Run::growing(width, len, union(self.positions(), other.positions()));
            *self = Self::with_run(self.shape, run);
        } else {
            let in_delta: Vec<u64> = self.delta.range(self.run.span(&part)).copied().collect();
            for position in &in_delta {
                self.delta.remove(position);
            }
            self.run.splice(part, union(in_delta.into_iter(), other.positions()));
        }
        Ok(count)
    }
}

impl Describe for StoredSingleShot {
    fn shape(&self) -> Shape {
        self.shape.into()
    }

    fn describe(&self) -> Description {
        let (position_count, one_count) = (self.shape.width(), self.len());
        Description {
            shape: self.shape.into(),
            memory_bytes: self.memory_bytes(),
            position_count,
            one_count,
            item_count: sizing::item_count_estimate(position_count, 1, one_count).ok(),
            false_positive_rate: self.fill(),
        }
    }
}
