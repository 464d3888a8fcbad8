//! The stored filter held to its twin, the list of positions, and to the laws of merging.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::any::{AnyFilter, FilterPlan};
use crate::capability::OutOfRange;
use crate::hash::ItemHasher;
use crate::kind::Kind;
use crate::range::HashRange;

/// Shapes of all widths: one position, few, many, the most; whole and narrow ranges.
fn shapes() -> impl Strategy<Value = SingleShotShape> {
    let position_counts = prop_oneof![
        Just(1),
        1..100u64,
        1..100_000u64,
        (0..=60u32).prop_map(|bits| 1 << bits),
        1..=1u64 << 60,
    ];
    let ranges = prop_oneof![
        2 => Just(HashRange::WHOLE),
        1 => (any::<u64>(), 0..64u32).prop_map(|(start, bits)| {
            HashRange::new(start, (u128::from(start) + (1 << bits)).min(1 << 64)).unwrap()
        }),
    ];
    (ranges, position_counts).prop_map(|(range, m)| SingleShotShape::new(range, m).unwrap())
}

/// A hash of the range: anywhere, or close to its start, so that many are equal or neighbours.
fn hash_in(range: HashRange, pick: u64, shift: u32) -> ItemHash {
    let offset = u128::from(pick >> shift) % range.width();
    ItemHash::new(range.start() + u64::try_from(offset).unwrap(), pick)
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, u32),
    InsertBatch(Vec<u64>, u32),
    /// Neighbouring positions: step and number.
    Merge(u64, u32, usize),
    Seal,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let shift = 0..64u32;
    let step = prop_oneof![
        4 => (any::<u64>(), shift.clone()).prop_map(|(pick, shift)| Step::Insert(pick, shift)),
        2 => (vec(any::<u64>(), 0..400), shift)
            .prop_map(|(picks, shift)| Step::InsertBatch(picks, shift)),
        2 => (any::<u64>(), 0..50u32, 0..2_000usize)
            .prop_map(|(first, bits, len)| Step::Merge(first, bits, len)),
        1 => Just(Step::Seal),
    ];
    vec(step, 0..12)
}

/// At most `len` positions from one on, 2^bits apart.
fn progression(shape: SingleShotShape, first: u64, bits: u32, len: usize) -> SingleShot {
    let width = shape.width();
    let positions = (first % width..width).step_by(1 << bits).take(len).collect();
    SingleShot::from_positions(shape, positions).unwrap()
}

/// Everything that can be asked, of these positions and the ones around them.
fn assert_same(filter: &StoredSingleShot, twin: &SingleShot) {
    let shape = twin.shape();
    assert_eq!(filter.positions().collect::<Vec<_>>(), twin.positions());
    assert_eq!((filter.len(), filter.is_empty()), (twin.len(), twin.is_empty()));
    assert_eq!((filter.fill(), filter.single_shot_shape()), (twin.fill(), shape));
    assert_eq!(*filter, StoredSingleShot::from(twin));
    let around = |&position: &u64| [position.saturating_sub(1), position, position + 1];
    let asked: Vec<ItemHash> = twin
        .positions()
        .iter()
        .flat_map(around)
        .chain((0..64).map(|part| shape.width() / 64 * part))
        .filter_map(|position| {
            let first = (u128::from(position) << 64).div_ceil(shape.position_count().into());
            let hi = u128::from(shape.range().start()) + first;
            Some(ItemHash::new(u64::try_from(hi).ok()?, 0))
        })
        .collect();
    let expected: Vec<bool> = asked.iter().map(|&hash| twin.contains(hash)).collect();
    assert_eq!(asked.iter().map(|&hash| filter.contains(hash)).collect::<Vec<_>>(), expected);
    let mut present = vec![true];
    filter.contains_batch(&asked, &mut present);
    assert_eq!(present, expected);
}

fn check(shape: SingleShotShape, steps: Vec<Step>) {
    let mut filter = StoredSingleShot::new(shape);
    let mut twin = SingleShot::new(shape);
    let (mut outcomes, mut expected) = (vec![Insertion::New], Vec::new());
    for step in steps {
        match step {
            Step::Insert(pick, shift) => {
                let hash = hash_in(shape.range(), pick, shift);
                assert_eq!(filter.insert(hash), twin.insert(hash));
            }
            Step::InsertBatch(picks, shift) => {
                let hashes: Vec<ItemHash> =
                    picks.iter().map(|&pick| hash_in(shape.range(), pick, shift)).collect();
                filter.insert_batch(&hashes, &mut outcomes).unwrap();
                twin.insert_batch(&hashes, &mut expected).unwrap();
                assert_eq!(outcomes, expected);
            }
            Step::Merge(first, bits, len) => {
                let other = progression(shape, first, bits, len);
                let merged = filter.merge(&StoredSingleShot::from(&other));
                assert_eq!(merged, twin.merge(&other));
            }
            Step::Seal => filter.seal(),
        }
    }
    assert_same(&filter, &twin);
    filter.seal();
    assert_same(&filter, &twin);
}

