//! Of clients that insert an item if it is absent (`CF.ADDNX`), over whichever nodes and however close, one is told that it
//! was, unless the outcome of another call is unknown: that one may have inserted it. Whoever is told that the item was
//! present is right, and in the end it is in the filter once. Of filters into which nothing is inserted in another way and
//! that mistake hardly any item for another one.

use std::collections::BTreeMap;

use super::checked::Checked;
use crate::history::Verb;
use crate::oracle::view::{FilterView, Life, View};
use crate::plan::FilterKind;

/// Name of the invariant.
pub(crate) const NAME: &str = "absent_is_added_once";

/// What clients were told of an item.
#[derive(Default)]
struct Told {
    /// Calls in which it was new.
    new: Vec<u32>,
    /// Calls in which it was present.
    present: Vec<u32>,
    /// Whether a call may have inserted it.
    is_open: bool,
    /// When the last call was answered.
    last_us: u64,
}

/// Checks every item.
pub(crate) fn check(view: &View<'_>) -> Checked {
    let mut checked = Checked::new(NAME);
    for filter in view.filters.iter().filter(|filter| filter.only_grows()) {
        let is_alone = filter.inserts.iter().all(|insert| insert.call.verb == Verb::AddNew);
        let Some(life) = filter.only_life().filter(|_| is_alone) else { continue };
        for (item, told) in told(filter) {
            checked.record(told.last_us, broken(view, filter, life, item, &told));
        }
    }
    checked
}

fn told(filter: &FilterView<'_>) -> BTreeMap<u32, Told> {
    let mut all: BTreeMap<u32, Told> = BTreeMap::new();
    for insert in &filter.inserts {
        let id = insert.call.id;
        if insert.answers.is_none() {
            for &item in &insert.call.items {
                all.entry(item).or_default().is_open = true;
            }
        }
        for (item, is_new) in insert.answered() {
            let told = all.entry(item).or_default();
            let calls = if is_new { &mut told.new } else { &mut told.present };
            calls.push(id);
            told.last_us = told.last_us.max(insert.end_us);
        }
    }
    all
}

fn broken(
    view: &View<'_>,
    filter: &FilterView<'_>,
    life: &Life<'_>,
    item: u32,
    told: &Told,
) -> Option<String> {
    let Told { new, present, is_open, last_us: _ } = told;
    let name = &filter.facts.name;
    match (&new[..], &present[..]) {
        ([first, second, ..], _) => {
            return Some(format!(
                "item {item} of {name} was absent in call {first} and again in call {second}"
            ));
        }
        ([], [first, ..]) if !is_open => {
            return Some(format!(
                "item {item} of {name} was present in call {first}, but no call has added it"
            ));
        }
        _ => {}
    }
    // In lower versions, a client that was too late removes its copy again, and may fail before.
    let is_exact = filter.facts.kind == FilterKind::Quotient || !view.has_splits();
    let most = if life.decides_races() && is_exact { 1 } else { u64::MAX };
    let least = u64::from(!new.is_empty() || !present.is_empty());
    let copies = view.copies(life, item);
    (!(least..=most).contains(&copies)).then(|| {
        format!(
            "in the end {name} has {copies} copies of item {item}, expected {least} to {most}: it \
             was absent in calls {new:?}, and present in calls {present:?}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::fixture::{Cluster, History};

    const KINDS: [FilterKind; 2] = [FilterKind::Cuckoo, FilterKind::Quotient];

    fn found(history: &History, cluster: &Cluster) -> usize {
        check(&View::new(&history.calls, &history.facts, &cluster.reference)).violations.len()
    }

    fn added(kind: FilterKind, answers: &[bool]) -> History {
        let mut history = History::of(kind);
        for &is_new in answers {
            history.done(Verb::AddNew, "f", &[1], 10, 20, &[is_new]);
        }
        history
    }

    #[test]
    fn one_call_adds_an_item() {
        for kind in KINDS {
            let mut cluster = Cluster::newest_of(kind);
            cluster.insert("f", &[1]);
            assert_eq!(found(&added(kind, &[false, true, false]), &cluster), 0, "{kind:?}");
            assert_eq!(found(&added(kind, &[true, true]), &cluster), 1, "{kind:?}");
            let mut history = added(kind, &[false]);
            assert_eq!(found(&history, &cluster), 1, "{kind:?}");
            history.refused(Verb::AddNew, "f", &[1], 10, 20);
            assert_eq!(found(&history, &cluster), 1, "{kind:?}");
            history.unknown(Verb::AddNew, "f", &[1], 10, 20);
            assert_eq!(found(&history, &cluster), 0, "{kind:?}");
        }
    }

    #[test]
    fn an_item_is_there_once_in_the_end() {
        for kind in KINDS {
            let mut cluster = Cluster::newest_of(kind);
            let mut history = added(kind, &[true]);
            assert_eq!(found(&history, &cluster), 1, "{kind:?}");
            cluster.insert("f", &[1]);
            assert_eq!(found(&history, &cluster), 0, "{kind:?}");
            cluster.insert("f", &[1]);
            assert_eq!(found(&history, &cluster), 1, "{kind:?}");
            // Other inserts add copies.
            history.insert("f", &[1], 30, 40, &[false]);
            assert_eq!(found(&history, &cluster), 0, "{kind:?}");

            let mut earlier = Cluster::of(kind);
            earlier.insert("f", &[1]);
            earlier.insert("f", &[1]);
            assert_eq!(found(&added(kind, &[true]), &earlier), 0, "{kind:?}");
        }
    }
}
