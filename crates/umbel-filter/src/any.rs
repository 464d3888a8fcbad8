//! A filter of any kind behind one type: what a frame or a user's command may name.
//!
//! The kinds are a closed set, so they are an enum and not a trait object: when one is added, the
//! compiler reports all code that must handle it. What a kind cannot do is an error that names it:
//!
//! | operation | single-shot | blocked | classic | partitioned | counting | scalable, redisbloom | window, aging, stable | cuckoo | quotient |
//! |---|---|---|---|---|---|---|---|---|---|
//! | [`insert`](Insert::insert), [`contains`](Contains::contains) | ● | ● | ● | ● | ● | ● | ● | ● | ● |
//! | [`merge`](AnyFilter::merge) | ● | ● | ● | ● | ● | | | | ● |
//! | [`merge_shared`](AnyFilter::merge_shared) | | ● | ● | ● | | | | | |
//! | [`remove`](AnyFilter::remove) | | | | | ● | | | ● | ● |
//! | [`seal`](AnyFilter::seal), [`clear`](AnyFilter::clear) | ● | ● | ● | ● | ● | ● | ● | ● | ● |
//! | [`part`](AnyFilter::part), [`join`](AnyFilter::join) | ● | ● | ● | ● | ● | scalable | ● | ● | ● |

use thiserror::Error;

use crate::aging::Aging;
use crate::blocked::Blocked;
use crate::capability::{
    Contains, Describe, Description, Insert, InsertError, Insertion, Merge, OutOfRange, Removal,
    Remove,
};
use crate::classic::Classic;
use crate::counting::Counting;
use crate::cuckoo::Cuckoo;
use crate::hash::ItemHash;
use crate::kind::Kind;
use crate::merge_error::MergeError;
use crate::partitioned::Partitioned;
use crate::quotient::Quotient;
use crate::range::HashRange;
use crate::redis_bloom::RedisBloom;
use crate::redis_bloom_shape::RedisBloomShape;
use crate::scalable::Scalable;
use crate::shape::{BlockShape, CreateError, Shape, ShapeError, ShapeMismatch};
use crate::single_shot_shape::SingleShotShape;
use crate::sizing;
use crate::stable::Stable;
use crate::stored_single_shot::StoredSingleShot;
use crate::window::Window;

mod join;
mod part;
mod shared;

pub use part::FilterPartError;

#[cfg(test)]
mod any_test;

/// A filter of one of the kinds.
///
/// ```
/// use umbel_filter::{
///     AnyFilter, Contains, FilterPlan, HashRange, Insert, ItemHasher, Kind, RemoveError,
/// };
///
/// let alice = ItemHasher::Xxh3 { seed: 7 }.hash(b"alice");
/// for kind in Kind::ALL {
///     let range = HashRange::WHOLE;
///     let plan = FilterPlan { kind, range, item_count: 1_000, false_positive_rate: 0.01 };
///     let mut filter = AnyFilter::create(&plan)?;
///     filter.insert(alice)?;
///     assert!(filter.contains(alice));
///     if !kind.removes() {
///         assert_eq!(filter.remove(alice), Err(RemoveError::Unsupported { kind }));
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub enum AnyFilter {
    /// One probe an item, stored as Golomb-coded gaps.
    SingleShot(StoredSingleShot),
    /// Up to 16 probes in one block of 512 bits.
    Blocked(Blocked),
    /// k probes anywhere in a block of up to 64 KiB.
    Classic(Classic),
    /// One probe in each of k parts of a block of up to 64 KiB.
    Partitioned(Partitioned),
    /// As blocked, with a 4-bit counter in place of each bit.
    Counting(Counting),
    /// A chain of blocked filters that grows.
    Scalable(Scalable),
    /// Fingerprints, each with the slice of time that it belongs to.
    Window(Window),
    /// Two generations of a blocked filter.
    Aging(Aging),
    /// Counters that every insert lowers somewhere.
    Stable(Stable),
    /// Fingerprints that can be taken out.
    Cuckoo(Cuckoo),
    /// Remainders in order, with counts.
    Quotient(Quotient),
    /// RedisBloom's chain.
    RedisBloom(RedisBloom),
}