/// A filter of some positions in the run and some in the delta.
fn filter_of(shape: SingleShotShape, in_run: &[u64], in_delta: &[u64]) -> StoredSingleShot {
    let mut filter = StoredSingleShot::new(shape);
    for picks in [in_run, in_delta] {
        filter.seal();
        for &pick in picks {
            filter.insert(hash_in(shape.range(), pick, 0)).unwrap();
        }
    }
    filter
}

fn whole(position_count: u64) -> SingleShotShape {
    SingleShotShape::new(HashRange::WHOLE, position_count).unwrap()
}

proptest! {
    #[test]
    fn agrees_with_the_list(shape in shapes(), steps in steps()) {
        check(shape, steps);
    }

    /// One bucket is crowded, its neighbours are empty or not; dense and sparse crowds.
    #[test]
    fn crowds_agree_with_the_list(
        bits in 12..=60u32, first: u64, step_bits in 0..40u32, len in 0..5_000usize,
        others in vec(any::<u64>(), 0..100),
    ) {
        let shape = whole(1 << bits);
        let mut twin = progression(shape, first, step_bits, len);
        for pick in others {
            twin.insert(hash_in(shape.range(), pick, 0)).unwrap();
        }
        assert_same(&StoredSingleShot::from(&twin), &twin);
    }

    #[test]
    fn merging_keeps_its_laws(
        shape in shapes(), picks in [vec(any::<u64>(), 0..60), vec(any::<u64>(), 0..60),
        vec(any::<u64>(), 0..60), vec(any::<u64>(), 0..60)],
    ) {
        let a = filter_of(shape, &picks[0], &picks[1]);
        let b = filter_of(shape, &picks[2], &picks[0]);
        let c = filter_of(shape, &[], &picks[3]);
        let or = |x: &StoredSingleShot, y: &StoredSingleShot| {
            let mut union = x.clone();
            let new_count = union.merge(y).unwrap();
            assert_eq!(union.len(), x.len() + new_count);
            assert!(x.positions().chain(y.positions()).all(|position| {
                union.positions().any(|other| other == position)
            }));
            union
        };
        prop_assert_eq!(or(&a, &b), or(&b, &a));
        prop_assert_eq!(or(&or(&a, &b), &c), or(&a, &or(&b, &c)));
        prop_assert_eq!(&or(&a, &a), &a);
        prop_assert_eq!(&or(&a, &StoredSingleShot::new(shape)), &a);
    }

    #[test]
    fn sorted_hashes_are_single_shots(shape in shapes(), picks in vec(any::<u64>(), 0..300)) {
        let mut hashes: Vec<ItemHash> =
            picks.iter().map(|&pick| hash_in(shape.range(), pick, 0)).collect();
        hashes.sort_unstable();
        let twin = SingleShot::from_sorted_hashes(shape, &hashes).unwrap();
        assert_same(&StoredSingleShot::from_sorted_hashes(shape, &hashes).unwrap(), &twin);
    }

    #[test]
    fn only_increasing_positions_are_taken(
        width in 1..40u64, positions in vec(0..40u64, 0..6),
    ) {
        let shape = whole(width);
        let ours = StoredSingleShot::from_positions(shape, positions.iter().copied());
        match SingleShot::from_positions(shape, positions) {
            Ok(twin) => assert_same(&ours.unwrap(), &twin),
            Err(_) => prop_assert!(ours.is_err()),
        }
    }
}

#[test]
fn every_position_is_set() {
    for width in [1, 2, 23, 24, 25, 700, 5_000] {
        let twin = progression(whole(width), 0, 0, usize::MAX);
        let filter = StoredSingleShot::from(&twin);
        assert_same(&filter, &twin);
        assert_eq!((filter.len(), filter.describe().item_count), (width, None));
    }
}

/// More inserts than several deltas hold, so that folding happens on its own, and in batches.
#[test]
fn full_deltas_are_folded() {
    let shape = whole(1 << 20);
    let hashes: Vec<ItemHash> =
        (1..=20_000u64).map(|n| ItemHash::new(n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n)).collect();
    let mut positions: Vec<u64> = hashes.iter().map(|hash| shape.position(hash.hi())).collect();
    positions.sort_unstable();
    positions.dedup();
    let twin = SingleShot::from_positions(shape, positions).unwrap();
    let mut one_by_one = StoredSingleShot::new(shape);
    for &hash in &hashes {
        one_by_one.insert(hash).unwrap();
        assert!((one_by_one.delta.len() as u64) < DELTA_LEN_MIN);
    }
    let mut batched = StoredSingleShot::new(shape);
    batched.insert_batch(&hashes, &mut Vec::new()).unwrap();
    assert!(one_by_one.run.len() > 0 && batched.run.len() > 0);
    assert_same(&one_by_one, &twin);
    assert_same(&batched, &twin);
}

