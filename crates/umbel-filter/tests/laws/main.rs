//! The laws of the capabilities, one function a law, for every kind that has the capability.
//!
//! The filters are tiny, so that items collide all the time: a law that holds only while filters
//! are empty enough would break at once.

#![allow(clippy::unwrap_used, reason = "a failed test is what should come of it")]

mod cases;

use std::any::type_name;
use std::fmt::Debug;

use cases::{Case, cases};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use umbel_filter::{
    Aging, BlockShape, Blocked, Classic, Counting, Cuckoo, Describe, FoldError, HashRange, Insert,
    InsertError, Insertion, ItemHash, Kind, Merge, OutOfRange, Partitioned, Quotient, Scalable,
    Shape, ShapeMismatch, SingleShot, SingleShotShape, Stable, StoredSingleShot, Window,
};

/// A kind under test.
trait Filter: Clone + PartialEq + Debug + Insert {
    /// An empty filter over a range, of one of several shapes, 0 to [`SHAPE_COUNT`] − 1.
    fn empty(range: HashRange, shape: usize) -> Self;

    /// Whether an insert of what is present takes a position, too.
    const KEEPS_COPIES: bool = false;

    /// Number of positions that are set.
    fn one_count(&self) -> u64;
}

/// A kind that merges.
trait Merging: Filter + Merge {
    fn shape(&self) -> Shape;
}

/// A kind whose filters over parts of a range are slices of the filter over the range.
trait Parts: Merging {
    fn merge_part(&mut self, part: &Self) -> Result<u64, ShapeMismatch>;
}

/// A kind whose filters can be halved.
trait Fold: Filter {
    fn fold(&self) -> Result<Self, FoldError>;

    /// The empty filter of half of the shape's size.
    fn empty_half(range: HashRange, shape: usize) -> Self;
}

const SHAPE_COUNT: usize = 3;

/// Numbers of blocks, their bits, and probes.
const LINE_SHAPES: [(u64, u32, u32); SHAPE_COUNT] = [(2, 512, 6), (6, 512, 16), (4, 512, 1)];

/// The same for the kinds that spread their probes: many blocks; one of even parts; many parts.
const SPREAD_SHAPES: [(u64, u32, u32); SHAPE_COUNT] = [(4, 1_536, 7), (1, 2_048, 4), (2, 512, 64)];

/// The kinds that are arrays of blocks have one interface.
macro_rules! blocks {
    ($($kind:ident of $shapes:ident,)*) => { $(
        impl Filter for $kind {
            fn empty(range: HashRange, shape: usize) -> Self {
                let (blocks, bits, probes) = $shapes[shape];
                let shape = BlockShape::new(Kind::$kind, range, blocks, bits, probes).unwrap();
                Self::with_shape(shape).unwrap()
            }

            fn one_count(&self) -> u64 {
                self.describe().one_count
            }
        }

        impl Merging for $kind {
            fn shape(&self) -> Shape {
                Describe::shape(self)
            }
        }

        impl Parts for $kind {
            fn merge_part(&mut self, part: &Self) -> Result<u64, ShapeMismatch> {
                self.merge_part(part)
            }
        }
    )* };
}

macro_rules! folded {
    ($($kind:ident of $shapes:ident,)*) => { $(
        impl Fold for $kind {
            fn fold(&self) -> Result<Self, FoldError> {
                self.fold()
            }

            fn empty_half(range: HashRange, shape: usize) -> Self {
                let (blocks, bits, probes) = match $shapes[shape] {
                    (1, bits, probes) => (1, bits / 2, probes),
                    (blocks, bits, probes) => (blocks / 2, bits, probes),
                };
                let shape = BlockShape::new(Kind::$kind, range, blocks, bits, probes).unwrap();
                Self::with_shape(shape).unwrap()
            }
        }
    )* };
}

macro_rules! single_shots {
    ($($kind:ident with $shape:expr,)*) => { $(
        impl Filter for $kind {
            fn empty(range: HashRange, shape: usize) -> Self {
                Self::new(SingleShotShape::new(range, [1, 61, 1 << 50][shape]).unwrap())
            }

            fn one_count(&self) -> u64 {
                self.len()
            }
        }

        impl Merging for $kind {
            fn shape(&self) -> Shape {
                $shape(self)
            }
        }
    )* };
}

blocks! {
    Blocked of LINE_SHAPES,
    Counting of LINE_SHAPES,
    Classic of SPREAD_SHAPES,
    Partitioned of SPREAD_SHAPES,
}

folded! {
    Blocked of LINE_SHAPES,
    Classic of SPREAD_SHAPES,
    Partitioned of SPREAD_SHAPES,
}

single_shots! {
    SingleShot with |filter: &Self| filter.shape().into(),
    StoredSingleShot with Describe::shape,
}

