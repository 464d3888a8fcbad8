//! Histories that lose an acknowledged insert, and similar ones that are legal.

use super::*;
use crate::history::Verb;
use crate::oracle::fixture::{Cluster, History, KINDS};
use crate::plan::FilterKind;

fn found(history: &History, cluster: &Cluster) -> usize {
    check(&View::new(&history.calls, &history.facts, &cluster.reference)).violations.len()
}

#[test]
fn no_after_an_acknowledged_insert() {
    for kind in KINDS {
        let (cluster, mut history) = (Cluster::of(kind), History::of(kind));
        history.insert("f", &[1, 2], 10, 20, &[true, true]);
        // Inserts that overlap, have an unknown outcome, were refused, or are of another item.
        history.contains("f", &[1], 20, 30, &[false]);
        history.unknown(Verb::Insert, "f", &[3], 10, 20);
        history.refused(Verb::Insert, "f", &[4], 10, 20);
        history.contains("f", &[3, 4, 5], 21, 30, &[false, false, false]);
        history.done(Verb::ContainsAny, "f", &[1], 20, 30, &[false]);
        assert_eq!(found(&history, &cluster), 0, "{kind:?}");
        history.contains("f", &[5, 1], 21, 30, &[false, false]);
        assert_eq!(found(&history, &cluster), 1, "{kind:?}");
        history.insert("f", &[2], 25, 30, &[true]);
        assert_eq!(found(&history, &cluster), 2, "{kind:?}");
    }
}

#[test]
fn the_first_answer_of_copies_counts() {
    let (cluster, mut history) =
        (Cluster::of(FilterKind::Classic), History::of(FilterKind::Classic));
    history.insert("f", &[1], 10, 50, &[true]).request = Some(1);
    history.insert("f", &[1], 40, 45, &[true]).request = Some(1);
    assert_eq!(found(&history, &cluster), 0);
    history.contains("f", &[1], 46, 60, &[false]);
    assert_eq!(found(&history, &cluster), 1);
}

/// Two inserts that together set all bits of a third item: it is present without being inserted.
#[test]
fn bits_of_other_items_count() {
    let kind = FilterKind::Blocked;
    let mut cluster = Cluster::of(kind);
    let items: Vec<u32> = (0..400).collect();
    cluster.insert("f", &items);
    let covered = {
        let life = History::of(kind);
        let mut named = life;
        named.insert("f", &(0..2_000).collect::<Vec<_>>(), 1, 2, &[]);
        let view = View::new(&named.calls, &named.facts, &cluster.reference);
        let probes = view.filters[0].lives[0].probes.as_ref().unwrap();
        let set: BTreeSet<u32> = items.iter().flat_map(|&item| probes.of(item)).copied().collect();
        let is_covered = |item: &u32| probes.of(*item).iter().all(|at| set.contains(at));
        (400..2_000).find(is_covered).unwrap()
    };
    let mut history = History::of(kind);
    history.insert("f", &items, 10, 20, &[true; 400]);
    history.contains("f", &[covered], 15, 30, &[false]);
    assert_eq!(found(&history, &cluster), 0);
    history.contains("f", &[covered], 25, 30, &[false]);
    assert_eq!(found(&history, &cluster), 1);
}

#[test]
fn a_clearing_in_between_excuses() {
    for (kind, drops) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let mut cluster = Cluster::of(kind);
        let mut history = History::new();
        history.knows("f", kind, true);
        history.insert("f", &[1], 10_000, 20_000, &[true]);
        history.insert("f", &[2], 40_000, 50_000, &[true]);
        history.contains("f", &[1, 2], 60_000, 70_000, &[false, true]);
        assert_eq!(found(&history, &cluster), 1, "{kind:?}");
        if drops {
            cluster.drop_filter("f", 30_000);
            cluster.create("f", kind);
        } else {
            cluster.clear("f", 30_000);
        }
        // The filter was emptied, but no client has asked for that.
        assert_eq!(found(&history, &cluster), 1, "{kind:?}");
        let verb = if drops { Verb::Drop } else { Verb::Clear };
        history.unknown(verb, "f", &[], 25_000, 28_000);
        assert_eq!(found(&history, &cluster), 0, "{kind:?}");
        history.contains("f", &[2], 60_000, 70_000, &[false]);
        assert_eq!(found(&history, &cluster), 1, "{kind:?}");
    }
}

#[test]
fn items_that_nobody_took_out_stay() {
    let kind = FilterKind::Counting;
    let (cluster, mut history) = (Cluster::of(kind), History::of(kind));
    history.insert("f", &[1, 2], 10, 20, &[true, true]);
    history.done(Verb::Remove, "f", &[1], 30, 40, &[true]);
    history.contains("f", &[1], 50, 60, &[false]);
    assert_eq!(found(&history, &cluster), 0);
    history.contains("f", &[2], 50, 60, &[false]);
    assert_eq!(found(&history, &cluster), 1);
}

/// Removing an item that is not contained decrements counters of other items.
#[test]
fn items_beside_an_unfounded_removal_are_uncertain() {
    let kind = FilterKind::Counting;
    let cluster = Cluster::of(kind);
    let mut history = History::of(kind);
    history.insert("f", &[1], 10, 20, &[true]);
    history.contains("f", &[1], 50, 60, &[false]);
    history.unknown(Verb::Remove, "f", &(2..400).collect::<Vec<_>>(), 30, 40);
    assert_eq!(found(&history, &cluster), 0);
    // The same items, but each of them was contained.
    history.insert("f", &(2..400).collect::<Vec<_>>(), 10, 20, &[true; 398]);
    assert_eq!(found(&history, &cluster), 1);
}

#[test]
fn answers_of_a_filter_that_never_was() {
    let cluster = Cluster::new();
    let mut history = History::of(FilterKind::Classic);
    history.unknown(Verb::Insert, "f", &[1], 10, 20);
    assert_eq!(found(&history, &cluster), 0);
    history.insert("f", &[1], 10, 20, &[true]);
    assert_eq!(found(&history, &cluster), 1);
}
