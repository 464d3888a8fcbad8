//! Umbel's own kinds as structures of the benchmark.

use std::fmt::Debug;

use umbel_filter::{
    BlockShape, Blocked, Classic, Contains, Counting, Cuckoo, HashRange, Insert, Insertion,
    ItemHash, Kind, Partitioned, Quotient, Scalable, SharedBlocked, SingleShotShape,
    StoredSingleShot,
};

use crate::structure::{Case, Structure};

/// Why creating one of them does not fail here.
const MEMORY: &str = "a filter of the benchmark has a shape and fits into memory";

/// Why inserting does not fail here.
const WHOLE: &str = "the range is the whole hash space";

/// A scalable filter starts at this part of the items.
const SCALABLE_FIRST_DIVISOR: u64 = 16;

/// Lines of the array behind a blocked filter for the case: what the limit is measured on.
///
/// # Panics
/// If the case has no blocked filter.
#[must_use]
pub fn blocked_lines(case: Case) -> u64 {
    let shape = BlockShape::for_rate(Kind::Blocked, HashRange::WHOLE, case.items, case.rate);
    shape.expect(MEMORY).memory_bytes() / 64
}

/// The kinds that are an array of blocks differ in nothing that the benchmark calls.
macro_rules! block_structure {
    ($kind:ty, $name:literal) => {
        impl Structure for $kind {
            const NAME: &'static str = $name;
            const HAS_BATCHES: bool = true;
            type Key = ItemHash;
            type Outcome = Insertion;

            fn create(case: Case) -> Self {
                let filter = Self::for_rate(HashRange::WHOLE, case.items, case.rate);
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
                is_present(Insert::insert(self, key))
            }

            fn insert_batch(&mut self, keys: &[ItemHash], outcomes: &mut Vec<Insertion>) {
                Insert::insert_batch(self, keys, outcomes).expect(WHOLE);
            }

            fn contains_batch(&self, keys: &[ItemHash], present: &mut Vec<bool>) {
                Contains::contains_batch(self, keys, present);
            }
        }
    };
}

block_structure!(Blocked, "umbel-blocked");
block_structure!(Classic, "umbel-classic");
block_structure!(Partitioned, "umbel-partitioned");
block_structure!(Counting, "umbel-counting");

/// Its table holds the items of the case, once each.
impl Structure for Cuckoo {
    const NAME: &'static str = "umbel-cuckoo";
    const HAS_BATCHES: bool = true;
    type Key = ItemHash;
    type Outcome = Insertion;

    fn create(case: Case) -> Self {
        let filter = Self::for_rate(HashRange::WHOLE, case.items, case.rate);
        let mut filter = filter.expect(MEMORY);
        filter.clear();
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
        is_present(Insert::insert(self, key))
    }

    fn insert_batch(&mut self, keys: &[ItemHash], outcomes: &mut Vec<Insertion>) {
        Insert::insert_batch(self, keys, outcomes).expect(WHOLE);
    }

    fn contains_batch(&self, keys: &[ItemHash], present: &mut Vec<bool>) {
        Contains::contains_batch(self, keys, present);
    }
}

/// Without counts, as its peer has none beside the items.
impl Structure for Quotient {
    const NAME: &'static str = "umbel-quotient";
    const HAS_BATCHES: bool = true;
    type Key = ItemHash;
    type Outcome = Insertion;

    fn create(case: Case) -> Self {
        let whole = HashRange::WHOLE;
        let shape = BlockShape::for_rate(Kind::Quotient, whole, case.items, case.rate);
        let set = shape.expect(MEMORY).with_count_bits(0).expect("a quotient filter");
        let mut filter = Self::with_shape(set).expect(MEMORY);
        filter.clear();
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
        is_present(Insert::insert(self, key))
    }

    fn insert_batch(&mut self, keys: &[ItemHash], outcomes: &mut Vec<Insertion>) {
        Insert::insert_batch(self, keys, outcomes).expect(WHOLE);
    }

    fn contains_batch(&self, keys: &[ItemHash], present: &mut Vec<bool>) {
        Contains::contains_batch(self, keys, present);
    }
}

/// Creating one writes its memory, so that it is touched.
impl Structure for SharedBlocked {
    const NAME: &'static str = "umbel-blocked-shared";
    const IS_SHARED: bool = true;
    const HAS_BATCHES: bool = true;
    type Key = ItemHash;
    type Outcome = Insertion;

    fn create(case: Case) -> Self {
        Self::for_rate(HashRange::WHOLE, case.items, case.rate).expect(MEMORY)
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
        self.insert_shared(key)
    }

    #[inline]
    fn insert_shared(&self, key: ItemHash) -> bool {
        is_present(Self::insert(self, key))
    }

    fn insert_batch(&mut self, keys: &[ItemHash], outcomes: &mut Vec<Insertion>) {
        self.insert_batch_shared(keys, outcomes);
    }

    fn insert_batch_shared(&self, keys: &[ItemHash], outcomes: &mut Vec<Insertion>) {
        Self::insert_batch(self, keys, outcomes).expect(WHOLE);
    }

    fn contains_batch(&self, keys: &[ItemHash], present: &mut Vec<bool>) {
        Contains::contains_batch(self, keys, present);
    }
}

/// Starts with a sixteenth of the items, so that it has to grow several times; that is part of its
/// inserts, and so is touching the memory of new levels.
impl Structure for Scalable {
    const NAME: &'static str = "umbel-scalable";
    const HAS_BATCHES: bool = true;
    type Key = ItemHash;
    type Outcome = Insertion;

    fn create(case: Case) -> Self {
        let first_capacity = case.items / SCALABLE_FIRST_DIVISOR;
        Self::new(HashRange::WHOLE, first_capacity, case.rate).expect(MEMORY)
    }

    fn memory_bytes(&self) -> u64 {
        self.levels().iter().map(|level| level.filter().block_shape().memory_bytes()).sum()
    }

    #[inline]
    fn contains(&self, key: ItemHash) -> bool {
        Contains::contains(self, key)
    }

    #[inline]
    fn insert(&mut self, key: ItemHash) -> bool {
        is_present(Insert::insert(self, key))
    }

    fn insert_batch(&mut self, keys: &[ItemHash], outcomes: &mut Vec<Insertion>) {
        Insert::insert_batch(self, keys, outcomes).expect(WHOLE);
    }

    fn contains_batch(&self, keys: &[ItemHash], present: &mut Vec<bool>) {
        Contains::contains_batch(self, keys, present);
    }
}

/// The compressed form, built from all hashes at once; the time includes sorting them.
impl Structure for StoredSingleShot {
    const NAME: &'static str = "umbel-single-shot";
    const IS_STATIC: bool = true;
    type Key = ItemHash;
    type Outcome = Insertion;

    fn create(case: Case) -> Self {
        Self::build(case, Vec::new())
    }

    fn build(case: Case, mut hashes: Vec<ItemHash>) -> Self {
        hashes.sort_unstable();
        // With n of m positions set, n/m of the fresh items are called present.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^50")]
        let position_count = (case.items as f64 / case.rate).ceil() as u64;
        let shape = SingleShotShape::new(HashRange::WHOLE, position_count).expect(MEMORY);
        Self::from_sorted_hashes(shape, &hashes).expect("sorted above")
    }

    fn memory_bytes(&self) -> u64 {
        Self::memory_bytes(self)
    }

    #[inline]
    fn contains(&self, key: ItemHash) -> bool {
        Contains::contains(self, key)
    }
}

#[inline]
fn is_present<E: Debug>(outcome: Result<Insertion, E>) -> bool {
    outcome.expect(WHOLE) == Insertion::Present
}
