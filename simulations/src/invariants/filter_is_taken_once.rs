//! Of clients that delete a key (`DEL`), over whichever nodes and however close, one is told that it has, for each filter that
//! had the name, unless the outcome of another call is unknown: that one may have deleted it. Whoever is told that there was
//! none is right: no filter had the name all the time. Of names whose filters are dropped in no other way.

use super::checked::Checked;
use crate::history::{Call, Outcome, Verb};
use crate::oracle::view::{CLOCKS_APART_US, FilterView, Life, View, end_us};

/// Name of the invariant.
pub(crate) const NAME: &str = "filter_is_taken_once";

/// Checks every deletion, and every filter that was deleted.
pub(crate) fn check(view: &View<'_>) -> Checked {
    let mut checked = Checked::new(NAME);
    for filter in &view.filters {
        let takes = takes(view, filter);
        if takes.is_empty() {
            continue;
        }
        told_once(filter, &takes, &mut checked);
        told_at_all(filter, &takes, &mut checked);
        told_of_none(filter, &takes, &mut checked);
    }
    checked
}

/// The calls that delete the name; none if its filters may be gone in another way.
fn takes<'a>(view: &View<'a>, filter: &FilterView<'_>) -> Vec<&'a Call> {
    let name = filter.facts.name.as_str();
    let of_name: Vec<&Call> = view.calls.iter().filter(|call| call.filter == name).collect();
    let is_other = |call: &&Call| matches!(call.verb, Verb::Drop | Verb::Clear | Verb::Rename);
    if of_name.iter().any(is_other) {
        return Vec::new();
    }
    of_name.into_iter().filter(|call| call.verb == Verb::Take).collect()
}

/// A call, and the time within which it may have dropped a filter, by the clocks of all hosts.
#[derive(Clone, Copy, Debug)]
struct Span {
    call: u32,
    from_us: u64,
    to_us: u64,
}

impl Span {
    fn of(call: &Call) -> Self {
        let from_us = call.start_us.saturating_sub(CLOCKS_APART_US);
        let to_us = end_us(call).saturating_add(CLOCKS_APART_US);
        Self { call: call.id, from_us, to_us }
    }

    const fn has(&self, at_us: u64) -> bool {
        self.from_us <= at_us && at_us <= self.to_us
    }
}

/// When the log dropped a filter.
fn dropped_at_us(life: &Life<'_>) -> Option<u64> {
    life.incarnation.erased_at_us.first().copied()
}

/// When the log dropped those filters of the name of which it tells one caller alone, or several, in ascending order.
fn drops_us(filter: &FilterView<'_>, decides_races: bool) -> Vec<u64> {
    let lives = filter.lives.iter().filter(|life| life.decides_races() == decides_races);
    let mut drops_us: Vec<u64> = lives.filter_map(dropped_at_us).collect();
    drops_us.sort_unstable();
    drops_us
}

fn is_told(call: &Call, bit: bool) -> bool {
    matches!(&call.outcome, Outcome::Done(bits) if *bits == [bit])
}

/// Whoever is told that he has deleted the key is the only one for some filter.
fn told_once(filter: &FilterView<'_>, takes: &[&Call], checked: &mut Checked) {
    // Of these, several may be told.
    let by_several = drops_us(filter, false);
    let is_alone = |span: &Span| !by_several.iter().any(|&at_us| span.has(at_us));
    let told = takes.iter().filter(|call| is_told(call, true)).map(|call| Span::of(call));
    let told: Vec<Span> = told.filter(is_alone).collect();
    let drops_us = drops_us(filter, true);
    let (_, too_many) = match_up(&drops_us, told.clone());
    let name = &filter.facts.name;
    for span in told {
        let Span { call, to_us, .. } = span;
        let is_one_too_many = too_many.iter().any(|other| other.call == call);
        let what = || {
            format!(
                "call {call} was told that it has deleted {name}, but of the filters of that name, which were dropped at \
                 {drops_us:?} us, others have deleted all that it may have"
            )
        };
        checked.record(to_us, is_one_too_many.then(what));
    }
}

/// Of each filter that was dropped, somebody was told, or has got no answer.
fn told_at_all(filter: &FilterView<'_>, takes: &[&Call], checked: &mut Checked) {
    let drops_us = drops_us(filter, true);
    let may_have = |call: &&&Call| {
        is_told(call, true) || matches!(call.outcome, Outcome::Unknown(_) | Outcome::Reused(_))
    };
    let takers = takes.iter().filter(may_have).map(|call| Span::of(call)).collect();
    let (untold, _) = match_up(&drops_us, takers);
    let name = &filter.facts.name;
    for at_us in drops_us {
        let what = || format!("{name} was dropped at {at_us} us, and no call was told so");
        checked.record(at_us, untold.contains(&at_us).then(what));
    }
}

