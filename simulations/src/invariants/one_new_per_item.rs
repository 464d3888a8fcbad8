//! An item is new once: apart from copies of a request, at most one insert of it answers `New`, as long
//! as nothing is cleared or removed. And the number of items that the slices called new is possible: at
//! least as many as the clients were told, and at most as many as they sent.

use std::collections::{BTreeMap, BTreeSet};

use super::checked::Checked;
use crate::oracle::view::{FilterView, Life, View};

/// Name of the invariant.
pub(crate) const NAME: &str = "one_new_per_item";

/// Checks every item that was inserted, and the count of every filter.
pub(crate) fn check(view: &View<'_>) -> Checked {
    let mut checked = Checked::new(NAME);
    for filter in view.filters.iter().filter(|filter| filter.only_grows()) {
        let acknowledged_new = each_item(filter, &mut checked);
        if let Some(life) = filter.only_life() {
            in_all(view, filter, life, acknowledged_new, &mut checked);
        }
    }
    checked
}

/// Returns the number of items that were answered `New`.
fn each_item(filter: &FilterView<'_>, checked: &mut Checked) -> u64 {
    // By item: the first insert that was answered so.
    let mut new_by: BTreeMap<u32, u32> = BTreeMap::new();
    for insert in &filter.inserts {
        for (item, _) in insert.answered().filter(|&(_, is_new)| is_new) {
            let (name, id) = (&filter.facts.name, insert.call.id);
            let before = new_by.get(&item).copied();
            new_by.entry(item).or_insert(id);
            let what = |first| {
                format!("item {item} of {name} was new in call {first} and again in call {id}")
            };
            checked.record(insert.end_us, before.map(what));
        }
    }
    new_by.len() as u64
}

fn in_all(
    view: &View<'_>,
    filter: &FilterView<'_>,
    life: &Life<'_>,
    acknowledged_new: u64,
    checked: &mut Checked,
) {
    let slices = view.reference.shards().filter_map(|state| state.summary(life.id));
    let new_count: u64 = slices.map(|slice| slice.new_count).sum();
    let sent: BTreeSet<u32> =
        filter.inserts.iter().flat_map(|insert| &insert.call.items).copied().collect();
    let sent = sent.len() as u64;
    let at_us = filter.inserts.last().map_or(0, |insert| insert.start_us);
    let what = || {
        let name = &filter.facts.name;
        format!(
            "the slices of {name} called {new_count} items new, expected {acknowledged_new}, which \
             clients were told to be new, to {sent}, which they inserted"
        )
    };
    checked.record(at_us, (!(acknowledged_new..=sent).contains(&new_count)).then(what));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Verb;
    use crate::oracle::fixture::{Cluster, History};
    use crate::plan::FilterKind;

    fn found(history: &History, cluster: &Cluster) -> usize {
        check(&View::new(&history.calls, &history.facts, &cluster.reference)).violations.len()
    }

    fn cluster(kind: FilterKind, items: &[u32]) -> Cluster {
        let mut cluster = Cluster::of(kind);
        cluster.insert("f", items);
        cluster
    }

    #[test]
    fn two_new_of_one_item() {
        for kind in [FilterKind::Classic, FilterKind::Counting, FilterKind::Scalable] {
            let (cluster, mut history) = (cluster(kind, &[1, 2]), History::of(kind));
            history.insert("f", &[1, 2], 10, 20, &[true, true]).request = Some(1);
            history.insert("f", &[1, 2], 15, 25, &[true, true]).request = Some(1);
            history.insert("f", &[1, 2], 15, 25, &[false, false]);
            history.unknown(Verb::Insert, "f", &[2], 15, 25);
            assert_eq!(found(&history, &cluster), 0, "{kind:?}");
            history.insert("f", &[2], 15, 25, &[true]);
            assert_eq!(found(&history, &cluster), 1, "{kind:?}");
        }
        let (cluster, mut history) = (cluster(FilterKind::Blocked, &[1]), History::new());
        history.knows("f", FilterKind::Blocked, false);
        history.insert("f", &[1, 1], 10, 20, &[true, true]);
        assert_eq!(found(&history, &cluster), 1);
    }

    #[test]
    fn what_was_cleared_or_taken_out_is_new_again() {
        for verb in [Verb::Clear, Verb::Remove] {
            let kind = FilterKind::Counting;
            let (cluster, mut history) = (cluster(kind, &[1]), History::of(kind));
            history.insert("f", &[1], 10, 20, &[true]);
            history.insert("f", &[1], 30, 40, &[true]);
            assert_eq!(found(&history, &cluster), 1);
            let items: &[u32] = if verb == Verb::Remove { &[1] } else { &[] };
            history.unknown(verb, "f", items, 22, 28);
            assert_eq!(found(&history, &cluster), 0, "{verb:?}");
        }
    }

    #[test]
    fn the_slices_count_what_was_new() {
        let kind = FilterKind::Scalable;
        let (cluster, mut history) = (cluster(kind, &[1, 2]), History::of(kind));
        history.insert("f", &[1], 10, 20, &[true]);
        history.refused(Verb::Insert, "f", &[2], 10, 20);
        assert_eq!(found(&history, &cluster), 1);
        history.unknown(Verb::Insert, "f", &[2], 10, 20);
        assert_eq!(found(&history, &cluster), 0);
        history.insert("f", &[3, 4], 10, 20, &[true, true]);
        assert_eq!(found(&history, &cluster), 1);
    }
}