impl Filter for Scalable {
    fn empty(range: HashRange, shape: usize) -> Self {
        let (first_capacity, rate) = [(1, 0.1), (10, 0.01), (1_000, 0.3)][shape];
        Self::new(range, first_capacity, rate).unwrap()
    }

    fn one_count(&self) -> u64 {
        self.describe().one_count
    }
}

/// The kinds that forget, by their paces and shapes.
macro_rules! forgetting {
    ($($kind:ident of $shape:expr,)*) => { $(
        impl Filter for $kind {
            fn empty(range: HashRange, shape: usize) -> Self {
                let (pace, (blocks, bits, probes)) = ($shape.0, $shape.1[shape]);
                let shape = BlockShape::new(Kind::$kind, range, blocks, bits, probes).unwrap();
                Self::with_shape(shape.with_pace(pace).unwrap()).unwrap()
            }

            fn one_count(&self) -> u64 {
                self.describe().one_count
            }
        }
    )* };
}

/// So slow to forget that no case has enough inserts for it: 2^20 items of a generation; one cell lowered
/// at a time, which is set to 15.
const GENERATION: u64 = 1 << 20;
const ONE_OF_FIFTEEN: u64 = 16 + 15;

forgetting! {
    Window of (0, [(4, 1_024, 50), (1, 2_048, 3), (2, 1_536, 13)]),
    Aging of (GENERATION, [(2, 1_024, 6), (6, 1_024, 16), (4, 1_024, 1)]),
    Stable of (ONE_OF_FIFTEEN, LINE_SHAPES),
}

impl Filter for Cuckoo {
    const KEEPS_COPIES: bool = true;

    fn empty(range: HashRange, shape: usize) -> Self {
        let (pages, slots, bits) = [(4, 1_024, 32), (1, 2_048, 6), (2, 512, 13)][shape];
        let shape = BlockShape::new(Kind::Cuckoo, range, pages, slots, bits).unwrap();
        Self::with_shape(shape).unwrap()
    }

    fn one_count(&self) -> u64 {
        self.describe().one_count
    }
}

impl Filter for Quotient {
    fn empty(range: HashRange, shape: usize) -> Self {
        let (pages, slots, bits) = [(4, 256, 32), (1, 128, 6), (7, 64, 13)][shape];
        let shape = BlockShape::new(Kind::Quotient, range, pages, slots, bits).unwrap();
        Self::with_shape(shape).unwrap()
    }

    fn one_count(&self) -> u64 {
        self.taken_count()
    }
}

/// Applies a law to every kind.
macro_rules! every_kind {
    ($law:ident $arguments:tt) => {
        every_merging_kind!($law $arguments);
        of_kinds!($law $arguments: Scalable, Window, Aging, Stable, Cuckoo, Quotient);
    };
}

/// Applies a law to every kind that merges.
macro_rules! every_merging_kind {
    ($law:ident $arguments:tt) => {
        every_kind_of_parts!($law $arguments);
        of_kinds!($law $arguments: SingleShot, StoredSingleShot);
    };
}

/// Applies a law to every kind whose filters over parts of a range are slices.
macro_rules! every_kind_of_parts {
    ($law:ident $arguments:tt) => {
        every_folded_kind!($law $arguments);
        of_kinds!($law $arguments: Counting);
    };
}

/// Applies a law to every kind whose filters can be halved.
macro_rules! every_folded_kind {
    ($law:ident $arguments:tt) => { of_kinds!($law $arguments: Blocked, Classic, Partitioned); };
}

macro_rules! of_kinds {
    ($law:ident $arguments:tt: $($kind:ty),*) => { $( of_kind!($law, $kind, $arguments); )* };
}

macro_rules! of_kind {
    ($law:ident, $kind:ty, ($($argument:expr),*)) => {
        $law::<$kind>($($argument),*)
            .map_err(|error| TestCaseError::fail(format!("{}: {error}", type_name::<$kind>())))?;
    };
}

type Outcome = Result<(), TestCaseError>;

/// Not inlined, as what else makes filters: in each law for each kind again, it takes the optimiser long.
#[inline(never)]
fn filter<F: Filter>(range: HashRange, shape: usize, items: &[ItemHash]) -> F {
    let mut filter = F::empty(range, shape);
    for &item in items {
        filter.insert(item).unwrap();
    }
    filter
}

#[inline(never)]
fn union<F: Merging>(a: &F, b: &F) -> F {
    let mut union = a.clone();
    union.merge(b).unwrap();
    union
}

/// a ∪ b = b ∪ a
fn commutative<F: Merging>(set: &Case) -> Outcome {
    let [a, b, _] = set.filters::<F>();
    prop_assert_eq!(union(&a, &b), union(&b, &a));
    Ok(())
}

