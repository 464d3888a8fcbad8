//! What a filter can do, one small trait a capability.
//!
//! | trait | classic | partitioned | blocked | single-shot | counting | scalable, redisbloom | window | aging | stable | cuckoo | quotient |
//! |---|---|---|---|---|---|---|---|---|---|---|---|
//! | [`Contains`], [`Insert`], [`Describe`] | ● | ● | ● | ● | ● | ● | ● | ● | ● | ● | ● |
//! | [`Merge`] | OR | OR | OR | OR | sum | | | | | | |
//! | [`Remove`] | | | | | ● | | | | | ● | ● |

use thiserror::Error;

use crate::hash::ItemHash;
use crate::range::HashRange;
use crate::shape::{CreateError, Shape, ShapeMismatch};
use crate::sizing::Estimate;

/// Answers whether an item was inserted.
///
/// *False is certain*: the answer for an item that was inserted and not removed is always true. True
/// is wrong at the filter's false-positive rate. Kinds that forget guarantee this for as long as
/// they state; a stable filter errs in both directions, at rates that it states.
pub trait Contains {
    /// Whether the item may have been inserted. An item outside the filter's hash range never was:
    /// false.
    #[must_use]
    fn contains(&self, hash: ItemHash) -> bool;

    /// One answer a hash, in the order of the hashes; `present` is emptied first. Kinds that live
    /// in main memory overlap the accesses of neighbouring items here, so that a batch of a hundred
    /// takes much less time than a hundred calls.
    fn contains_batch(&self, hashes: &[ItemHash], present: &mut Vec<bool>) {
        present.clear();
        present.extend(hashes.iter().map(|&hash| self.contains(hash)));
    }
}

/// Takes items in.
pub trait Insert: Contains {
    /// Inserts one item.
    ///
    /// # Errors
    /// If the item lies outside the filter's hash range, or the filter has to grow and cannot.
    /// Nothing was changed.
    fn insert(&mut self, hash: ItemHash) -> Result<Insertion, InsertError>;

    /// Inserts the items one after the other, as [`insert`](Self::insert) would, and returns one
    /// outcome an item in their order; `outcomes` is emptied first. Of two equal items at most the
    /// first is new.
    ///
    /// # Errors
    /// If an item lies outside the hash range: nothing was changed, `outcomes` is empty. If the
    /// filter has to grow and cannot: `outcomes` holds the outcomes of the items that were
    /// inserted before.
    fn insert_batch(
        &mut self,
        hashes: &[ItemHash],
        outcomes: &mut Vec<Insertion>,
    ) -> Result<(), InsertError>;
}

/// Takes items out again.
pub trait Remove {
    /// Removes one item, which must have been inserted: removing an item that is only a false
    /// positive removes parts of other items, which may be missing afterwards.
    ///
    /// # Errors
    /// If the item lies outside the filter's hash range. Nothing was changed.
    fn remove(&mut self, hash: ItemHash) -> Result<Removal, OutOfRange>;
}

/// Takes another filter of equal shape in.
///
/// Laws, for all filters a, b, c of one shape, a ∪ b standing for a after `a.merge(&b)`:
///
/// * commutative: a ∪ b = b ∪ a
/// * associative: (a ∪ b) ∪ c = a ∪ (b ∪ c)
/// * monotone: what a or b contains, a ∪ b contains
/// * the empty filter changes nothing
/// * idempotent, where [`IS_IDEMPOTENT`](Self::IS_IDEMPOTENT) says so: a ∪ a = a. Then lost,
///   repeated and reordered merges do no harm.
///
/// Each law has its test, for every kind.
pub trait Merge {
    /// Whether merging the same filter twice is merging it once.
    const IS_IDEMPOTENT: bool;

    /// Merges another filter into this one and returns how many positions it set that were not set
    /// before.
    ///
    /// # Errors
    /// If the shapes differ. Nothing was changed.
    fn merge(&mut self, other: &Self) -> Result<u64, ShapeMismatch>;
}

/// Describes its size and load.
pub trait Describe {
    /// What must be equal for a merge.
    fn shape(&self) -> Shape;

    /// A snapshot of size and load. Counts the set positions, so it reads the whole filter.
    fn describe(&self) -> Description;
}

/// Size and load of a filter at one moment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Description {
    /// What must be equal for a merge.
    pub shape: Shape,
    /// Bytes of memory for the positions.
    pub memory_bytes: u64,
    /// Number of positions (bits, or counters) in the filter's hash range.
    pub position_count: u64,
    /// Number of positions that are set.
    pub one_count: u64,
    /// How many different items were inserted, by the number of set positions; None when every
    /// position is set, and any number may have been.
    pub item_count: Option<Estimate>,
    /// The probability that an item that was not inserted is called present now, 0 to 1.
    pub false_positive_rate: f64,
}

/// Outcome of an insert.
///
/// ```
/// use umbel_filter::Insertion;
///
/// assert_ne!(Insertion::New, Insertion::Present);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Insertion {
    /// The item was certainly not inserted before; it is now.
    New,
    /// The item, or others on all its positions, was inserted before; nothing changed, except that
    /// a counting, cuckoo or quotient filter has counted it once more.
    Present,
}

