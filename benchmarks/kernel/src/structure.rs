//! What the benchmark asks of a structure, and what it measures of one.

use crate::keys::Key;

/// Items to insert and the rate to reach.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Case {
    /// Number of items, all different.
    pub items: u64,
    /// False-positive rate that the structure is sized for.
    pub rate: f64,
}

/// A structure that answers whether a key was inserted.
///
/// It is called the fastest way that its documentation names for keys that are hashes already.
/// What it cannot do, its constants say, and the methods that would do it are never called.
pub trait Structure: Sized + Sync {
    /// Its name in the tables.
    const NAME: &'static str;
    /// Whether it is built from all keys at once instead of growing.
    const IS_STATIC: bool = false;
    /// Whether two threads may insert at once.
    const IS_SHARED: bool = false;
    /// Whether it has calls for many keys.
    const HAS_BATCHES: bool = false;

    /// A key as it takes it.
    type Key: Key;
    /// What it says of an insert in a batch.
    type Outcome;

    /// Whether it is made for such a rate.
    fn suits(_case: Case) -> bool {
        true
    }

    /// An empty one for the case, its memory touched as far as its interface lets us.
    fn create(case: Case) -> Self;

    /// Bytes of memory for the items.
    fn memory_bytes(&self) -> u64;

    /// Whether the key may have been inserted.
    fn contains(&self, key: Self::Key) -> bool;

    /// Inserts a key; returns what the structure says of it.
    fn insert(&mut self, _key: Self::Key) -> bool {
        unreachable!("{} has no insert", Self::NAME)
    }

    /// One that holds these keys.
    fn build(_case: Case, _keys: Vec<Self::Key>) -> Self {
        unreachable!("{} is not static", Self::NAME)
    }

    /// Inserts a key while others do the same.
    fn insert_shared(&self, _key: Self::Key) -> bool {
        unreachable!("{} is not shared", Self::NAME)
    }

    /// Inserts many keys.
    fn insert_batch(&mut self, _keys: &[Self::Key], _outcomes: &mut Vec<Self::Outcome>) {
        unreachable!("{} has no batches", Self::NAME)
    }

    /// Inserts many keys while others do the same.
    fn insert_batch_shared(&self, _keys: &[Self::Key], _outcomes: &mut Vec<Self::Outcome>) {
        unreachable!("{} is not shared", Self::NAME)
    }

    /// Answers for many keys.
    fn contains_batch(&self, _keys: &[Self::Key], _present: &mut Vec<bool>) {
        unreachable!("{} has no batches", Self::NAME)
    }
}
