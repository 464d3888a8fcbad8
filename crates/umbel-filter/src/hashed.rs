//! A filter together with the hasher of its items: for programs that have values, not hashes.

use std::hash::Hash;

use crate::capability::{Contains, Insert, InsertError, Insertion, OutOfRange, Removal, Remove};
use crate::hash::ItemHasher;

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
    use crate::{Counting, HashRange};

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