/// (a ∪ b) ∪ c = a ∪ (b ∪ c)
fn associative<F: Merging>(set: &Case) -> Outcome {
    let [a, b, c] = set.filters::<F>();
    prop_assert_eq!(union(&union(&a, &b), &c), union(&a, &union(&b, &c)));
    Ok(())
}

/// What a or b contains, a ∪ b contains.
fn monotone<F: Merging>(set: &Case) -> Outcome {
    let [a, b, _] = set.filters::<F>();
    let union = union(&a, &b);
    for &item in set.items.iter().flatten() {
        prop_assert!(union.contains(item) || !(a.contains(item) || b.contains(item)));
    }
    Ok(())
}

/// The empty filter changes nothing, on either side.
fn identity<F: Merging>(set: &Case) -> Outcome {
    let [a, _, _] = set.filters::<F>();
    let empty = F::empty(set.range, set.shape);
    prop_assert_eq!(&union(&a, &empty), &a);
    prop_assert_eq!(&union(&empty, &a), &a);
    Ok(())
}

/// a ∪ a = a, where the kind says so.
fn idempotent<F: Merging>(set: &Case) -> Outcome {
    if F::IS_IDEMPOTENT {
        let [mut a, b, _] = set.filters::<F>();
        prop_assert_eq!(&union(&a, &a), &a);
        a.merge(&b).unwrap();
        prop_assert_eq!(a.merge(&b), Ok(0));
    }
    Ok(())
}

/// A merge is the filter of all items, and returns how many positions it set.
fn merge_is_inserting<F: Merging>(set: &Case) -> Outcome {
    let [mut a, b, _] = set.filters::<F>();
    let before = a.one_count();
    let new_count = a.merge(&b).unwrap();
    prop_assert_eq!(a.one_count(), before + new_count);
    let items = [&set.items[0][..], &set.items[1][..]].concat();
    prop_assert_eq!(a, filter::<F>(set.range, set.shape, &items));
    Ok(())
}

/// Filters of unequal shapes are refused with both shapes, and nothing changes.
fn unequal_shapes_are_refused<F: Merging>(set: &Case) -> Outcome {
    let [mut a, _, _] = set.filters::<F>();
    let before = a.clone();
    let other_range = HashRange::new(0, 1 << 63).unwrap();
    let other_shape = (set.shape + 1) % SHAPE_COUNT;
    for other in [F::empty(set.range, other_shape), F::empty(other_range, set.shape)] {
        let (ours, theirs) = (a.shape(), other.shape());
        let refused = a.merge(&other);
        prop_assert_eq!(refused, Err(ShapeMismatch { ours, theirs }));
        let message = refused.unwrap_err().to_string();
        prop_assert!(message.contains(&ours.to_string()) && message.contains(&theirs.to_string()));
        prop_assert_eq!(&a, &before);
    }
    Ok(())
}

/// Whatever was inserted is found.
fn nothing_is_missed<F: Filter>(set: &Case) -> Outcome {
    let [a, _, _] = set.filters::<F>();
    prop_assert!(set.items[0].iter().all(|&item| a.contains(item)));
    Ok(())
}

/// An insert says present exactly when the item was contained, and then changes no position but
/// for a copy.
fn present_is_contained<F: Filter>(set: &Case) -> Outcome {
    let [mut a, _, _] = set.filters::<F>();
    for &item in &set.items[1] {
        let (contained, before) = (a.contains(item), a.one_count());
        let outcome = a.insert(item).unwrap();
        prop_assert_eq!(outcome == Insertion::Present, contained);
        prop_assert!(F::KEEPS_COPIES || (a.one_count() == before) == contained);
    }
    Ok(())
}

/// A batch is its items one by one, in order, for contains with items of other ranges too.
fn batches_are_single_calls<F: Filter>(set: &Case) -> Outcome {
    let [mut a, _, _] = set.filters::<F>();
    let mut one_by_one = a.clone();
    let expected: Vec<Insertion> =
        set.items[1].iter().map(|&item| one_by_one.insert(item).unwrap()).collect();
    let mut outcomes = vec![Insertion::New; 3];
    prop_assert_eq!(a.insert_batch(&set.items[1], &mut outcomes), Ok(()));
    prop_assert_eq!(outcomes, expected);
    prop_assert_eq!(&a, &one_by_one);
    for hashes in [&set.items[2], &set.any] {
        let mut present = vec![true; 3];
        a.contains_batch(hashes, &mut present);
        let expected: Vec<bool> = hashes.iter().map(|&item| a.contains(item)).collect();
        prop_assert_eq!(present, expected);
    }
    Ok(())
}

