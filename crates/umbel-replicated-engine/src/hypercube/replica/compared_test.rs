//! Comparing copies: lost bits come back everywhere, and new bits do no harm.

use super::fixture::*;
use super::*;
use crate::hypercube::delta::{DeltaContent, DeltaError};
use crate::hypercube::version_vector::VersionVector;

fn claims(copies: &[Replica]) -> Vec<Coverage> {
    copies.iter().map(Replica::coverage).collect()
}

/// The copy with other bits, as if memory had rotted.
fn rot(copy: &mut Replica, bits: AnyFilter) {
    let partners: Vec<NodeId> = copy.partners().collect();
    let (options, saved) = (*copy.options(), copy.save());
    *copy = Replica::restore(options, bits, saved).unwrap();
    copy.set_partners(&partners);
}

#[test]
fn copies_that_were_exchanged_explain_each_other() {
    for kind in KINDS {
        let mut copies = copies(4, kind, 1 << 20);
        insert(&mut copies[0], 0..10);
        let before = claims(&copies);
        assert!(before[0].explains(&before[1]) && !before[1].explains(&before[0]), "{kind}");
        sweep(&mut copies);
        let after = claims(&copies);
        assert!(after.iter().all(|claim| *claim == after[0]), "{kind}: {after:?}");
        assert!(copies.iter().all(|copy| !copy.has_partial_bits()));
    }
}

/// The version exchange never brings back what was lost, not even from a repaired copy.
#[test]
fn what_was_lost_comes_back_by_comparing() {
    for kind in KINDS {
        let mut copies = copies(5, kind, 1 << 20);
        insert(&mut copies[0], 0..100);
        sweep(&mut copies);
        for lost in [2, 3] {
            rot(&mut copies[lost], filter_of(kind, 0..90));
        }
        for (mended, by) in [(2, 0), (3, 2)] {
            sweep(&mut copies);
            sweep(&mut copies);
            assert!(copies[mended].filter() != copies[by].filter(), "{kind}");
            let (ours, theirs) = (copies[mended].coverage(), copies[by].coverage());
            assert!(ours.explains(&theirs));
            let bits = copies[by].filter().clone();
            assert!(copies[mended].merge_compared(&bits, &theirs, None).unwrap() > 0);
            assert!(!copies[mended].has_partial_bits());
            assert_eq!(copies[mended].coverage(), ours);
        }
        // Later inserts are exchanged as usual.
        insert(&mut copies[2], 100..110);
        sweep(&mut copies);
        assert_equal_to(&copies, &filter_of(kind, 0..110));
    }
}

/// An insert may reach a copy by comparison first. When it arrives as a change, it sets no bit there,
/// but must still be forwarded.
#[test]
fn news_from_a_comparison_is_forwarded() {
    for kind in KINDS {
        let mut copies = copies(4, kind, 1 << 20);
        insert(&mut copies[0], 0..100);
        copies[0].begin_sweep();
        let (bits, claim) = (copies[0].filter().clone(), copies[0].coverage());
        assert!(copies[1].merge_compared(&bits, &claim, None).unwrap() > 0);
        assert!(copies[1].has_partial_bits());
        assert_eq!(copies[1].version(), &VersionVector::new());
        // Nothing is sent of bits that the version does not cover.
        let delta = answer(&mut copies, 1, 3);
        copies[3].merge(NodeId(2), &delta).unwrap();
        assert_eq!(copies[3].coverage(), Coverage::default());
        // Node 2 receives the inserts, which set no bits there; node 4 receives them from node 2.
        let delta = answer(&mut copies, 0, 1);
        assert_eq!(copies[1].merge(NodeId(1), &delta).unwrap(), 0);
        assert!(!copies[1].has_partial_bits());
        let delta = answer(&mut copies, 1, 3);
        copies[3].merge(NodeId(2), &delta).unwrap();
        assert!(copies[3].filter() == copies[0].filter(), "{kind}");
    }
}

/// The same if the inserts arrive in a whole filter, which then sets no bits.
#[test]
fn repeated_news_in_a_whole_filter_is_forwarded() {
    for kind in KINDS {
        let mut copies = copies(4, kind, 0);
        insert(&mut copies[0], 0..100);
        copies[0].begin_sweep();
        let (bits, claim) = (copies[0].filter().clone(), copies[0].coverage());
        assert!(copies[1].merge_compared(&bits, &claim, None).unwrap() > 0);
        let delta = answer(&mut copies, 0, 1);
        assert_eq!(delta.content, DeltaContent::Whole);
        assert_eq!(copies[1].merge(NodeId(1), &delta).unwrap(), 0);
        let delta = answer(&mut copies, 1, 3);
        copies[3].merge(NodeId(2), &delta).unwrap();
        assert_eq!(copies[3].coverage(), copies[0].coverage());
        assert!(copies[3].filter() == copies[0].filter(), "{kind}");
    }
}

#[test]
fn bits_that_the_version_explains_leave_nothing_partial() {
    for kind in KINDS {
        let mut copies = copies(2, kind, 1 << 20);
        insert(&mut copies[0], 0..100);
        let (bits, claim) = (copies[0].filter().clone(), copies[0].coverage());
        sweep(&mut copies);
        assert_eq!(copies[1].merge_compared(&bits, &claim, None), Ok(0));
        assert!(!copies[1].has_partial_bits());
    }
}

#[test]
fn claims_that_no_copy_makes_are_refused() {
    let kind = Kind::Blocked;
    let mut copies = copies(2, kind, 1 << 20);
    let of = |node: u64, count: u64| [(NodeId(node), count)].into_iter().collect::<VersionVector>();
    for claim in [
        Coverage { complete: of(1, 1), partial: VersionVector::new() },
        Coverage { complete: VersionVector::new(), partial: of(1, 1) },
    ] {
        let error = copies[0].check_coverage(NodeId(2), &claim).unwrap_err();
        assert!(matches!(error, DeltaError::CoverageAhead { .. }), "{error}");
        assert!(copies[1].check_coverage(NodeId(1), &claim).is_ok());
    }
    let crowd: VersionVector = (1..).map(|node| (NodeId(node), 1)).take(5_000).collect();
    let others: VersionVector = (6_000..).map(|node| (NodeId(node), 1)).take(5_000).collect();
    let claim = Coverage { complete: crowd, partial: others };
    let before = copies[1].filter().clone();
    let error = copies[1].merge_compared(&filter_of(kind, 0..9), &claim, None).unwrap_err();
    assert_eq!(error, ComparedError::TooManyNodes { theirs: 10_000 });
    assert!(*copies[1].filter() == before && !copies[1].has_partial_bits());
}
