//! Messages that do not match are refused and change nothing.

use umbel_codec::frames;
use umbel_filter::{Blocked, HashRange, SingleShotShape, StoredSingleShot};

use super::fixture::*;
use super::*;
use crate::hypercube::delta::DeltaContent;
use crate::limits::DELTA_CHANGES_MAX;

fn complete(counts: Vec<(NodeId, u64)>) -> Coverage {
    Coverage { complete: counts.into_iter().collect(), partial: VersionVector::new() }
}

fn other_shape(kind: Kind) -> AnyFilter {
    match kind {
        Kind::Blocked => AnyFilter::Blocked(Blocked::new(HashRange::WHOLE, 51, 6).unwrap()),
        _ => {
            let shape = SingleShotShape::new(HashRange::WHOLE, 99_999).unwrap();
            AnyFilter::SingleShot(StoredSingleShot::new(shape))
        }
    }
}

#[test]
fn what_does_not_fit_changes_nothing() {
    for kind in KINDS {
        let mut copies = copies(2, kind, 1 << 20);
        insert(&mut copies[0], 0..10);
        insert(&mut copies[1], 50..55);
        sweep(&mut copies);
        insert(&mut copies[0], 10..20);
        copies[0].begin_sweep();
        let fits = answer(&mut copies, 0, 1);
        assert_eq!((fits.through, fits.question), ((1, 25), 2));
        let other_key = FrameKey { key_id: 8, ..KEY };
        let reframed = |filter: &AnyFilter, key| -> Vec<Vec<u8>> {
            frames(filter, key, 1 << 20).map(Result::unwrap).collect()
        };
        let other_shape = other_shape(kind);
        let mut damaged = fits.frames.clone();
        *damaged[0].last_mut().unwrap() ^= 1;
        let foreign_key = reframed(&filter_of(kind, 0..5), other_key);
        let refused = [
            (fits.with(|delta| delta.filter = FilterId(13)), "filter 13 to a copy of filter 12"),
            (
                fits.with(|delta| delta.generation = Generation(2)),
                "generation 2 of filter 12, expected generation 1",
            ),
            (
                fits.with(|delta| delta.question = 1),
                "question 1 about filter 12, expected the answer to Some(2)",
            ),
            (
                fits.with(|delta| delta.through = (1, 9)),
                "at 9 of its log of filter 12, after it was at 10",
            ),
            (
                fits.with(|delta| delta.coverage = complete(vec![(NodeId(2), 6)])),
                "6 inserts of node 2 into filter 12, which made 5",
            ),
            (
                fits.with(|delta| {
                    delta.coverage = complete((0..8193).map(|node| (NodeId(node), 1)).collect());
                }),
                "counts the inserts of 8193 nodes, expected at most 8192",
            ),
            (Sent { frames: damaged, ..fits.clone() }, "checksum"),
            (Sent { frames: foreign_key, ..fits.clone() }, "key"),
            (Sent { frames: reframed(&other_shape, KEY), ..fits.clone() }, "shape"),
        ];
        for (sent, expected) in refused {
            for content in [DeltaContent::Changes, DeltaContent::Whole] {
                let mut copy = copies[1].clone();
                let sent = sent.with(|delta| delta.content = content);
                let error = copy.merge(NodeId(1), &sent).unwrap_err().to_string();
                assert!(error.contains(expected), "{error:?} does not say {expected:?}");
                assert!(error.contains("node 1"), "{error}");
                assert_eq!((copy.filter(), &copy.log), (copies[1].filter(), &copies[1].log));
                assert_eq!(
                    (copy.version(), &copy.partners),
                    (copies[1].version(), &copies[1].partners)
                );
            }
        }
        copies[1].merge(NodeId(1), &fits).unwrap();
        let again = copies[1].merge(NodeId(1), &fits).unwrap_err();
        assert_eq!(
            again.to_string(),
            "node 1 answers question 2 about filter 12, expected the answer to None"
        );
    }
}

#[test]
fn bits_are_no_list_of_changes() {
    let mut copies = copies(2, Kind::Blocked, 1 << 20);
    insert(&mut copies[0], 0..1);
    copies[0].begin_sweep();
    let delta = answer(&mut copies, 0, 1);
    let frames =
        frames(&filter_of(Kind::Blocked, 0..1), KEY, 1 << 20).map(Result::unwrap).collect();
    let error = copies[1].merge(NodeId(1), &Sent { frames, ..delta }).unwrap_err();
    assert_eq!(error.to_string(), "node 1 sent a frame that lists no changes");
}

#[test]
fn too_many_changes_are_sent_as_the_whole_filter() {
    let copy = copy(1, Kind::SingleShot, 10);
    let mut entries = vec![0; DELTA_CHANGES_MAX];
    assert!(copy.is_shorter_listed(&entries));
    entries.push(0);
    assert!(!copy.is_shorter_listed(&entries));
}

#[test]
fn kinds_that_do_not_merge_are_refused() {
    let counting = umbel_filter::Counting::new(HashRange::WHOLE, 10, 4).unwrap();
    let error = Replica::new(options(1, 10), AnyFilter::Counting(counting)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a counting filter cannot be replicated, expected a blocked or a single-shot one"
    );
}