/// What a new filter is asked to do.
///
/// ```
/// use umbel_filter::{AnyFilter, Describe, FilterPlan, HashRange, Kind};
///
/// let plan = FilterPlan {
///     kind: Kind::SingleShot,
///     range: HashRange::WHOLE,
///     item_count: 1,
///     false_positive_rate: 0.001,
/// };
/// // One item takes one position, which may be one of a thousand.
/// assert_eq!(AnyFilter::create(&plan)?.describe().position_count, 1_000);
/// # Ok::<(), umbel_filter::CreateError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FilterPlan {
    /// The kind.
    pub kind: Kind,
    /// The hash range whose items it holds.
    pub range: HashRange,
    /// Number of different items of the range that are planned for, n, at least 1. For a scalable
    /// filter those of the range in its first level.
    pub item_count: u64,
    /// The rate that it shall have with so many items, p, above 0 and below 1. For a scalable
    /// filter the bound with any number of items.
    pub false_positive_rate: f64,
}

/// Why an item was not taken out. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum RemoveError {
    /// Send the item to the filter of its hash range.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// The kind cannot take items out: their positions may be other items' too. Build a counting, a cuckoo or a
    /// quotient filter, which can.
    #[error(
        "filters of kind {kind} cannot remove items, those of kind {}, {} and {} can",
        Kind::Counting,
        Kind::Cuckoo,
        Kind::Quotient
    )]
    Unsupported {
        /// The filter's kind.
        kind: Kind,
    },
}

/// Matches on an [`AnyFilter`] and evaluates one expression for its filter, whatever its kind.
///
/// ```
/// use umbel_filter::{AnyFilter, Blocked, Describe, HashRange, each_filter};
///
/// let any = AnyFilter::from(Blocked::new(HashRange::WHOLE, 100, 6)?);
/// assert_eq!(each_filter!(&any, filter => Describe::shape(filter)), any.shape());
/// # Ok::<(), umbel_filter::CreateError>(())
/// ```
#[macro_export]
macro_rules! each_filter {
    ($any:expr, $filter:ident => $result:expr) => {
        match $any {
            $crate::AnyFilter::SingleShot($filter) => $result,
            $crate::AnyFilter::Blocked($filter) => $result,
            $crate::AnyFilter::Classic($filter) => $result,
            $crate::AnyFilter::Partitioned($filter) => $result,
            $crate::AnyFilter::Counting($filter) => $result,
            $crate::AnyFilter::Scalable($filter) => $result,
            $crate::AnyFilter::Window($filter) => $result,
            $crate::AnyFilter::Aging($filter) => $result,
            $crate::AnyFilter::Stable($filter) => $result,
            $crate::AnyFilter::Cuckoo($filter) => $result,
            $crate::AnyFilter::Quotient($filter) => $result,
            $crate::AnyFilter::RedisBloom($filter) => $result,
        }
    };
}

impl AnyFilter {
    /// The smallest empty filter that does what is planned.
    ///
    /// # Errors
    /// If nothing is planned for, no filter of the kind has such a rate, or there is no memory.
    pub fn create(plan: &FilterPlan) -> Result<Self, CreateError> {
        let FilterPlan { kind, range, item_count, false_positive_rate } = *plan;
        Ok(match kind {
            Kind::SingleShot => StoredSingleShot::new(single_shot_shape(plan)?).into(),
            Kind::Blocked
            | Kind::Classic
            | Kind::Partitioned
            | Kind::Counting
            | Kind::Window
            | Kind::Aging
            | Kind::Stable
            | Kind::Cuckoo
            | Kind::Quotient => {
                let shape = BlockShape::for_rate(kind, range, item_count, false_positive_rate)?;
                Self::with_block_shape(shape)?
            }
            Kind::Scalable => {
                Scalable::new(range, range.whole_of(item_count), false_positive_rate)?.into()
            }
            Kind::RedisBloom if range != HashRange::WHOLE => {
                return Err(ShapeError::Part { kind }.into());
            }
            Kind::RedisBloom => {
                let shape = RedisBloomShape::for_rate(item_count, false_positive_rate)?;
                RedisBloom::with_shape(shape)?.into()
            }
        })
    }

