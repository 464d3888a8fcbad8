//! A node's sample, and since when it has each hash: so that only what is new to somebody travels.

use crate::hypercube::DistinctSample;

/// A node's sample, and for each hash a count of the node's inserts, at or after the item's own.
///
/// *Law.* At count c it is the sample of the node's first c inserts. Whoever has it at count a gets
/// that by merging the hashes that are dated above a: of its first c inserts, what is no later than
/// the a-th and among the least k of the first c, is among the least k of the first a.
#[derive(Clone, Debug, Default)]
pub(super) struct DatedSample {
    sample: DistinctSample,
    /// The date of each hash of the sample, in the sample's order.
    dates: Vec<u64>,
    count: u64,
}

impl DatedSample {
    /// A whole sample that came in at once.
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

    /// The greatest hash that can change the sample.
    #[inline]
    pub(super) fn reach(&self) -> u64 {
        self.sample.reach()
    }

    /// Inserts a hash that is dated `count`, no less than any before.
    pub(super) fn insert(&mut self, hash: u64, count: u64) {
        if let Some(place) = self.sample.place(hash) {
            // If the sample was full its last hash has left.
            self.dates.truncate(self.sample.len() - 1);
            self.dates.insert(place, count);
            self.count = count;
        }
    }

    /// Takes in all that has come up to `count`.
    pub(super) fn merge(&mut self, hashes: &DistinctSample, count: u64) {
        for &hash in hashes.hashes() {
            self.insert(hash, count);
        }
        self.count = count;
    }

    /// Dates everything anew.
    pub(super) fn redate(&mut self, count: u64) {
        self.dates.fill(count);
        self.count = count;
    }

    /// The hashes that whoever has the sample at `count` may lack.
    pub(super) fn since(&self, count: u64) -> DistinctSample {
        let dated = self.sample.hashes().iter().zip(&self.dates);
        dated.filter(|(_, date)| **date > count).map(|(&hash, _)| hash).collect()
    }
}
