//! A filter together with the hasher of its items: for programs that have values, not hashes.

use std::hash::Hash;

use thiserror::Error;

use crate::capability::{
    Contains, Insert, InsertError, Insertion, Merge, OutOfRange, Removal, Remove,
};
use crate::hash::ItemHasher;
use crate::shape::ShapeMismatch;

/// A filter of any kind that takes values of any type that is [`Hash`], as a set of the standard
/// library does. What that means for stored filters: [`HashState`](crate::HashState).
///
/// ```
/// use umbel_filter::{Blocked, HashRange, HashedFilter, Insertion, ItemHasher};
///
/// let filter = Blocked::for_rate(HashRange::WHOLE, 1_000, 0.01)?;
/// let mut seen = HashedFilter::new(filter, ItemHasher::Xxh3 { seed: 7 });
/// assert_eq!(seen.insert(&("alice", 30))?, Insertion::New);
/// assert_eq!(seen.insert(&("alice", 30))?, Insertion::Present);
/// assert!(!seen.contains(&("alice", 31)));
///
/// seen.extend((0..100).map(|age| ("bob", age)));
/// assert!(seen.contains(&("bob", 99)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct HashedFilter<F> {
    filter: F,
    hasher: ItemHasher,
}

impl<F> HashedFilter<F> {
    /// A filter whose items, if it has any, were hashed by this hasher.
    #[must_use]
    pub const fn new(filter: F, hasher: ItemHasher) -> Self {
        Self { filter, hasher }
    }

    /// The filter.
    #[must_use]
    pub const fn filter(&self) -> &F {
        &self.filter
    }

    /// The filter alone.
    #[must_use]
    pub fn into_filter(self) -> F {
        self.filter
    }

    /// The hasher.
    #[must_use]
    pub const fn hasher(&self) -> &ItemHasher {
        &self.hasher
    }
}

impl<F: Contains> HashedFilter<F> {
    /// Whether the value may have been inserted; false is certain.
    #[must_use]
    pub fn contains<T: Hash + ?Sized>(&self, value: &T) -> bool {
        self.filter.contains(self.hasher.hash_of(value))
    }
}

impl<F: Insert> HashedFilter<F> {
    /// Inserts a value.
    ///
    /// # Errors
    /// As [`Insert::insert`]. Nothing was changed.
    pub fn insert<T: Hash + ?Sized>(&mut self, value: &T) -> Result<Insertion, InsertError> {
        self.filter.insert(self.hasher.hash_of(value))
    }
}

impl<F: Remove> HashedFilter<F> {
    /// Removes a value, which must have been inserted ([`Remove::remove`]).
    ///
    /// # Errors
    /// If the value lies outside the filter's hash range. Nothing was changed.
    pub fn remove<T: Hash + ?Sized>(&mut self, value: &T) -> Result<Removal, OutOfRange> {
        self.filter.remove(self.hasher.hash_of(value))
    }
}

/// Why a filter with its hasher was not merged. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum HashedMergeError {
    /// The same positions are of other items. Build one of the filters anew with the other's hasher.
    #[error("items hashed by {theirs:?}, expected {ours:?}, seed and key alike")]
    Hasher {
        /// The hasher of the filter that was to take the other in.
        ours: ItemHasher,
        /// The hasher of the other one.
        theirs: ItemHasher,
    },
    /// Build one of the filters anew with the other's shape.
    #[error(transparent)]
    Shape(#[from] ShapeMismatch),
}

impl<F: Merge> HashedFilter<F> {
    /// Merges another filter of equal shape whose items were hashed by the same hasher, as [`Merge::merge`] does.
    ///
    /// # Errors
    /// If hashers or shapes differ. Nothing was changed.
    pub fn merge(&mut self, other: &Self) -> Result<u64, HashedMergeError> {
        let (ours, theirs) = (self.hasher, other.hasher);
        if ours != theirs {
            return Err(HashedMergeError::Hasher { ours, theirs });
        }
        Ok(self.filter.merge(&other.filter)?)
    }
}

/// Inserts all values.
///
/// # Panics
/// As extending the filter by hashes does.
impl<T: Hash, F: Extend<crate::ItemHash>> Extend<T> for HashedFilter<F> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        let hasher = self.hasher;
        self.filter.extend(values.into_iter().map(|value| hasher.hash_of(&value)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Blocked, Counting, HashRange};

    #[test]
    fn filters_merge_under_one_hasher_alone() {
        let filter = |seed, item_count| {
            let filter = Blocked::for_rate(HashRange::WHOLE, item_count, 0.01).unwrap();
            HashedFilter::new(filter, ItemHasher::Xxh3 { seed })
        };
        let (mut ours, mut theirs) = (filter(7, 1_000), filter(7, 1_000));
        theirs.insert("alice").unwrap();
        assert!(ours.merge(&theirs).unwrap() > 0 && ours.contains("alice"));
        let before = ours.clone();
        let other = ours.merge(&filter(8, 1_000)).unwrap_err();
        let said =
            "items hashed by Xxh3 { seed: 8 }, expected Xxh3 { seed: 7 }, seed and key alike";
        assert_eq!(other.to_string(), said);
        assert!(matches!(ours.merge(&filter(7, 9_000)), Err(HashedMergeError::Shape(_))));
        assert_eq!(ours, before);
    }

    #[test]
    fn what_is_inserted_is_contained_and_can_leave() {
        let filter = Counting::for_rate(HashRange::WHOLE, 100, 0.001).unwrap();
        let mut online = HashedFilter::new(filter, ItemHasher::SipHash { key: [1; 16] });
        assert_eq!(online.insert("alice"), Ok(Insertion::New));
        // A `String` is the item that its `str` is.
        assert!(online.contains(&String::from("alice")));
        assert_eq!(online.remove("alice"), Ok(Removal::Removed));
        assert!(!online.contains("alice"));
        assert_eq!(online.remove("alice"), Ok(Removal::Absent));
    }
}