/// Outcome of a removal.
///
/// ```
/// use umbel_filter::Removal;
///
/// assert_ne!(Removal::Removed, Removal::Absent);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removal {
    /// The item was called present and was taken out once.
    Removed,
    /// The item was certainly not there; nothing changed.
    Absent,
}

/// The item belongs to another hash range. Send it to that range's filter; nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("hash {hi} lies outside the filter's hash range {} to {}", range.start(), range.last())]
pub struct OutOfRange {
    /// The item's place in the hash space.
    pub hi: u64,
    /// The filter's hash range.
    pub range: HashRange,
}

/// Why an item was not inserted. The item itself was not inserted by any variant.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum InsertError {
    /// Send the item to the filter of its hash range.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// The filter is full and cannot grow. Free memory, or start another filter.
    #[error("filter cannot grow")]
    Grow(#[source] CreateError),
    /// The table is full. Insert again when the oldest slice of a window has ended, or items were removed from
    /// a cuckoo or quotient filter, or make a larger one.
    #[error("the filter holds {item_count} items and has no room for more")]
    Full {
        /// Items that it holds.
        item_count: u64,
    },
}

/// Checks that a hash belongs to a range.
#[inline]
pub(crate) fn check_in_range(range: HashRange, hash: ItemHash) -> Result<(), OutOfRange> {
    if range.contains(hash.hi()) { Ok(()) } else { Err(OutOfRange { hi: hash.hi(), range }) }
}

/// What a kind does with single items of its hash range, of which [`item_by_item`] makes its [`Contains`] and [`Insert`] if
/// its batches go item by item.
pub(crate) trait ItemByItem {
    /// The filter's hash range.
    fn range(&self) -> HashRange;

    /// Whether an item of the range may have been inserted.
    fn has(&self, hash: ItemHash) -> bool;

    /// Inserts an item of the range.
    fn put(&mut self, hash: ItemHash) -> Result<Insertion, InsertError>;

    /// Prefetches what an item behind the one at `at` will read, or change if the batch `inserts`.
    fn prefetch_ahead(&self, _hashes: &[ItemHash], _at: usize, _inserts: bool) {}
}

/// Whether each item may have been inserted, one after the other; `present` is emptied first.
pub(crate) fn contains_each<F: ItemByItem + Contains>(
    filter: &F,
    hashes: &[ItemHash],
    present: &mut Vec<bool>,
) {
    present.clear();
    present.extend(hashes.iter().enumerate().map(|(at, &hash)| {
        filter.prefetch_ahead(hashes, at, false);
        filter.contains(hash)
    }));
}

/// Inserts the items, all of the range, one after the other; `outcomes` is emptied first.
pub(crate) fn insert_each<F: ItemByItem>(
    filter: &mut F,
    hashes: &[ItemHash],
    outcomes: &mut Vec<Insertion>,
) -> Result<(), InsertError> {
    outcomes.clear();
    check_all_in_range(filter.range(), hashes)?;
    outcomes.reserve(hashes.len());
    for (at, &hash) in hashes.iter().enumerate() {
        filter.prefetch_ahead(hashes, at, true);
        outcomes.push(filter.put(hash)?);
    }
    Ok(())
}

/// Writes [`Contains`] and [`Insert`] of a kind that is [`ItemByItem`]; the parameters of a generic kind follow it.
///
/// One implementation for all `F: ItemByItem` would hide from the documentation which kinds have them, and leave no room for
/// others.
macro_rules! item_by_item {
    ($kind:ty $(, $($parameter:tt)+)?) => {
        impl$(<$($parameter)+>)? $crate::capability::Contains for $kind {
            #[inline]
            fn contains(&self, hash: $crate::hash::ItemHash) -> bool {
                self.range().contains(hash.hi()) && self.has(hash)
            }

            fn contains_batch(&self, hashes: &[$crate::hash::ItemHash], present: &mut Vec<bool>) {
                $crate::capability::contains_each(self, hashes, present);
            }
        }

        impl$(<$($parameter)+>)? $crate::capability::Insert for $kind {
            #[inline]
            fn insert(
                &mut self,
                hash: $crate::hash::ItemHash,
            ) -> Result<$crate::capability::Insertion, $crate::capability::InsertError> {
                $crate::capability::check_in_range(self.range(), hash)?;
                self.put(hash)
            }

            fn insert_batch(
                &mut self,
                hashes: &[$crate::hash::ItemHash],
                outcomes: &mut Vec<$crate::capability::Insertion>,
            ) -> Result<(), $crate::capability::InsertError> {
                $crate::capability::insert_each(self, hashes, outcomes)
            }
        }
    };
}

pub(crate) use item_by_item;

/// Checks that all hashes belong to a range.
pub(crate) fn check_all_in_range(range: HashRange, hashes: &[ItemHash]) -> Result<(), OutOfRange> {
    if range == HashRange::WHOLE {
        return Ok(());
    }
    hashes.iter().try_for_each(|&hash| check_in_range(range, hash))
}
