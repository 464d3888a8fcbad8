//! The standard library's words for what filters do: `extend`, `collect` and `|=`.
//!
//! None of them can return an error, so they panic where the method would: use [`Insert`] and
//! [`Merge`] where hash ranges or shapes come from elsewhere.

use std::ops::BitOrAssign;

use crate::aging::Aging;
use crate::any::AnyFilter;
use crate::blocked::Blocked;
use crate::capability::{Insert, Merge};
use crate::classic::Classic;
use crate::counting::Counting;
use crate::cuckoo::Cuckoo;
use crate::dleft::DLeft;
use crate::hash::ItemHash;
use crate::partitioned::Partitioned;
use crate::quotient::Quotient;
use crate::range::HashRange;
use crate::redis_bloom::RedisBloom;
use crate::scalable::Scalable;
use crate::shared_blocked::SharedBlocked;
use crate::single_shot::SingleShot;
use crate::sparse_blocked::SparseBlocked;
use crate::stable::Stable;
use crate::stored_single_shot::StoredSingleShot;
use crate::variable_counting::VariableCounting;
use crate::window::Window;

/// Hashes that are inserted as one batch: enough to overlap their accesses to memory.
const EXTEND_BATCH_LEN: usize = 1_024;

/// Bound on the false-positive rate of a filter that is collected: what libraries take by habit.
const COLLECTED_RATE: f64 = 0.01;

/// Least capacity of the first level of a filter that is collected.
const COLLECTED_CAPACITY_MIN: usize = 1_024;

fn extend(filter: &mut impl Insert, hashes: impl Iterator<Item = ItemHash>) {
    let mut hashes = hashes.peekable();
    let (mut batch, mut outcomes) = (Vec::new(), Vec::new());
    while hashes.peek().is_some() {
        batch.clear();
        batch.extend(hashes.by_ref().take(EXTEND_BATCH_LEN));
        if let Err(error) = filter.insert_batch(&batch, &mut outcomes) {
            panic!("filter was not extended: {error}");
        }
    }
}

macro_rules! extended {
    ($($kind:ty),* $(,)?) => {$(
        /// Inserts all hashes, in batches.
        ///
        /// # Panics
        /// If one lies outside the filter's hash range, or the filter has to grow and cannot. Hashes
        /// before its batch were inserted.
        impl Extend<ItemHash> for $kind {
            fn extend<I: IntoIterator<Item = ItemHash>>(&mut self, hashes: I) {
                extend(self, hashes.into_iter());
            }
        }
    )*};
}

extended!(
    Aging,
    AnyFilter,
    Blocked,
    Classic,
    Counting,
    Cuckoo,
    DLeft,
    Partitioned,
    Quotient,
    RedisBloom,
    Scalable,
    SharedBlocked,
    SingleShot,
    Stable,
    StoredSingleShot,
    VariableCounting,
    Window,
);

/// A filter over the whole hash space with a false-positive rate of at most 1 %, whose first level is
/// made for as many items as the iterator promises, 1,024 at least.
///
/// # Panics
/// If there is no memory.
///
/// ```
/// use umbel_filter::{Contains, ItemHasher, Scalable};
///
/// let hasher = ItemHasher::Xxh3 { seed: 7 };
/// let seen: Scalable = ["alice", "bob"].iter().map(|name| hasher.hash(name.as_bytes())).collect();
/// assert!(seen.contains(hasher.hash(b"bob")));
/// assert_eq!(seen.levels()[0].capacity(), 1_024);
/// ```
impl FromIterator<ItemHash> for Scalable {
    fn from_iter<I: IntoIterator<Item = ItemHash>>(hashes: I) -> Self {
        let hashes = hashes.into_iter();
        let first_capacity = hashes.size_hint().0.max(COLLECTED_CAPACITY_MIN) as u64;
        match Self::new(HashRange::WHOLE, first_capacity, COLLECTED_RATE) {
            Ok(mut filter) => {
                filter.extend(hashes);
                filter
            }
            Err(error) => panic!("no filter for {first_capacity} items: {error}"),
        }
    }
}

macro_rules! or_assigned {
    ($($kind:ty),* $(,)?) => {$(
        /// Merges a filter of equal shape, as [`Merge::merge`] does.
        ///
        /// # Panics
        /// If the shapes differ.
        impl BitOrAssign<&$kind> for $kind {
            fn bitor_assign(&mut self, other: &$kind) {
                if let Err(mismatch) = self.merge(other) {
                    panic!("{mismatch}");
                }
            }
        }
    )*};
}

