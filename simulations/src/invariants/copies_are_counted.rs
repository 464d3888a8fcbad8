//! Of a filter that tells copies, whichever nodes are asked: what was added (`CF.ADD`) more often than deleted (`CF.DEL`) is
//! present, for every question and every deletion. No more copies are deleted than were added. In the end an item has as many
//! copies as are left, or, where outcomes are unknown, as may be. Of filters that no other call changes and that mistake
//! hardly any item for another one: what was deleted as often as added may be called present for another item's sake.

use std::collections::BTreeMap;

use super::checked::Checked;
use crate::history::{Call, Verb};
use crate::oracle::view::{FilterView, Life, View, end_us};
use crate::plan::FilterKind;

/// Name of the invariant.
pub(crate) const NAME: &str = "copies_are_counted";

/// Most copies that are counted. What is added once more to a quotient filter never leaves it.
const COUNTED_MAX: u64 = 3;

/// Checks every answer that calls an item absent, and the copies of every item at the end.
pub(crate) fn check(view: &View<'_>) -> Checked {
    let mut checked = Checked::new(NAME);
    for filter in &view.filters {
        let is_counted = filter.facts.kind.tells_copies()
            && !filter.inserts.is_empty()
            && filter.inserts.iter().all(|insert| insert.call.verb == Verb::AddOne)
            && filter.removes.iter().all(|remove| remove.call.verb == Verb::DeleteOne);
        let Some(life) = filter.only_life().filter(|_| is_counted) else { continue };
        let tallies = tallies(filter);
        present(filter, &tallies, &mut checked);
        for (item, tally) in tallies {
            let what = miscounted(view, filter, life, item, &tally);
            checked.record(tally.last_us, what);
        }
    }
    checked
}

/// What was done with an item.
#[derive(Default)]
struct Tally {
    /// When each addition that was acknowledged ended.
    added_us: Vec<u64>,
    /// Additions of unknown outcome.
    open_add_count: u64,
    /// When each deletion began that has or may have deleted a copy.
    deleting_us: Vec<u64>,
    /// Those that have.
    deleted_count: u64,
    /// When the last call began.
    last_us: u64,
}

impl Tally {
    /// The least number of copies at some moment of a call with these times.
    fn least_during(&self, start_us: u64, end_us: u64) -> u64 {
        let added = self.added_us.iter().filter(|&&added_us| added_us < start_us).count();
        let deleted = self.deleting_us.iter().filter(|&&began_us| began_us <= end_us).count();
        added.saturating_sub(deleted) as u64
    }
}

fn tallies(filter: &FilterView<'_>) -> BTreeMap<u32, Tally> {
    let mut tallies: BTreeMap<u32, Tally> = BTreeMap::new();
    for insert in &filter.inserts {
        for &item in &insert.call.items {
            let tally = tallies.entry(item).or_default();
            tally.last_us = tally.last_us.max(insert.start_us);
            match insert.answers {
                Some(_) => tally.added_us.push(insert.end_us),
                None => tally.open_add_count += 1,
            }
        }
    }
    for remove in &filter.removes {
        for (place, &item) in remove.call.items.iter().enumerate() {
            let tally = tallies.entry(item).or_default();
            tally.last_us = tally.last_us.max(remove.start_us);
            let answer = remove.answers.map(|answers| answers.get(place) == Some(&true));
            if answer != Some(false) {
                tally.deleting_us.push(remove.start_us);
            }
            tally.deleted_count += u64::from(answer == Some(true));
        }
    }
    tallies
}

/// Whoever calls an item absent is right.
fn present(filter: &FilterView<'_>, tallies: &BTreeMap<u32, Tally>, checked: &mut Checked) {
    let deletions = filter.removes.iter().flat_map(|remove| {
        let call = remove.call;
        let absent = remove.answered().filter(|&(_, is_removed)| !is_removed);
        absent.map(move |(item, _)| (call, item))
    });
    let questions = filter.reads.iter().flat_map(|&call| {
        let absent = FilterView::read_answers(call).filter(|&(_, is_maybe)| !is_maybe);
        absent.map(move |(item, _)| (call, item))
    });
    for (call, item) in deletions.chain(questions) {
        let (start_us, end_us) = (call.start_us, end_us(call));
        let tally = tallies.get(&item);
        let least = tally.map_or(0, |tally| tally.least_during(start_us, end_us));
        checked.record(end_us, (least > 0).then(|| missed(filter, call, item, least)));
    }
}

fn missed(filter: &FilterView<'_>, call: &Call, item: u32, least: u64) -> String {
    let (name, Call { id, verb, start_us, .. }) = (&filter.facts.name, call);
    format!(
        "call {id} ({verb:?}) began at {start_us} us and called item {item} of {name} absent, but {least} copies of it were \
         added that no call may have deleted by then"
    )
}