/// Whoever is told that there was no filter was not told so while there was one all the time.
fn told_of_none(filter: &FilterView<'_>, takes: &[&Call], checked: &mut Checked) {
    for call in takes.iter().filter(|call| is_told(call, false)) {
        let Span { call: id, from_us, to_us } = Span::of(call);
        let was_there = |life: &&Life<'_>| {
            life.incarnation.created_at_us < from_us
                && dropped_at_us(life).is_none_or(|at_us| to_us < at_us)
        };
        let what = |life: &Life<'_>| {
            let (name, filter) = (&filter.facts.name, life.id);
            format!(
                "call {id} was told that {name} does not exist, but it was {filter} all the time"
            )
        };
        checked.record(to_us, filter.lives.iter().find(was_there).map(what));
    }
}

/// Gives each of these moments, which ascend, a call within whose time it is: of those that are left, the one whose time ends
/// first. Returns the moments without a call, and the calls without a moment; no other choice leaves fewer of either.
fn match_up(moments_us: &[u64], mut calls: Vec<Span>) -> (Vec<u64>, Vec<Span>) {
    let mut without_call = Vec::new();
    for &at_us in moments_us {
        let within = (0..calls.len()).filter(|&place| calls[place].has(at_us));
        let first = within.min_by_key(|&place| calls[place].to_us);
        match first {
            Some(place) => {
                calls.swap_remove(place);
            }
            None => without_call.push(at_us),
        }
    }
    (without_call, calls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::fixture::{Cluster, History};
    use crate::plan::FilterKind;

    const KIND: FilterKind = FilterKind::Blocked;

    fn found(history: &History, cluster: &Cluster) -> usize {
        check(&View::new(&history.calls, &history.facts, &cluster.reference)).violations.len()
    }

    fn take(history: &mut History, (start_us, end_us): (u64, u64), bit: bool) {
        history.done(Verb::Take, "f", &[], start_us, end_us, &[bit]);
    }

    fn create_again(cluster: &mut Cluster, at_us: u64) {
        cluster.at_us = at_us;
        cluster.create("f", KIND);
    }

    #[test]
    fn one_call_deletes_a_filter() {
        for (mut cluster, found_count) in [(Cluster::newest_of(KIND), 1), (Cluster::of(KIND), 0)] {
            cluster.drop_filter("f", 15_000);
            let mut history = History::of(KIND);
            take(&mut history, (10_000, 20_000), false);
            take(&mut history, (10_000, 20_000), true);
            assert_eq!(found(&history, &cluster), 0);
            // In clusters of lower versions all of them may be told.
            take(&mut history, (10_000, 20_000), true);
            assert_eq!(found(&history, &cluster), found_count);
        }
    }

    #[test]
    fn each_filter_of_the_name_is_deleted_by_another_call() {
        let mut cluster = Cluster::newest_of(KIND);
        cluster.drop_filter("f", 15_000);
        create_again(&mut cluster, 50_000);
        cluster.drop_filter("f", 60_000);
        let mut history = History::of(KIND);
        // The one that ends last has deleted the second filter.
        take(&mut history, (10_000, 70_000), true);
        take(&mut history, (10_000, 20_000), true);
        assert_eq!(found(&history, &cluster), 0);
        take(&mut history, (55_000, 65_000), true);
        assert_eq!(found(&history, &cluster), 1);
        // What was dropped before its call began was not dropped by it.
        let mut history = History::of(KIND);
        take(&mut history, (10_000, 20_000), true);
        take(&mut history, (63_000, 70_000), true);
        assert_eq!(found(&history, &cluster), 2, "nor was anybody told of the second one");
    }

    #[test]
    fn somebody_is_told_of_each_filter() {
        let mut cluster = Cluster::newest_of(KIND);
        cluster.drop_filter("f", 15_000);
        let mut history = History::of(KIND);
        take(&mut history, (30_000, 40_000), false);
        history.refused(Verb::Take, "f", &[], 10_000, 20_000);
        history.unknown(Verb::Take, "f", &[], 18_000, 20_000);
        assert_eq!(found(&history, &cluster), 1);
        history.unknown(Verb::Take, "f", &[], 5_000, 6_000);
        assert_eq!(found(&history, &cluster), 0, "it may have arrived late");
    }

    #[test]
    fn nobody_is_told_that_there_is_no_filter_while_there_is_one() {
        let mut cluster = Cluster::newest_of(KIND);
        let mut history = History::of(KIND);
        take(&mut history, (10_000, 20_000), false);
        assert_eq!(found(&history, &cluster), 1);
        cluster.drop_filter("f", 15_000);
        create_again(&mut cluster, 16_000);
        history.unknown(Verb::Take, "f", &[], 10_000, 20_000);
        assert_eq!(found(&history, &cluster), 0, "it came in between");
        take(&mut history, (20_000, 30_000), false);
        assert_eq!(found(&history, &cluster), 1);
    }

    #[test]
    fn names_whose_filters_are_dropped_in_another_way_are_left_out() {
        let (cluster, mut history) = (Cluster::newest_of(KIND), History::of(KIND));
        take(&mut history, (10_000, 20_000), true);
        assert_eq!(found(&history, &cluster), 1);
        history.unknown(Verb::Drop, "f", &[], 5_000, 6_000);
        assert_eq!(found(&history, &cluster), 0);
    }
}