// Not counting filters, whose merge is a sum: a |= a would change a.
or_assigned!(Blocked, Classic, Partitioned, SingleShot, SparseBlocked, StoredSingleShot);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::FilterPlan;
    use crate::capability::{Contains, Describe};
    use crate::hash::ItemHasher;
    use crate::kind::Kind;

    fn hashes(numbers: std::ops::Range<u32>) -> impl Iterator<Item = ItemHash> {
        numbers.map(|number| ItemHasher::Xxh3 { seed: 7 }.hash(&number.to_le_bytes()))
    }

    fn empty(kind: Kind, range: HashRange) -> AnyFilter {
        let plan = FilterPlan { kind, range, item_count: 5_000, false_positive_rate: 0.01 };
        AnyFilter::create(&plan).unwrap()
    }

    #[test]
    fn extending_is_inserting_one_by_one() {
        for kind in Kind::ALL {
            let (mut extended, mut inserted) =
                (empty(kind, HashRange::WHOLE), empty(kind, HashRange::WHOLE));
            extended.extend(hashes(0..3_000));
            for hash in hashes(0..3_000) {
                inserted.insert(hash).unwrap();
            }
            assert_eq!(extended, inserted, "{kind}");
        }
    }

    #[test]
    fn library_types_are_extended_alike() {
        let (whole, base) = (HashRange::WHOLE, 8);
        let mut table = DLeft::for_rate(whole, 5_000, 0.01).unwrap();
        let mut counters = VariableCounting::for_rate(whole, 5_000, 0.01, base).unwrap();
        table.extend(hashes(0..3_000));
        counters.extend(hashes(0..3_000));
        assert!(hashes(0..3_000).all(|hash| table.contains(hash) && counters.contains(hash)));
    }

    #[test]
    fn a_cleared_filter_is_a_new_one_and_a_sealed_one_the_same() {
        for kind in Kind::ALL {
            let new = empty(kind, HashRange::WHOLE);
            let mut filter = new.clone();
            let count = match kind {
                // Tables take in what they were made for, and little more; an aging filter keeps that.
                Kind::Window | Kind::Aging | Kind::Cuckoo | Kind::Quotient => 5_000,
                // It misses some of as many.
                Kind::Stable => 500,
                _ => 20_000,
            };
            filter.extend(hashes(0..count));
            let before = filter.clone();
            filter.seal();
            assert_eq!(filter, before, "{kind}");
            assert!(hashes(0..count).all(|hash| filter.contains(hash)), "{kind}");
            assert!(filter.describe().memory_bytes <= before.describe().memory_bytes, "{kind}");
            filter.clear();
            assert_eq!(filter, new, "{kind}");
        }
    }

    #[test]
    fn a_collected_filter_has_a_level_for_all_that_was_promised() {
        let seen: Scalable = hashes(0..5_000).collect();
        assert_eq!((seen.levels().len(), seen.levels()[0].capacity()), (1, 5_000));
        // A filter promises nothing, so levels follow: 1,024 and 2,048 hold fewer than 5,000.
        let seen: Scalable = hashes(0..5_000).filter(|_| true).collect();
        assert_eq!(seen.levels().len(), 3);
        assert!(hashes(0..5_000).all(|hash| seen.contains(hash)));
    }

    #[test]
    fn or_assign_is_the_merge() {
        let filter = || Blocked::for_rate(HashRange::WHOLE, 1_000, 0.01).unwrap();
        let (mut ours, mut theirs, mut both) = (filter(), filter(), filter());
        ours.extend(hashes(0..500));
        theirs.extend(hashes(400..1_000));
        both.extend(hashes(0..1_000));
        ours |= &theirs;
        assert_eq!(ours, both);
    }

    #[test]
    #[should_panic(expected = "filter was not extended: hash")]
    fn extending_by_another_range_panics() {
        let lower = HashRange::new(0, 1 << 63).unwrap();
        empty(Kind::Blocked, lower).extend([ItemHash::new(u64::MAX, 0)]);
    }

    #[test]
    fn a_shared_filter_is_extended_by_many_threads_through_the_trait() {
        fn fill(mut filter: impl Insert, numbers: std::ops::Range<u32>) {
            let hashes: Vec<ItemHash> = hashes(numbers).collect();
            filter.insert_batch(&hashes, &mut Vec::new()).unwrap();
        }
        let shared = SharedBlocked::for_rate(HashRange::WHOLE, 1_000, 0.01).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| fill(&shared, 0..600));
            scope.spawn(|| fill(&shared, 400..1_000));
        });
        let mut plain = Blocked::for_rate(HashRange::WHOLE, 1_000, 0.01).unwrap();
        plain.extend(hashes(0..1_000));
        assert_eq!(shared.snapshot().unwrap(), plain);
        assert_eq!(shared.describe(), plain.describe());
        let mut owned = shared;
        owned.extend(hashes(0..1_000));
        assert_eq!(owned.describe(), plain.describe());
    }
}
