//! Filters that are library types, no kinds of the service, as structures of the benchmark.

use umbel_filter::{
    Contains, DLeft, HashRange, Insert, Insertion, ItemHash, Join, Lattice, VariableCounting,
};

use crate::structure::{Case, Structure};

/// Why creating one of them does not fail here.
const MEMORY: &str = "a filter of the benchmark has a shape and fits into memory";

/// Why inserting does not fail here.
const WHOLE: &str = "the range is the whole hash space, and the table is made for the items";

/// Increments that the paper finds best.
const BASE: u8 = 8;

impl Structure for DLeft {
    const NAME: &'static str = "umbel-d-left";
    type Key = ItemHash;
    type Outcome = Insertion;

    fn create(case: Case) -> Self {
        Self::for_rate(HashRange::WHOLE, case.items, case.rate).expect(MEMORY)
    }

    fn memory_bytes(&self) -> u64 {
        Self::memory_bytes(self)
    }

    #[inline]
    fn contains(&self, key: ItemHash) -> bool {
        Contains::contains(self, key)
    }

    #[inline]
    fn insert(&mut self, key: ItemHash) -> bool {
        Insert::insert(self, key).expect(WHOLE) == Insertion::Present
    }
}

impl Structure for VariableCounting {
    const NAME: &'static str = "umbel-variable-counting";
    type Key = ItemHash;
    type Outcome = Insertion;

    fn create(case: Case) -> Self {
        Self::for_rate(HashRange::WHOLE, case.items, case.rate, BASE).expect(MEMORY)
    }

    fn memory_bytes(&self) -> u64 {
        self.words().len() as u64 * 8
    }

    #[inline]
    fn contains(&self, key: ItemHash) -> bool {
        Contains::contains(self, key)
    }

    #[inline]
    fn insert(&mut self, key: ItemHash) -> bool {
        Insert::insert(self, key).expect(WHOLE) == Insertion::Present
    }
}

/// Every item is raised to 1.
impl Structure for Lattice {
    const NAME: &'static str = "umbel-lattice";
    type Key = ItemHash;
    type Outcome = Insertion;

    fn create(case: Case) -> Self {
        let filter = Self::for_rate(Join::Max, HashRange::WHOLE, case.items, case.rate);
        let mut filter = filter.expect(MEMORY);
        filter.words_mut().fill(0);
        filter
    }

    fn memory_bytes(&self) -> u64 {
        self.block_shape().memory_bytes()
    }

    #[inline]
    fn contains(&self, key: ItemHash) -> bool {
        Contains::contains(self, key)
    }

    #[inline]
    fn insert(&mut self, key: ItemHash) -> bool {
        self.raise(key, 1).expect(WHOLE) > 0
    }
}