    /// The empty filter of this shape.
    ///
    /// # Errors
    /// If there is no memory, or a filter that forgets by what comes has no pace.
    pub fn with_block_shape(shape: BlockShape) -> Result<Self, CreateError> {
        Ok(match shape.kind() {
            Kind::Blocked => Blocked::with_shape(shape)?.into(),
            Kind::Classic => Classic::with_shape(shape)?.into(),
            Kind::Partitioned => Partitioned::with_shape(shape)?.into(),
            Kind::Counting => Counting::with_shape(shape)?.into(),
            Kind::Window => Window::with_shape(shape)?.into(),
            Kind::Aging => Aging::with_shape(shape)?.into(),
            Kind::Stable => Stable::with_shape(shape)?.into(),
            Kind::Cuckoo => Cuckoo::with_shape(shape)?.into(),
            Kind::Quotient => Quotient::with_shape(shape)?.into(),
            kind @ (Kind::SingleShot | Kind::Scalable | Kind::RedisBloom) => {
                return Err(ShapeError::Kind { kind }.into());
            }
        })
    }

    /// The kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::SingleShot(_) => Kind::SingleShot,
            Self::Blocked(_) => Kind::Blocked,
            Self::Classic(_) => Kind::Classic,
            Self::Partitioned(_) => Kind::Partitioned,
            Self::Counting(_) => Kind::Counting,
            Self::Scalable(_) => Kind::Scalable,
            Self::Window(_) => Kind::Window,
            Self::Aging(_) => Kind::Aging,
            Self::Stable(_) => Kind::Stable,
            Self::Cuckoo(_) => Kind::Cuckoo,
            Self::Quotient(_) => Kind::Quotient,
            Self::RedisBloom(_) => Kind::RedisBloom,
        }
    }

    /// Removes one item, which must have been inserted, as [`Remove::remove`] does.
    ///
    /// # Errors
    /// If the kind cannot, or the item lies outside the filter's hash range. Nothing was changed.
    pub fn remove(&mut self, hash: ItemHash) -> Result<Removal, RemoveError> {
        match self {
            Self::Counting(filter) => Ok(filter.remove(hash)?),
            Self::Cuckoo(filter) => Ok(filter.remove(hash)?),
            Self::Quotient(filter) => Ok(filter.remove(hash)?),
            _ => Err(RemoveError::Unsupported { kind: self.kind() }),
        }
    }

    /// Puts the filter into its shortest form: worth it before many questions, and before the filter
    /// is kept for long. Only single-shot filters have another one, which holds the latest inserts
    /// apart ([`StoredSingleShot::seal`]); what is contained stays the same in every kind.
    pub fn seal(&mut self) {
        if let Self::SingleShot(filter) = self {
            filter.seal();
        }
    }

    /// Number of new items that a filter of a kind that [grows](Kind::grows) has room for before it does; None of
    /// the other kinds, of a fixed chain of RedisBloom's, and of a quotient filter whose remainders have one bit.
    ///
    /// ```
    /// use umbel_filter::{AnyFilter, FilterPlan, HashRange, Insert, ItemHash, Kind};
    ///
    /// let (kind, range) = (Kind::Scalable, HashRange::WHOLE);
    /// let plan = FilterPlan { kind, range, item_count: 10, false_positive_rate: 0.01 };
    /// let mut filter = AnyFilter::create(&plan)?;
    /// filter.insert(ItemHash::new(1, 2))?;
    /// assert_eq!(filter.room(), Some(9));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn room(&self) -> Option<u64> {
        match self {
            Self::Scalable(filter) => {
                let newest = filter.levels().last()?;
                Some(newest.capacity().saturating_sub(newest.item_count()))
            }
            Self::Quotient(filter) => {
                let shape = filter.block_shape();
                let room = shape.quotient_capacity().saturating_sub(filter.taken_count());
                shape.grown().is_ok().then_some(room)
            }
            Self::RedisBloom(filter) if !filter.redis_bloom_shape().is_fixed() => {
                let newest = filter.links().last()?;
                Some(newest.shape().capacity().saturating_sub(newest.item_count()))
            }
            _ => None,
        }
    }

    /// Takes all items out, of any kind. The shape stays, and so does the memory of the kinds that
    /// are arrays; a scalable filter keeps its first level, RedisBloom's its first link, a single-shot filter nothing.
    pub fn clear(&mut self) {
        match self {
            Self::SingleShot(filter) => {
                *filter = StoredSingleShot::new(filter.single_shot_shape());
            }
            Self::Blocked(filter) => filter.words_mut().fill(0),
            Self::Classic(filter) => filter.words_mut().fill(0),
            Self::Partitioned(filter) => filter.words_mut().fill(0),
            Self::Counting(filter) => filter.words_mut().fill(0),
            Self::Scalable(filter) => filter.clear(),
            Self::Window(filter) => filter.clear(),
            Self::Aging(filter) => filter.clear(),
            Self::Stable(filter) => filter.clear(),
            Self::Cuckoo(filter) => filter.clear(),
            Self::Quotient(filter) => filter.clear(),
            Self::RedisBloom(filter) => filter.clear(),
        }
    }

    /// Merges another filter into this one and returns how many positions it set that were not set
    /// before. Merging twice is merging once, but for counting and quotient filters, which add.
    ///
    /// # Errors
    /// If this filter's kind does not merge, the shapes, which include the kind, differ, or a quotient
    /// filter has no room for both. Nothing was changed.
    pub fn merge(&mut self, other: &Self) -> Result<u64, MergeError> {
        Ok(match (&mut *self, other) {
            (Self::SingleShot(ours), Self::SingleShot(theirs)) => ours.merge(theirs)?,
            (Self::Blocked(ours), Self::Blocked(theirs)) => ours.merge(theirs)?,
            (Self::Classic(ours), Self::Classic(theirs)) => ours.merge(theirs)?,
            (Self::Partitioned(ours), Self::Partitioned(theirs)) => ours.merge(theirs)?,
            (Self::Counting(ours), Self::Counting(theirs)) => ours.merge(theirs)?,
            (Self::Quotient(ours), Self::Quotient(theirs)) => ours.merge(theirs)?,
            (
                Self::Scalable(_)
                | Self::Window(_)
                | Self::Aging(_)
                | Self::Stable(_)
                | Self::Cuckoo(_)
                | Self::RedisBloom(_),
                _,
            ) => return Err(MergeError::Unsupported { kind: self.kind() }),
            (ours, theirs) => {
                return Err(ShapeMismatch { ours: ours.shape(), theirs: theirs.shape() }.into());
            }
        })
    }
}