/// An item of another range is never contained, and an insert of it changes nothing.
fn other_ranges_are_refused<F: Filter>(set: &Case) -> Outcome {
    let [mut a, _, _] = set.filters::<F>();
    let before = a.clone();
    for (index, &item) in set.any.iter().enumerate() {
        if set.range.contains(item.hi()) {
            continue;
        }
        prop_assert!(!a.contains(item));
        let out_of_range = OutOfRange { hi: item.hi(), range: set.range };
        let refused = InsertError::OutOfRange(out_of_range);
        prop_assert_eq!(a.insert(item), Err(refused));
        let message = out_of_range.to_string();
        prop_assert!(message.contains(&item.hi().to_string()));
        prop_assert!(message.contains(&set.range.start().to_string()));
        // The first items of the batch are in range, and are not inserted all the same.
        let mut batch = set.items[1].clone();
        batch.insert(index % (batch.len() + 1), item);
        let mut outcomes = vec![Insertion::New];
        prop_assert_eq!(a.insert_batch(&batch, &mut outcomes), Err(refused));
        prop_assert!(outcomes.is_empty());
        prop_assert_eq!(&a, &before);
    }
    Ok(())
}

/// Filters over the parts of a range, merged in any order, are the filter over the range.
fn parts_make_the_whole<F: Parts>(set: &Case, cut: u64) -> Outcome {
    let [a, _, _] = set.filters::<F>();
    let cut = u128::from(set.range.start()) + 1 + u128::from(cut) % (set.range.width() - 1);
    let low = HashRange::new(set.range.start(), cut).unwrap();
    let high = HashRange::new(u64::try_from(cut).unwrap(), set.range.end()).unwrap();
    let parts = [low, high].map(|part| {
        let mut items = set.items[0].clone();
        items.retain(|item| part.contains(item.hi()));
        filter::<F>(part, set.shape, &items)
    });
    for order in [[0, 1], [1, 0]] {
        let mut whole = F::empty(set.range, set.shape);
        let new_count: u64 =
            order.iter().map(|&part: &usize| whole.merge_part(&parts[part]).unwrap()).sum();
        prop_assert_eq!(&whole, &a);
        prop_assert_eq!(new_count, a.one_count());
    }
    // A whole is no part of its part, and another shape's part is none of ours.
    let mut part = parts[0].clone();
    let other = F::empty(low, (set.shape + 1) % SHAPE_COUNT);
    for theirs in [&a, &other] {
        let refused = ShapeMismatch { ours: part.shape(), theirs: theirs.shape() };
        prop_assert_eq!(part.merge_part(theirs), Err(refused));
    }
    prop_assert_eq!(&part, &parts[0]);
    Ok(())
}

/// A folded filter is the filter of the same items that was made half as large.
fn folding_is_being_smaller<F: Fold>(set: &Case) -> Outcome {
    let [a, _, _] = set.filters::<F>();
    let mut half = F::empty_half(set.range, set.shape);
    for &item in &set.items[0] {
        half.insert(item).unwrap();
    }
    prop_assert_eq!(a.fold().unwrap(), half);
    Ok(())
}

impl Case {
    #[inline(never)]
    fn filters<F: Filter>(&self) -> [F; 3] {
        [0, 1, 2].map(|set| filter(self.range, self.shape, &self.items[set]))
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn merge_is_commutative(set in cases()) { every_merging_kind!(commutative(&set)); }

    #[test]
    fn merge_is_associative(set in cases()) { every_merging_kind!(associative(&set)); }

    #[test]
    fn merge_is_monotone(set in cases()) { every_merging_kind!(monotone(&set)); }

    #[test]
    fn merge_has_an_identity(set in cases()) { every_merging_kind!(identity(&set)); }

    #[test]
    fn merge_is_idempotent_where_it_says_so(set in cases()) { every_merging_kind!(idempotent(&set)); }

    #[test]
    fn merge_is_inserting_all(set in cases()) { every_merging_kind!(merge_is_inserting(&set)); }

    #[test]
    fn merge_refuses_unequal_shapes(set in cases()) {
        every_merging_kind!(unequal_shapes_are_refused(&set));
    }

    #[test]
    fn no_inserted_item_is_missed(set in cases()) { every_kind!(nothing_is_missed(&set)); }

    #[test]
    fn present_means_contained_before(set in cases()) { every_kind!(present_is_contained(&set)); }

    #[test]
    fn batches_are_single_calls_in_order(set in cases()) {
        every_kind!(batches_are_single_calls(&set));
    }

    #[test]
    fn items_of_other_ranges_are_refused(set in cases()) {
        every_kind!(other_ranges_are_refused(&set));
    }

    #[test]
    fn parts_merged_are_the_whole(set in cases(), cut: u64) {
        every_kind_of_parts!(parts_make_the_whole(&set, cut));
    }

    #[test]
    fn folded_filters_are_smaller_filters(set in cases()) {
        every_folded_kind!(folding_is_being_smaller(&set));
    }
}