/// 10^5 neighbours in a filter of 2^60 positions: all in one bucket, found through waypoints.
#[test]
fn a_crowd_costs_no_more_than_a_waypoint_per_stretch() {
    let shape = whole(1 << 60);
    let crowd = progression(shape, 1 << 59, 0, 100_000);
    let filter = StoredSingleShot::from(&crowd);
    assert_same(&filter, &crowd);
    // B = 43 and a quotient of 0 are 44 bits a gap, and a waypoint is 16 bytes for 128 gaps.
    assert!(filter.memory_bytes() < 100_000 * (46 + 2) / 8, "{}", filter.memory_bytes());
    assert_eq!(filter.run.stretch_len_max(), 128);
}

#[test]
fn uniform_positions_stay_near_the_code() {
    let shape = whole(10_000_000);
    let mut hashes: Vec<ItemHash> =
        (1..=100_000u64).map(|n| ItemHash::new(n.wrapping_mul(0xd134_2543_de82_ef95), n)).collect();
    hashes.sort_unstable();
    let filter = StoredSingleShot::from_sorted_hashes(shape, &hashes).unwrap();
    let bits = 8.0 * filter.memory_bytes() as f64 / filter.len() as f64;
    assert!(bits < 8.11 + 0.75, "{bits} bits an item");
    let description = filter.describe();
    assert_eq!((description.one_count, description.position_count), (filter.len(), 10_000_000));
    assert_eq!(description.memory_bytes, filter.memory_bytes());
    assert_eq!(description.false_positive_rate, filter.fill());
    assert_eq!(description.shape, Shape::from(shape));
}

#[test]
fn items_of_other_ranges_are_refused() {
    let range = HashRange::new(1 << 32, 1 << 40).unwrap();
    let mut filter = StoredSingleShot::new(SingleShotShape::new(range, 1 << 50).unwrap());
    let (inside, outside) = (ItemHash::new(1 << 35, 0), ItemHash::new(1 << 40, 0));
    let refused = Err(InsertError::from(OutOfRange { hi: 1 << 40, range }));
    assert_eq!(filter.insert(outside).map(|_| ()), refused);
    let mut outcomes = vec![Insertion::New];
    assert_eq!(filter.insert_batch(&[inside, outside], &mut outcomes), refused);
    assert!(filter.is_empty() && outcomes.is_empty());
    filter.insert(inside).unwrap();
    let mut present = Vec::new();
    filter.contains_batch(&[inside, outside], &mut present);
    assert_eq!(present, [true, false]);
}

#[test]
fn filters_of_other_shapes_are_refused() {
    let mut filter = StoredSingleShot::new(whole(16));
    let other = StoredSingleShot::new(whole(17));
    let error = ShapeMismatch { ours: whole(16).into(), theirs: whole(17).into() };
    assert_eq!(filter.merge(&other), Err(error));
    assert_ne!(filter, other);
}

/// What docs/filters.md says of filters that are not sealed: a position in the delta takes 136 bits,
/// and the delta holds up to 1/32 of the run, but 4,096 positions in any case. So a fold
/// saves at most 136/33 = 4.1 bits an item, less what the positions then take in the run.
#[test]
fn an_unsealed_filter_takes_some_four_bits_an_item_more() {
    let plan = FilterPlan {
        kind: Kind::SingleShot,
        range: HashRange::WHOLE,
        item_count: 300_000,
        false_positive_rate: 0.01,
    };
    let AnyFilter::SingleShot(mut filter) = AnyFilter::create(&plan).unwrap() else {
        panic!("a single-shot filter")
    };
    let bits = |filter: &StoredSingleShot| 8.0 * filter.memory_bytes() as f64 / filter.len() as f64;
    let (mut before, mut saved) = (0.0, Vec::new());
    for number in 0..200_000u32 {
        filter.insert(ItemHasher::Xxh3 { seed: 3 }.hash(&number.to_le_bytes())).unwrap();
        if filter.delta.is_empty() && filter.len() > 140_000 {
            saved.push(before - bits(&filter));
        }
        before = bits(&filter);
    }
    assert!(saved.len() > 5, "{saved:?}");
    assert!(saved.iter().all(|saved| (3.5..4.2).contains(saved)), "{saved:?} bits an item");
}
