//! Single-shot filter: a Bloom filter with one probe, kept as its sorted positions.
//!
//! An item sets position ⌊hi · m / 2^64⌋; a second item there is *present*. With n items
//! of other hashes a query errs with probability 1 − (1 − 1/m)^n. At k = 1 and m ≫ n the set
//! positions are few and far apart, so they travel as Golomb-coded gaps for about log2(m/n) + 1.5
//! bits each: less than the item's hash, let alone the item (Sanders, Schlag & Müller 2013,
//! doi:10.1109/BigData.2013.6691549; Schlag 2013, doi:10.5445/IR/1000058832).
//!
//! *Merge* is the OR of two filters of equal shape: idempotent, commutative, associative and
//! monotone, so lost, repeated and reordered merges do no harm. Each law has its test.

use thiserror::Error;

use crate::capability::{
    InsertError, Insertion, ItemByItem, Merge, OutOfRange, check_in_range, item_by_item,
};
use crate::hash::ItemHash;
use crate::range::HashRange;
use crate::shape::{ShapeMismatch, check_equal};
use crate::single_shot_shape::SingleShotShape;

#[cfg(test)]
mod single_shot_test;

/// A filter with one probe per item over a hash range.
///
/// An insert moves the positions above it, so a filter of many items is built faster by
/// [`SingleShot::from_sorted_hashes`], or by parts and [`merge`](Merge::merge).
///
/// ```
/// use umbel_filter::{
///     Contains, HashRange, Insert, Insertion, ItemHash, SingleShot, SingleShotShape,
/// };
///
/// // 16 positions: the top hexadecimal digit of `hi`.
/// let mut filter = SingleShot::new(SingleShotShape::new(HashRange::WHOLE, 16)?);
/// assert_eq!(filter.insert(ItemHash::new(0x3000_0000_0000_0000, 1))?, Insertion::New);
/// assert_eq!(filter.insert(ItemHash::new(0xf000_0000_0000_0000, 2))?, Insertion::New);
/// // Another item on position 3: a false positive.
/// assert!(filter.contains(ItemHash::new(0x3fff_0000_0000_0000, 3)));
/// assert_eq!(filter.positions(), [0x3, 0xf]);
/// assert_eq!(filter.fill(), 2.0 / 16.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SingleShot {
    shape: SingleShotShape,
    /// Strictly increasing, each below the shape's width.
    positions: Vec<u64>,
}

/// The hashes are not what [`SingleShot::from_sorted_hashes`] takes. A bug of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum SortedHashesError {
    /// Sort the hashes first.
    #[error("hashes are not sorted: hash {index} is below the one before it")]
    NotSorted {
        /// Index of the first hash that is below its predecessor.
        index: usize,
    },
    /// Cut the hashes by hash range first.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
}

/// The positions are not what [`SingleShot::from_positions`] takes. Refuse the message that they
/// came in, or fix the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PositionsError {
    /// A position is not above the one before it.
    #[error("position {position} follows {previous}, expected a larger one")]
    NotIncreasing {
        /// The larger or equal position before it.
        previous: u64,
        /// The position that came.
        position: u64,
    },
    /// A position does not exist in the shape.
    #[error("position {position}, expected one below the width {width}")]
    BeyondWidth {
        /// The position that came.
        position: u64,
        /// Number of positions in the shape's range.
        width: u64,
    },
}

impl SingleShot {
    /// An empty filter.
    #[must_use]
    pub const fn new(shape: SingleShotShape) -> Self {
        Self { shape, positions: Vec::new() }
    }

    /// The filter of a sorted list of hashes, which may repeat, in linear time.
    ///
    /// # Errors
    /// If the hashes are not sorted, or one lies outside the shape's range.
    pub fn from_sorted_hashes(
        shape: SingleShotShape,
        hashes: &[ItemHash],
    ) -> Result<Self, SortedHashesError> {
        let mut positions = Vec::with_capacity(hashes.len());
        let mut previous = None;
        for (index, &hash) in hashes.iter().enumerate() {
            if Some(hash) < previous {
                return Err(SortedHashesError::NotSorted { index });
            }
            previous = Some(hash);
            check_in_range(shape.range(), hash)?;
            let position = shape.position(hash.hi());
            if positions.last() != Some(&position) {
                positions.push(position);
            }
        }
        Ok(Self { shape, positions })
    }

    /// The filter with exactly these positions, as [`positions`](Self::positions) lists them.
    ///
    /// # Errors
    /// If they do not strictly increase, or one is not below the shape's width.
    pub fn from_positions(
        shape: SingleShotShape,
        positions: Vec<u64>,
    ) -> Result<Self, PositionsError> {
        for (&previous, &position) in positions.iter().zip(positions.iter().skip(1)) {
            if position <= previous {
                return Err(PositionsError::NotIncreasing { previous, position });
            }
        }
        match positions.last() {
            Some(&position) if position >= shape.width() => {
                Err(PositionsError::BeyondWidth { position, width: shape.width() })
            }
            _ => Ok(Self { shape, positions }),
        }
    }

    /// Number of set positions: the number of items but for those that share one.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.positions.len() as u64
    }

    /// Whether nothing was inserted.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// The set positions, strictly increasing, counted from that of the start of the shape's range.
    #[must_use]
    pub fn positions(&self) -> &[u64] {
        &self.positions
    }

    /// The filter's shape.
    #[must_use]
    pub const fn shape(&self) -> SingleShotShape {
        self.shape
    }

    /// Share of the range's positions that are set, 0 to 1: the probability that the next item of
    /// the range, if new, is called present.
    #[must_use]
    pub fn fill(&self) -> f64 {
        self.len() as f64 / self.shape.width() as f64
    }
}

impl ItemByItem for SingleShot {
    #[inline]
    fn range(&self) -> HashRange {
        self.shape.range()
    }

    fn has(&self, hash: ItemHash) -> bool {
        self.positions.binary_search(&self.shape.position(hash.hi())).is_ok()
    }

    fn put(&mut self, hash: ItemHash) -> Result<Insertion, InsertError> {
        let position = self.shape.position(hash.hi());
        Ok(match self.positions.binary_search(&position) {
            Ok(_) => Insertion::Present,
            Err(index) => {
                self.positions.insert(index, position);
                Insertion::New
            }
        })
    }
}

item_by_item!(SingleShot);

/// A merge reads what lies between the other filter's first and last position, and moves the positions above, if it
/// adds any.
impl Merge for SingleShot {
    const IS_IDEMPOTENT: bool = true;

    fn merge(&mut self, other: &Self) -> Result<u64, ShapeMismatch> {
        check_equal(self.shape, other.shape)?;
        let (Some(first), Some(last)) = (other.positions.first(), other.positions.last()) else {
            return Ok(0);
        };
        let from = self.positions.partition_point(|position| position < first);
        let to = self.positions.partition_point(|position| position <= last);
        let mut merged = Vec::with_capacity(to - from + other.positions.len());
        let mut ours = self.positions[from..to].iter().copied().peekable();
        for &theirs in &other.positions {
            while let Some(below) = ours.next_if(|&position| position < theirs) {
                merged.push(below);
            }
            ours.next_if_eq(&theirs);
            merged.push(theirs);
        }
        merged.extend(ours);
        let new_count = (merged.len() - (to - from)) as u64;
        if new_count > 0 {
            self.positions.splice(from..to, merged);
        }
        Ok(new_count)
    }
}
