//! A node's sample with a date for each hash, so that only hashes new to the receiver are sent.

use crate::hypercube::DistinctSample;

/// A node's sample. Each hash is dated with a count of the node's inserts, at or after the item's
/// own insert.
///
/// *Law.* At count c it is the sample of the node's first c inserts. A node that has it at count a
/// reaches count c by merging the hashes dated above a: a hash that is among the k smallest of the
/// first c inserts, and was inserted no later than the a-th, is also among the k smallest of the
/// first a.
#[derive(Clone, Debug, Default)]
pub(super) struct DatedSample {
    sample: DistinctSample,
    /// The date of each hash, in the sample's order.
    dates: Vec<u64>,
    count: u64,
}

impl DatedSample {
    /// A complete sample, received at once.
    pub(super) fn new(sample: DistinctSample, count: u64) -> Self {
        Self { dates: vec![count; sample.len()], sample, count }
    }

    pub(super) const fn sample(&self) -> &DistinctSample {
        &self.sample
    }

    /// The last count at which the sample changed.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// The largest hash that could still change the sample.
    #[inline]
    pub(super) fn reach(&self) -> u64 {
        self.sample.reach()
    }

    /// Inserts a hash with the date `count`, which must not be below earlier dates.
    pub(super) fn insert(&mut self, hash: u64, count: u64) {
        if let Some(place) = self.sample.place(hash) {
            // A full sample has just dropped its largest hash.
            self.dates.truncate(self.sample.len() - 1);
            self.dates.insert(place, count);
            self.count = count;
        }
    }

    /// Merges the hashes of a sample at `count`.
    pub(super) fn merge(&mut self, hashes: &DistinctSample, count: u64) {
        for &hash in hashes.hashes() {
            self.insert(hash, count);
        }
        self.count = count;
    }

    /// Gives every hash a new date.
    pub(super) fn redate(&mut self, count: u64) {
        self.dates.fill(count);
        self.count = count;
    }

    /// The hashes that a node may lack if it has the sample at `count`.
    pub(super) fn since(&self, count: u64) -> DistinctSample {
        let dated = self.sample.hashes().iter().zip(&self.dates);
        dated.filter(|(_, date)| **date > count).map(|(&hash, _)| hash).collect()
    }
}