/// The least positions m with 1 − (1 − 1/m)^n ≤ p for the range's n items, over the whole space.
fn single_shot_shape(plan: &FilterPlan) -> Result<SingleShotShape, CreateError> {
    let FilterPlan { range, item_count, false_positive_rate: rate, .. } = *plan;
    sizing::check_items(item_count)?;
    sizing::check_rate(rate)?;
    // The rate falls with m, so m is found by halving. Too many positions are refused as a shape.
    let least = sizing::least(1, u64::MAX, |position_count| {
        sizing::single_shot_false_positive_rate(position_count, item_count)
            .is_ok_and(|found| found <= rate)
    });
    let over_the_space = (u128::from(least) << 64).div_ceil(range.width());
    let position_count = u64::try_from(over_the_space).unwrap_or(u64::MAX);
    Ok(SingleShotShape::new(range, position_count)?)
}

impl Contains for AnyFilter {
    #[inline]
    fn contains(&self, hash: ItemHash) -> bool {
        each_filter!(self, filter => filter.contains(hash))
    }

    fn contains_batch(&self, hashes: &[ItemHash], present: &mut Vec<bool>) {
        each_filter!(self, filter => filter.contains_batch(hashes, present));
    }
}

impl Insert for AnyFilter {
    #[inline]
    fn insert(&mut self, hash: ItemHash) -> Result<Insertion, InsertError> {
        each_filter!(self, filter => filter.insert(hash))
    }

    fn insert_batch(
        &mut self,
        hashes: &[ItemHash],
        outcomes: &mut Vec<Insertion>,
    ) -> Result<(), InsertError> {
        each_filter!(self, filter => filter.insert_batch(hashes, outcomes))
    }
}

impl Describe for AnyFilter {
    fn shape(&self) -> Shape {
        each_filter!(self, filter => Describe::shape(filter))
    }

    fn describe(&self) -> Description {
        each_filter!(self, filter => filter.describe())
    }
}

/// Makes a filter of one kind one of any kind.
macro_rules! from_kinds {
    ($($kind:ident($filter:ty)),* $(,)?) => {$(
        impl From<$filter> for AnyFilter {
            fn from(filter: $filter) -> Self {
                Self::$kind(filter)
            }
        }
    )*};
}

from_kinds!(
    SingleShot(StoredSingleShot),
    Blocked(Blocked),
    Classic(Classic),
    Partitioned(Partitioned),
    Counting(Counting),
    Scalable(Scalable),
    Window(Window),
    Aging(Aging),
    Stable(Stable),
    Cuckoo(Cuckoo),
    Quotient(Quotient),
    RedisBloom(RedisBloom),
);