/// What is wrong with the copies of an item.
fn miscounted(
    view: &View<'_>,
    filter: &FilterView<'_>,
    life: &Life<'_>,
    item: u32,
    tally: &Tally,
) -> Option<String> {
    let Tally { added_us, open_add_count, deleting_us, deleted_count, last_us: _ } = tally;
    let (added_count, deleting_count) = (added_us.len() as u64, deleting_us.len() as u64);
    let attempted_count = added_count + open_add_count;
    let name = &filter.facts.name;
    // Shards that are merged again may have some copies of a cuckoo filter twice.
    let is_exact = filter.facts.kind == FilterKind::Quotient || !view.has_splits();
    let is_bounded = is_exact && attempted_count <= COUNTED_MAX;
    if is_bounded && *deleted_count > attempted_count {
        return Some(format!(
            "{deleted_count} copies of item {item} of {name} were deleted, and {attempted_count} were added at most"
        ));
    }
    let least = added_count.saturating_sub(deleting_count).min(COUNTED_MAX);
    let most = if is_bounded { attempted_count - deleted_count } else { u64::MAX };
    let copies = view.copies(life, item);
    (!(least..=most).contains(&copies)).then(|| {
        format!(
            "in the end {name} has {copies} copies of item {item}, expected {least} to {most}: {added_count} were added and \
             {deleted_count} deleted, and {open_add_count} additions and {} deletions have an unknown outcome",
            deleting_count - deleted_count
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

    /// A filter to which an item was added so many times, until 20 us.
    fn added(kind: FilterKind, count: u32) -> (Cluster, History) {
        let (mut cluster, mut history) = (Cluster::of(kind), History::of(kind));
        for _ in 0..count {
            cluster.insert("f", &[1]);
            history.done(Verb::AddOne, "f", &[1], 10, 20, &[]);
        }
        (cluster, history)
    }

    #[test]
    fn what_was_added_more_often_than_deleted_is_present() {
        for kind in KINDS {
            let (mut cluster, mut history) = added(kind, 2);
            cluster.remove("f", 1);
            history.done(Verb::DeleteOne, "f", &[1], 30, 40, &[true]);
            history.contains("f", &[1], 50, 60, &[true]);
            history.contains("f", &[1], 15, 60, &[false]);
            assert_eq!(found(&history, &cluster), 0, "{kind:?}");
            for verb in [Verb::Contains, Verb::ContainsAny, Verb::DeleteOne] {
                history.done(verb, "f", &[1], 50, 60, &[false]);
                assert_eq!(found(&history, &cluster), 1, "{kind:?}, {verb:?}");
                history.calls.pop();
            }
            // Another call may have deleted the second copy, and has not.
            history.unknown(Verb::DeleteOne, "f", &[1], 45, 50);
            history.contains("f", &[1], 50, 60, &[false]);
            assert_eq!(found(&history, &cluster), 0, "{kind:?}");
        }
    }

    #[test]
    fn a_deletion_takes_one_copy() {
        for kind in KINDS {
            let (mut cluster, mut history) = added(kind, 3);
            history.done(Verb::DeleteOne, "f", &[1], 30, 40, &[true]);
            assert_eq!(found(&history, &cluster), 1, "{kind:?}: three are left");
            cluster.remove("f", 1);
            assert_eq!(found(&history, &cluster), 0, "{kind:?}");
            cluster.remove("f", 1);
            assert_eq!(found(&history, &cluster), 1, "{kind:?}: one is left");
            history.unknown(Verb::DeleteOne, "f", &[1], 30, 40);
            assert_eq!(found(&history, &cluster), 0, "{kind:?}");
        }
    }

    #[test]
    fn no_more_copies_are_deleted_than_were_added() {
        for kind in KINDS {
            let (mut cluster, mut history) = added(kind, 1);
            cluster.remove("f", 1);
            for (is_there, found_count) in [(true, 0), (false, 0), (true, 1)] {
                history.done(Verb::DeleteOne, "f", &[1], 30, 40, &[is_there]);
                assert_eq!(found(&history, &cluster), found_count, "{kind:?}");
            }
            history.refused(Verb::AddOne, "f", &[1], 10, 20);
            assert_eq!(found(&history, &cluster), 1, "{kind:?}");
            history.unknown(Verb::AddOne, "f", &[1], 10, 20);
            assert_eq!(found(&history, &cluster), 0, "{kind:?}");
        }
    }

    #[test]
    fn of_many_copies_some_stay() {
        for kind in KINDS {
            let (mut cluster, mut history) = added(kind, 4);
            for _ in 0..3 {
                cluster.remove("f", 1);
                history.done(Verb::DeleteOne, "f", &[1], 30, 40, &[true]);
            }
            assert_eq!(found(&history, &cluster), 0, "{kind:?}");
        }
    }

    #[test]
    fn filters_that_other_calls_change_are_left_out() {
        for kind in KINDS {
            let (cluster, mut history) = added(kind, 1);
            history.contains("f", &[1], 50, 60, &[false]);
            assert_eq!(found(&history, &cluster), 1, "{kind:?}");
            history.unknown(Verb::Remove, "f", &[1], 10, 20);
            assert_eq!(found(&history, &cluster), 0, "{kind:?}");
        }
    }
}
