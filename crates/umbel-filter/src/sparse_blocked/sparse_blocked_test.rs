//! A batch of insertions, against the blocked filter and a set of probes.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::capability::Insert;
use crate::range::HashRange;

fn shapes() -> impl Strategy<Value = BlockShape> {
    let ranges = (any::<u64>(), any::<u64>(), 0..64u32).prop_map(|(start, width, shift)| {
        let end = u128::from(start) + u128::from(width >> shift) + 1;
        HashRange::new(start, end.min(1 << 64)).unwrap()
    });
    (prop_oneof![Just(HashRange::WHOLE), ranges], 1..200u64, 1..=16u32).prop_map(
        |(range, blocks, probes)| {
            BlockShape::new(Kind::Blocked, range, blocks, 512, probes).unwrap()
        },
    )
}

/// Hashes inside the range, a few of them twice.
fn hashes(range: HashRange, picks: &[(u64, u64)]) -> Vec<ItemHash> {
    let inside =
        |pick: u64| range.start() + u64::try_from(u128::from(pick) % range.width()).unwrap();
    let mut hashes: Vec<ItemHash> =
        picks.iter().map(|&(hi, lo)| ItemHash::new(inside(hi), lo)).collect();
    hashes.extend_from_within(..picks.len() / 4);
    hashes
}

#[test]
fn only_blocked_filters_have_probes() {
    let shape = BlockShape::new(Kind::Counting, HashRange::WHOLE, 9, 512, 6).unwrap();
    let error = ShapeError::Kind { kind: Kind::Counting };
    assert_eq!(SparseBlocked::new(shape), Err(error));
    assert_eq!(SparseBlocked::from_probes(shape, vec![]), Err(error.into()));
    let mut blocked = Blocked::new(HashRange::WHOLE, 9, 6).unwrap();
    assert!(blocked.insert_probes(shape, std::iter::empty()).is_err());
}

#[test]
fn lists_are_checked() {
    let shape = BlockShape::new(Kind::Blocked, HashRange::WHOLE, 9, 512, 6).unwrap();
    let probe = |block, seed| BlockProbe { block, seed };
    let (previous, same) = (probe(2, 7), probe(2, 7));
    let error = ProbesError::NotIncreasing { previous, probe: same };
    assert_eq!(SparseBlocked::from_probes(shape, vec![previous, same]), Err(error));
    let error = ProbesError::BeyondBlocks { block: 9, block_count: 9 };
    assert_eq!(SparseBlocked::from_probes(shape, vec![probe(8, 0), probe(9, 0)]), Err(error));
    assert_eq!(SparseBlocked::from_probes(shape, vec![probe(8, 0)]).unwrap().len(), 1);
}

#[test]
#[should_panic(expected = "block 5 of 5")]
fn a_block_beyond_the_part_is_a_bug() {
    let mut filter = Blocked::new(HashRange::WHOLE, 10, 6).unwrap();
    let part = filter.block_shape().with_range(HashRange::new(0, 1 << 63).unwrap()).unwrap();
    let _ = filter.insert_probes(part, [BlockProbe { block: 5, seed: 0 }].into_iter());
}

proptest! {
    #[test]
    fn applying_is_inserting(shape in shapes(), picks in vec(any::<(u64, u64)>(), 0..80)) {
        let hashes = hashes(shape.range(), &picks);
        let mut blocked = Blocked::with_shape(shape).unwrap();
        hashes.iter().for_each(|&hash| { blocked.insert(hash).unwrap(); });

        let batch = SparseBlocked::from_hashes(shape, &hashes).unwrap();
        let mut applied = Blocked::with_shape(shape).unwrap();
        let ones = crate::words::count_ones(blocked.words());
        prop_assert_eq!(batch.apply(&mut applied), Ok(ones));
        prop_assert_eq!(batch.apply(&mut applied), Ok(0));
        prop_assert_eq!(&applied, &blocked);

        // A larger filter has the same bits at the part's place.
        let mut whole = Blocked::new(HashRange::WHOLE, shape.map().block_count(), shape.probe_count()).unwrap();
        let mut twin = whole.clone();
        prop_assert_eq!(batch.apply(&mut whole), Ok(ones));
        prop_assert_eq!(twin.merge_part(&blocked), Ok(ones));
        prop_assert_eq!(&whole, &twin);
        if shape.range() != HashRange::WHOLE {
            let larger = SparseBlocked::new(whole.block_shape()).unwrap();
            prop_assert!(larger.apply(&mut blocked).is_err());
        }
    }

    /// The slow twin: a set.
    #[test]
    fn agrees_with_a_set(shape in shapes(), picks in vec(any::<(u64, u64)>(), 0..80), cut in 0..80usize) {
        let hashes = hashes(shape.range(), &picks);
        let (left, right) = hashes.split_at(cut.min(hashes.len()));
        let mut set = BTreeSet::new();
        let mut one_by_one = SparseBlocked::new(shape).unwrap();
        for &hash in left {
            prop_assert_eq!(one_by_one.contains(hash), set.contains(&one_by_one.probe(hash)));
            let is_new = set.insert(one_by_one.probe(hash));
            prop_assert_eq!(one_by_one.insert(hash).unwrap() == Insertion::New, is_new);
            prop_assert!(one_by_one.contains(hash));
        }
        let other = SparseBlocked::from_hashes(shape, right).unwrap();
        set.extend(other.probes());
        let len_before = one_by_one.len();
        prop_assert_eq!(one_by_one.merge(&other), Ok(set.len() as u64 - len_before));
        prop_assert!(one_by_one.probes().iter().eq(&set));
        let again = SparseBlocked::from_probes(shape, set.into_iter().collect());
        prop_assert_eq!(again, Ok(one_by_one));
    }
}
