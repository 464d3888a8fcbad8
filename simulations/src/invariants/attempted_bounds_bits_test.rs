//! Histories with present items that no client inserted, and similar ones that are legal.

use super::*;
use crate::oracle::fixture::{Cluster, History, KINDS};

fn found(history: &History, cluster: &Cluster) -> usize {
    check(&View::new(&history.calls, &history.facts, &cluster.reference)).violations.len()
}

#[test]
fn present_before_anybody_tried() {
    for kind in KINDS {
        let (mut cluster, mut history) = (Cluster::of(kind), History::of(kind));
        cluster.insert("f", &[1, 2]);
        history.unknown(Verb::Insert, "f", &[1], 20, 25);
        history.insert("f", &[2], 20, 25, &[true]);
        history.insert("f", &[1], 40, 45, &[false]);
        history.contains("f", &[1, 2], 10, 20, &[true, true]);
        history.done(Verb::ContainsAny, "f", &[1], 90, 95, &[true]);
        assert_eq!(found(&history, &cluster), 0, "{kind:?}");
        history.contains("f", &[2], 10, 19, &[true]);
        history.done(Verb::ContainsAny, "f", &[1], 10, 19, &[true]);
        assert_eq!(found(&history, &cluster), 2, "{kind:?}");
        history.refused(Verb::Insert, "f", &[3], 10, 19);
        history.contains("f", &[3], 30, 39, &[true]);
        assert_eq!(found(&history, &cluster), 3, "{kind:?}");
    }
}

#[test]
fn an_insert_does_not_find_itself() {
    for kind in KINDS {
        let (mut cluster, mut history) = (Cluster::of(kind), History::of(kind));
        cluster.insert("f", &[1, 2]);
        history.insert("f", &[1, 1], 10, 20, &[true, false]);
        assert_eq!(found(&history, &cluster), 0, "{kind:?}");
        history.calls.clear();
        history.insert("f", &[2], 10, 20, &[false]).request = Some(1);
        history.insert("f", &[2], 10, 20, &[false]).request = Some(1);
        assert_eq!(found(&history, &cluster), 1, "{kind:?}");
        history.insert("f", &[2], 15, 30, &[true]);
        assert_eq!(found(&history, &cluster), 0, "{kind:?}");
    }
}

#[test]
fn what_was_cleared_is_gone() {
    for kind in [FilterKind::Classic, FilterKind::Blocked, FilterKind::Counting] {
        let mut cluster = Cluster::of(kind);
        cluster.clear("f", 30);
        let mut history = History::new();
        history.knows("f", kind, true);
        history.insert("f", &[1], 10, 20, &[true]);
        history.insert("f", &[2], 10, 31, &[true]);
        history.unknown(Verb::Insert, "f", &[3], 10, 20);
        history.contains("f", &[1, 2, 3], 50, 60, &[true, true, true]);
        // Clears that were refused, have an unknown outcome, or had not ended before the query began.
        history.refused(Verb::Clear, "f", &[], 30, 40);
        history.unknown(Verb::Clear, "f", &[], 30, 40);
        history.done(Verb::Clear, "f", &[], 30, 50, &[]);
        assert_eq!(found(&history, &cluster), 0, "{kind:?}");
        history.done(Verb::ContainsAny, "f", &[1], 55, 60, &[true]);
        history.contains("f", &[1], 51, 60, &[true]);
        assert_eq!(found(&history, &cluster), 1, "{kind:?}");
        history.contains("f", &[2, 3], 51, 60, &[true, true]);
        assert_eq!(found(&history, &cluster), 1, "{kind:?}");
    }
}

#[test]
fn items_come_in_by_merging() {
    let kind = FilterKind::Blocked;
    let mut cluster = Cluster::new();
    let mut history = History::new();
    for name in ["f", "g", "h"] {
        cluster.create(name, kind);
        history.knows(name, kind, name != "h");
    }
    history.insert("h", &[1], 10, 20, &[true]);
    history.contains("f", &[1], 30, 40, &[true]);
    assert_eq!(found(&history, &cluster), 1);
    cluster.merge("f", "g");
    assert_eq!(found(&history, &cluster), 1);
    cluster.merge("g", "h");
    assert_eq!(found(&history, &cluster), 0);
    history.contains("f", &[2], 30, 40, &[true]);
    assert_eq!(found(&history, &cluster), 1);
    history.contains("h", &[2], 30, 40, &[true]);
    assert_eq!(found(&history, &cluster), 2);
}

#[test]
fn only_what_is_in_can_be_removed() {
    let kind = FilterKind::Counting;
    let (cluster, mut history) = (Cluster::of(kind), History::of(kind));
    history.insert("f", &[1], 10, 20, &[true]);
    history.done(Verb::Remove, "f", &[1, 2], 30, 40, &[true, false]);
    assert_eq!(found(&history, &cluster), 0);
    history.done(Verb::Remove, "f", &[2], 30, 40, &[true]);
    assert_eq!(found(&history, &cluster), 1);
}

/// A growing filter must answer by its log: an item that the log lacks is absent, whatever else is
/// inserted.
#[test]
fn a_growing_filter_answers_from_its_log() {
    let kind = FilterKind::Scalable;
    let (mut cluster, mut history) = (Cluster::of(kind), History::of(kind));
    cluster.insert("f", &[1]);
    history.insert("f", &[1], 10, 20, &[true]);
    history.contains("f", &[1], 30, 40, &[true]);
    assert_eq!(found(&history, &cluster), 0);
    history.contains("f", &[2], 30, 40, &[true]);
    assert_eq!(found(&history, &cluster), 1);
}

/// A dropped filter must not answer, except that any replica may answer from an earlier state.
#[test]
fn what_was_dropped_is_gone() {
    let mut cluster = Cluster::of(FilterKind::Classic);
    cluster.drop_filter("f", 30_000);
    let mut history = History::new();
    history.knows("f", FilterKind::Classic, true);
    history.unknown(Verb::Insert, "f", &[1], 10_000, 20_000);
    history.contains("f", &[1], 25_000, 60_000, &[true]);
    history.done(Verb::ContainsAny, "f", &[1], 50_000, 60_000, &[true]);
    assert_eq!(found(&history, &cluster), 0);
    history.contains("f", &[1], 50_000, 60_000, &[true]);
    assert_eq!(found(&history, &cluster), 1);
}
